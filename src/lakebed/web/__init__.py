"""A lake and an archive in the browser: a report on one page, and a server."""

from typing import TYPE_CHECKING

from lakebed.common.lazy import lazily

if TYPE_CHECKING:
    from lakebed.web.build import write_report as write_report
    from lakebed.web.iceberg_door import IcebergDoor as IcebergDoor
    from lakebed.web.serving import create_app as create_app
    from lakebed.web.serving import serve as serve
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "write_report": "lakebed.web.build",
            "IcebergDoor": "lakebed.web.iceberg_door",
            "create_app": "lakebed.web.serving",
            "serve": "lakebed.web.serving",
        },
    )

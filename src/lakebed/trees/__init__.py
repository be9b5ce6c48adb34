"""Trees: directories of datasets as other tools keep them, to adopt and to write."""

from typing import TYPE_CHECKING

from lakebed.model.lazy import lazily

if TYPE_CHECKING:
    from lakebed.trees import kite as kite
    from lakebed.trees import tables as tables
    from lakebed.trees import telemetry as telemetry
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "kite": "lakebed.trees",
            "tables": "lakebed.trees",
            "telemetry": "lakebed.trees",
        },
    )

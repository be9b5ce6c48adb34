"""Delta tables: a Delta log over the data files of a dataset."""

from typing import TYPE_CHECKING

from lakebed.common.lazy import lazily

if TYPE_CHECKING:
    from lakebed.tables.delta import from_delta as from_delta
    from lakebed.tables.delta import to_delta as to_delta
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "from_delta": "lakebed.tables.delta",
            "to_delta": "lakebed.tables.delta",
        },
    )

"""Trees: datasets in the layouts of other tools, to adopt and to write."""

from typing import TYPE_CHECKING

from lakebed.common.lazy import lazily

if TYPE_CHECKING:
    from lakebed.tables.trees import kartothek_head as kartothek_head
    from lakebed.tables.trees import kite as kite
    from lakebed.tables.trees import log_tables as log_tables
    from lakebed.tables.trees import telemetry as telemetry
    from lakebed.tables.trees import to_kartothek as to_kartothek
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "kartothek_head": "lakebed.tables.trees",
            "kite": "lakebed.tables.trees",
            "log_tables": "lakebed.tables.trees",
            "telemetry": "lakebed.tables.trees",
            "to_kartothek": "lakebed.tables.trees",
        },
    )

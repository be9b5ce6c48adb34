"""The data plane on Spark; the only room that knows pyspark, besides `hive`."""

from typing import TYPE_CHECKING

from lakebed.model.lazy import lazily

if TYPE_CHECKING:
    from lakebed.spark import session
    from lakebed.spark.tables import AttachedTables, attach
else:
    __getattr__, __dir__ = lazily(
        __name__, {"lakebed.spark.tables": ("AttachedTables", "attach")}, modules=("session",)
    )

__all__ = ["AttachedTables", "attach", "session"]

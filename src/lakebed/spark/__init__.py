"""The data plane on Spark; the only room that knows pyspark, besides `hive`."""

from typing import TYPE_CHECKING

from lakebed.common.lazy import lazily

if TYPE_CHECKING:
    from lakebed.spark import session as session
    from lakebed.spark.doctor import WorkerReport as WorkerReport
    from lakebed.spark.doctor import look_at_workers as look_at_workers
    from lakebed.spark.hadoop import hadoop_options as hadoop_options
    from lakebed.spark.tables import AttachedTables as AttachedTables
    from lakebed.spark.tables import attach as attach
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "session": "lakebed.spark",
            "WorkerReport": "lakebed.spark.doctor",
            "look_at_workers": "lakebed.spark.doctor",
            "hadoop_options": "lakebed.spark.hadoop",
            "AttachedTables": "lakebed.spark.tables",
            "attach": "lakebed.spark.tables",
        },
    )

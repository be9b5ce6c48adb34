"""The data plane on Spark; the only room that knows pyspark, besides `tables.hive` and `datasource`."""

from typing import TYPE_CHECKING

from lakebed.common.lazy import lazily

if TYPE_CHECKING:
    from lakebed.spark import session as session
    from lakebed.spark.attached_tables import AttachedTables as AttachedTables
    from lakebed.spark.attached_tables import attach as attach
    from lakebed.spark.hadoop_settings import hadoop_options as hadoop_options
    from lakebed.spark.worker_report import WorkerReport as WorkerReport
    from lakebed.spark.worker_report import look_at_workers as look_at_workers
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "session": "lakebed.spark",
            "WorkerReport": "lakebed.spark.worker_report",
            "look_at_workers": "lakebed.spark.worker_report",
            "hadoop_options": "lakebed.spark.hadoop_settings",
            "AttachedTables": "lakebed.spark.attached_tables",
            "attach": "lakebed.spark.attached_tables",
        },
    )

"""Raw flights, one JSON object per line, become a dataset by day, and one of late flights by carrier.

Spark makes `spark` known to this module. Each flow is a streaming query with a checkpoint of its own
below the `storage` of the project, so that each row comes once, however often the pipeline is run.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

RAW = spark.conf.get("lakebed.raw")  # noqa: F821 - Spark defines it
LAKE = spark.conf.get("lakebed.lake")  # noqa: F821
SCHEMA = "time_hour timestamp, carrier string, flight long, tailnum string, dep_delay double"
LATE_MINUTES = 60


def raw_flights() -> DataFrame:
    return spark.readStream.schema(SCHEMA).json(RAW)  # noqa: F821


dp.create_sink(
    "flights",
    "lakebed",
    {
        "path": f"{LAKE}/flights",
        "partitionBy": "date(time_hour) as dt",
        "index": "tailnum",
        "compactEvery": "20",
    },
)


@dp.append_flow(target="flights")
def all_flights() -> DataFrame:
    """Return each flight unchanged."""
    return raw_flights()


dp.create_sink(
    "late_flights", "lakebed", {"path": f"{LAKE}/late_flights", "partitionBy": "carrier"}
)


@dp.append_flow(target="late_flights")
def late_flights() -> DataFrame:
    """Return the flights that left more than an hour late."""
    is_late = F.col("dep_delay") > LATE_MINUTES
    return raw_flights().where(is_late).withColumn("hours_late", F.col("dep_delay") / 60)

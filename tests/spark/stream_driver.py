"""Run streaming queries until there is nothing left to read; made to be killed.

Takes an order as JSON: the queries, each with what it reads (a folder of numbers or a dataset), where
it writes and its checkpoint. Prints a line when they begin. What dies beside it, such as Python
workers, fails a query; then it is started again.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from stream_rows import frames

from lakebed.spark.session import local_session


def main(order) -> None:
    spark = local_session(
        "2,4",  # a task that lost its worker is tried again
        settings={
            "spark.sql.shuffle.partitions": "2",
            # Spark leaves a temporary file where it was killed before its first epoch was noted, and
            # refuses its own checkpoint then.
            "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    waiting = order["queries"]
    while waiting:
        queries = [(one, _started(spark, one)) for one in waiting]
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        waiting = [one for one, query in queries if query is None or not _is_done(query)]
    sys.stdout.write("done\n")
    sys.stdout.flush()


def _started(spark, one):
    """Return a query that has begun; None where what it is planned with died."""
    try:
        return _start(spark, one)
    except (PySparkException, Py4JJavaError) as error:
        sys.stderr.write(f"{error}\n")
        return None


def _is_done(query) -> bool:
    try:
        query.awaitTermination()
    except PySparkException as error:
        sys.stderr.write(f"{error}\n")
        return False
    return True


def _start(spark, one):
    if "folder" in one:
        rows = frames(spark, Path(one["folder"]))
    else:
        reader = spark.readStream.format("lakebed").option("maxFilesPerTrigger", "2")
        rows = reader.option("startingVersion", "0").load(one["dataset"])
    writer = rows.writeStream.format("lakebed").option("compactEvery", "3")
    writer = writer.option("checkpointLocation", one["checkpoint"])
    return writer.trigger(availableNow=True).start(one["into"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

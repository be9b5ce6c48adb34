"""Stream to and from datasets over Spark Connect; prints what it found as JSON."""

import functools
import json
import os
import sys
from pathlib import Path

from lakebed.spark.java import ensure_java

os.environ["JAVA_HOME"] = str(ensure_java().path)
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_TESTING"] = "1"  # the server takes a port that is free
sys.path.insert(0, str(Path(__file__).parents[1]))

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from stream_rows import DESCRIPTOR, frames, numbers_of, push, run

import lakebed


def main(directory: Path) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    repository = lakebed.open_repository(directory / "lake")
    sink, foreach, streamed = (
        repository.create(name, DESCRIPTOR) for name in ("sink", "foreach", "streamed")
    )
    for place in range(2):
        push(directory / "in", str(place), 2 * place, 2 * place + 1)
    rows = frames(spark, directory / "in")
    run(rows, sink.uri, directory / "sink-checkpoint")
    run_batches(rows, functools.partial(foreach.sink, query="in"), directory / "foreach-checkpoint")
    again = spark.readStream.format("lakebed").load(sink.uri)
    run(again, streamed.uri, directory / "streamed-checkpoint")
    found = {
        "session": type(spark).__module__,
        "sink": numbers_of(sink),
        "foreach": numbers_of(foreach),
        "streamed": numbers_of(streamed),
    }
    try:
        run_batches(rows, foreach.sink, directory / "unnamed-checkpoint")
    except PySparkException as error:
        found["unnamed"] = str(error)
    sys.stdout.write(json.dumps(found) + "\n")
    spark.stop()


def run_batches(rows, sink, checkpoint: Path) -> None:
    writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

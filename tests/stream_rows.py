"""Rows that streaming queries of tests read: files of numbers, which can come again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import lakebed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SCHEMA = "p string, n long"
DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=pa.schema([("p", pa.string()), ("n", pa.int64())]), partition_by="p"
)


def push(folder: Path, name: str, *numbers: int) -> Path:
    """Bring a file of numbers as a whole; it is older than those that are brought after it."""
    folder.mkdir(exist_ok=True)
    waiting = folder.parent / f"{name}.part"
    waiting.write_text("".join(f"{json.dumps({'p': f'p{n % 2}', 'n': n})}\n" for n in numbers))
    path = folder / f"{name}.json"
    waiting.rename(path)
    time.sleep(0.01)  # Spark reads files in order of their times
    return path


def frames(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the files of a folder as a stream, one a micro-batch."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
    return reader.json(str(folder))


def run(frame: DataFrame, path: str, checkpoint: Path, **options: object) -> StreamingQuery:
    """Write all that there is of a stream to a dataset."""
    writer = frame.writeStream.format("lakebed").option("checkpointLocation", str(checkpoint))
    for name, value in options.items():
        writer = writer.option(name, value)
    query = writer.trigger(availableNow=True).start(path)
    query.awaitTermination()
    return query


def forget_commits(checkpoint: Path, *epochs: int) -> None:
    """Make Spark believe that it died before it noted that epochs were committed."""
    for epoch in epochs:
        (checkpoint / "commits" / str(epoch)).unlink()
        (checkpoint / "commits" / f".{epoch}.crc").unlink(missing_ok=True)


def numbers_of(dataset: lakebed.Dataset) -> list[int]:
    """Return the numbers that a dataset holds, in order."""
    return sorted(dataset.arrow(["n"]).column("n").to_pylist())


def wait_until(is_so: Callable[[], bool], timeout_s: float = 60) -> None:
    """Wait for something that happens beside the test."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.1)

"""Streams by the name of a table: readStream.table, writeStream.toTable, foreachBatch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidInputError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
]


def numbers(*values: int) -> pa.Table:
    return pa.table(
        {"n": pa.array(values, pa.int64()), "part": pa.array([v % 2 for v in values], pa.int64())}
    )


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[lakebed.Repository]:
    lake = lakebed.open_repository(tmp_path / "lake")
    lake.write("numbers", numbers(0, 1, 2), partition_by="part")
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        yield lake


class Streams:
    """Streams of a test; each name has a checkpoint of its own."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def writer(self, name: str, source: str = "lake.numbers", **options: str) -> Any:
        frame = self._spark.readStream.options(**options).table(source)
        return self.of(name, frame)

    def of(self, name: str, frame: Any) -> Any:
        checkpoint = str(self._folder / f"checkpoint-{name}")
        writer = frame.writeStream.option("checkpointLocation", checkpoint)
        return writer.trigger(availableNow=True)


@pytest.fixture
def streams(spark: Any, tmp_path: Path) -> Streams:
    return Streams(spark, tmp_path)


def run(query: Any) -> None:
    query.awaitTermination(120)
    assert not query.isActive


def values(lake: lakebed.Repository, name: str) -> list[int]:
    return sorted(lake.open(name).to_arrow()["n"].to_pylist())


def test_stream_makes_a_table_and_adds_new_rows_to_it(
    spark: Any, lake: lakebed.Repository, streams: Streams
):
    run(streams.writer("copy").toTable("lake.copy"))
    assert values(lake, "copy") == [0, 1, 2]
    run(streams.writer("copy").toTable("lake.copy"))
    assert lake.open("copy").version == 1  # nothing new, no commit
    lake.open("numbers").append(numbers(3))
    lake.open("numbers").compact()
    spark.sql("INSERT INTO lake.numbers VALUES (4, 0)")

    run(streams.writer("copy").toTable("lake.copy"))

    assert values(lake, "copy") == [0, 1, 2, 3, 4]
    runs = {batch.run for batch in lake.open("copy").batches()}
    assert len(runs) == 2
    assert all(name.startswith("stream:") for name in runs)


def test_options_of_the_stream_are_those_of_the_format(
    spark: Any, lake: lakebed.Repository, streams: Streams
):
    lake.open("numbers").append(numbers(3))

    run(streams.writer("late", startingVersion="2").toTable("lake.late"))

    assert values(lake, "late") == [3]


@pytest.mark.since_spark("4.2", "sources are not told of limits")
def test_limit_of_the_stream_is_that_of_the_format(
    spark: Any, lake: lakebed.Repository, streams: Streams
):
    lake.open("numbers").append(numbers(3))

    run(streams.writer("few", maxFilesPerTrigger="1").toTable("lake.few"))

    assert values(lake, "few") == [0, 1, 2, 3]
    assert len(lake.open("few").batches()) == 3


def test_options_of_a_stream_are_refused_for_other_reads(spark: Any, lake: lakebed.Repository):
    reader = spark.read.option("startingVersion", "1")
    lake.create("empty", numbers().schema)

    with pytest.raises(InvalidInputError, match="startingversion"):
        reader.table("lake.numbers").collect()
    with pytest.raises(InvalidInputError, match="startingversion"):
        reader.table("lake.empty").collect()


def test_unknown_option_of_a_stream_fails_its_query(
    spark: Any, lake: lakebed.Repository, streams: Streams
):
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException, match="startingVersion"):
        run(streams.writer("copy", startingVersoin="1").toTable("lake.copy"))


def test_aggregate_of_a_stream_replaces_all_rows(
    spark: Any, lake: lakebed.Repository, streams: Streams
):
    for number in (3, 4):
        counts = spark.readStream.table("lake.numbers").groupBy("part").count()
        run(streams.of("counts", counts).outputMode("complete").toTable("lake.counts"))
        lake.open("numbers").append(numbers(number))

    found = {tuple(row.values()) for row in lake.open("counts").to_arrow().to_pylist()}
    assert found == {(0, 2), (1, 2)}


def test_stream_of_an_empty_table_waits_for_its_rows(
    spark: Any, lake: lakebed.Repository, streams: Streams
):
    lake.create("empty", numbers().schema)
    run(streams.writer("copy", "lake.empty").toTable("lake.copy"))
    assert lake.open("copy").count() == 0

    lake.open("empty").append(numbers(7))
    run(streams.writer("copy", "lake.empty").toTable("lake.copy"))

    assert values(lake, "copy") == [7]


def test_stream_after_a_change_of_columns(spark: Any, lake: lakebed.Repository, streams: Streams):
    spark.sql("ALTER TABLE lake.numbers RENAME COLUMN n TO number")
    spark.sql("ALTER TABLE lake.numbers ADD COLUMNS (note STRING)")
    spark.sql("INSERT INTO lake.numbers VALUES (3, 1, 'new')")

    run(streams.writer("copy").toTable("lake.copy"))

    rows = {(row["number"], row["note"]) for row in lake.open("copy").to_arrow().to_pylist()}
    assert rows == {(0, None), (1, None), (2, None), (3, "new")}


def test_foreach_batch_has_the_catalog(spark: Any, lake: lakebed.Repository, streams: Streams):
    lake.create("copy", numbers().schema)
    seen = []

    def write(frame: Any, epoch: int) -> None:
        session = frame.sparkSession
        count = session.sql("SELECT count(*) FROM lake.numbers").collect()[0][0]
        seen.append((epoch, frame.count(), count))
        frame.writeTo("lake.copy").option("run", f"epoch {epoch}").append()

    run(streams.writer("each").foreachBatch(write).start())

    assert seen == [(0, 3, 3)]
    assert values(lake, "copy") == [0, 1, 2]
    assert [batch.run for batch in lake.open("copy").batches()] == ["epoch 0"]


def test_streams_are_of_namespaces_and_not_of_facts(
    spark: Any, lake: lakebed.Repository, streams: Streams
):
    from pyspark.errors import AnalysisException

    lake.namespaces.create("sales").write("orders", numbers(5))

    run(streams.writer("copy", "lake.sales.orders").toTable("lake.sales.copy"))

    assert values(lake["sales"], "copy") == [5]
    with pytest.raises(AnalysisException, match="micro-batch"):
        streams.writer("facts", "lake.numbers.history").toTable("lake.facts")


def test_stream_applies_a_condition_on_levels_of_paths(
    spark: Any, lake: lakebed.Repository, streams: Streams
):
    frame = spark.readStream.table("lake.numbers").where("part = 1").select("n")

    run(streams.of("odd", frame).toTable("lake.odd"))
    lake.open("numbers").append(numbers(3, 4))
    run(streams.of("odd", frame).toTable("lake.odd"))

    assert values(lake, "odd") == [1, 3]

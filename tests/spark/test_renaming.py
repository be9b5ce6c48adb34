"""Spark finds the columns of renamed fields, in each of its ways of reading and writing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.dataset import Dataset
from lakebed.errors import SchemaMismatchError

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", pa.string()), ("x", pa.float64())])
NAMES = ("b", "a", "text", "x")
_names = itertools.count()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> lakebed.Repository:
    return lakebed.open_repository(tmp_path_factory.mktemp("renaming"))


def exchanged(lake: lakebed.Repository, **more: Any) -> tuple[Dataset, set[tuple[Any, ...]]]:
    """Return a dataset whose fields of one type have exchanged their names, and its rows."""
    described = lakebed.DatasetDescriptor(**{"schema": SCHEMA, **more})
    dataset = lake.create(f"numbers{next(_names)}", described)
    dataset.append(
        [{"a": n, "b": 10 * n, "s": f"s{n}", "x": n / 2} for n in range(1, 4)]
        + [{"a": 4, "b": 40, "s": None, "x": float("inf")}]
    )
    dataset.evolve(
        lambda known: (
            known.rename_field("a", "t")
            .rename_field("b", "a")
            .rename_field("t", "b")
            .rename_field("s", "text")
        )
    )
    dataset.append([{"b": n, "a": 10 * n, "text": f"s{n}", "x": n / 2} for n in range(5, 8)])
    rows = {(n, 10 * n, f"s{n}", n / 2) for n in (1, 2, 3, 5, 6, 7)}
    return dataset, rows | {(4, 40, None, float("inf"))}


FORMS = pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="plain"),
        pytest.param({"partition_by": "hash(s, 4) as part", "index": ["a"]}, id="partitioned"),
        pytest.param({"format": "avro"}, id="avro"),
    ],
)


def taken(frame: Any) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in frame.select(*NAMES).collect()}


@FORMS
@pytest.mark.parametrize("way", ["auto", "native", "paths", "prepared", "arrow"])
def test_each_way_finds_the_columns(
    spark: Any, lake: lakebed.Repository, way: Any, more: dict[str, Any]
) -> None:
    if more.get("format") == "avro" and way not in ("auto", "arrow"):
        pytest.skip("Spark's own reader reads datasets of Parquet only")
    dataset, rows = exchanged(lake, **more)

    frame = dataset.spark(spark, way=way)

    assert frame.columns == list(NAMES)
    assert taken(frame) == rows
    assert taken(frame.where("b = 6")) == {row for row in rows if row[0] == 6}
    assert taken(frame.where("a < 25")) == {row for row in rows if row[1] < 25}
    assert taken(frame.where("text = 's2'")) == {row for row in rows if row[2] == "s2"}
    assert frame.select("text").where("text IS NULL").count() == 1
    assert frame.count() == 7
    view = dataset.where("a >= 30 AND text IS NOT NULL").spark(spark, way=way)
    assert taken(view) == {row for row in rows if row[1] >= 30 and row[2] is not None}
    assert dataset.where("b = 6").spark(spark, ["a"], way=way).collect() == [(60,)]


@FORMS
def test_the_data_source_tables_and_differences_find_the_columns(
    spark: Any, lake: lakebed.Repository, more: dict[str, Any]
) -> None:
    dataset, rows = exchanged(lake, **more)

    frame = spark.read.format("lakebed").load(dataset.uri)
    assert taken(frame) == rows
    assert taken(frame.where("b = 6")) == {row for row in rows if row[0] == 6}
    asked = spark.read.format("lakebed").option("where", "a < 25").option("columns", "b")
    assert {row[0] for row in asked.load(dataset.uri).collect()} == {1, 2}
    first = spark.read.format("lakebed").option("version", "1").load(dataset.uri)
    assert {(row["a"], row["s"]) for row in first.collect()} == {
        (row[0], row[2]) for row in rows if row[0] < 5
    }
    assert taken(dataset.changes(0).spark(spark)) == rows
    assert taken(dataset.diff(0, dataset.version).spark(spark)) == rows
    with lakebed.spark.attach(spark, lake, datasets=[dataset.name], prefix="of_"):
        table = spark.table(f"of_{dataset.name}")
        assert taken(table) == rows
        for number in (2, 6):
            assert taken(table.where(f"b = {number}")) == {row for row in rows if row[0] == number}
            assert taken(table.where(f"a = {10 * number} AND text = 's{number}'")) == {
                row for row in rows if row[0] == number
            }


@FORMS
def test_spark_writes_and_merges_under_the_new_names(
    spark: Any, lake: lakebed.Repository, more: dict[str, Any]
) -> None:
    dataset, rows = exchanged(lake, **more)
    columns = "b long, a long, text string, x double"
    added = spark.createDataFrame([(n, 10 * n, f"s{n}", n / 2) for n in (8, 9)], columns)

    dataset.append(added)
    added.write.format("lakebed").mode("append").save(dataset.uri)
    dataset.upsert(spark.createDataFrame([(1, 11, "new", 0.5)], columns), on="b")
    dataset.where("b = 2").update_rows({"a": "a + 1"}, spark=spark)
    dataset.compact(spark=spark)

    rows = {row for row in rows if row[0] > 2} | {(1, 11, "new", 0.5), (2, 21, "s2", 1.0)}
    rows |= {(8, 80, "s8", 4.0), (9, 90, "s9", 4.5)}
    assert taken(dataset.spark(spark)) == rows
    assert {tuple(row[name] for name in NAMES) for row in dataset.arrow().to_pylist()} == rows
    with pytest.raises(SchemaMismatchError, match="Unknown column 's'"):
        dataset.append(spark.createDataFrame([(1, "x")], "b long, s string"))
    assert dataset.check(deep=True).problems == ()


def test_a_stream_reads_files_of_before_and_after(
    spark: Any, lake: lakebed.Repository, tmp_path: Path
) -> None:
    dataset, rows = exchanged(lake)
    found: list[tuple[Any, ...]] = []

    def run(take: Callable[[Any, int], None]) -> None:
        frame = spark.readStream.format("lakebed").load(dataset.uri)
        writer = frame.writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    run(lambda frame, _: found.extend(taken(frame)))
    assert set(found) == rows
    dataset.append([{"b": 8, "a": 80, "text": "s8", "x": 4.0}])
    found.clear()
    run(lambda frame, _: found.extend(taken(frame)))
    assert found == [(8, 80, "s8", 4.0)]

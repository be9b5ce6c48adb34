"""Spark's planner learns the size of what tasks read, so it does not broadcast it whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from frames import setting

import lakebed
from lakebed.spark.session import is_classic

pytestmark = pytest.mark.spark

ROWS = 2_000
THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"


def create(repository: lakebed.Repository, name: str, **given: Any) -> lakebed.Dataset:
    schema = pa.schema([("id", pa.int64()), ("s", pa.string()), ("p", pa.string())])
    return repository.create(name, lakebed.DatasetDescriptor(**{"schema": schema, **given}))


def table(start: int = 0) -> pa.Table:
    ids = list(range(start, start + ROWS))
    return pa.table(
        {"id": ids, "s": [f"{n * 7919:050}" for n in ids], "p": [["x", "y"][n % 2] for n in ids]}
    )


def in_avro(repository: lakebed.Repository) -> lakebed.Dataset:
    dataset = create(repository, "t", format="avro")
    dataset.append(table())
    return dataset


def by_a_time(repository: lakebed.Repository) -> lakebed.Dataset:
    moments = pa.array([0] * ROWS, pa.timestamp("us", "UTC"))
    rows = table().append_column("t", moments)
    dataset = create(repository, "t", schema=rows.schema, partition_by="t")
    dataset.append(rows)
    return dataset


def with_a_wider_record(repository: lakebed.Repository) -> lakebed.Dataset:
    def rows(*names: str) -> pa.Table:
        given = table()
        record = pa.StructArray.from_arrays(
            [given["s"].combine_chunks()] * len(names), names=list(names)
        )
        return pa.table({"id": given["id"], "r": record})

    dataset = create(repository, "t", schema=rows("s").schema)
    dataset.append(rows("s"))
    wider = lakebed.DatasetDescriptor(schema=rows("s", "b").schema)
    dataset.evolve(wider, base=dataset.version)
    dataset.append(rows("s", "b").slice(0, 10))
    return dataset


def with_names_that_differ_in_case(repository: lakebed.Repository) -> lakebed.Dataset:
    rows = table().append_column("P", pa.array(range(ROWS)))
    dataset = create(repository, "t", schema=rows.schema)
    dataset.append(rows)
    return dataset


DATASETS = [in_avro, by_a_time, with_a_wider_record, with_names_that_differ_in_case]


@pytest.mark.parametrize("make", DATASETS)
def test_the_planner_knows_the_size_of_what_tasks_read(
    spark: Any, tmp_path: Path, make: Callable[[lakebed.Repository], lakebed.Dataset]
) -> None:
    repository = lakebed.open_repository(tmp_path)
    dataset = make(repository)
    size = sum(file.size_bytes for file in dataset.files())
    other = spark.range(0, 2 * ROWS).repartition(2)

    with (
        setting(spark, THRESHOLD, str(size - 1)),
        lakebed.spark.attach(spark, repository, prefix="sized_"),
    ):
        frames = {
            "view": dataset.spark(spark),
            "one column": dataset.spark(spark, ["id"]),
            "arrow": dataset.spark(spark, way="arrow"),
            "changes": dataset.changes(0, dataset.version).spark(spark),
            "attached": spark.table("sized_t"),
        }
        for name, frame in frames.items():
            if is_classic(spark):
                assert believed(frame) >= size, name
            joined = other.join(frame, "id")
            assert "BroadcastHashJoin" not in plan_of(joined), name
            assert joined.count() == dataset.count(), name


def test_lines_of_raw_files_have_their_size(spark: Any, tmp_path: Path) -> None:
    archive = lakebed.open_archive(tmp_path / "archive")
    content = b"".join(b"line %d\n" % n for n in range(1_000))
    (tmp_path / "a.log").write_bytes(content)
    archive.push(tmp_path / "a.log", where="w", what="log", start="2013-06-01")

    lines = archive.spark(spark, "log", start="2013-06-01", end="2013-06-02", read="lines")

    with setting(spark, THRESHOLD, str(len(content) - 1)):
        numbers = spark.range(2_000).toDF("line_number").repartition(2)
        joined = numbers.join(lines, "line_number")
        assert "BroadcastHashJoin" not in plan_of(joined)
    assert joined.count() == 1_000


def believed(frame: Any) -> int:
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def plan_of(frame: Any) -> str:
    """Return the plan before Spark adapts it to what it finds while the query runs."""
    if is_classic(frame.sparkSession):
        return str(frame._jdf.queryExecution().executedPlan().toString())
    return str(frame._explain_string())


def test_the_size_is_not_far_above_the_files(spark: Any, tmp_path: Path) -> None:
    if not is_classic(spark):
        pytest.skip("on Connect only a hint is given")
    dataset = in_avro(lakebed.open_repository(tmp_path))
    size = sum(file.size_bytes for file in dataset.files())

    assert size <= believed(dataset.spark(spark)) <= size + 1_000
    joined = spark.range(0, 10**7).join(dataset.spark(spark), "id")
    assert "BroadcastHashJoin" in plan_of(joined)


@pytest.fixture
def odd(tmp_path: Path) -> lakebed.Dataset:
    dataset = create(lakebed.open_repository(tmp_path), "t", partition_by="p")
    dataset.append(table())
    dataset.append([{"id": -1, "s": "of the empty text", "p": ""}])
    return dataset


def test_a_file_that_spark_cannot_read_is_read_apart(
    spark: Any, odd: lakebed.Dataset, tmp_path: Path
) -> None:
    whole, usual = odd.spark(spark), odd.where("p <> ''")

    with lakebed.spark.attach(spark, lakebed.open_repository(tmp_path), prefix="odd_"):
        for frame in (whole, spark.table("odd_t")):
            plan = plan_of(frame)
            assert len(re.findall(r"(?i)\bmapInArrow\b", plan)) == 1
            assert len(re.findall(r"FileScan parquet", plan)) == 1
            assert frame.count() == ROWS + 1
            assert frame.where("p = ''").select("id", "s").collect() == [(-1, "of the empty text")]
            assert frame.where("p = 'x'").count() == ROWS // 2
            assert {row.p for row in frame.select("p").distinct().collect()} == {"x", "y", ""}
    assert "MapInArrow" not in plan_of(usual.spark(spark))
    with pytest.raises(lakebed.errors.InvalidInputError, match="'p' holds the empty text"):
        odd.spark(spark, way="native")


def test_only_files_of_the_empty_text_are_read_through_arrow(
    spark: Any, odd: lakebed.Dataset
) -> None:
    frame = odd.where("p = ''").spark(spark, ["p", "id"])

    assert "FileScan" not in plan_of(frame)
    assert frame.collect() == [("", -1)]

"""Dimensions on Spark: the same values as elsewhere, and a cap that holds over all tasks."""

from __future__ import annotations

import datetime as dt
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakebed
from lakebed import by
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.partition import Dimension
from lakebed.model.schema import Field, Kind, Primitive, Schema
from lakebed.spark.admission import dimension_column
from lakebed.spark.types import struct_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TEXTS = [
    "",
    "A",
    "UA",
    "OTHER",
    "OTHER\n",
    "UNKNOWN",
    "~OTHER",
    "~~UNKNOWN",
    "~",
    "9",
    "+10",
    "a/b=c d%",
    "日本",
    "\U0001f600",
    "x" * 253,
    "x" * 254,
    "é" * 42,
    "é" * 43,
    "~" + "x" * 252,
    None,
]
CASES = {
    Kind.STRING: (
        TEXTS,
        [
            "*",
            [],
            ["UA", "OTHER", "日本", "x" * 254],
            {"min": "A", "max": "UA"},
            {"max": "~"},
            {"min": 9, "type": "long"},
            {"regex": "[A-Z~]+"},
        ],
    ),
    Kind.INT: ([-(2**31), -1, 0, 448, 500, 2**31 - 1, None], ["*", [448], {"min": 448}]),
    Kind.LONG: (
        [-(2**63), -1, 0, 448, 2**63 - 1, None],
        ["*", [448, 2**63 - 1], {"min": 0, "max": 500}],
    ),
    Kind.UNSIGNED_LONG: ([0, 448, 2**64 - 1, None], ["*", [2**64 - 1], {"min": 2**63}]),
    Kind.BOOLEAN: ([True, False, None], ["*", [True], []]),
    Kind.DATE: (
        [dt.date(1, 1, 1), dt.date(987, 6, 5), dt.date(2013, 6, 7), dt.date(9999, 12, 31), None],
        ["*", ["2013-06-07"], {"min": "2013-06-07"}, {"max": "2013-06-08"}],
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_spark_gives_what_python_gives(spark: SparkSession, kind: Kind) -> None:
    values, rules = CASES[kind]
    functions = [by.dimension("a", rule, name="p") for rule in rules]
    source = Primitive(kind)
    schema = struct_type(Schema(fields=(Field(name="a", type=source),)))
    given = [Decimal(v) if kind is Kind.UNSIGNED_LONG and v is not None else v for v in values]
    frame = spark.createDataFrame([(value,) for value in given], schema)

    assert all(isinstance(function, Dimension) for function in functions)
    columns = [dimension_column(one, frame["a"], source) for one in functions]
    found = frame.select(*[c.alias(f"c{i}") for i, c in enumerate(columns)]).collect()

    array = pa.array(values, type_to_arrow(source))
    for position, function in enumerate(functions):
        alone = ["UNKNOWN" if v is None else function.value(v, source) for v in values]
        assert [row[position] for row in found] == alone, function
        assert function.array(array, source).to_pylist() == alone


SCHEMA = pa.schema([("n", pa.int64()), ("version", pa.string()), ("channel", pa.string())])


@pytest.fixture
def pings(tmp_path: Path) -> lakebed.Dataset:
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA,
        partition_by=[
            by.dimension("version", cap=4, name="v"),
            by.dimension("channel", ["release"], name="c"),
        ],
    )
    return lakebed.open_repository(tmp_path).create("pings", descriptor)


def test_source_in_a_record_is_cast_to_the_type_of_the_schema(spark, tmp_path) -> None:
    build = pa.struct([("number", pa.int64())])
    descriptor = lakebed.DatasetDescriptor(
        schema=pa.schema([("build", build)]),
        partition_by=[by.dimension("build.number", cap=2, name="v")],
    )
    dataset = lakebed.open_repository(tmp_path).create("builds", descriptor)
    rows = [((number,),) for number in (1, 2, 2, 3, 3)]

    dataset.append(spark.createDataFrame(rows, "build struct<number: int>"))

    assert versions_of(dataset) == {"2", "3", "OTHER"}


def versions_of(dataset: lakebed.Dataset) -> set[object]:
    return {partition.values["v"] for partition in dataset.inspect.partitions()}


def test_most_frequent_values_are_admitted_over_all_tasks(spark, pings) -> None:
    versions = [f"v{v}" for v in range(12) for _ in range(v + 1)] + [None, "OTHER"]
    random.Random(1).shuffle(versions)
    rows = [(n, version, "release") for n, version in enumerate(versions)]
    frame = spark.createDataFrame(rows, "n long, version string, channel string").repartition(4)

    commit = pings.append(frame)

    assert versions_of(pings) == {"v8", "v9", "v10", "v11", "OTHER", "UNKNOWN"}
    (caught,) = commit.caught
    assert (caught.dimension, caught.cap, caught.row_count) == ("v", 4, sum(range(1, 9)) + 1)
    assert 0 < len(caught.values) <= 5
    assert pings.count() == len(versions)
    for version in ("v0", "v11", "OTHER"):
        assert pings.where(f"version = '{version}'").count() == versions.count(version)


def test_values_of_earlier_writes_come_first(spark, pings) -> None:
    pings.append([{"n": 0, "version": v, "channel": "beta"} for v in ("a", "b", "c")])
    rows = [(n, version, "beta") for n, version in enumerate("xxyyyac")]

    commit = pings.append(spark.createDataFrame(rows, "n long, version string, channel string"))
    again = pings.append(spark.createDataFrame(rows, "n long, version string, channel string"))

    assert versions_of(pings) == {"a", "b", "c", "y", "OTHER"}
    assert [one.row_count for one in (*commit.caught, *again.caught)] == [2, 2]
    assert {one.values for one in (*commit.caught, *again.caught)} == {("x",)}


def test_overwrite_is_counted_with_the_values_that_the_cap_admits(spark, pings) -> None:
    pings.append([{"n": 0, "version": v, "channel": "beta"} for v in ("a", "b", "c")])
    rows = [(n, version, "beta") for n, version in enumerate("xxyyyac")]
    frame = spark.createDataFrame(rows, "n long, version string, channel string").repartition(3)

    found = pings.overwrite(frame, dry_run=True)
    commit = pings.overwrite(frame)

    assert {one.partition for one in found.partitions} == set(commit.partitions)
    assert found.deleted_row_count == commit.deleted_row_count == 2


def test_frame_that_changes_with_each_computation_stays_under_the_cap(spark, pings) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    changing = spark.range(2_000).select(
        F.col("id").alias("n"),
        F.expr("uuid()").alias("version"),
        F.lit("release").alias("channel"),
    )

    commit = pings.append(changing)

    assert len(versions_of(pings)) <= 5
    assert sum(one.row_count for one in commit.caught) >= 1_996
    assert pings.count() == 2_000


def test_tasks_that_read_files_share_the_room_under_the_cap(spark, pings, tmp_path) -> None:
    for part in range(4):
        lines = [
            json.dumps({"n": n, "version": f"v{part}-{n % 20}", "channel": "release"})
            for n in range(100)
        ]
        (tmp_path / f"part{part}.jsonl").write_text("\n".join(lines) + "\n")

    report = pings.load(sorted(tmp_path.glob("*.jsonl")), spark=spark)

    own = versions_of(pings) - {"OTHER"}
    assert 0 < len(own) <= 4
    assert [one.row_count for one in report.commit.caught] == [400 - 5 * len(own)]
    assert pings.count() == 400


def test_dimension_of_a_document_is_counted_before_the_write(spark, tmp_path) -> None:
    own = [pa.field(name, pa.string(), nullable=False) for name in ("uuid", "document")]
    descriptor = lakebed.DatasetDescriptor(
        schema=pa.schema([*own, ("version", pa.string())]),
        format="submissions",
        partition_by=[by.dimension("version", cap=2, name="v")],
    )
    dataset = lakebed.open_repository(tmp_path).create("submissions", descriptor)
    rows = [(f"u{n}", json.dumps({"version": version})) for n, version in enumerate("abbcccdddd")]

    commit = dataset.append(spark.createDataFrame(rows, "uuid string, document string"))

    assert versions_of(dataset) == {"c", "d", "OTHER"}
    assert [one.row_count for one in commit.caught] == [3]

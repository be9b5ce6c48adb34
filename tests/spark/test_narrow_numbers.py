"""Whole numbers of 8 and 16 bits in Spark: written, read by each way, compared, widened and published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from frames import comparable, frame_of, spark_rows
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention
from pyspark.sql.types import ByteType, LongType, ShortType

import lakebed
from lakebed.errors import LakebedError, SchemaMismatchError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARTS = pa.struct([("x", pa.int8()), ("y", pa.list_(pa.int16()))])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("b", pa.int8()),
        ("s", pa.int16()),
        ("r", PARTS),
        ("m", pa.map_(pa.int8(), pa.int16())),
    ]
)
ROWS = [
    {"id": 1, "b": 127, "s": -(2**15), "r": {"x": -1, "y": [300, None]}, "m": [(1, 2)]},
    {"id": 2, "b": -128, "s": 2**15 - 1, "r": None, "m": []},
    {"id": 3, "b": None, "s": None, "r": {"x": None, "y": None}, "m": None},
]
TABLE = pa.Table.from_pylist(ROWS, schema=SCHEMA)
PLAIN = TABLE.select(["id", "b", "s"])
CONDITIONS = [
    "b = 127",
    "b > 300",
    "b < 300",
    "NOT b = 128",
    "b IN (1, 300)",
    "b NOT IN (127, 300)",
    "s >= 32768",
    "s <> 70000",
    "b < -129 OR s > 3000000000",
]


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    return lakebed.open_repository(tmp_path / "lake")


def create(lake: lakebed.Repository, table: pa.Table = TABLE, **options: object) -> lakebed.Dataset:
    return lake.create("d", lakebed.DatasetDescriptor(schema=table.schema, **options))


@pytest.mark.parametrize("partition_by", ["", "b", "hash(s, 4)"])
@pytest.mark.parametrize("source", ["spark", "arrow"])
def test_rows_come_back_in_their_types(
    spark: SparkSession, lake: lakebed.Repository, source: str, partition_by: str
) -> None:
    dataset = create(lake, partition_by=partition_by)

    dataset.append(frame_of(spark, TABLE) if source == "spark" else TABLE)

    assert comparable(dataset.arrow()) == comparable(TABLE)
    for frame in (
        dataset.spark(spark, way="native"),
        dataset.spark(spark, way="arrow"),
        spark.read.format("lakebed").load(str(lake.uri) + "/d"),
    ):
        assert spark_rows(frame) == comparable(TABLE)
        types = {field.name: field.dataType for field in frame.schema}
        assert (types["b"], types["s"]) == (ByteType(), ShortType())


def test_new_dataset_has_the_types_of_a_frame(
    spark: SparkSession, lake: lakebed.Repository
) -> None:
    lake.write("d", frame_of(spark, TABLE))

    assert lake["d"].arrow().schema.equals(SCHEMA)


@pytest.mark.parametrize("partition_by", ["", "b"])
def test_literals_mean_what_they_mean_in_spark(
    spark: SparkSession, lake: lakebed.Repository, partition_by: str
) -> None:
    dataset = create(lake, PLAIN, partition_by=partition_by)
    dataset.append(PLAIN)
    frame = frame_of(spark, PLAIN)

    for condition in CONDITIONS:
        wanted = spark_rows(frame.where(condition))
        assert comparable(dataset.where(condition).arrow()) == wanted, condition
        for way in ("native", "arrow"):
            assert spark_rows(dataset.where(condition).spark(spark, way=way)) == wanted, condition
            assert spark_rows(dataset.spark(spark, way=way).where(condition)) == wanted, condition
        loaded = spark.read.format("lakebed").load(f"{lake.uri}/d")
        assert spark_rows(loaded.where(condition)) == wanted, condition


@pytest.mark.parametrize("value", [128, -129, 2**31])
def test_value_that_does_not_fit_is_refused(
    spark: SparkSession, lake: lakebed.Repository, value: int
) -> None:
    dataset = create(lake, PLAIN)
    dataset.append(PLAIN)
    wide = spark.createDataFrame([(7, value)], "id bigint, b bigint")

    with pytest.raises(SchemaMismatchError, match=r"'b' is of type long.* tinyint"):
        dataset.append(wide)
    for statement in (
        f"INSERT INTO d (id, b) VALUES (7, {value})",
        f"UPDATE d SET b = {value} WHERE id = 1",
        f"MERGE INTO d USING (SELECT 1 AS id, {value} AS b) n ON d.id = n.id "
        "WHEN MATCHED THEN UPDATE SET b = n.b",
    ):
        with pytest.raises((LakebedError, PySparkException)):
            lake.sql(statement, spark=spark, write=True)

    assert comparable(dataset.arrow()) == comparable(PLAIN)


@pytest.mark.parametrize("partition_by", ["", "b", "hash(b, 4)"])
def test_widened_types_are_read(
    spark: SparkSession, lake: lakebed.Repository, partition_by: str
) -> None:
    dataset = create(lake, PLAIN, partition_by=partition_by)
    dataset.append(frame_of(spark, PLAIN))
    last = "int" if partition_by else "bigint"
    wanted = PLAIN.cast(pa.schema([("id", pa.int64()), ("b", pa.int64()), ("s", pa.int16())]))

    for number, (wider, most) in enumerate({"smallint": 2**15 - 1, last: 2**31 - 1}.items(), 10):
        dataset.evolve(lambda d, to=wider: d.change_type("b", {"bigint": "long"}.get(to, to)))
        rows = spark.createDataFrame([(number, most, 1)], f"id bigint, b {wider}, s smallint")
        dataset.append(rows)
        wanted = pa.concat_tables(
            [wanted, pa.Table.from_pylist([{"id": number, "b": most, "s": 1}], wanted.schema)]
        )
        for frame in (dataset.spark(spark, way="native"), dataset.spark(spark, way="arrow")):
            assert spark_rows(frame) == comparable(wanted)
            assert spark_rows(frame.where("b > 127")) == comparable(
                wanted.filter(pa.compute.field("b") > 127)
            )

    assert dict(dataset.spark(spark).dtypes)["b"] == last


def test_update_computes_as_spark_or_is_refused(
    spark: SparkSession, lake: lakebed.Repository
) -> None:
    dataset = create(lake, PLAIN)
    dataset.append(PLAIN)

    lake.sql("UPDATE d SET s = CAST(b AS SMALLINT) WHERE id = 1", spark=spark, write=True)
    lake.sql("UPDATE d SET b = b - 1 WHERE id = 1", spark=spark, write=True)
    with pytest.raises(LakebedError, match="TINYINT, which may overflow"):
        lake.sql("UPDATE d SET s = b + b", spark=spark, write=True)

    assert dataset.where("id = 1").arrow().to_pylist() == [{"id": 1, "b": 126, "s": 127}]


def test_frame_of_computed_columns_is_taken_by_its_types(
    spark: SparkSession, lake: lakebed.Repository
) -> None:
    frame = spark.range(3).select("id", F.col("id").cast("byte").alias("b"))

    lake.write("d", frame)
    lake["d"].append(frame.select("id", F.col("b").cast("byte").alias("b")))

    assert [field.dataType for field in lake["d"].spark(spark).schema] == [LongType(), ByteType()]

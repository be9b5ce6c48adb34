"""Files of Spark's own writer and of its tasks hold the ids of their columns too."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from frames import spark_rows
from table_doors import ICEBERG, assert_shows

import lakebed
from lakebed.model.arrow_types import field_ids_in

pytestmark = pytest.mark.spark

PLAIN = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(9, 2))])
NESTED = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])


BY_SPARK = lakebed.WriteOptions(cluster=False)  # few rows the driver would write


def held(dataset) -> list[pa.Schema]:
    root = Path(dataset.uri.removeprefix("file://")) / "data"
    return [pq.read_schema(path) for path in sorted(root.rglob("part-*.parquet"))]


def is_of_spark(dataset) -> bool:
    root = Path(dataset.uri.removeprefix("file://")) / "data"
    paths = root.rglob("part-*.parquet")
    return all("parquet-mr" in pq.read_metadata(path).created_by for path in paths)


@pytest.mark.parametrize(
    "properties", [{}, {"publish.iceberg": "true"}], ids=["plain", "published"]
)
def test_spark_s_own_writer_writes_ids_and_what_pyiceberg_needs(spark, tmp_path, properties):
    dataset = lakebed.open_repository(tmp_path).create(
        "d", lakebed.DatasetDescriptor(schema=PLAIN, properties=properties)
    )
    frame = spark.range(10).selectExpr(
        "id", "CAST(id AS string) name", "CAST(id AS decimal(9,2)) price"
    )
    dataset.with_options(write=BY_SPARK).append(frame.repartition(2))
    dataset.publish("iceberg")

    assert is_of_spark(dataset)
    levels = {"batch_id": 4} if properties else {}
    assert [field_ids_in(schema) for schema in held(dataset)] == [
        {"id": 1, "name": 2, "price": 3, **levels}
    ] * 2
    assert_shows(ICEBERG, dataset)
    for way in ("native", "arrow"):
        assert len(spark_rows(dataset.spark(spark, way=way))) == 10
        assert dataset.spark(spark, ["batch_id"], way=way).distinct().count() == 1


def test_files_of_spark_s_own_writer_with_lists_have_no_ids_and_are_read_by_names(spark, tmp_path):
    dataset = lakebed.open_repository(tmp_path).create(
        "d", lakebed.DatasetDescriptor(schema=NESTED)
    )
    frame = spark.range(3).selectExpr("id", "array(CAST(id AS string), NULL) tags")
    dataset.with_options(write=BY_SPARK).append(frame.coalesce(1))
    dataset.append([{"id": 7, "tags": ["x"]}])
    dataset.publish("iceberg")

    assert {tuple(field_ids_in(schema).values()) for schema in held(dataset)} == {
        (None, None, None),
        (1, 2, 4),
    }
    assert_shows(ICEBERG, dataset)


def test_tasks_write_ids_and_partitions(spark, tmp_path):
    descriptor = lakebed.DatasetDescriptor(
        schema=PLAIN, partition_by="hash(id, 2) as part", properties={"publish.iceberg": "true"}
    )
    dataset = lakebed.open_repository(tmp_path).create("d", descriptor)
    frame = spark.range(100).selectExpr(
        "id", "CAST(id AS string) name", "CAST(id AS decimal(9,2)) price"
    )
    dataset.with_options(write=lakebed.WriteOptions(cluster=True)).append(frame)

    wanted = {"id": 1, "name": 2, "price": 3, "part": 4, "batch_id": 5}
    assert len(held(dataset)) == 2
    assert all(field_ids_in(schema) == wanted for schema in held(dataset))
    assert_shows(ICEBERG, dataset)
    for way in ("native", "arrow"):
        rows = dataset.spark(spark, ["id", "part", "batch_id"], way=way).collect()
        assert sorted(row.id for row in rows) == list(range(100))
        assert {row.part for row in rows} == {0, 1}

"""Avro datasets and Spark, which needs no Avro jar for them."""

import datetime as dt
from pathlib import Path

import fastavro
import pytest

import lakebed
from lakebed.errors import InvalidInputError

pytestmark = pytest.mark.spark


@pytest.fixture
def events(spark, tmp_path: Path) -> lakebed.Dataset:
    frame = spark.range(1_000).selectExpr(
        "id",
        "concat('name ', id % 7) AS name",
        "timestamp'2024-01-01 00:00:00' + make_interval(0, 0, 0, int(id % 3)) AS at",
        "decimal(id / 4) AS price",
        "named_struct('x', id, 'tags', array('a', null)) AS inner",
        "map('k', id) AS m",
    )
    descriptor = lakebed.DatasetDescriptor(
        schema=frame, partition_by="date(at) as dt, hash(name, 2)", format="avro"
    )
    dataset = lakebed.open_repository(str(tmp_path)).create("events", descriptor)
    dataset.append(frame)
    return dataset


def test_avro_is_written_and_read_by_tasks(spark, events: lakebed.Dataset, tmp_path: Path) -> None:
    frame = events.spark(spark)

    assert frame.count() == events.count() == 1_000
    assert [row.id for row in frame.orderBy("id").collect()] == list(range(1_000))
    row = frame.where("id = 5").first()
    assert row.asDict(recursive=True) | {"price": str(row.price)} == {
        "id": 5,
        "name": "name 5",
        "at": dt.datetime(2024, 1, 3),
        "price": "1",
        "inner": {"x": 5, "tags": ["a", None]},
        "m": {"k": 5},
    }
    assert all(path.suffix == ".avro" for path in tmp_path.rglob("part-*"))


def test_views_of_avro_prune_and_filter(spark, events: lakebed.Dataset) -> None:
    view = events.where("at >= '2024-01-03' AND id < 100")

    assert view.plan().explain().dropped_by_partition > 0
    assert sorted(row.id for row in view.spark(spark).collect()) == list(range(2, 100, 3))
    assert view.spark(spark, columns=["dt", "id"]).distinct().count() == 33


def test_sparks_own_reader_is_refused_for_avro(spark, events: lakebed.Dataset) -> None:
    with pytest.raises(InvalidInputError, match="avro"):
        events.spark(spark, way="native")


def test_files_hold_their_schema(events: lakebed.Dataset, tmp_path: Path) -> None:
    with next(iter(tmp_path.rglob("part-*.avro"))).open("rb") as file:
        reader = fastavro.reader(file)
        first = next(reader)

    assert isinstance(first["at"], dt.datetime)
    assert [field["name"] for field in reader.writer_schema["fields"]] == list(events.schema.names)

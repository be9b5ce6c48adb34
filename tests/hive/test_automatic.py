"""Publication to a metastore after each commit, by properties."""

import uuid

import pytest
from table_doors import DOORS, assert_shows

import lakebed

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark):
    name = f"hive_tests.t{uuid.uuid4().hex}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def rows(batch: int, *days: str) -> list[dict]:
    return [{"dt": day, "batch": batch, "n": n} for day in days for n in range(2)]


def rows_of(frame) -> list[tuple]:
    return sorted(map(tuple, frame.select("dt", "batch", "n").collect()))


def create(lake, days, **properties: str) -> lakebed.Dataset:
    descriptor = lakebed.DatasetDescriptor(
        schema=days.descriptor.schema, partition_by="dt", properties=properties
    )
    return lake.create("auto", descriptor)


def test_table_delta_and_iceberg_show_each_commit(spark, lake, days, table):
    auto = create(
        lake,
        days,
        **{
            "publish.hive": "true",
            "publish.hive.table": table,
            "publish.hive.mode": "batches",
            "publish.delta": "true",
            "publish.iceberg": "true",
        },
    )
    for do in (
        lambda: auto.append(rows(1, "a", "b"), run="first"),
        lambda: auto.append(rows(2, "a")),
        lambda: auto.rerun(rows(3, "b", "c"), run="first"),
        lambda: auto.merge(rows(4, "c", "d"), ["dt", "n"]),
        lambda: auto.delete(auto.where("dt = 'a'")),
        lambda: auto.rollback(version=2),
    ):
        do()
        assert rows_of(spark.table(table)) == rows_of(auto.spark(spark))
        for door in DOORS:
            assert_shows(door, auto)
    assert auto.publish(spark, table=table, check=True).was_in_step


def test_metastore_is_said_by_the_process_and_not_by_storage(
    spark, lake, days, table, caplog, monkeypatch, tmp_path
):
    place = tmp_path / "elsewhere"
    properties = {"publish.hive": "true", "publish.hive.table": table}
    auto = create(lake, days, **properties, **{"publish.hive.metastore": str(place)})
    auto.append(rows(1, "a"))

    assert not place.exists()
    assert "unknown property dataset=auto publish.hive.metastore" in caplog.text
    assert rows_of(spark.table(table)) == rows_of(auto.spark(spark))

    monkeypatch.setenv("LAKEBED_METASTORE", "thrift://127.0.0.1:1")
    auto.overwrite(rows(2, "a"))

    assert "A Spark session runs that has another metastore" in caplog.text


def test_commit_is_made_where_the_table_cannot_show_it(spark, lake, days, table, caplog):
    auto = create(lake, days, **{"publish.hive": "true", "publish.hive.table": table})
    auto.append(rows(1, "a"))

    auto.append(rows(2, "a"))  # a second live batch of a partition

    assert auto.count() == 4
    assert "not published after a commit dataset=auto to=hive" in caplog.text
    assert "gather" in caplog.text
    auto.compact(gather=True)
    assert rows_of(spark.table(table)) == rows_of(auto.spark(spark))

"""What Spark's own reader gives of files that lie in no directory of its machine: one set of cases.

Each takes a session, and a repository that the session reaches by a file system of Hadoop; the same
are run in a directory, through a mount of Hadoop's own, and in a bucket.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from frames import comparable, files_read, frame_of, setting, spark_rows

import lakebed
from lakebed.errors import CorruptMetadataError
from lakebed.spark.session import is_classic
from lakebed.state import file_table
from lakebed.state.reader import read_head
from lakebed.testing import CountingStore

START = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
NAMES = [
    *("plain", "two words", "100%", "x%2Fy", "a=b", "a/b", "é/ü", "日本 😀", "a+b&c", "?#:;@,'"),
    *(None, "__HIVE_DEFAULT", "%", " edge ", "*[1]{2}"),
]
SCHEMA = pa.schema(
    [("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("name", pa.string())]
)
Case = Callable[[Any, lakebed.Repository], None]
CASES: dict[str, Case] = {}


def case(check: Case) -> Case:
    CASES[check.__name__] = check
    return check


def table(start: int = 0, count: int = 60) -> pa.Table:
    rows = [
        {"id": n, "at": START + dt.timedelta(hours=n), "name": NAMES[n % len(NAMES)]}
        for n in range(start, start + count)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def create(
    lake: lakebed.Repository, name: str, partition_by: str = "", **more: Any
) -> lakebed.Dataset:
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=partition_by, **more)
    return lake.create(name, descriptor)


def ways_of(spark: Any) -> list[str]:
    return ["auto", "native", "paths", *(["prepared"] if is_classic(spark) else [])]


def is_native(frame: Any) -> bool:
    return bool(frame.inputFiles())


def small_files() -> lakebed.WriteOptions:
    return lakebed.WriteOptions(target_bytes=100, row_group_bytes=100)


def in_small_files(lake: lakebed.Repository, name: str, rows: int = 60) -> lakebed.Dataset:
    """One batch of many files in one directory."""
    dataset = create(lake, name)
    with dataset.with_options(write=small_files()).kite.writer() as writer:
        for row in table(0, rows).to_pylist():
            writer.write(row)
    assert len(dataset.files()) > 32
    return dataset


@case
def every_way_gives_the_rows_of_the_scan_whatever_paths_hold(
    spark: Any, lake: lakebed.Repository
) -> None:
    """Spaces, percent signs, equal signs, other alphabets."""
    dataset = create(lake, "odd_names", "name, date(at) as dt")
    dataset.append(table())
    columns = ["batch_id", "dt", "name", "id"]
    for predicate in ("id >= 0", "name = 'é/ü' OR name = 'a=b' OR name IS NULL"):
        view = dataset.where(predicate)
        wanted = comparable(view.arrow(columns))
        assert wanted
        for way in ways_of(spark)[1:]:
            frame = view.spark(spark, columns, way=way)
            assert is_native(frame), way
            assert spark_rows(frame) == wanted, (predicate, way)
    assert spark_rows(dataset.spark(spark)) == comparable(dataset.arrow())
    assert spark_rows(dataset.spark(spark, ["dt"])) == comparable(dataset.arrow(["dt"]))


@case
def partition_fields_keep_the_types_of_the_schema(spark: Any, lake: lakebed.Repository) -> None:
    """Spark would guess integers of texts, and other integers of integers."""
    schema = pa.schema([("code", pa.string()), ("number", pa.int64()), ("id", pa.int64())])
    dataset = lake.create(
        "typed", lakebed.DatasetDescriptor(schema=schema, partition_by="code, number")
    )
    dataset.append([{"code": f"00{n}", "number": n, "id": n} for n in range(3)])
    wanted = comparable(dataset.arrow())

    for way in ways_of(spark):
        frame = dataset.spark(spark, way=way)
        assert dict(frame.dtypes) == {"code": "string", "number": "bigint", "id": "bigint"}
        assert spark_rows(frame) == wanted, way


@case
def files_of_a_failed_task_are_not_read(spark: Any, lake: lakebed.Repository) -> None:
    dataset = in_small_files(lake, "leftover")
    key = dataset.files()[0].key
    orphan = f"{key.rpartition('/')[0]}/part-{'0' * 32}.parquet"
    lake.store.put(orphan, lake.store.get(key).data)

    for way in ways_of(spark):
        assert dataset.spark(spark, way=way).count() == 60, way


@case
def sizes_in_the_file_table_are_not_believed(spark: Any, lake: lakebed.Repository) -> None:
    """From a size that is too small Spark drops rows without a word."""
    dataset = in_small_files(lake, "sizes")
    for segment in read_head(lake.store, "sizes").state.lists.files:
        facts = file_table.decode(lake.store.get(segment.key).data, segment.key)
        place = facts.schema.get_field_index("size_bytes")
        wrong = facts.set_column(place, "size_bytes", pa.array([1] * len(facts), pa.int64()))
        lake.store.put(segment.key, file_table.encode(wrong))

    for way in ways_of(spark):
        assert dataset.spark(spark, way=way).count() == 60, way


@case
def a_missing_file_is_an_error(spark: Any, lake: lakebed.Repository) -> None:
    dataset = in_small_files(lake, "missing")
    gone = dataset.files()[5].key
    with setting(spark, "spark.sql.files.ignoreMissingFiles", "true"):
        frame = dataset.spark(spark)
        assert frame.count() == 60
        lake.store.delete([gone])

        with pytest.raises(Exception, match=r"(?i)not exist|not found|missing"):
            frame.count()
        if is_classic(spark):
            with pytest.raises(CorruptMetadataError, match=gone.rpartition("/")[2]):
                dataset.spark(spark, way="prepared")


@case
def files_of_older_schemas_are_read_under_the_current_one(
    spark: Any, lake: lakebed.Repository
) -> None:
    dataset = create(lake, "evolved", "date(at) as dt")
    dataset.append(table(0, 30))
    wider = pa.schema([*SCHEMA, pa.field("note", pa.string())])
    dataset.evolve(
        lakebed.DatasetDescriptor(schema=wider, partition_by=dataset.descriptor.partition_by),
        base=dataset.version,
    )
    dataset.append(table(30, 30).append_column("note", pa.array(["n"] * 30)))

    for way in ways_of(spark):
        assert spark_rows(dataset.spark(spark, way=way)) == comparable(dataset.arrow()), way


@case
def any_version_is_read(spark: Any, lake: lakebed.Repository) -> None:
    dataset = create(lake, "versions", "date(at) as dt")
    first = dataset.append(table(0, 48))
    second = dataset.overwrite(table(100, 5))
    dataset.delete(dataset.where("id < 10"))
    for version in (first.version, second.version, dataset.version):
        past = dataset.at(version=version)
        wanted = comparable(past.arrow())
        assert wanted
        frame = past.spark(spark)
        assert is_native(frame)
        assert spark_rows(frame) == wanted, version


@case
def an_attached_table_reads_the_files_that_the_planner_keeps(
    spark: Any, lake: lakebed.Repository
) -> None:
    dataset = create(lake, "events", "date(at) as dt", index=["name"])
    dataset.append(table(0, 240))
    conditions = {
        "dt = '2020-01-03'": 1,
        "at >= '2020-01-03' AND at < '2020-01-05'": 2,
        "id > 230": 1,
        "id > 1000": 0,
        "name = 'plain' AND id < 30": 2,
        "length(name) > 0": 10,
    }
    with lakebed.spark.attach(spark, lake, datasets=["events"]) as attached:
        rows = frame_of(spark, dataset.arrow(["id", "at", "name", "dt"]))
        for condition, count in conditions.items():
            frame = spark.table("events").where(condition).select("id")
            if is_classic(spark):
                assert files_read(frame) == count, condition
            found = sorted(row.id for row in frame.collect())
            assert found == sorted(row.id for row in rows.where(condition).collect()), condition
        dataset.append(table(240, 10))
        assert spark.table("events").count() == 240
        attached.refresh()
        assert spark.table("events").count() == 250


@case
def filters_and_columns_are_pushed_down(spark: Any, lake: lakebed.Repository) -> None:
    dataset = in_small_files(lake, "pushed")
    frame = dataset.spark(spark).where("id > 50").select("id")

    assert sorted(row.id for row in frame.collect()) == list(range(51, 60))
    if is_classic(spark):
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert "GreaterThan(id,50)" in plan
        assert "ReadSchema: struct<id:bigint>" in plan


@case
def many_files_of_a_directory_are_looked_at_by_listing_it(
    spark: Any, lake: lakebed.Repository
) -> None:
    if not is_classic(spark) or lake.store.local_path("x") is not None:
        return
    dataset = in_small_files(lake, "listed")
    counting = CountingStore(lake.store)
    view = lakebed.Repository(counting).open("listed").where("id >= 0")
    view.spark(spark)  # by now the session is known to reach the store
    counting.reset()

    frame = view.spark(spark)

    counts = counting.reset()
    assert (counts.list, counts.head) == (1, 0)
    assert frame.count() == 60
    assert counting.counts.total == 0
    few = lakebed.Repository(counting).open("listed").where("id < 8")
    counting.reset()
    assert few.spark(spark).count() == 8
    assert (counting.counts.list, counting.counts.head) == (0, len(few.plan()))
    assert dataset.count() == 60

"""Cleanup of a dataset that is published: what a table shows stays, whoever pointed it there."""

import uuid
from collections import Counter
from pathlib import Path

import pytest
from inside import store_of

import lakebed
from lakebed.errors import InvalidInputError
from lakebed.state import published
from lakebed.tables.hive.jvm import JvmCatalog
from lakebed.tables.hive.shown_directories import directories_in

BATCH = "days/data/dt=a/batch_id=1"
NOTED = "lake.days"


@pytest.fixture(params=["jvm", "sql"])
def way(request, monkeypatch):
    """Use the catalog of a classic session, or SQL alone as on Spark Connect."""
    if request.param == "sql":
        monkeypatch.setattr(JvmCatalog, "find", lambda *_: None)
    return request.param


@pytest.fixture
def table(spark) -> str:
    return f"hive_tests.t{uuid.uuid4().hex}"


@pytest.fixture
def noted(days) -> lakebed.Dataset:
    """A dataset that some metastore, which nobody has here, shows in its first version."""
    fill(days, "a")
    note = published.Note(store_of(days), "days", NOTED)
    note.read()
    note.begin(1)
    note.finish()
    fill(days, "a", batch=2)
    fill(days, "a", batch=3)
    return days


def fill(dataset, *partitions: str, batch: int = 1) -> lakebed.Commit:
    return dataset.overwrite(
        [{"dt": one, "batch": batch, "n": n} for one in partitions for n in range(3)]
    )


def told(spark, table: str) -> dict[str, tuple[int, int]]:
    """Return rows and batch of each partition."""
    found = spark.sql(f"SELECT dt, count(*), max(batch) FROM {table} GROUP BY dt").collect()
    return {row[0]: (row[1], row[2]) for row in found}


def directory(dataset, commit: lakebed.Commit, partition: str = "a") -> str:
    root = store_of(dataset).uri
    return f"{root}/days/data/dt={partition}/batch_id={commit.batch_id}"


def clean_up(dataset, **options) -> Counter:
    """Clean up, and return what was deleted by reason; a dry run before it says the same."""
    told = dataset.cleanup("0s", **options)
    done = dataset.cleanup("0s", dry_run=False, **options)
    assert [(one.key, one.reason) for one in done.files] == [
        (one.key, one.reason) for one in told.files
    ]
    assert [(one.key, one.reason) for one in done.kept if one.reason == "published"] == [
        (one.key, one.reason) for one in told.kept if one.reason == "published"
    ]
    return Counter(done.counts)


@pytest.mark.spark
@pytest.mark.thorough
def test_partition_that_was_moved_by_hand_keeps_its_files(spark, way, days, table):
    first = fill(days, "a", "b")
    days.publish("hive", spark, table=table)
    fill(days, "a", "b", batch=2)
    days.publish("hive", spark, table=table)
    spark.sql(f"ALTER TABLE {table} PARTITION (dt='a') SET LOCATION '{directory(days, first)}'")
    fill(days, "a", "b", batch=3)

    assert clean_up(days, metastore=spark) == {"superseded": 1}  # of partition b, batch 1

    assert told(spark, table) == {"a": (3, 1), "b": (3, 2)}
    report = days.cleanup("0s", metastore=spark)
    assert report.kept_counts["published"] == 3
    notes = {file.note for file in report.kept if file.reason == "published"}
    assert f"Table {table} shows the directory." in notes
    days.publish("hive", spark, table=table, repair=True)
    assert clean_up(days, metastore=spark) == {"superseded": 3}
    assert told(spark, table) == {"a": (3, 3), "b": (3, 3)}


@pytest.mark.spark
@pytest.mark.thorough
def test_session_that_runs_is_asked_if_none_is_named(spark, days, table):
    first = fill(days, "a")
    days.publish("hive", spark, table=table)
    fill(days, "a", batch=2)
    days.publish("hive", spark, table=table)
    spark.sql(f"ALTER TABLE {table} PARTITION (dt='a') SET LOCATION '{directory(days, first)}'")

    assert clean_up(days) == {}
    assert told(spark, table) == {"a": (3, 1)}
    assert clean_up(days, published="noted") == {"superseded": 1}


@pytest.mark.spark
@pytest.mark.thorough
def test_leftovers_that_a_partition_was_pointed_to_by_hand_stay(spark, days, table):
    """As an operator does who finishes by hand what a job has begun."""
    from lakebed.state.committing import CommitOptions
    from lakebed.state.transaction import Transaction

    fill(days, "a")
    days.publish("hive", spark, table=table)
    store = store_of(days)
    import datetime as dt

    dead = Transaction.begin(
        store, "days", "append", options=CommitOptions(lease=dt.timedelta(microseconds=1))
    )
    (live,) = days.files()
    key = f"days/data/dt=a/batch_id={dead.batch_id}/part-{'0' * 32}.parquet"
    store.put(key, store.get(live.key).data)
    location = f"{store.uri}/{key.rpartition('/')[0]}"
    spark.sql(f"ALTER TABLE {table} PARTITION (dt='a') SET LOCATION '{location}'")

    done = days.cleanup("0s", dry_run=False, clock_skew=dt.timedelta(), metastore=spark)

    assert key not in {file.key for file in done.files}
    assert told(spark, table) == {"a": (3, 1)}
    assert clean_up(days, metastore=spark, clock_skew=dt.timedelta()) == {}
    assert told(spark, table) == {"a": (3, 1)}


@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["partitions", "batches"])
def test_table_shows_the_same_through_rollback_compaction_and_cleanup(spark, days, table, mode):
    fill(days, "a", "b")
    fill(days, "a", batch=2)
    days.publish("hive", spark, table=table, mode=mode)
    shown = told(spark, table)

    for change in (
        lambda: days.rollback(version=1),
        lambda: days.compact(gather=True),
        lambda: fill(days, "b", batch=4),
        lambda: days.delete(days.where("dt = 'a'")),
    ):
        change()
        clean_up(days, metastore=spark)
        assert told(spark, table) == shown

    days.publish("hive", spark, table=table)
    clean_up(days, metastore=spark)
    assert told(spark, table) == {"b": (3, 4)}
    assert "published" not in days.cleanup("0s", metastore=spark).kept_counts


@pytest.mark.spark
@pytest.mark.thorough
def test_table_without_partitions_that_was_moved_by_hand_keeps_its_files(spark, lake, table):
    import pyarrow as pa

    flat = lake.create("flat", lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())])))
    first = flat.overwrite([{"n": 1}])
    flat.publish("hive", spark, table=table)
    flat.overwrite([{"n": 2}])
    flat.publish("hive", spark, table=table)
    location = f"{lake.uri}/flat/data/batch_id={first.batch_id}"
    spark.sql(f"ALTER TABLE {table} SET LOCATION '{location}'")

    assert clean_up(flat, metastore=spark) == {}
    spark.sql(f"REFRESH TABLE {table}")
    assert [row["n"] for row in spark.table(table).collect()] == [1]


@pytest.mark.spark
@pytest.mark.thorough
def test_metastore_without_the_table_is_refused_until_it_is_unpublished(spark, days, table):
    fill(days, "a")
    days.publish("hive", spark, table=table)
    fill(days, "a", batch=2)
    spark.sql(f"DROP TABLE {table}")

    with pytest.raises(InvalidInputError, match="is missing from this metastore") as info:
        days.cleanup("0s", metastore=spark)
    assert "unpublish" in info.value.hint
    days.unpublish("hive", spark, table=table)

    assert clean_up(days, metastore=spark) == {"superseded": 1}


@pytest.mark.spark
@pytest.mark.thorough
def test_table_of_that_name_which_shows_something_else_is_no_answer(spark, days, table):
    fill(days, "a")
    days.publish("hive", spark, table=table)
    spark.sql(f"DROP TABLE {table}")
    spark.sql(f"CREATE TABLE {table} (n BIGINT) USING parquet")

    with pytest.raises(InvalidInputError, match="shows something else"):
        days.cleanup("0s", dry_run=False, metastore=spark)


@pytest.mark.parametrize("dry_run", [True, False])
def test_without_a_metastore_nothing_is_deleted_unless_it_is_told_to(noted, dry_run):
    before = {one.key for one in store_of(noted).list("days/")}

    with pytest.raises(InvalidInputError, match=f"published as {NOTED}") as info:
        noted.cleanup("0s", dry_run=dry_run)

    assert "published='noted'" in info.value.hint
    assert {one.key for one in store_of(noted).list("days/")} == before
    report = noted.cleanup("0s", dry_run=dry_run, published="noted")
    assert (report.counts, report.kept_counts["published"]) == ({"superseded": 1}, 1)


def test_dataset_that_is_not_published_needs_no_metastore(days):
    fill(days, "a")
    fill(days, "a", batch=2)

    assert clean_up(days) == {"superseded": 1}


def test_what_is_meant_by_published_must_be_clear(noted):
    with pytest.raises(InvalidInputError, match="published is 'none'"):
        noted.cleanup("0s", published="none")
    with pytest.raises(InvalidInputError, match="A metastore is given"):
        noted.cleanup("0s", metastore="thrift://localhost:9083", published="noted")


@pytest.mark.parametrize(
    "location",
    [
        f"file:/lake/{BATCH}",
        f"file:///lake/{BATCH}/",
        f"/lake/{BATCH}",
        f"/lake//./x/../{BATCH}",
        f"/mnt/days/lake/{BATCH}",
        f"s3://bucket/lake/{BATCH}",
        f"S3A://bucket/{BATCH}",
        f"hdfs:/lake/{BATCH}",
        f"hdfs://host:8020/lake/{BATCH}",
        f"hdfs://host:8020/lake/{BATCH}".replace("=", "%3D"),
    ],
)
def test_location_is_known_by_its_path_however_the_storage_is_spelled(location):
    assert BATCH in set(directories_in(location, "file:///lake", "days"))


@pytest.mark.parametrize(
    ("location", "root"),
    [
        ("file:/lake/days", "file:///lake"),
        ("file:/lake", "file:///lake"),
        ("file:/", "file:///home/ann/lake"),
        ("s3a://bucket/", "s3://bucket/prefix/lake"),
        ("hdfs:/data", "hdfs://host/data/lake"),
    ],
)
def test_location_of_the_dataset_or_above_it_is_all_of_it(location, root):
    assert "days" in set(directories_in(location, root, "days"))


@pytest.mark.parametrize("location", ["file:/lake/other/data", "s3://b/daysy/data", "file:/lakes"])
def test_location_elsewhere_is_none_of_it(location):
    assert list(directories_in(location, "file:///lake", "days")) == []


def test_location_behind_a_link_is_that_of_its_target(tmp_path: Path):
    (tmp_path / BATCH).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / BATCH)

    found = directories_in(f"file:{tmp_path}/link", tmp_path.as_uri(), "days")

    assert BATCH in set(found)


def test_escaped_partition_is_found_as_it_is_stored():
    stored = "days/data/dt=a%2Fb/batch_id=1"

    for location in (f"file:/lake/{stored}", f"file:/lake/{stored.replace('%', '%25')}"):
        assert stored in set(directories_in(location, "file:///lake", "days"))

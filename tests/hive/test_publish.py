"""Publishing to the catalog of a session, in both ways that there are to it."""

import datetime as dt
import json
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import by
from lakebed.errors import AlreadyExistsError, InvalidInputError, ReadOnlyError, StorageError
from lakebed.state import published
from lakebed.tables.hive.jvm import JvmCatalog
from lakebed.tables.hive.metastore import Metastore

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


@pytest.fixture(params=["jvm", "sql"])
def way(request, monkeypatch):
    """Use the catalog of a classic session, or SQL alone as on Spark Connect."""
    if request.param == "sql":
        monkeypatch.setattr(JvmCatalog, "find", lambda *_: None)
    return request.param


@pytest.fixture
def table(spark) -> str:
    return f"hive_tests.t{uuid.uuid4().hex}"


def rows_of(spark, table: str, columns: list[str]) -> Counter:
    found = spark.table(table).select(*columns).collect()
    return Counter(repr(tuple(row)) for row in found)


def counted(*rows: tuple) -> Counter:
    return Counter(map(repr, rows))


def fill(dataset, *partitions: str, batch: int = 1) -> None:
    dataset.overwrite([{"dt": one, "batch": batch, "n": n} for one in partitions for n in range(3)])


def told(spark, table: str) -> dict[str, tuple[int, int]]:
    """Return rows and batch of each partition."""
    found = spark.sql(f"SELECT dt, count(*), max(batch) FROM {table} GROUP BY dt").collect()
    return {row[0]: (row[1], row[2]) for row in found}


STRANGE = [
    "a/b",
    "b b",
    "ä€😀",
    "100%",
    "%41",
    "q'uo\"te",
    "back\\slash",
    "${x}",
    "k=v",
    "*?[1]{2}",
    ".x",
    "_x",
    "a;b",
    "two\nlines",
]


def test_every_row_reads_as_in_the_dataset(spark, way, lake, table):
    schema = pa.schema(
        [
            ("at", pa.timestamp("us", tz="UTC")),
            ("wall", pa.timestamp("us")),
            ("k", pa.string()),
            ("Carrier", pa.string()),
            ("flag", pa.bool_()),
            ("u", pa.uint64()),
            ("price", pa.decimal128(8, 2)),
            ("more", pa.list_(pa.struct([("x", pa.int32())]))),
            ("delta", pa.int32()),
        ]
    )
    dataset = lake.create(
        "rows",
        lakebed.DatasetDescriptor(
            schema=schema,
            partition_by=[
                by.identity("k"),
                by.date("at", name="day"),
                by.dimension("Carrier", ["UA"]),
                by.hash("u", 4),
                by.identity("flag"),
                by.identity("delta"),
            ],
        ),
    )
    dataset.append(
        [
            {
                "at": dt.datetime(1969 + 40 * (n % 2), 12, 31, 23, 59, 59, n, tzinfo=dt.UTC),
                "wall": dt.datetime(2013, 1, 1, n % 24),
                "k": one,
                "Carrier": ["UA", "ZZ", None][n % 3],
                "flag": [True, False, None][n % 3],
                "u": 2**64 - 1 - n,
                "price": None,
                "more": [{"x": n}],
                "delta": -n,
            }
            for n, one in enumerate([*STRANGE, None])
        ]
    )

    done = dataset.publish("hive", spark, table=table)

    names = ["k", "day", "Carrier_dimension", "u_hash", "flag", "delta", "at", "wall", "u"]
    names += ["price", "more"]
    assert rows_of(spark, table, names) == counted(
        *map(tuple, dataset.spark(spark, columns=names).collect())
    )
    assert len(done.added) == len(STRANGE) + 1
    assert dataset.publish("hive", spark, table=table, check=True).is_in_step
    for one in STRANGE:
        wanted = spark.table(table).where(spark.table(table)["k"] == one)
        assert wanted.count() == 1, one


def test_only_what_commits_touched_is_changed(spark, way, days, table):
    fill(days, "a", "b", "c")
    first = days.publish("hive", spark, table=table)
    fill(days, "b", "d", batch=2)
    days.delete(days.where("dt = 'c'"))
    done: list[lakebed.Progress] = []

    second = days.publish("hive", spark, table=table, on_progress=done.append)
    third = days.publish("hive", spark, table=table, on_progress=done.append)

    assert {(each.unit, each.file_total) for each in done} == {("partition", 3)}
    assert [each.file_count for each in done] == [0, 1, 2, 3]  # one is pointed, added, dropped
    assert (first.created, first.added) == (True, ("dt=a", "dt=b", "dt=c"))
    assert (second.added, second.changed, second.dropped) == (("dt=d",), ("dt=b",), ("dt=c",))
    assert (second.created, second.unchanged_count, second.version) == (False, 1, 3)
    assert (first.was_in_step, first.is_in_step) == (False, True)
    assert (third.was_in_step, third.is_in_step) == (True, True)
    assert third.unchanged_count == 3
    assert told(spark, table) == {"a": (3, 1), "b": (3, 2), "d": (3, 2)}
    held = [path.name for path in Path(days.uri.removeprefix("file://"), "data").iterdir()]
    assert {"dt=a", "dt=b", "dt=c", "dt=d"} <= set(held)


def test_many_partitions_take_few_calls(spark, lake, days, table):
    fill(days, *[f"p{n}" for n in range(150)])
    first = days.publish("hive", spark, table=table)
    fill(days, *[f"p{n}" for n in range(150)], batch=2)

    second = days.publish("hive", spark, table=table)

    assert len(second.changed) == 150
    assert max(first.calls, second.calls) <= 7


def test_dry_run_says_what_would_be_done(spark, days, table):
    fill(days, "a")
    planned = days.publish("hive", spark, table=table, dry_run=True)
    assert (planned.is_applied, planned.created, planned.added) == (False, True, ("dt=a",))
    assert not spark.catalog.tableExists(table)
    days.publish("hive", spark, table=table)
    fill(days, "a", batch=2)

    planned = days.publish("hive", spark, table=table, dry_run=True)

    assert planned.changed == ("dt=a",)
    assert told(spark, table) == {"a": (3, 1)}


def test_unpartitioned_table_moves_as_a_whole(spark, lake, table):
    dataset = lake.create("one", lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())])))
    created = dataset.publish("hive", spark, table=table)
    assert (created.created, created.added, spark.table(table).count()) == (True, (), 0)
    dataset.overwrite([{"n": 1}])
    assert dataset.publish("hive", spark, table=table).changed == ("",)
    dataset.overwrite([{"n": 2}, {"n": 3}])
    assert dataset.publish("hive", spark, table=table, dry_run=True).changed == ("",)
    dataset.publish("hive", spark, table=table)

    found = rows_of(spark, table, ["n"])
    dataset.delete(dataset)
    emptied = dataset.publish("hive", spark, table=table)

    assert found == counted((2,), (3,))
    assert emptied.dropped == ("",)
    assert spark.table(table).count() == 0
    assert dataset.publish("hive", spark, table=table, check=True).is_in_step


def test_partition_of_several_batches_is_refused_or_published_by_batch(spark, days, table):
    days.append([{"dt": "a", "batch": 1, "n": 1}, {"dt": "b", "batch": 1, "n": 1}])
    days.append([{"dt": "a", "batch": 2, "n": 2}])

    with pytest.raises(InvalidInputError, match=r"1 partition .* several live batches: dt=a\."):
        days.publish("hive", spark, table=table)
    assert not spark.catalog.tableExists(table)
    days.publish("hive", spark, table=table, mode="batches")

    assert told(spark, table) == {"a": (2, 2), "b": (1, 1)}
    batches = {row[0] for row in spark.sql(f"SELECT DISTINCT batch_id FROM {table}").collect()}
    assert batches == {one.batch_id for one in days.history()[1:]}
    fill(days, "a", batch=3)
    days.append([{"dt": "b", "batch": 3, "n": 3}])
    changed = days.publish("hive", spark, table=table)
    assert (len(changed.added), changed.changed, len(changed.dropped)) == (2, (), 2)
    assert told(spark, table) == {"a": (3, 3), "b": (2, 3)}
    assert days.publish("hive", spark, table=table, check=True).is_in_step


def test_gathered_partitions_can_be_published(spark, days, table):
    days.append([{"dt": one, "batch": 1, "n": n} for one in "abc" for n in range(5)], run="x")
    days.append([{"dt": "a", "batch": 1, "n": 5}], run="y")
    days.delete(days.where("dt = 'b' AND n = 3"))
    kept = next(file.key for file in days.files() if file.partition == "dt=c")
    root = Path(days.uri.removeprefix("file://")).parent
    (root / kept).with_name("stray.parquet").write_bytes(b"half a fi")
    with pytest.raises(InvalidInputError, match="live batches: dt=a"):
        days.publish("hive", spark, table=table)

    days.compact()
    with pytest.raises(InvalidInputError, match="live batches: dt=a"):
        days.publish("hive", spark, table=table)
    gathered = days.compact(gather=True)
    done = days.publish("hive", spark, table=table)

    assert {one.path for one in gathered.partitions} == {"dt=a", "dt=c"}
    assert days.compact(gather=True).commits == ()
    assert done.added == ("dt=a", "dt=b", "dt=c")
    assert told(spark, table) == {"a": (6, 1), "b": (4, 1), "c": (5, 1)}
    assert days.rerun([], run="y", replace_all=True).row_count == 0
    assert days.where("dt = 'a'").count() == 5


def test_mode_of_a_table_stays(spark, days, table):
    fill(days, "a")
    days.publish("hive", spark, table=table, mode="batches")

    with pytest.raises(InvalidInputError, match="has mode 'batches', not 'partitions'"):
        days.publish("hive", spark, table=table, mode="partitions")
    assert days.publish("hive", spark, table=table).mode == "batches"


def test_directory_with_other_files_is_not_published(spark, days, table):
    fill(days, "a", "b")
    days.publish("hive", spark, table=table)
    fill(days, "a", batch=2)
    live = next(file.key for file in days.files() if file.partition == "dt=a")
    directory = Path(days.uri.removeprefix("file://")).parent / Path(live).parent
    (directory / "_SUCCESS").touch()
    (directory / ".part.crc").touch()
    stray = directory / "part-0123456789abcdef0123456789abcdef.parquet"
    stray.write_bytes(b"half a fi")

    with pytest.raises(InvalidInputError, match="1 files are not live, such as 'part-0123"):
        days.publish("hive", spark, table=table)
    assert told(spark, table) == {"a": (3, 1), "b": (3, 1)}
    stray.unlink()
    assert days.publish("hive", spark, table=table).changed == ("dt=a",)


def test_directory_that_lacks_a_live_file_is_not_published(spark, days, table):
    fill(days, "a")
    root = Path(days.uri.removeprefix("file://")).parent
    (root / days.files()[0].key).unlink()

    with pytest.raises(InvalidInputError, match="1 live files are missing"):
        days.publish("hive", spark, table=table)


def test_table_of_others_is_not_touched(spark, lake, days, table):
    fill(days, "a")
    spark.sql("CREATE DATABASE IF NOT EXISTS hive_tests")
    spark.sql(f"CREATE TABLE {table} (x INT) USING parquet")

    with pytest.raises(AlreadyExistsError, match="Lakebed did not publish it"):
        days.publish("hive", spark, table=table)
    with pytest.raises(AlreadyExistsError, match="Lakebed did not publish it"):
        days.unpublish("hive", spark, table=table)

    spark.sql(f"DROP TABLE {table}")
    days.publish("hive", spark, table=table)
    other = lake.create("other", days.descriptor)
    with pytest.raises(AlreadyExistsError, match=r"shows the dataset .*/days, not .*/other"):
        other.publish("hive", spark, table=table)
    with pytest.raises(AlreadyExistsError, match="shows the dataset"):
        other.unpublish("hive", spark, table=table)


def test_table_whose_drop_would_delete_files_is_not_touched(spark, days, table):
    fill(days, "a")
    days.publish("hive", spark, table=table)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('external.table.purge'='true')")

    with pytest.raises(InvalidInputError, match="no longer external"):
        days.publish("hive", spark, table=table)
    with pytest.raises(InvalidInputError, match="no longer external"):
        days.unpublish("hive", spark, table=table)


def test_unpublish_keeps_every_file(spark, days, table):
    fill(days, "a", "b")
    days.publish("hive", spark, table=table)

    assert days.unpublish("hive", spark, table=table, dry_run=True)
    assert spark.catalog.tableExists(table)
    assert days.unpublish("hive", spark, table=table)
    assert not days.unpublish("hive", spark, table=table)

    assert days.count() == 6
    assert days.check().findings == ()


def test_unpublish_forgets_a_table_that_was_dropped_by_other_means(spark, days, table):
    fill(days, "a")
    days.publish("hive", spark, table=table)
    fill(days, "a", batch=2)
    spark.sql(f"DROP TABLE {table}")

    assert not days.unpublish("hive", spark, table=table, dry_run=True)
    assert days.cleanup(older_than="0s", published="noted").kept_counts["published"] == 1
    assert not days.unpublish("hive", spark, table=table)

    assert days.cleanup(older_than="0s").counts == {"superseded": 1}


def test_drift_is_found_and_mended(spark, way, days, table):
    fill(days, "a", "b", "c")
    days.publish("hive", spark, table=table)
    spark.sql(f"ALTER TABLE {table} DROP PARTITION (dt='a')")
    spark.sql(f"ALTER TABLE {table} PARTITION (dt='b') SET LOCATION 'file:///nowhere/b'")
    spark.sql(f"ALTER TABLE {table} ADD PARTITION (dt='z') LOCATION 'file:///nowhere/z'")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (stray INT)")

    drift = days.publish("hive", spark, table=table, check=True)
    assert (drift.added, drift.changed, drift.dropped) == (("dt=a",), ("dt=b",), ("dt=z",))
    assert drift.schema_changes == ("column stray int is not in the dataset",)
    assert (drift.is_in_step, drift.is_applied) == (False, False)
    if way == "sql":
        with pytest.raises(InvalidInputError, match="cannot be changed in place"):
            days.publish("hive", spark, table=table, repair=True)
        return
    mended = days.publish("hive", spark, table=table, repair=True)

    assert (mended.added, mended.changed, mended.dropped) == (("dt=a",), ("dt=b",), ("dt=z",))
    assert days.publish("hive", spark, table=table, check=True).is_in_step
    assert told(spark, table) == dict.fromkeys("abc", (3, 1))


class Killed(BaseException):
    """Stands for the death of the process."""


def dying_at(number: int, *, is_done: bool):
    """Return a `Metastore.call` that dies before or after the call of a number."""
    call = Metastore.call

    def run(self, what, run):
        if self.calls + 1 == number:
            if is_done:
                call(self, what, run)
            raise Killed
        return call(self, what, run)

    return run


@pytest.mark.parametrize(
    "is_done",
    [pytest.param(False, id="before", marks=pytest.mark.long), pytest.param(True, id="after")],
)
@pytest.mark.thorough
def test_a_crash_at_any_call_is_made_good_by_the_next_publication(
    spark, days, table, monkeypatch, is_done
):
    fill(days, "a", "b", "c")
    days.publish("hive", spark, table=table)
    for number in range(1, 100):
        fill(days, "b", f"new{number}", batch=number)
        days.delete(days.where(f"dt = 'new{number - 1}'"))
        try:
            with monkeypatch.context() as patch:
                patch.setattr(Metastore, "call", dying_at(number, is_done=is_done))
                days.publish("hive", spark, table=table)
        except Killed:
            days.publish("hive", spark, table=table)
            assert days.publish("hive", spark, table=table, check=True).is_in_step, number
        else:
            break

    assert number > 6
    assert told(spark, table) == {
        **dict.fromkeys("ac", (3, 1)),
        **dict.fromkeys(["b", f"new{number}"], (3, number)),
    }


@pytest.mark.long
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_crash_at_any_call_of_the_first_publication_is_made_good(
    spark, way, lake, days, monkeypatch, is_done
):
    fill(days, "a", "b", "c")
    for number in range(1, 100):
        table = f"hive_tests.t{uuid.uuid4().hex}"
        try:
            with monkeypatch.context() as patch:
                patch.setattr(Metastore, "call", dying_at(number, is_done=is_done))
                days.publish("hive", spark, table=table)
        except Killed:
            days.publish("hive", spark, table=table)
            assert days.publish("hive", spark, table=table, check=True).is_in_step, number
        else:
            break

    assert number > 4
    assert told(spark, table) == dict.fromkeys("abc", (3, 1))


def test_commits_that_come_meanwhile_are_published_too(spark, days, table, monkeypatch):
    fill(days, "a")
    note = Metastore.set_properties
    late = iter(["b", "c"])

    def and_commit(self, properties):
        note(self, properties)
        for one in late:
            fill(days, one, batch=2)
            break

    monkeypatch.setattr(Metastore, "set_properties", and_commit)

    done = days.publish("hive", spark, table=table)

    assert (done.version, done.added) == (3, ("dt=a", "dt=b", "dt=c"))
    assert told(spark, table) == {"a": (3, 1), "b": (3, 2), "c": (3, 2)}


def before_pointing(monkeypatch, then) -> None:
    """Let something happen once, when a publication is about to move partitions."""
    point = Metastore.point
    waiting = [then]

    def run(self, *arguments):
        if waiting:
            waiting.pop()()
        point(self, *arguments)

    monkeypatch.setattr(Metastore, "point", run)


def noted(dataset) -> dict:
    """Return what is noted of the one table."""
    root = Path(dataset.uri.removeprefix("file://"))
    (note,) = (root / "published").iterdir()
    return json.loads(note.read_bytes())


def test_publisher_that_is_overtaken_leaves_the_table_right(spark, way, days, table, monkeypatch):
    fill(days, "a", "b")
    days.publish("hive", spark, table=table)
    fill(days, "a", "new", batch=2)

    def overtake() -> None:
        fill(days, "a", "new", batch=3)
        assert days.publish("hive", spark, table=table).version == 3
        assert told(spark, table) == {"a": (3, 3), "b": (3, 1), "new": (3, 3)}
        # The slow one is about to show its batches.
        assert noted(days)["versions"] == [2, 3]

    before_pointing(monkeypatch, overtake)
    slow = days.publish("hive", spark, table=table)

    assert slow.version == 3
    assert told(spark, table) == {"a": (3, 3), "b": (3, 1), "new": (3, 3)}
    assert noted(days) == {"table": table, "versions": [3]}
    assert days.publish("hive", spark, table=table, check=True).is_in_step


def test_publisher_that_dies_when_it_is_overtaken_is_made_good(spark, days, table, monkeypatch):
    fill(days, "a", "b")
    days.publish("hive", spark, table=table)
    fill(days, "a", "b", batch=2)

    def overtake() -> None:
        fill(days, "a", "b", batch=3)
        days.publish("hive", spark, table=table)

    note = Metastore.set_properties

    def die(self, properties) -> None:
        if properties["lakebed.version"] == "2":
            raise Killed
        note(self, properties)

    with monkeypatch.context() as dying:
        before_pointing(dying, overtake)
        dying.setattr(Metastore, "set_properties", die)
        with pytest.raises(Killed):
            days.publish("hive", spark, table=table)
    assert told(spark, table) == dict.fromkeys("ab", (3, 2))
    assert days.cleanup(older_than="0s").kept_counts["published"] == 2
    days.cleanup(older_than="0s", dry_run=False)
    assert told(spark, table) == dict.fromkeys("ab", (3, 2))

    again = days.publish("hive", spark, table=table)

    assert again.changed == ("dt=a", "dt=b")
    assert told(spark, table) == dict.fromkeys("ab", (3, 3))


@pytest.mark.thorough
def test_several_publishers_at_once_all_end_well(spark, way, lake, days, table):
    def race() -> None:
        """Publish three times at once, each with a dataset of its own."""
        with ThreadPoolExecutor(3) as pool:
            publications = [
                pool.submit(lake.open("days").publish, "hive", spark, table=table) for _ in range(3)
            ]
        assert {one.result().version for one in publications} == {days.version}
        assert noted(days) == {"table": table, "versions": [days.version]}
        assert lake.open("days").publish("hive", spark, table=table, check=True).is_in_step

    old, new = [f"old{n}" for n in range(4)], [f"new{n}" for n in range(4)]
    fill(days, *old)
    race()
    fill(days, *new)
    race()
    fill(days, *old, batch=2)
    days.delete(days.where("batch = 1"))
    race()

    assert told(spark, table) == dict.fromkeys(old, (3, 2))


def test_publisher_that_takes_longer_than_its_lease_changes_nothing_more(
    spark, days, table, monkeypatch
):
    fill(days, "a", "b")
    days.publish("hive", spark, table=table)
    fill(days, "a", batch=2)

    with monkeypatch.context() as slow:
        slow.setattr(published, "LEASE", published.LEASE_MARGIN)
        with pytest.raises(StorageError, match="not brought up to date by"):
            days.publish("hive", spark, table=table)

    assert told(spark, table) == dict.fromkeys("ab", (3, 1))
    assert noted(days) == {"table": table, "versions": [1, 2]}
    assert days.publish("hive", spark, table=table).changed == ("dt=a",)


def test_metastore_that_fails_is_a_storage_error(spark, days, table, monkeypatch):
    fill(days, "a")
    days.publish("hive", spark, table=table)
    fill(days, "a", batch=2)
    monkeypatch.setattr(JvmCatalog, "find", lambda *_: None)
    quoted = Metastore._sql
    monkeypatch.setattr(
        Metastore, "_sql", lambda self, text: quoted(self, text.replace("SHOW PART", "SHOW NO"))
    )

    with pytest.raises(StorageError, match="The metastore failed") as caught:
        days.publish("hive", spark, table=table)

    assert caught.value.retryable


def test_added_fields_become_columns(spark, lake, table):
    first = pa.schema([("k", pa.string()), ("n", pa.int32())])
    dataset = lake.create("grows", lakebed.DatasetDescriptor(schema=first, partition_by="k"))
    dataset.append([{"k": "a", "n": 1}])
    dataset.publish("hive", spark, table=table)
    wide = pa.schema([("k", pa.string()), ("n", pa.int32()), ("more", pa.string())])
    dataset.evolve(lakebed.DatasetDescriptor(schema=wide, partition_by="k"), base=dataset.version)
    dataset.append([{"k": "b", "n": 2, "more": "x"}])

    done = dataset.publish("hive", spark, table=table)

    assert done.schema_changes == ("column more string is missing",)
    assert rows_of(spark, table, ["k", "n", "more"]) == counted(("a", 1, None), ("b", 2, "x"))
    assert dataset.publish("hive", spark, table=table, check=True).is_in_step


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        (pa.int32(), pa.int64(), 7),
        (pa.int32(), pa.float64(), 7),
        (pa.float32(), pa.float64(), 0.5),
        (pa.date32(), pa.timestamp("us"), dt.date(1950, 6, 1)),
        (pa.decimal128(8, 2), pa.decimal128(20, 4), 7),
    ],
    ids=str,
)
def test_promoted_fields_read_as_in_the_dataset(spark, lake, table, old, new, value):
    def descriptor(kind):
        schema = pa.schema([("k", pa.string()), ("n", kind)])
        return lakebed.DatasetDescriptor(schema=schema, partition_by="k")

    dataset = lake.create("wide", descriptor(old))
    dataset.append([{"k": "a", "n": value}])
    dataset.publish("hive", spark, table=table)
    dataset.evolve(descriptor(new), base=dataset.version)
    dataset.append([{"k": "b", "n": value}])

    dataset.publish("hive", spark, table=table)

    assert rows_of(spark, table, ["k", "n"]) == counted(
        *map(tuple, dataset.spark(spark, columns=["k", "n"]).collect())
    )


def test_older_files_that_read_otherwise_in_hive_are_refused_by_field(spark, lake, table):
    def fields(*more):
        schema = {
            "type": "record",
            "name": "r",
            "fields": [
                {"name": "k", "type": "string"},
                {"name": "n", "type": ["null", "long"], "default": None},
                *more,
            ],
        }
        return lakebed.DatasetDescriptor(schema=schema, partition_by="k")

    with_default = {"name": "more", "type": "long", "default": 5}
    dataset = lake.create("older", fields())
    dataset.append([{"k": "a", "n": 1}])
    dataset.publish("hive", spark, table=table)
    dataset.evolve(fields(with_default), base=dataset.version)

    with pytest.raises(InvalidInputError, match=r"schema 1 .* field 'more' reads as 5"):
        dataset.publish("hive", spark, table=table)
    dataset.overwrite([{"k": "a", "n": 1, "more": 5}])
    assert dataset.publish("hive", spark, table=table).changed == ("k=a",)
    assert rows_of(spark, table, ["k", "n", "more"]) == counted(("a", 1, 5))

    again = lake.create("again", fields({"name": "x", "type": ["null", "long"], "default": None}))
    again.append([{"k": "a", "n": 1, "x": 9}])
    again.publish("hive", spark, table=f"{table}2")
    again.evolve(fields(), base=again.version)
    again.evolve(
        fields({"name": "x", "type": ["null", "long"], "default": None}), base=again.version
    )
    assert next(iter(again.kite.reader()))["x"] is None
    with pytest.raises(InvalidInputError, match="an earlier field of the name 'x'"):
        again.publish("hive", spark, table=f"{table}2")


def test_dataset_created_anew_is_published_as_a_whole(spark, lake, days, table):
    fill(days, "a", "b")
    days.publish("hive", spark, table=table)
    descriptor = days.descriptor
    lake.drop("days")
    anew = lake.create("days", descriptor)
    fill(anew, "b", "c", batch=5)

    done = anew.publish("hive", spark, table=table)

    assert (done.added, done.changed, done.dropped) == (("dt=c",), ("dt=b",), ("dt=a",))
    assert told(spark, table) == {"b": (3, 5), "c": (3, 5)}


def test_only_what_others_can_see_is_published(spark, days, table):
    hidden = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    dataset = hidden.create("days", days.descriptor)
    fill(days, "a")

    with pytest.raises(InvalidInputError, match="other processes cannot access it"):
        dataset.publish("hive", spark, table=table)
    with pytest.raises(ReadOnlyError, match="version 1"):
        days.at(version=1).publish("hive", spark, table=table)


def test_insert_overwrite_destroys_only_the_batch_that_is_shown(spark, days, table):
    fill(days, "a", "b")
    days.publish("hive", spark, table=table)
    fill(days, "a", batch=2)
    days.publish("hive", spark, table=table)

    spark.sql(f"INSERT OVERWRITE {table} PARTITION (dt='a') SELECT 9 AS batch, 9 AS n")

    # Without Hive, Spark leaves the old file beside the new one; with it, it deletes the old one.
    damage = days.publish("hive", spark, table=table, check=True).damaged
    assert len(damage) == 1
    assert damage[0].startswith("days/data/dt=a/batch_id=")
    assert days.at(version=1).where("dt = 'a'").count() == 3
    days.rollback(version=1)
    days.publish("hive", spark, table=table)
    assert told(spark, table) == {"a": (3, 1), "b": (3, 1)}
    assert days.publish("hive", spark, table=table, check=True).is_in_step


def test_what_a_table_shows_stays_until_it_shows_something_else(spark, days, table):
    # P9: cleanup spares what a partition of the metastore refers to, however long it is superseded.
    fill(days, "2013-01-01", "2013-01-02")
    days.publish("hive", spark, table=table)
    fill(days, "2013-01-01", batch=2)
    fill(days, "2013-01-01", batch=3)

    report = days.cleanup(older_than="0s", dry_run=False)

    assert report.counts == {"superseded": 1}
    assert report.kept_counts["published"] == 1
    assert told(spark, table) == {"2013-01-01": (3, 1), "2013-01-02": (3, 1)}
    assert days.check().is_ok

    days.publish("hive", spark, table=table)

    assert days.cleanup(older_than="0s", dry_run=False).counts["superseded"] == 1
    assert told(spark, table) == {"2013-01-01": (3, 3), "2013-01-02": (3, 1)}
    days.unpublish("hive", spark, table=table)
    fill(days, "2013-01-01", batch=4)
    assert days.cleanup(older_than="0s").counts["superseded"] == 1


def test_while_a_table_moves_both_versions_stay(spark, days, table, monkeypatch):
    fill(days, "2013-01-01", "2013-01-02")
    days.publish("hive", spark, table=table)
    fill(days, "2013-01-01", batch=2)

    def die(*_: object) -> None:
        raise StorageError("The metastore is gone.", hint="Wait.")

    with monkeypatch.context() as dying:
        dying.setattr(Metastore, "point", die)
        with pytest.raises(StorageError):
            days.publish("hive", spark, table=table)
    fill(days, "2013-01-01", batch=3)

    kept = days.cleanup(older_than="0s").kept_counts

    assert kept["published"] == 2
    days.publish("hive", spark, table=table)
    assert "published" not in days.cleanup(older_than="0s").kept_counts

"""Datasets as Delta and as Iceberg tables: readers of these get what readers of the dataset do."""

import dataclasses
import datetime as dt
import decimal
import json
import operator
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import time_machine
from deltalake import DeltaTable
from heads import ON_TREES
from inside import store_of
from pyiceberg.table import StaticTable
from table_doors import (
    DELTA,
    DOORS,
    EVERY_TYPE,
    EVERY_VALUE,
    ICEBERG,
    assert_shows,
    rows_of,
)

import lakebed
from lakebed.errors import (
    AlreadyExistsError,
    InvalidInputError,
    MissingDependencyError,
    ObjectExistsError,
    StorageError,
)
from lakebed.model import publishing
from lakebed.state import published
from lakebed.store.posix import PosixStore
from lakebed.tables.outcome import Publication
from lakebed.testing import CountingStore, DelegatingStore

SCHEMA = pa.schema([("p", pa.string()), ("batch", pa.int64()), ("n", pa.int64())])


@pytest.fixture(params=DOORS, ids=str)
def door(request):
    return request.param


@pytest.fixture
def lake(tmp_path):
    return lakebed.Repository(PosixStore(tmp_path / "lake", durable=False))


@pytest.fixture
def days(lake):
    return lake.create("days", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p"))


def rows(batch: int, *partitions: str) -> list[dict]:
    return [{"p": p, "batch": batch, "n": n} for p in partitions for n in range(3)]


def test_each_verb_is_read_back(door, days):
    verbs = {
        "append": lambda: days.append(rows(1, "a", "b"), run="first"),
        "another append": lambda: days.append(rows(2, "a"), run="second"),
        "rerun": lambda: days.rerun(rows(3, "b", "c"), run="first", replace_all=True),
        "overwrite": lambda: days.overwrite(rows(4, "c")),
        "merge": lambda: days.merge(rows(5, "b", "d"), ["p", "n"], missing="delete"),
        "another overwrite": lambda: days.overwrite(rows(6, "a", "c")),
        "delete": lambda: days.delete(days.where("p = 'a' AND n > 1")),
        "delete a partition": lambda: days.delete(days.where("p = 'c'")),
        "compact": lambda: days.compact(gather=True),
        "rollback": lambda: days.rollback(version=2),
        "cleanup": lambda: days.cleanup("0s", dry_run=False),
        "empty": lambda: days.delete(days.where("n >= 0")),
    }
    for verb, do in verbs.items():
        do()
        done = door.publish(days)
        assert (done.version, done.is_in_step) == (days.version, True), verb
        assert_shows(door, days)
        assert door.publish(days, check=True).was_in_step, verb


def test_types_and_nulls_are_read_back(door, lake):
    whole = EVERY_VALUE
    typed = lake.create("typed", lakebed.DatasetDescriptor(schema=EVERY_TYPE, partition_by="day"))
    # pyiceberg 0.12 gives an empty list for a list of records that is null.
    nothing = dict.fromkeys(whole) | ({"structs": []} if door is ICEBERG else {})
    typed.append([whole, nothing, {**whole, "double": float("inf"), "text": "x" * 999}])

    door.publish(typed)

    assert_shows(door, typed)


def test_partitions_by_fields_that_are_never_null_are_read_back(door, lake):
    """Data files lack these fields."""
    schema = pa.schema([pa.field("p", pa.string(), nullable=False), ("n", pa.int64())])
    strict = lake.create("strict", lakebed.DatasetDescriptor(schema=schema, partition_by="p"))
    strict.append([{"p": "a", "n": 1}, {"p": "b", "n": 2}])

    door.publish(strict)

    assert_shows(door, strict)
    assert door.publish(strict, check=True).was_in_step


def test_rows_with_nan_are_found_where_the_engine_says_so(door, lake):
    """No upper bound is told of a column that may hold NaN, which some engines take for greatest."""
    floats = lake.create(
        "floats", lakebed.DatasetDescriptor(schema=pa.schema([("f", pa.float64())]))
    )
    floats.append([{"f": float("nan")}, {"f": 1.0}])
    door.publish(floats)

    if door is DELTA:
        (log,) = (Path(floats.uri.removeprefix("file://")) / door.folder).glob("*.json")
        adds = [json.loads(line)["add"] for line in log.read_text().splitlines() if '"add"' in line]
        told = json.loads(adds[0]["stats"])
        assert (told["minValues"], told["maxValues"]) == ({"f": 1.0}, {})
    for table in door.read(floats).values():
        assert sorted(map(repr, table.column("f").to_pylist())) == ["1.0", "nan"]


END = dt.datetime.max.replace(tzinfo=dt.UTC)  # as tables write it of what is still valid
# deltalake's pyarrow dataset takes a bound that is not told for null, and drops the file.
HALF_KNOWN = {
    "flag": (pa.bool_(), [True, False, None]),
    "ratio": (pa.float64(), [0.5, -0.0, float("nan"), float("inf"), None]),
    "small": (pa.decimal128(9, 2), [decimal.Decimal("-0.01"), decimal.Decimal("0.00"), None]),
    "tiny": (pa.decimal128(38, 10), [decimal.Decimal("1E-10"), decimal.Decimal("0E-10"), None]),
    "ended": (pa.timestamp("us", "UTC"), [END, dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None]),
    "clock": (pa.timestamp("us"), [END.replace(tzinfo=None), None]),
    "record": (pa.struct([("x", pa.int64())]), [{"x": 1}, {"x": None}, None]),
}


def test_conditions_find_every_row_by_pyarrow_datasets_of_deltalake(lake):
    """Fields that older files lack are among them: what they have is not known of each file."""
    days = [("n", pa.int64()), *((name, kind) for name, (kind, _) in HALF_KNOWN.items())]
    classic = {publishing.CHECKPOINTS: publishing.CLASSIC}  # deltalake reads no others so
    typed = lake.create(
        "typed", lakebed.DatasetDescriptor(schema=pa.schema(days), properties=classic)
    )
    for name, (_, values) in HALF_KNOWN.items():
        typed.append([{"n": 1, name: value} for value in values])
        for value in values:
            typed.append([{"n": 2, name: value}])
    typed.publish("delta")
    typed.evolve(
        lakebed.DatasetDescriptor(
            schema=pa.schema([*days, ("later", pa.int64())]), properties=classic
        ),
        base=typed.version,
    )
    typed.append([{"n": 3, "later": 7}, {"n": 3}])
    typed.publish("delta")
    asked = [(name, values) for name, (_, values) in HALF_KNOWN.items() if name != "record"]
    conditions = [
        compare(pc.field(column), value)
        for column, values in [*asked, (("record", "x"), [1]), ("later", [7, 8])]
        for value in values
        for compare in (operator.eq, operator.ne, operator.ge, operator.lt)
        if value is not None
    ]
    conditions += [pc.field(name).is_null() for name in ("flag", "ratio", "ended", "later")]
    conditions += [pc.field(name).is_valid() for name in ("flag", "ratio", "ended", "later")]

    table = DeltaTable(typed.uri.removeprefix("file://") + "/data")
    rows, dataset = table.to_pyarrow_table(), table.to_pyarrow_dataset()

    for condition in conditions:
        wanted = rows.filter(condition)
        got = dataset.to_table(filter=condition)
        assert rows_of(got, ["n"]) == rows_of(wanted, ["n"]), condition
    (skipping,) = [
        value for name, value in table.metadata().configuration.items() if "Skipping" in name
    ]
    assert skipping == "`n`,`small`,`tiny`,`ended`,`clock`"


def test_no_bounds_of_wide_decimals_are_told_to_iceberg(lake):
    """DuckDB 1.4 misreads those that do not fit into 64 bits, and drops files by them."""
    schema = pa.schema([("narrow", pa.decimal128(18, 3)), ("wide", pa.decimal128(19, 3))])
    typed = lake.create("typed", lakebed.DatasetDescriptor(schema=schema))
    typed.append([dict.fromkeys(schema.names, decimal.Decimal("0.002"))])
    typed.publish("iceberg")

    table = StaticTable.from_metadata(typed.uri.removeprefix("file://") + "/iceberg")
    (entry,) = table.inspect.entries().to_pylist()

    metrics = entry["readable_metrics"]
    assert metrics["narrow"]["upper_bound"] == decimal.Decimal("0.002")
    assert metrics["wide"]["upper_bound"] is None
    assert metrics["wide"]["null_value_count"] == 0


ODD = ["a/b", "a=b", "%41", "ä ö", "a b", ".x", "'q\"", "null", "a\\b", "a#?&+", None, "1"]


@pytest.mark.parametrize("formats", [["delta"], ["iceberg"], ["delta", "iceberg"]])
def test_cleanup_of_what_publishes_itself_deletes_what_its_dry_run_lists(lake, formats):
    """Its own commit is published, too: what that takes the place of is all that readers may hold."""
    properties = {f"publish.{name}": "true" for name in formats}
    days = lake.create(
        "days", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p", properties=properties)
    )
    for batch in range(5):
        days.overwrite(rows(batch, "a"))

    listed = days.cleanup("0s")
    deleted = days.cleanup("0s", dry_run=False)

    assert listed.counts["superseded"] == 4
    assert deleted.files == listed.files
    for door in DOORS:
        if door.name in formats:
            assert_shows(door, days)


def test_odd_partition_values_are_read_back(door, lake):
    odd = lake.create(
        "odd",
        lakebed.DatasetDescriptor(
            schema=pa.schema(
                [("p", pa.string()), ("d", pa.date32()), ("o", pa.bool_()), ("n", pa.int64())]
            ),
            partition_by="p, d, o, hash(n, 4) as h",
        ),
    )
    days = [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]
    odd.append(
        [
            {"p": p, "d": days[n % 3], "o": [True, False, None][n % 3], "n": n}
            for n, p in enumerate(ODD)
        ]
    )

    door.publish(odd)

    assert_shows(door, odd)
    wanted = {row["n"]: row["p"] for row in odd.arrow().to_pylist()}
    for reader, table in door.read(odd).items():
        assert {row["n"]: row["p"] for row in table.to_pylist()} == wanted, reader
        assert "h" in table.schema.names, reader


def test_empty_partition_text_is_refused_by_delta_and_read_back_by_iceberg(days):
    days.append(rows(1, "", "a"))

    with pytest.raises(InvalidInputError, match="'p' holds the empty text") as info:
        days.publish("delta")
    assert "partition by a function" in info.value.hint
    assert not list((Path(days.uri.removeprefix("file://")) / DELTA.folder).glob("*"))

    days.publish("iceberg")
    assert_shows(ICEBERG, days)


@pytest.mark.parametrize(
    ("kind", "value"), [(pa.timestamp("us"), dt.datetime(2013, 1, 1)), (pa.float64(), 1.5)]
)
def test_partition_types_that_do_not_read_back_everywhere_are_refused(door, lake, kind, value):
    schema = pa.schema([("p", kind), ("n", pa.int64())])
    odd = lake.create("odd", lakebed.DatasetDescriptor(schema=schema, partition_by="p"))
    odd.append([{"p": value, "n": 1}])

    with pytest.raises(InvalidInputError, match="Partition field 'p' is of type"):
        door.publish(odd)


def test_only_one_of_check_and_repair_can_be_asked_for(door, days):
    days.append(rows(1, "a"))

    with pytest.raises(InvalidInputError, match="check and repair cannot be given together"):
        door.publish(days, check=True, repair=True)


def test_what_the_format_does_not_have_is_refused_by_name(door, lake):
    unsigned = pa.schema([("r", pa.struct([("u", pa.uint64())]))])
    large = lake.create("large", lakebed.DatasetDescriptor(schema=unsigned))
    with pytest.raises(InvalidInputError, match=r"'r\.u' is of type unsigned long") as info:
        door.publish(large)
    assert "decimal(20, 0)" in info.value.hint

    avro = lake.create("avro", lakebed.DatasetDescriptor(schema=SCHEMA, format="avro"))
    with pytest.raises(InvalidInputError, match="its format is 'avro'"):
        door.publish(avro)


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("n", pa.int64()), ("N", pa.int64())]),
        pa.schema([("r", pa.list_(pa.struct([("n", pa.int64()), ("N", pa.int64())])))]),
    ],
    ids=["columns", "nested"],
)
def test_fields_that_differ_only_in_case_are_refused_by_name(door, lake, schema):
    cased = lake.create("cased", lakebed.DatasetDescriptor(schema=schema))

    with pytest.raises(InvalidInputError, match="'n' and 'N'"):
        door.publish(cased)


def with_schema(dataset, *fields: tuple[str, pa.DataType]) -> None:
    partition_by = dataset.descriptor.partition_by
    dataset.evolve(
        lakebed.DatasetDescriptor(schema=pa.schema(fields), partition_by=partition_by),
        base=dataset.version,
    )


P, BATCH, N = SCHEMA.field("p"), SCHEMA.field("batch"), SCHEMA.field("n")


def test_added_and_dropped_fields_read_as_in_the_dataset(door, days):
    days.append(rows(1, "a"))
    door.publish(days)

    days.evolve(
        lambda old: lakebed.DatasetDescriptor(
            schema=pa.schema([P, N, ("more", pa.string())]), partition_by=old.partition_by
        )
    )
    days.append([{"p": "b", "n": 9, "more": "x"}])
    done = door.publish(days)

    assert done.schema_changes
    assert_shows(door, days)
    for table in door.read(days).values():
        assert "batch" not in table.schema.names


def test_name_that_was_dropped_and_given_again_is_refused_until_no_old_file_lives(door, days):
    days.append(rows(1, "a"))
    door.publish(days)
    for fields in ([P, N], [P, BATCH, N]):
        days.evolve(
            lambda old, fields=fields: lakebed.DatasetDescriptor(
                schema=pa.schema(fields), partition_by=old.partition_by
            )
        )
    days.append(rows(2, "b"))

    with pytest.raises(InvalidInputError, match="an earlier field of the name 'batch'"):
        door.publish(days)

    days.overwrite([{"p": "a", "batch": None, "n": 1}])
    door.publish(days)
    assert_shows(door, days)


@pytest.mark.parametrize(
    ("old", "new", "by_iceberg"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.float32(), pa.float64(), True),
        (pa.decimal128(7, 2), pa.decimal128(20, 2), True),
        (pa.decimal128(7, 2), pa.decimal128(20, 3), False),
        (pa.int32(), pa.float64(), False),
        (pa.date32(), pa.timestamp("us"), False),
    ],
    ids=str,
)
def test_promoted_fields_read_right_or_are_refused_until_no_old_file_lives(
    door, lake, old, new, by_iceberg
):
    value = {pa.date32(): dt.date(2013, 1, 1), pa.decimal128(7, 2): decimal.Decimal("1.25")}.get(
        old, 1
    )
    grown = lake.create(
        "grown", lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64()), ("v", old)]))
    )
    grown.append([{"n": 1, "v": value}])
    door.publish(grown)
    assert_shows(door, grown)
    grown.evolve(
        lambda _: lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64()), ("v", new)]))
    )
    later = dt.datetime(2014, 1, 1, 5) if pa.types.is_timestamp(new) else value
    grown.append([{"n": 2, "v": later}])

    if not (door is ICEBERG and by_iceberg):
        with pytest.raises(InvalidInputError, match="they hold field 'v' as") as info:
            door.publish(grown)
        assert "Overwrite" in info.value.hint
        grown.overwrite([{"n": 1, "v": later}, {"n": 2, "v": later}])
    door.publish(grown)

    assert_shows(door, grown)


def test_second_publication_does_nothing(door, days):
    days.append(rows(1, "a"))
    first = door.publish(days)
    before = sorted(Path(days.uri.removeprefix("file://")).rglob("*"))

    again = door.publish(days)

    assert (first.created, first.added_count, first.table_version is None) == (True, 1, False)
    assert again.was_in_step
    assert again.table_version is None
    assert sorted(Path(days.uri.removeprefix("file://")).rglob("*")) == before


def test_table_that_is_right_is_not_changed_after_a_publisher_that_did_not_end(door, tmp_path):
    from lakebed.testing import FailingStore

    store = PosixStore(tmp_path / "lake", durable=False)
    days = lakebed.Repository(store).create(
        "days", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p")
    )
    days.append(rows(1, "a"))
    door.publish(days)
    days.append(rows(2, "b"))
    dying = FailingStore(store, fail_on="replace", nth=2, matching="published/")
    with pytest.raises(StorageError):
        door.publish(lakebed.Repository(dying).open("days"))
    assert dying.has_failed
    before = {one.key for one in store.list(f"days/{door.folder}/")}

    again = door.publish(days)

    assert again.was_in_step
    assert {one.key for one in store.list(f"days/{door.folder}/")} == before
    assert_shows(door, days)


def test_dry_run_and_check_change_nothing(door, days):
    days.append(rows(1, "a"))

    assert door.publish(days, dry_run=True).created
    assert not door.publish(days, check=True).is_in_step
    root = Path(days.uri.removeprefix("file://"))
    assert not (root / door.folder).exists()
    assert not (root / "published").exists()


def test_version_and_commit_stand_in_the_table(days):
    from deltalake import DeltaTable
    from pyiceberg.table import StaticTable

    commit = days.append(rows(1, "a"))
    days.publish("delta")
    days.publish("iceberg")

    root = Path(days.uri.removeprefix("file://"))
    table = DeltaTable(root / "data")
    (entry,) = table.history()
    assert json.loads(entry["userMetadata"])["lakebed"]["version"] == commit.version
    created_at = json.loads(entry["userMetadata"])["lakebed"]["created_at"]
    assert table.transaction_version(f"lakebed:days:{created_at}") == commit.version
    summary = StaticTable.from_metadata(str(root / "iceberg")).current_snapshot().summary
    assert summary["lakebed.version"] == str(commit.version)
    assert summary["lakebed.commit-id"] == json.loads(entry["userMetadata"])["lakebed"]["commit_id"]
    assert (summary["total-data-files"], summary["total-records"]) == ("1", "3")


def test_compaction_is_no_change_of_rows(days):
    days.append(rows(1, "a"))
    days.append(rows(2, "a"))
    days.publish("delta")
    days.publish("iceberg")
    days.compact()

    days.publish("delta")
    days.publish("iceberg")

    root = Path(days.uri.removeprefix("file://"))
    last = sorted((root / DELTA.folder).glob("*.json"))[-1].read_text().splitlines()
    changes = [json.loads(line) for line in last]
    assert {
        a["dataChange"] for one in changes for k, a in one.items() if k in ("add", "remove")
    } == {False}
    from pyiceberg.table import StaticTable

    summary = StaticTable.from_metadata(str(root / "iceberg")).current_snapshot().summary
    assert summary.operation.value == "replace"


def test_cost_is_in_proportion_to_the_change(door, tmp_path):
    def cost(name: str, commits: int) -> tuple[int, int]:
        """Return requests and bytes written by a publication after one more commit."""
        counting = CountingStore(PosixStore(tmp_path / name, durable=False))
        dataset = lakebed.Repository(counting).create(
            "days", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p")
        )
        dataset.append(rows(1, *(f"{n:04d}" for n in range(commits))))
        door.publish(dataset)
        dataset.append(rows(2, "0000"))
        counting.reset()
        door.publish(dataset)
        counts = counting.reset()
        return counts.total, counts.bytes_written

    few_requests, few_bytes = cost("few", 3)
    many_requests, many_bytes = cost("many", 300)

    if ON_TREES:  # the files of a large commit are in a leaf already, and a few are folded later
        assert many_requests <= few_requests <= 24
    else:
        assert few_requests == many_requests <= 20
    assert many_bytes < few_bytes * 1.5


def test_table_of_others_is_not_touched(days):
    from deltalake import write_deltalake

    days.append(rows(1, "a"))
    root = Path(days.uri.removeprefix("file://"))
    write_deltalake(root / "data", pa.table({"n": [1]}))
    before = (root / DELTA.folder / f"{0:020d}.json").read_bytes()

    with pytest.raises(AlreadyExistsError, match="Lakebed did not write"):
        days.publish("delta")
    with pytest.raises(AlreadyExistsError, match="Lakebed did not write"):
        days.unpublish("delta")
    assert (root / DELTA.folder / f"{0:020d}.json").read_bytes() == before


def test_other_engines_may_not_write_to_the_delta_table_nor_vacuum_it(days):
    from deltalake import DeltaTable, write_deltalake
    from deltalake.exceptions import CommitFailedError

    for batch in range(3):
        days.overwrite(rows(batch, "a"))
    days.publish("delta")
    days.overwrite(rows(3, "a"))
    days.publish("delta")
    root = Path(days.uri.removeprefix("file://"))
    files = sorted(root.rglob("*.parquet"))
    table = DeltaTable(root / "data")

    for write in (
        lambda: write_deltalake(table, pa.table({"n": [1]}), mode="append", schema_mode="merge"),
        lambda: table.delete("n = 1"),
        lambda: table.optimize.compact(),
        lambda: table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
    ):
        with pytest.raises(CommitFailedError, match="lakebed"):
            write()
    table.vacuum(dry_run=False, full=True)

    assert sorted(root.rglob("*.parquet")) == files
    assert days.publish("delta", check=True).was_in_step


def write_by_force(door, dataset) -> None:
    """Write to a table as somebody does who knows no better."""
    root = Path(dataset.uri.removeprefix("file://"))
    if door is DELTA:
        logs = sorted((root / door.folder).glob("*.json"))
        (file,) = (root / "data").rglob("part-*.parquet")
        removed = {"path": str(file.relative_to(root / "data")), "dataChange": True}
        lines = [
            {"commitInfo": {"operation": "DELETE", "engineInfo": "somebody"}},
            {"remove": {**removed, "deletionTimestamp": 1}},
        ]
        next_log = root / door.folder / f"{len(logs):020d}.json"
        next_log.write_text("\n".join(map(json.dumps, lines)))
        return
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.table import StaticTable

    from lakebed.tables.iceberg.homes import FilesBeside

    home = FilesBeside(store_of(dataset), dataset.name, store_of(dataset).uri)
    found = home.find("")
    table = StaticTable.from_metadata(str(root / "iceberg"))
    table.catalog.commit_table = lambda t, req, upd: _Response(home.commit(found, req, upd))
    table.delete(AlwaysTrue())


class _Response:
    def __init__(self, found) -> None:
        self.metadata, self.metadata_location = found.metadata, found.place


def test_what_others_have_written_is_told_and_only_taken_back_by_a_repair(door, days):
    days.append(rows(1, "a"))
    door.publish(days)
    write_by_force(door, days)
    assert all(table.num_rows == 0 for table in door.read(days).values())

    checked = door.publish(days, check=True)
    assert not checked.is_in_step
    assert "DELETE" in checked.foreign[0].upper()
    days.append(rows(2, "b"))
    with pytest.raises(InvalidInputError, match="Others have written") as info:
        door.publish(days)
    assert "repair" in info.value.hint
    assert all(table.num_rows == 0 for table in door.read(days).values())

    mended = door.publish(days, repair=True)

    assert mended.foreign == checked.foreign
    assert_shows(door, days)
    assert door.publish(days, check=True).was_in_step


def test_repair_mends_a_table_whose_note_is_lost(door, days):
    days.append(rows(1, "a"))
    door.publish(days)
    published.forget(store_of(days), "days", door.name)
    days.overwrite(rows(2, "a", "b"))

    done = door.publish(days)

    assert (done.added_count, done.removed_count) == (2, 1)
    assert_shows(door, days)


def test_unpublished_table_is_gone_and_files_stay(door, days):
    days.append(rows(1, "a"))
    door.publish(days)
    root = Path(days.uri.removeprefix("file://"))

    assert door.unpublish(days, dry_run=True)
    assert_shows(door, days)
    assert door.unpublish(days)
    assert not door.unpublish(days)

    assert days.count() == 3
    assert not [path for path in (root / door.folder).rglob("*") if path.is_file()]
    assert published.read(store_of(days), "days") == ()
    door.publish(days)
    assert_shows(door, days)


def test_dataset_created_anew_is_published_as_a_whole(door, lake, days):
    days.append(rows(1, "a"))
    door.publish(days)
    lake.drop("days")
    again = lake.create("days", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p"))
    again.append(rows(2, "b"))

    door.publish(again)

    assert_shows(door, again)


class Killed(BaseException):
    """Ends a publication as a kill does: nothing is tidied up after it."""


class Dying(DelegatingStore):
    """Fails for good at the nth write, before or after it was done."""

    def __init__(self, inner, at: int, *, is_done: bool) -> None:
        super().__init__(inner)
        self.left, self.is_done = at, is_done

    def _write(self, write):
        self.left -= 1
        if self.left < 0:
            raise Killed
        if self.left == 0 and not self.is_done:
            raise Killed
        result = write()
        if self.left == 0:
            raise Killed
        return result

    def _create(self, key, data):
        return self._write(lambda: super(Dying, self)._create(key, data))

    def _replace(self, key, data, *, if_match):
        return self._write(lambda: super(Dying, self)._replace(key, data, if_match=if_match))

    def _put(self, key, data):
        return self._write(lambda: super(Dying, self)._put(key, data))


@pytest.mark.parametrize("is_done", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
@pytest.mark.thorough
def test_reader_sees_one_version_whole_wherever_a_publisher_dies(
    door, lake, tmp_path, is_done, is_first
):
    store = PosixStore(tmp_path / "lake", durable=False)
    for at in range(1, 20):
        days = lake.create(f"days{at}", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p"))
        days.append(rows(1, "a", "b"))
        if not is_first:
            door.publish(days)
            days.overwrite(rows(2, "a", "c"))
        dying = lakebed.Repository(Dying(store, at, is_done=is_done)).open(days.name)
        try:
            door.publish(dying)
        except Killed:
            pass
        else:
            break
        whole = [rows_of(days.arrow(), SCHEMA.names)]
        if not is_first:
            whole.append(rows_of(days.at(version=1).arrow(), SCHEMA.names))
        root = Path(days.uri.removeprefix("file://"))
        if any((root / door.folder).glob("*.json")) and (
            door is DELTA or (root / door.folder / "version-hint.text").exists()
        ):
            for table in door.read(days).values():
                assert rows_of(table, SCHEMA.names) in whole
        days.overwrite(rows(3, "b"))
        assert door.publish(days).version == days.version
        assert_shows(door, days)
        assert door.publish(days, check=True).was_in_step
    assert 3 < at < 19


def test_publishers_at_once_give_one_result(door, lake, days):
    def race() -> None:
        with ThreadPoolExecutor(3) as pool:
            tasks = [pool.submit(door.publish, lake.open("days")) for _ in range(3)]
        assert {task.result().version for task in tasks} == {days.version}
        assert_shows(door, days)
        assert door.publish(days, check=True).was_in_step

    days.append(rows(1, "a", "b"))
    race()
    days.overwrite(rows(2, "b", "c"))
    race()


def test_commits_that_come_meanwhile_are_published_too(door, tmp_path):
    """A commit lands between the look at the head and the change of the table."""
    store = PosixStore(tmp_path / "lake", durable=False)
    days = lakebed.Repository(store).create(
        "days", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p")
    )
    days.append(rows(1, "a"))

    class Late(DelegatingStore):
        is_due = True

        def _create(self, key, data):
            if door.folder in key and self.is_due:
                Late.is_due = False
                lakebed.Repository(store).open("days").overwrite(rows(2, "a", "b"))
            return super()._create(key, data)

    done = door.publish(lakebed.Repository(Late(store)).open("days"))

    assert done.version == 2
    assert_shows(door, days)


@pytest.mark.parametrize("value", ["true", "True"])
def test_each_commit_publishes_where_a_property_says_so(lake, value):
    properties = {"publish.delta": value, "publish.iceberg": value}
    days = lake.create(
        "auto", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p", properties=properties)
    )
    for do in (
        lambda: days.append(rows(1, "a")),
        lambda: days.append(rows(2, "a")),
        lambda: days.compact(),
        lambda: days.delete(days.where("n = 0")),
        lambda: days.cleanup("0s", dry_run=False),
    ):
        do()
        for door in DOORS:
            assert_shows(door, days)
            assert door.publish(days, check=True).was_in_step


def test_commit_is_made_though_its_publication_fails(lake, caplog):
    properties = {"publish.delta": "true", "publish.iceberg": "true"}
    auto = lake.create(
        "auto", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p", properties=properties)
    )
    auto.append(rows(1, "a"))

    commit = auto.append(rows(2, ""))  # which Delta cannot say

    assert commit.version == 2
    assert "not published after a commit dataset=auto delta" in caplog.text
    assert [failure.table for failure in commit.not_published] == ["delta"]
    assert [str(shown) for shown in auto.inspect.publications()] == [
        "delta shows version 1 of 2",
        "iceberg shows version 2",
    ]
    assert_shows(ICEBERG, auto)
    assert not auto.delete(auto.where("p = ''")).not_published
    assert_shows(DELTA, auto)
    assert all(shown.is_in_step for shown in auto.inspect.publications())


def test_what_a_table_shows_and_what_its_readers_hold_stays(door, days):
    days.append(rows(1, "a"))
    door.publish(days)
    days.overwrite(rows(2, "a"))
    days.cleanup("0s", dry_run=False)
    root = Path(days.uri.removeprefix("file://"))
    assert len(list(root.rglob("part-*.parquet"))) == 2
    assert all(set(t.column("batch").to_pylist()) == {1} for t in door.read(days).values())

    days.publish("delta") if door is DELTA else days.publish("iceberg")
    days.cleanup("1h", dry_run=False)
    assert len(list(root.rglob("part-*.parquet"))) == 2, "a reader may have opened it a moment ago"
    days.cleanup("0s", dry_run=False)

    assert len(list(root.rglob("part-*.parquet"))) == 1
    assert_shows(door, days)
    assert not days.check().findings


def test_files_of_what_was_shown_stay_for_the_retention_since_it_was_shown_last(door, days):
    """They were replaced long before; but readers have begun with them until a day ago."""
    root = Path(days.uri.removeprefix("file://"))
    begin = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)

    def files_after_a_cleanup(day: int) -> set[Path]:
        with time_machine.travel(begin + dt.timedelta(days=day)):
            days.cleanup("7d", dry_run=False)
        return set(root.rglob("part-*.parquet"))

    days.append(rows(1, "a"))
    door.publish(days)
    old = set(root.rglob("part-*.parquet"))
    days.overwrite(rows(2, "a"))
    assert old < files_after_a_cleanup(8), "the table shows them"
    with time_machine.travel(begin + dt.timedelta(days=8)):
        door.publish(days)
    assert old < files_after_a_cleanup(9), "a reader may have begun yesterday"
    assert old < files_after_a_cleanup(14)

    left = files_after_a_cleanup(16)

    assert len(left) == 1
    assert not old & left
    assert_shows(door, days)


def test_old_metadata_is_cleaned_up_and_the_table_stays_whole(door, days, monkeypatch):
    from lakebed.tables.delta import to_delta

    monkeypatch.setattr(to_delta, "COMMITS_A_CHECKPOINT", 4)
    for batch in range(12):
        days.overwrite(rows(batch, "a", "b"))
        door.publish(days)
    root = Path(days.uri.removeprefix("file://"))
    before = len([path for path in (root / door.folder).iterdir() if path.is_file()])

    days.cleanup("7d", dry_run=False)
    assert len([path for path in (root / door.folder).iterdir() if path.is_file()]) == before
    days.cleanup("0s", dry_run=False)
    door.publish(days)  # takes out of the table what was given up
    days.cleanup("0s", dry_run=False)

    after = len([path for path in (root / door.folder).iterdir() if path.is_file()])
    assert after < before * 0.6
    assert_shows(door, days)
    assert door.publish(days, repair=True).is_in_step
    assert_shows(door, days)


def test_store_that_fails_is_an_error_and_the_next_publication_goes_on(door, tmp_path):
    from lakebed.testing import FailingStore

    store = PosixStore(tmp_path / "lake", durable=False)
    days = lakebed.Repository(store).create(
        "days", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p")
    )
    days.append(rows(1, "a"))
    failing = FailingStore(store, fail_on="create", nth=2)
    with pytest.raises(StorageError):
        door.publish(lakebed.Repository(failing).open("days"))

    door.publish(days)

    assert_shows(door, days)


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_commit_of_a_table_that_landed_and_was_refused_when_repeated_leaves_it_whole(
    door, tmp_path, is_first
):
    from lakebed.testing import FailingStore

    store = PosixStore(tmp_path / "lake", durable=False)
    days = lakebed.Repository(store).create(
        "days", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p")
    )
    days.append(rows(1, "a"))
    if not is_first:
        door.publish(days)
        days.overwrite(rows(2, "a", "b"))
    refusal = ObjectExistsError("There is one.")
    repeating = FailingStore(
        store, fail_on="create", landed=True, error=refusal, matching=f"{door.folder}/"
    )

    done = door.publish(lakebed.Repository(repeating).open("days"))

    assert repeating.has_failed
    assert done.version == days.version
    assert_shows(door, days)
    assert door.publish(days, check=True).was_in_step


def test_adopted_files_are_refused_by_delta_and_read_back_by_iceberg(lake, tmp_path):
    import pyarrow.parquet as pq

    home = tmp_path / "lake" / "old" / "p=a"
    home.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1, 2]}), home / "000000_0.parquet")
    old = lake.adopt("old", partition_by="p string")

    with pytest.raises(InvalidInputError, match="was adopted in place"):
        old.publish("delta")
    old.publish("iceberg")
    assert_shows(ICEBERG, old)


_WITHOUT_EFFECT = [
    ({"publish.detla": "true"}, "Unknown property 'publish.detla'"),
    ({"publish.delta": "yes"}, "The property 'publish.delta' is 'yes'"),
    ({"publish.hive": "true"}, "The property 'publish.hive.table' is missing"),
    ({"publish.hive": "true", "publish.hive.table": "a b"}, "Illegal table name 'a b'"),
    (
        {"publish.hive": "true", "publish.hive.table": "a.b", "publish.hive.mode": "odd"},
        "Unknown mode 'odd'",
    ),
    (
        {"publish.iceberg": "true", "publish.iceberg.table": "a.b"},
        "Only one of the properties 'publish.iceberg.catalog' and 'publish.iceberg.table'",
    ),
]


@pytest.mark.parametrize(("properties", "told"), _WITHOUT_EFFECT)
def test_property_without_effect_is_refused_when_it_is_set(lake, properties, told):
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, properties=properties)
    with pytest.raises(InvalidInputError, match=told):
        lake.create("auto", descriptor)
    assert lake.list() == []
    auto = lake.create("auto", lakebed.DatasetDescriptor(schema=SCHEMA))

    with pytest.raises(InvalidInputError, match=told):
        auto.evolve(descriptor, base=0)

    assert auto.version == 0


@pytest.mark.parametrize(("properties", "told"), _WITHOUT_EFFECT)
def test_property_without_effect_that_an_older_release_accepted_is_told(
    lake, caplog, monkeypatch, properties, told
):
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, properties=properties)
    with monkeypatch.context() as older:
        older.setattr(publishing, "check", lambda *_: None)
        auto = lake.create("auto", descriptor)

    commit = auto.append(rows(1, "a"))

    assert auto.count() == 3
    assert told in caplog.text
    assert bool(commit.not_published) == any(
        properties.get(name) == "true" for name in ("publish.hive", "publish.iceberg")
    )
    auto.evolve(lambda old: dataclasses.replace(old, properties={**properties, "owner": "north"}))


def test_target_that_fails_keeps_no_other_from_being_published_to(lake, caplog, monkeypatch):
    from lakebed.tables.delta import to_delta

    properties = {"publish.delta": "true", "publish.iceberg": "true"}
    auto = lake.create("auto", lakebed.DatasetDescriptor(schema=SCHEMA, properties=properties))

    def burn(*_, **__):
        raise ArithmeticError("it burns")

    monkeypatch.setattr(to_delta, "publish", burn)
    auto.append(rows(1, "a"))

    assert "delta: ArithmeticError('it burns')" in caplog.text
    assert_shows(ICEBERG, auto)


def test_iceberg_without_its_package_names_the_extra_and_delta_needs_none(days, monkeypatch):
    days.append(rows(1, "a"))
    gone = ("lakebed.tables.iceberg.", "pyiceberg", "deltalake")
    for name in [name for name in sys.modules if name.startswith(gone)]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("pyiceberg", "deltalake"):
        monkeypatch.setitem(sys.modules, name, None)

    for call in (days.publish, days.unpublish):
        with pytest.raises(MissingDependencyError, match="pyiceberg") as info:
            call("iceberg")
        assert info.value.extra == "iceberg"
    assert days.publish("delta").created
    days.cleanup("0s", dry_run=False)


@pytest.mark.parametrize(
    "done",
    [
        Publication(kind="hive", table="lake.t", version=1, mode="partitions", is_applied=True),
        Publication(kind="delta", table="lake/t", version=1, is_applied=True),
    ],
)
def test_table_that_only_a_second_round_has_created_is_told_as_created(done):
    later = dataclasses.replace(done, version=2, created=True)

    assert done.followed_by(later).created
    assert later.followed_by(done).created


def test_remedy_for_adopted_files_is_the_one_that_is_printed(lake, tmp_path):
    for day in ("2013-01-01", "2013-01-02"):
        home = tmp_path / "lake" / "old" / f"dt={day}"
        home.mkdir(parents=True)
        pq.write_table(pa.table({"n": [1, 2]}), home / "part-0.parquet")
    old = lake.adopt("old", partition_by="dt date")
    delta, iceberg = DELTA, ICEBERG
    iceberg.publish(old)
    assert_shows(iceberg, old)

    with pytest.raises(InvalidInputError, match="was adopted in place") as caught:
        delta.publish(old)
    assert "`compact` with gather" in caught.value.hint
    compacted = old.compact(gather=True)

    assert (compacted.files_before, compacted.files_after) == (2, 2)
    for door in (delta, iceberg):
        door.publish(old)
        assert_shows(door, old)
    assert old.compact(gather=True).commits == ()


def test_gathering_only_some_partitions_leaves_the_adopted_files_of_the_others(lake, tmp_path):
    for day in ("1", "2"):
        home = tmp_path / "lake" / "old" / f"day={day}"
        home.mkdir(parents=True)
        pq.write_table(pa.table({"n": [1, 2]}), home / "part-0.parquet")
    old = lake.adopt("old", partition_by="day int")

    old.compact(old.where("day = 1"), gather=True)

    assert sorted(file.key.startswith("old/data/") for file in old.files()) == [False, True]

"""What a user does with a dataset: append, overwrite, narrow, read, look back."""

import dataclasses
import datetime as dt
import operator
import pickle
import uuid

import pyarrow as pa
import pytest

import lakebed
from lakebed import DatasetDescriptor, Repository, WriteOptions, by
from lakebed.dataset import Dataset
from lakebed.errors import (
    InvalidInputError,
    InvalidNameError,
    PartitionSpecError,
    PredicateError,
    ReadOnlyError,
    SchemaMismatchError,
    StorageError,
    VersionNotFoundError,
)
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import CountingStore, FailingStore
from lakebed.work.writer import EntityWriter

UTC = dt.UTC
SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("carrier", pa.string()),
        pa.field("n", pa.int64(), nullable=False),
    ]
)
DAY = dt.datetime(2013, 1, 1, tzinfo=UTC)


@dataclasses.dataclass
class Flight:
    ts: dt.datetime | None
    carrier: str | None
    n: int


@pytest.fixture
def store() -> Store:
    return MemoryStore(uuid.uuid4().hex)


@pytest.fixture
def flights(store: Store) -> Dataset:
    return Repository(store).create(
        "flights",
        DatasetDescriptor(
            schema=SCHEMA, partition_by=[by.date("ts", name="dt"), by.identity("carrier")]
        ),
    )


def row(n: int, day: int = 1, carrier: str | None = "UA", hour: int = 0) -> dict:
    return {"ts": dt.datetime(2013, 1, day, hour, tzinfo=UTC), "carrier": carrier, "n": n}


def numbers(view: lakebed.View) -> list[int]:
    return sorted(view.arrow(columns=["n"])["n"].to_pylist())


def objects(store: Store) -> dict[str, int]:
    return {info.key: info.size_bytes for info in store.list("")}


# Append


ROWS = [row(1), row(2, day=2, carrier=None)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: pa.Table.from_pylist(ROWS, schema=SCHEMA),
        lambda: pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA),
        lambda: pa.Table.from_pylist(ROWS, schema=SCHEMA).to_reader(),
        lambda: ROWS,
        lambda: (one for one in ROWS),
        lambda: [Flight(**one) for one in ROWS],
    ],
)
def test_append_takes_rows_in_every_form(flights: Dataset, make) -> None:
    commit = flights.append(make())

    assert (commit.version, commit.operation, commit.row_count) == (1, "append", 2)
    assert sorted(flights.kite.reader(), key=lambda one: one["n"]) == ROWS


def test_append_takes_pandas(flights: Dataset) -> None:
    pandas = pytest.importorskip("pandas")

    flights.append(pandas.DataFrame(ROWS))

    assert sorted(flights.pandas()["n"]) == [1, 2]
    assert sorted(flights.kite.reader(), key=lambda one: one["n"]) == ROWS


def test_commit_says_what_it_did(flights: Dataset) -> None:
    before = dt.datetime.now(UTC)

    commit = flights.append(ROWS, run="2013-01")

    assert commit.run == "2013-01"
    assert before <= commit.committed_at <= dt.datetime.now(UTC)
    assert commit.batch_id is not None
    assert abs(commit.batch_id - before.timestamp() * 1000) < 60_000
    assert commit.partitions == (
        "dt=2013-01-01/carrier=UA",
        "dt=2013-01-02/carrier=__HIVE_DEFAULT_PARTITION__",
    )
    assert len(commit.files_added) == 2
    assert commit.files_removed == ()
    assert all(f"/batch_id={commit.batch_id}/part-" in key for key in commit.files_added)


def test_append_without_rows_is_a_version_without_files(flights: Dataset) -> None:
    commit = flights.append([])

    assert (commit.version, commit.row_count, commit.files_added) == (1, 0, ())
    assert flights.count() == 0


def test_batches_keep_their_ids_apart(flights: Dataset) -> None:
    ids = [flights.append([row(n)]).batch_id for n in range(3)]

    assert sorted(set(ids)) == ids
    assert numbers(flights.where(f"batch_id = {ids[1]}")) == [1]


# Bad input: a named error, and nothing of it in the store

BAD_ROWS = [
    ({**row(1), "carier": "UA"}, SchemaMismatchError, r"'carier'.*Did you mean 'carrier'"),
    ({**row(1), "n": "x"}, SchemaMismatchError, r"'x' \(str\).*'n' of type long"),
    ({**row(1), "n": None}, SchemaMismatchError, r"'n' is not nullable"),
    ({"ts": DAY, "carrier": "UA"}, SchemaMismatchError, r"lacks column 'n'"),
    ({**row(1), "carrier": "x" * 300}, PartitionSpecError, r"'carrier' needs 308 bytes.*hash"),
]


@pytest.mark.parametrize("verb", ["append", "overwrite"])
@pytest.mark.parametrize(("bad", "error", "message"), BAD_ROWS)
def test_row_that_does_not_fit_writes_nothing(
    flights: Dataset, store: Store, verb: str, bad: dict, error, message: str
) -> None:
    flights.append([row(0)])
    before = objects(store)

    def stream():
        yield from (row(n, day=1 + n % 9) for n in range(11_000))
        yield bad

    with pytest.raises(error, match=message) as caught:
        getattr(flights.with_options(write=WriteOptions(target_bytes=5_000)), verb)(stream())

    assert caught.value.hint
    assert objects(store) == before
    assert numbers(flights) == [0]


def test_rows_that_all_lack_a_partition_source_write_nothing(
    flights: Dataset, store: Store
) -> None:
    before = objects(store)

    with pytest.raises(PartitionSpecError, match="lacks 'ts', the source of partition field 'dt'"):
        flights.append([{"carrier": "UA", "n": 1}])

    assert objects(store) == before


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"ts": [DAY], "carrier": ["UA"], "n": [1], "zz": [1]}, SchemaMismatchError),
        ({"ts": [DAY], "carrier": ["UA"], "n": [1.5]}, SchemaMismatchError),
        ({"ts": ["2013-01-01"], "carrier": ["UA"], "n": [1]}, SchemaMismatchError),
        ({"ts": [DAY.replace(tzinfo=None)], "carrier": ["UA"], "n": [1]}, SchemaMismatchError),
        ({"carrier": ["UA"], "n": [1]}, PartitionSpecError),
    ],
)
def test_table_that_does_not_fit_writes_nothing(
    flights: Dataset, store: Store, columns: dict, error
) -> None:
    before = objects(store)

    for data in (pa.table(columns), pa.table(columns).slice(0, 0)):
        with pytest.raises(error):
            flights.append(data)

    assert objects(store) == before


def test_source_that_breaks_writes_nothing(flights: Dataset, store: Store) -> None:
    before = objects(store)

    def stream():
        yield row(1)
        message = "the source broke"
        raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="the source broke"):
        flights.append(stream())

    assert objects(store) == before


# Overwrite


def test_overwrite_replaces_the_partitions_that_the_data_touches(flights: Dataset) -> None:
    flights.append([row(1), row(2), row(3, day=2), row(4, carrier="AA")])

    commit = flights.overwrite([row(9)])

    assert numbers(flights) == [3, 4, 9]
    assert (commit.operation, commit.partitions) == ("overwrite", ("dt=2013-01-01/carrier=UA",))
    assert len(commit.files_removed) == 1


def test_what_was_overwritten_stays_readable(flights: Dataset, store: Store) -> None:
    flights.append([row(1)])
    commit = flights.overwrite([row(2)])

    assert numbers(flights.at(version=1)) == [1]
    assert all(key in objects(store) for key in commit.files_removed)


def test_overwrite_of_a_view_replaces_all_of_it(flights: Dataset) -> None:
    flights.append([row(1), row(2, carrier="AA"), row(3, day=2), row(4, day=3)])

    flights.overwrite([row(9, day=2)], flights.where("ts < '2013-01-03'"))

    assert numbers(flights) == [4, 9]


def test_overwrite_of_a_view_without_rows_empties_it(flights: Dataset) -> None:
    flights.append([row(1), row(2, day=2)])

    commit = flights.overwrite([], flights.where("dt = '2013-01-01'"))

    assert numbers(flights) == [2]
    assert (commit.row_count, commit.files_added, len(commit.files_removed)) == (0, (), 1)


def test_overwrite_of_the_dataset_replaces_everything(flights: Dataset) -> None:
    flights.append([row(1), row(2, day=2)])

    flights.overwrite([row(9, day=5)], flights)

    assert numbers(flights) == [9]


def test_overwrite_of_an_unpartitioned_dataset_replaces_everything(store: Store) -> None:
    plain = Repository(store).create("plain", DatasetDescriptor(schema=SCHEMA))
    plain.append([row(1)])

    commit = plain.overwrite([row(2)])

    assert numbers(plain) == [2]
    assert commit.partitions == ("",)


@pytest.mark.parametrize(
    ("text", "rows", "error", "message"),
    [
        (None, [], InvalidInputError, "the partitions to replace are unknown"),
        ("dt = '2013-01-01'", [row(9, day=2)], InvalidInputError, "outside the view"),
        ("ts >= '2013-01-01 12:00'", [row(9, hour=13)], PredicateError, "not aligned"),
        ("n = 5", [row(5)], PredicateError, "not aligned"),
        ("batch_id = 5", [row(5)], PredicateError, "not aligned"),
    ],
)
def test_overwrite_that_says_not_what_it_replaces_is_refused(
    flights: Dataset, store: Store, text: str | None, rows: list, error, message: str
) -> None:
    flights.append([row(1)])
    before = objects(store)

    with pytest.raises(error, match=message):
        flights.overwrite(rows, None if text is None else flights.where(text))

    assert objects(store) == before


def test_overwrite_takes_a_view_of_the_same_dataset_only(flights: Dataset, store: Store) -> None:
    other = Repository(store).create("other", flights.descriptor)
    elsewhere = Repository(MemoryStore(uuid.uuid4().hex)).create("flights", flights.descriptor)

    for view in (other.where("dt = '2013-01-01'"), elsewhere, "dt = '2013-01-01'"):
        with pytest.raises(InvalidInputError, match="is not a view of 'flights'"):
            flights.overwrite([], view)  # type: ignore[arg-type]


# One entity at a time


def test_writer_commits_one_batch_on_a_clean_exit(flights: Dataset) -> None:
    with flights.kite.writer(run="r") as writer:
        for n in range(2_500):
            writer.write(row(n))
        writer.write(Flight(None, None, -1))
        assert flights.count() == 0

    assert writer.commit is not None
    assert (writer.commit.version, writer.commit.row_count, writer.commit.run) == (1, 2_501, "r")
    assert numbers(flights) == [-1, *range(2_500)]


def write_and_fail(writer: EntityWriter) -> None:
    with writer:
        for n in range(3_000):
            writer.write(row(n))
        raise RuntimeError


def test_writer_leaves_nothing_after_an_error(flights: Dataset, store: Store) -> None:
    before = objects(store)

    writer = flights.with_options(write=WriteOptions(target_bytes=5_000)).kite.writer()

    with pytest.raises(RuntimeError):
        write_and_fail(writer)

    assert writer.commit is None
    assert objects(store) == before
    assert flights.version == 0


@pytest.mark.parametrize(("bad", "error", "message"), BAD_ROWS)
def test_writer_goes_on_after_an_entity_that_does_not_fit(
    flights: Dataset, bad: dict, error, message: str
) -> None:
    with flights.kite.writer() as writer:
        writer.write(row(1))
        with pytest.raises(error, match=message):
            writer.write(bad)
        writer.write(row(2))

    assert numbers(flights) == [1, 2]


def test_writer_keeps_an_entity_as_it_was_when_it_was_written(flights: Dataset) -> None:
    entity = row(0)

    with flights.kite.writer() as writer:
        for n in range(3):
            entity["n"] = n
            writer.write(entity)

    assert numbers(flights) == [0, 1, 2]


def test_closed_writer_takes_nothing_more(flights: Dataset) -> None:
    with flights.kite.writer() as writer:
        pass

    with pytest.raises(InvalidInputError, match="closed"):
        writer.write(row(1))


def test_aborted_writer_commits_nothing(flights: Dataset, store: Store) -> None:
    before = objects(store)

    with flights.kite.writer() as writer:
        writer.write(row(1))
        writer.abort()

    assert objects(store) == before


# Reading


def test_reader_gives_dicts_or_instances(flights: Dataset) -> None:
    flights.append([row(1)])

    assert list(flights.kite.reader()) == [row(1)]
    assert list(flights.kite.reader(Flight)) == [Flight(**row(1))]


@dataclasses.dataclass
class OnlyN:
    n: int


@dataclasses.dataclass
class WithMore:
    n: int
    more: int = 0


def test_reader_of_a_narrower_class_reads_its_fields(flights: Dataset) -> None:
    flights.append([row(1), row(2, day=2)])

    with flights.where("dt = '2013-01-02'").kite.reader(OnlyN) as reader:
        assert next(reader) == OnlyN(2)
        with pytest.raises(StopIteration):
            next(reader)


def test_reader_of_a_class_with_other_fields_is_refused(flights: Dataset) -> None:
    with pytest.raises(SchemaMismatchError, match="Unknown column 'more'"):
        flights.kite.reader(WithMore)
    with pytest.raises(InvalidInputError, match="is not a class that declares fields"):
        flights.kite.reader(int)
    with pytest.raises(InvalidInputError, match="is not a class that declares fields"):
        flights.kite.reader(OnlyN(1))


def test_reader_can_be_closed_early_and_twice(flights: Dataset) -> None:
    flights.append([row(1), row(2)])
    reader = flights.kite.reader()
    next(reader)

    reader.close()
    reader.close()

    assert not reader.is_open
    with pytest.raises(InvalidInputError, match="closed"):
        next(reader)


def test_reader_is_open_until_its_end(flights: Dataset) -> None:
    flights.append([row(1)])

    with flights.kite.reader() as reader:
        assert reader.is_open
        assert list(reader) == [row(1)]
        assert not reader.is_open
    assert list(reader) == []  # it was read to the end, and there is nothing more


def test_flushed_entities_lie_on_storage_and_become_visible_at_the_close(
    flights: Dataset, store: Store
) -> None:
    def files() -> list[str]:
        return [info.key for info in store.list("flights/data/") if "part-" in info.key]

    with flights.kite.writer() as writer:
        writer.write(row(1))
        assert (writer.is_open, files()) == (True, [])
        writer.flush()
        assert (len(files()), flights.count()) == (1, 0)
        writer.flush()  # with nothing new
        writer.write(row(2))
        writer.flush()
        assert (len(files()), flights.count()) == (2, 0)
    assert not writer.is_open
    assert flights.count() == 2
    with pytest.raises(InvalidInputError, match="closed"):
        writer.flush()


def test_flushed_entities_are_gone_after_an_error(flights: Dataset, store: Store) -> None:
    def write() -> None:
        with flights.kite.writer() as writer:
            writer.write(row(1))
            writer.flush()
            raise KeyError

    with pytest.raises(KeyError):
        write()

    assert flights.count() == 0
    assert [info.key for info in store.list("flights/data/") if "part-" in info.key] == []


def test_flush_that_fails_aborts_the_writer_and_leaves_nothing(
    flights: Dataset, store: Store
) -> None:
    failing = FailingStore(store, fail_on="put", matching="part-")
    writer = Repository(failing).open("flights").kite.writer()
    writer.write(row(1))

    with pytest.raises(StorageError):
        writer.flush()

    assert not writer.is_open
    assert flights.count() == 0
    assert [info.key for info in store.list("flights/data/") if "part-" in info.key] == []


@dataclasses.dataclass
class Stop:
    airport: str
    minutes: int | None = None


@dataclasses.dataclass
class Trip:
    name: str
    stops: list[Stop]
    best: Stop | None
    fares: dict[str, float]
    by_day: dict[str, Stop]


def test_nested_instances_survive(store: Store) -> None:
    trips = Repository(store).create("trips", DatasetDescriptor(schema=Trip))
    given = [
        Trip("a", [Stop("JFK", 5), Stop("LGA")], None, {"y": 1.5}, {"mon": Stop("EWR")}),
        Trip("b", [], Stop("JFK", 1), {}, {}),
    ]

    trips.append(given)

    assert list(trips.kite.reader(Trip)) == given


def test_batches_are_a_stream(flights: Dataset) -> None:
    flights.append([row(1)])
    flights.append([row(2)])

    assert [batch.num_rows for batch in flights.record_batches()] == [1, 1]


# Looking back


def test_dataset_is_read_as_it_was(flights: Dataset) -> None:
    commits = [flights.append([row(n)]) for n in range(3)]
    second = commits[1]

    assert numbers(flights.at(version=0)) == []
    assert numbers(flights.at(version=2)) == [0, 1]
    assert numbers(flights.at(batch_id=second.batch_id)) == [0, 1]
    assert numbers(flights.at(time=second.committed_at)) == [0, 1]
    assert numbers(flights.at(time=commits[2].committed_at + dt.timedelta(days=1))) == [0, 1, 2]


def test_time_without_zone_is_utc(flights: Dataset) -> None:
    commit = flights.append([row(1)])

    past = flights.at(time=commit.committed_at.replace(tzinfo=None))

    assert past.version == 1


def test_time_of_a_state_is_read_as_times_are_elsewhere(flights: Dataset) -> None:
    first, second = (flights.append([row(n)]) for n in range(2))
    tomorrow = dt.datetime.now(UTC) + dt.timedelta(days=1)

    assert flights.at(time=first.committed_at.isoformat()).version == first.version
    for text in (f"{tomorrow:%Y%m%d}", f"{tomorrow:%Y%m%d%H%M%S}", "now", tomorrow.timestamp()):
        assert flights.at(time=text).version == second.version
    with pytest.raises(InvalidInputError, match="'20261301' is not a time"):
        flights.at(time="20261301")
    with pytest.raises(InvalidInputError, match="123 is not a clear time"):
        flights.rollback(time=123)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"version": 2}, "no version 2"),
        ({"version": -1}, "no version -1"),
        ({"batch_id": 5}, "with batch 5"),
        ({"time": dt.datetime(2000, 1, 1, tzinfo=UTC)}, "at 2000-01-01T00:00:00"),
    ],
)
def test_state_that_never_was_is_not_found(flights: Dataset, arguments: dict, message: str) -> None:
    flights.append([row(1)])

    with pytest.raises(VersionNotFoundError, match=message) as caught:
        flights.at(**arguments)

    assert caught.value.hint


@pytest.mark.parametrize("arguments", [{}, {"version": 1, "batch_id": 1}])
def test_state_is_named_in_one_way(flights: Dataset, arguments: dict) -> None:
    with pytest.raises(InvalidInputError, match="Give one"):
        flights.at(**arguments)


def test_past_state_stays_what_it_is(flights: Dataset) -> None:
    flights.append([row(1)])
    past = flights.at(version=1)
    view = past.where("n >= 0")

    flights.append([row(2)])

    assert (numbers(past), numbers(view), past.version) == ([1], [1], 1)
    assert [commit.version for commit in past.history()] == [0, 1]
    assert [len(past.files()), len(flights.files())] == [1, 2]
    assert numbers(past.at(version=0)) == []
    with pytest.raises(VersionNotFoundError):
        past.at(version=2)


@pytest.mark.parametrize(
    "change",
    [
        lambda past: past.append([row(2)]),
        lambda past: past.overwrite([row(2)]),
        lambda past: past.overwrite([], past),
        lambda past: past.kite.writer(),
    ],
)
def test_past_state_cannot_be_written(flights: Dataset, store: Store, change) -> None:
    flights.append([row(1)])
    before = objects(store)

    with pytest.raises(ReadOnlyError, match="older state"):
        change(flights.at(version=1))

    assert objects(store) == before


def test_view_shows_commits_as_they_come(flights: Dataset) -> None:
    view = flights.where("carrier = 'UA'")

    flights.append([row(1)])

    assert numbers(view) == [1]


def test_history_begins_with_the_creation(flights: Dataset) -> None:
    flights.append([row(1)], run="a")
    flights.overwrite([row(2)])

    history = flights.history()

    assert [(one.version, one.operation, one.run) for one in history] == [
        (0, "create", None),
        (1, "append", "a"),
        (2, "overwrite", None),
    ]
    assert history[2].files_removed == history[1].files_added
    assert [one.committed_at for one in history] == sorted(one.committed_at for one in history)


def test_partitions_are_typed_and_counted(flights: Dataset, store: Store) -> None:
    flights.append([row(1), row(2), row(3, day=2, carrier=None)])
    flights.append([row(4)])

    partitions = flights.inspect.partitions()

    assert [(one.path, one.values, one.file_count, one.row_count) for one in partitions] == [
        ("dt=2013-01-01/carrier=UA", {"dt": dt.date(2013, 1, 1), "carrier": "UA"}, 2, 3),
        (
            "dt=2013-01-02/carrier=__HIVE_DEFAULT_PARTITION__",
            {"dt": dt.date(2013, 1, 2), "carrier": None},
            1,
            1,
        ),
    ]
    sizes = objects(store)
    assert sum(one.size_bytes or 0 for one in partitions) == sum(
        sizes[file.key] for file in flights.files()
    )


def test_files_say_where_they_belong(flights: Dataset, store: Store) -> None:
    commit = flights.append([row(1), row(2, day=2)])

    files = flights.files()

    assert tuple(file.key for file in files) == commit.files_added
    assert {file.batch_id for file in files} == {commit.batch_id}
    assert [file.partition for file in files] == list(commit.partitions)
    assert [(file.row_count, file.size_bytes) for file in files] == [
        (1, objects(store)[file.key]) for file in files
    ]


def test_value_that_looks_like_a_path_stays_in_its_partition(flights: Dataset) -> None:
    carriers = ["..", "../../x", "a/b", "%2F", "__HIVE_DEFAULT_PARTITION__", "", "batch_id=5", None]

    flights.append([row(n, carrier=carrier) for n, carrier in enumerate(carriers)])

    assert {one.values["carrier"] for one in flights.inspect.partitions()} == set(carriers)
    for number, carrier in enumerate(carriers):
        dnf = [[("carrier", "==", carrier)]]
        assert numbers(flights.where(dnf)) == [number]
    flights.overwrite([row(9, carrier="..")])
    assert 9 in numbers(flights)


# Narrowing, by Kite's rules


@pytest.fixture
def numbered(flights: Dataset) -> Dataset:
    flights.append([row(n, day=n, carrier=["UA", "AA", None][n % 3]) for n in range(1, 10)])
    return flights


@pytest.mark.parametrize(
    ("narrow", "expected"),
    [
        (lambda d: d.kite.with_("n", 5), [5]),
        (lambda d: d.kite.with_("n", 5, 6, 99), [5, 6]),
        (lambda d: d.kite.with_("carrier"), [1, 3, 4, 6, 7, 9]),
        (lambda d: d.kite.from_("n", 8), [8, 9]),
        (lambda d: d.kite.from_after("n", 8), [9]),
        (lambda d: d.kite.to("n", 2), [1, 2]),
        (lambda d: d.kite.to_before("n", 2), [1]),
        (lambda d: d.kite.from_("n", 3).kite.to_before("n", 5), [3, 4]),
        (lambda d: d.kite.from_("n", 3).kite.from_after("n", 3).kite.to("n", 4), [4]),
        (lambda d: d.kite.from_after("n", 3).kite.from_after("n", 3).kite.to("n", 4), [4]),
        (lambda d: d.kite.from_("ts", dt.date(2013, 1, 8)), [8, 9]),
        (lambda d: d.kite.with_("dt", dt.date(2013, 1, 8)), [8]),
        (lambda d: d.kite.with_("n", 5, 6, 7).kite.with_("n", 6), [6]),
        (lambda d: d.kite.with_("n", 5, 6, 7).kite.to("n", 6), [5, 6]),
        (lambda d: d.kite.with_("n", 5).kite.with_("n"), [5]),
        (lambda d: d.where("n > 7").where([[("carrier", "==", "UA")]]), [9]),
    ],
)
def test_refinement_narrows_the_view(numbered: Dataset, narrow, expected: list[int]) -> None:
    assert numbers(narrow(numbered)) == expected


@pytest.mark.parametrize(
    "widen",
    [
        lambda d: d.kite.from_("n", 5).kite.from_("n", 4),
        lambda d: d.kite.to("n", 5).kite.from_("n", 6),
        lambda d: d.kite.from_after("n", 5).kite.from_("n", 5),
        lambda d: d.kite.to_before("n", 5).kite.to("n", 5),
        lambda d: d.kite.to_before("n", 5).kite.with_("n", 5),
        lambda d: d.kite.with_("n", 5, 6).kite.with_("n", 5, 7),
        lambda d: d.kite.with_("n", 5, 6).kite.to("n", 7),
    ],
)
def test_refinement_that_would_leave_the_view_is_refused(numbered: Dataset, widen) -> None:
    with pytest.raises(PredicateError, match="outside the view"):
        widen(numbered)


@pytest.mark.parametrize(
    ("narrow", "message"),
    [
        (lambda d: d.kite.with_("nn", 5), "Unknown column 'nn'"),
        (lambda d: d.kite.with_("nn"), "Unknown column 'nn'"),
        (lambda d: d.kite.from_("n", "5"), "does not fit"),
        (lambda d: d.kite.from_("n", 5.0), "does not fit"),
        (lambda d: d.kite.to("n", None), "does not fit"),
        (lambda d: d.kite.with_("n", None), "does not fit"),
        (lambda d: d.where(5), "is not a condition"),
        (lambda d: d.where(None), "is not a condition"),
    ],
)
def test_refinement_that_does_not_fit_is_refused(numbered: Dataset, narrow, message: str) -> None:
    with pytest.raises(PredicateError, match=message):
        narrow(numbered)


def test_view_is_not_changed_by_what_is_made_of_it(numbered: Dataset) -> None:
    view = numbered.kite.from_("n", 5)

    view.kite.to("n", 6)

    assert numbers(view) == [5, 6, 7, 8, 9]


def test_predicate_of_one_view_makes_another(numbered: Dataset) -> None:
    view = numbered.where("carrier = 'UA' AND n > 4")

    again = numbered.where(str(view.constraint))

    assert again.constraint == view.constraint
    assert numbers(numbered.where(view.constraint)) == numbers(view)


# What it shows of itself


def test_names_of_things(flights: Dataset, store: Store) -> None:
    flights.append([row(1)])

    assert (flights.name, flights.version) == ("flights", 1)
    assert flights.uri == f"{store.uri}/flights"
    assert flights.schema.names == ("ts", "carrier", "n")
    assert repr(flights) == f"<Dataset 'flights' in {store.uri}>"
    assert repr(flights.at(version=0)) == f"<Dataset 'flights' in {store.uri} at version 0>"
    assert repr(flights.where("n = 1")) == "<View of 'flights': n = 1>"


def test_notebook_shows_facts_without_asking_the_store(store: Store) -> None:
    counting = CountingStore(store)
    schema = pa.schema([(f"column_{n}", pa.int64()) for n in range(25)] + [("k", pa.string())])
    dataset = Repository(counting).create(
        "wide", DatasetDescriptor(schema=schema, partition_by="k")
    )
    commit = dataset.append([{"k": f"<b>{n}</b>"} for n in range(22)])
    counting.reset()

    of_dataset, of_commit = dataset._repr_html_(), commit._repr_html_()

    assert counting.reset().total == 0
    assert "column_19: long … and 6 more" in of_dataset
    assert "identity(k) as k" in of_dataset
    assert "<td>22</td>" in of_commit
    assert "… and 2 more" in of_commit
    assert "<b>" not in of_dataset + of_commit


def test_notebook_escapes_what_others_named() -> None:
    repository = Repository(MemoryStore("<script>"))

    shown = repository._repr_html_()

    assert "<script>" not in shown
    assert "memory://&lt;script&gt;" in shown


def test_commit_pickles(flights: Dataset) -> None:
    commit = flights.append([row(1)])

    assert pickle.loads(pickle.dumps(commit)) == commit


@pytest.mark.parametrize("name", ["a/b", "../x", "x\n", "x.y", ""])
def test_illegal_name_writes_nothing(store: Store, name: str) -> None:
    with pytest.raises(InvalidNameError) as caught:
        Repository(store).create(name, DatasetDescriptor(schema=SCHEMA))

    assert repr(name) in str(caught.value)
    assert objects(store) == {}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (1, "version=1"),
        (1449784608123, "batch_id=1449784608123"),
        ("2026-11-23", "time='2026-11-23'"),
        (dt.date(2026, 11, 23), r"time=datetime.date\(2026, 11, 23\)"),
    ],
)
@pytest.mark.parametrize("verb", ["at", "rollback", "protections.add", "protections.remove"])
def test_a_version_without_its_name_is_an_error_that_names_it(
    flights: Dataset, verb: str, value: object, named: str
) -> None:
    name = verb.rpartition(".")[2]
    with pytest.raises(InvalidInputError, match=rf"is ambiguous: .* Write {name}\({named}"):
        operator.attrgetter(verb)(flights)(value)

    assert flights.version == 0


def test_a_time_is_taken_as_text_as_the_command_line_does(flights: Dataset) -> None:
    flights.append([row(1)])

    assert flights.at(time="now").version == 1
    assert flights.at(time=dt.datetime.now(UTC).isoformat()).version == 1
    with pytest.raises(VersionNotFoundError, match="has no version at 2013-01-01"):
        flights.at(time="2013-01-01")

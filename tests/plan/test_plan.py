"""Plans: which files are read, and the account of it."""

import dataclasses
import datetime as dt
import logging
import pickle
import uuid
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from copies import copy_of
from inside import store_of

import lakebed
from lakebed.dataset import Dataset
from lakebed.errors import PredicateError
from lakebed.model.evaluate import matches_each
from lakebed.model.keys import decode_path
from lakebed.model.predicate import Predicate
from lakebed.model.schema import Type
from lakebed.model.values import Scalar
from lakebed.plan import paths
from lakebed.plan.plan import Scan
from lakebed.plan.search import facts_take_less
from lakebed.repository import Repository
from lakebed.store.base import Store, StoredObject
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.memory import MemoryStore
from lakebed.store.segments import Segment
from lakebed.testing import CountingStore
from lakebed.testing.stores import DelegatingStore

SCHEMA = pa.schema(
    [("ts", pa.timestamp("us", tz="UTC")), ("carrier", pa.string()), ("n", pa.int64())]
)


@pytest.fixture(scope="session")
def store_of_flights() -> MemoryStore:
    """A lake that is made once, to be copied."""
    store = MemoryStore(uuid.uuid4().hex)
    dataset = Repository(store).create(
        "flights",
        lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="date(ts) as dt, carrier"),
    )
    rows = [
        {"ts": dt.datetime(2013, 1, day, hour, tzinfo=dt.UTC), "carrier": carrier, "n": day * hour}
        for day in range(1, 5)
        for hour in (1, 13)
        for carrier in ("UA", None)
    ]
    dataset.append(rows)
    dataset.append(rows)
    return store


@pytest.fixture
def flights(store_of_flights: MemoryStore) -> Dataset:
    """Two batches, each with a file for each of four days and two carriers."""
    return Repository(CountingStore(copy_of(store_of_flights))).open("flights")


@pytest.mark.parametrize(
    ("text", "kept", "filtered"),
    [
        ("TRUE", 16, 0),
        ("FALSE", 0, 0),
        ("carrier = 'UA'", 8, 0),
        ("carrier IS NULL", 8, 0),
        ("ts >= '2013-01-03'", 8, 0),
        ("ts >= '2013-01-03 12:00:00'", 8, 4),
        ("ts < '2013-01-03' AND carrier = 'UA'", 4, 0),
        ("ts < '2013-01-03' OR carrier = 'UA'", 12, 0),
        ("ts < '2013-01-03' OR n = 4", 16, 8),
        ("dt = '2013-01-03'", 4, 0),
        ("n > 5", 16, 16),
        ("n > 5 AND dt = '2013-01-03'", 4, 4),
        ("carrier = 'AA'", 0, 0),
    ],
)
def test_plan_keeps_the_files_that_may_match(
    flights: Dataset, text: str, kept: int, filtered: int
) -> None:
    plan = flights.where(text).plan()

    assert len(plan) == len(plan.files) == kept
    assert sum(file.is_filtered for file in plan.files) == filtered
    assert (plan.residual is None) is (filtered == 0)


def test_plan_by_batch_keeps_the_files_of_the_batch(flights: Dataset) -> None:
    last = flights.history()[-1]

    plan = flights.where(f"batch_id = {last.batch_id}").plan()

    assert {file.key for file in plan.files} == set(last.files_added)
    assert plan.residual is None


@pytest.mark.parametrize(
    "text", ["TRUE", "FALSE", "carrier = 'UA'", "n > 5", "ts < '2013-01-02 01:00'"]
)
def test_account_covers_every_file(flights: Dataset, text: str) -> None:
    told = flights.where(text).plan().explain()

    dropped = told.dropped_by_partition + told.dropped_by_statistics + told.dropped_by_index
    assert told.kept + dropped + told.dropped_by_schema == told.file_count == len(flights.files())
    assert told.partitions_kept <= told.partition_count == 16
    assert told.filtered_files <= told.kept
    assert (told.residual == "") is (told.filtered_files == 0)


def test_account_reads_well(flights: Dataset) -> None:
    text = str(flights.where("ts >= '2013-01-03 12:00:00' AND carrier = 'UA'").plan().explain())

    assert text.splitlines() == [
        "plan of 'flights' version 2: ts >= '2013-01-03 12:00:00+00:00' AND carrier = 'UA'",
        "  files       4 of 16 kept, 12 dropped by partition",
        "  directories 4 of 16 kept",
        "  statistics  2 segments",
        "  filter      ts >= '2013-01-03 12:00:00+00:00'  (in 2 of 4 files, by row group and row)",
        "  requests    3",
    ]


def test_condition_that_every_chosen_partition_meets_is_not_asked_of_rows(
    flights: Dataset,
) -> None:
    plan = flights.where("carrier = 'UA' AND n > 5 AND ts >= '2013-01-03'").plan()

    assert str(plan.residual) == "n > 5"


def test_account_of_everything_says_so(flights: Dataset) -> None:
    text = str(flights.plan().explain())

    assert text.startswith("plan of 'flights' version 2: everything")
    assert "filter      nothing" in text


def test_plan_takes_the_requests_that_it_says_and_lists_nothing(flights: Dataset) -> None:
    store = store_of(flights)
    store.reset()

    plan = flights.where("carrier = 'UA'").plan()

    counts = store.reset()
    assert plan.requests == counts.total == counts.get == 1


def test_partition_values_are_typed(flights: Dataset) -> None:
    first = flights.where("carrier = 'UA'").plan().files[0]

    assert first.partition == {
        "dt": dt.date(2013, 1, 1),
        "carrier": "UA",
        "batch_id": flights.history()[1].batch_id,
    }


def test_plan_of_a_dataset_without_partitions_keeps_every_file() -> None:
    repository = Repository(MemoryStore(uuid.uuid4().hex))
    dataset = repository.create("plain", lakebed.DatasetDescriptor(schema=SCHEMA))
    dataset.append([{"ts": None, "carrier": "UA", "n": 1}])

    plan = dataset.where("carrier = 'AA'").plan()

    assert len(plan) == 1
    assert plan.files[0].is_filtered


def test_unknown_column_of_a_predicate_names_the_nearest(flights: Dataset) -> None:
    with pytest.raises(PredicateError, match="Did you mean 'carrier'"):
        flights.where("carier = 'UA'")


# File facts and indices


IDS = pa.schema([("day", pa.int64()), ("id", pa.int64()), ("n", pa.int64()), ("x", pa.float64())])


def scattered(index: list[str] | None = None, *, commits: int = 5) -> Dataset:
    """In each file one day and ever larger n, and ids from all over."""
    repository = Repository(CountingStore(MemoryStore(uuid.uuid4().hex)))
    dataset = repository.create("d", lakebed.DatasetDescriptor(schema=IDS, index=index or []))
    for day in range(commits):
        dataset.append(
            [{"day": day, "id": 7 * n + day, "n": 10 * day + n, "x": float(n)} for n in range(10)]
        )
    PROCESS_CACHE.clear()
    store_of(dataset).reset()
    return dataset


def read_keys(dataset: Dataset, call: Callable[[], object]) -> list[str]:
    """Return the data files that a call looks at."""
    store, asked = store_of(dataset), []
    inner = store.inner
    store.inner = WatchingStore(inner, asked)
    call()
    store.inner = inner
    return [key for key in asked if "/data/" in key]


class WatchingStore(DelegatingStore):
    """Notes which objects are read."""

    def __init__(self, inner: Store, asked: list[str]) -> None:
        super().__init__(inner)
        self._asked = asked

    def _get(self, key: str) -> StoredObject:
        self._asked.append(key)
        return super()._get(key)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        self._asked.append(key)
        return super()._get_range(key, start, length)


@pytest.mark.parametrize(
    ("text", "kept", "filtered"),
    [
        ("n = 25", 1, 1),
        ("n >= 20", 3, 0),
        ("n >= 25", 3, 1),
        ("n IN (3, 44)", 2, 2),
        ("n IS NULL", 0, 0),
        ("n IS NOT NULL", 5, 0),
        ("day = 2", 1, 0),
        ("day != 2", 4, 0),
        ("n < 10 OR day = 4", 2, 0),
        ("n < 10 OR id = 30", 5, 4),
        ("x > 3", 5, 5),
        ("x >= 0", 5, 0),
        ("n = 1000", 0, 0),
    ],
)
def test_facts_drop_files_and_spare_filters(text: str, kept: int, filtered: int) -> None:
    plan = scattered().where(text).plan()

    assert (len(plan), sum(file.is_filtered for file in plan.files)) == (kept, filtered)
    assert plan.explain().dropped_by_statistics == 5 - kept


def test_index_finds_the_file_that_holds_a_value() -> None:
    view = scattered(["id"]).where("id = 30")

    told = view.plan().explain()

    assert (told.kept, told.dropped_by_index, told.indices) == (1, 4, {"id": 5})
    assert told.statistics_segments == 0  # one file is left, which takes less to open
    assert view.arrow().num_rows == 1


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("id = 30 AND n < 50", 1),
        ("id = 30 OR id = 31", 2),
        ("id IN (30, 31, 1000)", 2),
        ("id = 30 OR n = 3", 2),  # what is neither in the index nor within the bounds is dropped
        ("id = 30 AND n > 100", 1),  # the index leaves one file, which takes less to open
        ("id = 30 AND id = 31", 0),
        ("(id = 30 AND day = 2) OR (id = 31 AND day = 1)", 1),
        ("id = 1000", 0),
        ("id IS NULL", 0),
    ],
)
def test_indices_and_facts_work_together(text: str, kept: int) -> None:
    dataset = scattered(["id"])

    assert len(dataset.where(text).plan()) == kept
    assert dataset.where(text).arrow().num_rows == sum(
        dataset.arrow().filter(pc.field("n") == n).num_rows
        for n in dataset.where(text).arrow()["n"].to_pylist()
    )


def test_file_that_no_segment_covers_is_kept() -> None:
    dataset = scattered(commits=2)
    dataset.evolve(dataclasses.replace(dataset.descriptor, index=("id",)), base=dataset.version)
    dataset.append([{"day": 9, "id": 500, "n": 5, "x": 1.0}])

    told = dataset.where("id = 8").plan().explain()

    assert (told.kept, told.dropped_by_index + told.dropped_by_statistics) == (2, 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id != 30", "index on id: no condition by which it could drop a file"),
        ("id = 30 OR x > 3", "index on id: no condition by which it could drop a file"),
        ("id > 30 AND n = 25", "index on id: opening the remaining file is less work"),
    ],
)
def test_index_that_cannot_help_is_not_asked(text: str, reason: str) -> None:
    told = scattered(["id"]).where(text).plan().explain()

    assert told.indices == {}
    assert told.ignored == (reason,)
    assert f"ignored     {reason}" in str(told)


def test_facts_are_not_read_where_partitions_leave_one_file(flights: Dataset) -> None:
    last = flights.history()[-1].batch_id
    PROCESS_CACHE.clear()
    store_of(flights).reset()

    plan = flights.where(
        f"carrier = 'UA' AND dt = '2013-01-03' AND batch_id = {last} AND n > 0"
    ).plan()

    assert plan.requests == store_of(flights).counts.total == 1
    assert plan.explain().statistics_segments == 0


def test_account_names_indices_and_segments() -> None:
    text = str(scattered(["id"]).where("id >= 30 AND x < 5").plan().explain())

    assert text.splitlines() == [
        "plan of 'd' version 5: id >= 30 AND x < 5.0",
        "  files       5 of 5 kept, 0 dropped by partition",
        "  directories 5 of 5 kept",
        "  statistics  5 segments",
        "  indices     id (5 segments)",
        "  filter      id >= 30 AND x < 5.0  (in 5 of 5 files, by row group and row)",
        "  requests    11",
    ]


def test_plan_counts_its_requests_and_asks_nothing_twice() -> None:
    dataset = scattered(["id"])
    view = dataset.where("n > 20 AND id >= 0")

    first, counted = view.plan(), store_of(dataset).reset()
    second = view.plan()

    assert first.requests == counted.total == counted.get
    assert second.requests == store_of(dataset).counts.total <= 2
    assert first.files == second.files


@pytest.mark.parametrize("folder", ["files", "postings"])
def test_plan_goes_on_without_a_segment_that_is_gone(
    folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = scattered(["id"])
    keys = sorted(info.key for info in store_of(dataset).list(f"d/{folder}/"))
    store_of(dataset).delete([keys[0]])

    with caplog.at_level(logging.WARNING):
        told = dataset.where("n = 25" if folder == "files" else "id = 30").plan().explain()

    assert any(keys[0] in reason for reason in told.ignored)
    assert keys[0] in caplog.text
    assert told.kept <= 2  # the file with the value, and the one of which nothing is known
    assert dataset.where("id = 30 AND n = 24").count() == 1


def test_whole_files_are_counted_without_opening_one() -> None:
    dataset = scattered()

    assert read_keys(dataset, lambda: dataset.count()) == []
    assert read_keys(dataset, lambda: dataset.where("n >= 20").count()) == []
    assert (dataset.count(), dataset.where("n >= 20").count()) == (50, 30)


def test_only_files_that_may_hold_others_are_opened_to_count() -> None:
    dataset = scattered()

    assert len(set(read_keys(dataset, lambda: dataset.where("n >= 25").count()))) == 1
    assert dataset.where("n >= 25").count() == 25


def test_files_of_an_older_schema_are_judged_by_what_they_hold() -> None:
    dataset = scattered(commits=3)
    added = lakebed.DatasetDescriptor(
        schema=pa.schema([*(field for field in IDS if field.name != "n"), ("m", pa.int64())])
    )
    dataset.evolve(added, base=dataset.version)
    dataset.append([{"day": 9, "id": 1, "m": 5, "x": 1.0}])
    dataset.evolve(
        lakebed.DatasetDescriptor(schema=IDS.append(pa.field("m", pa.int64()))),
        base=dataset.version,
    )
    dataset.append([{"day": 10, "id": 2, "n": 5, "m": 6, "x": 1.0}])

    # The first files hold numbers under this name, of a field that was dropped.
    assert dataset.where("n = 5").arrow()["day"].to_pylist() == [10]
    assert dataset.where("n IS NULL").count() == 31
    assert dataset.where("m >= 5").count() == 2


def test_facts_of_a_million_files_would_be_too_many_for_a_few() -> None:
    huge = (Segment("d/files/0001000000-x.parquet", 1_000_000),)

    assert not facts_take_less(huge, 10)
    assert facts_take_less(huge, 100)
    assert not facts_take_less((), 100)


def test_bounds_of_one_column_are_one_question_of_its_index() -> None:
    dataset = scattered(["id"])

    told = dataset.where("id > 30 AND id < 32 AND x >= 0").plan().explain()

    assert (told.kept, told.dropped_by_index) == (1, 4)  # each bound alone is met in every file


def test_a_bound_that_also_stands_in_another_condition_drops_no_match_of_that() -> None:
    dataset = scattered(["id"])
    for text in (
        "(id > 30 OR n = 3) AND id < 32",
        "id > 30 AND id < 32 AND (id > 30 OR n = 3)",
        "(id > 30 AND id < 32) OR id < 2",
    ):
        rows = dataset.where(text).arrow().num_rows

        assert rows == dataset.arrow().to_pandas().query(_as_pandas(text)).shape[0]


def _as_pandas(text: str) -> str:
    return text.replace("AND", "and").replace("OR", "or").replace(" = ", " == ")


def test_values_that_or_joins_are_looked_up_at_once() -> None:
    dataset = scattered(["id"])
    values = [30, 31, 1000, 2000, 3000]
    listed = dataset.where([[("id", "in", values)]]).plan()
    PROCESS_CACHE.clear()

    apart = dataset.where([[("id", "==", value)] for value in values]).plan()

    assert apart.files == listed.files
    assert apart.requests == listed.requests
    assert str(apart.residual) == "id IN (30, 31, 1000, 2000, 3000)"


@pytest.mark.thorough
def test_a_range_that_takes_longer_to_look_up_than_its_files_to_open_is_not() -> None:
    dataset = scattered(["id"], commits=2)
    count = 200_000
    for number in range(2):
        ids = pa.array(range(number, 2 * count, 2))
        columns = {"day": ids, "id": ids, "n": ids, "x": pa.array([0.5] * count)}
        dataset.append(pa.table(columns, schema=IDS))

    told = dataset.where("id >= 5").plan().explain()
    narrow = dataset.where("id > 300000 AND id < 300002").plan().explain()

    assert "index on id: too many values match in 2 of 4 segments" in told.ignored
    assert told.kept == 4
    assert (narrow.kept, narrow.ignored) == (1, ())


def test_what_tasks_are_told_of_a_plan_does_not_grow_with_the_dataset() -> None:
    few, many = scattered(commits=2).plan(), scattered(commits=20).plan()

    told = [Scan(layout=plan.layout, files=plan.files[:1]) for plan in (few, many)]

    assert (len(few), len(many)) == (2, 20)
    assert len(pickle.dumps(told[0])) == len(pickle.dumps(told[1]))


def test_second_plan_decodes_no_path_again(
    flights: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = []

    def decode(path: str, types: Mapping[str, Type]) -> dict[str, Scalar]:
        decoded.append(path)
        return decode_path(path, types)

    monkeypatch.setattr(paths, "decode_path", decode)
    paths.decoded.cache_clear()
    condition = "ts >= '2013-01-02' AND carrier = 'UA'"

    first = flights.where(condition).plan()
    assert len(decoded) == len(set(decoded)) > 0
    decoded.clear()
    second = flights.where("ts < '2013-01-04' AND carrier IS NOT NULL").plan()

    assert len(first) == len(second) == 6
    assert decoded == []


def test_each_condition_is_compared_once_with_each_value(
    flights: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []

    def record(
        predicate: Predicate, columns: Sequence[str], rows: Sequence[tuple[Scalar, ...]]
    ) -> list[bool]:
        compared.extend((predicate, row) for row in rows)
        return matches_each(predicate, columns, rows)

    monkeypatch.setattr(paths, "matches_each", record)

    kept = len(flights.where("ts >= '2013-01-02' AND ts < '2013-01-04' AND carrier = 'UA'").plan())

    assert kept == 4
    assert compared
    assert len(compared) == len(set(compared))

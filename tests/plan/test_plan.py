"""Plans: which files are read, and the account of it."""

import datetime as dt
import uuid

import pyarrow as pa
import pytest

import lakebed
from lakebed.dataset import Dataset
from lakebed.errors import PredicateError
from lakebed.repository import Repository
from lakebed.store.memory import MemoryStore
from lakebed.testing import CountingStore

SCHEMA = pa.schema(
    [("ts", pa.timestamp("us", tz="UTC")), ("carrier", pa.string()), ("n", pa.int64())]
)


@pytest.fixture
def flights() -> Dataset:
    """Two batches, each with a file for each of four days and two carriers."""
    repository = Repository(CountingStore(MemoryStore(uuid.uuid4().hex)))
    dataset = repository.create(
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
    return dataset


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

    assert told.kept + told.dropped_by_partition == told.file_count == len(flights.files())
    assert told.partitions_kept <= told.partition_count == 16
    assert told.filtered_files <= told.kept
    assert (told.residual == "") is (told.filtered_files == 0)


def test_account_reads_well(flights: Dataset) -> None:
    text = str(flights.where("ts >= '2013-01-03 12:00:00' AND carrier = 'UA'").plan().explain())

    assert text.splitlines() == [
        "plan of 'flights' version 2: ts >= '2013-01-03 12:00:00+00:00' AND carrier = 'UA'",
        "  files       4 of 16 kept, 12 dropped by partition",
        "  directories 4 of 16 kept",
        "  filter      ts >= '2013-01-03 12:00:00+00:00'  (in 2 of 4 files, by row group and row)",
        "  requests    1",
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
    store = flights._source.store
    store.reset()

    plan = flights.where("carrier = 'UA'").plan()

    counts = store.reset()
    assert plan.requests == counts.total == counts.get == 1


def test_partition_values_are_typed(flights: Dataset) -> None:
    first = flights.plan().files[0]

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

"""Epochs of streaming queries: once each, whatever comes again."""

from __future__ import annotations

import collections
import pickle
import random
import time

import pyarrow as pa
import pytest
from inside import store_of

import lakebed
from lakebed import by
from lakebed.errors import CommitConflictError, InvalidInputError, StaleRerunError
from lakebed.state import runs, state
from lakebed.state.reader import read_head
from lakebed.state.transaction import Transaction
from lakebed.work import epochs

DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=pa.schema([("p", pa.string()), ("n", pa.int64())]), partition_by="p"
)


@pytest.fixture
def dataset(tmp_path):
    return lakebed.open_repository(tmp_path).create("numbers", DESCRIPTOR)


def rows(*numbers):
    return [{"p": f"p{n % 2}", "n": n} for n in numbers]


def numbers_of(dataset):
    return sorted(row["n"] for row in dataset.kite.reader())


def state_of(dataset):
    return read_head(store_of(dataset), dataset.name).state


def test_each_epoch_is_a_run_of_its_own(dataset):
    commits = [dataset.sink(rows(n), n, query="q") for n in range(3)]

    assert [commit.operation for commit in commits] == ["append"] * 3
    assert [commit.run for commit in commits] == ["stream:q:0", "stream:q:1", "stream:q:2"]
    assert numbers_of(dataset) == [0, 1, 2]


def test_an_epoch_that_comes_again_with_the_same_rows_makes_no_version(dataset):
    dataset.sink(rows(1, 2, 3, 4), 7, query="q")
    version = dataset.version

    again = dataset.sink(rows(1, 2, 3, 4), 7, query="q")
    in_another_order = dataset.sink(rows(4, 3, 2, 1), 7, query="q")

    assert (again, in_another_order) == (None, None)
    assert dataset.version == version
    assert numbers_of(dataset) == [1, 2, 3, 4]
    # The files of the attempts are gone, and no reservation waits for its lease to end.
    keys = [info.key for info in store_of(dataset).list("numbers/")]
    assert len([key for key in keys if key.endswith(".parquet") and "/data/p=" in key]) == 2
    assert len([key for key in keys if "/batches/" in key]) == 1


def test_an_epoch_that_comes_again_with_other_rows_replaces_what_it_brought(dataset):
    dataset.sink(rows(0), 0, query="q")
    dataset.sink(rows(1, 2), 1, query="q")
    dataset.append(rows(100))  # another writer
    dataset.sink(rows(200), 0, query="another")

    commit = dataset.sink(rows(1, 3), 1, query="q")

    assert commit.operation == "rerun"
    assert numbers_of(dataset) == [0, 1, 3, 100, 200]


def test_an_epoch_that_comes_again_without_rows_takes_back_what_it_brought(dataset):
    dataset.sink(rows(0), 0, query="q")
    dataset.sink(rows(1), 1, query="q")

    dataset.sink([], 1, query="q")

    assert numbers_of(dataset) == [0]
    dataset.sink(rows(2), 2, query="q")
    assert numbers_of(dataset) == [0, 2]


def test_an_epoch_without_rows_makes_no_version(dataset):
    assert dataset.sink([], 0, query="q") is None

    assert dataset.version == 0


def test_an_epoch_before_the_last_one_is_refused_and_nothing_changes(dataset):
    for n in range(3):
        dataset.sink(rows(n), n, query="q")
    version = dataset.version

    with pytest.raises(StaleRerunError, match="its epoch 2 has been committed") as caught:
        dataset.sink(rows(0), 0, query="q")

    assert "another driver" in caught.value.hint
    assert dataset.version == version


def test_the_last_epoch_replaces_itself_after_a_compaction_and_a_delete(dataset):
    for n in range(6):
        dataset.sink(rows(n, n + 10), n, query="q")
    dataset.compact()
    dataset.where("n = 15").delete()

    dataset.sink(rows(5, 16), 5, query="q")

    assert numbers_of(dataset) == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 16]


def test_what_was_deleted_of_an_epoch_stays_so_if_it_comes_again_as_it_was(dataset):
    dataset.sink(rows(1, 2), 0, query="q")
    dataset.where("n = 2").delete()

    assert dataset.sink(rows(1, 2), 0, query="q") is None

    assert numbers_of(dataset) == [1]


def test_an_epoch_that_comes_again_after_a_promotion_makes_no_version(tmp_path):
    descriptor = lakebed.DatasetDescriptor(
        schema=DESCRIPTOR.schema, partition_by=[by.dimension("p", ["p0"])]
    )
    dataset = lakebed.open_repository(tmp_path).create("numbers", descriptor)
    dataset.sink(rows(1, 2, 3), 0, query="q")
    dataset.where("n = 3").delete()
    dataset.dimensions.promote({"p": ["p0", "p1"]})
    version = dataset.version

    assert dataset.sink(rows(1, 2, 3), 0, query="q") is None
    assert dataset.version == version
    assert numbers_of(dataset) == [1, 2]

    dataset.sink(rows(1, 2, 5), 0, query="q")
    assert numbers_of(dataset) == [1, 2, 5]


def test_epochs_before_the_last_one_are_compacted_together(dataset):
    for n in range(10):
        dataset.sink(rows(2 * n), n, query="q")
    dataset.append(rows(100))

    report = dataset.compact()

    # The last epoch stays apart, and what has no run joins those that are settled.
    assert (report.files_before, report.files_after) == (10, 1)
    assert len(dataset.files()) == 2
    assert dataset.check(deep=True).findings == ()


def test_runs_are_not_remembered_of_every_epoch(dataset):
    for n in range(20):
        dataset.sink(rows(n), n, query="q")
        dataset.sink(rows(n), n, query="another")

    state = state_of(dataset)
    store = store_of(dataset)
    held = [runs.decode(store.get(s.key).data, s.key) for s in state.lists.runs]
    assert sum(len(part.batches) for part in held) < 15
    assert set(runs.read(store, state.lists).batches.values()) == {
        "stream:q:19",
        "stream:another:19",
    }


def test_a_query_that_the_head_has_forgotten_is_told_by_the_runs(dataset, monkeypatch):
    monkeypatch.setattr(state, "MOST_QUERIES", 1)
    dataset.sink(rows(1), 5, query="q")
    dataset.sink(rows(2), 0, query="another")
    assert [progress.query for progress in state_of(dataset).streams] == ["another"]

    dataset.sink(rows(3), 5, query="q")

    assert numbers_of(dataset) == [2, 3]
    with pytest.raises(StaleRerunError):
        dataset.sink(rows(4), 4, query="q")


def test_two_drivers_of_one_query_do_not_both_commit_an_epoch(dataset):
    store = store_of(dataset)
    epoch = state.Epoch("q", 0)
    with Transaction.begin(store, "numbers", "append", epoch=epoch) as late:
        late.add(dataset._stage(rows(1), dataset._narrow_target(late)))
        dataset.sink(rows(1), 0, query="q")

        with pytest.raises(CommitConflictError, match="epoch 0 of the same streaming query"):
            epochs.commit_epoch(store, late, epoch)

    assert numbers_of(dataset) == [1]


def test_nobody_else_writes_a_run_of_the_name_of_an_epoch(dataset):
    dataset.sink(rows(1), 0, query="q")

    for write in (dataset.append, dataset.rerun):
        with pytest.raises(InvalidInputError, match="name of an epoch"):
            write(rows(2), run="stream:q:0")

    assert numbers_of(dataset) == [1]


def test_the_number_of_an_epoch_is_a_whole_one(dataset):
    with pytest.raises(InvalidInputError, match="epoch_id is '0'"):
        dataset.sink(rows(1), "0", query="q")


@pytest.mark.parametrize(("query", "number"), [("", 0), ("q", -1), ("q" * 201, 0)])
def test_an_epoch_without_a_name_is_refused(dataset, query, number):
    with pytest.raises(InvalidInputError, match="the name or the number is not valid"):
        dataset.sink(rows(1), number, query=query)

    assert dataset.version == 0


def test_rows_whose_query_nobody_tells_are_refused(dataset):
    with pytest.raises(InvalidInputError, match=r"functools\.partial"):
        dataset.sink(rows(1), 0)


def test_a_dataset_travels_to_where_epochs_are_committed(dataset):
    sink = pickle.loads(pickle.dumps(dataset.sink))

    sink(rows(1), 0, query="q")

    assert numbers_of(dataset) == [1]


def test_small_files_are_compacted_beside_the_query(dataset):
    store = store_of(dataset)
    for n in range(12):
        dataset.sink(rows(n), n, query="q", compact_every=4)
        if n % 4 == 3:
            epochs.wait_for(store, "numbers")

    assert numbers_of(dataset) == list(range(12))
    # What is left: the compacted file of each of two partitions, and the last epoch.
    assert len(dataset.files()) <= 4


def test_a_compaction_that_fails_does_not_fail_the_epoch(dataset, caplog):
    store = store_of(dataset)
    dataset.sink(rows(0, 2), 0, query="q")
    dataset.sink(rows(4), 1, query="q")
    for file in dataset.files():
        path = store.local_path(file.key)
        path.write_bytes(path.read_bytes()[:-20])

    commit = dataset.sink(rows(6), 2, query="q", compact_every=1)
    epochs.wait_for(store, "numbers")

    assert commit.version == 3
    assert "compaction failed dataset=numbers" in caplog.text


def test_epochs_that_fall_into_one_compaction_do_not_wait_for_it(dataset):
    store = store_of(dataset)
    for n in range(8):
        dataset.sink(rows(n), n, query="q", compact_every=1)
    epochs.wait_for(store, "numbers")

    assert numbers_of(dataset) == list(range(8))


@pytest.mark.parametrize("seed", [0, pytest.param(None, marks=pytest.mark.long)])
def test_random_epochs_of_several_queries_equal_a_dictionary(dataset, seed):
    steps, seed = (50, seed) if seed is not None else (1_000, time.time_ns())
    rng = random.Random(seed)
    model: dict[tuple[str, int], list[int]] = {}
    last: dict[str, int] = collections.defaultdict(lambda: -1)
    other: list[int] = []
    fresh = iter(range(10_000))

    for _ in range(steps):
        query = rng.choice(["a", "b"])
        match rng.choice(["next", "next", "next", "same", "other", "append", "compact", "cleanup"]):
            case "next":
                last[query] += rng.choice([1, 1, 2])
                model[query, last[query]] = [next(fresh) for _ in range(rng.randrange(4))]
                dataset.sink(rows(*model[query, last[query]]), last[query], query=query)
            case "same" if last[query] >= 0:
                again = model[query, last[query]][:]
                rng.shuffle(again)
                version = dataset.version
                dataset.sink(rows(*again), last[query], query=query)
                assert dataset.version == version
            case "other" if last[query] >= 0:
                model[query, last[query]] = [next(fresh) for _ in range(rng.randrange(4))]
                dataset.sink(rows(*model[query, last[query]]), last[query], query=query)
            case "append":
                other.append(next(fresh))
                dataset.append(rows(other[-1]))
            case "compact":
                dataset.compact()
            case "cleanup":
                dataset.cleanup(older_than="0s", dry_run=False)

    expected = sorted([*other, *(n for numbers in model.values() for n in numbers)])
    assert numbers_of(dataset) == expected, f"seed {seed}"

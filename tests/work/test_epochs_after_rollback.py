"""A rollback takes epochs back: what it took out is not there, and may come again."""

from __future__ import annotations

import random

import msgspec
import pyarrow as pa
import pytest
from inside import store_of

import lakebed
from lakebed.errors import CommitConflictError, StaleRerunError
from lakebed.state import history, state
from lakebed.state.reader import read_head
from lakebed.state.transaction import Transaction
from lakebed.state.undone import Undone
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


def sink_all(dataset, numbers):
    for n in numbers:
        dataset.sink(rows(n, 100 + n), n, query="q")


def test_the_last_epoch_is_written_again_after_a_rollback_took_it_out(dataset):
    sink_all(dataset, range(2))
    dataset.rollback(version=1)

    again = dataset.sink(rows(1, 101), 1, query="q")
    once_more = dataset.sink(rows(1, 101), 1, query="q")
    sink_all(dataset, [2])

    assert (again.operation, once_more) == ("append", None)
    assert numbers_of(dataset) == [0, 1, 2, 100, 101, 102]


def test_epochs_come_again_from_where_a_rollback_went_back_to(dataset):
    sink_all(dataset, range(6))
    dataset.rollback(version=3)

    for _ in range(2):  # the query is killed, and begins its last epoch again
        sink_all(dataset, [3])
    sink_all(dataset, [4, 5, 6])

    assert numbers_of(dataset) == [*range(7), *range(100, 107)]
    with pytest.raises(StaleRerunError, match="its epoch 6 has been committed"):
        sink_all(dataset, [4])


def test_an_epoch_that_a_rollback_left_is_not_written_again(dataset):
    sink_all(dataset, range(6))
    dataset.rollback(version=3)
    version = dataset.version

    sink_all(dataset, [2])  # now the last one that is there
    with pytest.raises(StaleRerunError, match="its epoch 2 has been committed"):
        sink_all(dataset, [1])

    assert dataset.version == version
    assert numbers_of(dataset) == [0, 1, 2, 100, 101, 102]


def test_an_epoch_that_a_rollback_left_is_replaced_by_other_rows_while_they_can_be_told_apart(
    dataset,
):
    sink_all(dataset, range(4))
    dataset.rollback(version=3)

    dataset.sink(rows(2, 202), 2, query="q")

    assert numbers_of(dataset) == [0, 1, 2, 100, 101, 202]
    assert dataset.sink(rows(2, 202), 2, query="q") is None


def test_an_epoch_whose_rows_a_compaction_joined_with_others_is_not_replaced(dataset):
    sink_all(dataset, range(4))
    dataset.compact()
    sink_all(dataset, [4])
    dataset.rollback(version=dataset.version - 1)
    sink_all(dataset, [3])
    dataset.rollback(version=5)  # epochs 0 to 2 in files of their own, 3 in another
    dataset.sink(rows(4), 4, query="q")
    dataset.sink(rows(5), 5, query="q")
    dataset.compact()
    joined = dataset.version
    sink_all(dataset, [6])
    dataset.rollback(version=joined)
    before = numbers_of(dataset)

    dataset.sink(rows(5), 5, query="q")
    with pytest.raises(StaleRerunError, match="its epoch 5 has been committed"):
        dataset.sink(rows(4, 204), 4, query="q")

    assert numbers_of(dataset) == before


def test_an_epoch_may_come_again_though_a_later_one_is_there(dataset):
    sink_all(dataset, range(3))
    dataset.rollback(version=2)
    sink_all(dataset, [3])

    sink_all(dataset, [2, 2])

    assert numbers_of(dataset) == [0, 1, 2, 3, 100, 101, 102, 103]
    sink_all(dataset, [3, 4])  # known to be there
    assert numbers_of(dataset) == [*range(5), *range(100, 105)]


def test_an_epoch_of_which_a_rollback_took_a_partition_is_replaced_as_a_whole(dataset):
    dataset.sink(rows(0, 1), 0, query="q")
    dataset.sink(rows(2, 3), 1, query="q")
    dataset.rollback(version=1, view=dataset.where("p = 'p1'"))
    assert numbers_of(dataset) == [0, 1, 2]

    commit = dataset.sink(rows(2, 3), 1, query="q")

    assert commit.operation == "rerun"
    assert numbers_of(dataset) == [0, 1, 2, 3]


def test_an_epoch_that_another_rollback_brought_back_is_not_written_again(dataset):
    sink_all(dataset, range(2))
    dataset.rollback(version=1)
    dataset.rollback(version=2)

    assert dataset.sink(rows(1, 101), 1, query="q") is None
    assert numbers_of(dataset) == [0, 1, 100, 101]


def test_a_rollback_over_a_delete_or_a_compaction_leaves_an_epoch_there(dataset):
    sink_all(dataset, range(3))
    dataset.compact()
    dataset.where("n = 102").delete()
    dataset.rollback(version=3)

    assert dataset.sink(rows(2, 102), 2, query="q") is None
    dataset.where("n = 102").delete()
    assert dataset.sink(rows(2, 102), 2, query="q") is None
    assert numbers_of(dataset) == [0, 1, 2, 100, 101]


def test_a_compacted_epoch_whose_files_were_cleaned_up_is_known(dataset):
    sink_all(dataset, range(3))
    dataset.append(rows(7))
    dataset.rollback(version=3)
    dataset.compact()
    dataset.cleanup(older_than="0s", dry_run=False)

    assert dataset.sink(rows(2, 102), 2, query="q") is None
    with pytest.raises(StaleRerunError):
        sink_all(dataset, [1])
    assert numbers_of(dataset) == [0, 1, 2, 100, 101, 102]


def test_a_query_that_the_head_forgot_is_judged_by_what_is_there(dataset, monkeypatch):
    monkeypatch.setattr(state, "MOST_QUERIES", 1)
    sink_all(dataset, range(3))
    dataset.rollback(version=2)
    dataset.sink(rows(50), 0, query="another")

    sink_all(dataset, [2, 2])

    assert numbers_of(dataset) == [0, 1, 2, 50, 100, 101, 102]


def test_an_epoch_of_a_whole_result_is_written_again(dataset):
    store = store_of(dataset)

    def sink(number, *numbers):
        epoch = state.Epoch("q", number)
        with Transaction.begin(store, "numbers", "append", epoch=epoch) as begun:
            begun.add(dataset._stage(rows(*numbers), dataset._narrow_target(begun)))
            return epochs.commit_epoch(store, begun, epoch, replaces_all=True)

    sink(0, 1)
    sink(1, 1, 2)
    dataset.rollback(version=1)

    sink(1, 1, 2)
    assert (numbers_of(dataset), sink(1, 1, 2)) == ([1, 2], None)
    dataset.rollback(version=1)
    sink(2, 1, 2, 3)
    with pytest.raises(StaleRerunError):
        sink(1, 1, 2)
    assert numbers_of(dataset) == [1, 2, 3]


def test_an_epoch_that_a_rollback_brings_back_meanwhile_does_not_come_twice(dataset):
    store = store_of(dataset)
    sink_all(dataset, range(2))
    dataset.rollback(version=1)
    epoch = state.Epoch("q", 1)
    with Transaction.begin(store, "numbers", "append", epoch=epoch) as late:
        late.add(dataset._stage(rows(1, 101), dataset._narrow_target(late)))
        dataset.rollback(version=2)

        with pytest.raises(CommitConflictError, match="conflicts with the rollback"):
            epochs.commit_epoch(store, late, epoch)

    assert numbers_of(dataset) == [0, 1, 100, 101]


def test_a_rollback_of_an_older_release_is_understood(dataset):
    sink_all(dataset, range(3))
    dataset.rollback(version=1, view=dataset.where("p = 'p1'"))
    dataset.rollback(version=2)
    dataset.rollback(version=1)
    state = read_head(store_of(dataset), dataset.name).state
    entries = history.read(store_of(dataset), state.lists.history)
    older = [msgspec.structs.replace(entry, restores=None) for entry in entries]

    for place in range(4, 7):
        now, then = Undone(entries[: place + 1]), Undone(older[: place + 1])
        for entry in entries[1:4]:
            assert now.partitions(entry) == then.partitions(entry)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(20))
def test_epochs_that_come_again_after_any_rollbacks_are_there_once(tmp_path, seed):
    dice = random.Random(seed)
    dataset = lakebed.open_repository(tmp_path).create("numbers", DESCRIPTOR)
    brought = {}
    number = 0

    for _ in range(25):
        match dice.choice(["sink", "sink", "sink", "again", "rollback", "part", "compact"]):
            case "sink":
                brought[number] = [100 * number + n for n in dice.sample(range(4), 2)]
                dataset.sink(rows(*brought[number]), number, query="q")
                number += 1
            case "again" if number:
                dataset.sink(rows(*brought[number - 1]), number - 1, query="q")
            case "rollback":
                dataset.rollback(version=dice.randint(0, dataset.version))
            case "part":
                view = dataset.where(f"p = 'p{dice.randrange(2)}'")
                dataset.rollback(version=dice.randint(0, dataset.version), view=view)
            case "compact":
                dataset.compact()

    for again in range(number):  # the checkpoint is put back to its begin
        try:
            dataset.sink(rows(*brought[again]), again, query="q")
        except StaleRerunError as error:
            if "joined" in error.message:
                return
    assert numbers_of(dataset) == sorted(n for numbers in brought.values() for n in numbers)
    assert dataset.check(deep=True).findings == ()

"""Options of writes and commits are carried by a dataset and by all that is made of it."""

import datetime as dt
import inspect
import pickle
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import CommitOptions, Dataset, DatasetDescriptor, View, WriteOptions, by
from lakebed.batches.dataset_transaction import DatasetTransaction
from lakebed.batches.staged import Staged
from lakebed.errors import InvalidInputError

STARTED = dt.datetime(2020, 1, 2, tzinfo=dt.UTC)
SMALL = WriteOptions(target_bytes=1)
BEGUN = CommitOptions(begun_at=STARTED)


@pytest.fixture
def dataset() -> Dataset:
    descriptor = DatasetDescriptor(
        schema=pa.schema([("p", pa.string()), ("n", pa.int64())]), partition_by=[by.identity("p")]
    )
    return lakebed.open_repository(f"memory://{uuid.uuid4().hex}").create("d", descriptor)


def rows(partition: str = "a") -> list[dict[str, object]]:
    return [{"p": partition, "n": n} for n in range(20)]


def test_options_are_those_of_every_verb_and_of_views_transactions_and_staged_batches(
    dataset: Dataset,
) -> None:
    begun = dataset.with_options(commit=BEGUN)

    begun.append(rows())
    begun.where("p = 'a'").append(rows())
    begun.kite.with_("p", "a").overwrite(rows())
    begun.overwrite(rows(), dataset.kite.with_("p", "a"))
    begun.merge([{"p": "b", "n": 100}], "n")
    begun.where("n = 3").delete()
    begun.rerun(rows("c"), "run", replace_all=True)
    begun.staged.add(rows()).commit()
    with begun.transaction() as transaction:
        transaction.append(rows())
    with begun.kite.writer() as writer:
        writer.write({"p": "a", "n": 1})
    (partition, *_) = begun.kite.covering_partitions()
    partition.append([{"p": "a", "n": 7}])

    assert [one.started_at.year for one in begun.batches()] == [2020] * len(begun.batches())
    dataset.append(rows())
    assert dataset.batches()[-1].started_at.year > 2020


def test_dataset_itself_stays_as_it_is_and_what_is_left_out_too(dataset: Dataset) -> None:
    small = dataset.with_options(write=SMALL)
    both = small.with_options(commit=BEGUN)

    assert type(both) is Dataset
    assert both.kite.is_of(dataset)
    assert len(both.append(rows()).files_added) > 1
    assert both.batches()[-1].started_at == STARTED
    assert len(small.append(rows()).files_added) > 1
    assert small.batches()[-1].started_at.year > 2020
    assert len(dataset.append(rows()).files_added) == 1


def test_snapshots_and_pickled_datasets_carry_them(tmp_path: Path) -> None:
    descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    made = lakebed.open_repository(tmp_path).create("d", descriptor)
    small = made.with_options(write=SMALL, commit=BEGUN)

    travelled = pickle.loads(pickle.dumps(small))
    narrowed = pickle.loads(pickle.dumps(small.where("n >= 0")))

    for view in (travelled, narrowed):
        assert len(view.append([{"n": n} for n in range(20)]).files_added) > 1
    assert {one.started_at.date() for one in made.batches()} == {STARTED.date()}


def test_commit_options_hold_for_upkeep_and_for_staged_batches(dataset: Dataset) -> None:
    staged = dataset.with_options(write=SMALL).staged.add(rows())
    assert len(staged.commit().files_added) > 1
    in_vain = dataset.with_options(commit=CommitOptions(deadline_s=0))
    assert in_vain.compact().commits
    assert in_vain.protections.add(version=1, reason="audit").version


def test_load_takes_them_unless_its_own_options_say_more(dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"p": "a", "n": {n}}}\n' for n in range(20)))
    small = dataset.with_options(write=SMALL, commit=BEGUN)

    assert len(small.load(path).commit.files_added) > 1
    own = lakebed.LoadOptions(write=WriteOptions())
    assert len(small.load(path, options=own).commit.files_added) == 1
    assert {one.started_at.date() for one in dataset.batches()} == {STARTED.date()}


def test_transaction_has_the_options_of_its_dataset_and_takes_no_others(dataset: Dataset) -> None:
    with dataset.with_options(write=SMALL).transaction() as transaction:
        transaction.append(rows())
        with pytest.raises(InvalidInputError, match="cannot be given other options") as caught:
            transaction.with_options(write=SMALL)

    assert "with_options" in caught.value.hint
    assert len(transaction.commit.files_added) > 1


def test_options_of_another_type_are_refused(dataset: Dataset) -> None:
    with pytest.raises(InvalidInputError, match="write is"):
        dataset.with_options(write=BEGUN)
    with pytest.raises(InvalidInputError, match="commit is"):
        dataset.with_options(commit=SMALL)


@pytest.mark.parametrize("of", [View, Dataset, DatasetTransaction, Staged])
def test_no_verb_takes_them_itself(of: type) -> None:
    for name, verb in inspect.getmembers(of, inspect.isfunction):
        if not name.startswith("_"):
            taken = inspect.signature(verb).parameters
            assert "commit_options" not in taken, name
            assert "options" not in taken or name == "load", name

"""Checkpoints of a Delta log: made of the last one and what changed since, and as right as made anew."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inside import store_of
from table_doors import DELTA, assert_shows

import lakebed
from lakebed.model.publishing import CHECKPOINTS, CLASSIC
from lakebed.state.reader import read_own_head
from lakebed.store.posix import PosixStore
from lakebed.tables.delta import checkpoint, to_delta
from lakebed.tables.delta.actions import adds
from lakebed.tables.shown_facts import shown_files

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])


@pytest.fixture
def days(tmp_path, monkeypatch):
    """A dataset whose Delta log has a checkpoint after each commit."""
    monkeypatch.setattr(to_delta, "COMMITS_A_CHECKPOINT", 1)
    lake = lakebed.Repository(PosixStore(tmp_path, durable=False))
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by="p", properties={CHECKPOINTS: CLASSIC}
    )
    return lake.create("days", descriptor)


def rows(first: int, *partitions: str | None) -> list[dict]:
    return [{"p": p, "n": n} for p in partitions for n in range(first, first + 3)]


def by_path(adds: pa.ChunkedArray) -> list[dict]:
    return sorted((add for add in adds.to_pylist() if add), key=lambda add: add["path"])


def made_anew(dataset) -> pa.ChunkedArray:
    """Return the files of a dataset as a checkpoint names them that has none before it."""
    store = store_of(dataset)
    state = read_own_head(store, dataset.name).state
    files = shown_files(store, state, state.labels)
    actions = adds(files, state.layout.naming, state.lineage, is_change=False)
    return checkpoint.adds_column(list(actions))


def test_checkpoint_made_of_the_one_before_says_what_one_made_anew_does(days):
    verbs = {
        "append": lambda: days.append(rows(0, "a", None), run="first"),
        "another append": lambda: days.append(rows(9, "a", "b b")),
        "rerun": lambda: days.rerun(rows(3, "a", "c"), run="first", replace_all=True),
        "merge": lambda: days.merge(rows(5, "a", "d"), ["p", "n"], matched="delete"),
        "delete": lambda: days.delete(days.where("p = 'c'")),
        "compact": lambda: days.compact(gather=True),
        "rollback": lambda: days.rollback(version=2),
        "empty": lambda: days.delete(days.where("n >= 0")),
        "append to nothing": lambda: days.append(rows(0, "a")),
    }
    log = Path(days.uri.removeprefix("file://")) / DELTA.folder
    days.publish("delta")
    for verb, do in verbs.items():
        do()
        number = days.publish("delta").table_version
        newest = log / f"{number:020d}.checkpoint.parquet"
        assert by_path(pq.read_table(newest).column("add")) == by_path(made_anew(days)), verb
        for commit in log.glob("*.json"):
            if commit.name < newest.name[:20]:
                commit.unlink()  # readers begin with the checkpoint now
        assert_shows(DELTA, days)
        assert days.publish("delta", check=True).was_in_step, verb


def test_damaged_checkpoint_is_made_anew_by_the_next_one(days):
    days.publish("delta")
    log = Path(days.uri.removeprefix("file://")) / DELTA.folder
    days.append(rows(0, "a"))
    first = days.publish("delta").table_version
    (log / f"{first:020d}.checkpoint.parquet").write_bytes(b"PAR1")
    days.append(rows(3, "b"))

    second = days.publish("delta").table_version

    named = pq.read_table(log / f"{second:020d}.checkpoint.parquet").column("add")
    assert by_path(named) == by_path(made_anew(days))
    assert_shows(DELTA, days)


def test_checkpoint_of_another_dataset_that_was_copied_here_is_not_gone_on_with(days):
    lake = lakebed.Repository(store_of(days))
    other = lake.create("other", days.descriptor)
    for dataset in (days, other):
        dataset.publish("delta")
        dataset.append(rows(0, "a"))
        number = dataset.publish("delta").table_version
    names = [f"{number:020d}.checkpoint.parquet" for _ in "ab"]
    ours, theirs = (
        Path(one.uri.removeprefix("file://"), DELTA.folder, name)
        for one, name in zip((days, other), names, strict=True)
    )
    ours.write_bytes(theirs.read_bytes())
    days.append(rows(3, "b"))

    last = days.publish("delta").table_version

    named = pq.read_table(ours.with_name(f"{last:020d}.checkpoint.parquet")).column("add")
    assert by_path(named) == by_path(made_anew(days))
    assert_shows(DELTA, days)

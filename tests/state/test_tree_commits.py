"""A dataset whose head is a tree is written as one with a document is."""

from __future__ import annotations

import collections
import datetime as dt
import functools
import itertools
import logging
import random
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import time_machine
from copies import copy_of
from effort import cases, examples
from hypothesis import given
from hypothesis import strategies as st
from inside import state_of, store_of
from tree_copies import SMALL, check_order, shrink
from upkeep_lake import age, sweep

import lakebed
from lakebed import CommitOptions, Dataset, DimensionSchema, by
from lakebed.errors import (
    LakebedError,
    StorageError,
    VersionNotFoundError,
)
from lakebed.model.allowed import read_allowed
from lakebed.model.dimensions import DimensionRule
from lakebed.model.layout import Folder
from lakebed.state.creation import first_state, with_history
from lakebed.state.head import HeadFormat
from lakebed.state.state import HeadKind
from lakebed.state.tree import stored_folds
from lakebed.state.tree.fold import is_due
from lakebed.state.tree.planting import key_of_copy
from lakebed.state.tree.tree_files import TreeFiles, scrub
from lakebed.state.tree.tree_objects import readable_copies
from lakebed.state.tree.tree_root import Root, Sizes
from lakebed.store import Store, open_store, segments
from lakebed.store.cache import PROCESS_CACHE
from lakebed.testing import CountingStore, DelegatingStore, FailingStore

SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.date32()), ("kind", pa.string()), ("v", pa.float64())]
)
WIDER = SCHEMA.append(pa.field("extra", pa.int32()))
DAYS = [dt.date(2013, 1, day) for day in range(1, 7)]
HEAD = HeadFormat.MSGPACK.key("d")
QUICK = CommitOptions(deadline_s=0.3, first_wait_ms=1, longest_wait_ms=5)
LOST = StorageError("The answer was lost.", retryable=True)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


def described(schema: pa.Schema = SCHEMA) -> lakebed.DatasetDescriptor:
    # Index files for other tools are commits of their own, and a tree names none.
    return lakebed.DatasetDescriptor(
        schema=schema, partition_by="day", properties={"kartothek.indices": "off"}
    )


def rows(rng: random.Random, count: int, days: list[dt.date] | None = None) -> pa.Table:
    columns = {
        "id": [rng.randrange(60) for _ in range(count)],
        "day": [rng.choice(days or [*DAYS, None]) for _ in range(count)],
        "kind": [rng.choice("abc") for _ in range(count)],
        "v": [rng.random() for _ in range(count)],
    }
    return pa.table(columns, schema=SCHEMA)


def keyed(rng: random.Random, count: int) -> pa.Table:
    """Rows of distinct ids."""
    ids = rng.sample(range(60), count)
    table = rows(rng, count)
    return table.set_column(0, "id", pa.array(ids, pa.int64()))


Act = Callable[[Dataset, random.Random], object]
ACTS: dict[str, Act] = {
    "append": lambda d, rng: d.append(rows(rng, rng.randint(1, 9))),
    "append much": lambda d, rng: [d.append(rows(rng, 20)) for _ in range(2)],
    "append of a run": lambda d, rng: d.append(rows(rng, 4), run=f"run-{rng.randrange(3)}"),
    "append of a day": lambda d, rng: d.append(rows(rng, 3, [rng.choice(DAYS)])),
    "overwrite": lambda d, rng: d.overwrite(rows(rng, rng.randint(1, 4))),
    "overwrite a view": lambda d, rng: d.where(f"day = '{DAYS[1]}'").overwrite(
        rows(rng, 2, [DAYS[1]])
    ),
    "rerun": lambda d, rng: d.rerun(rows(rng, 3), run=f"run-{rng.randrange(3)}", replace_all=True),
    "delete a day": lambda d, rng: d.where(f"day = '{rng.choice(DAYS)}'").delete(),
    "delete rows": lambda d, rng: d.where(f"id < {rng.randrange(10)}").delete(),
    "delete all": lambda d, rng: d.where("id >= 0").delete(),
    "upsert": lambda d, rng: d.upsert(keyed(rng, 5), on="id"),
    "rollback": lambda d, rng: d.rollback(version=rng.randint(0, d.version)),
    "rollback of a day": lambda d, rng: d.rollback(
        version=rng.randint(0, d.version), view=d.where(f"day = '{rng.choice(DAYS)}'")
    ),
    "compact": lambda d, rng: d.compact(),
    "evolve": lambda d, rng: d.evolve(described(WIDER), base=d.version),
    "stage and commit": lambda d, rng: staged(d, rows(rng, 3)),
    "stage much": lambda d, rng: staged(d, rows(rng, 20)),
    "stage an overwrite": lambda d, rng: staged(d, rows(rng, 3), "overwrite"),
    "stage a rerun": lambda d, rng: staged(d, rows(rng, 3), "rerun", run=f"run-{rng.randrange(3)}"),
    "protect": lambda d, rng: d.protections.add(version=d.version, reason="kept"),
    "index": lambda d, rng: d.indices.build("id"),
}


def staged(dataset: Dataset, batch: pa.Table, *arguments: Any, **named: Any) -> None:
    """Stage and commit a batch; its rows are seen and checked before the commit as after it."""
    staged = dataset.staged.add(batch, *arguments, **named)
    seen = as_set(staged.dataset.arrow())
    exactly = lakebed.checks.row_count(min=len(seen), max=len(seen), of="dataset")
    assert staged.check(exactly).has_passed
    staged.commit()
    assert as_set(dataset.arrow()) == seen


OFTEN = ["append", "append of a run", "append of a day", "append much"]


def made(act: Act, dataset: Dataset, seed: float) -> object:
    """Act, and return what the outcome of both datasets must agree on."""
    try:
        act(dataset, random.Random(seed))
    except LakebedError as error:
        facts = [getattr(error, name, None) for name in ("expected", "actual", "partitions")]
        return [type(error), facts]
    return None


def as_set(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def sizes_of(dataset: Dataset | lakebed.View) -> list[tuple[int, bool]]:
    """Number of rows of each file, and whether its size is known.

    Files of one version are in another order in a tree, and so are the rows of files made of them.
    """
    return sorted((file.row_count or -1, file.size_bytes is not None) for file in dataset.files())


def history_of(dataset: Dataset) -> list[object]:
    fields = ("version", "operation", "run", "row_count", "rows_added", "rows_removed")
    return [
        [
            *(getattr(commit, name, None) for name in fields),
            len(commit.files_added),
            len(commit.files_removed),
            sorted(commit.partitions),
        ]
        for commit in dataset.history()
    ]


def check_alike(document: Dataset, tree: Dataset) -> None:
    assert history_of(tree) == history_of(document)
    assert tree.version == document.version
    assert as_set(tree.arrow()) == as_set(document.arrow())
    assert tree.count() == document.count()
    assert len(tree.inspect.partitions()) == len(document.inspect.partitions())
    kind = "kind" if "kind" in document.schema else "sort"  # as a step may have renamed it
    for text in (
        "day = '2013-01-02'",
        "day is null",
        "id < 30",
        f"{kind} = 'a' and day > '2013-01-03'",
    ):
        expected, found = (one.where(text) for one in (document, tree))
        assert as_set(found.arrow()) == as_set(expected.arrow()), text
        plans = [view.plan() for view in (expected, found)]
        assert len({len(plan.files) for plan in plans}) == 1, text
        accounts = {
            (plan.account.dropped_by_statistics, plan.account.dropped_by_partition)
            for plan in plans
        }
        assert len(accounts) == 1, text


def check_sound(tree: Dataset) -> None:
    """Check that what the leaves hold is what the root states."""
    live = state_of(tree).live
    assert isinstance(live, TreeFiles)
    live.root.check_balance()
    check_order(live)
    assert scrub(live) == live.root.totals


def pair_in(folder: Path) -> tuple[Dataset, Dataset]:
    document = lakebed.open_repository(folder / "document").create(
        "d", described(), head_format="msgpack.zstd"
    )
    tree = lakebed.open_repository(folder / "tree").create("d", described(), head="tree")
    return document, tree


@pytest.mark.parametrize("seed", range(cases(8)))
def test_same_calls_give_the_same_datasets(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    document, tree = pair_in(tmp_path)

    for _ in range(16):
        name = rng.choice([*ACTS, *OFTEN, *OFTEN, "rollback", "overwrite"])
        step = rng.random()
        assert made(ACTS[name], tree, step) == made(ACTS[name], document, step), name
        assert tree.version == document.version, name
        check_sound(tree)

    assert state_of(tree).is_tree
    assert not state_of(document).is_tree
    check_alike(document, tree)
    for version in range(document.version + 1):
        older, expected = (one.at(version=version) for one in (tree, document))
        assert sizes_of(older) == sizes_of(expected), version
        assert as_set(older.arrow()) == as_set(expected.arrow()), version
        assert older.count() == expected.count()
    for _ in range(4):
        first, last = sorted(rng.sample(range(document.version + 1), 2))
        one, other = (dataset.diff(first, last) for dataset in (document, tree))
        assert (other.rows_added, other.rows_removed) == (one.rows_added, one.rows_removed)
        assert len(other.files_added) == len(one.files_added)
        assert other.partitions == one.partitions
        changes = (dataset.changes(first, last) for dataset in (document, tree))
        expected, found = (
            sorted(
                str({key: value for key, value in row.items() if key[0] != "_"})
                for row in each.arrow().to_pylist()
            )
            for each in changes
        )
        assert found == expected


LATE: dict[str, Callable[..., object]] = {
    "append": lambda d, rng, base: d.append(rows(rng, 2), base=base),
    "overwrite": lambda d, rng, base: d.overwrite(rows(rng, 2), base=base),
    "delete": lambda d, rng, base: d.where(f"day = '{rng.choice(DAYS)}'").delete(base=base),
    "delete rows": lambda d, rng, base: d.where("id < 20").delete(base=base),
    "upsert": lambda d, rng, base: d.upsert(keyed(rng, 3), on="id", base=base),
    "rerun": lambda d, rng, base: d.rerun(rows(rng, 2), run="run-1", base=base, replace_all=True),
    "rollback": lambda d, rng, base: d.rollback(version=1, base=base),
    "evolve": lambda d, rng, base: d.evolve(described(WIDER), base=base),
}


@pytest.mark.parametrize("seed", range(cases(6)))
def test_conflicts_are_the_same(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    document, tree = pair_in(tmp_path)
    for dataset in (document, tree):
        made(ACTS["append much"], dataset, seed)
        made(ACTS["append of a run"], dataset, seed)
    outcomes = []
    for _ in range(8):
        bases = [one.snapshot() for one in (document, tree)]
        meanwhile = [rng.choice([*ACTS]) for _ in range(rng.randint(0, 3))]
        name, step = rng.choice([*LATE]), rng.random()
        found = []
        for dataset, base in zip((document, tree), bases, strict=True):
            for act in meanwhile:
                made(ACTS[act], dataset, step)
            late = functools.partial(LATE[name], base=base)
            found.append(made(late, dataset, step))
        assert found[0] == found[1], (name, meanwhile)
        outcomes += found
        check_sound(tree)

    check_alike(document, tree)
    assert None in outcomes
    assert any(outcomes)


def transacted(dataset: Dataset, rng: random.Random) -> None:
    with dataset.transaction() as t:
        t.delete(t.where(f"day = '{rng.choice(DAYS)}'"))
        t.append(rows(rng, 3))


def unprotected(dataset: Dataset) -> None:
    for one in dataset.protections.list()[:1]:
        dataset.protections.remove(version=one.version)


RARE: dict[str, Act] = {
    "merge": lambda d, rng: d.merge(keyed(rng, 6), "id", not_matched="ignore"),
    "update rows": lambda d, rng: d.where(f"id < {rng.randrange(20)}").update_rows({"v": "v + 1"}),
    "update the partition": lambda d, rng: d.where("id = 3").update_rows({"day": "NULL"}),
    "transaction": transacted,
    "erase": lambda d, rng: d.erase(f"id < {rng.randrange(15)}", reason="asked", grace="0s"),
    "clean up": lambda d, rng: d.cleanup("0s", dry_run=False, clock_skew=dt.timedelta(0)),
    "unprotect": lambda d, rng: unprotected(d),
    "compact a day": lambda d, rng: d.compact(d.where(f"day = '{rng.choice(DAYS)}'")),
    "rename": lambda d, rng: d.evolve(lambda old: renamed(old, "kind", "sort"), base=d.version),
}


def renamed(old: lakebed.DatasetDescriptor, name: str, new: str) -> lakebed.DatasetDescriptor:
    return old.rename_field(name, new) if name in old.schema else old


STEPS = st.lists(
    st.tuples(st.sampled_from([*ACTS, *RARE, *OFTEN]), st.integers(0, 99)), min_size=1, max_size=14
)


def read_at(dataset: Dataset, version: int) -> object:
    try:
        return as_set(dataset.at(version=version).arrow())
    except LakebedError as error:
        return type(error)


@given(STEPS)
@examples(0.25)
def test_random_histories_of_all_verbs_have_the_same_answers(
    steps: list[tuple[str, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        stores = [open_store(f"memory://{uuid.uuid4().hex}") for _ in range(2)]
        document, tree = (
            lakebed.Repository(store).create("d", described(), **form)
            for store, form in zip(
                stores,
                ({"head_format": "msgpack.zstd", "head": "document"}, {"head": "tree"}),
                strict=True,
            )
        )
        for name, seed in steps:
            act = (ACTS | RARE)[name]
            assert made(act, tree, seed) == made(act, document, seed), name
            assert tree.version == document.version, name
            check_sound(tree)

        check_alike(document, tree)
        assert state_of(tree).horizon == state_of(document).horizon
        for version in range(document.version + 1):
            assert read_at(tree, version) == read_at(document, version), version
        for dataset in (document, tree):
            assert dataset.check(deep=True).problems == ()


def test_transaction_and_writer_that_began_before_a_move_are_committed(tmp_path: Path) -> None:
    rng = random.Random(1)
    dataset = lakebed.open_repository(tmp_path).create("d", described(), head_format="msgpack.zstd")
    dataset.append(rows(rng, 5))
    waiting = dataset.staged.add(rows(rng, 3))

    with dataset.transaction() as writing:
        writing.append(rows(rng, 2))
        lakebed.open_repository(tmp_path).open("d").compact(head="tree")
    waiting.commit()
    with dataset.transaction() as writing:
        writing.append(rows(rng, 2))
        lakebed.open_repository(tmp_path).open("d").compact(head="document")

    assert not state_of(dataset).is_tree
    assert dataset.count() == 12
    assert all(file.row_count for file in dataset.files())


# The move


@pytest.mark.parametrize("seed", range(cases(4)))
@pytest.mark.parametrize("head_format", ["json", "msgpack.zstd"])
def test_moves_there_and_back_change_no_answer(tmp_path: Path, seed: int, head_format: str) -> None:
    rng = random.Random(seed)
    dataset = lakebed.open_repository(tmp_path).create("d", described(), head_format=head_format)
    answers: dict[int, list[str]] = {}

    def act() -> None:
        made(
            ACTS[rng.choice([*OFTEN, "overwrite", "delete a day", "rollback"])],
            dataset,
            rng.random(),
        )
        answers[dataset.version] = as_set(dataset.arrow())

    for kind in ("tree", "document", "tree", "document"):
        for _ in range(5):
            act()
        before = (as_set(dataset.arrow()), sizes_of(dataset), dataset.count())
        times = [commit.committed_at for commit in dataset.history()]
        commit = dataset.compact(head=kind)
        assert commit is not None
        assert (commit.operation, commit.version) == ("hand-over", dataset.version)
        assert dataset.compact(head=kind) is None
        assert state_of(dataset).is_tree is (kind == "tree")
        assert (as_set(dataset.arrow()), sizes_of(dataset), dataset.count()) == before
        assert [one.committed_at for one in dataset.history()][: len(times)] == times
        if kind == "tree":
            check_sound(dataset)
    for version, expected in answers.items():
        assert as_set(dataset.at(version=version).arrow()) == expected
    assert [one.what for one in dataset.check().findings if one.severity == "error"] == []


def test_time_of_a_version_stays_after_the_move_back(tmp_path: Path) -> None:
    tree = lakebed.open_repository(tmp_path).create("d", described(), head="tree")
    for count in range(1, 8):
        tree.append(rows(random.Random(count), count))
    committed = tree.history()[3].committed_at

    tree.compact(head="document")

    assert tree.at(time=committed).version == 3


def test_move_beside_a_writer_takes_its_commit_along(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    lakebed.Repository(store).create("d", described(), head_format="msgpack.zstd")
    dataset = lakebed.Repository(store).open("d")
    dataset.append(rows(random.Random(1), 5))
    late = iter([1])

    class Beside(DelegatingStore):
        def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
            if key == HEAD and next(late, None):
                dataset.append(rows(random.Random(2), 3))
            return super()._replace(key, data, if_match=if_match)

    commit = lakebed.Repository(Beside(store)).open("d").compact(head="tree")

    assert commit is not None
    assert commit.version == 3
    assert dataset.count() == 8
    check_sound(dataset)
    root = root_of(dataset)
    leaves = {info.key for info in store.list(f"{Folder.LEAVES.of('d')}/")}
    assert leaves == {ref.key("d") for ref in root.refs}  # those of the lost race are deleted
    copies = [info.key for info in store.list(f"{Folder.ROOTS.of('d')}/")]
    assert copies == [root.copy_key("d", 3)]


def test_dry_run_moves_nothing(tmp_path: Path) -> None:
    dataset = lakebed.open_repository(tmp_path).create("d", described())

    assert dataset.compact(head="tree", dry_run=True) is None

    assert dataset.version == 0
    assert not state_of(dataset).is_tree


@pytest.mark.parametrize("kind", ["tree", "document"])
def test_tree_is_published_after_each_commit_as_a_document_is(tmp_path: Path, kind: str) -> None:
    published = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by="day", properties={"publish.delta": "true"}
    )
    dataset = lakebed.open_repository(tmp_path).create("d", published, head=kind)
    for number in range(3):
        dataset.append(rows(random.Random(number), 9))
        assert [table.version for table in dataset.inspect.publications()] == [dataset.version]
    other = "tree" if kind == "document" else "document"
    assert dataset.compact(head=other, dry_run=True) is None
    dataset.compact(head=other)
    assert [table.version for table in dataset.inspect.publications()] == [dataset.version]


# What a commit and a fold write


def root_of(dataset: Dataset) -> Root:
    live = state_of(dataset).live
    assert isinstance(live, TreeFiles)
    return live.root


@functools.cache
def grown() -> Store:
    """A tree whose next commit fills the buffer."""
    store = open_store("memory://grown-tree")
    dataset = lakebed.Repository(store).create("d", described(), head="tree")
    for number in range(19):
        dataset.append(rows(random.Random(number), 2, [DAYS[number % 3]]))
    while not is_due(root_of(dataset), Sizes(buffer=3, leaf=8)):
        dataset.append(rows(random.Random(1), 1, [DAYS[0]]))
    return store


def kinds_of(store: CountingStore) -> list[tuple[str, str]]:
    return [(name, key.split("/")[1] if "/" in key else "head") for name, key in store.log]


def test_commit_writes_neither_facts_nor_history(monkeypatch: pytest.MonkeyPatch) -> None:
    store = CountingStore(copy_of(grown()))
    shrink(monkeypatch, Sizes())
    dataset = lakebed.Repository(store).open("d")
    before = {info.key for info in store.list()}

    dataset.append(rows(random.Random(1), 1, [DAYS[1]]))

    new = {key.split("/")[1] for key in {info.key for info in store.list()} - before}
    assert new == {"data", "batches"}


def test_fold_comes_after_the_commit_that_filled_the_buffer() -> None:
    store = copy_of(grown())
    dataset = lakebed.Repository(store).open("d")
    before = root_of(dataset)
    assert before.buffer

    dataset.append(rows(random.Random(1), 2, [DAYS[1]]))

    after = root_of(dataset)
    assert not after.buffer
    assert after.version == before.version + 1 == after.folded_at
    named = {ref.key("d") for ref in after.refs}
    assert named <= {info.key for info in store.list(f"{Folder.LEAVES.of('d')}/")}
    assert after.copy_key("d", after.version) in {info.key for info in store.list("d/roots/")}


def test_writer_that_did_not_fill_the_buffer_leaves_the_fold_to_the_one_that_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = copy_of(grown())
    dataset = lakebed.Repository(store).open("d")
    with monkeypatch.context() as patch:
        patch.setattr(stored_folds, "fold_stored", fail)
        dataset.append(rows(random.Random(1), 1, [DAYS[1]]))
    filled = root_of(dataset)
    assert is_due(filled, SMALL)

    dataset.append(rows(random.Random(1), 1, [DAYS[1]]))
    assert len(root_of(dataset).buffer) == len(filled.buffer) + 1
    dataset.append(rows(random.Random(1), 1, [DAYS[1]]))
    assert not root_of(dataset).buffer  # now it is half as full again


def fail(*_: object, **__: object) -> None:
    raise OSError("anything")


def test_failure_of_a_fold_is_no_failure_of_the_commit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = lakebed.Repository(copy_of(grown())).open("d")
    monkeypatch.setattr(stored_folds, "fold_stored", fail)

    with caplog.at_level(logging.WARNING):
        commit = dataset.append(rows(random.Random(1), 1, [DAYS[1]]))

    assert commit.version == dataset.version
    assert "fold failed dataset=d" in caplog.text


def test_compaction_of_the_metadata_folds_and_merges_without_a_new_version() -> None:
    store = copy_of(grown())
    dataset = lakebed.Repository(store).open("d")
    before = answer_of(store)
    root = root_of(dataset)

    expected = dataset.compact(metadata=True, dry_run=True)
    assert root_of(dataset) == root
    (merged,) = dataset.compact(metadata=True)

    assert expected == (merged,)
    assert (merged.name, merged.segments_before) == ("leaves", len(root.refs))
    assert merged.segments_after == len(root_of(dataset).refs)
    assert not root_of(dataset).buffer
    assert answer_of(store) == before
    assert dataset.compact(metadata=True) == ()
    check_readable(store)


# Failures


class Calls(DelegatingStore):
    """Records calls, and fails from a certain one on, as if the process had died there."""

    def __init__(self, inner: Store, last: int = 10**9, *, landed: bool = False) -> None:
        super().__init__(inner)
        self.made: list[tuple[str, str]] = []
        self.last = last
        self.landed = landed

    def _noted(self, operation: str, key: str, call: Callable[[], object]) -> object:
        if len(self.made) >= self.last:
            raise KilledError
        self.made.append((operation, key))
        if len(self.made) < self.last:
            return call()
        if self.landed:
            call()
        raise KilledError

    def _create(self, key: str, data: memoryview) -> str:
        return self._noted("create", key, lambda: self.inner.create(key, data))

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        return self._noted("replace", key, lambda: self.inner.replace(key, data, if_match=if_match))

    def _put(self, key: str, data: memoryview) -> str:
        return self._noted("put", key, lambda: self.inner.put(key, data))

    def _delete(self, keys: list[str]) -> None:
        self._noted("delete", keys[0], lambda: self.inner.delete(keys))


class KilledError(BaseException):
    """The end of the process."""


WRITES: dict[str, Callable[[Dataset], object]] = {
    "append": lambda d: d.append(rows(random.Random(1), 2, [DAYS[1]])),
    "append much": lambda d: d.append(rows(random.Random(1), 30)),
    "overwrite": lambda d: d.overwrite(rows(random.Random(1), 2, [DAYS[1]])),
    "delete": lambda d: d.where("id >= 0").delete(),
    "rollback": lambda d: d.rollback(version=5),
    "move": lambda d: d.compact(head="document"),
}


def calls_of(write: Callable[[Dataset], object]) -> list[tuple[str, str]]:
    calls = Calls(copy_of(grown()))
    write(lakebed.Repository(calls).open("d"))
    return calls.made


@pytest.mark.thorough
@pytest.mark.parametrize("landed", [False, True], ids=["refused", "landed"])
@pytest.mark.parametrize("name", WRITES)
def test_killed_at_each_write_a_commit_and_a_fold_happened_or_not(
    subtests: pytest.Subtests, name: str, landed: bool
) -> None:
    made_by = calls_of(WRITES[name])
    swaps = [number for number, call in enumerate(made_by) if call == ("replace", HEAD)]
    assert len(swaps) == (1 if name == "move" else 2), "it folds, too"
    for number in range(1, len(made_by) + 1):
        with subtests.test(call=made_by[number - 1]):
            store = copy_of(grown())
            before = answer_of(store)
            WRITES[name](lakebed.Repository(copy := copy_of(grown())).open("d"))
            after = answer_of(copy)
            with pytest.raises(KilledError):
                WRITES[name](lakebed.Repository(Calls(store, number, landed=landed)).open("d"))
            PROCESS_CACHE.clear()

            is_made = number - 1 > swaps[0] or (number - 1 == swaps[0] and landed)
            assert answer_of(store) == (after if is_made else before)
            check_readable(store)


def answer_of(store: Store) -> tuple[int, int, list[str]]:
    dataset = lakebed.Repository(store).open("d")
    return dataset.version, dataset.count(), as_set(dataset.arrow(["id", "day"]))


def check_readable(store: Store) -> None:
    """Check that every version can be read, and that the next commits succeed."""
    dataset = lakebed.Repository(store).open("d")
    for version in range(dataset.version + 1):
        dataset.at(version=version).arrow()
    count = dataset.count()
    for _ in range(3):
        dataset.append(rows(random.Random(1), 1))
    assert dataset.count() == count + 3
    if state_of(dataset).is_tree:
        check_sound(dataset)


@pytest.mark.thorough
@pytest.mark.parametrize("landed", [False, True], ids=["refused", "landed"])
@pytest.mark.parametrize("name", WRITES)
def test_lost_answer_leaves_one_commit_or_none(
    subtests: pytest.Subtests, name: str, landed: bool
) -> None:
    counts = collections.Counter[str]()
    for operation, key in calls_of(WRITES[name]):
        counts[operation] += 1
        with subtests.test(call=(operation, key)):
            store = copy_of(grown())
            version = lakebed.Repository(store).open("d").version
            failing = FailingStore(
                store, fail_on=operation, nth=counts[operation], landed=landed, error=LOST
            )
            dataset = lakebed.Repository(failing).open("d").with_options(commit=QUICK)
            error = error_of(WRITES[name], dataset)
            PROCESS_CACHE.clear()

            assert error in (None, LOST)
            is_made = error is None
            assert lakebed.Repository(store).open("d").version == version + is_made
            check_readable(store)


def error_of(write: Callable[[Dataset], object], dataset: Dataset) -> LakebedError | None:
    try:
        write(dataset)
    except LakebedError as error:
        return error
    return None


def test_fold_that_lost_to_a_commit_lands_on_it() -> None:
    store = copy_of(grown())
    other = lakebed.Repository(store).open("d")
    swaps = itertools.count(1)

    class Beside(DelegatingStore):
        def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
            if key == HEAD and next(swaps) == 2:  # the first is that of the commit
                other.where("day = '2013-01-02'").delete()
            return super()._replace(key, data, if_match=if_match)

    lakebed.Repository(Beside(store)).open("d").append(rows(random.Random(1), 1, [DAYS[1]]))

    root = root_of(other)
    assert len(root.buffer) == 1
    assert root.folded_at == root.version - 1
    assert other.where("day = '2013-01-02'").count() == 0
    check_readable(store)


def test_rollback_to_a_large_commit_beside_a_fold_brings_the_facts_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The leaf of the fold is not merged, so the copy of the head has it as its last one.
    shrink(monkeypatch, Sizes(leaf=2, buffer=4, inline=4, fanout=100))
    store = open_store("memory://large-beside-a-fold")
    other = lakebed.Repository(store).create("d", described(), head="tree")
    for number in range(3):
        other.append(rows(random.Random(number), 1, [DAYS[3]]))
    swaps = itertools.count(1)

    class Beside(DelegatingStore):
        def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
            if key == HEAD and next(swaps) == 2:  # the first is that of the commit
                with monkeypatch.context() as patch:
                    patch.setattr(stored_folds, "fold_stored", fail)
                    other.append(rows(random.Random(2), 60))
            return super()._replace(key, data, if_match=if_match)

    lakebed.Repository(Beside(store)).open("d").append(rows(random.Random(1), 1, [DAYS[3]]))

    version, root = other.version, root_of(other)
    assert root.folded_at == version - 1
    assert root.buffer[0].entry.brought
    row_count = root.totals.rows
    days = set(other.arrow()["day"].to_pylist())
    other.where("id >= 0").delete()
    assert set(other.at(version=version).arrow()["day"].to_pylist()) == days
    older = state_of(other.at(version=version))
    assert isinstance(older.live, TreeFiles)
    assert check_order(older.live) > 1
    assert older.live.holding(older.labels) == set(older.labels)
    other.rollback(version=version)
    assert (root_of(other).totals.rows, root_of(other).totals.unknown) == (row_count, 0)


def test_fold_that_lost_to_another_leaves_nothing() -> None:
    store = copy_of(grown())
    other = lakebed.Repository(store).open("d")

    class Beside(DelegatingStore):
        def _put(self, key: str, data: memoryview) -> str:
            etag = super()._put(key, data)
            if key.startswith("d/roots/"):
                assert stored_folds.fold_stored(store, state_of(other))
            return etag

    lakebed.Repository(Beside(store)).open("d").append(rows(random.Random(1), 1, [DAYS[1]]))

    root = root_of(other)
    assert not root.buffer
    newest = [info.key for info in store.list("d/roots/") if f"{root.version:019d}" in info.key]
    assert newest == [root.copy_key("d", root.version)]
    check_readable(store)


def test_fold_that_landed_without_an_answer_keeps_what_later_folds_have_merged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = copy_of(grown())
    # Segments of the history are merged, and leaves are not.
    monkeypatch.setattr(segments, "FANOUT", 2)
    shrink(monkeypatch, Sizes(leaf=8, buffer=4, inline=6, fanout=100))
    other = lakebed.Repository(store).open("d")
    swaps = itertools.count(1)

    class Beside(DelegatingStore):
        def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
            etag = super()._replace(key, data, if_match=if_match)
            if key == HEAD and next(swaps) == 2:
                folded = root_of(other).history[-1]
                while folded in root_of(other).history:
                    other.append(rows(random.Random(1), 2, [DAYS[0]]))
                raise LOST
            return etag

    lakebed.Repository(Beside(store)).open("d").append(rows(random.Random(1), 1, [DAYS[1]]))

    PROCESS_CACHE.clear()
    check_readable(store)
    assert not [one for one in other.check().findings if one.severity == "error"]


def test_writers_beside_each_other_lose_nothing(tmp_path: Path) -> None:
    lakebed.open_repository(tmp_path).create("d", described(), head="tree")
    errors: list[BaseException] = []

    def write(number: int) -> None:
        dataset = lakebed.open_repository(tmp_path).open("d")
        rng = random.Random(number)
        try:
            for _ in range(6):
                dataset.append(rows(rng, 3, [DAYS[number]]))
            dataset.where(f"day = '{DAYS[number]}' and id < 30").delete()
        except BaseException as error:  # noqa: BLE001 - reported below
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    dataset = lakebed.open_repository(tmp_path).open("d")
    assert not errors
    history = [commit.version for commit in dataset.history()]
    assert history == list(range(dataset.version + 1))
    check_readable(store_of(dataset))
    assert {entry["day"] for entry in dataset.arrow().to_pylist()} >= set(DAYS[:4])


# Upkeep


def keys_in(store: Store) -> set[str]:
    return {info.key for info in store.list("d/")}


@pytest.mark.parametrize("seed", range(cases(3)))
def test_cleanup_keeps_what_readable_versions_need_and_nothing_else(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    dataset = lakebed.open_repository(tmp_path).create("d", described(), head="tree")
    store = store_of(dataset)
    for _ in range(14):
        made(
            ACTS[rng.choice([*OFTEN, "overwrite", "delete a day", "compact"])],
            dataset,
            rng.random(),
        )
    kept = dataset.version // 2
    dataset.protections.add(version=kept, reason="kept")
    answers = {
        version: as_set(dataset.at(version=version).arrow())
        for version in range(dataset.version + 1)
    }
    before = keys_in(store)

    report = clean(dataset, tmp_path)
    PROCESS_CACHE.clear()

    assert before - keys_in(store) == {file.key for file in report.files}
    assert any(key.startswith("d/leaves/") for key in before - keys_in(store))
    assert as_set(dataset.arrow()) == answers[max(answers)]
    assert as_set(dataset.at(version=kept).arrow()) == answers[kept]
    assert not [one for one in dataset.check().findings if one.severity == "error"]
    with pytest.raises(VersionNotFoundError, match="cleaned up"):
        dataset.at(version=1 if kept != 1 else 2)
    assert len(dataset.history()) == dataset.version + 1
    named = {ref.key("d") for ref in root_of(dataset).refs}
    assert named <= keys_in(store)
    made(ACTS["append much"], dataset, seed)
    check_sound(dataset)
    # Appends leave no file dead, so that the older versions stay.
    assert clean(dataset, tmp_path).version is None
    made(ACTS["overwrite"], dataset, seed)
    assert clean(dataset, tmp_path).version is not None
    assert not [one for one in dataset.check().findings if one.severity == "error"]


@pytest.mark.parametrize("count", [1, 20], ids=["stated", "in leaves"])
@pytest.mark.parametrize("begins", ["tree", "document"])
def test_check_finds_files_of_older_versions_that_have_changed(count: int, begins: str) -> None:
    store = open_store(f"memory://{uuid.uuid4().hex}")
    dataset = lakebed.Repository(store).create("d", described(), head=begins)
    dataset.append(rows(random.Random(1), count))
    if begins == "document":
        dataset.compact(head="tree")
    keys = [file.key for file in dataset.files()]
    dataset.where("id >= 0").delete()
    for _ in range(9):  # folds, after which no leaf of the root has the files
        dataset.append(rows(random.Random(2), 3))
    longer, flipped = keys[0], keys[-1]
    data = store.get(longer).data

    store.put(longer, data + b"x")
    (problem,) = dataset.check().problems
    store.put(longer, data)
    data = store.get(flipped).data
    store.put(flipped, bytes([data[0] ^ 1]) + data[1:])
    (deep,) = dataset.check(deep=True).problems

    assert (problem.key, problem.severity) == (longer, "error")
    assert "was written with" in problem.what
    assert (deep.key, deep.severity) == (flipped, "error")
    assert dataset.check().is_ok


def test_cleanup_deletes_what_its_dry_run_names_and_commits_no_more_than_that() -> None:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    with time_machine.travel(start, tick=True) as clock:
        store = open_store(f"memory://{uuid.uuid4().hex}")
        dataset = lakebed.Repository(store).create("d", described(), head="tree")
        for number in range(9):
            dataset.append(rows(random.Random(number), 3))
            clock.shift(dt.timedelta(days=1))
        clock.shift(dt.timedelta(days=9))
        before = dataset.version

        told = dataset.cleanup("7d")
        done = dataset.cleanup("7d", dry_run=False)

        assert [file.key for file in done.files] == [file.key for file in told.files]
        assert dataset.version == before
        assert dataset.at(version=1).count() == 3  # nothing was given up that needs the horizon


def test_folds_after_a_cleanup_keep_the_copy_that_the_horizon_needs() -> None:
    store = copy_of(grown())
    dataset = lakebed.Repository(store).open("d")
    dataset.overwrite(rows(random.Random(7), 2, [DAYS[1]]))
    dataset.cleanup("0s", dry_run=False)
    oldest = state_of(dataset).horizon
    assert oldest > root_of(dataset).copies[1]
    needed = readable_copies(state_of(dataset), root_of(dataset)).values()
    # A cleanup deletes them once they are older than the longest commit.
    store.delete([info.key for info in store.list("d/roots/") if info.key not in needed])

    for number in range(40):
        dataset.append(rows(random.Random(number), 1, [DAYS[number % 3]]))

    PROCESS_CACHE.clear()
    for version in range(oldest, dataset.version + 1):
        dataset.at(version=version).arrow()
    assert not dataset.check().findings


def clean(dataset: Dataset, root: Path) -> lakebed.CleanupReport:
    """Clean up after all was written a month ago."""
    age(root, 30)
    return sweep(dataset)


def on_disk(store: Store, root: Path) -> Store:
    """Return a copy of a store in a directory."""
    copy = open_store(str(root))
    for info in store.list():
        copy.put(info.key, store.get(info.key).data)
    return copy


def test_dataset_that_is_a_document_again_gives_its_leaves_up(tmp_path: Path) -> None:
    dataset = lakebed.open_repository(tmp_path).create("d", described(), head="tree")
    for number in range(8):
        dataset.append(rows(random.Random(number), 3))
    dataset.compact(head="document")
    answer = as_set(dataset.arrow())

    clean(dataset, tmp_path)

    assert not [
        key for key in keys_in(store_of(dataset)) if key.split("/")[1] in ("leaves", "roots")
    ]
    assert as_set(dataset.arrow()) == answer


def test_young_leaves_of_a_fold_at_work_are_kept() -> None:
    store = copy_of(grown())
    dataset = lakebed.Repository(store).open("d")
    swaps = itertools.count(1)

    class Beside(DelegatingStore):
        def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
            if key == HEAD and next(swaps) == 2:
                sweep(dataset)
            return super()._replace(key, data, if_match=if_match)

    lakebed.Repository(Beside(store)).open("d").append(rows(random.Random(1), 1, [DAYS[1]]))

    check_readable(store)
    assert not [one for one in dataset.check().findings if one.severity == "error"]


def test_fold_does_not_land_after_a_cleanup_that_may_have_deleted_its_leaves(
    tmp_path: Path,
) -> None:
    store = on_disk(grown(), tmp_path)
    dataset = lakebed.Repository(store).open("d")
    swaps = itertools.count(1)

    class Beside(DelegatingStore):
        def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
            if key == HEAD and next(swaps) == 2:
                clean(dataset, tmp_path)
            return super()._replace(key, data, if_match=if_match)

    lakebed.Repository(Beside(store)).open("d").append(rows(random.Random(1), 1, [DAYS[1]]))

    PROCESS_CACHE.clear()
    assert root_of(dataset).buffer
    dataset.arrow()
    check_sound(dataset)


@pytest.mark.parametrize("folder", ["leaves", "history", "roots"])
@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "damaged"])
def test_check_finds_lost_and_damaged_objects(folder: str, is_lost: bool) -> None:
    store = copy_of(grown())
    dataset = lakebed.Repository(store).open("d")
    assert not dataset.check(deep=True).findings
    root = root_of(dataset)
    key = {
        "leaves": root.refs[0].key("d"),
        "history": root.history[0].key("d"),
        "roots": root.copy_key("d", root.copies[-1]),
    }[folder]
    if is_lost:
        store.delete([key])
    else:
        data = bytearray(store.get(key).data)
        data[len(data) // 2] ^= 1
        store.put(key, bytes(data))

    (finding,) = dataset.check().findings

    assert (finding.key, finding.severity, finding.is_repaired) == (key, "error", False)


def test_check_finds_a_lost_data_file() -> None:
    store = copy_of(grown())
    dataset = lakebed.Repository(store).open("d")
    lost = dataset.files()[0].key
    store.delete([lost])

    (finding,) = dataset.check().findings

    assert (finding.key, finding.severity) == (lost, "error")


@pytest.mark.parametrize("is_whole", [True, False])
def test_drop_leaves_nothing(is_whole: bool) -> None:
    store = copy_of(grown())
    repository = lakebed.Repository(store)
    if not is_whole:
        store.delete([root_of(repository.open("d")).refs[0].key("d")])
        PROCESS_CACHE.clear()

    assert repository.drop("d")

    assert [info.key for info in store.list()] == []


@pytest.mark.parametrize("seed", range(cases(3)))
def test_partition_fields_may_change(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    schema = pa.schema([("channel", pa.string()), ("n", pa.int64()), ("day", pa.int64())])
    first = [by.dimension("channel", ["beta"]), by.identity("day")]
    pair = [
        lakebed.open_repository(tmp_path / head).create(
            "d", schema, partition_by=first, head=head, properties={"kartothek.indices": "off"}
        )
        for head in ("document", "tree")
    ]
    rules = [
        {"channel": ["beta", "esr"], "n": [str(number) for number in range(4)]},
        {"n": ["1"]},
        {"channel": ["esr"]},
    ]
    for rule in rules:
        for _ in range(9):
            batch = [
                {
                    "channel": rng.choice(["beta", "esr", None]),
                    "n": rng.randrange(5),
                    "day": rng.randrange(8, 12),
                }
                for _ in range(6)
            ]
            for dataset in pair:
                dataset.append(batch)
        old, new = pair[1].descriptor, rng.randrange(8, 12)
        for dataset in pair:
            dataset.dimensions.promote(dimensions_of(rule), reroute=True)
        assert old != pair[1].descriptor
        check_sound(pair[1])
        for dataset in pair:
            dataset.where(f"day = {new}").overwrite([{"channel": "esr", "n": 1, "day": new}])
        check_sound(pair[1])
    document, tree = pair
    assert tree.version == document.version
    for version in range(document.version + 1):
        older, expected = (one.at(version=version) for one in (tree, document))
        for text in ("n >= 0", "channel = 'beta' OR n > 2", "day = 9", "day >= 10 AND n = 1"):
            assert as_set(older.where(text).arrow()) == as_set(expected.where(text).arrow())
            assert older.where(text).count() == expected.where(text).count()


def dimensions_of(rules: dict[str, list[str]]) -> DimensionSchema:
    """Return a schema of dimensions with the allowed values of fields."""
    return DimensionSchema(
        dimensions=tuple(
            DimensionRule(field_name=name, allowed=read_allowed(allowed, name))
            for name, allowed in rules.items()
        )
    )


def test_drop_leaves_the_first_copy_of_a_namesake_whose_head_may_still_come() -> None:
    store = open_store("memory://tree-namesake")
    state = first_state("d", described(), HeadFormat.MSGPACK, head=HeadKind.TREE)
    late = with_history(store, state, {})  # its writer sleeps before the put of the head
    dataset = lakebed.Repository(store).create("d", described(), head="tree")
    dataset.append(rows(random.Random(1), 9))

    lakebed.Repository(store).drop("d")

    left = {info.key for info in store.list("d/")}
    assert left == {key_of_copy(late), *late.lists.keys}

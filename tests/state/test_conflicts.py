"""Conflicts look at what happened since the base, and not at whether things are equal again."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from heads import is_of_an_attempt
from upkeep_lake import Interfering

import lakebed
from lakebed import by
from lakebed.errors import CommitConflictError, InvalidInputError, LakebedError
from lakebed.state import conflicts
from lakebed.state.codec import to_document
from lakebed.state.head import encode_head
from lakebed.state.history import Entry
from lakebed.state.reader import read_head
from lakebed.state.scope import RewrittenFiles, Scope, ThesePartitions
from lakebed.state.sources import Restored, SourceFile, Sources
from lakebed.state.state import FOREIGN, Change, State
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import DelegatingStore

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])


def new_store() -> MemoryStore:
    return MemoryStore(uuid.uuid4().hex)


def new_dataset(store: Store, *, dimension: bool = False) -> lakebed.Dataset:
    function = by.dimension("p", ["z"]) if dimension else by.identity("p")
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=[function])
    dataset = lakebed.Repository(store).create("d", descriptor)
    dataset.append(rows(("a", 1), ("a", 2), ("b", 1)))
    dataset.append(rows(("a", 3)))
    return dataset


def rows(*pairs: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"p": p, "n": n} for p, n in pairs]


def content(dataset: lakebed.Dataset) -> list[tuple[str, int]]:
    return sorted((one["p"], one["n"]) for one in dataset.kite.reader())


def at_the_last_moment(store: Store, act: Callable[[], Any]) -> lakebed.Dataset:
    """Return the dataset as one sees it to whom `act` happens right before the first swap."""
    return lakebed.Repository(Interfering(store, is_of_an_attempt, act)).open("d")


UNDOING: dict[str, Callable[[lakebed.Dataset], Any]] = {
    "delete": lambda dataset: dataset.where("n = 666").delete(),
    "rollback": lambda dataset: dataset.rollback(version=dataset.version - 1),
    "rerun": lambda dataset: dataset.rerun([], "brief", replace_all=True),
}
REPLACING: dict[str, Callable[[lakebed.Dataset], Any]] = {
    "overwrite": lambda dataset: dataset.overwrite(rows(("a", 9))),
    "overwrite of a view": lambda dataset: dataset.where("p = 'a'").overwrite(rows(("a", 9))),
    "delete": lambda dataset: dataset.where("n = 1").delete(),
    "delete of whole files": lambda dataset: dataset.where("p = 'a'").delete(),
    "rollback": lambda dataset: dataset.rollback(version=1),
    "append to an empty view": lambda dataset: dataset.where("n = 7").append(
        rows(("a", 7)), if_not_empty="error"
    ),
}


@pytest.mark.parametrize("undo", UNDOING)
@pytest.mark.parametrize("verb", REPLACING)
def test_what_came_and_went_meanwhile_is_a_conflict_that_names_the_commit(
    verb: str, undo: str
) -> None:
    store = new_store()
    dataset = new_dataset(store)

    def come_and_go() -> None:
        dataset.append(rows(("a", 666)), run="brief")
        UNDOING[undo](dataset)

    labels = read_head(store, "d").state.labels
    with pytest.raises(CommitConflictError) as caught:
        REPLACING[verb](at_the_last_moment(store, come_and_go))

    last = dataset.history()[-1]
    assert f"the {undo} that made version 4 (commit {last.commit_id})" in caught.value.message
    assert caught.value.partitions == ("p=a",)
    assert (dataset.version, read_head(store, "d").state.labels) == (4, labels)


@pytest.mark.parametrize("verb", REPLACING)
def test_what_came_and_went_elsewhere_is_none(verb: str) -> None:
    store = new_store()
    dataset = new_dataset(store)

    def come_and_go() -> None:
        dataset.append(rows(("c", 666)))
        UNDOING["delete"](dataset)

    act = REPLACING[verb]
    if verb == "append to an empty view":  # which is one of every partition
        act = lambda one: one.where("p = 'a' AND n = 7").append(  # noqa: E731 - a case
            rows(("a", 7)), if_not_empty="error"
        )
    if verb == "delete":
        act = lambda one: one.where("n = 3").delete()  # noqa: E731 - a case
    act(at_the_last_moment(store, come_and_go))

    assert dataset.version == 5


@pytest.mark.parametrize("undo", UNDOING)
def test_staged_overwrite_conflicts_with_what_came_and_went_since(undo: str) -> None:
    dataset = new_dataset(new_store())
    staged = dataset.staged.add(rows(("a", 9)), "overwrite")
    dataset.append(rows(("a", 666)), run="brief")
    UNDOING[undo](dataset)

    with pytest.raises(CommitConflictError, match=f"the {undo} that made version 4"):
        staged.commit()

    assert content(dataset) == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]


@pytest.mark.parametrize("undo", UNDOING)
def test_promotion_does_not_bring_back_what_came_and_went(undo: str) -> None:
    store = new_store()
    dataset = new_dataset(store, dimension=True)
    before = content(dataset)
    goes = Interfering(
        store,
        lambda operation, key: operation == "replace" and "/batches/" in key,
        lambda: UNDOING[undo](dataset),
    )
    comes = Interfering(
        goes,
        lambda operation, key: operation == "put" and "/data/" in key,
        lambda: dataset.append(rows(("a", 666)), run="brief"),
    )

    lakebed.Repository(comes).open("d").dimensions.promote({"p": ["z", "a"]})

    assert (comes.acted, goes.acted) == (1, 1)
    assert content(dataset) == before
    assert dataset.kite.with_("p_dimension", "a").count() == 3


def change_as_another_tool(store: Store, labels: Callable[[tuple[str, ...]], Any]) -> None:
    """Change the files of a head and nothing else, as plateau does."""
    head = read_head(store, "d")
    changed = head.state.with_labels(labels(head.state.labels))
    data = encode_head(to_document(changed), head.state.head_format)
    store.replace(head.key, data, if_match=head.etag)


def test_promotion_does_not_bring_back_what_another_tool_put_in_and_took_out() -> None:
    store = new_store()
    dataset = new_dataset(store, dimension=True)
    before = content(dataset)
    label = "p_dimension=OTHER/batch_id=7/theirs"
    copy = store.get(dataset.files()[0].key).data
    store.put(f"d/data/{label}.parquet", copy)
    goes = Interfering(
        store,
        lambda operation, key: operation == "replace" and "/batches/" in key,
        lambda: change_as_another_tool(store, lambda old: [one for one in old if one != label]),
    )
    comes = Interfering(
        goes,
        lambda operation, key: operation == "put" and "/data/" in key,
        lambda: change_as_another_tool(store, lambda old: [*old, label]),
    )

    lakebed.Repository(comes).open("d").dimensions.promote({"p": ["z", "a"]})

    assert (comes.acted, goes.acted) == (1, 1)
    assert content(dataset) == before


def test_compaction_meanwhile_is_none_unless_rows_came_and_went_too() -> None:
    store = new_store()
    dataset = new_dataset(store)
    at_the_last_moment(store, dataset.compact).overwrite(rows(("a", 9)))
    assert content(dataset) == [("a", 9), ("b", 1)]

    def come_and_go() -> None:
        dataset.append(rows(("a", 666)))
        dataset.compact()
        dataset.where("n = 666").delete()
        dataset.compact()

    with pytest.raises(CommitConflictError):
        at_the_last_moment(store, come_and_go).overwrite(rows(("a", 10)))
    assert content(dataset) == [("a", 9), ("b", 1)]


def test_compaction_goes_on_where_its_files_went_and_came_back() -> None:
    store = new_store()
    dataset = new_dataset(store)
    before = content(dataset)

    def go_and_come() -> None:
        dataset.where("p = 'a'").delete()
        dataset.rollback(version=2)

    report = at_the_last_moment(store, go_and_come).compact()

    assert len(report.commits) == 1
    assert content(dataset) == before


def test_rerun_replaces_what_its_run_has_after_a_rollback_meanwhile() -> None:
    store = new_store()
    dataset = new_dataset(store)
    dataset.rerun(rows(("a", 10)), "daily", replace_all=True)
    dataset.rerun(rows(("a", 11)), "daily", replace_all=True)

    at_the_last_moment(store, lambda: dataset.rollback(version=3)).rerun(
        rows(("a", 12)), "daily", replace_all=True
    )

    assert [n for _, n in content(dataset)] == [1, 2, 3, 12, 1]


def test_appends_never_conflict_whatever_happens_meanwhile() -> None:
    store = new_store()
    dataset = new_dataset(store)

    def everything() -> None:
        dataset.overwrite(rows(("a", 8)))
        dataset.rollback(version=2)
        dataset.compact()

    at_the_last_moment(store, everything).append(rows(("a", 4)))

    assert content(dataset) == [("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 1)]


# What other tools do has no entry, or a late one.

MOMENT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
OURS, THEIRS, MORE = "p=a/batch_id=1/one", "p=a/batch_id=2/two", "p=a/batch_id=3/three"


def state_with(*labels: str, version: int = 2) -> State:
    store = new_store()
    new_dataset(store)
    return replace(read_head(store, "d").state.with_labels(labels), version=version)


def entry(operation: str, *, added: tuple[str, ...] = (), removed: tuple[str, ...] = ()) -> Entry:
    return Entry(
        version=3,
        commit_id="c",
        operation=operation,
        committed_at=MOMENT,
        added=added,
        removed=removed,
        partitions=("p=a",),
    )


def conflict_of(
    base: State, *labels: str, since: Entry | None = None, scope: Scope | None = None
) -> CommitConflictError | None:
    now = replace(
        base.with_labels(labels), version=base.version if since is None else since.version
    )
    change = Change(
        operation="overwrite",
        commit_id="mine",
        base_version=base.version,
        scope=scope or ThesePartitions(frozenset({"p=a"})),
    )
    try:
        conflicts.check(base, now, change, () if since is None else (since,))
    except CommitConflictError as exc:
        return exc
    return None


def test_late_entry_of_what_the_base_showed_is_no_conflict() -> None:
    base = state_with(OURS, THEIRS)
    late = entry(FOREIGN, added=(THEIRS,))

    assert conflict_of(base, OURS, THEIRS, since=late) is None


@pytest.mark.parametrize(
    ("late", "labels"),
    [
        (entry(FOREIGN, added=(THEIRS, MORE)), (OURS, THEIRS, MORE)),
        (entry(FOREIGN, added=(MORE,)), (OURS, MORE)),
        (entry(FOREIGN, added=(THEIRS,), removed=(OURS,)), (THEIRS,)),
        # It came by its entry and is gone again, of which there is none yet.
        (entry(FOREIGN, added=(THEIRS,)), (OURS,)),
        (None, (OURS,)),
        (None, (OURS, THEIRS, MORE)),
    ],
)
def test_what_others_did_after_the_base_is_a_conflict(
    late: Entry | None, labels: tuple[str, ...]
) -> None:
    base = state_with(OURS, THEIRS)

    found = conflict_of(base, *labels, since=late)

    assert found is not None
    assert found.partitions == ("p=a",)


def test_compaction_of_files_that_the_base_did_not_have_is_a_conflict() -> None:
    base = state_with(OURS)
    known = entry("compact", removed=(OURS,), added=(MORE,))
    unknown = entry("compact", removed=(OURS, THEIRS), added=(MORE,))

    assert conflict_of(base, MORE, since=known) is None
    assert conflict_of(base, MORE, since=unknown) is not None


def test_rewriting_conflicts_where_a_file_is_gone_and_names_who_took_it() -> None:
    base = state_with(OURS, THEIRS)
    scope = RewrittenFiles(frozenset({OURS}))

    assert conflict_of(base, OURS, since=entry("delete", removed=(THEIRS,)), scope=scope) is None
    found = conflict_of(base, THEIRS, since=entry("delete", removed=(OURS,)), scope=scope)
    assert found is not None
    assert "the delete that made version 3" in found.message


def source(key: str, slot: str, file_id: str | None = None) -> SourceFile:
    return SourceFile(
        key=key,
        location=f"in/{key}.csv",
        slot=slot,
        fingerprint="1",
        size_bytes=1,
        batch_id=1,
        run="daily",
        row_count=1,
        rejected_count=0,
        file_id=file_id,
    )


KNOWN = Sources(files=(source("0", "slot of 0"),))
RESTORED = Restored(commit_id="c9", current={"slot of 0": ""}, after=1)


@pytest.mark.parametrize(
    ("mine", "found", "what"),
    [
        (KNOWN, KNOWN, None),
        (Sources(files=(source("1", "x"),)), Sources(files=(*KNOWN.files, source("2", "y"))), None),
        (
            Sources(files=(source("1", "x"),)),
            Sources(files=(*KNOWN.files, source("2", "x"))),
            "run 'daily', which read in/2.csv",
        ),
        (
            Sources(files=(source("1", "x", "id"),)),
            Sources(files=(*KNOWN.files, source("2", "y", "id"))),
            "run 'daily', which read in/2.csv",
        ),
        (
            Sources(restored=(RESTORED,)),
            Sources(files=(*KNOWN.files, source("2", "slot of 0"))),
            "run 'daily', which read in/2.csv",
        ),
        (
            Sources(files=(source("1", "x"),)),
            Sources(files=KNOWN.files, restored=(RESTORED,)),
            None,
        ),
        (
            Sources(files=(source("1", "slot of 0"),)),
            Sources(files=KNOWN.files, restored=(RESTORED,)),
            "commit c9, which changed",
        ),
    ],
)
def test_raw_files_of_a_slot_that_others_have_read_in_or_restored_are_a_conflict(
    mine: Sources, found: Sources, what: str | None
) -> None:
    base = state_with(OURS)
    change = Change(operation="ingest", commit_id="mine", base_version=base.version)

    if what is None:
        conflicts.check_sources(base, base, change, mine, KNOWN, found)
        return
    with pytest.raises(CommitConflictError, match=what):
        conflicts.check_sources(base, base, change, mine, KNOWN, found)


# A change of the descriptor names what it was made from, or says only what it changes.


class BeforeRead(DelegatingStore):
    """Lets somebody else work before the nth read of the head."""

    def __init__(self, inner: Store, nth: int, act: Callable[[], Any]) -> None:
        super().__init__(inner)
        self.left, self.act = nth, act

    def _look(self, key: str) -> None:
        if "metadata" in key:
            self.left -= 1
            if not self.left:
                self.act()

    def _get(self, key: str) -> Any:
        self._look(key)
        return super()._get(key)

    def _get_if_changed(self, key: str, etag: str) -> Any:
        self._look(key)
        return super()._get_if_changed(key, etag)


def described(*fields: str, index: tuple[str, ...] = (), **properties: str) -> Any:
    schema = pa.schema([("n", pa.int64()), *((one, pa.float64()) for one in fields)])
    return lakebed.DatasetDescriptor(schema=schema, index=index, properties=properties)


EDITS: dict[str, tuple[tuple[str, ...], Callable[[lakebed.Dataset], Any]]] = {
    "build_index": ((), lambda dataset: dataset.indices.build("n")),
    "drop_index": (("n",), lambda dataset: dataset.indices.drop("n")),
    "update by a function": (
        (),
        lambda dataset: dataset.evolve(
            lambda old: lakebed.DatasetDescriptor(
                schema=old.schema, index=old.index, properties={**old.properties, "owner": "ops"}
            )
        ),
    ),
}


@pytest.mark.parametrize("verb", EDITS)
@pytest.mark.parametrize("nth", range(1, 7))
def test_edit_of_the_descriptor_keeps_an_update_that_comes_meanwhile(verb: str, nth: int) -> None:
    index, act = EDITS[verb]
    store = new_store()
    dataset = lakebed.Repository(store).create("d", described(index=index))
    dataset.append([{"n": 1}])

    def update() -> None:
        old = dataset.descriptor
        dataset.evolve(described("price", index=old.index, **old.properties), base=dataset.version)
        dataset.append([{"n": 2, "price": 9.99}])

    reading = BeforeRead(store, nth, update)
    act(lakebed.Repository(reading).open("d"))
    if reading.left > 0:
        update()

    assert dataset.schema.names == ("n", "price")
    assert dataset.arrow(["price"]).column("price").to_pylist() == [None, 9.99]
    if verb == "update by a function":
        assert dataset.descriptor.properties == {"owner": "ops"}
    else:
        assert dataset.descriptor.index == (() if index else ("n",))


def test_update_undoes_no_change_that_came_after_its_snapshot_however_often_one_looks() -> None:
    repository = lakebed.Repository(new_store())
    mine = repository.create("d", described())
    snapshot = mine.snapshot()
    repository.open("d").evolve(lambda _: described("price"))
    mine.append([{"n": 1, "price": 2.5}])
    mine.arrow()
    assert mine.schema.names == ("n", "price")  # has no influence on the base
    assert snapshot.schema.names == ("n",)

    with pytest.raises(CommitConflictError, match="the update that made version 1") as caught:
        mine.evolve(described("weight"), base=snapshot)

    assert (caught.value.expected, caught.value.actual) == (0, 2)
    assert mine.arrow().to_pylist() == [{"n": 1, "price": 2.5}]
    mine.evolve(described("price", "weight"), base=mine.snapshot())
    assert repository.open("d").schema.names == ("n", "price", "weight")


def test_descriptor_without_a_base_is_refused_with_the_ways_to_do_it() -> None:
    dataset = lakebed.Repository(new_store()).create("d", described())

    with pytest.raises(InvalidInputError, match="with a descriptor alone") as caught:
        dataset.evolve(described("price"))

    assert "lambda old" in (caught.value.hint or "")
    assert "base=snapshot" in (caught.value.hint or "")
    assert dataset.version == 0
    dataset.evolve(lambda _: described("price"))
    assert dataset.schema.names == ("n", "price")


def test_update_that_went_back_meanwhile_is_a_conflict_too() -> None:
    repository = lakebed.Repository(new_store())
    mine, other = repository.create("d", described()), repository.open("d")
    other.evolve(described("price"), base=0)
    other.evolve(described(), base=1)

    with pytest.raises(CommitConflictError, match="the update that made version 2"):
        mine.evolve(described("weight"), base=0)


@pytest.mark.parametrize("form", ["version", "commit", "plan", "snapshot", "at"])
def test_update_names_its_base(form: str) -> None:
    repository = lakebed.Repository(new_store())
    dataset = repository.create("d", described())
    dataset.append([{"n": 1}])

    def base() -> Any:
        return {
            "version": lambda: dataset.version,
            "commit": lambda: dataset.history()[-1],
            "plan": dataset.plan,
            "snapshot": dataset.snapshot,
            "at": lambda: dataset.at(version=dataset.version),
        }[form]()

    early = base()
    dataset.evolve(described("price"), base=base())

    with pytest.raises(CommitConflictError, match="the update that made version 2"):
        dataset.evolve(described("weight"), base=early)
    with pytest.raises(CommitConflictError, match="the update that made version 2"):
        dataset.evolve(lambda _: described("weight"), base=early)
    dataset.evolve(described("price", "weight"), base=base())

    assert dataset.schema.names == ("n", "price", "weight")


def test_equal_descriptor_makes_no_version() -> None:
    dataset = lakebed.Repository(new_store()).create("d", described())
    dataset.evolve(described("price"), base=0)
    dataset.append([{"n": 1}])

    assert dataset.evolve(described("price"), base=0).version == 2


def test_edit_that_the_rules_do_not_allow_changes_nothing() -> None:
    dataset = lakebed.Repository(new_store()).create("d", described("price"))

    def edit(old: lakebed.DatasetDescriptor) -> lakebed.DatasetDescriptor:
        return lakebed.DatasetDescriptor(
            schema=pa.schema([("n", pa.int64()), ("price", pa.string())])
        )

    with pytest.raises(InvalidInputError):
        dataset.evolve(edit)
    assert dataset.version == 0


def test_edit_gives_up_where_others_keep_updating() -> None:
    store = new_store()
    dataset = lakebed.Repository(store).create("d", described())
    turn = iter(range(100))

    class Always(DelegatingStore):
        def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
            dataset.evolve(lambda old: described(turn=str(next(turn))))
            return super()._replace(key, data, if_match=if_match)

    with pytest.raises(LakebedError, match="Both change the descriptor"):
        lakebed.Repository(Always(store)).open("d").evolve(lambda old: described(owner="me"))
    assert "owner" not in dataset.descriptor.properties

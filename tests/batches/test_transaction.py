"""A transaction reads one version, and what it writes is one commit or nothing."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import operator
import sys
import uuid
from collections.abc import Callable
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from upkeep_lake import Interfering
from writing_calls import writing_calls

import lakebed
from lakebed import Commit, Dataset, DatasetDescriptor, Repository, View, by
from lakebed.batches import dataset_transaction as batches_transaction
from lakebed.batches.dataset_transaction import DatasetTransaction
from lakebed.errors import (
    CommitConflictError,
    InvalidInputError,
    LakebedError,
    PredicateError,
    ReadOnlyError,
    SchemaMismatchError,
    StorageError,
)
from lakebed.groups.dataset_group import DatasetGroup
from lakebed.state import transaction as state_transaction
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import FailingStore

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])


def rows(*pairs: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"p": p, "n": n} for p, n in pairs]


def content(dataset: lakebed.View) -> list[tuple[str, int]]:
    return sorted((row["p"], row["n"]) for row in dataset.arrow().to_pylist())


def keys(store: Store) -> set[str]:
    return {info.key for info in store.list("")}


@pytest.fixture
def store() -> Store:
    return MemoryStore(uuid.uuid4().hex)


@pytest.fixture
def dataset(store: Store) -> Dataset:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("p")], index=["n"])
    dataset = Repository(store).create("d", descriptor)
    dataset.append(rows(("a", 1), ("a", 2), ("b", 1)), run="first")
    return dataset


def transact(dataset: Dataset, act: Callable[[DatasetTransaction], object]) -> Commit | None:
    with dataset.transaction() as t:
        act(t)
    return t.commit


BEFORE = [("a", 1), ("a", 2), ("b", 1)]


def test_reads_show_the_snapshot_and_writes_become_one_commit(dataset: Dataset) -> None:
    with dataset.transaction() as t:
        dataset.append(rows(("c", 1)))
        assert t.version == 1
        assert content(t.where("p <> 'c'")) == BEFORE
        edited = [row | {"n": row["n"] * 10} for row in t.where("p = 'a'").kite.reader()]
        t.overwrite(edited)
        t.append(rows(("a", 5)))
        assert t.delete(t.where("p = 'b'")) == 1
        t.append(rows(("b", 6), ("d", 7)))
        assert content(t.where("p = 'a'")) == [("a", 1), ("a", 2)]
        assert dataset.version == 2

    assert t.commit == dataset.history()[-1]
    assert (t.commit.operation, t.commit.version, t.commit.row_count) == ("transaction", 3, 5)
    assert t.commit.partitions == ("p=a", "p=b", "p=d")
    assert len({key.split("batch_id=")[1].split("/")[0] for key in t.commit.files_added}) == 1
    assert content(dataset) == [("a", 5), ("a", 10), ("a", 20), ("b", 6), ("c", 1), ("d", 7)]
    assert content(dataset.where("n = 6")) == [("b", 6)]
    assert dataset.check().problems == ()


@pytest.mark.parametrize("spoil", ["append", "delete", "rollback", "came and went"])
def test_commit_that_changed_what_was_read_is_a_conflict_and_nothing_is_left(
    store: Store, dataset: Dataset, spoil: str
) -> None:
    dataset.append(rows(("b", 9)))
    before = keys(store)
    written: set[str] = set()

    def act(t: DatasetTransaction) -> None:
        total = sum(row["n"] for row in t.where("p = 'b'").kite.reader())
        t.append(rows(("sums", total)))
        written.update(keys(store) - before)
        if spoil == "append":
            dataset.append(rows(("b", 2)))
        elif spoil == "delete":
            dataset.where("n = 9").delete()
        elif spoil == "rollback":
            dataset.rollback(version=1)
        else:
            dataset.append(rows(("b", 2)))
            dataset.rollback(version=2)

    t = dataset.transaction()
    with pytest.raises(CommitConflictError) as caught, t:
        act(t)

    last = dataset.history()[-1]
    assert f"the {last.operation} that made version {last.version}" in caught.value.message
    assert caught.value.partitions == ("p=b",)
    assert t.commit is None
    assert content(dataset.where("p = 'sums'")) == []
    assert written
    assert not written & keys(store)


def test_commits_where_nothing_was_read_and_compactions_are_none(dataset: Dataset) -> None:
    dataset.append(rows(("b", 9)))
    with dataset.transaction() as t:
        t.append(rows(("sums", t.where("p = 'b'").count())))
        dataset.append(rows(("a", 2)))
        dataset.compact()

    assert content(dataset.where("p = 'sums'")) == [("sums", 2)]


def test_every_way_of_reading_counts(dataset: Dataset) -> None:
    ways: list[Any] = [
        lambda view: view.arrow(),
        lambda view: view.record_batches().read_all(),
        lambda view: view.pandas(),
        lambda view: view.count(),
        lambda view: list(view.kite.reader()),
        lambda view: view.kite.is_empty(),
        lambda view: view.plan(),
        lambda view: view.kite.covering_partitions(),
        lambda view: view.kite.with_("n", 1).count(),
    ]
    for way in ways:

        def act(t: DatasetTransaction, way: Any = way) -> None:
            way(t.where("p = 'a'"))
            t.append(rows(("z", 1)))
            dataset.append(rows(("a", 3)))

        with pytest.raises(CommitConflictError):
            transact(dataset, act)
    assert content(dataset.where("p = 'z'")) == []


def test_update_of_the_schema_meanwhile_does_not_hinder_it(dataset: Dataset) -> None:
    wider = SCHEMA.append(pa.field("more", pa.int64()))
    with dataset.transaction() as t:
        t.append(rows(("a", t.count())))
        dataset.evolve(
            lambda old: DatasetDescriptor(schema=wider, partition_by=old.partition_by, index=["n"])
        )

    assert dataset.schema.names[-1] == "more"
    assert content(dataset) == sorted([*BEFORE, ("a", 3)])


def test_promotion_meanwhile_is_a_conflict_for_what_was_read(store: Store) -> None:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=[by.dimension("p", ["a"])])
    dataset = Repository(store).create("pings", descriptor)
    dataset.append(rows(("a", 1)))

    def act(t: DatasetTransaction) -> None:
        t.append(rows(("a", t.where("p = 'b'").count())))
        dataset.dimensions.promote({"p": ["a", "b"]})  # moves nothing
        dataset.append(rows(("b", 1)))  # to a partition that was not asked for

    with pytest.raises(CommitConflictError):
        transact(dataset, act)

    assert content(dataset) == [("a", 1), ("b", 1)]


def test_error_leaves_nothing(store: Store, dataset: Dataset) -> None:
    before = keys(store)

    def act(t: DatasetTransaction) -> None:
        t.append(rows(("a", 3)))
        t.delete(t.where("p = 'b'"))
        t.overwrite(rows(("c", 1)))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        transact(dataset, act)

    assert dataset.version == 1
    assert keys(store) == before


def test_call_that_is_refused_writes_nothing_and_the_others_count(
    store: Store, dataset: Dataset
) -> None:
    with dataset.transaction() as t:
        t.append(rows(("c", 1)))
        written = keys(store)
        with pytest.raises(SchemaMismatchError):
            t.append([{"p": "c", "n": "text"}])
        with pytest.raises(InvalidInputError, match="lies outside the view"):
            t.overwrite(rows(("b", 1)), t.where("p = 'a'"))
        with pytest.raises(PredicateError, match="not aligned"):
            t.overwrite([], t.where("n = 1"))
        with pytest.raises(InvalidInputError, match="the partitions to replace are unknown"):
            t.overwrite([])
        with pytest.raises(PredicateError, match="Unknown column 'q'"):
            t.delete("q = 'a'")
        assert keys(store) == written

    assert content(dataset) == sorted([*BEFORE, ("c", 1)])


@pytest.mark.parametrize("second", ["overwrite", "overwrite of a view", "delete"])
@pytest.mark.parametrize("first", ["append", "overwrite", "empty view", "delete"])
def test_what_was_written_before_cannot_be_replaced(
    store: Store, dataset: Dataset, first: str, second: str
) -> None:
    with dataset.transaction() as t:
        if first == "append":
            t.append(rows(("a", 9)))
        elif first == "overwrite":
            t.overwrite(rows(("a", 9)))
        elif first == "empty view":
            t.overwrite([], t.where("p = 'a'"))
        else:
            t.delete(t.where("p = 'a' AND n = 1"))
        written = keys(store)
        if (first, second) == ("empty view", "overwrite of a view"):
            t.overwrite([], t.where("p = 'a'"))  # says the same again
        else:
            acts: dict[str, Callable[[], object]] = {
                "overwrite": lambda: t.overwrite(rows(("a", 8))),
                "overwrite of a view": lambda: t.overwrite([], t.where("p = 'a'")),
                "delete": lambda: t.delete(t.where("p = 'a' AND n = 2")),
            }
            with pytest.raises(InvalidInputError, match="already written to p=a"):
                acts[second]()
        assert keys(store) == written
        t.overwrite(rows(("b", 8)))  # another partition

    expected = {
        "append": [("a", 1), ("a", 2), ("a", 9)],
        "overwrite": [("a", 9)],
        "empty view": [],
        "delete": [("a", 2)],
    }
    assert content(dataset) == [*expected[first], ("b", 8)]


def test_two_transactions_that_read_what_the_other_writes_do_not_both_commit(
    dataset: Dataset,
) -> None:
    def act(one: DatasetTransaction) -> None:
        one.append(rows(("a", one.where("p = 'b'").count())))
        transact(dataset, lambda t: t.append(rows(("b", t.where("p = 'a'").count()))))

    with pytest.raises(CommitConflictError):
        transact(dataset, act)

    assert dataset.version == 2
    assert content(dataset) == sorted([*BEFORE, ("b", 2)])


def test_transaction_that_writes_nothing_commits_nothing(store: Store, dataset: Dataset) -> None:
    before = keys(store)

    with dataset.transaction() as t:
        assert t.count() == 3
        assert t.delete(t.where("n = 77")) == 0

    assert (t.commit, dataset.version) == (None, 1)
    assert keys(store) == before


def test_it_is_used_once_and_within_with(dataset: Dataset) -> None:
    t = dataset.transaction()
    with pytest.raises(InvalidInputError, match=r"not open.*with `with`"):
        t.append(rows(("a", 3)))
    with t:
        t.append(rows(("a", 3)))
    with pytest.raises(InvalidInputError, match="over"):
        t.append(rows(("a", 4)))
    with pytest.raises(InvalidInputError, match="started before"), t:
        pass
    assert repr(t) == "<Transaction on 'd' at version 1>"
    assert content(dataset) == sorted([*BEFORE, ("a", 3)])


def test_views_of_it_are_for_reading(dataset: Dataset) -> None:
    with dataset.transaction() as t:
        view = t.where("p = 'a'")
        for act in (view.delete, view.kite.writer, view.kite.signal_ready, lambda: view.append([])):
            with pytest.raises(ReadOnlyError, match="snapshot of a transaction"):
                act()
    with pytest.raises(ReadOnlyError, match="older state"):
        dataset.at(version=1).transaction()


def test_it_completes_no_verb_that_it_refuses_and_names_those_that_it_has(dataset: Dataset) -> None:
    with dataset.transaction() as t:
        assert {"append", "overwrite", "delete", "where", "arrow", "version"} <= set(dir(t))
        assert not {"merge", "upsert", "update_rows"} & set(dir(t))
        view = t.where("p = 'a'")
        assert not {"append", "overwrite", "delete", "merge", "upsert", "writer"} & set(dir(view))
        for act in (t.merge, view.merge, t.upsert):
            with pytest.raises(ReadOnlyError) as caught:
                act([], "n")
            assert "t.append(data), t.overwrite(data, view), t.delete(view)" in caught.value.hint
            assert "call them on the dataset" in caught.value.hint


ARGUMENTS: dict[str, Any] = {
    "on": "n",
    "run": "r",
    "column": "n",
    "descriptor": lambda old: old,
    "allowed": {},
    "table": "db.t",
    "reason": "r",
    "batch_id": 1,
    "format": "csv",
    "kind": "hive",
}


@pytest.mark.parametrize("pin", ["at", "snapshot"])
def test_pinned_dataset_completes_exactly_the_verbs_that_it_does_not_refuse(
    dataset: Dataset, pin: str
) -> None:
    pinned = dataset.at(version=1) if pin == "at" else dataset.snapshot()
    hidden = set(dir(dataset)) - set(dir(pinned))
    shown = {name for name in dir(pinned) if callable(getattr(pinned, name)) and name[0] != "_"}

    def call(name: str) -> None:
        verb = operator.attrgetter(name)(pinned)
        named = {
            parameter.name: ARGUMENTS.get(parameter.name, [])
            for parameter in inspect.signature(verb).parameters.values()
            if parameter.kind is not parameter.VAR_POSITIONAL
            and (parameter.default is parameter.empty or parameter.name in ("batch_id", "view"))
        }
        verb(**(named | {"view": pinned} if "view" in named else named))

    assert not set(dir(pinned)) - set(dir(dataset))
    groups = {name for name in hidden if isinstance(getattr(pinned, name), DatasetGroup)}
    calls = {f"{name}.{call}" for name in groups for call in dir(getattr(pinned, name))}
    calls = {name for name in calls if "._" not in name}
    assert {"staged.add", "dimensions.promote"} <= calls
    for name in sorted((hidden - groups) | calls):
        with pytest.raises(ReadOnlyError):
            call(name)
    for name in sorted(shown - {"spark"}):
        with contextlib.suppress(LakebedError, TypeError):
            try:
                call(name)
            except ReadOnlyError:
                pytest.fail(f"{name} is completed, and refused: add it to _NOT_OF_PINNED.")
    of_views = {name for name in hidden if hasattr(View, name)}
    assert set(dir(dataset.where("n > 0"))) - set(dir(pinned.where("n > 0"))) == of_views
    reading = {"arrow", "at", "count", "diff", "history", "plan", "schema", "snapshot", "where"}
    assert reading <= set(dir(pinned))
    writing = {"append", "cleanup", "compact", "delete", "merge", "rerun", "evolve", "upsert"}
    assert writing <= hidden


def test_rows_of_runs_stay_of_their_runs(dataset: Dataset) -> None:
    with dataset.transaction() as t:
        t.delete(t.where("n = 2"))
        t.append(rows(("a", 3)))

    dataset.rerun(rows(("a", 4)), "first", replace_all=True)

    assert content(dataset) == [("a", 3), ("a", 4)]


def test_cap_of_a_dimension_counts_what_the_transaction_has_written(store: Store) -> None:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=[by.dimension("p", "*", cap=2)])
    dataset = Repository(store).create("capped", descriptor)

    with dataset.transaction() as t:
        t.append(rows(("a", 1)))
        t.append(rows(("b", 1)))
        t.append(rows(("c", 1)))

    assert [one.path for one in dataset.inspect.partitions()] == [
        "p_dimension=OTHER",
        "p_dimension=a",
        "p_dimension=b",
    ]
    assert [one.dimension for one in t.commit.caught] == ["p_dimension"]


@pytest.mark.thorough
@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize(
    ("name", "nth"),
    [
        (name, nth)
        for name, last in (("create", 1), ("put", 7), ("replace", 2))
        for nth in range(1, last + 1)
    ],
)
def test_it_happens_once_or_not_at_all_on_a_failing_store(
    store: Store, dataset: Dataset, name: Any, nth: int, landed: bool
) -> None:
    lost = StorageError("The answer was lost.", retryable=True)
    failing = FailingStore(store, fail_on=name, nth=nth, landed=landed, error=lost)
    quick = lakebed.CommitOptions(deadline_s=0.15, first_wait_ms=1, longest_wait_ms=5)
    failure = None
    try:
        with Repository(failing).open("d").with_options(commit=quick).transaction() as t:
            t.delete(t.where("n = 2"))
            t.append(rows(("c", 3)))
    except LakebedError as exc:
        failure = exc

    assert failing.has_failed
    done = [("a", 1), ("b", 1), ("c", 3)]
    assert content(dataset) == (done if failure is None else BEFORE)
    assert dataset.version == (2 if failure is None else 1)
    with dataset.transaction() as t:
        t.delete(t.where("n = 2"))
        t.append(rows(("c", 4)))
    assert ("c", 4) in content(dataset)


@pytest.mark.spark
def test_frames_of_its_views_are_of_the_snapshot(spark: Any, tmp_path: Any) -> None:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("p")])
    dataset = lakebed.open_repository(tmp_path).create("d", descriptor)
    dataset.append(rows(("a", 1), ("b", 1)))

    with dataset.transaction() as t:
        frame = t.where("p = 'a'").spark(spark)
        dataset.append(rows(("b", 2)))
        t.overwrite(frame.selectExpr("p", "n + 10 AS n"))

    def act(t: DatasetTransaction) -> None:
        frame = t.where("p = 'a'").spark(spark)
        dataset.append(rows(("a", 2)))
        t.append(frame)

    with pytest.raises(CommitConflictError):
        transact(dataset, act)

    assert content(dataset) == [("a", 2), ("a", 11), ("b", 1), ("b", 2)]


def increment(repository: Repository) -> bool:
    """Add one to a counter; False if somebody else was faster."""
    dataset = repository.open("d")
    try:
        with dataset.transaction() as t:
            (row,) = t.where("p = 'c'").kite.reader()
            t.overwrite([row | {"n": row["n"] + 1}])
    except CommitConflictError:
        return False
    return True


def test_of_two_increments_none_is_lost_wherever_the_other_comes_in_between(
    store: Store, dataset: Dataset
) -> None:
    dataset.append(rows(("c", 0)))
    calls = writing_calls(store, increment)
    acknowledged = 1

    for place in range(len(calls)):
        seen = iter(range(len(calls)))
        others: list[bool] = []
        between = Interfering(
            store,
            lambda operation, key, seen=seen, place=place: next(seen, None) == place,
            lambda others=others: others.append(increment(Repository(store))),
        )
        acknowledged += increment(Repository(between)) + sum(others)
        assert others == [True]
        assert content(dataset.where("p = 'c'")) == [("c", acknowledged)]
    assert acknowledged == 1 + len(calls)  # the other one was faster, each time


def interrupted_at(step: int) -> Callable[[FrameType, str, Any], Any]:
    """Return a tracer that interrupts the code of transactions before its nth line, if it has it."""
    left = step

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return on_line

    def on_call(frame: FrameType, event: str, _: Any) -> Any:
        return on_line if frame.f_code.co_filename in TRACED else None

    return on_call


TRACED = {module.__file__ for module in (batches_transaction, state_transaction)}


@pytest.mark.parametrize("call", ["append", "overwrite", "delete"])
def test_a_write_that_an_interrupt_breaks_off_is_not_committed_whoever_catches_it(
    call: str,
) -> None:
    calls: dict[str, Callable[[DatasetTransaction], object]] = {
        "append": lambda t: t.append(rows(("c", 1))),
        "overwrite": lambda t: t.overwrite(rows(("a", 9))),
        "delete": lambda t: t.delete(t.where("p = 'a' AND n = 1")),
    }
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("p")])
    refused = 0
    for step in itertools.count(1):
        dataset = Repository(MemoryStore(uuid.uuid4().hex)).create("d", descriptor)
        dataset.append(rows(*BEFORE))
        before, is_interrupted, errors = sys.gettrace(), False, []
        try:
            with dataset.transaction() as t:
                t.append(rows(("d", 1)))
                sys.settrace(interrupted_at(step))
                try:
                    calls[call](t)
                except KeyboardInterrupt:
                    is_interrupted = True
                finally:
                    sys.settrace(before)
        except InvalidInputError as error:
            errors.append(error.message)
        if not is_interrupted:
            assert t.commit is not None
            break
        if errors:
            assert errors[0].startswith("An interrupt has stopped a write")
            refused += 1
        # Where it comes before the write has begun, the rest is whole.
        assert content(dataset) == (BEFORE if errors else [*BEFORE, ("d", 1)])
    assert refused > 10

"""Conflicts are the same from the entries of the history as from the labels of all files."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from unittest import mock

import pyarrow as pa
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import by
from lakebed.errors import CommitConflictError
from lakebed.model.keys import partition_of_label
from lakebed.model.predicate import TRUE, Comparison, Op
from lakebed.state import conflicts
from lakebed.state.history import Entry
from lakebed.state.reader import read_head
from lakebed.state.scope import (
    MergedFiles,
    Nothing,
    PromotedFiles,
    ReroutedFiles,
    RewrittenFiles,
    RunFiles,
    Scope,
    TheseFiles,
    ThesePartitions,
    Unchanged,
    WholeView,
)
from lakebed.state.state import Change, State, apply
from lakebed.store import open_store

DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=pa.schema([("p", pa.string()), ("v", pa.int64())]), partition_by=[by.identity("p")]
)
START = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
PARTITIONS = ["p=a", "p=b", "p=c"]
REWRITING = ["delete", "compact", "merge"]
BRIEF = "p=b/part-of-another-tool"

_names = itertools.count()


def empty_state() -> State:
    store = open_store(f"memory://entries-{next(_names)}")
    lakebed.Repository(store).create("d", DESCRIPTOR)
    return read_head(store, "d").state


EMPTY = empty_state()
VIEWS = [
    WholeView(predicate, EMPTY.layout.partition_level_types)
    for predicate in (TRUE, Comparison("p", Op.EQ, "a"), Comparison("p", Op.GT, "a"))
]


def committed(state: State, change: Change) -> tuple[State, Entry]:
    after, entry = apply(state, change, START)
    after.trust_digest()
    return after, entry


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[State], list[Entry]]:
    """Return the states after each commit of a random history, and the entries between them."""
    states, entries = [EMPTY], list[Entry]()
    gone: list[str] = []  # what a rollback can bring back
    for number in range(1, draw(st.integers(1, 9)) + 1):
        state = states[-1]
        operation = draw(st.sampled_from(["append", "append", "overwrite", "rollback", *REWRITING]))
        places = draw(st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3))
        added = tuple(f"{place}/batch_id={number}/part-{file}" for file, place in enumerate(places))
        scope: Scope = Nothing()
        if operation == "overwrite":
            scope = ThesePartitions(frozenset(places))
        elif operation in REWRITING and state.labels:
            some = draw(st.sets(st.sampled_from(state.labels), min_size=1))
            scope = RewrittenFiles(frozenset(some))
            homes = dict.fromkeys(map(partition_of_label, sorted(some)))
            added = tuple(f"{home}/batch_id={number}/part-0" for home in homes)
        elif operation == "rollback" and gone:
            live = set(state.labels)
            added = tuple(label for label in dict.fromkeys(gone) if label not in live)
        change = Change(
            operation=operation,
            commit_id=f"c{number}",
            base_version=state.version,
            batch_id=number,
            run=draw(st.sampled_from([None, "daily"])),
            added=added,
            scope=scope,
        )
        after, entry = committed(state, change)
        gone += entry.removed
        states.append(after)
        entries.append(entry)
    return states, entries


@st.composite
def scopes(draw: st.DrawFn, states: list[State], first: int) -> Scope:
    """Return a scope that a commit can have whose files were chosen from a base or later states.

    Another tool may have shown a file in between, without an entry.
    """
    known = sorted({label for state in states[first:] for label in state.labels} | {BRIEF})
    some = frozenset(draw(st.sets(st.sampled_from(known))))
    others = frozenset(draw(st.sets(st.sampled_from(known))))
    places = frozenset(draw(st.sets(st.sampled_from(PARTITIONS))))
    view = draw(st.sampled_from(VIEWS))
    unchanged = Unchanged(view.predicate, view.types)
    return draw(
        st.sampled_from(
            [
                Nothing(),
                ThesePartitions(places),
                view,
                unchanged,
                TheseFiles.of(some),
                RewrittenFiles(some),
                PromotedFiles(some, levels=places, known=others),
                ReroutedFiles(some, known=others),
                MergedFiles(some, matched=others, partitions=unchanged, known=others - some),
                RunFiles("daily", partitions=places),
            ]
        )
    )


def outcome(
    base: State, now: State, scope: Scope, entries: list[Entry]
) -> tuple[str, tuple[str, ...]] | None:
    change = Change(
        operation="overwrite",
        commit_id="mine",
        base_version=base.version,
        batch_id=99,
        scope=scope,
    )
    try:
        conflicts.check(base, now, change, entries)
    except CommitConflictError as exc:
        return exc.message, exc.partitions
    return None


def as_if_changed_by_others(state: State) -> State:
    """Return the same state with a digest of other labels, for which only labels count."""
    return dataclasses.replace(state, digest="of other labels")


@given(st.data())
@examples(3)
def test_entries_and_labels_lead_to_the_same_conflicts(data: st.DataObject) -> None:
    states, entries = data.draw(histories())
    first = data.draw(st.integers(0, len(entries)))
    base, now, since = states[first], states[-1], entries[first:]
    scope = data.draw(scopes(states, first))

    from_entries = outcome(base, now, scope, since)

    assert from_entries == outcome(
        as_if_changed_by_others(base), as_if_changed_by_others(now), scope, since
    )
    if any(entry.operation != "compact" for entry in since):
        everything = outcome(base, now, ThesePartitions(frozenset(PARTITIONS)), since)
        assert everything is not None, "some commit has touched a partition"


@given(st.data())
def test_what_another_tool_has_changed_is_found_by_the_labels(data: st.DataObject) -> None:
    states, entries = data.draw(histories())
    first = data.draw(st.integers(0, len(entries)))
    theirs = "p=b/part-theirs"
    now = states[-1].with_labels((*states[-1].labels, theirs))

    found = outcome(states[first], now, ThesePartitions(frozenset({"p=b"})), entries[first:])

    assert found is not None
    assert "a change by another tool" in found[0]


def test_no_label_is_compared_if_commits_alone_have_changed_files() -> None:
    base, _ = committed(EMPTY, Change(commit_id="b", batch_id=1, added=("p=a/batch_id=1/part-1",)))
    now, entry = committed(
        base, Change(commit_id="n", batch_id=2, added=("p=b/batch_id=2/part-2",))
    )
    asked = mock.PropertyMock(side_effect=AssertionError("the labels of all files were read"))

    with mock.patch.object(State, "labels", asked, create=True):
        assert outcome(base, now, ThesePartitions(frozenset({"p=c"})), [entry]) is None
        asked.assert_not_called()

"""Succession: the state that comes after another one by a change, with its segments written."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa

from lakebed.model.totals import known_total
from lakebed.state import file_table, history, index_files, runs
from lakebed.state.history import Entry
from lakebed.state.list_codecs import merged_ends
from lakebed.state.lists import Edit, column_of
from lakebed.state.scope import RunFiles, Scope
from lakebed.state.state import Change, State, adopt, apply
from lakebed.state.terms import Terms
from lakebed.store.base import Store
from lakebed.store.segments import Segment


def successor(store: Store, state: State, terms: Terms, written: list[str]) -> tuple[State, Entry]:
    """Return the state after a change, to be named by the head, and the entry of the change.

    Args:
        store: Where the dataset is.
        state: What the head says.
        terms: With the change, already checked for conflicts.
        written: Takes the key of each segment before it is written.

    Cost:
        One PUT for the history, one for the runs if there are any to note, what the lists cost
        that have become too long, and the index files of other tools that are kept up. Of what
        replaces files also the file table, of which there are few objects.
    """
    entries = []
    foreign = foreign_entry(store, state)
    if foreign is not None:
        entries.append(foreign)
        state = replace(state, version=foreign.version, committed_at=foreign.committed_at)
    before, own = state, []
    now = dt.datetime.now(dt.UTC)
    changes = (*terms.change.earlier, _change_for(store, state, terms))
    for change in changes:
        following, entry = apply(state, change, now)
        entry = _counted(store, state, entry)
        own.append(entry)
        state = following
    if any(entry.added or entry.removed for entry in own):
        indices = index_files.kept_up(store, before, state, changes, own, written)
        state = replace(state, indices=indices)
    return _with_segments(store, state, [*entries, *own], written), entry


def _counted(store: Store, state: State, entry: Entry) -> Entry:
    """Return an entry with the rows of the files that it took out, where nothing else tells them.

    Args:
        store: Where the dataset is.
        state: Before the change.
        entry: Of the change.
    """
    is_told = entry.removed_row_count is not None or entry.operation in runs.REWRITING
    if not entry.removed or is_told:
        return entry
    labels = pa.array(entry.removed, pa.large_string())
    known = file_table.find(store, state.lists.files, labels, {}).row_count
    return msgspec.structs.replace(entry, removed_row_count=known_total(known.to_pylist()))


def foreign_entry(store: Store, state: State) -> Entry | None:
    """Return the entry for what other tools have changed since our last commit, if they have."""
    if not state.is_changed_by_others:
        return None
    past = history.replay(history.read(store, state.lists.history), state.version)
    return adopt(state, past.labels, dt.datetime.now(dt.UTC), uuid.uuid4().hex)


def _change_for(store: Store, state: State, terms: Terms) -> Change:
    """Return the change without what it knows of fields that are others by now.

    A field that was dropped and added again has its old name, and in files of the base's schema
    other values than the new field. Index files are of one schema, as `apply` has it.
    """
    base, change = terms.base.lineage.number, terms.change

    def known(edit: Edit) -> Edit:
        column = column_of(edit.name)
        is_other = column is not None and state.lineage.lacks(column, base)
        return replace(edit, added=()) if is_other else edit

    indices = {
        column: key
        for column, key in change.indices.items()
        if state.lineage.number == base and column in state.descriptor.index
    }
    return replace(
        change,
        edits=tuple(map(known, change.edits)),
        indices=indices,
        scope=_scope_for(store, state, change.scope),
    )


def _scope_for(store: Store, state: State, scope: Scope) -> Scope:
    if not isinstance(scope, RunFiles) or not scope.replaces:
        return scope
    known = runs.read(store, state.lists)
    return replace(scope, labels=frozenset(known.files_of(scope.run, state.labels)))


def _with_segments(
    store: Store, state: State, entries: Sequence[Entry], written: list[str]
) -> State:
    """Write down what the commit did, and merge the lists that have become too long."""

    def put(segment: Segment, data: bytes) -> None:
        written.append(segment.key)
        store.put(segment.key, data)

    lists = state.lists
    first = Segment.new(history.folder(state.name), len(entries), history.SUFFIX)
    put(first, history.encode(entries))
    noted = runs.to_note(store, lists, entries)
    lists = replace(lists, history=(*lists.history, first))
    if noted.batches or noted.carried:
        segment = runs.new_segment(state.name, noted)
        put(segment, runs.encode(noted))
        lists = replace(lists, runs=(*lists.runs, segment))
    return replace(state, lists=merged_ends(store, replace(state, lists=lists), written))

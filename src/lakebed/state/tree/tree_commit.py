"""The commit on a tree: its entry and the facts of its files go into the buffer of the root.

A commit of very many files writes leaves of its own, and states no labels: the root stays small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.state import file_table, history
from lakebed.state.history import REWRITING, Entry
from lakebed.state.lists import FILES
from lakebed.state.state import Change, State
from lakebed.state.tree.directory_order import DirectoryOrder
from lakebed.state.tree.find import TreeFacts, history_of
from lakebed.state.tree.inline import inline
from lakebed.state.tree.leaf_files import FACTS, Files, files_of
from lakebed.state.tree.leaf_merge import LeafOfRun, leaves_of, proved
from lakebed.state.tree.leaf_refs import Ref
from lakebed.state.tree.older_version import facts_then
from lakebed.state.tree.sums import Totals
from lakebed.state.tree.tree_files import TreeFiles, locate
from lakebed.state.tree.tree_root import Gone, Root, RootEntry, Sizes
from lakebed.store.base import Store

SIZES = Sizes()
_COUNTS = ("label", "row_count", "size_bytes")
FACTS_OF_A_FILE = (*_COUNTS, "checksum", "stats")


def entered(
    store: Store,
    before: State,
    after: State,
    change: Change,
    entry: Entry,
    facts: pa.Table | None,
    written: list[str] | None,
) -> tuple[State, Entry]:
    """Enter a commit into the root of a tree.

    Args:
        store: The store that holds the dataset.
        before: The state before the commit.
        after: The state after it, with the files of the one before.
        change: The change that is committed.
        entry: Its record.
        facts: Facts of files that it adds, and of others; None if they are in an object that the
            change names.
        written: Receives the key of each leaf before it is written; None writes no leaf, for a
            state that is only looked at.

    Returns:
        The state with the files after the commit; and the record, with the number of removed rows.

    Raises:
        CorruptMetadataError: A leaf cannot be read, or the root would not balance.

    Cost:
        The leaves whose range the removed files touch; a PUT for each leaf of a large commit.
    """
    if change.erases:
        from lakebed.state.tree.erased_tree import erased

        assert written is not None  # an erasure is never staged
        return erased(store, before, after, change, entry, written)
    tree = before.live
    assert isinstance(tree, TreeFiles)
    if change.leaves:
        from lakebed.state.tree.renewal import Renewal
        from lakebed.state.tree.tree_repair import RebuiltLeaves

        assert written is not None  # a repair is never staged
        new = Renewal(store, before, RebuiltLeaves(change.leaves), written).root()
        tree = replace(tree, root=new)
    order = DirectoryOrder(after.layout.partition_types)
    known = _facts_of(store, before, change, entry.added, facts)
    # A commit may change the partition fields: the leaves so far are in the order before it.
    gone = locate(tree.root, root_entry(entry), tree.leaves, tree.order)
    if entry.removed and entry.removed_row_count is None and entry.operation not in REWRITING:
        lost = _totals_of_removed(tree.root, entry, gone)
        count = None if lost.unknown else lost.rows
        entry = msgspec.structs.replace(entry, removed_row_count=count)

    most = math.inf if written is None else SIZES.inline

    def put(files: Files, level: int) -> tuple[Ref, ...]:
        assert written is not None
        leaves = leaves_of(files, order, SIZES, level=level, run=tree.root.runs)
        put_leaves(store, after.name, leaves, written)
        return tuple(leaf.ref for leaf in leaves)

    stated = root_entry(entry)
    if len(entry.added) > most:
        files = leaf_files(entry.added, known, order, since=entry.version)
        brought = put(files, SIZES.level_of(files.count))
        stated = msgspec.structs.replace(stated, added=(), brought=brought)
        known = known.slice(0, 0)
    # Files in the buffer are always stated as labels.
    held = tree.root.held
    stored = [label for label in entry.removed if label not in held]
    if len(stored) > most:
        removed = tuple(label for label in entry.removed if label in held)
        dropped = put(files_of(stored, order), 0)
        stated = msgspec.structs.replace(stated, removed=removed, dropped=dropped)
    if len(entry.partitions) > most:
        stated = msgspec.structs.replace(stated, partitions=())  # the labels tell them
    root = tree.root.after(stated, inline(known), gone)
    return with_root(after, root, TreeFiles(root, order, tree.leaves)), entry


def with_root(state: State, root: Root, live: TreeFiles) -> State:
    """Return a state with the files and the history of a root."""
    older = [one for one in state.lists.history if not isinstance(one, history.OtherEntries)]
    lists = replace(
        state.lists,
        files=TreeFacts(root, live.order, state.name),
        history=(*older, *history_of(root, state.name)),
    )
    return replace(state, live=live, digest=live.digest, lists=lists, indices={})


def put_leaves(store: Store, dataset: str, leaves: Sequence[LeafOfRun], written: list[str]) -> None:
    """Write leaves, after their bytes were proved to hold the files.

    Cost:
        One PUT each.
    """
    for leaf in leaves:
        sections = proved(leaf)
        key = leaf.ref.key(dataset)
        written.append(key)
        store.put(key, sections.data)


def leaf_files(
    labels: Sequence[str], facts: pa.Table, order: DirectoryOrder, *, since: int | Sequence[int]
) -> Files:
    """Return files in the order of a leaf.

    Args:
        labels: Labels of the files.
        facts: Their facts, in this order, as a file table has them.
        order: The order of the dataset.
        since: The version that added them, or that of each.
    """
    rows, sizes = (facts.column(name).to_pylist() for name in ("row_count", "size_bytes"))
    kept = [name for name in ("checksum", "stats") if name in facts.column_names]
    own = facts.select(kept) if kept else pa.table([pa.nulls(len(labels), pa.string())], FACTS)
    return files_of(labels, order, since=since, rows=rows, sizes=sizes, facts=own)


def root_entry(entry: Entry) -> RootEntry:
    """Return the record of a commit as a root has it, with all labels."""
    return RootEntry(**{name: getattr(entry, name) for name in Entry.__struct_fields__})


def _totals_of_removed(root: Root, entry: Entry, gone: dict[bytes, Gone]) -> Totals:
    totals = root.totals_of([label for label in entry.removed if label in root.held])
    for one in gone.values():
        totals += one.totals
    return totals


def _facts_of(
    store: Store, state: State, change: Change, labels: Sequence[str], facts: pa.Table | None
) -> pa.Table:
    """Return the facts of some files in their order; unknown ones are null.

    Files that the commit brings back were described before: an older version has their facts.
    """
    tables = new_facts(store, change) if facts is None else [facts]
    if len(tables) == 1 and _is_in_order(tables[0], labels):
        return tables[0]  # as for most commits, each of whose attempts asks for them
    if _lacks(tables, labels):
        then = state.version if change.restores is None else change.restores
        for segment in facts_then(store, state, then, labels):
            assert isinstance(segment, file_table.OtherFacts)
            tables.append(segment.read(store, FACTS_OF_A_FILE)[0])
    return facts_in_order(tables, labels)


def new_facts(store: Store, change: Change) -> list[pa.Table]:
    """Return the facts of the files that a change adds, from the objects that it names."""
    segments = [one for edit in change.edits if edit.name == FILES for one in edit.added]
    return [file_table.decode(store.get(one.key).data, one.key) for one in segments]


def _is_in_order(table: pa.Table, labels: Sequence[str]) -> bool:
    given: list[str] = table.column("label").to_pylist()
    return given == list(labels)


def _lacks(tables: Iterable[pa.Table], labels: Sequence[str]) -> bool:
    """Return whether some of the labels have no facts in any of the tables."""
    wanted = pa.array(labels, pa.string())
    for table in tables:
        known = table.column("label").cast(pa.string())
        wanted = wanted.filter(pc.invert(pc.is_in(wanted, value_set=known)))
    return len(wanted) > 0


def facts_in_order(tables: Iterable[pa.Table], labels: Sequence[str]) -> pa.Table:
    """Return the rows of some labels, in their order; those of unknown ones are null."""
    wanted = pa.array(labels, pa.string())
    parts = []
    for table in tables:
        of_table = table.column("label").cast(pa.string())
        some = table.filter(pc.is_in(of_table, value_set=wanted))
        parts += [some] if some.num_rows else []
    if not parts:
        empty = {name: pa.nulls(len(labels), pa.int64()) for name in _COUNTS[1:]}
        columns = {"label": wanted, **empty, "checksum": pa.nulls(len(labels), pa.string())}
        return pa.table(columns)
    known = file_table.joined(parts)
    of_known = known.column("label").cast(pa.string()).combine_chunks()
    return known.take(pc.index_in(wanted, value_set=of_known))

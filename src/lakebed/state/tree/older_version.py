"""Older versions of a tree: the copy of the head that a fold has left, and the commits since."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lakebed.errors import CorruptMetadataError, ObjectNotFoundError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.layout import Folder
from lakebed.model.lineage import Lineage
from lakebed.state import file_table
from lakebed.state.codec import from_document
from lakebed.state.head import HeadFormat, decode_head
from lakebed.state.lists import Segments
from lakebed.state.state import State, descriptor_from
from lakebed.state.tree.directory_order import DirectoryOrder
from lakebed.state.tree.find import StoredLeaves, TreeFacts, read_commits
from lakebed.state.tree.tree_files import TreeFiles, replayed
from lakebed.state.tree.tree_root import Root
from lakebed.store.base import Store
from lakebed.store.segments import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """An older version of a tree.

    Attributes:
        live: Its files.
        facts: Their facts, in place of segments of the file table.
        descriptor: Its descriptor.
        lineage: The lineage of its schema.
        commit_id: Id of the commit that made it.
        committed_at: Time of that commit.
        requests: Number of requests that it took.
    """

    live: TreeFiles
    facts: Sequence[Segment]
    descriptor: DatasetDescriptor
    lineage: Lineage
    commit_id: str
    committed_at: dt.datetime | None
    requests: int


def read_past(store: Store, state: State, version: int) -> Past | None:
    """Read an older version of a tree.

    Args:
        store: The store that holds the dataset.
        state: The current state.
        version: The version, not above the current one.

    Returns:
        The version; None if its head was a document then, so that only the history has it.

    Raises:
        CorruptMetadataError: A copy of the head, or a segment of the history, is lost or damaged.

    Cost:
        A GET for the copy and for each segment of the history since, of which there is one, unless
        the buffer has the commits.
    """
    live = state.live
    if not isinstance(live, TreeFiles) or version < live.root.born:
        return None
    root = live.root
    start = max(copy for copy in root.copies if copy <= version)
    copied, copy = read_copy(store, state.name, start, root.copy_key(state.name, start))
    newer = [one for one in root.history if one.last > start and one.first <= version]
    commits = [one for part in newer for one in read_commits(store, state.name, part)]
    commits += root.buffer
    since = [one for one in commits if start < one.entry.version <= version]
    changed = [one.entry.descriptor for one in since if one.entry.descriptor is not None]
    descriptor, lineage = copied.descriptor, copied.lineage
    if changed:
        descriptor, lineage = descriptor_from(changed[-1], Folder.HISTORY.of(state.name))
    order = DirectoryOrder(copied.as_of(descriptor, lineage).layout.partition_types)
    older = replayed(copy, since, order, StoredLeaves(store, state.name))
    last = since[-1].entry if since else None
    return Past(
        live=older,
        facts=TreeFacts(older.root, order, state.name),
        descriptor=descriptor,
        lineage=lineage,
        commit_id=last.commit_id if last else copied.commit_id,
        committed_at=last.committed_at if last else copied.committed_at,
        requests=1 + len(newer),
    )


def facts_then(store: Store, state: State, version: int, labels: Collection[str]) -> Segments:
    """Return the segments with the facts of files of a tree, by now or in an older version.

    Args:
        store: The store that holds the dataset.
        state: The current state of a tree.
        version: The older version.
        labels: The files whose facts are wanted.

    Cost:
        As `read_past`.
    """
    past = read_past(store, state, version) if version < state.version else None
    segments = state.lists.files if past is None else (*state.lists.files, *past.facts)
    return file_table.segments_of(segments, labels)


def read_copy(store: Store, dataset: str, version: int, key: str) -> tuple[State, Root]:
    """Read the copy of the head that a fold has left at a version.

    Raises:
        CorruptMetadataError: It is lost or damaged, or that of another version.

    Cost:
        One GET.
    """
    try:
        data = store.get(key).data
    except ObjectNotFoundError as exc:
        raise CorruptMetadataError(
            f"The copy {key!r} of the head is missing.",
            hint=f"Versions from {version} on cannot be read, up to the next copy; the current one "
            "can.",
        ) from exc
    state = from_document(decode_head(data, HeadFormat.MSGPACK, key), HeadFormat.MSGPACK, key)
    if not isinstance(state.live, TreeFiles) or (state.name, state.version) != (dataset, version):
        raise CorruptMetadataError(
            f"The copy {key!r} of the head is of {state.name!r}, version {state.version}.",
            hint="Restore the object from a copy; no data file was touched.",
        )
    return state, state.live.root

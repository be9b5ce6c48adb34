"""Sources of the state that a view works on."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import Self

from lakebed.errors import CommitConflictError, VersionNotFoundError
from lakebed.model.layout import Folder
from lakebed.model.predicate import Predicate
from lakebed.state import history
from lakebed.state.metadata_provider import MetadataProvider
from lakebed.state.readable import check_readable, is_readable, kept_files, protected_batches
from lakebed.state.reader import read_head
from lakebed.state.state import Listed, State, descriptor_from
from lakebed.store.base import Store


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state, and the requests that reading it took.

    Attributes:
        is_head: Whether the state is the complete head as it was read, with changes by other tools;
            otherwise it comes from the history, or holds only some files.
    """

    state: State
    requests: int
    is_head: bool = False


class Source:
    """The source of a view's state: the head, which every call reads again, or one fixed version.

    It caches the columns, for conditions and displays. Reads through it do not affect the state that
    a write is checked against.

    Attributes:
        pinned: The version to which all reads are bound; None for the current one.
        metadata: Provider that receives changes of the descriptor, besides the head.
        read_only: Reason why it cannot be written to, and a hint; only if pinned.
    """

    read_only = ("an older state", "Write to the dataset itself, not to a version of it.")

    def __init__(
        self,
        store: Store,
        name: str,
        pinned: Snapshot | None = None,
        metadata: MetadataProvider | None = None,
        columns_of: State | None = None,
    ) -> None:
        self.store = store
        self.name = name
        self.pinned = pinned
        self.metadata = metadata
        self._cached = columns_of if pinned is None else pinned.state

    def load(self) -> Snapshot:
        """Return the state to work on: the current one, unless a version is pinned.

        Cost:
            One GET (two for a msgpack head), or nothing if pinned.
        """
        if self.pinned is not None:
            return self.pinned
        head = read_head(self.store, self.name)
        self._cached = head.state
        return Snapshot(head.state, head.requests, is_head=True)

    def cached(self) -> State:
        """Return a state that may be outdated, for names and types of columns and for displays."""
        return self._cached or self.load().state

    def invalidate(self) -> None:
        """Drop the cached state after a change of the descriptor."""
        self._cached = None if self.pinned is None else self.pinned.state

    def record_read(self, constraint: Predicate) -> None:
        """Record a read; only the source of a transaction does."""

    def on(self, store: Store) -> Self:
        """Return the source of the same dataset on another store, without its provider."""
        other = copy.copy(self)
        other.store, other.metadata = store, None
        return other

    def at_head(self) -> Source:
        """Return a source that is pinned to the current state.

        Cost:
            As `load`.
        """
        return _SnapshotSource(self.store, self.name, self.load())

    def at_version(self, version: int) -> Source:
        """Return a source of one version.

        Raises:
            VersionNotFoundError: The version does not exist, or was cleaned up.

        Cost:
            The history: one GET a segment, of which there are few.
        """
        snapshot = self.load()
        state = snapshot.state
        if version > state.version:
            raise VersionNotFoundError(
                f"Dataset {self.name!r} has no version {version}.",
                hint=f"The last one is {state.version}.",
            )
        if version == state.version and not state.is_changed_by_others:
            return Source(self.store, self.name, snapshot)
        older = self._past_of_tree(snapshot, version)
        if older is not None:
            return older
        entries = history.read(self.store, state.lists.history)
        past = history.replay(entries, version)
        check_readable(state, entries, version)
        return self._past_source(snapshot, past, past.labels)

    def past_state(self, version: int, commit_id: str | None = None) -> State:
        """Return the state of one version, even if its files are no longer kept.

        Args:
            version: The wanted version.
            commit_id: Id of the commit that made it, if known.

        Raises:
            VersionNotFoundError: The version does not exist.
            CommitConflictError: Another commit made it.

        Cost:
            A read of the head; of an older version also the history.
        """
        snapshot = self.load()
        state = snapshot.state
        if version != state.version or state.is_changed_by_others:
            state = self._older(snapshot, version).load().state
        if commit_id not in (None, state.commit_id):
            raise CommitConflictError(
                f"Version {version} of {self.name!r} was made by commit {state.commit_id}, and "
                f"not by {commit_id}.",
                hint="The dataset was created again since, or that was never committed: read it.",
                expected=version,
                actual=snapshot.state.version,
            )
        return state

    def base_state(self, pinned: Snapshot) -> State:
        """Return the state that a write from a pinned state is checked against.

        Raises:
            VersionNotFoundError: The version does not exist.
            CommitConflictError: Another commit made it, or none did, as for a staged batch.

        Cost:
            Nothing for a state that the head listed; else as `past_state`.
        """
        if pinned.is_head:
            return pinned.state
        return self.past_state(pinned.state.version, pinned.state.commit_id)

    def at_batch_alone(self, batch_id: int) -> Source:
        """Return a source of only the files of one batch, as it was committed.

        Raises:
            VersionNotFoundError: The batch does not exist, or a cleanup has given up its files.

        Cost:
            The history: one GET a segment, of which there are few.
        """
        snapshot = self.load()
        state = snapshot.state
        entries = history.read(self.store, state.lists.history)
        committed = [entry for entry in entries if entry.batch_id == batch_id]
        if not committed:
            raise VersionNotFoundError(
                f"Dataset {self.name!r} has no batch {batch_id}.", hint="`batches` lists them."
            )
        (entry,) = committed
        is_protected = batch_id in protected_batches(state)
        if not is_protected and not kept_files(entries, state).labels.issuperset(entry.added):
            check_readable(state, entries, entry.version)
        past = history.replay(entries, entry.version)
        return self._past_source(snapshot, past, entry.added)

    def _older(self, snapshot: Snapshot, version: int) -> Source:
        """Return a source of one version, even if its files are no longer kept."""
        older = self._past_of_tree(snapshot, version)
        if older is not None:
            return older
        entries = history.read(self.store, snapshot.state.lists.history)
        past = history.replay(entries, version)
        return self._past_source(snapshot, past, past.labels)

    def _past_of_tree(self, snapshot: Snapshot, version: int) -> Source | None:
        """Return a source of one version of a tree; None if the history alone has it."""
        state = snapshot.state
        # A cleanup may have deleted what is needed to read the others as those of a tree.
        if not state.is_tree or version > state.version or not is_readable(state, version):
            return None
        from lakebed.state.tree.older_version import read_past

        past = read_past(self.store, state, version)
        if past is None:
            return None
        older = dataclasses.replace(
            state.as_of(past.descriptor, past.lineage),
            live=past.live,
            lists=dataclasses.replace(state.lists, files=past.facts),
            version=version,
            commit_id=past.commit_id,
            committed_at=past.committed_at,
        )
        requests = snapshot.requests + past.requests
        return Source(self.store, self.name, Snapshot(older, requests))

    def _past_source(
        self, snapshot: Snapshot, past: history.PastState, labels: tuple[str, ...]
    ) -> Source:
        state = snapshot.state
        descriptor, lineage = descriptor_from(past.descriptor, Folder.HISTORY.of(self.name))
        older = dataclasses.replace(
            state.as_of(descriptor, lineage),
            live=Listed(labels),
            version=past.entry.version,
            commit_id=past.entry.commit_id,
            committed_at=past.entry.committed_at,
        )
        requests = snapshot.requests + len(state.lists.history)
        return Source(self.store, self.name, Snapshot(older, requests))


class _SnapshotSource(Source):
    """A source that a user has pinned."""

    read_only = ("a snapshot", "Write to the dataset itself, with base=snapshot.")

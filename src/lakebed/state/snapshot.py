"""Where a view gets the state from that it works on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from lakebed.errors import CommitConflictError, VersionNotFoundError
from lakebed.model.layout import Folder
from lakebed.model.predicate import Predicate
from lakebed.model.provider import MetadataProvider
from lakebed.state import history
from lakebed.state.descriptors import descriptor_from
from lakebed.state.readable import check_readable, kept_files, protected_batches
from lakebed.state.reader import read_head
from lakebed.state.state import State
from lakebed.store.base import Store


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state, and the requests that reading it took."""

    state: State
    requests: int


class Source:
    """Where a view gets the state from: the head, each time anew, or one version for good.

    Attributes:
        read_only: What is pinned, and what to do instead of writing to it.
    """

    read_only = ("an older state", "Write to the dataset itself, not to a version of it.")

    def __init__(
        self,
        store: Store,
        name: str,
        pinned: Snapshot | None = None,
        metadata: MetadataProvider | None = None,
    ) -> None:
        self.store = store
        self.name = name
        self.pinned = pinned
        self.metadata = metadata  # to tell of changes of the descriptor, besides the head
        self._seen = pinned
        self._told: State | None = None

    def load(self) -> Snapshot:
        """Return the state to work on: the current one, unless a version is pinned.

        Cost:
            One GET (two for a msgpack head), or nothing if pinned.
        """
        if self.pinned is not None:
            return self.pinned
        head = read_head(self.store, self.name)
        self._seen = Snapshot(head.state, head.requests)
        return self._seen

    def remember(self, snapshot: Snapshot) -> None:
        """Note a state that somebody else has read, to hand it out."""
        self._seen = snapshot
        self._told = snapshot.state

    def tell(self) -> State:
        """Return the state to work on, and note that its descriptor was handed out."""
        self._told = self.load().state
        return self._told

    def told(self) -> State:
        """Return the state whose descriptor was last handed out: what one may have made another of.

        Later reads of rows do not count: nobody need have looked at the descriptor then.
        """
        return self._told or self.tell()

    def note_update(self, state: State) -> None:
        """Note what the caller has made of the descriptor."""
        self._told = state

    def forget(self) -> None:
        """Let what was read before count no more, since the caller has changed the dataset."""
        self._seen = self.pinned

    def note_read(self, constraint: Predicate) -> None:
        """Take note of what is read, where anybody asks for it afterwards."""

    def seen(self) -> State:
        """Return the last state that was read, for checks that need no newer one."""
        return (self._seen or self.load()).state

    def at_version(self, version: int) -> Source:
        """Return a source of one version.

        Raises:
            VersionNotFoundError: There is no such version, or it was cleaned up.

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
        entries = history.read(self.store, state.lists.history)
        past = history.replay(entries, version)
        check_readable(state, entries, version)
        return self._past_source(snapshot, past, past.labels)

    def past_state(self, version: int, commit_id: str | None = None) -> State:
        """Return the state of one version, which need not be readable any more.

        Args:
            version: Which one.
            commit_id: Of the commit that made it, where it is known.

        Raises:
            VersionNotFoundError: There is no such version.
            CommitConflictError: Another commit made it.

        Cost:
            A read of the head; of an older version also the history.
        """
        snapshot = self.load()
        state = snapshot.state
        if version != state.version or state.is_changed_by_others:
            entries = history.read(self.store, state.lists.history)
            past = history.replay(entries, version)
            state = self._past_source(snapshot, past, past.labels).load().state
        if commit_id not in (None, state.commit_id):
            raise CommitConflictError(
                f"Version {version} of {self.name!r} was made by commit {state.commit_id}, and "
                f"not by {commit_id}.",
                hint="The dataset was created again since, or that was never committed: read it.",
                expected=version,
                actual=snapshot.state.version,
            )
        return state

    def at_batch_alone(self, batch_id: int) -> Source:
        """Return a source of nothing but the files of one batch, as it was committed.

        Raises:
            VersionNotFoundError: There is no such batch, or a cleanup has given up its files.

        Cost:
            The history: one GET a segment, of which there are few.
        """
        snapshot = self.load()
        state = snapshot.state
        entries = history.read(self.store, state.lists.history)
        committed = [entry for entry in entries if entry.batch_id == batch_id]
        if not committed:
            raise VersionNotFoundError(
                f"Dataset {self.name!r} has no batch {batch_id}.", hint="`history` lists them."
            )
        (entry,) = committed
        is_protected = batch_id in protected_batches(state)
        if not is_protected and not kept_files(entries, state).labels.issuperset(entry.added):
            check_readable(state, entries, entry.version)
        past = history.replay(entries, entry.version)
        return self._past_source(snapshot, past, entry.added)

    def _past_source(
        self, snapshot: Snapshot, past: history.PastState, labels: tuple[str, ...]
    ) -> Source:
        state = snapshot.state
        descriptor, lineage = descriptor_from(past.descriptor, Folder.HISTORY.of(self.name))
        older = dataclasses.replace(
            state.as_of(descriptor, lineage),
            labels=labels,
            version=past.entry.version,
            commit_id=past.entry.commit_id,
            committed_at=past.entry.committed_at,
        )
        requests = snapshot.requests + len(state.lists.history)
        return Source(self.store, self.name, Snapshot(older, requests))

"""The commits of a dataset as a stream of data files with new rows.

A position of a stream is between two data files of a commit or between two commits. The files
between two positions are always the same, since commits and files do not change. So a stream
delivers each row exactly once, even after restarts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    SchemaMismatchError,
    VersionNotFoundError,
)
from lakebed.model.keys import batch_id_of
from lakebed.model.layout import Layout
from lakebed.state import file_table, history
from lakebed.state.history import Entry
from lakebed.state.readable import check_readable, is_readable, kept_files
from lakebed.state.reader import read_own_head
from lakebed.state.state import State
from lakebed.store.base import Store

OnChange = Literal["fail", "skip", "new"]

SNAPSHOT = "snapshot"
"""Operation of a delivery of rows that were there before the stream began."""

# They move rows between files, but do not change them.
_REARRANGING = frozenset({"compact", "promote"})
# They add no new rows.
_WITHOUT_NEW_ROWS = frozenset({"delete", "rollback"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    """The position of a stream.

    Attributes:
        created_at: Creation time of the dataset, to detect a later dataset of the same name.
        version: The version whose rows come next.
        file: Number of data files of the version that have been read.
        is_snapshot: True if all rows of the version come, not only those that its commit added.
    """

    created_at: str
    version: int
    file: int = 0
    is_snapshot: bool = False

    def after(self) -> StreamPosition:
        """Return the position after the version."""
        return replace(self, version=self.version + 1, file=0, is_snapshot=False)

    def to_offset(self) -> dict[str, Any]:
        """Return the position as an offset, a JSON object."""
        offset = {"created_at": self.created_at, "version": self.version, "file": self.file}
        return {**offset, "snapshot": True} if self.is_snapshot else offset

    @classmethod
    def from_offset(cls, offset: object) -> Self:
        """Parse an offset that `to_offset` returned.

        Raises:
            CorruptMetadataError: It is not such an offset.
        """
        match offset:
            case {
                "created_at": str(created),
                "version": int(version),
                "file": int(file),
                **rest,
            } if version >= 0 and file >= 0:
                return cls(
                    created_at=created,
                    version=version,
                    file=file,
                    is_snapshot=bool(rest.get("snapshot")),
                )
        raise CorruptMetadataError(
            f"The checkpoint of the stream has {offset!r} in place of an offset.",
            hint="Another source wrote it: give this stream a checkpoint of its own.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Data files of one version that a stream delivers.

    Attributes:
        version: The version.
        operation: Operation of its commit, or `SNAPSHOT`.
        labels: Labels of the files, in order of delivery.
        first: Position of the first of them among all files that the version delivers.
    """

    version: int
    operation: str
    labels: tuple[str, ...]
    first: int = 0


class CommitStream:
    """The commits of a dataset up to its current state, to be read as a stream."""

    def __init__(
        self,
        store: Store,
        name: str,
        on_change: OnChange = "fail",
        snapshots: dict[int, tuple[str, ...]] | None = None,
    ) -> None:
        """Read the current state.

        Args:
            store: The store that holds the dataset.
            name: Name of the dataset.
            on_change: Reaction to a commit that removed rows: raise an error, skip the commit, or
                deliver the rows that it added.
            snapshots: Cache for the files of versions that are delivered as a whole.

        Raises:
            DatasetNotFoundError: There is no such dataset.
            ReadOnlyError: Another tool created it: it has no commits.

        Cost:
            A read of the head.
        """
        self._store = store
        self._on_change = on_change
        self.state: State = read_own_head(store, name).state
        self._snapshots = {} if snapshots is None else snapshots
        self._entries: tuple[int, tuple[Entry, ...]] | None = None  # after a version

    def _entries_after(self, version: int) -> tuple[Entry, ...]:
        if self._entries is None or self._entries[0] > version:
            read = history.read(
                self._store, self.state.lists.history, after=version, until=self.state.version
            )
            self._entries = version, read
        known = self._entries[1]
        # An entry for changes of other tools may be ahead of the commits of Lakebed.
        return tuple(e for e in known if version < e.version <= self.state.version)

    def end(self) -> StreamPosition:
        """Return the position after the current version."""
        return StreamPosition(created_at=self.state.created_at, version=self.state.version + 1)

    def start(self) -> StreamPosition:
        """Return the position before all current rows and all later ones."""
        return replace(self.end(), version=self.state.version, is_snapshot=True)

    def start_at_version(self, version: int) -> StreamPosition:
        """Return the position before the rows that the commit of a version added.

        Raises:
            VersionNotFoundError: There is no such version, and it is not the next one.
        """
        end = self.end()
        if version > end.version:
            raise VersionNotFoundError(
                f"The stream cannot begin at version {version}: dataset {self.state.name!r} has no "
                "such version.",
                hint=f"The last one is {self.state.version}; 'latest' begins after it.",
            )
        return replace(end, version=version)

    def start_at_time(self, moment: dt.datetime) -> StreamPosition:
        """Return the position before the first commit at a time or later; else the end."""
        later = (e.version for e in self._entries_after(-1) if e.committed_at >= moment)
        return replace(self.end(), version=next(later, self.end().version))

    def start_at_batch(self, batch_id: int) -> StreamPosition:
        """Return the position before the commit of a batch.

        Raises:
            VersionNotFoundError: There is no such batch.
        """
        for entry in self._entries_after(-1):
            if entry.batch_id == batch_id:
                return replace(self.end(), version=entry.version)
        raise VersionNotFoundError(
            f"The stream cannot begin at batch {batch_id}: dataset {self.state.name!r} has no such "
            "batch.",
            hint="`batches` lists the existing ones.",
        )

    def limited(
        self,
        start: StreamPosition,
        until: StreamPosition,
        *,
        max_files: int | None,
        max_bytes: int | None,
    ) -> StreamPosition:
        """Return the end of a micro-batch within limits; it has at least one file.

        Args:
            start: Start of the micro-batch.
            until: The latest possible end.
            max_files: Limit of data files; None for no limit.
            max_bytes: Limit of the total size of the data files; None for no limit.

        Raises:
            LakebedError: As for `between`.

        Cost:
            The history since then; with a limit of bytes also the file table.
        """
        sizes = self.sizes() if max_bytes is not None else {}
        file_count = size_bytes = last = 0
        try:
            for delivery in self.between(start, until):
                for position, label in enumerate(delivery.labels, delivery.first):
                    size_bytes += sizes.get(label, 0)
                    is_full = (max_files is not None and file_count >= max_files) or (
                        max_bytes is not None and size_bytes > max_bytes
                    )
                    if is_full and file_count:
                        return replace(
                            start,
                            version=delivery.version,
                            file=position,
                            is_snapshot=delivery.operation == SNAPSHOT,
                        )
                    file_count += 1
                last = delivery.version
        except CommitConflictError:
            if not file_count:
                raise
            # The rows before that commit are read first; the next micro-batch raises the error.
            return replace(start, version=last + 1, file=0, is_snapshot=False)
        return until

    def holding(self, deliveries: Sequence[Delivery]) -> State:
        """Return the current state with the files of some deliveries, to plan reads of them."""
        labels = [label for delivery in deliveries for label in delivery.labels]
        first = min((delivery.version for delivery in deliveries), default=self.state.version)
        # Only a promotion gives directories other values or levels.
        if any(entry.operation == "promote" for entry in self._entries_after(first)):
            return self.state.with_older_files(labels)
        return self.state.with_labels(labels)

    def sizes(self) -> dict[str, int]:
        """Return the sizes in bytes of the data files in the file table, by label."""
        counts = file_table.read_counts(self._store, self.state.lists.files)
        return {label: size_bytes for label, (_, size_bytes) in counts.items()}

    def between(self, start: StreamPosition, end: StreamPosition) -> Iterator[Delivery]:
        """Yield the data files between two positions, version by version.

        Raises:
            CommitConflictError: The dataset is not the one of the position, or a commit removed
                rows and `on_change` is `fail`.
            VersionNotFoundError: A cleanup has deleted files that were still to be read.

        Cost:
            The history since the start; the whole history for rows that were there before.
        """
        self.check_position(start)
        if start.is_snapshot and start != end:
            yield from self._part(start, end, SNAPSHOT, self._labels_at(start.version))
        done = start.version if start.is_snapshot else start.version - 1
        for entry in self._entries_after(done):
            if entry.version > end.version or (entry.version == end.version and not end.file):
                return
            labels = self._new_labels(entry)
            yield from self._part(start, end, entry.operation, labels, entry)

    def _part(
        self,
        start: StreamPosition,
        end: StreamPosition,
        operation: str,
        labels: tuple[str, ...],
        entry: Entry | None = None,
    ) -> Iterator[Delivery]:
        version = start.version if entry is None else entry.version
        is_snapshot = entry is None
        first = start.file if (version, is_snapshot) == (start.version, start.is_snapshot) else 0
        is_last = (version, is_snapshot) == (end.version, end.is_snapshot)
        chosen = labels[first : end.file] if is_last else labels[first:]
        if chosen:
            self._check_kept(version, chosen)
            yield Delivery(version=version, operation=operation, labels=chosen, first=first)

    def check_position(self, position: StreamPosition) -> None:
        """Check that a position belongs to the dataset as it is now.

        Raises:
            CommitConflictError: The dataset was dropped and created again.
            VersionNotFoundError: An older copy of the dataset was restored.
        """
        if position.created_at != self.state.created_at:
            raise CommitConflictError(
                f"Dataset {self.state.name!r} was dropped and created again since the stream began.",
                hint="Give the stream a new checkpoint: it then begins with the current rows.",
                expected=position.version,
                actual=self.state.version,
            )
        if position.version > self.state.version + 1:
            raise VersionNotFoundError(
                f"Dataset {self.state.name!r} is at version {self.state.version}, but the stream is "
                f"at {position.version}.",
                hint="An older copy of the dataset was restored: give the stream a new checkpoint.",
            )

    def _new_labels(self, entry: Entry) -> tuple[str, ...]:
        """Return the files of new rows that a commit added."""
        if entry.operation in _REARRANGING or not (entry.added or entry.removed):
            return ()
        if not entry.removed and entry.operation != "rollback":
            return entry.added
        if self._on_change == "skip":
            return ()
        if self._on_change == "new":
            return () if entry.operation in _WITHOUT_NEW_ROWS else entry.added
        raise CommitConflictError(
            f"Version {entry.version} of {self.state.name!r} is not an append: the {entry.operation} "
            f"of {entry.committed_at.isoformat(timespec='seconds')} removed {len(entry.removed)} data "
            "files, and a stream cannot take rows back.",
            hint="Give the option onChange: 'skip' passes over such commits, 'new' reads the rows "
            "that they added. Or begin after it, with a new checkpoint and "
            f"startingVersion={entry.version + 1}.",
            expected=entry.version - 1,
            actual=self.state.version,
            partitions=entry.partitions,
        )

    def _labels_at(self, version: int) -> tuple[str, ...]:
        """Return all files of a version, in an order that never changes."""
        state = self.state
        if version not in self._snapshots:
            if version == state.version and not state.is_changed_by_others:
                labels = state.labels
            else:
                labels = history.replay(self._entries_after(-1), version).labels
            in_order = sorted(labels, key=lambda label: (batch_id_of(label) or 0, label))
            self._snapshots[version] = tuple(in_order)
        return self._snapshots[version]

    @cached_property
    def _kept(self) -> frozenset[str]:
        return kept_files(self._entries_after(-1), self.state).labels

    def _check_kept(self, version: int, labels: Sequence[str]) -> None:
        """Check that no cleanup has given up any of some files of a version."""
        state = self.state
        if is_readable(state, version) or state.live.holding(labels) == frozenset(labels):
            return
        if self._kept.issuperset(labels):
            return
        try:
            check_readable(state, self._entries_after(-1), version)
        except VersionNotFoundError as exc:
            raise VersionNotFoundError(
                f"The stream is at version {version} of {state.name!r}, which was cleaned up: "
                f"its rows cannot be read any more. {exc.message}",
                hint="Start the query with a new checkpoint: it begins with the current rows, "
                "or at the option startingVersion. Let cleanups keep versions for longer than a "
                "query is stopped (older_than), or protect them.",
            ) from exc


def check_schema_kept(known: Layout, now: State) -> None:
    """Check that a dataset has the schema that a stream began with.

    Raises:
        SchemaMismatchError: The schema has changed.
    """
    if known.lineage.number != now.lineage.number:
        raise SchemaMismatchError(
            f"The schema of {now.name!r} has changed since the query was started: it was number "
            f"{known.lineage.number}, and is {now.lineage.number} in version {now.version}.",
            hint="Start the query again: it continues at its position, with the new schema.",
        )

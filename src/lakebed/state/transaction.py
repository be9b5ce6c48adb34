"""The transaction: reserve, stage, complete, commit.

`commit` puts one object under a condition. A stable commit id makes it safe to try again: before
a lost race or a lost answer is called a conflict, the history is asked for the id.
"""

from __future__ import annotations

import datetime as dt
import logging
import random
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.errors import (
    AccessDeniedError,
    CommitConflictError,
    CommitUnknownError,
    ConflictError,
    LakebedError,
    NotFoundError,
    ObjectExistsError,
    PreconditionFailedError,
    ReadOnlyError,
    StorageError,
)
from lakebed.state import file_table, history
from lakebed.state.head import encode_head
from lakebed.state.history import Entry
from lakebed.state.reader import Head, read_head
from lakebed.state.reservation import ManifestFile, Reservation, reserve
from lakebed.state.scope import Nothing, Scope
from lakebed.state.segments import Segment, compact
from lakebed.state.state import Change, State, adopt, apply, to_document
from lakebed.store.base import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """How long a commit fights for the head.

    Attributes:
        deadline_s: Give up after this many seconds of lost races.
        first_wait_ms: Wait up to this many milliseconds after the first lost race, then twice
            as long each time.
        longest_wait_ms: But never longer than this.
    """

    deadline_s: float = 120.0
    first_wait_ms: float = 10.0
    longest_wait_ms: float = 1000.0


class Transaction:
    """One batch on its way to being visible.

    `begin` reserves the batch id. The caller writes data files under it, then calls `commit`
    once, or `abort`. Until then nothing refers to the files.
    """

    def __init__(
        self, store: Store, head: Head, operation: str, run: str | None, options: CommitOptions
    ) -> None:
        self._store = store
        self._base = head.state
        self._operation = operation
        self._run = run
        self._options = options
        self._commit_id = uuid.uuid4().hex
        self._reservation: Reservation = reserve(
            store,
            head.state.name,
            above=head.state.last_batch_id,
            commit_id=self._commit_id,
            operation=operation,
            run=run,
        )

    @classmethod
    def begin(
        cls,
        store: Store,
        dataset: str,
        operation: str,
        *,
        run: str | None = None,
        options: CommitOptions | None = None,
    ) -> Transaction:
        """Read the head and reserve a batch id.

        Raises:
            DatasetNotFoundError: There is no such dataset.
            ReadOnlyError: Another tool created the dataset, or the store cannot swap.

        Cost:
            A read of the head and one PUT.
        """
        head = read_head(store, dataset)
        if not head.state.is_ours:
            raise ReadOnlyError(
                f"Dataset {dataset!r} was not created by Lakebed, so that it has no batches.",
                hint="It can be read; create a dataset of your own and append its rows there.",
            )
        return cls(store, head, operation, run, options or CommitOptions())

    @property
    def base(self) -> State:
        """The state that the transaction is based on."""
        return self._base

    @property
    def batch_id(self) -> int:
        """The reserved batch id."""
        return self._reservation.batch_id

    @property
    def commit_id(self) -> str:
        """Names the commit, whatever happens to it."""
        return self._commit_id

    def commit(self, facts: pa.Table, scope: Scope) -> Entry:
        """Make the batch visible.

        Args:
            facts: Of every file that was staged; see `lakebed.state.facts`.
            scope: The partitions that the batch replaces.

        Returns:
            The entry in the history.

        Raises:
            CommitConflictError: A commit since the base touched a partition in the scope, or
                the race was lost until the deadline. The staged files have been deleted.
            CommitUnknownError: The store stopped answering. Nothing has been deleted.

        Cost:
            Three PUTs (manifest, facts, history entry), one conditional PUT, and a read of the
            head for each attempt.
        """
        labels, rows = file_table.labels_and_rows(facts)
        segment: Segment | None = None
        try:
            self._reservation.complete(_manifest(facts))
            segment = file_table.write(self._store, self._base.name, facts)
            change = Change(
                operation=self._operation,
                commit_id=self._commit_id,
                base_version=self._base.version,
                batch_id=self.batch_id,
                run=self._run,
                added=labels,
                row_count=rows,
                facts=segment,
                scope=scope,
            )
            return _Attempts(self._store, self._base, change, self._options).run()
        except CommitUnknownError:
            raise
        except LakebedError:
            # Every other error proves that no head refers to the files.
            self.abort([self._base.key(label) for label in labels], segment)
            raise

    def abort(self, staged: Sequence[str], segment: Segment | None = None) -> None:
        """Delete what was staged; an object that cannot be deleted stays invisible garbage."""
        try:
            self._store.delete([*staged, *([segment.key] if segment else [])])
            self._reservation.release()
        except StorageError as exc:
            _log.warning(
                "staged files stay behind dataset=%s batch_id=%d error=%s",
                self._base.name,
                self.batch_id,
                exc,
            )


def _manifest(facts: pa.Table) -> tuple[ManifestFile, ...]:
    names = ("label", "row_count", "size_bytes", "checksum")
    columns = [facts.column(name).to_pylist() for name in names]
    return tuple(ManifestFile(*row) for row in zip(*columns, strict=True))


class _Attempts:
    """The loop around the conditional put."""

    def __init__(self, store: Store, base: State, change: Change, options: CommitOptions) -> None:
        self._store = store
        self._base = base
        self._change = change
        self._options = options
        self._seen_version = base.version
        # A put whose answer was lost may land as long as the head still has this etag.
        self._unknown: StorageError | None = None
        self._unknown_etag = ""
        # Segments of attempts that were refused, to be deleted once that is certain.
        self._refused: list[str] = []

    def run(self) -> Entry:
        deadline = time.monotonic() + self._options.deadline_s
        attempt = 0
        while True:
            attempt += 1
            try:
                entry = self._once()
            except StorageError as exc:
                if isinstance(exc, AccessDeniedError) and self._unknown is None:
                    raise
                self._unknown = exc
                entry = None
            except LakebedError as exc:
                if self._unknown is None or isinstance(exc, ConflictError | NotFoundError):
                    raise
                raise self._gave_up(attempt) from exc
            if entry is not None:
                _log.info(
                    "committed dataset=%s version=%d operation=%s batch_id=%s rows=%d attempt=%d",
                    self._base.name,
                    entry.version,
                    entry.operation,
                    entry.batch_id,
                    entry.row_count,
                    attempt,
                )
                return entry
            wait_s = self._wait_s(attempt)
            if time.monotonic() + wait_s > deadline:
                raise self._gave_up(attempt)
            _log.warning(
                "commit retries dataset=%s attempt=%d wait_ms=%.0f",
                self._base.name,
                attempt,
                wait_s * 1000,
            )
            time.sleep(wait_s)

    def _wait_s(self, attempt: int) -> float:
        limit_ms = min(
            self._options.first_wait_ms * 2.0 ** min(attempt - 1, 30),
            self._options.longest_wait_ms,
        )
        return random.uniform(0, limit_ms) / 1000

    def _gave_up(self, attempts: int) -> ConflictError:
        if self._unknown is not None:
            return CommitUnknownError(
                f"The store did not answer for commit {self._change.commit_id} to "
                f"{self._base.name!r}: {self._unknown.message}",
                hint="Look for this commit id in the dataset's history before writing again.",
                commit_id=self._change.commit_id,
            )
        return CommitConflictError(
            f"Commit to {self._base.name!r} lost {attempts} races for the head in "
            f"{self._options.deadline_s:g} s.",
            hint="Use fewer writers at a time, or a longer deadline.",
            expected=self._base.version,
            actual=self._seen_version,
        )

    def _once(self) -> Entry | None:
        """Try once; None if the race was lost.

        The order matters: first look for our own commit, then for conflicts.
        """
        head = read_head(self._store, self._base.name)
        self._seen_version = head.state.version
        self._check_same_dataset(head.state)
        since = self._entries_since_base(head.state)
        for entry in since:
            if entry.commit_id == self._change.commit_id:
                return entry
        self._settle(head)
        foreign = self._foreign_entry(head.state)
        self._check_conflicts([*since, *([foreign] if foreign else [])], head.state)
        return self._swap(head, foreign)

    def _settle(self, head: Head) -> None:
        """Note what the absence of our commit proves of the attempts before."""
        if head.etag != self._unknown_etag:
            self._unknown = None  # its condition can never hold again
        if self._refused:
            self._store.delete(self._refused)
            self._refused = []

    def _check_same_dataset(self, state: State) -> None:
        if not state.is_ours or state.created_at != self._base.created_at:
            raise CommitConflictError(
                f"Dataset {self._base.name!r} was dropped and created again meanwhile.",
                hint="Write to the new dataset if that is what you want.",
                expected=self._base.version,
                actual=state.version,
            )

    def _entries_since_base(self, state: State) -> tuple[Entry, ...]:
        if state.version == self._base.version:
            return ()
        return history.read(self._store, state.history, after=self._base.version)

    def _foreign_entry(self, state: State) -> Entry | None:
        if not state.is_changed_by_others:
            return None
        past = history.replay(history.read(self._store, state.history), state.version)
        return adopt(state, past.labels, dt.datetime.now(dt.UTC), uuid.uuid4().hex)

    def _check_conflicts(self, since: Sequence[Entry], state: State) -> None:
        covers = self._change.scope.covers
        for entry in since:
            both = tuple(partition for partition in entry.partitions if covers(partition))
            if both:
                named = ", ".join(partition or "the whole dataset" for partition in both[:5])
                raise CommitConflictError(
                    f"{self._change.operation} of {self._base.name!r}, based on version "
                    f"{self._base.version}, conflicts with the {entry.operation} that made "
                    f"version {entry.version} (commit {entry.commit_id}): both touch {named}.",
                    hint="Read the new version, and write again if it still is right.",
                    expected=self._base.version,
                    actual=state.version,
                    partitions=both,
                )

    def _swap(self, head: Head, foreign: Entry | None) -> Entry | None:
        now = dt.datetime.now(dt.UTC)
        state = head.state
        if foreign is not None:
            state = replace(state, version=foreign.version, committed_at=foreign.committed_at)
        new, entry = apply(state, self._change, now)
        entries = [foreign, entry] if foreign else [entry]
        written: list[str] = []
        new = self._with_segments(new, entries, written)
        data = encode_head(to_document(new), new.head_format)
        try:
            self._store.replace(head.key, data, if_match=head.etag)
        except PreconditionFailedError:
            # Refused, or landed by a repeated put of the client: the history will tell.
            self._refused += written
            return None
        except StorageError:
            self._unknown_etag = head.etag
            raise
        if head.stale_key is not None:
            self._store.delete([head.stale_key])
        return entry

    def _with_segments(self, new: State, entries: Sequence[Entry], written: list[str]) -> State:
        """Write the history entry, and merge what has become too long."""
        name = new.name
        first = Segment.new(history.folder(name), len(entries), history.SUFFIX)
        self._store.put(first.key, history.encode_entries(entries))
        written.append(first.key)
        lists = []
        for segments, module in (
            ((*new.history, first), history),
            (new.files, file_table),
        ):
            kept, merged = compact(
                self._store, segments, module.merge, module.folder(name), module.SUFFIX
            )
            if merged is not None:
                written.append(merged.key)
            lists.append(kept)
        return replace(new, history=lists[0], files=lists[1])


def create(store: Store, state: State) -> State:
    """Write the first head of a dataset, put-if-absent.

    Args:
        store: Where the dataset shall be.
        state: Without history; version 0.

    Returns:
        The state with its history.

    Raises:
        ObjectExistsError: The name is taken; nothing became visible.

    Cost:
        One PUT and one conditional PUT.
    """
    entry = Entry(
        version=0,
        commit_id=state.commit_id,
        operation="create",
        committed_at=state.committed_at or dt.datetime.now(dt.UTC),
        descriptor=state.descriptor.to_document(),
    )
    segment = Segment.new(history.folder(state.name), 1, history.SUFFIX)
    store.put(segment.key, history.encode_entries([entry]))
    first = replace(state, history=(segment,))
    key = first.head_format.key(first.name)
    try:
        store.create(key, encode_head(to_document(first), first.head_format))
    except ObjectExistsError:
        store.delete([segment.key])
        raise
    return first


__all__ = ["CommitOptions", "Nothing", "Transaction", "create"]

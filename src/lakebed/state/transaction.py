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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.errors import (
    CommitConflictError,
    CommitUnknownError,
    DatasetNotFoundError,
    InvalidInputError,
    LakebedError,
    ObjectExistsError,
    PreconditionFailedError,
    ReadOnlyError,
    StaleRerunError,
    StorageError,
)
from lakebed.index.merge import compact_list
from lakebed.index.postings import keys_of, postings_in
from lakebed.model.allowed import OTHER
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.evolution import (
    check_partitioning,
    check_schema,
    check_update,
    grown_dimensions,
)
from lakebed.model.keys import encode_level, partition_of, schema_number_of, split_label
from lakebed.model.schema import Schema
from lakebed.state import file_table, history
from lakebed.state import runs as run_list
from lakebed.state import sources as source_list
from lakebed.state.caps import caught_in
from lakebed.state.creation import first_segment
from lakebed.state.head import encode_head
from lakebed.state.history import Entry
from lakebed.state.moving import read_settled_head, remove_leftover, remove_or_leave
from lakebed.state.protections import Protection, check_readable, is_readable
from lakebed.state.reader import Head, read_head, remember
from lakebed.state.reservation import (
    LEASE,
    ManifestFile,
    Reservation,
    ScopeNote,
    Staging,
    reserve,
)
from lakebed.state.scope import Nothing, RewrittenFiles, RunFiles, Scope, WholePartitions, WholeView
from lakebed.state.sources import Sources
from lakebed.state.state import (
    Change,
    State,
    adopt,
    apply,
    descriptor_from,
    is_one_dataset,
    to_document,
)
from lakebed.store.base import Store, delete_or_leave
from lakebed.store.segments import Segment, compact

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """How long a commit fights for the head.

    Attributes:
        deadline_s: Give up after this many seconds of lost races.
        first_wait_ms: Wait up to this many milliseconds after the first lost race, then twice
            as long each time.
        longest_wait_ms: But never longer than this.
        lease: For so long no cleanup may take the writer for dead. A batch that takes longer
            than that, with a cleanup after it, is refused when it is committed.

    >>> CommitOptions(deadline_s=30).longest_wait_ms
    1000.0
    """

    deadline_s: float = 120.0
    first_wait_ms: float = 10.0
    longest_wait_ms: float = 1000.0
    lease: dt.timedelta = LEASE

    def __post_init__(self) -> None:
        if self.lease <= dt.timedelta():
            raise InvalidInputError(f"lease is {self.lease}.", hint="Give more than no time.")


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
        self._owns_batch = True
        self._reservation: Reservation = reserve(
            store,
            head.state.name,
            # Also above what a cleanup has shut out, however far this clock is behind.
            above=max(head.state.last_batch_id, head.state.oldest_batch),
            lease=options.lease,
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
        head = read_own_head(store, dataset)
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

    def commit(
        self,
        facts: pa.Table,
        scope: Scope,
        sources: Sources | None = None,
        *,
        carried: Mapping[str, str] | None = None,
        descriptor: DatasetDescriptor | None = None,
    ) -> Entry:
        """Make the batch visible.

        Args:
            facts: Of every file that was staged; see `lakebed.state.facts`.
            scope: The partitions that the batch replaces.
            sources: Which raw files the rows are of, if that is to be known.
            carried: By label of a file whose rows were there before: the run that wrote them,
                where it has a name. No file holds rows of several runs.
            descriptor: What the dataset is from now on, of the same schema; None if it stays as
                it is.

        Returns:
            The entry in the history.

        Raises:
            CommitConflictError: A commit since the base changed a partition in the scope or
                read in one of the raw files, or the race was lost until the deadline. The staged
                files have been deleted.
            CommitUnknownError: The store stopped answering. Nothing has been deleted.
            StorageError: The store failed before the batch could become visible. The staged
                files have been deleted, as far as the store let them.

        Cost:
            Three PUTs (manifest, facts, history entry), one conditional PUT, and a read of the
            head for each attempt.
        """
        labels, rows = self._labels_and_rows(facts)
        segment = file_table.new_segment(self._base.name, facts)
        postings = postings_in(facts)
        noted = None if sources is None else source_list.new_segment(self._base.name, sources)
        change = Change(
            operation=self._operation,
            commit_id=self._commit_id,
            base_version=self._base.version,
            batch_id=self.batch_id,
            run=self._run,
            added=labels,
            row_count=rows,
            caught=caught_in(facts),
            facts=segment,
            sources=noted,
            postings=postings,
            scope=scope,
            carried=carried or {},
            descriptor=descriptor,
            lineage=self._base.lineage,
        )
        attempts = _Attempts(self._store, self._base, change, self._options, sources)
        try:
            self._complete(facts)
            if segment is not None:
                self._store.put(segment.key, file_table.encode(facts.replace_schema_metadata(None)))
            if noted is not None and sources is not None:
                self._store.put(noted.key, source_list.encode(sources))
            return attempts.run()
        except CommitUnknownError:
            raise
        except LakebedError:
            # Every other error proves that no head refers to what was written.
            staged = [self._base.key(label) for label in labels]
            own_segments = [one.key for one in (segment, noted) if one is not None]
            self.abort([*staged, *own_segments, *keys_of(postings), *attempts.unused_segments])
            raise

    def _complete(
        self,
        facts: pa.Table,
        staging: Staging | None = None,
        lease: dt.timedelta | None = None,
    ) -> None:
        try:
            self._reservation.complete(_manifest(facts), staging=staging, lease=lease)
        except PreconditionFailedError as exc:
            raise self._taken_away() from exc

    def _taken_away(self) -> CommitConflictError:
        self._owns_batch = False
        state = read_head(self._store, self._base.name).state
        _check_same_dataset(self._base, state)
        return CommitConflictError(
            f"Batch {self.batch_id} of {self._base.name!r} was taken away from its writer: "
            f"{_outlasted(self._options.lease)}",
            hint=_LONGER_LEASE,
            expected=self._base.version,
            actual=state.version,
        )

    def stage(self, facts: pa.Table, scope: Scope, lease: dt.timedelta) -> None:
        """Note what was written, so that anybody can commit it later; nothing becomes visible.

        Args:
            facts: Of every file; see `lakebed.state.facts`.
            scope: What the batch is to replace.
            lease: How long from now on it is kept.

        Raises:
            CommitConflictError: A cleanup has taken the writer for dead; what was written has
                been deleted.
            StorageError: The store failed. What was written has been deleted, unless the batch
                may be staged, because only an answer was lost.

        Cost:
            Two PUTs; the history if another tool has changed the base.
        """
        labels, rows = self._labels_and_rows(facts)
        segment = file_table.new_segment(self._base.name, facts)
        noted = ScopeNote.of(scope)
        try:
            # An append conflicts with nothing, whoever did it.
            foreign = (
                None if isinstance(scope, Nothing) else _foreign_entry(self._store, self._base)
            )
            staging = Staging(
                created_at=self._base.created_at,
                base_version=self._base.version,
                staged_at=dt.datetime.now(dt.UTC),
                row_count=rows,
                scope=noted,
                facts=None if segment is None else segment.key,
                postings={
                    column: tuple(one.key for one in segments)
                    for column, segments in postings_in(facts).items()
                },
                caught=caught_in(facts),
                foreign_added=foreign.added if foreign else (),
                foreign_removed=foreign.removed if foreign else (),
            )
            if segment is not None:
                self._store.put(segment.key, file_table.encode(facts.replace_schema_metadata(None)))
            self._complete(facts, staging, lease)
        except LakebedError as exc:
            # Should the manifest have landed, somebody may have found the batch and committed it.
            if self._reservation.give_up():
                own = [] if segment is None else [segment.key]
                staged = [self._base.key(label) for label in labels]
                self.abort([*staged, *own, *keys_of(postings_in(facts))])
            else:
                exc.add_note(f"Batch {self.batch_id} may be staged nevertheless; see staged().")
            raise

    def _labels_and_rows(self, facts: pa.Table) -> tuple[tuple[str, ...], int]:
        labels, rows = file_table.labels_and_rows(facts)
        current = self._base.lineage.number
        if any(schema_number_of(label, newest=current) not in (None, current) for label in labels):
            # Files of a wrong number would read as other values than were written.
            message = f"Files were staged for another schema than {current}: see BatchTarget."
            raise TypeError(message)
        return labels, rows

    def keep_alive(self) -> None:
        """Renew the lease once half of it is over; a long write calls it now and then.

        Raises:
            CommitConflictError: A cleanup has taken the writer for dead.
            StorageError: The store failed, and nothing is left of the lease.

        Cost:
            Nothing, or one PUT.
        """
        try:
            self._reservation.renew_if_due(self._options.lease)
        except PreconditionFailedError as exc:
            raise self._taken_away() from exc

    def abort(self, staged: Sequence[str]) -> None:
        """Delete what was staged; an object that cannot be deleted stays invisible garbage."""
        if delete_or_leave(self._store, staged) and self._owns_batch:
            delete_or_leave(self._store, [self._reservation.key])


def read_own_head(store: Store, dataset: str) -> Head:
    head = read_head(store, dataset)
    if not head.state.is_ours:
        raise ReadOnlyError(
            f"Dataset {dataset!r} was not created by Lakebed, so that it has no batches.",
            hint="It can be read; create a dataset of your own and append its rows there.",
        )
    return head


def _manifest(facts: pa.Table) -> tuple[ManifestFile, ...]:
    names = ("label", "row_count", "size_bytes", "checksum")
    columns = [facts.column(name).to_pylist() for name in names]
    return tuple(ManifestFile(*row) for row in zip(*columns, strict=True))


class _Attempts:
    """The loop around the conditional put."""

    def __init__(
        self,
        store: Store,
        base: State,
        change: Change,
        options: CommitOptions,
        sources: Sources | None = None,
        *,
        only_on: State | None = None,
        staged_until: dt.datetime | None = None,
    ) -> None:
        self._store = store
        self._base = base
        self._change = change
        self._sources = sources
        self._only_on = only_on
        self._staged_until = staged_until
        self._options = options
        self._seen_version = base.version
        # Etags, by key, of the heads under which a put of ours may still land, or has landed.
        self._pending: dict[str, str] = {}
        # What kept the last attempt from being decided, if it was the store.
        self._trouble: StorageError | None = None
        # Segments that only heads name which did not win.
        self.unused_segments: list[str] = []
        # What the head said right after the commit; None if it was not seen.
        self.made: State | None = None

    def run(self) -> Entry:
        deadline = time.monotonic() + self._options.deadline_s
        attempt = 0
        while True:
            attempt += 1
            is_late = attempt > 1 and time.monotonic() >= deadline
            entry = self._once_or_trouble(attempt, is_late=is_late)
            if entry is not None:
                self._log_commit(entry, attempt)
                return entry
            wait_s = min(self._wait_s(attempt), max(0.0, deadline - time.monotonic()))
            _log.warning(
                "commit retries dataset=%s attempt=%d wait_ms=%.0f",
                self._base.name,
                attempt,
                wait_s * 1000,
            )
            time.sleep(wait_s)

    def _once_or_trouble(self, attempt: int, *, is_late: bool) -> Entry | None:
        """Try once, and decide what an error means while a put of ours may still land."""
        try:
            entry = self._once(attempt, is_late=is_late)
        except DatasetNotFoundError:
            raise  # a put under a condition does not land where nothing is
        except StorageError as exc:
            if not self._pending and (is_late or not exc.retryable):
                raise
            if is_late or not exc.retryable:
                raise self._unknown(exc) from exc
            self._trouble = exc
            return None
        except LakebedError as exc:
            if not self._pending:
                raise
            raise self._unknown(exc) from exc
        self._trouble = None
        return entry

    def _log_commit(self, entry: Entry, attempt: int) -> None:
        _log.info(
            "committed dataset=%s version=%d operation=%s batch_id=%s rows=%d attempt=%d",
            self._base.name,
            entry.version,
            entry.operation,
            entry.batch_id,
            entry.row_count,
            attempt,
        )

    def _wait_s(self, attempt: int) -> float:
        limit_ms = min(
            self._options.first_wait_ms * 2.0 ** min(attempt - 1, 30),
            self._options.longest_wait_ms,
        )
        return random.uniform(0, limit_ms) / 1000

    def _unknown(self, cause: LakebedError) -> CommitUnknownError:
        return CommitUnknownError(
            f"The store did not say what became of commit {self._change.commit_id} to "
            f"{self._base.name!r}: {cause.message}",
            hint="Look for this commit id in the dataset's history before writing again.",
            commit_id=self._change.commit_id,
        )

    def _lost(self, attempts: int) -> LakebedError:
        if self._trouble is not None:
            return self._trouble
        return CommitConflictError(
            f"Commit to {self._base.name!r} lost {attempts} races for the head in "
            f"{self._options.deadline_s:g} s.",
            hint="Use fewer writers at a time, or a longer deadline.",
            expected=self._base.version,
            actual=self._seen_version,
        )

    def _once(self, attempt: int, *, is_late: bool) -> Entry | None:
        """Try once; None if the race was lost.

        The order matters: first look for our own commit, then for conflicts. So the last look
        comes after the last put, and what it does not find has not landed.
        """
        head = read_settled_head(self._store, self._base.name)
        self._seen_version = head.state.version
        try:
            _check_same_dataset(self._base, head.state)
        except CommitConflictError:
            self._pending.clear()  # the head that it was meant for is gone
            raise
        since = self._entries_since_base(head.state)
        for entry in since:
            if entry.commit_id == self._change.commit_id:
                self.made = head.state if head.state.version == entry.version else None
                return entry
        self._settle(head)
        if is_late:
            raise self._lost(attempt - 1)
        self._check_conflicts(since, head.state)
        self._check_expected(head.state)
        return self._swap(head, _foreign_entry(self._store, head.state))

    def _settle(self, head: Head) -> None:
        """Note what the absence of our commit proves of the attempts before."""
        now = {one.key: one.etag for one in (head, head.stale) if one is not None}
        # A condition that does not hold can never hold again; a head that has moved is gone.
        self._pending = {key: etag for key, etag in self._pending.items() if now.get(key) == etag}
        self._delete_unused_segments()

    def _entries_since_base(self, state: State) -> tuple[Entry, ...]:
        if state.version == self._base.version:
            return ()
        return history.read(self._store, state.history, after=self._base.version)

    def _check_conflicts(self, since: Sequence[Entry], state: State) -> None:
        """Compare the files in the scope with those of the base.

        Files are immutable, so that equal files mean equal content. What other tools changed has
        no entry in the history yet, or one that is younger than a base which showed it already;
        the files tell both cases.
        """
        self._check_not_given_up(state)
        self._check_descriptor(since, state)
        self._check_sources(state)
        self._check_run(since, state)
        both = _changed_partitions(self._base, state, self._change.scope)
        if both and isinstance(self._change.scope, WholePartitions):
            rewritten = _only_compacted(self._base, state, since, both)
            both = tuple(partition for partition in both if partition not in rewritten)
        if not both:
            return
        named = ", ".join(partition or "the whole dataset" for partition in both[:5])
        raise CommitConflictError(
            f"{self._change.operation} of {self._base.name!r}, based on version "
            f"{self._base.version}, conflicts with {_culprit(since, both)}: both touch {named}.",
            hint="Read the new version, and write again if it still is right.",
            expected=self._base.version,
            actual=state.version,
            partitions=both,
        )

    def _check_expected(self, state: State) -> None:
        expected = self._only_on
        if expected is None or (state.version, state.labels) == (expected.version, expected.labels):
            return
        raise PreconditionFailedError(
            f"{self._change.operation} of {state.name!r} is meant for version {expected.version}, "
            f"and version {state.version} is current, or another tool has changed it.",
            hint="Look at the current version, and try again.",
        )

    def _check_run(self, since: Sequence[Entry], state: State) -> None:
        """Check that the run which is repeated has not written anything meanwhile."""
        scope, base = self._change.scope, self._base
        if not isinstance(scope, RunFiles):
            return
        others = [
            entry for entry in run_list.written_by(since, scope.run) if entry.batch_id is not None
        ]
        if not others:
            return
        newest = max(others, key=lambda entry: entry.batch_id or 0)
        told = f"batch {newest.batch_id} of {_named(newest)}"
        if (newest.batch_id or 0) > (self._change.batch_id or 0):
            error = StaleRerunError(
                f"Rerun of {scope.run!r} in {base.name!r} is stale: its batch "
                f"{self._change.batch_id} began before {told}, which it would replace.",
                hint="The newer one stands. Run it again if that is not right.",
                expected=base.version,
                actual=state.version,
                partitions=newest.partitions,
            )
            error.batch_id, error.commit_id = newest.batch_id, newest.commit_id
            raise error
        raise CommitConflictError(
            f"Rerun of {scope.run!r} in {base.name!r}, based on version {base.version}, conflicts "
            f"with {told}: it is of the same run.",
            hint="Let one rerun of a run finish before the next begins.",
            expected=base.version,
            actual=state.version,
            partitions=newest.partitions,
        )

    def _check_not_given_up(self, state: State) -> None:
        """Check that no cleanup has given up what this commit would make visible or protect."""
        change, base = self._change, self._base
        batch_id = change.batch_id
        if batch_id is not None and not state.may_commit(batch_id):
            told, hint = _outlasted(self._options.lease), _LONGER_LEASE
            if self._staged_until is not None:
                told = (
                    f"it was discarded, or its lease ended at "
                    f"{self._staged_until.isoformat(timespec='seconds')} and a cleanup has given "
                    "it up. Nothing became visible."
                )
                hint = "Stage the data again, if need be with a longer lease: stage(…, lease=…)."
            raise CommitConflictError(
                f"Batch {batch_id} of {base.name!r} comes too late: {told}",
                hint=hint,
                expected=base.version,
                actual=state.version,
            )
        if change.restores is not None and not is_readable(state, change.restores):
            check_readable(state, history.read(self._store, state.history), change.restores)
        if (change.protect or change.unprotect) and _upkeep(state) != _upkeep(base):
            raise CommitConflictError(
                f"{change.operation} of {base.name!r}, based on version {base.version}, conflicts "
                "with a cleanup or another protection.",
                hint="Look at protections(), and do it again if it still is right.",
                expected=base.version,
                actual=state.version,
            )

    def _check_sources(self, state: State) -> None:
        """Check that nobody else has read in the same raw files: rows would come twice."""
        if self._sources is None:
            return
        base, mine = self._base, self._sources
        other = source_list.changed_meanwhile(self._store, base.sources, state.sources, mine)
        if other is not None:
            raise CommitConflictError(
                f"{self._change.operation} of {base.name!r}, based on version {base.version}, "
                f"conflicts with {other}.",
                hint="Run it again: it takes what is left.",
                expected=base.version,
                actual=state.version,
            )

    def _check_descriptor(self, since: Sequence[Entry], state: State) -> None:
        """Check again what depends on the descriptor, if it is no longer that of the base.

        Files keep the number of the schema that they were written with, so that they read right
        under a later one if the rules of evolution let the one become the other.
        """
        base = self._base
        if (state.descriptor, state.lineage) == (base.descriptor, base.lineage):
            return
        reason = ""
        if self._change.descriptor is not None:
            reason = "Both change the descriptor."
        elif base.partition_types != state.partition_types and not isinstance(
            self._change.scope, Nothing
        ):
            reason = "Partition values have another type now."
        else:
            grown = grown_dimensions(base.descriptor, state.descriptor)
            try:
                check_partitioning(base.descriptor, state.descriptor, grown=grown)
                check_schema(base.descriptor.schema, state.descriptor.schema, base.lineage.number)
            except InvalidInputError as exc:
                reason = exc.message
            reason = reason or self._misrouted(grown)
        if reason:
            updates = [entry for entry in since if entry.descriptor is not None]
            raise CommitConflictError(
                f"{self._change.operation} of {base.name!r}, based on version {base.version}, "
                f"conflicts with {_named(updates[-1]) if updates else 'another update'}. {reason}",
                hint="Read the new version, and write again if it still is right.",
                expected=base.version,
                actual=state.version,
            )

    def _misrouted(self, grown: Sequence[str]) -> str:
        """Say why files may hold rows that have another partition since dimensions allow more.

        What went to a partition of its own is right there. What went to `OTHER` may not be, and
        what a view says of partitions was told by the old rules.
        """
        if not grown:
            return ""
        if isinstance(self._change.scope, WholeView):
            return "Dimensions of the view allow more values now."
        others = {encode_level(name, OTHER) for name in grown}
        for label in self._change.added:
            if not others.isdisjoint(label.split("/")):
                return f"Rows of {_partition(label)!r} may have partitions of their own now."
        return ""

    def _swap(self, head: Head, foreign: Entry | None) -> Entry | None:
        now = dt.datetime.now(dt.UTC)
        state = head.state
        if foreign is not None:
            state = replace(state, version=foreign.version, committed_at=foreign.committed_at)
        new, entry = apply(state, self._change_for(state), now)
        entries = [foreign, entry] if foreign else [entry]
        written: list[str] = []
        has_won = False
        try:
            new = self._with_segments(new, entries, written)
            has_won = self._replace(head, new)
        finally:
            if not has_won:
                self.unused_segments += written
        if not has_won:
            return None
        self.made = new
        self._tidy(head)
        return entry

    def _change_for(self, state: State) -> Change:
        """Return the change without what it knows of fields that are others by now.

        A field that was dropped and added again has its old name, and in files of the base's
        schema other values than the new field.
        """
        known = {
            column: segments
            for column, segments in self._change.postings.items()
            if not state.lineage.lacks(column, self._base.lineage.number)
        }
        return replace(self._change, postings=known, scope=self._scope_for(state))

    def _scope_for(self, state: State) -> Scope:
        scope = self._change.scope
        if not isinstance(scope, RunFiles):
            return scope
        known = run_list.read(self._store, state)
        return RunFiles(scope.run, frozenset(run_list.live_files_of_run(state, known, scope.run)))

    def _tidy(self, head: Head) -> None:
        """Delete what the head that has just won makes useless."""
        if head.stale is not None and remove_or_leave(self._store, head.stale):
            self._pending.pop(head.stale.key, None)
        self._pending.pop(head.key, None)
        self._delete_unused_segments()

    def _delete_unused_segments(self) -> None:
        if self.unused_segments and not self._pending:
            delete_or_leave(self._store, self.unused_segments)
            self.unused_segments.clear()

    def _replace(self, head: Head, new: State) -> bool:
        """Put the head under its condition; False if the race was lost."""
        data = encode_head(to_document(new), new.head_format)
        before = dict(self._pending)
        self._pending[head.key] = head.etag
        try:
            etag = self._store.replace(head.key, data, if_match=head.etag)
        except PreconditionFailedError:
            # Refused, or landed by a put that the client repeated: the next look will tell.
            return False
        except StorageError as exc:
            if not exc.retryable:
                self._pending = before  # the store says that this one did not land
            raise
        if self._change.descriptor is None:
            remember(self._store, head.key, etag, new)
        return True

    def _with_segments(self, new: State, entries: Sequence[Entry], written: list[str]) -> State:
        """Write the history entry, and merge what has become too long."""
        name = new.name
        first = Segment.new(history.folder(name), len(entries), history.SUFFIX)
        written.append(first.key)
        self._store.put(first.key, history.encode_entries(entries))
        noted = run_list.to_note(self._store, new, entries)
        if noted.batches or noted.carried:
            segment = run_list.new_segment(name, noted)
            written.append(segment.key)
            self._store.put(segment.key, run_list.encode(noted))
            new = replace(new, runs=(*new.runs, segment))
        lists = [
            compact(
                self._store, segments, module.merge, module.folder(name), module.SUFFIX, written
            )
            for segments, module in (
                ((*new.history, first), history),
                (new.files, file_table),
                (new.sources, source_list),
                (new.runs, run_list),
            )
        ]
        new = replace(new, history=lists[0], files=lists[1], sources=lists[2], runs=lists[3])
        return replace(new, postings=self._compact_postings(new, written))

    def _compact_postings(self, new: State, written: list[str]) -> dict[str, tuple[Segment, ...]]:
        types = new.descriptor.column_types
        return {
            column: compact_list(
                self._store, new.name, column, segments, type_to_arrow(types[column]), written
            )
            for column, segments in new.postings.items()
        }


def _upkeep(state: State) -> tuple[int, tuple[Protection, ...]]:
    return state.horizon, state.protections


_LONGER_LEASE = "Write the data again, with a longer lease: CommitOptions(lease=…)."


def _outlasted(lease: dt.timedelta) -> str:
    return (
        f"its writer outlasted its lease of {lease}, and a cleanup has taken it for dead. Nothing "
        "became visible."
    )


def _foreign_entry(store: Store, state: State) -> Entry | None:
    """Return the entry for what other tools have changed since our last commit, if they have."""
    if not state.is_changed_by_others:
        return None
    past = history.replay(history.read(store, state.history), state.version)
    return adopt(state, past.labels, dt.datetime.now(dt.UTC), uuid.uuid4().hex)


def _check_same_dataset(base: State, now: State) -> None:
    if not now.is_ours or not is_one_dataset(base, now):
        raise CommitConflictError(
            f"Dataset {base.name!r} was dropped and created again meanwhile.",
            hint="Write to the new dataset if that is what you want.",
            expected=base.version,
            actual=now.version,
        )


def _changed_partitions(base: State, now: State, scope: Scope) -> tuple[str, ...]:
    """Return the partitions of a scope whose files are not those of the base."""
    if isinstance(scope, Nothing | RunFiles) or base.labels == now.labels:
        return ()
    before, after = frozenset(base.labels), frozenset(now.labels)
    if isinstance(scope, RewrittenFiles):
        missed = (label for label in after - before if scope.misses(label))
        return tuple(sorted({_partition(label) for label in (*(scope.labels - after), *missed)}))
    changed = [label for label in base.labels if label not in after]
    changed += [label for label in now.labels if label not in before]
    partitions = dict.fromkeys(_partition(label) for label in changed)
    return tuple(partition for partition in partitions if scope.covers(partition))


def _partition(label: str) -> str:
    return partition_of(split_label(label)[0])


def _only_compacted(
    base: State, now: State, since: Sequence[Entry], partitions: Sequence[str]
) -> frozenset[str]:
    """Return those of some partitions whose rows are those of the base, in other files."""
    wanted = frozenset(partitions)
    files: dict[str, set[str]] = {partition: set() for partition in wanted}
    for label in base.labels:
        if _partition(label) in wanted:
            files[_partition(label)].add(label)
    for entry in since:
        if entry.operation != "compact":
            continue
        for label in entry.removed:
            # Of a file that somebody added since the base, rows are among the new ones.
            known = files.get(_partition(label), set())
            if label in known:
                known.remove(label)
            else:
                files.pop(_partition(label), None)
        for label in entry.added:
            files.get(_partition(label), set()).add(label)
    present: dict[str, set[str]] = {partition: set() for partition in files}
    for label in now.labels:
        if _partition(label) in present:
            present[_partition(label)].add(label)
    return frozenset(one for one, labels in files.items() if labels == present[one])


def _culprit(since: Sequence[Entry], partitions: Sequence[str]) -> str:
    for entry in reversed(since):
        if not frozenset(partitions).isdisjoint(entry.partitions):
            return _named(entry)
    return "a change by another tool"


def _named(entry: Entry) -> str:
    return f"the {entry.operation} that made version {entry.version} (commit {entry.commit_id})"


def update(
    store: Store,
    dataset: str,
    descriptor: DatasetDescriptor,
    options: CommitOptions | None = None,
) -> tuple[Entry, State]:
    """Change what a dataset is.

    Args:
        store: Where it is.
        dataset: Its name.
        descriptor: What it shall be.
        options: How long to fight for the head.

    Returns:
        The entry in the history and the state that the change was based on; the entry of the
        current version if the descriptor is what it was.

    Raises:
        InvalidInputError: The rules of evolution do not allow it; nothing has changed.
        CommitConflictError: Somebody else changed the descriptor meanwhile, or the race was lost
            until the deadline; nothing has changed.
        CommitUnknownError: The store stopped answering.

    Cost:
        A read of the head and of the whole history, one PUT, one conditional PUT.
    """
    base = read_own_head(store, dataset).state
    entries = history.read(store, base.history)
    if descriptor == base.descriptor:
        return entries[-1], base
    check_update(base.descriptor, descriptor, _schemas(entries, dataset))
    change = Change(
        operation="update",
        commit_id=uuid.uuid4().hex,
        base_version=base.version,
        descriptor=descriptor,
        lineage=base.lineage.after(base.descriptor, descriptor),
    )
    return commit_change(store, base, change, options), base


def commit_change(
    store: Store,
    base: State,
    change: Change,
    options: CommitOptions | None = None,
    *,
    sources: Sources | None = None,
    only_on: State | None = None,
    staged_until: dt.datetime | None = None,
) -> Entry:
    """Commit a change that brings no batch of its own, or one that was staged before.

    Args:
        store: Where the dataset is.
        base: The state that the change was computed from.
        change: What it does.
        options: How long to fight for the head.
        sources: What the segment of the change says of raw files.
        only_on: The state that it may be committed on; None for any without a conflict.
        staged_until: When the lease of a batch ends that was staged before, for the error.

    Returns:
        The entry in the history.

    Raises:
        CommitConflictError: A commit since the base changed a partition in its scope or read in
            one of the raw files, or the race was lost until the deadline; nothing has changed.
        PreconditionFailedError: The dataset is no longer in the state that it may be committed
            on; nothing has changed.
        CommitUnknownError: The store stopped answering.

    Cost:
        A read of the head for each attempt, one PUT, one conditional PUT.
    """
    attempts = _Attempts(
        store,
        base,
        change,
        options or CommitOptions(),
        sources,
        only_on=only_on,
        staged_until=staged_until,
    )
    return _run(store, attempts)


def commit_and_tell(
    store: Store, base: State, change: Change, options: CommitOptions | None = None
) -> tuple[Entry, State | None]:
    """Commit a change, and tell what the head said right after it; see `commit_change`.

    Returns:
        The entry in the history, and the state; None for that if an answer was lost and somebody
        has committed since.
    """
    attempts = _Attempts(store, base, change, options or CommitOptions())
    return _run(store, attempts), attempts.made


def _run(store: Store, attempts: _Attempts) -> Entry:
    try:
        return attempts.run()
    except CommitUnknownError:
        raise
    except LakebedError:
        delete_or_leave(store, attempts.unused_segments)
        raise


def _schemas(entries: Sequence[Entry], dataset: str) -> dict[int, Schema]:
    """Return every schema that a dataset ever had, by number."""
    found = {}
    for entry in entries:
        if entry.descriptor is not None:
            descriptor, lineage = descriptor_from(entry.descriptor, f"{dataset}/history")
            found[lineage.number] = descriptor.schema
    return found


_CREATE_WAITS_S = (0.0, 0.1, 0.4, 1.0)  # before each put of a first head


def create(store: Store, state: State) -> State:
    """Write the first head of a dataset, put-if-absent.

    Args:
        store: Where the dataset shall be.
        state: Without history; version 0.

    Returns:
        The state with its history.

    Raises:
        ObjectExistsError: The name is taken; nothing became visible.
        CommitUnknownError: The store stopped answering; the dataset may exist or not.

    Cost:
        One PUT, one conditional PUT, and up to four GETs.
    """
    entry = Entry(
        version=0,
        commit_id=state.commit_id,
        operation="create",
        committed_at=state.committed_at or dt.datetime.now(dt.UTC),
        descriptor=state.descriptor.to_document(),
    )
    segment = first_segment(state)
    store.put(segment.key, history.encode_entries([entry]))
    first = replace(state, history=(segment,))
    try:
        _create_head(store, first)
    except CommitUnknownError:
        raise
    except LakebedError:
        delete_or_leave(store, [segment.key])
        raise
    return first


def _create_head(store: Store, state: State) -> None:
    key = state.head_format.key(state.name)
    data = encode_head(to_document(state), state.head_format)
    trouble: StorageError | None = None
    for wait_s in _CREATE_WAITS_S:
        time.sleep(wait_s)
        etag = None
        try:
            etag = store.create(key, data)
        except ObjectExistsError:
            if _is_free(store, state) and remove_leftover(store, state.name, state.head_format):
                continue
            # Perhaps it is ours, from a put whose answer was lost.
        except StorageError as exc:
            if not exc.retryable and trouble is None:
                raise
            trouble = exc
            continue
        try:
            _check_has_name(store, state, etag)
        except ObjectExistsError:
            # Where there is a commit, nobody looks for what has lost against it, nor commits to it.
            if etag is not None:
                store.delete_if_match(key, etag=etag)
            raise
        return
    raise _unknown_creation(state, trouble) from trouble


def _check_has_name(store: Store, state: State, etag: str | None) -> None:
    """Check that the name is that of the dataset, also where others create it at the same time."""
    try:
        head = read_settled_head(store, state.name)
        if any(one is not None and not one.state.is_ours for one in (head, head.stale)):
            raise _taken(state)  # by another tool, which knows no such rules
        entries = history.read(store, head.state.history)
    except StorageError as exc:
        raise _unknown_creation(state, exc) from exc
    except DatasetNotFoundError as exc:
        if etag is None:
            raise _taken(state) from exc
        return  # it was there, and was dropped again
    except LakebedError as exc:
        # Something is damaged. What was just written is not, and somebody may have committed to it.
        raise (_taken(state) if etag is None else _unknown_creation(state, exc)) from exc
    if all(entry.commit_id != state.commit_id for entry in entries):
        raise _taken(state)


def _is_free(store: Store, state: State) -> bool:
    try:
        read_head(store, state.name)
    except DatasetNotFoundError:
        return True
    except LakebedError:
        return False
    return False


def _taken(state: State) -> ObjectExistsError:
    return ObjectExistsError(f"Dataset {state.name!r} was just created by somebody else.")


def _unknown_creation(state: State, cause: LakebedError | None) -> CommitUnknownError:
    return CommitUnknownError(
        f"The store did not say whether dataset {state.name!r} was created: "
        f"{cause.message if cause else 'no answer'}",
        hint="Open it, or create it again with if_exists='open'.",
        commit_id=state.commit_id,
    )


__all__ = ["CommitOptions", "Nothing", "Transaction", "commit_change", "create", "update"]

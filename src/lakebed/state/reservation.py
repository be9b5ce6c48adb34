"""Reservations of batch ids: one object per batch, which later becomes the batch's manifest."""

from __future__ import annotations

import datetime as dt
import itertools
import logging
import os
import random
import re
import socket
import threading
import time
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from typing import Annotated, ClassVar, Self

import msgspec

from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.errors import (
    CorruptMetadataError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StorageError,
)
from lakebed.model.keys import BatchId, BatchIds
from lakebed.model.layout import Folder
from lakebed.model.schema import Type
from lakebed.model.sql_predicates import parse_sql
from lakebed.state.caught import Caught
from lakebed.state.check_results import CheckOutcome
from lakebed.state.scope import Nothing, RunFiles, Scope, ThesePartitions, Unchanged, WholeView
from lakebed.store.base import ObjectInfo, Store

LEASE = dt.timedelta(hours=24)  # unless CommitOptions sets another one
SUFFIX = ".json"
_NAME = re.compile(rf"([0-9]{{1,18}}){re.escape(SUFFIX)}")
# The store sends a conditional put once; one lost answer must not cost a whole batch.
_WAITS_S = (0.0, 0.1, 0.5, 2.0)
_MOST_TRIED = 1024  # ids of a dataset that are remembered
_MOST_DATASETS = 256
_MOST_DOUBLINGS = 8

_log = logging.getLogger(__name__)

_Moment = Annotated[dt.datetime, msgspec.Meta(tz=True)]


class ManifestFile(msgspec.Struct, frozen=True):
    """A data file as the manifest lists it."""

    label: str
    row_count: int
    size_bytes: int
    checksum: str


class ScopeNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A scope in its stored form.

    Attributes:
        partitions: Paths of whole partitions.
        view: Whole partitions, as a SQL predicate on partition fields.
        run: Name of a run, for all files that it wrote; with partitions, these too.
        replaces_all: With a run: whether its rows may go that the new rows do not stand for.
    """

    partitions: tuple[str, ...] | None = None
    view: str | None = None
    run: str | None = None
    replaces_all: bool = True

    @classmethod
    def of(cls, scope: Scope) -> Self:
        """Return the stored form of a scope."""
        match scope:
            case Nothing():
                return cls()
            case ThesePartitions():
                return cls(partitions=tuple(sorted(scope.partitions)))
            case RunFiles():
                partitions = tuple(sorted(scope.partitions or ())) or None
                return cls(run=scope.run, partitions=partitions, replaces_all=scope.replaces_all)
            case WholeView() if not isinstance(scope, Unchanged):
                return cls(view=str(scope.predicate))
        message = f"A batch with the scope {type(scope).__name__} cannot be staged."
        raise TypeError(message)

    def scope(self, levels: Mapping[str, Type]) -> Scope:
        """Return the scope.

        Args:
            levels: Partition fields without the batch level.

        Raises:
            PredicateError: The predicate names a field that the dataset does not have.
        """
        if self.run is not None:
            return RunFiles(
                self.run,
                partitions=frozenset(self.partitions or ()),
                replaces_all=self.replaces_all,
            )
        if self.partitions is not None:
            return ThesePartitions(frozenset(self.partitions))
        if self.view is not None:
            return WholeView(parse_sql(self.view, levels), levels)
        return Nothing()


class Staging(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Further data for the commit of a staged batch, possibly by another process.

    Attributes:
        created_at: Time of creation of the dataset; it distinguishes a later dataset of the name.
        base_version: Version that the batch was staged on; later commits may conflict with it.
        foreign_added: Labels of files that other tools had added to that version by then.
        foreign_removed: Labels of files that other tools had removed from it by then.
        staged_at: Time when the batch was staged.
        row_count: Number of entities in its files.
        scope: The scope that it replaces.
        facts: Key of the segment of the file table; absent without files.
        postings: Keys of the segments of inverted indices, by column.
        caught: Values that the caps of dimensions sent to `OTHER`.
        checks: Results of the declared checks of rows.
    """

    created_at: str
    base_version: int
    staged_at: _Moment
    row_count: int
    scope: ScopeNote
    facts: str | None = None
    postings: dict[str, tuple[str, ...]] = {}
    caught: tuple[Caught, ...] = ()
    foreign_added: tuple[str, ...] = ()
    foreign_removed: tuple[str, ...] = ()
    checks: tuple[CheckOutcome, ...] = ()


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of a batch: first its reservation by a writer, finally its manifest.

    Attributes:
        batch_id: The id; it encodes the start time of the run, in the form of the dataset's ids.
        commit_id: Id of the commit that will make the batch visible.
        operation: Operation of that commit.
        writer: Host and process of the writer.
        started_at: Time of the reservation.
        lease_until: Time until which no cleanup may treat the writer as dead.
        run: Name of the run, if it has one.
        completed_at: Time when all its files were written; absent before.
        files: Its files; absent before it is complete.
        staging: Data for the commit of a staged batch.
        checksum: Checksum of all other members as they are stored; absent in this process.
    """

    batch_id: BatchId
    commit_id: str
    operation: str
    writer: str
    started_at: _Moment
    lease_until: _Moment
    run: str | None = None
    completed_at: _Moment | None = None
    files: tuple[ManifestFile, ...] | None = None
    staging: Staging | None = None
    checksum: str | None = None


class Reservation:
    """A batch id that no other writer has."""

    def __init__(self, store: Store, key: str, etag: str, record: BatchRecord) -> None:
        self._store = store
        self._key = key
        self._etag = etag
        self._record = record
        self._renew_at: dt.datetime | None = None  # after a renewal that failed

    @property
    def batch_id(self) -> int:
        """The reserved batch id."""
        return self._record.batch_id

    @property
    def key(self) -> str:
        """Key of the reservation; delete the object to return the id."""
        return self._key

    @property
    def record(self) -> BatchRecord:
        """The record that was last written."""
        return self._record

    @property
    def etag(self) -> str:
        """The etag of the record that was last written."""
        return self._etag

    def renew_if_due(self, lease: dt.timedelta) -> None:
        """Extend the lease once half of it is over.

        If the store fails, try again once half of the remaining time is over.

        Raises:
            PreconditionFailedError: A cleanup treated the writer as dead and took its id away.
            StorageError: The store failed for seconds, and the lease has ended.

        Cost:
            Nothing, or one PUT.
        """
        now = _now()
        if now < (self._renew_at or self._record.lease_until - lease / 2):
            return
        renewed = msgspec.structs.replace(self._record, lease_until=now + lease)
        try:
            self._replace(renewed)
        except StorageError as exc:
            now = _now()
            remaining = self._record.lease_until - now
            if remaining <= dt.timedelta():
                raise
            self._renew_at = now + remaining / 2
            _log.warning(
                "lease not renewed key=%s lease_until=%s reason=%s",
                self._key,
                self._record.lease_until.isoformat(),
                exc.message,
            )
            return
        self._record = renewed
        self._renew_at = None

    def complete(
        self,
        files: tuple[ManifestFile, ...],
        *,
        staging: Staging | None = None,
        lease: dt.timedelta | None = None,
    ) -> None:
        """Write the manifest: every file that the batch holds.

        Args:
            files: All data files of the batch.
            staging: Data for the later commit of a staged batch.
            lease: How long the batch is kept from now on; None for the remaining lease.

        Raises:
            PreconditionFailedError: A cleanup treated the writer as dead and took its id away.
            StorageError: The store failed for seconds.

        Cost:
            One PUT.
        """
        now = _now()
        done = msgspec.structs.replace(
            self._record,
            completed_at=now,
            files=files,
            staging=staging,
            lease_until=self._record.lease_until if lease is None else now + lease,
        )
        self._replace(done)

    def give_up(self) -> bool:
        """Ensure that no manifest exists under the id, and that none can be written.

        Returns:
            False if a manifest may exist, which others may have read.

        Cost:
            One PUT.
        """
        # The bytes differ from those of any record before: some stores compare contents.
        given_up = msgspec.structs.replace(self._record, lease_until=self._record.started_at)
        try:
            self._etag = self._store.replace(
                self._key, encode_record(given_up), if_match=self._etag
            )
        except PreconditionFailedError:
            return self._is_gone()
        except StorageError:
            return False
        return True

    def _is_gone(self) -> bool:
        """Return whether the id was taken away, so that no commit can accept the batch."""
        try:
            self._store.get(self._key)
        except ObjectNotFoundError:
            return True
        except StorageError:
            return False
        return False

    def _replace(self, record: BatchRecord) -> None:
        """Replace the last record, with retries if the store fails."""
        data = encode_record(record)
        self._etag = _put_patiently(lambda: self._replace_own(data))

    def _replace_own(self, data: bytes) -> str:
        """Put the record once; an earlier put whose answer was lost may have landed."""
        try:
            return self._store.replace(self._key, data, if_match=self._etag)
        except PreconditionFailedError as exc:
            refusal = exc
        try:
            stored = self._store.get(self._key)
        except ObjectNotFoundError:
            raise refusal from None
        if stored.data == data:
            return stored.etag
        try:
            there = decode_record(stored.data, self._key)
        except CorruptMetadataError:
            raise refusal from None
        if there.commit_id != self._record.commit_id or there.files is not None:
            raise refusal
        # A renewal of ours has landed, so no other put under the old condition can.
        return self._store.replace(self._key, data, if_match=stored.etag)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def key_of(dataset: str, batch_id: int) -> str:
    """Return the key of the reservation of a batch."""
    return Folder.BATCHES.of(dataset, f"{batch_id}{SUFFIX}")


def listed(store: Store, dataset: str) -> dict[int, ObjectInfo]:
    """Return the listed reservations and manifests of a dataset, by batch id.

    Cost:
        One LIST for each 1,000 of them.
    """
    prefix = f"{Folder.BATCHES.of(dataset)}/"
    names = {info.key.removeprefix(prefix): info for info in store.list(prefix)}
    matches = ((_NAME.fullmatch(name), info) for name, info in names.items())
    return {int(match[1]): info for match, info in matches if match}


def read_record(store: Store, key: str) -> BatchRecord:
    """Read a reservation or manifest.

    Raises:
        ObjectNotFoundError: The batch was given up.
        CorruptMetadataError: The record is truncated or malformed.

    Cost:
        One GET.
    """
    return decode_record(store.get(key).data, key)


def decode_record(data: bytes, key: str) -> BatchRecord:
    """Read the bytes of a reservation or manifest.

    Raises:
        CorruptMetadataError: The record is truncated or malformed.
    """
    try:
        record = from_json(data, BatchRecord)
    except UNREADABLE as exc:
        raise _unreadable(key, str(exc)) from exc
    if not key.endswith(f"/{record.batch_id}{SUFFIX}"):
        raise _unreadable(key, f"it belongs to batch {record.batch_id}")
    plain = msgspec.structs.replace(record, checksum=None)
    # A flipped bit in the name of a member makes another batch: one without files, or of no run.
    if record.checksum != _checksum_of(plain):
        raise _unreadable(key, "its members differ from their checksum, so it is damaged")
    return plain


def _unreadable(key: str, why: str) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"Reservation {key!r} cannot be read: {why}.",
        hint="Data files are not affected; only the record of the batch is.",
    )


def reserve(
    store: Store,
    dataset: str,
    *,
    above: int,
    commit_id: str,
    operation: str,
    run: str | None,
    lease: dt.timedelta = LEASE,
    form: BatchIds = BatchIds.MILLISECONDS,
    begun_at: dt.datetime | None = None,
) -> Reservation:
    """Reserve a batch id: that of this moment, or the next free one above `above`.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        above: Exclusive lower limit of the id.
        commit_id: Id of the commit that will make the batch visible.
        operation: Operation of that commit.
        run: Name of the run, if it has one.
        lease: How long no cleanup may treat the writer as dead.
        form: Form of the dataset's batch ids.
        begun_at: Start time of the process that writes it; None, or a future time, for now.

    Cost:
        One PUT; one more for each id that others took at the same time, and for each retry.
    """
    now = _now()
    batch_id = form.of(now if begun_at is None else min(begun_at, now))
    if batch_id <= above:
        batch_id = form.after(above)
    ids = _Ids.of(store, dataset)
    for collisions in itertools.count():
        batch_id = ids.taken(batch_id, form, _step_after(collisions, form))
        record = BatchRecord(
            batch_id=batch_id,
            commit_id=commit_id,
            operation=operation,
            writer=f"{socket.gethostname()}/{os.getpid()}",
            started_at=now,
            lease_until=now + lease,
            run=run,
        )
        key = key_of(dataset, batch_id)
        try:
            return Reservation(store, key, _create(store, key, encode_record(record)), record)
        except ObjectExistsError:
            continue
    raise AssertionError  # there is always another id


def _step_after(collisions: int, form: BatchIds) -> int:
    """Return how many ids a writer goes on: at random after several, as others do the same."""
    if collisions < 2 or form is not BatchIds.MILLISECONDS:
        return min(collisions, 1)
    return random.randint(1, 2 ** min(collisions, _MOST_DOUBLINGS))


class _Ids:
    """The ids that this process has lately tried for one dataset, so that its threads do not meet."""

    _known: ClassVar[OrderedDict[tuple[Hashable, str], _Ids]] = OrderedDict()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._tried: deque[int] = deque(maxlen=_MOST_TRIED)

    @classmethod
    def of(cls, store: Store, dataset: str) -> _Ids:
        """Return the ids of a dataset."""
        name = (store.group_key, dataset)
        with cls._lock:
            ids = cls._known.setdefault(name, cls())
            cls._known.move_to_end(name)
            if len(cls._known) > _MOST_DATASETS:
                cls._known.popitem(last=False)
        return ids

    @classmethod
    def begin_again(cls) -> None:
        """Forget everything, in a new process whose parent may have held the lock."""
        cls._lock = threading.Lock()
        cls._known = OrderedDict()

    def taken(self, batch_id: int, form: BatchIds, step: int) -> int:
        """Return the next id that no thread has tried, some steps on, and note it."""
        with self._lock:
            for _ in range(step):
                batch_id = form.after(batch_id)
            while batch_id in self._tried:
                batch_id = form.after(batch_id)
            self._tried.append(batch_id)
        return batch_id


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Ids.begin_again)


def _create(store: Store, key: str, data: bytes) -> str:
    """Create a record, with retries if the store fails; return its etag."""
    attempts = itertools.count()

    def create() -> str:
        is_first = next(attempts) == 0
        try:
            return store.create(key, data)
        except ObjectExistsError:
            # An earlier put whose answer was lost may have landed.
            etag = None if is_first else _etag_of(store, key, data)
            if etag is None:
                raise
            return etag

    return _put_patiently(create)


def _put_patiently(put: Callable[[], str]) -> str:
    """Return the etag of a conditional put, with retries if the store fails."""
    for wait_s in _WAITS_S:
        try:
            return put()
        except StorageError as exc:
            if not exc.retryable:
                raise
        time.sleep(wait_s)
    return put()


def _etag_of(store: Store, key: str, data: bytes) -> str | None:
    """Return the etag of an object if it has these bytes; None otherwise."""
    try:
        stored = store.get(key)
    except ObjectNotFoundError:
        return None
    return stored.etag if stored.data == data else None


def encode_record(record: BatchRecord) -> bytes:
    """Return the bytes of a reservation or manifest, with their checksum."""
    return msgspec.json.encode(msgspec.structs.replace(record, checksum=_checksum_of(record)))


def _checksum_of(record: BatchRecord) -> str:
    return f"crc32:{zlib.crc32(msgspec.json.encode(record)):08x}"

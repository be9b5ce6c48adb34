"""Batch ids: reserved by one object a batch, which later is the batch's manifest."""

from __future__ import annotations

import datetime as dt
import os
import socket
import time

import msgspec

from lakebed.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StorageError,
)
from lakebed.store.base import Store

LEASE = dt.timedelta(hours=24)
# Conditional puts are sent once; one lost answer is not worth the work of a whole batch.
_COMPLETE_WAITS_S = (0.0, 0.1, 0.5, 2.0)


class ManifestFile(msgspec.Struct, frozen=True):
    """A data file as the manifest lists it."""

    label: str
    row_count: int
    size_bytes: int
    checksum: str


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a batch: at first that somebody writes it, at last what it holds.

    Attributes:
        batch_id: Epoch milliseconds at which the run started.
        commit_id: Of the commit that will make it visible.
        operation: Of that commit.
        writer: Host and process.
        started_at: When it was reserved.
        lease_until: Until then nobody may take the writer for dead.
        run: Name of the run, if it has one.
        completed_at: When all its files were written; absent before.
        files: Its files; absent before it is complete.
    """

    batch_id: int
    commit_id: str
    operation: str
    writer: str
    started_at: dt.datetime
    lease_until: dt.datetime
    run: str | None = None
    completed_at: dt.datetime | None = None
    files: tuple[ManifestFile, ...] | None = None


class Reservation:
    """A batch id that nobody else has."""

    def __init__(self, store: Store, key: str, etag: str, record: BatchRecord) -> None:
        self._store = store
        self._key = key
        self._etag = etag
        self._record = record

    @property
    def batch_id(self) -> int:
        """The id."""
        return self._record.batch_id

    @property
    def key(self) -> str:
        """Where it is; delete it to give the id back."""
        return self._key

    def complete(self, files: tuple[ManifestFile, ...]) -> None:
        """Write the manifest: every file that the batch holds.

        Raises:
            PreconditionFailedError: Somebody took the writer for dead and its id away.
            StorageError: The store failed for seconds.

        Cost:
            One PUT.
        """
        done = msgspec.structs.replace(
            self._record, completed_at=dt.datetime.now(dt.UTC), files=files
        )
        data = _encode(done)
        for wait_s in (*_COMPLETE_WAITS_S, None):
            try:
                self._etag = self._store.replace(self._key, data, if_match=self._etag)
            except PreconditionFailedError as exc:
                # Perhaps it is ours, from a put whose answer was lost.
                self._etag = self._etag_of(data, exc)
            except StorageError as exc:
                if not exc.retryable or wait_s is None:
                    raise
                time.sleep(wait_s)
                continue
            return

    def _etag_of(self, data: bytes, refusal: PreconditionFailedError) -> str:
        try:
            found = self._store.get(self._key)
        except ObjectNotFoundError:
            raise refusal from None
        if found.data != data:
            raise refusal
        return found.etag


def reserve(
    store: Store, dataset: str, *, above: int, commit_id: str, operation: str, run: str | None
) -> Reservation:
    """Reserve a batch id: this millisecond, or the next that is free and above `above`.

    Cost:
        One PUT; one more for each id that others took at the same time.
    """
    now = dt.datetime.now(dt.UTC)
    batch_id = max(int(now.timestamp() * 1000), above + 1)
    while True:
        record = BatchRecord(
            batch_id=batch_id,
            commit_id=commit_id,
            operation=operation,
            writer=f"{socket.gethostname()}/{os.getpid()}",
            started_at=now,
            lease_until=now + LEASE,
            run=run,
        )
        key = f"{dataset}/batches/{batch_id}.json"
        try:
            return Reservation(store, key, store.create(key, _encode(record)), record)
        except ObjectExistsError:
            batch_id += 1


def _encode(record: BatchRecord) -> bytes:
    return msgspec.json.encode(record)

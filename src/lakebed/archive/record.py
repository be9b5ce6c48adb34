"""Records of files in the archive, and their keys in indices.

An index like DynamoDB holds documents of version 0 of the record format: one for each day that a
file touches.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakebed.archive.metadata import RESERVED_WORK_ID, FileMetadata
from lakebed.archive.retraction import Retraction, from_fields, to_fields
from lakebed.archive.times import time_buckets, to_datetime

RECORD_VERSION = 0
MAX_BUCKETS = 30  # the limit of the originals, which refuse files of more days
LONG_BUCKET = "long"
RETRACTION = "lakebed:retraction"  # beside the metadata, in an index alone


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRecord:
    """A file in the archive.

    Attributes:
        url: URL of the content.
        metadata: The metadata given with the content.
        create_time_ms: Time when the content was stored, in milliseconds since the epoch, by the
            clock of the storage.
        size_bytes: The length of the content.
        retraction: The retraction that keeps ingests from reading the file; None if there is none.

    Examples:
        >>> import io, lakebed
        >>> archive = lakebed.open_archive("memory://records")
        >>> record = archive.push(
        ...     io.BytesIO(b"mwahaha"), path="/a.log", where="box", what="log", start="2015-03-20"
        ... )
        >>> record.hash
        'a3e75ee4f45f676422e038f2c116d000'
    """

    url: str
    metadata: FileMetadata
    create_time_ms: int
    size_bytes: int
    retraction: Retraction | None = None

    @property
    def id(self) -> str:
        """The id of the file; unique in an archive."""
        return self.metadata.id

    @property
    def hash(self) -> str:
        """BLAKE2b of the content, 16 bytes in hex."""
        return self.metadata.hash

    @property
    def where(self) -> str:
        """The place or machine that the file comes from."""
        return self.metadata.where

    @property
    def what(self) -> str:
        """The program or process that made the file."""
        return self.metadata.what

    @property
    def work_id(self) -> str | None:
        """The caller's own id of the work that the file belongs to."""
        return self.metadata.work_id

    @property
    def path(self) -> str:
        """The absolute path that the file had."""
        return self.metadata.path

    @property
    def start(self) -> dt.datetime:
        """The time of the first event; aware, UTC."""
        return to_datetime(self.metadata.start)

    @property
    def end(self) -> dt.datetime | None:
        """The time of the last event; aware, UTC. None for a file of one moment."""
        return None if self.metadata.end is None else to_datetime(self.metadata.end)

    @property
    def created_at(self) -> dt.datetime:
        """The time when the content was stored; aware, UTC."""
        return to_datetime(self.create_time_ms)

    @property
    def last_ms(self) -> int:
        """The end, or the start of a file of one moment, in milliseconds since the epoch."""
        return self.metadata.start if self.metadata.end is None else self.metadata.end

    @property
    def range_key(self) -> str:
        """`<where>:<id>`, the second half of every key."""
        return f"{self.where}:{self.id}"

    @property
    def work_id_index_key(self) -> str:
        """`<work_id>:<what>`; files without work id have `null<id>` instead."""
        return work_id_index_key(self.work_id or f"{RESERVED_WORK_ID}{self.id}", self.what)

    @property
    def time_index_keys(self) -> tuple[str, ...]:
        """`<day>:<what>` for each day of the file, or `long:<what>` for more than 30 days."""
        days = time_buckets(self.metadata.start, self.metadata.end)
        buckets = days if len(days) <= MAX_BUCKETS else (LONG_BUCKET,)
        return tuple(time_index_key(bucket, self.what) for bucket in buckets)

    @property
    def long_days(self) -> range:
        """The days of a file of more than 30 days, counted from the epoch; else empty."""
        days = time_buckets(self.metadata.start, self.metadata.end)
        return days if len(days) > MAX_BUCKETS else range(0)

    def to_documents(self) -> tuple[dict[str, Any], ...]:
        """Return the documents of version 0 that stand for the file, one for each time key."""
        return tuple(map(self.to_document, self.time_index_keys))

    def to_document(self, time_key: str) -> dict[str, Any]:
        """Return the document of version 0 under one time key."""
        return {
            "version": RECORD_VERSION,
            "url": self.url,
            "time_index_key": time_key,
            "work_id_index_key": self.work_id_index_key,
            "range_key": self.range_key,
            "create_time": self.create_time_ms,
            "size": self.size_bytes,
            "metadata": self.noted_metadata,
        }

    @property
    def noted_metadata(self) -> dict[str, Any]:
        """The metadata as an index holds it: with the retraction, if there is one."""
        note = {} if self.retraction is None else {RETRACTION: to_fields(self.retraction)}
        return {**self.metadata, **note}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ArchiveRecord:
        """Read the record of a file from any one of its documents.

        Raises:
            InvalidInputError: The metadata breaks a rule.
            UnsupportedVersionError: The metadata is of another version.
        """
        fields = dict(document["metadata"])
        note = fields.pop(RETRACTION, None)
        return cls(
            url=document["url"],
            metadata=FileMetadata(fields, is_stored=True),
            create_time_ms=int(document["create_time"]),
            size_bytes=int(document["size"]),
            retraction=None if note is None else from_fields(note),
        )


def time_index_key(bucket: int | str, what: str) -> str:
    """Return the key under which the files of a day and a `what` are found.

    Examples:
        >>> time_index_key(16636, "nginx")
        '16636:nginx'
    """
    return f"{bucket}:{what}"


def work_id_index_key(work_id: str, what: str) -> str:
    """Return the key under which the files of a work id and a `what` are found."""
    return f"{work_id}:{what}"

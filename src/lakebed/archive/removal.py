"""Deletion of files of an archive, with their metadata and their records in the index.

The record in the index goes last. So a process that is killed leaves records whose content is gone,
which the next call finds by the index, and deletes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lakebed.archive import kept_files
from lakebed.archive.file_keys import metadata_key
from lakebed.archive.record import ArchiveRecord
from lakebed.errors import InvalidInputError

if TYPE_CHECKING:
    from lakebed.archive.archive import Archive

FILES_AT_ONCE = 500  # a content and its metadata each: one request to S3


def portions(records: Sequence[ArchiveRecord]) -> Iterator[Sequence[ArchiveRecord]]:
    """Yield records in portions, those that were stored first before the others.

    A file may stand in for one that was stored before it. While any of them is left, it is the last
    one, as before.
    """
    ordered = sorted(records, key=lambda record: (record.create_time_ms, record.id))
    for start in range(0, len(ordered), FILES_AT_ONCE):
        yield ordered[start : start + FILES_AT_ONCE]


def is_in(archive: Archive, record: ArchiveRecord) -> bool:
    """Return whether the content of a record is in the storage of an archive.

    An index may have records of files in other storages, too.
    """
    try:
        kept_files.key_of(archive.store, record.url)
    except InvalidInputError:
        return False
    return True


def remove(archive: Archive, records: Sequence[ArchiveRecord]) -> None:
    """Delete files; what is gone already is passed over.

    Raises:
        InvalidInputError: A file is in another storage; nothing was deleted.
        StorageError: The storage or the index failed; a repetition deletes the rest.

    Cost:
        Two requests for 500 files, and a write to the index.
    """
    keys = [kept_files.key_of(archive.store, record.url) for record in records]
    archive.store.delete(keys)
    archive.store.delete(metadata_key(record.id) for record in records)
    archive.index.delete(record.id for record in records)

"""Deletion of files of an archive, with their metadata and their records in the index; and its limits.

A dataset needs a file until it has read all of it, as the file is now. Files with the same metadata
may be states of one another: if the last one went alone, an ingest would read an older one again.

The record in the index goes last. So a process that is killed leaves records whose content is gone,
which the next call finds by the index, and deletes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakebed.archive import kept_files
from lakebed.archive.erased import hashes_before
from lakebed.archive.file_keys import metadata_key
from lakebed.archive.record import ArchiveRecord
from lakebed.errors import InvalidInputError
from lakebed.state import sources as source_list
from lakebed.state.reader import read_head
from lakebed.state.sources import SourceFile
from lakebed.store.base import Store

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


def why_needed(record: ArchiveRecord, read: SourceFile | None) -> str | None:
    """Return the reason why a dataset needs a file; None if it has read all of it.

    Args:
        record: The record of the file.
        read: Note of the dataset on it; None without one.
    """
    if read is None:
        return "not read"
    if read.fingerprint != record.hash and read.fingerprint not in hashes_before(record):
        return "not read"
    return None if read.refusal is None else "read in part"


def files_read_by(store: Store, dataset: str) -> Mapping[str, SourceFile]:
    """Return the archived files that the current version of a dataset has read, by id.

    Raises:
        DatasetNotFoundError: There is no such dataset.

    Cost:
        A read of the head, and the record of the files read.
    """
    lists = read_head(store, dataset).state.lists
    current = source_list.read(store, lists.sources).current().values()
    return {file.file_id: file for file in current if file.file_id is not None}


def check_deletable(
    archive: Archive, record: ArchiveRecord, read_by: Mapping[str, Mapping[str, SourceFile]]
) -> None:
    """Check that a file may be deleted.

    Args:
        archive: The archive.
        record: The record of the file.
        read_by: The files that datasets have read, by name of the dataset.

    Raises:
        InvalidInputError: A dataset needs it, or it is a later state of a file that stays.

    Cost:
        A query of the index.
    """
    for name, read in read_by.items():
        why = why_needed(record, read.get(record.id))
        if why is not None:
            raise InvalidInputError(
                f"The file {record.id} is {why} by {name}, so its rows would be lost.",
                hint="Read it first, with `lakebed ingest` or `lakebed run`; or leave the dataset out.",
            )
    age = _age(archive.index.find(record.id) or record)
    older = next((one for one in _same(archive, record) if _age(one) < age), None)
    if older is not None:
        raise InvalidInputError(
            f"The file {record.id} may be a later state of {older.id}, which an ingest would read "
            "in its place.",
            hint=f"Delete or retract {older.id} first.",
        )


def _same(archive: Archive, record: ArchiveRecord) -> Iterator[ArchiveRecord]:
    """Yield the other files with the same metadata that ingests may read."""
    time: dict[str, Any] = {"work_id": record.work_id}
    if record.work_id is None:
        time = {"start": record.start, "end": record.start}
    for one in archive.list(record.what, where=record.where, **time):
        same = (one.path, one.start, one.work_id) == (record.path, record.start, record.work_id)
        if same and one.id != record.id:
            yield one


def _age(record: ArchiveRecord) -> tuple[int, str]:
    return record.create_time_ms, record.id


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

"""Files of an archive that were written again without erased rows, with a note in their record.

The note and the new hash are in the metadata before the content is replaced: a process that is
killed in between leaves a file whose content has the hash before, which the next call recognises.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakebed.archive import kept_files
from lakebed.archive.file_keys import (
    ATTRIBUTE,
    MAX_ATTRIBUTE_BYTES,
    data_key,
    metadata_key,
)
from lakebed.archive.metadata import FileMetadata
from lakebed.archive.record import ArchiveRecord
from lakebed.arrow.reading.hashes import content_hash
from lakebed.errors import InvalidInputError

if TYPE_CHECKING:
    from lakebed.archive.archive import Archive

FIELD = "lakebed:erased"
"""Field of the metadata: the list of erasures, each with `at`, `rows` and `hash_before`."""


def hashes_before(record: ArchiveRecord) -> frozenset[str]:
    """Return the hashes that a file had before erasures."""
    notes = record.metadata.get(FIELD)
    if not isinstance(notes, list):
        return frozenset()
    return frozenset(str(one.get("hash_before")) for one in notes if isinstance(one, Mapping))


def replace_content(
    archive: Archive, record: ArchiveRecord, data: bytes, rows: int
) -> ArchiveRecord:
    """Replace the content of a file, and note the erasure in its metadata and in the index.

    Args:
        archive: The archive.
        record: The record of the file.
        data: The new content.
        rows: Number of rows that it lacks.

    Raises:
        InvalidInputError: The key of the file contains its hash, so it cannot be kept.

    Cost:
        Two PUTs, a HEAD and a write to the index.
    """
    store = archive.store
    key = kept_files.key_of(store, record.url)
    if key != data_key(record.id):
        raise InvalidInputError(
            f"The key of {record.url} is made of its hash, and a rewritten file has another one.",
            hint="Delete the file by `lakebed archive delete`, and push a copy without the rows.",
        )
    new_hash = content_hash([data])
    if new_hash != record.hash:
        note = {"at": dt.datetime.now(dt.UTC).isoformat(), "rows": rows, "hash_before": record.hash}
        record = replace(record, metadata=_with_note(record.metadata, new_hash, note))
        text = record.metadata.to_json()
        store.put(metadata_key(record.id), text.encode("ascii"))
    text = record.metadata.to_json()
    attributes = {ATTRIBUTE: text} if len(text) <= MAX_ATTRIBUTE_BYTES else {}
    store.put_stream(key, iter([data]), attributes=attributes, size_bytes=len(data))
    return archive.ingest(record.id)


def _with_note(metadata: FileMetadata, new_hash: str, note: Mapping[str, Any]) -> FileMetadata:
    fields = dict(metadata)
    before = fields.get(FIELD)
    notes = [*before, note] if isinstance(before, list) else [note]
    return FileMetadata({**fields, "hash": new_hash, FIELD: notes}, is_stored=True)


def is_in_step(archive: Archive, record: ArchiveRecord) -> bool:
    """Return whether the index has the present hash of a file.

    Cost:
        A read of the index.
    """
    indexed = archive.index.find(record.id)
    return indexed is None or indexed.hash == record.hash

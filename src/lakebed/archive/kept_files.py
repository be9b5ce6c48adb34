"""Contents and their metadata in a store, without an index.

The key of a content is `<id>/data`, or one that contains more fields; the key of its metadata is
`<id>/metadata`. If the store supports attributes and the metadata is short enough, it is also an
attribute of the content. Other keys, such as those of old archives, can be read if the metadata is
an attribute of the object.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from itertools import chain
from typing import IO

from lakebed.archive.content import PIECE_BYTES, Hashed, pieces_of, readable_twice
from lakebed.archive.file_keys import (
    ATTRIBUTE,
    MAX_ATTRIBUTE_BYTES,
    KeyForm,
    content_key,
    data_key,
    ids_in,
    metadata_key,
    original_key,
)
from lakebed.archive.metadata import FileMetadata
from lakebed.archive.record import ArchiveRecord
from lakebed.archive.times import to_epoch_ms
from lakebed.arrow.reading.hashes import content_hash
from lakebed.errors import (
    CorruptMetadataError,
    InvalidInputError,
    ObjectExistsError,
    ObjectNotFoundError,
    RecordExistsError,
    RecordNotFoundError,
)
from lakebed.store.base import ObjectStat, Store, validate_key

_HASH_TO_COME = "0" * 32  # stands for the hash while the other rules are checked
_SMALL_BYTES = 8 * 1024 * 1024  # held in memory, to know the hash before the upload


def url_of(store: Store, key: str) -> str:
    """Return the URL of an object."""
    return f"{store.uri}/{key}"


def key_of(store: Store, url_or_id: str) -> str:
    """Return the key of a URL or an id.

    Raises:
        InvalidInputError: The URL leads out of the store, or the id is not valid.
    """
    if "://" not in url_or_id:
        return data_key(url_or_id)
    root = f"{store.uri}/"
    if not url_or_id.startswith(root):
        msg = f"{url_or_id!r} is not in {store.uri}."
        raise InvalidInputError(
            msg,
            hint=f"URLs of this archive begin with {root} If it was copied or moved, or is opened by "
            "another path, `lakebed archive reindex` records the present URLs of its files.",
        )
    return validate_key(url_or_id.removeprefix(root))


def write_new(
    store: Store, file: IO[bytes], fields: Mapping[str, object], *, compress: bool
) -> ArchiveRecord:
    """Store a content under an id that was generated for it; the content is read once.

    Raises:
        InvalidInputError: The metadata breaks a rule, or the file cannot be read.
    """
    checked = FileMetadata({**fields, "hash": _HASH_TO_COME})
    pieces = Hashed(pieces_of(file, compress=compress))
    first = []
    for piece in pieces:
        first.append(piece)
        if pieces.size_bytes > _SMALL_BYTES:
            break
    # The attributes are sent before the content, so a hash must be known by then.
    is_small = pieces.size_bytes <= _SMALL_BYTES
    attributes = _attributes(checked.with_hash(pieces.hash)) if is_small else {}
    key = data_key(checked.id)
    store.check_writable()  # check now: the metadata is created last, and a content needs it
    store.put_stream(
        key, chain(first, pieces), attributes=attributes, size_bytes=_size_hint(file, compress)
    )
    metadata = checked.with_hash(pieces.hash)
    store.create(metadata_key(metadata.id), metadata.to_json().encode("ascii"))
    return _record(store, store.stat(key), metadata)


def check_fields(fields: Mapping[str, object]) -> None:
    """Check the fields of a file that is not stored yet.

    Raises:
        InvalidInputError: One breaks a rule.
    """
    FileMetadata({**fields, "hash": _HASH_TO_COME})


def write_claimed(
    store: Store,
    file: IO[bytes],
    fields: Mapping[str, object],
    *,
    compress: bool = False,
    expected_hash: str | None = None,
    is_stored: bool = False,
    keys: KeyForm = "id",
) -> ArchiveRecord:
    """Store a content under an id that the caller chose; a repetition changes nothing.

    The metadata, including the hash, is created before the content: if several writers want the id
    at once, one wins, and the others go on only if they bring the same file. So the content is read
    twice.

    Raises:
        RecordExistsError: Another file has the id.
        InvalidInputError: The metadata breaks a rule, the content does not have the expected hash,
            or the file cannot be read or changed meanwhile.
    """
    checked = FileMetadata({**fields, "hash": _HASH_TO_COME}, is_stored=is_stored)
    with readable_twice(file) as again:
        start = again.tell()
        found_hash = content_hash(pieces_of(again, compress=compress))
        if expected_hash not in {None, found_hash}:
            msg = f"The content has the hash {found_hash}, but its metadata has {expected_hash}."
            raise InvalidInputError(msg, hint="It was damaged in transit; nothing was stored.")
        metadata = checked.with_hash(found_hash)
        key = content_key(metadata, keys)
        if not _is_stored(store, key, metadata):
            other = content_key(metadata, "original" if keys == "id" else "id")
            if not _claim(store, metadata) and _is_stored(store, other, metadata):
                return _record(store, store.stat(other), metadata)
            again.seek(start)
            store.put_stream(
                key,
                Hashed(pieces_of(again, compress=compress), expected=found_hash),
                attributes=_attributes(metadata),
                size_bytes=_size_hint(again, compress),
            )
    return _record(store, store.stat(key), metadata)


def _is_stored(store: Store, key: str, metadata: FileMetadata) -> bool:
    """Return whether the content exists; with other metadata it is another file, an error."""
    try:
        held = read_metadata(store, store.stat(key))
    except ObjectNotFoundError:
        return False
    if held != metadata:
        raise _taken(store, metadata)
    return True


def _claim(store: Store, metadata: FileMetadata) -> bool:
    """Claim the id for a file; return False if it was claimed for the same file before."""
    try:
        store.create(metadata_key(metadata.id), metadata.to_json().encode("ascii"))
    except ObjectExistsError as exc:
        if _read_beside(store, metadata.id) != metadata:
            raise _taken(store, metadata) from exc
        return False
    return True


def _taken(store: Store, metadata: FileMetadata) -> RecordExistsError:
    msg = f"Another file has the id {metadata.id!r} in {store.uri}."
    return RecordExistsError(msg, hint="Push it without an id, or under another one.")


def _attributes(metadata: FileMetadata) -> dict[str, str]:
    text = metadata.to_json()
    return {ATTRIBUTE: text} if len(text) <= MAX_ATTRIBUTE_BYTES else {}


def _size_hint(file: IO[bytes], compress: bool) -> int | None:  # noqa: FBT001 - private
    """Return an upper bound of the remaining bytes of a file; None if unknown."""
    if not file.seekable():
        return None
    here = file.tell()
    size_bytes = file.seek(0, io.SEEK_END)
    file.seek(here)
    return size_bytes + PIECE_BYTES if compress else size_bytes


def read_record(store: Store, key: str) -> ArchiveRecord:
    """Read the record of a content from the store alone.

    Raises:
        RecordNotFoundError: There is no object under the key.
        CorruptMetadataError: It has no metadata, or metadata that breaks a rule.
        UnsupportedVersionError: Its metadata is of another version.

    Cost:
        One HEAD; one GET more if the metadata is only beside the content.
    """
    try:
        stat = store.stat(key)
    except ObjectNotFoundError as exc:
        msg = f"There is no file {url_of(store, key)}."
        raise RecordNotFoundError(msg, hint="Look for it with `lakebed archive list`.") from exc
    return _record(store, stat, read_metadata(store, stat))


def find_record(store: Store, url_or_id: str) -> ArchiveRecord:
    """Read the record of a content from the store alone, by its URL or id.

    Raises:
        InvalidInputError: The URL leads out of the store, or the id is not valid.
        RecordNotFoundError: There is no such content.
        CorruptMetadataError: It has no metadata, or metadata that breaks a rule.

    Cost:
        As `read_record`; a HEAD and a GET more for an id whose content is not `<id>/data`.
    """
    try:
        return read_record(store, key_of(store, url_or_id))
    except RecordNotFoundError:
        if "://" in url_or_id:
            raise
        try:
            metadata = _read_beside(store, url_or_id)
        except (ObjectNotFoundError, CorruptMetadataError):
            metadata = None  # without metadata of this id, the other key is unknown
        if metadata is None:
            raise
    return read_record(store, original_key(metadata))


def read_metadata(store: Store, stat: ObjectStat) -> FileMetadata:
    """Read the metadata of a content.

    Raises:
        CorruptMetadataError: There is none, or it breaks a rule.
        UnsupportedVersionError: It is of another version.
    """
    text = stat.attributes.get(ATTRIBUTE)
    if text is not None:
        return _parse(text, url_of(store, stat.key))
    missing: ObjectNotFoundError | None = None
    for file_id in ids_in(stat.key):
        try:
            metadata = _read_beside(store, file_id)
        except ObjectNotFoundError as exc:
            missing = exc
            continue
        if stat.key in (data_key(metadata.id), original_key(metadata)):
            return metadata
    raise _without_metadata(store, stat.key) from missing


def _read_beside(store: Store, file_id: str) -> FileMetadata:
    key = metadata_key(file_id)
    where = url_of(store, key)
    metadata = _parse(store.get(key).data, where)
    if metadata.id != file_id:
        msg = f"{where} is the metadata of the file {metadata.id!r}."
        raise CorruptMetadataError(msg, hint="Restore the metadata of this file.")
    return metadata


def _parse(text: str | bytes, where: str) -> FileMetadata:
    try:
        return FileMetadata.from_json(text)
    except InvalidInputError as exc:
        msg = f"The metadata of {where} breaks a rule: {exc.message}"
        raise CorruptMetadataError(msg, hint="Push the file again.") from exc


def _without_metadata(store: Store, key: str) -> CorruptMetadataError:
    msg = f"{url_of(store, key)} has no metadata."
    return CorruptMetadataError(msg, hint="Add files to an archive with push.")


def _record(store: Store, stat: ObjectStat, metadata: FileMetadata) -> ArchiveRecord:
    return ArchiveRecord(
        url=url_of(store, stat.key),
        metadata=metadata,
        create_time_ms=to_epoch_ms(stat.modified_at),
        size_bytes=stat.size_bytes,
    )

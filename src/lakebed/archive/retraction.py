"""Retractions: files of an archive that stay, but that no ingest reads.

The note of a retraction in the storage, `retractions/ids/<id>`, is authoritative. The index holds a
copy with the record, so that queries omit the file.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping
from typing import Annotated

import msgspec

from lakebed.common.decoding import UNREADABLE, from_json, from_values
from lakebed.errors import CorruptMetadataError, ObjectExistsError, ObjectNotFoundError
from lakebed.store.base import Store

# Keys of contents and metadata have two or four levels, so no file has a key in this folder.
FOLDER = "retractions/ids/"

_DELETED = "deleted: "  # begins the reason of a file that is gone, or going


class Retraction(msgspec.Struct, frozen=True, kw_only=True):
    """A note that keeps ingests from reading a file of an archive.

    Attributes:
        reason: Reason for the retraction.
        retracted_at: Time of the retraction; aware, UTC.

    >>> Retraction(reason="torn", retracted_at=dt.datetime(2026, 9, 1, tzinfo=dt.UTC)).reason
    'torn'
    """

    reason: str
    retracted_at: Annotated[dt.datetime, msgspec.Meta(tz=True)]


def key_of_retraction(file_id: str) -> str:
    """Return the key of the note on a file, which need not exist."""
    return f"{FOLDER}{_name(file_id)}"


def _name(file_id: str) -> str:
    # An id in a key of another form may not be a legal name, or be one that listings omit.
    is_plain = file_id.isascii() and file_id.isprintable() and not file_id.startswith(".")
    if file_id and is_plain and not {"%", "/"}.intersection(file_id):
        return file_id
    return f"%{hashlib.blake2b(file_id.encode(errors='surrogatepass'), digest_size=16).hexdigest()}"


def is_retraction(key: str) -> bool:
    """Return whether a key is that of a note."""
    return key.startswith(FOLDER)


def retractions_in(store: Store) -> frozenset[str]:
    """Return the keys of all notes; see `key_of_retraction`.

    Cost:
        One LIST.
    """
    return frozenset(info.key for info in store.list(FOLDER))


def find_retraction(store: Store, file_id: str) -> Retraction | None:
    """Read the note on a file; None if it is not retracted.

    Raises:
        CorruptMetadataError: It is truncated or has a wrong form.

    Cost:
        One GET.
    """
    key = key_of_retraction(file_id)
    try:
        data = store.get(key).data
    except ObjectNotFoundError:
        return None
    try:
        return from_json(data, Retraction)
    except UNREADABLE as exc:
        raise CorruptMetadataError(
            f"The retraction {store.uri}/{key} cannot be read: {exc}.",
            hint="Restore the file, and retract it again.",
        ) from exc


def note_retraction(store: Store, file_id: str, reason: str) -> Retraction:
    """Write the note that a file is retracted; an existing note stays.

    Cost:
        One PUT.
    """
    note = Retraction(reason=reason, retracted_at=dt.datetime.now(dt.UTC))
    try:
        store.create(key_of_retraction(file_id), msgspec.json.encode(note))
    except ObjectExistsError:
        return find_retraction(store, file_id) or note
    return note


def note_deletion(store: Store, file_id: str, reason: str) -> Retraction:
    """Write the note that a file is deleted, in place of one that it was retracted.

    The note stays when the file is gone. A note of an earlier call, which was killed, stays as it is.

    Cost:
        A GET and a PUT.
    """
    before = find_retraction(store, file_id)
    if before is not None and before.reason.startswith(_DELETED):
        return before
    text = f"{_DELETED}{reason}"
    if before is not None:
        text += f" (retracted {before.retracted_at:%Y-%m-%d}: {before.reason})"
    note = Retraction(reason=text, retracted_at=dt.datetime.now(dt.UTC))
    store.put(key_of_retraction(file_id), msgspec.json.encode(note))
    return note


def from_fields(fields: Mapping[str, object]) -> Retraction:
    """Read a retraction from an index.

    Raises:
        CorruptMetadataError: It has a wrong form.
    """
    try:
        return from_values(fields, Retraction)
    except msgspec.MsgspecError as exc:
        raise CorruptMetadataError(
            f"The index has a damaged retraction: {exc}.", hint="Rebuild the index with reindex."
        ) from exc


def to_fields(note: Retraction) -> dict[str, str]:
    """Return a retraction as an index holds it."""
    return {"reason": note.reason, "retracted_at": note.retracted_at.isoformat()}

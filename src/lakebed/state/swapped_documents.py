"""Small documents of JSON that writers replace under a condition, each in an object of its own."""

from __future__ import annotations

from typing import Protocol, TypeVar

from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.errors import CommitConflictError, CorruptMetadataError, ObjectNotFoundError
from lakebed.store.base import Store


class _Versioned(Protocol):
    @property
    def format_version(self) -> int: ...


_Document = TypeVar("_Document", bound=_Versioned)


def find_document(
    store: Store, key: str, kind: type[_Document], *, version: int, remedy: str
) -> tuple[_Document, str] | None:
    """Return a document and the etag that its next replacement compares; None if there is none.

    Args:
        store: The store.
        key: Key of the document.
        kind: Its type.
        version: The only format version that this release reads.
        remedy: Remedy for a damaged document, as a sentence.

    Raises:
        CorruptMetadataError: It cannot be read.

    Cost:
        One GET.
    """
    try:
        stored = store.get(key)
    except ObjectNotFoundError:
        return None
    if store.finish_claim(key, etag=stored.etag):
        return find_document(store, key, kind, version=version, remedy=remedy)
    try:
        document = from_json(stored.data, kind)
    except UNREADABLE as exc:
        raise CorruptMetadataError(
            f"{key!r} in {store.uri} cannot be read: {exc}.", hint=remedy
        ) from exc
    if document.format_version != version:
        raise CorruptMetadataError(
            f"{key!r} in {store.uri} has the format version {document.format_version}.",
            hint="Use a newer release of Lakebed.",
        )
    return document, stored.etag


def swap_document(store: Store, key: str, content: bytes, etag: str | None) -> str:
    """Replace a document, if it is still as it was read, and return its new etag.

    Args:
        store: The store.
        key: Key of the document.
        content: The new document.
        etag: Etag of the document as it was read; None if there was none.

    Raises:
        ObjectExistsError: Another writer has created it.
        PreconditionFailedError: Another writer has changed it.
        StorageError: If retryable, it may or may not have been replaced.

    Cost:
        One conditional PUT.
    """
    if etag is None:
        return store.create(key, content)
    return store.replace(key, content, if_match=etag)


def busy_error(what: str, attempts: int) -> CommitConflictError:
    """Return the error of a change that other writers were faster than, time after time."""
    return CommitConflictError(
        f"{what} was changed {attempts} times meanwhile.",
        hint="Try again.",
        expected=0,
        actual=attempts,
    )

"""Pointers to the metadata of Iceberg tables that a catalog of Lakebed keeps in a repository.

The table `orders` has one small object, which is replaced under a condition at each commit. It is
never deleted: a dropped table leaves its name free, and the pointer lists the metadata that it had.

    orders.iceberg-table.json                       the pointer
    orders/metadata/00003-….metadata.json           the metadata that it names
"""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import dataclass

import msgspec

from lakebed.errors import CorruptMetadataError, PreconditionFailedError
from lakebed.model.names import is_dataset_name
from lakebed.state.swapped_documents import busy_error, find_document, swap_document
from lakebed.store.base import Store

_log = logging.getLogger(__name__)

SUFFIX = ".iceberg-table.json"
MAX_DROPPED = 100  # tables of one name that were dropped, in its pointer; older ones are left out

_VERSION = 1
_ATTEMPTS = 10  # of a change, while clients commit to the same table


class DroppedTable(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A table that had a name before.

    Attributes:
        metadata_location: Location of its last metadata, which `register` takes.
        dropped_at: Time at which it lost the name; aware, UTC.
        renamed_to: Its new name, as `namespace.table`; empty if it was dropped.
        is_purged: Whether its files are being deleted; the next purge of the name goes on with that.
    """

    metadata_location: str
    dropped_at: dt.datetime
    renamed_to: str = ""
    is_purged: bool = False


class Pointer(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The state of one table name.

    Attributes:
        metadata_location: Location of the current metadata; empty if no table has the name.
        renaming_to: The name that a rename gives to the table, as `namespace.table`, while it has
            not ended; else empty.
        renamed_from: The name that the table had before; empty if it was created with this one.
        dropped: Tables that had the name before, oldest first.
        format_version: Version of this document.
    """

    metadata_location: str = ""
    renaming_to: str = ""
    renamed_from: str = ""
    dropped: tuple[DroppedTable, ...] = ()
    format_version: int = _VERSION

    def without_table(self, renamed_to: str = "", *, is_purged: bool = False) -> Pointer:
        """Return the pointer after its table was dropped, or has another name."""
        dropped = DroppedTable(
            metadata_location=self.metadata_location,
            dropped_at=dt.datetime.now(dt.UTC),
            renamed_to=renamed_to,
            is_purged=is_purged,
        )
        return Pointer(dropped=(*self.dropped, dropped)[-MAX_DROPPED:])


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPointer:
    """A pointer with the etag that its next change compares.

    Attributes:
        pointer: The pointer.
        etag: Etag for replace-if-match.
    """

    pointer: Pointer
    etag: str


def find_pointer(store: Store, name: str) -> StoredPointer | None:
    """Return the pointer of a name; None if it never had a table.

    Args:
        store: The store of the repository.
        name: Name of the table; with a folder, the name in that namespace.

    Raises:
        CorruptMetadataError: It cannot be read.

    Cost:
        One GET.
    """
    remedy = "Move it away, and register the table by its newest metadata file."
    found = find_document(store, pointer_key(name), Pointer, version=_VERSION, remedy=remedy)
    return None if found is None else StoredPointer(pointer=found[0], etag=found[1])


def find_table(store: Store, name: str) -> StoredPointer | None:
    """Return the pointer of a table; None if no table has the name now; see `find_pointer`."""
    stored = find_pointer(store, name)
    return stored if stored is not None and stored.pointer.metadata_location else None


def put_pointer(
    store: Store, name: str, pointer: Pointer, before: StoredPointer | None
) -> StoredPointer:
    """Replace the pointer of a name, if it is still as it was read, and return it as it is stored.

    Args:
        store: The store of the repository.
        name: Name of the table.
        pointer: The new pointer.
        before: The pointer as it was read; None if there was none.

    Raises:
        ObjectExistsError: Another writer has created it.
        PreconditionFailedError: Another writer has changed it.
        StorageError: If retryable, it may or may not have been replaced.

    Cost:
        One conditional PUT.
    """
    content = msgspec.json.encode(pointer)
    etag = swap_document(store, pointer_key(name), content, None if before is None else before.etag)
    return StoredPointer(pointer=pointer, etag=etag)


def list_pointers(store: Store, folder: str = "") -> list[str]:
    """Return the names of the tables that pointers of a folder name, sorted.

    Args:
        store: The store of the repository.
        folder: The folder of a namespace, with a trailing slash; empty for the root.

    A table whose pointer is damaged is among them.

    Cost:
        One LIST of the folder, and a GET for each pointer.
    """
    keys = (info.key for info in store.list(folder, recursive=False))
    names = [key.removeprefix(folder).removesuffix(SUFFIX) for key in keys if key.endswith(SUFFIX)]
    return [name for name in names if is_dataset_name(name) and _is_live(store, folder + name)]


def release_name(store: Store, name: str) -> None:
    """Take a name from its table, whose last metadata the pointer lists; without a table do nothing.

    Args:
        store: The store of the repository.
        name: Name of the table.

    Raises:
        CommitConflictError: Clients of the catalog change the table all the time.

    Cost:
        One GET, and a conditional PUT if there is a table.
    """
    for _ in range(_ATTEMPTS):
        stored = find_table(store, name)
        if stored is None:
            return
        try:
            put_pointer(store, name, stored.pointer.without_table(), stored)
        except PreconditionFailedError:
            continue
        return
    raise busy_error(f"Table {name!r} of the Iceberg catalog", _ATTEMPTS)


def pointer_key(name: str) -> str:
    """Return the key of the pointer of a name.

    >>> pointer_key("orders")
    'orders.iceberg-table.json'
    """
    return f"{name}{SUFFIX}"


def _is_live(store: Store, name: str) -> bool:
    try:
        return find_table(store, name) is not None
    except CorruptMetadataError as exc:
        # A listing shows it, and a load names the damage.
        _log.warning("the pointer of a table cannot be read table=%s error=%s", name, exc)
        return True

"""The index made anew from what the storage holds."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from lakebed.archive import files
from lakebed.archive.index import ArchiveIndex
from lakebed.archive.keys import is_metadata_key
from lakebed.archive.record import ArchiveRecord
from lakebed.errors import FormatError, InvalidInputError, ObjectNotFoundError, RecordNotFoundError
from lakebed.store import Store

_READS_AT_ONCE = 16
_BATCH = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedObject:
    """An object that is no file of the archive.

    Attributes:
        url: Which object.
        reason: Why.
    """

    url: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReindexReport:
    """What `reindex` did, or would do.

    Attributes:
        indexed_count: Files that are in the index now.
        removed: Records whose content is gone from the storage.
        skipped: Objects without metadata, or with metadata that breaks a rule.
    """

    indexed_count: int
    removed: tuple[ArchiveRecord, ...]
    skipped: tuple[SkippedObject, ...]


def reindex(store: Store, index: ArchiveIndex, *, dry_run: bool = False) -> ReindexReport:
    """Read the metadata of every file in the storage and put it into the index.

    Files may be pushed meanwhile: a record is taken out only when its own object is seen to be gone.

    Args:
        store: Where the files are.
        index: What is to find them.
        dry_run: Whether the index stays as it is.

    Raises:
        StorageError: The storage or the index failed; what was indexed so far stays.

    Cost:
        One LIST for each 1,000 objects, a HEAD or GET or both for each; 16 at a time.
    """
    if not dry_run:
        index.create()
    seen: set[str] = set()
    skipped: list[SkippedObject] = []
    keys = (info.key for info in store.list() if not is_metadata_key(info.key))
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        while chunk := list(islice(keys, _BATCH)):
            found = list(pool.map(lambda key: _read(store, key), chunk))
            records = [one for one in found if isinstance(one, ArchiveRecord)]
            skipped += [one for one in found if isinstance(one, SkippedObject)]
            if not dry_run:
                index.put(records)
            seen.update(record.id for record in records)
        removed = tuple(_gone(store, index, seen))
    if removed and not dry_run:
        index.delete(record.id for record in removed)
    return ReindexReport(indexed_count=len(seen), removed=removed, skipped=tuple(skipped))


def _read(store: Store, key: str) -> ArchiveRecord | SkippedObject | None:
    try:
        return files.read_record(store, key)
    except RecordNotFoundError:  # deleted since it was listed
        return None
    except FormatError as exc:
        return SkippedObject(url=files.url_of(store, key), reason=exc.message)


def _gone(store: Store, index: ArchiveIndex, seen: set[str]) -> Iterator[ArchiveRecord]:
    """Yield the records that nothing in the storage stands behind."""
    for record in index.records():
        if record.id in seen:
            continue
        try:
            store.stat(files.key_of(store, record.url))
        except (ObjectNotFoundError, InvalidInputError):
            yield record

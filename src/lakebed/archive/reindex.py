"""Rebuilding of the index from the contents of the storage."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from lakebed.archive import kept_files
from lakebed.archive.file_keys import is_metadata_key
from lakebed.archive.index import ArchiveIndex
from lakebed.archive.record import ArchiveRecord
from lakebed.archive.retraction import (
    find_retraction,
    is_retraction,
    key_of_retraction,
    retractions_in,
)
from lakebed.errors import (
    FormatError,
    InvalidInputError,
    ObjectNotFoundError,
    RecordNotFoundError,
    StorageError,
)
from lakebed.store import Store
from lakebed.store.at_once import at_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READS_AT_ONCE = 16
_BATCH = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedObject:
    """An object that is not a file of the archive.

    Attributes:
        url: URL of the object.
        reason: Reason for skipping it.
    """

    url: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReindexReport:
    """The result of `reindex`, or of its dry run.

    Attributes:
        indexed_count: Files that are in the index now.
        removed: Records whose content is no longer in the storage.
        skipped: Objects without metadata, or with metadata that breaks a rule.
        foreign_count: Records of files in other storages, which stay as they are.
    """

    indexed_count: int
    removed: tuple[ArchiveRecord, ...]
    skipped: tuple[SkippedObject, ...]
    foreign_count: int = 0


_Outcome = ArchiveRecord | SkippedObject


def reindex(
    store: Store, index: ArchiveIndex, *, spark: SparkSession | None = None, dry_run: bool = False
) -> ReindexReport:
    """Read the metadata of every file in the storage and put it into the index.

    Files may be pushed meanwhile: a record is removed only after a check that its own object is
    gone. Records of files in other storages stay: an index may serve several.

    Args:
        store: The store that holds the files.
        index: The index to rebuild.
        spark: A session whose tasks read the metadata; None reads in this process.
        dry_run: Leave the index as it is.

    Raises:
        StorageError: The storage or the index failed; records indexed so far stay.
        InvalidInputError: Spark tasks cannot access the storage.

    Cost:
        One LIST for each 1,000 objects, a HEAD or GET or both for each: 16 at a time, in each
        task of a session.
    """
    if not dry_run:
        index.create()
    # Check this before the storage is read, which may take hours.
    has_records = not dry_run or index.exists()
    seen: set[str] = set()
    skipped: list[SkippedObject] = []
    retracted = retractions_in(store)
    keys = (
        info.key
        for info in store.list()
        if not is_metadata_key(info.key) and not is_retraction(info.key)
    )
    outcomes = _read_all(store, keys) if spark is None else _read_by_tasks(spark, store, list(keys))
    while chunk := list(islice(outcomes, _BATCH)):
        records = [
            with_retraction(store, outcome)
            if key_of_retraction(outcome.id) in retracted
            else outcome
            for outcome in chunk
            if isinstance(outcome, ArchiveRecord)
        ]
        skipped += [outcome for outcome in chunk if isinstance(outcome, SkippedObject)]
        if not dry_run:
            index.put(records)
        seen.update(record.id for record in records)
    removed: list[ArchiveRecord] = []
    foreign_count = 0
    for record in index.records() if has_records else ():
        if record.id in seen:
            continue
        if not _is_in(store, record):
            foreign_count += 1
        elif _is_gone(store, record):
            removed.append(record)
    if removed and not dry_run:
        index.delete(record.id for record in removed)
    return ReindexReport(
        indexed_count=len(seen),
        removed=tuple(removed),
        skipped=tuple(skipped),
        foreign_count=foreign_count,
    )


def with_retraction(store: Store, record: ArchiveRecord) -> ArchiveRecord:
    """Return a record with its retraction from the storage, if there is one."""
    return replace(record, retraction=find_retraction(store, record.id))


def _read_all(store: Store, keys: Iterator[str]) -> Iterator[_Outcome]:
    while chunk := list(islice(keys, _BATCH)):
        for outcome in at_once(partial(_read, store), chunk, _READS_AT_ONCE):
            if outcome is not None:
                yield outcome


def _read_by_tasks(spark: SparkSession, store: Store, keys: Sequence[str]) -> Iterator[_Outcome]:
    if not store.is_shared:
        raise InvalidInputError(
            f"Spark tasks cannot access {store.uri}.", hint="Rebuild the index without Spark."
        )
    # Spark is imported on use: `import lakebed` must not need it.
    from lakebed.spark.mapping import ask_tasks

    def ask(task_keys: Sequence[str]) -> Iterator[str]:
        try:
            for outcome in _read_all(store, iter(task_keys)):
                yield json.dumps(_to_answer(outcome))
        except StorageError as exc:
            # Return an answer instead of failing: Spark would wrap the error.
            yield json.dumps({"message": exc.message, "hint": exc.hint})

    for answer in ask_tasks(spark, keys, ask):
        yield _from_answer(json.loads(answer))


def _to_answer(outcome: _Outcome) -> dict[str, Any]:
    if isinstance(outcome, SkippedObject):
        return {"skipped": outcome.url, "reason": outcome.reason}
    return {"record": outcome.to_documents()[0]}


def _from_answer(answer: Mapping[str, Any]) -> _Outcome:
    if "message" in answer:
        raise StorageError(answer["message"], hint=answer["hint"], retryable=True)
    if "skipped" in answer:
        return SkippedObject(url=answer["skipped"], reason=answer["reason"])
    return ArchiveRecord.from_document(answer["record"])


def _read(store: Store, key: str) -> _Outcome | None:
    try:
        return kept_files.read_record(store, key)
    except RecordNotFoundError:  # deleted since it was listed
        return None
    except FormatError as exc:
        return SkippedObject(url=kept_files.url_of(store, key), reason=exc.message)


def _is_in(store: Store, record: ArchiveRecord) -> bool:
    try:
        kept_files.key_of(store, record.url)
    except InvalidInputError:
        return False
    return True


def _is_gone(store: Store, record: ArchiveRecord) -> bool:
    try:
        store.stat(kept_files.key_of(store, record.url))
    except ObjectNotFoundError:
        return True
    return False

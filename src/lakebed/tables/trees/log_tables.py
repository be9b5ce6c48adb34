"""Adopt Delta and Iceberg tables: the live files of the newest version become a dataset, in place.

The table's own log is not changed. Its readers still see the adopted version, until a cleanup of the
dataset deletes files that were replaced since.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow.parquet as pq

from lakebed.arrow.footers import read_footers
from lakebed.arrow.workers import Workers
from lakebed.common.progress import NO_PROGRESS, OnProgress
from lakebed.errors import (
    InvalidInputError,
    LakebedError,
    NotFoundError,
    PartitionSpecError,
    SchemaMismatchError,
)
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import FIRST_MOMENT, BatchIds, encode_path
from lakebed.model.lineage import Lineage
from lakebed.store.base import Store
from lakebed.tables import delta
from lakebed.tables.iceberg.library_errors import importing_pyiceberg
from lakebed.work.adoption import OWN_FOLDERS, AdoptedVersion, Adoption, proven
from lakebed.work.batch_directories import AdoptedBatch, FoundFile
from lakebed.work.foreign import (
    ForeignFile,
    ForeignTable,
    ForeignVersion,
    cannot_adopt,
    readable_history,
)

_MEND = "Let its own tool check the table."


def find_delta(
    store: Store,
    name: str,
    on_progress: OnProgress = NO_PROGRESS,
    *,
    with_history: bool = False,
    workers: Workers | None = None,
) -> Adoption:
    """Prepare the adoption of a Delta table, and check all its files.

    Args:
        store: The store of the repository.
        name: Name of the dataset and of its directory.
        on_progress: Callback for progress; receives the number of footers read so far.
        with_history: Whether the versions of the log become versions of the dataset.
        workers: Workers that read the files; None for threads.

    Raises:
        LakebedError: As `lakebed.tables.delta.from_delta.read_table`; or a file does not match the
            log.
    """
    table = delta.from_delta.read_table(store, name, with_history=with_history)
    return _found(store, name, table, on_progress, workers, with_history=with_history)


def find_iceberg(
    store: Store,
    name: str,
    metadata: str | None = None,
    on_progress: OnProgress = NO_PROGRESS,
    *,
    with_history: bool = False,
    workers: Workers | None = None,
) -> Adoption:
    """Prepare the adoption of an Iceberg table, and check all its files.

    Args:
        store: The store of the repository.
        name: Name of the dataset and of its directory.
        metadata: The table's metadata file; None for the newest in `<name>/metadata`.
        on_progress: Callback for progress; receives the number of footers read so far.
        with_history: Whether the snapshots become versions of the dataset.
        workers: Workers that read the files; None for threads.

    Raises:
        LakebedError: As `lakebed.tables.iceberg.from_iceberg.read_table`; or a file does not match
            the metadata.
    """
    with importing_pyiceberg():
        from lakebed.tables.iceberg import from_iceberg
    table = from_iceberg.read_table(store, name, metadata, with_history=with_history)
    return _found(store, name, table, on_progress, workers, with_history=with_history)


def _found(
    store: Store,
    name: str,
    table: ForeignTable,
    on_progress: OnProgress,
    workers: Workers | None,
    *,
    with_history: bool,
) -> Adoption:
    if not table.files:
        raise NotFoundError(
            f"{table.title} has no live files in version {table.version}.",
            hint="Create a dataset instead.",
        )
    listed = {info.key: info.size_bytes for info in store.list(f"{name}/")}
    for key, file in table.files.items():
        _check_place(key, file, listed, table.title)

    def check_file(key: str, footer: pq.FileMetaData) -> None:
        _check_footer(key, files[key], footer, table)

    files, known = dict(table.files), dict[str, pq.FileMetaData]()
    history, notes = tuple[ForeignVersion, ...](), tuple[str, ...]()
    if with_history:
        history, known, notes = _history(store, table, listed, workers)
        files |= {key: file for version in history for key, file in version.added.items()}
    versions, batch_ids = _versions(history)
    batches = _batches(table, files, batch_ids)
    try:
        DatasetDescriptor(schema=table.schema, partition_by=table.strategy).check()
    except PartitionSpecError as exc:
        raise cannot_adopt(table.title, exc.message.rstrip("."), table.remedy) from exc
    adoption = proven(
        store,
        name,
        batches,
        table.strategy,
        lambda _: table.schema,
        check_file,
        on_progress,
        differs=table.differs,
        known=known,
        remedy=table.remedy,
        checks=table.checks,
        workers=workers,
    )
    notes = (
        f"These are the files of version {table.version} of {table.title}.",
        *notes,
        *table.notes,
        "Its log was not changed. Stop all writers and cleanups of that table: they would delete "
        "files of the dataset.",
    )
    lineage = None
    if table.field_ids:
        lineage = Lineage.of_files_with_ids(
            table.field_ids, table.last_field_id, adoption.descriptor
        )
    return replace(adoption, log=table.log, versions=versions, notes=notes, lineage=lineage)


def _batches(
    table: ForeignTable, files: Mapping[str, ForeignFile], batch_ids: Mapping[str, int]
) -> list[AdoptedBatch]:
    """Return the files by partition and batch: those that are live, and those of older versions."""
    groups: dict[tuple[str, int | None, bool], list[FoundFile]] = {}
    for key, file in sorted(files.items()):
        batch_id = batch_ids.get(key)
        found = FoundFile(key=key, size_bytes=file.size_bytes, texts={}, batch_id=batch_id)
        group = (encode_path(file.values), batch_id, key in table.files)
        groups.setdefault(group, []).append(found)
    return [
        AdoptedBatch(
            partition=partition,
            batch_id=batch_id,
            files=tuple(found),
            taken_for="current" if is_live else "history",
            reason=f"live in version {table.version}" if is_live else "live in older versions",
        )
        for (partition, batch_id, is_live), found in sorted(
            groups.items(), key=lambda group: (group[0][0], group[0][1] or 0, group[0][2])
        )
    ]


def _history(
    store: Store, table: ForeignTable, listed: Mapping[str, int], workers: Workers | None
) -> tuple[tuple[ForeignVersion, ...], dict[str, pq.FileMetaData], tuple[str, ...]]:
    """Return the versions whose files can all be read, the footers of old files, and notes."""
    older: dict[str, ForeignFile] = {}
    for version in table.history:
        older.update((key, file) for key, file in version.added.items() if key not in table.files)
    unfit: dict[str, str] = {}
    for key, file in older.items():
        try:
            _check_place(key, file, listed, table.title)
        except InvalidInputError as exc:
            unfit[key] = exc.message.partition(": ")[2].rstrip(".")
    # Footers of files in versions that are left out anyway need not be read.
    possible, _ = readable_history(table.history, unfit)
    wanted = {key for version in possible for key in version.added} - table.files.keys()
    footers = read_footers(store, sorted(wanted), workers=workers)
    stored = DatasetDescriptor(schema=table.schema, partition_by=table.strategy).stored_schema
    sound: dict[str, pq.FileMetaData] = {}
    for key, footer in footers.items():
        try:
            if isinstance(footer, SchemaMismatchError):
                raise footer
            _check_footer(key, older[key], footer, table)
        except LakebedError as exc:
            unfit[key] = exc.message.rstrip(".")
            continue
        reason = table.differs(footer, stored)
        if reason:
            unfit[key] = f"{key!r} does not fit the newest schema: {reason}"
        sound[key] = footer
    history, reason = readable_history(table.history, unfit)
    if not history:
        return (), {}, ("Its older versions are not taken over: the log does not hold them.",)
    noted = f"{len(history):,} versions, {history[0].name} to {history[-1].name}, become versions "
    told = f"Its {noted}1 to {len(history):,} of the dataset."
    left = f" Older ones are left out, since they cannot be read: {reason}." if reason else ""
    used = {key for version in history for key in version.added}
    return history, {key: footer for key, footer in sound.items() if key in used}, (told + left,)


def _versions(
    history: Sequence[ForeignVersion],
) -> tuple[tuple[AdoptedVersion, ...], dict[str, int]]:
    """Return the versions of the dataset, and the batch of each file: that of its first version."""
    versions: list[AdoptedVersion] = []
    batch_ids: dict[str, int] = {}
    now = dt.datetime.now(dt.UTC)
    newest = 0
    for version in history:
        batch_id = None
        new = [key for key in version.added if key not in batch_ids]
        if new:
            started = BatchIds.MILLISECONDS.of(max(FIRST_MOMENT, min(version.made_at, now)))
            batch_id = newest = max(started, newest + 1)
            batch_ids |= dict.fromkeys(new, batch_id)
        versions.append(
            AdoptedVersion(
                operation=version.operation,
                made_at=version.made_at,
                batch_id=batch_id,
                added=tuple(sorted(version.added)),
                removed=tuple(sorted(version.removed)),
            )
        )
    return tuple(versions), batch_ids


def _check_footer(
    key: str, file: ForeignFile, footer: pq.FileMetaData, table: ForeignTable
) -> None:
    if file.row_count not in (None, footer.num_rows):
        reason = f"its file {key!r} holds {footer.num_rows:,} rows instead of {file.row_count:,}"
        raise cannot_adopt(table.title, reason, _MEND)
    mixed_up = table.check_footer(footer)
    if mixed_up:
        raise cannot_adopt(
            table.title,
            f"{key!r} cannot be read by the names of its columns: {mixed_up}",
            "Let its own tool rewrite its files: rewrite_data_files.",
        )


def _check_place(key: str, file: ForeignFile, listed: Mapping[str, int], title: str) -> None:
    """Check that a file exists, has the logged length, and is not in one of our folders."""
    if listed.get(key) != file.size_bytes:
        held = f"has {listed[key]:,} bytes" if key in listed else "is missing"
        reason = f"its file {key!r}, of {file.size_bytes:,} bytes, {held}"
        raise cannot_adopt(title, reason, _MEND)
    folder = key.split("/")[1]
    if folder in OWN_FOLDERS:
        raise InvalidInputError(
            f"{key!r} cannot be adopted: {folder}/ is the dataset's own.",
            hint="Read the rows of the table with a library of its format, and append them.",
        )

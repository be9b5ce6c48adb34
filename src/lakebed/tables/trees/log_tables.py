"""Adopt Delta and Iceberg tables: the live files of the newest version become a dataset, in place.

The table's own log is not changed. Its readers still see the adopted version, until a cleanup of the
dataset deletes files that were replaced since.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow.parquet as pq

from lakebed.common.progress import NO_PROGRESS, OnProgress
from lakebed.errors import InvalidInputError, NotFoundError
from lakebed.model.keys import encode_path
from lakebed.store.base import Store
from lakebed.tables import delta
from lakebed.tables.iceberg.library_errors import importing_pyiceberg
from lakebed.work.adoption import OWN_FOLDERS, Adoption, proven
from lakebed.work.batch_directories import AdoptedBatch, FoundFile
from lakebed.work.foreign import ForeignTable, cannot_adopt

_MEND = "Let its own tool check the table."


def find_delta(store: Store, name: str, on_progress: OnProgress = NO_PROGRESS) -> Adoption:
    """Prepare the adoption of a Delta table, and check all its files.

    Raises:
        LakebedError: As `lakebed.tables.delta.from_delta.read_table`; or a file does not match the
            log.
    """
    return _found(store, name, delta.from_delta.read_table(store, name), on_progress)


def find_iceberg(
    store: Store, name: str, metadata: str | None = None, on_progress: OnProgress = NO_PROGRESS
) -> Adoption:
    """Prepare the adoption of an Iceberg table, and check all its files.

    Args:
        store: The store of the repository.
        name: Name of the dataset and of its directory.
        metadata: The table's metadata file; None for the newest in `<name>/metadata`.
        on_progress: Callback for progress; receives the number of footers read so far.

    Raises:
        LakebedError: As `lakebed.tables.iceberg.from_iceberg.read_table`; or a file does not match
            the metadata.
    """
    with importing_pyiceberg():
        from lakebed.tables.iceberg import from_iceberg
    return _found(store, name, from_iceberg.read_table(store, name, metadata), on_progress)


def _found(store: Store, name: str, table: ForeignTable, on_progress: OnProgress) -> Adoption:
    if not table.files:
        raise NotFoundError(
            f"{table.title} has no live files in version {table.version}.",
            hint="Create a dataset instead.",
        )
    _check_places(store, name, table)
    by_partition: dict[str, list[FoundFile]] = {}
    for key, file in sorted(table.files.items()):
        found = FoundFile(key=key, size_bytes=file.size_bytes, texts={}, batch_id=None)
        by_partition.setdefault(encode_path(file.values), []).append(found)
    batches = [
        AdoptedBatch(
            partition=partition,
            batch_id=None,
            files=tuple(files),
            taken_for="current",
            reason=f"live in version {table.version}",
        )
        for partition, files in sorted(by_partition.items())
    ]

    def check_file(key: str, footer: pq.FileMetaData) -> None:
        rows = table.files[key].row_count
        if rows not in (None, footer.num_rows):
            reason = f"its file {key!r} holds {footer.num_rows:,} rows instead of {rows:,}"
            raise cannot_adopt(table.title, reason, _MEND)
        mixed_up = table.check_footer(footer)
        if mixed_up:
            raise cannot_adopt(
                table.title,
                f"{key!r} cannot be read by the names of its columns: {mixed_up}",
                "Let its own tool rewrite its files: rewrite_data_files.",
            )

    adoption = proven(
        store, name, batches, table.strategy, lambda _: table.schema, check_file, on_progress
    )
    notes = (
        f"These are the files of version {table.version} of {table.title}.",
        *table.notes,
        "Its log was not changed. Stop all writers and cleanups of that table: they would delete "
        "files of the dataset.",
    )
    return replace(adoption, log=table.log, notes=notes)


def _check_places(store: Store, name: str, table: ForeignTable) -> None:
    """Check that each live file exists, has the logged length, and is not in one of our folders."""
    listed = {info.key: info.size_bytes for info in store.list(f"{name}/")}
    for key, file in table.files.items():
        if listed.get(key) != file.size_bytes:
            held = f"has {listed[key]:,} bytes" if key in listed else "is missing"
            reason = f"its file {key!r}, of {file.size_bytes:,} bytes, {held}"
            raise cannot_adopt(table.title, reason, _MEND)
        folder = key.split("/")[1]
        if folder in OWN_FOLDERS:
            raise InvalidInputError(
                f"{key!r} cannot be adopted: {folder}/ is the dataset's own.",
                hint="Read the rows of the table with a library of its format, and append them.",
            )

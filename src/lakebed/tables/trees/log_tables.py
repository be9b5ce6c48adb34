"""Tables of Delta and Iceberg: the live files of the newest version become a dataset, in place.

The table's own log stays as it is, so that its readers go on with the version that was adopted, until
a cleanup of the dataset takes files that were replaced since.
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
    """Look at a Delta table that is to be adopted, and prove that it can be.

    Raises:
        LakebedError: As `lakebed.tables.delta.from_delta.read_table`; or a file is not what the log says.
    """
    return _found(store, name, delta.from_delta.read_table(store, name), on_progress)


def find_iceberg(
    store: Store, name: str, metadata: str | None = None, on_progress: OnProgress = NO_PROGRESS
) -> Adoption:
    """Look at an Iceberg table that is to be adopted, and prove that it can be.

    Args:
        store: Of the repository.
        name: Of the dataset, and of its directory.
        metadata: The file of the table's metadata; None for the newest in `<name>/metadata`.
        on_progress: Is told how many footers have been read.

    Raises:
        LakebedError: As `lakebed.tables.iceberg.from_iceberg.read_table`; or a file is not what the metadata
            says.
    """
    with importing_pyiceberg():
        from lakebed.tables.iceberg import from_iceberg
    return _found(store, name, from_iceberg.read_table(store, name, metadata), on_progress)


def _found(store: Store, name: str, table: ForeignTable, on_progress: OnProgress) -> Adoption:
    if not table.files:
        raise NotFoundError(
            f"{table.title} has no live file in version {table.version}.",
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
                "Let its own tool write its files again: rewrite_data_files.",
            )

    adoption = proven(
        store, name, batches, table.strategy, lambda _: table.schema, check_file, on_progress
    )
    notes = (
        f"They are what version {table.version} of {table.title} shows.",
        *table.notes,
        "Its log stays as it is: stop what writes to the table and cleans it up, which would delete "
        "files of the dataset.",
    )
    return replace(adoption, log=table.log, notes=notes)


def _check_places(store: Store, name: str, table: ForeignTable) -> None:
    """Check that each live file is there, as long as the log says, and in no folder of a dataset."""
    listed = {info.key: info.size_bytes for info in store.list(f"{name}/")}
    for key, file in table.files.items():
        if listed.get(key) != file.size_bytes:
            held = f"has {listed[key]:,} bytes" if key in listed else "is not there"
            reason = f"its file {key!r}, of {file.size_bytes:,} bytes, {held}"
            raise cannot_adopt(table.title, reason, _MEND)
        folder = key.split("/")[1]
        if folder in OWN_FOLDERS:
            raise InvalidInputError(
                f"{key!r} cannot be adopted: {folder}/ is the dataset's own.",
                hint="Read the rows of the table by a library of its format, and append them.",
            )

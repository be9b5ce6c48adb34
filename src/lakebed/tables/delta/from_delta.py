"""Delta tables written by other tools: the live files of the newest version."""

from __future__ import annotations

import datetime as dt
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from lakebed import by
from lakebed.arrow.footers import delta_difference
from lakebed.common.decoding import UNREADABLE
from lakebed.errors import (
    CorruptMetadataError,
    InvalidNameError,
    MissingDependencyError,
    NotFoundError,
    ObjectNotFoundError,
    PartitionSpecError,
    SchemaMismatchError,
)
from lakebed.model.arrow_types import schema_from_arrow
from lakebed.model.layout import DELTA_LOG
from lakebed.model.partition import PartitionStrategy
from lakebed.store.base import Store
from lakebed.tables.delta.live_files import files_of, read_history
from lakebed.tables.delta.table_rules import rules_of
from lakebed.work.foreign import ForeignLog, ForeignTable, cannot_adopt

if TYPE_CHECKING:
    from deltalake import DeltaTable

_COMMIT = r"[0-9]{20}\.json"
_NUMBER = re.compile(r"([0-9]{20})\.")
_LAST_CHECKPOINT = "_last_checkpoint"
_VECTORS, _MAPPING = "deletionVectors", "columnMapping"
# Reader features under which a file still holds exactly its live rows, under plain column names.
_PLAIN_FEATURES = frozenset(
    {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", _VECTORS, _MAPPING}
)


def read_table(store: Store, name: str, *, with_history: bool = False) -> ForeignTable:
    """Read the newest version of the Delta table in a directory.

    The last checkpoint and all later commits are copied to a temporary directory, so that deltalake
    can read them for every store.

    Args:
        store: The store that holds the table.
        name: The directory of the table.
        with_history: Whether to read all versions that the log holds.

    Raises:
        MissingDependencyError: deltalake is not installed.
        NotFoundError: There is no Delta log.
        CorruptMetadataError: The log cannot be read.
        InvalidInputError: The rows of the table are not just those of its live files.

    Cost:
        One LIST of the log, and one GET for each object of it since the last checkpoint; for the
        history one for each object.
    """
    try:
        from deltalake import DeltaTable
    except ImportError as exc:
        raise MissingDependencyError.for_extra("deltalake", "delta", "A Delta table") from exc
    title, folder = f"Delta table {name!r}", f"{name}/{DELTA_LOG}"
    log = ForeignLog.read(store, title, folder, _COMMIT)
    if not log.names:
        raise NotFoundError(
            f"There is no Delta log in {store.uri}/{folder}.",
            hint="Adopt a plain directory of Parquet files without delta.",
        )
    with tempfile.TemporaryDirectory() as copy, _reading(folder):
        log_copy = Path(copy, DELTA_LOG)
        first = 0 if with_history else _last_checkpoint(store, folder)
        times = _copy_log(store, folder, log_copy, first)
        table = DeltaTable(copy)
        check_protocol(table, title)
        files = dict(files_of(table, name, title))
        remedy = f"Write its rows as another dataset: {write_call(store, name)}."
        try:
            schema = schema_from_arrow(pa.schema(table.schema().to_arrow()))
            strategy = PartitionStrategy(
                tuple(map(by.identity, table.metadata().partition_columns))
            )
        except (InvalidNameError, PartitionSpecError) as exc:
            raise cannot_adopt(title, exc.message.rstrip("."), remedy) from exc
        except SchemaMismatchError as exc:
            raise cannot_adopt(title, exc.message.rstrip("."), exc.hint) from exc
        checks, notes = rules_of(table, schema)
        return ForeignTable(
            title=title,
            version=str(table.version()),
            schema=schema,
            strategy=strategy,
            files=files,
            log=log,
            check_footer=lambda _: "",
            differs=delta_difference,
            history=read_history(table, log_copy, times, title, name, check_protocol)
            if with_history
            else (),
            checks=checks,
            notes=notes,
            remedy=remedy,
        )


def write_call(store: Store, name: str) -> str:
    """Return the call that writes the rows of a table as another dataset."""
    path = store.local_path(name) or f"{store.uri}/{name}"
    return f"`repository.write({f'{name}-copy'!r}, deltalake.DeltaTable({str(path)!r}))`"


@contextmanager
def _reading(folder: str) -> Iterator[None]:
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, pa.ArrowException) as exc:
        raise CorruptMetadataError(
            f"The Delta log {folder!r} cannot be read: {exc}.",
            hint="Check whether the newest deltalake can read the table.",
        ) from exc


def _copy_log(store: Store, folder: str, target: Path, first: int) -> dict[int, dt.datetime]:
    """Copy the log from a version on; return when the storage stored each commit."""
    times: dict[int, dt.datetime] = {}
    for info in store.list(f"{folder}/"):
        path = info.key[len(folder) + 1 :]
        number = _NUMBER.match(path)
        if number is None or int(number[1]) >= first:
            copied = target / path
            copied.parent.mkdir(parents=True, exist_ok=True)
            stored = store.get(info.key)
            copied.write_bytes(stored.data)
            if re.fullmatch(_COMMIT, path) and stored.modified_at is not None:
                times[int(path[:20])] = stored.modified_at
    return times


def _last_checkpoint(store: Store, folder: str) -> int:
    """Return the number of the last checkpoint from the log's own hint; 0 without a hint."""
    try:
        hint = msgspec.json.decode(bytes(store.get(f"{folder}/{_LAST_CHECKPOINT}").data))
        return int(hint["version"])
    except (*UNREADABLE, ObjectNotFoundError, LookupError, TypeError, ValueError, OverflowError):
        return 0


def check_protocol(table: DeltaTable, title: str) -> None:
    """Check that the live files of a version hold exactly its rows, under plain column names.

    Raises:
        InvalidInputError: They do not, or a reader must support a feature that Lakebed does not.
    """
    features = set(table.protocol().reader_features or ())
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise cannot_adopt(
            title,
            f"column mapping by {mode} is on, so its files use other column names",
            "Let its own tool write a copy without column mapping.",
        )
    unknown = sorted(features - _PLAIN_FEATURES)
    if unknown:
        raise cannot_adopt(
            title,
            f"its readers must support {', '.join(unknown)}, which Lakebed does not",
            "Let its own tool drop the feature, by ALTER TABLE … DROP FEATURE, or write a copy.",
        )
    if _VECTORS in features:
        _check_no_vectors(table, title)


def _check_no_vectors(table: DeltaTable, title: str) -> None:
    """Check that no live file has a deletion vector; the copy of the log does not hold them."""
    from deltalake.exceptions import DeltaError

    remedy = "Let its own tool rewrite such files: REORG TABLE … APPLY (PURGE)."
    try:
        vectors = pa.RecordBatchReader.from_stream(table.deletion_vectors())
        count = sum(batch.num_rows for batch in vectors)
    except DeltaError as exc:
        reason = f"it has deletion vectors, or deltalake cannot determine whether it has: {exc}"
        raise cannot_adopt(title, reason.rstrip("."), remedy) from exc
    if count:
        raise cannot_adopt(title, f"{count:,} live files have deletion vectors", remedy)

"""Rows of data that are looked up by position: in memory, or in mapped temporary files."""

from __future__ import annotations

import os
import tempfile
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from lakebed.arrow.conform import Conformer, default_of
from lakebed.arrow.entities import as_mapping, read_items, to_batches, to_column
from lakebed.arrow.pandas_rows import table_of_pandas
from lakebed.arrow.reasons import VALUE_ERRORS, reason_of
from lakebed.arrow.row_sources import is_tabular
from lakebed.errors import SchemaMismatchError, StorageError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.given_rows import fields_of, infer_type, is_pandas
from lakebed.model.schema import Field, Struct, Type
from lakebed.store.base import Store

MEMORY_BYTES = 256 * 2**20  # of rows that are held in memory; more wait in a file
_ROWS_A_BATCH = 2**15  # in a file, at least; a lookup searches all batches
_ENTITIES = 10_000


class HeldRows:
    """Rows of some data, by their positions from 0 on."""

    def __init__(self, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> None:
        """Hold batches of one schema."""
        self.schema = schema
        self._batches = [batch for batch in batches if batch.num_rows]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def open(self) -> HeldRows:
        """Return itself; rows in a store are opened where they are needed."""
        return self

    @property
    def part_counts(self) -> tuple[int, ...]:
        """Number of rows of each part; here there is one."""
        return (len(self),)

    def part(self, number: int) -> HeldRows:  # noqa: ARG002 - see StoredRows
        """Return the rows of a part."""
        return self

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows."""
        schema = pa.schema([self.schema.field(name) for name in names])
        parts = [batch.select(list(names)) for batch in self._batches]
        return pa.Table.from_batches(parts, schema=schema)

    def take(self, places: np.ndarray, names: Sequence[str]) -> pa.RecordBatch:
        """Return some columns of the rows at some positions, in the order of the positions."""
        schema = pa.schema([self.schema.field(name) for name in names])
        order = np.argsort(places, kind="stable")
        ascending = places[order]
        cuts = np.searchsorted(ascending, self._starts)
        parts = [
            batch.select(list(names)).take(pa.array(ascending[low:high] - start))
            for batch, start, low, high in zip(
                self._batches, self._starts[:-1], cuts[:-1], cuts[1:], strict=True
            )
            if low < high
        ]
        if not parts:
            return pa.RecordBatch.from_pylist([], schema=schema)
        joined = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        if len(parts) == 1 and np.array_equal(order, np.arange(len(order))):
            return joined
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return joined.take(pa.array(back))

    def slices(self, is_chosen: np.ndarray, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the chosen rows, some at a time, in order.

        Args:
            is_chosen: One boolean for each row.
            names: Columns to yield.
        """
        for batch, start in zip(self._batches, self._starts[:-1], strict=True):
            for at in range(0, batch.num_rows, _ROWS_A_BATCH):
                piece = batch.select(list(names)).slice(at, _ROWS_A_BATCH)
                chosen = is_chosen[start + at : start + at + piece.num_rows]
                if chosen.all():
                    yield piece
                elif chosen.any():
                    yield piece.filter(pa.array(chosen))


class StoredPart(msgspec.Struct, frozen=True):
    """Rows that are stored as one object.

    Attributes:
        key: Key of the object.
        row_count: Number of rows in it.
    """

    key: str
    row_count: int


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows in a store, for tasks that each need some of them. Travels to Spark tasks.

    Attributes:
        store: Store that holds the objects.
        schema: Schema of the rows.
        parts: Objects that `put_part` wrote, in the order of the rows.
    """

    store: Store
    schema: pa.Schema
    parts: tuple[StoredPart, ...]

    def __len__(self) -> int:
        return sum(self.part_counts)

    @property
    def part_counts(self) -> tuple[int, ...]:
        """Number of rows of each part."""
        return tuple(part.row_count for part in self.parts)

    def open(self) -> HeldRows:
        """Return the rows in this process, which keeps them for the next call.

        Cost:
            Only the files where the store is a directory. For another store one GET a part, and
            space for them in temporary files.
        """
        with _opening:
            keys = tuple(part.key for part in self.parts)
            if _opened.get("keys") != keys:
                _opened.clear()
                _opened.update(keys=keys, rows=self._mapped(self.parts))
            rows: HeldRows = _opened["rows"]
            return rows

    def part(self, number: int) -> HeldRows:
        """Return the rows of a part in this process."""
        return self._mapped(self.parts[number : number + 1])

    def _mapped(self, parts: Sequence[StoredPart]) -> HeldRows:
        paths = [self.store.local_path(part.key) for part in parts]
        with _translating():
            if all(path is not None for path in paths):
                return mapped(self.schema, [path for path in paths if path is not None])
            with tempfile.TemporaryDirectory(prefix="lakebed-") as folder:
                brought = [Path(folder) / str(number) for number in range(len(parts))]
                for part, path in zip(parts, brought, strict=True):
                    path.write_bytes(self.store.get(part.key).data)
                # The mapping stays valid until it is released, also when the files are deleted.
                return mapped(self.schema, brought)


_opening = threading.Lock()
_opened: dict[str, Any] = {}  # of this process: the rows that were opened last


def put_part(
    store: Store, folder: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> StoredPart:
    """Write rows as one object, under a new key.

    Raises:
        StorageError: The store failed, or the disk is full.

    Cost:
        One PUT; memory for a few batches.
    """
    key = f"{folder}/{uuid.uuid4().hex}"
    with tempfile.TemporaryDirectory(prefix="lakebed-") as directory:
        path = Path(directory) / "rows"
        with _translating():
            row_count = write_file(path, schema, batches)
        store.adopt(path, key)
    return StoredPart(key, row_count)


def data_batches(
    data: object, descriptor: DatasetDescriptor, *, is_dry_run: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of data with the columns that it has, converted to the dataset's types.

    Args:
        data: As for `to_batches`. The columns of dicts or dataclass instances are those that any
            of them has; a missing value is null, or the default of the field.
        descriptor: Descriptor of the dataset.
        is_dry_run: As for `to_batches`.

    Raises:
        InvalidInputError: `data` is of another kind, or gives its rows once and has been read.
        SchemaMismatchError: A value does not fit its field, or is null in a required field.
    """
    if is_pandas(data):
        table = table_of_pandas(data, descriptor.schema, _partial_column)
        yield from conformed(table.to_batches(), descriptor)
    elif is_tabular(data):
        yield from conformed(to_batches(data, descriptor, is_dry_run=is_dry_run), descriptor)
    else:
        items = read_items(data, is_dry_run=is_dry_run)
        yield from _of_items(items, descriptor, is_dry_run=is_dry_run)


def conformed(
    batches: Iterable[pa.RecordBatch], descriptor: DatasetDescriptor
) -> Iterator[pa.RecordBatch]:
    """Yield batches with the columns that they have, converted to the dataset's types."""
    conformer: tuple[pa.Schema, Conformer] | None = None
    first: pa.Schema | None = None
    for batch in batches:
        if conformer is None or conformer[0] != batch.schema:
            conformer = (batch.schema, Conformer(batch.schema, descriptor, is_partial=True))
            first = first or conformer[1].target
            if conformer[1].target != first:
                raise SchemaMismatchError(
                    f"The data has batches of columns {', '.join(first.names)}, and others of "
                    f"{', '.join(conformer[1].target.names)} or of other types.",
                    hint="Give batches of one schema.",
                )
        yield conformer[1].conform(batch)


def _of_items(
    items: Iterator[object], descriptor: DatasetDescriptor, *, is_dry_run: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of tables and entities, all with the columns that any of them has."""
    tables: list[pa.Table] = []
    waiting: list[dict[str, object]] = []

    def take() -> None:
        if waiting:
            tables.append(_of_entities(waiting, descriptor))
            waiting.clear()

    for item in items:
        if is_tabular(item):
            take()
            tables.append(
                pa.Table.from_batches(data_batches(item, descriptor, is_dry_run=is_dry_run))
            )
            continue
        waiting.append(dict(as_mapping(item)))
        if len(waiting) >= _ENTITIES:
            take()
    take()
    if not tables:
        return
    given = {name for table in tables for name in table.column_names}
    own = [field for field in descriptor.schema if field.name in given]
    whole = []
    for table in tables:
        for field in own:
            if field.name not in table.column_names:
                column = to_column([default_of(field)], field)[0]
                table = table.append_column(field.name, pa.repeat(column, table.num_rows))
        whole.append(table)
    table = pa.concat_tables(whole, promote_options="permissive")
    yield from conformed(table.to_batches(), descriptor)


def _of_entities(entities: Sequence[dict[str, object]], descriptor: DatasetDescriptor) -> pa.Table:
    names = list(dict.fromkeys(name for entity in entities for name in entity))
    columns = {}
    for name in names:
        if not isinstance(name, str):
            raise SchemaMismatchError(
                f"The data has a column {name!r}, whose name is not a text.", hint="Rename it."
            )
        field = descriptor.schema.find(name)
        if field is None:
            try:
                values = [entity.get(name) for entity in entities]
                columns[name] = pa.array(values, infer_type(values))
            except VALUE_ERRORS as exc:
                raise SchemaMismatchError(
                    f"Column {name!r} of the data, which the dataset lacks, has values of no "
                    f"type, or of several: {reason_of(exc)}.",
                    hint="Give the column one type that Arrow has, such as text.",
                ) from exc
        else:
            default = default_of(field)
            values = [entity.get(name, default) for entity in entities]
            columns[name] = _partial_column(values, field)
    return pa.table(columns)


def _partial_column(values: Sequence[Any], field: Field) -> pa.Array:
    kind = _with_given_parts(field.type, values, field.name)
    return to_column(values, replace(field, type=kind))


def _with_given_parts(declared: Type, values: Sequence[object], place: str) -> Type:
    """Return a type with only those parts of records that any of some values has.

    Raises:
        SchemaMismatchError: All records are without any part.
    """
    if not isinstance(declared, Struct):
        return declared
    records = [fields for value in values if (fields := fields_of(value)) is not None]
    present = set().union(*records)
    if present.difference(field.name for field in declared.fields):
        return declared  # unknown parts are refused by name
    kept = []
    for field in declared.fields:
        if field.name in present or not records:
            inner = [record[field.name] for record in records if field.name in record]
            here = _with_given_parts(field.type, inner, f"{place}.{field.name}")
            kept.append(replace(field, type=here))
    if not kept:
        raise SchemaMismatchError(
            f"The records of column {place!r} have no parts, so an update would change nothing.",
            hint="Leave the column out, or give the parts to set, with null for no value.",
        )
    return Struct(tuple(kept))


@contextmanager
def hold(batches: Iterable[pa.RecordBatch], memory_bytes: int | None = None) -> Iterator[HeldRows]:
    """Hold rows for as long as they are needed.

    Args:
        batches: Batches of one schema; none for no rows and no columns.
        memory_bytes: Larger data goes to a temporary file; None for 256 MiB.

    Raises:
        StorageError: The disk is full.
    """
    waiting: list[pa.RecordBatch] = []
    size_bytes = 0
    limit = MEMORY_BYTES if memory_bytes is None else memory_bytes
    stream = iter(batches)
    for batch in stream:
        waiting.append(batch)
        size_bytes += batch.nbytes
        if size_bytes > limit:
            break
    else:
        schema = waiting[0].schema if waiting else pa.schema([])
        table = pa.Table.from_batches(waiting, schema=schema)
        yield HeldRows(schema, table.combine_chunks().to_batches())
        return
    with ExitStack() as stack:
        with _translating():
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lakebed-"))
            path = Path(folder) / "rows"
            schema = waiting[0].schema
            write_file(path, schema, _chained(waiting, stream))
        yield mapped(schema, [path])


def _chained(
    waiting: list[pa.RecordBatch], stream: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    while waiting:
        yield waiting.pop(0)
    yield from stream


def write_file(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write rows to a file that can be mapped.

    Returns:
        Number of rows written.
    """
    row_count = 0
    with pa.OSFile(os.fspath(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in _not_tiny(batches):
            writer.write_batch(batch)
            row_count += batch.num_rows
    return row_count


def _not_tiny(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    row_count = 0
    for batch in batches:
        waiting.append(batch)
        row_count += batch.num_rows
        if row_count >= _ROWS_A_BATCH:
            yield pa.concat_batches(waiting)
            waiting, row_count = [], 0
    if row_count:
        yield pa.concat_batches(waiting)


def mapped(schema: pa.Schema, paths: Sequence[Path]) -> HeldRows:
    """Return the rows of files that `write_file` wrote, which stay mapped."""
    batches: list[pa.RecordBatch] = []
    for path in paths:
        file = pa.ipc.open_file(pa.memory_map(os.fspath(path)))
        batches += [file.get_batch(number) for number in range(file.num_record_batches)]
    return HeldRows(schema, batches)


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except OSError as exc:
        raise StorageError(
            f"Cannot hold rows in a temporary file in {tempfile.gettempdir()}: {exc}",
            hint="Free some room there, or set TMPDIR to another directory.",
        ) from exc

"""Facts of data files that go into published tables: rows, bytes, bounds, partition values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from lakebed.arrow.footers import read_footers, sound_footers
from lakebed.errors import InvalidInputError
from lakebed.model import publishing
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.keys import batch_id_of, split_label, started_ms
from lakebed.model.schema import Decimal, Field, Kind, Primitive, Type, find_alike_fields
from lakebed.model.values import Scalar
from lakebed.state import file_table
from lakebed.state.file_table import KnownFacts
from lakebed.state.state import State
from lakebed.store.base import Store
from lakebed.store.segments import Segment

MAX_BOUNDED = 32  # columns with bounds; Delta's default, and near that of Iceberg
_FEW = 0.25  # part of the files in the file table
# Columns that may hold NaN have no upper bound: readers that order NaN above all numbers would skip
# files.
_WITHOUT_MAX = (Kind.FLOAT, Kind.DOUBLE)
_BOUNDED = (
    Kind.INT,
    Kind.LONG,
    Kind.FLOAT,
    Kind.DOUBLE,
    Kind.STRING,
    Kind.DATE,
    Kind.TIMESTAMP,
    Kind.TIMESTAMP_NTZ,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownColumn:
    """Bounds and null counts of one column; each list has an entry for each file.

    Attributes:
        field: The field of the schema.
        min: Lower bounds of the values; None if unknown.
        max: Upper bounds of the values; None if unknown, and for floating-point numbers.
        null_count: Numbers of nulls; None if unknown.
    """

    field: Field
    min: Sequence[Scalar]
    max: Sequence[Scalar]
    null_count: Sequence[int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFiles:
    """Facts of some data files; each list has an entry for each file.

    Attributes:
        labels: Labels of the files.
        row_count: Numbers of rows.
        size_bytes: Lengths of the files.
        written_ms: Start times of the batches, in epoch milliseconds.
        values: Partition values; files of one directory share the same mapping.
        columns: Bounds and null counts by column.
    """

    labels: Sequence[str]
    row_count: Sequence[int]
    size_bytes: Sequence[int]
    written_ms: Sequence[int]
    values: Sequence[Mapping[str, Scalar]]
    columns: Sequence[ShownColumn]


def shown_files(
    store: Store, state: State, labels: Sequence[str], segments: Sequence[Segment] | None = None
) -> ShownFiles:
    """Return the facts of files.

    Args:
        store: The store that holds the dataset.
        state: State of the dataset.
        labels: Labels of the files.
        segments: The parts of the file table that describe them; None if these are to be found.

    Cost:
        The segments of the file table, or the leaves, that cover the files, newest first; the footer
        of each file that none of them covers.
    """
    fields = bounded_fields(state)
    types = {field.stored_name: type_to_arrow(field.type) for field in fields}
    if segments is None:
        segments = _segments_of(store, state, labels)
    known = file_table.find(store, segments, pa.array(labels, pa.large_string()), types)
    row_count, size_bytes = known.row_count.to_pylist(), known.size_bytes.to_pylist()
    _measure(store, state, labels, row_count, size_bytes)
    return ShownFiles(
        labels=labels,
        row_count=row_count,
        size_bytes=size_bytes,
        written_ms=[_written_ms(label, state) for label in labels],
        values=_values(state, labels),
        columns=[_column(known, field) for field in fields],
    )


def sizes_of(store: Store, state: State, labels: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the numbers of rows of files, and their lengths.

    Cost:
        As `shown_files`.
    """
    segments = _segments_of(store, state, labels)
    known = file_table.find(store, segments, pa.array(labels, pa.large_string()), {})
    row_count, size_bytes = known.row_count.to_pylist(), known.size_bytes.to_pylist()
    _measure(store, state, labels, row_count, size_bytes)
    return row_count, size_bytes


def _segments_of(store: Store, state: State, labels: Sequence[str]) -> Sequence[Segment]:
    """Return the parts of the file table that describe some files."""
    if state.is_tree:
        from lakebed.state.tree.find import facts_holding

        return facts_holding(state, labels)
    segments = state.lists.files
    if len(labels) < _FEW * sum(segment.weight for segment in segments):
        return file_table.covering(store, segments, labels)
    return segments


def bounded_fields(state: State) -> tuple[Field, ...]:
    """Return the fields whose bounds and null counts are published."""
    plain = (field for field in state.layout.stored_schema if _is_plain(field.type))
    return tuple(plain)[:MAX_BOUNDED]


def has_both_bounds(kind: Type) -> bool:
    """Return whether both bounds of columns of a type are published if known."""
    return _is_bounded(kind) and not (isinstance(kind, Primitive) and kind.kind in _WITHOUT_MAX)


def _is_bounded(kind: Type) -> bool:
    return isinstance(kind, Decimal) or (isinstance(kind, Primitive) and kind.kind in _BOUNDED)


def _is_plain(kind: Type) -> bool:
    return isinstance(kind, Primitive | Decimal)


def _column(known: KnownFacts, field: Field) -> ShownColumn:
    bounds = known.columns[field.stored_name]
    unknown: list[Scalar] = [None] * len(bounds.min)
    return ShownColumn(
        field=field,
        min=_listed(bounds.min) if _is_bounded(field.type) else unknown,
        max=_listed(bounds.max) if has_both_bounds(field.type) else unknown,
        null_count=bounds.null_count.to_pylist(),
    )


def _listed(bounds: pa.ChunkedArray) -> list[Scalar]:
    try:
        return cast(list[Scalar], bounds.to_pylist())
    except (ValueError, OverflowError):
        return [None] * len(bounds)  # one of them is a time that Python cannot represent


def _measure(
    store: Store,
    state: State,
    labels: Sequence[str],
    row_count: list[int | None],
    size_bytes: list[int | None],
) -> None:
    """Fill in the facts that the file table lacks, for files that other tools have added."""
    positions = [position for position, count in enumerate(row_count) if count is None]
    key_of = state.layout.naming.key
    footers = sound_footers(
        read_footers(store, [key_of(labels[position]) for position in positions])
    )
    for position in positions:
        key = key_of(labels[position])
        row_count[position] = footers[key].num_rows
        size_bytes[position] = store.size(key)


def _written_ms(label: str, state: State) -> int:
    batch_id = batch_id_of(label)
    if batch_id is not None:
        return started_ms(batch_id)
    moment = state.committed_at or dt.datetime.fromtimestamp(0, dt.UTC)
    return int(moment.timestamp() * 1000)


def _values(state: State, labels: Sequence[str]) -> list[Mapping[str, Scalar]]:
    by_directory: dict[str, Mapping[str, Scalar]] = {}
    result = []
    for label in labels:
        directory = split_label(label)[0]
        values = by_directory.get(directory)
        if values is None:
            values = by_directory[directory] = state.layout.directory_values(directory)
        result.append(values)
    return result


# Types of partition values that every engine reads back from a table.
_PARTITION_KINDS = (Kind.BOOLEAN, Kind.INT, Kind.LONG, Kind.STRING, Kind.DATE)


def check_partition_types(state: State, table: str) -> None:
    """Check that a table can hold the types of all partition fields.

    Raises:
        InvalidInputError: A type is not supported; the message names the field.
    """
    for name, kind in state.layout.partition_types.items():
        if not (isinstance(kind, Primitive) and kind.kind in _PARTITION_KINDS):
            raise InvalidInputError(
                f"Partition field {name!r} is of type {kind}, which some readers of {table} cannot "
                "read back from the table's metadata.",
                hint="Partition by date(…), hour(…), hash(…) or a range; by identity, fields of "
                f"type {', '.join(_PARTITION_KINDS)} can be published.",
            )


def check_format(state: State, table: str) -> None:
    """Check that the format of the data files can be published, and that checks allow it.

    Raises:
        InvalidInputError: The format is not Parquet; or see `check_required`.
    """
    check_required(state)
    if state.descriptor.format != "parquet":
        raise InvalidInputError(
            f"Dataset {state.name!r} cannot be published: its format is "
            f"{state.descriptor.format!r}.",
            hint=f"Publish datasets of Parquet; readers of {table} do not support other formats.",
        )


def check_required(state: State) -> None:
    """Check that all rows pass the declared checks, if a property of the dataset requires it.

    Raises:
        InvalidInputError: Rows of the version may fail a check.
    """
    if not publishing.is_on(state.descriptor.properties, publishing.REQUIRE_CHECKS):
        return
    unmet = [
        f"{name} ({outcome})"
        for name, outcome in state.standing_of_checks().items()
        if outcome != "passed"
    ]
    if unmet:
        raise InvalidInputError(
            f"Version {state.version} of {state.name!r} is not published: rows may fail the declared "
            f"checks {', '.join(unmet)}.",
            hint="Correct the rows, then drop and add the check; or set the property "
            f"{publishing.REQUIRE_CHECKS} to false.",
        )


def check_cases(state: State, fields: Sequence[Field], table: str) -> None:
    """Check that no two columns, or fields of one record, differ only in case.

    Raises:
        InvalidInputError: Two do.
    """
    alike = find_alike_fields({field.name: field.type for field in fields})
    if alike is not None:
        raise InvalidInputError(
            f"Fields {alike[0]!r} and {alike[1]!r} of dataset {state.name!r} differ only in case, "
            f"which readers of {table} ignore.",
            hint="Give one of them another name.",
        )

"""Check of Parquet files of other tools against a schema, by their footers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as pat

from lakebed.arrow.formats.parquet import footer_schema, nanosecond_columns, open_parquet
from lakebed.arrow.intact import open_verified
from lakebed.arrow.workers import Workers
from lakebed.common.progress import NO_PROGRESS, OnFileDone
from lakebed.errors import SchemaMismatchError
from lakebed.model.arrow_types import schema_to_arrow
from lakebed.model.schema import Schema
from lakebed.store.at_once import at_once
from lakebed.store.base import Store

THREADS = 16  # each waits for storage


def read_footers(
    store: Store,
    keys: Iterable[str],
    on_read: OnFileDone = NO_PROGRESS,
    workers: Workers | None = None,
) -> dict[str, pq.FileMetaData | SchemaMismatchError]:
    """Return the footers of files; for a file that is not Parquet, the error.

    Args:
        store: The store that holds the files.
        keys: Keys of the files.
        on_read: Receives the key of each file that has been read.
        workers: Workers that read; None for threads.

    Cost:
        One HEAD and one or two GETs of some KiB per file, several at a time.
    """
    report = on_read
    if workers is not None:
        report = NO_PROGRESS if on_read is NO_PROGRESS else workers.listening(on_read)

    def read(key: str) -> tuple[str, pq.FileMetaData | SchemaMismatchError]:
        try:
            # Questions for bounds in a damaged footer may end the process.
            with open_verified(store, key) as source:
                footer = pq.read_metadata(source)
        except (pa.ArrowException, OSError, ValueError) as exc:
            error = SchemaMismatchError(
                f"{key!r} cannot be read as Parquet: {exc}.",
                hint="Move it out of the table's directory, or repair it.",
            )
            error.__cause__ = exc
            return key, error
        report(key)
        return key, footer

    if workers is None:
        return dict(at_once(read, tuple(keys), THREADS))

    def read_some(keys: tuple[str, ...]) -> _Footers:
        read_ones = list(at_once(read, keys, THREADS))
        return _Footers(
            errors={key: one for key, one in read_ones if isinstance(one, SchemaMismatchError)},
            footers={
                key: _to_bytes(one) for key, one in read_ones if isinstance(one, pq.FileMetaData)
            },
        )

    every: dict[str, pq.FileMetaData | SchemaMismatchError] = {}
    for part in workers.map(read_some, workers.shares(tuple(keys)), _Footers):
        every |= {
            key: pq.read_metadata(pa.BufferReader(data)) for key, data in part.footers.items()
        }
        every |= part.errors
    return every


@dataclass(frozen=True, slots=True, kw_only=True)
class _Footers:
    """The footers that a task has read, by key, and the errors."""

    footers: dict[str, bytes]
    errors: dict[str, SchemaMismatchError]


def _to_bytes(footer: pq.FileMetaData) -> bytes:
    sink = pa.BufferOutputStream()
    footer.write_metadata_file(sink)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def sound_footers(
    footers: Mapping[str, pq.FileMetaData | SchemaMismatchError],
) -> dict[str, pq.FileMetaData]:
    """Return footers, or raise the first error among them.

    Raises:
        SchemaMismatchError: A file cannot be read as Parquet.
    """
    sound = {}
    for key, footer in footers.items():
        if isinstance(footer, SchemaMismatchError):
            raise footer
        sound[key] = footer
    return sound


def difference(footer: pq.FileMetaData, stored: Schema) -> str:
    """Return why a file cannot be read with these fields; empty if it can.

    A field that the file lacks is null; a column that is not a field is not read.
    """
    return _difference(footer, stored, _reads_as)


def delta_difference(footer: pq.FileMetaData, stored: Schema) -> str:
    """Return why a data file of Delta does not fit its schema; empty if it does.

    The schema of the table decides what a time is. Some writers leave the zone of an instant out of
    files, and readers take such times as UTC.
    """
    return _difference(footer, stored, partial(_reads_as, takes_utc=True))


def find_damaged_text(footer: pq.FileMetaData, stored: Schema) -> str:
    """Return which bound of a text column is not UTF-8; empty if all are.

    Bytes that are not UTF-8 sort after ASCII, so the greatest value of a column often shows them.
    """
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            name = column.path_in_schema.partition(".")[0]
            is_text = footer.schema.column(number).logical_type.type == "STRING"
            if not is_text or name not in stored or not column.is_stats_set:
                continue
            bounds = column.statistics
            if bounds is None or not bounds.has_min_max:
                continue
            for value in (bounds.min_raw, bounds.max_raw):
                if isinstance(value, bytes) and _is_damaged(value):
                    return f"column {name!r} has text that is not UTF-8: {value[:40]!r}"
    return ""


def _is_damaged(bound: bytes) -> bool:
    """Return whether a bound is not UTF-8; a writer may have cut it within a letter."""
    try:
        bound.decode()
    except UnicodeDecodeError as exc:
        return exc.reason != "unexpected end of data"
    return False


def kartothek_difference(footer: pq.FileMetaData, stored: Schema) -> str:
    """Return why a data file of Kartothek does not fit its schema; empty if it does.

    Such files keep narrower numbers than the schema, and a column without values in a file may have
    the null type there.
    """
    return _difference(footer, stored, _widens_to)


def _difference(
    footer: pq.FileMetaData, stored: Schema, reads_as: Callable[[pa.DataType, pa.DataType], bool]
) -> str:
    arrow_schema = footer_schema(footer)
    uuids = _columns_of_uuids(footer)
    for wanted, field in zip(schema_to_arrow(stored), stored, strict=True):
        matches = [name for name in arrow_schema.names if name.lower() == field.name.lower()]
        if len(matches) > 1:
            return f"columns {', '.join(matches)} differ only in case"
        if not matches:
            if not field.nullable:
                return f"it lacks column {field.name!r}, which is not nullable"
            continue
        if matches[0] != field.name:
            return f"column {matches[0]!r} is called {field.name!r} in the schema"
        column = arrow_schema.field(matches[0])
        if matches[0] in uuids:
            return f"column {field.name!r} is of type UUID, and a dataset holds UUIDs as texts"
        if not reads_as(column.type, wanted.type):
            type_ = f"{column.type} instead of {wanted.type}{_why_narrow(column.type)}"
            return f"column {field.name!r} is of type {type_}"
    return ""


def _columns_of_uuids(footer: pq.FileMetaData) -> frozenset[str]:
    """Return the top-level columns that are or hold UUIDs, which Arrow may read as their bytes."""
    leaves = (footer.schema.column(number) for number in range(footer.num_columns))
    return frozenset(
        leaf.path.partition(".")[0] for leaf in leaves if leaf.logical_type.type == "UUID"
    )


def _why_narrow(have: pa.DataType) -> str:
    """Return why a narrow type is not read as a wider one; empty for other types."""
    text = str(have)
    if "uint32" in text:
        return ": some readers take its values above 2147483647 for negative ones"
    return ": Spark does not read half floats" if "halffloat" in text else ""


def _widens_to(have: pa.DataType, wanted: pa.DataType) -> bool:
    if pat.is_dictionary(have):
        have = have.value_type
    for is_kind, widest_ in (
        (pat.is_signed_integer, pa.int64()),
        (pat.is_unsigned_integer, pa.uint64()),
        (pat.is_floating, pa.float64()),
    ):
        if is_kind(have):
            return bool(wanted.equals(widest_))
    if (pat.is_list(have) or pat.is_large_list(have)) and pat.is_list(wanted):
        return _widens_to(have.value_type, wanted.value_type)
    return _reads_as(have, wanted)


def _reads_as(have: pa.DataType, wanted: pa.DataType, *, takes_utc: bool = False) -> bool:
    """Return whether every reader reads one type of a file as another without loss.

    Args:
        have: The type in the file.
        wanted: The type to read it as.
        takes_utc: Whether times without a zone are instants in UTC.

    Half floats are unknown to Spark, and some readers take unsigned numbers of 32 bits for negative
    ones: such columns are read as no other type.
    """
    reads_as = partial(_reads_as, takes_utc=takes_utc)
    if pat.is_dictionary(have):
        have = have.value_type
    if have.equals(wanted) or pat.is_null(have):
        return True
    if pat.is_large_string(have) or pat.is_string_view(have):
        return bool(pat.is_string(wanted))
    if pat.is_large_binary(have) or pat.is_binary_view(have) or pat.is_fixed_size_binary(have):
        return bool(pat.is_binary(wanted))
    # Parquet holds them in 32 bits, and the unsigned ones are below the sign.
    if pat.is_int8(have) or pat.is_uint8(have):
        return bool(pat.is_signed_integer(wanted) and wanted.bit_width > 8)
    if pat.is_int16(have) or pat.is_uint16(have):
        return bool(pat.is_signed_integer(wanted) and wanted.bit_width > 16)
    if pat.is_int32(have):
        return bool(pat.is_int64(wanted))
    if pat.is_float32(have):
        return bool(pat.is_float64(wanted))
    if pat.is_decimal(have) and pat.is_decimal(wanted):
        return bool(have.scale == wanted.scale and have.precision <= wanted.precision)
    if pat.is_timestamp(have) and pat.is_timestamp(wanted):
        # INT96, which Spark writes by default, has no zone but is an instant. The meaning of other
        # times without a zone is known from the schema of a table only.
        is_utc = takes_utc and have.tz is None
        return is_utc or have.unit == "ns" or (have.tz is None) == (wanted.tz is None)
    if pat.is_list(have) or pat.is_large_list(have) or pat.is_fixed_size_list(have):
        return bool(pat.is_list(wanted)) and reads_as(have.value_type, wanted.value_type)
    if pat.is_map(have) and pat.is_map(wanted):
        return reads_as(have.key_type, wanted.key_type) and reads_as(
            have.item_type, wanted.item_type
        )
    if pat.is_struct(have) and pat.is_struct(wanted):
        inner = {field.name: field.type for field in have}
        return all(
            field.name not in inner or reads_as(inner[field.name], field.type) for field in wanted
        )
    return False


def widest(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that a column has in a dataset, if files have one or the other.

    A part without values takes the type of the other, and numbers the wider one. Other types that
    differ are left to the check of each file.
    """
    if pat.is_null(one):
        return other
    if pat.is_struct(one) and pat.is_struct(other):
        names = dict.fromkeys((*(f.name for f in one), *(f.name for f in other)))
        return pa.struct([_widest_member(name, one, other) for name in names])
    if pat.is_list(one) and pat.is_list(other):
        return pa.list_(widest(one.value_type, other.value_type))
    if pat.is_map(one) and pat.is_map(other):
        return pa.map_(one.key_type, widest(one.item_type, other.item_type))
    if pat.is_decimal(one) and pat.is_decimal(other) and one.scale == other.scale:
        return other if other.precision > one.precision else one
    if (
        pat.is_integer(one)
        and pat.is_integer(other)
        and pat.is_signed_integer(one) != (pat.is_signed_integer(other))
    ):
        one, other = _signed(one), _signed(other)
    is_wider = (pat.is_integer(one) and pat.is_integer(other)) or (
        pat.is_floating(one) and pat.is_floating(other)
    )
    return other if is_wider and other.bit_width > one.bit_width else one


def _signed(kind: pa.DataType) -> pa.DataType:
    """Return the type with a sign that holds the values of a type of whole numbers, if there is one."""
    return {pa.uint8(): pa.int16(), pa.uint16(): pa.int32()}.get(kind, kind)


def _widest_member(name: str, one: pa.StructType, other: pa.StructType) -> pa.Field:
    places = [kind for kind in (one, other) if kind.get_field_index(name) >= 0]
    kinds = [kind.field(name).type for kind in places]
    return pa.field(name, widest(*kinds) if len(kinds) > 1 else kinds[0])


def without_nulls(kind: pa.DataType) -> pa.DataType:
    """Return a type whose parts without values are text."""
    if pat.is_null(kind):
        return pa.string()
    if pat.is_struct(kind):
        return pa.struct([field.with_type(without_nulls(field.type)) for field in kind])
    if pat.is_list(kind) or pat.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(without_nulls(kind.value_type)))
    if pat.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(without_nulls(kind.item_type)))
    return kind


def unreadable_times(
    store: Store, footers: Mapping[str, pq.FileMetaData | SchemaMismatchError]
) -> dict[str, str]:
    """Return why files cannot be read whose times are not whole microseconds, by key.

    Cost:
        The columns of times in nanoseconds, other than INT96, of each file that has some.
    """
    columns = {
        key: names
        for key, footer in footers.items()
        if isinstance(footer, pq.FileMetaData) and (names := nanosecond_columns(footer))
    }

    def judge(key: str) -> tuple[str, str]:
        with store.open_input(key) as source:
            file = open_parquet(source)
            for batch in file.iter_batches(columns=columns[key]):
                for name in columns[key]:
                    problem = _odd_time(batch.column(name))
                    if problem:
                        return key, f"column {name!r} has {problem}"
        return key, ""

    return {key: reason for key, reason in at_once(judge, tuple(columns), THREADS) if reason}


def _odd_time(column: pa.Array) -> str:
    """Return the first time that is not a whole number of microseconds; empty if all are."""
    if pat.is_timestamp(column.type):
        if column.type.unit != "ns":
            return ""
        ticks = column.drop_null().cast(pa.int64())
        is_odd = pc.not_equal(pc.multiply(pc.divide(ticks, 1_000), 1_000), ticks)
        at = pc.index(is_odd, value=True).as_py()
        zone = f" {column.type.tz}" if column.type.tz else ""
        return (
            ""
            if at < 0
            else (
                f"{pc.cast(ticks, pa.timestamp('ns')).cast(pa.string())[at]}{zone}, and datasets have times in microseconds"
            )
        )
    if pat.is_struct(column.type):
        parts = column.flatten()
    elif pat.is_map(column.type):
        parts = [column.keys, column.items]
    elif pat.is_nested(column.type):
        parts = [column.flatten()]
    else:
        parts = []
    return next((problem for part in parts if (problem := _odd_time(part))), "")

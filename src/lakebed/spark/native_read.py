"""Reading files of a plan with Spark's own Parquet reader, under the current schema."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.arrow.older import OlderFiles
from lakebed.errors import InvalidInputError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.keys import OWN_FILE_PREFIX, split_label
from lakebed.model.predicate import Leaf, Predicate, all_of, formulas_of, map_leaves, roots_of
from lakebed.model.schema import (
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
    find_alike_fields,
    path_of,
)
from lakebed.plan.plan import DataFile, Scan
from lakebed.spark.column import literal, to_spark_column
from lakebed.spark.file_lists import FileList, NativeWay
from lakebed.spark.pruned_files import with_pruning
from lakebed.spark.types import struct_type
from lakebed.spark.uncertain_dates import columns_with_uncertain_dates, unpushed
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Types that Spark reads from a path unchanged; a timestamp would be read in the session's zone.
_DISCOVERABLE = frozenset({Kind.BOOLEAN, Kind.INT, Kind.LONG, Kind.STRING, Kind.DATE})
_DOUBLE = Primitive(Kind.DOUBLE)
ChooseFiles = Callable[[Predicate], frozenset[str]]
"""Returns the labels of the files that may hold rows for which a predicate is true."""

# Only the repository's own directory can hold them: Lakebed percent-encodes them in keys.
_PATTERN = frozenset("*?[]{}\\")


def find_obstacle(store: Store, plan: Scan, names: Sequence[str]) -> str:
    """Return why Spark's own reader cannot read the plan, once it reaches the files; empty if it can."""
    if plan.layout.descriptor.format != "parquet":
        return f"Spark may lack a reader for format {plan.layout.descriptor.format!r}"
    uri = store.hadoop_uri(plan.files[0].key)
    if uri is None:
        return f"no file system of Hadoop is known to have {store.uri}"
    if _PATTERN.intersection(uri):
        return f"Spark reads {uri} as a pattern, and the files that it finds several times"
    types = plan.layout.column_types
    partition_types = plan.layout.partition_types
    for name in partition_types:
        if not name.isascii() and _garbled(name) in {*types, *plan.layout.file_column_types}:
            return f"Spark takes the partition field {name!r} for the column {_garbled(name)!r}"
    alike = find_alike_fields(types) or find_alike_fields(plan.layout.file_column_types)
    if alike:
        return f"Spark does not distinguish the columns {' and '.join(map(repr, alike))}"
    for name in needed_columns(plan, names):
        if name not in partition_types:
            continue
        if plan.layout.has_former_levels:
            return f"directories of older versions may lack the partition field {name!r}"
        kind = partition_types[name]
        if not isinstance(kind, Primitive) or kind.kind not in _DISCOVERABLE:
            return (
                f"Spark would guess the values of partition field {name!r} of type {kind} from text"
            )
    return ""


def find_odd(file: DataFile) -> str:
    """Return why Spark's own reader cannot read a file, unlike others of a plan; empty if it can."""
    if not split_label(file.label)[1].startswith(OWN_FILE_PREFIX):
        return f"{file.key} was written by another tool, whose types may differ"
    # Spark refuses a directory `name=` without a value, for every selection of columns.
    empty = next((name for name, value in file.partition.items() if value == ""), None)
    return "" if empty is None else f"partition field {empty!r} holds the empty text"


def needed_columns(plan: Scan, names: Sequence[str]) -> tuple[str, ...]:
    """Return the requested columns, and those that the filter reads."""
    types = plan.layout.predicate_types
    residual = () if plan.residual is None else roots_of(plan.residual, types)
    return tuple(dict.fromkeys([*names, *residual]))


def struct_of(plan: Scan, names: Iterable[str]) -> StructType:
    """Return columns of a plan as a StructType."""
    return struct_type(plan.layout.fields_of(tuple(names)))


def read_natively(
    spark: SparkSession,
    store: Store,
    plan: Scan,
    names: Sequence[str],
    older: OlderFiles,
    way: NativeWay | None,
    choose: ChooseFiles | None = None,
) -> DataFrame:
    """Read files of one kind, with each column in the type of the files: Spark need not promote.

    Args:
        spark: Session of the frame.
        store: Store of the files; the session reaches them by a file system of Hadoop.
        plan: Plan of the read, for which `find_obstacle` and `find_odd` have found nothing.
        names: Columns to return.
        older: Reading of older files under the current schema.
        way: Way in which Spark receives the files; None for the fastest.
        choose: Chooses the files that a query needs, while Spark plans it; None to read all files.

    Raises:
        InvalidInputError: The files cannot be read in this way.
        CorruptMetadataError: A file is missing.
    """
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    layout = plan.layout
    partitions, schema = layout.partition_types, layout.descriptor.schema
    needed = needed_columns(plan, names)
    from_path = [name for name in partitions if name in needed]
    hidden = [name for name in layout.footprint if name in needed]
    stored = [name for name in layout.stored_schema.names if name in needed]
    read = list(older.held_fields(stored))
    read_types = {field.name: field.type for field in read}
    if from_path:
        # All levels are declared, so Spark does not guess their types.
        read += [Field(name=_garbled(name), type=kind) for name, kind in partitions.items()]
    if not read:
        # Spark cannot read a file without columns, but can count the rows of any column.
        read = list(older.countable_fields())
    files = FileList(
        store=store,
        keys=tuple(file.key for file in plan.files),
        schema=struct_type(Schema(fields=tuple(read))),
        root=f"{layout.name}/{layout.table}" if from_path else None,
    )
    frame = _read_files(spark, files, way, layout.name)
    if choose is not None:
        labels = [file.label for file in plan.files]

        held_types = layout.file_column_types
        named = layout.field_names(held_types)

        def renamed(leaf: Leaf) -> Predicate:
            root, *inner = path_of(leaf.column, held_types)
            return replace(leaf, column=".".join((named[root], *inner)))

        def places(predicate: Predicate) -> list[int]:
            chosen = choose(map_leaves(predicate, renamed))
            return [place for place, label in enumerate(labels) if label in chosen]

        def listing(places: Sequence[int]) -> DataFrame:
            return _read_files(spark, files.at(places), way, layout.name)

        frame = with_pruning(spark, frame, held_types, places, listing, len(labels))
    held = {field.stored_name: field.name for field in map(layout.stored_schema.get, stored)}
    if hidden:
        frame = _with_footprint(spark, frame, plan, hidden)
    if schema.is_renamed:
        # All at once: two fields may have exchanged their names.
        frame = frame.select(
            *[F.col(f"`{name}`").alias(held.get(name, name)) for name in frame.columns]
        )
    for name in from_path:
        if _garbled(name) != name:
            frame = frame.withColumnRenamed(_garbled(name), name)
        if _is_garbled(plan, name):
            frame = frame.withColumn(name, _mended(name))
    types = {
        field.name: field.dataType
        for field in struct_of(plan, dict.fromkeys([*stored, *names])).fields
    }
    for name in older.reading.promoted:
        frame = frame.withColumn(name, F.col(f"`{name}`").cast(types[name]))
    for stored_name in columns_with_uncertain_dates(spark, store, plan, read_types):
        name = held.get(stored_name, stored_name)
        frame = frame.withColumn(name, unpushed(name, read_types[stored_name]))
    constants = older.reading.constants
    if plan.residual is not None:
        for name in roots_of(all_of(formulas_of(plan.residual)), layout.predicate_types):
            if name in constants:
                value = _constant(constants[name], layout.column_types[name])
                frame = frame.withColumn(name, value.cast(struct_of(plan, [name])[name].dataType))
        frame = frame.where(to_spark_column(plan.residual, layout.predicate_types))
    if not constants and tuple(names) == tuple(held.get(field.name, field.name) for field in read):
        return _with_guards(frame, {name: layout.column_types[name] for name in names})
    return frame.select(
        *[
            _constant(constants[name], layout.column_types[name]).cast(types[name]).alias(name)
            if name in constants
            else _safe(name, layout.column_types[name])
            for name in names
        ]
    )


def _with_footprint(
    spark: SparkSession, frame: DataFrame, plan: Scan, hidden: Sequence[str]
) -> DataFrame:
    """Add columns of the footprint, found by the name of the file that holds a row."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    layout = plan.layout
    file_name = f"lakebed_{uuid.uuid4().hex}"
    columns = {
        file_name: pa.array(
            [split_label(file.label)[1] + layout.descriptor.file_suffix for file in plan.files]
        )
    }
    for name in hidden:
        values = [file.partition[name] for file in plan.files]
        columns[name] = pa.array(values, type_to_arrow(layout.column_types[name]))
    files = F.broadcast(spark.createDataFrame(pa.table(columns)))
    named = frame.withColumn(file_name, frame.metadataColumn("_metadata").getField("file_name"))
    return named.join(files, on=file_name, how="left").drop(file_name)


def _safe(name: str, kind: Type) -> Column:
    """Return a column; if it has floats, Spark cannot push filters on it down to row groups.

    NaN is greater than every number, but the bounds in files of an earlier version or another tool
    may ignore it. Spark does not check for it, and would drop row groups that hold one. A filter
    may be added at any time: the frame belongs to the caller.
    """
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    column = F.col(f"`{name}`")
    return _guarded(column, kind).alias(name) if _has_floats(kind) else column


def _with_guards(frame: DataFrame, types: Mapping[str, Type]) -> DataFrame:
    """Return the same columns, each of them safe as by `_safe`.

    Spark's Python makes some ten calls into the JVM for a column, so only those that change are made.
    """
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    guarded = {
        name: F.nanvl(f"`{name}`", F.lit(float("nan"))) if kind == _DOUBLE else _safe(name, kind)
        for name, kind in types.items()
        if _has_floats(kind)
    }
    if len(guarded) == 1:
        return frame.withColumn(*guarded.popitem())  # without the calls that make lists for the JVM
    return frame.withColumns(guarded) if guarded else frame


def _guarded(column: Column, kind: Type) -> Column:
    """Return the same values as an expression that Spark cannot simplify."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    if isinstance(kind, Struct):
        for field in kind.fields:
            if _has_floats(field.type):
                inner = _guarded(column.getField(field.name), field.type)
                column = column.withField(f"`{field.name}`", inner)
        return column
    return F.nanvl(column, F.lit(float("nan")).cast("double" if kind == _DOUBLE else "float"))


def _has_floats(kind: Type) -> bool:
    """Return whether a type is a float, or a record with one; lists have no bounds."""
    if isinstance(kind, Struct):
        return any(_has_floats(field.type) for field in kind.fields)
    return kind in (Primitive(Kind.FLOAT), _DOUBLE)


def _read_files(
    spark: SparkSession, files: FileList, way: NativeWay | None, dataset: str
) -> DataFrame:
    reasons = []
    for candidate in files.ways(spark) if way is None else (way,):
        outcome = files.read(spark, candidate)
        if not isinstance(outcome, str):
            return outcome
        reasons.append(outcome)
    raise InvalidInputError(
        f"Cannot read {dataset!r} by {way!r}: {'; '.join(reasons)}.", hint="Leave 'way' out."
    )


def _constant(value: Any, kind: Type) -> Column:
    """Return the value of a field that files lack; a list or map is empty."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    if value is None:
        return F.lit(None)
    if isinstance(kind, ListOf):
        return F.array()
    return F.create_map() if isinstance(kind, MapOf) else literal(value, kind)


def _garbled(name: str) -> str:
    """Return what Spark makes of a percent-encoded name, as of percent-encoded text."""
    return name.encode().decode("latin-1")


def _is_garbled(plan: Scan, name: str) -> bool:
    return any(
        isinstance(value, str) and not value.isascii()
        for value in {file.partition[name] for file in plan.files}
    )


def _mended(name: str) -> Column:
    """Repair percent-encoded text, which Spark decodes as one character per byte of UTF-8."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    return F.decode(F.encode(F.col(f"`{name}`"), "ISO-8859-1"), "UTF-8")


__all__ = ["find_obstacle", "find_odd", "needed_columns", "read_natively", "struct_of"]

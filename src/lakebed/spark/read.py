"""Reading a plan with Spark: natively where its files allow it, else through Arrow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from lakebed.arrow.older import OlderFiles
from lakebed.arrow.scan import output_schema, scan
from lakebed.errors import InvalidInputError
from lakebed.model.keys import OWN_FILE_PREFIX, split_label
from lakebed.model.lineage import simplify
from lakebed.model.predicate import TRUE, roots_of
from lakebed.model.schema import Field, Kind, ListOf, MapOf, Primitive, Schema, Type
from lakebed.plan.plan import DataFile, ScanPlan
from lakebed.spark.column import literal, to_spark_column
from lakebed.spark.session import listing_by_driver, settings_for
from lakebed.spark.types import struct_type
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

Way = Literal["auto", "native", "arrow"]

# Types that Spark reads back from a path as they are; a timestamp would take the session's zone.
_DISCOVERABLE = frozenset({Kind.BOOLEAN, Kind.INT, Kind.LONG, Kind.STRING, Kind.DATE})
_FILES_PER_TASK = 32
# Only the repository's own directory can hold them: keys of ours have them percent-encoded.
_PATTERN = frozenset("*?[]{}\\")


def read_frame(
    spark: SparkSession,
    store: Store,
    plan: ScanPlan,
    columns: Sequence[str] | None = None,
    *,
    way: Way = "auto",
) -> DataFrame:
    """Return the rows of a plan as a DataFrame.

    `native` is Spark's own Parquet reader on the planned files. `arrow` reads them with Arrow
    inside `mapInArrow`: it serves storage without a Hadoop connector, files of other tools, and
    partition values that Spark garbles. `auto` takes `native` where it gives the right answer.
    Files of older schemas are read apart where they differ, and united under the current one.

    Args:
        spark: The session.
        store: Where the files are.
        plan: What to read.
        columns: Fields or partition fields, `batch_id` among them; None for all fields.
        way: How to read.

    Raises:
        SchemaMismatchError: A column is unknown.
        InvalidInputError: `native` was asked for where it would give a wrong answer.

    Cost:
        No Spark job yet. `native` looks once at each planned file on the driver.
    """
    wanted = output_schema(plan.state, columns)
    if not store.is_shared:
        rows = _to_spark_types(scan(store, plan, columns).read_all())
        return spark.createDataFrame(rows, _struct_type(plan, wanted.names))
    if not plan.files:
        return spark.createDataFrame([], _struct_type(plan, wanted.names))
    obstacle = _obstacle(store, plan, wanted.names)
    if way == "native" and obstacle:
        raise InvalidInputError(
            f"Cannot read {plan.state.name!r} natively: {obstacle}.", hint="Leave 'way' out."
        )
    if way == "arrow" or obstacle:
        return _read_through_arrow(spark, store, plan, wanted.names)
    return _read_mixed(spark, store, plan, wanted.names, way)


def _read_mixed(
    spark: SparkSession, store: Store, plan: ScanPlan, names: Sequence[str], way: Way
) -> DataFrame:
    """Read natively what Spark can, file by file of one kind, and the rest through Arrow."""
    frames: list[DataFrame] = []
    through_arrow: list[DataFile] = []
    for older, part in _by_schema(plan, names):
        if not older.reading.rebuilt:
            frames.append(_read_natively(spark, store, part, names, older))
            continue
        if way == "native":
            name = next(iter(older.reading.rebuilt))
            raise InvalidInputError(
                f"Cannot read {plan.state.name!r} natively: field {name!r} has another form in "
                f"files of schema {older.number}.",
                hint="Leave 'way' out.",
            )
        through_arrow += part.files
    if through_arrow:
        rest = replace(plan, files=tuple(through_arrow))
        frames.append(_read_through_arrow(spark, store, rest, names))
    return reduce(lambda one, other: one.union(other), frames)


def _by_schema(plan: ScanPlan, names: Sequence[str]) -> list[tuple[OlderFiles, ScanPlan]]:
    """Split a plan into files that are read alike, as far as some columns go."""
    needed = _needed(plan, names)
    by_number: dict[int | None, OlderFiles] = {}
    found: list[tuple[OlderFiles, list[DataFile]]] = []
    for file in plan.files:
        number = file.schema_number
        if number not in by_number:
            by_number[number] = OlderFiles.of(plan.state, number).for_columns(needed)
        older = by_number[number]
        alike = next((files for known, files in found if known.reads_as(older)), None)
        if alike is None:
            found.append((older, alike := []))
        alike.append(file)
    parts = []
    for older, files in found:
        left = plan.residual
        if left is not None:
            left = simplify(left, older.reading.constants)
        left = None if left == TRUE else left
        parts.append((older, replace(plan, files=tuple(files), residual=left)))
    return parts


def _needed(plan: ScanPlan, names: Sequence[str]) -> tuple[str, ...]:
    types = plan.state.predicate_types
    residual = () if plan.residual is None else roots_of(plan.residual, types)
    return tuple(dict.fromkeys([*names, *residual]))


def _obstacle(store: Store, plan: ScanPlan, names: Sequence[str]) -> str:
    """Say why Spark's own reader cannot read the plan; empty if it can."""
    if plan.state.descriptor.format != "parquet":
        return f"Spark may lack a reader for format {plan.state.descriptor.format!r}"
    path = store.local_path(plan.files[0].key)
    if path is None:
        return f"Spark has no connector for {store.uri}"
    if _PATTERN.intersection(str(path)):
        return f"Spark takes {path} for a pattern, and reads the files it finds several times"
    for file in plan.files:
        if not split_label(file.label)[1].startswith(OWN_FILE_PREFIX):
            return f"{file.key} was written by another tool, whose types may differ"
    partition_types = plan.state.partition_types
    for name in _needed(plan, names):
        if name not in partition_types:
            continue
        kind = partition_types[name]
        if not isinstance(kind, Primitive) or kind.kind not in _DISCOVERABLE:
            return f"partition field {name!r} of type {kind} would be guessed from its text"
    # Spark refuses a directory `name=` with nothing behind, whatever columns are asked for.
    for file in plan.files:
        for name, value in file.partition.items():
            if value == "":
                return f"partition field {name!r} holds the empty text"
    return ""


def _read_natively(
    spark: SparkSession, store: Store, plan: ScanPlan, names: Sequence[str], older: OlderFiles
) -> DataFrame:
    """Read files of one kind; each column as they hold it, so that Spark need not promote."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    state = plan.state
    partitions = state.partition_types
    needed = _needed(plan, names)
    from_path = [name for name in partitions if name in needed]
    stored = [name for name in state.stored_schema.names if name in needed]
    read = list(older.held_fields(stored))
    table = store.local_path(f"{state.name}/{state.table}")
    options = {}
    if from_path:
        # All levels are named, so that Spark takes each by its type and guesses none.
        read += [Field(name=name, type=kind) for name, kind in partitions.items()]
        options["basePath"] = f"file://{table}"
    if not read:
        # Spark cannot read a file without columns, but counts rows of any.
        read = list(older.countable_fields())
    paths = [f"file://{store.local_path(file.key)}" for file in plan.files]
    with settings_for(spark, listing_by_driver()):
        reader = spark.read.schema(struct_type(Schema(fields=tuple(read)))).options(**options)
        frame = reader.parquet(*paths)
        frame.schema  # noqa: B018 - on Connect, only this looks at the files under the settings
    for name in from_path:
        if _is_garbled(plan, name):
            frame = frame.withColumn(name, _mended(name))
    types = {
        one.name: one.dataType
        for one in _struct_type(plan, dict.fromkeys([*stored, *names])).fields
    }
    for name in older.reading.promoted:
        frame = frame.withColumn(name, F.col(f"`{name}`").cast(types[name]))
    if plan.residual is not None:
        frame = frame.where(to_spark_column(plan.residual, state.predicate_types))
    constants = older.reading.constants
    return frame.select(
        *[
            _constant(constants[name], state.column_types[name]).cast(types[name]).alias(name)
            if name in constants
            else F.col(f"`{name}`")
            for name in names
        ]
    )


def _constant(value: Any, kind: Type) -> Column:
    """Return what stands in the place of a field that files lack; of a list or map the empty one."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    if value is None:
        return F.lit(None)
    if isinstance(kind, ListOf):
        return F.array()
    return F.create_map() if isinstance(kind, MapOf) else literal(value, kind)


def _is_garbled(plan: ScanPlan, name: str) -> bool:
    return any(
        isinstance(value, str) and not value.isascii()
        for value in {file.partition[name] for file in plan.files}
    )


def _mended(name: str) -> Column:
    """Mend what Spark makes of percent-encoded text: one character for each byte of UTF-8."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    return F.decode(F.encode(F.col(f"`{name}`"), "ISO-8859-1"), "UTF-8")


def _struct_type(plan: ScanPlan, names: Iterable[str]) -> StructType:
    types: Mapping[str, Type] = plan.state.column_types
    return struct_type(Schema(fields=tuple(Field(name=name, type=types[name]) for name in names)))


def _read_through_arrow(
    spark: SparkSession, store: Store, plan: ScanPlan, names: Sequence[str]
) -> DataFrame:
    chunks = _chunks(plan)
    schema = _struct_type(plan, names)
    numbers = spark.range(0, len(chunks), 1, len(chunks))
    return numbers.mapInArrow(_task(store, chunks, list(names)), schema)


def _chunks(plan: ScanPlan) -> list[ScanPlan]:
    """Cut a plan into parts for tasks, which carry no labels but their own."""
    light = replace(plan.state, labels=(), files=(), history=(), annotations={}, indices={})
    count = max(1, -(-len(plan.files) // _FILES_PER_TASK), min(len(plan.files), 8))
    size = -(-len(plan.files) // count)
    files = iter(plan.files)
    parts = iter(lambda: tuple(itertools.islice(files, size)), ())
    return [replace(plan, state=light, files=part) for part in parts]


def _task(
    store: Store, chunks: list[ScanPlan], names: list[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in scan(store, chunks[number], names):
                    yield _to_spark_types(pa.Table.from_batches([rows])).to_batches()[0]

    return run


def _to_spark_types(table: pa.Table) -> pa.Table:
    """Spark knows no unsigned 64 bits; a decimal holds them."""
    for position, field in enumerate(table.schema):
        if pa.types.is_uint64(field.type):
            column = table.column(position).cast(pa.decimal128(20, 0))
            table = table.set_column(position, field.name, column)
    return table


__all__ = ["Way", "read_frame"]

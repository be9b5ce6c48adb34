"""Reads of a table: our plan chooses the files, and Spark's own Parquet reader reads them.

Files that this reader would read wrongly are read by the format `lakebed`, in Python, without a
choice of files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.arrow.older import OlderFiles
from lakebed.arrow.scan import scan
from lakebed.common.recent import Recent
from lakebed.errors import StorageError
from lakebed.model.keys import split_label
from lakebed.model.predicate import (
    FALSE,
    TRUE,
    Comparison,
    Membership,
    Op,
    Predicate,
    all_of,
    any_of,
    columns_of,
)
from lakebed.model.schema import Kind, Primitive, Schema, Type
from lakebed.plan.plan import DataFile, ScanPlan
from lakebed.spark.catalog.aggregates import aggregates_of, find_aggregates
from lakebed.spark.catalog.session_jvm import Jvm, Made, Proxied, interfaces
from lakebed.spark.catalog.streams import TableStream
from lakebed.spark.connector import find_unreachable
from lakebed.spark.decided_rows import (
    FILE,
    IDENTITY,
    ROW,
    UNCHANGED,
    file_number,
    identity_columns,
    numbered_files,
)
from lakebed.spark.file_lists import FileList
from lakebed.spark.jvm_filters import said_by_jvm
from lakebed.spark.native_read import find_obstacle, find_odd, struct_of
from lakebed.spark.planned_frame import read_frame
from lakebed.spark.raw_files import table_frame
from lakebed.spark.through_arrow import to_spark_types
from lakebed.spark.types import struct_type
from lakebed.spark.uncertain_dates import columns_with_uncertain_dates
from lakebed.state import file_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lakebed.spark.catalog.lake_tables import TableVersion

_NUMBER = re.compile(r"\d+")
_ROW_OF_SPARK = "_tmp_metadata_row_index"  # a column that Spark's reader makes
_KEPT_LISTS = 16  # lists of files that Spark has looked at; files never change
# More values of a join choose files by their range. Spark compares the texts of scans: with 137,575
# values in one of them, a query took half a minute longer.
_MOST_VALUES = 1000
_FLOATS = (Primitive(Kind.FLOAT), Primitive(Kind.DOUBLE))
# Wider types that Spark's reader makes of those in older files.
_WIDENED_BY_SPARK = {
    (Primitive(Kind.INT), Primitive(Kind.LONG)),
    (Primitive(Kind.INT), Primitive(Kind.DOUBLE)),
    (Primitive(Kind.FLOAT), Primitive(Kind.DOUBLE)),
}


def find_exact(filters: Iterable[Any] | None, types: Mapping[str, Type]) -> Predicate | None:
    """Return the predicate that is true for the same rows as filters; None if there is none.

    A weaker predicate is enough to choose files. It would delete rows that a statement keeps.

    Args:
        filters: Filters of Spark's JVM, all of which hold; None if some are unknown.
        types: Types of the columns that a predicate may name.
    """
    if filters is None:
        return None
    sides = [_find_exact(condition, types) for condition in filters]
    known = [side for side in sides if side is not None]
    return all_of(known) if len(known) == len(sides) else None


def _find_exact(condition: Any, types: Mapping[str, Type]) -> Predicate | None:
    match condition.productPrefix():
        case "AlwaysTrue":
            return TRUE
        case "AlwaysFalse":
            return FALSE
        case "And" | "Or" as operator:
            sides = [_find_exact(side, types) for side in (condition.left(), condition.right())]
            known = [side for side in sides if side is not None]
            if len(known) < len(sides):
                return None
            return all_of(known) if operator == "And" else any_of(known)
    predicate = said_by_jvm(condition, types)
    # NaN is greater than every number in Spark; our predicates leave it out.
    if predicate is None or any(types[name] in _FLOATS for name in columns_of(predicate)):
        return None
    return predicate


def _with_few_values(predicate: Predicate, types: Mapping[str, Type]) -> Predicate:
    """Return a predicate that is implied by another one, with their range in place of many values."""
    if not isinstance(predicate, Membership) or len(predicate.values) <= _MOST_VALUES:
        return predicate
    column, values = predicate.column, predicate.values
    if predicate.negated or types.get(column) in _FLOATS:  # NaN has no order
        return TRUE
    least, greatest = min(values), max(values)  # type: ignore[type-var]  # of one type by `bind`
    return all_of([Comparison(column, Op.GE, least), Comparison(column, Op.LE, greatest)])


def _names_of(condition: Any) -> set[str]:
    return {str(name).replace("`", "") for name in condition.references()}


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeColumns:
    """Columns as Spark's own reader reads them: those of the files, then those of the path.

    Attributes:
        names: The columns, in the order of the reader.
        read: The columns with their names in the files, and the levels of the path.
        wanted: Columns of the query, with the same names.
        root: Directory of the levels; None if no level is asked for.
        unpushed: Columns whose filters must not drop row groups.
    """

    names: tuple[str, ...]
    read: StructType
    wanted: StructType
    root: str | None
    unpushed: frozenset[str]


def find_native_columns(
    jvm: Jvm,
    opened: TableVersion,
    chosen: ScanPlan,
    names: Sequence[str],
    identity: Sequence[str] = (),
) -> NativeColumns | None:
    """Return how Spark's own reader reads columns of files; None if it would read some wrongly.

    Args:
        jvm: The JVM of the session.
        opened: Version of the table.
        chosen: The files.
        names: Columns of the files, and levels of their paths.
        identity: Columns of `IDENTITY` beside them.
    """
    from pyspark.sql.types import LongType, StructType

    layout = opened.layout
    plan = replace(chosen, residual=None)  # Spark filters the rows
    if find_obstacle(opened.store, plan, names) or any(find_odd(file) for file in plan.files):
        return None
    if find_unreachable(jvm.spark, opened.store, plan.files[0].key, retry=False):
        return None
    stored = [name for name in layout.stored_schema.names if name in names]
    levels = [name for name in layout.partition_types if name in names and name not in stored]
    if len(stored) + len(levels) < len(names) or (levels and not _is_ascii(plan)):
        return None
    widened: set[str] = set()
    for number in {file.schema_number for file in plan.files}:
        reading = OlderFiles.of(layout, number).for_columns(stored).reading
        if reading.rebuilt or any(value is not None for value in reading.constants.values()):
            return None
        if reading.constants:
            # A field that was dropped and added again: files may hold values of the former one.
            held = opened.held_columns.get(number or 0)
            lacking = {layout.stored_schema.stored_name(name) for name in reading.constants}
            if held is None or not held.isdisjoint(lacking):
                return None
        for name, former in reading.promoted.items():
            if (former, layout.column_types[name]) not in _WIDENED_BY_SPARK:
                return None
            widened.add(name)
    # A file without a column of its schema gives null, as the constant that is asked for.
    held_names = {name: layout.stored_schema.stored_name(name) for name in stored}
    if stored:
        columns = {held_names[field.name]: field for field in struct_of(plan, stored).fields}
    else:  # Spark cannot count the rows of a file without a column
        first = OlderFiles.of(layout, plan.files[0].schema_number).countable_fields()
        columns = {field.name: field for field in struct_type(Schema(fields=first)).fields}
    dates = columns_with_uncertain_dates(
        jvm.spark,
        opened.store,
        plan,
        {held: layout.column_types[name] for name, held in held_names.items()},
    )
    floats = {name for name, type_ in opened.types.items() if type_ in _FLOATS}
    renamed = {name for name, held in held_names.items() if name != held}
    uncertain = {name for name, held in held_names.items() if held in dates}
    wanted = StructType()
    for name in stored:
        wanted = wanted.add(held_names[name], columns[held_names[name]].dataType, True)  # noqa: FBT003
    read = StructType(list(wanted.fields)) if stored else StructType(list(columns.values()))
    if ROW in identity:
        wanted, read = (
            struct.add(_ROW_OF_SPARK, LongType(), True)  # noqa: FBT003 - Spark's signature
            for struct in (wanted, read)
        )
    if levels:
        known = struct_of(plan, list(layout.partition_types))
        for field in known.fields:
            if field.name not in read.names:
                read = read.add(field.name, field.dataType, True)  # noqa: FBT003 - Spark's signature
        for name in levels:
            wanted = wanted.add(name, read[name].dataType, True)  # noqa: FBT003
    return NativeColumns(
        names=(
            *(*stored, *_some(identity, ROW)),
            *(*levels, *_some(identity, FILE), *_some(identity, UNCHANGED)),
        ),
        read=read,
        wanted=wanted,
        root=f"{layout.name}/{layout.table}" if levels else None,
        unpushed=frozenset({*floats, *renamed, *uncertain, *widened}),
    )


def _some(names: Sequence[str], name: str) -> tuple[str, ...]:
    return (name,) if name in names else ()


def _struct_with_identity(plan: ScanPlan, names: Sequence[str]) -> StructType:
    """Return columns of a plan, among which there may be those that name a row."""
    from pyspark.sql.types import LongType, StructField, StructType

    columns = [name for name in names if name not in IDENTITY]
    of_plan = struct_of(plan, columns) if columns else StructType()
    return StructType(
        [
            StructField(name, LongType(), True) if name in IDENTITY else of_plan[name]  # noqa: FBT003
            for name in names
        ]
    )


def _is_ascii(plan: ScanPlan) -> bool:
    """Return whether Spark reads names and values of the path as they are."""
    texts: set[str] = set(plan.layout.partition_types)
    for file in plan.files:
        texts.update(value for value in file.partition.values() if isinstance(value, str))
    return all(text.isascii() for text in texts)


class FileLists:
    """Lists of files that Spark has looked at, for repeated queries of a session."""

    def __init__(self) -> None:
        """Keep none yet."""
        self._kept = Recent[tuple[object, ...], tuple[Any, Any]](_KEPT_LISTS)

    def scan(
        self,
        jvm: Jvm,
        files: FileList,
        levels: Collection[str],
        wanted: StructType,
        filters: Sequence[Any],
    ) -> Any:
        """Return Spark's scan of some files.

        Args:
            jvm: The JVM of the session.
            files: The files.
            levels: Columns that are levels of the paths.
            wanted: The columns of the scan.
            filters: Filters of Spark's JVM that may drop row groups.

        Cost:
            A look at each file, unless the list is kept.
        """
        key = (files.store.uri, tuple(files.keys), files.schema.json(), files.root)
        found = self._kept.get(key)
        if found is None:
            found = _find_few(jvm, files, levels) or _find_all(jvm, files)
            self._kept.put(key, found)
        index, stored = found
        schemas = (jvm.to_schema(files.schema), stored, jvm.to_schema(wanted))
        pushed = jvm.to_array(jvm.filter_class, filters) if filters else None
        return jvm.parts.scan(jvm.session, index, *schemas, jvm.strict_options, pushed)


def _find_few(jvm: Jvm, files: FileList, levels: Collection[str]) -> tuple[Any, Any] | None:
    """Return Spark's index of few local files, and the columns in them; None if it would lack one.

    Measured: a relation of them takes half as long as a query.
    """
    from pyspark.sql.types import StructType

    names = {name.casefold() for name in levels}
    stored = [field for field in files.schema.fields if field.name.casefold() not in names]
    if not files.is_few or len(stored) + len(names) != len(files.schema.fields):
        return None
    schema, base = jvm.to_schema(files.schema), files.base_options.get("basePath")
    index = jvm.parts.index(jvm.session, "\n".join(files.uris()), base, schema)
    return None if index is None else (index, jvm.to_schema(StructType(stored)))


def _find_all(jvm: Jvm, files: FileList) -> tuple[Any, Any]:
    frames = (files.read(jvm.spark, way) for way in files.ways(jvm.spark))
    frame: Any = next(frame for frame in frames if not isinstance(frame, str))
    relation = frame._jdf.queryExecution().analyzed().relation()
    return relation.location(), relation.dataSchema()


class GroupReads:
    """The files that a statement reads as a whole, since it may hand back only some of their rows.

    Spark may plan several scans of a statement. Only one of them is run.

    Attributes:
        condition: Condition that chose the files.
        has_runtime_filter: Whether Spark may look for the files with a match while it runs.
    """

    def __init__(self) -> None:
        """Know no scan yet."""
        self.condition: Predicate = TRUE
        self.has_runtime_filter = True
        self._files: dict[str, tuple[DataFile, ...]] = {}

    def note(self, scan: str, files: Iterable[DataFile]) -> None:
        """Note the files that a scan reads, in place of those that it was to read before."""
        self._files[scan] = tuple(files)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files that were read.

        Raises:
            StorageError: Scans of the statement have read different files.
        """
        every = list(self._files.values())
        labels = {frozenset(file.label for file in files) for files in every}
        if len(labels) > 1:
            raise StorageError(
                "Spark has read the rows of the statement by several scans, of different files.",
                hint="Nothing was changed. Give the statement to lake.sql(text, spark, write=True).",
            )
        return every[0] if every else ()


class LakeScanBuilder(Proxied):
    """Receives the filters and columns of a query while Spark plans it."""

    Java = interfaces(
        "connector.read.SupportsPushDownFilters",
        "connector.read.SupportsPushDownRequiredColumns",
        "connector.read.SupportsPushDownAggregates",
    )

    def __init__(
        self,
        jvm: Jvm,
        opened: TableVersion,
        stream: TableStream,
        group: GroupReads | None = None,
        *,
        keeps_order: bool = False,
    ) -> None:
        """Begin with all columns and no filter.

        Args:
            jvm: The JVM of the session.
            opened: Version of the table.
            stream: Makes streams of the scan.
            group: Notes the files of a statement that changes rows, which are read as a whole;
                None for a query.
            keeps_order: Whether the scan must have the columns in the order of the table.
        """
        super().__init__(jvm)
        self._group = group
        self._keeps_order = keeps_order
        self._opened = opened
        self._stream = stream
        self._required = opened.schema
        self._predicate: Predicate = TRUE
        self._decided: Predicate = TRUE
        self._pushed: list[Any] = []
        self._aggregates: pa.Table | None = None

    def pushFilters(self, filters: Any) -> Any:
        """Derive a condition on files from filters, and return those that Spark applies to rows.

        A condition on levels of paths alone decides on whole files. Spark would compile a program
        for each of its values.
        """
        types, layout = self._opened.types, self._opened.layout
        is_whole = self._group is not None or self._keeps_order
        levels = set() if is_whole or layout.has_former_levels else set(layout.partition_types)
        known, left, decided = [], [], []
        for condition in filters:
            exact = _find_exact(condition, types)
            predicate = said_by_jvm(condition, types) if exact is None else exact
            if predicate is not None:
                known.append(predicate)
            if exact is not None and levels.issuperset(columns_of(exact)):
                decided.append(exact)
            else:
                left.append(condition)
        self._pushed = left
        self._predicate, self._decided = all_of(known), all_of(decided)
        if not left:
            return self._jvm.no_filters
        return self._jvm.to_array(self._jvm.filter_class, left) if decided else filters

    def _find_constants(self) -> Any:
        return self._jvm.answers_of_scans

    def pruneColumns(self, required: Any) -> None:
        """Take the columns of the query."""
        self._required = required

    def supportCompletePushDown(self, _aggregation: Any) -> bool:
        """Return that values which are taken from the file table need no further work."""
        return True

    def pushAggregation(self, aggregation: Any) -> bool:
        """Take counts, minima and maxima of all rows from the file table, if it has them exactly.

        Spark asks only if it has no filter to apply.
        """
        aggregates = aggregates_of(self._jvm, aggregation)
        if aggregates:
            self._aggregates = find_aggregates(self._opened, aggregates, self._decided)
        return self._aggregates is not None

    def build(self) -> Any:
        """Return the scan."""
        jvm, opened, group = self._jvm, self._opened, self._group
        if self._aggregates is not None:
            return self._stream.of_rows(table_frame(jvm.spark, self._aggregates))
        # One call, and not two for each column.
        every = tuple(field["name"] for field in json.loads(self._required.json())["fields"])
        identity = tuple(name for name in every if name in IDENTITY)
        names = tuple(name for name in every if name not in IDENTITY)
        chosen = opened.choose(self._predicate)
        if group is not None:
            group.condition = self._predicate
            chosen = _with_all_rows(chosen)
        if not (chosen.files and opened.store.is_shared):
            if group is not None:
                group.note(self._key, chosen.files)
            columns = every or opened.columns[:1]
            return self._stream.of_rows(_local_frame(jvm, opened, chosen, columns))
        native = find_native_columns(jvm, opened, chosen, names, identity)
        # Spark's reader has the levels of a path last.
        if native is None or (self._keeps_order and native.names != every):
            if group is not None:
                group.note(self._key, opened.choose(TRUE).files)
            scan = _scan_in_python(jvm, opened, self._decided, names, identity)
            return self._stream.of_scan(scan)
        if group is not None:
            return GroupScan(jvm, opened, self._stream, self._predicate, chosen, native, group)
        return LakeScan(jvm, opened, self._stream, self._predicate, chosen, native, self._pushed)


def _with_all_rows(plan: ScanPlan) -> ScanPlan:
    """Return a plan of the same files, all of whose rows are read."""
    files = tuple(replace(file, is_filtered=False) for file in plan.files)
    return replace(plan, files=files, residual=None)


def _local_frame(jvm: Jvm, opened: TableVersion, plan: ScanPlan, columns: Sequence[str]) -> Any:
    """Return rows that this process reads, as a frame of rows that the driver has."""
    names = tuple(name for name in columns if name not in IDENTITY)
    if len(names) == len(columns):
        return read_frame(jvm.spark, opened.store, plan, columns)
    schema = _struct_with_identity(plan, columns)
    tables = []
    for file in plan.files:
        alone = replace(plan, files=(file,))
        table = scan(opened.store, alone, names or opened.columns[:1]).read_all()
        identity = identity_columns(file.label, 0, table.num_rows)
        held = [identity[name] if name in IDENTITY else table.column(name) for name in columns]
        tables.append(to_spark_types(pa.table(held, names=list(columns))))
    if not tables:
        return jvm.spark.createDataFrame([], schema)
    return jvm.spark.createDataFrame(pa.concat_tables(tables), schema)


def _scan_in_python(
    jvm: Jvm,
    opened: TableVersion,
    decided: Predicate,
    names: Sequence[str],
    identity: Sequence[str],
) -> Any:
    """Return Spark's scan of the format `lakebed`, of all rows that Spark does not filter."""
    columns = (*names, *identity) or opened.columns[:1]  # it has no rows without columns
    options = {**opened.address, "version": str(opened.state.version)}
    if decided != TRUE:
        options["where"] = str(decided)
    schema = jvm.to_schema(_struct_with_identity(opened.choose(TRUE), columns))
    return jvm.scan_by_format(options, schema)


class LakeScan(Proxied):
    """Spark's Parquet scan of planned files, with the number of their rows."""

    Java = interfaces(
        "connector.read.SupportsReportStatistics",
        "connector.read.SupportsRuntimeV2Filtering",
    )
    _kept = "readSchema description toBatch estimateStatistics filterAttributes"

    def __init__(
        self,
        jvm: Jvm,
        opened: TableVersion,
        stream: TableStream,
        predicate: Predicate,
        chosen: ScanPlan,
        native: NativeColumns,
        pushed: Sequence[Any],
    ) -> None:
        """Keep a plan.

        Args:
            jvm: The JVM of the session.
            opened: Version of the table.
            stream: The table as a stream.
            predicate: A condition that the filters of the query imply.
            chosen: The files.
            native: The columns.
            pushed: Filters of the query that Spark applies to rows.
        """
        super().__init__(jvm)
        self._opened = opened
        self._stream = stream
        self._condition = self._predicate = predicate
        self._chosen = chosen
        self._native = native
        stored = set(native.wanted.names) - native.unpushed
        self._filters = []
        for condition in pushed:
            named = _names_of(condition)
            is_stored = all(name.partition(".")[0] in stored for name in named)
            if is_stored and native.unpushed.isdisjoint(named):
                self._filters.append(condition)
        shown = _struct_with_identity(chosen, native.names) if native.names else native.wanted
        self._schema = jvm.to_schema(shown)
        self._first: Any = None  # Spark keeps the reader of the first plan
        self._last: Any = None
        self._set_key()

    def _set_key(self) -> None:
        self._key = (
            f"LakeScan({self._opened.uri}@{self._opened.state.version}, {self._predicate}, "
            f"{self._native.names}, {[condition.toString() for condition in self._filters]})"
        )

    def readSchema(self) -> Any:
        """Return the columns in the order of the reader: those of files, then those of the path."""
        return self._schema

    def description(self) -> str:
        """Return the text that plans show."""
        opened = self._opened
        return (
            f"lakebed {opened.name} version {opened.state.version}, "
            f"{len(self._chosen.files)} of {opened.state.live.count} files"
        )

    def _find_constants(self) -> Any:
        return self._jvm.answers_of_scans

    def toBatch(self) -> Any:
        """Return Spark's batch; after a filter at run time, that of the remaining files."""
        self._stream.check_batch()
        if self._first is None:
            self._first = self._last = self._jvm.to_batch(self._scan().toBatch())
        elif self._last is None:
            again = self._scan() if self._chosen.files else self._without_files()
            self._last = again.toBatch()
        return self._last

    def toMicroBatchStream(self, checkpoint: str) -> Any:
        """Return the stream of all commits."""
        return self._stream.read(checkpoint)

    def _scan(self) -> Any:
        jvm, opened, native = self._jvm, self._opened, self._native
        files = FileList(
            store=opened.store,
            keys=tuple(file.key for file in self._chosen.files),
            schema=native.read,
            root=native.root,
        )
        levels = () if native.root is None else opened.layout.partition_types
        scan = opened.lists.scan(jvm, files, levels, native.wanted, self._filters)
        marks = [name for name in (FILE, UNCHANGED) if name in native.names]
        return self._numbered(scan, marks) if marks else scan

    def _numbered(self, scan: Any, marks: Sequence[str]) -> Any:
        """Return a scan of the same files, with the number of the file as one or two more levels."""
        jvm, opened = self._jvm, self._opened
        suffix = opened.layout.descriptor.file_suffix
        lines = "\n".join(
            f"{file_number(file.label)}\t{split_label(file.label)[1]}{suffix}"
            for file in self._chosen.files
        )
        levels = scan.readPartitionSchema()
        for name in marks:
            levels = levels.add(name, "long")
        reader = jvm.parts.copied(scan, "readPartitionSchema", levels)

        def plan_partitions() -> Any:
            return jvm.parts.numbered(scan.planInputPartitions(), lines, len(marks))

        batch = Made(
            jvm,
            "connector.read.Batch",
            planInputPartitions=plan_partitions,
            createReaderFactory=reader.createReaderFactory,
        )
        return Made(jvm, "connector.read.Scan", readSchema=self.readSchema, toBatch=lambda: batch)

    def _without_files(self) -> Any:
        jvm, first = self._jvm, self._first
        nothing = jvm.to_array(jvm.connector.read.InputPartition, ())
        batch = Made(
            jvm,
            "connector.read.Batch",
            planInputPartitions=nothing,
            createReaderFactory=first.createReaderFactory,
        )
        return Made(jvm, "connector.read.Scan", readSchema=self.readSchema, toBatch=lambda: batch)

    def estimateStatistics(self) -> Any:
        """Return the number of rows in the files, from the file table, and the bytes of the columns.

        Cost:
            One GET for each segment of the file table, unless the process has read it before.
        """
        jvm, rows = self._jvm, self._count_rows()
        numbers = jvm.java.util.OptionalLong
        number, size = numbers.empty(), numbers.empty()  # then Spark expects very many
        if rows is not None:
            number, size = numbers.of(rows), numbers.of(max(1, rows * self._schema.defaultSize()))
        no_columns = jvm.to_map({})
        return Made(
            jvm,
            "connector.read.Statistics",
            numRows=number,
            sizeInBytes=size,
            columnStats=no_columns,
        )

    def _count_rows(self) -> int | None:
        """Return the number of rows in the files; None if one is not recorded."""
        opened, files = self._opened, self._chosen.files
        segments = self._chosen.file_table or opened.state.lists.files
        labels = [file.label for file in files if file.row_count is None]
        recorded = file_table.read_counts(opened.store, segments, labels) if labels else {}
        counts = [
            recorded.get(file.label, (None, 0))[0] if file.row_count is None else file.row_count
            for file in files
        ]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def filterAttributes(self) -> Any:
        """Return the columns whose values Spark may pass while a query runs."""
        if len(self._chosen.files) == 1:  # values cost time, and choose nothing
            return self._jvm.to_references(())
        names = [name for name in self._native.names if name not in IDENTITY]
        return self._jvm.to_references(names)

    def filter(self, predicates: Any) -> None:
        """Choose fewer files, by values that Spark has found while the query runs."""
        if self._first is None:
            self.toBatch()
        said = [
            said_by_jvm(condition, self._opened.types)
            for condition in self._jvm.find_filters(predicates) or ()
        ]
        known = [
            _with_few_values(predicate, self._opened.types)
            for predicate in said
            if predicate is not None
        ]
        # Of the query's own condition: another part of a plan may have passed other values before.
        self._predicate = all_of([self._condition, *known])
        self._chosen, self._last = self._opened.choose(self._predicate), None
        self._set_key()


class GroupScan(LakeScan):
    """The scan of a statement that changes rows: it chooses files, and reads all their rows.

    Spark finds the numbers of the files that have a row to change, and passes them while the
    statement runs.
    """

    Java = LakeScan.Java

    def __init__(
        self,
        jvm: Jvm,
        opened: TableVersion,
        stream: TableStream,
        predicate: Predicate,
        chosen: ScanPlan,
        native: NativeColumns,
        group: GroupReads,
    ) -> None:
        """Keep a plan, as `LakeScan`, and the notes of the statement."""
        super().__init__(jvm, opened, stream, predicate, chosen, native, ())
        self._group = group
        self._planned = chosen

    def _set_key(self) -> None:
        super()._set_key()
        self._key = f"Group{self._key}({id(self)}, {len(self._chosen.files)})"

    def toBatch(self) -> Any:
        """Return Spark's batch; noting the files when their parts are planned."""
        batch = super().toBatch()

        def plan_partitions() -> Any:
            self._group.note(str(id(self)), self._chosen.files)
            return batch.planInputPartitions()

        return Made(
            self._jvm,
            "connector.read.Batch",
            planInputPartitions=plan_partitions,
            createReaderFactory=batch.createReaderFactory,
        )

    def filterAttributes(self) -> Any:
        """Return the number of the file alone: Spark passes no values of several columns."""
        return self._jvm.to_references([FILE] if self._group.has_runtime_filter else ())

    def filter(self, predicates: Any) -> None:
        """Choose the files that have a row to change."""
        if self._first is None:
            super().toBatch()
        numbers: set[int] | None = None
        for predicate in predicates:
            if predicate.name() in ("IN", "=") and FILE in predicate.toString():
                # One text, since a call for each number would take longer.
                listed = predicate.toString().partition(FILE)[2]
                found = {int(text) for text in _NUMBER.findall(listed)}
                numbers = found if numbers is None else numbers & found
        self._chosen, self._last = self._planned, None
        if numbers is not None:
            by_number = numbered_files(self._planned.files)
            files = tuple(file for number, file in by_number.items() if number in numbers)
            self._chosen = replace(self._planned, files=files)
        self._set_key()

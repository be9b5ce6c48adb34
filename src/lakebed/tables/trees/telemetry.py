"""Mozilla's telemetry trees: a directory for each dimension; lines of uuid, tab and JSON in files.

There are two forms. In the form of the design, every dimension is a directory, and files are
numbered: `20130612/nightly/winnt/001.gz`. In the form of the finished code, the last two dimensions
are part of the file name:
`saved_session/Firefox/nightly/28.0a1/20131112030204.20131113.v1.log.<32 hex>.xz`.

In paths, `_` replaces every character that is not a letter, digit, `_` or `.`. So several values can
share a directory. An adopted tree has the values of its paths, since the original values are lost;
an export reports the directories that several values share.
"""

from __future__ import annotations

import os
import re
import uuid
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Literal, get_args

import pyarrow as pa

from lakebed.arrow.formats.file_format import find_reader
from lakebed.arrow.formats.submissions import SubmissionsReader, SubmissionsWriter
from lakebed.arrow.intact import with_recorded
from lakebed.arrow.scan import scan
from lakebed.arrow.workers import Workers
from lakebed.common.grouping import balanced_groups
from lakebed.common.html import shortened
from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.common.shown import counted
from lakebed.common.sizes import Size, parse_size
from lakebed.errors import (
    AlreadyExistsError,
    InvalidInputError,
    PartitionSpecError,
    SchemaMismatchError,
)
from lakebed.model.allowed import OTHER, TOKENS, UNKNOWN, AllowedValues
from lakebed.model.descriptor import COMPRESSIONS, DOCUMENT, UUID, DatasetDescriptor
from lakebed.model.dimensions import DimensionSchema
from lakebed.model.keys import encode_path
from lakebed.model.layout import Layout
from lakebed.model.names import MAX_COMPONENT_BYTES, nearest
from lakebed.model.partition import Dimension, PartitionStrategy
from lakebed.model.partition.function import flat
from lakebed.model.partition.provided import Provided
from lakebed.model.schema import Field, Kind, Primitive, Schema, Type
from lakebed.model.telemetry_layout import TelemetryLayout
from lakebed.model.values import Scalar, format_value, parse_value
from lakebed.plan.plan import DataFile, Scan, ScanPlan
from lakebed.spark.task_workers import workers_for
from lakebed.state import file_table
from lakebed.store.base import ObjectInfo, Store
from lakebed.tables.trees.exported import Contents, Difference, ExportedTree, LineDigest
from lakebed.tables.trees.found import ForeignTree, TreeFile, adoption_of, check_folder
from lakebed.work.adoption import Adoption, check_all_listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IfChanged = Literal["error", "keep", "replace"]
NAMED = 2
"""Number of dimensions in file names, in trees of the finished code."""
DEFAULT_COMPRESSION = "gzip"  # every release of Spark reads it without native libraries
MAX_BYTES = 500_000_000  # of lines in a file, as in the finished code
_UNREAD_BY_SPARK = {
    "lz4": "Spark does not read .lz4 files of LZ4 frames: spark.read.text ends its session with "
    "OutOfMemoryError.",
    "xz": "Spark has no codec for .xz: spark.read.text returns the compressed bytes as lines, without "
    "an error.",
}
_OPEN_FILES = 64
_MAX_BEGINNING = 200  # of a file's name, which ends with version, number and compression
_UNSAFE = re.compile(r"[^a-zA-Z0-9_.]")
_UNFINISHED = (".compressing", ".compressme", ".tmp")
_SUFFIXES = {"zstd": "zst", "gzip": "gz", "uncompressed": ""}
# The finished code wrote xz under this name, too.
_BY_SUFFIX = {_SUFFIXES.get(name, name): name for name in COMPRESSIONS["submissions"]} | {
    "lzma": "xz"
}
_COMPRESSED = tuple(f".{suffix}" for suffix in _BY_SUFFIX if suffix)
_TEXT = Primitive(Kind.STRING)
_NO_DIFFERENCE = Difference((), (), (), ())
_LINES = Schema(
    fields=tuple(Field(name=name, type=_TEXT, nullable=False) for name in (UUID, DOCUMENT))
)


def find_telemetry(
    store: Store,
    name: str,
    schema: DimensionSchema | str | os.PathLike[str],
    *,
    on_progress: OnProgress = NO_PROGRESS,
    workers: Workers | None = None,
) -> Adoption:
    """Prepare the adoption of a tree, and check all files; see `Repository.adopt_telemetry`."""
    dimensions = (
        schema if isinstance(schema, DimensionSchema) else DimensionSchema.from_json(schema)
    )
    check_all_listed(store, name)
    listed = [info for info in store.list(f"{name}/") if not _is_hidden(info.key)]
    tree, layout = ForeignTree(), None
    for info in listed:
        if info.key.endswith(_UNFINISHED):
            tree.left.append((info, "unfinished: its name is that of a file still being written"))
            continue
        if info.size_bytes == 0 and info.key.endswith(_COMPRESSED):
            tree.left.append((info, "empty: a compressed file never is, so its writer has died"))
            continue
        check_folder(info.key, name)
        if layout is None:
            named = _named_in(info, name, dimensions)
            layout = TelemetryLayout(schema=dimensions, base=name, named=named)
        values = {flat(key): value for key, value in layout.values(info.key).items()}
        tree.files.append(TreeFile(info=info, partition=encode_path(values)))
    functions = tuple(Provided(name=flat(rule.field_name)) for rule in dimensions)
    descriptor = DatasetDescriptor(
        schema=_LINES,
        partition_by=PartitionStrategy(functions),
        format="submissions",
        compression=_compression_of(tree),
    )
    return adoption_of(store, name, descriptor, tree, _count_lines, on_progress, workers)


def _is_hidden(key: str) -> bool:
    return any(level.startswith(".") for level in key.split("/"))


def _named_in(info: ObjectInfo, name: str, schema: DimensionSchema) -> int:
    """Return the number of dimensions in the name of a file, derived from its depth."""
    depth = info.key.removeprefix(f"{name}/").count("/")
    for named in (0, NAMED):
        if depth == len(schema) - named:
            return named
    raise InvalidInputError(
        f"{info.key!r} lies {depth} directories deep, which does not fit a tree of "
        f"{len(schema)} dimensions.",
        hint=f"Dimensions are: {', '.join(schema.names)}. All of them must be directories, or all "
        f"but the last {NAMED}.",
    )


def _compression_of(tree: ForeignTree) -> str:
    """Return the most frequent compression of the tree's files, for new files."""
    names = (file.info.key.rpartition("/")[2] for file in tree.files)
    counts = Counter(
        _BY_SUFFIX.get(name.rpartition(".")[2] if "." in name else "", "uncompressed")
        for name in names
    )
    return max(COMPRESSIONS["submissions"], key=counts.__getitem__)


def _count_lines(file: TreeFile, data: pa.Buffer) -> int:  # noqa: ARG001 - lines hold no dimensions
    return sum(
        batch.num_rows for batch in SubmissionsReader().batches(pa.BufferReader(data), _LINES)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryExport:
    """The result of an export.

    Attributes:
        target: URL of the tree.
        version: Version of the dataset.
        row_count: Number of submissions, one for each line.
        size_bytes: Total size of the written files.
        files: Paths of the written files below the target, sorted.
        shared: Directories, or name prefixes, that hold several dimension values with the same
            spelling in paths.
        unchanged: Directories, or name prefixes, that already had exactly these lines.
        replaced: Directories, or name prefixes, whose lines have changed and whose files were
            replaced, or removed if no lines are left.
        kept: Directories, or name prefixes, whose lines have changed and which were kept.
        notes: Readers that cannot read files of this compression.
        is_dry_run: True if nothing was written.
    """

    target: str
    version: int
    row_count: int
    size_bytes: int
    files: tuple[str, ...]
    shared: tuple[str, ...]
    unchanged: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryOptions:
    """Options of an export.

    Attributes:
        named: Number of last dimensions that are part of file names: 0 for the design's tree of
            `001.gz`, 2 for that of the finished code.
        compression: gzip, zstd, lz4, xz or uncompressed. Spark does not read lz4 and xz.
        max_bytes: Maximal size of the lines of a file before compression: a number of bytes, or
            text such as `64MB`.
        version: Version of the records, in file names such as `v1`.
    """

    named: int = 0
    compression: str = DEFAULT_COMPRESSION
    max_bytes: int = MAX_BYTES
    version: int = 1

    if TYPE_CHECKING:  # a size may be given as text

        def __init__(
            self,
            *,
            named: int = 0,
            compression: str = DEFAULT_COMPRESSION,
            max_bytes: Size = MAX_BYTES,
            version: int = 1,
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS["submissions"]:
            raise InvalidInputError(
                f"Unknown compression {self.compression!r} of a telemetry tree.",
                hint=f"Known are: {', '.join(COMPRESSIONS['submissions'])}.",
            )
        object.__setattr__(self, "max_bytes", parse_size(self.max_bytes, "max_bytes"))
        if min(self.named, self.version) < 0:
            raise InvalidInputError(
                f"Invalid options: {self.named} named dimensions, version {self.version}.",
                hint="Give numbers that are not negative.",
            )


def export(
    store: Store,
    plan: ScanPlan,
    target: Store,
    schema: DimensionSchema | None = None,
    options: TelemetryOptions | None = None,
    *,
    if_changed: IfChanged = "error",
    is_whole: bool = True,
    storage_options: Mapping[str, str] | None = None,
    is_dry_run: bool = False,
    spark: SparkSession | None = None,
    on_progress: OnProgress = NO_PROGRESS,
) -> TelemetryExport:
    """Write the rows of a plan as a tree, or add them to one; see `Repository.trees.export`.

    Args:
        store: The store of the dataset.
        plan: Plan of the rows to export.
        target: The root of the tree.
        schema: Dimensions of the levels; None for the partition fields.
        options: Form and compression of the tree.
        if_changed: Action for directories whose lines have changed.
        is_whole: True if the plan has all rows of the dataset.
        storage_options: Settings of the target.
        is_dry_run: Write nothing, and report the files that would be written.
        spark: Session whose tasks read and write; None for this process, as in a dry run.
        on_progress: As for `Repository.trees.export`.
    """
    options = options or TelemetryOptions()
    if if_changed not in get_args(IfChanged):
        raise InvalidInputError(
            f"if_changed={if_changed!r} is not valid.",
            hint=f"Give one of {', '.join(get_args(IfChanged))}.",
        )
    levels = _levels(plan.layout, schema)
    if options.named > len(levels):
        raise InvalidInputError(
            f"File names cannot hold {options.named} dimensions: there are {len(levels)}.",
            hint=f"Give at most {len(levels)}.",
        )
    rules = None if schema is None else _rules(plan.layout, levels, schema)
    names = levels if schema is None else schema.names
    tree = ExportedTree.claim(target, names, options.named, storage_options, is_dry_run=is_dry_run)
    is_shared = target.is_shared and not is_dry_run
    work = _TreeWork(
        store=store,
        plan=_readable(store, plan),
        levels=levels,
        rules=rules,
        staged=tree.staged,
        options=options,
        export_id=tree.id,
    )
    workers = workers_for(
        spark if is_shared else None, store, threads=1, purpose=f"export {plan.layout.name}"
    )
    items = work.items(workers, file_table.read_counts(store, plan.state.lists.files))
    done = _TreePart()
    try:
        wanted, left = None, _NO_DIFFERENCE
        if not tree.is_new:
            found = work.run(workers, items, (), Tally(on_progress, f"compare {plan.layout.name}"))
            left = tree.difference(found.contents, is_whole=is_whole)
            wanted = _to_write(left, target, if_changed)
        if wanted is None or wanted:
            tally = Tally(on_progress, f"export {plan.layout.name}")
            done = work.run(workers, items, wanted, tally)
        changes = left if if_changed == "replace" else _NO_DIFFERENCE
        if done.files or changes.removed:
            written = {prefix: held for prefix, held in done.contents.items() if held.files}
            tree.show(written, changes.removed, storage_options)
    finally:
        tree.discard()
    changed = (*left.changed, *left.removed)
    return TelemetryExport(
        target=target.uri,
        version=plan.version,
        row_count=done.row_count,
        size_bytes=sum(done.files.values()),
        files=tuple(sorted(done.files)),
        shared=tuple(sorted(prefix for prefix, known in done.values.items() if len(known) > 1)),
        unchanged=left.unchanged,
        replaced=changed if if_changed == "replace" else (),
        kept=changed if if_changed == "keep" else (),
        notes=_notes(options),
        is_dry_run=is_dry_run,
    )


def _notes(options: TelemetryOptions) -> tuple[str, ...]:
    """Return which readers the compression shuts out, with the remedy."""
    reason = _UNREAD_BY_SPARK.get(options.compression)
    return () if reason is None else (f"{reason} Compress the tree as gzip or zstd for Spark.",)


def _to_write(left: Difference, target: Store, if_changed: IfChanged) -> frozenset[str]:
    """Return the directories to write.

    Raises:
        AlreadyExistsError: Some have changed since they were exported, and `if_changed` is "error".
    """
    changed = (*left.changed, *left.removed)
    if changed and if_changed == "error":
        raise AlreadyExistsError(
            f"{counted(len(changed), 'directory', 'directories')} of {target.uri} held other lines "
            f"when {'it was' if len(changed) == 1 else 'they were'} exported: {shortened(changed)}.",
            hint='Replace them by if_changed="replace" (--if-changed replace), or leave them as they '
            'are by "keep".',
        )
    return frozenset(left.new + (left.changed if if_changed == "replace" else ()))


def _readable(store: Store, plan: ScanPlan) -> Scan:
    """Return the plan in a form that tasks read: they do not have the file table."""
    files = plan.files
    if find_reader(plan.layout.descriptor.format) is not None:
        files = tuple(with_recorded(store, plan.file_table, files))
    return Scan(layout=plan.layout, files=files, residual=plan.residual)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TreePart:
    """Some directories of a tree, each of them whole.

    Attributes:
        row_count: Number of lines.
        files: Sizes in bytes of the written files, by path.
        values: Dimension values of each directory.
        contents: Contents of each directory, with the files that were written.
    """

    row_count: int = 0
    files: dict[str, int] = field(default_factory=dict)
    values: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    contents: dict[str, Contents] = field(default_factory=dict)

    def joined(self, other: _TreePart) -> _TreePart:
        """Return both parts, which share no directory."""
        return _TreePart(
            row_count=self.row_count + other.row_count,
            files=self.files | other.files,
            values=self.values | other.values,
            contents=self.contents | other.contents,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TreeWork:
    """Writes the rows of a plan as a tree, in parts that share no directory.

    Attributes:
        store: The store of the dataset.
        plan: The rows.
        levels: Columns of the levels.
        rules: Allowed values of each level; None to take all.
        staged: The store for the files.
        options: Form and compression of the tree.
        export_id: Id of the export, part of the names of files.
    """

    store: Store
    plan: Scan
    levels: tuple[str, ...]
    rules: Sequence[_Rule] | None
    staged: Store
    options: TelemetryOptions
    export_id: str

    def items(
        self, workers: Workers, counts: Mapping[str, tuple[int, int]]
    ) -> list[tuple[DataFile, ...]]:
        """Divide the files among workers, so that no two of them write to one directory.

        Args:
            workers: The workers.
            counts: Rows and bytes of data files by label.
        """
        groups: dict[tuple[str, ...], list[DataFile]] = {}
        for file in self.plan.files:
            groups.setdefault(self._known_part(file), []).append(file)
        sizes = {
            part: sum(counts.get(file.label, (0, 0))[1] for file in files) + len(files)
            for part, files in groups.items()
        }
        places = {part: place for place, part in enumerate(groups)}
        count = workers.count_for(sum(sizes.values()), len(self.plan.files))
        return [
            tuple(file for part in sorted(parts, key=places.__getitem__) for file in groups[part])
            for parts in balanced_groups(sizes, max(1, count))
        ]

    def _known_part(self, file: DataFile) -> tuple[str, ...]:
        """Return the part of a path that the directory of a data file decides.

        Paths that differ have parts that differ, or lie in one group: names that are spelled alike
        do so for every form of tree.
        """
        texts = []
        for position, level in enumerate(self.levels):
            if level in file.partition:
                value = file.partition[level]
                text = _text(value) if self.rules is None else self.rules[position].text(value)
                texts.append(_safe(text).replace(".", "_"))
        return tuple(texts)

    def run(
        self,
        workers: Workers,
        items: Sequence[tuple[DataFile, ...]],
        wanted: Collection[str] | None,
        tally: Tally,
    ) -> _TreePart:
        """Write directories; without any, sum up what all of them would hold.

        Args:
            workers: The workers.
            items: The files of each, as of `items`.
            wanted: Directories to write; None for all.
            tally: Counts the rows that were read.
        """
        report = tally.listener
        if report is not NO_PROGRESS:
            report = workers.listening(lambda row_count: tally.add(row_count=row_count))

        def write(files: tuple[DataFile, ...]) -> _TreePart:
            writer = _TreeWriter(self.staged, self.options, self.export_id, wanted)
            plan = replace(self.plan, files=files)
            columns = list(dict.fromkeys((UUID, DOCUMENT, *self.levels)))
            with scan(self.store, plan, columns) as batches:
                for batch in batches:
                    report(batch.num_rows)
                    for values, rows in _grouped(batch, self.levels, self.rules):
                        writer.write(values, rows)
            return writer.finish()

        parts = workers.map(write, items, _TreePart)
        return reduce(_TreePart.joined, parts, _TreePart())


def _levels(layout: Layout, schema: DimensionSchema | None) -> tuple[str, ...]:
    """Return the columns of the levels.

    Raises:
        SchemaMismatchError: The dataset does not hold submissions, or lacks the column of a
            dimension.
        InvalidInputError: There is no schema, and the dataset has no partitions.
    """
    types = layout.column_types
    for name in (UUID, DOCUMENT):
        if types.get(name) != _TEXT:
            raise SchemaMismatchError(
                f"Dataset {layout.name!r} has no field {name!r} of type string.",
                hint="A telemetry tree holds submissions: lines of a uuid and a document.",
            )
    if schema is None:
        levels = tuple(layout.partition_level_types)
        if not levels:
            raise InvalidInputError(
                f"Dataset {layout.name!r} has no partitions to use as directories.",
                hint="Give a dimension schema.",
            )
        return levels
    by_source = {function.source: function.name for function in layout.descriptor.partition_by}
    levels = tuple(
        by_source.get(name, flat(name) if flat(name) in types else name) for name in schema.names
    )
    for rule, level in zip(schema, levels, strict=True):
        if level not in types:
            raise SchemaMismatchError(
                f"Dimension {rule.field_name!r} is neither a field nor a partition field of "
                f"{layout.name!r}.",
                hint=nearest(rule.field_name, (*by_source, *types))
                or f"Fields are: {', '.join(types)}.",
            )
    return levels


@dataclass(frozen=True, slots=True)
class _Rule:
    """The allowed values of a level.

    Attributes:
        allowed: Allowed values, bound to the type.
        kind: Type of the values; a dimension's partition field holds them as text.
    """

    allowed: AllowedValues
    kind: Type

    def text(self, value: Scalar) -> str:
        """Return the text of a value in the tree; a value that is not allowed becomes OTHER."""
        text = _text(value)
        if value is None or text in TOKENS:
            return text
        try:
            typed = value if not isinstance(value, str) else parse_value(value, self.kind, "")
        except InvalidInputError:
            return OTHER
        return text if self.allowed.allows(text if self.kind == _TEXT else typed) else OTHER


def _rules(layout: Layout, levels: Sequence[str], schema: DimensionSchema) -> tuple[_Rule, ...]:
    """Bind the allowed values of a schema to the types of the values.

    Raises:
        PartitionSpecError: A rule can be bound neither to the type of its values nor to text.
    """
    functions = {function.name: function for function in layout.descriptor.partition_by}
    rules = []
    for rule, level in zip(schema, levels, strict=True):
        function, kind = functions.get(level), layout.column_types[level]
        if isinstance(function, Dimension):
            kind = function.source_type(layout.descriptor.schema)
        subject = f"dimension {rule.field_name!r}"
        try:
            rules.append(_Rule(rule.allowed.bind(kind, subject), kind))
        except PartitionSpecError:
            if kind == _TEXT:
                raise
            rules.append(_Rule(rule.allowed.bind(_TEXT, subject), _TEXT))
    return tuple(rules)


def _grouped(
    batch: pa.RecordBatch, levels: Sequence[str], rules: Sequence[_Rule] | None
) -> Iterator[tuple[tuple[str, ...], pa.Table]]:
    """Yield the rows of each combination of values."""
    columns = [batch.column(name).to_pylist() for name in levels]
    positions: dict[tuple[Scalar, ...], list[int]] = {}
    for position, values in enumerate(zip(*columns, strict=True)):
        positions.setdefault(values, []).append(position)
    lines = batch.select([UUID, DOCUMENT])
    for values, rows in positions.items():
        texts = map(_text, values) if rules is None else map(_Rule.text, rules, values)
        yield tuple(texts), pa.Table.from_batches([lines.take(pa.array(rows))])


def _lines_of(rows: pa.Table) -> list[str]:
    """Return the lines of submissions, without line breaks."""
    columns = [rows.column(name).to_pylist() for name in (UUID, DOCUMENT)]
    return [f"{name}\t{document}" for name, document in zip(*columns, strict=True)]


def _text(value: Scalar) -> str:
    if value is None:
        return UNKNOWN
    # Telemetry trees write dates as digits only.
    return format_value(value).replace("-", "") if _is_date(value) else format_value(value)


def _is_date(value: Scalar) -> bool:
    import datetime as dt

    return isinstance(value, dt.date) and not isinstance(value, dt.datetime)


def _safe(text: str) -> str:
    """Return a text as a safe directory or part of a file name."""
    safe = _UNSAFE.sub("_", text) or "_"
    return f"_{safe[1:]}" if safe.startswith(".") else safe


def _fitting(part: str, most: int = MAX_COMPONENT_BYTES) -> str:
    """Return a part of a path unchanged, if it is short enough.

    Raises:
        InvalidInputError: The part is too long.
    """
    if len(part) > most:
        raise InvalidInputError(
            f"A dimension value of {len(part)} bytes is too long for a name: {part[:40]!r}….",
            hint="Give a dimension schema whose allowed values send it to OTHER.",
        )
    return part


@dataclass(slots=True)
class _Growing:
    """A file that is being written."""

    writer: SubmissionsWriter
    line_bytes: int = 0


@dataclass(slots=True)
class _TreeWriter:
    """Writes the files of a tree, and sums up the contents of each directory.

    Attributes:
        target: The store for the files.
        options: Form and compression of the tree.
        export_id: Id of the export: names are the same if a task is repeated.
        wanted: Directories to write; None for all.
        row_count: Number of lines written so far.
        files: Sizes in bytes by path.
        values: Dimension values of each directory.
    """

    target: Store
    options: TelemetryOptions
    export_id: str
    wanted: Collection[str] | None = None
    row_count: int = 0
    files: dict[str, int] = field(default_factory=dict)
    values: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    _open: OrderedDict[str, _Growing] = field(default_factory=OrderedDict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _digests: dict[str, LineDigest] = field(default_factory=dict)
    _files: dict[str, dict[str, int]] = field(default_factory=dict)

    def write(self, values: tuple[str, ...], rows: pa.Table) -> None:
        prefix = self._prefix(values)
        digest = self._digests.setdefault(prefix, LineDigest())
        for line in _lines_of(rows):
            digest.add(line)
        if self.wanted is not None and prefix not in self.wanted:
            return
        self.values.setdefault(prefix, set()).add(values)
        for part, line_bytes in self._cut(prefix, rows):
            growing = self._open.setdefault(
                prefix, _Growing(SubmissionsWriter(_LINES, self.options.compression))
            )
            self._open.move_to_end(prefix)
            growing.writer.write(part)
            growing.line_bytes += line_bytes
            self.row_count += part.num_rows
            if growing.line_bytes >= self.options.max_bytes:
                self._close(prefix)
        if len(self._open) > _OPEN_FILES:
            self._close(next(iter(self._open)))

    def _cut(self, prefix: str, rows: pa.Table) -> Iterator[tuple[pa.Table, int]]:
        """Yield rows up to the end of a file, and then file by file."""
        growing = self._open.get(prefix)
        held = 0 if growing is None else growing.line_bytes
        start = line_bytes = 0
        for position, line in enumerate(_lines_of(rows), 1):
            line_bytes += len(line.encode()) + 1
            if held + line_bytes >= self.options.max_bytes:
                yield rows.slice(start, position - start), line_bytes
                start, line_bytes, held = position, 0, 0
        if start < rows.num_rows:
            yield rows.slice(start), line_bytes

    def _prefix(self, values: tuple[str, ...]) -> str:
        """Return the directory of some values, or the prefix of their file names."""
        parts = list(map(_safe, values))
        named = self.options.named
        if not named:
            return "/".join(map(_fitting, parts))
        # Names are parsed from the end, so only the first part may hold dots.
        first, *others = parts[-named:]
        name = ".".join((first, *(part.replace(".", "_") for part in others)))
        return "/".join((*map(_fitting, parts[:-named]), _fitting(name, _MAX_BEGINNING)))

    def _close(self, prefix: str) -> None:
        written = self._open.pop(prefix).writer.close()
        path = self._path(prefix)
        self.target.put(path, written.content.getvalue())
        size_bytes = written.content.size_bytes
        self.files[path] = self._files.setdefault(prefix, {})[path] = size_bytes

    def _path(self, prefix: str) -> str:
        suffix = _SUFFIXES.get(self.options.compression, self.options.compression)
        end = f".{suffix}" if suffix else ""
        number = self._numbers[prefix] = self._numbers.get(prefix, 0) + 1
        if not self.options.named:
            return f"{prefix}/{number:03d}{end}"
        log = f"{prefix}.v{self.options.version}.log"
        name = uuid.uuid5(uuid.NAMESPACE_URL, f"{self.export_id}/{number}/{prefix}")
        return f"{log}.{name.hex}{end}"

    def finish(self) -> _TreePart:
        """Write what is left, and return all that was written."""
        while self._open:
            self._close(next(iter(self._open)))
        return _TreePart(
            row_count=self.row_count,
            files=self.files,
            values=self.values,
            contents={
                prefix: digest.contents(self._files.get(prefix))
                for prefix, digest in self._digests.items()
            },
        )

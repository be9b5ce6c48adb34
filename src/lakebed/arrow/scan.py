"""The local reader: planned files as record batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.formats.file_format import FileReader, find_reader
from lakebed.arrow.fragments import dataset_of, grouped, types_in
from lakebed.arrow.intact import open_intact, translating, with_recorded
from lakebed.arrow.older import OlderFiles
from lakebed.arrow.sieve import RowFilter, split_key_lists
from lakebed.arrow.utf8 import check_texts, has_text
from lakebed.common.given import given_names
from lakebed.errors import (
    CorruptMetadataError,
    DamagedFileError,
    SchemaMismatchError,
)
from lakebed.model.arrow_types import commented, type_to_arrow
from lakebed.model.keys import is_own_name
from lakebed.model.layout import Layout
from lakebed.model.predicate import (
    TRUE,
    NullCheck,
    Predicate,
    leaves,
    map_leaves,
    roots_of,
    without_formulas,
)
from lakebed.model.schema import Kind, Primitive, Schema, Type
from lakebed.plan.expression import for_row_groups, has_truthful_bounds, to_arrow_expression
from lakebed.plan.plan import DataFile, Scan
from lakebed.store.base import Store

if TYPE_CHECKING:
    import pyarrow.dataset as ds


STREAM_BYTES = 256 * 2**20  # that are read ahead of a consumer that takes batch after batch
_FOOTERS_AT_ONCE = 64
_INSTANT = Primitive(Kind.TIMESTAMP)


def output_schema(layout: Layout, columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of a read: the entity's fields, or the requested columns, in order.

    Args:
        layout: Layout of the dataset.
        columns: Fields or partition fields, `batch_id` among them, at least one and each once;
            None for all fields.

    Raises:
        SchemaMismatchError: A column is unknown, one is named twice, or there is none.
        InvalidInputError: The columns are not names.
    """
    types = layout.column_types
    names: Sequence[str] = layout.descriptor.schema.names
    if columns is not None:
        names = given_names("columns", columns)
        _check_columns(names)
    for name in names:
        if name not in types:
            layout.descriptor.schema.get(name)  # raises an error that names the nearest field
    return pa.schema(map(commented, layout.fields_of(names)))


def _check_columns(names: tuple[str, ...]) -> None:
    """Reject column lists that not all readers support."""
    if not names:
        raise SchemaMismatchError(
            "The argument columns names no column.",
            hint="Name at least one, or leave it out for all fields; `count` counts rows.",
        )
    for name, count in Counter(names).items():
        if count > 1:
            raise SchemaMismatchError(
                f"The argument columns names {name!r} {count} times.",
                hint="Name each column once.",
            )


def scan(
    store: Store,
    plan: Scan,
    columns: Sequence[str] | None = None,
    *,
    limit: int | None = None,
    is_frugal: bool = False,
    ahead_bytes: int | None = None,
) -> pa.RecordBatchReader:
    """Read the rows of a plan.

    Skips row groups that cannot match, and columns that were not requested.

    Args:
        store: Store that holds the files.
        plan: Scan whose rows are read.
        columns: See `output_schema`.
        limit: Maximum number of rows, from as few files as possible; None for all.
        is_frugal: True reads a row group of Parquet only when it is needed, for a reader that may
            stop or pause. Otherwise Arrow reads ahead, which is faster.
        ahead_bytes: Uncompressed bytes of row groups of Parquet that may be read ahead of the
            consumer; None for Arrow's own limit, which is 1 GiB in memory.

    Returns:
        Batches of the output schema, in the order of the plan, except that files without a filter
        come first, and that files which are read in the same way are together. Close it, or read it
        to its end.

    Pages with checksums are verified. Files whose content is recorded in the plan are verified as a
    whole before any of it is used; so are all files of formats other than Parquet, as far as it was
    recorded.

    Raises:
        SchemaMismatchError: As of `output_schema`.
        DamagedFileError: A planned file is damaged; while reading.
        CorruptMetadataError: A planned file is missing; while reading.

    Cost:
        Parquet: the footers and the needed column chunks of the planned files. Other formats:
        the planned files, and the file table. Memory: a few row groups; for a file that is verified
        as a whole, the file. If a file turns out to be damaged, the files of its group are read
        again up to it, to name it.
    """
    schema = output_schema(plan.layout, columns)
    batches = (
        _batches(store, plan, schema, is_frugal, ahead_bytes)
        if limit is None
        else _first(store, plan, schema, limit, is_frugal, ahead_bytes)
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def count(store: Store, plan: Scan) -> int:
    """Count the rows of a plan, from footers alone where no filter applies.

    Cost:
        Parquet: the footers of the planned files, and the columns of the filter where one
        applies. Other formats: the planned files.
    """
    row_count, name = 0, plan.layout.name
    with translating(name):
        for part in _parts(store, plan, ()):
            with translating(name, part.find_damaged):
                row_count += part.count()
    return row_count


def _batches(
    store: Store,
    plan: Scan,
    schema: pa.Schema,
    is_frugal: bool,  # noqa: FBT001 - passed on
    ahead_bytes: int | None,
) -> Generator[pa.RecordBatch, None, None]:
    name = plan.layout.name
    with translating(name):
        for part in _parts(store, plan, schema.names, is_frugal=is_frugal, ahead_bytes=ahead_bytes):
            with translating(name, part.find_damaged):
                for batch in part.batches():
                    if batch.num_rows:
                        yield batch.cast(schema) if batch.schema != schema else batch


def _first(
    store: Store,
    plan: Scan,
    schema: pa.Schema,
    limit: int,
    is_frugal: bool,  # noqa: FBT001 - passed on
    ahead_bytes: int | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the first rows; double the number of files while they are not enough."""
    waiting = sorted(plan.files, key=lambda file: file.is_filtered)
    remaining, at_once = limit, 1
    while remaining > 0 and waiting:
        count = _enough(waiting, remaining) or at_once
        part, waiting = replace(plan, files=tuple(waiting[:count])), waiting[count:]
        at_once *= 2
        with closing(_batches(store, part, schema, is_frugal, ahead_bytes)) as batches:
            for batch in batches:
                yield batch.slice(0, remaining)
                remaining -= batch.num_rows
                if remaining <= 0:
                    return


def _enough(files: Sequence[DataFile], row_count: int) -> int:
    """Return the number of files that surely have `row_count` rows; 0 if that is unknown."""
    known = 0
    for number, file in enumerate(files, 1):
        if file.is_filtered or file.row_count is None:
            return 0
        known += file.row_count
        if known >= row_count:
            return number
    return 0


class _Filtered(ABC):
    """Part of a scan: files to read, and a filter for their rows.

    Attributes:
        names: Columns to return.
        rows: Filter for the rows that were read; None if all of them belong to the view.
        rows_need: Columns that `rows` needs.
    """

    __slots__ = ()

    names: tuple[str, ...]
    rows: RowFilter | None
    rows_need: tuple[str, ...]

    @abstractmethod
    def _read(self, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the unfiltered rows."""

    @abstractmethod
    def find_damaged(self) -> str:
        """Return the key of the file that cannot be read; empty if no single file fails."""

    @property
    def _all_names(self) -> tuple[str, ...]:
        """All columns to read."""
        return tuple(dict.fromkeys((*self.names, *self.rows_need)))

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self.rows is None:
            yield from self._read(self.names)
            return
        for batch in self._read(self._all_names):
            yield self.rows.filter(batch).select(self.names)

    def count(self) -> int:
        batches = self._read(self.rows_need)
        if self.rows is None:
            return sum(batch.num_rows for batch in batches)
        return sum(self.rows.filter(batch).num_rows for batch in batches)


@dataclass(frozen=True, slots=True)
class _Part(_Filtered):
    """Some files of a plan, and their filters.

    Attributes:
        dataset: Files as Arrow's dataset.
        older: Conversion of the files to the current schema.
        names: Columns to return.
        row_groups: Filter by which Arrow skips row groups, and filters their rows.
        rows: Filter for the rows that `row_groups` left; None if that filter is exact.
        rows_need: Columns that `rows` needs.
        is_countable: True if Arrow may count by the bounds of row groups.
        is_single: True if only one column of the files is read. Then `row_groups` filters no rows,
            so that a missing row can be detected; see `_check_count`.
        is_frugal: True if row groups are read one after the other.
        ahead_bytes: Uncompressed bytes that may be read ahead; None for Arrow's limit.
        is_foreign: True if another tool wrote a file: then texts are checked, as a write does.
    """

    dataset: ds.Dataset
    older: OlderFiles
    names: tuple[str, ...]
    row_groups: pc.Expression | None = None
    rows: RowFilter | None = None
    rows_need: tuple[str, ...] = ()
    is_countable: bool = True
    is_single: bool = False
    is_frugal: bool = False
    ahead_bytes: int | None = None
    is_foreign: bool = False

    def count(self) -> int:
        if self.is_countable:
            fragments = list(self.dataset.get_fragments())
            rows: int = self._scanner(fragments, ()).count_rows()
            self._check_columns(fragments, self.older.held(self.rows_need))
            return rows
        return _Filtered.count(self)

    def _read(self, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        held = self.older.held(names)
        for fragments in self._steps():
            try:
                for batch in self._scan(fragments, held):
                    if self.is_foreign:
                        _check_values_of(batch)
                    yield self.older.complete(batch, names)
            except (SchemaMismatchError, pa.ArrowInvalid):
                if self.is_foreign:
                    self._check_values(fragments, [*held, *self.older.held(self.rows_need)])
                raise

    def _check_values(
        self, fragments: list[ds.ParquetFileFragment], columns: Sequence[str]
    ) -> None:
        """Check that texts are UTF-8, on which readers of other libraries crash, and decimals fit.

        Raises:
            SchemaMismatchError: One does not; the message names the file.
        """
        for fragment in fragments:
            scanner = _with_fragments(self.dataset, [fragment]).scanner(
                columns=list(dict.fromkeys(columns))
            )
            try:
                for batch in scanner.to_batches():
                    _check_values_of(batch)
            except SchemaMismatchError as exc:
                exc.message = f"File {fragment.path!r} of another tool: {exc.message}"
                exc.hint = (
                    "Write its rows again with a tool that corrects them, texts with "
                    "make_valid_utf8 in Spark, and overwrite their partition. Reads without this "
                    "column work."
                )
                raise

    def _steps(self) -> Iterator[list[ds.ParquetFileFragment]]:
        """Yield the fragments to scan at once."""
        fragments = list(self.dataset.get_fragments())
        if self.is_frugal:
            for fragment in fragments:
                yield from ([row_group] for row_group in self._row_groups(fragment))
        elif self.ahead_bytes is not None:
            for start in range(0, len(fragments), _FOOTERS_AT_ONCE):
                yield from self._portions(fragments[start : start + _FOOTERS_AT_ONCE])
        else:
            yield fragments

    def _row_groups(self, fragment: ds.ParquetFileFragment) -> list[ds.ParquetFileFragment]:
        """Return the row groups of a file that can match."""
        groups: list[ds.ParquetFileFragment] = fragment.split_by_row_group(
            self.row_groups, self.dataset.schema
        )
        return groups

    def _portions(
        self, fragments: list[ds.ParquetFileFragment]
    ) -> Iterator[list[ds.ParquetFileFragment]]:
        """Yield row groups of up to `ahead_bytes`, at least one.

        Arrow has no option for this: it reads all that it is given, until 1 GiB waits.
        """
        _read_footers(self.dataset, fragments)
        most = self.ahead_bytes or 0
        portion: list[ds.ParquetFileFragment] = []
        room = most
        for fragment in fragments:
            numbers: list[int] = []
            for row_group in self._row_groups(fragment):
                (group,) = row_group.row_groups
                if (portion or numbers) and group.total_byte_size > room:
                    yield [*portion, *_part(fragment, numbers)]
                    portion, numbers, room = [], [], most
                numbers.append(group.id)
                room -= group.total_byte_size
            portion += _part(fragment, numbers)
        if portion:
            yield portion

    def _scanner(self, fragments: list[ds.ParquetFileFragment], names: Sequence[str]) -> ds.Scanner:
        filters = None if self.is_single else self.row_groups
        return _with_fragments(self.dataset, fragments).scanner(columns=list(names), filter=filters)

    def _scan(
        self, fragments: list[ds.ParquetFileFragment], names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        if self.is_single:
            fragments = self._pruned(fragments)
        row_count = 0
        for batch in self._scanner(fragments, names).to_batches():
            row_count += batch.num_rows
            yield batch
        if self.is_single or self.row_groups is None:
            _check_count(fragments, row_count)
        self._check_columns(fragments, names)

    def _check_columns(self, fragments: list[ds.ParquetFileFragment], held: Sequence[str]) -> None:
        """Check that files of Lakebed hold the columns; Arrow reads missing ones as null.

        Files of other tools may leave columns out.

        Raises:
            OSError: A file lacks a column.
        """
        stored = self.older.columns.intersection(held)
        for fragment in fragments:
            lost = stored.difference(fragment.physical_schema.names)
            if lost and is_own_name(fragment.path.rpartition(".")[0]):
                msg = f"it has no column {min(lost)!r}, with which it was written"
                raise OSError(msg)

    def _pruned(self, fragments: list[ds.ParquetFileFragment]) -> list[ds.ParquetFileFragment]:
        """Drop row groups that cannot match."""
        _read_footers(self.dataset, fragments)
        return [
            fragment.subset(filter=self.row_groups, schema=self.dataset.schema)
            for fragment in fragments
        ]

    def find_damaged(self) -> str:
        names = self.older.held(self._all_names)
        for fragment in self.dataset.get_fragments():
            try:
                for _ in self._scan([fragment], names):
                    pass
            except (pa.ArrowException, OSError):
                return str(fragment.path)
        return ""


def _check_values_of(batch: pa.RecordBatch) -> None:
    """Check values of another tool that Arrow reads and cannot write.

    Raises:
        SchemaMismatchError: A text is not UTF-8, or a decimal has more digits than its type.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if has_text(column.type):
            check_texts(column, name)
        elif pa.types.is_decimal(column.type):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as exc:
                raise SchemaMismatchError(
                    f"Column {name!r} has a number that is not of type {column.type}: {exc}"
                ) from exc


def _part(fragment: ds.ParquetFileFragment, numbers: list[int]) -> list[ds.ParquetFileFragment]:
    """Return some row groups of a file as one fragment; none if there are none."""
    return [fragment.subset(row_group_ids=numbers)] if numbers else []


def _check_count(fragments: Iterable[ds.ParquetFileFragment], row_count: int) -> None:
    """Check that as many rows were read as the footers record.

    Arrow skips a page whose header has an unknown type. It reports columns of unequal length, but a
    single column is just shorter.

    Raises:
        OSError: The numbers differ.
    """
    expected = sum(group.num_rows for fragment in fragments for group in fragment.row_groups)
    if row_count != expected:
        msg = f"{row_count} rows were read, but the footers record {expected}"
        raise OSError(msg)


@dataclass(frozen=True, slots=True)
class _FilePart(_Filtered):
    """One file of a format that Arrow's scan does not support.

    Attributes:
        reader: Reader of the format.
        store: Store that holds the file.
        dataset: Name of the dataset.
        file: File with its key and partition.
        older: Conversion of the file to the current schema.
        types: Types of all columns that can be read.
        names: Columns to return.
        rows: Filter for the rows; None if all belong to the view.
        rows_need: Columns that `rows` needs.
    """

    reader: FileReader
    store: Store
    dataset: str
    file: DataFile
    older: OlderFiles
    types: Mapping[str, Type]
    names: tuple[str, ...]
    rows: RowFilter | None
    rows_need: tuple[str, ...]

    def count(self) -> int:
        if self.rows is not None:
            return _Filtered.count(self)
        with self._opened() as source:
            return self.reader.count(source)

    def _read(self, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        inside = tuple(name for name in names if name not in self.file.partition)
        older = self.older
        # A batch without columns would lose its row count.
        held = older.held_fields(inside) or older.countable_fields()
        wanted = Schema(fields=held, name=older.schema.name)
        with self._opened() as source:
            for batch in self.reader.batches(source, wanted):
                stored = older.complete(batch, inside) if inside else batch
                columns = [
                    stored.column(name) if name in inside else self._constant(name, batch.num_rows)
                    for name in names
                ]
                yield pa.RecordBatch.from_arrays(columns, list(names))

    @contextmanager
    def _opened(self) -> Iterator[pa.NativeFile]:
        """Open the file; errors of its reader are raised with its name."""
        try:
            with open_intact(self.store, self.dataset, self.file) as source:
                yield source
        except DamagedFileError:
            raise
        except CorruptMetadataError as exc:
            how = f"cannot be read: {exc.message}"
            raise DamagedFileError.of(self.dataset, self.file.key, how) from exc

    def find_damaged(self) -> str:
        return self.file.key

    def _constant(self, name: str, row_count: int) -> pa.Array:
        value = pa.scalar(self.file.partition[name], type_to_arrow(self.types[name]))
        return pa.repeat(value, row_count)


def _parts(
    store: Store,
    plan: Scan,
    names: Sequence[str],
    *,
    is_frugal: bool = False,
    ahead_bytes: int | None = None,
) -> Iterator[_Part | _FilePart]:
    """Yield the files without a filter, then those with one."""
    layout = plan.layout
    reader = find_reader(layout.descriptor.format)
    if reader is not None:
        yield from _file_parts(reader, store, plan, names)
        return
    for group in grouped(store, plan, names):
        residual = group.residual
        dataset = dataset_of(store, layout.name, group.files, types_in(layout, group.older))
        # Arrow counts a part of a file as the whole file, if it need not read it.
        is_whole = all(file.share is None for file in group.files)
        is_foreign = not all(is_own_name(file.label) for file in group.files)
        if residual == TRUE:
            yield _Part(
                dataset,
                group.older,
                tuple(names),
                is_countable=is_whole,
                is_frugal=is_frugal,
                ahead_bytes=ahead_bytes,
                is_foreign=is_foreign,
            )
            continue
        types = layout.predicate_types
        rest, _ = split_key_lists(residual, types)
        plain = without_formulas(rest)
        weaker = for_row_groups(_without(plain, group.older.reading.rebuilt), types)
        needed = dict.fromkeys((*names, *roots_of(residual, types)))
        is_single = len(group.older.columns.intersection(group.older.held(needed))) == 1
        instants = _instants_in(weaker, types) if is_foreign else frozenset()
        for files, unbounded in _by_zones(layout.name, dataset, group.older, instants):
            pushed = _without(weaker, unbounded)
            is_exact = pushed == residual and not is_single
            yield _Part(
                files,
                group.older,
                tuple(names),
                row_groups=to_arrow_expression(*group.older.in_files(pushed, types)),
                rows=None if is_exact else RowFilter.of(residual, types),
                rows_need=roots_of(residual, types),
                is_countable=is_whole and is_exact and has_truthful_bounds(residual, types),
                is_single=is_single,
                is_frugal=is_frugal,
                ahead_bytes=ahead_bytes,
                is_foreign=is_foreign,
            )


def _instants_in(predicate: Predicate, types: Mapping[str, Type]) -> frozenset[str]:
    """Return the fields whose instants, at any depth, a condition compares."""
    return frozenset(
        roots_of(leaf, types)[0]
        for leaf in leaves(predicate)
        if types[leaf.column] == _INSTANT and not isinstance(leaf, NullCheck)
    )


def _by_zones(
    name: str, dataset: ds.FileSystemDataset, older: OlderFiles, instants: frozenset[str]
) -> Iterator[tuple[ds.FileSystemDataset, frozenset[str]]]:
    """Divide files of other tools by the fields whose instants they hold without a zone.

    Arrow reads such times as UTC, but fails to compare an instant with their bounds.

    Args:
        name: Name of the dataset, for errors.
        dataset: The files.
        older: Conversion of the files to the current schema.
        instants: Fields whose bounds are to be compared; none leaves the files together.

    Returns:
        Files, and those of the fields whose bounds cannot be compared.

    Cost:
        The footers, which the fragments keep for the scan.
    """
    if not instants:
        yield dataset, frozenset()
        return
    fragments = list(dataset.get_fragments())

    def find_damaged() -> str:
        for fragment in fragments:
            try:
                fragment.ensure_complete_metadata()
            except (pa.ArrowException, OSError):
                return str(fragment.path)
        return ""

    with translating(name, find_damaged):
        _read_footers(dataset, fragments)
    by_fields: dict[frozenset[str], list[ds.ParquetFileFragment]] = {}
    for fragment in fragments:
        held = fragment.physical_schema
        unbounded = frozenset(
            field
            for field in instants
            for column in held.get_all_field_indices(older.schema.stored_name(field))
            if _lacks_zone(held.field(column).type)
        )
        by_fields.setdefault(unbounded, []).append(fragment)
    for unbounded, alike in by_fields.items():
        yield _with_fragments(dataset, alike), unbounded


def _lacks_zone(kind: pa.DataType) -> bool:
    """Return whether a type is a time without a zone, or a record that holds one."""
    if pa.types.is_struct(kind):
        return any(_lacks_zone(field.type) for field in kind)
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


def _with_fragments(
    whole: ds.FileSystemDataset, fragments: list[ds.ParquetFileFragment]
) -> ds.FileSystemDataset:
    """Return some fragments of a dataset as another one."""
    import pyarrow.dataset as ds  # loaded already, by `dataset_of`

    return ds.FileSystemDataset(fragments, whole.schema, whole.format, whole.filesystem)


def _read_footers(dataset: ds.FileSystemDataset, fragments: list[ds.ParquetFileFragment]) -> None:
    """Read the footers of several files side by side; the fragments keep them."""
    if len(fragments) > 1:
        _with_fragments(dataset, fragments).scanner(columns=[]).count_rows()


def _without(predicate: Predicate, fields: Collection[str]) -> Predicate:
    """Return a weaker predicate, without conditions on some fields."""
    return map_leaves(
        predicate, lambda leaf: TRUE if leaf.column.partition(".")[0] in fields else leaf
    )


def _file_parts(
    reader: FileReader, store: Store, plan: Scan, names: Sequence[str]
) -> Iterator[_FilePart]:
    layout, types = plan.layout, plan.layout.predicate_types
    for group in grouped(store, plan, names):
        is_open = group.residual != TRUE
        for file in with_recorded(store, plan.file_table, group.files):
            yield _FilePart(
                reader,
                store,
                layout.name,
                file,
                older=group.older,
                types=layout.column_types,
                names=tuple(names),
                rows=RowFilter.of(group.residual, types) if is_open else None,
                rows_need=roots_of(group.residual, types),
            )


__all__ = ["DataFile", "count", "output_schema", "scan"]

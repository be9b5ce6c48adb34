"""Levels `name=value` above raw files as columns of their rows, for every format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.conform import Conformer, adding, unknown_field
from lakebed.arrow.reading.census import Census
from lakebed.arrow.reading.chunks import Chunk, FormatReader, Pack, Reject
from lakebed.arrow.reading.files import RawFile
from lakebed.arrow.reading.levels import AS_FOLDERS
from lakebed.arrow.reading.texts import kind_of_text
from lakebed.arrow.reading.unknown import Ignored, Unknown
from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.names import check_field_name
from lakebed.model.partition import PartitionStrategy
from lakebed.model.schema import MISSING, Field, Kind, Primitive, Schema
from lakebed.model.values import parse_value

_INFERRED = (Kind.LONG, Kind.DATE)  # every other level is text


def kind_of_levels(texts: Iterable[str | None]) -> Kind:
    """Return the type of a level in a new dataset: a whole number, a date, or else text.

    >>> str(kind_of_levels(["7", None])), str(kind_of_levels(["7", "07"]))
    ('long', 'string')
    """
    kinds = {kind_of_text(text) for text in texts if text is not None}
    kind = kinds.pop() if len(kinds) == 1 else Kind.STRING
    return kind if kind in _INFERRED else Kind.STRING


def with_level_fields(schema: Schema, files: Sequence[RawFile]) -> Schema:
    """Return the schema of files with a nullable field for each level that it lacks.

    Raises:
        SchemaMismatchError: Some files have a level and others do not.
        InvalidNameError: A level has a name that no field may have.
    """
    first = files[0]
    for file in files:
        if file.levels.keys() != first.levels.keys():
            raise SchemaMismatchError(
                f"{first.location} lies in folders of {_named(first)}, and {file.location} in "
                f"folders of {_named(file)}.",
                hint=f"Give files with the same levels. {AS_FOLDERS}",
            )
    fields = [
        Field(
            name=check_field_name(name),
            type=Primitive(kind_of_levels(file.levels[name] for file in files)),
        )
        for name in first.levels
        if name not in schema
    ]
    return replace(schema, fields=(*schema.fields, *fields))


def _named(file: RawFile) -> str:
    return ", ".join(f"{name}=…" for name in file.levels) or "no level"


class LevelReader(FormatReader):
    """Adds the levels above a file to its rows.

    A file may have the column of a level too: its values must then be those of the level, or null.
    """

    def __init__(
        self,
        open_reader: Callable[[DatasetDescriptor], FormatReader],
        descriptor: DatasetDescriptor,
        unknown: Unknown,
        *,
        is_by_position: bool,
        as_written: Callable[[RawFile], RawFile],
        is_plain_text: bool,
    ) -> None:
        """Prepare to read files, with and without levels.

        Args:
            open_reader: Opens the reader of the format for a descriptor.
            descriptor: Descriptor of the dataset.
            unknown: Rule for levels that the dataset lacks.
            is_by_position: True if files name no columns, and have one for each other field.
            as_written: Adds the notation to a file.
            is_plain_text: True if the texts of files need no conversion, and can be packed.
        """
        self._as_written = as_written
        self._open_reader = open_reader
        self._descriptor = descriptor
        self._unknown = unknown
        self._is_by_position = is_by_position
        plain = open_reader(descriptor)
        self._readers = {frozenset[str](): plain}
        self.checks_in_chunks = plain.checks_in_chunks
        self.reads_packs = plain.reads_packs and is_plain_text

    def check(self, file: RawFile) -> None:
        """Compare levels, and header or schema of the file, with the dataset."""
        self._columns(file)
        self._reader(file).check(self._as_written(file))

    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        """Yield the content of a file, in order."""
        pieces = self._reader(file).chunks(self._as_written(file))
        if not file.levels:
            yield from pieces
            return
        columns = self._columns(file)
        for piece in pieces:
            yield piece if isinstance(piece, Reject) else _LevelChunk(piece, columns)

    def pack_files(self, files: Sequence[RawFile], texts: Sequence[bytes]) -> Pack | None:
        """Return the rows of small files, with the values of their levels; see `FormatReader.pack`."""
        first = files[0]
        if any(file.levels.keys() != first.levels.keys() for file in files):
            return None
        pack = self._reader(first).pack(texts)
        if pack is None or not first.levels:
            return pack
        try:
            columns = [self._columns(file) for file in files]
        except SchemaMismatchError:
            return None
        if any(one.left_out for one in columns):
            return None
        added = {name: pack.rows.column(name) for name in pack.rows.schema.names}
        for name in columns[0].values:
            if name in added and added[name].null_count < len(added[name]):
                return None  # the values are compared file by file
            parts = [
                pa.repeat(one.values[name], count)
                for one, count in zip(columns, pack.row_counts, strict=True)
            ]
            added[name] = pa.concat_arrays(parts)
        # Fields of submissions are compared with the documents again: levels are not in these.
        return Pack(rows=pa.RecordBatch.from_pydict(added), row_counts=pack.row_counts)

    def census(self, file: RawFile) -> Census:
        """Return the contents of fields and levels that the dataset lacks."""
        census = self._reader(file).census(self._as_written(file))
        for name, text in file.levels.items():
            if name not in self._descriptor.schema and text is not None:
                for noted in ("cell", str(kind_of_levels([text]))):
                    census.note((name,), noted)
        return census

    def count(self, file: RawFile) -> int | None:
        """Return the rows of a file whose header or schema does not fit."""
        return self._reader(file).count(self._as_written(file))

    def _reader(self, file: RawFile) -> FormatReader:
        """Return the reader of a file, for which the fields of its levels are optional."""
        names = frozenset(name for name in file.levels if name in self._descriptor.schema)
        if names not in self._readers:
            self._readers[names] = self._open_reader(
                _without(self._descriptor, names, is_by_position=self._is_by_position)
            )
        return self._readers[names]

    def _columns(self, file: RawFile) -> _Columns:
        """Return the columns that the levels of a file add to its rows.

        Raises:
            SchemaMismatchError: The dataset lacks a level, or its text is not a value of the field.
        """
        schema = self._descriptor.schema
        values: dict[str, pa.Scalar] = {}
        left_out = set()
        for name, text in file.levels.items():
            if name in schema:
                values[name] = _value_of(text, schema, name)
            elif self._unknown == "reject" or (self._unknown == "keep" and text is not None):
                hint = f"{adding(name, kind_of_levels([text]))} {AS_FOLDERS}"
                raise unknown_field(
                    name, f"Unknown column {name!r}, from the folder {name}={text or '…'}.", hint
                )
            elif text is not None:
                left_out.add(name)
        return _Columns(values=values, left_out=frozenset(left_out), descriptor=self._descriptor)


def _without(
    descriptor: DatasetDescriptor, names: frozenset[str], *, is_by_position: bool
) -> DatasetDescriptor:
    """Return a descriptor for the rows of files, which may lack the fields of their levels."""
    fields = [
        replace(field, nullable=True, default=MISSING) if field.name in names else field
        for field in descriptor.schema
        if not (is_by_position and field.name in names)
    ]
    functions = (
        function
        for function in descriptor.partition_by
        if not (function.takes_source and function.source.split(".")[0] in names)
    )
    return DatasetDescriptor(
        schema=Schema(fields=tuple(fields), name=descriptor.schema.name),
        partition_by=PartitionStrategy(tuple(functions)),
        format=descriptor.format,
    )


def _value_of(text: str | None, schema: Schema, name: str) -> pa.Scalar:
    field = schema.get(name)
    if text is None and not field.nullable:
        raise SchemaMismatchError(
            f"Column {name!r} is not nullable, and the folder of the file stands for null.",
            hint=f"Make the field nullable, or rename the folder. {AS_FOLDERS}",
        )
    try:
        value = None if text is None else parse_value(text, field.type, name)
    except InvalidInputError as exc:
        raise SchemaMismatchError(
            f"The folder {name}={text}: {exc.message}", hint=f"{exc.hint} {AS_FOLDERS}".strip()
        ) from exc
    return pa.scalar(value, type_to_arrow(field.type))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """The columns that levels add to rows.

    Attributes:
        values: Value of each level that is a field.
        left_out: Levels that the dataset lacks.
        descriptor: Descriptor of the dataset.
    """

    values: Mapping[str, pa.Scalar]
    left_out: frozenset[str]
    descriptor: DatasetDescriptor

    def add_to(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the values of the levels.

        Raises:
            SchemaMismatchError: A row has another value.
        """
        columns = {name: rows.column(name) for name in rows.schema.names}
        for name, value in self.values.items():
            column = pa.repeat(value, rows.num_rows)
            if name in columns:
                self._check_same(columns[name], column, name)
            columns[name] = column
        return pa.RecordBatch.from_pydict(columns)

    def _check_same(self, given: pa.Array, column: pa.Array, name: str) -> None:
        field = self.descriptor.schema.get(name)
        alone = Schema(fields=(replace(field, nullable=True, default=MISSING),))
        rows = pa.RecordBatch.from_arrays([given], names=[name])
        typed = Conformer(rows.schema, DatasetDescriptor(schema=alone)).conform(rows).column(0)
        is_other = pc.fill_null(pc.not_equal(typed, column), fill_value=False)
        if not self.values[name].is_valid:
            is_other = typed.is_valid()
        row = pc.index(is_other, value=True).as_py()
        if row >= 0:
            error = SchemaMismatchError(
                f"Column {name!r} is {shown(typed[row].as_py())} in the file, but its folder stands for "
                f"{shown(self.values[name].as_py())}.",
                hint=f"Correct the file, or move it. {AS_FOLDERS}",
            )
            error.row = row
            raise error


class _LevelChunk(Chunk):
    """Rows of a file with levels."""

    def __init__(self, chunk: Chunk, columns: _Columns) -> None:
        self._chunk = chunk
        self._columns = columns

    def __len__(self) -> int:
        return len(self._chunk)

    def batch(self) -> pa.RecordBatch:
        rows = self._columns.add_to(self._chunk.batch())
        self.ignored = self._chunk.ignored
        if self._columns.left_out:
            self.ignored = Ignored(rows.num_rows, self.ignored.fields | self._columns.left_out)
        return rows

    def part(self, start: int, end: int) -> Chunk:
        return _LevelChunk(self._chunk.part(start, end), self._columns)

    def reject(self, cause: InvalidInputError) -> Reject:
        return self._chunk.reject(cause)

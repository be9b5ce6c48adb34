"""JSON lines and submissions as data for a dataset."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.document_columns import (
    ColumnReader,
    ReadColumns,
    column_reader,
    read_by_layouts,
)
from lakebed.arrow.documents import (
    at_row,
    decode_object,
    entity_from,
    entity_of,
    is_cut_object,
)
from lakebed.arrow.entities import entities_to_batch
from lakebed.arrow.formats.submissions import (
    is_cut_line,
    lines_to_batch,
    split_line,
    with_document_fields,
)
from lakebed.arrow.reading.blocks import (
    BlockRecords,
    BlockSource,
    LineParser,
    LineRecords,
    NumberedRecords,
    ParsedRows,
    count_newlines,
    settle,
)
from lakebed.arrow.reading.census import Census
from lakebed.arrow.reading.chunks import (
    Chunk,
    FormatReader,
    Pack,
    Reject,
    grouped,
    is_blank,
    line_groups,
    text_lines,
    unread,
)
from lakebed.arrow.reading.dialect import JsonOptions
from lakebed.arrow.reading.files import STDIN, Line, RawFile
from lakebed.arrow.reading.json_records import json_records, renamed, with_texts
from lakebed.arrow.reading.unknown import Ignored, Unknown, known_part
from lakebed.errors import InvalidInputError
from lakebed.model.arrow_types import field_to_arrow
from lakebed.model.descriptor import DOCUMENT, UUID, DatasetDescriptor
from lakebed.model.schema import Field, Kind, Primitive, Schema, Struct

ELEMENTS_PER_BLOCK = 4_096  # of an array, in a block
_MOST_OTHERS = 256  # further members that are read with the fields
_MOST_LOOKED_AT = 1_000  # lines of a block in which they are looked for


class JsonReader(FormatReader):
    """JSON: one object a line, or in the form of the options."""

    checks_in_chunks = True

    def __init__(
        self,
        descriptor: DatasetDescriptor,
        unknown: Unknown = "reject",
        options: JsonOptions | None = None,
    ) -> None:
        self._descriptor = descriptor
        self._options = options or JsonOptions()
        self.reads_packs = self._options.is_plain
        self._unknown = unknown
        self._schema = pa.schema(map(field_to_arrow, descriptor.schema.fields))

    def pack(self, texts: Sequence[bytes]) -> Pack | None:
        """Return the rows of small files; see `FormatReader`."""
        columns = column_reader(self._descriptor.schema.fields, is_closed=True)
        data, line_counts = _lines_of(texts)
        read = columns.read_lines(data)
        if read.in_question:
            return None
        rows = pa.RecordBatch.from_arrays(read.columns, schema=self._schema)
        return Pack(rows=rows, row_counts=line_counts)

    def check(self, file: RawFile) -> None:
        """Compare the file with the dataset; see `FormatReader`."""
        _look_into(file)

    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        """Yield the content of a file, in order."""
        options = self._options
        if options.names or options.texts:
            yield from grouped(json_records(file, options), self.parse, is_cut_object)
            return
        fields, others = self._descriptor.schema.fields, frozenset[str]()
        is_by_line = options.records == "lines"
        blank = is_blank if is_by_line else lambda _: False  # between lines alone
        parser = LineParser(parse=self.parse, is_cut=is_cut_object, is_blank=blank)
        columns = column_reader(fields, is_closed=True)
        blocks = _blocks_of(file) if is_by_line else _element_blocks(file, options)
        for content, records, after in blocks:
            if isinstance(content, bytes):
                read = columns.read_lines(content)
            else:
                read = columns.read(content)
            if self._unknown == "keep" and others:  # only the reader by lines looks into the values
                read = read.without(np.logical_or.reduce(list(read.others.values())))
            parsed = ParsedRows(
                rows=pa.RecordBatch.from_arrays(read.columns, schema=self._schema),
                records=read.numbers,
                in_question=read.in_question,
                left_out={name: mask for name, mask in read.others.items() if mask.any()},
            )
            yield from settle(parsed, records, parser)
            if after is not None:
                yield unread(after)
            if self._unknown != "reject" and read.in_question and len(others) < _MOST_OTHERS:
                numbers = read.in_question[:_MOST_LOOKED_AT]
                unknown = self._unknown_names(records.line(n).data for n in numbers) - others
                if unknown:
                    others |= frozenset(sorted(unknown)[: _MOST_OTHERS - len(others)])
                    columns = ColumnReader(fields, is_closed=True, others=sorted(others))

    def _unknown_names(self, lines: Iterable[bytes]) -> set[str]:
        """Return the names of members that the dataset lacks: later lines with them are counted."""
        names: set[str] = set()
        for line in lines:
            with contextlib.suppress(InvalidInputError):
                names.update(decode_object(line))
        return names - set(self._descriptor.schema.names)

    def census(self, file: RawFile) -> Census:
        """Return the contents of fields that the dataset lacks."""
        census = Census()
        census.note_documents(
            json_documents(file, self._options), self._descriptor.schema.fields, ()
        )
        return census

    def parse(self, lines: Sequence[bytes]) -> tuple[pa.RecordBatch, Ignored]:
        """Return the rows of lines, and the fields that were left out; see `Parse`."""
        fields = self._descriptor.schema.fields
        entities, ignored = [], Ignored()
        for position, line in enumerate(lines):
            with at_row(position):
                entity = self._entity(line)
            if self._unknown != "reject":
                entity, left_out = known_part(entity, fields, self._unknown)
                ignored += left_out
            entities.append(entity)
        return entities_to_batch(entities, self._descriptor), ignored

    def _entity(self, line: bytes) -> dict[str, Any]:
        fields, options = self._descriptor.schema.fields, self._options
        if not (options.names or options.texts):
            return entity_of(line, fields)
        return entity_from(adapted(decode_object(line), options, self._record), fields)

    @functools.cached_property
    def _record(self) -> Struct:
        return Struct(tuple(self._descriptor.schema.fields))


_DocumentBlock = tuple[bytes | list[bytes], NumberedRecords, Line | None]
"""Some lines or objects, their records, and a line with a problem that follows."""


def _blocks_of(file: RawFile) -> Iterator[_DocumentBlock]:
    """Yield the lines of a file in blocks."""
    source = BlockSource(file)
    while (block := source.next()) is not None:
        yield block.data, BlockRecords(block), block.after


def _element_blocks(file: RawFile, options: JsonOptions) -> Iterator[_DocumentBlock]:
    """Yield the objects of a file that are not lines, in blocks."""
    for group in line_groups(json_records(file, options), ELEMENTS_PER_BLOCK):
        if group[0].problem:
            yield [], LineRecords([]), group[0]
        else:
            yield [line.data for line in group], LineRecords(group), None


class SubmissionLinesReader(FormatReader):
    """Lines of uuid, tab and JSON; the other fields of the schema are read from the document.

    A document may have other fields, which stay in `document`.
    A dataset of another format may leave `uuid` or `document` out of its schema.
    """

    checks_in_chunks = True
    reads_packs = True

    def __init__(self, descriptor: DatasetDescriptor) -> None:
        own = tuple(
            Field(name=name, type=Primitive(Kind.STRING), nullable=False)
            for name in (UUID, DOCUMENT)
            if name not in descriptor.schema
        )
        self._names = list(descriptor.schema.names)
        self._fields = DatasetDescriptor(
            schema=Schema(fields=(*own, *descriptor.schema.fields)),
            partition_by=descriptor.partition_by,  # dimensions take values of any type
            format="submissions",
        )

    def check(self, file: RawFile) -> None:
        """Compare the file with the dataset; see `FormatReader`."""
        _look_into(file)

    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        """Yield the content of a file, in order."""
        parser = LineParser(parse=self.parse, is_cut=is_cut_line, is_blank=is_blank)
        source = BlockSource(file)
        while (block := source.next()) is not None:
            parsed = self._read(block.data)
            yield from settle(parsed, BlockRecords(block), parser)
            if block.after is not None:
                yield unread(block.after)

    def pack(self, texts: Sequence[bytes]) -> Pack | None:
        """Return the rows of small files; see `FormatReader`."""
        data, line_counts = _lines_of(texts)
        parsed = self._read(data)
        if parsed.in_question:
            return None
        return Pack(rows=parsed.rows, row_counts=line_counts, is_derived=parsed.is_derived)

    def _read(self, data: bytes) -> ParsedRows:
        fields = self._fields.document_fields
        layouts = column_reader(fields, is_closed=False).layout_reader(has_keys=True)
        read = read_by_layouts(data, layouts, self._read_lines)
        names = [*(member.name for member in fields), UUID, DOCUMENT]
        columns = dict(zip(names, read.columns, strict=True))
        return ParsedRows(
            rows=pa.RecordBatch.from_pydict({name: columns[name] for name in self._names}),
            records=read.numbers,
            in_question=read.in_question,
            is_derived=True,
        )

    def _read_lines(self, lines: Sequence[bytes]) -> ReadColumns:
        """Return the columns of the documents, then the uuids and the documents."""
        pairs = [line.removesuffix(b"\r").partition(b"\t") for line in lines]
        documents = [document for _, _, document in pairs]
        read = column_reader(self._fields.document_fields, is_closed=False).read(documents)
        try:
            uuids, texts = (pa.array([pair[i] for pair in pairs], pa.binary()) for i in (0, 2))
            uuids, texts = uuids.cast(pa.string()), texts.cast(pa.string())
        except pa.ArrowInvalid:  # not UTF-8
            read = read.without(np.ones(len(pairs) - len(read.in_question), bool))
            uuids = texts = pa.array([""] * len(pairs), pa.string())
        # Of what no uuid holds, the split into lines and pairs leaves a carriage return, or nothing.
        is_broken = pc.or_(pc.match_substring(uuids, "\r"), pc.equal(pc.binary_length(uuids), 0))
        if read.numbers is not None:
            numbers = pa.array(read.numbers)
            uuids, texts, is_broken = (column.take(numbers) for column in (uuids, texts, is_broken))
        if pc.any(pc.match_substring(texts, "\r")).as_py():
            texts = pc.replace_substring(texts, "\r", " ")
        whole = replace(read, columns=[*read.columns, uuids, texts])
        return whole.without(is_broken.to_numpy(zero_copy_only=False))

    def census(self, file: RawFile) -> Census:
        """Return the contents of document fields that the dataset lacks."""
        census = Census()
        documents = _submitted_documents(file)
        census.note_documents(documents, self._fields.document_fields, (UUID, DOCUMENT))
        return census

    def parse(self, lines: Sequence[bytes]) -> tuple[pa.RecordBatch, Ignored]:
        """Return the rows of lines; see `Parse`."""
        batch = lines_to_batch([line.removesuffix(b"\r") for line in lines])
        return with_document_fields(batch, self._fields).select(self._names), Ignored()


def _lines_of(texts: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """Return the lines of some files, each with its newline, and how many each file has."""
    parts: list[bytes] = []
    counts = []
    for text in texts:
        is_open = bool(text) and not text.endswith(b"\n")
        parts += (text, b"\n") if is_open else (text,)
        counts.append(count_newlines(text) + is_open)
    return b"".join(parts), counts


def json_documents(file: RawFile, options: JsonOptions) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file, as the options take them; what is none is passed over."""
    for line in json_records(file, options):
        if not line.problem:
            with contextlib.suppress(InvalidInputError):
                yield adapted(decode_object(line.data), options)


def adapted(
    document: dict[str, Any], options: JsonOptions, read_as: Struct | None = None
) -> dict[str, Any]:
    """Return an object with the names and texts of the options; see `renamed`."""
    if options.names:
        document = renamed(document, options.names, read_as)
    return with_texts(document, options.texts)


def _submitted_documents(file: RawFile) -> Iterator[dict[str, Any]]:
    """Yield the objects of the lines that hold one."""
    for line in text_lines(file):
        if line.problem:
            continue
        with contextlib.suppress(InvalidInputError):
            yield decode_object(split_line(line.data)[1])


def _look_into(file: RawFile) -> None:
    """Check that the file can be opened; its content is checked line by line."""
    if file.location != STDIN:
        with file.open_raw() as raw:
            raw.read(1)

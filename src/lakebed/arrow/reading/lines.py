"""JSON lines and submissions as data for a dataset."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from lakebed.arrow.documents import at_row, decode_object, entity_of, is_cut_object
from lakebed.arrow.entities import entities_to_batch
from lakebed.arrow.formats.submissions import (
    is_cut_line,
    lines_to_batch,
    split_line,
    with_document_fields,
)
from lakebed.arrow.reading.census import Census
from lakebed.arrow.reading.chunks import (
    Chunk,
    FormatReader,
    Reject,
    grouped,
    text_lines,
    without_blanks,
)
from lakebed.arrow.reading.files import STDIN, RawFile
from lakebed.arrow.reading.unknown import Ignored, Unknown, known_part
from lakebed.errors import InvalidInputError
from lakebed.model.descriptor import DOCUMENT, UUID, DatasetDescriptor
from lakebed.model.schema import Field, Kind, Primitive, Schema


class JsonReader(FormatReader):
    """JSON lines: one object a line."""

    def __init__(self, descriptor: DatasetDescriptor, unknown: Unknown = "reject") -> None:
        self._descriptor = descriptor
        self._unknown = unknown

    def check(self, file: RawFile) -> None:
        """Compare the file with the dataset; see `FormatReader`."""
        _look_into(file)

    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        """Yield the content of a file, in order."""
        return grouped(without_blanks(text_lines(file)), self._parse, is_cut_object)

    def census(self, file: RawFile) -> Census:
        """Return the contents of fields that the dataset lacks."""
        census = Census()
        census.note_documents(_documents(file), self._descriptor.schema.fields, ())
        return census

    def _parse(self, lines: Sequence[bytes]) -> tuple[pa.RecordBatch, Ignored]:
        fields = self._descriptor.schema.fields
        entities, ignored = [], Ignored()
        for position, line in enumerate(lines):
            with at_row(position):
                entity = entity_of(line, fields)
            if self._unknown != "reject":
                entity, left_out = known_part(entity, fields, self._unknown)
                ignored += left_out
            entities.append(entity)
        return entities_to_batch(entities, self._descriptor), ignored


class SubmissionLinesReader(FormatReader):
    """Lines of uuid, tab and JSON; the other fields of the schema are read from the document.

    A document may have other fields, which stay in `document`.
    A dataset of another format may leave `uuid` or `document` out of its schema.
    """

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
        self._is_native = descriptor.format == "submissions"

    def check(self, file: RawFile) -> None:
        """Compare the file with the dataset; see `FormatReader`."""
        _look_into(file)

    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        """Yield the content of a file, in order."""
        return grouped(without_blanks(text_lines(file)), self._parse, is_cut_line)

    def census(self, file: RawFile) -> Census:
        """Return the contents of document fields that the dataset lacks."""
        census = Census()
        documents = _documents(file, is_submission=True)
        census.note_documents(documents, self._fields.document_fields, (UUID, DOCUMENT))
        return census

    def _parse(self, lines: Sequence[bytes]) -> tuple[pa.RecordBatch, Ignored]:
        batch = lines_to_batch([line.removesuffix(b"\r") for line in lines])
        if self._is_native:
            return batch, Ignored()  # the kernel reads the documents
        return with_document_fields(batch, self._fields).select(self._names), Ignored()


def _documents(file: RawFile, *, is_submission: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the objects of the lines that hold one."""
    for line in text_lines(file):
        if line.problem:
            continue
        with contextlib.suppress(InvalidInputError):
            yield decode_object(split_line(line.data)[1] if is_submission else line.data)


def _look_into(file: RawFile) -> None:
    """Check that the file can be opened; its content is checked line by line."""
    if file.location != STDIN:
        with file.open_raw() as raw:
            raw.read(1)

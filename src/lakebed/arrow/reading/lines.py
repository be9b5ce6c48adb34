"""JSON lines and submissions as data for a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakebed.arrow.documents import at_row, entity_of, is_cut_object
from lakebed.arrow.entities import entities_to_batch
from lakebed.arrow.formats.submissions import is_cut_line, lines_to_batch, with_document_fields
from lakebed.arrow.reading.chunks import (
    Chunk,
    FormatReader,
    Reject,
    grouped,
    text_lines,
    without_blanks,
)
from lakebed.arrow.reading.files import STDIN, RawFile
from lakebed.model.descriptor import DOCUMENT, UUID, DatasetDescriptor
from lakebed.model.schema import Field, Kind, Primitive, Schema


class JsonReader(FormatReader):
    """JSON lines: one object a line, of no other fields than the schema's."""

    def __init__(self, descriptor: DatasetDescriptor) -> None:
        self._descriptor = descriptor

    def check(self, file: RawFile) -> None:
        """Compare the file with the dataset; see `FormatReader`."""
        _look_into(file)

    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        """Yield all that is in a file, in order."""
        return grouped(without_blanks(text_lines(file)), self._parse, is_cut_object)

    def _parse(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        fields = self._descriptor.schema.fields
        entities = []
        for position, line in enumerate(lines):
            with at_row(position):
                entities.append(entity_of(line, fields))
        return entities_to_batch(entities, self._descriptor)


class SubmissionLinesReader(FormatReader):
    """Lines of uuid, tab and JSON; the other fields of the schema are read from the document.

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
            schema=Schema(fields=(*own, *descriptor.schema.fields)), format="submissions"
        )
        self._is_native = descriptor.format == "submissions"

    def check(self, file: RawFile) -> None:
        """Compare the file with the dataset; see `FormatReader`."""
        _look_into(file)

    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        """Yield all that is in a file, in order."""
        return grouped(without_blanks(text_lines(file)), self._parse, is_cut_line)

    def _parse(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        batch = lines_to_batch([line.removesuffix(b"\r") for line in lines])
        if self._is_native:
            return batch  # the kernel reads the documents
        return with_document_fields(batch, self._fields).select(self._names)


def _look_into(file: RawFile) -> None:
    """Look whether the file can be read; what it holds shows line by line."""
    if file.location != STDIN:
        with file.open_raw() as raw:
            raw.read(1)

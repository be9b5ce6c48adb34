"""Submissions: files of lines of uuid, tab and JSON, compressed as a whole.

Only `uuid` and `document` are in a line. The other fields of the schema are read from the JSON
object by name: at a write, so that partition functions and file facts have them, and at a read,
where they are requested.
"""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

from lakebed.arrow.document_columns import column_reader
from lakebed.arrow.documents import document_reader, is_cut_object
from lakebed.arrow.entities import entities_to_batch
from lakebed.arrow.formats.file_format import Content, FileWriter, RunningFacts, WrittenFile
from lakebed.arrow.many_streams import MANY_STREAM_CODECS, open_streams
from lakebed.arrow.reasons import reason_of
from lakebed.errors import CorruptMetadataError, InvalidInputError, SchemaMismatchError
from lakebed.model.descriptor import DOCUMENT, UUID, DatasetDescriptor
from lakebed.model.schema import Decimal, Field, Primitive, Schema, dotted_types
from lakebed.state.facts import ColumnFacts

_CHUNK_BYTES = 4 * 2**20
_MAX_LINE_BYTES = 2**30  # Lakebed writes no longer ones, and they would fill the memory
# First bytes of the files, which show their compression.
_CODEC_OF_MAGIC = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\x00": "xz",
    b"\x5d\x00\x00": "xz",  # the older LZMA format, which other tools may write
}
_GZIP_LEVEL = 6  # Arrow's own, 9, takes several times as long for a hundredth less
_ZSTD_LEVEL = 1  # Arrow's own
_XZ_PRESET = 1  # 6, the usual one, is five times as slow for a tenth less


def split_line(line: bytes) -> tuple[bytes, bytes]:
    """Split a line into uuid and document.

    Raises:
        SchemaMismatchError: The line has no tab.
    """
    uuid, tab, document = line.partition(b"\t")
    if not tab:
        raise SchemaMismatchError.of_line(
            "The line has no tab.", hint="Write a line as a uuid, a tab and a JSON object."
        )
    return uuid, document


def is_cut_line(line: bytes) -> bool:
    """Return whether bytes are a line that lacks its end."""
    _, tab, document = line.partition(b"\t")
    return not tab or not document.strip() or is_cut_object(document)


def lines_to_batch(lines: Sequence[bytes]) -> pa.RecordBatch:
    """Return lines as `uuid` and `document`.

    Raises:
        SchemaMismatchError: A line has no tab, or is not UTF-8.
    """
    pairs: list[tuple[bytes, bytes]] = []
    for line in lines:
        try:
            pairs.append(split_line(line))
        except SchemaMismatchError as exc:
            exc.row = len(pairs)
            raise
    return pa.RecordBatch.from_arrays(
        [_texts(uuid for uuid, _ in pairs), _texts(document for _, document in pairs)],
        names=[UUID, DOCUMENT],
    )


def _texts(values: Iterable[bytes]) -> pa.Array:
    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid as exc:
        raise SchemaMismatchError.of_line(
            f"This is not UTF-8: {reason_of(exc)}.", hint="Convert the file to UTF-8."
        ) from exc


def with_document_fields(batch: pa.RecordBatch, descriptor: DatasetDescriptor) -> pa.RecordBatch:
    """Return submissions with all fields of the schema, reading missing ones from the document.

    Args:
        batch: `uuid` and `document`, and any of the fields, which must then agree.
        descriptor: Descriptor of the dataset that receives them.

    Raises:
        SchemaMismatchError: A uuid is empty or would break the line, a document is not a JSON
            object, or a field in it is of another type.
    """
    uuids, documents = (_text_column(batch, name) for name in (UUID, DOCUMENT))
    broken = pc.match_substring_regex(uuids, r"[\t\n\r]|^$")
    if pc.any(broken).as_py():
        uuid = uuids.filter(broken)[0].as_py()
        raise SchemaMismatchError(
            f"Uuid {uuid[:80]!r} is empty, or holds a tab or a newline.",
            hint="Give a uuid without them: a tab follows it in the line.",
        )
    documents = pc.replace_substring_regex(documents, "[\r\n]", " ")
    fields = descriptor.document_fields
    derived = _derive(uuids, documents, fields, descriptor.dimension_texts)
    for field, column in zip(fields, derived, strict=True):
        _check_agreement(batch, field.name, column)
    known = {UUID: uuids, DOCUMENT: documents}
    known.update(zip((field.name for field in fields), derived, strict=True))
    unknown = {
        name: batch.column(name) for name in batch.schema.names if name not in descriptor.schema
    }
    return pa.RecordBatch.from_pydict({**known, **unknown})


def _text_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if batch.schema.get_field_index(name) < 0:
        raise SchemaMismatchError(
            f"The data lacks column {name!r}.", hint="Give a uuid and a document."
        )
    column = batch.column(name)
    try:
        column = column.cast(pa.string())
        column.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise SchemaMismatchError(
            f"Column {name!r} is not text: {reason_of(exc)}.",
            hint="Give the uuid, and the JSON as text.",
        ) from exc
    if column.null_count:
        raise SchemaMismatchError(
            f"Column {name!r} of a submission is null.", hint="Give both uuid and document."
        )
    return column


def _derive(
    uuids: pa.Array, documents: pa.Array, fields: Sequence[Field], texts: frozenset[str]
) -> list[pa.Array]:
    """Read fields from documents; without fields, only check the documents.

    Fields of `texts` take values of other types as their JSON text.
    """
    lines = documents.cast(pa.binary()).to_pylist()
    read = column_reader(tuple(fields), is_closed=False).read(lines)
    if not read.in_question:
        return read.columns
    reader = document_reader(tuple(fields), texts)
    descriptor = DatasetDescriptor(schema=Schema(fields=tuple(fields))) if fields else None
    columns = [[column] for column in read.columns]
    for number in read.in_question:
        try:
            entity = reader.read(lines[number])
            row = None if descriptor is None else entities_to_batch([entity], descriptor)
        except InvalidInputError as exc:
            uuid = uuids[number].as_py()
            error = SchemaMismatchError(
                f"Document of uuid {uuid[:80]!r}: {exc.message}", hint=exc.hint
            )
            error.row = number
            raise error from exc
        for parts, value in zip(columns, row.columns if row is not None else (), strict=True):
            parts.append(value)
    numbers = np.arange(0) if read.numbers is None else read.numbers
    order = pa.array(np.argsort(np.concatenate([numbers, read.in_question])))
    return [pa.concat_arrays(parts).take(order) for parts in columns]


def _check_agreement(batch: pa.RecordBatch, name: str, derived: pa.Array) -> None:
    position = batch.schema.get_field_index(name)
    if position < 0:
        return
    given = batch.column(position)
    try:
        same = given.cast(derived.type).equals(derived)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        same = False
    # Arrow takes two NaN for different.
    if not same and repr(given.to_pylist()) != repr(derived.to_pylist()):
        raise SchemaMismatchError(
            f"Column {name!r} differs from the documents.",
            hint="Change the documents, or leave the column out: it is read from them.",
        )


class SubmissionsWriter(FileWriter):
    """Writes lines through one compressor."""

    def __init__(self, schema: Schema, compression: str, content: Content | None = None) -> None:
        """Begin a file.

        Args:
            schema: Schema of the rows, which has `uuid` and `document` among their fields.
            compression: One of the descriptor's names for submissions.
            content: Takes the bytes; None for memory.
        """
        super().__init__(content)
        self._stream = _compressed(self._sink, compression)
        self._row_count = 0
        self._facts = {
            field.name: RunningFacts()
            for field in schema
            if isinstance(field.type, Primitive | Decimal) and field.name != DOCUMENT
        }

    def write(self, rows: pa.Table) -> None:
        """Write a line for each row."""
        for name, facts in self._facts.items():
            facts.add(rows.column(name))
        for batch in rows.select([UUID, DOCUMENT]).to_batches():
            columns = [batch.column(n).cast(pa.binary()).to_pylist() for n in (UUID, DOCUMENT)]
            pairs = zip(*columns, strict=True)
            self._stream.write(b"".join([b"%b\t%b\n" % pair for pair in pairs]))
        self._stream.flush()
        self._row_count += rows.num_rows

    def close(self) -> WrittenFile:
        """End the file."""
        if self._stream is not self._sink:
            self._stream.close()
        columns = {name: facts.get() for name, facts in self._facts.items()}
        columns[DOCUMENT] = ColumnFacts(null_count=0)
        return WrittenFile(content=self._sink, row_count=self._row_count, columns=columns)


def _compressed(sink: Any, compression: str) -> Any:
    if compression == "uncompressed":
        return sink
    if compression == "gzip":
        return gzip.GzipFile(fileobj=sink, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0)
    if compression == "xz":
        return lzma.open(sink, "wb", preset=_XZ_PRESET)
    if compression == "zstd":
        # With a checksum of the content, which readers of any kind compare; Arrow writes none.
        compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
        return compressor.stream_writer(sink, closefd=False)
    return pa.CompressedOutputStream(pa.PythonFile(sink, mode="w"), compression)


class SubmissionsReader:
    """Reads lines; see `FileReader`."""

    def batches(self, source: pa.NativeFile, wanted: Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Raises:
            CorruptMetadataError: The file is damaged, or a document does not fit `wanted`.
        """
        own = [name for name in wanted.names if name in (UUID, DOCUMENT)]
        fields = [field for field in wanted if field.name not in own]
        for lines in _line_chunks(source):
            with _translating():
                batch = lines_to_batch(lines)
                columns = {name: batch.column(name) for name in own}
                if fields:
                    # The writer has judged the types; only dimensions take others than text.
                    texts = frozenset(dotted_types(fields))
                    derived = _derive(batch.column(UUID), batch.column(DOCUMENT), fields, texts)
                    names = (field.name for field in fields)
                    columns.update(zip(names, derived, strict=True))
            yield pa.RecordBatch.from_pydict({name: columns[name] for name in wanted.names})

    def count(self, source: pa.NativeFile) -> int:
        """Count the lines.

        Raises:
            CorruptMetadataError: The file is damaged.
        """
        return sum(len(lines) for lines in _line_chunks(source))


def _line_chunks(source: pa.NativeFile) -> Iterator[list[bytes]]:
    pending: list[bytes] = []  # the pieces of a line whose end has not come
    pending_bytes = 0
    with _translating():
        stream = _open(source)
        while chunk := stream.read(_CHUNK_BYTES):
            ends: list[bytes] = chunk.split(b"\n")
            pending.append(ends[0])
            pending_bytes += len(ends[0])
            if pending_bytes > _MAX_LINE_BYTES:
                raise _damaged(f"a line is longer than {_MAX_LINE_BYTES} bytes")
            if len(ends) > 1:
                yield [b"".join(pending), *ends[1:-1]]
                pending, pending_bytes = [ends[-1]], len(ends[-1])
    if pending_bytes:
        raise CorruptMetadataError(
            "The last line of a file of submissions has no end.",
            hint="The file was cut or overwritten from outside.",
        )


def _open(source: pa.NativeFile) -> Any:
    head = source.read(6)
    source.seek(0)
    for magic, codec in _CODEC_OF_MAGIC.items():
        if head.startswith(magic):
            if codec in MANY_STREAM_CODECS:
                return open_streams(source, codec)
            return pa.CompressedInputStream(source, codec)
    return source


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except (InvalidInputError, lzma.LZMAError, EOFError, pa.ArrowException) as exc:
        raise _damaged(exc) from exc
    except OSError as exc:
        if exc.errno is not None:  # the storage failed, not the file
            raise
        raise _damaged(exc) from exc


def _damaged(cause: object) -> CorruptMetadataError:
    reason = " ".join(str(cause).split())
    return CorruptMetadataError(
        f"A file of submissions is damaged, or does not fit the schema: {reason}",
        hint="The head names it, so it was overwritten from outside.",
    )

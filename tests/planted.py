"""Keys that are planted all over a lake, and a search for them in every byte of it."""

import contextlib
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

_FRAME = b"\x28\xb5\x2f\xfd"  # begins a frame of zstd

MARK = "Zq7x"
"""Begins every planted key, and nothing else."""


def key(number: int) -> str:
    """Return a planted key."""
    return f"{MARK}{number:04d}@example.org"


def found_in(*roots: Path) -> list[str]:
    """Return the files, and names of files, that hold a planted key in any form."""
    return [
        f"{path.relative_to(root)}: {how}"
        for root in roots
        for path in sorted(root.rglob("*"))
        for how in _traces(path, root)
    ]


def _traces(path: Path, root: Path) -> Iterator[str]:
    if MARK in str(path.relative_to(root)):
        yield "its name"
    if not path.is_file():
        return
    data = path.read_bytes()
    forms = _forms_of_leaf(data) if path.parent.name == "leaves" else _forms(data)
    for how, content in forms:
        if MARK.encode() in content:
            yield how


def _forms_of_leaf(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the bytes of a leaf, and of all frames and of the file of Parquet in it."""
    yield "bytes", data
    for found in re.finditer(re.escape(_FRAME), data):
        with contextlib.suppress(zstandard.ZstdError):  # the name of a file may hold these bytes
            yield from _forms(data[found.start() :])
    for found in re.finditer(b"PAR1", data[:-4]):
        with contextlib.suppress(pa.ArrowException, OSError):
            yield from _of_parquet(data[found.start() :])


def _forms(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the bytes, and all that they unpack to."""
    yield "bytes", data
    if data[:4] == b"PAR1" and data[-4:] == b"PAR1":
        yield from _of_parquet(data)
    elif data[:4] == _FRAME:
        unpacked = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        yield from ((f"zstd: {how}", part) for how, part in _forms(unpacked))
    elif data[:2] == b"\x1f\x8b":
        yield from ((f"gzip: {how}", part) for how, part in _forms(gzip.decompress(data)))
    elif data[:4] == b"Obj\x01":
        rows = list(fastavro.reader(io.BytesIO(data)))
        yield "avro", repr(rows).encode()
    elif data[:15] == b"SQLite format 3":
        yield "sqlite", data
    else:
        try:
            yield "msgpack", repr(msgspec.msgpack.decode(data)).encode()
        except (msgspec.MsgspecError, UnicodeDecodeError, zlib.error):
            return


def _of_parquet(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the values, the statistics, the entries of the footer, and the dictionaries."""
    file = pq.ParquetFile(io.BytesIO(data))
    yield "metadata", repr(file.schema_arrow.metadata).encode()
    yield "entries", repr(file.metadata.metadata).encode()
    for group in range(file.metadata.num_row_groups):
        for column in range(file.metadata.num_columns):
            chunk = file.metadata.row_group(group).column(column)
            yield (
                "statistics",
                repr(chunk.statistics.to_dict() if chunk.statistics else "").encode(),
            )
    table = file.read()
    yield "values", repr(table.to_pylist()).encode()
    for name in _coded_columns(file):
        coded = pq.ParquetFile(io.BytesIO(data), read_dictionary=[name]).read([name])
        for part in coded.column(name).chunks:
            if pa.types.is_dictionary(part.type):
                yield "dictionary", repr(part.dictionary.to_pylist()).encode()


def _coded_columns(file: pq.ParquetFile) -> list[str]:
    """Return the columns of texts that have dictionaries in all row groups."""
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    return [
        field.name
        for field in file.schema_arrow
        if not pa.types.is_nested(field.type)
        and (pa.types.is_string(field.type) or pa.types.is_binary(field.type))
        and all(
            any("DICTIONARY" in one for one in group.column(at).encodings)
            for group in groups
            for at in range(group.num_columns)
            if group.column(at).path_in_schema == field.name
        )
    ]

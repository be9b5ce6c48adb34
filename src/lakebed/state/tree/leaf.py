"""The codec of a leaf: one object of three sections, each of which is read by itself.

- `P`: the partitions with their totals.
- `A`: the labels of the files, with rows, sizes, and the version that added each.
- `B`: their checksums and bounds, as Parquet.

The lengths and the hashes of the sections are in the root, so a reader needs one request and no
footer. A section that a hash proves was written by Lakebed; each is checked nevertheless, because
the root may have been written by another program.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from lakebed.common.decoding import from_msgpack
from lakebed.errors import CorruptMetadataError
from lakebed.model.keys import partition_of
from lakebed.state import file_table
from lakebed.state.head import are_sound
from lakebed.state.tree.directory_order import DirectoryOrder
from lakebed.state.tree.leaf_files import MOST, OTHER_NAME, UNKNOWN, Files
from lakebed.state.tree.sums import NAME_BYTES, hash_of
from lakebed.store.segments import compress, decompress

PARTITIONS, FILES, FACTS = range(3)  # the sections, in their order
HASH_BYTES = 16
MAX_FILES = 2**16  # of a leaf that is read; one that is written has a quarter of that
_HEADER = struct.Struct("<7I")  # number of files, and the lengths of the parts after it
# Of all directories, or of all names of another form: no storage takes keys of more than 4 KiB.
_MOST_TEXT = 2**26
_NO_COVERAGE = 0  # of the flags of a run, all others of which are reserved
_T = TypeVar("_T")


class PartitionFiles(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Totals of the files of one partition in a leaf.

    Attributes:
        path: Directory of the partition.
        files: Number of its files.
        rows: Number of entities in the files for which it is known.
        bytes: Length of these files.
        unknown: Number of files whose rows or length are not known.
    """

    path: str
    files: int
    rows: int
    bytes: int
    unknown: int = 0


class _Run(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive files with the same schema number and the same version that added them."""

    count: int
    schema: int
    since: int
    flags: int = _NO_COVERAGE


@dataclass(frozen=True, slots=True)
class Sections:
    """A leaf as it is stored.

    Attributes:
        data: All sections in a row.
        lengths: The length of each.
        hashes: The hash of each.
    """

    data: bytes
    lengths: tuple[int, int, int]
    hashes: tuple[bytes, bytes, bytes]


def encode(files: Files, order: DirectoryOrder) -> Sections:
    """Return the bytes of a leaf.

    Args:
        files: The files, with their facts, in the order of the dataset.
        order: The order of directories, which is checked.

    Raises:
        CorruptMetadataError: The files are not in order, or too many.
    """
    keys = [order(directory) for directory in files.directories]
    # A lookup in a leaf of another order would give names to wrong directories.
    if keys != sorted(keys) or len(set(keys)) < len(keys) or files.count > MAX_FILES:
        raise unreadable("to write", "its directories are not in order, or it has too many files")
    parts = (_partitions(files), _files(files), _facts(files))
    first, second, third = parts
    return Sections(
        data=b"".join(parts),
        lengths=(len(first), len(second), len(third)),
        hashes=(section_hash(first), section_hash(second), section_hash(third)),
    )


def section_hash(data: bytes) -> bytes:
    """Return the hash of a section."""
    return hashlib.blake2b(data, digest_size=HASH_BYTES).digest()


def _pack(data: bytes) -> bytes:
    return compress(data, level=1)


def _partitions(files: Files) -> bytes:
    return _pack(msgspec.msgpack.encode(partitions_of(files)))


def partitions_of(files: Files) -> list[PartitionFiles]:
    """Return the partitions of files with their totals, in order."""
    numbers: dict[str, int] = {}
    for directory in files.directories:
        numbers.setdefault(partition_of(directory), len(numbers))
    places = [numbers[partition_of(directory)] for directory in files.directories]
    homes = np.repeat(np.array(places, np.int64), files.counts)
    is_known = (files.rows != UNKNOWN) & (files.sizes != UNKNOWN)
    totals = [
        _added(homes, weights, len(numbers))
        for weights in (
            np.ones(files.count, np.int64),
            np.where(files.rows == UNKNOWN, 0, files.rows),
            np.where(files.sizes == UNKNOWN, 0, files.sizes),
            (~is_known).astype(np.int64),
        )
    ]
    return [PartitionFiles(path, *each) for path, *each in zip(numbers, *totals, strict=True)]


def _added(homes: np.ndarray, weights: np.ndarray, count: int) -> list[int]:
    """Return the sum of integers for each home; exact, unlike `bincount` of weights."""
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, homes, weights)
    numbers: list[int] = sums.tolist()
    return numbers


def _files(files: Files) -> bytes:
    parts = [
        _pack(each)
        for each in (
            msgspec.msgpack.encode(files.directories),
            files.counts.astype("<u4").tobytes(),
            (files.rows + 1).astype("<u8").tobytes(),
            (files.sizes + 1).astype("<u8").tobytes(),
            msgspec.msgpack.encode(_runs(files)),
            msgspec.msgpack.encode(dict(files.others)),
        )
    ]
    header = _HEADER.pack(files.count, *map(len, parts))
    return b"".join((header, *parts, files.names.tobytes()))


def _runs(files: Files) -> list[_Run]:
    """Return the runs of files with the same schema number and version."""
    if not files.count:
        return []
    both = np.stack([files.schemas, files.since], axis=1)
    starts = [0, *(np.flatnonzero((both[1:] != both[:-1]).any(axis=1)) + 1).tolist()]
    return [
        _Run(end - start, *both[start].tolist())
        for start, end in zip(starts, [*starts[1:], files.count], strict=True)
    ]


def _facts(files: Files) -> bytes:
    assert files.facts is not None
    sink = pa.BufferOutputStream()
    pq.write_table(files.facts, sink, compression="zstd", use_dictionary=False)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_partitions(data: bytes, key: str) -> list[PartitionFiles]:
    """Read section `P`.

    Args:
        data: The section.
        key: Key of the leaf, for errors.

    Raises:
        CorruptMetadataError: It is damaged or malformed.
    """

    def read() -> list[PartitionFiles]:
        raw = decompress(data, _MOST_TEXT)
        partitions = _unpacked(raw, list[PartitionFiles], MAX_FILES)
        for one in partitions:
            numbers = (one.files, one.rows, one.bytes, one.unknown)
            _require(min(numbers) >= 0 and max(numbers) < 2**63, "a total out of range")
            _require(0 < one.files <= MAX_FILES, "a number of files out of range")
        return partitions

    return _checked(read, key)


def decode_files(data: bytes, key: str) -> Files:
    """Read section `A`, without the facts.

    Args:
        data: The section.
        key: Key of the leaf, for errors.

    Raises:
        CorruptMetadataError: It is damaged or malformed.
    """
    return _checked(lambda: _read_files(data), key)


def _read_files(data: bytes) -> Files:
    _require(len(data) >= _HEADER.size, "it is too short")
    count, *lengths = _HEADER.unpack_from(data)
    # The names are not compressed, so the number of files is bounded by the size.
    _require(count <= MAX_FILES, "too many files")
    names_at = _HEADER.size + sum(lengths)
    _require(len(data) == names_at + count * NAME_BYTES, "its length is not that of its parts")
    parts, start = [], _HEADER.size
    for length, largest in zip(lengths, _largest(count), strict=True):
        parts.append(decompress(data[start : start + length], largest))
        start += length
    directories = _unpacked(parts[0], tuple[str, ...], count)
    counts = _array(parts[1], "<u4", len(directories))
    _require(len(set(directories)) == len(directories), "a directory is repeated")
    _require(int(counts.sum()) == count and bool((counts > 0).all()), "counts do not add up")
    rows, sizes = (_array(part, "<u8", count) - 1 for part in parts[2:4])
    for numbers in (rows, sizes):
        _require(bool(((numbers >= UNKNOWN) & (numbers <= MOST)).all()), "a number is too large")
    schemas, since = _spread(_unpacked(parts[4], list[_Run], count), count)
    names = np.frombuffer(data, np.uint8, offset=names_at).reshape(-1, NAME_BYTES)
    others = _unpacked(parts[5], dict[int, str], count)
    _check_others(others, schemas, names)
    _require(are_sound([f"{directory}/x" for directory in directories if directory]), "a path")
    return Files(
        directories=directories,
        counts=counts,
        names=names,
        others=others,
        schemas=schemas,
        since=since,
        rows=rows,
        sizes=sizes,
    )


def _largest(count: int) -> Sequence[int]:
    """Return the largest sizes of the parts, uncompressed, for a number of files."""
    return (_MOST_TEXT, 4 * count, 8 * count, 8 * count, 32 * count + HASH_BYTES, _MOST_TEXT)


def _unpacked(raw: bytes, kind: type[_T], most: int) -> _T:
    """Return a list or a mapping, which may declare more entries than fit into memory."""
    first = raw[:1]
    size = {b"\xdc": 2, b"\xde": 2, b"\xdd": 4, b"\xdf": 4}.get(first, 0)
    declared = int.from_bytes(raw[1 : 1 + size]) if size else first[0] & 0x0F if first else 0
    _require(declared <= most, "too many entries")
    return from_msgpack(raw, kind)


def _array(part: bytes, kind: str, count: int) -> np.ndarray:
    numbers = np.frombuffer(part, kind)
    _require(len(numbers) == count, "a part has another length")
    return numbers.astype(np.int64)


def _spread(runs: Sequence[_Run], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the schema number and the version of each file."""
    _require(
        all(
            0 < run.count <= MAX_FILES and 0 <= run.schema < 10**9 and 0 <= run.since < 2**62
            for run in runs
        ),
        "a run is out of range",
    )
    lengths = np.array([run.count for run in runs], np.int64)
    _require(int(lengths.sum()) == count, "runs do not add up")
    schemas = np.repeat(np.array([run.schema for run in runs], np.int64), lengths)
    since = np.repeat(np.array([run.since for run in runs], np.int64), lengths)
    return schemas, since


def _check_others(others: Mapping[int, str], schemas: np.ndarray, names: np.ndarray) -> None:
    places = np.flatnonzero(schemas == OTHER_NAME).tolist()
    _require(sorted(others) == places, "names do not fit the files")
    for place, name in others.items():
        _require(hash_of(name) == names[place].tobytes(), "a name does not fit its hash")
        _require("/" not in name and name not in ("", ".", ".."), "a name is a path")


def decode_facts(data: bytes, count: int, key: str) -> pa.Table:
    """Read section `B`.

    Args:
        data: The section.
        count: Number of files in the leaf.
        key: Key of the leaf, for errors.

    Raises:
        CorruptMetadataError: It is damaged or malformed.
    """

    def read() -> pa.Table:
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        _require(file.metadata.num_rows == count, "it has another number of rows")
        table = file.read(use_threads=False)
        table.validate(full=True)
        file_table.check_facts(table.schema)
        return table

    return _checked(read, key)


def _require(is_met: bool, problem: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not is_met:
        raise ValueError(problem)


def _checked(read: Callable[[], _T], key: str) -> _T:
    try:
        return read()
    except (
        ValueError,
        KeyError,
        OverflowError,
        MemoryError,
        RecursionError,
        OSError,
        pa.ArrowException,
        msgspec.MsgspecError,
        zstandard.ZstdError,
    ) as exc:
        raise unreadable(key, exc) from exc


def unreadable(key: str, cause: object) -> CorruptMetadataError:
    """Return the error for a leaf that cannot be read."""
    return CorruptMetadataError(
        f"Leaf {key!r} cannot be read: {cause}.",
        hint="Restore the object from a copy. No data file was touched, and files of other leaves "
        "can be read.",
    )

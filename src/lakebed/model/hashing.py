"""Java's hash codes, which Kite's hash partitions use.

The schema's type decides, not the Python value: -1 as int and as long have different codes.
"""

from __future__ import annotations

import datetime as dt
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.model.schema import Kind
from lakebed.model.values import Scalar, to_micros

_MASK = 0xFFFFFFFF
HASHABLE = frozenset(
    {
        Kind.BOOLEAN,
        Kind.INT,
        Kind.LONG,
        Kind.UNSIGNED_LONG,
        Kind.FLOAT,
        Kind.DOUBLE,
        Kind.STRING,
        Kind.BYTES,
        Kind.DATE,
        Kind.TIMESTAMP,
        Kind.TIMESTAMP_NTZ,
    }
)


def java_hash(value: Scalar, kind: Kind) -> int:
    """Return Java's hash code of a value that is not None, as 32 unsigned bits.

    Dates hash as their days, timestamps as their microseconds since the epoch.

    Source:
        Kite's partitioner; the vectors are in the tests.
    """
    match kind:
        case Kind.BOOLEAN:
            return 1231 if value else 1237
        case Kind.INT:
            return int(value) & _MASK  # type: ignore[arg-type]  # checked by the caller
        case Kind.LONG | Kind.UNSIGNED_LONG:
            return _fold(int(value))  # type: ignore[arg-type]  # checked by the caller
        case Kind.FLOAT:
            return int.from_bytes(struct.pack(">f", _plain(value)), "big")
        case Kind.DOUBLE:
            return _fold(int.from_bytes(struct.pack(">d", _plain(value)), "big"))
        case Kind.DATE:
            return (value - dt.date(1970, 1, 1)).days & _MASK  # type: ignore[operator,union-attr]  # a date
        case Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ:
            return _fold(to_micros(value))  # type: ignore[arg-type]  # a datetime
        case Kind.BYTES:
            return _bytes_hash(value)  # type: ignore[arg-type]  # bytes
        case Kind.STRING:
            return _string_hash(str(value))


def _fold(value: int) -> int:
    return (value ^ (value >> 32)) & _MASK


def _plain(value: Scalar) -> float:
    """Return a float with one form of NaN, as in Java."""
    number = float(value)  # type: ignore[arg-type]  # a float
    return float("nan") if number != number else number


def _string_hash(text: str) -> int:
    code = 0
    units = text.encode("utf-16-le", "surrogatepass")
    for low, high in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & _MASK
    return code


def _bytes_hash(value: bytes) -> int:
    code = 1
    for byte in reversed(value):
        code = (31 * code + (byte - 256 if byte > 127 else byte)) & _MASK
    return code


def java_hash_array(array: pa.Array, kind: Kind) -> npt.NDArray[np.uint32]:
    """Return Java's hash codes of an array without nulls.

    Numbers and text are hashed as whole columns, other types by distinct value.
    """
    match kind:
        case Kind.INT | Kind.DATE:
            return _numpy(array, pa.int32()).view(np.uint32)
        case Kind.LONG | Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ:
            return _fold_array(_numpy(array, pa.int64()).view(np.uint64))
        case Kind.UNSIGNED_LONG:
            return _fold_array(_numpy(array, pa.uint64()))
        case Kind.STRING:
            return _string_hash_array(array)
    encoded = array.dictionary_encode()
    codes = [java_hash(value, kind) for value in encoded.dictionary.to_pylist()]
    hashes: npt.NDArray[np.uint32] = np.array(codes, dtype=np.uint32)[encoded.indices.to_numpy()]
    return hashes


def _numpy(array: pa.Array, kind: pa.DataType) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array.cast(kind).to_numpy(zero_copy_only=False))


def _fold_array(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    return (values ^ (values >> np.uint64(32))).astype(np.uint32)


def _string_hash_array(texts: pa.Array) -> npt.NDArray[np.uint32]:
    """Hash ASCII texts by their bytes, which equal their UTF-16 units, and other texts by these."""
    import pyarrow.compute as pc

    codes = np.zeros(len(texts), dtype=np.uint32)
    texts = texts.cast(pa.large_string())
    is_ascii = pc.string_is_ascii(texts).to_numpy(zero_copy_only=False)
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int64)[texts.offset :][: len(texts) + 1]
    lengths = np.diff(offsets)
    data = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)
    for length in np.unique(lengths[is_ascii]).tolist():
        positions = np.flatnonzero(is_ascii & (lengths == length))
        # A matrix of the bytes of all texts of one length, a column at a time: Horner's rule.
        starts = offsets[positions]
        hashes = np.zeros(len(positions), dtype=np.uint32)
        for column in range(length):
            hashes = hashes * np.uint32(31) + data[starts + column]
        codes[positions] = hashes
    others = np.flatnonzero(~is_ascii)
    if len(others):
        encoded = texts.take(pa.array(others)).dictionary_encode()
        distinct = [_string_hash(text) for text in encoded.dictionary.to_pylist()]
        codes[others] = np.array(distinct, dtype=np.uint32)[encoded.indices.to_numpy()]
    return codes

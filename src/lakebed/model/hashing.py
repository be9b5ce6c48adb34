"""Java's hash codes, which Kite's hash partitions are made of.

The schema's type decides, not the Python value: -1 as int and as long have different codes.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections import defaultdict
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
    """Java has one NaN."""
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

    Numbers and text are hashed as whole columns, the rest by their distinct values.
    """
    match kind:
        case Kind.INT | Kind.DATE:
            return _numpy(array, pa.int32()).view(np.uint32)
        case Kind.LONG | Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ:
            return _fold_array(_numpy(array, pa.int64()).view(np.uint64))
        case Kind.UNSIGNED_LONG:
            return _fold_array(_numpy(array, pa.uint64()))
        case Kind.STRING:
            return _string_hash_array(array.to_pylist())
    encoded = array.dictionary_encode()
    codes = [java_hash(value, kind) for value in encoded.dictionary.to_pylist()]
    found: npt.NDArray[np.uint32] = np.array(codes, dtype=np.uint32)[encoded.indices.to_numpy()]
    return found


def _numpy(array: pa.Array, kind: pa.DataType) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array.cast(kind).to_numpy(zero_copy_only=False))


def _fold_array(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    return (values ^ (values >> np.uint64(32))).astype(np.uint32)


def _string_hash_array(texts: list[str]) -> npt.NDArray[np.uint32]:
    """Hash texts of one length together: a matrix of UTF-16 units times the powers of 31."""
    codes = np.zeros(len(texts), dtype=np.uint32)
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    units = [text.encode("utf-16-le", "surrogatepass") for text in texts]
    for position, one in enumerate(units):
        by_length[len(one) // 2].append(position)
    for length, positions in by_length.items():
        matrix = np.frombuffer(b"".join(units[p] for p in positions), dtype="<u2")
        powers = np.array(
            [pow(31, length - 1 - i, 1 << 32) for i in range(length)], dtype=np.uint32
        )
        products = matrix.reshape(len(positions), length).astype(np.uint32) * powers
        codes[positions] = products.sum(axis=1, dtype=np.uint32)
    return codes

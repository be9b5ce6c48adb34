"""Digests of rows that do not depend on their order, nor on their batches and files.

Rewritten rows must be the rows that were read. Their order and their file may change, so each
row is hashed by its values, and the hashes are added.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import types as pat

_SLICE_BYTES = 2**20  # hashed at once: texts take some forty times their bytes meanwhile
_LONG = 256  # bytes; longer texts are hashed one by one
_NULL = np.uint64(0x9E3779B97F4A7C15)
_BASE = np.uint64(0x100000001B3)  # odd, so that no byte is lost
_SECOND = np.uint64(0xD6E8FEB86659FD93)
_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class RowDigest:
    """Number of rows, and two sums over them, modulo 2**64.

    Attributes:
        row_count: Number of hashed rows.
        row_count: Number of hashed rows.
        second: Sum of their hashes, hashed again.
    """

    row_count: int = 0
    first: int = 0
    second: int = 0

    def __add__(self, other: RowDigest) -> RowDigest:
        """Return the digest of the rows of both."""
        return RowDigest(
            self.row_count + other.row_count,
            (self.first + other.first) & _MASK,
            (self.second + other.second) & _MASK,
        )

    @classmethod
    def of(cls, hashes: np.ndarray) -> RowDigest:
        """Return the digest of rows with these hashes."""
        return cls(len(hashes), int(hashes.sum()), int(_mixed(hashes ^ _SECOND).sum()))


def row_hashes(batch: pa.RecordBatch) -> np.ndarray:
    """Return a hash of 64 bits for each row, of the values of its columns in their order.

    Values are compared as they are stored: 0.0 and -0.0 differ, as null and NaN do.
    """
    length = max(1, int(_SLICE_BYTES * batch.num_rows / max(1, batch.nbytes)))
    slices = [np.zeros(0, np.uint64)]
    for start in range(0, batch.num_rows, length):
        rows = batch.slice(start, length)
        hashes = np.zeros(rows.num_rows, np.uint64)
        for column in rows.columns:
            hashes = _mixed(hashes * _BASE + _hashes(column))
        slices.append(hashes)
    return np.concatenate(slices)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Spread numbers over 64 bits, as the last step of splitmix64 does."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = numbers ^ (numbers >> np.uint64(31))
    return mixed


def _hashes(array: pa.Array) -> np.ndarray:
    hashes = _mixed(_raw(array) + np.uint64(1))
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _raw(array: pa.Array) -> np.ndarray:
    """Return a number for each value; that of a null has no meaning."""
    kind, length = array.type, len(array)
    if pat.is_null(kind):
        return np.zeros(length, np.uint64)
    if pat.is_struct(kind):
        numbers = np.zeros(length, np.uint64)
        for position in range(kind.num_fields):
            numbers = _mixed(numbers * _BASE + _hashes(array.field(position)))
        return numbers
    if pat.is_map(kind):
        pairs = _hashes(array.keys) * _BASE + _hashes(array.items)
        return _of_lists(_mixed(pairs), _offsets(array))
    if pat.is_list(kind) or pat.is_large_list(kind):
        return _of_lists(_hashes(array.values), _offsets(array))
    if pat.is_string(kind) or pat.is_binary(kind):
        return _of_texts(array)
    if pat.is_boolean(kind):
        bits: np.ndarray = array.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint64)
        return bits
    width = kind.bit_width // 8
    buffer = array.buffers()[1]
    data = np.frombuffer(buffer, np.uint8)[array.offset * width : (array.offset + length) * width]
    if width <= 8:
        return data.view(f"u{width}").astype(np.uint64)
    numbers = np.zeros(length, np.uint64)
    for words in data.view(np.uint64).reshape(length, width // 8).T:
        numbers = _mixed(numbers * _BASE + words)
    return numbers


def _offsets(array: pa.Array) -> np.ndarray:
    """Return the begin of each list among all elements, and the end of the last one."""
    kind = array.type
    is_large = pat.is_large_list(kind)
    offsets = np.frombuffer(array.buffers()[1], np.int64 if is_large else np.int32)
    bounds: np.ndarray = offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return bounds


def _of_lists(elements: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return a polynomial of the elements of each list, with their number."""
    if len(offsets) < 2:
        return np.zeros(0, np.uint64)
    first, lengths = offsets[0], np.diff(offsets)
    used = elements[first : offsets[-1]]
    places = np.arange(len(used)) - np.repeat(offsets[:-1] - first, lengths)
    powers = np.cumprod(np.full(int(lengths.max(initial=0)) + 1, _BASE, np.uint64))
    sums = np.concatenate(
        [np.zeros(1, np.uint64), np.cumsum((used + np.uint64(1)) * powers[places])]
    )
    ends = offsets - first
    numbers: np.ndarray = sums[ends[1:]] - sums[ends[:-1]] + lengths.astype(np.uint64)
    return numbers


def _of_texts(array: pa.Array) -> np.ndarray:
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    offsets = offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = array.buffers()[2]
    held = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    is_long = np.diff(offsets) > _LONG
    if not is_long.any():
        return _of_lists(held[offsets[0] : offsets[-1]].astype(np.uint64), offsets - offsets[0])
    numbers = np.zeros(len(array), np.uint64)
    for row in np.flatnonzero(is_long).tolist():
        text = held[offsets[row] : offsets[row + 1]]
        digest = hashlib.blake2b(text.tobytes(), digest_size=8).digest()
        numbers[row] = int.from_bytes(digest, "little")
    short = array.filter(pa.array(~is_long))
    if len(short):
        numbers[~is_long] = _of_texts(short)
    return numbers

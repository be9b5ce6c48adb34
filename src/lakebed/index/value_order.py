"""Fast sorting of values of any type, since an index is written together with the rows.

Arrow sorts texts by comparing them one by one. Here every type becomes whole numbers, which NumPy
sorts many times faster: integers unchanged, floats by their bits, texts eight bytes at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

_SAMPLE = 65_536


class Ranked(NamedTuple):
    """Distinct values, and the position of each given value among them.

    Attributes:
        distinct: The distinct values, ascending.
        ranks: For each given value the position of its equal in `distinct`.
    """

    distinct: pa.Array
    ranks: np.ndarray


def is_repetitive(values: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether values repeat at least twice on average, judged by the first of them."""
    sample = values.slice(0, min(_SAMPLE, max(1_024, len(values) // 8)))
    return bool(2 * pc.count_distinct(sample, mode="all").as_py() <= len(sample))


def is_first(values: pa.Array) -> np.ndarray:
    """Return for each of some sorted values whether it differs from the one before."""
    is_new = np.ones(len(values), dtype=bool)
    if len(values) > 1:
        is_new[1:] = np.asarray(pc.not_equal(values[1:], values[:-1]))
    return is_new


def sorted_pairs(
    values: pa.Array, files: np.ndarray, file_count: int
) -> tuple[pa.Array, np.ndarray]:
    """Return the distinct pairs of value and file, sorted.

    Args:
        values: Values without null and NaN. Negative zero becomes zero.
        files: The position of each value's file, from 0 on.
        file_count: Number of files.
    """
    numbers = _as_numbers(values)
    bits = max(file_count - 1, 0).bit_length()
    if numbers is None:
        ranked = rank(values)
        ranks, positions = _distinct_pairs(ranked.ranks.astype(np.uint64), files, bits)
        is_all = len(ranks) == len(ranked.distinct)
        return ranked.distinct if is_all else ranked.distinct.take(pa.array(ranks)), positions
    if not len(numbers):
        return values, files
    lowest = numbers.min()
    # The difference is right in 64 unsigned bits, for any signs.
    above = numbers.astype(np.uint64) - np.uint64(int(lowest) % 2**64)
    if int(above.max()).bit_length() + bits <= 64:
        above, positions = _distinct_pairs(above, files, bits)
    else:
        above, positions = _distinct_wide_pairs(above, files)
    distinct = (above + np.uint64(int(lowest) % 2**64)).astype(numbers.dtype)
    return _from_numbers(distinct, values.type), positions


def _distinct_pairs(
    numbers: np.ndarray, files: np.ndarray, bits: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct pairs in order; number and file together have at most 64 bits."""
    packed = (numbers << np.uint64(bits)) | files.astype(np.uint64)
    packed.sort()
    is_new = np.ones(len(packed), dtype=bool)
    np.not_equal(packed[1:], packed[:-1], out=is_new[1:])
    if not is_new.all():
        packed = packed[is_new]
    positions = (packed & np.uint64((1 << bits) - 1)).astype(np.int32)
    return packed >> np.uint64(bits), positions


def _distinct_wide_pairs(numbers: np.ndarray, files: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct pairs in order, for numbers that leave no bits for the file."""
    order = np.argsort(numbers)
    numbers, positions = numbers[order], files[order]
    is_alike = np.zeros(len(numbers) + 1, dtype=bool)
    np.equal(numbers[1:], numbers[:-1], out=is_alike[1:-1])
    tied = np.flatnonzero(is_alike[1:] | is_alike[:-1])
    if not len(tied):
        return numbers, positions
    positions[tied] = positions[tied][np.lexsort((positions[tied], numbers[tied]))]
    is_new = np.ones(len(numbers), dtype=bool)
    is_new[1:] = (numbers[1:] != numbers[:-1]) | (positions[1:] != positions[:-1])
    return numbers[is_new], positions[is_new]


def _as_numbers(values: pa.Array) -> np.ndarray | None:
    """Return whole numbers in the order of the values, which determine them; None if impossible."""
    kind = values.type
    if pat.is_boolean(kind):
        return np.asarray(values.cast(pa.uint8()))
    if pat.is_date32(kind):
        return np.asarray(values.view(pa.int32()))
    if pat.is_temporal(kind):
        return np.asarray(values.view(pa.int64()))
    if pat.is_integer(kind):
        return np.asarray(values)
    if pat.is_floating(kind):
        zero = np.zeros(1, dtype=kind.to_pandas_dtype())  # adding it turns negative zero to zero
        return _flip((np.asarray(values) + zero).view(_whole_type(kind)))
    if pat.is_decimal(kind) and kind.precision <= 18:
        return _halves(values)[::2]
    return None


def _halves(values: pa.Array) -> np.ndarray:
    """Return the 64-bit halves of decimals, the lower first; it is enough for short ones."""
    buffer = values.buffers()[1]
    halves = np.frombuffer(buffer, dtype="<i8")
    return halves[2 * values.offset : 2 * (values.offset + len(values))]


def _whole_type(kind: pa.DataType) -> type[np.signedinteger]:
    return np.int32 if kind.bit_width == 32 else np.int64


def _flip(bits: np.ndarray) -> np.ndarray:
    """Turn the bits of floats into whole numbers of the same order, or back."""
    sign = np.iinfo(bits.dtype).max
    return np.where(bits < 0, bits ^ bits.dtype.type(sign), bits)


def _from_numbers(numbers: np.ndarray, kind: pa.DataType) -> pa.Array:
    if pat.is_boolean(kind):
        return pa.array(numbers.astype(bool))
    if pat.is_floating(kind):
        floats = _flip(numbers).view(np.float32 if kind.bit_width == 32 else np.float64)
        return pa.array(floats)
    if pat.is_decimal(kind):
        whole = np.empty(2 * len(numbers), dtype="<i8")
        whole[::2], whole[1::2] = numbers, numbers >> 63
        return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(whole)])
    if pat.is_temporal(kind):
        return pa.array(numbers).view(kind)
    return pa.array(numbers, kind)


def rank(values: pa.Array) -> Ranked:
    """Return the distinct values in order, and the position of each given one among them."""
    if is_repetitive(values):
        encoded = values.dictionary_encode()
        inner = _rank(encoded.dictionary)
        return Ranked(inner.distinct, inner.ranks[np.asarray(encoded.indices)])
    return _rank(values)


def _rank(values: pa.Array) -> Ranked:
    if pat.is_string(values.type) or pat.is_binary(values.type):
        order, is_new = _sort_texts(values)
    else:
        order = np.asarray(pc.sort_indices(values)).astype(np.int64)
        is_new = is_first(values.take(pa.array(order)))
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[order] = np.cumsum(is_new) - 1
    return Ranked(values.take(pa.array(order[is_new])), ranks)


def _sort_texts(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Sort texts by their bytes.

    They are sorted by the eight bytes after their common beginning; those that are still equal, by
    as many further bytes as fit into 64 bits beside the number of their group; and so on.

    Returns:
        The positions of the values in order, and for each whether its value differs from the one
        before.
    """
    count = len(values)
    order = np.arange(count)
    is_new = np.zeros(count, dtype=bool)
    is_new[:1] = True
    if not count:
        return order, is_new
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int32)
    offsets = offsets[values.offset : values.offset + count + 1].astype(np.int64)
    data = values.buffers()[2]
    bytes_ = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    # Eight bytes from any offset on are one number; the last ones need padding behind them.
    padded = np.zeros(len(bytes_) + 8, dtype=np.uint8)
    padded[: len(bytes_)] = bytes_
    eights = np.ndarray(shape=(len(padded) - 7,), dtype=">u8", buffer=padded, strides=(1,))
    starts, lengths = offsets[:-1], np.diff(offsets)
    at = _common_length(values)
    alike = order.copy()  # positions in `order` of texts that are equal so far
    groups = np.zeros(count, dtype=np.uint64)
    while len(alike):
        chosen = order[alike]
        lengths_left = lengths[chosen] - at
        width = (64 - int(groups[-1]).bit_length()) // 8
        is_over = lengths_left.max() <= 0
        if is_over:
            # They differ at most by zero bytes at the end: the shorter comes first.
            keys = (groups << np.uint64(32)) | lengths[chosen].astype(np.uint64)
        else:
            texts = eights[np.minimum(starts[chosen] + at, len(eights) - 1)].astype(np.uint64)
            missing = np.clip(8 - lengths_left, 0, 8).astype(np.uint64) * np.uint64(8)
            texts = np.where(missing < 64, texts >> missing << missing, np.uint64(0))
            keys = (
                texts
                if width == 8
                else (groups << np.uint64(8 * width)) | (texts >> np.uint64(64 - 8 * width))
            )
        within = np.argsort(keys)
        order[alike] = chosen[within]
        keys = keys[within]
        differs = keys[1:] != keys[:-1]
        is_new[alike[1:]] |= differs
        if is_over:
            break
        at += width
        tied = np.zeros(len(alike), dtype=bool)
        tied[1:] |= ~differs
        tied[:-1] |= ~differs
        starts_group = np.concatenate([[True], differs])
        alike, groups = alike[tied], np.cumsum(starts_group[tied]).astype(np.uint64)
        if len(groups):
            groups -= groups[0]
    return order, is_new


def _common_length(values: pa.Array) -> int:
    """Return the length of the common beginning of all texts, in bytes."""
    ends = pc.min_max(values.view(pa.binary()) if pat.is_string(values.type) else values)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    length = min(len(low), len(high))
    return next((i for i in range(length) if low[i] != high[i]), length)

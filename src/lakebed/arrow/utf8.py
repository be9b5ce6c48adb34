"""Texts of Arrow that are not UTF-8: Arrow stores them, and readers of other libraries crash."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as pat

from lakebed.errors import SchemaMismatchError

_SHOWN_BYTES = 40
# Measured: Arrow compares 0.7 GB/s of other texts than ASCII with UTF-8, which is twice the time of
# writing repeated ones to Parquet. It finds the distinct texts of a column five times as fast, as long
# as there are few. With 8,000 of them, a sample of 2,048 texts has 1,811.
_MANY_ROWS = 65_536
_SAMPLED = 2_048
_MOST_DISTINCT = 1_811
_REMEDY = (
    "Correct it before writing, such as with make_valid_utf8 in Spark, or give the field the type "
    "bytes."
)


def check_texts(array: pa.Array, place: str) -> None:
    """Check that the texts of a column, at any depth, are UTF-8.

    Args:
        array: The column of a batch.
        place: Name of the column.

    Raises:
        SchemaMismatchError: A text is not; the message names the row and the bytes.

    Cost:
        ASCII texts are read once, at the speed of memory.
    """
    path = _find_damage(array, place)
    if path is None:
        return
    low, high = 0, len(array)  # the first row that is damaged is between them
    while high - low > 1:
        middle = (low + high) // 2
        if _find_damage(array.slice(low, middle - low), place) is not None:
            high = middle
        else:
            low = middle
    row = array.slice(low, 1)
    path = _find_damage(row, place) or path
    where = f" in row {low + 1:,} of {len(array):,} of a batch" if len(array) > 1 else ""
    raise SchemaMismatchError(
        f"Column {path!r} has text that is not UTF-8{where}: {_first_damage(row)!r}.",
        hint=_REMEDY,
    )


def _find_damage(array: pa.Array, place: str) -> str | None:
    """Return the path of the part of a column that has damaged text; None without any."""
    kind = array.type
    if _is_text(kind):
        return None if _is_utf8(array) else place
    if not has_text(kind) or not len(array):
        return None
    for path, part in _parts(array, place):
        damaged = _find_damage(part, path)
        if damaged is not None:
            return damaged
    return None


def _parts(array: pa.Array, place: str) -> list[tuple[str, pa.Array]]:
    """Return the values inside of a column that are not below a null, with their paths."""
    kind = array.type
    if pat.is_dictionary(kind):
        # Damaged texts that no row has do not count.
        is_sound = _find_damage(array.dictionary, place) is None
        return [] if is_sound else [(place, array.dictionary_decode())]
    if pat.is_struct(kind):
        parts = array.flatten() if array.null_count else [array.field(i) for i in range(len(kind))]
        return [(f"{place}.{field.name}", part) for field, part in zip(kind, parts, strict=True)]
    if pat.is_map(kind):
        present = array.drop_null()
        start, end = (present.offsets[position].as_py() for position in (0, len(present)))
        keys, items = (part.slice(start, end - start) for part in (present.keys, present.items))
        return [(f"{place}{{key}}", keys), (f"{place}{{}}", items)]
    return [(f"{place}[]", array.flatten())]


def has_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are or hold texts."""
    if pat.is_dictionary(kind):
        return has_text(kind.value_type)
    if pat.is_map(kind):
        return has_text(kind.key_type) or has_text(kind.item_type)
    if pat.is_struct(kind):
        return any(has_text(field.type) for field in kind)
    if pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind):
        return has_text(kind.value_type)
    return _is_text(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind))


def _is_utf8(texts: pa.Array) -> bool:
    if not pat.is_string_view(texts.type) and _is_ascii(texts):
        return True
    if _is_repetitive(texts):
        texts = texts.unique()
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_repetitive(texts: pa.Array) -> bool:
    """Return whether a long column seems to have few distinct texts."""
    if len(texts) < _MANY_ROWS or pat.is_string_view(texts.type):
        return False
    rows = np.linspace(0, len(texts) - 1, _SAMPLED).astype(np.int64)
    return len(texts.take(pa.array(rows)).unique()) <= _MOST_DISTINCT


def _is_ascii(texts: pa.Array) -> bool:
    """Return whether all bytes of a column are ASCII; Arrow's own check is ten times slower."""
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return True
    width = np.int64 if pat.is_large_string(texts.type) else np.int32
    ends = np.frombuffer(offsets, width)[[texts.offset, texts.offset + len(texts)]]
    bytes_ = np.frombuffer(data, np.int8)[ends[0] : ends[1]]
    return not len(bytes_) or bool(bytes_.min() >= 0)


def _first_damage(array: pa.Array) -> bytes:
    """Return the first damaged text of a column that has one, cut to some bytes."""
    if not _is_text(array.type):
        parts = [part for _, part in _parts(array, "") if _find_damage(part, "") is not None]
        return _first_damage(parts[0])
    values: list[bytes | None] = array.cast(_as_bytes(array.type)).to_pylist()
    return next(
        value[:_SHOWN_BYTES] for value in values if value is not None and _is_damaged(value)
    )


def _is_damaged(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return True
    return False


def python_rows_with_damage(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as mappings, in which text that is not UTF-8 has lone surrogates.

    They stand for its bytes, as in `os.fsdecode`; no field of a dataset takes such a text.
    """
    try:
        return list(rows.to_pylist(maps_as_pydicts="lossy"))
    except UnicodeDecodeError:
        columns = [column.cast(_as_bytes(column.type)) for column in rows.columns]
        in_bytes = pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
        return [
            {field.name: _to_texts(row[field.name], field.type) for field in rows.schema}
            for row in in_bytes.to_pylist()
        ]


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """Return a type with bytes in place of all texts."""
    if pat.is_dictionary(kind):
        return _as_bytes(kind.value_type)
    if pat.is_map(kind):
        return pa.map_(_as_bytes(kind.key_type), _as_bytes(kind.item_type))
    if pat.is_struct(kind):
        return pa.struct([field.with_type(_as_bytes(field.type)) for field in kind])
    if pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind):
        return pa.large_list(_as_bytes(kind.value_type))
    return pa.large_binary() if _is_text(kind) else kind


def _to_texts(value: Any, kind: pa.DataType) -> Any:
    """Return a value of `_as_bytes` of a type with its texts."""
    if value is None:
        return None
    if pat.is_dictionary(kind):
        return _to_texts(value, kind.value_type)
    if pat.is_map(kind):
        return {_to_texts(k, kind.key_type): _to_texts(v, kind.item_type) for k, v in value}
    if pat.is_struct(kind):
        return {field.name: _to_texts(value[field.name], field.type) for field in kind}
    if isinstance(value, list):
        return [_to_texts(item, kind.value_type) for item in value]
    return value.decode("utf-8", "surrogateescape") if _is_text(kind) else value

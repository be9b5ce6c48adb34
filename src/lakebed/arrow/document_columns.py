"""JSON objects as columns: a decoder with a class of typed members for each schema."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import itertools
import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.conform import default_of
from lakebed.arrow.document_layouts import LayoutReader
from lakebed.arrow.documents import BAD_JSON, from_json
from lakebed.arrow.entities import check_field
from lakebed.arrow.reasons import VALUE_ERRORS
from lakebed.errors import InvalidInputError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.schema import (
    MISSING,
    TEXT,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Struct,
    Type,
)
from lakebed.model.values import FLOATS, INTEGERS, TIMES

_FIRST_DAY, _LAST_DAY = dt.date(1, 1, 1), dt.date(9999, 12, 31)  # the years of Python


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadColumns:
    """The columns of some documents.

    Attributes:
        columns: A column for each field, without the documents in question.
        numbers: Number of the document of each row; None if every document is a row.
        in_question: Numbers of the documents that have no row, ascending.
        others: For each further member, a mask of the rows that have a value in it.
    """

    columns: list[pa.Array]
    numbers: np.ndarray | None
    in_question: list[int]
    others: dict[str, np.ndarray]

    def without(self, is_bad: np.ndarray) -> ReadColumns:
        """Return the columns without some rows, whose documents are then in question."""
        if not is_bad.any():
            return self
        is_good = ~is_bad
        mask = pa.array(is_good)
        numbers = np.arange(len(is_bad)) if self.numbers is None else self.numbers
        return ReadColumns(
            columns=[column.filter(mask) for column in self.columns],
            numbers=numbers[is_good],
            in_question=sorted([*self.in_question, *numbers[is_bad].tolist()]),
            others={name: has_value[is_good] for name, has_value in self.others.items()},
        )


class ColumnReader:
    """Reads fields of JSON objects as columns, and reports the objects that it cannot vouch for.

    A row is exactly what the object gives when it is read as an entity: an object in question may
    fit as well, or not.

    >>> reader = ColumnReader([Field(name="n", type=Primitive(Kind.LONG))], is_closed=True)
    >>> read = reader.read([b'{"n": 1}', b'{"n": 1.5}', b'{"n": 2}'])
    >>> read.columns[0].to_pylist(), read.in_question
    ([1, 2], [1])
    """

    def __init__(
        self, fields: Sequence[Field], *, is_closed: bool, others: Collection[str] = ()
    ) -> None:
        """Prepare a decoder.

        Args:
            fields: Fields to read.
            is_closed: True if an object with a further member is in question.
            others: Names of further members that objects may have.
        """
        self._fields = tuple(fields)
        self._others = tuple(others)
        self._is_closed = is_closed
        self._layouts: dict[bool, LayoutReader] = {}
        document = _class_of(fields, is_closed=is_closed, others=self._others)
        # Floats become decimals only where a member is of any type.
        self._decode = msgspec.json.Decoder(document, float_hook=decimal.Decimal).decode

    def read_lines(self, data: bytes) -> ReadColumns:
        """Read documents that are lines, each with its newline."""
        if self._others:  # lines with further members have no layout
            return self.read(data.split(b"\n")[:-1])
        return read_by_layouts(data, self.layout_reader(), self.read)

    def layout_reader(self, *, has_keys: bool = False) -> LayoutReader:
        """Return a reader for the lines that have a layout, a cached one if possible."""
        reader = self._layouts.get(has_keys)
        if reader is None:
            defaults = [
                None
                if _is_required(member)
                else _to_column([_default_of(member)], member, np.zeros(1, bool), is_open=False)
                for member in self._fields
            ]
            reader = LayoutReader(self._fields, defaults, _times_of, has_keys=has_keys)
            self._layouts[has_keys] = reader
        return reader

    def read(self, documents: Sequence[bytes]) -> ReadColumns:
        """Read documents."""
        numbers, in_question = None, []
        try:
            objects = list(map(self._decode, documents))
        except BAD_JSON:
            objects, read_numbers = [], []
            for number, document in enumerate(documents):
                try:
                    objects.append(self._decode(document))
                    read_numbers.append(number)
                except BAD_JSON:
                    in_question.append(number)
            numbers = np.array(read_numbers, np.int64)
        is_bad = np.zeros(len(objects), bool)
        columns = [
            _to_column(_values_of(objects, i), member, is_bad, is_open=not self._is_closed)
            for i, member in enumerate(self._fields)
        ]
        others = {
            name: np.array([value is not None for value in _values_of(objects, i)], bool)
            for i, name in enumerate(self._others, len(self._fields))
        }
        read = ReadColumns(columns=columns, numbers=numbers, in_question=in_question, others=others)
        return read.without(is_bad)


def read_by_layouts(
    data: bytes, layouts: LayoutReader, read: Callable[[Sequence[bytes]], ReadColumns]
) -> ReadColumns:
    """Read lines, each with its newline.

    Args:
        data: The lines.
        layouts: Reads the lines that have a layout.
        read: Reads all other lines, which come without their newlines.
    """
    parts, rest = layouts.read(data)
    if not parts:
        return read(data.split(b"\n")[:-1])
    if not len(rest) and len(parts) == 1:
        return ReadColumns(columns=parts[0].columns, numbers=None, in_question=[], others={})
    numbers = [part.numbers for part in parts]
    columns = [part.columns for part in parts]
    in_question: list[int] = []
    if len(rest):
        lines = data.split(b"\n")
        others = read([lines[number] for number in rest.tolist()])
        columns.append(others.columns)
        numbers.append(rest if others.numbers is None else rest[others.numbers])
        in_question = rest[others.in_question].tolist()
    all_numbers = np.concatenate(numbers)
    order = np.argsort(all_numbers, kind="stable")
    return ReadColumns(
        columns=[
            pa.concat_arrays(pieces).take(pa.array(order)) for pieces in zip(*columns, strict=True)
        ],
        numbers=all_numbers[order] if in_question else None,
        in_question=in_question,
        others={},
    )


def column_reader(fields: tuple[Field, ...], *, is_closed: bool) -> ColumnReader:
    """Return a reader of these fields, a cached one if possible; see `ColumnReader`."""
    return _cached_reader(fields, repr(fields), is_closed)


@functools.lru_cache(maxsize=16)
def _cached_reader(
    fields: tuple[Field, ...],
    text: str,  # noqa: ARG001 - fields are equal whose defaults are 1 and True
    is_closed: bool,  # noqa: FBT001 - of a cache
) -> ColumnReader:
    return ColumnReader(fields, is_closed=is_closed)


def _values_of(objects: Sequence[Any], position: int) -> list[Any]:
    """Return the values of a member of objects that `_class_of` has made the class of."""
    return list(map(operator.attrgetter(f"f{position}"), objects))


def _class_of(fields: Sequence[Field], *, is_closed: bool, others: Sequence[str] = ()) -> Any:
    """Return a class whose members are fields, and others of any type."""
    members: list[Any] = []
    for i, member in enumerate(fields):
        type_ = _type_of(member.type, is_closed=is_closed)
        if member.nullable and type_ is not Any:
            type_ = type_ | None
        default = () if _is_required(member) else (_default_of(member),)
        members.append((f"f{i}", type_, *default))
    members += [(f"f{i}", Any, None) for i in range(len(fields), len(fields) + len(others))]
    names = [*(member.name for member in fields), *others]
    # Members get names of our own: a field may be called like a keyword of Python.
    return msgspec.defstruct(
        "Document",
        members,
        forbid_unknown_fields=is_closed,
        gc=False,
        kw_only=True,
        rename={f"f{i}": name for i, name in enumerate(names)},
    )


def _is_required(member: Field) -> bool:
    return not member.nullable and member.default is MISSING


def _default_of(member: Field) -> Any:
    """Return the default of a member, in the form that JSON has."""
    default = default_of(member)
    return default.isoformat() if isinstance(default, dt.date) else default


def _type_of(kind: Type, *, is_closed: bool) -> Any:
    """Return the type of JSON values that the decoder checks; `Any` where a conversion follows."""
    match kind:
        case Primitive(kind=kind_) if kind_ in FLOATS:
            return float
        case Primitive(kind=kind_) if kind_ in INTEGERS:
            return int
        case Primitive(kind=Kind.BOOLEAN):
            return bool
        case Primitive(kind=kind_) if kind_ is Kind.STRING or kind_ in TIMES:
            return str
        case ListOf(element, nullable):
            return list[_part_of(element, is_nullable=nullable, is_closed=is_closed)]  # type: ignore[misc]  # made at run time
        case MapOf(value, nullable, key) if key == TEXT:
            return dict[str, _part_of(value, is_nullable=nullable, is_closed=is_closed)]  # type: ignore[misc]  # same
        case Struct(fields):
            return _class_of(fields, is_closed=is_closed)
    return Any


def _part_of(kind: Type, *, is_nullable: bool, is_closed: bool) -> Any:
    part = _type_of(kind, is_closed=is_closed)
    return part | None if is_nullable and part is not Any else part


def _to_column(values: list[Any], member: Field, is_bad: np.ndarray, *, is_open: bool) -> pa.Array:
    """Return values as a column, and mark those in question."""
    try:
        column = _array_of(values, member.type)
    except (*VALUE_ERRORS, AttributeError):
        column = None
    if column is None:
        checked: list[Any] = []
        for i, value in enumerate(values):
            try:
                checked.append(_checked(value, member, is_open=is_open))
            except (InvalidInputError, *VALUE_ERRORS):
                is_bad[i] = True
                checked.append(None)
        column = pa.array(checked, type_to_arrow(member.type))
    if column.null_count and not member.nullable:
        is_bad |= column.is_null().to_numpy(zero_copy_only=False)
    return column


def _checked(value: Any, member: Field, *, is_open: bool) -> Any:
    """Return a decoded value in the form for Arrow, or null; raise an error if it does not fit."""
    if isinstance(member.type, ListOf | MapOf | Struct):
        value = msgspec.to_builtins(value, builtin_types=(decimal.Decimal,))
    value = from_json(value, member.type, member.name, is_open=is_open)
    return None if value is None else check_field(value, member)


def _array_of(values: Sequence[Any], kind: Type) -> pa.Array | None:
    """Return decoded values as an array; None, or an error, where each needs a look."""
    arrow_type = type_to_arrow(kind)
    match kind:
        case Primitive(kind=kind_) if kind_ in TIMES:
            return _times_of(pa.array(values, pa.string()), arrow_type)
        case Primitive(kind=kind_) if kind_ is not Kind.BYTES:
            array = pa.array(values, arrow_type)
            is_rounded = kind_ is Kind.FLOAT and pc.any(pc.is_inf(array)).as_py()
            return None if is_rounded else array
        case Struct(fields):
            return _structs_of(values, fields, arrow_type)
        case ListOf(element):
            mask, offsets = _extents_of(values)
            inner = _array_of(list(itertools.chain.from_iterable(v for v in values if v)), element)
            if inner is None:
                return None
            return pa.ListArray.from_arrays(offsets, inner, type=arrow_type, mask=mask)
        case MapOf(value, key=key) if key == TEXT:
            mask, offsets = _extents_of(values)
            present = [v for v in values if v]
            keys = pa.array(list(itertools.chain.from_iterable(present)), pa.string())
            items = _array_of([item for v in present for item in v.values()], value)
            if items is None:
                return None
            return pa.MapArray.from_arrays(offsets, keys, items, type=arrow_type, mask=mask)
    return None


def _extents_of(values: Sequence[Any]) -> tuple[pa.Array, pa.Array]:
    """Return a mask of nulls, and the offsets of lists or maps."""
    lengths = [0 if value is None else len(value) for value in values]
    offsets = np.concatenate([[0], np.cumsum(lengths)]) if lengths else [0]
    mask = pa.array([value is None for value in values], pa.bool_())
    return mask, pa.array(offsets, pa.int32())


def _structs_of(
    values: Sequence[Any], fields: Sequence[Field], arrow_type: pa.DataType
) -> pa.Array | None:
    is_null = [value is None for value in values]
    if any(is_null) and not all(member.nullable for member in fields):
        return None
    parts = []
    for i, member in enumerate(fields):
        getter = operator.attrgetter(f"f{i}")
        part = _array_of([v if v is None else getter(v) for v in values], member.type)
        if part is None:
            return None
        parts.append(part)
    mask = pa.array(is_null, pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=list(arrow_type), mask=mask)


def _times_of(texts: pa.Array, arrow_type: pa.DataType) -> pa.Array | None:
    """Return texts as days or times; None if one is outside of the years of Python."""
    try:
        times = texts.cast(arrow_type)
    except pa.ArrowInvalid:
        if getattr(arrow_type, "tz", None) is None:
            raise
        times = texts.cast(pa.timestamp("us")).cast(arrow_type)  # without a zone they are in UTC
    ends = pc.min_max(times)
    if not ends["min"].is_valid:
        return times
    first, last = (ends[name].cast(arrow_type) for name in ("min", "max"))
    lowest, highest = _ends_of_years(arrow_type)
    is_inside = pc.and_(pc.greater_equal(first, lowest), pc.less(last, highest))
    return times if is_inside.as_py() else None


@functools.lru_cache(maxsize=8)
def _ends_of_years(arrow_type: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    """Return the first time, and the first one that is too late."""
    days = pa.array([_FIRST_DAY, _LAST_DAY], pa.date32()).cast(pa.int32()).to_pylist()
    ends = pa.array([days[0], days[1] + 1], pa.int32()).cast(pa.date32())
    if not pa.types.is_date(arrow_type):
        ends = ends.cast(pa.timestamp("us")).cast(arrow_type)
    return ends[0], ends[1]

"""Conversion of data to a dataset's schema, with errors that name what does not fit."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from lakebed.arrow.reasons import reason_of
from lakebed.arrow.utf8 import check_texts
from lakebed.common.shown import counted, cut
from lakebed.errors import PartitionSpecError, SchemaMismatchError
from lakebed.model.arrow_types import field_to_arrow, type_from_arrow, type_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.drift import hint_for_type
from lakebed.model.names import nearest
from lakebed.model.partition import PartitionFunction
from lakebed.model.schema import (
    MISSING,
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
    has_limits,
)

# Which declared types take which given ones: only where every value stays itself.
_WIDENS = {
    Kind.LONG: {Kind.INT},
    Kind.UNSIGNED_LONG: {Kind.INT, Kind.LONG},  # a negative value is an error of the cast
    Kind.DOUBLE: {Kind.FLOAT, Kind.INT},
    Kind.FLOAT: set(),
}
# Which ones take others where each value of the data stays itself: the cast refuses a larger one.
_WIDENS_EXACTLY = {
    Kind.DOUBLE: {Kind.LONG, Kind.UNSIGNED_LONG},
    Kind.FLOAT: {Kind.INT, Kind.LONG, Kind.UNSIGNED_LONG},
}


def check_columns(names: Collection[str], descriptor: DatasetDescriptor) -> None:
    """Check the column names of data.

    Raises:
        SchemaMismatchError: A column is unknown, or one is missing that is neither nullable
            nor has a default.
        PartitionSpecError: The source of a partition function is missing.
    """
    check_shapes([tuple(names)], descriptor, descriptor.partition_by)


def check_shapes(
    shapes: Collection[tuple[str, ...]],
    descriptor: DatasetDescriptor,
    functions: Iterable[PartitionFunction] = (),
) -> None:
    """Check the columns of rows that need not all have the same ones.

    Args:
        shapes: Distinct tuples of column names.
        descriptor: Descriptor of the dataset that receives the data.
        functions: Functions whose sources must be present in some row: data without a source at
            all is a mistake. In a single row that lacks its source, it is null.

    Raises:
        SchemaMismatchError: A column is unknown, or one is missing that is neither nullable
            nor has a default.
        PartitionSpecError: The source of a partition function is missing.
    """
    schema = descriptor.schema
    # Fields of a submission's document need not be given as columns as well.
    derived = frozenset(field.name for field in descriptor.document_fields)
    for name in itertools.chain.from_iterable(shapes):
        if name not in schema:
            raise unknown_field(
                name,
                f"Unknown column {name!r} in the data.",
                _hint_for(name, schema),
            )
    known = derived.union(*shapes)
    for function in functions if shapes else ():
        whole = function.source.split(".")[0]  # of a field in a record, the record
        if function.takes_source and not known.intersection((function.source, whole)):
            raise PartitionSpecError(
                f"The data lacks {function.source!r}, the source of partition field "
                f"{function.name!r}.",
                hint="Add the column, with explicit nulls if it has no values.",
            )
    for field in schema:
        if field.nullable or field.default is not MISSING or field.name in derived:
            continue
        if not all(field.name in shape for shape in shapes):
            raise SchemaMismatchError(
                f"The data lacks column {field.name!r}, which is not nullable.",
                hint="Add the column, or make the field nullable.",
            )


def _hint_for(name: str, schema: Schema) -> str:
    renamed = schema.find_stored(name)
    if renamed is not None:
        return f"The field was renamed to {renamed.name!r}: rename the column."
    known = nearest(name, schema.names) or f"Fields are: {', '.join(schema.names)}."
    return f"{known} {adding(name)}"


def adding(name: str, kind: Kind = Kind.STRING) -> str:
    """Return the call that adds a column to a dataset, as a part of a hint."""
    return (
        f"To add the column: unknown='keep' in the write, also as an option of Spark's writer; or "
        f"evolve(lambda d: d.add_field({name!r}, '{kind}')); on the command line: lakebed schema add "
        f"DATASET {name} {kind}; or lakebed append --unknown keep."
    )


def unknown_field(path: str, message: str, hint: str) -> SchemaMismatchError:
    """Return the error for a field that data has and the dataset lacks."""
    error = SchemaMismatchError(message, hint=hint)
    error.unknown = path
    return error


def check_types(
    given: Schema, descriptor: DatasetDescriptor, *, may_lack_parts: bool = False
) -> None:
    """Check that every column of `given` has a type that its field accepts.

    Args:
        given: Fields of the data.
        descriptor: Descriptor of the dataset.
        may_lack_parts: Whether records may lack parts that are not nullable, since an update keeps
            the parts that its data lacks.

    Raises:
        SchemaMismatchError: A column has not; the message names it and both types.
    """
    for field in given:
        declared = descriptor.schema.get(field.name).type
        declared = narrowed(declared, field.type) if may_lack_parts else declared
        _check_type(field.type, declared, field.name)


def _check_type(given: Type, declared: Type, place: str, *, by_value: bool = False) -> None:
    """Check that a field accepts a type.

    Args:
        given: Type of the data.
        declared: Type of the field.
        place: Name of the field in errors.
        by_value: Whether a cast of Arrow follows, which refuses a value that would change.

    Raises:
        SchemaMismatchError: It does not; the message names the field and both types.
    """
    if given == declared:
        return None
    match given, declared:
        case Primitive(), Primitive() if declared.holds(given):
            return None
        case Primitive(kind=have), Primitive(kind=want) if have in _WIDENS.get(want, ()):
            return None
        case Primitive(kind=have), Primitive(kind=want) if by_value and have in _WIDENS_EXACTLY.get(
            want, ()
        ):
            return None
        case Decimal(), Decimal() if (
            given.scale <= declared.scale
            and given.precision - given.scale <= declared.precision - declared.scale
        ):
            return None
        case ListOf(), ListOf():
            return _check_type(given.element, declared.element, f"{place}[]", by_value=by_value)
        case MapOf(), MapOf():
            _check_type(given.key, declared.key, f"{place}{{key}}", by_value=by_value)
            return _check_type(given.value, declared.value, f"{place}{{}}", by_value=by_value)
        case Struct(), Struct():
            return _check_struct(given, declared, place, by_value=by_value)
    raise SchemaMismatchError(
        f"Column {place!r} is of type {given}, but the dataset's is {declared}.",
        hint=hint_for_type(place, given, declared),
    )


def narrowed(declared: Type, given: Type) -> Type:
    """Return a declared type with only those parts of records that data has.

    Lists and maps keep the whole type of their values: they are set as a whole.
    """
    if not (isinstance(declared, Struct) and isinstance(given, Struct)):
        return declared
    kinds = {field.name: field.type for field in given.fields}
    return Struct(
        tuple(
            replace(field, type=narrowed(field.type, kinds[field.name]))
            for field in declared.fields
            if field.name in kinds
        )
    )


def _check_plain(names: Iterable[str]) -> None:
    """Check that no column name has a dot: conditions use dots for nested fields."""
    for name in names:
        if "." in name:
            raise SchemaMismatchError(
                f"Column {name!r} of the data has a dot in its name, and no field has.",
                hint=f"Rename it, such as to {name.replace('.', '_')!r}, or drop it.",
            )


def _check_struct(given: Struct, declared: Struct, place: str, *, by_value: bool) -> None:
    known = {field.name: field for field in declared.fields}
    for field in given.fields:
        if field.name not in known:
            raise unknown_field(
                f"{place}.{field.name}",
                f"Unknown field '{place}.{field.name}' in the data.",
                nearest(field.name, known) or f"Fields are: {', '.join(known)}.",
            )
        _check_type(field.type, known[field.name].type, f"{place}.{field.name}", by_value=by_value)
    present = {field.name for field in given.fields}
    for name in known:
        if name not in present and not known[name].nullable:
            raise SchemaMismatchError(
                f"The data lacks field '{place}.{name}', which is not nullable.",
                hint="Add the field, or make it nullable.",
            )


class Conformer:
    """Converts record batches of one shape to the dataset's schema.

    Columns come in the order of the schema; nullable ones that the data lacks are null.
    """

    def __init__(
        self, given: pa.Schema, descriptor: DatasetDescriptor, *, is_partial: bool = False
    ) -> None:
        """Check the shape once.

        Args:
            given: Schema of the batches.
            descriptor: Descriptor of the dataset.
            is_partial: True if the batches keep the columns that they have: missing ones, and
                missing parts of records, are not filled in, and ones that the dataset lacks stay
                unchanged, after the others.

        Raises:
            SchemaMismatchError: It does not fit; see `check_columns` and `check_types`.
            PartitionSpecError: The source of a partition function is missing.
        """
        given_types = dict(zip(given.names, given.types, strict=True))
        if len(given_types) < len(given.names):
            name = next(name for name, count in Counter(given.names).items() if count > 1)
            raise SchemaMismatchError(
                f"Column {name!r} appears twice in the data.",
                hint="Drop or rename one of them.",
            )
        schema = descriptor.schema
        self._fields: tuple[Field, ...] = schema.fields
        self._others: tuple[str, ...] = ()
        if is_partial:
            self._fields = tuple(field for field in schema if field.name in given_types)
            self._others = tuple(name for name in given_types if name not in schema)
            _check_plain(self._others)
        else:
            check_columns(tuple(given_types), descriptor)
        # Types of the columns, with declared ones in place of null types.
        self._given: dict[str, pa.DataType] = {}
        fields = []
        for field in self._fields:
            if field.name in given_types:
                kind = _with_types_for_nulls(given_types[field.name], field.type)
                have = type_from_arrow(kind, place=field.name, strict_names=False)
                if is_partial:
                    field = replace(field, type=narrowed(field.type, have))
                _check_type(have, field.type, field.name, by_value=True)
                self._given[field.name] = kind
            fields.append(field)
        self._fields = tuple(fields)
        self._limited = frozenset(field.name for field in fields if _has_bounds(field.type))
        target = [field_to_arrow(field) for field in fields]
        self._target = pa.schema([*target, *(_decoded(given.field(name)) for name in self._others)])

    @property
    def target(self) -> pa.Schema:
        """The schema of the batches that `conform` returns."""
        return self._target

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch in the dataset's schema.

        Raises:
            SchemaMismatchError: A value does not survive the cast, a text is not UTF-8, or a
                field that is not nullable holds null.
        """
        columns = [self._column(batch, field) for field in self._fields]
        columns += [batch.column(name).cast(self._target.field(name).type) for name in self._others]
        for name, column in zip(self._target.names, columns, strict=True):
            check_texts(column, name)
        for field, column in zip(self._fields, columns, strict=False):
            if field.name in self._limited:
                check_limits(column, field.type, field.name)
        return pa.RecordBatch.from_arrays(columns, schema=self._target)

    def _column(self, batch: pa.RecordBatch, field: Field) -> pa.Array:
        target = self._target.field(field.name).type
        position = batch.schema.get_field_index(field.name)
        if position < 0:
            return pa.array([default_of(field)] * batch.num_rows, target)
        column = batch.column(position)
        given = self._given[field.name]
        if column.type != given:
            column = _cast(column, given, field)
        if _has_required_parts(field.type):
            # Before the cast, which would not name the part.
            check_nulls(column, field.type, field.name, nullable=field.nullable)
            column = _without_hidden_nulls(column, field.type)
        if column.type != target:
            if pat.is_decimal(column.type):
                # Before the cast, which would not name the value.
                wide = column.cast(pa.decimal256(76, column.type.scale))
                check_limits(wide, field.type, field.name)
            column = _cast(column, target, field)
        # Again, since a value of a dictionary may be null, which shows only now.
        check_nulls(column, field.type, field.name, nullable=field.nullable)
        return column


def _with_types_for_nulls(given: pa.DataType, declared: Type) -> pa.DataType:
    """Return a type of data with the declared types in place of null types, at any depth.

    Libraries give the null type to values that are all null, such as those of empty lists.
    """
    if pat.is_null(given):
        return _nullable(type_to_arrow(declared))
    if pat.is_dictionary(given) and pat.is_null(given.value_type):
        return _nullable(type_to_arrow(declared))
    match declared:
        case ListOf(element) if pat.is_large_list(given):
            inner = _with_types_for_nulls(given.value_type, element)
            return pa.large_list(given.value_field.with_type(inner))
        case ListOf(element) if pat.is_fixed_size_list(given):
            inner = _with_types_for_nulls(given.value_type, element)
            return pa.list_(given.value_field.with_type(inner), given.list_size)
        case ListOf(element) if pat.is_list(given):
            inner = _with_types_for_nulls(given.value_type, element)
            return pa.list_(given.value_field.with_type(inner))
        case MapOf(value) if pat.is_map(given):
            inner = _with_types_for_nulls(given.item_type, value)
            return pa.map_(given.key_field, given.item_field.with_type(inner))
        case Struct(fields) if pat.is_struct(given):
            kinds = {field.name: field.type for field in fields}
            return pa.struct(
                [
                    field.with_type(_with_types_for_nulls(field.type, kinds[field.name]))
                    if field.name in kinds
                    else field.with_type(pa.string())  # unknown, which is said with its name
                    for field in given
                ]
            )
    return given


def _nullable(kind: pa.DataType) -> pa.DataType:
    """Return a type without required parts: Arrow makes no null of a type that has some."""
    if pat.is_list(kind):
        return pa.list_(_nullable_field(kind.value_field))
    if pat.is_map(kind):
        return pa.map_(kind.key_type, _nullable_field(kind.item_field))
    if pat.is_struct(kind):
        return pa.struct([_nullable_field(field) for field in kind])
    return kind


def _nullable_field(field: pa.Field) -> pa.Field:
    return field.with_type(_nullable(field.type)).with_nullable(nullable=True)


def _decoded(field: pa.Field) -> pa.Field:
    """Return a field without its dictionary; where all values are null, it is text."""
    kind = field.type
    if pat.is_null(kind):
        return field.with_type(pa.string())
    return field.with_type(kind.value_type) if pat.is_dictionary(kind) else field


def _cast(column: pa.Array, target: pa.DataType, field: Field) -> pa.Array:
    try:
        return column.cast(target)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as exc:
        raise SchemaMismatchError(
            f"Column {field.name!r} of type {column.type} does not fit {field.type}: "
            f"{reason_of(exc)}.",
            hint="Cast or round it before writing; nothing is converted where a value could change.",
        ) from exc


def default_of(field: Field) -> object:
    """Return the value of a field in data that lacks it."""
    return None if field.default is MISSING else field.default


def check_nulls(array: pa.Array, kind: Type, place: str, *, nullable: bool) -> None:
    """Check, at any depth, that required values are not null.

    Raises:
        SchemaMismatchError: A required value is null; the message names the column or field.
    """
    if array.null_count and not nullable:
        raise SchemaMismatchError(
            f"Column {place!r} is not nullable, but {array.null_count} of {len(array)} values "
            "in a batch are null.",
            hint="Fill or drop them, or make the field nullable.",
        )
    if not _has_required_parts(kind):
        return
    present = array.drop_null()
    match kind:
        case ListOf(element, element_nullable):
            check_nulls(present.flatten(), element, f"{place}[]", nullable=element_nullable)
        case MapOf(value, value_nullable):
            start, end = (present.offsets[i].as_py() for i in (0, len(present)))
            items = present.items.slice(start, end - start)
            check_nulls(items, value, f"{place}{{}}", nullable=value_nullable)
        case Struct(fields) if pat.is_struct(array.type):
            for field in fields:
                if array.type.get_field_index(field.name) >= 0:
                    here = f"{place}.{field.name}"
                    part = present.field(field.name)
                    check_nulls(part, field.type, here, nullable=field.nullable)


def check_limits(array: pa.Array, kind: Type, place: str) -> None:
    """Check, at any depth, that values are in the bounds of their type.

    Texts are symbols of their enum, bytes have the size of their fixed, and decimals have no more
    digits than their precision: Arrow does not check the digits of an array that others made.

    Raises:
        SchemaMismatchError: A value is not; the message names it.
    """
    if not _has_bounds(kind):
        return
    present = array.drop_null()
    match kind:
        case Decimal(precision, scale):
            for extreme in pc.min_max(present).values():
                value = extreme.as_py()
                if value is not None and value.copy_abs() >= 10 ** (precision - scale):
                    raise SchemaMismatchError(
                        f"Value {value} does not fit column {place!r} of type {kind}.",
                        hint=f"At most {counted(precision - scale, 'digit')} may stand before the "
                        "decimal point. Correct the value, or widen the field with change_type.",
                    )
        case Primitive(symbols=symbols, size=size):
            if symbols:
                is_bad = pc.invert(pc.is_in(present, pa.array(symbols, present.type)))
                allowed = f"the symbols {', '.join(symbols)}"
            else:
                is_bad = pc.not_equal(pc.binary_length(present), size)
                allowed = f"values of {size} bytes"
            bad = present.filter(is_bad)
            if len(bad):
                raise SchemaMismatchError(
                    f"Value {bad[0].as_py()!r} does not fit column {place!r}, which takes "
                    f"{cut(allowed)}.",
                    hint="Correct the value, or update the schema of the dataset.",
                )
        case ListOf(element):
            check_limits(present.flatten(), element, f"{place}[]")
        case MapOf(value):
            start, end = (present.offsets[i].as_py() for i in (0, len(present)))
            check_limits(present.items.slice(start, end - start), value, f"{place}{{}}")
        case Struct(fields):
            for field in fields:
                check_limits(present.field(field.name), field.type, f"{place}.{field.name}")


def _has_bounds(kind: Type) -> bool:
    match kind:
        case Decimal():
            return True
        case ListOf(element) | MapOf(element):
            return _has_bounds(element)
        case Struct(fields):
            return any(_has_bounds(field.type) for field in fields)
    return has_limits(kind)


def _without_hidden_nulls(array: pa.Array, kind: Type) -> pa.Array:
    """Return the same values, without nulls in required parts of values that are null themselves.

    Such a part has no value, but Arrow neither casts it to its type nor writes it to a file.
    """
    if not _has_required_parts(kind):
        return array
    match kind:
        case Struct(fields) if pat.is_struct(array.type) and len(array.type):
            declared = {field.name: field for field in fields}
            before = [array.field(number) for number in range(len(array.type))]
            parts = []
            for field, part in zip(array.type, before, strict=True):
                known = declared.get(field.name)
                if known is not None:
                    part = _without_hidden_nulls(part, known.type)
                    part = part if known.nullable else _filled(part)
                parts.append(part)
            if all(part is same for part, same in zip(parts, before, strict=True)):
                return array
            made = [
                field.with_type(part.type) for field, part in zip(array.type, parts, strict=True)
            ]
            return pa.StructArray.from_arrays(parts, fields=made, mask=array.is_null())
        case ListOf(element) if not pat.is_map(array.type):
            before = array.flatten()
            values = _without_hidden_nulls(before, element)
            if values is before and array.values.null_count == before.null_count:
                return array
            inner = array.type.value_field.with_type(values.type)
            if pat.is_large_list(array.type):
                made = pa.large_list(inner)
                return pa.LargeListArray.from_arrays(_close_offsets(array), values, type=made)
            return pa.ListArray.from_arrays(_close_offsets(array), values, type=pa.list_(inner))
        case MapOf(value) if pat.is_map(array.type):
            offsets, pairs = _find_pairs(array)
            before = array.items.take(pairs)
            items = _without_hidden_nulls(before, value)
            if items is before and array.items.null_count == before.null_count:
                return array
            made = pa.map_(array.type.key_type, array.type.item_field.with_type(items.type))
            return pa.MapArray.from_arrays(offsets, array.keys.take(pairs), items, type=made)
    return array


def _close_offsets(array: pa.Array) -> pa.Array:
    """Return the begin of each list in an array without the values of null lists.

    Null for a list that is null.
    """
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
    kind = pa.int64() if pat.is_large_list(array.type) else pa.int32()
    offsets = pa.array(np.cumsum(np.concatenate([[0], lengths])), kind)
    is_there = pa.concat_arrays([array.is_valid(), pa.array([True])])
    return pc.if_else(is_there, offsets, pa.scalar(None, kind))


def _find_pairs(maps: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """Return the begin of each map as of `_close_offsets`, and the positions of the pairs.

    Arrow casts a map to a list only if no required part is null, also below a null.
    """
    positions = pa.array(np.arange(len(maps.items), dtype=np.int32))
    offsets = pa.array(maps.offsets.to_numpy())
    lists = pa.ListArray.from_arrays(offsets, positions, mask=maps.is_null())
    return _close_offsets(lists), lists.flatten()


def _filled(array: pa.Array) -> pa.Array:
    """Return an array in which an arbitrary value replaces each null."""
    if pat.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not array.null_count:
        return array
    # Arrow puts the empty value of a type below a record that is null.
    empty = pa.array([None], pa.struct([pa.field("part", array.type, nullable=False)])).field(0)
    places = np.arange(len(array))
    places[array.is_null().to_numpy(zero_copy_only=False)] = len(array)
    return pa.concat_arrays([array, empty]).take(pa.array(places))


def _has_required_parts(kind: Type) -> bool:
    match kind:
        case ListOf(element, nullable) | MapOf(element, nullable):
            return not nullable or _has_required_parts(element)
        case Struct(fields):
            return any(not f.nullable or _has_required_parts(f.type) for f in fields)
    return False


def with_one_zero_and_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in which values that Spark takes for equal are equal in Arrow.

    Arrow groups by bytes: two forms for zero, and many for NaN. Columns of other types are returned
    unchanged.
    """
    if not pa.types.is_floating(column.type):
        return column
    is_nan = pc.is_nan(column)
    column = pc.add(column, pa.scalar(0, column.type))
    return pc.if_else(is_nan, pa.scalar(math.nan, column.type), column)

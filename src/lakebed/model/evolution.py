"""Rules for changes of a dataset: data that was written must stay readable, as it was.

Pure functions of descriptors and schemas. A new schema is checked against every earlier one of the
dataset, since it may fit its predecessor but not an older schema that live files still have.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence

from lakebed.errors import InvalidInputError, PartitionSpecError, SchemaMismatchError
from lakebed.model import publishing, retention
from lakebed.model.allowed import DEFAULT_CAP, OneOf, includes
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import BatchIds
from lakebed.model.partition import Dimension, PartitionFunction
from lakebed.model.partition.function import find_type
from lakebed.model.renaming import check_renames, named_as, renames, schema_named_as
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
    limits_of,
)

# Only types that hold every value exactly: a double does not hold every long.
_PROMOTIONS = {
    Kind.INT: frozenset({Kind.LONG, Kind.DOUBLE}),
    Kind.FLOAT: frozenset({Kind.DOUBLE}),
    Kind.DATE: frozenset({Kind.TIMESTAMP_NTZ}),
}
# For provided partition fields, whose values are stored in the paths as text.
_HOLDS = {
    Kind.INT: frozenset({Kind.INT, Kind.LONG, Kind.STRING}),
    Kind.LONG: frozenset({Kind.LONG, Kind.STRING}),
    Kind.STRING: frozenset({Kind.STRING}),
}


def check_update(
    old: DatasetDescriptor, new: DatasetDescriptor, schemas: Mapping[int, Schema]
) -> None:
    """Check that a dataset may change to a new descriptor.

    Properties may change freely, except the form of batch ids. The compression may change unless
    it is part of the names of files.

    Args:
        old: The current descriptor.
        new: The new descriptor, with stored names.
        schemas: All schemas that the dataset has had, by number.

    Raises:
        InvalidInputError: The format differs, or a compression that is part of the names of
            files; or new batch ids would be lower than the existing ones; or a property of
            publication or retention is wrong, or does not fit.
        PartitionSpecError: The rules do not allow the change of the partitions.
        SchemaMismatchError: Data of one of the schemas could not be read as it was.
    """
    new.check()
    publishing.check(new.properties, old.properties)
    retention.check(new, old)
    check_renames(old, new)
    if old.format != new.format:
        raise InvalidInputError(
            f"The format of a dataset cannot change from {old.format} to {new.format}.",
            hint="Create a dataset of the new format and append the rows of this one.",
        )
    if old.file_suffix != new.file_suffix:
        raise InvalidInputError(
            f"The compression of {old.format} cannot change from {old.compression} to "
            f"{new.compression}: it is part of the names of the files.",
            hint="Create a dataset of the new compression and append the rows of this one.",
        )
    _check_batch_ids(old, new)
    check_partitioning(named_as(old, new.schema), new)
    for number, schema in sorted(schemas.items()):
        check_schema(schema_named_as(schema, new.schema), new.schema, number)


def fields_left_out(old: Schema, new: Schema, dropped: Collection[str]) -> tuple[str, ...]:
    """Return the top-level fields of the current schema that a new one lacks, except dropped ones.

    Args:
        old: The current schema.
        new: The new schema, with stored names.
        dropped: Columns of the fields that may be missing.
    """
    kept = {field.stored_name for field in new}
    return tuple(
        field.name
        for field in old
        if field.stored_name not in kept and field.stored_name not in dropped
    )


def _check_batch_ids(old: DatasetDescriptor, new: DatasetDescriptor) -> None:
    former, form = BatchIds.named_by(old.properties), BatchIds.named_by(new.properties)
    now = dt.datetime.now(dt.UTC)
    if form.of(now) < former.of(now):
        raise InvalidInputError(
            f"Batch ids cannot change from {former} to {form}, which are lower numbers: ids grow.",
            hint="The form is chosen when a dataset is created.",
        )


def check_partitioning(
    old: DatasetDescriptor, new: DatasetDescriptor, *, grown: Collection[str] = ()
) -> None:
    """Check that old directories have the same meaning under the new strategy.

    Args:
        old: The descriptor of the directories.
        new: The descriptor with the new strategy.
        grown: Dimensions that may allow more, see `grown_dimensions`: only their `OTHER` has
            another meaning.

    Raises:
        PartitionSpecError: The meaning differs.
    """
    before, after = old.partition_by.functions, new.partition_by.functions
    if len(before) != len(after):
        raise PartitionSpecError(
            f"The partitions of a dataset cannot change from {_named(before)} to {_named(after)}.",
            hint="Create a dataset with the new partitions and append the rows of this one.",
        )
    for former, function in zip(before, after, strict=True):
        if former != function and former.name not in grown:
            _check_replacement(former, function, old, new)
        elif former.type_name != "provided":
            _check_source(former, old.schema, new.schema)


def _named(functions: Sequence[PartitionFunction]) -> str:
    return f"({', '.join(str(function) for function in functions)})" if functions else "none"


def _check_replacement(
    former: PartitionFunction,
    function: PartitionFunction,
    old: DatasetDescriptor,
    new: DatasetDescriptor,
) -> None:
    if former.type_name == "provided" and former.name == function.name:
        have, want = old.partition_types[former.name], new.partition_types[former.name]
        if (
            isinstance(have, Primitive)
            and isinstance(want, Primitive)
            and want.kind in _HOLDS.get(have.kind, ())
        ):
            return
        raise PartitionSpecError(
            f"Partition field {former.name!r} holds provided values of type {have}; "
            f"{function} of type {want} cannot hold them.",
            hint="int may become int, long or string; long may become long or string.",
        )
    raise PartitionSpecError(
        f"Partition function {former} cannot become {function}.",
        hint="Only a provided function may be replaced, by one of the same name; and a dimension "
        "may allow more values, by promote.",
    )


def grown_dimensions(old: DatasetDescriptor, new: DatasetDescriptor) -> tuple[str, ...]:
    """Return the partition fields of dimensions that allow more under the new descriptor."""
    return tuple(
        former.name
        for former, function in zip(old.partition_by, new.partition_by, strict=False)
        if former != function
        and isinstance(former, Dimension)
        and isinstance(function, Dimension)
        and _has_grown(former, function, old.schema)
    )


def has_partitions_of(descriptor: DatasetDescriptor, declared: DatasetDescriptor) -> bool:
    """Return whether a dataset has the declared partitions; its dimensions may allow more."""
    grown = grown_dimensions(declared, descriptor)
    return len(descriptor.partition_by) == len(declared.partition_by) and all(
        wanted == function or wanted.name in grown
        for wanted, function in zip(declared.partition_by, descriptor.partition_by, strict=True)
    )


def _has_grown(old: Dimension, new: Dimension, schema: Schema) -> bool:
    if (old.name, old.source) != (new.name, new.source):
        return False
    kind = old.source_type(schema)
    if not includes(new.bound(kind), old.bound(kind)):
        return False
    is_capped = not isinstance(new.allowed, OneOf) and not isinstance(old.allowed, OneOf)
    return not is_capped or (new.cap or DEFAULT_CAP) >= (old.cap or DEFAULT_CAP)


def _check_source(function: PartitionFunction, old: Schema, new: Schema) -> None:
    have, want = find_type(old, function.source), find_type(new, function.source)
    is_same = isinstance(have, Primitive) and isinstance(want, Primitive) and want.holds(have)
    if have != want and not is_same:  # an int is hashed, and stands in paths, as a tinyint
        raise PartitionSpecError(
            f"Field {function.source!r} of type {have} is the source of partition function "
            f"{function}; it cannot become {want or 'missing'}.",
            hint="Partitions of old rows were computed from the old type.",
        )


def check_schema(old: Schema, new: Schema, number: int) -> None:
    """Check that data of `old` can be read as data of `new`, with every value as it was.

    Args:
        old: The schema that data was written with.
        new: The schema that data is read with.
        number: The number of the old schema, for the message.

    Raises:
        SchemaMismatchError: The data cannot be read; the message names the field and the reason.
    """
    _check_record(old.fields, new.fields, "", number)


def _check_record(old: Sequence[Field], new: Sequence[Field], place: str, number: int) -> None:
    before = {field.name: field for field in old}
    after = {field.name for field in new}
    for field in new:
        here = f"{place}{field.name}"
        was = before.get(field.name)
        if was is None:
            if not field.nullable and field.default is MISSING:
                missing = [f"{place}{f.name}" for f in old if f.name not in after]
                renamed = (
                    f" If it is {', '.join(map(repr, missing))} under a new name, use "
                    "DatasetDescriptor.rename_field."
                    if missing
                    else ""
                )
                raise SchemaMismatchError(
                    f"Field {here!r} is missing in schema {number}, is not nullable and has no "
                    "default.",
                    hint=f"Make it nullable, or give it a default.{renamed}",
                )
            continue
        _check_nullable(was.nullable, field.nullable, here, number)
        _check_type(was.type, field.type, here, number)


def _check_nullable(old: bool, new: bool, place: str, number: int) -> None:  # noqa: FBT001 - a pair
    if old and not new:
        raise SchemaMismatchError(
            f"Field {place!r} is nullable in schema {number} and cannot become required.",
            hint="Leave it nullable: rows that were written may hold null.",
        )


def _check_type(old: Type, new: Type, place: str, number: int) -> None:
    if old == new and not (has_limits(old) or has_limits(new)):
        return None
    match old, new:
        case Primitive(), Primitive() if old == new:
            return _check_limits(old, new, place, number)
        case Primitive(), Primitive() if new.holds(old):
            return None
        case Primitive(kind=have), Primitive(kind=want) if want in _PROMOTIONS.get(have, ()):
            return None
        case Decimal(), Decimal() if (
            old.scale <= new.scale and old.precision - old.scale <= new.precision - new.scale
        ):
            return None
        case ListOf(), ListOf():
            _check_nullable(old.element_nullable, new.element_nullable, f"{place}[]", number)
            return _check_type(old.element, new.element, f"{place}[]", number)
        case MapOf(), MapOf() if old.key == new.key:
            _check_nullable(old.value_nullable, new.value_nullable, f"{place}{{}}", number)
            return _check_type(old.value, new.value, f"{place}{{}}", number)
        case Struct(), Struct():
            return _check_record(old.fields, new.fields, f"{place}.", number)
    raise SchemaMismatchError(
        f"Field {place!r} is of type {old} in schema {number} and cannot become {new}.",
        hint="tinyint may become smallint or int, smallint int, each of them long or double, float "
        "double, date timestamp_ntz, a decimal one of "
        "more digits; keys of maps stay. Add a field of another name for anything else.",
    )


def _check_limits(old: Primitive, new: Primitive, place: str, number: int) -> None:
    """Check that an enum keeps its symbols, and a fixed its size; both may become unlimited."""
    lost = [symbol for symbol in old.symbols if symbol not in new.symbols]
    is_narrower = bool(new.symbols) and (not old.symbols or bool(lost))
    if is_narrower or (new.size is not None and new.size != old.size):
        raise SchemaMismatchError(
            f"Field {place!r} takes more values in schema {number}: rows may hold "
            f"{', '.join(lost) or 'others'}.",
            hint="Add symbols to an enum, or make it a string; a fixed may become bytes.",
        )


def changes(old: Schema, new: Schema) -> tuple[str, ...]:
    """Return the differences of two schemas as text, field by field.

    >>> number = Field(name="n", type=Primitive(Kind.INT))
    >>> wide = Field(name="n", type=Primitive(Kind.LONG))
    >>> text = Field(name="s", type=Primitive(Kind.STRING))
    >>> changes(Schema(fields=(number,)), Schema(fields=(wide, text)))
    ('n: int to long', '+s: string')
    """
    moved = renames(old, new)
    differences = [f"{before} renamed to {after}" for before, after in moved.items()]
    old = schema_named_as(old, new)
    differences += [f"-{field.name}" for field in old if field.name not in new]
    for field in new:
        was = old.find(field.name)
        if was is None:
            differences.append(f"+{field.name}: {field.type}")
            continue
        if str(was.type) != str(field.type):
            differences.append(f"{field.name}: {was.type} to {field.type}")
        elif was.type != field.type:
            differences.append(f"{field.name}: fields inside")
        elif limits_of(was.type) != limits_of(field.type):
            differences.append(f"{field.name}: allowed values")
        if was.nullable != field.nullable:
            differences.append(f"{field.name}: nullable")
        if was.default != field.default:
            differences.append(f"{field.name}: default")
        if was.doc != field.doc:
            differences.append(f"{field.name}: doc")
    if not differences and old.names != new.names:
        differences.append("order")
    return tuple(differences)

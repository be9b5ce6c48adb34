"""The schema of a dataset as an Iceberg table: columns with ids, partitions, properties. No I/O."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal as Number
from typing import Any

from pyiceberg import types as iceberg
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table.name_mapping import MappedField, NameMapping, parse_mapping_from_json
from pyiceberg.transforms import IdentityTransform

from lakebed.errors import InvalidInputError
from lakebed.model.field_ids import MAX_ID, widens
from lakebed.model.keys import BATCH_ID
from lakebed.model.lineage import Lineage
from lakebed.model.schema import (
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Struct,
    Type,
)
from lakebed.model.values import EPOCH, Scalar
from lakebed.state.published import number_at
from lakebed.state.state import State
from lakebed.tables import shown_facts

DATASET, CREATED, ROOT = "lakebed.dataset", "lakebed.created-at", "lakebed.root"
VERSION, COMMIT, SCHEMA = "lakebed.version", "lakebed.commit-id", "lakebed.schema"
FIELD_IDS = "lakebed.field-ids"  # "files": the columns have the ids of the data files
BEGINS_AT = "lakebed.begins-at"  # number of the first metadata file; 1 without the property
NAME_MAPPING = "schema.name-mapping.default"

_KINDS: Mapping[Kind, Callable[[], iceberg.PrimitiveType]] = {
    Kind.BOOLEAN: iceberg.BooleanType,
    Kind.INT: iceberg.IntegerType,
    Kind.LONG: iceberg.LongType,
    Kind.FLOAT: iceberg.FloatType,
    Kind.DOUBLE: iceberg.DoubleType,
    Kind.STRING: iceberg.StringType,
    Kind.BYTES: iceberg.BinaryType,
    Kind.DATE: iceberg.DateType,
    Kind.TIMESTAMP: iceberg.TimestamptzType,
    Kind.TIMESTAMP_NTZ: iceberg.TimestampType,
}
_EPOCH_DAY = EPOCH.date()
_MICROSECOND = dt.timedelta(microseconds=1)


def number_in(properties: Mapping[str, str], name: str, default: int) -> int:
    """Return a property as a number; the default if it is not a number of at most 18 digits."""
    number = number_at(properties.get(name, ""))
    return default if number is None else number


def levels_of(state: State, *, hides_batch_id: bool) -> tuple[str, ...]:
    """Return the levels of directories that are columns and partition fields of the table."""
    return tuple(
        name for name in state.layout.partition_types if name != BATCH_ID or not hides_batch_id
    )


def columns_of(state: State, levels: Sequence[str]) -> tuple[Field, ...]:
    """Return the columns under which a dataset is published.

    Directory levels become columns too; those of derived functions and of the batch come last. All
    of them are nullable: data files lack them, and pyiceberg 0.12 rejects a file that lacks a
    required column before it looks for the partition value.

    Args:
        state: State of the dataset.
        levels: Levels of directories that become columns.

    Raises:
        InvalidInputError: Iceberg cannot express a field; the message names it.
    """
    shown_facts.check_format(state, "Iceberg")
    shown_facts.check_partition_types(state, "Iceberg")
    declared = state.descriptor.schema
    types = state.layout.partition_types
    derived = (Field(name=name, type=types[name]) for name in levels if name not in declared)
    own = (replace(field, nullable=True) if field.name in levels else field for field in declared)
    fields = (*own, *derived)
    shown_facts.check_cases(state, fields, "Iceberg")
    return fields


def schema_of(
    fields: tuple[Field, ...],
    lineage: Lineage,
    old: IcebergSchema | None,
    *,
    shown: int,
    used: int,
    ids: Mapping[str, int] | None = None,
    mapping: str | None = None,
) -> IcebergSchema:
    """Return the columns with ids: those of the data files, where these have ids.

    Else a column that is still the same keeps its id. A field that was dropped and added again gets
    a new id. So does a field whose new type Iceberg cannot widen the old one to: no live file has
    the old type any more.

    Args:
        fields: Columns of the table.
        lineage: Lineage of the dataset's schema.
        old: The present schema of the table; None if the table does not exist.
        shown: Number of the dataset's schema that the table last showed.
        used: The highest id that was ever assigned.
        ids: Ids in the data files, by path; None if the files of the dataset have none.
        mapping: The mapping from names in data files to ids, as text of its property; None for one
            by the names of columns.
    """
    columns = _Columns(lineage, old, shown, used, ids)
    schema = columns.schema(fields, _held_names(mapping))
    return assign_fresh_schema_ids(schema) if old is None and ids is None else schema


def paths_of(schema: IcebergSchema, renamed: Mapping[str, str] | None = None) -> dict[str, int]:
    """Return the ids of a table's columns by path, as of `lakebed.model.field_ids.FieldIds`.

    Args:
        schema: Schema of the table.
        renamed: Names that data files have for renamed columns, to return the paths in files.
    """
    ids: dict[str, int] = {}
    names = renamed or {}

    def collect(kind: iceberg.IcebergType, path: str) -> None:
        match kind:
            case iceberg.StructType(fields=fields):
                for member in fields:
                    own = names.get(member.name, member.name)
                    here = f"{path}.{member.name}" if path else own
                    ids[here] = member.field_id
                    collect(member.field_type, here)
            case iceberg.ListType(element_id=element, element_type=inner):
                ids[f"{path}[]"] = element
                collect(inner, f"{path}[]")
            case iceberg.MapType(key_id=key, value_id=value, value_type=inner):
                ids[f"{path}{{key}}"], ids[f"{path}{{}}"] = key, value
                collect(inner, f"{path}{{}}")

    collect(schema.as_struct(), "")
    return ids


def _held_names(mapping: str | None) -> dict[int, str]:
    """Return the names that data files have for columns, by id."""
    columns = [] if mapping is None else parse_mapping_from_json(mapping).root
    return {one.field_id: one.names[0] for one in columns if one.field_id is not None and one.names}


def name_mapping_of(
    schema: IcebergSchema, renamed: Mapping[str, str], dropped: Sequence[Field], old: str | None
) -> NameMapping:
    """Return the mapping from names in data files to ids, for files that hold no ids.

    Readers look up every column of such a file here, even those that the table no longer has.
    Those have ids that no column of the table ever gets.

    Args:
        schema: Schema of the table.
        renamed: Names that data files have for renamed columns.
        dropped: Columns that older files may hold, by their names there.
        old: The present mapping of the table, as text of its property.
    """
    mapped = [
        column.model_copy(update={"names": [renamed.get(name, name) for name in column.names]})
        for column in schema.name_mapping.root
    ]
    names = {name for column in mapped for name in column.names}
    taken = set(_ids(mapped))
    before = [] if old is None else parse_mapping_from_json(old).root
    numbers = itertools.count(max((MAX_ID, *_ids(before))) + 1)
    for column in before:
        if names.isdisjoint(column.names):
            # An earlier release may have given it an id that a column of the dataset has got since.
            is_free = taken.isdisjoint(_ids([column]))
            mapped.append(column if is_free else _renumbered(column, numbers))
            names.update(column.names)
    unmapped = tuple(field for field in dropped if field.name not in names)
    if unmapped:
        columns = _Columns(Lineage(), None, 0, next(numbers) - 1).schema(unmapped)
        mapped += columns.name_mapping.root
    return NameMapping(mapped)


def _renumbered(column: MappedField, numbers: Iterator[int]) -> MappedField:
    fields = [_renumbered(inner, numbers) for inner in column.fields]
    return column.model_copy(update={"field_id": next(numbers), "fields": fields})


def highest_id(mapping: str | None) -> int:
    """Return the highest id in a mapping that a column of the table may have had."""
    if mapping is None:
        return 0
    ids = _ids(parse_mapping_from_json(mapping).root)
    return max((number for number in ids if number <= MAX_ID), default=0)


def _ids(mapped: Iterable[MappedField]) -> Iterator[int]:
    for column in mapped:
        if column.field_id is not None:
            yield column.field_id
        yield from _ids(column.fields)


class _Columns:
    def __init__(
        self,
        lineage: Lineage,
        old: IcebergSchema | None,
        shown: int,
        used: int,
        ids: Mapping[str, int] | None = None,
    ) -> None:
        self._lineage = lineage
        self._old = old
        self._shown = shown
        self._next = itertools.count(used + 1)
        self._ids = ids

    def schema(
        self, fields: tuple[Field, ...], held: Mapping[int, str] | None = None
    ) -> IcebergSchema:
        """Return the columns with ids.

        Args:
            fields: Columns of the table.
            held: Names that data files have for the present columns, by id.
        """
        names, old = held or {}, () if self._old is None else self._old.fields
        before = {names.get(field.field_id, field.name): field for field in old}
        schema_id = 0 if self._old is None else self._old.schema_id + 1
        return IcebergSchema(*self._fields(fields, before, ""), schema_id=schema_id)

    def _fields(
        self, fields: tuple[Field, ...], before: Mapping[str, iceberg.NestedField], parent: str
    ) -> Iterator[iceberg.NestedField]:
        for field in fields:
            path = f"{parent}{field.name}"
            old = before.get(field.stored_name)
            addition = self._lineage.additions.get(path)
            if addition is not None and addition.since > self._shown:
                old = None
            if old is not None and not _is_same(old.field_type, field.type):
                old = None
            field_id = self._id(path, None if old is None else old.field_id)
            yield iceberg.NestedField(
                field_id=field_id,
                name=field.name,
                field_type=self._type(field.type, None if old is None else old.field_type, path),
                required=not field.nullable,
                doc=field.doc or None,
            )

    def _id(self, path: str, old: int | None) -> int:
        if self._ids is not None:
            return self._ids[path]
        return next(self._next) if old is None else old

    def _type(self, kind: Type, old: iceberg.IcebergType | None, path: str) -> iceberg.IcebergType:
        match kind:
            case Primitive(kind=primitive):
                if primitive not in _KINDS:
                    raise InvalidInputError(
                        f"Field {path!r} is of type {kind}, which Iceberg does not have.",
                        hint="Store it as long, or as decimal(20, 0) where it is above 2^63.",
                    )
                return _KINDS[primitive]()
            case Decimal(precision=precision, scale=scale):
                return iceberg.DecimalType(precision, scale)
            case ListOf(element=element, element_nullable=nullable):
                was = old if isinstance(old, iceberg.ListType) else None
                return iceberg.ListType(
                    element_id=self._id(f"{path}[]", was.element_id if was else None),
                    element_type=self._type(
                        element, was.element_type if was else None, f"{path}[]"
                    ),
                    element_required=not nullable,
                )
            case MapOf(value=value, value_nullable=nullable, key=key):
                had = old if isinstance(old, iceberg.MapType) else None
                return iceberg.MapType(
                    key_id=self._id(f"{path}{{key}}", had.key_id if had else None),
                    key_type=self._type(key, None, f"{path}{{key}}"),
                    value_id=self._id(f"{path}{{}}", had.value_id if had else None),
                    value_type=self._type(value, had.value_type if had else None, f"{path}{{}}"),
                    value_required=not nullable,
                )
            case Struct(fields=fields):
                before = (
                    {f.name: f for f in old.fields} if isinstance(old, iceberg.StructType) else {}
                )
                return iceberg.StructType(*self._fields(fields, before, f"{path}."))


def _is_same(old: iceberg.IcebergType, new: Type) -> bool:
    """Return whether a column may change from one type to the other and keep its id."""
    match new:
        case Primitive(kind=kind):
            return any(
                old == make()
                for before, make in _KINDS.items()
                if before == kind or widens(Primitive(before), new)
            )
        case Decimal(precision=precision, scale=scale):
            return (
                isinstance(old, iceberg.DecimalType)
                and old.scale == scale
                and old.precision <= precision
            )
        case ListOf():
            return isinstance(old, iceberg.ListType)
        case MapOf(key=key):
            return isinstance(old, iceberg.MapType) and _is_same(old.key_type, key)
        case Struct():
            return isinstance(old, iceberg.StructType)


def spec_of(schema: IcebergSchema, names: tuple[str, ...]) -> PartitionSpec:
    """Return the partition spec: the identity of each directory level."""
    return PartitionSpec(
        *(
            PartitionField(
                source_id=schema.find_field(name).field_id,
                field_id=PARTITION_FIELD_ID_START + position,
                transform=IdentityTransform(),
                name=name,
            )
            for position, name in enumerate(names)
        )
    )


def internal(value: Scalar) -> Any:
    """Return a value as Iceberg's metadata stores it."""
    if isinstance(value, dt.datetime):
        epoch = EPOCH if value.tzinfo is not None else EPOCH.replace(tzinfo=None)
        return (value - epoch) // _MICROSECOND
    if isinstance(value, dt.date):
        return (value - _EPOCH_DAY).days
    return value


def bound(kind: iceberg.PrimitiveType, value: Scalar) -> bytes:
    """Return the bytes of a bound."""
    if isinstance(kind, iceberg.DecimalType):
        assert isinstance(value, Number)
        return to_bytes(kind, value)
    return to_bytes(kind, internal(value))

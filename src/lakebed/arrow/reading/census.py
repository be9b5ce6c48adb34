"""The census of fields that raw files have and the dataset lacks, and the schema with them added."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyarrow import types as pat

from lakebed.arrow.conform import check_types
from lakebed.arrow.reading.unknown import LIST, MAP, holds_value
from lakebed.errors import InvalidInputError, InvalidNameError, SchemaMismatchError
from lakebed.model.arrow_types import schema_from_arrow
from lakebed.model.avro import MAX_DEPTH, schema_from_avro, schema_to_avro
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.names import check_field_name
from lakebed.model.schema import Field, Kind, ListOf, MapOf, Primitive, Schema, Struct, Type

_BETWEEN = "\x1f"  # of the parts of a path; no name has it
_TYPED = "avro:"  # prefix of a whole type
_FAMILIES = {"long": "number", "double": "number", "inexact": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """Values of fields that the dataset lacks. Travels from Spark tasks.

    Attributes:
        counts: For each path of a field, or of a part of one: the number of values by kind.
    """

    counts: dict[str, dict[str, int]] = field(default_factory=dict)

    def note(self, path: tuple[str, ...], kind: str, count: int = 1) -> None:
        """Count values of a kind."""
        kinds = self.counts.setdefault(_BETWEEN.join(path), {})
        kinds[kind] = kinds.get(kind, 0) + count

    def add(self, other: Census) -> None:
        """Add the counts of another census."""
        for path, kinds in other.counts.items():
            for kind, count in kinds.items():
                self.note(tuple(path.split(_BETWEEN)), kind, count)

    def note_documents(
        self, documents: Iterable[Mapping[str, Any]], fields: Sequence[Field], skip: Iterable[str]
    ) -> None:
        """Count the values of JSON objects outside of known fields.

        Args:
            documents: Objects to inspect.
            fields: Fields of the dataset.
            skip: Names of members that are not fields.
        """
        skipped = frozenset(skip)
        for document in documents:
            given = {key: value for key, value in document.items() if key not in skipped}
            self._note_known(given, Struct(tuple(fields)), ())

    def _note_known(self, value: Any, kind: Type, path: tuple[str, ...]) -> None:
        match kind, value:
            case Struct(fields), Mapping():
                types = {field.name: field.type for field in fields}
                for name, inner in value.items():
                    if name in types:
                        self._note_known(inner, types[name], (*path, name))
                    elif holds_value(inner) and _is_at_most(inner, MAX_DEPTH):
                        self._note_value(inner, (*path, name))
            case ListOf(element), list():
                for inner in value:
                    self._note_known(inner, element, (*path, LIST))
            case MapOf(item), Mapping():
                for inner in value.values():
                    self._note_known(inner, item, (*path, MAP))

    def _note_value(self, value: Any, path: tuple[str, ...]) -> None:
        match value:
            case None:
                return
            case list():
                self.note(path, "list")
                for inner in filter(holds_value, value):
                    self._note_value(inner, (*path, LIST))
            case Mapping():
                self.note(path, "object")
                for name, inner in value.items():
                    # What an empty value would hold is not known, and its type would stay.
                    if holds_value(inner):
                        self._note_value(inner, (*path, str(name)))
            case bool():
                self.note(path, "boolean")
            case int():
                self.note(path, "long" if -(2**63) <= value < 2**63 else "double")
            case str():
                self.note(path, "string")
            case _:
                self.note(path, "double")

    def note_schema(self, given: Schema, declared: Schema, row_count: int) -> None:
        """Count the rows of a file with a schema, by the types of fields that the dataset lacks."""
        self._note_fields(given.fields, declared.fields, (), max(row_count, 1))

    def _note_fields(
        self,
        given: Iterable[Field],
        declared: Iterable[Field],
        path: tuple[str, ...],
        row_count: int,
    ) -> None:
        types = {field.name: field.type for field in declared}
        for one in given:
            here = (*path, one.name)
            if one.name in types:
                self._note_type(one.type, types[one.name], here, row_count)
            else:
                alone = Schema(fields=(Field(name="x", type=one.type),))
                text = json.dumps(schema_to_avro(alone), sort_keys=True)
                self.note(here, f"{_TYPED}{text}", row_count)

    def _note_type(
        self, given: Type, declared: Type, path: tuple[str, ...], row_count: int
    ) -> None:
        match given, declared:
            case Struct(), Struct():
                self._note_fields(given.fields, declared.fields, path, row_count)
            case ListOf(), ListOf():
                self._note_type(given.element, declared.element, (*path, LIST), row_count)
            case MapOf(), MapOf():
                self._note_type(given.value, declared.value, (*path, MAP), row_count)


def _is_at_most(value: Any, levels: int) -> bool:
    """Return whether a value has at most so many levels of lists and objects."""
    match value:
        case list():
            return levels > 0 and all(_is_at_most(inner, levels - 1) for inner in value)
        case Mapping():
            return levels > 0 and all(_is_at_most(inner, levels - 1) for inner in value.values())
    return True


def arrow_schema(given: pa.Schema) -> Schema:
    """Return the schema of a file, without columns of only nulls, or of unsupported types."""
    fields: list[Field] = []
    for column in given:
        try:
            if not pat.is_null(column.type):
                fields += schema_from_arrow(pa.schema([column]), strict_names=False).fields
        except InvalidInputError:
            continue
    return Schema(fields=tuple(fields))


def widened(descriptor: DatasetDescriptor, census: Census) -> DatasetDescriptor:
    """Return a descriptor extended by the fields of a census, all of them nullable.

    A field has the type of most of its values; integers and other numbers together are double. A
    field that cannot be added, such as for its name or depth, is left out, and so is one whose name
    differs from another only in case: no table of Hive, Delta or Iceberg could show both.
    """
    tree = _Tree.of(census)
    for name in list(tree.inside):
        only = replace(tree, inside={name: tree.inside[name]})
        try:
            fields = only.extended(descriptor.schema.fields)
            wider = replace(descriptor, schema=replace(descriptor.schema, fields=fields))
            wider.check()
        except InvalidInputError:
            continue
        descriptor = wider
    return descriptor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tree:
    """The counts of a census, by the parts of their paths."""

    kinds: Mapping[str, int] = field(default_factory=dict)
    inside: Mapping[str, _Tree] = field(default_factory=dict)

    @classmethod
    def of(cls, census: Census) -> _Tree:
        return cls._below(
            [(path.split(_BETWEEN), kinds) for path, kinds in census.counts.items()], {}
        )

    @classmethod
    def _below(
        cls, entries: Sequence[tuple[list[str], Mapping[str, int]]], kinds: Mapping[str, int]
    ) -> _Tree:
        own: dict[str, Mapping[str, int]] = {}
        below: dict[str, list[tuple[list[str], Mapping[str, int]]]] = {}
        for (first, *others), counts in entries:
            below.setdefault(first, [])
            if others:
                below[first].append((others, counts))
            else:
                own[first] = counts
        return cls(
            kinds=kinds,
            inside={name: cls._below(inner, own.get(name, {})) for name, inner in below.items()},
        )

    def extended(self, fields: Sequence[Field]) -> tuple[Field, ...]:
        """Return fields of the dataset with the parts that they lack."""
        known = [
            replace(one, type=self.inside[one.name].wider(one.type))
            if one.name in self.inside
            else one
            for one in fields
        ]
        return (*known, *self._fields(taken=[one.name for one in fields]))

    def wider(self, kind: Type) -> Type:
        """Return a type of the dataset with the fields that its records lack."""
        match kind:
            case Struct(fields):
                return Struct(self.extended(fields))
            case ListOf(element) if LIST in self.inside:
                return replace(kind, element=self.inside[LIST].wider(element))
            case MapOf(value) if MAP in self.inside:
                return replace(kind, value=self.inside[MAP].wider(value))
        return kind

    def _fields(self, taken: Iterable[str] = ()) -> Iterator[Field]:
        names = {name.lower() for name in taken}
        for name, tree in self.inside.items():
            if name in (LIST, MAP) or name.lower() in names or not tree.kinds:
                continue
            try:
                check_field_name(name)
            except InvalidNameError:
                continue
            names.add(name.lower())
            yield Field(name=name, type=tree.as_type())

    def as_type(self) -> Type:
        typed = {kind: count for kind, count in self.kinds.items() if kind.startswith(_TYPED)}
        if typed:
            return _widest(typed)
        families: dict[str, int] = {}
        for kind, count in self.kinds.items():
            family = _FAMILIES.get(kind, kind)
            families[family] = families.get(family, 0) + count
        families.pop("", None)
        if "cell" in families:
            return self._type_of_cells(families)
        match max(families, key=lambda family: families[family]):
            case "number":
                return Primitive(Kind.DOUBLE if "double" in self.kinds else Kind.LONG)
            case "list":
                inner = self.inside.get(LIST)
                has_kinds = inner is not None and inner.kinds
                return ListOf(inner.as_type() if inner and has_kinds else Primitive(Kind.STRING))
            case "object":
                fields = tuple(self._fields())
                return Struct(fields) if fields else MapOf(Primitive(Kind.STRING))
            case other:
                return Primitive(Kind(other))

    def _type_of_cells(self, families: Mapping[str, int]) -> Type:
        """Return the type of a column of CSV: text where its cells have several types."""
        kinds = families.keys() - {"cell"}
        if kinds == {"number"} and "double" in self.kinds:
            is_exact = "long" not in self.kinds or "inexact" not in self.kinds
            return Primitive(Kind.DOUBLE if is_exact else Kind.STRING)
        if kinds == {"number"}:
            return Primitive(Kind.LONG)
        if kinds == {"date", "timestamp"}:
            return Primitive(Kind.TIMESTAMP)
        return Primitive(Kind(next(iter(kinds)))) if len(kinds) == 1 else Primitive(Kind.STRING)


def _widest(typed: Mapping[str, int]) -> Type:
    """Return the type that holds all of some types, or else the most frequent one."""
    schemas = {
        text: schema_from_avro(json.loads(text.removeprefix(_TYPED))) for text in sorted(typed)
    }
    for candidate in schemas.values():
        descriptor = DatasetDescriptor(schema=candidate)
        if all(_fits(other, descriptor) for other in schemas.values()):
            return _nullable(candidate.fields[0].type)
    most = max(schemas, key=lambda text: typed[text])
    return _nullable(schemas[most].fields[0].type)


def _fits(given: Schema, descriptor: DatasetDescriptor) -> bool:
    try:
        check_types(given, descriptor)
    except SchemaMismatchError:
        return False
    return True


def _nullable(kind: Type) -> Type:
    """Return a type with every part nullable: other files may lack it."""
    match kind:
        case ListOf(element):
            return ListOf(_nullable(element))
        case MapOf(value, key=key):
            return MapOf(_nullable(value), key=key)
        case Struct(fields):
            return Struct(
                tuple(replace(one, type=_nullable(one.type), nullable=True) for one in fields)
            )
    return kind

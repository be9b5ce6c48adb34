"""How the current schema came to be, so that files of older schemas read as files of it.

Schemas of a dataset are numbered from 1, and a data file says in its name which one it is of. The
lineage tells of each field since when it is there, what older files have in its place, and which
type they hold it in. So a name that was dropped and added again is another field: what files
hold under it from before is never read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from lakebed.errors import CorruptMetadataError, LakebedError
from lakebed.model.avro import schema_from_avro, schema_to_avro
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.evaluate import matches
from lakebed.model.partition import PartitionStrategy
from lakebed.model.predicate import FALSE, TRUE, Leaf, Predicate, map_leaves
from lakebed.model.schema import (
    MISSING,
    Decimal,
    Field,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
    walk,
)
from lakebed.model.values import check_value

# What leads from a field to one in it; no name of a field holds it.
_DEEPER = re.compile(r"\.|\[\]|\{\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What must be done to the fields of a file so that they are those of the current schema.

    Attributes:
        constants: Fields that the file counts as lacking, and the value of all its rows.
        promoted: Plain fields that it holds in another type: that type.
        rebuilt: Records, lists and maps that it holds in another form: that form.
    """

    constants: Mapping[str, Any] = field(default_factory=dict)
    promoted: Mapping[str, Type] = field(default_factory=dict)
    rebuilt: Mapping[str, Type] = field(default_factory=dict)


AS_IT_IS = Reading()


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """A field that came with a later schema than the first.

    Attributes:
        since: Number of the first schema that has it.
        initial: What older files have in its place; a later change of its default is none of it.
    """

    since: int
    initial: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The current schema's number, and what files of older ones need.

    Attributes:
        number: Of the current schema.
        additions: Fields by path, such as `a`, `a.b`, `a[].b`, `a{}.b`; only later ones.
        types: Of fields of the schema itself: earlier types, each with the number that ended it,
            ascending.
        replaced: Partition fields whose provided function was replaced by another one.
    """

    number: int = 1
    additions: Mapping[str, Addition] = field(default_factory=dict)
    types: Mapping[str, tuple[tuple[int, Type], ...]] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()

    def lacks(self, path: str, number: int) -> bool:
        """Whether files of a schema have no such field, whatever they hold under its name."""
        addition = self.additions.get(path)
        return addition is not None and number < addition.since

    def initial(self, path: str) -> Any:
        """Return what files that lack the field have in its place."""
        addition = self.additions.get(path)
        return addition.initial if addition else None

    def type_in(self, name: str, current: Type, number: int) -> Type:
        """Return the type in which files of a schema hold a field."""
        for until, kind in self.types.get(name, ()):
            if number < until:
                return kind
        return current

    def reading(self, schema: Schema, number: int | None) -> Reading:
        """Say how to read files.

        Args:
            schema: The fields that data files hold now.
            number: Of the schema that they are of; None for files of other tools, which are read
                as they are.
        """
        if number is None or number >= self.number:
            return AS_IT_IS
        constants: dict[str, Any] = {}
        promoted: dict[str, Type] = {}
        rebuilt: dict[str, Type] = {}
        roots = {_root(path) for path in self.additions if self.lacks(path, number)}
        for column in schema:
            if self.lacks(column.name, number):
                constants[column.name] = self.initial(column.name)
                continue
            held = self.type_in(column.name, column.type, number)
            if isinstance(column.type, Primitive | Decimal):
                if held != column.type:
                    promoted[column.name] = held
            elif column.name in roots or _form(held) != _form(column.type):
                rebuilt[column.name] = held
        return Reading(constants=constants, promoted=promoted, rebuilt=rebuilt)

    def sure_strategy(self, strategy: PartitionStrategy) -> PartitionStrategy:
        """Return the functions by which every path tells something of the rows in it.

        A path that was provided says nothing of the field that a later function looks at, unless
        the path is the field.
        """
        if not self.replaced:
            return strategy
        kept = (f for f in strategy if f.name not in self.replaced or not f.stores_source)
        return PartitionStrategy(tuple(kept))

    def after(self, old: DatasetDescriptor, new: DatasetDescriptor) -> Lineage:
        """Return the lineage after an update that the rules allow."""
        if old.schema.fields == new.schema.fields and old.partition_by == new.partition_by:
            return self
        number = self.number + 1
        before = dict(walk(old.schema.fields))
        additions: dict[str, Addition] = {}
        for path, member in walk(new.schema.fields):
            was = self.additions.get(path)
            if path not in before:
                initial = None if member.default is MISSING else member.default
                additions[path] = Addition(since=number, initial=initial)
            elif was is not None:
                additions[path] = replace(was, initial=_promote(was.initial, member))
        types = {}
        for column in new.schema:
            was_type = before[column.name].type if column.name in before else column.type
            earlier = self.types.get(column.name, ()) if column.name in before else ()
            if _form(was_type) != _form(column.type):
                earlier = (*earlier, (number, was_type))
            if earlier:
                types[column.name] = earlier
        pairs = zip(old.partition_by, new.partition_by, strict=True)
        replaced = [function.name for former, function in pairs if former != function]
        return Lineage(
            number=number,
            additions=additions,
            types=types,
            replaced=tuple(dict.fromkeys((*self.replaced, *replaced))),
        )

    def to_document(self, schema: Schema) -> dict[str, Any]:
        """Return the form that the head keeps with the descriptor; types and values as in Avro.

        Args:
            schema: The current one.
        """
        fields = dict(walk(schema.fields))
        additions: dict[str, dict[str, Any]] = {}
        for path, addition in self.additions.items():
            additions[path] = {"since": addition.since}
            if addition.initial is not None:
                default = _to_avro(fields[path].type, addition.initial)["default"]
                additions[path]["initial"] = default
        types = {
            name: [{"until": until, "type": _to_avro(kind)["type"]} for until, kind in earlier]
            for name, earlier in self.types.items()
        }
        return {
            "number": self.number,
            "additions": additions,
            "types": types,
            "replaced": list(self.replaced),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], schema: Schema) -> Self:
        """Read what `to_document` gave.

        Args:
            document: As stored.
            schema: The current one.

        Raises:
            CorruptMetadataError: It is of another form, or does not belong to the schema.
        """
        try:
            number = _number(document["number"], at_least=2)
            fields = dict(walk(schema.fields))
            additions = {
                path: Addition(
                    since=_number(addition["since"], at_least=2, at_most=number),
                    initial=_initial_from_avro(fields[path].type, addition.get("initial")),
                )
                for path, addition in document["additions"].items()
            }
            types = {
                schema.get(name).name: tuple(
                    (
                        _number(entry["until"], at_least=2, at_most=number),
                        _from_avro({"type": entry["type"]}).type,
                    )
                    for entry in earlier
                )
                for name, earlier in document["types"].items()
            }
            replaced = tuple(str(name) for name in document["replaced"])
        except (LakebedError, AttributeError, LookupError, TypeError, ValueError) as exc:
            raise CorruptMetadataError(
                f"The lineage of a schema cannot be read: {exc!r}.",
                hint="Restore the object from a copy; no data file was touched.",
            ) from exc
        return cls(number=number, additions=additions, types=types, replaced=replaced)


def simplify(predicate: Predicate, constants: Mapping[str, Any]) -> Predicate:
    """Return the predicate for rows that all have these constants.

    What is unknown of a constant becomes false: nothing above a condition turns that around.

    Args:
        predicate: Bound.
        constants: Of a `Reading`; a record among them is null, and so is what is in it.
    """
    if not constants:
        return predicate

    def decide(leaf: Leaf) -> Predicate:
        if leaf.column in constants or _root(leaf.column) in constants:
            return TRUE if matches(leaf, constants) else FALSE
        return leaf

    return map_leaves(predicate, decide)


def _root(path: str) -> str:
    """Return the field of the schema itself that a path begins with."""
    return _DEEPER.split(path, maxsplit=1)[0]


def _form(kind: Type) -> Type:
    """Return a type without what makes no difference in a file: defaults, notes, nullability."""
    match kind:
        case ListOf(element=element):
            return ListOf(_form(element))
        case MapOf(value=value):
            return MapOf(_form(value))
        case Struct(fields=fields):
            return Struct(tuple(Field(name=field.name, type=_form(field.type)) for field in fields))
    return kind


def _promote(value: Any, field: Field) -> Any:
    if value is None or not isinstance(field.type, Primitive | Decimal):
        return value
    return check_value(value, field.type, field.name)


def _to_avro(kind: Type, default: object = MISSING) -> dict[str, Any]:
    """Return the Avro field of a type, with its default if there is one."""
    field = Field(name="held", type=kind, nullable=False, default=default)
    document: dict[str, Any] = schema_to_avro(Schema(fields=(field,)))["fields"][0]
    return document


def _from_avro(document: Mapping[str, Any]) -> Field:
    fields = [{"name": "held", **document}]
    return schema_from_avro({"type": "record", "name": "entity", "fields": fields}).fields[0]


def _initial_from_avro(kind: Type, initial: object) -> Any:
    if initial is None:
        return None
    return _from_avro({"type": _to_avro(kind)["type"], "default": initial}).default


def _number(value: object, *, at_least: int, at_most: int = 2**31) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not at_least <= value <= at_most:
        raise ValueError(value)
    return value

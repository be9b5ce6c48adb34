"""History of the current schema, by which files of older schemas are read as files of it.

Schemas of a dataset are numbered from 1, and the name of a data file holds the number of its
schema. For each field, the lineage records the first schema that has it, its value in older files,
and its type in them. A name that was dropped and added again is another field: the values that
older files hold under that name are never read.
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
from lakebed.model.field_ids import FieldIds
from lakebed.model.partition import PartitionStrategy
from lakebed.model.predicate import FALSE, TRUE, Leaf, Predicate, map_leaves
from lakebed.model.renaming import named_as, renames
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
    """Changes that turn the fields of a file into those of the current schema.

    Attributes:
        constants: Fields that the file lacks, and the value that all its rows have instead.
        promoted: Plain fields that have another type in the file, and that type.
        rebuilt: Records, lists and maps that have another form in the file, and that form.
    """

    constants: Mapping[str, Any] = field(default_factory=dict)
    promoted: Mapping[str, Type] = field(default_factory=dict)
    rebuilt: Mapping[str, Type] = field(default_factory=dict)


AS_IT_IS = Reading()


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """A field that a schema after the first added.

    Attributes:
        since: Number of the first schema that has it.
        initial: Its value in older files; a later change of its default does not affect it.
    """

    since: int
    initial: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The number of the current schema, and the history needed to read files of older ones.

    Attributes:
        number: The number of the current schema.
        additions: Fields that were added later, by path, such as `a`, `a.b`, `a[].b`, `a{}.b`.
        types: Earlier types of top-level fields, each with the number of the schema that ended it,
            ascending.
        replaced: Partition fields whose provided function was replaced by another one.
        ids: Ids of the columns, once they cannot be derived from the schema; see `field_ids`.
        has_renamed: True if a field was ever renamed, even if it has its first name again.
    """

    number: int = 1
    additions: Mapping[str, Addition] = field(default_factory=dict)
    types: Mapping[str, tuple[tuple[int, Type], ...]] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()
    ids: FieldIds | None = None
    has_renamed: bool = False

    @property
    def is_first(self) -> bool:
        """True if there is no history to store."""
        return self.number == 1 and self.ids is None

    def field_ids(self, descriptor: DatasetDescriptor) -> FieldIds | None:
        """Return the ids of the columns of data files.

        Args:
            descriptor: The current descriptor.

        Returns:
            None if files have no ids: in other formats than Parquet, and in datasets whose schema
            an earlier release has changed.
        """
        if descriptor.format != "parquet" or not (self.ids or self.number == 1):
            return None
        return self.ids or FieldIds.first(descriptor)

    @classmethod
    def of_files_with_ids(
        cls, by_path: Mapping[str, int], last: int, descriptor: DatasetDescriptor
    ) -> Self:
        """Return the lineage of a new dataset of files that have ids already."""
        ids = FieldIds.known(by_path, last, descriptor)
        return cls() if ids == FieldIds.first(descriptor) else cls(ids=ids)

    def lacks(self, path: str, number: int) -> bool:
        """Return whether files of a schema lack a field, even if they have a column of its name."""
        addition = self.additions.get(path)
        return addition is not None and number < addition.since

    def initial(self, path: str) -> Any:
        """Return the value of the field in files that lack it."""
        addition = self.additions.get(path)
        return addition.initial if addition else None

    def type_in(self, name: str, current: Type, number: int) -> Type:
        """Return the type of a field in files of a schema."""
        for until, kind in self.types.get(name, ()):
            if number < until:
                return kind
        return current

    def reading(self, schema: Schema, number: int | None) -> Reading:
        """Return the changes to make when reading files of a schema.

        Args:
            schema: The fields of current data files.
            number: The number of the files' schema; None for files of other tools, which are read
                unchanged.
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
        """Return the functions whose values in each path hold for the rows under it.

        A provided value in a path is not computed from the source of the function that replaced
        it, so that function is left out, unless the field itself is stored only in the path.
        """
        if not self.replaced:
            return strategy
        kept = (f for f in strategy if f.name not in self.replaced or not f.stores_source)
        return PartitionStrategy(tuple(kept))

    def after(self, old: DatasetDescriptor, new: DatasetDescriptor) -> Lineage:
        """Return the lineage after an update that the rules allow."""
        if old.schema.fields == new.schema.fields and old.partition_by == new.partition_by:
            return self
        moved, ids = renames(old.schema, new.schema), self.field_ids(old)
        if moved and ids is not None:
            ids = ids.with_names(moved, old.schema)
        known = self._with_names(moved, old.schema) if moved else self
        old = named_as(old, new.schema)
        number = self.number + 1
        before = dict(walk(old.schema.fields))
        additions: dict[str, Addition] = {}
        for path, member in walk(new.schema.fields):
            was = known.additions.get(path)
            if path not in before:
                initial = None if member.default is MISSING else member.default
                additions[path] = Addition(since=number, initial=initial)
            elif was is not None:
                additions[path] = replace(was, initial=_promote(was.initial, member))
        types = {}
        for column in new.schema:
            was_type = before[column.name].type if column.name in before else column.type
            earlier = known.types.get(column.name, ()) if column.name in before else ()
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
            replaced=tuple(dict.fromkeys((*known.replaced, *replaced))),
            has_renamed=known.has_renamed,
            ids=None if ids is None else ids.after(old, new),
        )

    def with_levels(self, old: DatasetDescriptor, new: DatasetDescriptor) -> Lineage:
        """Return the lineage after the levels of directories have changed, and no field.

        Columns keep their ids, also in another order, and new levels get further ones; a level that
        comes back has its former id.
        """
        ids = self.field_ids(old)
        later = None if ids is None else ids.with_levels(new)
        return self if later == self.field_ids(new) else replace(self, ids=later)

    def _with_names(self, names: Mapping[str, str], schema: Schema) -> Lineage:
        """Return the same history of fields under new names.

        Args:
            names: New names of renamed fields, by their former ones.
            schema: The schema with the former names.
        """
        taken = frozenset(names.values())
        # A field whose name another one takes is removed.
        kept = {
            name: names.get(name, name)
            for name in schema.names
            if name in names or name not in taken
        }

        def path_under(path: str) -> str | None:
            root = path if path in kept else _root(path)
            return f"{kept[root]}{path[len(root) :]}" if root in kept else None

        additions = {path_under(path): addition for path, addition in self.additions.items()}
        return replace(
            self,
            additions={path: one for path, one in additions.items() if path is not None},
            types={kept[name]: earlier for name, earlier in self.types.items() if name in kept},
            has_renamed=True,
        )

    def to_document(self, schema: Schema) -> dict[str, Any]:
        """Return the form that the head stores with the descriptor; types and values as in Avro.

        Args:
            schema: The current schema.
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
            **({} if self.ids is None else {"ids": self.ids.to_document()}),
            # Only if there was one: the documents of other datasets stay unchanged.
            **({"renamed": True} if self.has_renamed else {}),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], descriptor: DatasetDescriptor) -> Self:
        """Read the form that `to_document` returns.

        Args:
            document: The stored form.
            descriptor: The current descriptor.

        Raises:
            CorruptMetadataError: The form is not valid, or does not belong to the schema.
        """
        schema = descriptor.schema
        try:
            ids = None
            if "ids" in document:
                ids = FieldIds.from_document(document["ids"], descriptor)
            number = _number(document["number"], at_least=2 if ids is None else 1)
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
            has_renamed = document.get("renamed", False) is True
        except (LakebedError, AttributeError, LookupError, TypeError, ValueError) as exc:
            raise CorruptMetadataError(
                f"The lineage of a schema cannot be read: {exc!r}.",
                hint="Restore the object from a copy; no data file was touched.",
            ) from exc
        return cls(
            number=number,
            additions=additions,
            types=types,
            replaced=replaced,
            ids=ids,
            has_renamed=has_renamed,
        )


def simplify(predicate: Predicate, constants: Mapping[str, Any]) -> Predicate:
    """Return the predicate for rows that all have these constants.

    An unknown condition on a constant becomes false, which is safe: predicates have no negation
    above their conditions.

    Args:
        predicate: A bound predicate.
        constants: The constants of a `Reading`; a record among them is null, with all its fields.
    """
    if not constants:
        return predicate

    def decide(leaf: Leaf) -> Predicate:
        if leaf.column in constants or _root(leaf.column) in constants:
            return TRUE if matches(leaf, constants) else FALSE
        return leaf

    return map_leaves(predicate, decide)


def _root(path: str) -> str:
    """Return the top-level field that a path begins with."""
    return _DEEPER.split(path, maxsplit=1)[0]


def _form(kind: Type) -> Type:
    """Return a type without properties that do not affect files: defaults, docs, nullability."""
    match kind:
        case ListOf(element=element):
            return ListOf(_form(element))
        case MapOf(value=value, key=key):
            return MapOf(_form(value), key=key)
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

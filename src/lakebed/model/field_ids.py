"""Ids of the columns of data files, by which Iceberg's readers find them.

A column keeps its id for as long as it is the same column. A field that is dropped and added again
gets another id, and so does one whose new type Iceberg cannot read from older files. The first
schema is numbered as Iceberg numbers the schema of a new table: top-level columns first, then the
parts of each. So ids are stored only once a schema or the levels of directories have changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import (
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
)

MAX_ID = 999_999_999  # published tables give higher ids to columns that they never read

_WIDENED = {(Kind.INT, Kind.LONG), (Kind.FLOAT, Kind.DOUBLE)}


def widens(have: Type, wanted: Type) -> bool:
    """Return whether readers of Iceberg widen the type in a file to that of the table."""
    match have, wanted:
        case Decimal(precision=old), Decimal(precision=new):
            return have.scale == wanted.scale and old <= new
        case Primitive(kind=kind), Primitive(kind=other):
            return wanted.holds(have) or (kind, other) in _WIDENED
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldIds:
    """Ids of the columns of a schema: its fields, their parts, and the levels of directories.

    Attributes:
        by_path: Ids by path: `a`, `a.b` in a record, `a[]` for the elements of a list, `a{key}` and
            `a{}` for the keys and values of a map.
        last: The highest id that was ever assigned.
        former_levels: Ids of levels that directories had before, by name. A level that comes back
            is the same column, as its values are those of the directories.
    """

    by_path: Mapping[str, int] = field(default_factory=dict)
    last: int = 0
    former_levels: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def first(cls, descriptor: DatasetDescriptor) -> Self:
        """Return the ids of a dataset whose schema has never changed.

        >>> from lakebed.model.descriptor import DatasetDescriptor
        >>> fields = [{"name": "n", "type": "long"}, {"name": "t", "type": {"type": "array", "items": "int"}}]
        >>> schema = {"type": "record", "name": "entity", "fields": fields}
        >>> FieldIds.first(DatasetDescriptor(schema=schema)).by_path
        {'n': 1, 't': 2, 'batch_id': 3, 't[]': 4}
        """
        return cls().after(None, descriptor)

    def after(self, old: DatasetDescriptor | None, new: DatasetDescriptor) -> Self:
        """Return the ids after an update.

        Args:
            old: The descriptor of these ids; None if there are none.
            new: The descriptor after the update.
        """
        before = {} if old is None else dict(_columns(old))
        numbers = itertools.count(self.last + 1)
        by_path = {
            path: self.by_path[path]
            if path in before and _is_same(before[path], kind)
            else next(numbers)
            for path, kind in _columns(new)
        }
        return replace(self, by_path=by_path, last=max(self.last, *by_path.values()))

    def with_levels(self, new: DatasetDescriptor) -> Self:
        """Return the ids after levels have come, gone or changed their order, and no field.

        Args:
            new: The descriptor with the new levels.
        """
        numbers = itertools.count(self.last + 1)
        known = {**self.former_levels, **self.by_path}
        by_path = {
            path: known[path] if path in known else next(numbers) for path, _ in _columns(new)
        }
        removed = {path: number for path, number in self.by_path.items() if path not in by_path}
        return replace(
            self,
            by_path=by_path,
            last=max(self.last, *by_path.values()),
            former_levels={**self.former_levels, **removed},
        )

    def with_names(self, names: Mapping[str, str], schema: Schema) -> Self:
        """Return the same ids under new names of fields.

        Args:
            names: New names of renamed fields, by their former ones.
            schema: The schema with the former names.
        """
        new_paths: dict[str, str] = {}
        for former, name in names.items():
            member = schema.get(former)
            renamed = replace(member, name=name)
            pairs = zip(_members((member,), ""), _members((renamed,), ""), strict=True)
            new_paths.update((path, new_path) for (path, _), (new_path, _) in pairs)
        # A field whose name another one takes is removed, so that the other one's ids come last.
        kept = {path: number for path, number in self.by_path.items() if path not in new_paths}
        moved = {new_path: self.by_path[path] for path, new_path in new_paths.items()}
        return replace(self, by_path=kept | moved)

    @classmethod
    def known(cls, by_path: Mapping[str, int], last: int, descriptor: DatasetDescriptor) -> Self:
        """Return the ids of a dataset whose files were written with ids.

        Args:
            by_path: The ids in the files; columns that are not among them get new ones.
            last: The highest id that was ever assigned.
            descriptor: Descriptor of the dataset.
        """
        numbers = itertools.count(last + 1)
        ids = {
            path: by_path[path] if path in by_path else next(numbers)
            for path, _ in _columns(descriptor)
        }
        return cls(by_path=ids, last=max(last, *ids.values()))

    def to_document(self) -> dict[str, Any]:
        """Return the form that the head stores."""
        former = {"former_levels": dict(self.former_levels)} if self.former_levels else {}
        return {"by_path": dict(self.by_path), "last": self.last, **former}

    @classmethod
    def from_document(cls, document: Mapping[str, Any], descriptor: DatasetDescriptor) -> Self:
        """Read the form that `to_document` returns.

        Raises:
            ValueError: The form is not valid, or does not belong to the descriptor.
            LookupError: An entry is missing.
            TypeError: An entry has a wrong type.
        """
        by_path, last = dict(document["by_path"]), document["last"]
        former = dict(document.get("former_levels", {}))
        removed = [number for name, number in former.items() if by_path.get(name) != number]
        given = sorted([0, *by_path.values(), *removed])
        is_distinct = all(low < high for low, high in itertools.pairwise(given))
        if by_path.keys() != dict(_columns(descriptor)).keys() or not is_distinct:
            raise ValueError(by_path)
        for number in (*by_path.values(), *removed, last):
            if type(number) is not int or not given[-1] <= last <= MAX_ID:
                raise ValueError(number)
        return cls(by_path=by_path, last=last, former_levels=former)


def _columns(descriptor: DatasetDescriptor) -> Iterator[tuple[str, Type]]:
    """Yield all columns with their types, in the order of their first ids."""
    schema = descriptor.schema
    levels = descriptor.partition_types.items()
    own = [Field(name=name, type=kind) for name, kind in levels if name not in schema]
    yield from _members((*schema, *own), "")


def _members(fields: Iterable[Field], place: str) -> Iterator[tuple[str, Type]]:
    fields = tuple(fields)
    for member in fields:
        yield f"{place}{member.name}", member.type
    for member in fields:
        yield from _parts(member.type, f"{place}{member.name}")


def _parts(kind: Type, path: str) -> Iterator[tuple[str, Type]]:
    match kind:
        case Struct(fields=fields):
            yield from _members(fields, f"{path}.")
        case ListOf(element=element):
            yield f"{path}[]", element
            yield from _parts(element, f"{path}[]")
        case MapOf(value=value, key=key):
            yield from ((f"{path}{{key}}", key), (f"{path}{{}}", value))
            yield from _parts(value, f"{path}{{}}")


def _is_same(old: Type, new: Type) -> bool:
    """Return whether a column keeps its id while its type changes."""
    is_plain = isinstance(new, Primitive | Decimal)
    return (old == new or widens(old, new)) if is_plain else type(old) is type(new)

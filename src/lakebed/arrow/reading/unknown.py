"""Fields of raw files that the dataset lacks: rules for them, and their removal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.schema import Field, ListOf, MapOf, Schema, Struct, Type

Unknown = Literal["reject", "ignore", "keep"]
"""Rule for a field of a raw file that the dataset lacks.

`reject`: the line, or a file whose header or schema has it, does not fit. `ignore`: the field is left
out of the rows, and counted. `keep`: the field is added to the schema of the dataset, nullable.
"""

LIST, MAP = "[]", "{}"  # in paths, for the elements of a list or a map


@dataclass(frozen=True, slots=True)
class Ignored:
    """Fields that were left out of some rows.

    Attributes:
        row_count: Rows that had a value in a field that was left out.
        fields: Paths of fields that were left out.
    """

    row_count: int = 0
    fields: frozenset[str] = frozenset()

    def __add__(self, other: Ignored) -> Ignored:
        return Ignored(self.row_count + other.row_count, self.fields | other.fields)


def known_part(
    entity: Mapping[str, Any], fields: Sequence[Field], unknown: Unknown
) -> tuple[dict[str, Any], Ignored]:
    """Return an entity without fields that the dataset lacks, at any depth.

    Args:
        entity: Entity as it was read.
        fields: Fields of the dataset.
        unknown: With `keep`, only null values are left out: others do not fit.
    """
    left_out: set[str] = set()
    known = _known_of(entity, fields, unknown, left_out, "")
    return known, Ignored(1, frozenset(left_out)) if left_out else Ignored()


def _known_of(
    entity: Mapping[str, Any],
    fields: Iterable[Field],
    unknown: Unknown,
    left_out: set[str],
    place: str,
) -> dict[str, Any]:
    types = {field.name: field.type for field in fields}
    known: dict[str, Any] = {}
    for name, value in entity.items():
        if name in types:
            path = f"{place}{name}"
            known[name] = _known_value(value, types[name], unknown, left_out, path)
        elif value is not None and (unknown == "ignore" or holds_value(value)):
            if unknown == "keep":
                known[name] = value  # does not fit, and is refused by name later
            left_out.add(f"{place}{name}")
    return known


def holds_value(value: Any) -> bool:
    """Return whether a JSON value holds anything except nulls, empty lists and empty objects.

    >>> holds_value([[], {"a": None}]), holds_value([0])
    (False, True)
    """
    waiting = [value]
    while waiting:
        match waiting.pop():
            case None:
                continue
            case list() as elements:
                waiting += elements
            case Mapping() as members:
                waiting += members.values()
            case _:
                return True
    return False


def _known_value(value: Any, kind: Type, unknown: Unknown, left_out: set[str], place: str) -> Any:
    match kind, value:
        case Struct(fields), Mapping():
            return _known_of(value, fields, unknown, left_out, f"{place}.")
        case ListOf(element), list():
            return [_known_value(v, element, unknown, left_out, f"{place}{LIST}") for v in value]
        case MapOf(item), Mapping():
            return {
                key: _known_value(v, item, unknown, left_out, f"{place}{MAP}")
                for key, v in value.items()
            }
    return value


def known_schema(given: Schema, declared: Schema) -> Schema:
    """Return the schema of a file without the fields that the dataset lacks, at any depth."""
    return replace(given, fields=_known_fields(given.fields, declared.fields))


def _known_fields(given: Iterable[Field], declared: Iterable[Field]) -> tuple[Field, ...]:
    types = {field.name: field.type for field in declared}
    return tuple(
        replace(field, type=_known_type(field.type, types[field.name]))
        for field in given
        if field.name in types
    )


def _known_type(given: Type, declared: Type) -> Type:
    match given, declared:
        case Struct(), Struct():
            fields = _known_fields(given.fields, declared.fields)
            return Struct(fields) if fields else given
        case ListOf(), ListOf():
            return replace(given, element=_known_type(given.element, declared.element))
        case MapOf(), MapOf():
            return replace(given, value=_known_type(given.value, declared.value))
    return given


def values_of(columns: Iterable[tuple[str, pa.Array | pa.ChunkedArray]]) -> Ignored:
    """Return the effect of leaving columns out: the number of rows that have a value in one."""
    mask: Any = None
    names = set()
    for name, column in columns:
        if column.null_count == len(column):
            continue
        names.add(name)
        mask = column.is_valid() if mask is None else pc.or_(mask, column.is_valid())
    return Ignored(0 if mask is None else int(pc.sum(mask).as_py()), frozenset(names))

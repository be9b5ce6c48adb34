"""Values of JSON as they are inspected: the kinds at each path, and whole lines of kinds that are known.

Most lines of a file hold what earlier ones held. A decoder of a class with exactly these members and
kinds reads them at once, and they only add to counts. All other lines are looked at value by value.
"""

from __future__ import annotations

import decimal
import itertools
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from lakebed.arrow.documents import BAD_JSON
from lakebed.arrow.reading.files import naming
from lakebed.arrow.reading.texts import MAX_EXACT, kind_of_text
from lakebed.common.shown import shown
from lakebed.errors import SchemaMismatchError
from lakebed.model.avro import MAX_DEPTH
from lakebed.model.names import check_field_name
from lakebed.model.schema import Field, Kind, ListOf, MapOf, Primitive, Struct, Type

_MOMENTS = frozenset({Kind.DATE, Kind.TIMESTAMP})
_MOST_TIMES = 1_000  # texts of a field that are looked at
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"


@dataclass(slots=True)
class SeenValues:
    """Values seen for a path in JSON, and the position of the first one.

    Attributes:
        kinds: Number of values of each kind.
        is_mixed: True if values of several types were taken, which are read as text.
        time: A text that is a date or time of ISO 8601, if the first ones all are; else empty.
    """

    kind: str = ""
    place: str = ""
    count: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    is_mixed: bool = False
    time: str = ""
    null_at: str = ""
    is_exact: bool = True
    fields: dict[str, SeenValues] = field(default_factory=dict)
    element: SeenValues | None = None

    def add(
        self, value: Any, path: str, place: str, *, depth: int, takes_any: bool = False
    ) -> None:
        """Add a value.

        Args:
            value: The value, as `decode_object` gives it.
            path: Path of the value.
            place: Its file and line.
            depth: Number of lists and objects around it.
            takes_any: True to read values of several types as text.

        Raises:
            SchemaMismatchError: It does not go together with earlier values.
        """
        self.count += 1
        if value is None:
            self.null_at = self.null_at or place
            return
        kind = _json_kind(value, path, place, takes_any=takes_any)
        self.kinds[kind] += 1
        if kind == "string":
            self._look_for_time(value, self.kinds[kind])
        if isinstance(value, int) and abs(value) > MAX_EXACT:
            self.is_exact = False
        if takes_any:
            is_odd = self.kind and _family(kind) != _family(self.kind)
            is_rounded = not self.is_exact and "double" in self.kinds
            self.is_mixed |= bool(is_odd) or is_rounded or kind == "number"
        if self.is_mixed:
            return
        self._unify(kind, path, place)
        if self.kind == "double" and not self.is_exact:
            raise SchemaMismatchError(
                f"Field {path!r} has whole numbers that no double holds, and other numbers: "
                f"{self.place}; {place}.",
                hint="Write a schema by hand, or write the numbers as text.",
            )
        if isinstance(value, list | dict) and depth >= MAX_DEPTH:
            raise SchemaMismatchError(
                f"Field {path!r} is nested more than {MAX_DEPTH} deep: {place}.",
                hint="Flatten it, or read the lines as submissions.",
            )
        if isinstance(value, list):
            self.element = self.element or SeenValues()
            for element in value:
                self.element.add(element, f"{path}[]", place, depth=depth + 1, takes_any=takes_any)
        elif isinstance(value, dict):
            for name, item in value.items():
                if not takes_any:
                    with naming(place):
                        check_field_name(name)
                inner = self.fields.setdefault(name, SeenValues())
                longer = f"{path}.{name}" if path else name
                inner.add(item, longer, place, depth=depth + 1, takes_any=takes_any)

    def _look_for_time(self, text: str, number: int) -> None:
        """Look whether a text is a date or time, if it is one of the first, and all before it are."""
        if number == 1:
            self.time = text
        if self.time and number <= _MOST_TIMES and kind_of_text(text) not in _MOMENTS:
            self.time = ""

    def add_known(self, values: Sequence[Any]) -> None:
        """Add values that a class of `_type_of` has let through; see `KnownDocuments`."""
        self.count += len(values)
        if self.null_at:
            values = [value for value in values if value is not None]
        if not values:
            return
        if self.kind == "double":
            whole_count = list(map(type, values)).count(int)
            for kind, count in (("long", whole_count), ("double", len(values) - whole_count)):
                if count:
                    self.kinds[kind] += count
            return
        before = self.kinds[self.kind]
        self.kinds[self.kind] += len(values)
        if self.kind == "string" and self.time and before < _MOST_TIMES:
            for number, text in enumerate(values[: _MOST_TIMES - before], before + 1):
                self._look_for_time(text, number)
        elif self.kind == "list" and self.element is not None:
            self.element.add_known(list(itertools.chain.from_iterable(values)))
        elif self.kind == "object":
            for position, node in enumerate(self.fields.values()):
                if node.count == before and node._has_only_counts:  # each object has the member
                    node.count += len(values)
                    node.kinds[node.kind] += len(values)
                    continue
                members = map(operator.attrgetter(f"f{position}"), values)
                node.add_known([value for value in members if value is not UNSET])

    @property
    def _has_only_counts(self) -> bool:
        """True if values of its kind change nothing but counts, so that none is looked at."""
        is_settled = not self.time or self.kinds["string"] >= _MOST_TIMES
        return not self.null_at and (
            self.kind in ("long", "boolean") or (self.kind == "string" and is_settled)
        )

    def names(self) -> set[str]:
        """Return the names of all members, at any depth."""
        names: set[str] = set()
        waiting = [self]
        while waiting:
            node = waiting.pop()
            names.update(node.fields)  # `|=` with a view of keys would copy the set
            waiting += node.fields.values()
            waiting += [node.element] if node.element is not None else []
        return names

    def find_texts(
        self, path: str, names: Mapping[str, str], texts: list[str], notes: dict[str, list[str]]
    ) -> None:
        """Add the paths of values of several types, and a note for each."""
        if self.is_mixed:
            texts.append(path)
            seen = " and ".join(f"{count:,} {_label(kind)}" for kind, count in self.kinds.items())
            notes.setdefault(path.partition(".")[0].partition("[")[0], []).append(
                f"text: {path} has {seen}"
            )
            return
        if self.time:
            notes.setdefault(path.partition(".")[0].partition("[")[0], []).append(
                f"text: {path} has dates or times, such as {shown(self.time)}"
            )
        for name, node in self.fields.items():
            legal = names.get(name, name)
            node.find_texts(f"{path}.{legal}" if path else legal, names, texts, notes)
        if self.element is not None:
            self.element.find_texts(f"{path}[]", names, texts, notes)

    def _unify(self, kind: str, path: str, place: str) -> None:
        if not self.kind:
            self.kind, self.place = kind, place
        elif {self.kind, kind} == {"long", "double"}:
            self.kind = "double"
        elif self.kind != kind:
            raise SchemaMismatchError(
                f"Field {path!r} is {self.kind} and {kind}: {self.place}; {place}.",
                hint="Correct one of the lines, or leave the field out. `lakebed init` and `import` read "
                "such a field as text, by texts of the notation of JSON.",
            )

    def as_type(self, names: Mapping[str, str]) -> Type:
        """Return the type that holds all values; members get the given names."""
        if self.is_mixed:
            return Primitive(Kind.STRING)
        match self.kind:
            case "":
                return Primitive(Kind.STRING)
            case "list":
                assert self.element is not None
                return ListOf(self.element.as_type(names))
            case "object":
                if not self.fields:
                    return MapOf(Primitive(Kind.STRING))  # a struct has at least one field
                return Struct(self.as_fields(names))
        return Primitive(Kind(self.kind))

    def as_fields(self, names: Mapping[str, str]) -> tuple[Field, ...]:
        """Return a field for each member; see `as_type`."""
        return tuple(
            Field(name=names.get(name, name), type=node.as_type(names))
            for name, node in self.fields.items()
        )


def _label(kind: str) -> str:
    """Return the name of a kind of JSON values in the plural."""
    return {
        "long": "whole numbers",
        "double": "other numbers",
        "number": "very large numbers",
        "string": "texts",
        "boolean": "booleans",
    }.get(kind, f"{kind}s")


def _family(kind: str) -> str:
    """Return the family of a kind of JSON; kinds of one family go together."""
    return "number" if kind in ("long", "double") else kind


def _json_kind(value: object, path: str, place: str, *, takes_any: bool) -> str:
    match value:
        case bool():
            return "boolean"
        case int() if -(2**63) <= value < 2**63:
            return "long"
        case decimal.Decimal() if abs(float(value)) != float("inf"):
            return "double"
        case str():
            return "string"
        case list():
            return "list"
        case dict():
            return "object"
    if takes_any:
        return "number"
    raise SchemaMismatchError(
        f"Field {path!r} has a number that neither long nor double holds: {place}.",
        hint="Write a schema by hand, or write the numbers as text.",
    )


_EXACT = Annotated[int, Meta(ge=-MAX_EXACT, le=MAX_EXACT)]
_LONG = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_MOST_MEMBERS = 1_000  # of a class, at all depths: measured, it is made in some milliseconds


class KnownDocuments:
    """Lets lines through whose members and kinds have been seen, and counts what they hold."""

    @classmethod
    def of(cls, root: SeenValues) -> Self | None:
        """Return the documents that hold what has been seen; None if this has no class."""
        type_ = _Classes().class_of(root) if root.fields else None
        return None if type_ is None else cls(root, type_)

    def __init__(self, root: SeenValues, type_: Any) -> None:
        """Use `of` instead."""
        self._root = root
        self._decoder = msgspec.json.Decoder(type_)

    def take(self, data: bytes, line_count: int) -> bool:
        """Add whole lines, each with its newline, if all of them hold an object that is known."""
        if not _are_objects(data):
            return False
        try:
            objects = self._decoder.decode_lines(data)
        except BAD_JSON:
            return False
        if len(objects) != line_count:
            return False
        self._root.add_known(objects)
        return True

    def take_each(self, lines: Sequence[bytes]) -> list[int]:
        """Add those of some lines that hold an object that is known; return the numbers of the others."""
        objects, others = [], []
        for number, line in enumerate(lines):
            try:
                objects.append(self._decoder.decode(line))
            except BAD_JSON:
                others.append(number)
        self._root.add_known(objects)
        return others


def _are_objects(data: bytes) -> bool:
    """Return whether each of some lines begins and ends as an object does."""
    if not data.startswith(b"{"):
        return False
    codes = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(codes == _NEWLINE)
    last = codes[ends - 1]
    has_return = last == _RETURN
    last[has_return] = codes[ends[has_return] - 2]
    return bool((codes[ends[:-1] + 1] == _OPEN).all() and (last == _CLOSE).all())


class _Classes:
    """Makes classes, with a limited number of members together."""

    def __init__(self) -> None:
        self._member_count = 0

    def class_of(self, node: SeenValues) -> Any:
        """Return a class of objects with the members of a node; None if there is none."""
        object_count, names = node.kinds["object"], {}
        members: list[Any] = []
        for position, (name, member) in enumerate(node.fields.items()):
            self._member_count += 1
            type_ = self._type_of(member)
            if type_ is None or self._member_count > _MOST_MEMBERS:
                return None
            label = f"f{position}"
            names[label] = name
            if member.count < object_count:
                members.append((label, type_ | UnsetType, UNSET))
            else:
                members.append((label, type_))
        return msgspec.defstruct(
            "Known", members, forbid_unknown_fields=True, gc=False, kw_only=True, rename=names
        )

    def _type_of(self, node: SeenValues) -> Any:
        """Return the type of the values that a node has seen; None if it has none."""
        if node.is_mixed:
            return None
        type_: Any = None
        match node.kind:
            case "":
                return type(None) if node.null_at else None
            case "long":
                type_ = _EXACT if node.is_exact else _LONG
            case "double":
                type_ = _EXACT | float
            case "boolean":
                type_ = bool
            case "string":
                type_ = str
            case "object":
                type_ = self.class_of(node) if node.fields else None
            case "list":
                element = None if node.element is None else self._type_of(node.element)
                type_ = None if element is None else list[element]  # type: ignore[valid-type]  # made at run time
        return type_ | None if node.null_at and type_ is not None else type_

"""Partition functions and strategies: which partition an entity belongs to, and the reverse.

Each function is one class with a Python face (`value`) and an Arrow face (`array`) that agree
value by value, and a projection of predicates on its source to predicates on its result. The law
is *strict ⊆ predicate ⊆ permissive*: a partition that the permissive projection drops holds no
matching entity, and in one that the strict projection keeps, every entity matches.

Null maps to null in every function.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import PartitionSpecError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.hashing import HASHABLE, java_hash, java_hash_array
from lakebed.model.html import facts_to_html
from lakebed.model.keys import BATCH_ID
from lakebed.model.names import check_partition_name, nearest
from lakebed.model.predicate import (
    FALSE,
    TRUE,
    Comparison,
    Leaf,
    Membership,
    NullCheck,
    Op,
    Predicate,
    all_of,
    any_of,
    map_leaves,
)
from lakebed.model.schema import Kind, Primitive, Schema, Type
from lakebed.model.values import TIMES, Scalar

_INT = Primitive(Kind.INT)
_DATE = Primitive(Kind.DATE)
_IDENTIFIABLE = frozenset(Kind) - {Kind.BYTES}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFunction(ABC):
    """One level of a partition strategy.

    Attributes:
        source: The field that it is computed from.
        name: The partition field that holds its result.
    """

    source: str
    name: str

    type_name: ClassVar[str]
    kinds: ClassVar[frozenset[Kind]]  # of the sources that it takes

    def __post_init__(self) -> None:
        check_partition_name(self.name)

    @abstractmethod
    def result_type(self, source: Type) -> Type:
        """Return the type of the partition field."""

    @abstractmethod
    def value(self, value: Scalar, source: Type) -> Scalar:
        """Return the partition value of one source value that is not None."""

    @abstractmethod
    def array(self, array: pa.Array, source: Type) -> pa.Array:
        """Return the partition values of a column, as an array of the result type."""

    def to_document(self) -> dict[str, Any]:
        """Return Kite's JSON form."""
        return {"type": self.type_name, "source": self.source, "name": self.name}

    def __str__(self) -> str:
        arguments = [
            str(value)
            for name, value in self.to_document().items()
            if name not in ("type", "source", "name")
        ]
        return f"{self.type_name}({', '.join([self.source, *arguments])}) as {self.name}"

    @property
    def stores_source(self) -> bool:
        """Whether the source stays in the data file; only a plain identity takes it out."""
        return True

    def project(self, leaf: Leaf, source: Type, *, strict: bool) -> Predicate | None:
        """Project one condition on the source to one on the partition field.

        Returns:
            The projection, or None if this function can tell nothing.
        """
        match leaf:
            case NullCheck(_, negated):
                return NullCheck(self.name, negated)
            case Membership(_, (), negated):
                return TRUE if negated else FALSE
            case Comparison(_, Op.EQ, value) if not strict:
                return Comparison(self.name, Op.EQ, self.value(value, source))
            case Comparison(_, Op.NE, value) if strict:
                return Comparison(self.name, Op.NE, self.value(value, source))
            case Membership(_, values, negated) if strict is negated:
                images = dict.fromkeys(self.value(value, source) for value in values)
                return Membership(self.name, tuple(images), negated)
            case _ if not strict:
                return NullCheck(self.name, negated=True)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity(PartitionFunction):
    """The value itself. Under its own name the field leaves the data file for the path."""

    type_name = "identity"
    kinds = _IDENTIFIABLE

    @property
    def stores_source(self) -> bool:
        """Whether the source stays in the data file."""
        return self.name != self.source

    def result_type(self, source: Type) -> Type:
        """Return the type of the source."""
        return source

    def value(self, value: Scalar, source: Type) -> Scalar:  # noqa: ARG002 - see PartitionFunction
        """Return the value."""
        return value

    def array(self, array: pa.Array, source: Type) -> pa.Array:  # noqa: ARG002 - see PartitionFunction
        """Return the column."""
        return array

    def project(self, leaf: Leaf, source: Type, *, strict: bool) -> Predicate | None:  # noqa: ARG002 - exact both ways
        """Return the same condition: it holds for a partition as for its entities."""
        return replace(leaf, column=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hash(PartitionFunction):
    """Java's hash code modulo a number of buckets, as Kite computes it."""

    buckets: int

    type_name = "hash"
    kinds = HASHABLE

    def __post_init__(self) -> None:
        # The two-argument form, since slots=True makes a new class that bare super() misses.
        super(Hash, self).__post_init__()
        whole = isinstance(self.buckets, int) and not isinstance(self.buckets, bool)
        if not whole or not 1 <= self.buckets < 2**31:
            raise PartitionSpecError(
                f"hash({self.source}) into {self.buckets!r} buckets.",
                hint="Give a whole number of at least 1.",
            )

    def result_type(self, source: Type) -> Type:  # noqa: ARG002 - see PartitionFunction
        """Return int."""
        return _INT

    def value(self, value: Scalar, source: Type) -> Scalar:
        """Return the bucket, 0 to `buckets` - 1."""
        return (java_hash(value, _kind(source)) & 0x7FFFFFFF) % self.buckets

    def array(self, array: pa.Array, source: Type) -> pa.Array:
        """Return the buckets."""
        valid = array.is_valid()
        codes = java_hash_array(array.drop_null(), _kind(source))
        buckets = ((codes & np.uint32(0x7FFFFFFF)) % np.uint32(self.buckets)).astype(np.int32)
        if array.null_count == 0:
            return pa.array(buckets, pa.int32())
        spread = np.zeros(len(array), dtype=np.int32)
        mask = valid.to_numpy(zero_copy_only=False)
        spread[mask] = buckets
        return pa.array(spread, pa.int32(), mask=~mask)

    def to_document(self) -> dict[str, Any]:
        """Return Kite's JSON form."""
        return {
            "type": self.type_name,
            "source": self.source,
            "name": self.name,
            "buckets": self.buckets,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Date(PartitionFunction):
    """The calendar day in UTC; of a timestamp without zone, the day it shows."""

    type_name = "date"
    kinds = TIMES

    def result_type(self, source: Type) -> Type:  # noqa: ARG002 - see PartitionFunction
        """Return date."""
        return _DATE

    def value(self, value: Scalar, source: Type) -> Scalar:  # noqa: ARG002 - see PartitionFunction
        """Return the day."""
        return value.date() if isinstance(value, dt.datetime) else value

    def array(self, array: pa.Array, source: Type) -> pa.Array:
        """Return the days."""
        if _kind(source) is Kind.DATE:
            return array
        return pc.floor_temporal(array, unit="day").cast(pa.date32())

    def project(self, leaf: Leaf, source: Type, *, strict: bool) -> Predicate | None:
        """Project as every function, but of a date as the identity that it is."""
        if _kind(source) is Kind.DATE:
            return replace(leaf, column=self.name)
        return super(Date, self).project(leaf, source, strict=strict)


_UNITS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "year": pc.year,
    "month": pc.month,
    "day": pc.day,
    "hour": pc.hour,
    "minute": pc.minute,
}
CALENDAR_UNITS = tuple(_UNITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarPart(PartitionFunction):
    """Year, month (1-12), day (1-31), hour or minute of a time, in UTC."""

    unit: str

    kinds = TIMES

    def __post_init__(self) -> None:
        super(CalendarPart, self).__post_init__()
        if self.unit not in _UNITS:
            raise PartitionSpecError(
                f"Unknown calendar unit {self.unit!r}.", hint=f"Units are: {', '.join(_UNITS)}."
            )

    @property
    def type_name(self) -> str:  # type: ignore[override]  # one class, five names
        """The unit."""
        return self.unit

    def result_type(self, source: Type) -> Type:
        """Return int.

        Raises:
            PartitionSpecError: A date has no hour.
        """
        if _kind(source) is Kind.DATE and self.unit in ("hour", "minute"):
            raise PartitionSpecError(
                f"{self.unit}({self.source}): field {self.source!r} is a date.",
                hint="Use year, month or day.",
            )
        return _INT

    def value(self, value: Scalar, source: Type) -> Scalar:  # noqa: ARG002 - see PartitionFunction
        """Return the number."""
        number: int = getattr(value, self.unit)
        return number

    def array(self, array: pa.Array, source: Type) -> pa.Array:  # noqa: ARG002 - see PartitionFunction
        """Return the numbers."""
        return _UNITS[self.unit](array).cast(pa.int32())


def _kind(source: Type) -> Kind:
    # PartitionStrategy.check has refused all other sources.
    assert isinstance(source, Primitive)
    return source.kind


@dataclass(frozen=True, slots=True)
class PartitionStrategy:
    """An ordered list of partition functions; their order is the order of directories.

    >>> strategy = PartitionStrategy.parse("date(time_hour) as dt, hash(user_id, 64)")
    >>> [function.name for function in strategy]
    ['dt', 'user_id_hash']
    """

    functions: tuple[PartitionFunction, ...] = ()

    def __post_init__(self) -> None:
        names = [function.name for function in self.functions]
        for name in names:
            if names.count(name) > 1:
                raise PartitionSpecError(
                    f"Partition field {name!r} stands twice.",
                    hint="Give one of them another name, as in 'date(ts) as dt'.",
                )
            if name == BATCH_ID:
                raise PartitionSpecError(
                    f"Partition field {name!r} is taken: every batch has one of that name.",
                    hint="Choose another name.",
                )

    def __iter__(self) -> Iterator[PartitionFunction]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def __str__(self) -> str:
        """Return the short form; `parse` gives the strategy back."""
        return ", ".join(str(function) for function in self.functions)

    def _repr_html_(self) -> str:
        return facts_to_html(
            "PartitionStrategy", {function.name: function for function in self.functions}
        )

    def check(self, schema: Schema) -> None:
        """Check the strategy against the schema.

        Raises:
            PartitionSpecError: A source is missing or of a type that its function does not
                take, a partition field has the name of a data field, or no field is left
                for the data files.
        """
        for function in self.functions:
            field = schema.find(function.source)
            call = f"{function.type_name}({function.source})"
            if field is None:
                raise PartitionSpecError(
                    f"Partition source {function.source!r} of {call} is not in the schema.",
                    hint=nearest(function.source, schema.names)
                    or f"Fields are: {', '.join(schema.names)}.",
                )
            if not isinstance(field.type, Primitive) or field.type.kind not in function.kinds:
                raise PartitionSpecError(
                    f"{call} does not take field {function.source!r} of type {field.type}.",
                    hint=f"It takes {', '.join(sorted(function.kinds))}.",
                )
            function.result_type(field.type)
            if function.stores_source and function.name in schema:
                raise PartitionSpecError(
                    f"Partition field {function.name!r} of {call} has the name of a data field.",
                    hint=f"Name it otherwise, as in '{call} as {function.source}_{function.type_name}'.",
                )
        if all(name in self._taken_out() for name in schema.names):
            raise PartitionSpecError(
                "Every field is a partition field, so that nothing is left for data files.",
                hint="Partition by fewer fields.",
            )
        if BATCH_ID in schema:
            raise PartitionSpecError(
                f"The schema has a field {BATCH_ID!r}, which every batch adds by itself.",
                hint="Rename the field.",
            )

    def _taken_out(self) -> frozenset[str]:
        return frozenset(f.source for f in self.functions if not f.stores_source)

    def types(self, schema: Schema) -> dict[str, Type]:
        """Return the partition fields in order, with their types."""
        return {f.name: f.result_type(schema.get(f.source).type) for f in self.functions}

    def stored_names(self, schema: Schema) -> tuple[str, ...]:
        """Return the fields that data files hold; the others stand in the path."""
        taken_out = self._taken_out()
        return tuple(name for name in schema.names if name not in taken_out)

    def values(self, entity: Mapping[str, Any], schema: Schema) -> dict[str, Scalar]:
        """Return the partition of one entity; a missing source counts as null."""
        found: dict[str, Scalar] = {}
        for function in self.functions:
            value = entity.get(function.source)
            kind = schema.get(function.source).type
            found[function.name] = None if value is None else function.value(value, kind)
        return found

    def arrays(self, batch: pa.RecordBatch, schema: Schema) -> list[pa.Array]:
        """Return the partition fields of a record batch, a column a function."""
        return [
            function.array(batch.column(function.source), schema.get(function.source).type).cast(
                type_to_arrow(function.result_type(schema.get(function.source).type))
            )
            for function in self.functions
        ]

    def project(
        self, predicate: Predicate, schema: Schema, own: Collection[str], *, strict: bool
    ) -> Predicate:
        """Project a predicate on entities to one on partition fields.

        Args:
            predicate: Bound to the schema and the partition fields.
            schema: The dataset's.
            own: The partition fields; conditions on them stay as they are.
            strict: False for what may match, True for what surely matches.
        """

        def project_leaf(leaf: Leaf) -> Predicate:
            if leaf.column in own:
                return leaf
            parts = list(self._projections(leaf, schema, strict=strict))
            return any_of(parts) if strict else all_of(parts)

        return map_leaves(predicate, project_leaf)

    def exact(self, predicate: Predicate, schema: Schema, own: Collection[str]) -> Predicate | None:
        """Return the condition on partitions that is equal to the predicate, or None.

        It exists where every condition falls on partition boundaries: then whole partitions
        belong to the predicate, and no others do.
        """
        unaligned: list[Leaf] = []

        def exact_leaf(leaf: Leaf) -> Predicate:
            if leaf.column in own:
                return leaf
            permissive = list(self._projections(leaf, schema, strict=False))
            for found in self._projections(leaf, schema, strict=True):
                if found in permissive:
                    return found
            unaligned.append(leaf)
            return leaf

        projected = map_leaves(predicate, exact_leaf)
        return None if unaligned else projected

    def _projections(self, leaf: Leaf, schema: Schema, *, strict: bool) -> Iterator[Predicate]:
        functions = [f for f in self.functions if f.source == leaf.column]
        if not functions:
            return
        kind = schema.get(leaf.column).type
        for function in functions:
            found = function.project(leaf, kind, strict=strict)
            if found is not None:
                yield found
        if isinstance(leaf, Comparison) and leaf.op not in (Op.EQ, Op.NE):
            for chain in _chains(functions):
                yield from _project_order(chain, leaf, kind, strict=strict)

    def to_json(self) -> str:
        """Return Kite's JSON form; `from_json` gives the strategy back."""
        return json.dumps(self.to_document())

    def to_document(self) -> list[dict[str, Any]]:
        """Return Kite's JSON form, parsed."""
        return [function.to_document() for function in self.functions]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read Kite's JSON form.

        Raises:
            PartitionSpecError: It is no JSON, or not of that form.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as exc:
            raise PartitionSpecError(
                f"A partition strategy that is no JSON: {text[:80]!r}.", hint=str(exc)
            ) from exc
        return cls.from_document(document)

    @classmethod
    def from_document(cls, document: object) -> Self:
        """Read Kite's JSON form, parsed.

        Raises:
            PartitionSpecError: It is not of that form.
        """
        if not isinstance(document, list):
            raise PartitionSpecError(
                f"A partition strategy must be a JSON array, not {reprlib.repr(document)}.",
                hint='For example [{"type": "date", "source": "ts", "name": "dt"}].',
            )
        return cls(tuple(_function_from_document(one) for one in document))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the short form: `date(time_hour) as dt, hash(user_id, 64), carrier`.

        A bare field name is its identity.

        Raises:
            PartitionSpecError: The text is not of that form; the message names the part.
        """
        return cls(tuple(_function_from_text(part) for part in _split(text)))


def _chains(functions: Sequence[PartitionFunction]) -> Iterator[tuple[PartitionFunction, ...]]:
    """Yield the functions of one source whose values, as tuples, grow with time.

    A month without its year does not: it is in no chain. Below a date come hour and minute.
    """
    parts = {f.unit: f for f in functions if isinstance(f, CalendarPart)}

    def finer(units: Sequence[str]) -> tuple[PartitionFunction, ...]:
        return tuple(parts[unit] for unit in takewhile(parts.__contains__, units))

    for function in functions:
        if isinstance(function, Date):
            yield (function, *finer(("hour", "minute")))
    if "year" in parts:
        yield finer(CALENDAR_UNITS)


def _project_order(
    chain: tuple[PartitionFunction, ...], leaf: Comparison, kind: Type, *, strict: bool
) -> Iterator[Predicate]:
    """Project `source < x` and its like to the tuple of a chain.

    Values are discrete, so that `source < x` is `source <= x - 1 step`. The partition of the
    last value that fits may match; it surely matches if the next value is in another partition.
    Both projections are equal exactly where x lies on a boundary.
    """
    upwards = leaf.op in (Op.GT, Op.GE)
    outwards = -1 if upwards else 1
    inclusive = leaf.op in (Op.GE, Op.LE)
    last = leaf.value if inclusive else _step(leaf.value, kind, -outwards)
    if last is None:
        return
    levels = [(function.name, function.value(last, kind)) for function in chain]
    whole = True
    if strict:
        beyond = _step(last, kind, outwards)
        whole = beyond is None or levels != [(f.name, f.value(beyond, kind)) for f in chain]
    if upwards:
        yield _compare_tuple(levels, Op.GE if whole else Op.GT)
    else:
        yield _compare_tuple(levels, Op.LE if whole else Op.LT)


def _step(value: Scalar, kind: Type, direction: int) -> Scalar:
    """Return the next value of a time type, or None at the end of the calendar."""
    assert isinstance(value, dt.date)
    unit = dt.timedelta(days=1) if _kind(kind) is Kind.DATE else dt.timedelta(microseconds=1)
    try:
        return value + direction * unit
    except OverflowError:
        return None


def _compare_tuple(levels: Sequence[tuple[str, Scalar]], op: Op) -> Predicate:
    """Compare a tuple of partition fields with a tuple of values, first level first."""
    (name, value), *rest = levels
    if not rest:
        return Comparison(name, op, value)
    beyond = Comparison(name, Op.GT if op in (Op.GT, Op.GE) else Op.LT, value)
    equal = Comparison(name, Op.EQ, value)
    return any_of([beyond, all_of([equal, _compare_tuple(rest, op)])])


def _function_from_document(document: object) -> PartitionFunction:
    if not isinstance(document, Mapping) or not isinstance(document.get("type"), str):
        raise PartitionSpecError(
            f"A partition function must be an object with a type, not {reprlib.repr(document)}.",
            hint='For example {"type": "date", "source": "ts", "name": "dt"}.',
        )
    name = document.get("name")
    if name is not None and not isinstance(name, str):
        raise PartitionSpecError(f"Partition field name {name!r} is no text.")
    source = document.get("source")
    if not isinstance(source, str | int):  # Kite takes a number for the text that it looks like
        raise PartitionSpecError(
            f"Partition function {document['type']!r} has no source.", hint='Add "source".'
        )
    arguments = [document["buckets"]] if "buckets" in document else []
    return build_function(document["type"], str(source), arguments, name)


def build_function(
    type_name: str, source: str, arguments: Sequence[object] = (), name: str | None = None
) -> PartitionFunction:
    """Build a function from its parts, with its default name where none is given.

    Raises:
        PartitionSpecError: The type is unknown, or the arguments do not fit it.
        InvalidNameError: The name of the partition field is not legal.
    """
    if type_name == "hash" and len(arguments) == 1:
        buckets: Any = arguments[0]  # Hash checks it
        return Hash(source=source, name=name or f"{source}_hash", buckets=buckets)
    if not arguments:
        if type_name == "identity":
            return Identity(source=source, name=name or source)
        if type_name == "date":
            return Date(source=source, name=name or f"{source}_date")
        if type_name in _UNITS:
            return CalendarPart(source=source, name=name or type_name, unit=type_name)
    known = ("identity", "hash", "date", *_UNITS)
    if type_name in known:
        raise PartitionSpecError(
            f"{type_name}({source}) with {len(arguments)} further arguments.",
            hint="Write hash(field, buckets); the others take the field alone.",
        )
    raise PartitionSpecError(
        f"Unknown partition function {type_name!r}.",
        hint=nearest(type_name, known) or f"Functions are: {', '.join(known)}.",
    )


_NUMBER = re.compile(r"-?[0-9]+")


def _split(text: str) -> list[str]:
    """Split at the commas outside parentheses."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return [part.strip() for part in parts]


def _function_from_text(text: str) -> PartitionFunction:
    call, _, name = text.partition(" as ") if " as " in text else text.partition(" AS ")
    call = call.strip()
    type_name, bracket, rest = call.partition("(")
    if not bracket:
        type_name, rest = "identity", f"{call})"
    source, *arguments = [part.strip() for part in rest.removesuffix(")").split(",")]
    if not rest.endswith(")") or rest.count(")") > 1 or not source or "(" in rest:
        raise PartitionSpecError(
            f"Cannot read the partition function {text!r}.",
            hint="Write it as 'date(time_hour) as dt' or 'hash(user_id, 64)'.",
        )
    numbers = [int(one) if _NUMBER.fullmatch(one) else one for one in arguments]
    return build_function(type_name.strip(), source, numbers, name.strip() or None)

"""The base class of partition functions, and the simplest one, the identity.

Each function is one class with a Python form (`value`) and an Arrow form (`array`) that agree
value by value; Spark tasks use the latter. It projects predicates on its source to predicates on
its result. The law is *strict ⊆ predicate ⊆ permissive*: a partition that the permissive projection
drops holds no matching entity, and in a partition that the strict projection keeps, every entity
matches.

Null maps to null, except in a dimension, where it maps to `UNKNOWN`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import pyarrow as pa

from lakebed.errors import PartitionSpecError, PredicateError
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
    sql_literal,
)
from lakebed.model.schema import Kind, Primitive, Schema, Struct, Type
from lakebed.model.values import Scalar

Limits = tuple[Scalar, Scalar]


class MissingLevelError(PredicateError):
    """A condition names a partition field that some directories do not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFunction(ABC):
    """One level of a partition strategy.

    A class lists the names of its other parameters, which are attributes, in `required` and
    `optional`: they are its arguments in text, in this order, and its keys in JSON. With
    `gathers`, the last required parameter is a tuple of all remaining arguments.

    Attributes:
        source: The field that the function is computed from; a nested one by dots.
        name: The partition field that holds the result.
    """

    source: str
    name: str

    type_name: ClassVar[str]
    kinds: ClassVar[frozenset[Kind]]  # of supported sources
    required: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[tuple[str, ...]] = ()
    gathers: ClassVar[bool] = False
    words: ClassVar[frozenset[str]] = frozenset()  # parameters without quotes in text
    takes_source: ClassVar[bool] = True  # otherwise the value comes with each write
    null_value: ClassVar[Scalar] = None  # for a source that is null or missing
    refined_by: ClassVar[
        tuple[str, ...]
    ] = ()  # calendar parts that order the rows of one partition

    def __post_init__(self) -> None:
        check_partition_name(self.name)

    @classmethod
    def from_parameters(
        cls, type_name: str, source: str, name: str | None, parameters: Mapping[str, Any]
    ) -> Self:
        """Build the function from its parameters, which the class must have.

        Args:
            type_name: The name under which the function is registered.
            source: The field.
            name: The partition field, or None for the default.
            parameters: Parameters by name.

        Raises:
            PartitionSpecError: A parameter is not valid.
            InvalidNameError: The name of the partition field is not legal.
        """
        default = cls.default_name(type_name, source)
        return cls(source=source, name=default if name is None else name, **parameters)

    @classmethod
    def default_name(cls, type_name: str, source: str) -> str:
        """Return the default name of the partition field."""
        return f"{flat(source)}_{type_name}"

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name, without optional ones that have their default value."""
        fields = type(self).__dataclass_fields__
        parameters = {key: getattr(self, key) for key in self.required}
        for key in self.optional:
            if getattr(self, key) != fields[key].default:
                parameters[key] = getattr(self, key)
        return parameters

    def missing_in(self, levels: Iterable[str]) -> MissingLevelError:
        """Return the error of a condition that names the partition field where it is no level."""
        return MissingLevelError(
            f"The condition names the partition field {self.name!r}, and directories of older "
            f"versions have the levels {', '.join(levels) or 'none'}.",
            hint=f"Name the field {self.source!r}, which it is made of, instead.",
        )

    @abstractmethod
    def result_type(self, source: Type) -> Type:
        """Return the type of the partition field.

        Raises:
            PartitionSpecError: The parameters do not fit the type of the source.
        """

    @abstractmethod
    def value(self, value: Scalar, source: Type) -> Scalar:
        """Return the partition value of one source value that is not None.

        Raises:
            PartitionSpecError: The value has no partition.
        """

    @abstractmethod
    def array(self, array: pa.Array, source: Type) -> pa.Array:
        """Return the partition values of a column, as an array of the result type.

        Raises:
            PartitionSpecError: A value has no partition.
        """

    def source_type(self, schema: Schema) -> Type:
        """Return the type of the source.

        Raises:
            PartitionSpecError: The source is not in the schema.
        """
        kind = find_type(schema, self.source)
        if kind is None:
            raise PartitionSpecError(
                f"Partition source {self.source!r} of {self.call} is not in the schema.",
                hint=nearest(self.source, schema.names)
                or f"Fields are: {', '.join(schema.names)}.",
            )
        return kind

    @property
    def call(self) -> str:
        """The function and its source, as shown in errors."""
        return f"{self.type_name}({field_text(self.source)})"

    @property
    def stores_source(self) -> bool:
        """True if data files hold the source; only a plain identity removes it from them."""
        return True

    def capped_at(self, source: Type) -> int | None:  # noqa: ARG002 - dimensions have a cap
        """Return how many values may have a partition; None if unlimited."""
        return None

    @property
    def cardinality(self) -> int | None:
        """The number of possible partitions besides that of null; None if unknown."""
        return None

    def to_document(self) -> dict[str, Any]:
        """Return Kite's JSON form."""
        head = {"type": self.type_name, "source": self.source, "name": self.name}
        return head | {key: _to_json(value) for key, value in self.parameters().items()}

    def __str__(self) -> str:
        arguments = [field_text(self.source), *self.argument_texts()]
        return f"{self.type_name}({', '.join(arguments)}) as {field_text(self.name)}"

    def argument_texts(self) -> list[str]:
        """Return the arguments after the source, as in the short form."""
        texts = []
        in_order = (*self.required, *(() if self.gathers else self.optional[:1]))
        for key, value in self.parameters().items():
            gathered = self.gathers and key == self.required[-1]
            label = "" if key in in_order else f"{key}="
            to_text = str if key in self.words else _argument
            texts += [label + to_text(argument) for argument in (value if gathered else (value,))]
        return texts

    def accepts(self, value: Scalar, source: Type) -> bool:
        """Return whether a source value that is not None has a partition.

        Stored entities have only such values, so a condition on any other value matches nothing.
        """
        low, high = self.limits(source) or (None, None)
        return (low is None or low <= value) and (high is None or value <= high)  # type: ignore[operator]  # of one type

    def check_value(self, value: Scalar, source: Type) -> None:
        """Check that a value has a partition.

        Raises:
            PartitionSpecError: It has none; the message names the value.
        """
        if not self.accepts(value, source):
            raise self.refusal(value, source)

    def check_array(self, array: pa.Array, source: Type) -> None:
        """Check that each value of a column has a partition.

        Raises:
            PartitionSpecError: A value has none; the message names the first such value.
        """
        limits = self.limits(source)
        if limits is None or len(array) == array.null_count:
            return
        import pyarrow.compute as pc

        least, greatest = pc.min_max(array).as_py().values()
        if not (self.accepts(least, source) and self.accepts(greatest, source)):
            low, high = limits
            outside = pc.or_(pc.less(array, low), pc.greater(array, high))
            raise self.refusal(array.filter(outside)[0].as_py(), source)

    def refusal(self, value: Scalar, source: Type) -> PartitionSpecError:
        """Return the error for a value that has no partition."""
        low, high = self.limits(source) or ("any", "any")
        return PartitionSpecError(
            f"{self.call} has no partition for the value {value!r}.",
            hint=f"Values are {low!s} to {high!s}; correct the value, or give null.",
        )

    def limits(self, source: Type) -> Limits | None:  # noqa: ARG002 - for subclasses
        """Return the least and the greatest source value with a partition; None for no limits."""
        return None

    def is_ordered(self, source: Type) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether partition values never decrease as source values grow."""
        return False

    def count_of(self, image: Scalar, source: Type) -> int | None:  # noqa: ARG002 - for subclasses
        """Return how many source values have this partition value; None if many or unknown."""
        return None

    def project(self, leaf: Leaf, source: Type, *, strict: bool) -> Predicate | None:
        """Project one condition on the source to one on the partition field.

        Returns:
            The projection, or None if the condition does not restrict this partition field.
        """
        match leaf:
            case NullCheck(_, negated):
                return NullCheck(self.name, negated)
            case Membership(_, (), negated):
                return TRUE if negated else FALSE
            case Membership(_, values, negated):
                return self._project_values(values, source, negated=negated, strict=strict)
            case Comparison(_, Op.EQ | Op.NE as op, value):
                return self._project_values((value,), source, negated=op is Op.NE, strict=strict)
            case _ if not strict:
                return NullCheck(self.name, negated=True)
        return None

    def project_jointly(
        self,
        predicate: Predicate,  # noqa: ARG002 - for subclasses
        source: Type,  # noqa: ARG002 - for subclasses
        *,
        strict: bool,  # noqa: ARG002 - for subclasses
    ) -> Predicate | None:
        """Project several conditions on the source at once.

        Returns:
            The projection, or None if it is not tighter than those of the single conditions.
        """
        return None

    def _project_values(
        self, values: Collection[Scalar], source: Type, *, negated: bool, strict: bool
    ) -> Predicate:
        counts = Counter(self.value(v, source) for v in set(values) if self.accepts(v, source))
        images = tuple(counts)
        if strict is not negated:
            # Only partitions that hold no other values.
            images = tuple(p for p, count in counts.items() if self.count_of(p, source) == count)
        return is_in(self.name, images, negated=negated)


def is_in(name: str, images: Sequence[Scalar], *, negated: bool = False) -> Predicate:
    """Return the condition that a partition value is in a list; negated: not null and not in it."""
    if not images:
        return NullCheck(name, negated=True) if negated else FALSE
    if len(images) == 1:
        return Comparison(name, Op.NE if negated else Op.EQ, images[0])
    return Membership(name, tuple(images), negated)


def to_python(array: pa.Array, place: str) -> list[Any]:
    """Return the values of a column as Python objects.

    Args:
        array: The column.
        place: Subject of an error's sentence, such as a partition field.

    Raises:
        PartitionSpecError: Python has no object for a value; the message names the value.
    """
    try:
        values: list[Any] = array.to_pylist()
    except UnicodeDecodeError as exc:
        raise text_error(exc, place) from exc
    except (OverflowError, ValueError) as exc:
        raise PartitionSpecError(
            f"{place} has the value {_first_without_object(array)}, outside the years 1 to 9999.",
            hint="Times are in UTC, where a time near the end of a year may be in the next one. "
            "Correct it, or give null.",
        ) from exc
    return values


def text_error(error: UnicodeDecodeError, place: str) -> PartitionSpecError:
    """Return the error for a text that is not UTF-8."""
    return PartitionSpecError(
        f"{place} has text that is not UTF-8: {error.object[:40]!r}.",
        hint="Correct it, such as with make_valid_utf8 in Spark, or give null.",
    )


def _first_without_object(array: pa.Array) -> str:
    """Return the first date or time that Python has no object for, as text."""
    is_zoned = pa.types.is_timestamp(array.type) and array.type.tz is not None
    texts = array.cast(pa.timestamp(array.type.unit)) if is_zoned else array
    for value, text in zip(array, texts.cast(pa.string()), strict=True):
        try:
            value.as_py()
        except (OverflowError, ValueError):
            return f"{text} UTC" if is_zoned else str(text)
    raise AssertionError  # one of them could not be converted a moment ago


def flat(source: str) -> str:
    """Return a source as part of a name, with `_` for the dots of nested fields."""
    return source.replace(".", "_")


def primitive_of(source: Type) -> Primitive:
    """Return the type of a source."""
    # PartitionStrategy.check has refused all other sources.
    assert isinstance(source, Primitive)
    return source


def kind_of(source: Type) -> Kind:
    """Return the kind of a source."""
    return primitive_of(source).kind


def find_type(schema: Schema, path: str) -> Type | None:
    """Return the type of a field, which may be nested; None if it is missing."""
    field = schema.find(path)
    if field is not None:
        return field.type
    root, *names = path.split(".")
    field = schema.find(root)
    for name in names:
        if field is None or not isinstance(field.type, Struct):
            return None
        field = next((f for f in field.type.fields if f.name == name), None)
    return None if field is None else field.type


_WORD = re.compile(r"[\w.]+")


def field_text(source: str) -> str:
    """Return the name of a field as in the short form, quoted if necessary."""
    return source if _WORD.fullmatch(source) else f"`{source.replace('`', '``')}`"


def _to_json(value: object) -> object:
    return [_to_json(item) for item in value] if isinstance(value, tuple) else value


def _argument(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_argument(item) for item in value)}]"
    return sql_literal(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity(PartitionFunction):
    """The value itself. If it keeps its name, the field is stored in the path only."""

    type_name = "identity"
    kinds = frozenset(Kind) - {Kind.BYTES}

    @classmethod
    def default_name(cls, type_name: str, source: str) -> str:  # noqa: ARG003 - see PartitionFunction
        """Return the name of the source."""
        return flat(source)

    @property
    def stores_source(self) -> bool:
        """True if data files hold the source."""
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
        """Return the same condition on the partition field: it is exact."""
        return replace(leaf, column=self.name)

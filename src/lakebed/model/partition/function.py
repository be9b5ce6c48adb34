"""What every partition function is, and the simplest of them, the value itself.

Each function is one class with a Python face (`value`) and an Arrow face (`array`) that agree
value by value; tasks of Spark use the latter. It projects predicates on its source to predicates
on its result. The law is *strict ⊆ predicate ⊆ permissive*: a partition that the
permissive projection drops holds no matching entity, and in one that the strict projection keeps,
every entity matches.

Null maps to null, but in a dimension to `UNKNOWN`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import pyarrow as pa

from lakebed.errors import PartitionSpecError
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFunction(ABC):
    """One level of a partition strategy.

    A class names its further parameters, which are attributes of these names, in `required` and
    `optional`: they are its arguments in text, in this order, and its keys in JSON. With
    `gathers`, the last required one is a tuple of all further arguments.

    Attributes:
        source: The field that it is computed from; one in a record by dots.
        name: The partition field that holds its result.
    """

    source: str
    name: str

    type_name: ClassVar[str]
    kinds: ClassVar[frozenset[Kind]]  # of the sources that it takes
    required: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[tuple[str, ...]] = ()
    gathers: ClassVar[bool] = False
    words: ClassVar[frozenset[str]] = frozenset()  # parameters that text has without quotes
    takes_source: ClassVar[bool] = True  # otherwise the value comes with each write
    null_value: ClassVar[Scalar] = None  # of a source that is null or missing
    refined_by: ClassVar[tuple[str, ...]] = ()  # calendar parts that order what is in one partition

    def __post_init__(self) -> None:
        check_partition_name(self.name)

    @classmethod
    def from_parameters(
        cls, type_name: str, source: str, name: str | None, parameters: Mapping[str, Any]
    ) -> Self:
        """Build the function from its parameters, all of which the class knows.

        Args:
            type_name: The one under which it is registered.
            source: The field.
            name: The partition field, or None for the default.
            parameters: By name.

        Raises:
            PartitionSpecError: A parameter is not of its kind.
            InvalidNameError: The name of the partition field is not legal.
        """
        default = cls.default_name(type_name, source)
        return cls(source=source, name=default if name is None else name, **parameters)

    @classmethod
    def default_name(cls, type_name: str, source: str) -> str:
        """Return the name of the partition field where none is given."""
        return f"{flat(source)}_{type_name}"

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name, without optional ones that have their default."""
        fields = type(self).__dataclass_fields__
        parameters = {key: getattr(self, key) for key in self.required}
        for key in self.optional:
            if getattr(self, key) != fields[key].default:
                parameters[key] = getattr(self, key)
        return parameters

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
            PartitionSpecError: The function has no partition for it.
        """

    @abstractmethod
    def array(self, array: pa.Array, source: Type) -> pa.Array:
        """Return the partition values of a column, as an array of the result type.

        Raises:
            PartitionSpecError: The function has no partition for one of them.
        """

    def source_type(self, schema: Schema) -> Type:
        """Return the type of the source.

        Raises:
            PartitionSpecError: It is not in the schema.
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
        """The function and its source, as errors name it."""
        return f"{self.type_name}({field_text(self.source)})"

    @property
    def stores_source(self) -> bool:
        """Whether the source stays in the data file; only a plain identity takes it out."""
        return True

    def capped_at(self, source: Type) -> int | None:  # noqa: ARG002 - dimensions have a cap
        """Return how many values of it may have a partition; None without such a bound."""
        return None

    @property
    def cardinality(self) -> int | None:
        """The number of partitions that it can make besides null's; None if not known."""
        return None

    def to_document(self) -> dict[str, Any]:
        """Return Kite's JSON form."""
        head = {"type": self.type_name, "source": self.source, "name": self.name}
        return head | {key: _to_json(value) for key, value in self.parameters().items()}

    def __str__(self) -> str:
        arguments = [field_text(self.source), *self.argument_texts()]
        return f"{self.type_name}({', '.join(arguments)}) as {field_text(self.name)}"

    def argument_texts(self) -> list[str]:
        """Return the arguments behind the source, as the short form has them."""
        texts = []
        in_order = (*self.required, *(() if self.gathers else self.optional[:1]))
        for key, value in self.parameters().items():
            gathered = self.gathers and key == self.required[-1]
            label = "" if key in in_order else f"{key}="
            to_text = str if key in self.words else _argument
            texts += [label + to_text(argument) for argument in (value if gathered else (value,))]
        return texts

    def accepts(self, value: Scalar, source: Type) -> bool:
        """Whether there is a partition for a source value that is not None.

        No stored entity has another value, so that a condition on one matches nothing.
        """
        low, high = self.limits(source) or (None, None)
        return (low is None or low <= value) and (high is None or value <= high)  # type: ignore[operator]  # of one type

    def check_value(self, value: Scalar, source: Type) -> None:
        """Check that there is a partition for a value.

        Raises:
            PartitionSpecError: There is none; the message names the value.
        """
        if not self.accepts(value, source):
            raise self.refusal(value, source)

    def check_array(self, array: pa.Array, source: Type) -> None:
        """Check that there is a partition for each value of a column.

        Raises:
            PartitionSpecError: There is none for one of them; the message names the first.
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
            hint=f"It takes {low!s} to {high!s}; correct the value, or give null.",
        )

    def limits(self, source: Type) -> Limits | None:  # noqa: ARG002 - for subclasses
        """Return the least and the greatest source value that has a partition; None for no limits."""
        return None

    def is_ordered(self, source: Type) -> bool:  # noqa: ARG002 - for subclasses
        """Whether a greater source value never has a lesser partition value."""
        return False

    def count_of(self, image: Scalar, source: Type) -> int | None:  # noqa: ARG002 - for subclasses
        """Return how many source values have this partition value; None for many."""
        return None

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
            The projection, or None if it is no tighter than those of the single conditions.
        """
        return None

    def _project_values(
        self, values: Collection[Scalar], source: Type, *, negated: bool, strict: bool
    ) -> Predicate:
        counts = Counter(self.value(v, source) for v in set(values) if self.accepts(v, source))
        images = tuple(counts)
        if strict is not negated:
            # Only partitions that hold nothing but these values.
            images = tuple(p for p, count in counts.items() if self.count_of(p, source) == count)
        return is_in(self.name, images, negated=negated)


def is_in(name: str, images: Sequence[Scalar], *, negated: bool = False) -> Predicate:
    """Return the condition that a partition value is among some, or not null and not among them."""
    if not images:
        return NullCheck(name, negated=True) if negated else FALSE
    if len(images) == 1:
        return Comparison(name, Op.NE if negated else Op.EQ, images[0])
    return Membership(name, tuple(images), negated)


def flat(source: str) -> str:
    """Return a source as part of a name: dots lead to fields of records, names have none."""
    return source.replace(".", "_")


def kind_of(source: Type) -> Kind:
    """Return the kind of a source."""
    # PartitionStrategy.check has refused all other sources.
    assert isinstance(source, Primitive)
    return source.kind


def find_type(schema: Schema, path: str) -> Type | None:
    """Return the type of a field, which may lie in records; None if there is no such field."""
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
    """Return the name of a field as the short form has it."""
    return source if _WORD.fullmatch(source) else f"`{source.replace('`', '``')}`"


def _to_json(value: object) -> object:
    return [_to_json(item) for item in value] if isinstance(value, tuple) else value


def _argument(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_argument(item) for item in value)}]"
    return sql_literal(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity(PartitionFunction):
    """The value itself. Under its own name the field leaves the data file for the path."""

    type_name = "identity"
    kinds = frozenset(Kind) - {Kind.BYTES}

    @classmethod
    def default_name(cls, type_name: str, source: str) -> str:  # noqa: ARG003 - see PartitionFunction
        """Return the source's own name."""
        return flat(source)

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

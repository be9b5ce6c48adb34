"""Dimensions: a partition for each allowed value, one for other values, one for missing values."""

from __future__ import annotations

import functools
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from lakebed.errors import PartitionSpecError
from lakebed.model.allowed import (
    DEFAULT_CAP,
    OTHER,
    TOKENS,
    UNKNOWN,
    AllowedValues,
    OneOf,
    read_allowed,
)
from lakebed.model.evaluate import matches
from lakebed.model.names import MAX_COMPONENT_BYTES, encoded_length
from lakebed.model.partition.function import PartitionFunction, kind_of, to_python
from lakebed.model.predicate import (
    FALSE,
    TRUE,
    Comparison,
    Leaf,
    Like,
    Membership,
    NullCheck,
    Op,
    Predicate,
    all_of,
    any_of,
    sql_literal,
)
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.model.values import INTEGERS, Scalar, format_value

_NAMED = ("min", "max", "type", "regex")
_STRING = Primitive(Kind.STRING)
_TOKEN_LIKE = re.compile(r"~*(OTHER|UNKNOWN)")
# Kinds whose values have the same single text in Python, Arrow and Spark.
_KINDS = INTEGERS | {Kind.STRING, Kind.BOOLEAN, Kind.DATE}
_ORDERED_AS_TEXT = frozenset({Kind.STRING, Kind.DATE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension(PartitionFunction):
    """The value itself where it is allowed, else `OTHER`; `UNKNOWN` for null.

    The result is text. A genuine text of the form `~*OTHER` or `~*UNKNOWN` gets a leading `~`,
    which keeps it apart from the tokens. A value too long for a directory goes to `OTHER`.

    Attributes:
        allowed: The values that have a partition of their own.
        cap: Upper limit of their number where `allowed` does not list them: `DEFAULT_CAP` if
            None. Beyond it, writers send further values to `OTHER`. Which ones depends on the data
            of a dataset, so `value` and `array` do not apply the cap.
    """

    allowed: AllowedValues
    cap: int | None = None

    type_name = "dimension"
    kinds = _KINDS
    null_value = UNKNOWN
    required = ("allowed_values",)
    optional = ("cap", "min", "max", "type", "regex")
    gathers = True

    def __post_init__(self) -> None:
        super(Dimension, self).__post_init__()
        whole = isinstance(self.cap, int) and not isinstance(self.cap, bool)
        if self.cap is not None and (not whole or self.cap < 1):
            raise PartitionSpecError(
                f"dimension({self.source}) cannot have cap {self.cap!r}.",
                hint="Give a whole number of at least 1.",
            )
        if self.cap is not None and isinstance(self.allowed, OneOf):
            raise PartitionSpecError(
                f"dimension({self.source}) has a list and cap {self.cap}.",
                hint="Leave out the cap: a list is limited by itself.",
            )

    @classmethod
    def of(
        cls, source: str, allowed: object, *, name: str | None = None, cap: int | None = None
    ) -> Self:
        """Build a dimension from allowed values in any form that `read_allowed` reads.

        Raises:
            PartitionSpecError: The form of the allowed values is unknown, or the cap is not valid.
            InvalidNameError: The name of the partition field is not legal.
        """
        return cls(
            source=source,
            name=cls.default_name(cls.type_name, source) if name is None else name,
            allowed=read_allowed(allowed, f"dimension({source})"),
            cap=cap,
        )

    @classmethod
    def from_parameters(
        cls, type_name: str, source: str, name: str | None, parameters: Mapping[str, Any]
    ) -> Self:
        """Build the function from its parameters; see `PartitionFunction`.

        In text, each allowed value is an argument; the ends of a range and a regular expression are
        named arguments. Without any of these, every value is allowed.
        """
        allowed = parameters["allowed_values"]
        named = {key: value for key, value in parameters.items() if key in _NAMED}
        if named and allowed:
            raise PartitionSpecError(
                f"{type_name}({source}) has both values and {next(iter(named))!r}.",
                hint="Give a list, or a range, or a regular expression.",
            )
        if named:
            allowed = named
        elif isinstance(allowed, tuple) and allowed in ((), ("*",)):
            allowed = "*"
        elif isinstance(allowed, tuple) and len(allowed) == 1 and isinstance(allowed[0], tuple):
            allowed = allowed[0]
        return cls.of(source, allowed, name=name, cap=parameters.get("cap"))

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name, as in JSON."""
        parameters = {"allowed_values": self.allowed.to_document()}
        return parameters if self.cap is None else parameters | {"cap": self.cap}

    def argument_texts(self) -> list[str]:
        """Return the arguments after the source, as in the short form."""
        document = self.allowed.to_document()
        if isinstance(document, dict):
            texts = [f"{key}={sql_literal(value)}" for key, value in document.items()]
        elif document == "*":
            texts = []
        else:
            texts = [sql_literal(value) for value in document]
            if document in ([], ["*"]):
                texts = [f"[{', '.join(texts)}]"]
        return texts if self.cap is None else [*texts, f"cap={self.cap}"]

    @property
    def cardinality(self) -> int | None:
        """The number of possible partitions besides that of null."""
        listed = self.allowed.values if isinstance(self.allowed, OneOf) else None
        return (len(listed) if listed is not None else self.cap or DEFAULT_CAP) + 1

    def result_type(self, source: Type) -> Type:
        """Return string.

        Raises:
            PartitionSpecError: An allowed value does not have the type of the source.
        """
        self.bound(source)
        return _STRING

    def bound(self, source: Type) -> AllowedValues:
        """Return the allowed values for sources of a type."""
        return _bind(self.allowed, source, f"dimension({self.source})")

    def _listed(self, source: Type) -> tuple[Scalar, ...] | None:
        """Return the allowed values if each always has a partition of its own; else None."""
        listed = self.bound(source).listed
        if listed is None or isinstance(self.allowed, OneOf):
            return listed
        return listed if len(listed) <= (self.cap or DEFAULT_CAP) else None

    def capped_at(self, source: Type) -> int | None:
        """Return how many values may have a partition; None if they are listed."""
        return (self.cap or DEFAULT_CAP) if self._listed(source) is None else None

    def value(self, value: Scalar, source: Type) -> Scalar:
        """Return the text of the value, or a token."""
        if value is None:
            return UNKNOWN
        if not self.bound(source).allows(value):
            return OTHER
        text = str(value).lower() if isinstance(value, bool) else format_value(value)
        if _TOKEN_LIKE.fullmatch(text):
            text = f"~{text}"
        return text if self._fits(text) else OTHER

    def _fits(self, text: str) -> bool:
        room = self.room_bytes
        return len(text) * 12 <= room or len(urllib.parse.quote(text, safe="")) <= room

    @property
    def room_bytes(self) -> int:
        """The maximal number of bytes of a percent-encoded value in its directory."""
        return MAX_COMPONENT_BYTES - encoded_length(self.name) - 1

    def array(self, array: pa.Array, source: Type) -> pa.Array:
        """Return the texts; each distinct value is converted once."""
        encoded = array.dictionary_encode()
        values = to_python(encoded.dictionary, f"Field {self.source!r}")
        texts = pa.array([self.value(value, source) for value in values], pa.string())
        return texts.take(encoded.indices).fill_null(UNKNOWN)

    def project(self, leaf: Leaf, source: Type, *, strict: bool) -> Predicate | None:
        """Project a condition to the partitions that may, or surely do, match."""
        match leaf:
            case NullCheck(_, negated):
                return Comparison(self.name, Op.NE if negated else Op.EQ, UNKNOWN)
            case Membership(_, (), negated):
                return TRUE if negated else FALSE
            case Membership(_, values, negated):
                pass
            case Comparison(_, op, value):
                negated = op is Op.NE
                values = (value,) if op in (Op.EQ, Op.NE) else ()
            case Like():
                negated, values = False, ()
        listed = self._listed(source)
        if listed is not None:
            return self._project_listed(leaf, listed, source, values, negated, strict=strict)
        if isinstance(leaf, Like):
            return None if strict else Comparison(self.name, Op.NE, UNKNOWN)
        if not values:
            return self._project_order(leaf, source, strict=strict)
        own = self._own(values, source)
        if negated:
            tokens = TOKENS if strict else (UNKNOWN,)
            return Membership(self.name, (*own, *tokens), negated=True)
        return self._one_of(own if strict else (*own, OTHER))

    def _own(self, values: tuple[Scalar, ...], source: Type) -> tuple[Scalar, ...]:
        """Return the own partitions of some values, which they have or, below the cap, may have."""
        images = dict.fromkeys(self.value(value, source) for value in values)
        return tuple(image for image in images if image != OTHER)

    def _one_of(self, partitions: tuple[Scalar, ...]) -> Predicate:
        return Membership(self.name, partitions) if partitions else FALSE

    def _project_listed(
        self,
        leaf: Leaf,
        listed: tuple[Scalar, ...],
        source: Type,
        values: tuple[Scalar, ...],
        negated: bool,  # noqa: FBT001 - private
        *,
        strict: bool,
    ) -> Predicate:
        """Evaluate the condition for each allowed value; the values in it decide on OTHER."""
        own = self._own(
            tuple(value for value in listed if matches(leaf, {leaf.column: value})), source
        )
        names_others = any(self.value(value, source) == OTHER for value in values)
        if not values:
            keeps_others = not strict
        elif negated:
            keeps_others = not (strict and names_others)
        else:
            keeps_others = names_others and not strict
        return self._one_of((*own, OTHER) if keeps_others else own)

    def _project_order(self, leaf: Leaf, source: Type, *, strict: bool) -> Predicate | None:
        """Project a comparison by order, if texts are ordered as the values are.

        A text that begins with `~` may be an escaped token, which is not in order.
        """
        assert isinstance(leaf, Comparison)
        if kind_of(source) not in _ORDERED_AS_TEXT:
            return None if strict else Comparison(self.name, Op.NE, UNKNOWN)
        comparison = Comparison(self.name, leaf.op, format_value(leaf.value))
        tilde, beyond = (Comparison(self.name, Op.GE, text) for text in ("~", "\x7f"))
        if strict:
            plain = any_of([Comparison(self.name, Op.LT, "~"), beyond])
            return all_of([comparison, plain, Membership(self.name, TOKENS, negated=True)])
        escaped = all_of([tilde, Comparison(self.name, Op.LT, "\x7f")])
        other = Comparison(self.name, Op.EQ, OTHER)
        return all_of([any_of([comparison, escaped, other]), Comparison(self.name, Op.NE, UNKNOWN)])


@functools.lru_cache(maxsize=256)
def _bind(allowed: AllowedValues, source: Type, place: str) -> AllowedValues:
    return allowed.bind(source, place)

"""Allowed values of a dimension: the values that have a partition of their own.

Their JSON form is that of telemetry_schema.json: `"*"`, a list, any other text (a list of one), a
range `{"min": …, "max": …}`, or `{"regex": …}`.
"""

from __future__ import annotations

import datetime as dt
import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakebed.common.shown import cut
from lakebed.errors import InvalidInputError, PartitionSpecError
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.model.values import FLOATS, INTEGERS, Scalar, check_value, parse_value

OTHER = "OTHER"  # for values that are not allowed
UNKNOWN = "UNKNOWN"  # for null and for a missing field
TOKENS = (OTHER, UNKNOWN)
MAX_LISTED = 10_000  # values of one list
DEFAULT_CAP = 1_000  # values with a partition of their own, where the rule does not list them
MAX_PATTERN_LENGTH = 1_000
# Types that texts may be read as, which makes a range of texts one of numbers or days.
RANGE_KINDS = INTEGERS | FLOATS | {Kind.DATE}

_STRING = Primitive(Kind.STRING)


class AllowedValues(ABC):
    """A rule that decides whether a value is allowed. It is never applied to null."""

    __slots__ = ()

    @abstractmethod
    def bind(self, kind: Type, place: str) -> AllowedValues:
        """Return the rule for values of a type, with its own values converted to that type.

        Args:
            kind: The type of the values that it will be applied to.
            place: The name of the rule in the error.

        Raises:
            PartitionSpecError: A value of the rule is not of the type.
        """

    @abstractmethod
    def allows(self, value: Scalar) -> bool:
        """Return whether a value is allowed; it is not null, and has the type of the bound rule."""

    @abstractmethod
    def to_document(self) -> Any:
        """Return the JSON form, parsed."""

    @property
    def listed(self) -> tuple[Scalar, ...] | None:
        """All allowed values, if the rule lists each of them; bound rules only."""
        return None


@dataclass(frozen=True, slots=True)
class AnyValue(AllowedValues):
    """Every value: `"*"`."""

    def bind(self, kind: Type, place: str) -> AllowedValues:  # noqa: ARG002 - see AllowedValues
        """Return the rule, which has no values; for booleans, the list of both."""
        return OneOf((True, False)) if kind == Primitive(Kind.BOOLEAN) else self

    def allows(self, value: Scalar) -> bool:  # noqa: ARG002 - see AllowedValues
        """Return True."""
        return True

    def to_document(self) -> Any:
        """Return the JSON form, parsed."""
        return "*"


@dataclass(frozen=True, slots=True)
class PerhapsAllowed(AllowedValues):
    """Any value, which may be in its own partition or in `OTHER`: the rule has changed since."""

    def bind(self, kind: Type, place: str) -> AllowedValues:  # noqa: ARG002 - see AllowedValues
        """Return the rule, which has no values."""
        return self

    def allows(self, value: Scalar) -> bool:  # noqa: ARG002 - see AllowedValues
        """Return True."""
        return True

    def to_document(self) -> Any:
        """Return the JSON form of every value."""
        return "*"


@dataclass(frozen=True, slots=True)
class OneOf(AllowedValues):
    """The values of a list, compared exactly; an empty one allows nothing."""

    values: tuple[Scalar, ...] = field(compare=False)
    _members: frozenset[Scalar] = field(init=False, repr=False, compare=False)
    _key: tuple[tuple[type, Scalar], ...] = field(init=False, repr=False)  # 1 equals True

    def __post_init__(self) -> None:
        object.__setattr__(self, "_members", frozenset(self.values))
        object.__setattr__(self, "_key", tuple((type(value), value) for value in self.values))

    def __repr__(self) -> str:
        return f"OneOf({cut(repr(self.values))})"

    def bind(self, kind: Type, place: str) -> AllowedValues:
        """Return the list of typed values; text is parsed as in paths."""
        return OneOf(tuple(dict.fromkeys(_typed(value, kind, place) for value in self.values)))

    def allows(self, value: Scalar) -> bool:
        """Return whether the value is in the list."""
        return value in self._members

    def to_document(self) -> Any:
        """Return the JSON form, parsed."""
        return list(self.values)

    @property
    def listed(self) -> tuple[Scalar, ...] | None:
        """The values."""
        return self.values


@dataclass(frozen=True, slots=True, kw_only=True)
class Between(AllowedValues):
    """A range, both ends inclusive; None leaves an end open.

    Attributes:
        min: The smallest value.
        max: The largest value.
        read_as: Type to read texts as, where the field holds text. Text that cannot be read as
            that type is not allowed; without a type, texts compare as texts.
    """

    min: Scalar = None
    max: Scalar = None
    read_as: Kind | None = None

    def __post_init__(self) -> None:
        if isinstance(self.min, bool) or isinstance(self.max, bool):
            raise PartitionSpecError(
                "A range of booleans is not supported.", hint="List the values."
            )

    def bind(self, kind: Type, place: str) -> AllowedValues:
        """Return the range with typed ends; a short one of whole numbers or days becomes a list."""
        if kind == Primitive(Kind.BOOLEAN):
            raise PartitionSpecError(
                f"{place}: a range of booleans is not supported.", hint="List the values."
            )
        is_read = self.read_as is not None and kind == _STRING
        if self.read_as is not None and not is_read and kind != Primitive(self.read_as):
            raise PartitionSpecError(
                f"{place}: a range of {self.read_as} does not fit values of type {kind}.",
                hint='Leave out "type": the values have a type already.',
            )
        compared = Primitive(self.read_as) if self.read_as is not None else kind
        if compared == _STRING and any(
            isinstance(end, int | float) for end in (self.min, self.max)
        ):
            raise PartitionSpecError(
                f"{place}: a range of numbers does not fit values of type {kind}.",
                hint='Give the type to read the text as, as in {"min": 448, "type": "long"}.',
            )
        low, high = (
            None if end is None else _typed(end, compared, place) for end in (self.min, self.max)
        )
        if low is not None and high is not None and low > high:  # type: ignore[operator]  # of one type
            raise PartitionSpecError(
                f"{place}: min {self.min!r} is above max {self.max!r}.", hint="Exchange them."
            )
        bound = Between(min=low, max=high, read_as=self.read_as if is_read else None)
        values = None if is_read else _all_between(low, high)
        return bound if values is None else OneOf(values)

    def allows(self, value: Scalar) -> bool:
        """Return whether the value lies in the range."""
        if self.read_as is not None:
            try:
                value = parse_value(str(value), Primitive(self.read_as), "")
            except InvalidInputError:
                return False
            if isinstance(value, float) and math.isnan(value):
                return False
        above = self.min is None or value >= self.min  # type: ignore[operator]  # of one type
        return above and (self.max is None or value <= self.max)  # type: ignore[operator]  # same

    def to_document(self) -> Any:
        """Return the JSON form, parsed."""
        read_as = None if self.read_as is None else str(self.read_as)
        parts = {"min": self.min, "max": self.max, "type": read_as}
        return {name: part for name, part in parts.items() if part is not None}


@dataclass(frozen=True, slots=True)
class Matching(AllowedValues):
    """Text that matches a regular expression as a whole.

    The syntax is that of RE2, which is part of Arrow: no back references and no look-around. The
    time to match is linear in the length of the text, for every pattern.

    Attributes:
        pattern: At most `MAX_PATTERN_LENGTH` characters.
    """

    pattern: str

    def __post_init__(self) -> None:
        import pyarrow.compute as pc

        if len(self.pattern) > MAX_PATTERN_LENGTH:
            raise PartitionSpecError(
                f"A regular expression of {len(self.pattern)} characters is too long.",
                hint=f"Give at most {MAX_PATTERN_LENGTH}, or a list.",
            )
        for pattern in (self.pattern, self._whole):
            try:
                pc.match_substring_regex(pa.scalar(""), pattern)
            except (pa.ArrowInvalid, UnicodeEncodeError) as exc:
                raise PartitionSpecError(
                    f"{self.pattern!r} is not a regular expression of RE2: {exc}",
                    hint="RE2 has no back references and no look-around.",
                ) from exc

    @property
    def _whole(self) -> str:
        return rf"\A(?:{self.pattern})\z"

    def bind(self, kind: Type, place: str) -> AllowedValues:
        """Return the rule, which applies to text only."""
        if kind != _STRING:
            raise PartitionSpecError(
                f"{place}: a regular expression does not fit values of type {kind}.",
                hint="Give a list or a range.",
            )
        return self

    def allows(self, value: Scalar) -> bool:
        """Return whether the text matches."""
        import pyarrow.compute as pc

        fits: bool = pc.match_substring_regex(pa.scalar(value, pa.string()), self._whole).as_py()
        return fits

    def to_document(self) -> Any:
        """Return the JSON form, parsed."""
        return {"regex": self.pattern}


def includes(wide: AllowedValues, narrow: AllowedValues) -> bool:
    """Return whether a rule surely allows every value that another rule allows.

    False for two different regular expressions, which are not compared.

    Args:
        wide: The first rule, bound to a type.
        narrow: The other rule, bound to the same type.

    >>> includes(OneOf(("UA", "B6")), OneOf(("B6",))), includes(Between(min=1), AnyValue())
    (True, False)
    """
    if wide == narrow or isinstance(wide, AnyValue):
        return True
    if narrow.listed is not None:
        return all(wide.allows(value) for value in narrow.listed)
    if not isinstance(wide, Between) or not isinstance(narrow, Between):
        return False
    if wide.read_as != narrow.read_as:
        return False
    lower = wide.min is None or (narrow.min is not None and wide.min <= narrow.min)  # type: ignore[operator]  # of one type
    upper = wide.max is None or (narrow.max is not None and wide.max >= narrow.max)  # type: ignore[operator]  # same
    return lower and upper


def _typed(value: Scalar, kind: Type, place: str) -> Scalar:
    try:
        if isinstance(value, str):
            return parse_value(value, kind, place)
        return check_value(value, kind, place)
    except InvalidInputError as exc:
        raise PartitionSpecError(f"{place}: {exc.message}", hint=exc.hint) from exc


def _all_between(low: Scalar, high: Scalar) -> tuple[Scalar, ...] | None:
    """Return all values of a short range of whole numbers or days; None for any other range."""
    if isinstance(low, int) and isinstance(high, int) and high - low < DEFAULT_CAP:
        return tuple(range(low, high + 1))
    if isinstance(low, dt.date) and isinstance(high, dt.date) and (high - low).days < DEFAULT_CAP:
        return tuple(low + dt.timedelta(days=n) for n in range((high - low).days + 1))
    return None


def read_allowed(value: object, place: str) -> AllowedValues:
    """Read allowed values from any form that a caller or a JSON document may use.

    Args:
        value: `"*"`, a sequence, another text, a mapping with `min`, `max` and `type` or with
            `regex`, or an `AllowedValues`.
        place: The name of the values in the error.

    Raises:
        PartitionSpecError: The value has another form; the message names the place.
    """
    if isinstance(value, AllowedValues):
        return value
    if isinstance(value, str):
        return AnyValue() if value == "*" else OneOf((_read_scalar(value, place),))
    if isinstance(value, Mapping):
        return _read_mapping(value, place)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        if len(value) > MAX_LISTED:
            raise PartitionSpecError(
                f"{place}: a list of {len(value)} values is too long.",
                hint=f"Give at most {MAX_LISTED}, or a range or a regular expression.",
            )
        return OneOf(tuple(_read_scalar(item, f"{place}[{i}]") for i, item in enumerate(value)))
    raise PartitionSpecError(
        f"{place}: {reprlib.repr(value)} is not a valid form of allowed values.",
        hint='Write "*", a list, {"min": …, "max": …} or {"regex": …}.',
    )


def _read_mapping(value: Mapping[Any, Any], place: str) -> AllowedValues:
    if set(value) == {"regex"}:
        if not isinstance(value["regex"], str):
            raise PartitionSpecError(
                f"{place}.regex: {reprlib.repr(value['regex'])} is not text.",
                hint="Write the regular expression as text.",
            )
        try:
            return Matching(value["regex"])
        except PartitionSpecError as exc:
            raise PartitionSpecError(f"{place}.regex: {exc.message}", hint=exc.hint) from exc
    unknown = [name for name in value if name not in ("min", "max", "type")]
    if unknown:
        raise PartitionSpecError(
            f"{place}: unknown kind of allowed values, with {reprlib.repr(unknown[0])}.",
            hint='Write {"min": …, "max": …, "type": …}, each of them optional, or {"regex": …}.',
        )
    ends = {
        end: _read_scalar(value[end], f"{place}.{end}") for end in ("min", "max") if end in value
    }
    return Between(**ends, read_as=_read_kind(value["type"], place) if "type" in value else None)


def _read_kind(value: object, place: str) -> Kind:
    if value not in [str(kind) for kind in RANGE_KINDS]:
        raise PartitionSpecError(
            f"{place}.type: {reprlib.repr(value)} is not a type that text can be read as.",
            hint=f"Types are: {', '.join(sorted(RANGE_KINDS))}.",
        )
    return Kind(str(value))


def _read_scalar(value: object, place: str) -> Scalar:
    is_day = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    is_number = isinstance(value, int | float) and math.isfinite(value)
    if isinstance(value, str):
        return _check_unicode(value, place)
    if is_day:
        return value.isoformat()  # type: ignore[attr-defined,no-any-return]  # narrowed above
    if is_number:
        return value  # type: ignore[return-value]  # narrowed above
    raise PartitionSpecError(
        f"{place}: {reprlib.repr(value)} is not text, a number, a boolean or a day.",
        hint="Null is never allowed: missing values go to UNKNOWN.",
    )


def _check_unicode(text: str, place: str) -> str:
    scalar = _typed(text, _STRING, place)
    assert isinstance(scalar, str)
    return scalar

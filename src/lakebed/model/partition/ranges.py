"""Ranges with given bounds, and ranges of one size."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.errors import PartitionSpecError
from lakebed.model.partition.function import (
    Limits,
    PartitionFunction,
    flat,
    is_in,
    kind_of,
    primitive_of,
)
from lakebed.model.predicate import Comparison, Leaf, Op, Predicate
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.model.values import INTEGER_LIMITS, Scalar, integer_limits

_NUMBERS = frozenset({Kind.INT, Kind.LONG})
_OTHER_ORDER = "[\ue000-\U0010ffff]"  # letters whose order differs between UTF-16 and UTF-8
_LONGS = INTEGER_LIMITS[Kind.LONG]


def is_long(value: object) -> bool:
    """Return whether a parameter is a whole number that fits in a long."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole and _LONGS[0] <= value <= _LONGS[1]  # type: ignore[operator]  # an int


def is_text(value: object) -> bool:
    """Return whether a parameter is text that a column can hold: half a surrogate pair is not."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def utf16(text: str) -> bytes:
    """Return a key that orders texts by their UTF-16 code units, as Java does."""
    return text.encode("utf-16-be")


@dataclass(frozen=True, slots=True, kw_only=True)
class Range(PartitionFunction):
    """The first bound that a value does not exceed: for numbers its index, for texts the bound.

    Texts are ordered by their UTF-16 code units, as in Java. Values above the last bound have no
    partition.

    Attributes:
        bounds: Greatest values of the ranges, ascending, all numbers or all texts.
    """

    bounds: tuple[int, ...] | tuple[str, ...]

    type_name = "range"
    kinds = _NUMBERS | {Kind.STRING}
    required = ("bounds",)
    gathers = True

    def __post_init__(self) -> None:
        super(Range, self).__post_init__()
        if not isinstance(self.bounds, Sequence) or isinstance(self.bounds, str | bytes):
            raise self._refuse_bounds("Give a list of numbers, or of texts.")
        bounds = tuple(self.bounds)
        object.__setattr__(self, "bounds", bounds)
        is_typed = all(map(is_long, bounds)) or all(map(is_text, bounds))
        if not bounds or not is_typed:
            raise self._refuse_bounds("Give at least one, all numbers or all texts.")
        keys = self._keys()
        for position, (lower, upper) in enumerate(pairwise(keys)):
            if lower >= upper:
                raise self._refuse_bounds(
                    f"They must ascend, but {bounds[position]!r} is before "
                    f"{bounds[position + 1]!r}."
                )

    @classmethod
    def default_name(cls, type_name: str, source: str) -> str:  # noqa: ARG003 - see PartitionFunction
        """Return Kite's name."""
        return f"{flat(source)}_bound"

    def _refuse_bounds(self, hint: str) -> PartitionSpecError:
        return PartitionSpecError(f"{self.call} cannot have bounds {self.bounds!r}.", hint=hint)

    @property
    def _is_of_texts(self) -> bool:
        return isinstance(self.bounds[0], str)

    def _keys(self) -> tuple[Any, ...]:
        return _keys(self.bounds)

    @property
    def cardinality(self) -> int:
        """The number of bounds."""
        return len(self.bounds)

    def result_type(self, source: Type) -> Type:
        """Return int for numbers, string for texts.

        Raises:
            PartitionSpecError: The bounds do not have the type of the source.
        """
        if self._is_of_texts is not (kind_of(source) is Kind.STRING):
            kind = "texts" if self._is_of_texts else "numbers"
            raise PartitionSpecError(
                f"{self.call} has {kind} for bounds, but field {self.source!r} is a {source}.",
                hint=f"Give bounds of type {source}.",
            )
        return Primitive(Kind.STRING if self._is_of_texts else Kind.INT)

    def limits(self, source: Type) -> Limits | None:
        """Return the limits of numbers, up to the last bound; None for texts."""
        if kind_of(source) not in _NUMBERS:
            return None
        low, high = integer_limits(primitive_of(source))
        return low, min(high, int(self.bounds[-1]))

    def accepts(self, value: Scalar, source: Type) -> bool:  # noqa: ARG002 - see PartitionFunction
        """Return whether a value is not above the last bound."""
        return bool(_key(value) <= _key(self.bounds[-1]))

    def refusal(self, value: Scalar, source: Type) -> PartitionSpecError:  # noqa: ARG002 - see PartitionFunction
        """Return the error for a value above the last bound."""
        return PartitionSpecError(
            f"{self.call}: value {value!r} is above the last bound {self.bounds[-1]!r}.",
            hint="Correct the value, or create the dataset with a greater last bound.",
        )

    def is_ordered(self, source: Type) -> bool:
        """Return True for numbers, whose indices ascend; texts are compared in another order."""
        return kind_of(source) in _NUMBERS

    def count_of(self, image: Scalar, source: Type) -> int | None:
        """Return how many numbers are in a range; None for texts."""
        if kind_of(source) not in _NUMBERS:
            return None
        index = int(image)  # type: ignore[arg-type]  # an index
        low, high = integer_limits(primitive_of(source))
        below = int(self.bounds[index - 1]) if index else low - 1
        return min(int(self.bounds[index]), high) - max(below, low - 1)

    def value(self, value: Scalar, source: Type) -> Scalar:
        """Return the index of a number's bound, or the bound of a text."""
        self.check_value(value, source)
        index = bisect_left(self._keys(), _key(value))
        return self.bounds[index] if self._is_of_texts else index

    def array(self, array: pa.Array, source: Type) -> pa.Array:
        """Return the bounds, or their indices; each distinct text is converted once."""
        if self._is_of_texts:
            encoded = array.dictionary_encode()
            return self._bounds_of(encoded.dictionary, source).take(encoded.indices)
        self.check_array(array, source)
        numbers = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        indices = np.searchsorted(np.array(self.bounds, np.int64), numbers, side="left")
        mask = array.is_null().to_numpy(zero_copy_only=False)
        return pa.array(indices.astype(np.int32), mask=mask)

    def _bounds_of(self, texts: pa.Array, source: Type) -> pa.Array:
        """Return the bounds of texts; column by column if UTF-8 and UTF-16 order them alike."""
        import pyarrow.compute as pc

        if pc.any(pc.match_substring_regex(texts, _OTHER_ORDER)).as_py():
            bounds = [self.value(text, source) for text in texts.to_pylist()]
            return pa.array(bounds, pa.string())
        below = np.zeros(len(texts), dtype=np.int64)
        for bound in self.bounds:
            below += pc.greater(texts, bound).to_numpy(zero_copy_only=False)
        beyond = np.flatnonzero(below == len(self.bounds))
        if len(beyond):
            raise self.refusal(texts[int(beyond[0])].as_py(), source)
        return pa.array(self.bounds, pa.string()).take(pa.array(below))

    def project(self, leaf: Leaf, source: Type, *, strict: bool) -> Predicate | None:
        """Project as other functions do; texts also by order, range by range."""
        if self._is_of_texts and isinstance(leaf, Comparison) and leaf.op not in (Op.EQ, Op.NE):
            return is_in(self.name, self._texts_that(leaf.op, str(leaf.value), strict=strict))
        return super(Range, self).project(leaf, source, strict=strict)

    def _texts_that(self, op: Op, text: str, *, strict: bool) -> tuple[Scalar, ...]:
        """Return the bounds whose ranges may hold (strict: hold only) texts that meet a comparison.

        Comparisons go by code points, ranges by UTF-16 code units. The two orders differ where a
        surrogate pair is compared with U+E000 to U+FFFF, so `text` from the first such letter on is
        treated as unknown.
        """
        plain = text[: next((i for i, c in enumerate(text) if c >= "\ue000"), len(text))]
        least = greatest = utf16(plain)
        if plain != text:
            longest = max(len(key) for key in self._keys())
            greatest += b"\xff" * (longest + 4)  # after all texts that begin with `plain`
        bounds: list[Scalar] = []
        low = b""
        for bound in self.bounds:
            high = utf16(str(bound))
            match op:
                case Op.LE:
                    fits = high <= least if strict else low <= greatest
                case Op.LT:
                    fits = high < least if strict else low < greatest
                case Op.GE:
                    fits = low >= greatest if strict else high >= least
                case _:
                    fits = low > greatest if strict else high > least
            if fits:
                bounds.append(bound)
            low = high + b"\0\0"  # the next text after the bound
        return tuple(bounds)


@lru_cache(maxsize=256)
def _keys(bounds: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_key(bound) for bound in bounds)


def _key(value: Any) -> Any:
    return utf16(value) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedRange(PartitionFunction):
    """The start of a value's range: the greatest multiple of the size that is not above it.

    The lowest range begins at -2^63, the least long, even if that is not a multiple.

    Attributes:
        size: The number of values in a range.
    """

    size: int

    type_name = "fixed_range"
    kinds = _NUMBERS
    required = ("size",)

    def __post_init__(self) -> None:
        super(FixedRange, self).__post_init__()
        if not is_long(self.size) or self.size < 1:
            raise PartitionSpecError(
                f"{self.call} cannot have size {self.size!r}.",
                hint="Give a whole number of at least 1.",
            )

    @classmethod
    def default_name(cls, type_name: str, source: str) -> str:  # noqa: ARG003 - see PartitionFunction
        """Return Kite's name."""
        return f"{flat(source)}_range"

    def to_document(self) -> dict[str, Any]:
        """Return Kite's JSON form, in which this function is a `range` with a size."""
        return super(FixedRange, self).to_document() | {"type": "range"}

    def result_type(self, source: Type) -> Type:  # noqa: ARG002 - see PartitionFunction
        """Return long."""
        return Primitive(Kind.LONG)

    def limits(self, source: Type) -> Limits | None:
        """Return the limits of the type: no stored value exceeds them."""
        return integer_limits(primitive_of(source))

    def is_ordered(self, source: Type) -> bool:  # noqa: ARG002 - see PartitionFunction
        """Return True: greater numbers are in greater ranges."""
        return True

    def count_of(self, image: Scalar, source: Type) -> int | None:
        """Return how many numbers of the type are in a range."""
        low, high = integer_limits(primitive_of(source))
        start = int(image)  # type: ignore[arg-type]  # the start of a range
        multiple = start // self.size * self.size  # the lowest start may not be a multiple
        return min(high, multiple + self.size - 1) - max(low, start) + 1

    def value(self, value: Scalar, source: Type) -> Scalar:  # noqa: ARG002 - see PartitionFunction
        """Return the start."""
        number = int(value)  # type: ignore[arg-type]  # a number
        return max(_LONGS[0], number - number % self.size)

    def array(self, array: pa.Array, source: Type) -> pa.Array:  # noqa: ARG002 - see PartitionFunction
        """Return the starts."""
        numbers = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        steps = numbers % np.int64(self.size)  # not negative
        is_below = numbers < _LONGS[0] + steps
        starts = np.where(is_below, np.int64(_LONGS[0]), numbers - np.where(is_below, 0, steps))
        return pa.array(starts, mask=array.is_null().to_numpy(zero_copy_only=False))

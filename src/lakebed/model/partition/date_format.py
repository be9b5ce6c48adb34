"""Times as text, by a pattern of Java's SimpleDateFormat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from lakebed.errors import PartitionSpecError
from lakebed.model.partition.calendar import (
    CALENDAR_UNITS,
    FIRST_DAY,
    LAST_DAY,
    TimeFunction,
    civil,
    first_day_of,
)
from lakebed.model.partition.function import Limits
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.model.values import Scalar

_MONTHS = (
    "- January February March April May June July August September October November December"
).split()
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_LETTERS = "yYMwdDEuaHkKhmsS"

# Ranks of the letters by which texts are ordered, each after the one before: year 1 to fraction 7.
_RANKS = {"y": 1, "M": 2, "d": 3, "D": 3, "H": 4, "m": 5, "s": 6, "S": 7}
_WIDTHS = {
    "y": (4, 99),
    "M": (2, 2),
    "D": (3, 99),
    "S": (3, 99),
}  # widths that sort as text; else (2, 99)
# Changes a day of the number of each letter that changes within a day.
_HOURS = dict.fromkeys("aHkKh", 24)
_STEPS_A_DAY = _HOURS | {"m": 1_440, "s": 86_400, "S": 86_400_000}
# Rank from which on a letter is redundant.
_KNOWN_FROM = _RANKS | {"Y": 3, "w": 3, "E": 3, "u": 3, "a": 4, "k": 4, "K": 4, "h": 4}


class _Field(NamedTuple):
    letter: str  # empty for literal text
    width: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DateFormat(TimeFunction):
    """The text of a time in UTC, by a pattern such as `yyyy-MM-dd`.

    The pattern is one of Java's SimpleDateFormat, in English. Weeks begin on Sunday, and week 1
    is the one of January 1. Years are 1 to 9999, so texts have one length.

    Comparisons prune if the texts are ordered as the times are.

    Attributes:
        format: The pattern: letters `y Y M w d D E u a H k K h m s S`, quoted text, and other
            characters except `/`.
    """

    format: str

    type_name = "date_format"
    required = ("format",)

    def __post_init__(self) -> None:
        if not isinstance(self.format, str) or not self.format:
            raise PartitionSpecError(
                f"{self.call} cannot use the pattern {self.format!r}.",
                hint="Give one such as yyyy-MM-dd.",
            )
        try:
            self._fields()
        except ValueError as exc:
            raise PartitionSpecError(
                f"{self.call} cannot use the pattern {self.format!r}.", hint=str(exc)
            ) from exc
        super(DateFormat, self).__post_init__()

    def to_document(self) -> dict[str, Any]:
        """Return Kite's JSON form."""
        return super(DateFormat, self).to_document() | {"type": "dateFormat"}

    def _fields(self) -> tuple[_Field, ...]:
        return _read_pattern(self.format)

    def _rank(self) -> int:
        return _rank(self._fields())

    @property
    def refined_by(self) -> tuple[str, ...]:  # type: ignore[override]  # depends on the pattern
        """The calendar parts below the finest field."""
        return CALENDAR_UNITS[self._rank() :]

    @property
    def part_count(self) -> int:
        """Number of calendar parts down to that of the finest letter; 1 for a year alone."""
        ranks = (_RANKS.get(field.letter, 1) for field in self._fields())
        return max((rank for rank in ranks if rank <= len(CALENDAR_UNITS)), default=1)

    def result_type(self, source: Type) -> Type:
        """Return string."""
        self.check_unit(source)
        return Primitive(Kind.STRING)

    def limits(self, source: Type) -> Limits | None:
        """Return the limits of numbers: the years 1 to 9999."""
        return self.day_limits(source, FIRST_DAY, LAST_DAY)

    def is_ordered(self, source: Type) -> bool:  # noqa: ARG002 - see PartitionFunction
        """Return whether texts of later times are greater."""
        return self._rank() > 0

    def value(self, value: Scalar, source: Type) -> Scalar:
        """Return the text."""
        self.check_value(value, source)
        numbers = self._numbers(self.ticks(value), source)
        texts = []
        for letter, width, text in self._fields():
            names = _names(letter, width)
            if not letter:
                texts.append(text)
            elif names:
                texts.append(names[int(numbers[letter])])
            else:
                texts.append(str(int(_cut(numbers[letter], letter, width))).zfill(width))
        return "".join(texts)

    def array(self, array: pa.Array, source: Type) -> pa.Array:
        """Return the texts."""
        import pyarrow.compute as pc

        self.check_array(array, source)
        a_day = self.ticks_a_day(source)
        ticks = self.tick_array(array)
        self.check_years(array, ticks, source)
        # Times with the same text are formatted once.
        finest = max((_STEPS_A_DAY.get(field.letter, 1) for field in self._fields()), default=1)
        step = max(1, a_day // finest)
        encoded = pa.array(ticks // step).dictionary_encode()
        texts = self._texts(encoded.dictionary.to_numpy() * step, source).take(encoded.indices)
        return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string()))

    def _texts(self, ticks: Any, source: Type) -> pa.Array:
        """Return the texts of a NumPy column, built field by field."""
        import pyarrow.compute as pc

        numbers = self._numbers(ticks, source)
        pieces = []
        for letter, width, text in self._fields():
            names = _names(letter, width)
            if not letter:
                pieces.append(pa.repeat(text, len(ticks)))
            elif names:
                pieces.append(pa.array(names).take(pa.array(numbers[letter])))
            else:
                plain = pa.array(_cut(numbers[letter], letter, width)).cast(pa.string())
                pieces.append(pc.utf8_lpad(plain, width, "0"))
        return pc.binary_join_element_wise(*pieces, "")

    def _numbers(self, ticks: Any, source: Type) -> Mapping[str, Any]:
        """Return the number of each letter, for a number or a NumPy column."""
        a_day = self.ticks_a_day(source)
        days, since_midnight = ticks // a_day, ticks % a_day
        year, month, day = civil(days)
        # A week ends on Saturday, and belongs to the year that its Saturday is in.
        saturday = days + (2 - days) % 7
        week_year, _, _ = civil(saturday)
        millis = (
            since_midnight * 86_400_000 // a_day
            if a_day < 86_400_000
            else since_midnight // (a_day // 86_400_000)
        )
        hour = millis // 3_600_000
        return {
            "y": year,
            "Y": week_year,
            "M": month,
            "w": (saturday - first_day_of(week_year)) // 7 + 1,
            "d": day,
            "D": days - first_day_of(year) + 1,
            "E": (days + 3) % 7,
            "u": (days + 3) % 7 + 1,
            "a": hour // 12,
            "H": hour,
            "k": (hour + 23) % 24 + 1,
            "K": hour % 12,
            "h": (hour + 11) % 12 + 1,
            "m": millis // 60_000 % 60,
            "s": millis // 1_000 % 60,
            "S": millis % 1_000,
        }


def _names(letter: str, width: int) -> list[str] | None:
    """Return the names of the numbers of a letter, or None if it is written as a number."""
    if letter == "a":
        return ["AM", "PM"]
    if letter == "E" or (letter == "M" and width >= 3):
        names = _DAYS if letter == "E" else _MONTHS
        return names if width >= 4 else [name[:3] for name in names]
    return None


def _cut(number: Any, letter: str, width: int) -> Any:
    """Return the number to write: for a year of two letters, its last two digits."""
    return number % 100 if letter in "yY" and width == 2 else number


@lru_cache(maxsize=256)
def _read_pattern(pattern: str) -> tuple[_Field, ...]:
    """Return the pieces of a pattern.

    Raises:
        ValueError: The pattern is not valid; the message is a hint.
    """
    if "/" in pattern:
        raise ValueError("A partition is one directory: leave out '/'.")
    fields: list[_Field] = []
    position, is_quoted = 0, False
    while position < len(pattern):
        letter = pattern[position]
        width = 1
        if letter == "'" and pattern[position + 1 : position + 2] == "'":
            fields.append(_Field("", 0, "'"))  # two quotes are one, quoted or not
            width = 2
        elif letter == "'":
            is_quoted = not is_quoted
        elif is_quoted or not (letter.isascii() and letter.isalpha()):
            fields.append(_Field("", 0, letter))
        elif letter in _LETTERS:
            tail = pattern[position:]
            width = len(tail) - len(tail.lstrip(letter))
            fields.append(_Field(letter, width, ""))
        else:
            raise ValueError(
                f"The letter {letter!r} is not supported: "
                f"letters are {' '.join(_LETTERS)}; put text between quotes."
            )
        position += width
    if is_quoted:
        raise ValueError("A quote is not closed.")
    if any(field.width > 30 for field in fields):
        raise ValueError("A field has at most 30 letters.")
    return tuple(fields)


def _rank(fields: tuple[_Field, ...]) -> int:
    """Return the rank up to which the texts are ordered as times, or 0 if they are not."""
    rank = 0
    for letter, width, _ in fields:
        if not letter or rank >= _KNOWN_FROM[letter]:
            continue
        least, most = _WIDTHS.get(letter, (2, 99))
        follows = _RANKS.get(letter) == rank + 1 or (letter == "D" and rank == 1)
        if not follows or not least <= width <= most:
            return 0
        rank = _RANKS[letter]
    return rank

"""Types of columns of texts, with what was seen in them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.reading.date_formats import iso_text
from lakebed.arrow.reading.texts import (
    BOOLEANS,
    DATE_FORMATS,
    MAX_EXACT,
    NOTATIONS,
    PLAIN,
    NumberNotation,
    formats_of_date,
    has_zone,
    kind_of_number,
    kind_of_text,
    needs_notation,
)
from lakebed.arrow.reading.usual_forms import are_usual, usual_days
from lakebed.common.shown import shown
from lakebed.model.schema import Kind

_NUMBERS = frozenset({Kind.LONG, Kind.DOUBLE})
_MOMENTS = frozenset({Kind.DATE, Kind.TIMESTAMP})
_MOST_DAYS = 1_000
_FEW = 16
_DAY = "[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_CLOCK = "[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"


@dataclass(frozen=True, slots=True)
class _Form:
    """A usual form of the values of a type. All distinct values of it are looked at by Arrow.

    Attributes:
        kind: The type.
        pattern: Regular expression of the form.
        sizes: Least and largest number of bytes.
    """

    kind: Kind
    pattern: str
    sizes: tuple[int, int]


_FORMS = (
    _Form(Kind.LONG, "^(0|-?[1-9][0-9]{0,13})$", (1, 15)),  # a double holds all of them
    _Form(Kind.DOUBLE, r"^-?(0|[1-9][0-9]{0,6})\.[0-9]{1,8}$", (3, 17)),
    _Form(Kind.DATE, f"^{_DAY}$", (10, 10)),
    _Form(Kind.TIMESTAMP, f"^{_DAY}{_CLOCK}$", (19, 19)),
    _Form(Kind.TIMESTAMP, f"^{_DAY}{_CLOCK}Z$", (20, 20)),
    # Except words for null and booleans.
    _Form(Kind.STRING, r"(?s)^\p{L}(.*[\p{L}\p{N}\p{P}])?$", (1, 2**31)),
)
_TRUE = pa.scalar(True)  # noqa: FBT003 - a value
_LEADING_ZERO = re.compile("-?0[0-9]+")


@dataclass(slots=True)
class _Numbers:
    """Values of a column as numbers of one notation.

    Attributes:
        kinds: Types of the values.
        is_exact: True if a double holds every whole number.
        is_proven: True if a value has a meaning in this notation alone.
    """

    kinds: set[Kind] = field(default_factory=set)
    is_exact: bool = True
    is_proven: bool = False

    def add_whole(self, *, is_exact: bool) -> None:
        """Take a whole number that is written without separators."""
        self.kinds.add(Kind.LONG)
        self.is_exact &= is_exact

    def add(self, kind: Kind, text: str, notation: NumberNotation) -> None:
        self.kinds.add(kind)
        if (
            kind is Kind.LONG
            and abs(int(text.replace(notation[1], "") if notation[1] else text)) > MAX_EXACT
        ):
            self.is_exact = False
        if notation != PLAIN and not self.is_proven:
            self.is_proven = needs_notation(text, notation)

    @property
    def kind(self) -> Kind | None:
        """The type that holds all values; None if there is none."""
        if len(self.kinds) == 1:
            return next(iter(self.kinds))
        return Kind.DOUBLE if self.kinds == _NUMBERS and self.is_exact else None


class TextColumn:
    """Texts of a column of CSV, and the narrowest type that holds all of them.

    Attributes:
        null_at: Position of the first null; empty without any.
        count: Number of rows.
        empty_count: Number of cells without text.
        words: Number of cells with each word that usually stands for null.
    """

    def __init__(self, nulls: frozenset[str], formats: Sequence[str] = DATE_FORMATS) -> None:
        """Begin a column.

        Args:
            nulls: Words that stand for null if the column is not of text.
            formats: Formats of dates that may be found.
        """
        self._nulls = nulls
        self._kinds: Counter[Kind] = Counter()
        self._numbers = {notation: _Numbers() for notation in NOTATIONS}
        self._formats: frozenset[str] | None = None
        self._given_formats = formats
        self._local_count = 0
        self._forms: tuple[_Form, ...] = _FORMS
        self._is_distinct = False
        self._example: dict[Kind, str] = {}
        self._days: set[str] = set()
        self.null_at = ""
        self.count = 0
        self.empty_count = 0
        self.words: Counter[str] = Counter()

    def note_null(self, place: str) -> None:
        """Keep the position of a null."""
        self.null_at = self.null_at or place

    def add(self, texts: pa.ChunkedArray, numbers: Sequence[int], location: str) -> None:
        """Look at some texts, whose records begin in lines of these numbers."""
        self.count += len(texts)
        if texts.null_count:
            self.empty_count += texts.null_count
            if not self.null_at:
                position = texts.is_null().to_pylist().index(True)
                # Empty lines are skipped, so that row numbers and line numbers may differ.
                is_aligned = len(texts) == len(numbers)
                line = f", line {numbers[position]}" if is_aligned else ""
                self.null_at = f"{location}{line}"
        present = texts.drop_null().combine_chunks()
        counts: pa.Array | None = None
        if self._is_distinct:  # counting distinct values costs more than looking at all
            values = present
        else:
            values, counts = present.value_counts().flatten()
        self._is_distinct = 2 * len(values) > len(present)
        self._add_each(values.slice(0, _FEW), _part(counts, 0, _FEW), location)
        values, counts = values.slice(_FEW), _part(counts, _FEW)
        for place, form in enumerate(self._forms):
            if len(values) <= _FEW:
                break
            kind = form.kind
            if not self._is_settled_for(kind) or not _may_match(values, form):
                continue
            # A test of all values spares the regular expression, which takes many times as long.
            days = usual_days(values, form.sizes[0]) if kind in _MOMENTS else None
            if days is not None or are_usual(values, kind):
                is_alike = pa.repeat(_TRUE, len(values))
            else:
                is_alike = pc.match_substring_regex(values, form.pattern)
            if kind is Kind.STRING:
                words = pa.array(sorted(self._nulls | BOOLEANS), pa.string())
                is_alike = pc.and_not(is_alike, pc.is_in(values, words))
            if is_alike.true_count == len(values) and self._add_alike(kind, values, counts, days):
                self._forms = (self._forms[place], *self._forms[:place], *self._forms[place + 1 :])
                return
            if self._add_alike(kind, values.filter(is_alike), _filtered(counts, is_alike)):
                is_other = pc.invert(is_alike)
                values, counts = values.filter(is_other), _filtered(counts, is_other)
        self._add_each(values, counts, location)

    def _add_each(self, texts: pa.Array, counts: pa.Array | None, location: str) -> None:
        every = itertools.repeat(1, len(texts)) if counts is None else counts.to_pylist()
        for text, count in zip(texts.to_pylist(), every, strict=True):
            self._add(text, count, location)

    def _is_settled_for(self, kind: Kind) -> bool:
        """Return whether a further value of a type adds nothing but its count, and a day."""
        if kind is Kind.LONG:
            return True
        if kind is Kind.DOUBLE:
            return all(
                decimal == "." and Kind.DOUBLE in numbers.kinds and (numbers.is_proven or not group)
                for (decimal, group), numbers in self._numbers.items()
            )
        return not self._numbers and (kind is not Kind.STRING or self._formats == frozenset())

    def _add_alike(
        self,
        kind: Kind,
        texts: pa.Array,
        counts: pa.Array | None,
        days: pa.Array | None = None,
    ) -> bool:
        """Look at texts of a usual form of a type; return whether they are all of the type.

        Args:
            kind: The type.
            texts: The texts.
            counts: Number of times that each of them occurs; None for once.
            days: Their distinct days, if they are known.
        """
        if not len(texts):
            return True
        total = len(texts) if counts is None else pc.sum(counts).as_py()
        if kind in _MOMENTS:
            if days is None:
                days = pc.utf8_slice_codeunits(texts, 0, 10).unique()
                try:
                    days.cast(pa.date32())  # which refuses days that no calendar has
                except pa.ArrowInvalid:
                    return False
            self._days.update(days.to_pylist()[: max(0, _MOST_DAYS - len(self._days))])
            if kind is Kind.TIMESTAMP and not texts[0].as_py().endswith("Z"):
                self._local_count += total
        elif kind is Kind.LONG:
            for numbers in self._numbers.values():
                numbers.add_whole(is_exact=True)
        self._kinds[kind] += total
        self._example.setdefault(kind, texts[0].as_py())
        return True

    def _add(self, text: str, count: int, location: str) -> None:
        stripped = text.strip()
        if not stripped or stripped in self._nulls:
            self.words[stripped] += count
            self.note_null(location)
            return
        kind = kind_of_text(stripped)
        self._kinds[kind] += count
        self._example.setdefault(kind, text)
        if kind is Kind.LONG:  # the same number in each notation, so that it proves none
            is_exact = abs(int(stripped)) <= MAX_EXACT
            for numbers in self._numbers.values():
                numbers.add_whole(is_exact=is_exact)
            return
        for notation, numbers in list(self._numbers.items()):
            is_same = kind in _NUMBERS and notation[0] == "."
            number = kind if is_same else kind_of_number(stripped, notation)
            if number is Kind.STRING:
                del self._numbers[notation]
            else:
                numbers.add(number, stripped, notation)
        if kind is Kind.STRING:
            formats = self._given_formats if self._formats is None else self._formats
            self._formats = formats_of_date(stripped, formats)
            if self._formats and len(self._days) < _MOST_DAYS:
                self._days.add(stripped)
        elif kind in _MOMENTS:
            if len(self._days) < _MOST_DAYS:
                self._days.add(stripped[:10])
            self._local_count += count * (kind is Kind.TIMESTAMP and not has_zone(stripped))

    def kind(self, notation: NumberNotation = PLAIN) -> Kind:
        """Return the type of the column, with numbers of a notation."""
        kinds = frozenset(self._kinds)
        if notation in self._numbers and kinds:
            return self._numbers[notation].kind or Kind.STRING
        if len(kinds) == 1 and kinds != {Kind.STRING}:
            return next(iter(kinds))
        if kinds == _MOMENTS:
            return Kind.TIMESTAMP
        return self._kind_of_dates() or Kind.STRING

    def proves(self, notation: NumberNotation) -> bool:
        """Return whether the column has numbers of this notation, and of no other one."""
        return (
            self.kind() is Kind.STRING
            and self.kind(notation) in _NUMBERS
            and self._numbers[notation].is_proven
        )

    @property
    def date_format(self) -> str | None:
        """The format of all values, as of `strptime`; None for another column, or if two fit."""
        if frozenset(self._kinds) != {Kind.STRING} or not self._formats:
            return None
        return next(iter(self._formats)) if len(self._formats) == 1 else None

    def _kind_of_dates(self) -> Kind | None:
        format_ = self.date_format
        if format_ is None:
            return None
        return Kind.TIMESTAMP if "%M" in format_ else Kind.DATE

    @property
    def is_local(self) -> bool:
        """True if times of the column have no zone."""
        format_ = self.date_format
        return self._local_count > 0 or (format_ is not None and "%M" in format_)

    @property
    def days(self) -> frozenset[str]:
        """Days of a column of dates or times, in the form of ISO 8601, up to a limit."""
        format_ = self.date_format
        if format_ is None:
            return frozenset(self._days) if frozenset(self._kinds) <= _MOMENTS else frozenset()
        return frozenset((iso_text(text, format_) or text)[:10] for text in self._days)

    def notes(self, kind: Kind) -> list[str]:
        """Return remarks on the column, which has been given a type."""
        notes = []
        for word, count in self.words.most_common():
            if word and kind is not Kind.STRING:
                notes.append(f"{count:,} of {self.count:,} are {word!r}")
        if self.empty_count == self.count and self.count:
            notes.append("all are empty")
        if kind is Kind.STRING:
            notes += self._notes_of_text()
        elif self.date_format is not None:
            notes.append(f"all have the form {self.date_format}")
        if kind is Kind.TIMESTAMP and self.is_local:
            notes.append("the times have no zone; see time_zone")
        if kind is Kind.LONG and _LARGE.issuperset(map(len, self._example.values())):
            notes.append("these may be milliseconds since 1970")
        return notes

    def _notes_of_text(self) -> list[str]:
        if self._formats and len(self._formats) > 1:
            first, second, *_ = sorted(self._formats)
            return [f"text: all fit {first} and {second}; see dates"]
        others = {kind: count for kind, count in self._kinds.items() if kind is not Kind.STRING}
        odd = self._kinds[Kind.STRING]
        total = odd + sum(others.values())
        example = self._example.get(Kind.STRING, "")
        if others and odd and 2 * odd < total:
            usual = max(others, key=lambda kind: others[kind])
            return [f"text: {odd:,} of {total:,} are not {usual}, such as {shown(example)}"]
        if _LEADING_ZERO.fullmatch(example):
            return [f"text: some have leading zeros, such as {shown(example)}"]
        if len(others) > 1:
            return [f"text: values are {' and '.join(sorted(map(str, others)))}"]
        return []


def _may_match(texts: pa.Array, form: _Form) -> bool:
    """Return whether the sizes of texts leave it open that some have a form."""
    sizes = pc.min_max(pc.binary_length(texts))
    least, most = form.sizes
    return bool(sizes["min"].as_py() <= most and sizes["max"].as_py() >= least)


def _part(counts: pa.Array | None, start: int, length: int | None = None) -> pa.Array | None:
    return None if counts is None else counts.slice(start, length)


def _filtered(counts: pa.Array | None, mask: pa.Array) -> pa.Array | None:
    return None if counts is None else counts.filter(mask)


_LARGE = frozenset({13})  # digits of milliseconds since 1970 of today


def choose_notation(columns: Sequence[TextColumn]) -> NumberNotation:
    """Return the notation that makes the most columns numbers, if one of them proves it."""
    best, most = PLAIN, sum(column.kind() in _NUMBERS for column in columns)
    for notation in NOTATIONS[1:]:
        if not any(column.proves(notation) for column in columns):
            continue
        count = sum(column.kind(notation) in _NUMBERS for column in columns)
        broken = any(
            column.kind() in _NUMBERS and column.kind(notation) not in _NUMBERS
            for column in columns
        )
        if count > most and not broken:
            best, most = notation, count
    return best

"""A condition on rows, applied to lines that are not rows: rejects, and lines of raw files.

A line has no fields that could be compared. It meets a comparison with a value if it holds that
value as a word: with no letter, digit or underscore right before or after it. Other comparisons
cannot be decided: beside one that can, they count as met; alone, no line can be judged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakebed.model.predicate import And, Comparison, Membership, Op, Or, Predicate
from lakebed.model.values import Scalar, format_value

_BEFORE, _AFTER = rb"(?<![0-9A-Za-z_])", rb"(?![0-9A-Za-z_])"


@dataclass(frozen=True)
class Lines:
    """Chooses the lines that may hold a row of a condition.

    Attributes:
        parts: One of them must be met; of each, all patterns must be found.
    """

    parts: tuple[tuple[re.Pattern[bytes], ...], ...]

    def match(self, line: bytes) -> bool:
        """Return whether a line may hold a row of the condition.

        >>> lines = lines_of(Comparison("user", Op.EQ, "ada@example.org"))
        >>> lines.match(b'{"user": "ada@example.org"}'), lines.match(b"nada@example.org")
        (True, False)
        """
        return any(all(one.search(line) for one in part) for part in self.parts)

    def mask(self, columns: Iterable[pa.Array]) -> np.ndarray:
        """Return for each row whether one of its texts or bytes matches."""
        masks = [
            np.fromiter(
                (value is not None and self.match(_bytes(value)) for value in column.to_pylist()),
                bool,
                len(column),
            )
            for column in columns
        ]
        met: np.ndarray = np.logical_or.reduce(masks)
        return met


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def lines_of(predicate: Predicate) -> Lines | None:
    """Return the condition on lines; None if it names no value in a part of it."""
    parts = _parts(predicate)
    return None if parts is None else Lines(parts)


def _parts(predicate: Predicate) -> tuple[tuple[re.Pattern[bytes], ...], ...] | None:
    match predicate:
        case Comparison(_, Op.EQ, value):
            return ((_pattern([value]),),)
        case Membership(_, values, negated=False) if values:
            return ((_pattern(values),),)
        case Or(parts) if parts:
            of_parts = [_parts(part) for part in parts]
            if any(one is None for one in of_parts):
                return None
            return tuple(one for found in of_parts for one in found or ())
        case And(parts):
            known = [found for part in parts if (found := _parts(part)) is not None]
            if not known:
                return None
            joined = known[0]
            for more in known[1:]:
                joined = tuple((*one, *other) for one in joined for other in more)
            return joined
    return None


def _pattern(values: Iterable[Scalar]) -> re.Pattern[bytes]:
    forms = {form for value in values for form in _forms(value)}
    ordered = sorted(forms, key=len, reverse=True)
    return re.compile(_BEFORE + b"(?:" + b"|".join(map(re.escape, ordered)) + b")" + _AFTER)


def _forms(value: Scalar) -> Iterable[bytes]:
    """Yield the ways in which a value is written: as text, and as JSON escapes it."""
    if isinstance(value, bytes):
        yield value
        return
    text = format_value(value)
    yield text.encode()
    if isinstance(value, str):
        yield json.dumps(value)[1:-1].encode()
        yield json.dumps(value).replace("/", "\\/")[1:-1].encode()

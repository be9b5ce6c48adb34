"""Every partition function on every kind of source, with values at its edges and at random."""

import datetime as dt
import math
import random
import struct
from collections.abc import Sequence
from typing import Any

from lakebed.model.partition import PartitionFunction, PartitionStrategy
from lakebed.model.predicate import (
    And,
    Comparison,
    Membership,
    NullCheck,
    Op,
    Or,
    Predicate,
)
from lakebed.model.schema import Kind, Primitive

NUMBERS = {Kind.INT, Kind.LONG}
DAYS = {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ}
MOMENTS = {Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ}
CALLS: list[tuple[str, set[Kind]]] = [
    ("identity(a) as p", set(Kind) - {Kind.BYTES}),
    ("hash(a, 1)", set(Kind)),
    ("hash(a, 53)", set(Kind)),
    ("hash(a, 2147483647)", set(Kind)),
    ("range(a, 5, 10, 15, 20)", NUMBERS),
    ("range(a, -9223372036854775808, -1, 0, 9223372036854775807)", NUMBERS),
    ("range(a, '', 'a', 'm', '~~~', '\U0001f600', '\ue000b', '\uffff\uffff')", {Kind.STRING}),
    ("fixed_range(a, 1)", NUMBERS),
    ("fixed_range(a, 10)", NUMBERS),
    ("fixed_range(a, 86400)", NUMBERS),
    ("fixed_range(a, 9223372036854775807)", NUMBERS),
    ("values(a, [7, 14, 0], [11, 14, -1], [14])", NUMBERS),
    ("values(a, ['a', 'b'], ['b', '\U0001f600', ''])", {Kind.STRING}),
    ("date(a)", DAYS | NUMBERS),
    ("date(a, s)", NUMBERS),
    ("date(a, us)", NUMBERS),
    ("year(a)", DAYS | NUMBERS),
    ("year(a, s)", NUMBERS),
    ("month(a)", DAYS | NUMBERS),
    ("month(a, s)", NUMBERS),
    ("day(a)", DAYS | NUMBERS),
    ("day(a, ns)", NUMBERS),
    ("hour(a)", MOMENTS | NUMBERS),
    ("hour(a, ns)", NUMBERS),
    ("minute(a)", MOMENTS | NUMBERS),
    ("minute(a, s)", NUMBERS),
    ("date_format(a, 'yyyy')", DAYS | NUMBERS),
    ("date_format(a, 'yyyy-MM-dd')", DAYS | NUMBERS),
    ("date_format(a, 'yyyyMMdd''T''HHmmssSSS')", DAYS | NUMBERS),
    ("date_format(a, 'yyyyDDD-HH', s)", NUMBERS),
    ("date_format(a, 'dd-MM-yyyy')", DAYS | NUMBERS),
    ("date_format(a, 'EEE d MMM yy, h:mm a')", DAYS | NUMBERS),
    ("date_format(a, 'YYYY-\\'W\\'ww u E')", DAYS | NUMBERS),
]
CASES = [(text, kind) for text, kinds in CALLS for kind in sorted(kinds)]

_WALLS = [
    dt.datetime(1, 1, 1),
    dt.datetime(1582, 10, 15),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1970, 1, 1),
    dt.datetime(1999, 12, 31, 23, 59, 59, 999000),
    dt.datetime(2000, 2, 29, 12),
    dt.datetime(2012, 12, 30),
    dt.datetime(2012, 12, 31, 23),
    dt.datetime(2013, 1, 1),
    dt.datetime(2013, 3, 10, 2, 30),  # no such time in New York
    dt.datetime(2013, 11, 20, 1, 49, 38, 434000),
    dt.datetime(9999, 12, 26),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
]
_STARTS = [
    -62135596800000, -86400000, 0, 1384912178434, 1356998400000, 1356998400, 253402300800000
]  # fmt: skip
_TEXTS = [
    "", "a", "a\0", "aa", "b", "m", "z", "~~~", "~~~~", "h\u00e9llo", "polygenelubricants", "\ud7ff", "\ue000",
    "\ue000a", "\ue000b", "\uffff", "\uffff\uffff", "\U0001f600", "\U0001f600x", "a\U0001f600", "a\uffff", "\U0010ffff",
]  # fmt: skip
_LETTERS = "abmz~\0\u00e9\ud7ff\ue000\uffff\U0001f600\U0010ffff"


def _whole(low: int, high: int) -> list[int]:
    near = [start + step for start in _STARTS for step in (-1, 0, 1)]
    found = [low, low + 1, *range(-3, 25), *near, high - 1, high]
    return [value for value in found if low <= value <= high]


EDGES: dict[Kind, list[Any]] = {
    Kind.BOOLEAN: [True, False],
    Kind.INT: _whole(-(2**31), 2**31 - 1),
    Kind.LONG: _whole(-(2**63), 2**63 - 1),
    Kind.UNSIGNED_LONG: [0, 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1],
    Kind.FLOAT: [-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan],
    Kind.DOUBLE: [-math.inf, -1.5, -0.0, 0.0, 0.1, 1.5, math.inf, math.nan],
    Kind.STRING: _TEXTS,
    Kind.BYTES: [b"", b"\0", b"\xff", b"ab"],
    Kind.DATE: sorted({wall.date() for wall in _WALLS}),
    Kind.TIMESTAMP: [wall.replace(tzinfo=dt.UTC) for wall in _WALLS],
    Kind.TIMESTAMP_NTZ: _WALLS,
}


def random_value(rng: random.Random, kind: Kind) -> Any:
    """Return a value of a kind; every second one near an edge."""
    match kind:
        case Kind.INT | Kind.LONG:
            bits = 31 if kind is Kind.INT else 63
            return rng.choice(
                [rng.randrange(-30, 30), rng.randrange(-(2**bits), 2**bits)]
                if kind is Kind.INT
                else [
                    rng.randrange(-30, 30),
                    rng.randrange(-(2**bits), 2**bits),
                    rng.randrange(-(10**14), 3 * 10**14),
                    rng.randrange(0, 2 * 10**12),
                ]
            )
        case Kind.UNSIGNED_LONG:
            return rng.randrange(2**64)
        case Kind.FLOAT:
            return struct.unpack("<f", struct.pack("<f", rng.uniform(-1e6, 1e6)))[0]
        case Kind.DOUBLE:
            return rng.uniform(-1e6, 1e6)
        case Kind.STRING:
            return "".join(rng.choices(_LETTERS, k=rng.randrange(4)))
        case Kind.BYTES:
            return rng.randbytes(rng.randrange(5))
        case Kind.DATE:
            return dt.date.fromordinal(rng.randrange(1, dt.date.max.toordinal() + 1))
        case Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ:
            zone = dt.UTC if kind is Kind.TIMESTAMP else None
            micros = rng.choice(
                [rng.randrange(315_537_897_600 * 10**6), 63 * 10**15 + rng.randrange(10**15)]
            )
            return dt.datetime(1, 1, 1, tzinfo=zone) + dt.timedelta(microseconds=micros)
        case _:
            return rng.random() < 0.5


def values_of(kind: Kind, count: int, seed: int = 1) -> list[Any]:
    """Return the edges of a kind and `count` random values."""
    rng = random.Random(seed)
    return [*EDGES[kind], *[random_value(rng, kind) for _ in range(count)]]


def function_of(text: str) -> PartitionFunction:
    """Return the one function that a text has."""
    (function,) = PartitionStrategy.parse(text)
    return function


def accepted(function: PartitionFunction, kind: Kind, values: Sequence[Any]) -> list[Any]:
    """Return the values that the function has a partition for."""
    return [value for value in values if function.accepts(value, Primitive(kind))]


def random_predicate(
    rng: random.Random, columns: dict[str, Sequence[Any]], depth: int = 2
) -> Predicate:
    """Return a tree of conditions; each value is of its column."""
    if depth and rng.random() < 0.6:
        parts = [random_predicate(rng, columns, depth - 1) for _ in range(rng.choice((2, 2, 3)))]
        return rng.choice((And, Or))(tuple(parts))
    column = rng.choice(sorted(columns))
    choice = rng.random()
    if choice < 0.6:
        return Comparison(column, rng.choice(list(Op)), rng.choice(columns[column]))
    if choice < 0.9:
        values = rng.choices(columns[column], k=rng.randrange(1, 6))
        return Membership(column, tuple(dict.fromkeys(values)), rng.random() < 0.5)
    return NullCheck(column, rng.random() < 0.5)

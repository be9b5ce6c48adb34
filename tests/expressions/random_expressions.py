"""Random conditions and values in Spark SQL, and rows of values that are hard to compute with.

Everything that has no function name is among them. Parentheses are left out here and there, so that
the order of operators counts.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa

_UTC = dt.UTC
_INTS = (0, 1, -1, 2, 3, 7, 10)
_MOMENTS = [
    dt.datetime(1, 1, 1),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(1970, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(1960, 2, 29, 1, 2, 3, 500_000),
    dt.datetime(2024, 2, 29, 12, 0, 0),
    dt.datetime(2024, 1, 31, 23, 59, 59, 120_000),
    dt.datetime(1582, 10, 10, 0, 0, 1),
    dt.datetime(2026, 3, 8, 2, 30),
]
_TEXTS = [
    "", " ", "a", "A", "ab", "aB", "a%b", "a_b", "a\\b", "O'Brien", 'say "x"', "ß", "É", "日本", "x\ty",
    "1", " 1 ", "+1", "-1", "007", "1.5", "-0.5", ".5", "5.", "1e3", "1E-2", "12345678901", "1L", "1.5d", "2f",
    "127", "128", "2147483648", "9223372036854775807", "9223372036854775808", "1e400", "0x10",
    "99999999.99", "1.005", "NaN", "Infinity", "-inf", "infinity", "nan",
    "true", "FALSE", "t", "n", "yes", "0", "on",
    "2024-02-29", "2023-02-29", "2024", "2024-1", "2024-1-3", " 2024-01-31 ", "0001-01-01",
    "9999-12-31", "10000-01-01", "-0001-01-01", "2024-01-31T", "2024-01-31 12:00", "2024-01-31 12:00:00.1234567",
    "2024-01-31T01:02:03Z", "2024-01-31 01:02:03+01:00", "2024-01-31 01:02:03 UTC", "2024-13-01",
    "2024-01-31 01:02:03 Europe/Berlin", "12:30:00", "2024-01-31 25:00:00", "epoch", "now", "null",
]  # fmt: skip
VALUES: dict[str, list[object]] = {
    "bo": [True, False],
    "ti": [*_INTS, -128, 127],
    "sm": [*_INTS, 300, -(2**15), 2**15 - 1],
    "i": [*_INTS, 1000, -(2**31), 2**31 - 1],
    "l": [*_INTS, 2**31, 10**15, -(2**63), 2**63 - 1, 2**53 + 1],
    "f": [0.0, -0.0, 1.0, -1.5, 0.5, 2.5, 3.0, 1e10, math.inf, -math.inf, math.nan, 3.4028234663852886e38, 1e-45, 16777216.0, 0.1],
    "d": [0.0, -0.0, 1.0, -1.5, 0.5, 2.5, 3.0, 0.1, 1e10, 1e100, math.inf, -math.inf, math.nan, 1.7976931348623157e308, 5e-324, 9.223372036854775807e18, 1.005],
    "m": [Decimal(text) for text in ("0.00", "1.00", "-1.50", "0.01", "2.50", "3.00", "99999999.99", "-99999999.99", "0.50")],
    "s": [*_TEXTS],
    "x": [b"", b"a", b"\x00", b"\x0a", b"\xff\xfe", b"ab", "ß".encode(), b"1", b"2024-01-01"],
    "dd": [*(moment.date() for moment in _MOMENTS)],
    "ts": [moment.replace(tzinfo=_UTC) for moment in _MOMENTS],
    "nz": [*_MOMENTS],
}  # fmt: skip
# The types of columns as Spark names them, and as Arrow does.
TYPES: dict[str, tuple[str, pa.DataType]] = {
    "bo": ("boolean", pa.bool_()),
    "ti": ("tinyint", pa.int8()),
    "sm": ("smallint", pa.int16()),
    "i": ("int", pa.int32()),
    "l": ("bigint", pa.int64()),
    "f": ("float", pa.float32()),
    "d": ("double", pa.float64()),
    "m": ("decimal(10,2)", pa.decimal128(10, 2)),
    "s": ("string", pa.string()),
    "x": ("binary", pa.binary()),
    "dd": ("date", pa.date32()),
    "ts": ("timestamp", pa.timestamp("us", tz="UTC")),
    "nz": ("timestamp_ntz", pa.timestamp("us")),
}
_KINDS = {name: kind for kind, (name, _) in TYPES.items()}
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_EXACT = (*_WHOLE, "decimal(10,2)")
_NUMBERS = (*_EXACT, "float", "double")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_ALL = tuple(_KINDS)
_CAST_FROM: dict[str, tuple[str, ...]] = {
    "boolean": ("string", "boolean", *_NUMBERS),
    **dict.fromkeys(_NUMBERS, ("string", "string", "boolean", "timestamp", *_NUMBERS)),
    "string": _ALL,
    "binary": ("string", "binary"),
    "date": ("string", *_TIMES),
    "timestamp": ("string", *_TIMES, *_NUMBERS),
    "timestamp_ntz": ("string", *_TIMES),
}
_COMPARISONS = ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>")
_LITERALS: dict[str, tuple[str, ...]] = {
    "boolean": ("TRUE", "false"),
    "tinyint": ("1Y", "0y", "-128Y", "127Y", "3Y"),
    "smallint": ("2S", "0S", "-32768S", "32767s", "300S"),
    "int": ("0", "1", "-1", "2", "3", "10", "2147483647", "-2147483648", "1000", "007", "- 5"),
    "bigint": ("1L", "0L", "2147483648", "-9223372036854775808", "9223372036854775807", "-3L", "-9223372036854775808L"),
    "float": ("2F", "1.5F", "-0.5f", "0.1F", "1e10F", "0F"),
    "double": ("1.5D", "1e3", "-1E-2", "0D", "2.5d", "1.e2", ".5e1", "-0D", "1e300"),
    "decimal(10,2)": ("1.5", "3BD", "0.01", "-2.50", ".5", "5.", "99999999.99", "1.5BD", "1e1BD", "0.0",
        "12345678901234567890", "1.005", "0.1234567890123456789012345678901234567", "-9223372036854775809"),
    "string": ("'a'", "''", "'1'", "' 2 '", "'1.5'", "'true'", "'2024-02-29'", "'O''Brien'", "'a\\'b'", "'a\\tb'",
        "'a\\\\b'", "\"a\"", "'ß'", "r'a\\b'", "'a%b'", "'\\u00e9'", "'x' 'y'", "'NaN'", "'2024-01-31 12:00:00'", "'-1'", "'zz'", "'\\101'"),
    "binary": ("X'0a'", "x''", "X'FFfe'", "X'61'", "X'abc'"),
    "date": ("DATE '2024-02-29'", "DATE'0001-01-01'", "date '9999-12-31'", "DATE '1969-12-31'", "DATE '2024-1-3'", "DATE '2024'"),
    "timestamp": ("TIMESTAMP '2024-01-31 12:00:00'", "TIMESTAMP '1969-12-31 23:59:59.999999'", "TIMESTAMP'2024-02-29'",
        "TIMESTAMP '2024-01-31 01:02:03+01:00'", "TIMESTAMP '2024-01-31T01:02:03Z'", "TIMESTAMP_LTZ '2024-01-31 01:02:03.5'",
        "TIMESTAMP '2024-01-31 01:02:03 UTC'", "TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '2024-07-01 01:02:03 Europe/Berlin'",
        "TIMESTAMP '2024-1-3 4:5'"),
    "timestamp_ntz": ("TIMESTAMP_NTZ '2024-01-31 12:00:00'", "TIMESTAMP_NTZ '1960-02-29 01:02:03.5'", "TIMESTAMP_NTZ'2024-02-29'"),
}  # fmt: skip
_PATTERNS = (
    "'a%'", "'%b'", "'a_b'", "'%'", "''", "'_'", "'a\\\\%b'", "'a\\\\_b'", "'%a%b%'", "'1%'", "'A%'", "'ß'",
    "'É'", "'__'", "'a\\\\\\\\b'", "'%\\'%'", "'_本'", "'%-%'", "'a.b'", "'(a'",
)  # fmt: skip
_ESCAPED = ("'a/%b' ESCAPE '/'", "'a/_%' ESCAPE '/'", "'%!%%' ESCAPE '!'", "'a\\\\b' ESCAPE '#'")
_INTERVALS = (
    "INTERVAL 1 DAY", "INTERVAL '1' MONTH", "INTERVAL 3 MONTHS", "INTERVAL '2' YEAR", "INTERVAL 1 HOUR",
    "INTERVAL '90' SECOND", "INTERVAL 1 WEEK", "INTERVAL '1 day 2 hours'", "INTERVAL -1 DAY", "INTERVAL '5' MINUTE",
    "INTERVAL 7 DAYS", "INTERVAL 1 MONTH", "INTERVAL '1 year 2 months'", "INTERVAL 100 MICROSECONDS", "INTERVAL '1.5' SECOND",
    "INTERVAL '1-2' YEAR TO MONTH", "INTERVAL '1 2:03:04' DAY TO SECOND", "INTERVAL '-1' MONTH", "INTERVAL '2:03' HOUR TO MINUTE",
)  # fmt: skip


def make_rows(count: int = 80, seed: int = 1) -> pa.Table:
    """Return rows in which each value of each type comes, and nulls."""
    chance = random.Random(seed)
    arrays, fields = [], []
    for number in (1, 2):
        for kind, (_, arrow) in TYPES.items():
            values: list[object] = list(VALUES[kind])
            while len(values) < count:
                values.append(None if chance.random() < 0.3 else chance.choice(VALUES[kind]))
            chance.shuffle(values)
            arrays.append(pa.array(values[:count], arrow))
            fields.append(pa.field(f"{kind}{number}", arrow))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@dataclass(frozen=True, slots=True)
class Made:
    """An expression, and the names of the productions in it, the outermost first."""

    text: str
    kinds: tuple[str, ...]


class Expressions:
    """Makes expressions; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        """Start.

        Args:
            seed: Seed of the random numbers.
        """
        self._chance = random.Random(seed)
        self._kinds: list[str] = []
        numeric = (self._arithmetic, self._arithmetic, self._cast, self._case, self._negative)
        whole: tuple[Callable[[str, int], str], ...] = (*numeric, self._bits, self._quotient)
        self._makers: dict[str, tuple[Callable[[str, int], str], ...]] = {
            "boolean": (
                self._compared, self._compared, self._compared, self._mixed, self._mixed,
                self._joined, self._joined, self._joined, self._not, self._asked, self._asked_truth,
                self._listed, self._between, self._pattern, self._pattern, self._guarded, self._cast,
                self._case, self._distinct,
            ),
            **dict.fromkeys(_WHOLE, whole),
            "float": numeric,
            "double": (*numeric, self._division),
            "decimal(10,2)": numeric,
            "string": (self._concatenated, self._cast, self._cast, self._case),
            "binary": (self._cast, self._case, self._concatenated),
            "date": (self._cast, self._case, self._days, self._days, self._shifted, self._shifted),
            "timestamp": (self._cast, self._case, self._shifted, self._shifted),
            "timestamp_ntz": (self._cast, self._case, self._shifted, self._shifted),
        }  # fmt: skip

    def condition(self) -> Made:
        """Return a condition."""
        return self._made("boolean", self._chance.choice((1, 1, 2, 2, 3)))

    def value(self) -> Made:
        """Return a value of any type."""
        return self._made(self._chance.choice(_ALL), self._chance.choice((1, 1, 2, 2, 3)))

    def _made(self, type_: str, depth: int) -> Made:
        self._kinds = []
        maker = self._chance.choice(self._makers[type_])
        text = self._by(maker, type_, depth)
        return Made(text, tuple(self._kinds))

    def _by(self, maker: Callable[[str, int], str], type_: str, depth: int) -> str:
        self._kinds.append(maker.__name__.strip("_"))
        return maker(type_, depth)

    def _of(self, type_: str, depth: int) -> str:
        """Return a part of a type; in parentheses, if it has parts and most of the time."""
        if depth <= 0 or self._chance.random() < 0.25:
            return self._leaf(type_)
        text = self._by(self._chance.choice(self._makers[type_]), type_, depth - 1)
        return text if self._chance.random() < 0.12 else f"({text})"

    def _leaf(self, type_: str) -> str:
        roll = self._chance.random()
        if roll < 0.65:
            return f"{_KINDS[type_]}{self._chance.choice((1, 2))}"
        if roll < 0.68:
            return "NULL"
        return self._chance.choice(_LITERALS[type_])

    def _any(self, types: Sequence[str], depth: int) -> str:
        return self._of(self._chance.choice(types), depth)

    def _narrower(self, type_: str) -> str:
        """Return a type that makes arithmetic of this type."""
        if type_ == "decimal(10,2)":
            return self._chance.choice(_EXACT)
        order = ("tinyint", "smallint", "int", "bigint", "float", "double")
        return self._chance.choice(order[: order.index(type_) + 1])

    # Numbers

    def _arithmetic(self, type_: str, depth: int) -> str:
        sign = self._chance.choice(("+", "-", "*", "%", "+", "-", "*", "/"))
        parts = [self._of(type_, depth), self._of(self._narrower(type_), depth)]
        if self._chance.random() < 0.05:
            parts[0] = self._of("string", depth)
        self._chance.shuffle(parts)
        if self._chance.random() < 0.1:
            parts.append(self._of(type_, depth))
        text = parts[0]
        for part in parts[1:]:
            text += f" {sign} {part}"
            sign = self._chance.choice("+-*")
        return text

    def _division(self, _: str, depth: int) -> str:
        return f"{self._any(_NUMBERS, depth)} / {self._any(_NUMBERS, depth)}"

    def _quotient(self, _: str, depth: int) -> str:
        types = _EXACT if self._chance.random() < 0.15 else _WHOLE
        return f"{self._any(types, depth)} div {self._any(types, depth)}"

    def _negative(self, type_: str, depth: int) -> str:
        sign = self._chance.choice(("-", "-", "- ", "+"))
        part = self._of(type_, depth)
        sign = "-" if part == "NULL" else sign  # sqlglot leaves out `+`, which makes NULL a number
        return f"{sign} {part}" if part.startswith("-") else f"{sign}{part}"  # `--` is a comment

    def _bits(self, type_: str, depth: int) -> str:
        if self._chance.random() < 0.2:
            return f"~{self._of(type_, depth)}"
        sign = self._chance.choice("&|^")
        return f"{self._of(type_, depth)} {sign} {self._of(self._narrower(type_), depth)}"

    # Any type

    def _cast(self, type_: str, depth: int) -> str:
        own = self._chance.choice(
            (*_ALL, "string") if self._chance.random() < 0.1 else _CAST_FROM[type_]
        )
        inner = self._of(own, depth)
        roll = self._chance.random()
        if type_ == "decimal(10,2)":
            type_ = self._chance.choice(
                (type_, "decimal(5,1)", "decimal(38,10)", "decimal", "DECIMAL(3)")
            )
        if type_ in ("int", "bigint", "timestamp"):
            type_ = (
                {"int": "INTEGER", "bigint": "LONG", "timestamp": "timestamp_ltz"}[type_]
                if roll < 0.05
                else type_
            )
        if roll < 0.55:
            return f"CAST({inner} AS {type_})"
        if roll < 0.85:
            return f"try_cast({inner} AS {type_})"
        return f"{inner}::{type_}"

    def _case(self, type_: str, depth: int) -> str:
        values = [self._of(type_, depth) for _ in range(self._chance.choice((1, 2, 2)))]
        rest = self._of(type_, depth)
        if self._chance.random() < 0.2:
            rest = self._of(self._alike(type_), depth)
        if self._chance.random() < 0.5:
            kind = self._chance.choice(_ALL)
            asked = self._of(kind, depth) + " "
            conditions = [self._of(kind, 0) for _ in values]
        else:
            asked, conditions = "", [self._of("boolean", depth) for _ in values]
        branches = " ".join(f"WHEN {c} THEN {v}" for c, v in zip(conditions, values, strict=True))
        otherwise = f" ELSE {rest}" if self._chance.random() < 0.7 else ""
        return f"CASE {asked}{branches}{otherwise} END"

    def _alike(self, type_: str) -> str:
        """Return another type whose values Spark compares with those of a type."""
        if self._chance.random() < 0.3:
            return "string"
        if type_ in _NUMBERS:
            return self._chance.choice(_NUMBERS)
        if type_ in _TIMES:
            return self._chance.choice(_TIMES)
        if type_ == "string":
            return self._chance.choice(_ALL)
        return type_

    # Texts, dates and times

    def _concatenated(self, type_: str, depth: int) -> str:
        parts = [self._of(type_, depth), self._of(type_, depth)]
        if type_ == "string" and self._chance.random() < 0.4:
            parts[self._chance.choice((0, 1))] = self._any(_ALL, depth)
        return " || ".join(parts)

    def _days(self, _: str, depth: int) -> str:
        sign = self._chance.choice("+-")
        days = self._any(("tinyint", "tinyint", "tinyint", "smallint", "int"), 0)
        return f"{self._of('date', depth)} {sign} {days}"

    def _shifted(self, type_: str, depth: int) -> str:
        moment, interval = self._of(type_, depth), self._chance.choice(_INTERVALS)
        if self._chance.random() < 0.15:
            return f"{interval} + {moment}"
        return f"{moment} {self._chance.choice('+-')} {interval}"

    # Conditions

    def _compared(self, _: str, depth: int) -> str:
        kind = self._chance.choice(_ALL)
        sign = self._chance.choice(_COMPARISONS)
        return f"{self._of(kind, depth)} {sign} {self._of(kind, depth)}"

    def _mixed(self, _: str, depth: int) -> str:
        kind = self._chance.choice(_ALL)
        parts = [self._of(kind, depth), self._of(self._alike(kind), depth)]
        self._chance.shuffle(parts)
        return f" {self._chance.choice(_COMPARISONS)} ".join(parts)

    def _joined(self, _: str, depth: int) -> str:
        parts = [self._of("boolean", depth) for _ in range(self._chance.choice((2, 2, 3)))]
        text = parts[0]
        for part in parts[1:]:
            text += f" {self._chance.choice(('AND', 'OR', 'and'))} {part}"
        return text

    def _not(self, _: str, depth: int) -> str:
        return f"{self._chance.choice(('NOT', 'NOT', '!'))} {self._of('boolean', depth)}"

    def _asked(self, _: str, depth: int) -> str:
        word = self._chance.choice(("NULL", "NOT NULL"))
        return f"{self._any(_ALL, depth)} IS {word}"

    def _asked_truth(self, _: str, depth: int) -> str:
        word = self._chance.choice(
            ("TRUE", "FALSE", "NOT TRUE", "NOT FALSE", "UNKNOWN", "NOT UNKNOWN")
        )
        return f"{self._of('boolean', depth)} IS {word}"

    def _distinct(self, _: str, depth: int) -> str:
        kind = self._chance.choice(_ALL)
        other = kind if self._chance.random() < 0.7 else self._alike(kind)
        negation = self._chance.choice(("", "NOT "))
        return f"{self._of(kind, depth)} IS {negation}DISTINCT FROM {self._of(other, depth)}"

    def _listed(self, _: str, depth: int) -> str:
        kind = self._chance.choice(_ALL)
        items = [self._of(kind, 0) for _ in range(self._chance.choice((1, 2, 3)))]
        if self._chance.random() < 0.3:
            items.append("NULL")
        if self._chance.random() < 0.3:
            items.append(self._of(self._alike(kind), 0))
        negation = self._chance.choice(("", "", "NOT "))
        return f"{self._of(kind, depth)} {negation}IN ({', '.join(items)})"

    def _between(self, _: str, depth: int) -> str:
        kind = self._chance.choice(_ALL)
        low, high = (
            self._of(kind if self._chance.random() < 0.8 else self._alike(kind), depth)
            for _ in range(2)
        )
        negation = self._chance.choice(("", "", "NOT "))
        return f"{self._of(kind, depth)} {negation}BETWEEN {low} AND {high}"

    def _pattern(self, _: str, depth: int) -> str:
        text = self._of("string", depth)
        if self._chance.random() < 0.1:
            text = self._any(_ALL, depth)
        word = self._chance.choice(("LIKE", "LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"))
        roll = self._chance.random()
        if roll < 0.2:
            return f"{text} {word} {self._chance.choice(_ESCAPED)}"
        if roll < 0.4:
            listed = ", ".join(
                self._chance.choice(_PATTERNS) for _ in range(self._chance.choice((1, 2, 3)))
            )
            return f"{text} {word} {self._chance.choice(('ANY', 'ALL', 'SOME'))} ({listed})"
        return f"{text} {word} {self._chance.choice(_PATTERNS)}"

    def _guarded(self, _: str, depth: int) -> str:
        """Return a condition whose second part is an error for the rows that the first leaves out."""
        kind = self._chance.choice(_NUMBERS)
        column = f"{_KINDS[kind]}{self._chance.choice((1, 2))}"
        other = self._of(kind, 0)
        return self._chance.choice(
            (
                f"{column} <> 0 AND {other} / {column} > 2",
                f"{column} = 0 OR {other} / {column} > 2",
                f"CASE WHEN {column} <> 0 THEN {other} % {column} END > 0",
                f"{column} IS NOT NULL AND {column} <> 0 AND 1 / {column} < {self._of('double', depth)}",
                f"NOT ({column} = 0 OR 1 / {column} > 2)",
            )
        )

"""Random conditions as SQL text that Spark, DuckDB and Lakebed read alike, and rows to ask them of.

What the dialects read differently is left out: a backslash in a text, text in double quotes, and
letters beyond ASCII without regard to case.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

_DAY = dt.date(2026, 3, 1)
_NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
# Days that another calendar lacks, and those at the ends of the years.
_ODD_DAYS = [dt.date(1, 1, 2), dt.date(1582, 10, 10), dt.date(2011, 12, 30), dt.date(9999, 12, 31)]
# Some lie around the hour that New York skips on 2026-03-08, and one in it.
_TIMES = [_NOON + dt.timedelta(hours=n) for n in (-36, -12, 0, 1, 12, 158.5, 162.5, 163.5)]
_VALUES: dict[str, list[object]] = {
    "i": [-3, 0, 1, 2, 7, 2**62],
    "n": [-(2**31), 0, 1, 5],
    "f": [-math.inf, -1.5, -0.0, 0.0, 0.1, 2.5, math.inf, math.nan],
    "e": [-math.inf, -1.5, 0.0, 0.5, 2.5, 2.0**24, math.nan],
    "s": ["", "a", "A", "ab", "a%b", "a_b", "O'Brien", "it''s", 'say "x"', "zz"],
    "b": [True, False],
    "d": [*(_DAY + dt.timedelta(days=n) for n in (-400, -1, 0, 1, 31)), *_ODD_DAYS],
    "t": [*_TIMES, *(_NOON.replace(year=year) for year in (1582, 1900, 9998))],
    "w": [time.replace(tzinfo=None) for time in _TIMES],
    "q": [Decimal("-1.50"), Decimal("0.00"), Decimal("0.10"), Decimal("2.50")],
}
_VALUES |= {"r.d": _VALUES["d"], "r.t": _VALUES["t"]}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("i", pa.int64()),
        ("n", pa.int32()),
        ("f", pa.float64()),
        ("e", pa.float32()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("w", pa.timestamp("us")),
        ("q", pa.decimal128(8, 2)),
        ("r", pa.struct([("d", pa.date32()), ("t", pa.timestamp("us", tz="UTC"))])),
    ]
)
_COMPARISONS = ("=", "!=", "<>", "<", "<=", ">", ">=")


def make_rows(count: int = 60, seed: int = 1) -> pa.Table:
    """Return rows with an `id`, in which each value and null come several times."""
    chance = random.Random(seed)
    rows: list[dict[str, object]] = []
    for number in range(count):
        values = {
            name: None if chance.random() < 0.15 else chance.choice(choices)
            for name, choices in _VALUES.items()
        }
        record = {part: values.pop(f"r.{part}") for part in ("d", "t")}
        rows.append({"id": number, **values, "r": None if chance.random() < 0.1 else record})
    return pa.Table.from_pylist(rows, SCHEMA)


class Conditions:
    """Makes conditions; the same ones for the same seed."""

    def __init__(self, seed: int, *, has_zoned_times: bool = True) -> None:
        """Start.

        Args:
            seed: Seed of the random numbers.
            has_zoned_times: Name the column of moments, whose literals depend on a session's zone.
        """
        self._chance = random.Random(seed)
        self._columns = [name for name in _VALUES if has_zoned_times or name[-1] != "t"]

    def make(self, depth: int = 3) -> str:
        """Return a condition."""
        roll = self._chance.random()
        if depth and roll < 0.5:
            word = self._chance.choice(("AND", "OR"))
            parts = [self.make(depth - 1) for _ in range(self._chance.choice((2, 2, 3)))]
            return "(" + f" {word} ".join(parts) + ")"
        if depth and roll < 0.6:
            return f"NOT ({self.make(depth - 1)})"
        return self._leaf()

    def _leaf(self) -> str:
        column = self._chance.choice(self._columns)
        forms: list[Callable[[str], str]] = [
            self._compared,
            self._compared,
            self._listed,
            self._between,
            self._null,
        ]
        if column == "s":
            forms += [self._pattern, self._pattern, self._part, self._cased]
        if column == "b":
            forms = [self._bare, self._null, self._compared]
        if column[-1] in "dtw":
            forms += [self._computed]
        return self._chance.choice(forms)(column)

    def _literal(self, column: str) -> str:
        value = self._chance.choice(_VALUES[column])
        match value:
            case bool():
                return str(value).upper()
            case float() if not math.isfinite(value):
                return f"'{value}'"
            case str():
                return "'" + value.replace("'", "''") + "'"
            case dt.datetime():
                return self._moment(value, "TIMESTAMP_NTZ" if column == "w" else "TIMESTAMP")
            case dt.date():
                return self._chance.choice(
                    (
                        f"'{value}'",
                        f"DATE '{value}'",
                        f"CAST('{value}' AS DATE)",
                        f"CAST('{value} 12:30:00' AS DATE)",
                    )
                )
        return str(value)

    def _moment(self, value: dt.datetime, kind: str) -> str:
        text = value.replace(tzinfo=None).isoformat(" ")
        return self._chance.choice(
            (
                f"'{text}'",
                f"TIMESTAMP '{text}'" if kind == "TIMESTAMP" else f"'{text}'",
                f"CAST('{text}' AS {'TIMESTAMP' if kind == 'TIMESTAMP' else 'DATE'})",
                f"DATE '{value.date()}'",
                f"CAST('{text}' AS DATE)",
            )
        )

    def _compared(self, column: str) -> str:
        sides = [column, self._literal(column)]
        if self._chance.random() < 0.2:
            sides.reverse()
        return f" {self._chance.choice(_COMPARISONS)} ".join(sides)

    def _listed(self, column: str) -> str:
        values = [self._literal(column) for _ in range(self._chance.choice((1, 2, 3)))]
        return f"{column} {self._chance.choice(('IN', 'NOT IN'))} ({', '.join(values)})"

    def _between(self, column: str) -> str:
        word = self._chance.choice(("BETWEEN", "NOT BETWEEN"))
        return f"{column} {word} {self._literal(column)} AND {self._literal(column)}"

    def _null(self, column: str) -> str:
        return f"{column} {self._chance.choice(('IS NULL', 'IS NOT NULL'))}"

    def _bare(self, column: str) -> str:
        return self._chance.choice(
            (column, f"NOT {column}", f"{column} IS TRUE", f"{column} IS NOT FALSE")
        )

    def _pattern(self, column: str) -> str:
        word = self._chance.choice(("LIKE", "NOT LIKE", "ILIKE"))
        pattern = self._chance.choice(("a%", "%b", "%", "_", "a_b", "A%", "%''%", "ab", "", '%"%'))
        escape = " ESCAPE '!'" if self._chance.random() < 0.2 else ""
        return f"{column} {word} '{pattern.replace('_', '!_') if escape else pattern}'{escape}"

    def _part(self, column: str) -> str:
        function = self._chance.choice(("startswith", "endswith", "contains"))
        part = self._chance.choice(("'a'", "''", "'%'", "'O'''"))
        return f"{function}({column}, {part})"

    def _cased(self, column: str) -> str:
        function, value = self._chance.choice((("upper", "A"), ("lower", "ab"), ("upper", "ZZ")))
        return f"{function}({column}) {self._chance.choice(('=', '!='))} '{value}'"

    def _computed(self, column: str) -> str:
        base = self._chance.choice(("current_date", f"DATE '{_DAY}'"))
        sign = self._chance.choice("+-")
        return f"{column} {self._chance.choice(('<', '>='))} {base} {sign} INTERVAL '7' DAY"

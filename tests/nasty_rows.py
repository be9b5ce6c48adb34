"""Rows of values at the edges of their types, for expressions."""

import datetime as dt
import decimal
import math

import pyarrow as pa

from lakebed.model.schema import (
    SMALLINT,
    TINYINT,
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Struct,
    Type,
)

INT, LONG, TEXT = Primitive(Kind.INT), Primitive(Kind.LONG), Primitive(Kind.STRING)
ROWS = 34

TYPES: dict[str, Type] = {
    "flag": Primitive(Kind.BOOLEAN),
    "tiny": TINYINT,
    "small": SMALLINT,
    "i": INT,
    "k": INT,  # small numbers: positions and counts
    "l": LONG,
    "f": Primitive(Kind.FLOAT),
    "d": Primitive(Kind.DOUBLE),
    "x": Primitive(Kind.DOUBLE),
    "m": Decimal(10, 2),
    "s": TEXT,
    "t": TEXT,  # short texts, to be found in the others
    "n": TEXT,  # numbers as texts
    "y": Primitive(Kind.BYTES),
    "day": Primitive(Kind.DATE),
    "day2": Primitive(Kind.DATE),
    "ts": Primitive(Kind.TIMESTAMP),
    "ts2": Primitive(Kind.TIMESTAMP),
    "ai": ListOf(INT),
    "bi": ListOf(INT),
    "ad": ListOf(Primitive(Kind.DOUBLE)),
    "sa": ListOf(TEXT),
    "aa": ListOf(ListOf(INT)),
    "mp": MapOf(INT),
    "mq": MapOf(INT),
    "st": Struct((Field(name="a", type=INT), Field(name="b", type=TEXT))),
    "st.a": INT,
    "st.b": TEXT,
}

_TEXTS = [
    "", " ", "abc", "ABC", "aAbBcC", "a,b,,c", "a.b.c", "  pad \t\n", "ß", "İstanbul", "ΟΔΟΣ ς",
    "👩‍👩‍👧 x", "e\u0301a", "\U0001d4b3\U0001d4b4z", "123", "-45.60", "true", "x\ny", "end\n", "a\r\nb\r\n", "hello world foo",
    "a%b_c\\d", "O'Brien \"q\"", "www.apache.org", "\u2028sep\u0085", "\x00nul\x00", "Robert", "Rupert", "Tymczak",
    "YWJj", "79927398713", "a+b%20c%zz", "aaa", "\u017fKkS",
]  # fmt: skip
_PARTS = ["", "a", "b", "bc", ",", ".", "A", "ß", "s", "👩", "\u0301", "z", "aa", "  "]
_NUMBER_TEXTS = [
    "0", "-1", "7f", "ff", "1010", "-FF", "12.5", " 12 ", "9223372036854775807", "18446744073709551616", "", "zz",
    "+5", "1e3",
]  # fmt: skip
_DAYS = [
    dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2024, 2, 29), dt.date(2023, 2, 28), dt.date(1970, 1, 1),
    dt.date(1969, 12, 31), dt.date(2000, 12, 31), dt.date(1582, 10, 15), dt.date(1582, 10, 4),
    dt.date(2024, 12, 30), dt.date(2021, 1, 3), dt.date(2024, 1, 31), dt.date(2024, 7, 15), dt.date(1900, 3, 1),
]  # fmt: skip
_TIMES = [
    dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 2, 29, 12, 34, 56, 789012),
    dt.datetime(1970, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(1582, 10, 15, 1, 2, 3),
    dt.datetime(2024, 1, 31, 23, 59, 59), dt.datetime(2023, 12, 31, 0, 0, 0, 1), dt.datetime(2024, 7, 15, 13, 5, 9, 100000),
    dt.datetime(1900, 3, 1, 6, 30), dt.datetime(2024, 3, 31, 0, 0), dt.datetime(2024, 12, 30, 23, 0, 0, 500000),
    dt.datetime(2024, 3, 10, 2, 30),
]  # fmt: skip
_DOUBLES = [
    0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.0, 0.5, 2.5, -2.5, 1.005, 123456.789, 1e22, 5e-324, 1.7976931348623157e308,
    2.675, 9.2e18, 9.3e18, -1e19, 0.1, 3.0, 1e-7, 8.0, 27.0, 100.0,
]  # fmt: skip


def _cycled(values: list[object], null_at: int) -> list[object]:
    """Return as many values as there are rows, with a NULL."""
    listed = [values[number % len(values)] for number in range(ROWS)]
    listed[null_at] = None
    return listed


COLUMNS: dict[str, pa.Array] = {
    "flag": pa.array(_cycled([True, False], 3)),
    "tiny": pa.array(_cycled([0, 1, -1, 127, -128, 3], 4), pa.int8()),
    "small": pa.array(_cycled([0, 1, -1, 32767, -32768, 12, 5], 5), pa.int16()),
    "i": pa.array(
        _cycled([0, 1, -1, 2**31 - 1, -(2**31), 2, 3, -7, 10, 31, 65, 100, 19723], 6), pa.int32()
    ),
    "k": pa.array(_cycled([1, 2, -1, 0, 3, -2, 5, 12, -7, 4], 7), pa.int32()),
    "l": pa.array(
        _cycled([0, 1, -1, 2**63 - 1, -(2**63), 2, 33, 64, -300, 1700000000, 12345678901], 8), pa.int64()
    ),
    "f": pa.array(
        _cycled([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, 0.1, -2.5, 3.4028234663852886e38, 1.4e-45, 16777217.0], 9),
        pa.float32(),
    ),
    "d": pa.array(_cycled(list(_DOUBLES), 10)),
    "x": pa.array(_cycled(list(_DOUBLES[::-1]), 11)),
    "m": pa.array(
        _cycled(
            [decimal.Decimal(t) for t in ("0.00", "1.25", "-1.25", "99999999.99", "-99999999.99", "2.50", "0.05", "-0.01", "15.00", "1.35")],
            12,
        ),
        pa.decimal128(10, 2),
    ),
    "s": pa.array([*_TEXTS[:13], None, *_TEXTS[14:ROWS]]),
    "t": pa.array(_cycled(list(_PARTS), 15)),
    "n": pa.array(_cycled(list(_NUMBER_TEXTS), 16)),
    "y": pa.array(_cycled([b"", b"abc", b"\xff\x00", "ß".encode(), b"\x80"], 17)),
    "day": pa.array(_cycled(list(_DAYS), 18)),
    "day2": pa.array(_cycled(list(_DAYS[3:] + _DAYS[:4]), 19)),
    "ts": pa.array(_cycled(list(_TIMES), 20), pa.timestamp("us", "UTC")),
    "ts2": pa.array(_cycled(list(_TIMES[5:] + _TIMES[:6]), 21), pa.timestamp("us", "UTC")),
    "ai": pa.array(
        _cycled([[1, 2, 3], [], [None], [3, None, 1, 3], [2**31 - 1, -(2**31)], [5, 5, 5], [None, None, 2], [0]], 22),
        pa.list_(pa.int32()),
    ),
    "bi": pa.array(
        _cycled([[2], [None, 3], [], [1, 3, 3], [0, None], [5]], 23), pa.list_(pa.int32())
    ),
    "ad": pa.array(
        _cycled([[1.5, math.nan, -0.0, 0.0, None], [math.inf, -math.inf], [], [0.0, -0.0], [math.nan, math.nan, 1.0]], 24),
        pa.list_(pa.float64()),
    ),
    "sa": pa.array(
        _cycled([["a", "b", None], [], ["", " ", "a"], ["ß", "ss", "👩", "z", "Z"], [None], ["b", "a", "b"]], 25),
        pa.list_(pa.string()),
    ),
    "aa": pa.array(
        _cycled([[[1], [2, 3]], [], [[], [None]], [None, [1]], [[4, 4]]], 26), pa.list_(pa.list_(pa.int32()))
    ),
    "mp": pa.array(
        _cycled([[("a", 1), ("b", 2)], [], [("", None)], [("b", -1), ("ß", 7), ("a", None)], [("1", 10)]], 27),
        pa.map_(pa.string(), pa.int32()),
    ),
    "mq": pa.array(
        _cycled([[("c", 1)], [("d", None)], [], [("z", 5)]], 28), pa.map_(pa.string(), pa.int32())
    ),
    "st": pa.array(
        _cycled([{"a": 1, "b": "x"}, {"a": None, "b": ""}, {"a": -5, "b": None}], 29),
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
    ),
}  # fmt: skip
COLUMNS["st.a"] = pa.compute.struct_field(COLUMNS["st"], "a")
COLUMNS["st.b"] = pa.compute.struct_field(COLUMNS["st"], "b")

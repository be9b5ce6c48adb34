"""Values that reach our planner from the JVM of a session: no filter loses a row."""

import contextlib
import datetime as dt
import decimal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed

pytestmark = [pytest.mark.spark, pytest.mark.classic("the zone of the JVM is set")]

# Stored values, and more constants in Spark's SQL to compare them with.
DATES = [
    *("0001-01-01", "0002-06-01", "1582-10-04", "1582-10-05", "1582-10-10", "1582-10-14"),
    *("1582-10-15", "1582-10-16", "1900-01-01", "2011-12-29", "2011-12-30", "2011-12-31"),
    *("2018-11-04", "2024-02-29", "9999-12-31"),
]
CASES: dict[str, tuple[pa.DataType, list[Any], list[str]]] = {
    "date": (
        pa.date32(),
        [dt.date.fromisoformat(text) for text in DATES],
        [
            *(f"DATE '{text}'" for text in DATES[2:]),
            *("date_add(DATE '0001-01-01', -401)", "date_add(DATE '0001-01-01', -1)"),
        ],
    ),
    "instant": (
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(1, 1, 2, tzinfo=dt.UTC),
            dt.datetime(1582, 10, 10, 12, tzinfo=dt.UTC),
            dt.datetime(1899, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
            dt.datetime(2018, 11, 4, 2, tzinfo=dt.UTC),
            dt.datetime(2024, 11, 3, 5, 30, tzinfo=dt.UTC),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
        ],
        [
            *("TIMESTAMP '1582-10-10 12:00:00Z'", "TIMESTAMP '1899-12-31 23:59:59.999999Z'"),
            *("TIMESTAMP '2018-11-04 02:00:00Z'", "TIMESTAMP '2024-11-03 05:30:00Z'"),
            *("TIMESTAMP '9999-12-31 23:59:59.999999Z'", "TIMESTAMP '0001-01-02 00:00:00Z'"),
        ],
    ),
    "clock": (
        pa.timestamp("us"),
        [dt.datetime(1582, 10, 10, 12), dt.datetime(2011, 12, 30, 1), dt.datetime(2018, 11, 4)],
        ["TIMESTAMP_NTZ '1582-10-10 12:00:00'", "TIMESTAMP_NTZ '2011-12-30 01:00:00'"],
    ),
    "number": (
        pa.decimal128(38, 18),
        [decimal.Decimal(text) for text in ("-1e-18", "0", "1e-18", "12345678901234567890.5")],
        ["-0.000000000000000001BD", "0.000000000000000001BD", "12345678901234567890.5BD"],
    ),
    "double": (
        pa.float64(),
        [float("-inf"), -0.0, 0.0, 5e-324, 0.1, float("inf"), float("nan")],
        ["-0.0D", "0.1D", "DOUBLE('NaN')", "DOUBLE('Infinity')", "4.9E-324D", "0.1F"],
    ),
    "long": (
        pa.int64(),
        [-(2**63), -1, 0, 2**31, 2**53 + 1, 2**63 - 1],
        ["-1L", "2147483648L", "9007199254740993L", "9223372036854775807L"],
    ),
    "text": (
        pa.string(),
        ["", "a\x00b", "a\nb\\", "é", "e\u0301", "\ufffd", "\uffff", "😀", "x" * 70_000],
        [
            *("''", r"'a\nb\\'", "'é'", "'😀'", "repeat('x', 70000)", "repeat('x', 69999)"),
            *(
                "'\ufffd'",
                "char(0)",
                "CAST('a' AS CHAR(3))",
            ),
        ],
    ),
    "bytes": (
        pa.binary(),
        [b"", b"\x00", b"\x7f", b"\x80", b"\xff\xfe", b"x" * 5_000],
        ["X''", "X'00'", "X'80'", "X'fffe'"],
    ),
    "flag": (pa.bool_(), [True, False], ["TRUE", "FALSE"]),
}
FORMS = ("{c} = {v}", "{c} != {v}", "{c} < {v}", "{c} >= {v}", "{c} <=> {v}", "{c} IN ({v}, {w})")


@contextlib.contextmanager
def zone_of_jvm(spark: Any, name: str) -> Iterator[None]:
    zones = spark._jvm.java.util.TimeZone
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone(name))
    try:
        yield
    finally:
        zones.setDefault(before)


# Where the value lies: its type there, the column in a condition, and the value as one of a row.
NESTED: dict[str, tuple[Callable[[pa.DataType], pa.DataType], str, Callable[[Any], Any]]] = {
    "column": (lambda kind: kind, "c", lambda value: value),
    "record": (lambda kind: pa.struct([("a b", kind)]), "c.`a b`", lambda value: {"a b": value}),
    "record of records": (
        lambda kind: pa.struct([("n", pa.int64()), ("r", pa.struct([("v", kind)]))]),
        "c.r.v",
        lambda value: {"n": 1, "r": {"v": value}},
    ),
    "list": (pa.list_, "c[0]", lambda value: [value]),
    "list of records": (
        lambda kind: pa.list_(pa.struct([("v", kind)])),
        "c[0].v",
        lambda value: [{"v": value}],
    ),
    "map": (lambda kind: pa.map_(pa.string(), kind), "c['k']", lambda value: {"k": value}),
}
QUICK = (
    *(("date", "column"), ("instant", "column"), ("text", "column")),
    *(("date", "record"), ("instant", "record of records"), ("date", "list of records")),
)


@pytest.mark.parametrize(
    ("kind", "depth"),
    [
        pytest.param(kind, depth, marks=() if (kind, depth) in QUICK else pytest.mark.long)
        for kind in CASES
        for depth in NESTED
    ],
)
def test_no_filter_by_an_odd_value_loses_a_row(
    spark: Any, tmp_path: Path, kind: str, depth: str
) -> None:
    type_, values, constants = CASES[kind]
    lake = lakebed.open_repository(tmp_path)
    nested, path, wrapped = NESTED[depth]
    schema = pa.schema([("id", pa.int64()), ("c", nested(type_))])
    odd = lake.create("odd", schema)
    rows = [{"id": n, "c": wrapped(value)} for n, value in enumerate([*values, None])]
    rows.append({"id": len(rows), "c": None})
    for row in rows:
        odd.append([row])  # a file each, so that each can be left out
    spark.createDataFrame(odd.arrow(), odd.spark(spark).schema).createOrReplaceTempView("whole")
    conditions = [
        form.format(c=path, v=value, w=constants[n - 1])
        for n, value in enumerate(constants)
        for form in FORMS
    ]
    conditions += [f"NOT ({condition})" for condition in conditions[:: len(FORMS)]]

    def answers(table: str) -> set[tuple[int, int]]:
        parts = [f"SELECT {n} AS n, id FROM {table} WHERE {c}" for n, c in enumerate(conditions)]
        return {(row.n, row.id) for row in spark.sql(" UNION ALL ".join(parts)).collect()}

    zone = "Pacific/Apia" if kind == "date" else "America/Sao_Paulo"
    with zone_of_jvm(spark, zone), lakebed.spark.attach(spark, lake):
        found, wanted = answers("odd"), answers("whole")
    differing = {conditions[n] for n, _ in found ^ wanted}
    assert not differing

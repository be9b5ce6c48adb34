"""Filters of Spark as predicates: no row is lost that Spark wants. No session is needed."""

from typing import Any

import pytest
from pyspark.sql import datasource as spark

if not hasattr(spark, "Filter"):
    pytest.skip("Spark 4.0 gives data sources no filters", allow_module_level=True)

from lakebed.model.evaluate import matches
from lakebed.model.predicate import TRUE
from lakebed.model.schema import Kind, Primitive
from lakebed.spark.filters import predicate_of

TYPES = {
    "n": Primitive(Kind.INT),
    "t": Primitive(Kind.STRING),
    "x": Primitive(Kind.DOUBLE),
    "at": Primitive(Kind.TIMESTAMP),
}
N, T, X = ("n",), ("t",), ("x",)
NAN = float("nan")
ROWS: list[dict[str, Any]] = [
    {"n": n, "t": t, "x": x, "at": None}
    for n in (None, 1, 2, 3)
    for t in (None, "", "a", "ab", "ac", "b", "\ud7ff", "\ue000")
    for x in (None, 0.0, 1.5, NAN)
]


def same(a: Any, b: Any) -> bool:
    return a == b or (a != a and b != b)


@pytest.mark.parametrize(
    ("pushed", "wanted"),
    [
        (spark.EqualTo(N, 2), lambda row: row["n"] == 2),
        (spark.Not(spark.EqualTo(N, 2)), lambda row: row["n"] not in (None, 2)),
        (spark.EqualNullSafe(N, None), lambda row: row["n"] is None),
        (spark.Not(spark.EqualNullSafe(N, None)), lambda row: row["n"] is not None),
        (spark.EqualNullSafe(N, 2), lambda row: row["n"] == 2),
        (spark.Not(spark.EqualNullSafe(N, 2)), lambda row: row["n"] != 2),
        (spark.In(N, (1, None)), lambda row: row["n"] == 1),
        (spark.Not(spark.In(N, (1, 2))), lambda row: row["n"] == 3),
        (spark.Not(spark.In(N, (1, None))), lambda row: False),
        (spark.IsNull(N), lambda row: row["n"] is None),
        (spark.IsNotNull(N), lambda row: row["n"] is not None),
        (spark.LessThanOrEqual(N, 2), lambda row: row["n"] in (1, 2)),
        (spark.StringStartsWith(T, "a"), lambda row: (row["t"] or "").startswith("a")),
        (
            spark.Not(spark.StringStartsWith(T, "a")),
            lambda row: row["t"] is not None and not row["t"].startswith("a"),
        ),
        (spark.StringStartsWith(T, "\ud7ff"), lambda row: row["t"] == "\ud7ff"),
        # NaN is greater than every other number, and equal to itself.
        (spark.GreaterThan(X, 1.0), lambda row: row["x"] == 1.5 or same(row["x"], NAN)),
        (spark.EqualTo(X, NAN), lambda row: same(row["x"], NAN)),
    ],
    ids=lambda value: repr(value) if isinstance(value, spark.Filter) else "rows",
)
def test_filter_selects_what_spark_selects(pushed: spark.Filter, wanted: Any) -> None:
    predicate = predicate_of([pushed], TYPES)

    assert predicate != TRUE
    assert [matches(predicate, row) for row in ROWS] == [wanted(row) for row in ROWS]


@pytest.mark.parametrize(
    "pushed",
    [
        spark.StringContains(T, "a"),
        spark.StringEndsWith(T, "a"),
        spark.StringStartsWith(T, ""),
        spark.StringStartsWith(T, "a" + chr(0x10FFFF)),
        spark.Not(spark.StringContains(T, "a")),
        spark.EqualTo(("unknown",), 1),
        spark.EqualTo(N, "text"),
        spark.EqualTo(N, None),
    ],
    ids=repr,
)
def test_filter_that_cannot_be_said_selects_everything(pushed: spark.Filter) -> None:
    assert predicate_of([pushed], TYPES) == TRUE
    assert predicate_of([pushed, spark.EqualTo(N, 2)], TYPES) == predicate_of(
        [spark.EqualTo(N, 2)], TYPES
    )

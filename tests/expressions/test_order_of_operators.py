"""Texts in which operators stand side by side are read in Spark's order, or refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.errors import PredicateError
from lakebed.model.formulas.compiler import compiled
from lakebed.model.formulas.computation import evaluate
from lakebed.model.schema import Kind, Primitive, Type

_TYPES: tuple[tuple[str, Type], ...] = (
    ("a", Primitive(Kind.INT)),
    ("b", Primitive(Kind.INT)),
    ("p", Primitive(Kind.BOOLEAN)),
    ("s", Primitive(Kind.STRING)),
)
_ROW = {
    "a": pa.array([6], pa.int32()),
    "b": pa.array([3], pa.int32()),
    "p": pa.array([True]),
    "s": pa.array(["x"]),
}


def _value(text: str) -> object:
    return evaluate([compiled(text, _TYPES).sql], _ROW, 1)[0].to_pylist()[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a = b = p", False),
        ("a > b = p", True),
        ("a = b IS NULL", False),
        ("NOT a = b AND p", True),
        ("- a * b + 1", -17),
        ("-1::string", "-1"),
        ("-128Y", -128),
        ("- -128S", 128),
        ("a & b + 1", 4),
        ("a | b & a IS NULL", None),
        ("a IS DISTINCT FROM b = p", None),
        ("s || 'y' = 'xy'", True),
        ("a - b - 1", 2),
        ("a % 4 * b", 6),
    ],
)
def test_operators_side_by_side(text: str, value: object) -> None:
    """Values are those of Spark 4.3."""
    if value is None:
        with pytest.raises(PredicateError):
            _value(text)
    else:
        assert _value(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "p = b < a",
        "p = a IN (6)",
        "p = a BETWEEN 1 AND 7",
        "s LIKE 'x' = p",
        "p = s LIKE 'x'",
        "s || a + b",
        "a | b & a",
        "a ^ b & a",
        "a & b << 1",
        "p = s LIKE 'x' ESCAPE '/'",
    ],
)
def test_texts_of_another_order_are_refused(text: str) -> None:
    """Parentheses settle the order."""
    with pytest.raises(PredicateError, match=r"parentheses|another order") as caught:
        _value(text)
    assert "parentheses" in (caught.value.hint or "")


def test_a_part_that_raises_is_computed_only_where_spark_does() -> None:
    """The parts before it decide, or are null."""
    row = {**_ROW, "b": pa.array([0], pa.int32()), "a": pa.array([None], pa.int32())}
    for text in (
        "b <> 0 AND 1 / b > 2",
        "b = 0 OR 1 / b > 2",
        "a + 1 div b",
        "a IN (1 div b)",
        "a BETWEEN 1 div b AND 2",
        "a = 1 div b",
        "CASE b WHEN 0 THEN 1 ELSE 1 div b END",
        "p IN (TRUE, 1 / b > 2)",
    ):
        compiled_text = compiled(text, _TYPES).sql
        evaluate([compiled_text], row, 1)
    for text in (
        "1 / b > 2 AND b <> 0",
        "1 div b + a",
        "1 div b IN (a)",
        "-CAST(-128 AS TINYINT) < 5Y AND 1 / b > 0",
    ):
        with pytest.raises(PredicateError):
            evaluate([compiled(text, _TYPES).sql], row, 1)


def test_deep_texts_are_computed_or_refused_soon() -> None:
    """A quotient writes each of its parts twice."""
    for depth in range(1, 9):
        sql = compiled(_quotient(depth), _TYPES).sql
        assert evaluate([sql], _ROW, 1)[0].to_pylist()[0] == pytest.approx(6 / 4.0**depth)
    with pytest.raises(PredicateError, match="nested too deeply"):
        compiled(_quotient(25), _TYPES)


def _quotient(depth: int) -> str:
    return "a" if depth == 0 else f"({_quotient(depth - 1)} / (b + 1D))"

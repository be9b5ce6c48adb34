"""Values of expressions that Spark and Lakebed compute, row by row."""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import PredicateError
from lakebed.model.formulas.compiler import column_sql, compiled
from lakebed.model.formulas.computation import evaluate
from lakebed.model.schema import Type

RAISES = "raises"


@dataclass(frozen=True)
class Answers:
    """What an expression gives: its type as Arrow names it, and a value or RAISES for each row."""

    type: str
    values: list[Any]


# Of the expressions that raise for no row, each is asked for one row of so many alone.
_ALONE = 6


def ask_lakebed(
    texts: Sequence[str], columns: dict[str, pa.Array], types: dict[str, Type]
) -> dict[str, Answers]:
    """Return the answers of Lakebed, which are the same for all rows at once and for each alone."""
    sqls = {text: compiled(text, tuple(types.items())).sql for text in texts}
    rows = len(next(iter(columns.values())))
    whole = dict(zip(texts, _evaluate_each(list(sqls.values()), columns), strict=True))
    answers = {}
    for text, array in whole.items():
        if array is None:
            answers[text] = _by_rows(sqls[text], columns, rows)
            assert RAISES in answers[text].values, f"{text}: only all rows at once raise"
        else:
            answers[text] = Answers(type_name(array.type), plain(array))
    calm = [text for text in texts if whole[text] is not None]
    for row in range(rows):
        asked = [text for number, text in enumerate(calm) if number % _ALONE == row % _ALONE]
        one = {name: column.slice(row, 1) for name, column in columns.items()}
        for text, array in zip(asked, evaluate([sqls[text] for text in asked], one), strict=True):
            alone, among = plain(array)[0], answers[text].values[row]
            assert same(alone, among), f"{text}: {alone!r} of row {row} alone, {among!r} of all"
    return answers


def _by_rows(sql: str, columns: dict[str, pa.Array], rows: int) -> Answers:
    """Return the answers of an expression that raises for some rows."""
    named = {name: column for name, column in columns.items() if column_sql(name) in sql}
    if not named:
        return Answers("", [RAISES] * rows)
    values: list[Any] = []
    kind = ""
    pieces = [(row, min(4, rows - row)) for row in range(0, rows, 4)]
    while pieces:
        row, size = pieces.pop(0)
        some = {name: column.slice(row, size) for name, column in named.items()}
        (array,) = _evaluate_each([sql], some)
        if array is None and size > 1:
            pieces[:0] = [(row + number, 1) for number in range(size)]
            continue
        values += [RAISES] if array is None else plain(array)
        kind = kind if array is None else type_name(array.type)
    return Answers(kind, values)


def _evaluate_each(
    sqls: list[str], columns: dict[str, pa.Array], together: int = 8
) -> list[pa.Array | None]:
    """Return the values of each expression, or None for one that raises."""
    answers: list[pa.Array | None] = []
    for start in range(0, len(sqls), together):
        some = sqls[start : start + together]
        try:
            answers += evaluate(some, columns)
        except PredicateError:
            answers += [None] if len(some) == 1 else _evaluate_each(some, columns, 1)
    return answers


def ask_spark(
    spark: Any,
    texts: Sequence[str],
    columns: dict[str, pa.Array],
    alone: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Answers]:
    """Return the answers of Spark.

    All expressions are in one query: each is in a struct of its own in Spark's TryEval, which gives
    NULL in the place of an error.

    Args:
        spark: The session.
        texts: The expressions.
        columns: Their columns.
        alone: Rows for which an expression is there once more. Spark's builder of maps keeps what it
            had when it raised, and the next row gets it.
    """
    rows = len(next(iter(columns.values())))
    top = {name: column for name, column in columns.items() if "." not in name}
    table = pa.table(top | {"row_": pa.array(range(rows))})
    places: dict[str, dict[int, int]] = {}  # the column of a row, if it is alone
    asked = []
    for text in texts:
        places[text] = {-1: len(asked)}
        single = (alone or {}).get(text, ())
        asked.append(
            f"CASE WHEN row_ NOT IN (-1, {', '.join(map(str, [-1, *single]))}) THEN {text} END"
        )
        for row in single:
            places[text][row] = len(asked)
            asked.append(f"CASE WHEN row_ = {row} THEN {text} END")
    with _settings(spark):
        frame = spark.createDataFrame(table).coalesce(1)
        result = frame.select(*_tried(spark, asked)).toArrow()
    arrays = [column.combine_chunks() for column in result.columns]
    answers = {}
    for text, place in places.items():
        values = []
        for row in range(rows):
            cell = arrays[place.get(row, place[-1])].slice(row, 1)
            values.append(RAISES if cell.null_count else plain(pc.struct_field(cell, "v"))[0])
        answers[text] = Answers(type_name(arrays[place[-1]].type.field(0).type), values)
    return answers


@contextlib.contextmanager
def _settings(spark: Any) -> Iterator[None]:
    """Compute as by default, but without the compilation of code, which takes most of the time."""
    settings = {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.subexpressionElimination.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def _tried(spark: Any, texts: Sequence[str]) -> list[Any]:
    """Return expressions, each in a struct that is NULL where it raises."""
    from pyspark.sql.classic.column import Column

    parse = spark._jsparkSession.sessionState().sqlParser().parseExpression
    try_it = spark._jvm.org.apache.spark.sql.catalyst.expressions.TryEval
    column_of = spark._jvm.org.apache.spark.sql.classic.ExpressionUtils.column
    return [
        Column(column_of(try_it(parse(f"named_struct('v', {text})"))).alias(f"r{number}"))
        for number, text in enumerate(texts)
    ]


def type_name(kind: pa.DataType) -> str:
    """Return the name of a type without what Spark and DuckDB write in different ways."""
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{type_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return (
            "struct<" + ", ".join(f"{field.name}: {type_name(field.type)}" for field in kind) + ">"
        )
    return str(kind)


def plain(array: pa.Array) -> list[Any]:
    """Return values of Python, times as numbers: Python has no year 10000."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
    if pa.types.is_date(kind):
        return array.cast(pa.int32()).to_pylist()
    if pa.types.is_map(kind):
        return [
            None
            if not scalar.is_valid
            else list(
                zip(plain(scalar.values.field(0)), plain(scalar.values.field(1)), strict=True)
            )
            for scalar in array
        ]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [None if not scalar.is_valid else plain(scalar.values) for scalar in array]
    if pa.types.is_struct(kind):
        fields = [plain(pc.struct_field(array, [n])) for n in range(kind.num_fields)]
        return [
            tuple(field[row] for field in fields) if scalar.is_valid else None
            for row, scalar in enumerate(array)
        ]
    return array.to_pylist()


def same(one: Any, other: Any, *, nearly: bool = False) -> bool:
    """Return whether two values are the same, to the bit; or of floats, as good as."""
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        if nearly and one != other:
            return abs(one - other) <= 2 * math.ulp(one)
        return struct.pack("<d", one) == struct.pack("<d", other)
    if isinstance(one, list | tuple) and type(one) is type(other):
        return len(one) == len(other) and all(
            same(x, y, nearly=nearly) for x, y in zip(one, other, strict=True)
        )
    return type(one) is type(other) and one == other

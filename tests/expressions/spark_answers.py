"""What Spark computes for expressions and rows, with the rows for which it raises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = 100  # of one query
# Rules that compute or leave out parts ahead of the rows, which may raise or hide an error.
_RULES = "spark.sql.optimizer.excludedRules"
_EXCLUDED = ",".join(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}"
    for rule in (
        "BooleanSimplification", "CombineConcats", "ConstantFolding", "LikeSimplification",
        "NullDownPropagation", "NullPropagation", "OptimizeIn", "PushFoldableIntoBranches",
        "ReorderAssociativeOperator", "ReplaceNullWithFalseInPredicate", "SimplifyBinaryComparison",
        "SimplifyCaseConversionExpressions", "SimplifyCasts", "SimplifyConditionals",
        "UnwrapCastInBinaryComparison", "OptimizeCsvJsonExprs",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """What Spark computes for an expression.

    Attributes:
        values: A struct for each row with the value as its field, null where Spark raises; None, if
            Spark refuses the expression.
        refusal: Why it does.
    """

    values: pa.Array | None
    refusal: str = ""


def ask_spark(spark: SparkSession, rows: pa.Table, texts: Sequence[str]) -> list[Answer]:
    """Return the answers for each expression.

    They come from the expressions as they are written, without rules of the optimizer that would
    leave parts out: those that raise in one plan and not in another.
    """
    settings = {_RULES: _EXCLUDED, "spark.sql.alwaysInlineCommonExpr": "true"}
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        return _ask(spark, rows, texts)
    finally:
        for name, former in before.items():
            if former is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, former)


def _ask(spark: SparkSession, rows: pa.Table, texts: Sequence[str]) -> list[Answer]:
    from pyspark.sql.functions import col

    clocks = [field.name for field in rows.schema if field.type == pa.timestamp("us")]
    data = spark.createDataFrame(rows).withColumns(
        {name: col(name).cast("timestamp_ntz") for name in clocks}
    )
    asked: list[tuple[int, Any]] = []
    answers = [Answer(None)] * len(texts)
    for number, text in enumerate(texts):
        try:
            column = _trying(spark, text).alias(f"r{number}")
            data.select(column)  # which analyses it
            asked.append((number, column))
        except Exception as exc:  # noqa: BLE001  # of many classes
            answers[number] = Answer(None, str(exc).partition("\n")[0][:200])
    for batch in _batches(asked, _COLUMNS):
        _answer(data, batch, answers)
    return answers


def _answer(data: DataFrame, batch: Sequence[tuple[int, Any]], answers: list[Answer]) -> None:
    try:
        table = data.select(*(column for _, column in batch)).toArrow()
    except Exception as exc:  # noqa: BLE001  # of many classes
        if len(batch) == 1:  # refused where it is optimized
            answers[batch[0][0]] = Answer(None, str(exc).partition("\n")[0][:200])
            return
        middle = len(batch) // 2
        _answer(data, batch[:middle], answers)
        _answer(data, batch[middle:], answers)
        return
    for number, _ in batch:
        answers[number] = Answer(table.column(f"r{number}").combine_chunks())


def _batches(items: list[tuple[int, Any]], size: int) -> Iterator[list[tuple[int, Any]]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _trying(spark: SparkSession, text: str) -> Any:
    """Return a column of an expression within a struct, which is null where the expression raises."""
    from pyspark.sql.classic.column import Column
    from pyspark.sql.functions import expr, struct

    jvm: Any = spark._jvm
    utilities = jvm.org.apache.spark.sql.classic.ExpressionUtils
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    # Arrow refuses structs in which some field is never null.
    value = Column(
        utilities.column(expressions.KnownNullable(utilities.expression(expr(text)._jc)))
    )
    tried = expressions.TryEval(utilities.expression(struct(value.alias("value"))._jc))
    return Column(utilities.column(tried))

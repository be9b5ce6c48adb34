"""What Lakebed computes for expressions, beside what Spark does."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from random_expressions import Made
from spark_answers import Answer
from sqlglot.errors import SqlglotError

from lakebed.errors import PredicateError
from lakebed.model.arrow_types import type_from_arrow, type_to_arrow
from lakebed.model.formulas.compiler import column_sql, compiled
from lakebed.model.formulas.computation import evaluate

_ERROR = "an error"
_MOST_RAISING = 2  # rows that are asked alone
_BATCH = 5  # expressions that are computed at once
# Errors for what Spark computes and Lakebed cannot hold: texts that are no UTF-8, far years, and
# some texts of times.
_LIMITS = (
    "UTF-8", "UTF8", "outside the years 1 to 9999", "Date out of range", "without Spark",
)  # fmt: skip


@dataclass
class Outcome:
    """What came of expressions.

    Attributes:
        run: Number of those that both computed.
        refused: Those that Spark computes and Lakebed refuses, with the reason.
        unknown: Number of those that Spark refuses.
        taken: Those that Spark refuses and Lakebed takes, with Spark's reason.
        differences: A line for each expression with other values.
    """

    run: int = 0
    refused: list[tuple[Made, str]] = field(default_factory=list)
    unknown: int = 0
    taken: list[tuple[Made, str]] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def refused_by_kind(self) -> str:
        """Return how many are refused, by their outermost production."""
        counts = Counter(made.kinds[0] for made, _ in self.refused)
        return ", ".join(f"{kind}: {count}" for kind, count in counts.most_common())


@dataclass(frozen=True, slots=True)
class _Pair:
    """An expression of DuckDB, and what Spark computes for each row."""

    text: str
    sql: str
    wanted: list[object]

    @property
    def plain(self) -> list[int]:
        """The rows for which Spark does not raise."""
        return [number for number, value in enumerate(self.wanted) if value is not _ERROR]


def compare(rows: pa.Table, made: Sequence[Made], answers: Sequence[Answer]) -> Outcome:
    """Return what Lakebed computes for expressions, compared with the answers of Spark."""
    outcome = Outcome()
    types = tuple((field.name, type_from_arrow(field.type)) for field in rows.schema)
    columns = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    pairs: list[_Pair] = []
    for expression, answer in zip(made, answers, strict=True):
        try:
            value = compiled(expression.text, types)
        except (PredicateError, SqlglotError) as exc:
            if answer.values is None:
                outcome.unknown += 1
            else:
                outcome.refused.append((expression, str(exc)))
            continue
        if answer.values is None:
            outcome.unknown += 1
            outcome.taken.append((expression, answer.refusal))
            continue
        outcome.run += 1
        wanted = answer.values.type.field(0).type
        own = wanted if value.type is None else type_to_arrow(value.type)
        if own == wanted:
            pairs.append(_Pair(expression.text, value.sql, _values_of(answer)))
        else:
            outcome.differences.append(f"{expression.text}: {own}, in Spark {wanted}")
    for start in range(0, len(pairs), _BATCH):
        batch = pairs[start : start + _BATCH]
        for pair, values in zip(batch, _plain_values(batch, columns), strict=True):
            difference = _difference(pair, values, columns)
            if difference:
                outcome.differences.append(f"{pair.text}: {difference}")
    return outcome


def _plain_values(
    pairs: Sequence[_Pair], columns: Mapping[str, pa.Array]
) -> list[dict[int, object]]:
    """Return the values of expressions, each for the rows for which Spark does not raise."""
    count = len(next(iter(columns.values())))
    masks = {
        f"is_plain{number}": pa.array([value is not _ERROR for value in pair.wanted])
        for number, pair in enumerate(pairs)
    }
    guarded = [
        f"CASE WHEN {column_sql(name)} THEN {pair.sql} END"
        for name, pair in zip(masks, pairs, strict=True)
    ]
    try:
        arrays = evaluate(guarded, {**columns, **masks}, count)
    except PredicateError:
        return [_values(pair.sql, columns, pair.plain) for pair in pairs]
    listed = [_listed(array) for array in arrays]
    return [
        {number: values[number] for number in pair.plain}
        for pair, values in zip(pairs, listed, strict=True)
    ]


def _values(sql: str, columns: Mapping[str, pa.Array], numbers: Sequence[int]) -> dict[int, object]:
    """Return the values of some rows; where there is an error, that of one row with it."""
    if not numbers:
        return {}
    taken = _taken(sql, columns, numbers)
    try:
        (values,) = evaluate([sql], taken, len(numbers))
    except PredicateError as exc:
        if len(numbers) == 1:
            return {numbers[0]: f"{_ERROR}: {exc.message}"}
        half = len(numbers) // 2
        if any(limit in exc.message for limit in _LIMITS):
            singles = numbers[:: max(1, half)]
            return {
                n: value for one in singles for n, value in _values(sql, columns, [one]).items()
            }
        first = _values(sql, columns, numbers[:half])
        is_found = any(isinstance(value, str) for value in first.values())
        return first if is_found else _values(sql, columns, numbers[half:])
    listed = _listed(values)
    return dict(zip(numbers, listed, strict=False)) if taken else dict.fromkeys(numbers, listed[0])


def _values_of(answer: Answer) -> list[object]:
    assert answer.values is not None
    values = _listed(answer.values.field(0))
    return [
        value if is_valid else _ERROR
        for value, is_valid in zip(values, answer.values.is_valid().to_pylist(), strict=True)
    ]


def _listed(column: pa.Array) -> list[object]:
    """Return values; texts as bytes, and times as numbers, since Python has no years beyond 9999."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_string(column.type):  # Spark makes texts of bytes that are no UTF-8
        column = column.cast(pa.binary())
    values: list[object] = column.to_pylist()
    return values


def _difference(
    pair: _Pair, plain: Mapping[int, object], columns: Mapping[str, pa.Array]
) -> str | None:
    """Return what is different, and in which row.

    Each row for which Spark raises is asked alone, up to a few of them: an error of one hides others.
    """
    values = dict(plain)
    raising = [number for number, value in enumerate(pair.wanted) if value is _ERROR]
    for number in raising[:: max(1, -(-len(raising) // _MOST_RAISING))]:
        values |= _error_of(pair, columns, number)
    for number, own in values.items():
        if not _is_same(own, pair.wanted[number]):
            row = {name: column[number].as_py() for name, column in columns.items()}
            return f"{own!r}, in Spark {pair.wanted[number]!r} where {row}"
    return None


def _error_of(pair: _Pair, columns: Mapping[str, pa.Array], number: int) -> dict[int, object]:
    """Return the value of a row for which Spark raises.

    It is asked for beside others: of one row alone, DuckDB does not compute what meets a null.
    """
    try:
        evaluate([pair.sql], _taken(pair.sql, columns, [*pair.plain, number]), len(pair.plain) + 1)
    except PredicateError as exc:
        return {number: f"{_ERROR}: {exc.message}"}
    return _values(pair.sql, columns, [number, number])


def _taken(
    sql: str, columns: Mapping[str, pa.Array], numbers: Sequence[int]
) -> dict[str, pa.Array]:
    """Return some rows of the columns that an expression reads."""
    return {
        name: column.take(pa.array(numbers))
        for name, column in columns.items()
        if column_sql(name) in sql
    }


def _is_same(one: object, other: object) -> bool:
    if isinstance(one, str) and one.startswith(_ERROR):
        return other is _ERROR or any(limit in one for limit in _LIMITS)
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    if isinstance(one, bytes) and isinstance(other, bytes) and one != other:
        # Java before 19 writes some numbers with more digits than it takes to tell them apart.
        return _number_in(one) is not None and _number_in(one) == _number_in(other)
    return one == other and type(one) is type(other)


def _number_in(text: bytes) -> float | None:
    try:
        return float(np.float32(text.decode())) if b"E" in text else None
    except ValueError:
        return None

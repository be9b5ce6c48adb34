"""Random expressions of Spark SQL give what Spark gives, row by row, or are refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from differences import Outcome, compare
from random_expressions import Expressions, make_rows
from spark_answers import ask_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_REFUSED = 0.05  # of what Spark computes

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("expressions of Catalyst are wrapped so that they give null for an error"),
    pytest.mark.since_spark("4.3", "some casts have another result before"),
]


def _outcome(spark: SparkSession, seed: int, conditions: int, values: int) -> Outcome:
    maker, rows = Expressions(seed), make_rows()
    made = [maker.condition() for _ in range(conditions)]
    made += [maker.value() for _ in range(values)]
    outcome = compare(rows, made, ask_spark(spark, rows, [expression.text for expression in made]))
    print(  # noqa: T201  # shown by pytest -rP
        f"{outcome.run} run, {len(outcome.differences)} different, {len(outcome.refused)} refused "
        f"({outcome.refused_by_kind()}), {outcome.unknown} of which Spark refuses"
    )
    return outcome


def _check(outcome: Outcome, least: int) -> None:
    assert outcome.run >= least
    assert not outcome.differences, "\n".join(outcome.differences[:20])
    refused = [f"{made.text}: {reason}" for made, reason in outcome.refused]
    assert len(refused) <= _MOST_REFUSED * outcome.run, "\n".join(refused)


def test_random_expressions_are_as_in_spark(spark: SparkSession) -> None:
    """A few hundred expressions of all kinds."""
    _check(_outcome(spark, 2, 160, 80), least=200)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_thousands_of_random_expressions_are_as_in_spark(spark: SparkSession) -> None:
    """3,000 conditions and 1,000 values."""
    _check(_outcome(spark, 3, 3_000, 1_000), least=3_500)

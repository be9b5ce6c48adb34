"""Report the progress of tasks to the driver while they still run, where the session can."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.accumulators import AccumulatorParam

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Reports = list[tuple[Any, ...]]
Listener = Callable[..., None]


class _Sum(AccumulatorParam[_Reports]):
    """Accumulator of the tasks; a plain list of their reports."""

    def zero(self, value: _Reports) -> _Reports:  # noqa: ARG002 - see AccumulatorParam
        return []

    def addInPlace(self, value1: _Reports, value2: _Reports) -> _Reports:  # noqa: N802 - Spark's name
        return value1 + value2


class _Reporting(_Sum):
    """The accumulator in the driver, which receives the reports of each task that has ended."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def addInPlace(self, value1: _Reports, value2: _Reports) -> _Reports:  # noqa: N802 - Spark's name
        for report in value2:
            self._listener(*report)
        return value1

    def __reduce__(self) -> tuple[type[_Sum], tuple[()]]:
        return _Sum, ()  # the listener stays in this process


def accumulator_of(spark: SparkSession, listener: Listener) -> Listener | None:
    """Return the function by which a task reports to the driver; None on a session that cannot.

    A session on Connect has no accumulators.
    """
    try:
        accumulator: Any = spark.sparkContext.accumulator([], _Reporting(listener))
    except Exception:  # noqa: BLE001 - each release reports it differently
        return None
    return _Adding(accumulator)


class _Adding:
    """A function that adds to an accumulator. It is sent to tasks."""

    def __init__(self, accumulator: Any) -> None:
        self._accumulator = accumulator

    def __call__(self, *report: Any) -> None:
        """Add a report."""
        self._accumulator.add([report])

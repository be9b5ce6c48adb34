"""What tasks have read so far, told to the driver while they still run, where the session can."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.accumulators import AccumulatorParam

from lakebed.arrow.reading.sift import Counts, OnFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Told = list[tuple[str, Counts]]
Tell = Callable[[_Told], None]
"""What a task calls with the files it has read."""


class _Sum(AccumulatorParam[_Told]):
    """What tasks add to; a plain list of what they have read."""

    def zero(self, value: _Told) -> _Told:  # noqa: ARG002 - see AccumulatorParam
        return []

    def addInPlace(self, value1: _Told, value2: _Told) -> _Told:  # noqa: N802 - Spark's name
        return value1 + value2


class _Telling(_Sum):
    """The same in the driver, which is called for each task that has ended."""

    def __init__(self, listener: OnFile) -> None:
        self._listener = listener

    def addInPlace(self, value1: _Told, value2: _Told) -> _Told:  # noqa: N802 - Spark's name
        for location, counts in value2:
            self._listener(location, counts)
        return value1

    def __reduce__(self) -> tuple[type[_Sum], tuple[()]]:
        return _Sum, ()  # a listener is of this process


class FilesTold:
    """Passes on each file once, however often and from where it is told of it."""

    def __init__(self, on_file: OnFile) -> None:
        self._on_file = on_file
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, location: str, counts: Counts) -> None:
        """Pass a file on, unless it has been."""
        with self._lock:
            if location not in self._told:  # a task that failed is run again
                self._told.add(location)
                self._on_file(location, counts)


def accumulator_of(spark: SparkSession, listener: OnFile) -> Tell | None:
    """Return what a task calls with the files it has read; None on a session without.

    A session on Connect has no accumulators.
    """
    try:
        found: Any = spark.sparkContext.accumulator([], _Telling(listener))
    except Exception:  # noqa: BLE001 - each release says so differently
        return None
    return _Adding(found)


class _Adding:
    """Adds to an accumulator. Travels to tasks."""

    def __init__(self, accumulator: Any) -> None:
        self._accumulator = accumulator

    def __call__(self, told: _Told) -> None:
        """Add what a task has read."""
        self._accumulator.add(told)

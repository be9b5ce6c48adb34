"""Checks of a batch before it is committed: of counts, nulls, uniqueness, or whatever a function says.

A check looks at the rows of the batch alone, or at the dataset as it will be.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.floats import with_one_zero_and_nan
from lakebed.common.html import facts_to_html
from lakebed.common.shown import counted
from lakebed.errors import ChecksFailedError, InvalidInputError
from lakebed.model.predicate import NullCheck, complement
from lakebed.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Of = Literal["batch", "dataset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What one check has found.

    Attributes:
        check: In words.
        of: `batch` if the rows of the batch were looked at, `dataset` if the dataset as it will be.
        has_passed: Whether all is well.
        count: Rows that were counted, or that break the rule; None of a function.
        detail: What is wrong, or an empty text.
    """

    check: str
    of: Of
    has_passed: bool
    count: int | None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What all checks have found.

    Attributes:
        batch_id: Of the batch that was checked.
        results: In the order of the checks.
    """

    batch_id: int
    results: tuple[CheckResult, ...]

    @property
    def has_passed(self) -> bool:
        """Whether all checks passed."""
        return all(result.has_passed for result in self.results)

    def require(self) -> None:
        """Raise unless all checks passed.

        Raises:
            ChecksFailedError: Says which did not, and what they found.
        """
        failed = tuple(
            f"{result.check}: {result.detail}" for result in self.results if not result.has_passed
        )
        if failed:
            raise ChecksFailedError(
                f"Batch {self.batch_id} fails {len(failed)} of {len(self.results)} checks: "
                f"{'; '.join(failed)}.",
                hint="It stays staged and invisible: look at it, then discard or commit it.",
                failed=failed,
            )

    def _repr_html_(self) -> str:
        return facts_to_html(
            f"Audit of batch {self.batch_id}",
            {
                f"{result.check} ({result.of})": "passed" if result.has_passed else result.detail
                for result in self.results
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(ABC):
    """Something that must hold.

    Attributes:
        of: `batch` to look at the rows of the batch, `dataset` at the dataset as it will be.
    """

    of: Of = "batch"

    def __post_init__(self) -> None:
        if self.of not in ("batch", "dataset"):
            raise InvalidInputError(f"A check of {self.of!r}.", hint="Give 'batch' or 'dataset'.")

    @abstractmethod
    def look(self, view: View, spark: SparkSession | None) -> CheckResult:
        """Look at a view, by Spark where a session is given."""

    def _result(self, count: int | None, detail: str) -> CheckResult:
        return CheckResult(
            check=str(self), of=self.of, has_passed=not detail, count=count, detail=detail
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount(Check):
    """There are so many rows; see `row_count`."""

    min: int | None = None
    max: int | None = None

    def __str__(self) -> str:
        bounds = (("min", self.min), ("max", self.max))
        told = ", ".join(f"{name}={bound}" for name, bound in bounds if bound is not None)
        return f"row_count({told})"

    def look(self, view: View, spark: SparkSession | None) -> CheckResult:  # noqa: ARG002 - footers tell it
        """Count."""
        count = view.count()
        is_few = self.min is not None and count < self.min
        is_many = self.max is not None and count > self.max
        return self._result(count, counted(count, "row") if is_few or is_many else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNull(Check):
    """Columns hold no null; see `not_null`."""

    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"not_null({', '.join(self.columns)})"

    def look(self, view: View, spark: SparkSession | None) -> CheckResult:
        """Count the nulls, column by column."""
        counts = {name: _count(view.where(NullCheck(name)), spark) for name in self.columns}
        details = [f"{counted(count, 'null')} in {name}" for name, count in counts.items() if count]
        return self._result(sum(counts.values()), ", ".join(details))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique(Check):
    """No two rows have the same key; see `unique`."""

    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"unique({', '.join(self.columns)})"

    def look(self, view: View, spark: SparkSession | None) -> CheckResult:
        """Group by the key."""
        if spark is None:
            rows = view.arrow(self.columns)
            for field in rows.schema:
                if pa.types.is_nested(field.type):
                    raise InvalidInputError(
                        f"{field.name!r} is nested, so that rows cannot be grouped by it.",
                        hint="Name columns of single values, or give spark=.",
                    )
            rows = pa.table({name: with_one_zero_and_nan(rows[name]) for name in self.columns})
            groups = rows.group_by(list(self.columns)).aggregate([([], "count_all")])
            counts = groups["count_all"]
            count = pc.sum(counts.filter(pc.greater(counts, 1))).as_py() or 0
        else:
            frame = view.spark(spark, self.columns).groupBy(*self.columns).count()
            count = frame.where("count > 1").agg({"count": "sum"}).first()[0] or 0  # type: ignore[index]  # an aggregate has a row
        return self._result(count, f"{count} rows share a key" if count else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition(Check):
    """A condition is true of every row; see `condition`."""

    sql: str

    def __str__(self) -> str:
        return f"condition({self.sql!r})"

    def look(self, view: View, spark: SparkSession | None) -> CheckResult:
        """Count the rows of which it is false or unknown."""
        narrowed = view.where(self.sql)
        broken = view.where(complement(narrowed.constraint))
        count = _count(broken, spark)
        return self._result(
            count, counted(count, "row breaks it", "rows break it") if count else ""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom(Check):
    """A function says yes; see `custom`."""

    function: Callable[[View], object]
    name: str

    def __str__(self) -> str:
        return self.name

    def look(self, view: View, spark: SparkSession | None) -> CheckResult:  # noqa: ARG002 - it has its own
        """Call it."""
        try:
            answer = self.function(view)
        except AssertionError as exc:
            return self._result(None, str(exc) or "an assertion failed")
        # What compares whole columns has a True of its own.
        is_true = (isinstance(answer, np.bool_) and bool(answer)) or (
            isinstance(answer, pa.BooleanScalar) and answer.as_py() is True
        )
        if answer is None or answer is True or is_true:
            return self._result(None, "")
        return self._result(None, f"it says {answer!r}")


def _count(view: View, spark: SparkSession | None) -> int:
    return view.count() if spark is None else view.spark(spark).count()


def row_count(*, min: int | None = None, max: int | None = None, of: Of = "batch") -> Check:  # noqa: A002 - the words for it
    """There are at least `min` and at most `max` rows.

    >>> print(row_count(min=1))
    row_count(min=1)

    Raises:
        InvalidInputError: No bound is given.
    """
    if min is None and max is None:
        raise InvalidInputError("row_count() without a bound.", hint="Give min=, max= or both.")
    return RowCount(min=min, max=max, of=of)


def not_null(*columns: str, of: Of = "batch") -> Check:
    """The columns hold no null; nested ones by dots.

    >>> print(not_null("id", "price"))
    not_null(id, price)

    Raises:
        InvalidInputError: No column is given.
    """
    return NotNull(columns=_some(columns, "not_null"), of=of)


def unique(*columns: str, of: Of = "batch") -> Check:
    """No two rows agree in all of the columns; null equals null, NaN equals NaN, 0.0 equals -0.0.

    Without Spark, the columns of all rows are held in memory.

    >>> print(unique("id"))
    unique(id)

    Raises:
        InvalidInputError: No column is given.
    """
    return Unique(columns=_some(columns, "unique"), of=of)


def condition(sql: str, *, of: Of = "batch") -> Check:
    """The condition is true of every row; where it is unknown, as of null, it is not.

    Args:
        sql: As for `View.where`.
        of: What is looked at.

    >>> print(condition("price >= 0 OR price IS NULL"))
    condition('price >= 0 OR price IS NULL')
    """
    return Condition(sql=sql, of=of)


def custom(
    function: Callable[[View], object], *, name: str | None = None, of: Of = "batch"
) -> Check:
    """Whatever a function finds in the view.

    Args:
        function: Takes the view. It passes by True, also of numpy or Arrow, or None, and fails
            by an AssertionError or any other answer. Other errors are not caught.
        name: In the report; else the name of the function.
        of: What is looked at.

    >>> print(custom(lambda view: view.count() % 2 == 0, name="even"))
    even
    """
    told = name or getattr(function, "__name__", None) or repr(function)
    return Custom(function=function, name=told, of=of)


def _some(columns: tuple[str, ...], name: str) -> tuple[str, ...]:
    if not columns:
        raise InvalidInputError(f"{name}() without columns.", hint="Name at least one.")
    return columns


def look_at(
    batch_id: int,
    checks: Sequence[Check | Callable[[View], object]],
    batch: View,
    dataset: View,
    spark: SparkSession | None,
) -> Audit:
    """Look at a batch with all checks; see `lakebed.batches.staged.Staged.check`."""
    results = []
    for given in checks:
        check = given if isinstance(given, Check) else custom(given)
        results.append(check.look(batch if check.of == "batch" else dataset, spark))
    return Audit(batch_id=batch_id, results=tuple(results))

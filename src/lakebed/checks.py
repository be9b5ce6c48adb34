"""Checks of a batch before it is committed: counts, nulls, uniqueness, conditions or functions.

A check examines the rows of the batch, or the dataset as it will be after the commit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.conform import with_one_zero_and_nan
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
    """The result of one check.

    Attributes:
        check: Description of the check.
        of: `batch` if it examined the rows of the batch, `dataset` for the dataset after the commit.
        has_passed: True if the check passed.
        count: Number of rows that were counted, or that fail; None for a function.
        detail: Description of the failure, or an empty text.
    """

    check: str
    of: Of
    has_passed: bool
    count: int | None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The results of all checks.

    Attributes:
        batch_id: Id of the batch that was checked.
        results: Results in the order of the checks.
    """

    batch_id: int
    results: tuple[CheckResult, ...]

    @property
    def has_passed(self) -> bool:
        """True if all checks passed."""
        return all(result.has_passed for result in self.results)

    def require(self) -> None:
        """Raise unless all checks passed.

        Raises:
            ChecksFailedError: Some checks failed; the message lists them with their results.
        """
        failed = tuple(
            f"{result.check}: {result.detail}" for result in self.results if not result.has_passed
        )
        if failed:
            raise ChecksFailedError(
                f"Batch {self.batch_id} fails {len(failed)} of {len(self.results)} checks: "
                f"{'; '.join(failed)}.",
                hint="It stays staged and invisible: examine it, then discard or commit it.",
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
    """A condition on a batch or dataset.

    Attributes:
        of: `batch` to examine the rows of the batch, `dataset` for the dataset after the commit.
    """

    of: Of = "batch"

    def __post_init__(self) -> None:
        if self.of not in ("batch", "dataset"):
            raise InvalidInputError(
                f"A check cannot be of {self.of!r}.", hint="Give 'batch' or 'dataset'."
            )

    @abstractmethod
    def look(self, view: View, spark: SparkSession | None) -> CheckResult:
        """Examine a view, with Spark if a session is given."""

    def _result(self, count: int | None, detail: str) -> CheckResult:
        return CheckResult(
            check=str(self), of=self.of, has_passed=not detail, count=count, detail=detail
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount(Check):
    """Bounds on the number of rows; see `row_count`."""

    min: int | None = None
    max: int | None = None

    def __str__(self) -> str:
        bounds = (("min", self.min), ("max", self.max))
        given = ", ".join(f"{name}={bound}" for name, bound in bounds if bound is not None)
        return f"row_count({given})"

    def look(self, view: View, spark: SparkSession | None) -> CheckResult:  # noqa: ARG002 - footers have it
        """Count the rows."""
        count = view.count()
        is_few = self.min is not None and count < self.min
        is_many = self.max is not None and count > self.max
        return self._result(count, counted(count, "row") if is_few or is_many else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNull(Check):
    """Columns without null; see `not_null`."""

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
        """Group the rows by the key, and count those of keys that repeat."""
        if spark is None:
            rows = view.arrow(self.columns)
            for field in rows.schema:
                if pa.types.is_nested(field.type):
                    raise InvalidInputError(
                        f"Rows cannot be grouped by {field.name!r}, because it is nested.",
                        hint="Give columns of single values, or spark=.",
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
        """Count the rows for which the condition is false or unknown."""
        narrowed = view.where(self.sql)
        broken = view.where(complement(narrowed.constraint))
        count = _count(broken, spark)
        return self._result(count, counted(count, "row fails it", "rows fail it") if count else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom(Check):
    """A function as a check; see `custom`."""

    function: Callable[[View], object]
    name: str

    def __str__(self) -> str:
        return self.name

    def look(self, view: View, spark: SparkSession | None) -> CheckResult:  # noqa: ARG002 - not passed on
        """Call the function."""
        try:
            answer = self.function(view)
        except AssertionError as exc:
            return self._result(None, str(exc) or "an assertion failed")
        # Comparisons of whole columns return their own type of True.
        is_true = (isinstance(answer, np.bool_) and bool(answer)) or (
            isinstance(answer, pa.BooleanScalar) and answer.as_py() is True
        )
        if answer is None or answer is True or is_true:
            return self._result(None, "")
        return self._result(None, f"it returned {answer!r}")


def _count(view: View, spark: SparkSession | None) -> int:
    return view.count() if spark is None else view.spark(spark).count()


def row_count(*, min: int | None = None, max: int | None = None, of: Of = "batch") -> Check:  # noqa: A002 - the words for it
    """Check that there are at least `min` and at most `max` rows.

    >>> print(row_count(min=1))
    row_count(min=1)

    Raises:
        InvalidInputError: No bound is given.
    """
    if min is None and max is None:
        raise InvalidInputError("row_count() needs a bound.", hint="Give min=, max= or both.")
    return RowCount(min=min, max=max, of=of)


def not_null(*columns: str, of: Of = "batch") -> Check:
    """Check that the columns have no null; nested columns are written with dots.

    >>> print(not_null("id", "price"))
    not_null(id, price)

    Raises:
        InvalidInputError: No column is given.
    """
    return NotNull(columns=_some(columns, "not_null"), of=of)


def unique(*columns: str, of: Of = "batch") -> Check:
    """Check that no two rows have equal values in all of the columns.

    Null equals null, NaN equals NaN, and 0.0 equals -0.0. Without Spark, the columns of all rows
    are read into memory.

    >>> print(unique("id"))
    unique(id)

    Raises:
        InvalidInputError: No column is given.
    """
    return Unique(columns=_some(columns, "unique"), of=of)


def condition(sql: str, *, of: Of = "batch") -> Check:
    """Check that a condition is true for every row; unknown, as for null, counts as failed.

    Args:
        sql: The condition, as for `View.where`.
        of: Examine the rows of the `batch`, or the `dataset` after the commit.

    >>> print(condition("price >= 0 OR price IS NULL"))
    condition('price >= 0 OR price IS NULL')
    """
    return Condition(sql=sql, of=of)


def custom(
    function: Callable[[View], object], *, name: str | None = None, of: Of = "batch"
) -> Check:
    """Check a view with a function.

    Args:
        function: Takes the view. The check passes if it returns True, also of NumPy or Arrow, or
            None; it fails for any other result or an AssertionError. Other errors are not caught.
        name: Name in the report; by default the name of the function.
        of: Examine the rows of the `batch`, or the `dataset` after the commit.

    >>> print(custom(lambda view: view.count() % 2 == 0, name="even"))
    even
    """
    shown_name = name or getattr(function, "__name__", None) or repr(function)
    return Custom(function=function, name=shown_name, of=of)


def _some(columns: tuple[str, ...], name: str) -> tuple[str, ...]:
    if not columns:
        raise InvalidInputError(f"{name}() needs columns.", hint="Give at least one.")
    return columns


def look_at(
    batch_id: int,
    checks: Sequence[Check | Callable[[View], object]],
    batch: View,
    dataset: View,
    spark: SparkSession | None,
) -> Audit:
    """Apply all checks to a batch; see `lakebed.batches.staged.Staged.check`."""
    results = []
    for given in checks:
        check = given if isinstance(given, Check) else custom(given)
        results.append(check.look(batch if check.of == "batch" else dataset, spark))
    return Audit(batch_id=batch_id, results=tuple(results))

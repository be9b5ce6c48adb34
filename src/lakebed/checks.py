"""Checks of rows, keys, references and batches.

A descriptor declares them for every write, see docs/checks.md; `Staged.commit` takes them for one
staged batch. A check examines the rows of the batch, or the dataset as it will be after the commit.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.conform import with_one_zero_and_nan
from lakebed.common.html import facts_to_html
from lakebed.common.shown import counted
from lakebed.errors import ChecksFailedError, InvalidInputError
from lakebed.model.declared import Check as Check
from lakebed.model.declared import (
    Condition,
    Fresh,
    NotNull,
    Reference,
    RowCount,
    Unique,
    check_from_table,
    checks_from_table,
    parse_within,
    split_reference,
)
from lakebed.model.declared import Of as Of
from lakebed.model.declared import OnFailure as OnFailure
from lakebed.model.predicate import NullCheck, complement
from lakebed.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check.

    Attributes:
        check: Description of the check.
        of: `batch` if it examined the rows of the batch, `dataset` for the dataset after the commit.
        has_passed: True if the check passed.
        count: Number of rows that were counted, or that fail; None for a function.
        detail: Description of the failure, or an empty text.
        is_warning: True if the check only warns, so that its failure does not refuse a commit.
    """

    check: str
    of: Of
    has_passed: bool
    count: int | None
    detail: str = ""
    is_warning: bool = False


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
        """True if all checks passed, except those that only warn."""
        return all(result.has_passed or result.is_warning for result in self.results)

    def require(self) -> None:
        """Raise unless all checks passed.

        Raises:
            ChecksFailedError: Some checks failed; the message lists them with their results.
        """
        failed = tuple(
            f"{result.check}: {result.detail}"
            for result in self.results
            if not result.has_passed and not result.is_warning
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
class Custom(Check):
    """A function as a check; see `custom`."""

    function: Callable[[View], object]
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class _Finding:
    """The number of rows that were counted or fail, and the failure in words."""

    count: int | None
    detail: str


def _look_at_count(check: RowCount, view: View) -> _Finding:
    """Count the rows."""
    count = view.count()
    is_few = check.min is not None and count < check.min
    is_many = check.max is not None and count > check.max
    return _Finding(count, counted(count, "row") if is_few or is_many else "")


def _look_at_nulls(check: NotNull, view: View, spark: SparkSession | None) -> _Finding:
    """Count the nulls, column by column."""
    counts = {name: _count(view.where(NullCheck(name)), spark) for name in check.columns}
    details = [f"{counted(count, 'null')} in {name}" for name, count in counts.items() if count]
    return _Finding(sum(counts.values()), ", ".join(details))


def _look_at_keys(check: Unique, view: View, spark: SparkSession | None) -> _Finding:
    """Group the rows by the key, and count those of keys that repeat."""
    if spark is None:
        rows = view.arrow(check.columns)
        for field in rows.schema:
            if pa.types.is_nested(field.type):
                raise InvalidInputError(
                    f"Rows cannot be grouped by {field.name!r}, because it is nested.",
                    hint="Give columns of single values, or spark=.",
                )
        rows = pa.table({name: with_one_zero_and_nan(rows[name]) for name in check.columns})
        groups = rows.group_by(list(check.columns)).aggregate([([], "count_all")])
        counts = groups["count_all"]
        count = pc.sum(counts.filter(pc.greater(counts, 1))).as_py() or 0
    else:
        frame = view.spark(spark, check.columns).groupBy(*check.columns).count()
        count = frame.where("count > 1").agg({"count": "sum"}).first()[0] or 0  # type: ignore[index]  # an aggregate has a row
    return _Finding(count, f"{count} rows share a key" if count else "")


def _look_at_condition(check: Condition, view: View, spark: SparkSession | None) -> _Finding:
    """Count the rows for which the condition is false or unknown."""
    narrowed = view.where(check.sql)
    broken = view.where(complement(narrowed.constraint))
    count = _count(broken, spark)
    return _Finding(count, counted(count, "row fails it", "rows fail it") if count else "")


def _look_by_function(check: Custom, view: View) -> _Finding:
    """Call the function."""
    try:
        answer = check.function(view)
    except AssertionError as exc:
        return _Finding(None, str(exc) or "an assertion failed")
    # Comparisons of whole columns return their own type of True.
    is_true = (isinstance(answer, np.bool_) and bool(answer)) or (
        isinstance(answer, pa.BooleanScalar) and answer.as_py() is True
    )
    is_passed = answer is None or answer is True or is_true
    return _Finding(None, "" if is_passed else f"it returned {answer!r}")


def _look(check: Check, view: View, spark: SparkSession | None) -> _Finding:
    """Examine a view, with Spark if a session is given."""
    match check:
        case RowCount():
            return _look_at_count(check, view)
        case NotNull():
            return _look_at_nulls(check, view, spark)
        case Unique():
            return _look_at_keys(check, view, spark)
        case Condition():
            return _look_at_condition(check, view, spark)
        case Custom():
            return _look_by_function(check, view)
    raise InvalidInputError(
        f"{check} is only for datasets that declare it.",
        hint="Declare it in the descriptor: see docs/checks.md.",
    )


def _count(view: View, spark: SparkSession | None) -> int:
    return view.count() if spark is None else view.spark(spark).count()


def row_count(
    *,
    min: int | None = None,  # noqa: A002 - the words for it
    max: int | None = None,  # noqa: A002
    of: Of | None = None,
    on_failure: OnFailure = "refuse",
) -> Check:
    """Check that there are at least `min` and at most `max` rows.

    >>> print(row_count(min=1))
    row_count(min=1)

    Raises:
        InvalidInputError: No bound is given.
    """
    if min is None and max is None:
        raise InvalidInputError("row_count() needs a bound.", hint="Give min=, max= or both.")
    return RowCount(min=min, max=max, of=of, on_failure=on_failure)


def not_null(*columns: str, of: Of | None = None, on_failure: OnFailure = "refuse") -> Check:
    """Check that the columns have no null; nested columns are written with dots.

    >>> print(not_null("id", "price"))
    not_null(id, price)

    Raises:
        InvalidInputError: No column is given.
    """
    return NotNull(columns=_some(columns, "not_null"), of=of, on_failure=on_failure)


def unique(*columns: str, of: Of | None = None, on_failure: OnFailure = "refuse") -> Check:
    """Check that no two rows have equal values in all of the columns.

    Null equals null, NaN equals NaN, and 0.0 equals -0.0. Declared with a dataset, it holds for the
    whole dataset, and an index of a column finds the files that may hold the new keys; for a staged
    batch, it examines the batch unless `of` is `dataset`. Without Spark, the columns of all rows
    that are examined are read into memory.

    >>> print(unique("id"))
    unique(id)

    Raises:
        InvalidInputError: No column is given.
    """
    return Unique(columns=_some(columns, "unique"), of=of, on_failure=on_failure)


def condition(sql: str, *, of: Of | None = None, on_failure: OnFailure = "refuse") -> Check:
    """Check that a condition is true for every row; unknown, as for null, counts as failed.

    Args:
        sql: The condition, as for `View.where`.
        of: Examine the rows of the `batch`, or the `dataset` after the commit.
        on_failure: For a declared check: refuse the write, reject the failing rows, send them to
            quarantine, or warn.

    >>> print(condition("price >= 0 OR price IS NULL"))
    condition('price >= 0 OR price IS NULL')
    """
    return Condition(sql=sql, of=of, on_failure=on_failure)


def reference(column: str, target: str, *, on_failure: OnFailure = "refuse") -> Check:
    """Check that each value of a column exists in a column of another dataset; null is allowed.

    Only a descriptor can declare it. It holds at the time of the commit: rows that are later
    deleted from the other dataset are not searched for.

    Args:
        column: The column.
        target: Dataset of the same repository and its column, as `airports.code`.
        on_failure: `refuse` or `warn`.

    >>> print(reference("airport", "airports.code"))
    reference(airport -> airports.code)
    """
    dataset, name = split_reference(target)
    return Reference(column=column, dataset=dataset, target=name, on_failure=on_failure)


def row_count_within(share: float, *, of_last: int = 10, on_failure: OnFailure = "refuse") -> Check:
    """Check that a batch has about as many rows as the mean of the last batches.

    Only a descriptor can declare it. The first batch of a dataset passes.

    Args:
        share: Allowed difference, as a share of the mean: 0.5 allows half to one and a half of it.
        of_last: Number of batches that the mean is of.
        on_failure: `refuse` or `warn`.

    >>> print(row_count_within(0.5, of_last=10))
    row_count_within(0.5, of_last=10)
    """
    table = {"row_count_within": share, "of_last": of_last, "on_failure": on_failure}
    return check_from_table("row_count_within", table)


def fresh(column: str, *, within: str | dt.timedelta, on_failure: OnFailure = "refuse") -> Check:
    """Check that the newest time of a batch is recent.

    Only a descriptor can declare it. A batch without rows passes.

    Args:
        column: Column of dates or timestamps.
        within: Longest age of the newest value, as `2h` or a timedelta.
        on_failure: `refuse` or `warn`.

    >>> print(fresh("ts", within="2h"))
    fresh(ts, within=2h)
    """
    return Fresh(column=column, within=parse_within(within), on_failure=on_failure)


def from_table(table: Mapping[str, object]) -> dict[str, Check]:
    """Read declared checks from a table `[checks]` of TOML, or from a mapping of the same form.

    Args:
        table: Maps the name of each check to its table; a text stands for `{rows = …}`.

    Raises:
        InvalidInputError: A name, a key or a value is not valid; the message names the check.

    >>> declared = from_table(
    ...     {
    ...         "sane_delay": {"rows": "delay >= -120", "on_failure": "quarantine"},
    ...         "ids": {"unique": ["id"]},
    ...         "airports": {"reference": "airport -> airports.code"},
    ...         "volume": {"row_count_within": 0.5, "of_last": 10},
    ...         "recent": {"column": "ts", "within": "2h"},
    ...     }
    ... )
    >>> for name, check in declared.items():
    ...     print(name, check, check.on_failure)
    sane_delay condition('delay >= -120') quarantine
    ids unique(id) refuse
    airports reference(airport -> airports.code) refuse
    volume row_count_within(0.5, of_last=10) refuse
    recent fresh(ts, within=2h) refuse
    """
    return checks_from_table(table)


def custom(
    function: Callable[[View], object], *, name: str | None = None, of: Of | None = None
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
        results.append(_result(check, batch, dataset, spark))
    return Audit(batch_id=batch_id, results=tuple(results))


def _result(check: Check, batch: View, dataset: View, spark: SparkSession | None) -> CheckResult:
    if check.on_failure in ("reject", "quarantine"):
        raise InvalidInputError(
            f"{check} cannot {check.on_failure} rows of a batch that is staged already.",
            hint="Leave on_failure out, or declare the check with the dataset: see docs/checks.md.",
        )
    of: Of = check.of or "batch"
    found = _look(check, batch if of == "batch" else dataset, spark)
    return CheckResult(
        check=str(check),
        of=of,
        has_passed=not found.detail,
        count=found.count,
        detail=found.detail,
        is_warning=check.on_failure == "warn",
    )

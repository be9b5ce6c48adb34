"""Results of declared checks: of the rows of a writer, of a commit, and what a version lacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec

from lakebed.common.shown import counted
from lakebed.errors import ChecksFailedError
from lakebed.model.declared import Check

MOST_EXAMPLES = 3

Verdict = Literal["passed", "refused", "rejected", "quarantined", "warned", "not checked"]
OUTCOMES: Mapping[str, Verdict] = {
    "refuse": "refused",
    "reject": "rejected",
    "quarantine": "quarantined",
    "warn": "warned",
}
# Of the results of several writers, the one of the highest rank is that of all.
_RANK: Mapping[Verdict, int] = {
    "passed": 0,
    "warned": 1,
    "rejected": 1,
    "quarantined": 1,
    "not checked": 2,
    "refused": 3,
}
# A version with such a result may hold rows that fail the check.
UNMET: frozenset[Verdict] = frozenset({"warned", "not checked"})


class CheckOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one declared check for one commit.

    Attributes:
        name: Name of the check.
        check: The check as it was declared then, such as `condition('delay >= -120')`.
        outcome: `passed`, `rejected`, `quarantined`, `warned` or `not checked`.
        count: Number of rows that fail.
        examples: Values of a few of these rows; or a description of the failure.
        is_of_all: True if all rows of the version pass, which was tested since earlier ones failed;
            else the result is for the rows of the commit.
    """

    name: str
    check: str
    outcome: Verdict
    count: Annotated[int, msgspec.Meta(ge=0)] = 0
    examples: tuple[str, ...] = ()
    is_of_all: bool = False

    def __str__(self) -> str:
        if self.outcome in ("rejected", "quarantined", "refused"):
            return f"{self.name}: {self.count:,} {self.outcome}"
        more = f" ({self.count:,})" if self.outcome == "warned" and self.count else ""
        return f"{self.name}: {self.outcome}{more}"


class UnmetCheck(msgspec.Struct, frozen=True):
    """A check that some rows of a version may fail.

    Attributes:
        name: Name of the check.
        outcome: `warned` or `not checked`.
    """

    name: str
    outcome: Verdict


def passed(name: str, check: Check) -> CheckOutcome:
    """Return the result of a check without a failure."""
    return CheckOutcome(name=name, check=str(check), outcome="passed")


def failed(name: str, check: Check, count: int, examples: Iterable[str]) -> CheckOutcome:
    """Return the result of a check that some rows fail, by its action."""
    return CheckOutcome(
        name=name,
        check=str(check),
        outcome=OUTCOMES[check.on_failure],
        count=count,
        examples=tuple(examples)[:MOST_EXAMPLES],
    )


def not_checked(name: str, check: Check) -> CheckOutcome:
    """Return the result of a check of rows that were not read."""
    return CheckOutcome(name=name, check=str(check), outcome="not checked")


def total_of_checks(parts: Iterable[CheckOutcome]) -> tuple[CheckOutcome, ...]:
    """Add up the results of several writers: one for each check and outcome."""
    totals: dict[tuple[str, str], CheckOutcome] = {}
    for part in parts:
        key = (part.name, part.check)
        before = totals.get(key)
        if before is None or _RANK[before.outcome] < _RANK[part.outcome]:
            totals[key] = part
        elif part.outcome == before.outcome:
            examples = dict.fromkeys((*before.examples, *part.examples))
            totals[key] = msgspec.structs.replace(
                before, count=before.count + part.count, examples=tuple(examples)[:MOST_EXAMPLES]
            )
    return tuple(totals.values())


def without_examples(results: Iterable[CheckOutcome]) -> tuple[CheckOutcome, ...]:
    """Return results without the values of rows that failed."""
    return tuple(msgspec.structs.replace(result, examples=()) for result in results)


def require(dataset: str, results: Iterable[CheckOutcome], *, are_existing: bool = False) -> None:
    """Raise an error if a check refuses the write.

    Args:
        dataset: Name of the dataset.
        results: The results of the checks.
        are_existing: Whether rows of the dataset were tested, for a check that is declared now.

    Raises:
        ChecksFailedError: One does; the message has each check, the count and examples.
    """
    refused = [result for result in results if result.outcome == "refused"]
    if not refused:
        return
    told = tuple(_in_words(result) for result in refused)
    checks = counted(len(refused), "declared check")
    what = (
        f"Existing rows of {dataset!r} fail" if are_existing else f"The write to {dataset!r} fails"
    )
    hint = "Correct the rows, or change what the check does with on_failure: see docs/checks.md."
    if are_existing:
        hint = "Correct the rows; or give existing='unchecked', or --existing unchecked."
    raise ChecksFailedError(
        f"{what} {checks}: {'; '.join(told)}. Nothing was committed.",
        hint=hint,
        failed=told,
        counts={result.name: result.count for result in refused},
    )


def _in_words(result: CheckOutcome) -> str:
    rows = f": {counted(result.count, 'row fails', 'rows fail')}" if result.count else ""
    such_as = f", such as {'; '.join(result.examples)}" if result.examples else ""
    if not rows:
        such_as = f": {'; '.join(result.examples)}"
    return f"{result.name}, {result.check}{rows}{such_as}"


def covers(result: CheckOutcome, check: Check) -> bool:
    """Return whether a result of a writer decides a check as it is declared now."""
    if result.check != str(check) or result.outcome == "not checked":
        return False
    return result.outcome != "warned" or check.on_failure == "warn"


def unmet_after(
    before: Iterable[UnmetCheck],
    checks: Mapping[str, Check],
    results: Iterable[CheckOutcome],
    *,
    replaces_all: bool,
) -> tuple[UnmetCheck, ...]:
    """Return the checks that rows of a version may fail, after a commit.

    Args:
        before: The checks that rows of the version before may fail.
        checks: The checks that are declared after the commit.
        results: The results of the commit.
        replaces_all: Whether all rows of the version are from the commit.
    """
    unmet = {} if replaces_all else {one.name: one.outcome for one in before}
    for result in results:
        check = checks.get(result.name)
        if result.outcome in UNMET:
            unmet[result.name] = result.outcome
        elif check is not None and (check.is_of_batch or result.is_of_all):
            unmet.pop(result.name, None)
    return tuple(UnmetCheck(name, unmet[name]) for name in sorted(unmet) if name in checks)

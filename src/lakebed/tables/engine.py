"""The engine of all publications: compares head and table until the table shows the head.

Nothing is locked. A publisher reads the head once more at the end, and goes on if it has moved; so
the last of several publishers leaves the table right. A note records which versions a table may
show before it shows them, for cleanups and for other publishers; see `lakebed.state.published`.
A publisher reads the note and then the head, so an older version never replaces a newer one.
The head is read again after the note was written, because a cleanup that did not see the note has
recorded its deletions in the head.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import random
import time
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeVar

from lakebed.errors import InvalidInputError, LakebedError, StorageError
from lakebed.state.published import Note
from lakebed.state.reader import read_own_head
from lakebed.state.state import State, is_one_dataset
from lakebed.store.base import Store
from lakebed.tables.outcome import Publication

_log = logging.getLogger(__name__)

_MAX_ROUNDS = 10  # commits that may arrive during a publication, and lost races
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0  # after a lost race


class HasVersion(Protocol):
    """The result of a publication."""

    @property
    def version(self) -> int:
        """The version of the dataset that the table shows."""

    def followed_by(self, later: Self) -> Self:
        """Return the combined result of two rounds of one publication."""


Plan = TypeVar("Plan")
Result = TypeVar("Result", bound=HasVersion)
Report = TypeVar("Report", bound=HasVersion, covariant=True)


class Target(Protocol[Plan, Report]):
    """A table that shows a dataset.

    `plan` compares and proves, and changes nothing; `apply` makes the changes.
    """

    @property
    def title(self) -> str:
        """The name of the table in messages."""

    def plan(self, state: State, note: Note, *, is_full: bool) -> Plan:
        """Return the changes after which the table shows a state.

        Args:
            state: The state to show.
            note: The note of the table, read just before.
            is_full: Compare the whole table instead of trusting what it records.
        """

    def is_to_change(self, plan: Plan) -> bool:
        """Return whether a plan holds any change."""

    def apply(self, plan: Plan, note: Note) -> bool:
        """Make the changes, unless the deadline of the note has passed.

        The note already records that the publication has begun.

        Returns:
            False if nothing was done because another writer was faster.
        """

    def report(self, plan: Plan, *, is_applied: bool) -> Report:
        """Return the result of the changes, made or only planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Options of a publication.

    Attributes:
        check: Only compare the whole table with the dataset.
        repair: Compare the whole table with the dataset, and repair it.
        dry_run: Only report what would be done.
    """

    check: bool = False
    repair: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.check and self.repair:
            raise InvalidInputError(
                "check and repair cannot be given together.",
                hint="Give one: check only reports differences, repair removes them.",
            )

    @property
    def is_full(self) -> bool:
        """True if the whole table is compared."""
        return self.check or self.repair

    @property
    def is_applied(self) -> bool:
        """True if the table may be changed."""
        return not (self.check or self.dry_run)


def bring_into_step(
    store: Store, dataset: str, target: Target[Plan, Result], note: Note, request: Request
) -> Result:
    """Bring a table into step with a dataset.

    Raises:
        StorageError: The table could not be changed, or other writers kept changing it.
        LakebedError: The target cannot show the dataset.

    Cost:
        The note and the head, and the head once more at the end; two PUTs of the note if the table
        changes; and the cost of the target. All of it again for each concurrent commit and publisher.
    """
    total: Result | None = None
    is_open = True
    for number in range(1, _MAX_ROUNDS + 1):
        if not is_open and total is not None:
            state = read_own_head(store, dataset).state
            if total.version == state.version:
                break
        before = total
        try:
            note.read()  # before the table, so that it shows later changes of other publishers
            # After the note: publishers that have begun by then have read this head, or an older one.
            # So a publisher that was suspended does not take the table back to an older version.
            state = read_own_head(store, dataset).state
            plan = target.plan(state, note, is_full=request.is_full and is_open)
            done = target.report(plan, is_applied=request.is_applied)
            if not request.is_applied:
                return done
            total = done if total is None else total.followed_by(done)
            is_open = _apply_and_note(store, target, plan, note, state)
        except _LostRaceError as race:
            if number == _MAX_ROUNDS:
                raise race.error from None
            _wait(number, target.title, race.error)
            total, is_open = before, True
        except StorageError as exc:
            if number == _MAX_ROUNDS or not note.is_disturbed():
                raise
            _wait(number, target.title, exc)
            is_open = True
    assert total is not None  # the last round has raised or made a plan
    return total


def publish(
    store: Store,
    dataset: str,
    target: Target[Plan, Publication],
    note: Note,
    request: Request,
    *,
    to: str,
    began: float,
) -> Publication:
    """Bring a table that shows files into step; time it, and log it.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        target: The table.
        note: The note of the table.
        request: Options of the publication.
        to: Format of the table, with its name if it has one of its own, for the log.
        began: Time of `time.monotonic` at which the publication began.

    Raises:
        StorageError: The table could not be changed, or other writers kept changing it.
        LakebedError: The target cannot show the dataset.

    Cost:
        As `bring_into_step`.
    """
    done = bring_into_step(store, dataset, target, note, request)
    done = replace(done, seconds=time.monotonic() - began)
    _log.info(
        "published dataset=%s to=%s version=%d added=%d removed=%d applied=%s",
        dataset,
        to,
        done.version,
        done.added_count,
        done.removed_count,
        done.is_applied,
    )
    return done


class _LostRaceError(Exception):
    """Another writer has changed the table or the dataset since the plan; nothing was done."""

    def __init__(
        self, title: str, change: str = "Other publishers change table {!r} at the same time."
    ) -> None:
        self.error = StorageError(change.format(title), hint="Publish again.", retryable=True)


def _apply_and_note(
    store: Store, target: Target[Plan, Result], plan: Plan, note: Note, state: State
) -> bool:
    """Change the table, and note for cleanups and other publishers which versions it may show.

    Returns:
        True if another round is needed, because other publishers may have changed the table.
    """
    if not target.is_to_change(plan) and note.shows_only(state.version):
        return False
    if not note.begin(state.version):
        raise _LostRaceError(target.title)
    try:
        if not _is_kept(store, state):
            change = "Cleanups keep deleting the version that is being published to {!r}."
            raise _LostRaceError(target.title, change)
        if not target.apply(plan, note):
            raise _LostRaceError(target.title)
    except Exception:
        # Only errors withdraw the note. After a kill, calls may still be under way.
        with contextlib.suppress(LakebedError):
            note.give_up()
        raise
    return note.finish()


def _is_kept(store: Store, state: State) -> bool:
    """Return whether the files of a state were kept by all cleanups that did not see the note.

    A cleanup that commits later reads the notes after its commit.

    Cost:
        One GET.
    """
    head = read_own_head(store, state.name).state
    return is_one_dataset(head, state) and head.horizon <= state.version


def _wait(number: int, table: str, lost: StorageError) -> None:
    """Wait for a random time, so that the faster publisher can go on."""
    wait_s = random.uniform(0, min(_FIRST_WAIT_S * 2**number, _LONGEST_WAIT_S))
    _log.warning(
        "publication looks again table=%s round=%d wait_ms=%.0f lost=%s",
        table,
        number,
        wait_s * 1000,
        lost.message,
    )
    time.sleep(wait_s)


def check_deadline(note: Note, table: str) -> None:
    """Check that the note of this publisher has not expired.

    Raises:
        StorageError: It has; others may treat the publisher as dead.
    """
    if note.deadline is not None and dt.datetime.now(dt.UTC) >= note.deadline:
        raise StorageError(
            f"Table {table!r} was not brought up to date in time.", hint="Publish again."
        )

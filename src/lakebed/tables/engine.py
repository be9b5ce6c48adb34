"""The engine of all publications: looks at head and table until the table shows the head.

Nothing is locked. Who publishes looks at the head once more at the end, and goes on if it has
moved; so of several publishers the last one leaves the table right. What a table may show is noted
before it shows it, for cleanups and for other publishers; see `lakebed.state.published`. And after
it was noted the head is read once more: a cleanup that knew nothing of it yet has said there what
it deletes.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import random
import time
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

from lakebed.errors import InvalidInputError, LakebedError, StorageError
from lakebed.state.published import Note
from lakebed.state.reader import read_own_head
from lakebed.state.state import State, is_one_dataset
from lakebed.store.base import Store

_log = logging.getLogger(__name__)

_MAX_ROUNDS = 10  # commits that may come while one is published, and lost races
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0  # after a lost race


class HasVersion(Protocol):
    """What a publication has done."""

    @property
    def version(self) -> int:
        """Of the dataset, which the table shows."""

    def followed_by(self, later: Self) -> Self:
        """Return what two rounds of one publication did."""


Look = TypeVar("Look")
Ended = TypeVar("Ended", bound=HasVersion)
Told = TypeVar("Told", bound=HasVersion, covariant=True)


class Target(Protocol[Look, Told]):
    """A table that shows a dataset.

    `look` compares and proves, and changes nothing; `apply` does what it found.
    """

    @property
    def title(self) -> str:
        """What the table is called in messages."""

    def look(self, state: State, note: Note, *, is_full: bool) -> Look:
        """Say what is to be done so that the table shows a state.

        Args:
            state: Of the dataset.
            note: As read right before.
            is_full: Whether to compare all of the table, and to believe nothing of it.
        """

    def is_to_change(self, now: Look) -> bool:
        """Whether there is anything to do."""

    def apply(self, now: Look, note: Note) -> bool:
        """Do it; not after the deadline of the note, which says by now that it is being done.

        Returns:
            False if nothing was done, because somebody else was faster.
        """

    def report(self, now: Look, *, is_applied: bool) -> Told:
        """Say what was done, or would be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked of a publication.

    Attributes:
        check: Only compare all of the table with the dataset.
        repair: Compare all of the table, and mend it.
        dry_run: Only say what would be done.
    """

    check: bool = False
    repair: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.check and self.repair:
            raise InvalidInputError(
                "Both check and repair are asked for.",
                hint="Give one: check changes nothing, repair mends what check would tell.",
            )

    @property
    def is_full(self) -> bool:
        """Whether all of the table is compared."""
        return self.check or self.repair

    @property
    def is_applied(self) -> bool:
        """Whether the table may be changed."""
        return not (self.check or self.dry_run)


def bring_into_step(
    store: Store, dataset: str, target: Target[Look, Ended], note: Note, wish: Wish
) -> Ended:
    """Bring a table into step with a dataset.

    Raises:
        StorageError: The table could not be changed, though nobody else was at it, or others were
            again and again.
        LakebedError: As the target says.

    Cost:
        The head and the note; if there is anything to do, two PUTs of the note; and what the
        target costs. All of it again for each commit and each publisher that comes between.
    """
    total: Ended | None = None
    is_open = True
    for number in range(1, _MAX_ROUNDS + 1):
        state = read_own_head(store, dataset).state
        if not is_open and total is not None and total.version == state.version:
            break
        before = total
        try:
            note.read()  # before the table, so that it tells what others do to that
            now = target.look(state, note, is_full=wish.is_full and is_open)
            done = target.report(now, is_applied=wish.is_applied)
            if not wish.is_applied:
                return done
            total = done if total is None else total.followed_by(done)
            is_open = _apply_and_note(store, target, now, note, state)
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
    assert total is not None  # the last round has raised, or looked
    return total


class _LostRaceError(Exception):
    """Somebody else has changed table or dataset since they were looked at; nothing was done."""

    def __init__(
        self, title: str, change: str = "Others change table {!r} at the same time."
    ) -> None:
        self.error = StorageError(change.format(title), hint="Publish again.", retryable=True)


def _apply_and_note(
    store: Store, target: Target[Look, Ended], now: Look, note: Note, state: State
) -> bool:
    """Change the table, and let cleanups and other publishers know what it may show.

    Returns:
        Whether to look again: others may have changed it too.
    """
    if not target.is_to_change(now) and note.shows_only(state.version):
        return False
    if not note.begin(state.version):
        raise _LostRaceError(target.title)
    try:
        if not _is_kept(store, state):
            change = "Cleanups give up what was to be published to {!r} again and again."
            raise _LostRaceError(target.title, change)
        if not target.apply(now, note):
            raise _LostRaceError(target.title)
    except Exception:
        # What dies otherwise says nothing: its calls may still be under way.
        with contextlib.suppress(LakebedError):
            note.give_up()
        raise
    return note.finish()


def _is_kept(store: Store, state: State) -> bool:
    """Whether no cleanup has given up the files of a state before it was noted.

    One that commits later reads the notes after its commit.

    Cost:
        One GET.
    """
    head = read_own_head(store, state.name).state
    return is_one_dataset(head, state) and head.horizon <= state.version


def _wait(number: int, table: str, lost: StorageError) -> None:
    """Let another publisher, which was faster at something, go on."""
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
    """Check that this publisher is not yet taken for dead.

    Raises:
        StorageError: It may be.
    """
    if note.deadline is not None and dt.datetime.now(dt.UTC) >= note.deadline:
        raise StorageError(
            f"Table {table!r} was not brought into step in time.", hint="Publish again."
        )

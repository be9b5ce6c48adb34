"""Publication and declared checks around each commit of a dataset.

The commits of every verb end in `lakebed.state.transaction`, far below the modules that publish or
read rows. So this is the one module that names higher rooms, and it imports one only for a dataset
that is published, or that declares checks.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.errors import LakebedError
from lakebed.model.publishing import PREFIX

if TYPE_CHECKING:
    from lakebed.state.check_results import CheckOutcome
    from lakebed.state.reservation import BatchRecord
    from lakebed.state.scope import Scope
    from lakebed.state.state import Change, State
    from lakebed.state.written import Written
    from lakebed.store.base import Store

_log = logging.getLogger(__name__)

_PUBLISHER = "lakebed.tables.automatic"
_JUDGE = "lakebed.work.judging"
_QUARANTINE = "lakebed.work.set_aside"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A batch that is about to be committed.

    Attributes:
        base: The state that the commit is computed from.
        scope: The files that the commit removes.
        written: The new rows.
        run: Name of the run, if it has one.
    """

    base: State
    scope: Scope
    written: Written
    batch_id: int
    run: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Files that were rewritten unchanged into the directories of a new batch.

    Attributes:
        state: The state that the files were read from.
        labels: Labels of the files that are replaced.
        written: The new files.
    """

    state: State
    labels: frozenset[str]
    written: Written


@dataclass(frozen=True, slots=True, kw_only=True)
class NotPublished:
    """A published table that does not show a commit.

    Attributes:
        table: Format and name of the table, such as `hive lake.flights`.
        reason: The cause of the failure.
        hint: How the caller can resolve it.
    """

    dataset: str
    table: str
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.table}: {self.reason} {self.hint}".rstrip()


@dataclass(slots=True)
class Publications:
    """The outcome of the last publication of each dataset, while `recording` is active.

    Attributes:
        last: Tables that were not published to, by the address of the dataset.
    """

    last: dict[str, tuple[NotPublished, ...]] = field(default_factory=dict)

    @property
    def failed(self) -> tuple[NotPublished, ...]:
        """Tables that do not show the last commit."""
        return tuple(failure for of_dataset in self.last.values() for failure in of_dataset)


_recording: ContextVar[Publications | None] = ContextVar("publications", default=None)


@contextmanager
def recording() -> Iterator[Publications]:
    """Record the outcome of the publications after all commits of a block.

    Commits of other threads and processes are not recorded.
    """
    publications = Publications()
    token = _recording.set(publications)
    try:
        yield publications
    finally:
        _recording.reset(token)


def judged(store: Store, state: State, change: Change) -> tuple[CheckOutcome, ...]:
    """Return the results of the declared checks for a change, to be committed on a state.

    Raises:
        ChecksFailedError: A check refuses the change.
        LakebedError: A file cannot be read, or the store failed.

    Cost:
        Nothing without checks; see `lakebed.work.judging.judge`.
    """
    descriptor = change.new_descriptor or state.descriptor
    if not descriptor.checks:
        return ()
    results: tuple[CheckOutcome, ...] = importlib.import_module(_JUDGE).judge(store, state, change)
    return results


def quarantine(store: Store, base: State, record: BatchRecord, keys: tuple[str, ...]) -> None:
    """Commit rows that failed declared checks to the quarantine of a dataset.

    Args:
        store: The store that holds the dataset.
        base: The state of the dataset.
        record: The batch that the rows were left out of.
        keys: Keys of temporary files with the rows; they are deleted.

    Raises:
        LakebedError: The store failed, or the dataset of that name is not a quarantine.
    """
    importlib.import_module(_QUARANTINE).set_rows_aside(store, base, record, keys)


def before_commit(store: Store, pending: Pending) -> Gathered | None:
    """Rewrite the files that a published table needs next to the new rows of a batch.

    A failure is logged as a warning: the commit does not depend on it, and the publication after
    the commit gathers the missing files.

    Returns:
        The files to commit with the batch; None if there are none.
    """
    if store.is_dry_run or not wants_publication(pending.base):
        return None
    try:
        gathered: Gathered | None = importlib.import_module(_PUBLISHER).gather(store, pending)
    except LakebedError as exc:
        _log.warning("not gathered before a commit dataset=%s: %s", pending.base.name, exc)
        return None
    return gathered


def wants_publication(state: State) -> bool:
    """Return whether a property of a dataset is about publication."""
    return any(name.startswith(PREFIX) for name in state.descriptor.properties)


def catch_up(store: Store, state: State) -> tuple[NotPublished, ...]:
    """Publish a dataset whose tables are behind, when there was nothing to commit.

    Returns:
        The tables that do not show the current version.

    Cost:
        Nothing if no property is about publication; else one LIST, and one GET a table.
    """
    if store.is_dry_run or not wants_publication(state):
        return ()
    from lakebed.state import published

    if not any(table.is_stale for table in published.tables(store, state)):
        return ()
    return after_commit(store, state)


def after_commit(store: Store, state: State) -> tuple[NotPublished, ...]:
    """Publish a dataset after a commit, if its properties ask for it.

    A failure is logged as a warning and publication is tried again after the next commit: the
    commit itself stands.

    Args:
        store: The store that holds the dataset.
        state: The state at the commit, or a little before.

    Returns:
        The tables that do not show the commit.
    """
    if store.is_dry_run or not wants_publication(state):
        return ()
    failures: tuple[NotPublished, ...]
    try:
        failures = importlib.import_module(_PUBLISHER).publish(store, state)
    except Exception as exc:  # noqa: BLE001 - the commit was made, and no failure undoes it
        failures = (NotPublished(dataset=state.name, table="all tables", reason=repr(exc)),)
    for failure in failures:
        _log.warning("not published after a commit dataset=%s %s", state.name, failure)
    publications = _recording.get()
    if publications is not None:
        publications.last[f"{store.uri}/{state.name}"] = failures
    return failures

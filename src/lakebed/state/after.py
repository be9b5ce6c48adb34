"""What else a dataset wants before and after each of its commits, by its properties.

Commits of every verb end in `lakebed.state.transaction`, far below what publishes. So this is the
one place that names a higher room, and imports it only for a dataset that asks for it.
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
    from lakebed.state.scope import Scope
    from lakebed.state.state import State
    from lakebed.state.written import Written
    from lakebed.store.base import Store

_log = logging.getLogger(__name__)

_PUBLISHER = "lakebed.tables.automatic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A batch that is about to be committed.

    Attributes:
        base: The state that the commit is computed from.
        scope: What it takes out.
        written: Its new rows.
        batch_id: Of the batch.
        run: Name of the run, if it has one.
    """

    base: State
    scope: Scope
    written: Written
    batch_id: int
    run: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Files that were written again, as they were, into the directories of a new batch.

    Attributes:
        state: That they were read from.
        labels: Of the files whose place is taken.
        written: The new files.
    """

    state: State
    labels: frozenset[str]
    written: Written


@dataclass(frozen=True, slots=True, kw_only=True)
class NotPublished:
    """A table that a commit should have been published to, and that does not show it.

    Attributes:
        dataset: Its name.
        table: Its kind and name, such as `hive lake.flights`.
        reason: Why it was not published.
        hint: What to do about it.
    """

    dataset: str
    table: str
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.table}: {self.reason} {self.hint}".rstrip()


@dataclass(slots=True)
class Publications:
    """The outcome of the last publication of each dataset, while it is recorded.

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
    """Record what becomes of the publications after all commits of a block.

    Commits of other threads and processes are not among them.
    """
    publications = Publications()
    token = _recording.set(publications)
    try:
        yield publications
    finally:
        _recording.reset(token)


def before_commit(store: Store, pending: Pending) -> Gathered | None:
    """Write again what a published table needs beside the new rows of a batch.

    What fails is logged as a warning: the commit does not depend on it, and the publication after
    it gathers what is left.

    Returns:
        What is to be committed with the batch; None if there is nothing.
    """
    if not wants_publication(pending.base):
        return None
    try:
        gathered: Gathered | None = importlib.import_module(_PUBLISHER).gather(store, pending)
    except LakebedError as exc:
        _log.warning("not gathered before a commit dataset=%s: %s", pending.base.name, exc)
        return None
    return gathered


def wants_publication(state: State) -> bool:
    """Whether a property of a dataset is about publication."""
    return any(name.startswith(PREFIX) for name in state.descriptor.properties)


def catch_up(store: Store, state: State) -> tuple[NotPublished, ...]:
    """Publish a dataset whose tables are behind, where nothing had to be committed.

    Returns:
        The tables that do not show the current version.

    Cost:
        Nothing where no property is about publication; else one LIST, and one GET a table.
    """
    if not wants_publication(state):
        return ()
    from lakebed.state import published

    if not any(table.is_stale for table in published.tables(store, state)):
        return ()
    return after_commit(store, state)


def after_commit(store: Store, state: State) -> tuple[NotPublished, ...]:
    """Publish a dataset that wants to be, after a commit that was made.

    What fails then is logged as a warning, and tried again after the next commit: the commit is as
    good as without.

    Args:
        store: Where the dataset is.
        state: What its head said at the commit, or a little before.

    Returns:
        The tables that do not show the commit.
    """
    if not wants_publication(state):
        return ()
    failures: tuple[NotPublished, ...]
    try:
        failures = importlib.import_module(_PUBLISHER).publish(store, state)
    except Exception as exc:  # noqa: BLE001 - the commit was made, whatever this is
        failures = (NotPublished(dataset=state.name, table="all tables", reason=repr(exc)),)
    for failure in failures:
        _log.warning("not published after a commit dataset=%s %s", state.name, failure)
    publications = _recording.get()
    if publications is not None:
        publications.last[f"{store.uri}/{state.name}"] = failures
    return failures

"""Holds: raw files that no ingest of a dataset reads, until they are released."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable
from typing import Literal

from msgspec.structs import replace

from lakebed.commit import Commit
from lakebed.common.html import shortened
from lakebed.errors import CommitConflictError, InvalidInputError
from lakebed.state import sources as source_list
from lakebed.state.committing import CommitOptions
from lakebed.state.reader import read_own_head
from lakebed.state.sources import Hold, SourceFile, Sources
from lakebed.state.transaction import Transaction
from lakebed.store.base import Store

Operation = Literal["hold", "release"]
_ROUNDS = 3
_NO_COMMIT = ""


def hold_of(file: SourceFile, reason: str, commit_id: str = _NO_COMMIT) -> Hold:
    """Return the hold of a raw file that was read."""
    return Hold(
        name=file.name,
        location=file.location,
        held_at=dt.datetime.now(dt.UTC),
        commit_id=commit_id,
        reason=reason,
        fingerprint=file.fingerprint,
    )


def find_named(known: Sources, text: str, reason: str) -> Hold | None:
    """Return the hold of a raw file that is held or was read, by its location, path or id."""
    for hold in known.held.values():
        if text in (hold.location, hold.name.partition(":")[2]):
            return replace(hold, reason=reason)
    named = (file for file in reversed(known.files) if text in (file.location, file.file_id))
    pushed = (file for file in reversed(known.files) if text == file.path)
    file = next(named, None) or next(pushed, None)
    if file is None and "://" not in text:
        # Do not resolve the path: the file may be missing by now, and links in it must stay.
        path = os.path.abspath(text)  # noqa: PTH100
        return None if path == text else find_named(known, path, reason)
    return None if file is None else hold_of(file, reason)


def hold_named(known: Sources, text: str, dataset: str, operation: Operation, reason: str) -> Hold:
    """Return the hold that `find_named` finds.

    Raises:
        InvalidInputError: It finds none.
    """
    hold = find_named(known, text, reason)
    if hold is None and operation == "release":
        raise _not_held(text, dataset, known.held.values())
    if hold is None:
        raise InvalidInputError(
            f"No raw file {text!r} was read into {dataset!r}.",
            hint="`sources` lists the raw files that were read. Hold others with the ingest that may "
            "read them.",
        )
    return hold


def change_holds(
    store: Store,
    dataset: str,
    operation: Operation,
    holds: Iterable[Hold],
    options: CommitOptions | None = None,
) -> Commit | None:
    """Hold raw files, or release them; return None if there is nothing to change.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        operation: `hold` or `release`.
        holds: The holds of the files. A release uses only their names.
        options: Retry and lease settings of the commit.

    Raises:
        InvalidInputError: A file to release is not held.
        DatasetNotFoundError: There is no such dataset.
        CommitConflictError: Cleanups kept winning the race; nothing has changed.

    Cost:
        The list of raw files that were read, two PUTs and one conditional PUT.
    """
    wanted = tuple(holds)
    for rounds_left in reversed(range(_ROUNDS)):
        base = read_own_head(store, dataset).state
        held = source_list.read(store, base.lists.sources).held
        if operation == "release":
            _check_held(dataset, held.values(), wanted)
        changed = [hold for hold in wanted if (hold.name in held) is (operation == "release")]
        if not changed:
            return None
        with Transaction.on(store, base, operation, options=options) as transaction:
            noted = (
                replace(hold, commit_id=transaction.commit_id, is_released=operation == "release")
                for hold in changed
            )
            try:
                committed = transaction.commit(sources=Sources(holds=tuple(noted)))
                return Commit.of(committed, base)
            except CommitConflictError:
                if not rounds_left:
                    raise
    raise AssertionError  # the last round returned or raised


def _check_held(dataset: str, held: Iterable[Hold], wanted: Iterable[Hold]) -> None:
    known = tuple(held)
    names = {hold.name for hold in known}
    for hold in wanted:
        if hold.name not in names:
            raise _not_held(hold.location, dataset, known)


def _not_held(text: str, dataset: str, held: Iterable[Hold]) -> InvalidInputError:
    listed = shortened(hold.location for hold in held) or "none"
    return InvalidInputError(f"{text!r} is not held in {dataset!r}.", hint=f"Held are: {listed}.")

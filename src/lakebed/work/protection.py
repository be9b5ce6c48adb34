"""Protection of versions and batches from cleanup."""

from __future__ import annotations

import datetime as dt
import getpass
import os
import socket
from collections.abc import Sequence

from lakebed.common.given import check_given, check_number
from lakebed.errors import CommitConflictError, InvalidInputError, VersionNotFoundError
from lakebed.state import history
from lakebed.state.committing import CommitOptions, Committed
from lakebed.state.history import Entry
from lakebed.state.protections import Protection
from lakebed.state.readable import check_readable, kept_files, protected_batches
from lakebed.state.reader import read_own_head
from lakebed.state.state import Change, State
from lakebed.state.transaction import Transaction
from lakebed.store.base import Store

_ROUNDS = 20  # other protections and cleanups are commits too, and may win the race
_WHY = "Give the reason for the protection, for later readers."


def protect(
    store: Store,
    dataset: str,
    *,
    version: int | None,
    batch_id: int | None,
    reason: str,
    until: dt.datetime | None,
    options: CommitOptions | None = None,
) -> tuple[Committed, State]:
    """Keep a version, or the files of a batch, from being cleaned up; see `Dataset.protections.add`."""
    _check_target(version, batch_id)
    check_given("reason", reason, str, _WHY, or_none=False)
    check_given("until", until, dt.datetime, "Give a datetime, or leave it out.")
    if not reason.strip():
        raise InvalidInputError("A protection needs a reason.", hint=_WHY)
    now = dt.datetime.now(dt.UTC)
    if until is not None:
        until = (until if until.tzinfo else until.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
        if until <= now:
            raise InvalidInputError(
                f"The protection would end at {until.isoformat()}, which is in the past.",
                hint="Give a later time, or leave it out to protect without an end.",
            )
    wanted = Protection(
        reason=reason, by=caller(), at=now, version=version, batch_id=batch_id, until=until
    )
    return _commit(store, dataset, "protect", wanted, options)


def unprotect(
    store: Store,
    dataset: str,
    *,
    version: int | None,
    batch_id: int | None,
    options: CommitOptions | None = None,
) -> tuple[Committed, State]:
    """Let a version or batch be cleaned up again; see `Dataset.protections.remove`."""
    _check_target(version, batch_id)
    unwanted = Protection(
        reason="", by="", at=dt.datetime.now(dt.UTC), version=version, batch_id=batch_id
    )
    return _commit(store, dataset, "unprotect", unwanted, options)


def _check_target(version: int | None, batch_id: int | None) -> None:
    check_number("version", version)
    check_number("batch_id", batch_id)
    if (version is None) == (batch_id is None):
        raise InvalidInputError(
            "A protection needs a target: a version or a batch.",
            hint="Give exactly one of version and batch_id.",
        )


def caller() -> str:
    """Return the user and the host that this process runs as."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container may have a user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _commit(
    store: Store,
    dataset: str,
    operation: str,
    target: Protection,
    options: CommitOptions | None,
) -> tuple[Committed, State]:
    """Check the target against the head and commit; try again after a conflict."""
    for rounds_left in reversed(range(_ROUNDS)):
        base = read_own_head(store, dataset).state
        if operation == "protect":
            _check_kept(base, history.read(store, base.lists.history), target)
        else:
            _check_protected(base, target)
        try:
            with Transaction.on(store, base, operation, options=options) as transaction:
                if operation == "protect":
                    return transaction.commit(Change(protect=(target,))), base
                return transaction.commit(Change(unprotect=(target,))), base
        except CommitConflictError:
            if not rounds_left:
                raise
    raise AssertionError  # the last round returned or raised


def _check_kept(state: State, entries: Sequence[Entry], target: Protection) -> None:
    """Check that the files of the version or batch still exist.

    Raises:
        VersionNotFoundError: There is no such version or batch, or it was cleaned up.
    """
    if target.version is not None:
        if not 0 <= target.version <= state.version:
            raise VersionNotFoundError(
                f"Dataset {state.name!r} has no version {target.version}.",
                hint=f"Versions are 0 to {state.version}.",
            )
        check_readable(state, entries, target.version)
        return
    committed = [entry for entry in entries if entry.batch_id == target.batch_id]
    if not committed:
        raise VersionNotFoundError(
            f"Dataset {state.name!r} has no batch {target.batch_id}.",
            hint="`batches` lists the committed batches.",
        )
    if target.batch_id in protected_batches(state):
        return
    written = {label for entry in committed for label in entry.added}
    written -= kept_files(entries, state).labels
    if written:
        raise VersionNotFoundError(
            f"Batch {target.batch_id} of {state.name!r} was cleaned up: "
            f"{len(written)} of its files are given up, such as {min(written)!r}.",
            hint=f"Versions from {state.horizon} on are complete. Protect a batch before the cleanup "
            "that would delete it.",
        )


def _check_protected(state: State, target: Protection) -> None:
    known = [
        protection
        for protection in state.protections
        if protection.is_of(version=target.version, batch_id=target.batch_id)
    ]
    if not known:
        listed = ", ".join(protection.target for protection in state.protections) or "nothing"
        raise VersionNotFoundError(
            f"Dataset {state.name!r} has no protection of {target.target}.",
            hint=f"Protected are: {listed}.",
        )

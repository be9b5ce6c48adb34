"""Older versions in the head: which can be read, and which were given up.

A cleanup commits what it gives up before it deletes anything. So a caller that reads, restores or
protects an older version needs the head alone, and the swap of the head decides every race.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.errors import VersionNotFoundError
from lakebed.state.history import Entry, labels_of
from lakebed.state.state import State


def protected_versions(state: State) -> frozenset[int]:
    """Return the versions that protections keep.

    Includes expired protections, as long as the head names them: clocks differ, and only the commit
    of a cleanup removes them.
    """
    return frozenset(
        protection.version for protection in state.protections if protection.version is not None
    )


def protected_batches(state: State) -> frozenset[int]:
    """Return the batches whose files protections keep, including expired protections."""
    return frozenset(
        protection.batch_id for protection in state.protections if protection.batch_id is not None
    )


def is_readable(state: State, version: int) -> bool:
    """Return whether no cleanup has given up a file of the version."""
    return version >= state.horizon or version in protected_versions(state)


def check_readable(state: State, entries: Sequence[Entry], version: int) -> None:
    """Check that all files of an older version are kept.

    Args:
        state: The current state.
        entries: The history, for the error.
        version: The version to check.

    Raises:
        VersionNotFoundError: A cleanup has given it up. The message states when, the hint which
            versions can be read.
    """
    if is_readable(state, version):
        return
    cleanups = [entry for entry in entries if entry.horizon is not None and entry.horizon > version]
    when = f" at {cleanups[0].committed_at.isoformat()}" if cleanups else ""
    others = sorted(number for number in protected_versions(state) if number < state.horizon)
    protected = f", and the protected {', '.join(map(str, others))}" if others else ""
    raise VersionNotFoundError(
        f"Version {version} of {state.name!r} was cleaned up{when}.",
        hint=f"Versions from {state.horizon} on can be read{protected}.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFiles:
    """Labels of the data files that may still be read.

    Attributes:
        retained: Labels of the versions from the horizon on.
        protected: Labels of the protected versions before it, and of protected batches.
    """

    retained: frozenset[str]
    protected: frozenset[str]

    @property
    def labels(self) -> frozenset[str]:
        """The labels of all these files."""
        return self.retained | self.protected


def kept_files(entries: Sequence[Entry], state: State) -> KeptFiles:
    """Return the files that no cleanup may delete; files of published tables are kept besides.

    Args:
        entries: The whole history.
        state: The current state.

    Raises:
        VersionNotFoundError: The history lacks a version that the head names.
    """
    retained = {*labels_of(entries, (state.horizon,)), *state.labels}
    batches = protected_batches(state)
    of_batches: set[str] = set()
    for entry in entries:
        if entry.version > state.horizon:
            retained.update(entry.added)
        if entry.batch_id in batches:
            of_batches.update(entry.added)
    older = [version for version in protected_versions(state) if version < state.horizon]
    return KeptFiles(retained=frozenset(retained), protected=labels_of(entries, older) | of_batches)

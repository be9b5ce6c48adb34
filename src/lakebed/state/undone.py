"""Commits that a rollback has undone, and the partitions in which it has. No I/O.

After a rollback, the commits in effect in a partition are those of the version that it went back
to: earlier commits are in effect, and later ones are undone, until another rollback brings them
back. This rule holds for epochs of streams and runs of loads; for raw files, `lakebed.work.rollback`
records the same in the list of sources. A delete, an overwrite or a compaction of the rows of a
commit does not undo it.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

from lakebed.model.keys import partition_of_label
from lakebed.state.history import Entry

ROLLBACK = "rollback"
_MOVING = "promote"  # it moves rows to other partitions
_BEFORE_ALL = -1
_ALL = None  # stands for the dataset as a whole, beside its partitions

_Part = str | None


class Undone:
    """The commits of a history that are no longer in effect.

    Cost:
        A pass over the entries if one of them is a rollback; else nothing.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        """Follow each partition through the whole history, oldest entry first."""
        # By part: the commit that was in effect before each commit.
        self._parents: dict[_Part, dict[int, int]] = {}
        # By part: the versions that changed it, and the commit that was in effect in each.
        self._versions: dict[_Part, list[int]] = {}
        self._commits: dict[_Part, list[int]] = {}
        self._in_effect: dict[_Part, frozenset[int]] = {}
        self._promotions = [entry for entry in entries if entry.operation == _MOVING]
        self._has_rollbacks = any(entry.operation == ROLLBACK for entry in entries)
        if self._has_rollbacks:
            self._follow(entries)

    def partitions(self, entry: Entry) -> tuple[frozenset[str], bool]:
        """Return the partitions in which a commit is undone, and whether it is undone in all of them."""
        if not self._has_rollbacks:
            return frozenset(), False
        touched = self._touched(entry)
        undone = {part for part, version in touched if not self._is_in_effect(part, version)}
        return frozenset(part for part in undone if part is not _ALL), len(undone) == len(touched)

    def _touched(self, entry: Entry) -> set[tuple[_Part, int]]:
        """Return the parts that hold rows of a commit, with the version that brought them there."""
        touched: set[tuple[_Part, int]] = {
            (partition, entry.version) for partition in entry.partitions
        }
        for promotion in self._promotions:
            sources = {partition_of_label(label) for label in promotion.removed}
            if promotion.version > entry.version and any(
                part in sources and self._is_in_effect(part, promotion.version)
                for part, _ in touched
            ):
                touched |= {(partition, promotion.version) for partition in promotion.partitions}
        return touched or {(_ALL, entry.version)}

    def _is_in_effect(self, part: _Part, version: int) -> bool:
        if part not in self._in_effect:
            parents, commits = self._parents.get(part, {}), set[int]()
            commit = self._commit_at(part, None)
            while commit != _BEFORE_ALL:
                commits.add(commit)
                commit = parents[commit]
            self._in_effect[part] = frozenset(commits)
        return version in self._in_effect[part]

    def _commit_at(self, part: _Part, version: int | None) -> int:
        """Return the commit that was in effect in a version; None for the last one."""
        versions = self._versions.get(part, [])
        count = len(versions) if version is None else bisect.bisect_right(versions, version)
        return self._commits[part][count - 1] if count else _BEFORE_ALL

    def _note(self, part: _Part, version: int, commit: int) -> None:
        self._versions.setdefault(part, []).append(version)
        self._commits.setdefault(part, []).append(commit)

    def _follow(self, entries: Sequence[Entry]) -> None:
        contents: dict[int, int] = {_BEFORE_ALL: 0}  # by version: a digest of its labels
        content = 0
        for index, entry in enumerate(entries):
            for label in (*entry.added, *entry.removed):
                content ^= hash(label)
            contents[entry.version] = content
            if entry.operation != ROLLBACK:
                for part in (*entry.partitions, _ALL):
                    before = self._commit_at(part, None)
                    self._parents.setdefault(part, {})[entry.version] = before
                    self._note(part, entry.version, entry.version)
                continue
            version = entry.restores
            if version is None:
                version = _restored_by(entries[:index], entry)
            is_whole = contents.get(version) == content
            parts: Iterable[_Part] = tuple(self._versions) if is_whole else entry.partitions
            for part in parts:
                commit = self._commit_at(part, version)
                if commit != self._commit_at(part, None):
                    self._note(part, entry.version, commit)


def _restored_by(earlier: Sequence[Entry], rollback: Entry) -> int:
    """Return the version that a rollback went back to, if an older release did not record it.

    It is the newest version whose files are the same in the partitions that the rollback changed.
    """
    touched = frozenset(rollback.partitions)
    differing = {*rollback.added, *rollback.removed}
    for entry in reversed(earlier):
        if not differing:
            return entry.version
        labels = (*entry.added, *entry.removed)
        differing ^= {label for label in labels if partition_of_label(label) in touched}
    return _BEFORE_ALL

"""Directories of batches that somebody else wrote: which of them are current, and which history.

In the layout `dt=…/batch_id=…/` a rerun writes a directory of its own beside the one that it
replaces, and nothing in the directories says which one readers were shown. The ids do: the batch
that began last is the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from lakebed.errors import InvalidInputError
from lakebed.model.keys import started_ms

Taken = Literal["current", "history", "left"]

MAX_OLDER_BATCHES = 100
"""So many ids of superseded batches become history at most: each is a version of its own."""

_SUCCESS = "_SUCCESS"  # what a job of Hadoop or Spark leaves where it has ended well
_UNFINISHED = "_temporary"  # and what it works in until then


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file to adopt.

    Attributes:
        key: Where it is.
        size_bytes: Its length.
        texts: Of each partition field, its value as text; None for null.
        batch_id: Of the directory that it lies in; None if that names none.
    """

    key: str
    size_bytes: int
    texts: Mapping[str, str | None]
    batch_id: int | None


@dataclass(slots=True, kw_only=True)
class FoundDirectory:
    """A directory that names a batch, or what lies in a partition without one.

    Attributes:
        key: Where it is.
        texts: Of each partition field, its value as text; None for null.
        batch_id: That it names, if it names one.
        files: In it.
        marks: Names of hidden files and directories right in it.
    """

    key: str
    texts: Mapping[str, str | None]
    batch_id: int | None
    files: list[FoundFile] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedBatch:
    """What one batch has written into one partition, and what it is taken for.

    Attributes:
        partition: Path of the partition; empty if there are no partition fields.
        batch_id: Of the directory; None if that names none: then it is of the adoption's batch.
        files: In it.
        taken_for: `current`: the first that readers see. `history`: an older version. `left`: it
            stays where it is, and is no part of the dataset.
        reason: Why it is taken for that.
        row_count: Entities in it; None if nobody has looked.
        marks: Names of hidden files and directories right in its directory.
    """

    partition: str
    batch_id: int | None
    files: tuple[FoundFile, ...]
    taken_for: Taken
    reason: str
    row_count: int | None = None
    marks: frozenset[str] = frozenset()

    @property
    def size_bytes(self) -> int:
        """Of its files."""
        return sum(file.size_bytes for file in self.files)

    def left(self, reason: str) -> AdoptedBatch:
        """Return it as one that stays where it is."""
        return replace(self, taken_for="left", reason=reason)


def judge_partition(
    path: str, batches: Sequence[AdoptedBatch], batch_level: str
) -> list[AdoptedBatch]:
    """Say of the batches of one partition which is current: the newest.

    Args:
        path: Of the partition.
        batches: All of it, each taken for current so far.
        batch_level: Name of the directories of batches.

    Raises:
        InvalidInputError: Nobody can tell: files lie beside the directories of batches, or the
            newest one looks as if its writer had not come to its end.
    """
    ordered = sorted(batches, key=_age)
    named = [batch for batch in ordered if batch.batch_id is not None]
    if not named:
        return ordered
    if len(named) < len(ordered):
        loose = next(batch for batch in ordered if batch.batch_id is None).files[0]
        raise InvalidInputError(
            f"{loose.key!r} lies beside directories of batches, such as "
            f"{batch_level}={named[-1].batch_id}, so that nobody can tell which is current.",
            hint="Move it into the directory of a batch, or out of the partition; or say that all "
            "batches are current: --current all.",
        )
    # What holds neither a file nor a sign of success is nothing that anybody has written.
    known = [batch for batch in named if batch.files or _SUCCESS in batch.marks]
    if not known:
        return []
    *older, newest = known
    told = f"{path or 'the dataset'}/{batch_level}={newest.batch_id}"
    if _UNFINISHED in newest.marks:
        raise _unfinished(told, f"it holds {_UNFINISHED}")
    if _SUCCESS not in newest.marks and any(_SUCCESS in batch.marks for batch in older):
        raise _unfinished(told, f"it has no {_SUCCESS}, and an older batch has")
    judged = [
        batch.left(f"unfinished: it holds {_UNFINISHED}")
        if _UNFINISHED in batch.marks
        else replace(batch, taken_for="history", reason=f"superseded by batch {newest.batch_id}")
        for batch in older
    ]
    reason = f"newest of {len(known)} batches" if older else "only batch"
    return [*judged, replace(newest, reason=reason)]


def _unfinished(told: str, sign: str) -> InvalidInputError:
    return InvalidInputError(
        f"{told} is the newest batch, but looks unfinished: {sign}.",
        hint=f"Delete it if its writer died. If it is complete, put an empty {_SUCCESS} into it, "
        f"and delete {_UNFINISHED}.",
    )


def limit_history(batches: Iterable[AdoptedBatch]) -> list[AdoptedBatch]:
    """Leave out the oldest of very many superseded batches."""
    all_batches = list(batches)
    ages = sorted({_age(batch) for batch in all_batches if batch.taken_for == "history"})
    too_old = frozenset(ages[:-MAX_OLDER_BATCHES])
    reason = f"older than the newest {MAX_OLDER_BATCHES} superseded batches"
    return [
        batch.left(reason) if batch.taken_for == "history" and _age(batch) in too_old else batch
        for batch in all_batches
    ]


@dataclass(frozen=True, slots=True)
class Step:
    """A version to make.

    Attributes:
        batch_id: Of the batch that it is the commit of; None if of several, of which none was
            superseded.
        batches: That it adds. Each takes the place of the one of its partition before it.
    """

    batch_id: int | None
    batches: tuple[AdoptedBatch, ...]


def steps_of(batches: Iterable[AdoptedBatch]) -> list[Step]:
    """Return the versions to make, oldest first; the last one is what is current.

    Each superseded batch gets a version, which shows what was current when it was. Of the others,
    those go together that come between two of these.
    """
    taken = sorted((batch for batch in batches if batch.taken_for != "left"), key=_age)
    superseded = {batch.batch_id for batch in taken if batch.taken_for == "history"}
    groups: list[list[AdoptedBatch]] = []
    for batch in taken:
        last = groups[-1][-1] if groups else None
        is_alone = {batch.batch_id, last.batch_id if last else None} & superseded
        if last is None or (batch.batch_id != last.batch_id and is_alone):
            groups.append([])
        groups[-1].append(batch)
    return [
        Step(
            group[0].batch_id if len({batch.batch_id for batch in group}) == 1 else None,
            tuple(group),
        )
        for group in groups
    ]


def _age(batch: AdoptedBatch) -> tuple[bool, int, int]:
    """Return what orders batches by the time at which they began; that of the adoption is last."""
    number = batch.batch_id or 0
    return batch.batch_id is None, started_ms(number), number

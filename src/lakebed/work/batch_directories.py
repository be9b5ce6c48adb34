"""Batch directories of other writers: selection of the current ones and of the history.

In the layout `dt=…/batch_id=…/` a rerun writes a directory of its own next to the one that it
replaces, and nothing in the directories shows which one readers used. The ids decide: the batch
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
"""Limit of superseded batches that become history: each is a version of its own."""

_SUCCESS = "_SUCCESS"  # a job of Hadoop or Spark leaves this file when it has succeeded
_UNFINISHED = "_temporary"  # its working directory until then


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file to adopt.

    Attributes:
        key: Path of the file in the repository.
        size_bytes: Length of the file.
        texts: Value of each partition field as text; None for null.
        batch_id: Batch id of its directory; None if the directory does not name one.
    """

    key: str
    size_bytes: int
    texts: Mapping[str, str | None]
    batch_id: int | None


@dataclass(slots=True, kw_only=True)
class FoundDirectory:
    """A directory of a batch, or a directory of a partition that directly holds files.

    Attributes:
        key: Path of the directory in the repository.
        texts: Value of each partition field as text; None for null.
        batch_id: The batch id that it names, if any.
        files: Files in the directory.
        marks: Names of the hidden files and directories right in it.
    """

    key: str
    texts: Mapping[str, str | None]
    batch_id: int | None
    files: list[FoundFile] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedBatch:
    """The files of one batch in one partition, and their role in the dataset.

    Attributes:
        partition: Path of the partition; empty if there are no partition fields.
        batch_id: Batch id of the directory; None if it does not name one: the files then become
            part of the adoption's batch.
        files: The files.
        taken_for: The role. `current`: visible in the first version that readers see. `history`:
            part of an older version. `left`: left in place, and not part of the dataset.
        reason: Reason for the role.
        row_count: Number of entities; None if unknown.
        marks: Names of the hidden files and directories right in its directory.
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
        """Total size of its files."""
        return sum(file.size_bytes for file in self.files)

    def left(self, reason: str) -> AdoptedBatch:
        """Return a copy with the role `left`."""
        return replace(self, taken_for="left", reason=reason)


def judge_partition(
    path: str, batches: Sequence[AdoptedBatch], batch_level: str
) -> list[AdoptedBatch]:
    """Assign roles to the batches of one partition: the newest is current.

    Args:
        path: Path of the partition.
        batches: All batches of the partition, each with the role `current` so far.
        batch_level: Name of the directories of batches.

    Raises:
        InvalidInputError: It is unclear which batch is current: files lie next to the directories
            of batches, or the newest batch looks unfinished.
    """
    ordered = sorted(batches, key=_age)
    named = [batch for batch in ordered if batch.batch_id is not None]
    if not named:
        return ordered
    if len(named) < len(ordered):
        loose = next(batch for batch in ordered if batch.batch_id is None).files[0]
        raise InvalidInputError(
            f"{loose.key!r} lies beside directories of batches, such as "
            f"{batch_level}={named[-1].batch_id}, so it is unclear which is current.",
            hint="Move it into the directory of a batch, or out of the partition; or treat all "
            "batches as current: --current all.",
        )
    # A directory with neither a file nor a success mark does not count as a batch.
    known = [batch for batch in named if batch.files or _SUCCESS in batch.marks]
    if not known:
        return []
    *older, newest = known
    directory = f"{path or 'the dataset'}/{batch_level}={newest.batch_id}"
    if _UNFINISHED in newest.marks:
        raise _unfinished(directory, f"it holds {_UNFINISHED}")
    if _SUCCESS not in newest.marks and any(_SUCCESS in batch.marks for batch in older):
        raise _unfinished(directory, f"it has no {_SUCCESS}, but an older batch has one")
    judged = [
        batch.left(f"unfinished: it holds {_UNFINISHED}")
        if _UNFINISHED in batch.marks
        else replace(batch, taken_for="history", reason=f"superseded by batch {newest.batch_id}")
        for batch in older
    ]
    reason = f"newest of {len(known)} batches" if older else "only batch"
    return [*judged, replace(newest, reason=reason)]


def _unfinished(directory: str, sign: str) -> InvalidInputError:
    return InvalidInputError(
        f"{directory} is the newest batch, but looks unfinished: {sign}.",
        hint=f"Delete it if its writer died. If it is complete, put an empty {_SUCCESS} into it, "
        f"and delete {_UNFINISHED}.",
    )


def limit_history(batches: Iterable[AdoptedBatch]) -> list[AdoptedBatch]:
    """Keep only the newest `MAX_OLDER_BATCHES` superseded batches as history."""
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
        batch_id: Batch id of the commit; None if the step adds several batches, none of them
            superseded.
        batches: The batches that it adds. Each replaces the one before it in its partition.
    """

    batch_id: int | None
    batches: tuple[AdoptedBatch, ...]


def steps_of(batches: Iterable[AdoptedBatch]) -> list[Step]:
    """Return the versions to make, oldest first; the last one is the current version.

    Each superseded batch gets a version of its own, which shows the dataset as of that batch. The
    other batches between two of these share one version.
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
    """Return the sort key of a batch by its start time; files without a batch id come last."""
    number = batch.batch_id or 0
    return batch.batch_id is None, started_ms(number), number

"""Adoption of trees of other tools: read all files, check them, and build the adoption."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakebed.arrow.workers import Threads, Workers
from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.errors import CorruptMetadataError, InvalidInputError, LakebedError, NotFoundError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import BatchIds
from lakebed.model.layout import TABLE, Folder
from lakebed.state.facts import FileFacts, facts_table
from lakebed.store.base import ObjectInfo, Store
from lakebed.work.adoption import Adoption, label_of
from lakebed.work.batch_directories import AdoptedBatch, FoundFile

_FILES_AT_ONCE = 4  # each of them is in memory
_OWN_FOLDERS = frozenset((*Folder, TABLE))


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFile:
    """A file of a tree, and its partition.

    Attributes:
        info: Key and size from the listing.
        partition: Path of its partition in the form of our own datasets.
    """

    info: ObjectInfo
    partition: str


@dataclass(slots=True)
class ForeignTree:
    """The files of a tree, separated into those to adopt and those to leave.

    Attributes:
        files: Files to adopt.
        left: Files that are left alone, each with the reason.
    """

    files: list[TreeFile] = field(default_factory=list)
    left: list[tuple[ObjectInfo, str]] = field(default_factory=list)


def check_folder(key: str, name: str) -> None:
    """Check that a file of a tree does not lie in a folder that a dataset keeps for itself.

    Raises:
        InvalidInputError: It does.
    """
    first = key.removeprefix(f"{name}/").partition("/")[0]
    if first in _OWN_FOLDERS and "/" in key.removeprefix(f"{name}/"):
        raise InvalidInputError(
            f"{key!r} cannot be adopted: {first}/ is the dataset's own.",
            hint="Rename the directory, or read the files in with import.",
        )


def adoption_of(
    store: Store,
    name: str,
    descriptor: DatasetDescriptor,
    tree: ForeignTree,
    count_rows: Callable[[TreeFile, pa.Buffer], int],
    on_progress: OnProgress = NO_PROGRESS,
    workers: Workers | None = None,
) -> Adoption:
    """Read every file of a tree, and return the adoption.

    Args:
        store: The store that holds the tree.
        name: Name of the dataset.
        descriptor: Descriptor of the dataset to create.
        tree: The files of the tree.
        count_rows: Checks that the content of a file fits its path, and returns its number of rows.
            Raises InvalidInputError or CorruptMetadataError if it does not fit.
        on_progress: Callback for progress; receives the number of files read so far.
        workers: Workers that read; None for threads.

    Raises:
        NotFoundError: There is no file.
        InvalidInputError: The content of a file does not fit its path; nothing was written.

    Cost:
        One GET for each file. Memory: a few files.
    """
    if not tree.files:
        raise NotFoundError(
            f"There is no file to adopt in {store.uri}/{name}.", hint="Check the directory."
        )

    def prove(file: TreeFile) -> tuple[int, str]:
        data = store.get(file.info.key).data
        if len(data) != file.info.size_bytes:
            # Adopted files are expected never to change.
            raise InvalidInputError(
                f"{file.info.key!r} cannot be adopted: it had {file.info.size_bytes:,} bytes in the "
                f"listing, and {len(data):,} when it was read.",
                hint="Nothing was written. Adopt the tree once all its writers have stopped.",
            )
        try:
            row_count = count_rows(file, pa.py_buffer(data))
        except (InvalidInputError, CorruptMetadataError) as exc:
            raise _unfit(file, exc) from exc
        report(file.info.key, row_count)
        return row_count, f"sha256:{hashlib.sha256(data).hexdigest()}"

    def prove_some(files: tuple[TreeFile, ...]) -> _Proof:
        return _Proof(list(map(prove, files)))

    files = sorted(tree.files, key=lambda file: file.info.key)
    sizes = {file.info.key: file.info.size_bytes for file in files}
    tally = Tally(on_progress, f"adopt {name}", sizes)
    workers = workers or Threads(_FILES_AT_ONCE)
    report = NO_PROGRESS
    if tally.listener is not NO_PROGRESS:
        report = workers.listening(lambda key, row_count: tally.add(key, row_count=row_count))
    parts = workers.map(prove_some, workers.shares(files), _Proof)
    proven = [one for part in parts for one in part.counted]
    batch_id = BatchIds.MILLISECONDS.of(dt.datetime.now(dt.UTC))
    facts, by_partition = [], dict[str, list[tuple[FoundFile, int]]]()
    for file, (row_count, checksum) in zip(files, proven, strict=True):
        found = _found(file.info)
        by_partition.setdefault(file.partition, []).append((found, row_count))
        facts.append(
            FileFacts(
                label=label_of(found, file.partition, batch_id),
                row_count=row_count,
                size_bytes=file.info.size_bytes,
                checksum=checksum,
            )
        )
    batches = [
        AdoptedBatch(
            partition=partition,
            batch_id=None,
            files=tuple(found for found, _ in counted),
            taken_for="current",
            reason="no directory names its batch",
            row_count=sum(count for _, count in counted),
        )
        for partition, counted in sorted(by_partition.items())
    ]
    left = [
        AdoptedBatch(
            partition="", batch_id=None, files=(_found(info),), taken_for="left", reason=reason
        )
        for info, reason in tree.left
    ]
    return Adoption(
        name=name,
        descriptor=descriptor,
        batches=(*batches, *left),
        files=tuple(_found(file.info) for file in files),
        facts=facts_table(facts, descriptor.file_schema),
        batch_id=batch_id,
    )


@dataclass(frozen=True, slots=True)
class _Proof:
    """Rows and checksum of each of some files."""

    counted: list[tuple[int, str]]


def _found(info: ObjectInfo) -> FoundFile:
    return FoundFile(key=info.key, size_bytes=info.size_bytes, texts={}, batch_id=None)


def _unfit(file: TreeFile, exc: LakebedError) -> InvalidInputError:
    reasons: Sequence[str] = exc.message.rstrip(".").split("\n")
    return InvalidInputError(
        f"{file.info.key!r} cannot be adopted: {reasons[0]}.",
        hint="Nothing was written. Read the files in with import, which sets unreadable lines aside; "
        "or move this file out of the tree.",
    )

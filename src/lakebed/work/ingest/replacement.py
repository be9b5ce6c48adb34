"""Removal of the rows of replaced raw files.

A commit records the raw files whose rows each data file holds. So the data files with rows of a
replaced raw file are known without reading them; they are rewritten without these rows, in the
commit that adds the new ones.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from lakebed.arrow.kernel import MIB, BatchTarget
from lakebed.arrow.rewrite import RewriteJob, Work, file_partition, rewrite_all
from lakebed.common.grouping import balanced_groups
from lakebed.errors import InvalidInputError
from lakebed.model.predicate import TRUE
from lakebed.plan.plan import DataFile
from lakebed.plan.search import plan
from lakebed.spark.task_workers import workers_for
from lakebed.state import file_table, history
from lakebed.state.history import REWRITING, Entry
from lakebed.state.sources import Origins, SourceFile, Sources
from lakebed.state.state import State
from lakebed.state.written import Written, joined
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPERATION = "ingest"
# They record the raw files of the rows that they rewrite.
_TRACKED = REWRITING | {OPERATION}
_THREADS = 4
_BYTES_A_WRITER = 64 * MIB  # of data files; less is not worth another writer


def files_of(base: State, known: Sources, raw_files: Sequence[SourceFile]) -> frozenset[str]:
    """Return the labels of the live data files that hold rows of raw files.

    Args:
        base: State of the dataset.
        known: The raw files that were read into it.
        raw_files: The raw files to search for.
    """
    return base.live.holding(_holding({file.key for file in raw_files}, known).keys())


def write_others(
    store: Store,
    base: State,
    known: Sources,
    labels: frozenset[str],
    replaced: Sequence[SourceFile],
    target: BatchTarget,
    spark: SparkSession | Literal[True] | None,
) -> Written:
    """Rewrite data files without the rows of replaced raw files.

    Args:
        store: The store that holds the dataset.
        base: State of the dataset.
        known: The raw files that were read into it.
        labels: Labels of the data files that hold such rows.
        replaced: The replaced raw files.
        target: Target of the batch for the remaining rows.
        spark: Session whose tasks write the files; None for this process.

    Raises:
        DamagedFileError: A data file differs from its recorded checksum. New files are deleted.
        CorruptMetadataError: The written rows differ from the rows read. New files are deleted.
        LakebedError: A file cannot be read, or the store failed. New files are deleted.

    Cost:
        The data files, read and written once, and the new ones read once more.
    """
    nothing = Written.nothing(base.descriptor.file_schema)
    kept_by_run = _kept_by_run(known, labels, replaced)
    if not kept_by_run:
        return nothing
    workers = workers_for(
        spark,
        store,
        threads=min(_THREADS, os.cpu_count() or 1),
        purpose=f"remove replaced files from {base.name}",
    )
    options = target.options
    shared = replace(options, memory_bytes=workers.share_of(options.memory_bytes))
    job = RewriteJob(layout=base.layout, target=replace(target, options=shared))
    recorded = file_table.read_recorded(store, base.lists.files, sorted(labels))
    files = [
        replace(file, recorded=recorded.get(file.label))
        for file in plan(base, TRUE, requests=0).files
        if file.label in labels
    ]
    works = [
        work
        for run, kept in kept_by_run.items()
        for work in _works_of(run, kept, files, known, workers.count)
    ]
    return joined([nothing, *rewrite_all(workers, store, job, works)])


def _kept_by_run(
    known: Sources, labels: frozenset[str], replaced: Sequence[SourceFile]
) -> dict[str, frozenset[str]]:
    """Return the raw files whose rows stay, by run: no data file may hold rows of several runs."""
    replaced_keys = {file.key for file in replaced}
    of_run = {file.key: file.run for file in known.files}
    kept: dict[str, set[str]] = {}
    for label, origins in known.runs.items():
        if label in labels:
            for key, _ in origins:
                if key not in replaced_keys:
                    kept.setdefault(of_run.get(key, ""), set()).add(key)
    return {run: frozenset(keys) for run, keys in kept.items()}


def _works_of(
    run: str, kept: frozenset[str], files: Sequence[DataFile], known: Sources, count: int
) -> list[Work]:
    """Divide the remaining rows of a run among writers that share no partition."""
    own = [file for file in files if any(key in kept for key, _ in known.runs[file.label])]
    sizes: dict[str, int] = {}
    for file in own:
        partition = file_partition(file)
        size_bytes = 0 if file.recorded is None else file.recorded.size_bytes
        sizes[partition] = sizes.get(partition, 0) + size_bytes
    enough = -(-sum(sizes.values()) // _BYTES_A_WRITER) or 1
    works = []
    for partitions in map(frozenset, balanced_groups(sizes, min(count, enough))):
        share = [file for file in own if file_partition(file) in partitions]
        origins = {file.label: known.runs[file.label] for file in share}
        works.append(
            Work(
                groups=tuple((file,) for file in share),
                run=run or None,
                origins=origins,
                kept=kept,
                row_count=sum(
                    row_count for runs in origins.values() for key, row_count in runs if key in kept
                ),
            )
        )
    return works


def _holding(keys: Collection[str], known: Sources) -> dict[str, Origins]:
    """Return the data files that hold or once held rows of raw files."""
    if not keys:
        return {}
    return {
        label: runs for label, runs in known.runs.items() if any(key in keys for key, _ in runs)
    }


def check_not_rewritten(
    store: Store, base: State, known: Sources, replaced: Sequence[SourceFile]
) -> None:
    """Check that the rows of replaced raw files are still in the recorded data files.

    Raises:
        InvalidInputError: An operation that does not track raw files has rewritten data files with
            such rows, so their new location is unknown.

    Cost:
        The history, if some of the data files are no longer in the dataset.
    """
    locations = {file.key: file.location for file in replaced}
    concerned = _holding(locations.keys(), known)
    doomed = concerned.keys() - base.live.holding(concerned.keys())
    if not doomed:
        return
    # By label of a data file that may hold such rows: a data file that held them before, and the
    # entry that rewrote that one. Only live ones matter: a rollback may have undone the rewrite.
    suspects: dict[str, tuple[str, Entry]] = {}
    for entry in history.read(store, base.lists.history):
        if entry.operation == "rollback":
            continue  # the files that it adds are older
        suspect = next((suspects[label] for label in entry.removed if label in suspects), None)
        if suspect is None and entry.operation not in _TRACKED:
            suspect = next(((label, entry) for label in entry.removed if label in doomed), None)
        if suspect is not None:
            suspects.update((label, suspect) for label in entry.added if label not in known.runs)
    for label in base.labels:
        if label in suspects:
            before, entry = suspects[label]
            location = next(locations[key] for key, _ in concerned[before] if key in locations)
            raise InvalidInputError(
                f"Cannot replace the rows of {location}: the {entry.operation} of version "
                f"{entry.version} has rewritten their data files, so their location is unknown.",
                hint="Delete the remaining ones, then run once with replace_rewritten.",
            )

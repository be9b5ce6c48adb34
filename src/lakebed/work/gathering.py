"""Gathering for a commit: the remaining rows of its partitions become files of its batch.

Readers of Hive tables read whole directories. So for a dataset that is published as such a table,
the directory of a new batch must hold all live rows of its partitions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

from lakebed.arrow.kernel import BatchTarget, WriteOptions
from lakebed.arrow.rewrite import RewriteJob, rewrite_all, works_on
from lakebed.arrow.workers import Threads
from lakebed.model.keys import partition_of_label, split_label
from lakebed.model.predicate import TRUE
from lakebed.plan.search import plan
from lakebed.state import runs
from lakebed.state.after import Gathered, Pending
from lakebed.state.reader import read_own_head
from lakebed.state.scope import RunFiles, Scope
from lakebed.state.state import State, is_one_dataset
from lakebed.state.written import joined
from lakebed.store.base import Store

_THREADS = 4


def gather_beside(store: Store, pending: Pending) -> Gathered | None:
    """Rewrite the remaining files of the partitions that a commit is about to touch.

    Args:
        store: The store that holds the dataset.
        pending: The commit.

    Returns:
        The new files and the files that they replace; None if there is nothing to gather, or if
        the current schema differs from that of the new files.

    Raises:
        LakebedError: A file cannot be read, or the store failed. The new files are deleted.

    Cost:
        A read of the head. If there is anything to gather: the file table, the segments that
        record the run of each file, and the files themselves, read and written once, and read
        back.
    """
    base, now = pending.base, read_own_head(store, pending.base.name).state
    if not is_one_dataset(base, now) or (base.descriptor, base.lineage) != (
        now.descriptor,
        now.lineage,
    ):
        return None
    labels = _scattered(now, pending, _known_scope(store, now, pending.scope))
    if not labels:
        return None
    options, threads = WriteOptions(), min(_THREADS, os.cpu_count() or 1)
    workers = Threads(threads)
    target = BatchTarget(
        dataset=base.name,
        batch_id=pending.batch_id,
        descriptor=base.descriptor,
        options=replace(options, memory_bytes=workers.share_of(options.memory_bytes)),
        schema_number=base.lineage.number,
        field_ids=base.layout.field_ids,
        is_tree=now.is_tree,
    )
    files = [file for file in plan(now, TRUE, requests=0).files if file.label in labels]
    works = works_on(store, now.lists, files, workers)
    written = joined(
        rewrite_all(workers, store, RewriteJob(layout=now.layout, target=target), works)
    )
    if pending.run is not None:
        # Else rows without a run would be attributed to the run of the batch.
        carried = {label: written.carried.get(label, runs.NO_RUN) for label in written.labels}
        written = replace(written, carried=carried)
    return Gathered(state=now, labels=labels, written=written)


def _known_scope(store: Store, now: State, scope: Scope) -> Scope:
    """Return a scope that names the files that it removes."""
    if not isinstance(scope, RunFiles) or not scope.replaces:
        return scope
    known = runs.read(store, now.lists)
    return replace(scope, labels=frozenset(known.live_files_of(scope.run, now.live)))


def _scattered(now: State, pending: Pending, scope: Scope) -> frozenset[str]:
    """Return the remaining files that would share a partition or a directory with other files."""
    removed = frozenset(now.live.removed_by(scope))
    new = _directories(pending.written.labels)
    left = _directories(removed)
    touched = new.keys() | left.keys()
    kept = [label for label in now.live.of(touched) if label not in removed]
    scattered = {
        partition
        for partition, homes in _directories(kept).items()
        # A single directory needs no gathering, unless files of it are removed.
        if partition in new or len(homes) > 1 or homes & left.get(partition, set())
    }
    return frozenset(label for label in kept if partition_of_label(label) in scattered)


def _directories(labels: Iterable[str]) -> Mapping[str, set[str]]:
    """Return the directories of files, by partition."""
    homes: dict[str, set[str]] = {}
    for label in labels:
        homes.setdefault(partition_of_label(label), set()).add(split_label(label)[0])
    return homes

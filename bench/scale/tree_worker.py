"""The calls of Lakebed on a dataset of N files without data files, each in a process of its own.

The leaves of a tree are made by the functions that a commit uses, one at a time, so that ten million
files need the memory of one leaf.
"""

from __future__ import annotations

import datetime as dt
import resource
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import layout
import numpy as np
import pandas as pd  # noqa: F401 - pyarrow loads it with the first array that it makes
import pyarrow as pa
import pyarrow.parquet as pq  # noqa: F401

# Loaded before the clock starts: a fresh process of a program that has used a dataset before.
import lakebed.arrow.kernel
import lakebed.index.lookup
import lakebed.plan.leaves
import lakebed.plan.search
import lakebed.state.tree.stored_folds  # noqa: F401
from lakebed import Dataset, Repository, by
from lakebed.index.postings_writer import new_writer
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.state.codec import to_document
from lakebed.state.head import HeadFormat, encode_head
from lakebed.state.reader import read_head
from lakebed.state.tree.inline import inline
from lakebed.state.tree.leaf_files import Files
from lakebed.state.tree.leaf_merge import leaves_of, proved
from lakebed.state.tree.stored_folds import fold_stored
from lakebed.state.tree.tree_commit import SIZES, with_root
from lakebed.state.tree.tree_files import TreeFiles
from lakebed.state.tree.tree_root import RootEntry
from lakebed.store import Store, open_store
from lakebed.store.segments import Segment
from lakebed.testing import CountingStore

SCHEMA = pa.schema([("day", pa.date32()), ("id", pa.int64()), ("amount", pa.float64())])
NAME = "t"
COMMITS = 20  # after the load, in the history; as many again are in the buffer
BATCH = 1_449_784_608_123
A_LEAF = SIZES.leaf // layout.FILES_A_DAY * layout.FILES_A_DAY


def prepare(
    location: str,
    *,
    count: int,
    index: bool,
    head: str = "tree",
    storage: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Make a tree: one load of all files, and some commits; or the document with the same files."""
    store = open_store(location, storage_options=storage)
    descriptor = DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.identity("day")], index=["id"] if index else []
    )
    dataset = Repository(store).create(NAME, descriptor, head="tree")
    _load(store, count, index=index)
    _fold(store)
    for part in range(2):
        for number in range(COMMITS):
            dataset.append(pa.table(layout.rows_of_new_file(count + number), schema=SCHEMA))
        if not part:
            _fold(store)
    if head == "document":
        dataset.compact(head="document")
    size = store.size(HeadFormat.MSGPACK.key(NAME))
    return {"version": Repository(store).open(NAME).version, "head_bytes": size}


def _load(store: Store, count: int, *, index: bool) -> None:
    """Enter a commit that has brought leaves with all files."""
    head = read_head(store, NAME)
    state, tree = head.state, head.state.live
    assert isinstance(tree, TreeFiles)
    refs, ids, homes = [], [np.zeros(0, np.int64)], list[str]()
    for first in range(0, count, A_LEAF):
        files = files_of(first, min(A_LEAF, count - first))
        for leaf in leaves_of(files, tree.order, SIZES, level=SIZES.level_of(count), run=0):
            store.put(leaf.ref.key(NAME), proved(leaf).data)
            refs.append(leaf.ref)
        halves = files.names.view(">u8").astype(np.uint64)
        ids.append(((halves[:, 0] ^ halves[:, 1]) >> np.uint64(1)).astype(np.int64))
        homes += [files.directories[home] for home in files.homes.tolist()]
    postings = {"id": (_write_index(store, np.concatenate(ids), homes),)} if index else {}
    entry = RootEntry(
        version=state.version + 1,
        commit_id=uuid.uuid4().hex,
        operation="append",
        committed_at=dt.datetime.now(dt.UTC),
        batch_id=BATCH,
        row_count=count * layout.ROWS_A_FILE,
        brought=tuple(refs),
    )
    none = inline(
        pa.table(
            {
                "row_count": pa.array([], pa.int64()),
                "size_bytes": pa.array([], pa.int64()),
                "checksum": pa.array([], pa.string()),
            }
        )
    )
    root = tree.root.after(entry, none, {})
    new = replace(
        with_root(
            replace(state, lists=replace(state.lists, postings=postings), indexed=tuple(postings)),
            root,
            replace(tree, root=root),
        ),
        version=root.version,
        commit_id=entry.commit_id,
        committed_at=entry.committed_at,
        last_batch_id=BATCH,
    )
    store.replace(head.key, encode_head(to_document(new), HeadFormat.MSGPACK), if_match=head.etag)


def _write_index(store: Store, ids: np.ndarray, homes: list[str]) -> Segment:
    """Write the postings of all files as one segment; each id is in one file."""
    count, order = len(ids), np.argsort(ids)
    places = np.empty(count, np.int32)
    places[order] = np.arange(count, dtype=np.int32)
    pairs = count * layout.ROWS_A_FILE
    writer = new_writer(pa.int64(), ids[order], pairs, [homes[at] for at in order.tolist()])
    for piece in layout.batches(pairs, 1_000_000):
        values = np.arange(piece.start, piece.stop, dtype=np.int64)
        writer.add(pa.array(values), places[values % count])
    nothing = np.array([], np.int64)
    made = writer.finish(NAME, "id", nan_files=nothing, null_files=nothing)
    store.put(made.segment.key, made.data)
    return made.segment


def _fold(store: Store) -> None:
    if not fold_stored(store, read_head(store, NAME).state):
        message = "the fold did not land"
        raise RuntimeError(message)


def files_of(first: int, count: int) -> Files:
    """Return some files of the load, with their facts."""
    rng = np.random.default_rng(first)
    days = -(-count // layout.FILES_A_DAY)
    counts = np.full(days, layout.FILES_A_DAY)
    counts[-1] = count - (days - 1) * layout.FILES_A_DAY
    numbers = np.arange(first, first + count)
    bounds = {
        "id": (numbers, numbers + 10 * count),
        "amount": (np.full(count, 0.5), np.full(count, 99.5)),
    }
    nulls = pa.array(np.zeros(count, np.int64))
    columns = [
        pa.StructArray.from_arrays(
            [pa.array(low), pa.array(high), nulls], names=["min", "max", "null_count"]
        )
        for low, high in bounds.values()
    ]
    digits = rng.bytes(32 * count).hex()
    return Files(
        directories=tuple(
            f"day={layout.day_of(first + at * layout.FILES_A_DAY)}/batch_id={BATCH}"
            for at in range(days)
        ),
        counts=counts,
        names=np.frombuffer(rng.bytes(16 * count), np.uint8).reshape(-1, 16),
        schemas=np.ones(count, np.int64),
        since=np.full(count, 1),
        rows=np.full(count, layout.ROWS_A_FILE),
        sizes=np.full(count, layout.FILE_BYTES),
        facts=pa.table(
            {
                "checksum": [f"sha256:{digits[at : at + 64]}" for at in range(0, len(digits), 64)],
                "stats": pa.StructArray.from_arrays(columns, names=list(bounds)),
            }
        ),
    )


def _day(count: int, number: int) -> dt.date:
    """Return a day in the middle, a different one for each number."""
    return layout.day_of(count // 2) + dt.timedelta(days=number % 3)


def _plan(dataset: Dataset, count: int, number: int) -> int:
    return len(dataset.kite.with_("day", _day(count, number)).plan())


def _count(dataset: Dataset, _count: int, _number: int) -> int:
    return dataset.count()


def _partitions(dataset: Dataset, _count: int, _number: int) -> int:
    return len(dataset.inspect.partitions())


def _lookup(dataset: Dataset, count: int, number: int) -> int:
    return len(dataset.where([[("id", "==", layout.ids_to_ask(count, number + 1)[-1])]]).plan())


def _at(dataset: Dataset, count: int, number: int) -> int:
    return _plan(dataset.at(version=COMMITS // 2), count, number)


def _append(dataset: Dataset, count: int, number: int) -> int:
    rows = layout.rows_of_new_file(count + number)
    return dataset.append(pa.table(rows, schema=SCHEMA)).version


def _rows_of(day: dt.date) -> pa.Table:
    return pa.table({"day": [day], "id": [1], "amount": [1.5]}, schema=SCHEMA)


def _overwrite(dataset: Dataset, count: int, number: int) -> int:
    day = _day(count, number)
    return dataset.kite.with_("day", day).overwrite(_rows_of(day)).version


def _delete(dataset: Dataset, count: int, number: int) -> int:
    day = _day(count, number) - dt.timedelta(days=4)
    return dataset.delete([[("day", "==", day)]]).version


def _rerun(dataset: Dataset, count: int, number: int) -> int:
    rows = layout.rows_of_new_file(count + number)
    return dataset.rerun(pa.table(rows, schema=SCHEMA), run="nightly", replace_all=True).version


def _rollback(dataset: Dataset, _count: int, _number: int) -> int:
    return dataset.rollback(version=dataset.version - 1).version


def _merge(dataset: Dataset, count: int, number: int) -> int:
    # Of a day without files, so that no data file must be read.
    rows = pa.table(
        {"day": [layout.FIRST_DAY - dt.timedelta(days=1)], "id": [count + number], "amount": [1.5]},
        schema=SCHEMA,
    )
    report = dataset.kite.with_("day", rows["day"][0].as_py()).upsert(rows, "id")
    return 0 if report.commit is None else report.commit.version


CALLS: dict[str, Callable[[Dataset, int, int], int]] = {
    "plan of a day": _plan,
    "count": _count,
    "partitions": _partitions,
    "lookup of an id": _lookup,
    "plan of a day, older": _at,
    "commit of one file": _append,
    "overwrite of a day": _overwrite,
    "delete of a day": _delete,
    "rerun of a run": _rerun,
    "rollback": _rollback,
    "merge into a day": _merge,
}


def measure(location: str, *, count: int, call: str, number: int) -> dict[str, Any]:
    """Open the dataset in this process for the first time, and make one call."""
    store = CountingStore(open_store(location))
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, cpu = time.perf_counter(), time.process_time()
    answer = CALLS[call](Repository(store).open(NAME), count, number)
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
    counts = store.reset()
    return {
        "cpu_ms": 1000 * cpu,
        "seconds": seconds,
        "requests": counts.total,
        "kb_read": counts.bytes_read / 1000,
        "kb_written": counts.bytes_written / 1000,
        "answer": answer,
        "own_mib": held / 1024,
        "root_kb": store.size(HeadFormat.MSGPACK.key(NAME)) / 1000,
    }


def grow(location: str, *, count: int, commits: int) -> dict[str, Any]:
    """Make many commits of one file each, with their folds, in this process."""
    dataset = Repository(open_store(location)).open(NAME)
    taken = []
    for number in range(commits):
        rows = pa.table(layout.rows_of_new_file(count + number), schema=SCHEMA)
        began = time.process_time()
        dataset.append(rows)
        taken.append(time.process_time() - began)
    first, last = (1000 * sum(part) / len(part) for part in (taken[:100], taken[-100:]))
    return {"commits": commits, "first_hundred_ms": first, "last_hundred_ms": last}


if __name__ == "__main__":
    layout.answer({"prepare": prepare, "measure": measure, "grow": grow})

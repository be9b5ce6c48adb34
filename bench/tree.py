"""The cost of a tree head: what depends on the state in a commit, a fold and a plan.

    python bench/tree.py [FILES ...]

Prints a row of a table for each number of files: CPU milliseconds, and kB of the root.
"""

from __future__ import annotations

import datetime as dt
import random
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lakebed import DatasetDescriptor
from lakebed.model.predicate import bind
from lakebed.model.sql_predicates import parse_sql
from lakebed.plan.search import plan
from lakebed.state.codec import from_document, to_document
from lakebed.state.creation import first_state
from lakebed.state.head import HeadFormat, decode_head, encode_head
from lakebed.state.reader import read_head
from lakebed.state.state import State
from lakebed.state.tree.directory_order import DirectoryOrder
from lakebed.state.tree.find import StoredLeaves, read_commits
from lakebed.state.tree.fold import fold
from lakebed.state.tree.inline import InlineBounds, InlineFacts
from lakebed.state.tree.leaf_files import Files
from lakebed.state.tree.leaf_merge import leaves_of
from lakebed.state.tree.tree_files import TreeFiles
from lakebed.state.tree.tree_root import Root, RootEntry, Sizes
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.memory import MemoryStore

FORMAT = HeadFormat.MSGPACK
KEY = FORMAT.key("d")
FILES_A_DAY = 100
DAY_0 = dt.date(1990, 1, 1)
SIZES = Sizes()
ROUNDS = 15


def new_state() -> State:
    schema = pa.schema([("id", pa.int64()), ("dt", pa.date32())])
    descriptor = DatasetDescriptor(schema=schema, partition_by="dt")
    return first_state("d", descriptor, FORMAT)


def directory(day: int) -> str:
    return f"dt={DAY_0 + dt.timedelta(days=day)}/batch_id={1_449_784_608_123 + day}"


def some_files(first_day: int, days: int) -> Files:
    count = days * FILES_A_DAY
    rng = np.random.default_rng(first_day)
    bounds = pa.array(rng.integers(0, 10**6, count))
    column = pa.StructArray.from_arrays(
        [bounds, bounds, pa.array(np.zeros(count, np.int64))], names=["min", "max", "null_count"]
    )
    digits = rng.bytes(32 * count).hex()
    checksums = [f"sha256:{digits[at : at + 64]}" for at in range(0, len(digits), 64)]
    return Files(
        directories=tuple(directory(first_day + day) for day in range(days)),
        counts=np.full(days, FILES_A_DAY),
        names=np.frombuffer(rng.bytes(16 * count), np.uint8).reshape(-1, 16),
        schemas=np.ones(count, np.int64),
        since=np.full(count, 1),
        rows=np.full(count, 1000),
        sizes=np.full(count, 123_456),
        facts=pa.table(
            {"checksum": checksums, "stats": pa.StructArray.from_arrays([column], names=["id"])}
        ),
    )


def built(store: MemoryStore, count: int) -> State:
    """Return the state of a tree of so many files, whose leaves are in the store."""
    state = new_state()
    order = DirectoryOrder(state.layout.partition_types)
    root, days = Root(), count // FILES_A_DAY
    step = SIZES.leaf // FILES_A_DAY
    for first in range(0, days, step):
        files = some_files(first, min(step, days - first))
        for leaf in leaves_of(files, order, SIZES, level=SIZES.level_of(count), run=0):
            assert leaf.sections is not None
            store.put(leaf.ref.key("d"), leaf.sections.data)
            root = replace(
                root, refs=(*root.refs, leaf.ref), totals=root.totals + leaf.ref.totals, runs=1
            )
    return with_root(state, root, order)


def with_root(state: State, root: Root, order: DirectoryOrder) -> State:
    live = TreeFiles(root, order, StoredLeaves(MemoryStore("bench"), "d"))
    return replace(state, live=live, version=root.version, digest=live.digest)


def committed(root: Root, day: int) -> Root:
    """Return a root after an append of one file."""
    version = root.version + 1
    entry = RootEntry(
        version=version,
        commit_id=uuid.uuid4().hex,
        operation="append",
        committed_at=dt.datetime.now(dt.UTC),
        batch_id=1_449_784_608_123 + day,
        row_count=1000,
        added=(f"{directory(day)}/part-{uuid.uuid4().hex}",),
        partitions=(directory(day).partition("/")[0],),
    )
    checksum = f"sha256:{uuid.uuid4().hex}{uuid.uuid4().hex}"
    facts = InlineFacts([1000], [123_456], [checksum], {"id": InlineBounds("int64", [1], [9], [0])})
    return root.after(entry, facts, {})


def cpu_ms(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        taken.append(1000 * (time.process_time() - start))
    return statistics.median(taken)


def measure(count: int) -> str:
    store = MemoryStore(uuid.uuid4().hex)
    state = built(store, count)
    assert isinstance(state.live, TreeFiles)
    root, order, days = state.live.root, state.live.order, count // FILES_A_DAY
    rng = random.Random(count)

    def grown(commits: int) -> Root:
        after = root
        for _ in range(commits):
            after = committed(after, rng.randrange(days))
        return after

    half = grown(SIZES.buffer // 2)
    head = encode_head(to_document(with_root(state, half, order)), FORMAT)
    store.put(KEY, head)

    def commit() -> bytes:
        read = from_document(decode_head(head, FORMAT, KEY), FORMAT, KEY)
        assert isinstance(read.live, TreeFiles)
        after = committed(read.live.root, days // 2)
        return encode_head(to_document(with_root(read, after, order)), FORMAT)

    text = f"dt = '{DAY_0 + dt.timedelta(days=days // 2)}'"

    def plan_of_a_day() -> None:
        read = read_head(store, "d").state
        types = read.layout.predicate_types
        condition = bind(parse_sql(text, types), types)
        files = plan(read, condition, requests=0, store=store).files
        assert FILES_A_DAY <= len(files) < FILES_A_DAY + SIZES.buffer

    def cold() -> None:
        PROCESS_CACHE.clear()
        plan_of_a_day()

    full = grown(SIZES.buffer)
    leaves = StoredLeaves(store, "d")

    def folded() -> None:
        fold(
            full,
            leaves.with_facts,
            order,
            SIZES,
            load_segment=lambda one: read_commits(store, "d", one),
        )

    figures = (cpu_ms(commit), cpu_ms(folded, 5), cpu_ms(cold), cpu_ms(plan_of_a_day))
    shown = " | ".join(f"{figure:.1f}" for figure in figures)
    return f"| {count:,} | {shown} | {len(head) / 1000:.0f} |"


def main() -> None:
    counts = [int(text) for text in sys.argv[1:]] or [10_000, 1_000_000]
    print("| files | commit | fold | plan of a day, cold | plan again | root, kB |")
    print("| --- | --- | --- | --- | --- | --- |")
    for count in counts:
        print(measure(count), flush=True)


if __name__ == "__main__":
    main()

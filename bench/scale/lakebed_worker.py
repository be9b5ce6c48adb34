"""The actions with Lakebed."""

from __future__ import annotations

import uuid
from typing import Any

import layout
import numpy as np
import pandas as pd  # noqa: F401 - pyarrow loads it with the first array that it makes
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

# The peers' modules are loaded before the clock starts, too: `import lakebed` alone loads none, and
# a dataset loads what plans with its first plan.
import lakebed.arrow.kernel
import lakebed.index.lookup
import lakebed.plan.leaves
import lakebed.plan.search
import lakebed.state.tree.stored_folds  # noqa: F401
from lakebed import Dataset, Repository, by, open_repository
from lakebed.index.segment import SegmentWriter
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import file_id
from lakebed.state.facts import facts_schema
from lakebed.state.head import HeadFormat
from lakebed.state.transaction import Transaction
from lakebed.state.written import Written
from lakebed.store import Store, open_store
from lakebed.store.segments import Segment
from lakebed.testing import CountingStore

SCHEMA = pa.schema([("day", pa.date32()), ("id", pa.int64()), ("amount", pa.float64())])
NAME = "t"


def prepare(
    location: str, *, count: int, head: str, index: bool, storage: dict[str, str]
) -> dict[str, Any]:
    """Commit the facts of files that do not exist, as one batch."""
    repository = open_repository(location, storage_options=storage)
    descriptor = DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.identity("day")], index=["id"] if index else []
    )
    dataset = repository.create(NAME, descriptor, head_format=head)
    store = repository.store
    transaction = Transaction.begin(store, NAME, "append")
    labels = [
        f"day={layout.day_of(file).isoformat()}/batch_id={transaction.batch_id}"
        f"/part-{uuid.uuid4().hex}"
        for file in range(count)
    ]
    facts = _facts(labels, count, facts_schema(descriptor.stored_schema))
    postings = {"id": (_write_index(store, labels, count),)} if index else {}
    transaction.add(Written(facts=facts, postings=postings))
    transaction.commit()
    return {"version": dataset.version}


def _facts(labels: list[str], count: int, schema: pa.Schema) -> pa.Table:
    """Return the facts that tasks would have sent, built by columns."""
    numbers = np.arange(count, dtype=np.int64)
    whole = np.full(count, layout.ROWS_A_FILE, dtype=np.int64)
    bounds = {
        "id": (pa.array(numbers), pa.array(numbers + count * (layout.ROWS_A_FILE - 1))),
        "amount": (pa.array(np.full(count, 0.5)), pa.array(np.full(count, 99.5))),
    }
    stats = [
        pa.StructArray.from_arrays(
            [*bounds[field.name], pa.array(np.zeros(count, dtype=np.int64))][: len(field.type)],
            fields=list(field.type),
        )
        for field in schema.field("stats").type
    ]
    return pa.table(
        [
            pa.array(labels),
            pa.array(whole),
            pa.array(np.full(count, layout.FILE_BYTES, dtype=np.int64)),
            pa.array(["sha256:" + "0" * 64] * count),
            pa.StructArray.from_arrays(stats, fields=list(schema.field("stats").type)),
        ],
        schema=schema,
    )


def _write_index(store: Store, labels: list[str], count: int) -> Segment:
    """Write the postings that tasks would have written, as one segment."""
    numbers = np.array([file_id(label) for label in labels], dtype=np.int64)
    places = np.empty(count, dtype=np.int32)
    places[np.argsort(numbers)] = np.arange(count, dtype=np.int32)
    writer = SegmentWriter(pa.int64(), np.sort(numbers))
    for piece in layout.batches(count * layout.ROWS_A_FILE, 1_000_000):
        ids = np.arange(piece.start, piece.stop, dtype=np.int64)
        writer.add(pa.array(ids), places[ids % count])
    nobody = np.array([], dtype=np.int64)
    made = writer.finish(NAME, "id", nan_files=nobody, null_files=nobody)
    store.put(made.segment.key, made.data)
    return made.segment


def _open(location: str, storage: dict[str, str] | None = None) -> Dataset:
    return open_repository(location, storage_options=storage).open(NAME)


def open_and_prune(location: str, count: int, storage: dict[str, str]) -> dict[str, Any]:
    """Open the dataset in this process for the first time, and choose the files of one day."""
    watch = layout.Stopwatch()
    with watch:
        chosen = _open(location, storage).kite.with_("day", layout.day_to_ask(count)).plan()
    return {"seconds": watch.seconds, "kept": len(chosen), "requests": chosen.requests}


def lookup(location: str, count: int, number: int, storage: dict[str, str]) -> dict[str, Any]:
    """Choose the files that hold some ids."""
    watch = layout.Stopwatch()
    ids = layout.ids_to_ask(count, number)
    with watch:
        chosen = _open(location, storage).where([[("id", "in", ids)]]).plan()
    return {"seconds": watch.seconds, "kept": len(chosen), "requests": chosen.requests}


def commit(location: str, count: int, number: int, storage: dict[str, str]) -> dict[str, Any]:
    """Append one small file, a few times, each with a dataset opened before."""
    store = CountingStore(open_store(location, storage_options=storage))
    seconds, requests, written = [], [], []
    for i in range(number):
        rows = pa.table(layout.rows_of_new_file(count + i), schema=SCHEMA)
        dataset = Repository(store).open(NAME)
        store.reset()
        watch = layout.Stopwatch()
        with watch:
            dataset.append(rows)
        seconds.append(watch.seconds)
        counts = store.reset()
        requests.append(counts.total)
        head = store.size(HeadFormat.MSGPACK.key(NAME))
        written.append(counts.bytes_written - head)
    middle = len(seconds) // 2
    return {
        "seconds": sorted(seconds)[middle],
        "requests": sorted(requests)[middle],
        "bytes_beyond_head": sorted(written)[middle],
        "head_bytes": head,
        "all": seconds,
    }


def write_files(location: str, *, rows: str, index: bool) -> dict[str, Any]:
    """Write a Parquet file's rows, sorted by `part`, as one file a part; return their keys."""
    table = pq.read_table(rows)
    repository = open_repository(location)
    descriptor = DatasetDescriptor(
        schema=table.schema,
        partition_by=[by.identity("part")],
        index=["id"] if index else [],
        compression="zstd",
    )
    dataset = repository.create(NAME, descriptor)
    dataset.append(table)
    return {"kept": len(dataset.files()), "bytes": sum(f.size_bytes for f in dataset.files())}


def read(location: str, ids: list[int]) -> dict[str, Any]:
    """Read the rows of some ids, from a dataset not yet opened."""
    watch = layout.Stopwatch()
    with watch:
        rows = _open(location).where([[("id", "in", ids)]]).arrow()
    return {"seconds": watch.seconds, "rows": sorted(rows.column("id").to_pylist())}


def spark_read(location: str, plain: str, ids: list[int], rounds: int) -> dict[str, Any]:
    """Read the rows of one id at a time with Spark, from a dataset with and one without index."""
    from lakebed.spark.session import local_session

    spark = local_session()
    locations = {"index": location, "scan": plain}
    seconds: dict[str, list[float]] = {name: [] for name in locations}
    rows: dict[str, list[list[int]]] = {name: [] for name in locations}
    for round_ in range(rounds + 1):
        for name, place in locations.items():
            one = ids[round_ % len(ids)]
            watch = layout.Stopwatch()
            with watch:
                found = _open(place).where([[("id", "==", one)]]).spark(spark).collect()
            if round_:
                seconds[name].append(watch.seconds)
                rows[name].append(sorted(row["id"] for row in found))
    return {"seconds": seconds, "rows": rows}


layout.answer(
    {
        "prepare": prepare,
        "open_and_prune": open_and_prune,
        "lookup": lookup,
        "commit": commit,
        "write_files": write_files,
        "read": read,
        "spark_read": spark_read,
    }
)

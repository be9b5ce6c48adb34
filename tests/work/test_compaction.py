"""Compaction: the same rows in fewer files, beside everything else that goes on."""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import functools
import itertools
import os
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from copies import copy_of
from effort import examples
from heads import ON_TREES, is_of_an_attempt
from hypothesis import given
from hypothesis import strategies as st
from inside import state_of, store_of
from upkeep_lake import DyingStore, HaltingStore, Interfering, Killed, data_keys
from writing_calls import writing_calls

import lakebed
from lakebed import by
from lakebed.arrow import rewrite
from lakebed.arrow.kernel import MIB, KernelWriter
from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    SchemaMismatchError,
    StorageError,
)
from lakebed.state import history, runs
from lakebed.state.reader import read_head
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.store.posix import PosixStore
from lakebed.testing import DelegatingStore, FailingStore
from lakebed.work import compaction

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64()), ("text", pa.string())])
DESCRIPTOR = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("p")])
RUNS = (None, "daily", "monthly")
QUICK = lakebed.CommitOptions(deadline_s=0.15, first_wait_ms=1, longest_wait_ms=5)


def row(n: int, p: str = "a") -> dict[str, Any]:
    return {"p": p, "n": n, "text": f"text {n}"}


def make(
    store: Store | None = None, descriptor: lakebed.DatasetDescriptor = DESCRIPTOR
) -> lakebed.Dataset:
    store = MemoryStore(os.urandom(8).hex()) if store is None else store
    return lakebed.Repository(store).create("d", descriptor)


def scattered(count: int = 6, store: Store | None = None) -> lakebed.Dataset:
    """A dataset of many small files in two partitions."""
    if store is None:
        return lakebed.Repository(copy_of(scattered_store(count))).open("d")
    dataset = make(store)
    for n in range(count):
        dataset.append([row(n), row(n, "b"), row(n + 100)])
    return dataset


@functools.cache
def scattered_store(count: int) -> Store:
    store = MemoryStore(os.urandom(8).hex())
    scattered(count, store)
    return store


def content(dataset: lakebed.Dataset) -> collections.Counter[str]:
    """Return the rows with their partitions, as a multiset."""
    return collections.Counter(map(str, dataset.arrow().to_pylist()))


def by_partition(dataset: lakebed.Dataset) -> dict[str, int | None]:
    return {one.path: one.row_count for one in dataset.inspect.partitions()}


def by_run(dataset: lakebed.Dataset) -> dict[str | None, collections.Counter[str]]:
    """Return the rows of each run, by the files that hold them."""
    store = store_of(dataset)
    state = state_of(dataset)
    known = runs.read(store, state.lists)
    found: dict[str | None, collections.Counter[str]] = {}
    for label in state.labels:
        data = store.get(state.layout.key(label)).data
        rows = pq.ParquetFile(pa.BufferReader(data)).read().to_pylist()
        found.setdefault(known.of(label), collections.Counter()).update(map(str, rows))
    return found


def files_in(dataset: lakebed.Dataset, partition: str) -> int:
    return sum(file.partition == partition for file in dataset.files())


batches = st.lists(
    st.tuples(
        st.sampled_from(RUNS),
        st.lists(
            st.tuples(st.sampled_from("abc"), st.integers(-3, 3), st.sampled_from(["", "é", None])),
            min_size=1,
            max_size=5,
        ),
    ),
    min_size=1,
    max_size=8,
)


@examples(0.25)
@given(batches, st.sampled_from([(), ("n",), ("text", "n")]), st.integers(1, 3))
def test_rows_are_the_same_in_each_partition_and_of_each_run(
    given_batches: list, sort_by: tuple[str, ...], commits: int
) -> None:
    dataset = make()
    for run, rows in given_batches:
        dataset.append([{"p": p, "n": n, "text": text} for p, n, text in rows], run=run)
    before = (content(dataset), by_partition(dataset), by_run(dataset))
    version, older = dataset.version, dataset.arrow()

    report = dataset.compact(sort_by=sort_by, commit_bytes=10_000 // commits)

    assert (content(dataset), by_partition(dataset), by_run(dataset)) == before
    assert dataset.at(version=version).arrow() == older
    known = runs.read(store_of(dataset), state_of(dataset).lists)
    labels = state_of(dataset).labels
    places = collections.Counter((one.rpartition("/batch_id")[0], known.of(one)) for one in labels)
    assert set(places.values()) == {1}
    assert report.skipped == ()
    assert dataset.compact().commits == ()


def test_report_says_what_was_done() -> None:
    dataset = scattered(3)
    dataset.append([row(7, "c")])

    planned = dataset.compact(dry_run=True)
    report = dataset.compact()

    assert [(one.path, one.files_before, one.files_after) for one in report.partitions] == [
        ("p=a", 3, 1),
        ("p=b", 3, 1),
    ]
    assert (report.files_before, report.files_after, report.row_count) == (6, 2, 9)
    assert report.bytes_after == sum(
        file.size_bytes for file in dataset.files() if file.partition != "p=c"
    )
    (commit,) = report.commits
    assert (commit.operation, commit.version, commit.row_count) == ("compact", 5, 9)
    assert commit.batch_id is not None
    assert [replace(one, bytes_after=None) for one in report.partitions] == list(planned.partitions)
    assert planned.is_dry_run
    assert planned.bytes_after is None


def test_dry_run_and_nothing_to_do_leave_everything_as_it_is() -> None:
    dataset = scattered()
    store = store_of(dataset)
    keys = {info.key for info in store.list("")}

    assert dataset.compact(dry_run=True).files_before == 12
    assert dataset.compact(dataset.where("p = 'z'")).commits == ()

    assert {info.key for info in store.list("")} == keys
    assert dataset.version == 6


def test_only_the_partitions_of_a_view_are_compacted() -> None:
    dataset = scattered()

    dataset.compact(dataset.where("p = 'a' AND n = 3"))

    assert (files_in(dataset, "p=a"), files_in(dataset, "p=b")) == (1, 6)


def test_files_that_are_large_enough_stay() -> None:
    dataset = scattered(2)
    dataset.overwrite(pa.table({"p": ["a"] * 5000, "n": range(5000), "text": ["x"] * 5000}))
    dataset.append([row(1), row(1, "b")])
    dataset.append([row(2)])
    (large,) = [file for file in dataset.files() if file.size_bytes > 4000]

    dataset.compact(target_bytes=8000)

    assert large in dataset.files()
    assert files_in(dataset, "p=a") == 2
    assert files_in(dataset, "p=b") == 1


@pytest.mark.thorough
def test_files_come_near_the_target_size() -> None:
    dataset = make()
    dice = random.Random(7)
    for _ in range(12):
        rows = [row(dice.randrange(10**9)) for _ in range(2_000)]
        dataset.append([{**one, "text": dice.randbytes(20).hex()} for one in rows])
    target = 150_000

    dataset.compact(target_bytes=target)

    sizes = sorted(file.size_bytes for file in dataset.files())
    assert all(0.6 * target < size < 1.5 * target for size in sizes[1:])
    assert dataset.count() == 24_000


@pytest.mark.parametrize("count", [1, 40])
def test_rows_are_sorted_across_the_files_of_a_partition(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "_SORTED_ROWS", 3)
    dataset = make()
    dice = random.Random(3)
    for _ in range(5):
        rows = [row(dice.randrange(20)) for _ in range(count)]
        dataset.append([*rows, {"p": "a", "n": None, "text": "none"}])

    dataset.compact(sort_by=["n", "text"])

    numbers = dataset.arrow(["n"]).column("n").to_pylist()
    assert numbers == sorted(numbers, key=lambda n: (n is None, n or 0))


def test_rows_that_differ_much_in_length_are_sorted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "_SORTED_BYTES", 2_000)
    monkeypatch.setattr(rewrite, "_SORTED_LIMIT", 3_000)
    dataset = make()
    dice = random.Random(5)
    for _ in range(6):
        numbers = [dice.randrange(100) for _ in range(50)]
        # Long texts come together, and far more of them than the average tells.
        texts = ["x" * 900 if n < 20 else "" for n in numbers]
        dataset.append(
            pa.table({"p": ["a"] * 50, "n": pa.array(numbers, pa.int64()), "text": texts})
        )
    before = content(dataset)

    dataset.compact(sort_by="n")

    assert content(dataset) == before
    numbers = dataset.arrow(["n"]).column("n").to_pylist()
    assert numbers == sorted(numbers)


@pytest.mark.thorough
def test_sorting_needs_no_more_memory_for_more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "_SORTED_BYTES", MIB)
    peaks = []
    for count in (4, 40):
        batches = [
            pa.record_batch(
                {"n": range(start, 1_000 * count, count), "text": ["x" * 2_000] * 1_000}
            )
            for start in range(count)
        ]
        pool = pa.proxy_memory_pool(pa.default_memory_pool())
        usual = pa.default_memory_pool()
        pa.set_memory_pool(pool)
        try:
            found = [
                batch.column("n").to_pylist()
                for batch in rewrite._in_order(pa.Table.from_batches(batches), ("n",))
            ]
        finally:
            pa.set_memory_pool(usual)
        assert list(itertools.chain(*found)) == list(range(1_000 * count))
        peaks.append(pool.max_memory())

    assert peaks[1] < 1.5 * peaks[0]
    assert peaks[1] < 8 * MIB


@pytest.mark.long
@pytest.mark.xdist_group("machine")  # which has memory for one of these
def test_more_than_two_gib_of_one_column_are_sorted(tmp_path: Path) -> None:
    dataset = make(PosixStore(tmp_path / "lake", durable=False))
    text = pa.array(["x" * 4_000] * 100_000)
    for n in range(6):
        numbers = pa.array(range(n, n + 600_000, 6), pa.int64())
        dataset.append(pa.table({"p": ["a"] * 100_000, "n": numbers, "text": text}))

    report = dataset.compact(sort_by="n")

    assert (report.row_count, report.files_after) == (600_000, 1)
    assert dataset.arrow(["n"]).column("n").to_pylist() == list(range(600_000))


def test_order_must_be_of_fields_that_hold_single_values() -> None:
    schema = pa.schema([("n", pa.int64()), ("many", pa.list_(pa.int64()))])
    dataset = make(descriptor=lakebed.DatasetDescriptor(schema=schema))

    with pytest.raises(SchemaMismatchError, match="nn"):
        dataset.compact(sort_by="nn")
    with pytest.raises(InvalidInputError, match="'many'"):
        dataset.compact(sort_by="many")
    with pytest.raises(InvalidInputError, match="target_bytes is 0"):
        dataset.compact(target_bytes=0)


def test_several_commits_are_bounded_by_bytes() -> None:
    dataset = scattered()

    report = dataset.compact(commit_bytes=1)

    assert [commit.partitions for commit in report.commits] == [("p=a",), ("p=b",)]
    assert dataset.version == 8


def test_large_partition_is_compacted_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_TARGETS_AT_ONCE", 1)
    dataset = make()
    for n in range(9):
        dataset.append([row(100 * n + m) for m in range(100)])
    before = content(dataset)

    report = dataset.compact(target_bytes=3 * dataset.files()[0].size_bytes)

    assert content(dataset) == before
    (done,) = report.partitions if len(report.partitions) == 1 else (None,)
    assert done is None or done.files_after > 1
    assert 2 <= len(dataset.files()) < 9


def random_numbers(dice: np.random.Generator, count: int) -> pa.Table:
    """Rows of about 8 bytes, however they are written."""
    columns = {"p": ["a"] * count, "n": dice.integers(0, 2**62, count), "text": [""] * count}
    return pa.table(columns, schema=SCHEMA)


@pytest.mark.thorough
def test_small_files_that_pieces_leave_are_put_together_in_the_same_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compaction, "_TARGETS_AT_ONCE", 2)
    monkeypatch.setattr(compaction.os, "cpu_count", lambda: 4)
    dice = np.random.default_rng(2)
    dataset = make()
    for _ in range(30):
        dataset.append(random_numbers(dice, 2_000))
    before = content(dataset)

    report = dataset.compact(target_bytes=115_000)

    assert len(report.commits) == 2
    assert content(dataset) == before
    assert dataset.compact(target_bytes=115_000).commits == ()


@pytest.mark.thorough
def test_files_are_not_closed_so_early_that_they_are_small_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compaction.os, "cpu_count", lambda: 4)
    options = compaction.WriteOptions
    monkeypatch.setattr(
        compaction, "WriteOptions", lambda **given: options(memory_bytes=MIB, **given)
    )
    dice = np.random.default_rng(2)
    dataset = make()
    for _ in range(30):
        dataset.append(random_numbers(dice, 5_000))

    dataset.compact(target_bytes=400_000)

    assert dataset.compact(target_bytes=400_000).commits == ()


def test_nested_and_odd_values_stay_what_they_are() -> None:
    schema = pa.schema(
        [
            ("f", pa.float64()),
            ("b", pa.binary()),
            ("d", pa.decimal128(20, 3)),
            ("ts", pa.timestamp("us", tz="UTC")),
            ("many", pa.list_(pa.struct([("x", pa.int32()), ("s", pa.string())]))),
            ("map", pa.map_(pa.string(), pa.list_(pa.float32()))),
        ]
    )
    dataset = make(descriptor=lakebed.DatasetDescriptor(schema=schema))
    values = [
        {"f": float("nan"), "b": b"\x00" * 300, "d": None, "many": []},
        {"f": -0.0, "b": b"", "ts": dt.datetime(1, 1, 1, tzinfo=dt.UTC), "many": None},
        {"f": None, "many": [{"x": 1, "s": None}, None], "map": {"k": [1.5, None], "": None}},
    ]
    for value in values:
        dataset.append([value])

    dataset.compact()

    assert len(dataset.files()) == 1
    kept = [{k: v for k, v in one.items() if k != "f"} for one in dataset.kite.reader()]
    absent = dict.fromkeys(schema.names)
    assert kept == [{k: v for k, v in (absent | one).items() if k != "f"} for one in values]


@pytest.mark.parametrize("format_", ["parquet", "avro", "submissions"])
def test_every_format_is_compacted(format_: str) -> None:
    schema = pa.schema([("uuid", pa.string()), ("document", pa.string()), ("k", pa.int64())])
    descriptor = lakebed.DatasetDescriptor(schema=schema, format=format_)
    dataset = make(descriptor=descriptor)
    for n in range(4):
        dataset.append([{"uuid": f"u{n}", "document": f'{{"k": {n}}}', "k": n}])
    before = content(dataset)

    dataset.compact()

    assert content(dataset) == before
    assert len(dataset.files()) == 1


def test_files_of_older_schemas_are_written_under_the_current_one() -> None:
    dataset = make()
    dataset.append([row(1)])
    wider = SCHEMA.append(pa.field("more", pa.int32()))
    dataset.evolve(replace_schema(wider), base=dataset.version)
    dataset.append([{**row(2), "more": 5}])
    dataset.evolve(replace_schema(wider.set(3, pa.field("more", pa.int64()))), base=dataset.version)
    dataset.append([{**row(3), "more": 2**40}])
    before = content(dataset)

    dataset.compact()

    assert content(dataset) == before
    (file,) = dataset.files()
    assert file.key.rpartition("/")[2].startswith("part-3-")
    assert [content(dataset.at(version=v)).total() for v in (1, 3, 5)] == [1, 2, 3]


def replace_schema(schema: pa.Schema) -> lakebed.DatasetDescriptor:
    return lakebed.DatasetDescriptor(schema=schema, partition_by=[by.identity("p")])


def test_files_of_other_tools_are_compacted_too() -> None:
    dataset = scattered(2)
    store = store_of(dataset)
    head = store.get("d.by-dataset-metadata.json").data.decode()
    label = next(file.key for file in dataset.files() if file.partition == "p=b")
    foreign = label.rpartition("/")[0] + "/foreign.parquet"
    store.put(foreign, store.get(label).data)
    store.put(
        "d.by-dataset-metadata.json",
        head.replace(label.removeprefix("d/data/")[:-8], foreign.removeprefix("d/data/")[:-8])
        .replace(label, foreign)
        .encode(),
    )
    before = content(dataset)

    report = dataset.compact()

    assert report.row_count == 6
    assert content(dataset) == before
    assert len(dataset.files()) == 2


PHASES: dict[str, Callable[[str, str], bool]] = {
    "reserve": lambda operation, key: operation == "create" and "/batches/" in key,
    "stage": lambda operation, key: operation == "put" and "/data/" in key,
    "complete": lambda operation, key: operation == "replace" and "/batches/" in key,
    "facts": lambda operation, key: operation == "put" and "/files/" in key,
    "attempt": is_of_an_attempt,
    "swap": lambda operation, key: operation == "replace" and "by-dataset-metadata" in key,
}


@pytest.mark.thorough
@pytest.mark.parametrize("phase", PHASES)
def test_append_at_any_moment_hinders_nobody(phase: str) -> None:
    dataset = scattered()
    expected = content(dataset) + collections.Counter([str(row(9)), str(row(9, "z"))])
    store = Interfering(
        store_of(dataset), PHASES[phase], lambda: dataset.append([row(9), row(9, "z")])
    )

    report = lakebed.Repository(store).open("d").compact()

    assert store.acted
    assert content(dataset) == expected
    assert len(report.commits) == 1
    assert (report.files_before, report.skipped) == (12, ())


@pytest.mark.thorough
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("operation", ["overwrite", "delete", "rows", "rerun", "compact"])
def test_whoever_takes_files_out_wins_and_the_rest_is_compacted(phase: str, operation: str) -> None:
    dataset = make()
    for n in range(4):
        dataset.append([row(n), row(n, "b")], run="daily")
    acts: dict[str, Callable[[], Any]] = {
        "overwrite": lambda: dataset.overwrite([row(50)]),
        "delete": dataset.where("p = 'a'").delete,
        "rows": dataset.where("p = 'a' AND n = 1").delete,
        "rerun": lambda: dataset.rerun([row(60, "c")], run="daily", replace_all=True),
        "compact": lambda: dataset.compact(dataset.where("p = 'a'")),
    }
    expected = {
        "overwrite": [row(50), *(row(n, "b") for n in range(4))],
        "delete": [row(n, "b") for n in range(4)],
        "rows": [*(row(n) for n in (0, 2, 3)), *(row(n, "b") for n in range(4))],
        "rerun": [row(60, "c")],
        "compact": [row(n, p) for n in range(4) for p in "ab"],
    }
    store = Interfering(store_of(dataset), PHASES[phase], acts[operation])

    report = lakebed.Repository(store).open("d").compact()

    assert store.acted
    assert content(dataset) == collections.Counter(map(str, expected[operation]))
    assert report.skipped == ()
    assert files_in(dataset, "p=b") == (0 if operation == "rerun" else 1)
    known = {key for commit in dataset.history() for key in commit.files_added}
    assert data_keys(store_of(dataset)) == known


@pytest.mark.thorough
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("operation", ["overwrite", "rerun", "view"])
def test_compaction_does_not_keep_others_from_replacing(phase: str, operation: str) -> None:
    dataset = scattered()
    dataset.append([row(1, "r")], run="daily")
    dataset.append([row(2, "r")], run="daily")
    store = Interfering(store_of(dataset), PHASES[phase], dataset.compact)
    other = lakebed.Repository(store).open("d")

    match operation:
        case "overwrite":
            other.overwrite([row(50)])
        case "view":
            other.overwrite([row(50)], other.where("p = 'a'"))
        case "rerun":
            other.rerun([row(3, "r")], run="daily", replace_all=True)

    assert store.acted
    assert len(dataset.where("p = 'a'").arrow()) == (12 if operation == "rerun" else 1)
    assert dataset.where("p = 'r'").count() == (1 if operation == "rerun" else 2)
    assert dataset.where("p = 'b'").count() == 6


def test_overwrite_still_conflicts_with_an_append_that_was_compacted() -> None:
    dataset = scattered()

    def meanwhile() -> None:
        dataset.append([row(77)])
        dataset.compact()

    store = Interfering(store_of(dataset), PHASES["attempt"], meanwhile)

    with pytest.raises(CommitConflictError) as caught:
        lakebed.Repository(store).open("d").overwrite([row(50)])

    assert caught.value.partitions == ("p=a",)
    assert dataset.where("n = 77").count() == 1


def test_partition_that_others_keep_changing_is_skipped_and_said() -> None:
    dataset = scattered(3)

    class Busy(DelegatingStore):
        def _put(self, key: str, data: memoryview) -> None:
            super()._put(key, data)
            if "/data/p=a/" in key and not threading.current_thread().name.startswith("Main"):
                dataset.overwrite([row(1)])
                dataset.append([row(2)])

    report = lakebed.Repository(Busy(store_of(dataset))).open("d").compact()

    assert report.skipped == ("p=a",)
    assert [one.path for one in report.partitions] == ["p=b"]
    assert files_in(dataset, "p=a") == 2
    assert content(dataset.where("p = 'a'")) == collections.Counter([str(row(1)), str(row(2))])


@pytest.mark.parametrize(
    ("change", "told"),
    [("lost", "0 rows instead of 6"), ("changed", "rows with other values")],
)
def test_rows_that_are_not_what_they_were_stop_the_commit(
    monkeypatch: pytest.MonkeyPatch, change: str, told: str
) -> None:
    dataset = scattered()
    store, version = store_of(dataset), dataset.version
    keys, whole = data_keys(store), KernelWriter.write_to

    def altered(self: Any, partition: str, batch: pa.RecordBatch, source: Any = 0) -> None:
        if change == "lost":
            batch = batch.slice(1) if partition == "p=b" else batch
        else:
            texts = pa.array(["other"] * batch.num_rows)
            batch = batch.set_column(2, "text", texts)
        whole(self, partition, batch, source)

    monkeypatch.setattr(KernelWriter, "write_to", altered)
    with pytest.raises(CorruptMetadataError, match=told):
        dataset.compact()

    assert dataset.version == version
    assert data_keys(store) == keys


def test_damaged_file_stops_the_compaction_and_nothing_is_left() -> None:
    dataset = scattered()
    store = store_of(dataset)
    store.put(dataset.files()[3].key, b"no Parquet")
    keys = data_keys(store)

    with pytest.raises(CorruptMetadataError):
        dataset.compact()

    assert data_keys(store) == keys
    assert dataset.version == 6


def test_file_that_was_replaced_by_a_shorter_one_is_noticed() -> None:
    dataset = scattered()
    store = store_of(dataset)
    files = [file for file in dataset.files() if file.partition == "p=a"]
    other = next(file for file in dataset.files() if file.partition == "p=b")
    store.put(files[0].key, store.get(other.key).data)

    with pytest.raises(CorruptMetadataError, match="damaged"):
        dataset.compact()

    assert dataset.version == 6


def calls_of_a_compaction() -> list[tuple[str, int]]:
    return writing_calls(store_of(scattered(3)), lambda lake: lake.open("d").compact())


@pytest.mark.thorough
@pytest.mark.parametrize("landed", [False, True])
def test_on_a_failing_store_it_happens_once_or_not_at_all(
    subtests: pytest.Subtests, landed: bool
) -> None:
    for name, nth in calls_of_a_compaction():
        with subtests.test(call=name, nth=nth):
            compact_on_a_failing_store(name, nth, landed=landed)


def compact_on_a_failing_store(name: Any, nth: int, *, landed: bool) -> None:
    dataset = scattered(3)
    before, store = content(dataset), store_of(dataset)
    lost = StorageError("The answer was lost.", retryable=True)
    failing = FailingStore(store, fail_on=name, nth=nth, landed=landed, error=lost)
    failure: LakebedError | None = None

    try:
        lakebed.Repository(failing).open("d").with_options(commit=QUICK).compact()
    except LakebedError as exc:
        failure = exc

    assert failing.has_failed
    assert content(dataset) == before
    assert dataset.version == (3 if failure else 4)
    assert len(dataset.files()) == (6 if failure else 2)
    known = {key for commit in dataset.history() for key in commit.files_added}
    assert data_keys(store) == known
    assert dataset.compact().skipped == ()
    assert content(dataset) == before


@pytest.mark.thorough
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_call_every_row_is_there_and_it_can_be_done_again(after: bool) -> None:
    outcomes = []
    for nth in itertools.count(1):
        dataset = scattered(3)
        before = content(dataset)
        dying = DyingStore(store_of(dataset), nth=nth, after=after)
        with contextlib.suppress(Killed):
            lakebed.Repository(dying).open("d").compact()
        assert content(dataset) == before
        outcomes.append((dying.died_at, len(dataset.files())))
        dataset.compact()
        assert content(dataset) == before
        assert len(dataset.files()) == 2
        if not dying.died_at:
            break

    counts = [count for _, count in outcomes]
    assert counts == sorted(counts, reverse=True)
    assert set(counts) == {6, 2}
    died_at = {name for name, _ in outcomes}
    assert died_at >= {"_get", "_create", "_put", "_replace"}


@pytest.mark.thorough
def test_reader_sees_all_rows_once_at_every_moment() -> None:
    dataset = scattered(12)
    expected, stop = content(dataset), threading.Event()
    wrong: list[collections.Counter[str]] = []

    def read() -> None:
        reader = lakebed.Repository(store_of(dataset)).open("d")
        while not stop.is_set():
            found = content(reader)
            if found != expected:
                wrong.append(found)

    thread = threading.Thread(target=read)
    thread.start()
    for size in (2_000, 5_000, 20_000, 10**6):
        dataset.compact(target_bytes=size, commit_bytes=2_000)
    stop.set()
    thread.join()

    assert wrong == []
    assert len(dataset.files()) < 24


@pytest.mark.thorough
def test_appends_and_compactions_do_not_starve_each_other() -> None:
    dataset = scattered(4)
    before = content(dataset).total()
    versions = []

    def compact() -> None:
        other = lakebed.Repository(store_of(dataset)).open("d")
        for _ in range(4):
            versions.extend(commit.version for commit in other.compact().commits)

    thread = threading.Thread(target=compact)
    thread.start()
    appended = 0
    while thread.is_alive():
        dataset.append([row(appended), row(appended, "b")])
        appended += 1
    thread.join()

    assert versions
    assert content(dataset).total() == before + 2 * appended


def test_protected_and_older_versions_outlive_the_cleanup_after_it() -> None:
    dataset = scattered()
    before = dataset.arrow()
    dataset.protections.add(version=3, reason="audit")
    early = content(dataset.at(version=3))
    dataset.compact()

    dataset.cleanup("0s", dry_run=False, clock_skew=dt.timedelta())

    assert content(dataset.at(version=3)) == early
    assert sorted(map(str, dataset.arrow().to_pylist())) == sorted(map(str, before.to_pylist()))
    assert dataset.check().findings == ()


def test_rollback_brings_the_old_files_back() -> None:
    dataset = scattered()
    before = {file.key for file in dataset.files()}
    dataset.compact()

    dataset.rollback(version=6)

    assert {file.key for file in dataset.files()} == before


def test_rerun_replaces_what_was_compacted() -> None:
    dataset = make()
    for n in range(4):
        dataset.append([row(n), row(n, "b")], run="daily")
        dataset.append([row(10 + n)])
    dataset.compact()

    dataset.rerun([row(99)], run="daily", replace_all=True)

    assert content(dataset) == collections.Counter(
        map(str, [row(99), *(row(10 + n) for n in range(4))])
    )


def test_index_knows_the_new_files() -> None:
    dataset = make(
        descriptor=lakebed.DatasetDescriptor(
            schema=SCHEMA, partition_by=[by.identity("p")], index=["n"]
        )
    )
    for n in range(5):
        dataset.append([row(n), row(n + 10), row(n, "b")])

    dataset.compact(dataset.where("p = 'a'"))
    merged = {one.name for one in dataset.compact(metadata=True)}

    view = dataset.where("n = 3")
    assert sorted(one["p"] for one in view.kite.reader()) == ["a", "b"]
    assert len(view.plan().files) == 2
    assert merged >= {"leaves" if ON_TREES else "files", "index of n"}
    assert dataset.check().findings == ()


@pytest.mark.thorough
def test_memory_of_a_writer_bounds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = make()
    for n in range(4):
        numbers = range(n * 5000, n * 5000 + 5000)
        dataset.append(pa.table({"p": ["a"] * 5000, "n": numbers, "text": ["x" * 50] * 5000}))
    before = content(dataset)
    options = compaction.WriteOptions
    monkeypatch.setattr(
        compaction, "WriteOptions", lambda **given: options(memory_bytes=200_000, **given)
    )

    dataset.compact(sort_by="text", target_bytes=100_000)

    assert content(dataset) == before


@pytest.mark.spark
def test_spark_does_the_same(spark: Any, tmp_path: Path) -> None:
    dataset = make(PosixStore(tmp_path / "lake", durable=False))
    for n in range(6):
        dataset.append([row(n), row(n, "b"), row(n + 100)], run=RUNS[n % 3])
    before = (content(dataset), by_partition(dataset), by_run(dataset))

    report = dataset.compact(spark=spark, sort_by="n")

    assert (content(dataset), by_partition(dataset), by_run(dataset)) == before
    assert (report.files_before, report.files_after, len(dataset.files())) == (12, 6, 6)
    assert dataset.compact(spark=spark).commits == ()


@pytest.mark.spark
def test_spark_task_that_meets_a_damaged_file_stops_it_and_nothing_is_left(
    spark: Any, tmp_path: Path
) -> None:
    dataset = scattered(3, store=PosixStore(tmp_path / "lake", durable=False))
    store = store_of(dataset)
    store.put(dataset.files()[0].key, b"no Parquet")
    keys = data_keys(store)

    with pytest.raises(CorruptMetadataError):
        dataset.compact(spark=spark)

    assert data_keys(store) == keys
    assert dataset.version == 3


class TestMetadata:
    def test_lists_become_one_object_and_everything_reads_as_before(self) -> None:
        dataset = scattered(6)
        rows = [content(dataset.at(version=v)) for v in range(7)]
        facts = dataset.files()

        merged = {one.name: one for one in dataset.compact(metadata=True)}

        assert set(merged) == {"files", "history"}
        assert merged["files"].segments_after == 1
        assert [content(dataset.at(version=v)) for v in range(7)] == rows
        assert dataset.files() == facts
        assert [commit.version for commit in dataset.history()] == list(range(8))
        assert dataset.compact(metadata=True) == ()
        assert dataset.version == 7
        assert dataset.check().findings == ()

    def test_dry_run_writes_nothing(self) -> None:
        dataset = scattered(6)
        keys = {info.key for info in store_of(dataset).list("")}

        assert len(dataset.compact(metadata=True, dry_run=True)) == 2

        assert {info.key for info in store_of(dataset).list("")} == keys

    def test_facts_of_files_that_were_cleaned_up_go(self) -> None:
        dataset = scattered(6)
        dataset.compact()
        dataset.cleanup("0s", dry_run=False, clock_skew=dt.timedelta())

        dataset.compact(metadata=True)

        state = read_head(store_of(dataset), "d").state
        assert sum(segment.weight for segment in state.lists.files) == len(state.labels) == 2

    def test_facts_of_versions_that_can_be_read_stay(self) -> None:
        dataset = scattered(4)
        dataset.overwrite([row(1)])

        (merged, *_) = dataset.compact(metadata=True)

        assert merged.dropped_count == 0
        assert dataset.at(version=4).files()[0].row_count == 2

    def test_commits_meanwhile_are_kept(self) -> None:
        dataset = scattered(6)
        store = Interfering(store_of(dataset), PHASES["swap"], lambda: dataset.append([row(9)]))

        lakebed.Repository(store).open("d").compact(metadata=True)

        assert store.acted
        assert dataset.where("n = 9").count() == 1
        versions = [commit.version for commit in dataset.history()]
        assert versions == list(range(dataset.version + 1))
        assert all(file.row_count is not None for file in dataset.files())

    def test_head_that_becomes_a_tree_meanwhile_is_folded(self) -> None:
        dataset = scattered(6)
        inner = store_of(dataset)
        store = HaltingStore(inner, "replace", "by-dataset-metadata")

        def meanwhile() -> None:
            dataset.compact(head="tree")

        store.then = meanwhile
        before = dataset.count()
        merged = lakebed.Repository(store).open("d").compact(metadata=True)

        assert [one.name for one in merged] == ["leaves"]
        assert read_head(inner, "d").state.is_tree
        assert dataset.count() == before

    def test_what_the_commit_has_named_stays_and_is_told_though_others_merge_it_at_once(
        self,
    ) -> None:
        dataset = scattered(6)
        inner = store_of(dataset)
        store = HaltingStore(inner, "replace", "by-dataset-metadata", after=True)
        seen = []

        def meanwhile() -> None:
            seen.append(read_head(inner, "d").state)
            for n in range(9):
                dataset.append([row(n)])

        store.then = meanwhile
        merged = {one.name for one in lakebed.Repository(store).open("d").compact(metadata=True)}

        (state,) = seen
        assert merged == {"files", "history"}
        assert [len(state.lists.files), len(state.lists.history)] == [1, 2]
        now = read_head(inner, "d").state
        assert not {one.key for one in state.lists.files} & {one.key for one in now.lists.files}
        assert {one.key for one in state.lists.files} <= {one.key for one in inner.list("d/files")}
        assert [one.version for one in history.read(inner, state.lists.history)] == list(range(8))

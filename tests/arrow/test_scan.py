"""The local reader: planned files as record batches, whoever wrote them."""

import datetime as dt
import math
import time
import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from strategies import predicates

import lakebed
from lakebed import DatasetDescriptor, Repository, WriteOptions
from lakebed.arrow import scan
from lakebed.dataset import Dataset
from lakebed.errors import (
    AccessDeniedError,
    CorruptMetadataError,
    DamagedFileError,
    SchemaMismatchError,
    StorageError,
)
from lakebed.model.evaluate import matches
from lakebed.model.predicate import (
    Predicate,
)
from lakebed.plan.plan import Share
from lakebed.store import open_store
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.store.posix import PosixStore
from lakebed.testing import CountingStore, FailingStore

MIB = 2**20
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64())])


def create(schema: pa.Schema = SCHEMA, partition_by: str = "", store=None) -> Dataset:
    repository = Repository(store or MemoryStore(uuid.uuid4().hex))
    return repository.create("d", DatasetDescriptor(schema=schema, partition_by=partition_by or ()))


def replace_file(dataset: Dataset, content: pa.Table | bytes) -> None:
    """Put other content under the key of the only data file, as another tool might."""
    (file,) = dataset.files()
    if isinstance(content, pa.Table):
        sink = pa.BufferOutputStream()
        pq.write_table(content, sink)
        content = sink.getvalue().to_pybytes()
    store_of(dataset).put(file.key, content)


def store_of(dataset: Dataset) -> Store:
    return open_store(dataset.uri.removesuffix("/d"))


# Which rows

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.none()
            | st.sampled_from(
                [
                    dt.datetime(2013, m, d, h, tzinfo=dt.UTC)
                    for m in (1, 2)
                    for d in (1, 2)
                    for h in (0, 5)
                ]
            ),
            "k": st.none() | st.sampled_from(["", "a", "b/c", ".."]),
            "n": st.none() | st.integers(0, 4),
            "x": st.none() | st.sampled_from([-0.0, 0.0, 1.5, math.inf, math.nan]),
        }
    ),
    max_size=25,
)
COLUMNS = {
    "t": [dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC), dt.datetime(2013, 2, 1, tzinfo=dt.UTC)],
    "k": ["", "a", "z"],
    "n": [0, 1, 2, 9],
    "x": [-math.inf, 0.0, -0.0, 1.5, math.inf, math.nan],
}
STRATEGIES = [
    "",
    "k",
    "hash(n, 2)",
    "date(t) as dt, k",
    "year(t), month(t), day(t), hour(t)",
    "x, identity(k) as key",
    "month(t), hash(k, 3), n",
]


PREDICATES = predicates(COLUMNS, max_leaves=5)


@pytest.mark.filterwarnings("ignore:Partitions of .* repeat:lakebed.errors.LakebedWarning")
@examples(2)
@given(ROWS, ROWS, st.sampled_from(STRATEGIES), PREDICATES, st.sampled_from([1, 2**20]))
def test_view_holds_the_rows_that_its_predicate_selects(
    first: list[dict], second: list[dict], partition_by: str, predicate: Predicate, group: int
) -> None:
    schema = pa.schema([("t", pa.timestamp("us", tz="UTC")), *SCHEMA, ("row", pa.int64())])
    dataset = create(schema, partition_by)
    rows = [row | {"row": number} for number, row in enumerate([*first, *second])]
    options = WriteOptions(row_group_bytes=group)
    dataset.with_options(write=options).append(rows[: len(first)])
    dataset.with_options(write=options).append(rows[len(first) :])

    view = dataset.where(predicate)

    expected = {row["row"]: row for row in rows if matches(predicate, row)}
    found = {row["row"]: row for row in view.arrow().to_pylist()}
    assert {number: shown(row) for number, row in found.items()} == {
        number: shown(row) for number, row in expected.items()
    }
    assert view.count() == view.arrow(columns=["k"]).num_rows == len(expected)
    assert sorted(view.arrow(columns=["row"])["row"].to_pylist()) == sorted(expected)
    for columns in (["row"], None):
        assert frugal(view, columns)["row"].to_pylist() == view.arrow(columns)["row"].to_pylist()


def frugal(view, columns: list[str] | None = None) -> pa.Table:
    plan = view.plan()
    return scan.scan(plan.store, plan, columns, is_frugal=True).read_all()


def test_a_stream_reads_little_ahead_of_its_consumer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "STREAM_BYTES", 4 * MIB)
    descriptor = DatasetDescriptor(
        schema=pa.schema([("x", pa.float64())]), compression="uncompressed"
    )
    dataset = lakebed.open_repository(tmp_path).create("d", descriptor)
    for number in range(12):
        dataset.append(pa.table({"x": np.random.default_rng(number).random(4 * MIB // 8)}))

    peaks = []
    for of_plan in (dataset.plan(), replace(dataset.plan(), limit=10**9)):
        before = peak = pa.total_allocated_bytes()
        with of_plan.record_batches() as batches:
            row_count = batches.read_next_batch().num_rows
            for _ in range(20):  # a consumer that takes its time
                time.sleep(0.02)
                peak = max(peak, pa.total_allocated_bytes())
            row_count += sum(batch.num_rows for batch in batches)
        assert row_count == 12 * 4 * MIB // 8
        peaks.append(peak - before)
    # The batch of the consumer, and the content and the rows of two files; all would be 48 MiB.
    assert max(peaks) < 24 * MIB


def shown(row: dict) -> dict:
    return {name: str(value) for name, value in row.items()}


@pytest.mark.parametrize(
    "text", ["x != 5", "x NOT IN (5)", "x > 6", "x >= 6", "x = 'nan'", "x > 6 OR n = 9"]
)
def test_nan_beside_equal_numbers_is_not_lost(text: str) -> None:
    dataset = create()
    dataset.append([{"k": "a", "n": 1, "x": 5.0}, {"k": "a", "n": 2, "x": math.nan}])

    view = dataset.where(text)

    assert view.arrow()["n"].to_pylist() == [2]
    assert view.arrow(columns=["k"]).to_pylist() == [{"k": "a"}]
    assert view.count() == 1


@pytest.mark.parametrize(
    "text", ["x = 5", "x < 6", "x IN (5)", "x <= 5", "NOT x != 5", "x BETWEEN 4 AND 6"]
)
def test_nan_beside_equal_numbers_is_not_counted_as_one_of_them(text: str) -> None:
    dataset = create()
    dataset.append([{"k": "a", "n": 1, "x": 5.0}, {"k": "a", "n": 2, "x": math.nan}])

    view = dataset.where(text)

    assert view.arrow()["n"].to_pylist() == [1]
    assert view.count() == view.arrow(columns=["k"]).num_rows == 1


@pytest.mark.parametrize("zero", ["0.0", "-0.0", "0"])
@pytest.mark.parametrize("partition_by", ["", "x", "hash(x, 7)"])
def test_both_zeros_are_one_number(zero: str, partition_by: str) -> None:
    dataset = create(partition_by=partition_by)
    dataset.append([{"k": "a", "n": 1, "x": 0.0}, {"k": "a", "n": 2, "x": -0.0}])

    for text in (
        f"x = {zero}",
        f"x IN ({zero})",
        f"x >= {zero}",
        f"x NOT IN (1, 2) AND x <= {zero}",
    ):
        assert sorted(dataset.where(text).arrow()["n"].to_pylist()) == [1, 2]


def test_condition_on_path_or_payload_selects_both() -> None:
    dataset = create(partition_by="k")
    dataset.append([{"k": k, "n": n, "x": None} for k in ("a", "b") for n in (1, 2)])

    rows = dataset.where("k = 'a' OR n = 2").arrow(columns=["k", "n"]).to_pylist()

    assert sorted((row["k"], row["n"]) for row in rows) == [("a", 1), ("a", 2), ("b", 2)]


# Which columns


def test_columns_come_as_asked_partition_fields_and_batch_id_among_them() -> None:
    dataset = create(partition_by="k, hash(n, 1)")
    commit = dataset.append([{"k": "a", "n": 1, "x": 1.5}])

    found = dataset.arrow(columns=["batch_id", "x", "n_hash", "k"])

    assert found.to_pylist() == [{"batch_id": commit.batch_id, "x": 1.5, "n_hash": 0, "k": "a"}]
    assert found.schema == pa.schema(
        [("batch_id", pa.int64()), ("x", pa.float64()), ("n_hash", pa.int32()), ("k", pa.string())]
    )


def test_without_columns_rows_have_the_fields_of_the_schema_in_its_order() -> None:
    dataset = create(partition_by="n")
    dataset.append([{"k": "a", "n": 1, "x": 1.5}])

    assert dataset.arrow().column_names == ["k", "n", "x"]


@pytest.mark.parametrize(
    ("columns", "message"), [([], "names no column"), (["n", "k", "n"], "names 'n' 2 times")]
)
def test_columns_are_some_and_each_is_named_once(columns: list[str], message: str) -> None:
    dataset = create(partition_by="n")
    dataset.append([{"k": "a", "n": 1, "x": 1.5}])

    with pytest.raises(SchemaMismatchError, match=f"argument columns {message}"):
        dataset.arrow(columns=columns)


def test_empty_view_has_its_columns() -> None:
    dataset = create(partition_by="n")

    assert dataset.arrow(columns=["n", "k"]).schema.names == ["n", "k"]
    assert dataset.where("n = 5").count() == 0


def test_filter_column_need_not_be_asked_for() -> None:
    dataset = create()
    dataset.append([{"k": "a", "n": n, "x": float(n)} for n in range(5)])

    assert dataset.where("n > 2").arrow(columns=["x"])["x"].to_pylist() == [3.0, 4.0]


def test_unknown_column_names_the_nearest() -> None:
    dataset = create(partition_by="k, hash(n, 3)")

    with pytest.raises(SchemaMismatchError, match=r"Unknown column 'kk'\. Did you mean 'k'"):
        dataset.arrow(columns=["kk"])


# Files of other tools


def test_narrower_types_in_a_file_are_widened() -> None:
    dataset = create()
    dataset.append([{"k": "a", "n": 1, "x": 1.0}])
    replace_file(
        dataset,
        pa.table(
            {
                "k": pa.array(["b", None]).dictionary_encode(),
                "n": pa.array([7, 8], pa.int32()),
                "x": pa.array([0.5, None], pa.float32()),
            }
        ),
    )

    assert dataset.arrow().to_pylist() == [
        {"k": "b", "n": 7, "x": 0.5},
        {"k": None, "n": 8, "x": None},
    ]
    assert dataset.where("n > 7").count() == 1


def test_columns_that_the_schema_lacks_are_not_looked_at() -> None:
    dataset = create()
    dataset.append([{"k": "a", "n": 1, "x": 1.0}])
    missing = pa.array([None], pa.int64())
    replace_file(dataset, pa.table({"other": [[1]], "x": [0.5], "k": ["b"], "n": missing}))

    assert dataset.arrow().to_pylist() == [{"k": "b", "n": None, "x": 0.5}]
    assert dataset.where("n IS NULL").count() == 1
    assert dataset.where("n = 1").count() == 0


def test_path_speaks_louder_than_a_column_of_the_file() -> None:
    dataset = create(partition_by="k")
    dataset.append([{"k": "a", "n": 1, "x": 1.0}])
    replace_file(dataset, pa.table({"k": ["wrong"], "n": [5], "x": [0.5]}))

    assert dataset.arrow().to_pylist() == [{"k": "a", "n": 5, "x": 0.5}]
    assert dataset.where("k = 'a' AND n = 5").count() == 1
    assert dataset.where("k = 'wrong'").count() == 0


@pytest.mark.parametrize(
    "column",
    [pa.array(["text"]), pa.array([[1]]), pa.array([dt.date(2013, 1, 1)])],
)
def test_column_of_another_type_in_a_file_is_corrupt(column: pa.Array) -> None:
    dataset = create()
    dataset.append([{"k": "a", "n": 1, "x": 1.0}])
    replace_file(dataset, pa.table({"n": column}))

    with pytest.raises(CorruptMetadataError, match="'d'"):
        dataset.arrow(columns=["n"])


def count_some(dataset: Dataset) -> int:
    """Count rows that no file facts tell of: those of all files are counted without opening one."""
    return dataset.where("n > 0").count()


def read_all(dataset: Dataset) -> list[dict]:
    return list(dataset.kite.reader())


READS = [Dataset.arrow, count_some, read_all]


@pytest.mark.parametrize("content", [b"", b"x", b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1"])
@pytest.mark.parametrize("read", READS)
def test_file_that_is_no_parquet_is_corrupt(content: bytes, read) -> None:
    dataset = create()
    dataset.append([{"k": "a", "n": 1, "x": 1.0}])
    replace_file(dataset, content)

    with pytest.raises(CorruptMetadataError, match="damaged"):
        read(dataset)


def test_file_with_a_damaged_page_is_corrupt() -> None:
    dataset = create()
    dataset.append([{"k": f"value {n}", "n": n, "x": n / 7} for n in range(5000)])
    (file,) = dataset.files()
    data = bytearray(store_of(dataset).get(file.key).data)
    data[100 : len(data) // 2] = b"\xff" * (len(data) // 2 - 100)
    replace_file(dataset, bytes(data))

    for read in (Dataset.arrow, frugal):
        with pytest.raises(CorruptMetadataError, match="damaged"):
            read(dataset)


@pytest.mark.parametrize("kind", ["memory", "posix"])
@pytest.mark.parametrize("read", READS)
def test_file_that_is_gone_is_corrupt(kind: str, read, tmp_path) -> None:
    store = PosixStore(tmp_path) if kind == "posix" else MemoryStore(uuid.uuid4().hex)
    dataset = create(store=store)
    dataset.append([{"k": "a", "n": 1, "x": 1.0}])
    (file,) = dataset.files()
    store.delete([file.key])

    with pytest.raises(CorruptMetadataError, match="missing"):
        read(dataset)


@pytest.mark.parametrize(
    "error", [StorageError("The store broke.", retryable=True), AccessDeniedError("Not yours.")]
)
def test_error_of_the_store_arrives_as_it_is(error: StorageError) -> None:
    inner = MemoryStore(uuid.uuid4().hex)
    dataset = create(store=inner)
    dataset.append([{"k": "a", "n": 1, "x": 1.0}])
    failing = FailingStore(inner, fail_on="get_range", error=error)

    with pytest.raises(type(error), match=error.message):
        Repository(failing).open("d").arrow()


# How much is read


def test_one_row_group_of_many_is_read() -> None:
    store = CountingStore(MemoryStore(uuid.uuid4().hex))
    dataset = create(store=store)
    count = 200_000
    random = np.random.default_rng(0)
    table = pa.table(
        {"k": ["a"] * count, "n": range(count), "x": random.random(count)},
        schema=SCHEMA,
    )
    dataset.with_options(write=WriteOptions(row_group_bytes=table.nbytes // 20)).append(table)
    (file,) = dataset.files()
    store.reset()

    found = dataset.where("n = 123456").arrow()

    assert found["n"].to_pylist() == [123456]
    assert store.reset().bytes_read < file.size_bytes / 5


@pytest.mark.parametrize("where", ["n >= 0", "n >= 0 AND x < 2"])
def test_frugal_read_holds_little_more_than_what_was_taken(where: str, tmp_path) -> None:
    dataset = create(store=PosixStore(tmp_path))
    count = 400_000
    for _ in range(4):
        rows = pa.table(
            {"k": ["a"] * count, "n": range(count), "x": np.random.default_rng(0).random(count)}
        )
        dataset.with_options(write=WriteOptions(row_group_bytes=rows.nbytes // 8)).append(rows)
    plan = dataset.where(where).plan()
    size_bytes = rows.nbytes
    del rows
    before = pa.total_allocated_bytes()

    with scan.scan(plan.store, plan, is_frugal=True) as batches:
        batches.read_next_batch()
        time.sleep(0.5)  # for threads that would read ahead
        held = pa.total_allocated_bytes() - before

    assert held < size_bytes  # of four such files


def test_counting_reads_footers_alone() -> None:
    store = CountingStore(MemoryStore(uuid.uuid4().hex))
    dataset = create(store=store, partition_by="k")
    count = 100_000
    rows = pa.table(
        {"k": ["a"] * count, "n": range(count), "x": np.random.default_rng(0).random(count)}
    )
    dataset.append(rows)
    (file,) = dataset.files()
    store.reset()

    assert dataset.where("k = 'a'").count() == count

    assert store.reset().bytes_read < file.size_bytes / 5


def test_column_that_is_not_asked_for_is_not_read() -> None:
    store = CountingStore(MemoryStore(uuid.uuid4().hex))
    dataset = create(store=store)
    count = 100_000
    rows = pa.table(
        {"k": ["a"] * count, "n": [1] * count, "x": np.random.default_rng(0).random(count)}
    )
    dataset.append(rows)
    (file,) = dataset.files()
    store.reset()

    dataset.arrow(columns=["n"])

    assert store.reset().bytes_read < file.size_bytes / 3


def test_planned_files_alone_are_read_and_nothing_is_listed() -> None:
    store = CountingStore(MemoryStore(uuid.uuid4().hex))
    dataset = create(store=store, partition_by="k")
    dataset.append([{"k": f"part {n}", "n": n, "x": 1.0} for n in range(50)])
    store.reset()

    assert dataset.where("k = 'part 7'").arrow()["n"].to_pylist() == [7]

    counts = store.reset()
    assert counts.list == 0
    assert counts.total <= 6


def test_files_come_in_the_order_of_the_plan() -> None:
    dataset = create(partition_by="k")
    for number in range(5):
        dataset.append([{"k": "ab"[number % 2], "n": number, "x": None}])

    assert dataset.arrow()["n"].to_pylist() == [0, 1, 2, 3, 4]


# Parts of files


@pytest.mark.parametrize("predicate", [None, "n < 400", "n < 400 AND k = 'a'", "x > 1"])
@pytest.mark.parametrize("columns", [["n"], ["n", "k"], ["batch_id"]])
@pytest.mark.parametrize("count", [2, 3, 50])
def test_parts_of_a_file_hold_each_of_its_rows_once(predicate, columns, count) -> None:
    dataset = create()
    rows = [{"k": "ab"[n % 2], "n": n, "x": n / 7} for n in range(1000)]
    dataset.with_options(write=WriteOptions(row_group_bytes=2_000)).append(rows)
    view = dataset.where(predicate) if predicate else dataset
    plan, store = view.plan(), store_of(dataset)
    (file,) = plan.files
    parts = [
        replace(plan, files=(replace(file, share=Share(number, count)),)) for number in range(count)
    ]

    read = [scan.scan(store, part, columns).read_all() for part in parts]

    assert pa.concat_tables(read).sort_by(columns[0]) == view.arrow(columns).sort_by(columns[0])
    assert [scan.count(store, part) for part in parts] == [table.num_rows for table in read]
    assert predicate or max(table.num_rows for table in read) < 1000


def test_damaged_file_is_named_also_where_a_part_of_it_is_read() -> None:
    dataset = create()
    dataset.append([{"k": "a", "n": 1, "x": 1.0}])
    plan, store = dataset.plan(), store_of(dataset)
    replace_file(dataset, b"no parquet at all")
    part = replace(plan, files=(replace(plan.files[0], share=Share(0, 2)),))

    with pytest.raises(DamagedFileError, match=plan.files[0].key):
        scan.scan(store, part).read_all()

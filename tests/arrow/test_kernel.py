"""The write kernel: files by partition, near the target size, with exact facts."""

import datetime as dt
import decimal
import hashlib
import math
import time
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.arrow.kernel import BatchTarget, KernelWriter, WriteOptions, write_batches
from lakebed.errors import (
    InvalidInputError,
    PartitionSpecError,
    SchemaMismatchError,
    StorageError,
)
from lakebed.model.descriptor import COMPRESSIONS, DatasetDescriptor
from lakebed.model.keys import encode_path, partition_of, split_label
from lakebed.state.facts import MAX_BOUND_LENGTH, lower_bound, upper_bound
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import FailingStore

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("k", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
    ]
)
BATCH = 1449784608123


@pytest.fixture
def store() -> Store:
    return new_store()


def new_store() -> Store:
    return MemoryStore(uuid.uuid4().hex)


def target_of(descriptor: DatasetDescriptor, **options: int) -> BatchTarget:
    return BatchTarget(
        dataset="flights", batch_id=BATCH, descriptor=descriptor, options=WriteOptions(**options)
    )


def write(store: Store, batches, partition_by="", schema=SCHEMA, **options) -> list[dict]:
    descriptor = DatasetDescriptor(schema=schema, partition_by=partition_by or ())
    return write_batches(store, target_of(descriptor, **options), batches).facts.to_pylist()


def read(store: Store, label: str) -> pa.Table:
    return pq.read_table(pa.BufferReader(store.get(f"flights/data/{label}.parquet").data))


def keys(store: Store) -> list[str]:
    return [info.key for info in store.list("")]


def numbers(count: int, **columns: object) -> pa.RecordBatch:
    rows = {"ts": pa.nulls(count, SCHEMA[0].type), "k": ["a"] * count, "n": range(count)}
    rows["x"] = np.random.default_rng(0).random(count)
    return pa.RecordBatch.from_pydict(rows | columns, schema=SCHEMA)


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "ts": st.none() | st.datetimes(timezones=st.just(dt.UTC)),
            "k": st.none() | st.sampled_from(["", "a", "a/b", "é", "%2F", ".."]),
            "n": st.none() | st.integers(-3, 3),
            "x": st.none() | st.sampled_from([math.nan, -0.0, 0.0, 1.5]),
        }
    ),
    max_size=30,
)
STRATEGIES = [
    "",
    "k",
    "hash(n, 2)",
    "date(ts) as dt, k",
    "x",
    "k, hash(k, 3), year(ts), identity(n) as m",
]


@given(ROWS, st.sampled_from(STRATEGIES), st.integers(1, 7))
def test_files_of_a_partition_hold_its_rows_in_order(rows, partition_by: str, size: int) -> None:
    store = new_store()
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=partition_by or ())
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    expected: dict[str, list[str]] = {}
    for row in rows:
        values = descriptor.partition_by.values(row, descriptor.schema)
        stored = {name: row[name] for name in descriptor.stored_schema.names}
        expected.setdefault(encode_path(values), []).append(shown(stored))

    facts = write(store, table.to_batches(max_chunksize=size), partition_by)

    found = {
        partition_of(split_label(one["label"])[0]): [
            shown(row) for row in read(store, one["label"]).to_pylist()
        ]
        for one in facts
    }
    assert len(found) == len(facts)
    assert found == expected


def shown(row: dict) -> str:
    """A text that tells -0.0 from 0.0 and NaN from null, whatever the name of the time zone."""
    return str({name: str(value) for name, value in row.items()})


def test_label_is_plain_hive_with_the_batch_last(store: Store) -> None:
    (facts,) = write(store, [numbers(3)], "k, hash(n, 1)")

    directory, name = split_label(facts["label"])
    assert directory == f"k=a/n_hash=0/batch_id={BATCH}"
    assert name.startswith("part-")
    assert keys(store) == [f"flights/data/{facts['label']}.parquet"]


def test_field_in_the_path_is_not_in_the_file(store: Store) -> None:
    (facts,) = write(store, [numbers(1)], "k, identity(n) as copy, hash(ts, 3)")

    assert read(store, facts["label"]).column_names == ["ts", "n", "x"]


@pytest.mark.thorough
def test_many_partitions_of_one_large_batch(store: Store) -> None:
    batch = numbers(20_000, n=[i % 300 for i in range(20_000)])

    facts = write(store, [batch], "identity(n) as part")

    assert len(facts) == 300
    assert sum(one["row_count"] for one in facts) == 20_000


def test_no_rows_make_no_file(store: Store) -> None:
    assert write(store, []) == []
    assert write(store, [numbers(0)], "k") == []
    assert keys(store) == []


@pytest.mark.thorough
@pytest.mark.parametrize("chunk", [500, 200_000])
def test_files_are_near_the_target_size(store: Store, chunk: int) -> None:
    table = pa.Table.from_batches([numbers(200_000)])
    target = 200_000

    facts = write(
        store, table.to_batches(max_chunksize=chunk), target_bytes=target, row_group_bytes=20_000
    )

    sizes = [one["size_bytes"] for one in facts]
    assert len(sizes) > 5
    assert all(0.8 * target < size < 1.3 * target for size in sizes[:-1])
    assert sum(one["row_count"] for one in facts) == 200_000


def test_row_groups_have_the_size_asked_for(store: Store) -> None:
    (facts,) = write(store, [numbers(100_000)], row_group_bytes=400_000)

    footer = pq.read_metadata(pa.BufferReader(store.get(keys(store)[0]).data))
    bytes_a_row = numbers(100_000).nbytes / 100_000
    assert facts["row_count"] == footer.num_rows == 100_000
    assert footer.num_row_groups > 5
    for position in range(footer.num_row_groups):
        assert footer.row_group(position).num_rows * bytes_a_row < 1.2 * 400_000


def test_memory_bound_closes_the_largest_file_early(store: Store) -> None:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by="k")
    options = {"memory_bytes": 50_000, "row_group_bytes": 20_000}
    writer = KernelWriter(store, target_of(descriptor, **options))
    writer.write(numbers(10, k=["small"] * 10))

    for _ in range(20):
        writer.write(numbers(5_000, k=["large"] * 5_000))
    facts = writer.finish().facts.to_pylist()

    sizes = {}
    for one in facts:
        sizes.setdefault(one["label"].split("/")[0], []).append(one["row_count"])
    assert sizes["k=small"] == [10]
    assert sum(sizes["k=large"]) == 100_000
    assert len(sizes["k=large"]) > 10


@pytest.mark.thorough
def test_many_partitions_beyond_the_memory_make_one_file_each(store: Store) -> None:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by="identity(n) as part")
    bound = 400_000
    writer = KernelWriter(store, target_of(descriptor, memory_bytes=bound))
    rng = np.random.default_rng(0)
    expected: dict[int, list[float]] = {}
    before, held = pa.total_allocated_bytes(), []
    for _ in range(40):
        batch = numbers(1_000, n=rng.integers(0, 500, 1_000), x=rng.random(1_000))
        for row in batch.select(["n", "x"]).to_pylist():
            expected.setdefault(row["n"], []).append(row["x"])

        writer.write(batch)
        held.append(pa.total_allocated_bytes() - before)

    facts = writer.finish().facts.to_pylist()
    assert 40 * numbers(1_000).nbytes > 2 * bound
    assert max(held) < bound
    assert len(facts) == 500
    for one in facts:
        table = read(store, one["label"])
        assert table["x"].to_pylist() == expected[table["n"][0].as_py()]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks Linux which files are open")
def test_rows_that_find_no_room_to_wait_leave_none_taken_while_their_error_is_held(
    store: Store,
) -> None:
    import resource

    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by="identity(n) as part")
    rng = np.random.default_rng(0)
    rows = numbers(10_000, n=rng.integers(0, 500, 10_000), x=rng.random(10_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = deleted_files_that_are_open()

    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        with pytest.raises(StorageError, match="Cannot hold waiting rows") as caught:
            write_batches(store, target_of(descriptor, memory_bytes=200_000), [rows])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert caught.value.__traceback__ is not None
    assert deleted_files_that_are_open() == before
    assert not keys(store)


def deleted_files_that_are_open() -> int:
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(str(link.readlink()).endswith("(deleted)") for link in links)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("format_", "partition_by", "row_count"),
    [("parquet", (), 1_000_000), ("parquet", "hash(n, 2)", 1_000_000), ("avro", (), 300_000)],
)
def test_behaviour_9_files_from_2_mib_on_are_within_a_tenth_of_the_target(
    store: Store, format_: str, partition_by: str, row_count: int
) -> None:
    target = 2 * 2**20
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=partition_by, format=format_)
    starts = range(0, row_count, 50_000)
    rows = [numbers(50_000, n=range(start, start + 50_000)) for start in starts]

    facts = write_batches(store, target_of(descriptor, target_bytes=target), rows).facts.to_pylist()

    sizes: dict[str, list[int]] = {}
    for one in facts:
        sizes.setdefault(partition_of(split_label(one["label"])[0]), []).append(one["size_bytes"])
    for full in (sorted(of_partition)[1:] for of_partition in sizes.values()):
        assert full
        assert all(0.9 * target < size < 1.1 * target for size in full)
    assert sum(one["row_count"] for one in facts) == row_count


def test_behaviour_13_ten_users_over_two_hashes_lie_in_six_partitions(store: Store) -> None:
    schema = pa.schema([("username", pa.string()), ("email", pa.string())])
    users = [{"username": f"test-{i}", "email": f"email-{i}"} for i in range(10)]

    facts = write(
        store,
        pa.Table.from_pylist(users, schema=schema).to_batches(),
        "hash(username, 2), hash(email, 3)",
        schema=schema,
    )

    assert len({partition_of(split_label(one["label"])[0]) for one in facts}) == 6
    assert sum(one["row_count"] for one in facts) == 10


def test_roll_interval_closes_files_of_a_writer_that_stays_open(store: Store) -> None:
    options = WriteOptions(roll_interval_s=0.01)
    descriptor = DatasetDescriptor(schema=SCHEMA)
    target = BatchTarget(dataset="flights", batch_id=BATCH, descriptor=descriptor, options=options)
    writer = KernelWriter(store, target)

    for _ in range(3):
        writer.write(numbers(5))
        time.sleep(0.02)

    assert len(keys(store)) == 2
    assert [one["row_count"] for one in writer.finish().facts.to_pylist()] == [5, 5, 5]


@pytest.mark.parametrize(
    "options",
    [{"target_bytes": 0}, {"row_group_bytes": -1}, {"memory_bytes": 0}, {"roll_interval_s": 0.0}],
)
def test_sizes_and_times_are_positive(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        WriteOptions(**options)


@pytest.mark.parametrize("compression", COMPRESSIONS["parquet"])
def test_file_is_compressed_as_the_descriptor_says(store: Store, compression: str) -> None:
    descriptor = DatasetDescriptor(schema=SCHEMA, compression=compression)

    write_batches(store, target_of(descriptor), [numbers(100)])

    footer = pq.read_metadata(pa.BufferReader(store.get(keys(store)[0]).data))
    assert footer.row_group(0).column(0).compression.lower() == compression


# Facts

ALL = pa.schema(
    [
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("unsigned", pa.uint64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("bytes", pa.binary()),
        ("date", pa.date32()),
        ("instant", pa.timestamp("us", tz="UTC")),
        ("wall", pa.timestamp("us")),
        ("decimal", pa.decimal128(9, 2)),
    ]
)
VALUES = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "unsigned": st.integers(0, 2**64 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": st.text(st.characters(codec="utf-8"), max_size=2 * MAX_BOUND_LENGTH),
    "bytes": st.binary(max_size=2 * MAX_BOUND_LENGTH),
    "date": st.dates(),
    "instant": st.datetimes(timezones=st.just(dt.UTC)),
    "wall": st.datetimes(),
    "decimal": st.decimals(-9999999, 9999999, places=2),
}


@given(
    st.lists(st.fixed_dictionaries({k: st.none() | v for k, v in VALUES.items()}), max_size=20),
    st.integers(1, 20),
)
def test_facts_are_what_a_count_of_the_rows_gives(rows: list[dict], size: int) -> None:
    table = pa.Table.from_pylist(rows, schema=ALL)

    facts = write(new_store(), table.to_batches(max_chunksize=size), schema=ALL, row_group_bytes=1)

    assert sum(one["row_count"] for one in facts) == len(rows)
    for one in facts:
        for name, found in one["stats"].items():
            values = [row[name] for row in rows if row[name] is not None]
            ordered = [value for value in values if value == value]  # NaN aside
            assert found["null_count"] == len(rows) - len(values)
            check_bound(found["min"], lower_bound(min(ordered, default=None)), ordered)
            check_bound(found["max"], upper_bound(max(ordered, default=None)), ordered)


def check_bound(found: object, expected: object, ordered: list) -> None:
    if found is None:
        is_float = any(isinstance(value, float) for value in ordered)
        assert expected is None or is_float
        return
    assert found == expected
    assert getattr(found, "tzinfo", None) is getattr(expected, "tzinfo", None) or (
        found.utcoffset() == expected.utcoffset()
    )


def test_checksum_and_size_are_of_the_object(store: Store) -> None:
    for one in write(store, [numbers(1000)], "hash(n, 4)"):
        data = store.get(f"flights/data/{one['label']}.parquet").data

        assert one["size_bytes"] == len(data)
        assert one["checksum"] == f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_bounds_of_an_instant_are_aware_and_of_a_wall_clock_naive(store: Store) -> None:
    moment = dt.datetime(2013, 1, 1, 12)
    schema = pa.schema([("t", pa.timestamp("us", tz="UTC")), ("w", pa.timestamp("us"))])
    batch = pa.RecordBatch.from_pylist([{"t": moment, "w": moment}], schema=schema)

    (facts,) = write(store, [batch], schema=schema)

    assert facts["stats"]["t"]["min"] == moment.replace(tzinfo=dt.UTC)
    assert facts["stats"]["w"]["max"] == moment


def test_nested_columns_have_no_facts(store: Store) -> None:
    schema = pa.schema(
        [("n", pa.int64()), ("s", pa.struct([("n", pa.int64())])), ("l", pa.list_(pa.int64()))]
    )
    batch = pa.RecordBatch.from_pylist([{"n": 1, "s": {"n": 7}, "l": [8]}], schema=schema)

    (facts,) = write(store, [batch], schema=schema)

    assert facts["stats"] == {"n": {"min": 1, "max": 1, "null_count": 0}}


def test_file_without_plain_columns_has_counts_alone(store: Store) -> None:
    schema = pa.schema([("l", pa.list_(pa.int64()))])
    batch = pa.RecordBatch.from_pylist([{"l": [8]}], schema=schema)

    (facts,) = write(store, [batch], schema=schema)

    assert "stats" not in facts
    assert facts["row_count"] == 1


def test_times_that_python_does_not_know_have_no_bounds(store: Store) -> None:
    schema = pa.schema([("t", pa.timestamp("us", tz="UTC")), ("d", pa.date32())])
    year_10000 = pa.RecordBatch.from_arrays(
        [pa.array([253402300800000000]).cast(schema[0].type), pa.array([2932897], pa.date32())],
        schema=schema,
    )

    (facts,) = write(store, [year_10000], schema=schema)

    assert facts["stats"]["t"] == {"min": None, "max": None, "null_count": 0}
    assert facts["stats"]["d"] == {"min": None, "max": None, "null_count": 0}


# Failures


def test_batch_that_does_not_fit_leaves_the_writer_as_it_was(store: Store) -> None:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by="k")
    writer = KernelWriter(store, target_of(descriptor))
    writer.write(numbers(5))

    with pytest.raises(SchemaMismatchError):
        writer.write(pa.RecordBatch.from_pydict({"k": ["b"], "n": ["1"]}))
    with pytest.raises(PartitionSpecError, match="needs 302 bytes"):
        writer.write(numbers(2, k=["b", "x" * 300]))
    with pytest.raises(PartitionSpecError, match="lacks 'k'"):
        writer.write(pa.RecordBatch.from_pydict({"n": [1]}))

    assert [one["row_count"] for one in writer.finish().facts.to_pylist()] == [5]


def test_check_says_what_write_would_say_and_writes_nothing(store: Store) -> None:
    writer = KernelWriter(store, target_of(DatasetDescriptor(schema=SCHEMA, partition_by="k")))

    writer.check(numbers(5))
    with pytest.raises(PartitionSpecError):
        writer.check(numbers(1, k=["x" * 300]))

    assert writer.finish().labels == ()


def test_partition_value_outside_the_calendar_is_refused(store: Store) -> None:
    far = pa.array([253402300800000000]).cast(SCHEMA[0].type)

    with pytest.raises(
        PartitionSpecError, match=r"date\(ts\) has the value 10000-01-01 00:00:00.* UTC, outside"
    ):
        write(store, [numbers(1, ts=far)], "date(ts) as dt")
    assert write(store, [numbers(1, ts=far)], "year(ts)")[0]["label"].startswith("year=10000/")


def test_failure_in_the_middle_leaves_no_file(store: Store) -> None:
    def stream():
        yield numbers(5_000)
        assert keys(store)
        message = "the source broke"
        raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="the source broke"):
        write(store, stream(), target_bytes=1_000, row_group_bytes=1_000)

    assert keys(store) == []


@pytest.mark.parametrize("landed", [False, True])
def test_store_that_fails_leaves_no_file(store: Store, landed: bool) -> None:
    failing = FailingStore(store, fail_on="put", nth=3, landed=landed)

    with pytest.raises(StorageError):
        write(failing, [numbers(100)], "hash(n, 5)")

    assert keys(store) == []


def test_error_of_the_data_outlives_an_error_of_the_store(store: Store) -> None:
    failing = FailingStore(store, fail_on="delete")

    with pytest.raises(SchemaMismatchError):
        write(
            failing, [numbers(5_000), pa.RecordBatch.from_pydict({"n": ["1"]})], target_bytes=1_000
        )

    assert failing.has_failed


def test_decimal_and_dictionary_columns_are_written_as_declared(store: Store) -> None:
    schema = pa.schema([("q", pa.decimal128(9, 2)), ("k", pa.string())])
    batch = pa.RecordBatch.from_pydict(
        {
            "q": pa.array([decimal.Decimal("1.5")], pa.decimal128(3, 1)),
            "k": pa.array(["a"]).dictionary_encode(),
        }
    )

    (facts,) = write(store, [batch], schema=schema)

    assert read(store, facts["label"]).schema.remove_metadata() == schema

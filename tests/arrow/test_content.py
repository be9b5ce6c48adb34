"""A data file in the making: a few bytes in memory, many on the disk of a store that has one."""

import hashlib
import os
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.arrow.formats.file_format import Content
from lakebed.arrow.kernel import MIB, BatchTarget, KernelWriter, WriteOptions
from lakebed.errors import StorageFullError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.store.memory import MemoryStore
from lakebed.store.posix import PosixStore

SCHEMA = pa.schema([("n", pa.int64()), ("x", pa.float64())])
NOW = timedelta(0)
TARGET = BatchTarget(
    dataset="d",
    batch_id=1449784608123,
    descriptor=DatasetDescriptor(schema=SCHEMA, compression="uncompressed"),
    options=WriteOptions(row_group_bytes=4 * MIB, memory_bytes=48 * MIB),
)


@pytest.mark.parametrize("size", [0, 1, 100_000, 3 * MIB, 20 * MIB])
@pytest.mark.parametrize("piece", [50_000, MIB])
def test_object_holds_what_was_written_in_any_pieces(tmp_path: Path, size: int, piece: int) -> None:
    store, data = PosixStore(tmp_path), os.urandom(size)
    content = Content(lambda: store.begin_file("d/a"))

    for start in range(0, size, piece):
        content.write(data[start : start + piece])
    content.put(store, "d/a")

    assert store.get("d/a").data == data
    assert (content.size_bytes, content.checksum) == (size, f"sha256:{hashlib.sha256(data).hexdigest()}")  # fmt: skip
    assert store.remove_leftovers(older_than=NOW) == ()


@pytest.mark.parametrize("size", [5, 9 * MIB])
def test_object_of_a_store_without_files_holds_what_was_written(size: int) -> None:
    store, data = MemoryStore("content"), os.urandom(size)
    content = Content(lambda: store.begin_file("d/a"))

    content.write(data)
    held_bytes = content.held_bytes
    content.put(store, "d/a")

    assert (store.get("d/a").data, held_bytes) == (data, size)


def test_many_bytes_wait_on_disk_and_nobody_lists_them(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    content = Content(lambda: store.begin_file("d/a"))

    content.write(bytes(9 * MIB))

    assert content.is_on_disk
    assert (content.held_bytes, content.size_bytes) == (0, 9 * MIB)
    assert list(store.list()) == []
    assert len(store.remove_leftovers(older_than=NOW, dry_run=True)) == 1
    content.discard()
    assert store.remove_leftovers(older_than=NOW) == ()


@pytest.mark.parametrize("size", [10, 9 * MIB])
def test_what_was_taken_is_read_and_the_content_begins_anew(tmp_path: Path, size: int) -> None:
    store, data = PosixStore(tmp_path), os.urandom(size)
    content = Content(lambda: store.begin_file("d/a"))
    content.write(data)

    with content.take() as source:
        content.write(b"other")
        assert source.read() == data
    content.put(store, "d/a")

    assert store.get("d/a").data == b"other"
    assert store.remove_leftovers(older_than=NOW) == ()


def test_discarded_content_leaves_nothing_and_takes_what_still_comes(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    content = Content(lambda: store.begin_file("d/a"))
    content.write(bytes(9 * MIB))

    content.discard()
    content.write(b"a footer")

    assert content.size_bytes == 0
    assert store.remove_leftovers(older_than=NOW) == ()


def test_full_disk_is_told_by_its_name_and_leaves_nothing(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    writer = KernelWriter(store, TARGET)
    full = os.open("/dev/full", os.O_WRONLY)

    def begin(key: str) -> object:
        growing = PosixStore.begin_file(store, key)
        os.dup2(full, growing._file.fileno())
        return growing

    store.begin_file = begin
    with pytest.raises(StorageFullError, match="No space"):
        fill(writer)
    writer.abort()
    os.close(full)

    assert list(store.list()) == []
    assert store.remove_leftovers(older_than=NOW) == ()


def fill(writer: KernelWriter, *, nan_at: int = -1) -> None:
    for number in range(10):
        values = np.arange(200_000) + 200_000 * number
        floats = values.astype(float)
        if number == nan_at:
            floats[7] = np.nan
        writer.write(pa.RecordBatch.from_arrays([values, floats], schema=SCHEMA))


@pytest.mark.parametrize("nan_at", [-1, 6], ids=["bounded", "begun anew for NaN"])
def test_large_file_is_whole_and_its_facts_are_true(tmp_path: Path, nan_at: int) -> None:
    store = PosixStore(tmp_path)
    writer = KernelWriter(store, TARGET)

    fill(writer, nan_at=nan_at)
    written = writer.finish()

    (label,) = written.labels
    data = store.get(TARGET.key(label)).data
    (row,) = written.facts.to_pylist()
    assert row["checksum"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert row["size_bytes"] == len(data) > 16 * MIB
    assert pq.read_table(pa.BufferReader(data))["n"].to_pylist() == list(range(2_000_000))
    assert store.remove_leftovers(older_than=NOW) == ()


def test_abort_leaves_nothing_of_a_large_file(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    writer = KernelWriter(store, TARGET)
    fill(writer)
    assert store.remove_leftovers(older_than=NOW, dry_run=True)  # it was on its way

    writer.abort()

    assert list(store.list()) == []
    assert store.remove_leftovers(older_than=NOW) == ()

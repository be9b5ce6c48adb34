"""Readers that loop while the dataset changes and is published: each read is one whole version."""

import threading
import time
import uuid

import pyarrow as pa
import pytest
from table_doors import by_deltalake, by_polars, by_pyiceberg, rows_of

import lakebed
from lakebed.state import published
from lakebed.store.posix import PosixStore

SCHEMA = pa.schema([("p", pa.string()), ("batch", pa.int64()), ("n", pa.int64())])
READERS = {"deltalake": by_deltalake, "polars": by_polars, "pyiceberg": by_pyiceberg}


class Looping(threading.Thread):
    """Reads until it is told to stop, and remembers what it saw."""

    def __init__(self, name, read) -> None:
        super().__init__(name=name)
        self._read, self._is_over = read, threading.Event()
        self.seen: list[tuple[str, ...]] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._is_over.is_set():
                self.seen.append(tuple(rows_of(self._read(), SCHEMA.names)))
        except Exception as exc:  # noqa: BLE001 - the test looks at it
            self.error = exc

    def end(self) -> None:
        self._is_over.set()
        self.join()


def rows(batch: int, count: int) -> list[dict]:
    return [{"p": "ab"[n % 2], "batch": batch, "n": n} for n in range(count)]


def change(dataset, step: int) -> None:
    """Do one of the verbs, with other rows in each step."""
    match step % 8:
        case 0:
            dataset.append(rows(step, 6), run="again")
        case 1:
            dataset.rerun(rows(step, 4), run="again", replace_all=True)
        case 2:
            dataset.append(rows(step, 3))
        case 3:
            dataset.compact(gather=True)
        case 4:
            dataset.delete(dataset.where("n > 2"))
        case 5:
            dataset.rollback(version=dataset.version - 2)
        case 6:
            dataset.overwrite(rows(step, 8))
        case 7:
            dataset.merge(rows(step, 10)[5:], ["p", "n"], run="again")


def race(dataset, readers, steps: int, seconds: float, after=lambda: None, age="1h") -> int:
    """Change the dataset while others read, and check at the end what they saw.

    Returns:
        How many objects cleanups have deleted meanwhile.
    """
    deleted = 0
    known = {tuple(rows_of(dataset.arrow(), SCHEMA.names))}
    loops = [Looping(name, read) for name, read in readers.items()]
    for loop in loops:
        loop.start()
    until, step = time.monotonic() + seconds, 0
    try:
        while step < steps or time.monotonic() < until:
            change(dataset, step)
            known.add(tuple(rows_of(dataset.arrow(), SCHEMA.names)))
            after()
            if step % 5 == 4:
                report = dataset.cleanup(age, dry_run=False, published="noted")
                deleted += len(report.files)
            step += 1
    finally:
        for loop in loops:
            loop.end()
    for loop in loops:
        assert loop.error is None, f"{loop.name}: {loop.error!r}"
        assert loop.seen
        whole = set(map(one_partition, known)) if loop.name == "hive" else known
        assert set(loop.seen) <= whole, loop.name
    return deleted


def one_partition(seen: tuple[str, ...]) -> tuple[str, ...]:
    """Return the rows of the one partition that is read in Hive: several do not move in one step."""
    return tuple(row for row in seen if "'p': 'a'" in row)


def published_dataset(tmp_path):
    lake = lakebed.Repository(PosixStore(tmp_path / "lake", durable=False))
    properties = {"publish.delta": "true", "publish.iceberg": "true"}
    dataset = lake.create(
        "days", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p", properties=properties)
    )
    dataset.append(rows(-2, 2))
    dataset.append(rows(-1, 2))
    return dataset, tmp_path / "lake" / "days"


@pytest.mark.thorough
def test_each_read_is_one_whole_version(tmp_path):
    dataset, root = published_dataset(tmp_path)

    race(dataset, {n: lambda r=r: r(root) for n, r in READERS.items()}, steps=16, seconds=0)


@pytest.mark.long
@pytest.mark.spark
def test_each_read_is_one_whole_version_of_hive_too_and_files_do_go(tmp_path, spark, monkeypatch):
    """With a retention of seconds, so that files and metadata are deleted under the readers."""
    monkeypatch.setattr(published, "_SPAN_S", 1)  # else what was shown stays up to an hour longer
    dataset, root = published_dataset(tmp_path)
    table = f"doors.t{uuid.uuid4().hex[:8]}"
    publish_to_hive(dataset, spark, table)

    def hive() -> pa.Table:
        return spark.sql(f"SELECT p, batch, n FROM {table} WHERE p = 'a'").toArrow()

    readers = {name: lambda r=r: r(root) for name, r in READERS.items()}

    deleted = race(
        dataset,
        readers | {"hive": hive},
        60,
        90,
        after=lambda: publish_to_hive(dataset, spark, table),
        age="20s",
    )

    assert deleted > 100
    spark.sql(f"DROP TABLE {table}")


def publish_to_hive(dataset, spark, table) -> None:
    dataset.compact(gather=True)
    dataset.publish("hive", spark, table=table)

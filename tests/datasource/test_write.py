"""A writer of the data source in its three processes: what is left when one of them fails.

No session is needed: what Spark does with a writer is done here, by pickles of its own kind.
"""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StringType, StructField, StructType

import lakebed
from lakebed.datasource.frame_sink import LakebedWriter
from lakebed.errors import (
    CommitConflictError,
    CommitUnknownError,
    InvalidInputError,
    SchemaMismatchError,
    StorageError,
)
from lakebed.state.committing import CommitOptions
from lakebed.store import Store
from lakebed.testing import DelegatingStore

SCHEMA = StructType([StructField("n", LongType())])
SHORT = CommitOptions(deadline_s=0)


@pytest.fixture
def numbers(tmp_path: Path) -> lakebed.Dataset:
    schema = pa.schema([("n", pa.int64())])
    return lakebed.open_repository(tmp_path).create(
        "numbers", lakebed.DatasetDescriptor(schema=schema, index=["n"])
    )


def begin(numbers: lakebed.Dataset, *, is_overwrite: bool = False, **options: str) -> LakebedWriter:
    path = numbers.uri.removeprefix("file://")
    writer = LakebedWriter.begin({"path": path, **options}, SCHEMA, is_overwrite=is_overwrite)
    return replace(travelled(writer), commit_options=SHORT)


def travelled(thing):
    return pickle.loads(cloudpickle.dumps(thing))


def rows(*values: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"n": pa.array(values, pa.int64())})]


def keys(numbers: lakebed.Dataset) -> set[str]:
    store = lakebed.open_repository(numbers.uri.rpartition("/")[0]).store
    return {info.key for info in store.list("") if not info.key.startswith(".")}


def test_writer_is_light(numbers: lakebed.Dataset) -> None:
    for n in range(30):
        numbers.append([{"n": n}])

    writer = begin(numbers)

    assert len(cloudpickle.dumps(writer)) < 5_000


def test_messages_of_all_tasks_are_one_commit(numbers: lakebed.Dataset) -> None:
    writer = begin(numbers)
    messages = [travelled(travelled(writer).write(iter(rows(n, n + 10)))) for n in range(3)]

    travelled(writer).commit(messages)

    assert sorted(numbers.arrow()["n"].to_pylist()) == [0, 1, 2, 10, 11, 12]
    assert numbers.version == 1
    assert numbers.check().problems == ()


def test_batch_id_tells_the_start_that_an_option_says(numbers: lakebed.Dataset) -> None:
    for staged in ("false", "true"):
        writer = begin(numbers, begunAt="2015-12-10T21:56:48", staged=staged)
        travelled(writer).commit([travelled(writer).write(iter(rows(1)))])
    (waiting,) = numbers.staged.list()
    waiting.commit()

    assert [one.batch_id for one in numbers.batches()] == [1449784608000, 1449784608001]
    for text, told in (("soon", "begunAt: 'soon' is"), ("1969-01-01", "1990")):
        with pytest.raises(InvalidInputError, match=told):
            begin(numbers, begunAt=text)


@pytest.mark.parametrize("is_overwrite", [False, True])
@pytest.mark.parametrize("staged", ["false", "true"])
def test_options_let_the_schema_grow(tmp_path: Path, staged: str, is_overwrite: bool) -> None:
    lake = lakebed.open_repository(tmp_path)
    lake.write("t", pa.table({"n": pa.array([1], pa.int32())}))
    fields = [StructField("n", LongType()), StructField("name", StringType())]
    path = {"path": str(tmp_path / "t"), "staged": staged}
    if is_overwrite:
        path["overwriteMode"] = "partitions"

    def begun(**options: str) -> LakebedWriter:
        schema = StructType(fields)
        return LakebedWriter.begin({**path, **options}, schema, is_overwrite=is_overwrite)

    with pytest.raises(SchemaMismatchError, match="name"):
        begun()
    with pytest.raises(SchemaMismatchError, match="'n'"):
        begun(unknown="keep")
    with pytest.raises(InvalidInputError, match="unknown"):
        begun(unknown="kept")
    assert lake["t"].version == 1

    writer = travelled(begun(unknown="keep", types="widen"))
    batch = pa.record_batch({"n": pa.array([2**40]), "name": ["a"]})
    travelled(writer).commit([travelled(writer.write(iter([batch])))])
    for waiting in lake["t"].staged.list():
        waiting.commit()

    kept = [] if is_overwrite else [{"n": 1, "name": None}]
    rows = sorted(lake["t"].arrow().to_pylist(), key=lambda row: row["n"])
    assert rows == [*kept, {"n": 2**40, "name": "a"}]


def test_aborted_write_leaves_nothing(numbers: lakebed.Dataset) -> None:
    before = keys(numbers)
    writer = begin(numbers)
    message = writer.write(iter(rows(1)))

    travelled(writer).abort([message, None])

    assert keys(numbers) == before


def test_error_of_a_task_is_raised_by_the_commit_and_nothing_is_left(
    numbers: lakebed.Dataset,
) -> None:
    before = keys(numbers)
    writer = begin(numbers)
    good = writer.write(iter(rows(1)))
    bad = writer.write(iter([pa.record_batch({"m": pa.array([1])})]))
    messages = [good, bad]

    with pytest.raises(lakebed.errors.SchemaMismatchError):
        travelled(writer).commit(messages)
    travelled(writer).abort(messages)

    assert keys(numbers) == before


def test_write_that_lost_its_race_leaves_nothing(numbers: lakebed.Dataset) -> None:
    writer = begin(numbers, is_overwrite=True)
    message = writer.write(iter(rows(1)))
    numbers.append([{"n": 7}])
    after = keys(numbers)

    with pytest.raises(CommitConflictError):
        travelled(writer).commit([message])
    travelled(writer).abort([message])

    assert numbers.arrow()["n"].to_pylist() == [7]
    assert len(keys(numbers) - after) == 0
    assert numbers.check().problems == ()


class FallsSilent(DelegatingStore):
    """Answers nothing more from the swap of the head on, which may have landed."""

    def __init__(self, inner: Store, *, landed: bool) -> None:
        super().__init__(inner)
        self.landed = landed
        self.is_silent = False

    def _fail(self) -> StorageError:
        return StorageError("No answer.", hint="None.", retryable=True)

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        if not key.startswith("numbers.by-dataset"):
            return super()._replace(key, data, if_match=if_match)
        self.is_silent = True
        if self.landed:
            super()._replace(key, data, if_match=if_match)
        raise self._fail()

    def _get(self, key: str) -> Any:
        if self.is_silent:
            raise self._fail()
        return super()._get(key)

    def _get_if_changed(self, key: str, etag: str) -> Any:
        if self.is_silent:
            raise self._fail()
        return super()._get_if_changed(key, etag)


@pytest.mark.parametrize("landed", [True, False])
def test_nothing_is_deleted_by_the_abort_of_a_commit_that_may_have_landed(
    numbers: lakebed.Dataset, landed: bool
) -> None:
    writer = begin(numbers)
    message = writer.write(iter(rows(1, 2)))
    before = keys(numbers)
    silent = replace(writer, store=FallsSilent(writer.store, landed=landed))

    with pytest.raises(CommitUnknownError):
        silent.commit([message])
    travelled(writer).abort([message])

    assert before <= keys(numbers)
    assert numbers.count() == (2 if landed else 0)


def test_dataset_that_was_dropped_meanwhile_is_no_error_of_the_abort(
    numbers: lakebed.Dataset,
) -> None:
    writer = begin(numbers)
    message = writer.write(iter(rows(1)))
    lakebed.open_repository(numbers.uri.rpartition("/")[0]).drop("numbers")

    writer.abort([message])

    assert not {key for key in keys(numbers) if key.endswith(".json")}

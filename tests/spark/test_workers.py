"""Work that Spark tasks do on items, and the errors that come back from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakebed import DatasetDescriptor, Repository, WriteOptions
from lakebed.errors import CommitUnknownError, LakebedError, MissingDependencyError, StorageError
from lakebed.spark.task_workers import workers_for
from lakebed.store import open_store
from lakebed.testing import FailingStore

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ERRORS: list[LakebedError] = [
    MissingDependencyError.for_extra("fastavro", "avro", "Reading Avro"),
    CommitUnknownError("No answer.", commit_id="c0ffee"),
    StorageError("The disk is away.", retryable=True),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_of_a_task_arrives_whole_after_what_other_tasks_did(
    spark: SparkSession, tmp_path: Path, error: LakebedError
) -> None:
    def work(item: int | None) -> list[int]:
        if item is None:
            raise error
        return [item]

    done: list[list[int]] = []
    workers = workers_for(spark, open_store(str(tmp_path)), threads=1)
    with pytest.raises(type(error)) as caught:
        done.extend(workers.map(work, [1, None, 2, None, 3], list[int]))

    assert done == [[1], [2], [3]]
    assert vars(caught.value) == vars(error)


@pytest.mark.parametrize("cluster", [True, False])
def test_a_store_that_fails_one_task_is_told_as_itself_and_nothing_stays_of_the_others(
    spark: SparkSession, tmp_path: Path, cluster: bool
) -> None:
    store = open_store(str(tmp_path))
    schema = pa.schema([("n", pa.int64())])
    descriptor = DatasetDescriptor(schema=schema, partition_by="identity(n) as k", index=["n"])
    Repository(store).create("d", descriptor)
    before = {info.key for info in store.list()}
    failing = FailingStore(store, fail_on="put", matching="k=3/", error=ERRORS[2])
    frame = spark.range(0, 8, 1, 4).withColumnRenamed("id", "n")

    with pytest.raises(StorageError, match="The disk is away") as caught:
        Repository(failing).open("d").with_options(write=WriteOptions(cluster=cluster)).append(
            frame
        )

    assert type(caught.value) is StorageError
    assert {info.key for info in store.list()} == before

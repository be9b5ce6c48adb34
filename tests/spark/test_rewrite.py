"""Work that Spark tasks do on items, and the errors that come back from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakebed.errors import CommitUnknownError, LakebedError, MissingDependencyError, StorageError
from lakebed.spark.rewrite import run_in_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ERRORS: list[LakebedError] = [
    MissingDependencyError.for_extra("fastavro", "avro", "Reading Avro"),
    CommitUnknownError("No answer.", commit_id="c0ffee"),
    StorageError("The disk is away.", retryable=True),
]


def test_an_error_of_a_task_arrives_whole_beside_what_other_tasks_did(spark: SparkSession) -> None:
    def work(error: LakebedError | None) -> bytes:
        if error is not None:
            raise error
        return b"done"

    first, *found, last = run_in_tasks(spark, [None, *ERRORS, None], work)

    assert first == last == b"done"
    assert [type(one) for one in found] == [type(error) for error in ERRORS]
    assert [vars(one) for one in found] == [vars(error) for error in ERRORS]

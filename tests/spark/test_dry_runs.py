"""Dry runs of what Spark would write: rows are checked and counted, and nothing is written."""

from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.testing import DelegatingStore

pytestmark = pytest.mark.spark


def contents(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def test_frame_is_checked_and_counted_and_not_written(spark, tmp_path: Path) -> None:
    repository = lakebed.open_repository(tmp_path)
    frame = spark.range(5_000).selectExpr("id", "id % 3 AS p")
    repository.write("d", frame, partition_by="p")
    dataset, before = repository.open("d"), contents(tmp_path)

    planned = dataset.append(frame, dry_run=True)
    rerun = dataset.rerun(frame.limit(10), "run", dry_run=True, replace_all=True)
    staged = dataset.staged.add(frame, dry_run=True)
    with pytest.raises(SchemaMismatchError):
        dataset.append(frame.selectExpr("'x' AS id", "p"), dry_run=True)
    with pytest.raises(InvalidInputError, match="outside"):
        dataset.kite.with_("p", 1).append(frame, dry_run=True)
    updated = dataset.where("id < 10").update_rows({"id": "id + 1"}, spark=spark, dry_run=True)

    assert contents(tmp_path) == before
    assert (rerun.row_count, staged.row_count) == (10, 5_000)
    done = dataset.append(frame)
    assert (planned.version, planned.row_count, planned.partitions) == (
        done.version,
        done.row_count,
        done.partitions,
    )
    assert planned.size_bytes is None, "only Spark knows"
    assert (updated.updated_row_count, updated.is_dry_run) == (10, True)


def test_merge_reserves_no_batch_and_puts_no_rows_into_the_store(spark, tmp_path: Path) -> None:
    class NoWrites(DelegatingStore):
        def _fail(self, *given: object, **named: object) -> Any:
            raise AssertionError(given)

        _create = _replace = _put = _put_stream = _adopt = _delete = _fail

    repository = lakebed.open_repository(tmp_path)
    repository.write("d", spark.range(10))
    dataset = lakebed.Repository(NoWrites(repository.store)).open("d")

    planned = dataset.merge(spark.range(5, 15), "id", spark=spark, dry_run=True)

    assert (planned.updated_row_count, planned.inserted_row_count) == (5, 5)


def test_frame_that_sparks_own_writer_would_write(spark, tmp_path: Path) -> None:
    repository = lakebed.open_repository(tmp_path)
    repository.write("d", spark.range(10))
    dataset, before = repository.open("d"), contents(tmp_path)

    planned = dataset.append(spark.range(100_000), dry_run=True)

    assert contents(tmp_path) == before
    assert planned.row_count == 100_000

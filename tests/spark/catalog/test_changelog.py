"""`SELECT … CHANGES FROM VERSION` gives the rows of `Dataset.changes`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidInputError, VersionNotFoundError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
    pytest.mark.since_spark("4.2", "SELECT has no CHANGES"),
]


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[lakebed.Repository]:
    """A lake whose dataset has an append, an update, a compaction, a delete and an append."""
    lake = lakebed.open_repository(tmp_path)
    schema = pa.schema({"id": pa.int64(), "n": pa.int64()})
    lake.write("t", pa.table({"id": range(4), "n": [None] * 4}, schema=schema))
    dataset = lake.open("t")
    dataset.where("id < 2").update_rows({"n": "id + 1"})
    dataset.append([{"id": 9, "n": 9}])
    dataset.compact()
    dataset.where("id = 9").delete()
    dataset.append([{"id": 5, "n": 5}])
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        yield lake


def changed(
    lake: lakebed.Repository, before: int, after: int | None, **options: Any
) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in lake.open("t").changes(before, after, **options))


@pytest.mark.parametrize(
    ("range_", "before", "after"),
    [
        ("FROM VERSION 2 TO VERSION 5", 1, 5),
        ("FROM VERSION 0", 0, None),
        ("FROM VERSION 2 EXCLUSIVE TO VERSION 5 INCLUSIVE", 2, 5),
        ("FROM VERSION 3 TO VERSION 3", 2, 3),
    ],
)
def test_rows_are_those_of_changes(
    spark: Any, lake: lakebed.Repository, range_: str, before: int, after: int | None
):
    frame = spark.sql(f"SELECT * FROM lake.t CHANGES {range_}")

    assert frame.columns == ["id", "n", "_change_type", "_commit_version", "_commit_timestamp"]
    times = {commit.version: commit.committed_at for commit in lake.open("t").history()}
    rows = Counter((*row[:4], times[row[3]]) for row in frame.collect())
    assert rows == changed(lake, before, after)


def test_query_on_changes(spark: Any, lake: lakebed.Repository):
    rows = spark.sql(
        "SELECT _change_type, count(*) FROM lake.t CHANGES FROM VERSION 2 WHERE id > 4 "
        "GROUP BY _change_type ORDER BY 1"
    ).collect()

    assert [tuple(row) for row in rows] == [("delete", 1), ("insert", 2)]


@pytest.mark.parametrize(
    ("query", "error", "remedy"),
    [
        ("CHANGES FROM VERSION 99", VersionNotFoundError, "99"),
        ("CHANGES FROM VERSION 1 TO VERSION 99", VersionNotFoundError, "99"),
        ("CHANGES FROM VERSION 'x' TO VERSION 3", InvalidInputError, "whole number"),
        ("CHANGES FROM TIMESTAMP '2026-01-01'", InvalidInputError, "FROM VERSION"),
    ],
)
def test_range_that_is_not_there_is_refused(
    spark: Any, lake: lakebed.Repository, query: str, error: type[Exception], remedy: str
):
    with pytest.raises(error, match=remedy):
        spark.sql(f"SELECT * FROM lake.t {query}").collect()

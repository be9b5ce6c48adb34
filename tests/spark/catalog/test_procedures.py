"""Verbs of upkeep by CALL: their effect, their report as rows, and wrong arguments."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import (
    DatasetNotFoundError,
    InvalidInputError,
    LakebedError,
    PredicateError,
    VersionNotFoundError,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
]

DAY = dt.date(2026, 1, 1)


def flights(numbers: range) -> pa.Table:
    days = [DAY + dt.timedelta(days=number % 2) for number in numbers]
    return pa.table({"n": pa.array(list(numbers), pa.int64()), "day": pa.array(days, pa.date32())})


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[lakebed.Repository]:
    """A dataset of three versions with rows, and two small files in each partition."""
    lake = lakebed.open_repository(tmp_path)
    lake.create("flights", flights(range(0)).schema, partition_by="day")
    for first in (0, 4, 8):
        lake.open("flights").append(flights(range(first, first + 4)))
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        yield lake


def call(spark: Any, text: str) -> dict[str, Any]:
    """Call a procedure, and return its only row."""
    (row,) = spark.sql(f"CALL lake.{text}").collect()
    return dict(row.asDict())


def test_compact_merges_files_and_reports_it(spark: Any, lake: lakebed.Repository):
    plan = call(spark, "compact('flights', dry_run => true)")
    assert lake.open("flights").version == 3

    row = call(spark, "compact('flights')")

    dataset = lake.open("flights")
    assert (plan["version"], plan["files_before"], plan["is_dry_run"]) == (None, 6, True)
    assert (row["version"], row["files_before"], row["files_after"]) == (4, 6, 2)
    assert (row["row_count"], row["is_dry_run"]) == (12, False)
    assert dataset.version == 4
    assert len(dataset.files()) == 2
    assert call(spark, "compact('flights')")["version"] is None


def test_compact_of_a_condition_by_tasks_of_spark(spark: Any, lake: lakebed.Repository):
    row = call(
        spark,
        "compact(table => 'flights', where => \"day = '2026-01-01'\", sort_by => 'n', "
        "spark => true)",
    )

    assert (row["files_before"], row["files_after"]) == (3, 1)
    assert len(lake.open("flights").files()) == 4


def test_rollback_makes_an_earlier_version_current_also_in_the_cache(
    spark: Any, lake: lakebed.Repository
):
    spark.sql("CACHE TABLE lake.flights")
    try:
        plan = call(spark, "rollback('flights', 1, dry_run => true)")
        assert lake.open("flights").version == 3
        row = call(spark, "rollback(table => 'lake.flights', version => 1)")
        shown = spark.table("lake.flights").count()
    finally:
        spark.catalog.clearCache()

    assert (plan["version"], plan["files_removed"]) == (None, 4)
    assert (row["version"], row["operation"], row["files_removed"]) == (4, "rollback", 4)
    assert shown == lake.open("flights").count() == 4
    assert call(spark, "rollback('flights', 1)")["version"] is None


def test_rollback_to_a_time_is_in_the_zone_of_the_session(spark: Any, lake: lakebed.Repository):
    commits = {commit.version: commit.committed_at for commit in lake.open("flights").history()}
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        moment = (commits[2] + dt.timedelta(hours=9)).replace(tzinfo=None)
        call(spark, f"rollback('flights', time => TIMESTAMP '{moment}')")
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)

    assert lake.open("flights").count() == 8


def test_cleanup_deletes_only_when_it_is_told(spark: Any, lake: lakebed.Repository):
    lake.open("flights").compact()

    plan = call(spark, "cleanup('flights', older_than => '0s')")
    done = call(spark, "cleanup('flights', older_than => '0s', dry_run => false)")

    assert (plan["is_dry_run"], plan["files"], plan["version"]) == (True, 6, None)
    assert (done["is_dry_run"], done["files"], done["version"]) == (False, 6, 5)
    assert done["reasons"] == ["6 superseded"]
    assert call(spark, "cleanup('flights', older_than => '0s')")["files"] == 0


def test_check_tells_of_a_missing_file(spark: Any, lake: lakebed.Repository, tmp_path: Path):
    assert call(spark, "check('flights', deep => true)")["is_ok"]
    key = lake.open("flights").files()[0].key
    (tmp_path / key).unlink()

    row = call(spark, "check('flights')")

    assert not row["is_ok"]
    assert key in "".join(row["findings"])


def test_publication_is_made_checked_and_dropped(spark: Any, lake: lakebed.Repository):
    made = call(spark, "publish('flights', 'delta')")
    checked = call(spark, "publish('flights', target => 'delta', check => true)")
    dropped = call(spark, "unpublish('flights', 'delta')")

    assert (made["kind"], made["created"], made["added_count"]) == ("delta", True, 6)
    assert (checked["is_applied"], checked["unchanged_count"]) == (False, 6)
    assert dropped["is_dropped"]
    assert not call(spark, "unpublish('flights', 'delta')")["is_dropped"]


def test_protection_is_added_and_removed(spark: Any, lake: lakebed.Repository):
    call(
        spark,
        "protect('flights', version => 1, reason => 'report', "
        "until => TIMESTAMP '2999-01-01 00:00:00')",
    )
    (protection,) = lake.open("flights").protections.list()
    call(spark, "unprotect('flights', version => 1)")

    assert protection.reason == "report"
    assert protection.until == dt.datetime(2999, 1, 1, tzinfo=dt.UTC)
    assert lake.open("flights").protections.list() == ()


def test_retention_deletes_what_is_past_it(spark: Any, lake: lakebed.Repository):
    assert call(spark, "retain('flights')")["summary"] == "no retention is declared"
    spark.sql("ALTER TABLE lake.flights SET TBLPROPERTIES ('retention.delete_where' = 'n < 4')")

    plan = call(spark, "retain('flights', dry_run => true)")
    assert lake.open("flights").count() == 12
    row = call(spark, "retain('flights')")

    assert (plan["step"], plan["status"]) == ("retain", "done")
    assert (row["dataset"], row["status"]) == ("flights", "done")
    assert lake.open("flights").count() == 8


def test_maintain_does_what_is_due_of_all_datasets(spark: Any, lake: lakebed.Repository):
    lake.write("other", pa.table({"n": [1]}))

    steps = spark.sql("CALL lake.maintain(only => 'compact, metadata')").collect()
    one = spark.sql("CALL lake.maintain('other')").collect()

    assert [(row["dataset"], row["step"]) for row in steps] == [
        ("flights", "compact"),
        ("flights", "metadata"),
        ("other", "compact"),
        ("other", "metadata"),
    ]
    assert {row["dataset"] for row in one} == {"other"}


def test_compact_metadata_merges_lists(spark: Any, lake: lakebed.Repository):
    rows = spark.sql("CALL lake.compact_metadata('flights')").collect()

    assert {row["name"] for row in rows} <= {"files", "history"}
    assert all(row["segments_after"] < row["segments_before"] for row in rows)


@pytest.mark.since_spark("4.1", "no SHOW PROCEDURES")
def test_procedures_are_shown(spark: Any, lake: lakebed.Repository):
    names = {row["procedure_name"] for row in spark.sql("SHOW PROCEDURES FROM lake").collect()}

    assert names == {
        *("compact", "compact_metadata", "rollback", "cleanup", "check", "publish"),
        *("unpublish", "protect", "unprotect", "retain", "maintain"),
    }
    for name in names:
        (_, description) = spark.sql(f"DESCRIBE PROCEDURE lake.{name}").collect()
        assert len(description[0]) > len("Description: ")


def test_explained_call_does_nothing(spark: Any, lake: lakebed.Repository):
    spark.sql("EXPLAIN CALL lake.rollback('flights', 1)").collect()

    assert lake.open("flights").version == 3


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("kompact('flights')", InvalidInputError, "'compact'"),
        ("nothing()", InvalidInputError, "compact, compact_metadata, rollback"),
        ("compact('nothing')", DatasetNotFoundError, "flights"),
        ("compact('flights', target_bytes => 'many')", InvalidInputError, "128MB"),
        ("compact('flights', where => 'dday = 3')", PredicateError, "'day'"),
        ("compact(null)", InvalidInputError, "table"),
        ("compact('')", InvalidInputError, "'' is not the name of a table"),
        ("compact('../flights')", InvalidInputError, "backticks"),
        ("check('a b')", InvalidInputError, "'a b'"),
        ("cleanup('flights', older_than => 'long')", InvalidInputError, "long"),
        ("rollback('flights')", InvalidInputError, "version"),
        ("rollback('flights', 99)", VersionNotFoundError, "0 to 3"),
        ("protect('flights', version => 1, reason => null)", InvalidInputError, "reason"),
        ("publish('flights', 'csv')", InvalidInputError, "delta"),
        ("publish('flights', 'hive')", LakebedError, "table"),
        ("maintain(only => 'nothing')", InvalidInputError, "retain"),
    ],
)
def test_wrong_argument_is_named(
    spark: Any, lake: lakebed.Repository, text: str, error: type[LakebedError], words: str
):
    with pytest.raises(error) as caught:
        spark.sql(f"CALL lake.{text}")

    assert words in str(caught.value)
    assert lake.open("flights").version == 3


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("compact()", "REQUIRED_PARAMETER_NOT_FOUND"),
        ("protect('flights', version => 1)", "REQUIRED_PARAMETER_NOT_FOUND"),
        ("compact(tabel => 'flights')", "UNRECOGNIZED_PARAMETER_NAME"),
        ("rollback('flights', 'x')", "CAST_INVALID_INPUT"),
    ],
)
def test_argument_of_another_form_is_refused_by_spark(
    spark: Any, lake: lakebed.Repository, text: str, condition: str
):
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=condition):
        spark.sql(f"CALL lake.{text}")

"""Names of attached views: no call of Spark makes another table of them, and own commits are seen."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import lakebed
from lakebed.errors import InvalidInputError, LakebedError

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    lake = lakebed.open_repository(tmp_path / "lake")
    lake.create("t_names", pa.schema([("id", pa.int64())])).append([{"id": 1}])
    return lake


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "saveAsTable": lambda _, frame: frame.write.saveAsTable("t_names"),
    "saveAsTable, append": lambda _, frame: frame.write.mode("append").saveAsTable("T_Names"),
    "saveAsTable, overwrite": lambda _, frame: (
        frame.write.format("parquet").mode("overwrite").saveAsTable("`t_names`")
    ),
    "insertInto": lambda _, frame: frame.write.insertInto("t_names"),
    "writeTo": lambda _, frame: frame.writeTo("t_names").create(),
    "createTable": lambda spark, frame: spark.catalog.createTable(
        "t_names", source="parquet", schema=frame.schema
    ),
    "CREATE TABLE": lambda spark, _: spark.sql("CREATE TABLE t_names (id BIGINT) USING parquet"),
    "CTAS": lambda spark, _: spark.sql("create table T_NAMES using parquet as select 1 as id"),
    "toTable": lambda spark, _: (
        spark.readStream.format("rate").load().writeStream.toTable("t_names")
    ),
}
CHANGES = (
    *("INSERT INTO t_names VALUES (2)", "DELETE FROM T_names", "UPDATE t_names SET id = 2"),
    *("TRUNCATE TABLE t_names", "MERGE INTO t_names USING x ON true WHEN MATCHED THEN DELETE"),
)


def test_no_call_makes_another_table_of_the_name_of_a_view(
    spark: Any, lake: lakebed.Repository
) -> None:
    frame = spark.range(3)
    with lakebed.spark.attach(spark, lake):
        for name, call in CALLS.items():
            with pytest.raises(LakebedError) as caught:
                call(spark, frame)
            assert any(w in str(caught.value) for w in ("attached", "exists", "already")), name
        assert not [
            t for t in spark.catalog.listTables() if not t.isTemporary and "t_names" in t.name
        ]
        for statement in CHANGES:
            with pytest.raises(InvalidInputError, match="A catalog takes it"):
                spark.sql(statement)
    assert lake["t_names"].count() == 1
    frame.write.saveAsTable("t_names")  # free again
    spark.sql("DROP TABLE t_names")


def test_own_commits_are_seen_by_every_read(spark: Any, lake: lakebed.Repository) -> None:
    same = lakebed.open_repository(lake.uri)
    with lakebed.spark.attach(spark, lake) as attached:
        counts = []
        for read in (
            lambda: spark.table("t_names"),
            lambda: spark.read.table("t_names"),
            lambda: spark.sql("SELECT * FROM t_names"),
        ):
            same["t_names"].append([{"id": 2}])
            counts.append(read().count())
        assert counts == [2, 3, 4]
        assert attached.versions == {"t_names": 4}
        lake.write("t_more", [{"id": 5}])
        assert spark.sql("SELECT count(*) FROM t_more").collect()[0][0] == 1


def test_a_later_attachment_takes_the_names_over(
    spark: Any, lake: lakebed.Repository, tmp_path: Path
) -> None:
    other = lakebed.open_repository(tmp_path / "other")
    other.create("t_names", pa.schema([("id", pa.int64())]))
    with lakebed.spark.attach(spark, lake) as first, lakebed.spark.attach(spark, other):
        lake["t_names"].append([{"id": 2}])
        assert spark.table("t_names").count() == 0
        assert first.names == ()


def test_drop_of_a_view_leaves_the_dataset(spark: Any, lake: lakebed.Repository) -> None:
    for statement in (
        "DROP VIEW t_names",
        "DROP TABLE IF EXISTS T_NAMES",
        "DROP TABLE t_names PURGE",
    ):
        with lakebed.spark.attach(spark, lake), contextlib.suppress(AnalysisException):
            spark.sql(statement)
        assert lake["t_names"].count() == 1


def test_table_that_forgets_its_path_names_attach(spark: Any, lake: lakebed.Repository) -> None:
    path = f"{lake.uri.removeprefix('file://')}/t_names"
    spark.sql(f"CREATE TABLE t_located USING lakebed LOCATION '{path}'")
    try:
        with pytest.raises(Exception, match=r"lakebed\.spark\.attach"):
            spark.sql("SELECT * FROM t_located").collect()
    finally:
        spark.sql("DROP TABLE t_located")

"""Columns of the footprint in views of Spark."""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from footprints import SCHEMA, changed_datasets, expected_footprints
from frames import files_read

import lakebed

pytestmark = pytest.mark.spark

QUERY = "SELECT id, batch_id, batch_time, run FROM traced_d ORDER BY id"


@pytest.mark.parametrize("file_format", ["parquet", "avro"])
def test_footprint_is_right_after_every_change(
    spark: Any, tmp_path: Path, file_format: str
) -> None:
    lake = lakebed.open_repository(tmp_path)
    lake.write("other", pa.table({"n": [1]}))

    with lakebed.spark.attach(spark, lake, prefix="traced_", footprint=True) as tables:
        for dataset, runs in changed_datasets(lake, file_format=file_format):
            tables.refresh()
            found = spark.sql(QUERY).toArrow()
            rows = [tuple(row.values()) for row in found.to_pylist()]
            assert rows == expected_footprints(dataset, runs)


def test_views_have_it_behind_their_columns_and_only_on_request(spark: Any, tmp_path: Path) -> None:
    lake = lakebed.open_repository(tmp_path)
    for _ in changed_datasets(lake):
        pass
    lake.write("own", pa.table({"run": [7], "Batch_Time": ["x"]}))
    lake.create("empty", SCHEMA)

    with (
        lakebed.spark.attach(spark, lake),
        lakebed.spark.attach(spark, lake, prefix="traced_", footprint=True),
    ):
        hidden = ["batch_id", "batch_time", "run"]
        assert spark.table("d").columns == ["id", "channel", "level"]
        assert spark.table("traced_d").columns == ["id", "channel", "level", *hidden]
        assert spark.table("traced_own").columns == ["run", "Batch_Time", "batch_id"]
        assert spark.table("traced_own").first()["run"] == 7
        assert spark.table("traced_empty").columns == ["id", "channel", *hidden]
        assert spark.table("traced_empty").count() == 0


def test_files_that_a_filter_rules_out_are_not_read(spark: Any, tmp_path: Path) -> None:
    lake = lakebed.open_repository(tmp_path)
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    rows = [{"n": n, "at": start + dt.timedelta(days=n)} for n in range(6)]
    lake.write("days", pa.Table.from_pylist(rows), partition_by="date(at) as dt", run="all")

    with lakebed.spark.attach(spark, lake, prefix="traced_", footprint=True):
        chosen = spark.sql("SELECT n, run FROM traced_days WHERE at >= '2020-01-05T00:00:00Z'")
        assert files_read(chosen) == 2
        assert sorted(map(tuple, chosen.collect())) == [(4, "all"), (5, "all")]

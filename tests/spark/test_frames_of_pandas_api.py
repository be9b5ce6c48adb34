"""Frames of `pyspark.pandas` are frames of Spark without their index, and `Row`s are records."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed

pytestmark = pytest.mark.spark

ROWS = [{"id": 1, "s": "a"}, {"id": 2, "s": None}, {"id": 3, "s": "c"}]


def as_append(lake: lakebed.Repository, rows: Any) -> object:
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    return lake.create("t", schema).append(rows)


def as_overwrite(lake: lakebed.Repository, rows: Any) -> object:
    lake.write("t", [{"id": 9, "s": "old"}])
    return lake["t"].overwrite(rows)


def as_upsert(lake: lakebed.Repository, rows: Any) -> object:
    lake.write("t", [{"id": 2, "s": "old"}])
    return lake["t"].upsert(rows, "id")


def as_insert(lake: lakebed.Repository, rows: Any) -> object:
    return lake.sql("CREATE TABLE t AS SELECT * FROM s", tables={"s": rows}, write=True)


DOORS: dict[str, Callable[[lakebed.Repository, Any], object]] = {
    "write": lambda lake, rows: lake.write("t", rows),
    "create and append": lambda lake, rows: lake.create("t", rows).append(rows),
    "append": as_append,
    "overwrite": as_overwrite,
    "rerun": lambda lake, rows: lake.write("t", rows, run="2026-11-01"),
    "upsert": as_upsert,
    "staged": lambda lake, rows: lake.create("t", rows).staged.add(rows).commit(),
    "sql": as_insert,
}
FORMS: dict[str, Callable[[Any], Any]] = {
    "pandas API": lambda frame: frame.pandas_api(),
    "pandas API with an index": lambda frame: frame.pandas_api().set_index(
        "s", append=True, drop=False
    ),
    "rows": lambda frame: frame.collect(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("door", DOORS)
def test_every_door_takes_the_columns_alone(
    spark: Any, tmp_path: Path, door: str, form: str
) -> None:
    if form == "rows" and door in ("create and append", "staged", "sql"):
        pytest.skip("Rows alone have no types, so they make no schema and no table.")
    lake = lakebed.open_repository(tmp_path)
    frame = spark.createDataFrame([tuple(row.values()) for row in ROWS], "id BIGINT, s STRING")

    DOORS[door](lake, FORMS[form](frame))

    assert lake["t"].schema.names == ("id", "s")
    assert all(field.nullable for field in lake["t"].schema)
    assert sorted(lake["t"].arrow().to_pylist(), key=lambda row: row["id"]) == ROWS


def test_rows_within_rows_are_records(spark: Any, tmp_path: Path) -> None:
    lake = lakebed.open_repository(tmp_path)
    frame = spark.sql(
        "SELECT 1 AS id, named_struct('a', 2L, 'b', array(named_struct('c', 'x'))) AS r"
    )

    lake.write("t", frame)
    lake["t"].append(frame.collect())
    lake.write("u", frame.collect())

    record = {"a": 2, "b": [{"c": "x"}]}
    assert lake["t"].arrow()["r"].to_pylist() == [record, record]
    assert lake["u"].arrow()["r"].to_pylist() == [record]


def test_an_index_with_a_name_is_a_column(spark: Any, tmp_path: Path) -> None:
    lake = lakebed.open_repository(tmp_path)
    frame = spark.createDataFrame([(1, "a")], "id BIGINT, s STRING").pandas_api(index_col="id")

    lake.write("t", frame)
    lake["t"].append(frame.reset_index())

    assert lake["t"].arrow().to_pylist() == [{"id": 1, "s": "a"}] * 2

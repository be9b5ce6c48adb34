"""NaN is greater than every number, wherever a filter comes from."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed

pytestmark = pytest.mark.spark

POSITION = pa.struct([("latitude", pa.float64())])
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("at", POSITION)])
# One row group: Arrow's bounds are those of the numbers, and leave the NaN among them out.
VALUES = [1.0, 2.0, 3.0, math.nan, None]


def lake_with_nan(root: Path) -> lakebed.Dataset:
    lake = lakebed.open_repository(root / "lake")
    dataset = lake.create("measures", lakebed.DatasetDescriptor(schema=SCHEMA))
    dataset.append([{"id": n, "x": v, "at": {"latitude": v}} for n, v in enumerate(VALUES)])
    return dataset


def write_as_before(root: Path) -> None:
    """Write data files as Arrow does by itself: bounds leave NaN out."""
    for path in root.glob("lake/measures/data/**/*.parquet"):
        pq.write_table(pq.ParquetFile(path).read(), path)


# Of single precision Spark 4.3 drops no row group by itself, so that nothing is to be lost.
COLUMNS = ["x", "at.latitude"]
GREATER = "{name} > 5D"
FILTERS = [
    GREATER,
    "{name} >= 5D",
    "{name} != 3D",
    "{name} = DOUBLE('NaN')",
    "NOT {name} <= 5D",
    "{name} IN (7D, DOUBLE('NaN'))",
]


def ids(frame: Any) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


@pytest.mark.parametrize("column", COLUMNS)
def test_a_filter_on_a_frame_keeps_nan_in_files_of_any_age(
    spark: Any, tmp_path: Path, column: str
) -> None:
    dataset = lake_with_nan(tmp_path)
    write_as_before(tmp_path)
    arrow = dataset.spark(spark, way="arrow")
    wanted = {text: ids(arrow.where(text.format(name=column))) for text in FILTERS}
    assert wanted[GREATER] == [3]
    # Spark's reader by itself loses it.
    bare = spark.read.parquet(str(tmp_path / "lake/measures/data"))
    assert ids(bare.where(GREATER.format(name=column))) == []

    for way in ("native", "paths", "auto"):
        frame = dataset.spark(spark, way=way)
        assert {text: ids(frame.where(text.format(name=column))) for text in FILTERS} == wanted


@pytest.mark.classic("nothing is prepared on Connect")
def test_a_prepared_frame_keeps_nan_in_files_of_any_age(spark: Any, tmp_path: Path) -> None:
    dataset = lake_with_nan(tmp_path)
    write_as_before(tmp_path)

    assert ids(dataset.spark(spark, way="prepared").where("x > 5")) == [3]


@pytest.mark.parametrize("column", COLUMNS)
def test_readers_of_the_bare_files_keep_nan(spark: Any, tmp_path: Path, column: str) -> None:
    lake_with_nan(tmp_path)

    frame = spark.read.parquet(str(tmp_path / "lake/measures/data"))

    assert ids(frame.where(GREATER.format(name=column))) == [3]
    assert ids(frame.where(f"NOT ({GREATER})".format(name=column))) == [0, 1, 2]

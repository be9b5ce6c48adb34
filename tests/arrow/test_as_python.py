"""Times that Python has no object for: an error names the column wherever rows become objects."""

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidInputError

SCHEMA = pa.schema([("n", pa.int64()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))])
DAY_AFTER_9999, MICROSECOND_BEFORE_1 = 2_932_897, -62_135_596_800_000_001


@pytest.fixture
def lake(tmp_path):
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    day = pa.array([DAY_AFTER_9999, 0], pa.int32()).cast(pa.date32())
    at = pa.array([0, MICROSECOND_BEFORE_1], pa.int64()).cast(SCHEMA.field("at").type)
    far = lake.create("far", lakebed.DatasetDescriptor(schema=SCHEMA))
    far.append(pa.table([pa.array([1, 2]), day, at], schema=SCHEMA))
    return lake


def test_far_time_is_an_error_that_names_its_column_where_rows_become_objects(lake):
    far = lake.open("far")

    with pytest.raises(InvalidInputError, match="'day' holds a date or time outside the years"):
        far.pandas()
    with pytest.raises(InvalidInputError, match="'day' holds"):
        list(far.where("n = 1").kite.reader())
    with pytest.raises(InvalidInputError, match="'at' holds"):
        list(far.where("n = 2").kite.reader())


def test_far_time_is_read_where_rows_stay_columns(lake):
    far = lake.open("far")

    assert far.arrow().num_rows == far.polars().height == 2
    assert far.pandas(["n", "at"])["n"].tolist() == [1, 2]  # pandas counts microseconds, too
    told = lake.sql("SELECT day::VARCHAR AS day FROM far WHERE day > '9999-12-31'")
    assert told.to_pylist() == [{"day": "10000-01-01"}]

"""Tables and files that other projects test with: the same rows as their own readers, or a refusal.

Folders of them are given by `LAKEBED_CORPUS`, separated by colons: Delta tables (such as Delta's
golden tables, and those of delta-rs) and Parquet files (such as parquet-testing).
"""

import datetime as dt
import math
import os
import shutil
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

import lakebed
from lakebed.errors import LakebedError

CORPUS = [Path(folder) for folder in os.environ.get("LAKEBED_CORPUS", "").split(":") if folder]
TABLES = sorted({log.parent.parent for folder in CORPUS for log in folder.rglob("_delta_log/*")})
FILES = sorted(
    path
    for folder in CORPUS
    for path in folder.rglob("*.parquet")
    if not any(table in path.parents for table in TABLES)
)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not CORPUS, reason="LAKEBED_CORPUS names no folder"),
]


def plain(value: object) -> object:
    """Return a value in a form in which both readers agree on equal values."""
    match value:
        case dt.datetime() if value.tzinfo is not None:
            return value.astimezone(dt.UTC).replace(tzinfo=None)
        case float() if math.isnan(value):
            return "NaN"
        case uuid.UUID():
            return str(value)
        case dict():
            return {name: plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
    return value


def timeless(kind: pa.DataType) -> pa.DataType:
    """Return a type with numbers instead of times in microseconds, some of which Python lacks."""
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(timeless(field.type)) for field in kind])
    return kind


def rows_of(table: pa.Table) -> list[str]:
    times = [field.with_type(timeless(field.type)) for field in table.schema]
    rows = table.cast(pa.schema(times)).to_pylist()
    return sorted(repr(sorted((name, plain(value)) for name, value in row.items())) for row in rows)


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    return lakebed.open_repository(tmp_path / "lake")


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_delta_table_is_adopted_with_its_rows_or_refused(lake, tmp_path, table) -> None:
    shutil.copytree(table, tmp_path / "lake/t")
    try:
        adopted = lake.adopt("t", delta=True)
    except LakebedError:
        return
    rows = adopted.arrow()
    assert [one for one in adopted.check(deep=True).findings if one.severity != "note"] == []
    try:
        judged = DeltaTable(tmp_path / "lake/t").to_pyarrow_table()
    except (DeltaError, pa.ArrowException):
        return
    assert rows_of(rows) == rows_of(judged)


@pytest.mark.parametrize("way", ["adopt", "load"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_parquet_file_is_read_with_its_rows_or_refused(lake, tmp_path, path, way) -> None:
    (tmp_path / "lake/t").mkdir(parents=True)
    copy = tmp_path / "lake/t/a.parquet"
    shutil.copy(path, copy)
    try:
        if way == "adopt":
            dataset = lake.adopt("t")
        else:
            dataset = lake.create("loaded", lakebed.infer_schema(copy))
            dataset.load(copy, options=lakebed.LoadOptions(fail_on_rejects=True))
        rows = dataset.arrow()
    except LakebedError:
        return
    judged = pq.ParquetFile(copy, coerce_int96_timestamp_unit="us").read()
    assert rows_of(rows) == rows_of(judged)

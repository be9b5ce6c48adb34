"""Offsets of a streaming source, as Spark asks for them."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import lakebed
from lakebed.datasource.stream_source import LakebedStreamReader
from lakebed.errors import CommitConflictError, VersionNotFoundError

limits = pytest.importorskip("pyspark.sql.streaming.datasource")
SCHEMA = StructType([StructField("n", LongType())])


def create(directory: Path, commit_count: int) -> lakebed.Dataset:
    schema = pa.schema([("n", pa.int64())])
    numbers = lakebed.open_repository(directory).create("numbers", schema)
    for n in range(commit_count):
        numbers.append([{"n": n}])
    return numbers


def reader(directory: Path) -> LakebedStreamReader:
    return LakebedStreamReader({"path": f"{directory}/numbers"}, SCHEMA)


@pytest.mark.parametrize("commit_count", [0, 1, 4, 5, 6, 9])
@pytest.mark.parametrize("is_pinned", [False, True])
def test_dataset_that_was_created_again_ends_the_query_whatever_its_version_is(
    tmp_path: Path, commit_count: int, is_pinned: bool
) -> None:
    create(tmp_path, 5)
    offset = reader(tmp_path).reportLatestOffset()
    lakebed.open_repository(tmp_path).drop("numbers")
    create(tmp_path, commit_count)
    stream = reader(tmp_path)
    if is_pinned:
        stream.prepareForTriggerAvailableNow()

    with pytest.raises(CommitConflictError, match="was dropped and created again since the stream"):
        stream.latestOffset(offset, limits.ReadAllAvailable())


def test_older_copy_that_was_restored_ends_the_query(tmp_path: Path) -> None:
    numbers = create(tmp_path / "lake", 2)
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    numbers.append([{"n": 7}])
    offset = reader(tmp_path / "lake").reportLatestOffset()

    with pytest.raises(VersionNotFoundError, match="An older copy of the dataset was restored"):
        reader(tmp_path / "copy").latestOffset(offset, limits.ReadAllAvailable())


def test_query_that_has_read_everything_waits(tmp_path: Path) -> None:
    create(tmp_path, 2)
    offset = reader(tmp_path).reportLatestOffset()

    assert reader(tmp_path).latestOffset(offset, limits.ReadAllAvailable()) == offset

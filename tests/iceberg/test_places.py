"""What an Iceberg table calls the repository, and a dataset that has moved."""

import shutil

import pyarrow as pa
import pytest
from table_doors import DELTA, ICEBERG, assert_shows

import lakebed
from lakebed.errors import InvalidInputError
from lakebed.store.posix import PosixStore

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])


@pytest.fixture
def days(tmp_path):
    lake = lakebed.Repository(PosixStore(tmp_path / "lake", durable=False))
    return lake.create("days", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p"))


def test_files_are_named_as_readers_spell_the_repository_from_then_on(days, tmp_path):
    days.append([{"p": "a", "n": 1}])
    (tmp_path / "mnt").symlink_to(tmp_path / "lake")
    spelled = f"file://{tmp_path}/mnt"
    days.publish("iceberg", root=spelled)
    days.overwrite([{"p": "a", "n": 2}])
    days.publish("iceberg")

    assert_shows(ICEBERG, days)
    from pyiceberg.table import StaticTable

    (task,) = StaticTable.from_metadata(str(tmp_path / "lake/days/iceberg")).scan().plan_files()
    assert task.file.file_path.startswith(spelled)
    with pytest.raises(InvalidInputError, match="names its files in") as info:
        days.publish("iceberg", root="s3://elsewhere")
    assert "Unpublish" in info.value.hint


def test_dataset_that_has_moved_is_published_anew_in_iceberg_and_goes_on_in_delta(days, tmp_path):
    days.append([{"p": "a", "n": 1}])
    days.publish("delta")
    days.publish("iceberg")
    shutil.move(tmp_path / "lake", tmp_path / "moved")
    moved = lakebed.open_repository(str(tmp_path / "moved")).open("days")
    moved.append([{"p": "b", "n": 2}])

    assert moved.publish("delta").added_count == 1
    assert_shows(DELTA, moved)
    with pytest.raises(InvalidInputError, match="was published when the dataset was at"):
        moved.publish("iceberg")
    moved.unpublish("iceberg")
    moved.publish("iceberg")
    assert_shows(ICEBERG, moved)

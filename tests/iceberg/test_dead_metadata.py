"""What cleanups delete of Iceberg's metadata, and what a publisher may yet name."""

from pathlib import Path

import pyarrow as pa
import pytest
from inside import store_of
from table_doors import ICEBERG, assert_shows

import lakebed
from lakebed.store.posix import PosixStore
from lakebed.tables.iceberg import homes

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])


@pytest.fixture
def days(tmp_path):
    lake = lakebed.Repository(PosixStore(tmp_path, durable=False))
    return lake.create("days", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p"))


def test_cleanup_leaves_what_a_publisher_has_written_and_not_yet_committed(days, monkeypatch):
    """Without a retention, in the moment before the commit of a snapshot."""
    days.append([{"p": "a", "n": 1}])
    days.publish("iceberg")
    days.append([{"p": "b", "n": 2}])
    commit = homes.FilesBeside.commit

    def clean_up_before(self, *arguments):
        monkeypatch.setattr(homes.FilesBeside, "commit", commit)
        days.cleanup("0s", dry_run=False)
        return commit(self, *arguments)

    monkeypatch.setattr(homes.FilesBeside, "commit", clean_up_before)
    days.publish("iceberg")

    assert_shows(ICEBERG, days)


def test_hint_names_the_last_version_though_a_slow_publisher_writes_it_late(days):
    days.append([{"p": "a", "n": 1}])
    days.publish("iceberg")
    days.append([{"p": "b", "n": 2}])
    days.publish("iceberg")
    folder = Path(days.uri.removeprefix("file://")) / "iceberg" / "metadata"
    home = homes.FilesBeside(store_of(days), "days", store_of(days).uri)

    home._point_to(1)

    assert (folder / "version-hint.text").read_text() == "2"
    assert_shows(ICEBERG, days)

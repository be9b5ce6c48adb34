"""plateau beside the tables of other formats over the same files."""

import pyarrow as pa
import pytest
from table_doors import DELTA, ICEBERG, assert_shows

import lakebed

pytestmark = pytest.mark.interop


@pytest.fixture
def days(repository):
    properties = {"publish.delta": "true", "publish.iceberg": "true"}
    schema = pa.schema([("p", pa.string()), ("id", pa.int64())])
    days = repository.create(
        "days", lakebed.DatasetDescriptor(schema=schema, partition_by="p", properties=properties)
    )
    for batch in range(3):
        days.overwrite([{"p": "a", "id": batch}, {"p": "b", "id": batch + 10}])
    return days


def test_plateau_reads_a_dataset_that_is_published(plateau, days, tmp_path):
    assert plateau.ids(tmp_path, "days") == [2, 12]


def test_what_plateau_has_changed_is_published(plateau, days, tmp_path):
    plateau.update(tmp_path, "days", rows=[{"p": "c", "id": 20, "batch_id": 1}])
    assert sorted(days.arrow()["id"].to_pylist()) == [2, 12, 20]

    for door in (DELTA, ICEBERG):
        door.publish(days)
        assert_shows(door, days)
        assert door.publish(days, check=True).was_in_step


def test_its_garbage_collector_takes_the_delta_log_and_the_next_publication_makes_it_anew(
    plateau, days, tmp_path
):
    plateau.collect_garbage(tmp_path, "days")

    assert not list((tmp_path / "days" / "data" / "_delta_log").glob("*"))
    assert_shows(ICEBERG, days)
    assert days.publish("delta").created
    assert_shows(DELTA, days)

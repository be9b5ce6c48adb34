"""Tables and heads that were copied, or restored: a publication does not go on from another state."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from heads import head_key
from inside import store_of
from table_doors import DELTA, DOORS, assert_shows

import lakebed
from lakebed.errors import InvalidInputError
from lakebed.store.posix import PosixStore

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])


@pytest.fixture(params=DOORS, ids=str)
def door(request):
    return request.param


@pytest.fixture
def root(tmp_path):
    return tmp_path / "lake"


@pytest.fixture
def days(root):
    lake = lakebed.Repository(PosixStore(root, durable=False))
    return lake.create("days", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p"))


def rows(n: int, *partitions: str) -> list[dict]:
    return [{"p": p, "n": n} for p in partitions]


def reopened(root: Path) -> lakebed.Dataset:
    return lakebed.Repository(PosixStore(root, durable=False)).open("days")


@pytest.mark.parametrize("commits", [1, 2])
def test_head_that_was_restored_is_another_version_though_its_number_is_shown(
    door, days, root, commits
):
    """The head of a backup, and as many commits since as the table knows, or more."""
    days.append(rows(1, "a"))
    door.publish(days)
    shutil.copytree(root, root.with_name("backup"))
    days.append(rows(2, "a", "b"))
    door.publish(days)
    head = head_key("days")
    shutil.copy(root.with_name("backup") / head, root / head)
    restored = reopened(root)
    for number in range(commits):
        restored.append(rows(10 + number, "c"))

    assert not door.publish(restored, check=True).was_in_step
    done = door.publish(restored)

    assert (done.removed_count, done.added_count) == (2, commits)
    assert_shows(door, restored)
    assert door.publish(restored, check=True).was_in_step


def test_dataset_that_was_copied_while_it_was_published_goes_on_with_its_own_files(days, root):
    """The copy has a log that is a commit ahead of its head."""
    days.append(rows(1, "a"))
    days.publish("delta")
    copy = root.with_name("copy")
    shutil.copytree(root, copy)
    days.append(rows(2, "b"))
    days.publish("delta")
    shutil.copytree(root / "days" / DELTA.folder, copy / "days" / DELTA.folder, dirs_exist_ok=True)
    shutil.copy(root / "days/published/delta.json", copy / "days/published/delta.json")
    copied = reopened(copy)

    assert not copied.publish("delta", check=True).is_in_step
    copied.append(rows(3, "c"))
    copied.publish("delta")

    assert_shows(DELTA, copied)
    assert_shows(DELTA, days)


def test_copied_dataset_is_a_delta_table_of_its_own_and_its_iceberg_table_is_refused(days, root):
    days.append(rows(1, "a"))
    for door in DOORS:
        door.publish(days)
    copy = root.with_name("copy")
    shutil.copytree(root, copy)
    copied = reopened(copy)
    copied.append(rows(2, "b"))

    assert copied.publish("delta").added_count == 1
    with pytest.raises(InvalidInputError, match="was published when the dataset was at"):
        copied.publish("iceberg")
    copied.unpublish("iceberg")
    copied.publish("iceberg")

    for door in DOORS:
        assert_shows(door, copied)
        assert_shows(door, days)


def test_log_of_another_dataset_is_taken_for_no_own(days, root):
    other = lakebed.Repository(store_of(days)).create("other", days.descriptor)
    for n, dataset in enumerate((days, other)):
        dataset.append(rows(n, "a"))
        dataset.publish("delta")
        dataset.append(rows(n + 5, "b"))
        dataset.publish("delta")
    shutil.rmtree(root / "days" / DELTA.folder)
    shutil.copytree(root / "other" / DELTA.folder, root / "days" / DELTA.folder)

    assert not days.publish("delta", check=True).is_in_step
    days.publish("delta")

    assert_shows(DELTA, days)

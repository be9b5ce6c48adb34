"""A dataset published to Kartothek: a head under a name of its own, which Lakebed leaves alone."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from inside import store_of
from state.test_tree_commits import ACTS, OFTEN, described, made, rows
from tree_copies import shrink
from upkeep_lake import age, sweep

import lakebed
from lakebed import Dataset
from lakebed.errors import AlreadyExistsError, InvalidInputError, ReadOnlyError, StorageError
from lakebed.model.layout import schema_key
from lakebed.state import kartothek
from lakebed.state.head import HeadDocument, HeadFormat, decode_head, encode_head, read_entries
from lakebed.state.published import PublishedTable
from lakebed.store import Store
from lakebed.testing import FailingStore

NAME = "d-kartothek"
KEY = HeadFormat.MSGPACK.key(NAME)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


@pytest.fixture(params=["document", "tree"])
def days(request: pytest.FixtureRequest, tmp_path: Path) -> Dataset:
    dataset = lakebed.open_repository(tmp_path).create("d", described(), head=request.param)
    for number in range(5):
        dataset.append(rows(random.Random(number), 9))
    return dataset


def head_in(store: Store) -> HeadDocument:
    return decode_head(store.get(KEY).data, HeadFormat.MSGPACK, KEY)


def named(dataset: Dataset) -> set[str]:
    """Return the keys that the published head names."""
    entries = read_entries(head_in(store_of(dataset)), KEY)
    assert entries is not None
    return {key for entry in entries.values() for key in entry.files.values()}


def keys_of(dataset: Dataset) -> set[str]:
    return {file.key for file in dataset.files()}


def shown(dataset: Dataset) -> PublishedTable:
    (table,) = dataset.inspect.publications()
    return table


def test_published_head_follows_a_random_history(days: Dataset) -> None:
    rng = random.Random(7)
    for _ in range(12):
        made(ACTS[rng.choice([*ACTS, *OFTEN])], days, rng.random())
        done = days.publish("kartothek")
        assert named(days) == keys_of(days)
        assert done.added_count + done.unchanged_count == len(keys_of(days))
        assert head_in(store_of(days)).metadata["lakebed.published_version"] == str(days.version)
        descriptor = days.descriptor
        assert store_of(days).get(schema_key(NAME, "data")).data == kartothek.encode_schema(
            descriptor.schema, descriptor.partition_types
        )
    assert days.publish("kartothek").was_in_step
    assert days.publish("kartothek", check=True).was_in_step


def test_publication_is_stale_until_it_is_published_again(days: Dataset) -> None:
    days.publish("kartothek")
    assert str(shown(days)) == f"kartothek shows version {days.version}"

    days.append(rows(random.Random(1), 3))

    assert not shown(days).is_in_step
    assert not shown(days).is_stale  # no commit publishes to it
    days.publish("kartothek")
    assert shown(days).is_in_step


def test_dry_run_and_check_write_nothing(days: Dataset) -> None:
    before = {info.key: info.modified_at for info in store_of(days).list()}

    assert days.publish("kartothek", dry_run=True).added_count == len(keys_of(days))
    assert not days.publish("kartothek", check=True).was_in_step

    assert {info.key: info.modified_at for info in store_of(days).list()} == before


def test_lists_leave_the_publication_out(days: Dataset) -> None:
    lake = lakebed.Repository(store_of(days))
    days.publish("kartothek")

    assert lake.list() == ["d"]
    assert NAME not in lake
    lake.create("d-kartothek-kartothek", described())
    assert lake.list() == ["d", "d-kartothek-kartothek"]


VERBS = {
    "open": lambda lake: lake.open(NAME),
    "create": lambda lake: lake.create(NAME, described()),
    "create in JSON": lambda lake: lake.create(NAME, described(), head_format="json"),
    "adopt": lambda lake: lake.adopt(NAME, kartothek=True),
    "drop": lambda lake: lake.drop(NAME),
}


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_writes_into_the_publication(days: Dataset, verb: str) -> None:
    days.publish("kartothek")
    before = {info.key: info.modified_at for info in store_of(days).list()}

    with pytest.raises(ReadOnlyError, match="'d' as it was published to Kartothek"):
        VERBS[verb](lakebed.Repository(store_of(days)))

    assert {info.key: info.modified_at for info in store_of(days).list()} == before


def test_dataset_of_that_name_is_not_touched(days: Dataset) -> None:
    lake = lakebed.Repository(store_of(days))
    other = lake.create(NAME, described())
    before = {info.key: info.modified_at for info in store_of(days).list()}

    for call in (days.publish, days.unpublish):
        with pytest.raises(AlreadyExistsError, match=NAME):
            call("kartothek")

    assert {info.key: info.modified_at for info in store_of(days).list()} == before
    assert lake.list() == ["d", NAME]
    assert other.version == 0


def test_cleanup_keeps_the_files_that_the_publication_names(days: Dataset, tmp_path: Path) -> None:
    days.publish("kartothek")
    days.delete(days.where("id >= 0"))
    age(tmp_path, days=1)

    sweep(days)

    held = {info.key for info in store_of(days).list()}
    assert named(days) <= held
    assert {KEY, schema_key(NAME, "data")} <= held
    days.publish("kartothek")
    days.append(rows(random.Random(1), 3))
    age(tmp_path, days=1)
    assert named(days) == set()


def test_drop_drops_the_publication(days: Dataset) -> None:
    days.publish("kartothek")

    lakebed.Repository(store_of(days)).drop("d")

    assert list(store_of(days).list()) == []


def test_drop_leaves_a_dataset_of_that_name(days: Dataset) -> None:
    lake = lakebed.Repository(store_of(days))
    lake.create(NAME, described())

    lake.drop("d")

    assert lake.list() == [NAME]


def test_unpublished_dataset_can_be_published_again(days: Dataset) -> None:
    days.publish("kartothek")
    assert days.unpublish("kartothek", dry_run=True)
    assert KEY in {info.key for info in store_of(days).list()}

    assert days.unpublish("kartothek")

    assert not any(info.key.startswith(NAME) for info in store_of(days).list())
    assert not days.unpublish("kartothek")
    assert days.inspect.publications() == ()
    assert days.publish("kartothek").created
    assert named(days) == keys_of(days)


def test_damaged_head_is_written_again(days: Dataset) -> None:
    days.publish("kartothek")
    store_of(days).put(KEY, b"x")

    assert days.publish("kartothek", check=True).damaged
    days.publish("kartothek")

    assert named(days) == keys_of(days)


def test_list_of_files_that_others_changed_is_reverted_by_a_repair_only(days: Dataset) -> None:
    days.publish("kartothek")
    store = store_of(days)
    document = decode_head(store.get(KEY).data, HeadFormat.MSGPACK, KEY)
    document.partitions = None
    store.put(KEY, encode_head(document, HeadFormat.MSGPACK))

    with pytest.raises(InvalidInputError, match="Others have written"):
        days.publish("kartothek")
    assert days.publish("kartothek", repair=True).foreign
    assert named(days) == keys_of(days)


def test_property_for_it_is_unknown(days: Dataset) -> None:
    with pytest.raises(InvalidInputError, match=r"publish\.kartothek"):
        lakebed.Repository(store_of(days)).create(
            "other",
            lakebed.DatasetDescriptor(
                schema=days.descriptor.schema, properties={"publish.kartothek": "true"}
            ),
        )


@pytest.mark.parametrize("landed", [False, True])
def test_failure_at_each_write_leaves_a_whole_version(days: Dataset, *, landed: bool) -> None:
    days.publish("kartothek")
    inner, failures = store_of(days), 0
    for operation in ("create", "replace", "put"):
        for number in range(1, 6):
            versions = [named(days)]
            days.append(rows(random.Random(number), 3))
            versions.append(keys_of(days))
            store = FailingStore(inner, fail_on=operation, nth=number, landed=landed)
            with contextlib.suppress(StorageError):
                lakebed.Repository(store).open("d").publish("kartothek")
            failures += store.has_failed
            assert named(days) in versions
            days.publish("kartothek")
            assert named(days) == versions[-1]
    assert failures >= 3

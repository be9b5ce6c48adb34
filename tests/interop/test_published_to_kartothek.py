"""plateau and kartothek read what a dataset is published as, of a document and of a tree."""

from __future__ import annotations

import shutil

import pytest
from shown_rows import as_pandas_sees, by_id
from specimens import columns_of

import lakebed
from lakebed.errors import InvalidInputError

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module", params=["document", "tree"])
def published(lake, request, tmp_path_factory):
    """A copy of a lake, with heads of one kind, published to Kartothek."""
    root = tmp_path_factory.mktemp("published") / "lake"
    shutil.copytree(lake, root)
    repository = lakebed.open_repository(root)
    for name in repository.list():
        dataset = repository.open(name)
        dataset.compact(head=request.param)
        dataset.publish("kartothek")
    return root


def test_plateau_reads_the_rows_and_judges_predicates(plateau, published, specimen):
    dataset = lakebed.open_repository(published).open(specimen.name)
    name = f"{specimen.name}-kartothek"
    expected = as_pandas_sees(
        dataset.arrow(columns_of(dataset)), dataset.descriptor.partition_types
    )

    assert by_id(plateau.read(published, name)) == by_id(expected)
    for dnf in specimen.predicates:
        wanted = sorted(dataset.where(dnf).arrow(["id"]).column("id").to_pylist())
        assert plateau.ids(published, name, dnf) == wanted, dnf


@pytest.fixture
def days(tmp_path):
    descriptor = lakebed.DatasetDescriptor(
        schema={
            "type": "record",
            "name": "day",
            "fields": [{"name": "day", "type": "string"}, {"name": "id", "type": "long"}],
        },
        partition_by="day",
    )
    dataset = lakebed.open_repository(tmp_path).create("days", descriptor, head="tree")
    for number in range(4):
        dataset.overwrite([{"day": day, "id": number} for day in "abc"])
    dataset.publish("kartothek")
    return dataset


def test_garbage_collection_of_plateau_finds_nothing_to_delete(plateau, days, tmp_path):
    before = {path for path in tmp_path.rglob("*") if path.is_file()}

    plateau.collect_garbage(tmp_path, "days-kartothek")

    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


def test_kartothek_reads_the_publication_of_a_tree(kartothek, days, tmp_path):
    assert kartothek.ids(tmp_path, "days-kartothek", [[("day", "==", "b")]]) == [3]


def test_what_plateau_writes_is_refused_by_the_next_publication_and_reverted_by_a_repair(
    plateau, days, tmp_path
):
    plateau.update(tmp_path, "days-kartothek", rows=[{"day": "d", "id": 9, "batch_id": 9}])
    days.append([{"day": "e", "id": 5}])

    with pytest.raises(InvalidInputError, match="Others have written"):
        days.publish("kartothek")
    assert days.publish("kartothek", repair=True).foreign

    assert plateau.ids(tmp_path, "days-kartothek") == [3, 3, 3, 5]
    assert days.publish("kartothek", check=True).was_in_step


def objects(root):
    """Every file of a directory, with its bytes."""
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("library", ["plateau", "kartothek"])
def test_tree_itself_is_refused_for_reading_and_for_writing(library, request, days, tmp_path):
    other = request.getfixturevalue(library)
    before = objects(tmp_path)

    for use in (
        lambda: other.read(tmp_path, "days"),
        lambda: other.ids(tmp_path, "days", [[("day", "==", "a")]]),
        lambda: other.update(tmp_path, "days", rows=[{"day": "a", "id": 9}]),
    ):
        with pytest.raises(other.Error, match="metadata version"):
            use()

    now = objects(tmp_path)
    assert {path: now.get(path) for path in before} == before
    assert sorted(days.arrow().column("id").to_pylist()) == [3, 3, 3]
    assert days.check().problems == ()

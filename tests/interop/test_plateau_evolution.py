"""What plateau sees of a dataset whose schema has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed import DatasetDescriptor

pytestmark = pytest.mark.interop

ID = {"name": "id", "type": "long"}
GONE = {"name": "gone", "type": ["null", "string"]}
ADDED = {"name": "added", "type": "string", "default": "none"}


def described(*fields: dict[str, Any]) -> DatasetDescriptor:
    return DatasetDescriptor(schema={"type": "record", "name": "r", "fields": list(fields)})


@pytest.fixture
def dataset(repository: lakebed.Repository) -> lakebed.Dataset:
    number = {"name": "n", "type": "int"}
    dataset = repository.create("d", described(ID, number, GONE))
    dataset.append([{"id": 1, "n": 1, "gone": "old"}])
    dataset.evolve(described(ID, number | {"type": "long"}, ADDED), base=dataset.version)
    dataset.append([{"id": 2, "n": 2**40, "added": "new"}])
    return dataset


def rows(plateau: Any, root: Path, **how: Any) -> list[dict[str, Any]]:
    found = plateau.read(root, "d", **how)
    return sorted(
        ({k: v for k, v in row.items() if k != "batch_id"} for row in found),
        key=lambda row: row["id"],
    )


def test_added_fields_are_null_in_old_files_and_dropped_ones_are_gone(
    plateau: Any, tmp_path: Path, dataset: lakebed.Dataset
) -> None:
    assert rows(plateau, tmp_path) == [
        {"id": 1, "n": 1, "added": None},
        {"id": 2, "n": 2**40, "added": "new"},
    ]
    assert plateau.ids(tmp_path, "d", [[("n", ">", 5)]]) == [2]


def test_a_field_that_was_dropped_and_added_again_shows_the_old_values(
    plateau: Any, tmp_path: Path, dataset: lakebed.Dataset
) -> None:
    dataset.evolve(described(ID, GONE), base=dataset.version)

    assert rows(plateau, tmp_path) == [{"id": 1, "gone": "old"}, {"id": 2, "gone": None}]
    assert dataset.arrow(["gone"]).column(0).to_pylist() == [None, None]


def test_naming_a_field_that_a_file_lacks_is_an_error_there(
    plateau: Any, tmp_path: Path, dataset: lakebed.Dataset
) -> None:
    with pytest.raises(plateau.Error):
        plateau.ids(tmp_path, "d", [[("added", "==", "new")]])
    with pytest.raises(plateau.Error):
        rows(plateau, tmp_path, columns=["id", "added"])


def test_a_renamed_field_has_its_first_name_there(
    plateau: Any, tmp_path: Path, repository: lakebed.Repository
) -> None:
    dataset = repository.create("d", described(ID, GONE))
    dataset.append([{"id": 1, "gone": "old"}])
    dataset.indices.build("gone")
    dataset.evolve(lambda known: known.rename_field("gone", "kept"))
    dataset.append([{"id": 2, "kept": "new"}])

    assert rows(plateau, tmp_path) == [{"id": 1, "gone": "old"}, {"id": 2, "gone": "new"}]
    assert plateau.ids(tmp_path, "d", [[("gone", "==", "new")]]) == [2]

"""Datasets that plateau wrote and that Lakebed takes over, seen by both."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from killed_adoptions import adopt_and_die

import lakebed
from lakebed.errors import InvalidInputError

pytestmark = pytest.mark.interop

ROWS = [
    {
        "id": number,
        "p": "ab"[number % 2] + " ü%",
        "day": dt.date(2013, 1, 1 + number % 3),
        "s": number // 4,
        "v": None if number % 5 == 0 else number / 2,
    }
    for number in range(24)
]


@pytest.fixture
def theirs(plateau, tmp_path) -> Path:
    """A dataset of three commits of plateau, with indices, partitions and files that were deleted."""
    root = tmp_path / "theirs"
    root.mkdir()
    plateau.store(root, "d", rows=ROWS[:8], partition_on=["p", "day"], secondary_indices=["s"])
    plateau.update(root, "d", rows=ROWS[8:16])
    plateau.update(root, "d", rows=ROWS[16:], delete_scope=[{"day": dt.date(2013, 1, 2)}])
    return root


def _ids(rows):
    return sorted(row["id"] for row in rows)


def _kept():
    gone = dt.date(2013, 1, 2)
    return [row for row in ROWS if row["day"] != gone or row["id"] >= 16]


def test_rows_read_equal_and_the_index_finds_the_same_files(plateau, theirs):
    known = plateau.ids(theirs, "d", [[("s", "==", 5)]])
    repository = lakebed.open_repository(theirs)

    taken = repository.adopt("d", kartothek=True)

    columns = ["id", "p", "day", "s", "v"]
    assert sorted(taken.arrow(columns).to_pylist(), key=lambda row: row["id"]) == _kept()
    found = taken.where("s = 5")
    assert _ids(found.arrow(["id"]).to_pylist()) == known
    assert found.plan().explain().indices == {"s": 1}
    assert len(found.plan()) < len(taken.files())


def test_plateau_reads_a_source_whose_adoption_was_killed(plateau, theirs, tmp_path):
    killed = adopt_and_die(theirs, "d", tmp_path / "killed")

    versions = []
    for root in killed:
        versions.append(lakebed.open_repository(root)["d"].version)
        if versions[-1] == 0:
            assert plateau.ids(root, "d") == _ids(_kept())
            assert plateau.ids(root, "d", [[("s", "==", 5)]]) == [20, 21, 22, 23]
            plateau.update(root, "d", rows=[{**ROWS[0], "id": 99}])
            assert plateau.ids(root, "d") == [*_ids(_kept()), 99]
            taken = lakebed.open_repository(root).adopt("d", kartothek=True)
            assert _ids(taken.arrow(["id"]).to_pylist()) == [*_ids(_kept()), 99]
    assert {0, 1} == set(versions)


def test_plateau_reads_what_was_adopted_and_by_partitions_once_it_is_gathered(plateau, theirs):
    key = [[("p", "==", ROWS[0]["p"])]]
    of_key = [row["id"] for row in _kept() if row["p"] == ROWS[0]["p"]]
    taken = lakebed.open_repository(theirs).adopt("d", kartothek=True)
    assert plateau.ids(theirs, "d", key) == of_key
    assert plateau.ids(theirs, "d", [[("s", "==", 5)]]) == [20, 21, 22, 23]

    taken.append([{**ROWS[0], "id": 99, "s": 5}])
    assert plateau.ids(theirs, "d") == [*_ids(_kept()), 99]
    assert plateau.ids(theirs, "d", [[("s", "==", 5)]]) == [20, 21, 22, 23, 99]
    with pytest.raises(plateau.Error, match="Depth of filename indices is not equal"):
        plateau.ids(theirs, "d", key)

    taken.compact(gather=True)
    assert plateau.ids(theirs, "d") == [*_ids(_kept()), 99]
    assert plateau.ids(theirs, "d", key) == [*of_key, 99]
    assert plateau.indices(theirs, "d") == ["s"]
    assert plateau.ids(theirs, "d", [[("s", "==", 5)]]) == [20, 21, 22, 23, 99]


def test_head_without_partitions_is_adopted_once_plateau_names_them(plateau, theirs):
    import json

    head = theirs / "d.by-dataset-metadata.json"
    document = json.loads(head.read_text())
    del document["partitions"], document["indices"]
    head.write_text(json.dumps(document))
    for path in sorted((theirs / "d" / "indices").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    repository = lakebed.open_repository(theirs)
    known = plateau.ids(theirs, "d")
    with pytest.raises(InvalidInputError, match="does not name the files") as caught:
        repository.adopt("d", kartothek=True)
    assert "Let plateau commit to it once" in caught.value.hint

    plateau.update(theirs, "d", rows=[{**ROWS[0], "id": 99}])

    assert _ids(repository.adopt("d", kartothek=True).arrow(["id"]).to_pylist()) == [*known, 99]

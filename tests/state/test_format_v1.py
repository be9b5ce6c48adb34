"""What release 0.1 has written opens for ever."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import VersionNotFoundError

DATA = Path(__file__).parents[1] / "data"
_script = runpy.run_path(str(DATA / "make_format_v1.py"))
FIRST, SECOND, THIRD = _script["FIRST"], _script["SECOND"], _script["THIRD"]
UA, NULL = FIRST[:4], FIRST[4:]


@pytest.fixture(params=["flights", "flights_packed"])
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> lakebed.Dataset:
    shutil.copytree(DATA / "format-v1", tmp_path / "lake")
    return lakebed.open_repository(tmp_path / "lake").open(request.param)


def sorted_rows(rows: Any) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["time_hour"], str(row["fare"])))


def test_every_version_reads_as_it_was_written(dataset: lakebed.Dataset) -> None:
    expected = {0: [], 1: FIRST, 2: [*SECOND, *NULL], 3: [*SECOND, *NULL, *THIRD]}

    for version, rows in expected.items():
        assert sorted_rows(dataset.at(version=version).kite.reader()) == sorted_rows(rows)
    assert sorted_rows(dataset.kite.reader()) == sorted_rows(expected[3])
    with pytest.raises(VersionNotFoundError):
        dataset.at(version=4)


def test_metadata_is_told_as_it_was(dataset: lakebed.Dataset) -> None:
    history = dataset.history()

    assert dataset.version == 3
    assert dataset.descriptor == _script["DESCRIPTOR"]
    assert [one.operation for one in history] == ["create", "append", "overwrite", "append"]
    assert [one.row_count for one in history] == [0, 8, 2, 3]
    assert history[1].run == "first"
    partitions = {one.path: (one.file_count, one.row_count) for one in dataset.inspect.partitions()}
    assert partitions == {
        "dt=2013-01-01/carrier=UA": (1, 2),
        "dt=2013-01-02/carrier=__HIVE_DEFAULT_PARTITION__": (2, 7),
    }


def test_predicates_prune_it(dataset: lakebed.Dataset) -> None:
    view = dataset.where("carrier = 'UA' AND time_hour < '2013-01-02'")

    assert view.count() == 2
    assert view.plan().explain().kept == 1
    assert dataset.where("carrier IS NULL AND delay >= 30").count() == 2


@pytest.mark.thorough
def test_it_takes_the_next_commits(dataset: lakebed.Dataset) -> None:
    for _ in range(20):  # enough that segments of then and now merge
        dataset.append(SECOND)
    dataset.overwrite(THIRD)

    assert dataset.version == 24
    assert dataset.where("carrier IS NULL").count() == 3
    assert dataset.count() == 2 + 20 * 2 + 3
    assert sorted_rows(dataset.at(version=1).kite.reader()) == sorted_rows(FIRST)
    assert all(file.row_count for file in dataset.files())

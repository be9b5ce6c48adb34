"""A drop whose process ends between any two of its deletions."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from collections.abc import Sequence

import pyarrow as pa
import pytest
import time_machine
from upkeep_lake import Killed

import lakebed
from lakebed.errors import DatasetNotFoundError
from lakebed.store.base import Store
from lakebed.testing import DelegatingStore


class OneByOne(DelegatingStore):
    """Deletes objects one after the other, and ends at the nth."""

    def __init__(self, inner: Store, left: int) -> None:
        super().__init__(inner)
        self._left = left

    def _delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._step()
            super()._delete([key])

    def _delete_if_match(self, key: str, etag: str) -> bool:
        self._step()
        return super()._delete_if_match(key, etag)

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Killed


def fill(lake: lakebed.Repository, tag: str) -> lakebed.Dataset:
    rows = pa.table({"p": ["a", "b"], "n": [1, 2], "tag": [tag] * 2})
    lake.write("d", rows, partition_by="p", index=["n"], run="one")
    dataset = lake["d"]
    dataset.rerun(rows, run="one")
    dataset.append(rows.slice(1), run="two")
    dataset.delete("p = 'a'")
    return dataset


def tags(dataset: lakebed.Dataset) -> list[str]:
    return dataset.arrow()["tag"].to_pylist()


def test_what_a_cut_drop_leaves_hinders_no_namesake_and_goes_with_its_cleanup() -> None:
    for deletions in itertools.count():
        lake = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
        fill(lake, "old")
        cut = True
        try:
            lakebed.Repository(OneByOne(lake.store, deletions)).drop("d")
            cut = False
        except Killed:
            pass
        left = {info.key for info in lake.store.list()}
        if lake.exists("d"):
            assert deletions == 0
            assert tags(lake["d"]) == ["old"] * 2
            continue
        if left:
            with pytest.raises(DatasetNotFoundError) as failure:
                lake.drop("d")
            (note,) = failure.value.__notes__
            assert "are left under 'd/'" in note
        assert not lake.drop("d", if_missing="ignore")

        namesake = fill(lake, "new")
        with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(days=40)):
            namesake.cleanup("30d", dry_run=False)
            assert namesake.check().is_ok
        assert tags(namesake) == ["new"] * 2
        shared = {"d/data/_common_metadata"}  # a file of both
        assert left & {info.key for info in lake.store.list()} <= shared

        if not cut:
            assert left == set()
            break
    assert deletions > 20

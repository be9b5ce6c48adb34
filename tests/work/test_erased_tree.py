"""Erasure on trees, where it differs: leaves of large commits, folds beside it, and old facts."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from inside import state_of
from planted import MARK, found_in, key
from tree_copies import check_order, shrink

import lakebed
from lakebed import Dataset, DatasetDescriptor
from lakebed.errors import DamagedFileError, VersionNotFoundError
from lakebed.repository import Repository
from lakebed.state.reader import read_head
from lakebed.state.tree.tree_files import TreeFiles
from lakebed.state.tree.tree_root import Root
from lakebed.store.base import Store
from lakebed.testing.stores import DelegatingStore

FIELDS = [{"name": name, "type": "string"} for name in ("day", "user")]
DESCRIPTOR = DatasetDescriptor(
    schema={"type": "record", "name": "visits", "fields": FIELDS}, partition_by="day"
)
PLANTED = [key(number) for number in range(9)]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


@pytest.fixture
def lake(tmp_path: Path) -> Repository:
    return lakebed.open_repository(str(tmp_path / "lake"))


def day(number: int, *users: str) -> list[dict[str, str]]:
    return [{"day": f"d{number}", "user": user} for user in users]


def root_of(store: Store) -> Root:
    live = read_head(store, "visits").state.live
    assert isinstance(live, TreeFiles)
    return live.root


def grown(lake: Repository) -> Dataset:
    """Return a dataset with leaves of large commits, removed positions, merges, and a full buffer."""
    visits = lake.create("visits", DESCRIPTOR, head="tree")
    for number in range(3):
        visits.append([row for at in range(8) for row in day(at, "bob", PLANTED[number])])
        visits.append(day(number, f"u{number}", PLANTED[3 + number]))
    visits.where("day IN ('d0', 'd1', 'd2')").delete()
    visits.append(day(1, "cyd", PLANTED[6]))
    visits.overwrite(day(5, "eve", PLANTED[7]))
    visits.rollback(version=7)
    visits.append(day(9, "fay"))
    return visits


def versions_of(visits: Dataset) -> dict[int, list[str]]:
    found = {}
    for version in range(visits.version + 1):
        with contextlib.suppress(VersionNotFoundError):
            rows = map(str, visits.at(version=version).arrow().to_pylist())
            found[version] = sorted(row for row in rows if MARK not in row)
    return found


def erase(visits: Dataset) -> lakebed.Erasure:
    return visits.erase({"user": PLANTED}, reason="request 17", grace="0s")


def test_leaves_of_large_commits_and_removed_positions_lose_the_rows(
    lake: Repository, tmp_path: Path
) -> None:
    visits = grown(lake)
    entries = [one.entry for one in root_of(lake.store).buffer]
    before = versions_of(visits)
    assert {folder.split("/")[1] for folder in found_in(tmp_path / "lake")} >= {"history", "leaves"}

    done = erase(visits)

    assert done.is_finished, (done.left, entries)
    assert found_in(tmp_path / "lake") == []
    now = versions_of(visits)
    assert {version: now[version] for version in before} == before
    assert not visits.check(deep=True).findings


def test_leaves_of_a_run_follow_each_other_after_an_erasure(lake: Repository) -> None:
    visits = lake.create("visits", DESCRIPTOR, head="tree")
    visits.append([row for at in range(30) for row in day(at, "bob", PLANTED[at % 3])])
    visits.append(day(31, "cyd", PLANTED[0]))
    version, refs = visits.version, root_of(lake.store).refs

    erase(visits)

    for then in (visits, visits.at(version=version)):
        live = state_of(then).live
        assert isinstance(live, TreeFiles)
        assert {ref.id for ref in live.root.refs}.isdisjoint(ref.id for ref in refs)
        assert check_order(live) > 2


def test_facts_of_files_that_a_cleanup_gave_up_are_left_out(
    lake: Repository, tmp_path: Path
) -> None:
    visits = grown(lake)
    visits.overwrite(day(1, "gus"))
    visits.cleanup("0s", dry_run=False)
    visits.append(day(2, PLANTED[8]))
    assert found_in(tmp_path / "lake")
    before = versions_of(visits)

    assert erase(visits).is_finished

    assert found_in(tmp_path / "lake") == []
    now = versions_of(visits)
    assert {version: now[version] for version in before} == before
    assert not visits.check(deep=True).findings
    assert not erase(visits).versions


def test_fold_beside_an_erasure_brings_no_leaf_back(lake: Repository, tmp_path: Path) -> None:
    visits = lake.create("visits", DESCRIPTOR, head="tree")
    for number in range(3):
        visits.append(day(number, "bob", PLANTED[number]))

    class Beside(DelegatingStore):
        swaps = 0

        def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
            if "by-dataset-metadata" in key:
                self.swaps += 1
                if self.swaps == 2:  # the first is that of the commit, the next that of its fold
                    erase(visits)
            return super()._replace(key, data, if_match=if_match)

    beside = Beside(lake.store)
    Repository(beside).open("visits").append(day(3, "dan", PLANTED[3]))

    assert beside.swaps >= 2
    assert MARK not in str(visits.arrow().to_pylist())
    done = erase(visits)
    assert done.is_finished, done.left
    assert found_in(tmp_path / "lake") == []
    assert sorted(visits.arrow().column("user").to_pylist()) == ["bob", "bob", "bob", "dan"]
    assert not visits.check(deep=True).findings


def test_marks_of_erased_files_leave_the_root_with_the_next_fold(lake: Repository) -> None:
    visits = lake.create("visits", DESCRIPTOR, head="tree")
    visits.append([row for at in range(20) for row in day(at, "bob", PLANTED[0])])

    erase(visits)

    assert not any(one.entry.erased for one in root_of(lake.store).buffer)
    assert any(one.operation == "erase" for one in visits.history())


def test_damaged_file_of_an_older_version_is_not_written_again(lake: Repository) -> None:
    visits = lake.create("visits", DESCRIPTOR, head="tree")
    visits.append([row for at in range(8) for row in day(at, "bob", PLANTED[0])])
    path = visits.files()[0].key
    visits.overwrite(day(1, "cyd"))
    data = bytearray(lake.store.get(path).data)
    data[data.rindex(b"LkbF")] ^= 1  # which no read but that of the whole file notices
    lake.store.put(path, bytes(data))

    before = {info.key for info in lake.store.list()}

    with pytest.raises(DamagedFileError, match="the checksum differs"):
        erase(visits)

    assert {info.key for info in lake.store.list()} == before


def test_document_again_after_an_erasure_has_the_same_versions(lake: Repository) -> None:
    visits = grown(lake)
    erase(visits)
    before = versions_of(visits)

    visits.compact(head="document")

    now = versions_of(visits)
    assert {version: now[version] for version in before} == before

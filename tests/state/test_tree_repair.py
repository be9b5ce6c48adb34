"""Repair of trees: lost and damaged objects come back exactly, or are named."""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from copies import copy_of
from inside import state_of
from tree_copies import check_order, shrink

import lakebed
from lakebed import Dataset
from lakebed.errors import CorruptMetadataError, VersionNotFoundError
from lakebed.state import history
from lakebed.state.reader import read_head
from lakebed.state.tree import folded_commits, leaf
from lakebed.state.tree.find import read_commits
from lakebed.state.tree.inline import InlineFacts
from lakebed.state.tree.older_version import read_copy
from lakebed.state.tree.tree_files import TreeFiles
from lakebed.state.tree.tree_objects import readable_copies
from lakebed.state.tree.tree_root import Buffered, HistoryRef, Ref, Root
from lakebed.store import Store, open_store
from lakebed.store.cache import PROCESS_CACHE
from lakebed.testing.stores import DelegatingStore

FIELDS = [
    {"name": "day", "type": "string"},
    {"name": "n", "type": "long"},
    {"name": "name", "type": "string"},
]
DESCRIPTOR = lakebed.DatasetDescriptor(
    schema={"type": "record", "name": "days", "fields": FIELDS}, partition_by="day"
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


def rows(number: int, *days: int) -> list[dict[str, object]]:
    return [{"day": f"d{day}", "n": 10 * number + day, "name": f"of {number}"} for day in days]


def folds_and_merges(d: Dataset) -> None:
    for number in range(26):
        d.append(rows(number, number % 5, (number + 1) % 5))


def removed_positions(d: Dataset) -> None:
    for number in range(14):
        d.append(rows(number, number % 5, (number + 1) % 5))
    d.where("day = 'd1'").delete()
    d.append(rows(20, 1, 2))
    d.where("day = 'd2'").overwrite(rows(21, 2))
    d.rollback(version=13)
    d.append(rows(22, 3))
    d.where("n = 3").delete()


def large_commits(d: Dataset) -> None:
    d.append(rows(1, *range(20)))
    for number in range(5):
        d.append(rows(number, number))
    d.append(rows(2, *range(10)))
    d.where("day IN ('d0', 'd1', 'd2', 'd3', 'd4', 'd5', 'd6')").delete()
    d.append(rows(9, 2, 9))
    d.overwrite(rows(3, *range(9)))
    d.append(rows(4, 1))


def was_a_document(d: Dataset) -> None:
    d.compact(head="document")
    for number in range(9):
        d.append(rows(number, number % 3, 3))
    d.where("day = 'd1'").delete()
    d.compact(head="tree")
    removed_positions(d)


def after_an_erasure(d: Dataset) -> None:
    removed_positions(d)
    d.erase({"n": [3, 31, 54]}, reason="request", grace="0s")
    d.append(rows(30, 1, 2))


HISTORIES: dict[str, Callable[[Dataset], None]] = {
    act.__name__: act
    for act in (
        folds_and_merges,
        removed_positions,
        large_commits,
        was_a_document,
        after_an_erasure,
    )
}


@functools.cache
def grown(name: str) -> Store:
    store = open_store(f"memory://repair-{name}")
    HISTORIES[name](lakebed.Repository(store).create("d", DESCRIPTOR, head="tree"))
    return store


def open_copy(name: str) -> tuple[Store, Dataset]:
    store = copy_of(grown(name))
    return store, lakebed.Repository(store).open("d")


def root_of(store: Store) -> Root:
    live = read_head(store, "d").state.live
    assert isinstance(live, TreeFiles)
    return live.root


def answers(d: Dataset) -> dict[int, object]:
    """Return rows, files and their sizes of all versions."""
    PROCESS_CACHE.clear()
    found: dict[int, object] = {}
    for version in range(d.version + 1):
        try:
            then = d.at(version=version)
            files = sorted((file.key, file.size_bytes, file.row_count) for file in then.files())
            found[version] = (sorted(map(str, then.arrow().to_pylist())), files)
        except VersionNotFoundError:
            continue
    found[-1] = [(commit.version, commit.operation, commit.run) for commit in d.history()]
    return found


@functools.cache
def answers_of(name: str) -> dict[int, object]:
    return answers(lakebed.Repository(grown(name)).open("d"))


def leaves_of(store: Store) -> dict[bytes, Ref]:
    """Return all leaves that the head, commits and copies of the head name."""
    state = read_head(store, "d").state
    root = root_of(store)
    commits = [*root.buffer, *(c for one in root.history for c in read_commits(store, "d", one))]
    refs = {ref.id: ref for one in commits for ref in (*one.entry.brought, *one.entry.dropped)}
    for version, key in readable_copies(state, root).items():
        refs |= {ref.id: ref for ref in read_copy(store, "d", version, key)[1].refs}
    return refs | {ref.id: ref for ref in root.refs}


def lose(store: Store, key: str) -> None:
    store.delete([key])


def flip(at: float) -> Callable[[Store, str], None]:
    def act(store: Store, key: str) -> None:
        data = bytearray(store.get(key).data)
        data[int(at * (len(data) - 1))] ^= 4
        store.put(key, bytes(data))

    return act


def cut(store: Store, key: str) -> None:
    store.put(key, bytes(store.get(key).data)[:-7])


def check_repaired(name: str, store: Store, d: Dataset, key: str) -> None:
    before = {info.key for info in store.list()}
    report = d.check(repair=True)
    assert report.is_ok, (name, key, report.findings)
    assert [one.key for one in report.findings if one.is_repaired] == [key]
    assert not d.check(deep=True).findings
    live = state_of(d).live
    assert isinstance(live, TreeFiles)
    check_order(live)
    known = answers_of(name)
    now = answers(d)
    assert {at: now[at] for at in known if at >= 0} == {at: known[at] for at in known if at >= 0}
    if d.version == max(known):
        assert now == known
        assert {info.key for info in store.list()} == before | {key}


@pytest.mark.parametrize("name", HISTORIES)
def test_each_lost_leaf_comes_back_exactly(name: str) -> None:
    exact = 0
    refs = leaves_of(grown(name))
    assert len(refs) >= 4
    for ref in refs.values():
        store, d = open_copy(name)
        version = d.version
        lose(store, ref.key("d"))
        check_repaired(name, store, d, ref.key("d"))
        exact += d.version == version
    # Facts of a large commit are computed from its files again: a commit names the new leaf.
    assert exact >= len(refs) // 3, (exact, len(refs))


@pytest.mark.thorough
@pytest.mark.parametrize("act", [flip(0.02), flip(0.2), flip(0.9), cut], ids=["P", "A", "B", "cut"])
@pytest.mark.parametrize("name", ["removed_positions", "large_commits"])
def test_each_damaged_leaf_comes_back_exactly(name: str, act: Callable[[Store, str], None]) -> None:
    for ref in leaves_of(grown(name)).values():
        store, d = open_copy(name)
        act(store, ref.key("d"))
        check_repaired(name, store, d, ref.key("d"))


def test_leaves_that_were_swapped_come_back() -> None:
    store, d = open_copy("large_commits")
    one, other = list(leaves_of(store).values())[:2]
    keys = [one.key("d"), other.key("d")]
    data = [bytes(store.get(key).data) for key in keys]
    for key, of_other in zip(keys, reversed(data), strict=True):
        store.put(key, of_other)

    report = d.check(repair=True)

    assert sorted(one.key for one in report.findings if one.is_repaired) == sorted(keys)
    assert [bytes(store.get(key).data) for key in keys] == data
    assert answers(d) == answers_of("large_commits")


@pytest.mark.parametrize("name", ["folds_and_merges", "large_commits"])
def test_reads_that_need_a_lost_leaf_fail_and_others_go_on(name: str) -> None:
    whole = lakebed.Repository(grown(name)).open("d").arrow().to_pylist()
    days = sorted({row["day"] for row in whole})
    spared = 0
    for ref in root_of(grown(name)).refs:
        store, d = open_copy(name)
        lose(store, ref.key("d"))
        PROCESS_CACHE.clear()
        with pytest.raises(CorruptMetadataError, match=ref.key("d")):
            d.arrow()
        (finding,) = d.check().findings
        assert (finding.key, finding.severity, finding.is_repaired) == (
            ref.key("d"),
            "error",
            False,
        )
        for day in days:
            wanted = sorted(str(row) for row in whole if row["day"] == day)
            of_day = d.where(f"day = '{day}'")
            if ref.low[0] <= f"day={day}" <= ref.high[0]:
                with pytest.raises(CorruptMetadataError, match=ref.key("d")):
                    of_day.arrow()
            else:
                assert sorted(map(str, of_day.arrow().to_pylist())) == wanted
                spared += 1
    assert spared > 5


@pytest.mark.parametrize("name", HISTORIES)
def test_each_lost_copy_of_the_head_is_derived(name: str) -> None:
    state = read_head(grown(name), "d").state
    copies = readable_copies(state, root_of(grown(name)))
    assert len(copies) >= 2
    for key in copies.values():
        store, d = open_copy(name)
        lose(store, key)
        report = d.check(repair=True)
        assert report.is_ok, report.findings
        assert [one.key for one in report.findings if one.is_repaired] == [key]
        assert answers(d) == answers_of(name)
        assert not d.check(deep=True).findings


def test_lost_segment_of_the_history_comes_from_those_it_was_made_of() -> None:
    for one in root_of(grown("folds_and_merges")).history:
        store, d = open_copy("folds_and_merges")
        commits = read_commits(store, "d", one)
        for part in (commits[:1], commits[1:]):
            weight = history.weight_of(each.entry for each in part)
            of_part = replace_ref(one, part, weight)
            store.put(of_part.key("d"), folded_commits.encode(part))
        lose(store, one.key("d"))

        report = d.check(repair=True)

        assert report.is_ok, report.findings
        found = read_commits(store, "d", one)
        assert list(map(without_time, found)) == list(map(without_time, commits))
        assert found[0].entry.stored_at is not None  # the last one of a part
        assert answers(d) == answers_of("folds_and_merges")


def without_time(one: Buffered) -> Buffered:
    """Return a commit as it was made; when the storage had it is that of the parts, written anew."""
    return Buffered(msgspec.structs.replace(one.entry, stored_at=None), one.facts)


def replace_ref(one: HistoryRef, part: Sequence[Buffered], weight: int) -> HistoryRef:
    versions = [each.entry.version for each in part]
    return HistoryRef(uuid.uuid4().bytes, weight, versions[0], versions[-1])


def test_segments_of_other_commits_are_refused() -> None:
    one = root_of(grown("removed_positions")).history[-1]
    store, d = open_copy("removed_positions")
    commits = list(read_commits(store, "d", one))
    removing = next(at for at, each in enumerate(commits) if each.entry.removed)
    entry = commits[removing].entry
    few = msgspec.structs.replace(entry, removed=(), added=(*entry.added, *entry.removed))
    weight = history.weight_of(each.entry for each in commits)
    facts = InlineFacts([1] * len(few.added), [9] * len(few.added), ["x"] * len(few.added))
    commits[removing] = Buffered(few, facts)
    assert history.weight_of(each.entry for each in commits) == weight
    store.put(replace_ref(one, commits, weight).key("d"), folded_commits.encode(commits))
    lose(store, one.key("d"))

    (finding,) = d.check(repair=True).problems

    assert "does not balance" in finding.remedy
    assert one.key("d") == finding.key


def test_lost_segment_of_the_history_that_nothing_has_is_named() -> None:
    for one in root_of(grown("folds_and_merges")).history:
        store, d = open_copy("folds_and_merges")
        rows_now = sorted(map(str, d.arrow().to_pylist()))
        lose(store, one.key("d"))

        (finding,) = d.check(repair=True).problems

        assert finding.key == one.key("d")
        assert f"Versions {one.first} to {one.last} cannot be read" in finding.remedy
        assert sorted(map(str, d.arrow().to_pylist())) == rows_now


def test_leaf_that_nothing_proves_is_named_and_nothing_is_written() -> None:
    store, d = open_copy("large_commits")
    ref = root_of(store).refs[0]
    folders = ("d/leaves/", "d/history/", "d/batches/", "d/data/", "d/roots/")
    lost = [info.key for folder in folders for info in store.list(folder)]
    for key in lost:
        if key.endswith((".zst", ".parquet")) or "/leaves/" in key or "/batches/" in key:
            lose(store, key)
    before = {info.key: store.get(info.key).etag for info in store.list()}

    problems = d.check(repair=True).problems

    (of_leaf,) = (one for one in problems if one.key == ref.key("d"))
    assert "It cannot be rebuilt" in of_leaf.remedy
    assert {info.key: store.get(info.key).etag for info in store.list()} == before


class _KilledError(BaseException):
    """The process is dead."""


class Mortal(DelegatingStore):
    """A store whose process dies at one of its writes."""

    def __init__(self, inner: Store, left: int) -> None:
        super().__init__(inner)
        self.left = left

    def _spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _KilledError

    def _put(self, key: str, data: memoryview) -> object:
        self._spend()
        return super()._put(key, data)

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        self._spend()
        return super()._replace(key, data, if_match=if_match)


def lost_in_another_form(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Store, str]]:
    """Yield copies with a lost leaf whose bytes cannot be made again, as by an older release."""
    refs = list(leaves_of(grown("removed_positions")).values())

    def write_table(table: pa.Table, sink: object, **options: object) -> None:
        pq.write_table(table, sink, **{**options, "compression": "none"})

    other = SimpleNamespace(write_table=write_table, ParquetFile=pq.ParquetFile)
    monkeypatch.setattr(leaf, "pq", other)
    for ref in refs:
        store, _ = open_copy("removed_positions")
        lose(store, ref.key("d"))
        yield store, ref.key("d")


def test_leaf_whose_bytes_differ_is_replaced_by_one_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for store, key in lost_in_another_form(monkeypatch):
        d = lakebed.Repository(store).open("d")
        version = d.version
        check_repaired("removed_positions", store, d, key)
        assert d.version == version + 1
        assert list(d.history())[-1].operation == "repair"


def test_repair_killed_at_each_write_is_done_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    (store, _key), *_ = lost_in_another_form(monkeypatch)
    for left in range(20):
        copied = copy_of(store)
        mortal = Mortal(copied, left)
        with contextlib.suppress(_KilledError):
            lakebed.Repository(mortal).open("d").check(repair=True)
        d = lakebed.Repository(copied).open("d")
        assert d.check(repair=True).is_ok
        known, now = answers_of("removed_positions"), answers(d)
        assert {at: now[at] for at in known if at >= 0} == {
            at: known[at] for at in known if at >= 0
        }
        if mortal.left >= 0:
            assert left > 2
            return
    raise AssertionError


def test_repair_beside_a_writer_and_its_fold_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for store, _ in lost_in_another_form(monkeypatch):
        other = lakebed.Repository(store).open("d")
        count = other.version

        class Beside(DelegatingStore):
            is_done = False

            def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
                if "by-dataset-metadata" in key and not self.is_done:
                    self.is_done = True
                    for number in range(4):
                        other.append(rows(90 + number, 9))  # noqa: B023 - called in this round
                return super()._replace(key, data, if_match=if_match)

        assert lakebed.Repository(Beside(store)).open("d").check(repair=True).is_ok
        known, now = answers_of("removed_positions"), answers(other)
        assert {at: now[at] for at in known if at >= 0} == {
            at: known[at] for at in known if at >= 0
        }
        assert other.version == count + 5
        assert other.where("day = 'd9'").count() == 4
        assert not other.check(deep=True).findings

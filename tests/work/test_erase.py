"""Erasure: planted keys leave every version, and nothing else changes."""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from erasing import BOB, NUMBERED, PERSON, WholeSeconds, erased_without_trace, gave_up
from planted import MARK, found_in, key
from tree_copies import shrink

import lakebed
from lakebed import Dataset, DatasetDescriptor
from lakebed.errors import (
    CommitConflictError,
    InvalidInputError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from lakebed.repository import Repository
from lakebed.store.base import Store
from lakebed.testing.stores import DelegatingStore

SCHEMA = pa.schema(
    [("day", pa.string()), ("user", pa.string()), ("n", pa.int64()), ("note", pa.string())]
)
DAYS = 4


def rows_of(number: int, users: list[str]) -> list[dict[str, Any]]:
    return [
        {"day": f"d{number % DAYS}", "user": user, "n": 100 * number + at, "note": f"of {user}"}
        for at, user in enumerate(users)
    ]


def others(dataset: Dataset, columns: list[str] | None = None) -> collections.Counter[str]:
    """Return the rows of a version that are not of a planted key."""
    rows = dataset.arrow(columns).to_pylist()
    return collections.Counter(str(row) for row in rows if MARK not in str(row))


def versions_of(dataset: Dataset) -> dict[int, collections.Counter[str]]:
    columns = [*dataset.schema.names, "batch_id"]
    found = {}
    for version in range(dataset.version + 1):
        try:
            state = dataset.at(version=version)
        except VersionNotFoundError:
            continue
        found[version] = others(
            state, [name for name in columns if name in (*state.schema.names, "batch_id")]
        )
    return found


PLANTED = [key(number) for number in range(100)]


def busy(lake: Repository, name: str = "visits", **options: Any) -> Dataset:
    """Return a dataset of many versions, made by many verbs, with planted keys in most of them."""
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by="day", index=["user"], **options)
    visits = lake.create(name, descriptor)
    for number in range(12):
        users = [f"u{number}", "bob", *PLANTED[number * 8 : number * 8 + 8]]
        visits.append(rows_of(number, users), run=f"r{number}")
    visits.delete(f"user = '{PLANTED[1]}'")
    visits.rerun(rows_of(3, ["bob", PLANTED[99]]), run="r3", replace_all=True)
    visits.where("user = 'bob'").update_rows({"n": "n + 1"})
    visits.merge([{"day": "d1", "user": PLANTED[8], "n": -1, "note": "merged"}], on=["day", "user"])
    visits.overwrite(rows_of(2, ["bob", "cyd", PLANTED[98]]))
    visits.compact()
    visits.rollback(version=13)
    visits.compact(metadata=True)
    return visits


@pytest.fixture(autouse=True, params=["document", "tree"])
def head(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run each test on heads of both kinds; a tree folds and merges every few commits."""
    if request.param == "tree":
        monkeypatch.setitem(Repository.create.__kwdefaults__, "head", "tree")
        shrink(monkeypatch)
    return str(request.param)


@pytest.fixture
def lake(tmp_path: Path, head: str) -> Repository:
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    return Repository(WholeSeconds(lake.store)) if head == "tree" else lake


def test_planted_keys_leave_every_version_and_every_byte(
    lake: Repository, tmp_path: Path, head: str
) -> None:
    visits = busy(lake)
    before = versions_of(visits)
    found = found_in(tmp_path / "lake")
    assert len(found) > 50
    of_trees = {one.split("/")[1] for one in found} & {"leaves", "history", "roots"}
    assert head == "document" or of_trees >= {"leaves", "history"}

    done = visits.erase({"user": PLANTED}, reason="request 17", grace="0s")

    assert done.is_finished, done.left
    assert found_in(tmp_path / "lake") == []
    after = versions_of(visits)
    assert {version: after[version] for version in before} == before
    assert all(
        not visits.at(version=v).where({"x": 1} and "contains(user, 'Zq7x')").count() for v in after
    )
    assert visits.check(deep=True).is_ok
    assert [place.place for place in done.places][:2] == ["current version", "older versions"]
    assert all(place.row_count and place.rewritten for place in done.places[:2])


def test_values_of_files_that_no_version_has_leave_indices_and_statistics(
    lake: Repository, tmp_path: Path
) -> None:
    visits = busy(lake)
    visits.delete("contains(user, 'Zq7x')")
    gave_up(visits)
    # No version that can be read has such a row, so a search of data files finds none.
    assert all(MARK not in str(visits.at(version=v).arrow()) for v in versions_of(visits))
    assert {one.split("/")[1] for one in found_in(tmp_path / "lake")} >= {"postings"}

    erased_without_trace(visits, {"user": PLANTED}, tmp_path / "lake")


@pytest.mark.parametrize("where", [{"user": key(7)}, {"uid": 7}], ids=["user", "uid"])
def test_samples_of_values_beyond_a_cap_are_cleared(
    lake: Repository, tmp_path: Path, where: dict[str, Any]
) -> None:
    capped = [lakebed.by.dimension("user", "*", cap=1)]
    visits = lake.create("visits", DatasetDescriptor(schema=NUMBERED, partition_by=capped))
    visits.append([BOB, PERSON])
    assert [one.values for one in visits.history()[-1].caught] == [(key(7),)]

    erased_without_trace(visits, where, tmp_path / "lake")

    (caught,) = visits.history()[1].caught
    assert str(caught) == "user_dimension: 1 row beyond 1 value"


def test_samples_of_versions_that_were_given_up_are_cleared(
    lake: Repository, tmp_path: Path
) -> None:
    capped = [lakebed.by.dimension("user", "*", cap=1)]
    visits = lake.create("visits", DatasetDescriptor(schema=NUMBERED, partition_by=capped))
    visits.append([BOB, PERSON])
    visits.delete("uid = 7")
    gave_up(visits)
    visits.compact(metadata=True)

    done = erased_without_trace(visits, {"uid": 7}, tmp_path / "lake")

    assert done.row_count == 0


@pytest.mark.parametrize("action", ["warn", "reject", "quarantine"])
def test_examples_of_failed_checks_are_cleared(
    lake: Repository, tmp_path: Path, action: Any
) -> None:
    known = lakebed.checks.condition("user = 'bob'", on_failure=action)
    descriptor = DatasetDescriptor(schema=NUMBERED, checks={"known": known})
    visits = lake.create("visits", descriptor)
    visits.append([BOB, PERSON])
    assert MARK in str(visits.history()[-1].checks[0].examples)

    erased_without_trace(visits, {"user": key(7)}, tmp_path / "lake")

    assert [(one.count, one.examples) for one in visits.history()[1].checks] == [(1, ())]


@pytest.mark.parametrize(
    ("allowed", "later"), [((1, 5), (1, 10)), ((1, 10), (1, 5))], ids=["more", "fewer"]
)
def test_rows_leave_versions_from_before_other_values_were_allowed(
    lake: Repository, tmp_path: Path, allowed: tuple[int, int], later: tuple[int, int]
) -> None:
    def of(ends: tuple[int, int]) -> dict[str, Any]:
        return {"uid": dict(zip(("min", "max"), ends, strict=True))}

    dimension = lakebed.by.dimension("uid", of(allowed)["uid"])
    visits = lake.create("visits", DatasetDescriptor(schema=NUMBERED, partition_by=[dimension]))
    visits.append([BOB, PERSON])
    visits.dimensions.promote(of(later), reroute=later < allowed)

    erased_without_trace(visits, {"uid": 7}, tmp_path / "lake")

    assert {visits.at(version=v).count() for v in range(1, visits.version + 1)} == {1}


@pytest.mark.parametrize("where", [{"user": key(7)}, {"uid": 7}], ids=["user", "uid"])
def test_a_staged_batch_takes_one_commit(
    lake: Repository, tmp_path: Path, where: dict[str, Any]
) -> None:
    visits = lake.create("visits", DatasetDescriptor(schema=NUMBERED, partition_by="user"))
    visits.append([BOB])
    visits.staged.add([BOB, PERSON])

    waiting = visits.erase(where, reason="request 17", grace="1h")
    assert not waiting.is_finished
    assert len(waiting.versions) == 1

    done = visits.erase(where, reason="request 17", grace="0s")
    assert done.is_finished, done.left
    assert len(done.versions) <= 1  # for what is deleted
    assert found_in(tmp_path / "lake") == []


def test_a_staged_batch_has_an_index_of_a_field_that_was_dropped(
    lake: Repository, tmp_path: Path
) -> None:
    visits = lake.create("visits", DatasetDescriptor(schema=SCHEMA, index=["note"]))
    visits.append(rows_of(1, ["bob"]))
    staged = visits.staged.add(rows_of(2, ["bob", key(1)]))
    visits.indices.drop("note")
    visits.evolve(lambda descriptor: descriptor.drop_field("note"))

    erased_without_trace(visits, {"user": key(1)}, tmp_path / "lake")

    visits.staged.open(staged.batch_id).commit()
    assert visits.count() == 2
    assert visits.check(deep=True).is_ok


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_that_was_published_in_the_second_of_the_erasure_begins_again(
    lake: Repository, tmp_path: Path, kind: Any
) -> None:
    visits = Repository(WholeSeconds(lake.store)).create("visits", NUMBERED)
    time.sleep(1.02 - time.time() % 1)  # all in one second
    visits.append([BOB, PERSON])
    visits.publish(kind)

    done = visits.erase({"user": key(7)}, reason="request 17", grace="0s")

    assert done.is_finished, done.left
    assert found_in(tmp_path / "lake") == []


@pytest.mark.parametrize("where", [{"user": key(7)}, {"uid": 7}], ids=["user", "uid"])
@pytest.mark.parametrize("fate", ["committed", "discarded", "given up"])
def test_names_of_directories_leave_manifests_and_logs(
    lake: Repository, tmp_path: Path, where: dict[str, Any], fate: str
) -> None:
    visits = lake.create("visits", DatasetDescriptor(schema=NUMBERED, partition_by="user"))
    visits.append([BOB])
    if fate == "given up":
        visits.append([PERSON, BOB])
        visits.delete("uid = 7")
        gave_up(visits)
    else:
        staged = visits.staged.add([BOB, PERSON])
        opened = visits.staged.open(staged.batch_id)
        opened.commit() if fate == "committed" else opened.discard()

    erased_without_trace(visits, where, tmp_path / "lake")


def test_values_are_gone_where_times_of_objects_are_whole_seconds(
    lake: Repository, tmp_path: Path
) -> None:
    visits = busy(Repository(WholeSeconds(lake.store)))

    erased_without_trace(visits, {"user": PLANTED}, tmp_path / "lake")


def test_second_call_finds_nothing_and_changes_no_version(lake: Repository) -> None:
    visits = busy(lake)
    visits.erase({"user": PLANTED}, reason="request 17", grace="0s")
    version = visits.version

    again = visits.erase({"user": PLANTED}, reason="request 17", grace="0s")

    assert again.is_finished
    assert again.versions == ()
    assert visits.version == version
    assert all(place.is_clean for place in again.places)


def test_dry_run_counts_the_same_rows_and_writes_nothing(lake: Repository, tmp_path: Path) -> None:
    visits = busy(lake)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    planned = visits.erase({"user": PLANTED}, reason="request", dry_run=True)

    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    done = visits.erase({"user": PLANTED}, reason="request", grace="0s")
    assert planned.places == done.places[: len(planned.places)]
    assert planned.is_dry_run
    assert planned.erasure_id == ""


def test_rows_of_runs_and_batches_stay_with_them(lake: Repository) -> None:
    visits = busy(lake)
    runs = {batch.batch_id: (batch.run, batch.is_live) for batch in visits.batches()}

    visits.erase({"user": PLANTED}, reason="request", grace="0s")

    assert {batch.batch_id: (batch.run, batch.is_live) for batch in visits.batches()} == runs
    visits.rerun([], run="r5", replace_all=True)
    assert not any("u5" in row for row in others(visits))


def test_index_still_finds_the_other_rows(lake: Repository) -> None:
    visits = busy(lake)

    visits.erase({"user": PLANTED}, reason="request", grace="0s")

    chosen = visits.where("user = 'u5'").plan()
    assert len(chosen.files) == 1
    assert chosen.explain().dropped_by_index


def test_partition_by_the_key_leaves_no_name_behind(lake: Repository, tmp_path: Path) -> None:
    visits = lake.create(
        "visits", DatasetDescriptor(schema=SCHEMA, partition_by=["user", "day"], index=["n"])
    )
    first = visits.append(rows_of(1, ["bob", *PLANTED[:5]]), run="first")
    visits.append(rows_of(2, ["bob", *PLANTED[:3]]))
    visits.overwrite(rows_of(2, [PLANTED[0]]))
    visits.cleanup("0s", dry_run=False)  # its log names directories
    visits.append(rows_of(3, ["cyd", PLANTED[4]]))
    visits.where(f"user = '{PLANTED[4]}'").kite.signal_ready()
    visits.where("user = 'bob'").kite.signal_ready()
    before = versions_of(visits)

    done = visits.erase({"user": PLANTED}, reason="request", grace="0s")

    assert done.is_finished, done.left
    assert found_in(tmp_path / "lake") == []
    assert visits.where("user = 'bob'").kite.is_ready()
    after = versions_of(visits)
    assert {version: after[version] for version in before} == before
    assert not list((tmp_path / "lake").rglob(f"*{MARK}*"))
    assert first.batch_id in {batch.batch_id for batch in visits.batches()}
    assert visits.check(deep=True).is_ok


@pytest.mark.parametrize("data_format", ["avro", "parquet"])
def test_files_of_older_schemas_are_rewritten_in_their_own(
    lake: Repository, tmp_path: Path, data_format: str
) -> None:
    schema = pa.schema([("user", pa.string()), ("n", pa.int32()), ("old", pa.string())])
    visits = lake.create("visits", DatasetDescriptor(schema=schema, format=data_format))
    visits.append([{"user": user, "n": 1, "old": user} for user in ("bob", key(1))])
    wider = pa.schema([("user", pa.string()), ("n", pa.int64()), ("more", pa.int64())])
    visits.evolve(lambda d: DatasetDescriptor(schema=wider, format=data_format))
    visits.append([{"user": user, "n": 2**40, "more": 2} for user in ("bob", key(1))])
    before = versions_of(visits)

    done = visits.erase({"user": key(1)}, reason="request", grace="0s")

    assert done.is_finished, done.left
    assert found_in(tmp_path) == []
    after = versions_of(visits)
    assert {version: after[version] for version in before} == before
    assert visits.at(version=1).arrow().to_pylist() == [{"user": "bob", "n": 1, "old": "bob"}]
    assert visits.check(deep=True).is_ok


def test_grace_keeps_old_files_for_readers_and_says_so(lake: Repository, tmp_path: Path) -> None:
    visits = busy(lake)
    reader = visits.at(version=5).plan()

    done = visits.erase({"user": PLANTED}, reason="request", grace="1h")

    assert not done.is_finished
    assert {one.place for one in done.left} >= {"old data files", "statistics, history and indices"}
    assert all(one.until is not None for one in done.left)
    assert MARK in str(pa.table(reader).to_pylist()), "a plan of before reads its files"
    assert MARK not in str(visits.at(version=5).arrow().to_pylist())
    assert found_in(tmp_path / "lake")
    again = visits.erase({"user": PLANTED}, reason="request", grace="0s")
    assert again.is_finished, again.left
    assert found_in(tmp_path / "lake") == []


def test_protected_version_is_named_and_nothing_happens(lake: Repository, tmp_path: Path) -> None:
    visits = busy(lake)
    visits.protections.add(version=5, reason="annual report")
    version = visits.version
    planned = visits.erase({"user": PLANTED}, reason="request", dry_run=True)
    assert [one.place for one in planned.left] == ["protections"]

    with pytest.raises(InvalidInputError, match=r"version 5 \(annual report\)") as caught:
        visits.erase({"user": PLANTED}, reason="request", grace="0s")

    assert "--include-protected" in caught.value.hint
    assert visits.version == version
    before = versions_of(visits)
    done = visits.erase({"user": PLANTED}, reason="request", grace="0s", include_protected=True)
    assert done.is_finished, done.left
    assert found_in(tmp_path / "lake") == []
    assert {v: rows for v, rows in versions_of(visits).items() if v in before} == before
    assert [one.target for one in visits.protections.list()] == ["version 5"]


def test_certificate_names_no_value_and_is_stored(lake: Repository, tmp_path: Path) -> None:
    visits = busy(lake)

    done = visits.erase({"user": PLANTED[:2]}, reason="request 17", grace="0s")

    (stored,) = (tmp_path / "lake" / "visits" / "erasures").iterdir()
    document = json.loads(stored.read_text())
    assert MARK not in stored.read_text()
    assert document["reason"] == "request 17"
    assert document["is_finished"] is True
    assert document["by"] == done.by != ""
    assert stored.stem == done.erasure_id
    assert done.is_of(visits.where(f"user IN ('{PLANTED[0]}', '{PLANTED[1]}')"))
    assert not done.is_of(visits.where(f"user = '{PLANTED[0]}'"))


def test_bad_input_is_refused(lake: Repository) -> None:
    visits = busy(lake)

    with pytest.raises(InvalidInputError, match="needs a reason"):
        visits.erase({"user": "bob"}, reason=" ")
    with pytest.raises(InvalidInputError, match="reason names a value"):
        visits.erase({"user": PLANTED[0]}, reason=f"{PLANTED[0]} asked")
    with pytest.raises(InvalidInputError, match="No key"):
        visits.erase({}, reason="request")
    with pytest.raises(InvalidInputError, match="differ in length"):
        visits.erase({"user": ["a", "b"], "n": [1]}, reason="request")
    with pytest.raises(InvalidInputError, match="without a condition"):
        visits.erase(None, reason="request")
    with pytest.raises(InvalidInputError, match="not a view of"):
        visits.erase(
            lake.create("other", DatasetDescriptor(schema=SCHEMA)).where("n=1"), reason="r"
        )


@pytest.mark.parametrize(
    "keys",
    [
        pa.table({"user": [PLANTED[9], PLANTED[10]], "day": ["d1", "d1"]}),
        {"user": [PLANTED[9], PLANTED[10]], "day": "d1"},
        f"user IN ('{PLANTED[9]}', '{PLANTED[10]}') AND day = 'd1'",
    ],
)
def test_keys_can_be_given_in_several_forms(lake: Repository, keys: Any) -> None:
    visits = busy(lake)

    planned = visits.erase(keys, reason="request", dry_run=True)

    assert planned.row_count == 2
    assert planned.places[1].row_count > 0


class _KilledError(BaseException):
    """The process is dead."""


class MortalStore(DelegatingStore):
    """A store whose process dies at one of its writes, before or after the write."""

    def __init__(self, inner: Store, *, at: int, after: bool) -> None:
        super().__init__(inner)
        self._left, self._after, self.is_dead = at, after, False

    def _live(self, write: Callable[[], Any]) -> Any:
        if self.is_dead:
            raise _KilledError
        self._left -= 1
        if self._left < 0:
            self.is_dead = True
            if self._after:
                write()
            raise _KilledError
        return write()

    def _create(self, key: str, data: memoryview) -> str:
        return self._live(lambda: super(MortalStore, self)._create(key, data))

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        return self._live(lambda: super(MortalStore, self)._replace(key, data, if_match=if_match))

    def _put(self, key: str, data: memoryview) -> None:
        return self._live(lambda: super(MortalStore, self)._put(key, data))

    def _put_stream(self, key: str, pieces: Iterator[memoryview], *args: Any, **more: Any) -> Any:
        return self._live(lambda: super(MortalStore, self)._put_stream(key, pieces, *args, **more))

    def _delete(self, keys: Any) -> None:
        return self._live(lambda: super(MortalStore, self)._delete(keys))

    def _delete_if_match(self, key: str, etag: str) -> bool:
        return self._live(lambda: super(MortalStore, self)._delete_if_match(key, etag))


def small(lake: Repository) -> Dataset:
    visits = lake.create(
        "visits", DatasetDescriptor(schema=SCHEMA, partition_by="day", index=["user"])
    )
    for number in range(4):
        visits.append(rows_of(number % 2, ["bob", PLANTED[number]]), run=f"r{number}")
    for number in range(2):
        visits.append(rows_of(1, [f"eve{number}", PLANTED[5]]))
    visits.delete("user = 'bob' AND day = 'd0'")
    return visits


def killed_at_each_write(
    template: Path, tmp_path: Path, *, after: bool, check: Callable[[Dataset], bool] | None = None
) -> int:
    """Kill an erasure at its first write, its second, …, and call it again each time."""
    before = versions_of(lakebed.open_repository(str(template)).open("visits"))
    for at in range(1000):
        root = tmp_path / f"copy-{at}-{after}"
        shutil.copytree(template, root)
        lake = lakebed.open_repository(str(root))
        mortal = MortalStore(lake.store, at=at, after=after)
        dying = Repository(mortal).open("visits")
        with contextlib.suppress(_KilledError):
            dying.erase({"user": PLANTED}, reason="request", grace="0s")
        visits = lake.open("visits")
        now = versions_of(visits)
        assert {version: now[version] for version in before} == before, at
        done = visits.erase({"user": PLANTED}, reason="request", grace="0s")
        assert done.is_finished, (at, done.left)
        assert found_in(root) == [], at
        now = versions_of(visits)
        assert {version: now[version] for version in before} == before, at
        assert visits.check(deep=True).is_ok
        assert check is None or check(visits)
        shutil.rmtree(root)
        if not mortal.is_dead:
            return at
    raise AssertionError


@pytest.mark.thorough
@pytest.mark.parametrize("after", [False, True])
def test_kill_at_each_write_and_call_again(tmp_path: Path, *, after: bool) -> None:
    template = tmp_path / "template"
    small(lakebed.open_repository(str(template)))

    assert killed_at_each_write(template, tmp_path, after=after) > 10


def test_writers_that_began_before_an_erasure(lake: Repository) -> None:
    visits = small(lake)
    with_base = lake.open("visits")
    base = with_base.version
    visits.erase({"user": PLANTED}, reason="request", grace="0s")

    with pytest.raises(CommitConflictError):
        with_base.overwrite(rows_of(1, ["cyd"]), base=base)
    with_base.append(rows_of(1, ["cyd"]))
    assert others(visits)


@pytest.mark.parametrize(
    "write",
    [
        lambda visits: visits.compact(),
        lambda visits: visits.merge(
            rows_of(1, ["bob", "new"]), on=["user", "day"], matched="update"
        ),
        lambda visits: visits.delete("user = 'bob'"),
        lambda visits: visits.rollback(version=2),
        lambda visits: visits.append(rows_of(1, ["new"])),
        lambda visits: visits.compact(metadata=True),
        lambda visits: visits.cleanup("0s", dry_run=False),
        lambda visits: visits.indices.build("n"),
    ],
    ids=["compact", "merge", "delete", "rollback", "append", "metadata", "cleanup", "index"],
)
def test_erasure_in_the_middle_of_another_write(
    tmp_path: Path, write: Callable[[Dataset], Any]
) -> None:
    """The erasure commits right before the head of the other writer would."""
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    visits = small(lake)
    visits.append(rows_of(1, ["dan"]))  # so that there is something to fold

    class Interrupting(DelegatingStore):
        is_done = False

        def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
            if not self.is_done and "by-dataset-metadata" in key:
                self.is_done = True
                visits.erase({"user": PLANTED}, reason="request", grace="0s")
            return super()._replace(key, data, if_match=if_match)

    interrupting = Interrupting(lake.store)
    with contextlib.suppress(CommitConflictError, VersionNotFoundError, ObjectNotFoundError):
        write(Repository(interrupting).open("visits"))

    assert interrupting.is_done
    assert all(
        MARK not in str(visits.at(version=v).arrow().to_pylist()) for v in versions_of(visits)
    )
    done = visits.erase({"user": PLANTED}, reason="request", grace="0s")
    assert done.is_finished, done.left
    assert found_in(tmp_path / "lake") == []
    assert visits.check(deep=True).is_ok


def test_another_write_in_the_middle_of_an_erasure(tmp_path: Path) -> None:
    """Each other writer commits right before the head of the erasure would."""
    writes: list[Callable[[Dataset], Any]] = [
        lambda visits: visits.append(rows_of(1, ["new", PLANTED[50]])),
        lambda visits: visits.rollback(version=4),
        lambda visits: visits.compact(),
        lambda visits: visits.cleanup("0s", dry_run=False),
        lambda visits: visits.compact(metadata=True),
    ]
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    visits = small(lake)

    class Interrupting(DelegatingStore):
        def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
            if writes and "by-dataset-metadata" in key:
                writes.pop(0)(visits)
            return super()._replace(key, data, if_match=if_match)

    done = (
        Repository(Interrupting(lake.store))
        .open("visits")
        .erase({"user": PLANTED}, reason="request", grace="0s")
    )

    assert writes == []
    assert done.is_finished, done.left
    assert found_in(tmp_path / "lake") == []
    assert visits.check(deep=True).is_ok


def test_files_of_a_writer_at_work_are_named(lake: Repository, tmp_path: Path) -> None:
    visits = small(lake)
    from lakebed.arrow.kernel import KernelWriter
    from lakebed.state.transaction import Transaction
    from lakebed.work.writer import target_of

    transaction = Transaction.begin(lake.store, "visits", "append")
    writer = KernelWriter(lake.store, target_of(transaction, None))
    writer.write(pa.RecordBatch.from_pylist(rows_of(1, [PLANTED[3]]), SCHEMA))
    transaction.add(writer.finish())

    done = visits.erase({"user": PLANTED}, reason="request", grace="0s")

    assert not done.is_finished
    (left,) = (one for one in done.left if one.place == "files of no version")
    assert "reserved" in left.what
    assert MARK not in left.what
    transaction.abort()
    assert visits.erase({"user": PLANTED}, reason="request", grace="0s").is_finished
    assert found_in(tmp_path / "lake") == []


def test_staged_batches_lose_the_rows_and_can_be_committed(
    lake: Repository, tmp_path: Path
) -> None:
    visits = small(lake)
    added = visits.staged.add(rows_of(0, ["sam", PLANTED[7]]))
    rerun = visits.staged.add(rows_of(1, ["kim", PLANTED[8]]), "rerun", run="r1", replace_all=True)
    gone = visits.staged.add(rows_of(3, [PLANTED[9]]))
    planned = visits.erase({"user": PLANTED}, reason="request", dry_run=True)
    assert planned.places[2].row_count == 3

    done = visits.erase({"user": PLANTED}, reason="request", grace="0s")

    assert done.is_finished, done.left
    assert done.places[:3] == planned.places[:3]
    assert found_in(tmp_path / "lake") == []
    waiting = {one.batch_id: one.rows.count() for one in visits.staged.list()}
    assert waiting == {added.batch_id: 1, rerun.batch_id: 1, gone.batch_id: 0}
    for batch_id in waiting:
        visits.staged.open(batch_id).commit()
    assert sum("sam" in row for row in others(visits)) == 1
    assert sum("kim" in row for row in others(visits)) == 1
    assert visits.check(deep=True).is_ok
    assert visits.where("user = 'sam'").plan().explain().dropped_by_index


def test_commit_of_a_staged_batch_that_began_before_is_refused(
    lake: Repository, tmp_path: Path
) -> None:
    visits = small(lake)
    batch = visits.staged.add(rows_of(0, ["sam", PLANTED[7]]))

    class Interrupting(DelegatingStore):
        is_done = False

        def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
            if not self.is_done and "by-dataset-metadata" in key:
                self.is_done = True
                visits.erase({"user": PLANTED}, reason="request", grace="0s")
            return super()._replace(key, data, if_match=if_match)

    other = Repository(Interrupting(lake.store)).open("visits").staged.open(batch.batch_id)
    with pytest.raises(CommitConflictError, match="erase that made version"):
        other.commit()

    visits.staged.open(batch.batch_id).commit()
    assert sum("sam" in row for row in others(visits)) == 1
    assert found_in(tmp_path / "lake") == []


@pytest.mark.thorough
@pytest.mark.parametrize("after", [False, True])
def test_kill_while_a_staged_batch_is_rewritten(tmp_path: Path, *, after: bool) -> None:
    template = tmp_path / "template"
    visits = lakebed.open_repository(str(template)).create(
        "visits", DatasetDescriptor(schema=SCHEMA, index=["user"])
    )
    visits.append(rows_of(0, ["bob"]))
    batch_id = visits.staged.add(rows_of(0, ["sam", PLANTED[7]])).batch_id
    killed_at_each_write(
        template,
        tmp_path,
        after=after,
        check=lambda visits: (
            [one.batch_id for one in visits.staged.list()] == [batch_id]
            and visits.staged.open(batch_id).rows.count() == 1
        ),
    )


def with_quarantine(tmp_path: Path, lake: Repository) -> tuple[Dataset, Dataset]:
    folder = tmp_path / "incoming"
    folder.mkdir()
    lines = [
        {"user": "bob", "n": 1},
        {"user": PLANTED[1], "n": 2},
        {"user": PLANTED[2], "n": "x"},
        {"user": "cyd", "n": "x"},
        {"user": f"x{PLANTED[3]}", "n": "of another person, who is called nearly alike"},
    ]
    (folder / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    visits = lake.create(
        "visits",
        DatasetDescriptor(schema=pa.schema([("user", pa.string()), ("n", pa.int64())])),
    )
    visits.load(str(folder / "a.jsonl"), run="first")
    return visits, lake.open("visits_quarantine")


def test_quarantine_loses_the_lines(lake: Repository, tmp_path: Path) -> None:
    visits, rejects = with_quarantine(tmp_path, lake)
    rejects.compact(metadata=True)
    assert rejects.count() == 3

    done = visits.erase({"user": PLANTED}, reason="request", grace="0s", raw_files=False)

    assert done.is_finished, done.left
    (place,) = (one for one in done.places if one.place == "quarantine visits_quarantine")
    assert place.row_count == 1
    assert rejects.count() == 2
    assert sum("cyd" in (text or "") for text in rejects.arrow()["text"].to_pylist()) == 1
    left = [one for one in found_in(tmp_path / "lake") if f"x{MARK}" not in one]
    assert all("quarantine" in one for one in left), "only of the person with another name"
    by_range = visits.erase("n > 1000", reason="request", grace="0s", raw_files=False)
    assert [one.place for one in by_range.left] == ["quarantine visits_quarantine"]


READER = """
import json, sys, time
import lakebed
from lakebed.errors import LakebedError

root, versions = sys.argv[1], json.loads(sys.argv[2])
lake = lakebed.open_repository(root)
print("ready", flush=True)
seen = {}
while not sys.stdin in __import__("select").select([sys.stdin], [], [], 0)[0]:
    for version in versions:
        rows = lake.open("visits").at(version=version).arrow(["user", "n"]).to_pylist()
        mine = sum(row["user"].startswith("Zq7x") for row in rows)
        key = f"{version} {len(rows) - mine} {mine}"
        seen[key] = seen.get(key, 0) + 1
print(json.dumps(seen), flush=True)
"""


def counts_of(visits: Dataset, version: int) -> tuple[int, int]:
    users = visits.at(version=version).arrow(["user"])["user"].to_pylist()
    mine = sum(user.startswith(MARK) for user in users)
    return len(users) - mine, mine


@pytest.mark.thorough
def test_reader_in_another_process_sees_the_old_rows_or_the_new(
    lake: Repository, tmp_path: Path
) -> None:
    visits = busy(lake)
    versions = [3, 9, visits.version]
    before = {version: counts_of(visits, version) for version in versions}
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(tmp_path / "lake"), json.dumps(versions)],
        env={**os.environ, "PYTHONPATH": str(Path(lakebed.__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "ready\n"

    visits.erase({"user": PLANTED[:50]}, reason="request", grace="1h")
    visits.erase({"user": PLANTED}, reason="request", grace="1h")

    output, _ = reader.communicate("stop\n", timeout=120)
    assert reader.returncode == 0
    seen = {tuple(map(int, key.split())) for key in json.loads(output)}
    assert {version for version, _, _ in seen} == set(versions)
    for version, others_seen, planted_seen in seen:
        assert others_seen == before[version][0], "never fewer other rows"
        assert planted_seen in {before[version][1], 0} | set(range(before[version][1]))


ERASER = """
import sys
import lakebed
visits = lakebed.open_repository(sys.argv[1]).open("visits")
print("ready", flush=True)
visits.erase({"user": sys.argv[2:]}, reason="request", grace="0s")
"""


@pytest.mark.crash
def test_killed_processes(tmp_path: Path) -> None:
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    visits = busy(lake)
    before = versions_of(visits)
    for delay_s in (0.1, 0.3, 0.6, 1.0, 1.5):
        process = subprocess.Popen(
            [sys.executable, "-c", ERASER, str(tmp_path / "lake"), *PLANTED],
            env={**os.environ, "PYTHONPATH": str(Path(lakebed.__file__).parents[1])},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay_s)
        process.kill()
        process.communicate()
        now = versions_of(visits)
        assert {version: now[version] for version in before} == before

    done = visits.erase({"user": PLANTED}, reason="request", grace="0s")

    assert all(one.place == "unfinished writes" for one in done.left)
    lake.store.remove_leftovers("visits/", older_than=dt.timedelta())
    assert visits.erase({"user": PLANTED}, reason="request", grace="0s").is_finished
    assert found_in(tmp_path / "lake") == []
    now = versions_of(visits)
    assert {version: now[version] for version in before} == before
    assert visits.check(deep=True).is_ok


@pytest.mark.long
def test_a_thousand_keys_over_fifty_versions(lake: Repository, tmp_path: Path) -> None:
    keys = [key(number) for number in range(1000)]
    visits = lake.create(
        "visits", DatasetDescriptor(schema=SCHEMA, partition_by="day", index=["user"])
    )
    for number in range(50):
        users = [*(f"u{n}" for n in range(200)), *keys[number * 20 : number * 20 + 20]]
        visits.append(rows_of(number, users), run=f"r{number}")
        if number % 10 == 9:
            visits.compact()
            visits.delete(f"n = {100 * number}")
    visits.staged.add(rows_of(3, ["sam", *keys[:50]]))
    before = versions_of(visits)

    done = visits.erase(pa.table({"user": keys}), reason="request", grace="0s")

    assert done.is_finished, done.left
    assert found_in(tmp_path / "lake") == []
    after = versions_of(visits)
    assert {version: after[version] for version in before} == before
    assert visits.check(deep=True).is_ok


def test_adopted_files_are_rewritten_as_files_of_the_dataset(
    lake: Repository, tmp_path: Path
) -> None:
    for day, users in {"d1": ["bob", key(1)], "d2": [key(2)]}.items():
        folder = tmp_path / "lake" / "visits" / f"day={day}"
        folder.mkdir(parents=True)
        table = pa.Table.from_pylist([{"user": user, "n": 1} for user in users])
        pq.write_table(table, folder / "rows.parquet")
    visits = lake.adopt("visits", partition_by="day")
    visits.append([{"day": "d1", "user": "cyd", "n": 2}])
    before = versions_of(visits)

    done = visits.erase({"user": PLANTED}, reason="request", grace="0s")

    assert done.is_finished, done.left
    assert found_in(tmp_path) == []
    after = versions_of(visits)
    assert {version: after[version] for version in before} == before
    erased = [one for one in visits.history() if one.operation == "erase"]
    assert [one.deleted_row_count for one in erased] == [2]
    assert visits.check(deep=True).is_ok

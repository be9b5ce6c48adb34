"""A loss of power after each change of a directory: what was acknowledged is there afterwards."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from power_loss import Disk, Recorder

import lakebed
from lakebed import by
from lakebed.errors import CommitUnknownError, DatasetNotFoundError, LakebedError, NotFoundError

SCHEMA = pa.schema([("id", pa.int64()), ("g", pa.string()), ("v", pa.int64())])
Rows = list[tuple[int, str, int]]


@dataclass(frozen=True)
class Acknowledged:
    """What a verb has promised at a point of the record."""

    at: int
    verb: str
    rows: Rows | None  # None: there is no dataset


def rows_of(dataset: lakebed.Dataset) -> Rows:
    return sorted((row["id"], row["g"], row["v"]) for row in dataset.arrow().to_pylist())


def some(begin: int, end: int, group: str, value: int = 0) -> list[dict]:
    return [{"id": number, "g": group, "v": value} for number in range(begin, end)]


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "lake")


@pytest.fixture(autouse=True)
def _as_a_new_process() -> Iterator[None]:
    """Forget which directories this process has synced before, in other tests."""
    from lakebed.store import posix

    with (
        mock.patch.object(posix, "_SYNCED_DIRECTORIES", {}),
        mock.patch.object(posix, "_NAMES_NOT_SYNCED", set()),
    ):
        yield


def play(recorder: Recorder, head: str) -> list[Acknowledged]:
    """Call each verb that writes, and return what each has promised."""
    recorder.root.mkdir()
    lake = lakebed.open_repository(str(recorder.root))
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.identity("g")], index=["id"]
    )
    promised: list[Acknowledged] = []

    def promise(verb: str) -> None:
        with recorder.paused():
            rows = rows_of(lake.open("t")) if lake.exists("t") else None
            promised.append(Acknowledged(len(recorder.changes), verb, rows))

    def staged() -> None:
        dataset.staged.add(some(50, 52, "f")).commit()

    def transaction() -> None:
        with dataset.transaction() as t:
            t.append(some(60, 61, "a"))
            t.overwrite(some(61, 62, "g"))

    with recorder.recording():
        dataset = lake.create("t", descriptor, head=head)
        promise("create")
        steps: dict[str, Callable[[], object]] = {
            "append": lambda: dataset.append(some(0, 4, "a")),
            "append to another partition": lambda: dataset.append(some(4, 8, "b")),
            "overwrite": lambda: dataset.overwrite(some(10, 12, "a", 1)),
            "merge": lambda: dataset.merge(some(11, 14, "a", 2), on=["id"]),
            "first run": lambda: dataset.rerun(some(20, 22, "c"), run="r1"),
            "rerun": lambda: dataset.rerun(some(21, 24, "c", 3), run="r1"),
            "compact": lambda: dataset.compact(),
            "delete": lambda: dataset.delete("id = 5"),
            "index": lambda: dataset.indices.build("v"),
            "publish": lambda: dataset.publish("delta"),
            "rollback": lambda: dataset.rollback(version=4),
            "staged": staged,
            "transaction": transaction,
            "evolve": lambda: dataset.evolve(lambda d: d.add_field("w", "long")),
            "cleanup": lambda: dataset.cleanup(older_than="0s", dry_run=False),
            "erase": lambda: dataset.erase("id = 50", reason="r", grace="0s"),
            "append after it": lambda: dataset.append(some(40, 42, "e")),
            "drop": lambda: lake.drop("t"),
        }
        for verb, step in steps.items():
            step()
            promise(verb)
    return promised


def violation(folder: Path, before: Acknowledged, after: Acknowledged) -> str | None:
    """Return what is wrong with a directory after a loss of power between two promises."""
    lake = lakebed.open_repository(str(folder))
    try:
        dataset = lake.open("t")
        rows: Rows | None = rows_of(dataset)
    except DatasetNotFoundError:
        rows = None
    except LakebedError as exc:
        return f"cannot be read: {exc}"
    if rows not in (before.rows, after.rows):
        return f"{before.rows} or {after.rows} was promised, and {rows} is there"
    if before.verb in ("erase", "append after it") and rows is not None:
        for file in folder.glob("t/data/**/batch_id=*/*.parquet"):
            if 50 in pq.read_table(file)["id"].to_pylist():
                return f"an erased row is in {file.name}"
    if rows is None:
        return None
    errors = [one for one in dataset.check(deep=True).findings if str(one.severity) == "error"]
    if errors:
        return f"check: {errors[0]}"
    dataset.append(some(90, 91, "z"))
    if rows_of(lake.open("t")) != sorted([*rows, (90, "z", 0)]):
        return "the next commit adds other rows"
    return None


@pytest.mark.parametrize("head", ["document", "tree"])
@pytest.mark.parametrize(
    "nth", [pytest.param(40, id="few"), pytest.param(1, id="every", marks=pytest.mark.thorough)]
)
def test_what_a_verb_acknowledged_is_there_after_a_loss_of_power(
    recorder: Recorder, tmp_path: Path, head: str, nth: int
) -> None:
    promised = play(recorder, head)
    # Right after each promise, and at every nth change.
    moments = sorted({*(one.at for one in promised), *range(0, len(recorder.changes) + 1, nth)})
    wrong = []
    for moment in moments:
        done = [one for one in promised if one.at <= moment]
        before = done[-1] if done else Acknowledged(0, "nothing", None)
        after = promised[len(done)] if len(done) < len(promised) else before
        disk = Disk(recorder.changes[:moment], recorder.contents)
        for keeps in (None, random.Random(moment)):
            disk.build(tmp_path / "after", keeps)
            found = violation(tmp_path / "after", before, after)
            if found is not None:
                wrong.append((moment, after.verb, keeps is not None, found))

    assert not wrong, wrong[:5]
    assert len(promised) == 19


def test_what_an_archive_acknowledged_is_there_after_a_loss_of_power(
    recorder: Recorder, tmp_path: Path
) -> None:
    (tmp_path / "raw.txt").write_text("secret")
    recorder.root.mkdir()
    archive = lakebed.open_archive(str(recorder.root), index=f"sqlite:///{tmp_path}/index.db")
    promised = []

    def promise(*names: str) -> None:
        promised.append((len(recorder.changes), {*names}))

    with recorder.recording():
        record = archive.push(tmp_path / "raw.txt", where="here", what="log", start="2026-01-01")
        promise("data", "metadata")
        archive.retract(record.id, reason="wrong")
        promise("data", "metadata", record.id)
        archive.restore(record.id)
        promise("data", "metadata")
        archive.delete(record.id, reason="wrong", dry_run=False)
        promise(record.id)

    for moment, names in promised:
        for keeps in (None, random.Random(moment)):
            Disk(recorder.changes[:moment], recorder.contents).build(tmp_path / "after", keeps)
            found = (
                path.relative_to(tmp_path / "after") for path in (tmp_path / "after").rglob("*")
            )
            files = {path.name for path in found if (tmp_path / "after" / path).is_file()}
            assert {name for name in files if not name.endswith(".tmp")} == names
    assert not (tmp_path / "after" / record.id / "data").exists()


# Syncs that fail, and directories of others


@pytest.fixture
def dataset(recorder: Recorder) -> Iterator[lakebed.Dataset]:
    recorder.root.mkdir()
    lake = lakebed.open_repository(str(recorder.root))
    with recorder.recording():
        dataset = lake.create(
            "t", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("g")])
        )
        dataset.append(some(1, 2, "a"))
        yield dataset


def after_a_loss_of_power(recorder: Recorder, tmp_path: Path) -> Rows:
    with recorder.paused():
        Disk(recorder.changes, recorder.contents).build(tmp_path / "after")
        return rows_of(lakebed.open_repository(str(tmp_path / "after")).open("t"))


def failing_sync(path: Path, times: int, error: BaseException) -> AbstractContextManager[object]:
    """Let the next syncs of a directory fail."""
    real, left = os.fsync, [times]

    def sync(descriptor: int) -> None:
        if left[0] and Path(f"/proc/self/fd/{descriptor}").readlink() == path:
            left[0] -= 1
            raise error
        real(descriptor)

    return mock.patch.object(os, "fsync", sync)


def test_a_commit_whose_directory_was_not_synced_is_made_durable_before_it_is_acknowledged(
    recorder: Recorder, dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    before = len(recorder.changes)
    with failing_sync(recorder.root, 1, OSError(errno.EIO, "broken")):
        assert dataset.append(some(2, 3, "a")).version == 2

    assert after_a_loss_of_power(recorder, tmp_path) == [(1, "a", 0), (2, "a", 0)]
    # A name whose sync failed is made again: a second sync alone may report success for nothing.
    head = "t.by-dataset-metadata.json"
    assert sum(change[-1] == head for change in recorder.changes[before:]) == 2


def test_a_commit_that_cannot_be_synced_is_unknown(
    recorder: Recorder, dataset: lakebed.Dataset
) -> None:
    with (
        failing_sync(recorder.root, 100, OSError(errno.EIO, "broken")),
        pytest.raises(CommitUnknownError, match="loss of power"),
    ):
        dataset.append(some(2, 3, "a"))


def test_a_batch_that_another_process_committed_is_made_durable_before_it_is_acknowledged(
    recorder: Recorder, dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    staged = dataset.staged.add(some(2, 3, "a"))
    with (
        failing_sync(recorder.root, 1, KeyboardInterrupt()),
        pytest.raises(KeyboardInterrupt),
    ):
        staged.commit()

    dataset.staged.open(staged.batch_id).commit()

    assert after_a_loss_of_power(recorder, tmp_path) == [(1, "a", 0), (2, "a", 0)]


def test_a_directory_of_a_writer_that_was_killed_before_its_sync_is_synced_by_the_next(
    recorder: Recorder, dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    with (
        failing_sync(recorder.root / "t/data", 1, KeyboardInterrupt()),
        pytest.raises(KeyboardInterrupt),
    ):
        dataset.append(some(2, 3, "b"))

    lakebed.open_repository(str(recorder.root)).open("t").append(some(2, 3, "b"))

    assert after_a_loss_of_power(recorder, tmp_path) == [(1, "a", 0), (2, "b", 0)]


def test_a_directory_of_a_slow_writer_is_synced_by_whoever_commits_below_it(
    recorder: Recorder, dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    made, go, real = threading.Event(), threading.Event(), os.fsync

    def sync(descriptor: int) -> None:
        is_data = Path(f"/proc/self/fd/{descriptor}").readlink() == recorder.root / "t/data"
        if is_data and not made.is_set():
            made.set()
            go.wait(30)
        real(descriptor)

    with mock.patch.object(os, "fsync", sync):
        slow = threading.Thread(target=lambda: dataset.append(some(3, 4, "b")))
        slow.start()
        try:
            assert made.wait(30)
            lakebed.open_repository(str(recorder.root)).open("t").append(some(2, 3, "b"))
            assert (2, "b", 0) in after_a_loss_of_power(recorder, tmp_path)
        finally:
            go.set()
            slow.join()


def test_a_deletion_that_could_not_be_synced_is_synced_when_it_is_repeated(
    recorder: Recorder, dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    store = lakebed.open_repository(str(recorder.root)).store
    store.put("x/one", b"1")
    store.put("x/two", b"2")
    with (
        failing_sync(recorder.root / "x", 1, OSError(errno.EIO, "broken")),
        pytest.raises(LakebedError, match="loss of power"),
    ):
        store.delete(["x/one"])

    store.delete(["x/one"])

    Disk(recorder.changes, recorder.contents).build(tmp_path / "after")
    assert [path.name for path in (tmp_path / "after/x").iterdir()] == ["two"]
    with pytest.raises(NotFoundError):
        store.get("x/one")


def test_a_directory_that_is_made_again_is_synced_again(
    recorder: Recorder, dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    store = lakebed.open_repository(str(recorder.root)).store

    # File systems give the number of a directory that was removed to the next one.
    for number in range(3):
        store.put(f"x/y/{number}", b"1")
        Disk(recorder.changes, recorder.contents).build(tmp_path / "after")
        assert [path.name for path in (tmp_path / "after/x/y").iterdir()] == [str(number)]
        store.delete([f"x/y/{number}"])

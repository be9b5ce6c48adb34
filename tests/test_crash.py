"""Processes that are killed with signal 9 in the middle of a commit."""

from __future__ import annotations

import collections
import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from places import Place

import lakebed
from lakebed import by
from lakebed.store.segments import FANOUT

WORKER = Path(__file__).parent / "state" / "commit_worker.py"
SOURCE = Path(lakebed.__file__).parents[1]
DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=pa.schema([("p", pa.string()), ("tag", pa.string()), ("n", pa.int64())]),
    partition_by=[by.identity("p")],
)
ROWS_PER_COMMIT = 4

pytestmark = pytest.mark.crash


class Worker:
    """A process that forks children which die while they commit."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), "die"],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0

    def order(self, **order: object) -> tuple[list[str], dict[str, Any]]:
        """Let a child work; return the call at which it died, if that is known, and its end."""
        # The process is older than the test, and knows nothing of what it has set.
        order["options"] = os.environ.get("LAKEBED_STORAGE_OPTIONS", "")
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        call: list[str] = []
        while isinstance(answer := json.loads(self._process.stdout.readline()), list):
            call = answer
        return call, answer


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


class Victim:
    """A dataset to which children commit."""

    def __init__(self, place: Place, worker: Worker, head_format: str = "json") -> None:
        self._place = place
        self._worker = worker
        self._repository = lakebed.Repository(place.store)
        self._dataset = self._repository.create("d", DESCRIPTOR, "open", head_format=head_format)

    def commit(self) -> None:
        """Replace everything, so that the dataset stays small."""
        tag = f"own-{self._dataset.version}"
        self._dataset.overwrite([{"p": "ab"[n % 2], "tag": tag, "n": n} for n in range(4)])
        assert self._content() == {tag: 4}

    def _content(self) -> collections.Counter[str]:
        opened = self._repository.open("d")
        return collections.Counter(opened.arrow(["tag"]).column("tag").to_pylist())

    def die(self, operation: str, **when: object) -> Death:
        """Let a child commit and die, and check what it left."""
        version, old = self._dataset.version, self._content()
        tag = f"child-{version}"
        new = collections.Counter({tag: ROWS_PER_COMMIT})
        if operation == "append":
            new += old

        call, answer = self._worker.order(
            root=self._place.root, operation=operation, tag=tag, **when
        )
        self._place.settle()

        assert not answer["failed"]
        now = (self._repository.open("d").version, self._content())
        assert now in [(version, old), (version + 1, new)]
        if answer["finished"]:
            assert now == (version + 1, new)
        assert [commit.version for commit in self._dataset.history()] == list(range(now[0] + 1))
        self.commit()
        assert self._dataset.version == now[0] + 1
        return Death(
            call=call[0] if call else "",
            folder=_folder_of(call[1]) if call else "",
            is_new=now[0] > version,
            finished=answer["finished"],
            seconds=answer["seconds"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    call: str
    folder: str
    is_new: bool
    finished: bool
    seconds: float


def _folder_of(key: str) -> str:
    return key.split("/")[1] if "/" in key else "head"


def die_at_each_step(
    template: Place, worker: Worker, operation: str, *, after: bool
) -> list[tuple[str, bool]]:
    """Die at the first call to the store, the second, …, each time from the same state."""
    found = []
    for call in itertools.count(1):
        copy = template.copied(f"{operation}-{call}-{after}")
        death = Victim(copy, worker).die(operation, call=call, after=after)
        if death.finished:
            return found
        found.append((f"{death.call} {death.folder}", death.is_new))
    raise AssertionError


STEPS = [
    "create batches",
    "put data",
    "replace batches",
    "put files",
    "get head",
    "put history",
    "replace head",
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("operation", ["append", "overwrite"])
@pytest.mark.parametrize("head_format", ["json", "msgpack.zstd"])
def test_killed_at_each_step_a_commit_happened_only_if_the_head_was_swapped(
    place: Place, worker: Worker, head_format: str, operation: str, after: bool
) -> None:
    template = place.below("template")
    Victim(template, worker, head_format).commit()

    steps = die_at_each_step(template, worker, operation, after=after)

    # An overwrite reads the file table, to count the rows that it replaces.
    names = [name for name, _ in steps if name not in ("get head", "get files")]
    assert list(dict.fromkeys(names)) == [name for name in STEPS if name != "get head"]
    assert [name for name, is_new in steps if is_new] == (["replace head"] if after else [])


@pytest.mark.parametrize(("commits", "merged"), [(6, "history"), (7, "files")])
def test_killed_while_segments_merge_a_commit_happened_or_not(
    place: Place, worker: Worker, commits: int, merged: str
) -> None:
    template = place.below("template")
    victim = Victim(template, worker)
    for _ in range(commits):
        victim.commit()

    steps = die_at_each_step(template, worker, "append", after=True)

    assert [name for name, _ in steps].count(f"get {merged}") >= FANOUT - 1
    assert [name for name, is_new in steps if is_new] == ["replace head"]


@pytest.mark.parametrize("head_format", ["json", "msgpack.zstd"])
def test_killed_a_hundred_times_at_random_a_commit_happened_or_not(
    place: Place, worker: Worker, head_format: str
) -> None:
    victim = Victim(place, worker, head_format)
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - pytest shows it where the test fails
    dice = random.Random(seed)
    longest_s = max(
        victim.die("append", event=10**6).seconds,
        victim.die("overwrite", event=10**6).seconds,
    )
    outcomes = collections.Counter[str]()

    for _ in range(50):
        operation = dice.choice(["append", "overwrite"])
        # Calls to the system are what a directory is asked by.
        moments = [{"delay_s": dice.uniform(0, longest_s)}]
        moments += [{"event": dice.randrange(1, 150)}] * place.is_directory
        when = dice.choice(moments)
        death = victim.die(operation, **when)
        outcomes["finished" if death.finished else "new" if death.is_new else "old"] += 1

    assert outcomes.total() == 50
    assert outcomes["old"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_each_step_a_hand_over_is_finished_by_the_next_writer(
    place: Place, worker: Worker, after: bool
) -> None:
    template = place.below("template")
    lakebed.Repository(template.store).create("d", DESCRIPTOR).append(
        [{"p": "a", "tag": "x", "n": 0}]
    )
    steps = list[str]()

    for call in itertools.count(1):
        copy = template.copied(str(call))
        order = {"operation": "hand_over", "tag": "msgpack.zstd", "call": call, "after": after}
        step, answer = worker.order(root=copy.root, **order)
        copy.settle()
        assert not answer["failed"]
        dataset = lakebed.Repository(copy.store).open("d")
        assert dataset.version in (1, 2)
        dataset.append([{"p": "a", "tag": "y", "n": 0}])
        assert [one.version for one in dataset.history()] == list(range(dataset.version + 1))
        assert dataset.count() == 2
        heads = [info.key for info in copy.store.list(recursive=False)]
        assert [key for key in heads if key.startswith("d.by-dataset-metadata.")] == heads[:1]
        if answer["finished"]:
            break
        steps.append(step[0])

    changes = [step for step in steps if step != "get"]
    assert changes == ["put", "replace", "create", "replace", "delete"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("operation", ["hold", "release", "rollback"])
def test_killed_at_each_step_raw_files_are_held_only_if_the_head_was_swapped(
    place: Place, worker: Worker, tmp_path: Path, operation: str, after: bool
) -> None:
    template = place.below("template")
    raw = tmp_path / "raw"
    raw.mkdir()
    day = _read_two_days(template, raw)
    if operation == "release":
        lakebed.Repository(template.store).open("d").sources.hold(day)
    old, new = set[str](), {day}
    if operation == "release":
        old, new = new, old
    version = lakebed.Repository(template.store).open("d").version
    swapped: list[str] = []

    for call in itertools.count(1):
        copy = template.copied(f"{operation}-{call}-{after}")
        tag: object = 1 if operation == "rollback" else day
        order = {"operation": operation, "tag": tag, "call": call, "after": after}
        step, answer = worker.order(root=copy.root, **order)
        copy.settle()
        assert not answer["failed"]

        dataset = lakebed.Repository(copy.store).open("d")
        is_new = dataset.version > version
        assert {hold.location for hold in dataset.sources.holds()} == (new if is_new else old)
        is_rolled_back = operation == "rollback" and is_new
        assert dataset.count() == (1 if is_rolled_back else 2)
        # An ingest that comes next neither repeats rows nor brings back what is held.
        report = _ingest_of(copy, raw).run()
        assert report.held_count == len(new if is_new else old)
        assert dataset.count() == (1 if is_rolled_back else 2)
        assert [one.version for one in dataset.history()] == list(range(dataset.version + 1))
        assert dataset.check().is_ok
        if answer["finished"]:
            assert is_new
            break
        swapped += [step[0]] * is_new

    assert swapped == (["replace"] if after else [])


def _ingest_of(place: Place, raw: Path) -> lakebed.Ingest:
    return lakebed.Ingest(
        name="days", into=f"{place.root}/d", source=lakebed.FromFiles(paths=raw / "*.jsonl")
    )


def _read_two_days(place: Place, raw: Path) -> str:
    """Read two raw files in, one after the other; return the location of the second."""
    lakebed.Repository(place.store).create("d", DESCRIPTOR)
    for day in range(2):
        (raw / f"{day}.jsonl").write_text(json.dumps({"p": "a", "tag": "x", "n": day}) + "\n")
        _ingest_of(place, raw).run()
    return str(raw / "1.jsonl")

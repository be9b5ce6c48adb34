"""What the tests of concurrency and of crashes run in processes of their own.

Roots are directories, or URLs of stores whose options are in the environment. It forks: one import serves any number of writers. Nothing but forking happens in the parent.
"""

# ruff: noqa: T201 - printing is how it answers

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lakebed.dataset import Dataset
from lakebed.errors import CommitConflictError
from lakebed.repository import Repository
from lakebed.state.handover import hand_over
from lakebed.state.head import HeadFormat
from lakebed.state.reader import read_head
from lakebed.store import Store, open_store
from lakebed.testing import DelegatingStore

ROWS_PER_COMMIT = 4
_fork = multiprocessing.get_context("fork")


def rows_of(tag: str) -> list[dict[str, Any]]:
    """Return the rows of one commit, in two partitions."""
    return [{"p": "ab"[n % 2], "tag": tag, "n": n} for n in range(ROWS_PER_COMMIT)]


def open_dataset(root: str, name: str) -> Dataset:
    return Repository(open_store(root)).open(name)


def in_processes(count: int, work: Any, *arguments: object) -> list[Any]:
    """Run `work(number, *arguments)` in forked processes and return what it gave."""
    answers = _fork.SimpleQueue()

    def run(number: int) -> None:
        answers.put(work(number, *arguments))

    processes = [_fork.Process(target=run, args=(number,)) for number in range(count)]
    for process in processes:
        process.start()
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    return found


def append(root: str, name: str, processes: str, commits: str) -> None:
    """Commit appends from several processes, and print what was acknowledged."""

    def work(number: int) -> list[tuple[str, int]]:
        dataset = open_dataset(root, name)
        tags = [f"{number}-{serial}" for serial in range(int(commits))]
        return [(tag, dataset.append(rows_of(tag)).version) for tag in tags]

    print(json.dumps(list(itertools.chain(*in_processes(int(processes), work)))))


def overwrite(root: str, name: str, processes: str, rounds: str) -> None:
    """Let several processes overwrite one partition, all from the same version in each round."""
    all_began, all_ended = _fork.Barrier(int(processes)), _fork.Barrier(int(processes))

    def rows(tag: str) -> Iterator[dict[str, Any]]:
        all_began.wait()  # data is asked for after the transaction has begun
        yield {"p": "a", "tag": tag, "n": 0}

    def work(number: int) -> list[dict[str, Any]]:
        dataset = open_dataset(root, name)
        found = []
        for serial in range(int(rounds)):
            tag = f"{number}-{serial}"
            try:
                commit = dataset.overwrite(rows(tag))
                found.append({"tag": tag, "commit": commit.commit_id, "version": commit.version})
            except CommitConflictError as error:
                found.append({"tag": tag, "expected": error.expected, "actual": error.actual})
            all_ended.wait()
        return found

    print(json.dumps(list(itertools.chain(*in_processes(int(processes), work)))))


def read_rows(root: str, name: str) -> None:
    """Read the dataset until the input ends; every commit must be whole, and none may vanish."""
    dataset = open_dataset(root, name)
    reads, seen = 0, set[str]()
    for _ in _until_input_ends():
        counts = collections.Counter(dataset.arrow(["tag"]).column("tag").to_pylist())
        assert set(counts.values()) <= {ROWS_PER_COMMIT}, counts
        assert seen <= counts.keys(), seen - counts.keys()
        seen = set(counts)
        reads += 1
    print(json.dumps({"reads": reads, "commits": len(seen)}))


def read_heads(root: str, name: str) -> None:
    """Read the head until the input ends."""
    store = open_store(root)
    versions = [read_head(store, name).state.version for _ in _until_input_ends()]
    assert versions == sorted(versions)
    print(json.dumps({"reads": len(versions), "last": versions[-1]}))


def _until_input_ends() -> Iterator[None]:
    print("ready", flush=True)
    os.set_blocking(sys.stdin.fileno(), False)
    while sys.stdin.buffer.read(1) != b"":
        yield
    yield


class DyingStore(DelegatingStore):
    """Kills its process before or after the nth call, and says before which call that was."""

    def __init__(self, inner: Store, *, nth: int, after: bool) -> None:
        super().__init__(inner)
        self._nth = nth
        self._after = after
        self._numbers = itertools.count(1)  # several threads may call at once

    @contextlib.contextmanager
    def _step(self, operation: str, key: str) -> Iterator[None]:
        is_last = next(self._numbers) == self._nth
        if is_last:
            print(json.dumps([operation, key]), flush=True)
            if not self._after:
                os.kill(os.getpid(), signal.SIGKILL)
        try:
            yield
        finally:
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)

    def _get(self, key: str) -> Any:
        with self._step("get", key):
            return super()._get(key)

    def _get_if_changed(self, key: str, etag: str) -> Any:
        with self._step("get", key):
            return super()._get_if_changed(key, etag)

    def _create(self, key: str, data: memoryview) -> str:
        with self._step("create", key):
            return super()._create(key, data)

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        with self._step("replace", key):
            return super()._replace(key, data, if_match=if_match)

    def _put(self, key: str, data: memoryview) -> None:
        with self._step("put", key):
            super()._put(key, data)

    def _delete(self, keys: Any) -> None:
        with self._step("delete", keys[0]):
            super()._delete(keys)

    def _delete_if_match(self, key: str, etag: str) -> bool:
        with self._step("delete", key):
            return super()._delete_if_match(key, etag)


def die() -> None:
    """Commit once for each line of input, in a process that is killed as the line says.

    A line names the root, its options, the operation and its tag, and one of: `call` and `after` (the nth call to the
    store), `event` (the nth call to the system), `delay_s` (from outside). The answer says
    whether the process came to its end, and how long it took.
    """
    for line in sys.stdin:
        order = json.loads(line)
        begin = time.monotonic()
        child = os.fork()
        if not child:
            _commit_and_die(order)
        if "delay_s" in order:
            time.sleep(order["delay_s"])
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        answer = {
            "finished": os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0,
            "failed": os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0,
            "seconds": time.monotonic() - begin,
        }
        print(json.dumps(answer), flush=True)


def _commit_and_die(order: dict[str, Any]) -> None:
    status = 1
    try:
        os.environ["LAKEBED_STORAGE_OPTIONS"] = order["options"]
        is_url = "://" in order["root"]
        store = open_store(order["root"], storage_options={} if is_url else {"durable": "false"})
        if "call" in order:
            store = DyingStore(store, nth=order["call"], after=order["after"])
        dataset = Repository(store).open("d")
        if "event" in order:
            _die_at_event(order["event"])
        if order["operation"] == "hand_over":
            hand_over(store, "d", HeadFormat(order["tag"]))
        elif order["operation"] in {"hold", "release"}:
            getattr(dataset.sources, order["operation"])(order["tag"])
        elif order["operation"] == "rollback":
            dataset.rollback(version=order["tag"], hold=True)
        else:
            getattr(dataset, order["operation"])(rows_of(order["tag"]))
        status = 0
    finally:
        os._exit(status)


def _die_at_event(number: int) -> None:
    # Python tells its audit hooks of every open, mkdir, link, rename, lock and removal.
    events = itertools.count(1)

    def count_down(event: str, _: object) -> None:
        if event.partition(".")[0] in {"os", "open", "fcntl"} and next(events) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count_down)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    globals()[sys.argv[1]](*sys.argv[2:])

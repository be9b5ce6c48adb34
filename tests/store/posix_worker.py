"""What the process tests of the directory store run in processes of their own."""

# ruff: noqa: T201 - printing is how they answer

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import sys
from collections.abc import Callable

from lakebed.errors import LakebedError, ObjectExistsError, PreconditionFailedError
from lakebed.store.posix import PosixStore

HEAD = "flights.by-dataset-metadata.json"


def document(number: int) -> bytes:
    """Return a document whose size changes with its number, so that a torn one is noticed."""
    return json.dumps({"number": number, "padding": "x" * (5_000 + 1_000 * (number % 7))}).encode()


def increment(root: str, times: str) -> None:
    """Count up the head as a commit does: read, change, replace, and again after a lost race."""
    store = PosixStore(root)
    for _ in range(int(times)):
        while True:
            found = store.get(HEAD)
            number = json.loads(found.data)["number"] + 1
            try:
                store.replace(HEAD, document(number), if_match=found.etag)
            except PreconditionFailedError:
                continue
            break


def claim(root: str, count: str) -> None:
    """Try to create every one of a row of objects, and print those that were won."""
    store = PosixStore(root)
    won = []
    for number in range(int(count)):
        try:
            store.create(f"batches/{number}.json", str(os.getpid()).encode())
        except ObjectExistsError:
            continue
        won.append(number)
    print(json.dumps(won))


def write_for_ever(root: str) -> None:
    """Replace the head again and again, and print each number once it is written."""
    store = PosixStore(root)
    for _ in itertools.count():
        found = store.get(HEAD)
        number = json.loads(found.data)["number"] + 1
        store.replace(HEAD, document(number), if_match=found.etag)
        print(number, flush=True)


def die_at_each_step(root: str, operation: str) -> None:
    """Run one write again and again, killed at its first call to the system, its second, ….

    Prints for each what the key holds afterwards, then that the write was through.
    """
    for step in itertools.count(1):
        store = PosixStore(f"{root}/{operation}-{step}")
        if operation == "replace":
            store.create("d/key", document(0))
        child = os.fork()
        if not child:
            _die_in(step, _write_operation(store, operation))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"root": store.uri, "finished": not os.WIFSIGNALED(status)}))
        if not os.WIFSIGNALED(status):
            return


def _write_operation(store: PosixStore, operation: str) -> Callable[[], object]:
    if operation == "create":
        return lambda: store.create("d/key", document(1))
    if operation == "put":
        return lambda: store.put("d/key", document(1))
    etag = store.get("d/key").etag
    return lambda: store.replace("d/key", document(1), if_match=etag)


def _die_in(step: int, operation: Callable[[], object]) -> None:
    # Python tells its audit hooks of every open, mkdir, link, rename, lock and removal.
    steps = itertools.count(1)

    def count_down(event: str, _: object) -> None:
        if event.partition(".")[0] in {"os", "open", "fcntl"} and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count_down)
    operation()


def fill_up(root: str) -> None:
    """Write more than the system lets this process write to one file."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    store = PosixStore(root)
    for write in (
        lambda: store.put("a", bytes(20_000)),
        lambda: store.create("b", bytes(20_000)),
    ):
        try:
            write()
        except LakebedError as error:
            print(json.dumps([type(error).__name__, getattr(error, "retryable", None)]))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])

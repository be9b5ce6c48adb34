"""Adoptions in processes that are killed with signal 9, before and after each of their writes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import lakebed
from lakebed.testing import DelegatingStore

_MOST_WRITES = 30


class _Dying(DelegatingStore):
    """Kills the process at the nth write, before or after it."""

    def __init__(self, inner: lakebed.store.Store, nth: int, *, is_after: bool) -> None:
        super().__init__(inner)
        self._left = nth
        self._is_after = is_after

    def _count(self, *, is_after: bool) -> None:
        self._left -= is_after is self._is_after
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def _create(self, key: str, data: bytes) -> str:
        self._count(is_after=False)
        etag = super()._create(key, data)
        self._count(is_after=True)
        return etag

    def _replace(self, key: str, data: bytes, *, if_match: str) -> str:
        self._count(is_after=False)
        etag = super()._replace(key, data, if_match=if_match)
        self._count(is_after=True)
        return etag

    def _put(self, key: str, data: bytes) -> None:
        self._count(is_after=False)
        super()._put(key, data)
        self._count(is_after=True)


def adopt_and_die(source: Path, name: str, target: Path) -> list[Path]:
    """Adopt a dataset of Kartothek again and again, each time in a copy of its location.

    Args:
        source: The location that is copied.
        name: Name of the dataset in it.
        target: Receives a folder for each attempt.

    Returns:
        The folders of the attempts that were killed, in order of the writes.
    """
    answer = subprocess.run(
        [sys.executable, __file__, str(source), name, str(target)],
        env={**os.environ, "PYTHONPATH": str(Path(lakebed.__file__).parents[1])},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return [Path(folder) for folder in json.loads(answer.stdout)]


def _main(source: Path, name: str, target: Path) -> None:
    killed: list[str] = []
    for nth in range(_MOST_WRITES):
        for is_after in (False, True):
            folder = target / f"{nth:02}-{'after' if is_after else 'before'}"
            shutil.copytree(source, folder)
            child = os.fork()
            if child == 0:
                store = _Dying(lakebed.open_repository(folder).store, nth, is_after=is_after)
                lakebed.Repository(store).adopt(name, kartothek=True)
                os._exit(0)
            if os.WIFSIGNALED(os.waitpid(child, 0)[1]):
                killed.append(str(folder))
            elif is_after:
                sys.stdout.write(json.dumps(killed))
                return
    message = f"more than {_MOST_WRITES} writes"
    raise AssertionError(message)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))

"""Publishes a dataset in forked children that kill themselves at a write.

Each line of its input is a JSON document, `{"root": …, "name": …, "door": …, "at": …, "is_done": …}`;
the answer is whether the child was killed. The parent does nothing but fork.
"""

# ruff: noqa: T201 - printing is how it answers

import json
import os
import signal
import sys

import pyarrow.parquet  # noqa: F401 - before the fork, as all that takes long to load
from table_doors import DOORS

from lakebed.repository import Repository
from lakebed.store.posix import PosixStore
from lakebed.tables.delta import to_delta
from lakebed.tables.iceberg import (
    homes,  # noqa: F401 - same
    snapshots,  # noqa: F401 - same
)
from lakebed.testing import DelegatingStore

to_delta.COMMITS_A_CHECKPOINT = 1  # so that publishers die at these, too


class Deadly(DelegatingStore):
    """Kills its process at the nth write, before or after that was done."""

    def __init__(self, inner, at: int, *, is_done: bool) -> None:
        super().__init__(inner)
        self._left, self._is_done = at, is_done

    def _write(self, write):
        self._left -= 1
        if self._left == 0 and not self._is_done:
            os.kill(os.getpid(), signal.SIGKILL)
        result = write()
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def _create(self, key, data):
        return self._write(lambda: super(Deadly, self)._create(key, data))

    def _replace(self, key, data, *, if_match):
        return self._write(lambda: super(Deadly, self)._replace(key, data, if_match=if_match))

    def _put(self, key, data):
        return self._write(lambda: super(Deadly, self)._put(key, data))


def publish(root: str, name: str, door: str, at: int, *, is_done: bool) -> None:
    store = Deadly(PosixStore(root, durable=False), at, is_done=is_done)
    (target,) = (one for one in DOORS if one.name == door)
    target.publish(Repository(store).open(name))


def main() -> None:
    for line in sys.stdin:
        given = json.loads(line)
        child = os.fork()
        if not child:
            code = 1
            try:
                publish(**given)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        is_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        assert is_killed or os.WEXITSTATUS(status) == 0, status
        print(json.dumps(is_killed), flush=True)


if __name__ == "__main__":
    main()

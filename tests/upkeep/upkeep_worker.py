"""Maintains a repository, or runs a pipeline, in forked children that kill themselves at a write.

Each line of its input is a JSON list of children, `{"lake": …}` or `{"file": …}` with `"at": …`, which
run at once; the answer is a list of their ends: `killed`, or the exit code. The parent does nothing
but fork.
"""

# ruff: noqa: T201 - printing is how it answers

from __future__ import annotations

import functools
import itertools
import json
import os
import signal
import sys
from typing import Any

import pyarrow.parquet  # noqa: F401 - before the fork, as all that takes long to load

import lakebed
from lakebed.archive.index.sqlite import SqliteIndex
from lakebed.pipeline.pipeline import Pipeline
from lakebed.store.posix import PosixStore
from lakebed.tables.delta import to_delta  # noqa: F401 - same
from lakebed.upkeep.rules import CleanupRule
from lakebed.work import compaction, deletion  # noqa: F401 - same

WRITES = {
    PosixStore: (
        "_create",
        "_replace",
        "_put",
        "_put_stream",
        "_adopt",
        "_delete",
        "_delete_if_match",
    ),
    SqliteIndex: ("_put", "_delete"),
}


def die_at(nth: int) -> None:
    """Let this process kill itself after the nth write."""
    numbers = itertools.count(1)

    def deadly(real: Any) -> Any:
        @functools.wraps(real)
        def write(*given: Any, **named: Any) -> Any:
            result = real(*given, **named)
            if next(numbers) == nth:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return write

    for kind, names in WRITES.items():
        for name in names:
            setattr(kind, name, deadly(getattr(kind, name)))


def work(
    lake: str | None = None,
    file: str | None = None,
    at: int | None = None,
    older_than: str = "1h",  # files that another process still reads must stay
) -> int:
    if at is not None:
        die_at(at)
    if file is not None:
        report: Any = Pipeline.from_toml(file).run(fail=False)
    else:
        cleanup = CleanupRule(older_than=older_than)
        repository = lakebed.open_repository(str(lake), storage_options={"durable": "false"})
        report = repository.maintain(cleanup=cleanup, fail=False)
    if report.exit_code:
        print(report.to_records(), file=sys.stderr)
    return int(report.exit_code)


def main() -> None:
    for line in sys.stdin:
        children = []
        for given in json.loads(line):
            child = os.fork()
            if not child:
                code = 100
                try:
                    code = work(**given)
                finally:
                    os._exit(code)
            children.append(child)
        ends: list[str | int] = []
        for child in children:
            _, status = os.waitpid(child, 0)
            is_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            ends.append("killed" if is_killed else os.WEXITSTATUS(status))
        print(json.dumps(ends), flush=True)


if __name__ == "__main__":
    main()

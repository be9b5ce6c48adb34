"""Runs a pipeline in forked children, of which some kill themselves at a write.

Each line of its input is a JSON list of children, `{"file": …, "at": …, "is_done": …, "delay_s": …}`, which
run at once; the answer is a list of their ends: `killed`, or the exit code of the run. The parent does
nothing but fork.
"""

# ruff: noqa: T201 - printing is how it answers

from __future__ import annotations

import functools
import itertools
import json
import os
import signal
import sys
import time
from typing import Any

import pyarrow.parquet  # noqa: F401 - before the fork, as all that takes long to load

from lakebed.pipeline.pipeline import Pipeline
from lakebed.store.posix import PosixStore
from lakebed.tables.delta import to_delta  # noqa: F401 - same
from lakebed.tables.iceberg import homes, snapshots  # noqa: F401 - same
from lakebed.work import compaction, deletion  # noqa: F401 - same

WRITES = ("_create", "_replace", "_put", "_put_stream", "_adopt", "_delete", "_delete_if_match")


def die_at(nth: int, *, is_done: bool) -> None:
    """Let this process kill itself at the nth write, before or after that was done."""
    numbers = itertools.count(1)

    def deadly(real: Any) -> Any:
        @functools.wraps(real)
        def write(*given: Any, **named: Any) -> Any:
            is_last = next(numbers) == nth
            if is_last and not is_done:
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*given, **named)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return write

    for name in WRITES:
        setattr(PosixStore, name, deadly(getattr(PosixStore, name)))


def run(file: str, at: int | None = None, *, is_done: bool = True) -> int:
    if at is not None:
        die_at(at, is_done=is_done)
    report = Pipeline.from_toml(file).run(fail=False)
    if report.exit_code:
        print(report.to_records(), file=sys.stderr)
    return report.exit_code


def main() -> None:
    for line in sys.stdin:
        children: dict[int, float | None] = {}
        for given in json.loads(line):
            delay_s = given.pop("delay_s", None)
            child = os.fork()
            if not child:
                code = 100
                try:
                    code = run(**given)
                finally:
                    os._exit(code)
            children[child] = delay_s
        for child, delay_s in children.items():
            if delay_s is not None:
                time.sleep(delay_s)
                os.kill(child, signal.SIGKILL)
        ends: list[str | int] = []
        for child in children:
            _, status = os.waitpid(child, 0)
            is_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            ends.append("killed" if is_killed else os.WEXITSTATUS(status))
        print(json.dumps(ends), flush=True)


if __name__ == "__main__":
    main()

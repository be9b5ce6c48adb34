"""What every system's dataset of N files looks like, though no data file of it exists.

A hundred files a day, ten rows a file. The ids are spread over all files, so that their bounds
tell nothing, and each id is in one file. Only the standard library is used: each system has an
environment of its own.
"""

from __future__ import annotations

import datetime as dt
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

FILES_A_DAY = 100
ROWS_A_FILE = 10
FILE_BYTES = 1_500
FIRST_DAY = dt.date(2000, 1, 1)
COLUMNS = ("day", "id", "amount")


def day_of(file: int) -> dt.date:
    """Return the day that a file is of."""
    return FIRST_DAY + dt.timedelta(days=file // FILES_A_DAY)


def day_to_ask(count: int) -> dt.date:
    """Return a day in the middle of a dataset of `count` files."""
    return day_of(count // 2)


def ids_of(file: int, count: int) -> range:
    """Return the ids in a file of a dataset of `count` files."""
    return range(file, count * ROWS_A_FILE, count)


def ids_to_ask(count: int, number: int) -> list[int]:
    """Return ids spread over the dataset, the same in every run, within the bounds of all files."""
    return [count + (i * 104_729 + 12_345) % (count * (ROWS_A_FILE - 2)) for i in range(number)]


def rows_of_new_file(count: int) -> dict[str, list[Any]]:
    """Return the rows of one more file, which a commit adds."""
    return {
        "day": [day_to_ask(count)] * ROWS_A_FILE,
        "id": list(range(count * ROWS_A_FILE, (count + 1) * ROWS_A_FILE)),
        "amount": [1.5] * ROWS_A_FILE,
    }


class Stopwatch:
    """Times blocks of one action: `with watch: …` adds to `seconds`.

    Attributes:
        cpu_s: Processor time of each watch of this process, in all threads.
    """

    cpu_s: ClassVar[list[float]] = []

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began, self._cpu = time.perf_counter(), time.process_time()

    def __exit__(self, *error: object) -> None:
        self.seconds += time.perf_counter() - self._began
        self.cpu_s.append(time.process_time() - self._cpu)


def answer(actions: dict[str, Callable[..., dict[str, Any]]]) -> None:
    """Run the action that the command line names, and print what it returns, as JSON."""
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    found = actions[name](**arguments)
    if Stopwatch.cpu_s:
        found["cpu_s"] = statistics.median(Stopwatch.cpu_s)
    # On Linux the unit is KiB.
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    sys.stdout.write(json.dumps(found) + "\n")


def batches(count: int, size: int) -> Iterator[range]:
    """Cut the numbers of the files into pieces."""
    for start in range(0, count, size):
        yield range(start, min(count, start + size))

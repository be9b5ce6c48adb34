"""How many commits a second the protocol allows, if the processor has no limit.

    python bench/contention_model.py

Writers of processes of their own append again and again, in a time of the program's own: a request
takes effect after half of its time, and puts are decided one at a time. So the figures hold on any
machine. `raw` writers only read an object and put it again; `document` and `tree` ones send what an
append of Lakebed sends, wait as it does after a lost race, and compute for some milliseconds before
each put. Prints commits a second, the seconds within which 99 % are done, and attempts a commit.
"""

from __future__ import annotations

import heapq
import itertools
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from lakebed import CommitOptions

WRITERS = (1, 16, 64, 200)
MILLISECONDS = (20.0, 60.0)
_SECONDS = 120
_PATIENCE = CommitOptions()


@dataclass(frozen=True, slots=True)
class Kind:
    """What a writer sends and computes.

    Attributes:
        hops: Requests one after the other before the first attempt, in each append.
        between: Requests between the read of the head and its put.
        cpu_ms: Milliseconds that an attempt computes between them.
        waits: Whether it waits after a lost race.
    """

    hops: int = 0
    between: int = 0
    cpu_ms: float = 0.0
    waits: bool = False


KINDS = {
    "raw": Kind(),
    "document": Kind(hops=4, between=1, cpu_ms=5, waits=True),
    "tree": Kind(hops=4, cpu_ms=5, waits=True),
}


@dataclass(slots=True)
class Race:
    """Writers of one object, in a time of their own."""

    kind: Kind
    ms: float
    random: random.Random = field(default_factory=lambda: random.Random(1))
    version: int = 0
    attempts: int = 0
    took_ms: list[float] = field(default_factory=list)
    _events: list[tuple[float, int, Callable[[float], None]]] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def run(self, writers: int) -> tuple[float, float, float]:
        """Return commits a second, seconds of 99 %, and attempts a commit."""
        for _ in range(writers):
            self._at(self.random.uniform(0, self.ms), self._begin)
        while self._events[0][0] < 1000 * _SECONDS:
            now, _, event = heapq.heappop(self._events)
            event(now)
        done = len(self.took_ms)
        p99_ms = sorted(self.took_ms)[int(0.99 * (done - 1))]
        return done / _SECONDS, p99_ms / 1000, self.attempts / done

    def _at(self, time: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), event))

    def _begin(self, now: float) -> None:
        first = now + self.kind.hops * self.ms
        self._at(first, partial(self._attempt, began=now, wait_ms=_PATIENCE.first_wait_ms))

    def _attempt(self, now: float, began: float, wait_ms: float) -> None:
        self.attempts += 1
        self._at(now + self.ms / 2, partial(self._read, began=began, wait_ms=wait_ms))

    def _read(self, now: float, began: float, wait_ms: float) -> None:
        later = now + self.ms * (1 + self.kind.between) + self.kind.cpu_ms
        seen = self.version
        self._at(later, partial(self._put, began=began, wait_ms=wait_ms, seen=seen))

    def _put(self, now: float, began: float, wait_ms: float, seen: int) -> None:
        told = now + self.ms / 2
        if seen == self.version:
            self.version += 1
            self.took_ms.append(told - began)
            self._at(told, self._begin)
            return
        if self.kind.waits:
            first = _PATIENCE.first_wait_ms
            wait_ms = min(_PATIENCE.longest_wait_ms, self.random.uniform(first, 3 * wait_ms))
            told += wait_ms
        self._at(told, partial(self._attempt, began=began, wait_ms=wait_ms))


def main() -> None:
    """Print a table."""
    sys.stdout.write("| ms a request | writers | kind | commits/s | 99 % within, s | attempts |\n")
    sys.stdout.write("| --- | --- | --- | --- | --- | --- |\n")
    for ms, writers, (name, kind) in itertools.product(MILLISECONDS, WRITERS, KINDS.items()):
        per_s, p99_s, attempts = Race(kind, ms).run(writers)
        sys.stdout.write(
            f"| {ms:g} | {writers} | {name} | {per_s:.1f} | {p99_s:.1f} | {attempts:.1f} |\n"
        )


if __name__ == "__main__":
    main()

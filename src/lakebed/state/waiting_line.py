"""Lines of commits that wait in this process for their turn, without a thread of their own.

Commits to one dataset through equal stores form one line. The first leads: it takes the others that
wait along, and then the next one leads. So nothing runs in the background, and nothing is lost if
the leader is interrupted: what it took along goes back to the line.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_MOST_LINES = 1024  # that are remembered; a line in use is never dropped
LOOK_S = 5.0  # after this time, look whether the thread of the leader is still alive


class Seat:
    """A place in a line.

    Attributes:
        is_done: Whether its commit is decided; set by the leader.
        thread: The thread that has taken it.
        woken: Set when it leads, or when it need not wait any longer.
        is_taken: Whether the leader has it.
        wants_out: Whether it does not return to the line.
    """

    def __init__(self) -> None:
        self.is_done = False
        self.thread = threading.current_thread()
        self.woken = threading.Event()
        self.is_taken = False
        self.wants_out = False


SeatT = TypeVar("SeatT", bound=Seat)


class WaitingLine(Generic[SeatT]):
    """Seats in the order of their arrival, one of which leads.

    Attributes:
        is_calm: Whether the last commit had no rival; a commit may then prepare for the version
            after its base before it has seen the head.
    """

    def __init__(self) -> None:
        self.is_calm = True
        self._lock = threading.Lock()
        self._leader: SeatT | None = None
        self._waiting: deque[SeatT] = deque()
        self._taken: list[SeatT] = []

    @property
    def is_idle(self) -> bool:
        """True if no seat leads or waits."""
        return self._leader is None and not self._waiting

    @property
    def waiting_count(self) -> int:
        """Number of the seats that wait."""
        return len(self._waiting)

    def try_lead(self, seat: SeatT) -> bool:
        """Lead at once, if no other seat does; return whether it does."""
        with self._lock:
            if self._leader is None:
                self._leader = seat
        return self._leader is seat

    def wait(self, seat: SeatT, until: float) -> bool:
        """Wait until the seat leads or is done.

        Args:
            seat: The seat.
            until: Time by the monotonic clock, after which it leaves the line.

        Returns:
            Whether it leads. If not, it is done, or the time is over: then no leader has it.
        """
        with self._lock:
            if self._leader is None or self._leader is seat:
                self._leader = seat
                return True
            if self._leader.thread is seat.thread:
                return False  # this thread is called by the leader, and must not wait for itself
            self._waiting.append(seat)
        while not pause(seat.woken, LOOK_S if seat.wants_out else _seconds_to(until)):
            with self._lock:
                self._replace_dead_leader()
                if self._leader is seat:
                    break
                if time.monotonic() < until:
                    continue
                seat.wants_out = True
                if not seat.is_taken:
                    with contextlib.suppress(ValueError):  # it may have been decided just now
                        self._waiting.remove(seat)
                    break
        return self._leader is seat

    def take(self, limit: Callable[[SeatT], bool]) -> list[SeatT]:
        """Take seats out of the line, for the leader to decide.

        Args:
            limit: Function that returns whether the leader takes a seat along.
        """
        with self._lock:
            # Noted first: an interrupt must not lose them.
            self._taken = [seat for seat in self._waiting if limit(seat)]
            for seat in self._taken:
                self._waiting.remove(seat)
                seat.is_taken = True
            return list(self._taken)

    def put_back(self) -> None:
        """Wake the taken seats that are done, and let the others wait at the front."""
        with self._lock:
            self._put_back()

    def _put_back(self) -> None:
        for seat in reversed(self._taken):
            seat.is_taken = False
            if seat.is_done or seat.wants_out:
                seat.woken.set()
            elif seat not in self._waiting:
                self._waiting.appendleft(seat)
        self._taken = []

    def leave(self, seat: SeatT) -> None:
        """Leave the line, from any place in it; if the seat leads, the next one does."""
        with self._lock:
            seat.wants_out = True
            with contextlib.suppress(ValueError):
                self._waiting.remove(seat)
            if self._leader is seat:
                self._put_back()
                self._lead_next()

    def _lead_next(self) -> None:
        self._leader = self._waiting.popleft() if self._waiting else None
        if self._leader is not None:
            self._leader.woken.set()

    def _replace_dead_leader(self) -> None:
        """Let the next seat lead if the thread of the leader has ended without leaving."""
        if self._leader is not None and not self._leader.thread.is_alive():
            self._put_back()
            self._lead_next()


def _seconds_to(until: float) -> float:
    return min(LOOK_S, max(0.0, until - time.monotonic()))


def pause(event: threading.Event, seconds: float) -> bool:
    """Wait for an event up to some seconds; return whether it has come."""
    return event.wait(seconds)


class WaitingLines(Generic[SeatT]):
    """The lines of this process, by store and dataset."""

    def __init__(self) -> None:
        self.clear()
        if hasattr(os, "register_at_fork"):
            # The threads that hold a place, or the lock, do not exist in the child.
            os.register_at_fork(after_in_child=self.clear)

    def clear(self) -> None:
        """Forget all lines, as in a new process."""
        self._lock = threading.Lock()
        self._lines: dict[tuple[Hashable, str], WaitingLine[SeatT]] = {}

    def of(self, group_key: Hashable, dataset: str) -> WaitingLine[SeatT]:
        """Return the line of a dataset.

        Args:
            group_key: `Store.group_key` of the store that holds the dataset.
            dataset: Name of the dataset.
        """
        name = (group_key, dataset)
        with self._lock:
            if len(self._lines) >= _MOST_LINES and name not in self._lines:
                self._lines = {key: one for key, one in self._lines.items() if not one.is_idle}
            return self._lines.setdefault(name, WaitingLine())

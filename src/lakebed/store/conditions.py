"""Whether a service keeps the conditions of a put, found out once in a process and store.

Some services take `If-Match` and `If-None-Match` and do not look at them. Every commit is
acknowledged then, and of two at once one is lost. No answer to an ordinary request tells, so a
process tries it before its first conditional put, on an object of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Conditions:
    """What the process knows of one store. Safe for threads.

    Attributes:
        broken: What the service did that it should have refused; empty while nothing is known
            against it.
    """

    def __init__(self) -> None:
        self.broken = ""
        self._is_known = False
        self._lock = threading.Lock()

    def check(self, find_broken: Callable[[], str]) -> None:
        """Find out, unless that was done before.

        Args:
            find_broken: Asks the service; returns what `broken` is to be. What it raises is not
                remembered: the next call asks again.
        """
        if self._is_known:
            return
        with self._lock:
            if not self._is_known:
                self.broken = find_broken()
                self._is_known = True


_known: dict[str, Conditions] = {}
_known_lock = threading.Lock()


def conditions_of(cache_name: str) -> Conditions:
    """Return what the process knows of the store of this name; see `Store.cache_name`."""
    with _known_lock:
        return _known.setdefault(cache_name, Conditions())

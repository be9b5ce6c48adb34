"""Whether a service keeps the conditions of a put: found out once, and noted where it was found.

Some services take `If-Match` and `If-None-Match` and do not look at them. Every commit is
acknowledged then, and of two at once one is lost. No answer to an ordinary request tells, so a
process tries it before its first conditional put, on an object of its own. What it has found lies
beside the data from then on, so that the next process only reads it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from lakebed.store.base import StoredObject

# The note is believed only as long as it lies where it was written. A copy of the bucket, on
# another service perhaps, was written at another time than the note says.
_MAX_DISTANCE = timedelta(hours=1)


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

    def check(self, find_broken: Callable[[], str], *, anew: bool = False) -> None:
        """Find out, unless that was done before.

        Args:
            find_broken: Asks the service; returns what `broken` is to be. What it raises is not
                remembered: the next call asks again.
            anew: Ask also if that was done before.
        """
        if self._is_known and not anew:
            return
        with self._lock:
            if anew or not self._is_known:
                self.broken = find_broken()
                self._is_known = True


_known: dict[str, Conditions] = {}
_known_lock = threading.Lock()


def conditions_of(cache_name: str) -> Conditions:
    """Return what the process knows of the store of this name; see `Store.cache_name`."""
    with _known_lock:
        return _known.setdefault(cache_name, Conditions())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionsNote:
    """Where a store notes that a service has kept the conditions.

    Attributes:
        key: Of the note; begins with a dot, so that no listing shows it.
    """

    key: str

    @classmethod
    def of(cls, addresses: Iterable[str]) -> ConditionsNote:
        """Return the note of the service that is asked at these addresses.

        The same objects may be reached by several services, such as a gateway, and not all of them
        keep conditions.
        """
        asked = blake2b(repr(sorted(addresses)).encode(), digest_size=8).hexdigest()
        return cls(key=f".lakebed/conditions-{asked}.json")

    def content(self) -> bytes:
        """Return what to write now."""
        tried_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        document = {"kept": ["If-None-Match", "If-Match"], "tried_at": tried_at}
        return json.dumps(document).encode()

    def is_believed(self, stored: StoredObject) -> bool:
        """Whether a note that was read was written here, and by us."""
        try:
            tried_at = datetime.fromisoformat(json.loads(stored.data)["tried_at"])
            distance = abs(stored.modified_at - tried_at) if stored.modified_at else None
        except (ValueError, TypeError, LookupError, RecursionError):
            return False
        return distance is not None and distance <= _MAX_DISTANCE

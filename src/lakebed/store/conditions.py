"""Test whether a service honours the conditions of a put, with a note of the result in the store.

Some services accept `If-Match` and `If-None-Match` but ignore them. Then every commit is
acknowledged, and one of two concurrent commits is lost. Ordinary requests do not show this, so a
process tries it before its first conditional put, on an object of its own. It stores the result
beside the data, so that the next process only reads it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from lakebed.store.base import StoredObject

# The note is valid only where it was written. In a copy of the bucket, perhaps on another service,
# the object's time differs from the time in the note.
_MAX_DISTANCE = timedelta(hours=1)


class Conditions:
    """The result of the test for one store, kept for the process. Safe for threads.

    Attributes:
        broken: Description of a put that the service should have refused; empty if there was none.
    """

    def __init__(self) -> None:
        self.broken = ""
        self._is_known = False
        self._lock = threading.Lock()

    def check(self, find_broken: Callable[[], str], *, repeat: bool = False) -> None:
        """Make the test, unless it was made before.

        Args:
            find_broken: Makes requests and returns the value for `broken`. If it raises, the next
                call makes the test.
            repeat: Make the test even if it was made before.
        """
        if self._is_known and not repeat:
            return
        with self._lock:
            if repeat or not self._is_known:
                self.broken = find_broken()
                self._is_known = True


_known: dict[str, Conditions] = {}
_known_lock = threading.Lock()


def conditions_of(cache_name: str) -> Conditions:
    """Return the test result of the store with this name; see `Store.cache_name`."""
    with _known_lock:
        return _known.setdefault(cache_name, Conditions())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionsNote:
    """The object that records that a service honours the conditions.

    Attributes:
        key: Key of the object; begins with a dot, so that no listing shows it.
    """

    key: str

    @classmethod
    def of(cls, addresses: Iterable[str]) -> ConditionsNote:
        """Return the note of the service at these addresses.

        Several services, such as a gateway, may give access to the same objects, and not all of
        them honour conditions.
        """
        digest = blake2b(repr(sorted(addresses)).encode(), digest_size=8).hexdigest()
        return cls(key=f".lakebed/conditions-{digest}.json")

    def content(self) -> bytes:
        """Return the content of the note, with the current time."""
        tried_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        document = {"kept": ["If-None-Match", "If-Match"], "tried_at": tried_at}
        return json.dumps(document).encode()

    def is_believed(self, stored: StoredObject) -> bool:
        """Return whether a note was written here and by Lakebed."""
        try:
            tried_at = datetime.fromisoformat(json.loads(stored.data)["tried_at"])
            distance = abs(stored.modified_at - tried_at) if stored.modified_at else None
        except (ValueError, TypeError, LookupError, RecursionError):
            return False
        return distance is not None and distance <= _MAX_DISTANCE

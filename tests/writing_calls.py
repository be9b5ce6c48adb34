"""Which calls of a store write, so that a test can let each of them fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from lakebed import Repository
from lakebed.store.base import Store
from lakebed.testing import DelegatingStore


class _Recording(DelegatingStore):
    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls = Counter[str]()

    def _create(self, key: str, data: memoryview) -> str:
        self.calls["create"] += 1
        return super()._create(key, data)

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        self.calls["replace"] += 1
        return super()._replace(key, data, if_match=if_match)

    def _put(self, key: str, data: memoryview) -> None:
        self.calls["put"] += 1
        super()._put(key, data)


def writing_calls(store: Store, act: Callable[[Repository], object]) -> list[tuple[str, int]]:
    """Return the calls with which something writes: the name of each, and its number of that name."""
    recording = _Recording(store)
    act(Repository(recording))
    return [(name, nth + 1) for name, count in recording.calls.items() for nth in range(count)]

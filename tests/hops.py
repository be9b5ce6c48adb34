"""How many requests of a call wait for each other: a store with a logical clock.

Each thread has a time of its own. A request takes one tick; what was submitted begins when it was
submitted, and whoever waits for a future is at least as late as who set it. So requests that do not
need each other share a tick, however many threads there are and however busy the machine is, and
the last tick is the length of the longest chain of requests that wait for each other.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from lakebed.store import Store
from lakebed.testing import DelegatingStore

_T = TypeVar("_T")


class _Clock(threading.local):
    ticks = 0


_CLOCK = _Clock()


class TickingStore(DelegatingStore):
    """A far store each of whose requests takes one tick.

    Attributes:
        last: When the last request was over.
        requests: Each request, with the tick at its end.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.is_near = False
        self.reset()

    def reset(self) -> None:
        """Begin at tick 0."""
        _CLOCK.ticks = 0
        self.last = 0
        self.requests: list[tuple[int, str, str]] = []

    def _tick(self, name: str, key: str, request: Callable[[], _T]) -> _T:
        try:
            return request()
        finally:
            _CLOCK.ticks += 1
            self.last = max(self.last, _CLOCK.ticks)
            self.requests.append((_CLOCK.ticks, name, key))

    def ended(self, name: str, part: str) -> int:
        """Return the tick at which the last request of a kind was over."""
        return max(tick for tick, kind, key in self.requests if kind == name and part in key)

    def _get(self, key: str) -> Any:
        return self._tick("get", key, lambda: self.inner.get(key))

    def _get_if_changed(self, key: str, etag: str) -> Any:
        return self._tick("get", key, lambda: self.inner.get_if_changed(key, etag=etag))

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        return self._tick("get", key, lambda: self.inner.get_range(key, start, length))

    def _size(self, key: str) -> int:
        return self._tick("head", key, lambda: self.inner.size(key))

    def _stat(self, key: str) -> Any:
        return self._tick("head", key, lambda: self.inner.stat(key))

    def _create(self, key: str, data: memoryview) -> str:
        return self._tick("put", key, lambda: self.inner.create(key, data))

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        return self._tick("put", key, lambda: self.inner.replace(key, data, if_match=if_match))

    def _put(self, key: str, data: memoryview) -> None:
        self._tick("put", key, lambda: self.inner.put(key, data))

    def _put_stream(self, key: str, pieces: Iterator[memoryview], **options: Any) -> None:
        self._tick("put", key, lambda: self.inner.put_stream(key, pieces, **options))

    def _list(self, begins_with: str, *, recursive: bool) -> Iterator[Any]:
        list_all = lambda: list(self.inner.list(begins_with, recursive=recursive))  # noqa: E731
        return iter(self._tick("list", begins_with, list_all))

    def _folders(self, begins_with: str) -> list[str]:
        return self._tick("list", begins_with, lambda: self.inner.folders(begins_with))

    def _delete(self, keys: Any) -> None:
        self._tick("delete", keys[0], lambda: self.inner.delete(keys))

    def _delete_if_match(self, key: str, etag: str) -> bool:
        return self._tick("delete", key, lambda: self.inner.delete_if_match(key, etag=etag))


@contextmanager
def counted() -> Iterator[None]:
    """Let the logical time of a thread be known to those that wait for it."""
    submit, wait = futures.ThreadPoolExecutor.submit, futures.wait
    set_result, set_exception = futures.Future.set_result, futures.Future.set_exception
    result = futures.Future.result

    def submitting(pool: Any, work: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
        begun = _CLOCK.ticks

        def run() -> Any:
            _CLOCK.ticks = begun  # whatever the thread has done before
            return work(*given, **named)

        return submit(pool, run)

    class Items(collections.deque[Any]):
        """What threads take one by one: each item begins when all were given."""

        def __init__(self, items: Iterable[Any]) -> None:
            super().__init__(items)
            self.begun = _CLOCK.ticks

        def popleft(self) -> Any:
            item = super().popleft()
            _CLOCK.ticks = self.begun
            return item

    def mark(future: Any) -> None:
        future.ticks = _CLOCK.ticks

    def setting_result(future: Any, value: Any) -> None:
        mark(future)
        set_result(future, value)

    def setting_exception(future: Any, value: Any) -> None:
        mark(future)
        set_exception(future, value)

    def join(future: Any) -> None:
        _CLOCK.ticks = max(_CLOCK.ticks, getattr(future, "ticks", 0))

    def waiting_for_result(future: Any, timeout: float | None = None) -> Any:
        try:
            return result(future, timeout)
        finally:
            join(future)

    def waiting(waited: Any, *given: Any, **named: Any) -> Any:
        waited = list(waited)
        found = wait(waited, *given, **named)
        for future in found.done:
            join(future)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(futures.ThreadPoolExecutor, "submit", submitting)
        patch.setattr(futures.Future, "set_result", setting_result)
        patch.setattr(futures.Future, "set_exception", setting_exception)
        patch.setattr(futures.Future, "result", waiting_for_result)
        patch.setattr("lakebed.store.at_once.wait", waiting)
        patch.setattr("lakebed.store.at_once.deque", Items)
        yield

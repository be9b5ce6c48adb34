"""Files on their way to the store, several at once: a store answers late, but many at a time."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

from lakebed.arrow.formats.content import Content
from lakebed.store.base import Store

_THREADS = 8
_MAX_WAITING = 64


class Uploads:
    """Puts immutable objects in threads, and holds few bytes meanwhile."""

    def __init__(self, store: Store, max_bytes: int) -> None:
        """Begin without uploads.

        Args:
            store: Where to.
            max_bytes: Of objects on their way, beyond which `put` waits for the first of them.
        """
        self._store = store
        self._max_bytes = max_bytes
        self._threads: ThreadPoolExecutor | None = None
        self._waiting: deque[tuple[Future[None], Content, int]] = deque()
        self._size_bytes = 0

    def put(self, key: str, content: Content) -> None:
        """Begin to put an object.

        Raises:
            StorageError: An earlier one failed.
        """
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="lakebed-upload")
        size = content.held_bytes
        future = self._threads.submit(content.put, self._store, key)
        self._waiting.append((future, content, size))
        self._size_bytes += size
        while self._size_bytes > self._max_bytes or len(self._waiting) > _MAX_WAITING:
            self._wait_for_first()

    def _wait_for_first(self) -> None:
        future, _, size = self._waiting.popleft()
        self._size_bytes -= size
        future.result()

    def finish(self) -> None:
        """Wait for all.

        Raises:
            StorageError: One failed.
        """
        while self._waiting:
            self._wait_for_first()
        self._close()

    def abort(self) -> None:
        """Give up what has not begun, and wait for the rest; what failed is not said."""
        for future, content, _ in self._waiting:
            if future.cancel():
                content.discard()
        self._waiting.clear()
        self._size_bytes = 0
        self._close()

    def _close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

"""Files on their way to the store, several at once: a store answers late, but many at a time."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

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
        self._waiting: deque[tuple[Future[None], int]] = deque()
        self._size_bytes = 0

    def put(self, key: str, data: pa.Buffer) -> None:
        """Begin to put an object.

        Raises:
            StorageError: An earlier one failed.
        """
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="lakebed-upload")
        self._waiting.append((self._threads.submit(self._store.put, key, data), data.size))
        self._size_bytes += data.size
        while self._size_bytes > self._max_bytes or len(self._waiting) > _MAX_WAITING:
            self._wait_for_first()

    def _wait_for_first(self) -> None:
        future, size = self._waiting.popleft()
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
        for future, _ in self._waiting:
            future.cancel()
        self._waiting.clear()
        self._size_bytes = 0
        self._close()

    def _close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

"""Concurrent uploads of files: a store has a high latency, but serves many requests at a time."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

from lakebed.arrow.formats.file_content import Content
from lakebed.store.base import Store

_THREADS = 8
_MAX_WAITING = 64


class Uploads:
    """Puts immutable objects in threads, and holds few bytes at a time."""

    def __init__(self, store: Store, max_bytes: int) -> None:
        """Start without uploads.

        Args:
            store: Store that receives the objects.
            max_bytes: Size of pending objects above which `put` waits for the first of them.
        """
        self._store = store
        self._max_bytes = max_bytes
        self._threads: ThreadPoolExecutor | None = None
        self._waiting: deque[tuple[Future[None], Content, int]] = deque()
        self._size_bytes = 0

    def put(self, key: str, content: Content) -> None:
        """Start to put an object.

        Raises:
            StorageError: An earlier upload failed.
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
        """Wait for all uploads.

        Raises:
            StorageError: An upload failed.
        """
        while self._waiting:
            self._wait_for_first()
        self._close()

    def abort(self) -> None:
        """Cancel the uploads that have not begun, and wait for the others, ignoring errors."""
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

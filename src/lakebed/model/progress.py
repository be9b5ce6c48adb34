"""How callers are told how far something is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far something is that goes through files.

    Attributes:
        file_count: Files that are done.
        file_total: Files that are to be done, as far as that is known yet.
        size_bytes: Of the files that are done.
        size_total_bytes: Of all that are to be done.

    >>> half = Progress(file_count=1, file_total=4, size_bytes=20, size_total_bytes=40)
    >>> half.share
    0.5
    """

    file_count: int
    file_total: int
    size_bytes: int
    size_total_bytes: int

    @property
    def share(self) -> float:
        """The part that is done, by bytes; 1 where there is nothing to do."""
        if self.size_total_bytes:
            return self.size_bytes / self.size_total_bytes
        return self.file_count / self.file_total if self.file_total else 1.0


OnFiles = Callable[[Progress], None]
"""Is told how far something is, from whichever thread is so far."""


OnFileDone = Callable[[str], None]
"""Is told the name of each file that is done."""


def NO_PROGRESS(*progress: object) -> None:  # noqa: N802 - stands for a value
    """Tell nobody, of whatever kind of progress."""


class Tally:
    """Adds up the files that are done, each once, and tells of it.

    Threads may share it.
    """

    def __init__(self, on_progress: OnFiles, sizes: Mapping[str, int] | None = None) -> None:
        """Begin with nothing done.

        Args:
            on_progress: Who is told.
            sizes: Bytes of each file, by any name; None to `expect` files later.
        """
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}
        self._done: set[str] = set()
        self._so_far = Progress(file_count=0, file_total=0, size_bytes=0, size_total_bytes=0)
        if sizes is not None:
            self.expect(sizes)

    @property
    def listener(self) -> Callable[..., None]:
        """What workers tell of files that are done: `add`, or nobody where nobody listens."""
        return NO_PROGRESS if self._on_progress is NO_PROGRESS else self.add

    def expect(self, sizes: Mapping[str, int]) -> None:
        """Note files that are to be done; one that was noted before counts once."""
        with self._lock:
            new = {name: size for name, size in sizes.items() if name not in self._sizes}
            self._sizes.update(new)
            self._tell(
                replace(
                    self._so_far,
                    file_total=len(self._sizes),
                    size_total_bytes=self._so_far.size_total_bytes + sum(new.values()),
                )
            )

    def add(self, *names: str) -> None:
        """Note that files are done; one that nobody expects is not counted."""
        with self._lock:
            new = {name for name in names if name in self._sizes} - self._done
            self._done |= new
            self._tell(
                replace(
                    self._so_far,
                    file_count=len(self._done),
                    size_bytes=self._so_far.size_bytes + sum(self._sizes[name] for name in new),
                )
            )

    def _tell(self, now: Progress) -> None:
        if now != self._so_far:
            self._so_far = now
            self._on_progress(now)

"""Reports of progress to callers, in one form for all verbs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

_log = logging.getLogger(__name__)

LOG_INTERVAL_S = 30.0
"""Interval between log lines, at level INFO, if there is no callback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of an operation on files.

    Attributes:
        what: Description of the operation, as in Spark jobs and log lines: `compact flights`.
        unit: Counted unit: `file`, `dataset` of a report, or `partition` of a publication.
        file_count: Number of files that are done.
        file_total: Number of all files, as far as known.
        size_bytes: Size of the files that are done.
        size_total_bytes: Size of all files; 0 if unknown.
        row_count: Rows of the files that are done; None if rows are not counted.
        rejected_count: Number of rejected lines of raw files.
        elapsed_s: Seconds since the operation began.

    >>> half = Progress(
    ...     file_count=1, file_total=4, size_bytes=20, size_total_bytes=40, elapsed_s=3.0
    ... )
    >>> half.share, half.left_s
    (0.5, 3.0)
    """

    what: str = ""
    unit: str = "file"
    file_count: int
    file_total: int
    size_bytes: int
    size_total_bytes: int
    row_count: int | None = None
    rejected_count: int = 0
    elapsed_s: float = field(default=0.0, compare=False)

    @property
    def share(self) -> float:
        """The part that is done, by bytes; 1 if there is nothing to do."""
        if self.size_total_bytes:
            return self.size_bytes / self.size_total_bytes
        return self.file_count / self.file_total if self.file_total else 1.0

    @property
    def left_s(self) -> float | None:
        """Estimated seconds until the end; None before anything is done."""
        return self.elapsed_s * (1 / self.share - 1) if self.share else None


OnProgress = Callable[[Progress], None]
"""Callback for progress; receives the progress so far. Calls come from any thread, one at a time.

An error in the callback ends the operation like an error of the storage: nothing more becomes
visible, and files written for the next commit are deleted. Earlier commits stay.
"""


OnFileDone = Callable[[str], None]
"""Callback that receives the name of each file that is done."""


def NO_PROGRESS(*progress: object) -> None:  # noqa: N802 - stands for a value
    """Ignore progress of any kind."""


class Tally:
    """Counts files that are done, each once, and reports progress.

    Threads may share it. Without a callback, it logs progress from time to time, if the level INFO
    is enabled.
    """

    def __init__(
        self,
        on_progress: OnProgress,
        what: str,
        sizes: Mapping[str, int] | None = None,
        *,
        unit: str = "file",
    ) -> None:
        """Begin with nothing done.

        Args:
            on_progress: Callback for progress.
            what: Description of the operation; see `Progress`.
            sizes: Sizes in bytes by name; None to `expect` files later.
            unit: Counted unit; see `Progress`.
        """
        if on_progress is NO_PROGRESS and _log.isEnabledFor(logging.INFO):
            on_progress = _logging()
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._sizes: dict[str, int] = {}
        self._row_counts: dict[str, int] = {}
        self._done: set[str] = set()
        self._so_far = Progress(
            what=what, unit=unit, file_count=0, file_total=0, size_bytes=0, size_total_bytes=0
        )
        if sizes is not None:
            self.expect(sizes)

    @property
    def listener(self) -> Callable[..., None]:
        """Callback for workers: `add`, or `NO_PROGRESS` if progress is not reported."""
        return NO_PROGRESS if self._on_progress is NO_PROGRESS else self.add

    def expect(self, sizes: Mapping[str, int], row_counts: Mapping[str, int] | None = None) -> None:
        """Add files that are still to be done; a file that was added before counts once.

        Args:
            sizes: Sizes in bytes by name.
            row_counts: Known numbers of rows by name.
        """
        with self._lock:
            new = {name: size for name, size in sizes.items() if name not in self._sizes}
            self._sizes.update(new)
            self._row_counts.update(row_counts or {})
            self._report(
                replace(
                    self._so_far,
                    file_total=len(self._sizes),
                    size_total_bytes=self._so_far.size_total_bytes + sum(new.values()),
                )
            )

    def add(
        self,
        *names: str,
        row_count: int | None = None,
        rejected_count: int = 0,
        size_bytes: int = 0,
    ) -> None:
        """Count files as done; files that were not expected do not count.

        Args:
            names: Names of the files; none for rows of a file that is not done yet.
            row_count: Number of rows that was not known before.
            rejected_count: Number of rejected lines.
            size_bytes: Number of bytes read of a file that is not done yet. Subtract it again when
                the file is done.
        """
        with self._lock:
            new = {name for name in names if name in self._sizes} - self._done
            rows = [self._row_counts[name] for name in new if name in self._row_counts]
            rows += [] if row_count is None else [row_count]
            self._done |= new
            so_far = self._so_far
            self._report(
                replace(
                    so_far,
                    file_count=len(self._done),
                    size_bytes=so_far.size_bytes
                    + sum(self._sizes[name] for name in new)
                    + size_bytes,
                    row_count=(so_far.row_count or 0) + sum(rows) if rows else so_far.row_count,
                    rejected_count=so_far.rejected_count + rejected_count,
                )
            )

    def finish(self) -> None:
        """Count all files as done."""
        self.add(*self._sizes)

    def _report(self, now: Progress) -> None:
        if now != self._so_far:
            self._so_far = replace(now, elapsed_s=time.monotonic() - self._began)
            self._on_progress(self._so_far)


def _logging() -> OnProgress:
    """Return a callback that logs progress, at most once in `LOG_INTERVAL_S`."""
    logged_s = 0.0

    def log(progress: Progress) -> None:
        nonlocal logged_s
        if progress.elapsed_s - logged_s < LOG_INTERVAL_S:
            return
        logged_s = progress.elapsed_s
        left_s = progress.left_s
        _log.info(
            "%s %ss=%d/%d bytes=%d/%d rows=%s left_s=%s",
            progress.what,
            progress.unit,
            progress.file_count,
            progress.file_total,
            progress.size_bytes,
            progress.size_total_bytes,
            "-" if progress.row_count is None else progress.row_count,
            "-" if left_s is None else round(left_s),
        )

    return log

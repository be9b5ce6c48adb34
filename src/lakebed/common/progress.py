"""How callers are told how far something is: one form for all verbs, and one place that adds up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

_log = logging.getLogger(__name__)

LOG_INTERVAL_S = 30.0
"""Where nobody is told, the log is told so often, in lines of the level INFO."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far something is that goes through files.

    Attributes:
        what: What is done, as jobs of Spark and lines of the log say it: `compact flights`.
        unit: What is counted, if not files: `dataset` of a report, `partition` of a publication.
        file_count: Files that are done.
        file_total: Files that are to be done, as far as that is known yet.
        size_bytes: Of the files that are done.
        size_total_bytes: Of all that are to be done; 0 where it is not known.
        row_count: Rows of the files that are done; None where nobody counts them.
        rejected_count: Lines of raw files that did not fit.
        elapsed_s: Since the begin.

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
        """The part that is done, by bytes; 1 where there is nothing to do."""
        if self.size_total_bytes:
            return self.size_bytes / self.size_total_bytes
        return self.file_count / self.file_total if self.file_total else 1.0

    @property
    def left_s(self) -> float | None:
        """How long the rest takes if it goes on like this; None before anything is done."""
        return self.elapsed_s * (1 / self.share - 1) if self.share else None


OnProgress = Callable[[Progress], None]
"""Is told how far something is: one call at a time, from whichever thread is so far.

What it raises ends the verb, as an error of the storage would: nothing becomes visible any more, and
what was written for that is deleted. What was committed before stays.
"""


OnFileDone = Callable[[str], None]
"""Is told the name of each file that is done."""


def NO_PROGRESS(*progress: object) -> None:  # noqa: N802 - stands for a value
    """Tell nobody, of whatever kind of progress."""


class Tally:
    """Adds up the files that are done, each once, and tells of it.

    Threads may share it. Where nobody is to be told, it writes to the log now and then, if that
    takes lines of information.
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
            on_progress: Who is told.
            what: What is done; see `Progress`.
            sizes: Bytes of each file, by any name; None to `expect` files later.
            unit: See `Progress`.
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
        """What workers tell of files that are done: `add`, or nobody where nobody listens."""
        return NO_PROGRESS if self._on_progress is NO_PROGRESS else self.add

    def expect(self, sizes: Mapping[str, int], row_counts: Mapping[str, int] | None = None) -> None:
        """Note files that are to be done; one that was noted before counts once.

        Args:
            sizes: Bytes of each.
            row_counts: Rows, of those of which they are known.
        """
        with self._lock:
            new = {name: size for name, size in sizes.items() if name not in self._sizes}
            self._sizes.update(new)
            self._row_counts.update(row_counts or {})
            self._tell(
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
        """Note that files are done; one that nobody expects is not counted.

        Args:
            names: Of the files; none for rows of a file that is not done yet.
            row_count: Rows of which nobody knew before.
            rejected_count: Lines that did not fit.
            size_bytes: Of a file that is not done yet, so many more have been read; to be taken
                off again when it is.
        """
        with self._lock:
            new = {name for name in names if name in self._sizes} - self._done
            rows = [self._row_counts[name] for name in new if name in self._row_counts]
            rows += [] if row_count is None else [row_count]
            self._done |= new
            so_far = self._so_far
            self._tell(
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
        """Note that all files are done."""
        self.add(*self._sizes)

    def _tell(self, now: Progress) -> None:
        if now != self._so_far:
            self._so_far = replace(now, elapsed_s=time.monotonic() - self._began)
            self._on_progress(self._so_far)


def _logging() -> OnProgress:
    """Return what writes to the log, not more often than `LOG_INTERVAL_S` says."""
    told_s = 0.0

    def log(progress: Progress) -> None:
        nonlocal told_s
        if progress.elapsed_s - told_s < LOG_INTERVAL_S:
            return
        told_s = progress.elapsed_s
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

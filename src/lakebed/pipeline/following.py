"""An ingest that goes on: what is new is read in as it comes."""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from lakebed.errors import ConflictError, InvalidInputError, LakebedError, StorageError
from lakebed.pipeline.ingest_report import IngestReport

_log = logging.getLogger(__name__)

_REMEMBERED = 100  # runs that a query can tell of
_FIRST_WAIT_S = 1.0  # after a failure that may pass, then twice as long each time
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRun:
    """One look for new raw files, and what came of it.

    Attributes:
        number: From 0, one more each time.
        began_at: When it began; aware, UTC.
        duration_s: How long it took.
        report: What was read; None where it failed.
        error: Why it failed, and is tried again; None where it did not.
    """

    number: int
    began_at: dt.datetime
    duration_s: float
    report: IngestReport | None = None
    error: LakebedError | None = None

    @property
    def row_count(self) -> int:
        """Rows that were read in."""
        return 0 if self.report is None else self.report.row_count


class IngestQuery:
    """An ingest at work in a thread, until it is stopped.

    Each look for new files is a run of the ingest, which takes each file once: whatever happens to
    this process, the next one goes on where the dataset is. What may pass is tried again after
    some seconds: a store that fails, or a conflict with somebody else. Every other error ends the
    query.
    """

    def __init__(
        self,
        run: Callable[[], IngestReport],
        *,
        name: str,
        every_s: float,
        once: bool = False,
        on_run: Callable[[IngestRun], None] | None = None,
    ) -> None:
        """Use `Ingest.follow` instead."""
        if every_s < 0:
            raise InvalidInputError(f"every is {every_s} s.", hint="Give 0 s or more.")
        self.name = name
        self._run = run
        self._every_s = every_s
        self._is_once = once
        self._on_run = on_run
        self._runs: deque[IngestRun] = deque(maxlen=_REMEMBERED)
        self._stopping = threading.Event()
        self._exception: BaseException | None = None
        # Whoever forgets to stop the query shall be able to end the process.
        self._thread = threading.Thread(
            target=self._go_on, name=f"lakebed-ingest-{name}", daemon=True
        )
        self._thread.start()

    def __repr__(self) -> str:
        state = "active" if self.is_active else "failed" if self._exception else "stopped"
        return f"<IngestQuery {self.name!r}, {state}>"

    @property
    def is_active(self) -> bool:
        """Whether it still looks for new files."""
        return self._thread.is_alive()

    @property
    def last_progress(self) -> IngestRun | None:
        """The last look for new files; None before the first has ended."""
        return self._runs[-1] if self._runs else None

    @property
    def recent_progress(self) -> tuple[IngestRun, ...]:
        """The last looks for new files, oldest first, up to 100 of them."""
        return tuple(self._runs)

    def exception(self) -> BaseException | None:
        """Return what has ended the query; None if it goes on, or was stopped."""
        return None if self.is_active else self._exception

    def stop(self, timeout: float | None = None) -> None:
        """Look no more. A look that has begun is finished: it is one commit, or none.

        Args:
            timeout: Wait so many seconds at most for its end; None for as long as it takes.
        """
        self._stopping.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the query has ended, or so many seconds.

        Returns:
            Whether it has ended.

        Raises:
            LakebedError: What has ended it.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self._exception is not None:
            raise self._exception
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _go_on(self) -> None:
        number = failures = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                is_failed = self._look(number)
            except BaseException as exc:  # noqa: BLE001 - it is told by `await_termination`
                self._exception = exc
                _log.error("ingest ended name=%s reason=%s", self.name, exc)
                return
            number, failures = number + 1, failures + 1 if is_failed else 0
            if self._is_once and not is_failed:
                return
            wait_s = max(0.0, started + self._every_s - time.monotonic())
            if failures:
                wait_s = min(_FIRST_WAIT_S * 2.0 ** (failures - 1), _LONGEST_WAIT_S)
            self._stopping.wait(wait_s)

    def _look(self, number: int) -> bool:
        """Look once for new files; return whether that is to be tried again."""
        began_at, began = dt.datetime.now(dt.UTC), time.monotonic()
        report, error = None, None
        try:
            report = self._run()
        except LakebedError as exc:
            if not may_pass(exc):
                raise
            error = exc
            _log.warning("ingest is tried again name=%s reason=%s", self.name, exc.message)
        done = IngestRun(
            number=number,
            began_at=began_at,
            duration_s=time.monotonic() - began,
            report=report,
            error=error,
        )
        self._runs.append(done)
        if self._on_run is not None:
            self._on_run(done)
        return error is not None


def may_pass(error: LakebedError) -> bool:
    """Whether an ingest that failed may do right when it is run again.

    After a commit whose answer was lost too: the dataset tells which files have been read.
    """
    return isinstance(error, ConflictError) or (isinstance(error, StorageError) and error.retryable)

"""Continuous ingests, which read new files as they arrive."""

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

from lakebed.errors import InvalidInputError, LakebedError
from lakebed.pipeline.ingest_report import IngestReport
from lakebed.upkeep.upkeep_steps import may_pass

_log = logging.getLogger(__name__)

_REMEMBERED = 100  # runs that a query keeps
_FIRST_WAIT_S = 1.0  # after a temporary failure, then twice as long each time
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRun:
    """One search for new raw files, and its result.

    Attributes:
        number: Number of the search, counted from 0.
        began_at: Start time; aware, UTC.
        duration_s: Duration in seconds.
        report: The report of the run; None if it failed.
        error: The temporary failure, after which it is tried again; None if it succeeded.
    """

    number: int
    began_at: dt.datetime
    duration_s: float
    report: IngestReport | None = None
    error: LakebedError | None = None

    @property
    def row_count(self) -> int:
        """Number of rows read."""
        return 0 if self.report is None else self.report.row_count


class IngestQuery:
    """An ingest that runs in a thread, until it is stopped.

    Each search for new files is a run of the ingest, which reads each file once: if this process
    dies, the next one continues from the state of the dataset. Temporary failures are tried again
    after some seconds: a store that fails, or a conflict with another writer. Every other error
    ends the query.
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
        # A daemon thread, so that the process can end even if the query is not stopped.
        self._thread = threading.Thread(
            target=self._go_on, name=f"lakebed-ingest-{name}", daemon=True
        )
        self._thread.start()

    def __repr__(self) -> str:
        state = "active" if self.is_active else "failed" if self._exception else "stopped"
        return f"<IngestQuery {self.name!r}, {state}>"

    @property
    def is_active(self) -> bool:
        """True if it still searches for new files."""
        return self._thread.is_alive()

    @property
    def last_progress(self) -> IngestRun | None:
        """The last search for new files; None before the first has ended."""
        return self._runs[-1] if self._runs else None

    @property
    def recent_progress(self) -> tuple[IngestRun, ...]:
        """The last searches for new files, oldest first, up to 100."""
        return tuple(self._runs)

    def exception(self) -> BaseException | None:
        """Return the error that ended the query; None if it is active, or was stopped."""
        return None if self.is_active else self._exception

    def stop(self, timeout: float | None = None) -> None:
        """Stop the query. A search that has started is finished: it is one commit, or none.

        Args:
            timeout: Longest time in seconds to wait for its end; None for no limit.
        """
        self._stopping.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the query has ended, or for `timeout` seconds.

        Returns:
            True if it has ended.

        Raises:
            LakebedError: The error that ended the query.
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
            except BaseException as exc:  # noqa: BLE001 - `await_termination` raises it
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
        """Search once for new files; return whether to try again."""
        began_at, started = dt.datetime.now(dt.UTC), time.monotonic()
        report, error = None, None
        try:
            report = self._run()
        except LakebedError as exc:
            if not may_pass(exc):
                raise
            error = exc
            _log.warning("ingest failed, trying again name=%s reason=%s", self.name, exc.message)
        done = IngestRun(
            number=number,
            began_at=began_at,
            duration_s=time.monotonic() - started,
            report=report,
            error=error,
        )
        self._runs.append(done)
        if self._on_run is not None:
            self._on_run(done)
        return error is not None

"""Progress of a verb: a bar on a terminal, else lines of the log."""

from __future__ import annotations

import datetime as dt
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakebed.common import progress as progress_module
from lakebed.common.progress import NO_PROGRESS, OnProgress, Progress
from lakebed.common.shown import counted, human_size

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


@contextmanager
def showing(text: str) -> Iterator[OnProgress]:
    """Show the progress of an operation while it runs; the bar disappears at the end.

    Args:
        text: A short name of the operation.
    """
    if sys.stderr.isatty():
        with _bar(text) as on_progress:
            yield on_progress
        return
    # A log must show that work went on. Lines are rare; see `Tally`.
    logger = logging.getLogger(progress_module.__name__)
    before = logger.level
    logger.setLevel(logging.INFO)
    try:
        yield NO_PROGRESS
    finally:
        logger.setLevel(before)


@contextmanager
def _bar(text: str) -> Iterator[OnProgress]:
    # Imported only on a terminal, where the time of the import does not matter.
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as NewBar

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[state]}", markup=False),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with NewBar(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        yield _ShownBar(bar, bar.add_task(text, total=None, state=""))


class _ShownBar:
    """Callback for progress, which moves a bar."""

    def __init__(self, bar: Bar, task: TaskID) -> None:
        self.bar, self._task = bar, task

    def __call__(self, progress: Progress) -> None:
        total = 1.0 if progress.file_total else None  # some operations count only rows
        self.bar.update(self._task, completed=progress.share, total=total, state=in_words(progress))
        if not self.bar.live.is_started:
            self.bar.start()


def pause(on_progress: OnProgress) -> None:
    """Remove the bar from the terminal until there is further progress, so that lines can be written."""
    if isinstance(on_progress, _ShownBar):
        on_progress.bar.stop()


def in_words(progress: Progress) -> str:
    """Return progress as a line of text.

    >>> in_words(
    ...     Progress(
    ...         file_count=1, file_total=4, size_bytes=1024, size_total_bytes=4096, row_count=20,
    ...         elapsed_s=2.0,
    ...     )
    ... )
    '1 of 4 files, 1.0 KiB of 4.0 KiB, 20 rows, 0:00:06 left'
    """
    parts = []
    if progress.file_total:
        parts.append(f"{progress.file_count:,} of {counted(progress.file_total, progress.unit)}")
    if progress.size_total_bytes:
        done, total = human_size(progress.size_bytes), human_size(progress.size_total_bytes)
        parts.append(f"{done} of {total}")
    if progress.row_count is not None:
        parts.append(counted(progress.row_count, "row"))
    if progress.rejected_count:
        parts.append(counted(progress.rejected_count, "reject"))
    if progress.left_s:
        parts.append(f"{dt.timedelta(seconds=round(progress.left_s))} left")
    return ", ".join(parts)

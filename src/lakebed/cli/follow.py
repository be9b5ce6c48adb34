"""What `lakebed ingest --follow` shows: each look that has read something, as it comes."""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable, Iterator

import click

from lakebed.cli.output import Output
from lakebed.pipeline import IngestQuery, IngestRun

_COLUMNS = (
    "began_at",
    "version",
    "file_count",
    "replaced_count",
    "row_count",
    "rejected_count",
    "kept_back_count",
    "duration_s",
)
_INTERRUPTED = "Interrupted; what has begun is finished."
_PATIENCE_S = 0.5  # after which it is looked whether the query has ended


def follow_ingest(
    output: Output, begin: Callable[[Callable[[IngestRun], None]], IngestQuery]
) -> None:
    """Show what an ingest reads in until it is interrupted.

    Args:
        output: Where to.
        begin: Begins the query, which tells of each look what it is given.

    Raises:
        LakebedError: What has ended the query.
    """
    runs: queue.SimpleQueue[IngestRun] = queue.SimpleQueue()
    with begin(runs.put) as query:
        output.note("Looking for new files; interrupt to end.")
        looks = _looks(output, query, runs)
        try:
            if output.is_table:
                for run in looks:
                    _tell(run)
            else:
                output.rows(_COLUMNS, map(_record, looks))
        except KeyboardInterrupt:  # while a look was shown, and not while one was waited for
            output.note(_INTERRUPTED)


def _looks(
    output: Output, query: IngestQuery, runs: queue.SimpleQueue[IngestRun]
) -> Iterator[IngestRun]:
    """Yield the looks that have read something, until the query ends or is interrupted."""
    try:
        while True:
            sys.stdout.flush()
            try:
                run = runs.get(timeout=_PATIENCE_S)
            except queue.Empty:
                if query.await_termination(0):
                    return
                continue
            if run.error is not None:
                output.note(f"It is tried again: {run.error.message}")
            elif run.report is not None and run.report.file_count:
                yield run
    except KeyboardInterrupt:
        output.note(_INTERRUPTED)


def _record(run: IngestRun) -> dict[str, object]:
    report = run.report
    assert report is not None  # of a look that has read something
    return {
        "began_at": run.began_at,
        "version": report.version,
        "file_count": report.file_count,
        "replaced_count": report.replaced_count,
        "row_count": report.row_count,
        "rejected_count": report.rejected_count,
        "kept_back_count": len(report.kept_back),
        "duration_s": round(run.duration_s, 3),
    }


def _tell(run: IngestRun) -> None:
    record = _record(run)
    kept_back = f", {record['kept_back_count']} kept back" if record["kept_back_count"] else ""
    click.echo(
        f"{run.began_at:%Y-%m-%d %H:%M:%S} version {record['version']}: "
        f"{record['file_count']:,} files, {record['row_count']:,} rows, "
        f"{record['rejected_count']:,} rejects{kept_back}"
    )

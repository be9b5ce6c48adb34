"""Output of `lakebed ingest --follow`: each run that read something, as it ends."""

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
_INTERRUPTED = "Interrupted; the current run was finished."
_PATIENCE_S = 0.5  # between checks whether the query has ended


def follow_ingest(
    output: Output, begin: Callable[[Callable[[IngestRun], None]], IngestQuery]
) -> None:
    """Show the runs of an ingest until it is interrupted.

    Args:
        output: The output that shows the runs.
        begin: Function that starts the query with a callback for its runs.

    Raises:
        LakebedError: The error that ended the query.
    """
    runs: queue.SimpleQueue[IngestRun] = queue.SimpleQueue()
    with begin(runs.put) as query:
        output.note("Looking for new files; interrupt to end.")
        reading_runs = _reading_runs(output, query, runs)
        try:
            if output.is_table:
                for run in reading_runs:
                    _show_line(run)
            else:
                output.rows(_COLUMNS, map(_record, reading_runs))
        except KeyboardInterrupt:  # while a run was shown, not while waiting for one
            output.note(_INTERRUPTED)


def _reading_runs(
    output: Output, query: IngestQuery, runs: queue.SimpleQueue[IngestRun]
) -> Iterator[IngestRun]:
    """Yield the runs that read something, until the query ends or is interrupted."""
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
                output.note(f"Failed, and will be retried: {run.error.message}")
            elif run.report is not None and run.report.file_count:
                yield run
    except KeyboardInterrupt:
        output.note(_INTERRUPTED)


def _record(run: IngestRun) -> dict[str, object]:
    report = run.report
    assert report is not None  # of a run that read something
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


def _show_line(run: IngestRun) -> None:
    record = _record(run)
    kept_back = f", {record['kept_back_count']} kept back" if record["kept_back_count"] else ""
    click.echo(
        f"{run.began_at:%Y-%m-%d %H:%M:%S} version {record['version']}: "
        f"{record['file_count']:,} files, {record['row_count']:,} rows, "
        f"{record['rejected_count']:,} rejects{kept_back}"
    )

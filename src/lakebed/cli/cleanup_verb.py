"""Verbs of upkeep: cleanup, check."""

from __future__ import annotations

import datetime as dt
import functools
from typing import Any

import click

from lakebed.cli.output import Output
from lakebed.cli.shared_options import (
    age_option,
    dry_run_option,
    takes_dataset,
    takes_metastore,
    verb,
)
from lakebed.common.shown import counted
from lakebed.repository import Repository
from lakebed.work.check import EXIT_CODE
from lakebed.work.cleanup import CleanupReport

_FILE_COLUMNS = ("key", "size_bytes", "reason", "version", "since", "note")
_FINDING_COLUMNS = ("severity", "key", "what", "remedy", "is_repaired")


def _refuse_delete(
    context: click.Context,
    parameter: click.Parameter,  # noqa: ARG001 - click's signature
    value: bool,  # noqa: FBT001 - click's signature
) -> None:
    """Refuse the former option, since every verb acts and shows only with `--dry-run`."""
    if value:
        message = (
            "cleanup deletes after it asks: leave --delete out. --yes does not ask, --dry-run "
            "only lists."
        )
        raise click.UsageError(message, context)


@verb("cleanup", example="lakebed cleanup lake/flights --older-than 30d --dry-run")
@takes_dataset
@age_option(
    "--older-than",
    "7d",
    "Keep files this long after the commit that removed them: a number and s, m, h, d or w.",
)
@click.option(
    "--delete",
    is_flag=True,
    hidden=True,
    expose_value=False,
    is_eager=True,
    callback=_refuse_delete,
    help="A former option, which is refused.",
)
@dry_run_option("Only list what would be deleted.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@click.option(
    "--kept", "is_kept_shown", is_flag=True, help="Also list the files that stay, and why."
)
@click.option("--spark", "is_spark", is_flag=True, help="Delete in Spark, for many files.")
@takes_metastore
@click.option(
    "--published",
    type=click.Choice(("ask", "noted")),
    default="ask",
    show_default=True,
    help="For a published dataset: ask the metastore which files its tables show, or use the notes "
    "of publications.",
)
def cleanup(
    output: Output,
    *,
    repository: Repository,
    name: str,
    metastore: str | None,
    published: Any,
    older_than: dt.timedelta,
    is_dry_run: bool,
    is_sure: bool,
    is_kept_shown: bool,
    is_spark: bool,
) -> None:
    """Delete dead files, after asking.

    Dead files are: files that a commit removed long enough ago, unless a protection needs them;
    files of writers that died; unreferenced metadata; unfinished writes. A file that is not proven
    dead stays, and is listed as unknown.

    Files that tables of a Hive metastore show stay, too. So give --metastore or --warehouse if the
    dataset is published.

    The result lists each dead file with the reason. Without a terminal to ask, nothing is deleted
    unless --yes is given.
    """
    clean_up = functools.partial(
        repository.open(name).cleanup, older_than, metastore=metastore, published=published
    )
    with output.progress("Looking for dead files"):
        report = clean_up()
    if not is_dry_run:
        if report.files and not is_sure:
            click.confirm(
                f"Delete {_total(report)} of {repository.uri}/{name}? Versions before {report.horizon} "
                "can then no longer be read, unless they are protected.",
                abort=True,
                err=True,
            )
        with output.progress("Deleting") as on_progress:
            report = clean_up(
                dry_run=False, spark=True if is_spark else None, on_progress=on_progress
            )
    _show_report(output, report, is_kept_shown=is_kept_shown)


def _total(report: CleanupReport) -> str:
    return f"{counted(len(report.files), 'object')} of {counted(report.size_bytes, 'byte')}"


def _show_report(output: Output, report: CleanupReport, *, is_kept_shown: bool) -> None:
    verb_shown = "Would delete" if report.is_dry_run else "Deleted"
    kept = ", ".join(f"{count:,} {reason}" for reason, count in report.kept_counts.items())
    output.note(f"{verb_shown} {_total(report)}. Kept: {kept}.")
    files = (*report.files, *report.kept) if is_kept_shown else report.files
    output.rows(
        _FILE_COLUMNS, ({name: getattr(file, name) for name in _FILE_COLUMNS} for file in files)
    )


@verb("check", example="lakebed check lake/flights --deep")
@takes_dataset
@click.option("--repair", "is_repairing", is_flag=True, help="Rebuild metadata from data files.")
@click.option("--deep", "is_deep", is_flag=True, help="Also read all data, and compare checksums.")
@dry_run_option("With --repair: only show what would be repaired.")
@click.option("--spark", "is_spark", is_flag=True, help="Read the data in Spark.")
@click.pass_context
def check(
    context: click.Context,
    output: Output,
    *,
    repository: Repository,
    name: str,
    is_repairing: bool,
    is_deep: bool,
    is_dry_run: bool,
    is_spark: bool,
) -> None:
    """Compare a dataset's metadata with the files on storage.

    The exit code is 7 if a problem remains. --repair rebuilds the metadata of data files from the
    files themselves, as a commit; it never deletes data.
    """
    dataset = repository.open(name)
    with output.progress("Checking") as on_progress:
        report = dataset.check(
            is_repairing,
            is_deep,
            True if is_spark else None,
            dry_run=is_dry_run,
            on_progress=on_progress,
        )
    if is_dry_run and is_repairing:
        repaired = sum(finding.is_repaired for finding in report.findings)
        output.note(f"Would repair {counted(repaired, 'problem')}.")
    left = counted(len(report.problems), "problem remains", "problems remain")
    looked_at = counted(report.file_count, "data file")
    output.note(
        f"{left if report.problems else 'All is well'}: {looked_at} at version {report.version}."
    )
    output.rows(
        _FINDING_COLUMNS,
        (
            {name: getattr(finding, name) for name in _FINDING_COLUMNS}
            for finding in report.findings
        ),
    )
    if not report.is_ok:
        context.exit(EXIT_CODE)

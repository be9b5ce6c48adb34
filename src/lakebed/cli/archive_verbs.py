"""The verbs of the archive."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import click

from lakebed.archive import (
    Archive,
    ArchiveRecord,
    MessageReport,
    Upload,
    UploadQueue,
    ingest_again,
    ingest_directory,
    ingest_lines,
    ingest_sqs,
    ingest_url,
    open_archive,
)
from lakebed.archive.archive import DEFAULT_LOOKBACK_DAYS, TOKEN_VARIABLE, times_of
from lakebed.archive.file_keys import KeyForm
from lakebed.archive.http import serve as serve_archive
from lakebed.archive.http.server import is_own_address
from lakebed.archive.target import DEFAULT_TEMPLATE
from lakebed.cli.group import VerbGroup
from lakebed.cli.listening import listens
from lakebed.cli.output import Output, OutputFormat
from lakebed.cli.shared_options import Verb, dry_run_option, parse_pairs, storage_option, verb
from lakebed.common.shown import counted, human_size
from lakebed.errors import InvalidInputError
from lakebed.spark.session import get_session

STORAGE_VARIABLE = "LAKEBED_ARCHIVE_STORAGE"
INDEX_VARIABLE = "LAKEBED_ARCHIVE_INDEX"
WHERE_VARIABLE = "LAKEBED_ARCHIVE_WHERE"
KEYS_VARIABLE = "LAKEBED_ARCHIVE_KEYS"
QUEUE_VARIABLE = "LAKEBED_ARCHIVE_QUEUE"

RECORD_COLUMNS = (
    "what",
    "where",
    "start",
    "end",
    "work_id",
    "size_bytes",
    "path",
    "id",
    "url",
    "hash",
    "created_at",
    "metadata",
    "retracted",
)
_TABLE_COLUMNS = ("what", "where", "start", "end", "work_id", "size_bytes", "path", "id")
_PIECE_BYTES = 1024 * 1024


@click.group(
    "archive",
    cls=VerbGroup,
    epilog="\b\nExample:\n  lakebed archive list syslog --start 2015-03-20 --end now "
    "--storage s3://raw --index dynamodb://raw",
)
def archive() -> None:
    """Keep raw files with metadata, found by time or work id.

    An archive is a storage and an index: --storage and --index, or LAKEBED_ARCHIVE_STORAGE and
    LAKEBED_ARCHIVE_INDEX. A directory keeps an SQLite index inside it, unless another is given.

    Times are ISO 8601 (2015-03-20T10:00Z), 20150320, seconds or milliseconds since the epoch, or
    `now`.
    """


retracted_option = click.option(
    "--retracted", is_flag=True, help="Include retracted files, with the reason."
)


def takes_archive(function: Verb) -> Verb:
    """Give the function `archive`, opened."""

    @functools.wraps(function)
    def run(
        output: Output,
        *,
        storage: str,
        index: str | None,
        storage_options: Mapping[str, str],
        **arguments: object,
    ) -> None:
        with open_archive(storage, index=index, storage_options=storage_options) as opened:
            function(output, archive=opened, **arguments)

    options = (
        click.option(
            "--storage",
            envvar=STORAGE_VARIABLE,
            required=True,
            metavar="URL",
            help=f"Path or URL of the storage that holds the files.  [env: {STORAGE_VARIABLE}]",
        ),
        click.option(
            "--index",
            envvar=INDEX_VARIABLE,
            metavar="URL",
            help="Index of the archive: sqlite:///PATH or dynamodb://TABLE?region=REGION.  "
            f"[env: {INDEX_VARIABLE}]",
        ),
    )
    for option in reversed(options):
        run = option(run)
    return storage_option(run)


def takes_fields(function: Verb) -> Verb:
    """Add the options that describe a file."""
    options = (
        click.option(
            "--where",
            envvar=WHERE_VARIABLE,
            required=True,
            help="The place or machine. a~b takes it from the path, as for --what and --work-id.  "
            f"[env: {WHERE_VARIABLE}]",
        ),
        click.option("--what", required=True, help="The program or process."),
        click.option("--start", help="Time of the first event."),
        click.option(
            "--start-from-name",
            metavar="PATTERN",
            help="A regular expression that finds the start in each file's name, instead of --start. "
            r"Its groups start and end are the times; without groups, the whole match: \d{8}.",
        ),
        click.option("--end", help="Time of the last event; leave out for a single moment."),
        click.option("--work-id", help="Your own id for finding the files."),
        click.option(
            "--extra",
            multiple=True,
            callback=parse_pairs,
            metavar="KEY=VALUE",
            help="A further field of the metadata. Repeatable.",
        ),
        click.option("--compress", is_flag=True, help="Store the content as gzip."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def takes_keys(function: Verb) -> Verb:
    """Add `--keys`, the form of keys for new files; goes below `takes_archive`."""

    @functools.wraps(function)
    def run(output: Output, *, archive: Archive, keys: KeyForm, **arguments: object) -> None:
        function(output, archive=Archive(archive.store, archive.index, keys=keys), **arguments)

    return click.option(
        "--keys",
        type=click.Choice(get_args(KeyForm)),
        default="id",
        show_default=True,
        envvar=KEYS_VARIABLE,
        help="Keys of new files: ID/data, or the longer keys of the first datalake.  "
        f"[env: {KEYS_VARIABLE}]",
    )(run)


takes_queue = click.option(
    "--queue",
    type=click.Path(file_okay=False, path_type=Path),
    envvar=QUEUE_VARIABLE,
    required=True,
    metavar="DIRECTORY",
    help=f"The directory in which bundles wait.  [env: {QUEUE_VARIABLE}]",
)


def record_row(record: ArchiveRecord) -> dict[str, object]:
    """Return the record of a file, with the keys `RECORD_COLUMNS`."""
    return {
        "what": record.what,
        "where": record.where,
        "start": record.start,
        "end": record.end,
        "work_id": record.work_id,
        "size_bytes": record.size_bytes,
        "path": record.path,
        "id": record.id,
        "url": record.url,
        "hash": record.hash,
        "created_at": record.created_at,
        "metadata": dict(record.metadata),
        "retracted": None if record.retraction is None else record.retraction.reason,
    }


def _show_records(
    output: Output, records: Iterable[ArchiveRecord], *, retracted: bool = False
) -> None:
    columns = _columns(output, first="url")
    if retracted and output.is_table:
        columns = (*columns, "retracted")
    output.rows(columns, (record_row(record) for record in records))


def _columns(output: Output, *, first: str) -> Sequence[str]:
    """Return the columns of records, with `first` as the only one that `-o plain` shows.

    It is the URL, which `cat`, `fetch` and `ingest` read from stdin, and others with xargs.
    """
    if output.is_table:
        return _TABLE_COLUMNS
    return (first,) if output.format is OutputFormat.PLAIN else RECORD_COLUMNS


def _read_lines(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments, or the lines of stdin if there are none or only `-`."""
    lines = arguments if arguments and list(arguments) != ["-"] else sys.stdin
    yield from (line.strip() for line in lines if line.strip())


@verb("init", example="lakebed archive init --storage s3://raw --index dynamodb://raw")
@takes_archive
@dry_run_option("Only show whether the tables are missing.")
def init(output: Output, *, archive: Archive, is_dry_run: bool) -> None:
    """Create the tables of the index, if they are missing."""
    with output.progress(f"{'Looking for' if is_dry_run else 'Making'} {archive.index.url}"):
        is_missing = archive.init(dry_run=is_dry_run)
    if is_dry_run:
        effect = "Would create" if is_missing else "Would change nothing: there is"
        output.note(f"{effect} {archive.index.url}.")
    output.record({"storage": archive.store.uri, "index": archive.index.url})


@verb(
    "push",
    example="lakebed archive push /var/log/syslog.1 --where web1 --what syslog "
    "--start 2015-03-20 --end 2015-03-21 --storage ./raw",
)
@takes_archive
@takes_keys
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE...")
@takes_fields
@click.option(
    "--id",
    "file_id",
    help="Id of the file; pushing the same id again changes nothing. One file only.",
)
@dry_run_option("Only read and check the files, and show their records.")
def push(
    output: Output,
    *,
    archive: Archive,
    files: Sequence[str],
    file_id: str | None,
    is_dry_run: bool,
    **fields: Any,
) -> None:
    """Store files and put them into the index.

    Several files of a call are stored at once. All are checked before the first is stored. The
    times of a file can be taken from its name.
    """
    if file_id is None:
        with output.progress("Reading" if is_dry_run else "Storing") as on_progress:
            records = archive.push_many(
                files, **fields, dry_run=is_dry_run, on_progress=on_progress
            )
        _show_pushed(output, records, is_dry_run=is_dry_run)
        return
    if len(files) > 1:
        message = "--id takes one file."
        raise click.UsageError(message, click.get_current_context())
    (file,) = files
    record = archive.push(file, id=file_id, **_with_times(file, fields), dry_run=is_dry_run)
    _show_pushed(output, [record], is_dry_run=is_dry_run, has_own_id=True)


def _show_pushed(
    output: Output,
    records: Sequence[ArchiveRecord],
    *,
    is_dry_run: bool,
    has_own_id: bool = False,
) -> None:
    """Show the records of files that were stored, or would be."""
    if not is_dry_run:
        _show_records(output, records)
        return
    size_bytes = sum(record.size_bytes for record in records)
    output.note(f"Would store {counted(len(records), 'file')} of {counted(size_bytes, 'byte')}.")
    columns = _columns(output, first="path")  # there is no URL yet
    output.rows(columns, (_dry_run_row(record, has_own_id=has_own_id) for record in records))


def _dry_run_row(record: ArchiveRecord, *, has_own_id: bool) -> dict[str, object]:
    """Return the row of a file that would be stored: a generated id would be another one."""
    row = {**record_row(record), "created_at": None}
    if has_own_id:
        return row
    metadata = {name: value for name, value in record.metadata.items() if name != "id"}
    return {**row, "id": None, "url": None, "metadata": metadata}


def _with_times(file: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a file with its times, as given or taken from its name."""
    names = ("start", "end", "start_from_name")
    times = times_of(file, *(fields[name] for name in names))
    return {name: value for name, value in fields.items() if name not in names} | times


@verb("list", example="lakebed archive list syslog --start 2015-03-20 --end now --storage ./raw")
@takes_archive
@click.argument("what")
@click.option("--start", help="Start of the period.")
@click.option("--end", help="End of the period, included.")
@click.option("--where", help="Only this place.")
@click.option("--work-id", help="The files of this work id, instead of a period.")
@retracted_option
def list_(
    output: Output,
    *,
    archive: Archive,
    what: str,
    start: str | None,
    end: str | None,
    where: str | None,
    work_id: str | None,
    retracted: bool,
) -> None:
    """List the files of a period or a work id."""
    records = archive.list(
        what, start=start, end=end, where=where, work_id=work_id, retracted=retracted
    )
    _show_records(output, records, retracted=retracted)


@verb("whats", example="lakebed archive whats --where web1 --start 2015-03-20 --storage ./raw")
@takes_archive
@click.option("--where", help="Only this place.")
@click.option("--start", help="Only files that end then or later.")
@click.option("--end", help="Only files that start then or earlier.")
@click.option("--retracted", is_flag=True, help="Include retracted files.")
def whats(
    output: Output,
    *,
    archive: Archive,
    where: str | None,
    start: str | None,
    end: str | None,
    retracted: bool,
) -> None:
    """List what the archive holds: the files of each what, counted."""
    summaries = archive.whats(where=where, start=start, end=end, retracted=retracted)
    output.rows(
        ("what", "file_count", "size_bytes", "first", "last", "wheres"),
        (
            {
                "what": summary.what,
                "file_count": summary.file_count,
                "size_bytes": summary.size_bytes,
                "first": summary.first,
                "last": summary.last,
                "wheres": list(summary.wheres),
            }
            for summary in summaries
        ),
    )


@verb("latest", example="lakebed archive latest syslog web1 --storage ./raw")
@takes_archive
@click.argument("what")
@click.argument("where")
@click.option(
    "--lookback",
    "lookback_days",
    type=int,
    default=DEFAULT_LOOKBACK_DAYS,
    show_default=True,
    help="Search this many days before today.",
)
@retracted_option
def latest(
    output: Output,
    *,
    archive: Archive,
    what: str,
    where: str,
    lookback_days: int,
    retracted: bool,
) -> None:
    """Show the file of a place with the latest start."""
    record = archive.latest(what, where, lookback_days=lookback_days, retracted=retracted)
    if output.format is OutputFormat.PLAIN:
        _show_records(output, [record])
    else:
        output.record(record_row(record))


@verb(
    "retract",
    example="lakebed archive retract 6309e115c2914d0f8622973422626954 --reason 'torn' "
    "--storage ./raw",
)
@takes_archive
@click.argument("urls", nargs=-1, required=True, metavar="URL|ID...")
@click.option("--reason", required=True, help="The reason, shown in the record.")
@dry_run_option("Only check, and show the records that would be.")
def retract(
    output: Output, *, archive: Archive, urls: Sequence[str], reason: str, is_dry_run: bool
) -> None:
    """Exclude files from every ingest.

    The files stay and can be fetched; lists leave them out unless --retracted is given. Rows that
    were read stay in their dataset; `lakebed rollback` removes them.
    """
    records: Iterable[ArchiveRecord] = (
        archive.retract(url, reason=reason, dry_run=is_dry_run) for url in urls
    )
    if is_dry_run:
        records = list(records)
        output.note(f"Would retract {counted(len(urls), 'file')}.")
    _show_records(output, records, retracted=True)


@verb("restore", example="lakebed archive restore 6309e115c2914d0f8622973422626954 --storage ./raw")
@takes_archive
@click.argument("urls", nargs=-1, required=True, metavar="URL|ID...")
@dry_run_option("Only check, and show the records that would be.")
def restore(output: Output, *, archive: Archive, urls: Sequence[str], is_dry_run: bool) -> None:
    """Undo the retraction of files."""
    records: Iterable[ArchiveRecord] = (archive.restore(url, dry_run=is_dry_run) for url in urls)
    if is_dry_run:
        records = list(records)
        output.note(f"Would restore {counted(len(urls), 'file')}.")
    _show_records(output, records)


@verb(
    "fetch",
    example="lakebed archive fetch 6309e115c2914d0f8622973422626954 --to logs "
    "--template '{where}/{what}-{start_iso}' --storage ./raw",
)
@takes_archive
@click.argument("urls", nargs=-1, metavar="[URL|ID]...")
@click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Folder for the copies.  [default: .]",
)
@click.option(
    "--template",
    default=DEFAULT_TEMPLATE,
    show_default=True,
    help="Path in the folder, built from metadata names, {start_iso} and {end_iso}.",
)
@click.option("--no-verify", is_flag=True, help="Do not compare the hash.")
def fetch(
    output: Output,
    *,
    archive: Archive,
    urls: Sequence[str],
    to: Path,
    template: str,
    no_verify: bool,
) -> None:
    """Copy files to a folder, by URL or id, given as arguments or as lines of stdin."""
    output.rows(
        ("url", "path"),
        (
            {
                "url": url,
                "path": str(archive.fetch(url, to, template=template, verify=not no_verify)),
            }
            for url in _read_lines(urls)
        ),
    )


@verb(
    "delete",
    example="lakebed archive delete 6309e115c2914d0f8622973422626954 --reason 'erasure 17' "
    "--storage ./raw --dry-run",
)
@takes_archive
@click.argument("urls", nargs=-1, required=True, metavar="URL|ID...")
@click.option("--reason", required=True, help="The reason, which stays in the storage.")
@click.option(
    "--read-by",
    multiple=True,
    metavar="DATASET",
    help="Refuse if this dataset has not read all of a file. Repeatable.",
)
@dry_run_option("Only check, and show the records that would be deleted.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
def delete(
    output: Output,
    *,
    archive: Archive,
    urls: Sequence[str],
    reason: str,
    read_by: Sequence[str],
    is_dry_run: bool,
    is_sure: bool,
) -> None:
    """Delete files for good, after asking.

    Content, metadata and the record in the index go; the reason stays as a note. Rows that were read
    stay in their dataset. `lakebed archive retract` only ends the use of a file. Without a terminal
    to ask, nothing is deleted unless --yes is given.
    """

    def deleted(*, dry_run: bool) -> list[ArchiveRecord]:
        return [
            archive.delete(url, reason=reason, read_by=read_by, dry_run=dry_run) for url in urls
        ]

    records = deleted(dry_run=True)
    total = f"{counted(len(records), 'file')} of {human_size(sum(r.size_bytes for r in records))}"
    if is_dry_run:
        output.note(f"Would delete {total}.")
    else:
        if not is_sure:
            click.confirm(f"Delete {total} for good?", abort=True, err=True)
        records = deleted(dry_run=False)
    _show_records(output, records, retracted=True)


@verb("cat", example="lakebed archive cat 6309e115c2914d0f8622973422626954 --storage ./raw")
@takes_archive
@click.argument("urls", nargs=-1, metavar="[URL|ID]...")
@click.option("--no-verify", is_flag=True, help="Do not compare the hash.")
def cat(output: Output, *, archive: Archive, urls: Sequence[str], no_verify: bool) -> None:  # noqa: ARG001 - the result has a form of its own
    """Write the contents of files to stdout, byte by byte.

    Without arguments, URLs or ids are read from stdin, one a line. -o applies only to errors.
    """
    for url in _read_lines(urls):
        with archive.open(url, verify=not no_verify) as content:
            shutil.copyfileobj(content, sys.stdout.buffer, _PIECE_BYTES)
    sys.stdout.buffer.flush()


@verb("reindex", example="lakebed archive reindex --storage ./raw --dry-run")
@takes_archive
@click.option("--spark", "with_spark", is_flag=True, help="Read the metadata in Spark tasks.")
@click.option("--dry-run", is_flag=True, help="Only list what would change.")
def reindex(output: Output, *, archive: Archive, with_spark: bool, dry_run: bool) -> None:
    """Rebuild the index from the files in the storage.

    The result lists the records removed from the index and the files skipped in the storage, with
    the reasons.
    """
    with output.progress(f"Reading {archive.store.uri}"):
        report = archive.reindex(spark=get_session() if with_spark else None, dry_run=dry_run)
    output.note(
        f"{'Would index' if dry_run else 'Indexed'} {counted(report.indexed_count, 'file')}."
    )
    if report.foreign_count:
        output.note(f"Left {counted(report.foreign_count, 'record')} of files in other storages.")
    rows: list[dict[str, object]] = [
        {"action": "removed", "url": record.url, "reason": "The file is missing."}
        for record in report.removed
    ]
    rows += [
        {"action": "skipped", "url": skipped.url, "reason": skipped.reason}
        for skipped in report.skipped
    ]
    output.rows(("action", "url", "reason"), rows)


@verb(
    "enqueue",
    example="lakebed archive enqueue /var/log/syslog.1 --where web1 --what syslog "
    "--start 2015-03-20 --queue /var/spool/lakebed",
)
@takes_queue
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE...")
@takes_fields
@dry_run_option("Only check the files.")
def enqueue(
    output: Output, *, queue: Path, files: Sequence[str], is_dry_run: bool, **fields: Any
) -> None:
    """Copy files into a queue for `upload`."""
    waiting = UploadQueue(queue)

    def put(file: str) -> str | None:
        bundle = waiting.enqueue(file, **_with_times(file, fields), dry_run=is_dry_run)
        return None if is_dry_run else str(bundle)  # its id is generated

    rows: Iterable[dict[str, object]] = ({"file": file, "bundle": put(file)} for file in files)
    if is_dry_run:
        rows = list(rows)
        output.note(f"Would copy {counted(len(files), 'file')} into {queue}.")
    output.rows(("file", "bundle"), rows)


@verb("upload", example="lakebed archive upload --queue /var/spool/lakebed --watch --storage ./raw")
@takes_archive
@takes_keys
@takes_queue
@click.option("--watch", is_flag=True, help="Keep uploading new bundles until interrupted.")
@click.option("--timeout", "timeout_s", type=float, help="With --watch: stop after these seconds.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of parallel uploads.",
)
@dry_run_option("Only read and check the bundles.")
def upload(
    output: Output,
    *,
    archive: Archive,
    queue: Path,
    watch: bool,
    timeout_s: float | None,
    workers: int,
    is_dry_run: bool,
) -> None:
    """Upload the bundles of a queue; the exit code is 1 if one remains.

    With --watch each upload is reported as a note, and the result lists the bundles that remain.
    """
    waiting = UploadQueue(queue)
    staying: dict[Path, Upload] = {}

    def report_upload(result: Upload) -> None:
        output.note(f"{result.outcome} {result.path}{f': {result.error}' if result.error else ''}")
        if result.outcome == "uploaded":
            staying.pop(result.path, None)
        else:
            staying[result.path] = result

    if is_dry_run:
        if watch:
            message = "--dry-run cannot be combined with --watch."
            raise click.UsageError(message, click.get_current_context())
        done = list(waiting.upload(archive, workers=workers, dry_run=True))
        count = sum(result.outcome == "uploaded" for result in done)
        output.note(f"Would upload {counted(count, 'bundle')} of {len(done):,}.")
    elif watch:
        waiting.watch(archive, workers=workers, timeout_s=timeout_s, on_upload=report_upload)
        # Another uploader may have uploaded the bundle in the meantime.
        done = [result for result in staying.values() if os.path.lexists(result.path)]
    else:
        done = list(waiting.upload(archive, workers=workers))
    output.rows(("bundle", "outcome", "url", "error"), [_upload_row(result) for result in done])
    if any(result.outcome != "uploaded" for result in done):
        click.get_current_context().exit(1)


def _upload_row(result: Upload) -> dict[str, object]:
    return {
        "bundle": str(result.path),
        "outcome": result.outcome,
        "url": None if result.record is None else result.record.url,
        "error": None if result.error is None else str(result.error),
    }


@verb(
    "ingest",
    example="lakebed archive ingest s3://raw/6309e115c2914d0f8622973422626954/data "
    "--storage s3://raw --index dynamodb://raw",
)
@takes_archive
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option(
    "--queue-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Read notifications from the files of a directory, and delete those that are processed.",
)
@click.option("--sqs", metavar="URL", help="Read notifications from an SQS queue.")
@click.option("--sqs-region", help="Region of the SQS queue.")
@click.option("--sqs-endpoint", help="Endpoint of the SQS queue, if not that of AWS.")
@click.option(
    "--sqs-wait", type=click.IntRange(0, 20), default=20, help="Seconds to wait for a message."
)
@click.option("--watch", is_flag=True, help="Keep reading notifications until interrupted.")
@click.option("--timeout", "timeout_s", type=float, help="With --watch: stop after these seconds.")
@dry_run_option(
    "Only show what would be indexed; not for SQS, whose messages are hidden once read."
)
def ingest(
    output: Output,
    *,
    archive: Archive,
    urls: Sequence[str],
    queue_dir: Path | None,
    sqs: str | None,
    sqs_region: str | None,
    sqs_endpoint: str | None,
    sqs_wait: int,
    watch: bool,
    timeout_s: float | None,
    is_dry_run: bool,
) -> None:
    """Put files that other programs stored into the index.

    Files are given as URLs, or by S3 notifications, plain or in an SNS envelope, from stdin (a URL
    or a notification a line), a directory or SQS. The exit code is 1 if one cannot be processed.

    With --watch each notification is reported as a note, and the result lists those that failed.
    """
    if sum([bool(urls), queue_dir is not None, sqs is not None]) > 1:
        raise InvalidInputError(
            "URLs, --queue-dir and --sqs exclude each other.", hint="Give one of them."
        )
    if watch and queue_dir is None and sqs is None:
        raise InvalidInputError("There is nothing to watch.", hint="Give --queue-dir or --sqs.")
    if is_dry_run and (watch or sqs is not None):
        other = "--watch" if watch else "--sqs"
        message = f"--dry-run cannot be combined with {other}."
        raise click.UsageError(message, click.get_current_context())

    def waiting() -> Iterable[MessageReport]:
        if queue_dir is not None:
            return ingest_directory(archive, queue_dir, dry_run=is_dry_run)
        assert sqs is not None  # one of the two
        return ingest_sqs(archive, sqs, region=sqs_region, endpoint=sqs_endpoint, wait_s=sqs_wait)

    reports: Iterable[MessageReport]
    if watch:
        reports = ingest_again(waiting, timeout_s=timeout_s)
    elif queue_dir is not None or sqs is not None:
        reports = waiting()
    elif urls and list(urls) != ["-"]:
        reports = (ingest_url(archive, url, dry_run=is_dry_run) for url in urls)
    else:
        reports = ingest_lines(archive, sys.stdin, dry_run=is_dry_run)
    if is_dry_run:
        reports = list(reports)
        output.note(
            f"Would index {counted(sum(len(one.records) for one in reports), 'file')} and remove "
            f"{sum(len(one.removed) for one in reports):,}."
        )
    has_failed = False

    def rows() -> Iterator[dict[str, object]]:
        nonlocal has_failed
        for report in reports:
            has_failed |= report.status == "error"
            if watch:
                output.note(_in_words(report))
            if not watch or report.status == "error":
                yield _report_row(report)

    output.rows(("status", "urls", "removed", "error", "started_at", "duration_s"), rows())
    if has_failed:
        click.get_current_context().exit(1)


@verb(
    "serve", example="lakebed archive serve --storage s3://raw --index dynamodb://raw --port 8080"
)
@takes_archive
@listens
@click.option(
    "--token",
    envvar=TOKEN_VARIABLE,
    help="Token that requests must send as Authorization: Bearer TOKEN. Prefer the variable: other "
    f"users of the machine can see command lines.  [env: {TOKEN_VARIABLE}]",
)
def serve(
    output: Output,
    *,
    archive: Archive,
    host: str,
    port: int,
    token: str | None,
    public_url: str | None,
) -> None:
    """Serve the archive over HTTP until interrupted, for clients of datalake and others.

    The URL of the server is printed as soon as it listens. -v logs each request.
    """
    if token is None and not is_own_address(host):
        output.note(f"Anyone who can reach {host} can read the archive; --token restricts access.")

    def show_url(url: str) -> None:
        output.record({"url": url, "storage": archive.store.uri, "index": archive.index.url})
        sys.stdout.flush()

    serve_archive(
        archive, host=host, port=port, token=token, public_url=public_url, on_start=show_url
    )


def _in_words(report: MessageReport) -> str:
    parts = [f"indexed {record.url}" for record in report.records]
    parts += [f"removed {file_id}" for file_id in report.removed]
    parts += [f"error {report.error}"] if report.error is not None else []
    return ", ".join(parts) or "nothing to do"


def _report_row(report: MessageReport) -> dict[str, object]:
    return {
        "status": report.status,
        "urls": [record.url for record in report.records],
        "removed": list(report.removed),
        "error": None if report.error is None else str(report.error),
        "started_at": report.started_at,
        "duration_s": round(report.duration_s, 6),
    }


for _command in (
    *(init, push, list_, whats, latest, fetch, cat, retract, restore, delete),
    *(reindex, enqueue, upload, ingest, serve),
):
    archive.add_command(_command)

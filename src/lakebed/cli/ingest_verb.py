"""The verb ingest: raw files of an archive or a folder into a dataset, once each."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click

from lakebed.arrow.reading.files import FILE_FORMATS, CsvOptions, FileFormat, reading
from lakebed.arrow.reading.unknown import Unknown
from lakebed.cli.archive_verbs import INDEX_VARIABLE, STORAGE_VARIABLE
from lakebed.cli.data import begun_option, show_commit
from lakebed.cli.datasets import read_schema_file, read_strategy
from lakebed.cli.follow import follow_ingest
from lakebed.cli.import_verb import (
    note_ignored,
    note_rejects,
    pays_off,
    rules_options,
    start_spark,
)
from lakebed.cli.output import Output
from lakebed.cli.shared_options import parse_pairs, split_address, storage_option, verb
from lakebed.common.shown import counted, facts_of
from lakebed.errors import InvalidInputError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.dimensions import DimensionSchema
from lakebed.model.partition import PartitionStrategy
from lakebed.pipeline import (
    FromArchive,
    FromFiles,
    Ingest,
    IngestCheck,
    IngestQuery,
    IngestReport,
    IngestRun,
    LeftOut,
)
from lakebed.pipeline.candidates import Supersede

_QUESTION = ("what", "where", "start", "end", "work_id", "supersede")
# Options that replace a key of a declaration.
_OVERRIDES = ("supersede", "max_rejects", "allow_truncated", "unknown")
_OF_ARCHIVES = "--supersede is of the files of an archive"
_TOLD = 5  # files that are kept back, by name


@verb(
    "ingest",
    example="lakebed ingest --from-archive what=flights start=2013-01-01 end=2013-12-31 "
    "--storage ./raw --into ./lake/flights --format submissions",
)
@click.argument("arguments", nargs=-1, required=False, metavar="FILE...")
@click.option(
    "--from-archive",
    "is_archive",
    is_flag=True,
    help=f"FILE... is a question to an archive: KEY=VALUE with {', '.join(_QUESTION)}.",
)
@click.option(
    "--storage",
    envvar=STORAGE_VARIABLE,
    metavar="URL",
    help=f"Of the archive: where the files are.  [env: {STORAGE_VARIABLE}]",
)
@click.option(
    "--index",
    envvar=INDEX_VARIABLE,
    metavar="URL",
    help=f"Of the archive: what finds them.  [env: {INDEX_VARIABLE}]",
)
@click.option(
    "--supersede",
    type=click.Choice(get_args(Supersede)),
    help="Of the archive: of files with the same what, where, start and work id (and path), the one "
    "that was stored last counts; or with id, each is one of its own.  [default: none replaces "
    "another; what may be another state of a file is kept back]",
)
@storage_option
@click.option("--into", metavar="DATASET", help="The dataset, as LOCATION/NAME.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FILE_FORMATS),
    help="Of the raw files.  [default: by suffix; must be given for an archive]",
)
@click.option("--run", help="Name of the run.  [default: the name of the dataset]")
@click.option(
    "--schema",
    "schema_file",
    type=click.Path(path_type=Path),
    help="Create a missing dataset with this schema: .avsc, .json or a Parquet file.",
)
@click.option("--partition-by", metavar="TEXT|FILE", help="Of a missing dataset, as for create.")
@click.option(
    "--dimensions",
    "dimensions_file",
    type=click.Path(path_type=Path),
    help="Of a missing dataset: a file such as telemetry_schema.json; after --partition-by.",
)
@click.option("--delimiter", default=",", show_default=True, help="Of CSV.")
@click.option("--no-header", is_flag=True, help="CSV has no header; columns are the fields.")
@click.option("--null-text", "null_text", default="", help="A text that stands for null in CSV.")
@click.option(
    "--quarantine",
    is_flag=False,
    flag_value="",
    metavar="[=NAME]",
    help="Dataset for what does not fit.  [default: that of the dataset, with _quarantine]",
)
@click.option(
    "--spark/--local",
    "with_spark",
    default=None,
    help="Whether tasks of Spark read the files, or this process.  [default: Spark where it is "
    "installed, and several files that are due have 64 MiB together; with --follow this process]",
)
@click.option(
    "--replace-rewritten",
    is_flag=True,
    help="Take rows of replaced files for gone where something else has written them anew.",
)
@rules_options
@click.option(
    "--again",
    multiple=True,
    metavar="FILE|rejected",
    help="Read a file again that was read or kept back as it is, by its path, URL or id in the "
    "archive; or all of which something was set aside.",
)
@click.option("--follow", is_flag=True, help="Go on reading what comes, until it is interrupted.")
@click.option(
    "--every",
    default="10s",
    show_default=True,
    metavar="AGE",
    help="With --follow: look for new files so often.",
)
@click.option("--dry-run", is_flag=True, help="Check everything, and say what would be read.")
@click.option(
    "--fail-on-rejects",
    is_flag=True,
    help="Commit nothing, and exit with 2, if something does not fit.",
)
@click.option(
    "--hold",
    "held",
    multiple=True,
    metavar="FILE",
    help="Read nothing, and keep this file from being read into the dataset until it is released; a "
    "path, a URL or an id in the archive. May be given several times.",
)
@click.option(
    "--release",
    "released",
    multiple=True,
    metavar="FILE",
    help="Read nothing, and let this file be read again. May be given several times.",
)
@click.option("--reason", default="", help="With --hold: why.")
@begun_option
def ingest(
    output: Output,
    *,
    arguments: Sequence[str],
    with_spark: bool | None,
    again: Sequence[str],
    replace_rewritten: bool,
    follow: bool,
    every: str,
    dry_run: bool,
    fail_on_rejects: bool,
    held: Sequence[str],
    released: Sequence[str],
    reason: str,
    begun_at: dt.datetime | None,
    **given: object,
) -> None:
    """Read raw files into a dataset, each once.

    What is new or has changed becomes one batch in one commit; what has been read is skipped, so
    that the verb can run as often as there may be something new. Where a file has changed, its rows
    replace the earlier ones; where it takes the place of another one, --supersede has said so. What
    does not fit goes to the dataset NAME_quarantine, with the reason, the file and the line.

    A file that cannot be trusted is kept back, and the verb exits with 2: one that is truncated or
    damaged, of which too much does not fit, whose header or schema does not fit, or that may be
    another state of a file that was read. The rest is committed. Every run reports it, and reads it
    again when it has changed, or the schema of the dataset, or an option; or with --again.

    FILE... are files, patterns, directories or URLs; or one file that ends with .toml and
    declares all of it, of which --supersede, --max-rejects, --allow-truncated and --unknown
    replace a key; or with --from-archive a question, such as what=syslog start=2015-03-20 end=now.

    With --follow, the verb goes on, and shows each look that has read something.

    With --hold and --release nothing is read. A file that is held is left out of each run, which
    lists it, until it is released; `lakebed sources --held` lists all of them.
    """
    if not arguments and not (held or released):
        message = "Missing argument 'FILE...'."
        raise click.UsageError(message, click.get_current_context())
    others = {"--dry-run": dry_run, "--follow": follow, "--again": again}
    _check_holding(held, released, reason, [name for name, given_ in others.items() if given_])
    declared = _declared(arguments or (*held, *released), given)
    if held or released:
        _change_holds(output, declared, held, released, reason)
        return
    if dry_run:
        _show_check(output, declared, declared.check(again=again))
        return
    if follow:
        if again:
            message = (
                "--follow reads what comes: leave --again out, or run it once without --follow."
            )
            raise click.UsageError(message, click.get_current_context())
        if begun_at is not None:
            raise InvalidInputError(
                "With --follow there are many batches, each of its own time.",
                hint="Leave --begun-at out.",
            )
        following_session = start_spark(output) if with_spark else None

        def begin(on_run: Callable[[IngestRun], None]) -> IngestQuery:
            return declared.follow(
                every,
                spark=following_session,
                replace_rewritten=replace_rewritten,
                fail_on_rejects=fail_on_rejects,
                on_run=on_run,
            )

        follow_ingest(output, begin)
        return
    session = _session(output, declared, with_spark, again)
    with output.progress("Reading") as on_progress:
        report = declared.run(
            session,
            again=again,
            replace_rewritten=replace_rewritten,
            fail_on_rejects=fail_on_rejects,
            begun_at=begun_at,
            on_progress=on_progress,
        )
    _show(output, declared, report)
    if report.kept_back:
        raise click.exceptions.Exit(2)


def _check_holding(
    held: Sequence[str], released: Sequence[str], reason: str, others: Sequence[str]
) -> None:
    context = click.get_current_context()
    if (held or released) and others:
        message = f"With --hold and --release nothing is read: leave {', '.join(others)} out."
        raise click.UsageError(message, context)
    if reason and not held:
        message = "Give --reason with --hold."
        raise click.UsageError(message, context)


def _change_holds(
    output: Output,
    declared: Ingest,
    held: Sequence[str],
    released: Sequence[str],
    reason: str,
) -> None:
    commit = declared.release(released) if released else None
    if held:
        commit = declared.hold(held, reason=reason) or commit
    if commit is None:
        output.note("All of these were held before.")
    else:
        show_commit(output, commit)


def _session(
    output: Output,
    declared: Ingest,
    with_spark: bool | None,  # noqa: FBT001 - as click gives it
    again: Sequence[str],
) -> Any:
    """Return the session whose tasks read, started once it is sure that there is work for it."""
    if with_spark is False:
        return None
    check = declared.check(again=again)
    file_count = len(check.new) + len(check.changed)
    if with_spark is None:
        with_spark = pays_off(file_count, check.size_bytes)
    return start_spark(output) if with_spark and file_count else None


def _declared(arguments: Sequence[str], given: Mapping[str, object]) -> Ingest:
    """Return the ingest that the command line means."""
    context = click.get_current_context()
    if not given["is_archive"] and len(arguments) == 1 and arguments[0].endswith(".toml"):
        others = [
            parameter.opts[0]
            for parameter in context.command.params
            if parameter.name in given
            and parameter.name not in _OVERRIDES
            and parameter.name is not None
            and context.get_parameter_source(parameter.name)
            is click.core.ParameterSource.COMMANDLINE
        ]
        if others:
            message = f"{arguments[0]} declares all of it; leave {', '.join(others)} out."
            raise click.UsageError(message, context)
        return _overridden(context, Ingest.from_toml(arguments[0]), given)
    return _from_options(context, arguments, **given)  # type: ignore[arg-type]  # from click


def _overridden(context: click.Context, declared: Ingest, given: Mapping[str, object]) -> Ingest:
    """Return a declared ingest with those keys that options replace for this run."""
    chosen: dict[str, Any] = {
        name: given[name] for name in _OVERRIDES if given[name] not in (None, False)
    }
    supersede = chosen.pop("supersede", None)
    if supersede is not None:
        if isinstance(declared.source, FromFiles):
            raise click.UsageError(_OF_ARCHIVES, context)
        chosen["source"] = replace(declared.source, supersede=supersede)
    return replace(declared, **chosen)


def _from_options(
    context: click.Context,
    arguments: Sequence[str],
    *,
    is_archive: bool,
    storage: str | None,
    index: str | None,
    supersede: Supersede | None,
    storage_options: Mapping[str, str],
    into: str | None,
    file_format: FileFormat | None,
    run: str | None,
    schema_file: Path | None,
    partition_by: str | None,
    dimensions_file: Path | None,
    delimiter: str,
    no_header: bool,
    null_text: str,
    quarantine: str | None,
    max_rejects: float | None,
    allow_truncated: bool,
    unknown: Unknown | None,
) -> Ingest:
    if into is None:
        message = "Say where the rows go: --into LOCATION/NAME."
        raise click.UsageError(message, context)
    location, name = split_address(into)
    source: FromArchive | FromFiles
    if is_archive:
        if storage is None:
            message = "Say where the archive is: --storage URL."
            raise click.UsageError(message, context)
        question = parse_pairs(context, context.command.params[0], arguments)
        strange = [key for key in question if key not in _QUESTION]
        if strange or "what" not in question:
            message = (
                f"There is no {strange[0]!r} in a question to an archive."
                if strange
                else "The question to the archive has no 'what'."
            )
            raise InvalidInputError(message, hint=f"Write KEY=VALUE with {', '.join(_QUESTION)}.")
        if supersede is not None and question.setdefault("supersede", supersede) != supersede:
            message = f"supersede={question['supersede']} and --supersede {supersede} differ."
            raise click.UsageError(message, context)
        source = FromArchive(
            storage=storage,
            index=index,
            storage_options=storage_options,
            **question,  # type: ignore[arg-type]  # checked by itself
        )
    elif supersede is not None:
        raise click.UsageError(f"{_OF_ARCHIVES}: give --from-archive.", context)
    else:
        source = FromFiles(paths=arguments, storage_options=storage_options)
    return Ingest(
        name=run or name,
        into=f"{location}/{name}",
        source=source,
        format=file_format,
        create=_descriptor(context, schema_file, partition_by, dimensions_file),
        quarantine=quarantine or None,
        max_rejects=max_rejects,
        allow_truncated=allow_truncated,
        unknown=unknown or "reject",
        csv=CsvOptions(has_header=not no_header, delimiter=delimiter, null_text=null_text),
        storage_options=storage_options,
    )


def _descriptor(
    context: click.Context,
    schema_file: Path | None,
    partition_by: str | None,
    dimensions_file: Path | None,
) -> DatasetDescriptor | None:
    if schema_file is None:
        if partition_by is not None or dimensions_file is not None:
            message = "--partition-by and --dimensions are of a dataset to create: give --schema."
            raise click.UsageError(message, context)
        return None
    functions = () if partition_by is None else read_strategy(partition_by).functions
    if dimensions_file is not None:
        with reading(dimensions_file):
            dimensions = DimensionSchema.from_json(dimensions_file)
        functions = (*functions, *dimensions.partition_by())
    return DatasetDescriptor(
        schema=read_schema_file(schema_file), partition_by=PartitionStrategy(functions)
    )


def _show_check(output: Output, declared: Ingest, check: IngestCheck) -> None:
    record = {
        "name": declared.name,
        "into": declared.into,
        "format": check.format,
        "new_count": len(check.new),
        "changed_count": len(check.changed),
        "unchanged_count": check.unchanged_count,
        "superseded_count": sum(entry.why == "superseded" for entry in check.left_out),
        "copy_count": sum(entry.why == "copy" for entry in check.left_out),
        "kept_back_count": sum(entry.is_kept_back for entry in check.left_out),
        "held_count": sum(entry.why == "held" for entry in check.left_out),
        "brought_back_count": len(check.brought_back),
        "size_bytes": check.size_bytes,
        "creates_dataset": check.creates_dataset,
        "new": list(check.new),
        "changed": list(check.changed),
        "left_out": _left_out_records(check.left_out),
    }
    shown = facts_of(record, hidden=["new", "left_out"])
    _tell_left_out(output, check.left_out)
    _tell_brought_back(output, check.brought_back)
    output.record(record, facts={**shown, "changed": list(check.changed) or None})


def _show(output: Output, declared: Ingest, report: IngestReport) -> None:
    if report.commit is None:
        is_known = report.unchanged_count or report.left_out
        reason = "all that can be used has been read before" if is_known else "there is no file"
        output.note(f"Nothing was read: {reason}.")
    if report.replaced_count:
        output.note(
            f"Files replaced: {report.replaced_count:,}, of which "
            f"{counted(report.replaced_row_count, 'row')} had come."
        )
    _tell_left_out(output, report.left_out)
    _tell_brought_back(output, report.brought_back)
    quarantine = f"{declared.into.rpartition('/')[0]}/{report.quarantine}"
    note_rejects(
        output,
        quarantine,
        report.name,
        line_count=report.rejected_line_count,
        rest_count=report.rest_count,
        file_count=report.rejected_file_count,
        file_row_count=report.rejected_file_row_count,
    )
    note_ignored(output, report.ignored_row_count, report.ignored_file_count, report.ignored_fields)
    if report.schema_changes:
        output.note(f"The schema of the dataset has changed: {', '.join(report.schema_changes)}.")
    record = report.to_record()
    told = {**record, "left_out": _left_out_records(report.left_out)}
    output.record(told, facts=facts_of(record))


def _left_out_records(left_out: Sequence[LeftOut]) -> list[dict[str, object]]:
    """Tell programs of the files that are not read; persons are told by notes."""
    return [
        {
            "location": entry.location,
            "pushed_from": entry.pushed_from,
            "where": entry.where,
            "why": entry.why,
            "is_kept_back": entry.is_kept_back,
            "detail": entry.detail,
        }
        for entry in left_out
    ]


def _tell_brought_back(output: Output, locations: Sequence[str]) -> None:
    """Name files that a rollback took out, and that are read again."""
    if locations:
        output.note(
            f"Read again, since a rollback took their rows out: {counted(len(locations), 'file')}, "
            f"such as {locations[0]}. To keep files out, give --hold."
        )


def _tell_left_out(output: Output, left_out: Sequence[LeftOut]) -> None:
    """Say which files are not read, and why."""
    superseded = sum(entry.why == "superseded" for entry in left_out)
    if superseded:
        output.note(f"Files left out: {superseded:,}, since others take their place.")
    held = [entry for entry in left_out if entry.why == "held"]
    for entry in held[:_TOLD]:
        output.note(f"Held: {entry.name}: {entry.detail}.")
    if len(held) > _TOLD:
        output.note(f"Held: {len(held) - _TOLD:,} more.")
    copies = sum(entry.why == "copy" for entry in left_out)
    if copies:
        output.note(f"Files left out: {copies:,}, since they were pushed before as they are.")
    kept_back = [entry for entry in left_out if entry.is_kept_back]
    for entry in kept_back[:_TOLD]:
        output.note(f"Kept back: {entry.name}: {entry.detail}.")
    if len(kept_back) > _TOLD:
        output.note(f"Kept back: {len(kept_back) - _TOLD:,} more.")
    reasons = {entry.why for entry in kept_back}
    if "unclear" in reasons:
        output.note(
            "Say what these are: --supersede path where the later one replaces the earlier, span "
            "where it does so whatever their paths are, id where each is a file of its own."
        )
    if "refused" in reasons:
        output.note(
            "Change the schema of the dataset, as with `lakebed schema update` or --unknown keep, "
            "leave columns out with --unknown ignore, or mend these: the next run reads them."
        )
    if "truncated" in reasons:
        output.note("Bring these again as a whole, or take what can be read: --allow-truncated.")
    if "rejects" in reasons:
        output.note("Mend these, or take what fits: --max-rejects 1.")
    if "damaged" in reasons:
        output.note("Restore these, or push them again.")

"""The verb ingest, which reads raw files of an archive or a folder into a dataset, each once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click

from lakebed.arrow.reading.files import FILE_FORMATS, FileFormat
from lakebed.arrow.reading.unknown import Unknown
from lakebed.cli.archive_verbs import INDEX_VARIABLE, STORAGE_VARIABLE
from lakebed.cli.data import begun_option, levels_option, show_commit
from lakebed.cli.datasets import read_partitions, read_schema_file, submission_schema
from lakebed.cli.follow import follow_ingest
from lakebed.cli.import_verb import (
    note_ignored,
    note_rejects,
    pays_off,
    rules_options,
    start_spark,
)
from lakebed.cli.notation_options import Notation, takes_notation
from lakebed.cli.output import Output
from lakebed.cli.shared_options import parse_pairs, split_address, storage_option, verb
from lakebed.common.shown import counted, facts_of
from lakebed.errors import InvalidInputError
from lakebed.model.descriptor import DatasetDescriptor
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
_LACKS_FIELD = "the first: Unknown "  # in the detail of a file with a field that the dataset lacks
_OTHER_CELLS = "the first: The line has "  # in the detail of a file with a wrong number of cells
_MAX_NAMED = 5  # held or kept-back files in notes


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
    help=f"FILE... is an archive query: KEY=VALUE with {', '.join(_QUESTION)}.",
)
@click.option(
    "--storage",
    envvar=STORAGE_VARIABLE,
    metavar="URL",
    help=f"Storage of the archive.  [env: {STORAGE_VARIABLE}]",
)
@click.option(
    "--index",
    envvar=INDEX_VARIABLE,
    metavar="URL",
    help=f"Index of the archive.  [env: {INDEX_VARIABLE}]",
)
@click.option(
    "--supersede",
    type=click.Choice(get_args(Supersede)),
    help="Of an archive: among files with the same what, where, start and work id (and path), only "
    "the one stored last counts. Of a folder: other content at a path replaces the earlier rows "
    "(path). With id, each file counts.  [default: a possible newer state of a file is kept back]",
)
@storage_option
@click.option("--into", metavar="DATASET", help="The dataset, as LOCATION/NAME.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FILE_FORMATS),
    help="Format of the raw files.  [default: by suffix; required for an archive]",
)
@click.option("--run", help="Name of the run.  [default: the name of the dataset]")
@click.option(
    "--schema",
    "schema_file",
    type=click.Path(path_type=Path),
    help="Create a missing dataset with this schema: .avsc, .json or a Parquet file.",
)
@click.option(
    "--partition-by", metavar="TEXT|FILE", help="Partitions of a new dataset, as for create."
)
@click.option(
    "--dimensions",
    "dimensions_file",
    type=click.Path(path_type=Path),
    help="Dimensions of a new dataset: a file such as telemetry_schema.json; they follow those of "
    "--partition-by.",
)
@takes_notation
@levels_option
@click.option(
    "--quarantine",
    is_flag=False,
    flag_value="",
    metavar="[=NAME]",
    help="Dataset for rows that do not fit.  [default: DATASET_quarantine]",
)
@click.option(
    "--spark/--local",
    "with_spark",
    default=None,
    help="Read the files in Spark tasks, or in this process.  [default: Spark if it is installed and "
    "several files to read have 64 MiB together; with --follow this process]",
)
@click.option(
    "--replace-rewritten",
    is_flag=True,
    help="Treat rows of replaced files as deleted if another operation has rewritten their data "
    "files.",
)
@rules_options
@click.option(
    "--again",
    multiple=True,
    metavar="FILE|rejected",
    help="Read an unchanged file again that was read or kept back, by its path, URL or archive id; "
    "or, with rejected, all files with rejects.",
)
@click.option("--follow", is_flag=True, help="Keep reading new files until interrupted.")
@click.option(
    "--every",
    default="10s",
    show_default=True,
    metavar="AGE",
    help="With --follow: interval between searches for new files.",
)
@click.option("--dry-run", is_flag=True, help="Check everything, and list what would be read.")
@click.option(
    "--fail-on-rejects",
    is_flag=True,
    help="Commit nothing, and exit with 2, if a row does not fit.",
)
@click.option(
    "--hold",
    "held",
    multiple=True,
    metavar="FILE",
    help="Only hold this file back from the dataset until it is released: a path, a URL or an "
    "archive id. Repeatable.",
)
@click.option(
    "--release",
    "released",
    multiple=True,
    metavar="FILE",
    help="Only release this file, so that it can be read again. Repeatable.",
)
@click.option("--reason", default="", help="With --hold: the reason.")
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

    New and grown files become one batch in one commit; files that were read before are skipped, so
    the command can run at any time. The rows of a file that begins as before replace its earlier
    ones, also if it was renamed by a rotation; copies are left out; other content at a path replaces
    rows only by --supersede. Rows that do not fit go to the dataset NAME_quarantine,
    with the reason, the file and the line.

    A file that cannot be trusted is kept back, and the exit code is 2: it is truncated or damaged,
    has too many rows that do not fit or an unfit header or schema, or may be another state of a file
    that was read. The other files are committed. Every run reports the file, and reads it again once
    it, the schema of the dataset or an option has changed; or with --again.

    FILE... are files, patterns, directories or URLs; or one .toml file that declares the ingest, or
    a whole pipeline, see `lakebed run`, in which --supersede, --max-rejects, --allow-truncated and --unknown replace a key; or with
    --from-archive a query, such as what=syslog start=2015-03-20 end=now.

    With --follow the command keeps running, and shows each run that read something.

    With --hold and --release nothing is read. Every run leaves a held file out, and lists it, until
    it is released; `lakebed sources --held` lists all held files.
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
        check = declared.check(again=again)
        _show_check(output, declared, check)
        if any(entry.is_kept_back for entry in check.left_out):
            raise click.exceptions.Exit(2)  # as the run would, which keeps them back again
        return
    if follow:
        if again:
            message = (
                "--follow reads only new files: leave --again out, or run once without --follow."
            )
            raise click.UsageError(message, click.get_current_context())
        if begun_at is not None:
            raise InvalidInputError(
                "--begun-at is for one batch, and --follow writes many.",
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
        output.note("All of these files are held already.")
    else:
        show_commit(output, commit)


def _session(
    output: Output,
    declared: Ingest,
    with_spark: bool | None,  # noqa: FBT001 - as click gives it
    again: Sequence[str],
) -> Any:
    """Return the session whose tasks read, started only if there are files for it to read."""
    if with_spark is False:
        return None
    check = declared.check(again=again)
    file_count = len(check.new) + len(check.changed)
    if with_spark is None:
        with_spark = pays_off(file_count, check.size_bytes)
    return start_spark(output) if with_spark and file_count else None


def _declared(arguments: Sequence[str], given: Mapping[str, object]) -> Ingest:
    """Return the ingest that the command line describes."""
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
        notation = given["notation"]
        if notation != Notation():
            others.append("the options of notation")
        if others:
            message = f"{arguments[0]} declares the whole ingest; leave {', '.join(others)} out."
            raise click.UsageError(message, context)
        return _overridden(Ingest.from_toml(arguments[0]), given)
    return _from_options(context, arguments, **given)  # type: ignore[arg-type]  # from click


def _overridden(declared: Ingest, given: Mapping[str, object]) -> Ingest:
    """Return a declared ingest in which options replace keys for this run."""
    chosen: dict[str, Any] = {
        name: given[name] for name in _OVERRIDES if given[name] not in (None, False)
    }
    supersede = chosen.pop("supersede", None)
    if supersede is not None:
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
    notation: Notation,
    levels: bool,
    quarantine: str | None,
    max_rejects: float | None,
    allow_truncated: bool,
    unknown: Unknown | None,
) -> Ingest:
    if into is None:
        message = "Name the dataset for the rows: --into LOCATION/NAME."
        raise click.UsageError(message, context)
    location, name = split_address(into)
    source: FromArchive | FromFiles
    if is_archive:
        if storage is None:
            message = "Name the storage of the archive: --storage URL."
            raise click.UsageError(message, context)
        question = parse_pairs(context, context.command.params[0], arguments)
        strange = [key for key in question if key not in _QUESTION]
        if strange or "what" not in question:
            message = (
                f"An archive query has no key {strange[0]!r}."
                if strange
                else "The archive query lacks 'what'."
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
    else:
        source = FromFiles(
            paths=arguments,
            storage_options=storage_options,
            levels=levels,
            supersede=supersede,  # type: ignore[arg-type]  # checked by itself
        )
    return Ingest(
        name=run or name,
        into=f"{location}/{name}",
        source=source,
        format=file_format,
        create=_descriptor(context, schema_file, partition_by, dimensions_file, file_format),
        quarantine=quarantine or None,
        max_rejects=max_rejects,
        allow_truncated=allow_truncated,
        unknown=unknown or "reject",
        csv=notation.csv_options,
        json=notation.json_options,
        storage_options=storage_options,
    )


def _descriptor(
    context: click.Context,
    schema_file: Path | None,
    partition_by: str | None,
    dimensions_file: Path | None,
    file_format: FileFormat | None,
) -> DatasetDescriptor | None:
    strategy = read_partitions(partition_by, dimensions_file) or PartitionStrategy(())
    if schema_file is None and dimensions_file is not None and file_format == "submissions":
        schema = submission_schema(strategy)
        return DatasetDescriptor(schema=schema, partition_by=strategy, format="submissions")
    if schema_file is None:
        if partition_by is not None or dimensions_file is not None:
            message = "--partition-by and --dimensions describe a new dataset: give --schema, too."
            raise click.UsageError(message, context)
        return None
    return DatasetDescriptor(schema=read_schema_file(schema_file), partition_by=strategy)


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
    _note_left_out(output, check.left_out)
    _note_brought_back(output, check.brought_back)
    output.record(record, facts={**shown, "changed": list(check.changed) or None})


Spelling = Callable[[str, object], str]
"""Returns how a rule of an ingest is given, such as `max_rejects` as 1."""


def as_option(key: str, value: object) -> str:
    """Return a rule as an option of `lakebed ingest`.

    >>> as_option("max_rejects", 1), as_option("allow_truncated", True)
    ('--max-rejects 1', '--allow-truncated')
    """
    option = f"--{key.replace('_', '-')}"
    return option if value is True else f"{option} {value}"


def as_key(key: str, value: object) -> str:
    """Return a rule as a key of a declaration.

    >>> as_key("max_rejects", 1), as_key("unknown", "keep")
    ('max_rejects = 1 in [ingest]', "unknown = 'keep' in [ingest]")
    """
    return f"{key} = {'true' if value is True else repr(value)} in [ingest]"


def note_report(
    output: Output, declared: Ingest, report: IngestReport, setting: Spelling = as_option
) -> None:
    """Note what a run replaced, left out and set aside, for a person."""
    if report.commit is None:
        kept_back = len(report.kept_back)
        if kept_back:
            was = counted(kept_back, "file was", "files were")
            reason = f"{was} kept back"
        elif report.unchanged_count or report.left_out:
            reason = "all usable files were read before"
        else:
            reason = "there is no file"
        output.note(f"Nothing was loaded: {reason}.")
    if report.replaced_count:
        output.note(
            f"Files replaced: {report.replaced_count:,}, with "
            f"{counted(report.replaced_row_count, 'earlier row')}."
        )
    _note_left_out(output, report.left_out, setting)
    _note_brought_back(output, report.brought_back)
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
    if report.schema_differences:
        output.note(
            f"The declared schema has no effect on a dataset that exists: "
            f"{'; '.join(report.schema_differences)}. Change the dataset with `lakebed schema add` or "
            f"`change-type`; or, to read all files again, `lakebed drop {declared.into}`."
        )


def _show(output: Output, declared: Ingest, report: IngestReport) -> None:
    note_report(output, declared, report)
    record = report.to_record()
    detailed = {**record, "left_out": _left_out_records(report.left_out)}
    output.record(detailed, facts=facts_of(record))


def _left_out_records(left_out: Sequence[LeftOut]) -> list[dict[str, object]]:
    """Return the records of the files that are not read, for programs; people get notes."""
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


def _note_brought_back(output: Output, locations: Sequence[str]) -> None:
    """Note the files that are read again after a rollback removed their rows."""
    if locations:
        output.note(
            f"Read again, since a rollback removed their rows: {counted(len(locations), 'file')}, "
            f"such as {locations[0]}. To keep files out, give --hold."
        )


def _note_left_out(
    output: Output, left_out: Sequence[LeftOut], setting: Spelling = as_option
) -> None:
    """Note the files that are not read, and why."""
    superseded = sum(entry.why == "superseded" for entry in left_out)
    if superseded:
        output.note(f"Files left out: {superseded:,}, superseded by others.")
    held = [entry for entry in left_out if entry.why == "held"]
    for entry in held[:_MAX_NAMED]:
        output.note(f"Held: {entry.name}: {entry.detail}.")
    if len(held) > _MAX_NAMED:
        output.note(f"Held: {len(held) - _MAX_NAMED:,} more.")
    copies = [entry for entry in left_out if entry.why == "copy"]
    if copies:
        first = copies[0]
        example = "" if first.pushed_from else f", such as {first.name}, {first.detail}"
        output.note(f"Files left out: {len(copies):,}, unchanged copies of others{example}.")
    kept_back = [entry for entry in left_out if entry.is_kept_back]
    for entry in kept_back[:_MAX_NAMED]:
        output.note(f"Kept back: {entry.name}: {entry.detail}.")
    if len(kept_back) > _MAX_NAMED:
        output.note(f"Kept back: {len(kept_back) - _MAX_NAMED:,} more.")
    reasons = {entry.why for entry in kept_back}
    if "unclear" in reasons:
        output.note(
            f"Choose how to treat these: {setting('supersede', 'path')} if the later file replaces the "
            "earlier one of the same path, 'id' if each counts; in an archive also 'span', if it does so "
            "for any path."
        )
    if "refused" in reasons:
        output.note(
            "Change the schema of the dataset with `lakebed schema update` or "
            f"{setting('unknown', 'keep')}, leave columns out with {setting('unknown', 'ignore')}, or fix "
            "these files: the next run reads them."
        )
    if "truncated" in reasons:
        part = setting("allow_truncated", True)  # noqa: FBT003 - the value of a key
        output.note(f"Provide complete files, or load the readable part: {part}.")
    unfit = [entry.detail for entry in kept_back if entry.why == "rejects"]
    if any(_OTHER_CELLS in detail for detail in unfit):
        output.note(
            "Where lines have another number of cells, the files may be written in another way than "
            "declared: look at delimiter, quote, skip and has_header; `lakebed init` finds them."
        )
    elif unfit:
        output.note(
            "Fix these files, give the fields types that hold all values, or load the rows that fit: "
            f"{setting('max_rejects', 1)}."
        )
    if any(entry.why == "rejects" and _LACKS_FIELD in entry.detail for entry in kept_back):
        output.note(
            f"Fields that the dataset lacks: {setting('unknown', 'keep')} adds those with a valid name to "
            f"the schema, {setting('unknown', 'ignore')} leaves them out; or use `lakebed schema update`."
        )
    if "damaged" in reasons:
        output.note("Restore these files, or push them again.")

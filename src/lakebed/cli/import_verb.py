"""The verb import, which loads raw files into a dataset and creates it if it is missing."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import click

from lakebed.arrow.reading.binary import avro_file_schema
from lakebed.arrow.reading.files import reading
from lakebed.arrow.reading.inference import inspect_files
from lakebed.arrow.reading.level_columns import with_level_fields
from lakebed.arrow.reading.unknown import Unknown
from lakebed.cli.data import begun_option, commit_options, run_option, takes_files
from lakebed.cli.datasets import read_partitions, submission_schema
from lakebed.cli.inputs import Inputs
from lakebed.cli.output import Output
from lakebed.cli.records import commit_record, dry_run_record, dry_run_text
from lakebed.cli.shared_options import (
    AttachedOption,
    Verb,
    dry_run_option,
    takes_dataset,
    verb,
)
from lakebed.common.progress import OnProgress
from lakebed.common.shown import counted, facts_of
from lakebed.errors import DatasetNotFoundError, InvalidInputError, LakebedError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.locations import shell_address, shell_text
from lakebed.model.partition import PartitionStrategy
from lakebed.model.predicate import sql_literal
from lakebed.repository import Repository
from lakebed.spark.session import get_session, session_at
from lakebed.state.creation import check_place
from lakebed.store.dry_run import DryRunStore
from lakebed.work.ingest.load import LoadReport, load
from lakebed.work.ingest.load_options import LoadOptions

# Formats whose unfit parts always go to quarantine.
_SIFTED = ("submissions", "avro")
# One process reads this much in about the time in which a session starts.
SPARK_FROM_BYTES = 64 * 2**20


def rules_options(function: Verb) -> Verb:
    """Add the options for raw files that do not fit."""
    limit = click.option(
        "--max-rejects",
        type=float,
        metavar="SHARE|LINES",
        help="Reject a file if more of its lines do not fit: a share from 0 to 1, or a number of "
        "lines from 2 on.  [default: 0.1, and 0.01 for values that do not fit their fields]",
    )
    truncated = click.option(
        "--allow-truncated",
        is_flag=True,
        help="Load the readable part of a file whose end is missing or damaged, instead of "
        "rejecting the file.",
    )
    unknown = click.option(
        "--unknown",
        type=click.Choice(get_args(Unknown)),
        help="Action for a field that the dataset lacks: reject sets the line or file aside; ignore "
        "leaves the field out and counts the rows; keep adds the field to the schema, nullable.  "
        "[default: reject]",
    )
    return limit(truncated(unknown(function)))


@verb(
    "import",
    example="lakebed import lake/flights flights.csv --partition-by 'date(time_hour) as dt'",
)
@takes_dataset
@takes_files(required=True)
@click.option(
    "--partition-by",
    metavar="TEXT|FILE",
    help="Partitions of a dataset that is created; as for create.",
)
@click.option(
    "--dimensions",
    "dimensions_file",
    type=click.Path(path_type=Path),
    help="Dimensions of a dataset that is created: a file such as telemetry_schema.json; they "
    "follow those of --partition-by.",
)
@click.option(
    "--overwrite", "is_overwrite", is_flag=True, help="Replace the partitions that rows touch."
)
@click.option(
    "--quarantine",
    cls=AttachedOption,
    is_flag=False,
    flag_value="",
    metavar="[=NAME]",
    help="Put rows that do not fit into a quarantine dataset, instead of failing; submissions and "
    "Avro always do.  [default name: DATASET_quarantine]",
)
@click.option(
    "--fail-on-rejects",
    is_flag=True,
    help="Commit nothing, and exit with 2, if a row does not fit.",
)
@click.option(
    "--spark/--local",
    "with_spark",
    default=None,
    help="Read the files in Spark tasks, or in this process.  [default: Spark if it is installed "
    "and several files have 64 MiB together]",
)
@rules_options
@dry_run_option("Only read and check the files, and show what would be loaded.")
@run_option
@begun_option
def import_(
    output: Output,
    *,
    repository: Repository,
    name: str,
    inputs: Inputs,
    partition_by: str | None,
    dimensions_file: Path | None,
    is_overwrite: bool,
    quarantine: str | None,
    fail_on_rejects: bool,
    with_spark: bool | None,
    max_rejects: float | None,
    allow_truncated: bool,
    unknown: Unknown | None,
    is_dry_run: bool,
    run: str | None,
    begun_at: dt.datetime | None,
) -> None:
    """Load files, and create the dataset if it is missing.

    One commit holds the rows. A named --run is loaded once, so that it can safely be repeated.

    FILES are CSV with a header, JSON lines, submissions, Avro or Parquet, or directories of
    them. An existing dataset sets the types, and every column must be one of its fields, unless
    --unknown allows others. For a missing dataset the types are inferred as by `schema infer --rows
    0`: times in CSV are found, in UTC; in JSON they stay text, so create the dataset first if it has
    times. For submissions it gets a text field for each source of its partitions. It is created
    after all files were read, so that files that do not fit leave nothing behind.

    A row that does not fit is an error, and nothing is committed. With --quarantine such rows go to
    another dataset; lines of submissions and damaged ends of Avro files always do. The types of a
    missing dataset are then those that fit most lines. If more of a file does not fit than
    --max-rejects allows, or its end is missing, nothing is committed.

    Spark pays off for many large files; one task reads a file. A dry run reads them in this process.
    """
    if inputs.is_stdin:
        raise InvalidInputError("Standard input is read only once.", hint="Use `lakebed append`.")
    sets_aside = (quarantine is not None or inputs.format in _SIFTED) and not fail_on_rejects
    if sets_aside and is_overwrite:
        raise InvalidInputError(
            "An import with quarantine can only append, not overwrite.",
            hint="Leave --overwrite out, or add --fail-on-rejects.",
        )
    strategy = read_partitions(partition_by, dimensions_file)
    began = time.monotonic()
    create = None
    if not _exists(repository, name, strategy):
        with output.progress(f"Inferring the schema of {inputs.label}") as on_progress:
            unfit: Literal["error", "skip"] = "skip" if sets_aside else "error"
            create, inputs = _inspected(inputs, strategy, unfit, on_progress)
        for remark in inputs.remarks:
            output.note(remark)
    if is_dry_run:
        with_spark = False
    elif with_spark is None:
        with_spark = pays_off(len(inputs.files), inputs.size_bytes)
    output.note(
        f"Reading {inputs.label} of {counted(inputs.size_bytes, 'byte')}{' with Spark' * with_spark}"
    )
    session = start_spark(output) if with_spark else None
    with output.progress("Reading") as on_progress, _spark_errors():
        report = load(
            DryRunStore(repository.store) if is_dry_run else repository.store,
            name,
            inputs.files,
            inputs.format,
            run=run,
            spark=session,
            quarantine=quarantine or None,
            options=LoadOptions(
                csv=inputs.csv,
                json=inputs.json,
                commit=commit_options(begun_at),
                fail_on_rejects=not sets_aside,
                max_rejects=max_rejects,
                allow_truncated=allow_truncated,
                unknown=unknown or "reject",
            ),
            overwrites=is_overwrite,
            create=create,
            on_progress=on_progress,
        )
    if create is not None:
        output.note(f"{'Would create' if is_dry_run else 'Created'} {repository.uri}/{name}")
    _show(output, repository, report, duration_s=time.monotonic() - began)
    if not sets_aside and report.rejected_count:
        raise click.exceptions.Exit(2)  # rejects of a run that was loaded before


def note_rejects(
    output: Output,
    quarantine: str,
    run: str,
    *,
    line_count: int,
    rest_count: int = 0,
    file_count: int = 0,
    file_row_count: int = 0,
) -> None:
    """Note how many lines and files did not fit, if any, with a query that shows them."""
    parts = []
    if line_count:
        parts.append(f"{counted(line_count, 'line')} did not fit")
    if rest_count:
        parts.append(f"{counted(rest_count, 'file')} could not be read to the end")
    if file_count:
        rows = f", of {counted(file_row_count, 'row')}" if file_row_count else ""
        parts.append(f"{counted(file_count, 'file')} did not fit as a whole{rows}")
    if parts:
        output.note(
            f"{'; '.join(parts)}. See why with: lakebed query {shell_address(quarantine)} "
            f"--where {shell_text(f'run = {sql_literal(run)}')}"
        )


def note_ignored(output: Output, row_count: int, file_count: int, fields: Sequence[str]) -> None:
    """Note the fields that were left out of rows, if any."""
    if row_count:
        output.note(
            f"{counted(row_count, 'row')} of {counted(file_count, 'file')} had fields that the "
            f"dataset lacks; they were left out: {', '.join(fields)}."
        )


def pays_off(file_count: int, size_bytes: int) -> bool:
    """Return whether Spark is worth starting; one task reads a file."""
    is_much = file_count > 1 and size_bytes >= SPARK_FROM_BYTES
    return is_much and find_spec("pyspark") is not None


def start_spark(output: Output, master: str | None = None) -> Any:
    """Return a quiet session, of `get_session` or of the given master."""
    with output.progress("Starting Spark"):
        session = session_at(master) if master else get_session()
    if not output.is_verbose:
        # Spark logs a failed task in a hundred lines; our error needs one. A Connect session has no
        # context here, and logs elsewhere.
        with contextlib.suppress(AttributeError):
            session.sparkContext.setLogLevel("OFF")
    return session


# Spark's exceptions read `[CONDITION] text SQLSTATE: …`, one for each of a chain, the first cause last.
_CONDITION = re.compile(r"\[[A-Z][A-Z_.]+\] (.+?)\s*SQLSTATE", re.DOTALL)


@contextlib.contextmanager
def _spark_errors() -> Iterator[None]:
    """Turn an exception of Spark into an error of one line.

    Raises:
        LakebedError: Spark failed.
    """
    try:
        yield
    except LakebedError:
        raise
    except Exception as exc:
        if not type(exc).__module__.startswith(("pyspark.", "py4j.")):
            raise
        causes = [" ".join(cause.split()) for cause in _CONDITION.findall(str(exc))]
        cause = causes[-1] if causes else str(exc).strip().partition("\n")[0]
        hint = "Run the command again with -v to see Spark's log."
        raise LakebedError(f"Spark failed: {cause}", hint=hint) from exc


def _exists(repository: Repository, name: str, strategy: PartitionStrategy | None) -> bool:
    """Return whether the dataset exists, and check its partition strategy."""
    try:
        dataset = repository.open(name)
    except DatasetNotFoundError as missing:
        check_place(repository.store, name, missing)
        return False
    if strategy is not None and strategy != dataset.descriptor.partition_by:
        raise InvalidInputError(
            f"Dataset {name!r} exists with another partition strategy.",
            hint="Leave --partition-by and --dimensions out, or import into another dataset.",
        )
    return True


def _inspected(
    inputs: Inputs,
    strategy: PartitionStrategy | None,
    unfit: Literal["error", "skip"],
    on_progress: OnProgress,
) -> tuple[DatasetDescriptor, Inputs]:
    """Return the descriptor of a dataset for these files, and their notation by all rows."""
    partition_by = strategy or PartitionStrategy(())
    if inputs.format == "submissions":
        descriptor = DatasetDescriptor(
            schema=submission_schema(partition_by), partition_by=partition_by, format="submissions"
        )
        return descriptor, inputs
    if inputs.format == "avro":
        with reading(inputs.locations[0]):
            schema = with_level_fields(avro_file_schema(inputs.files[0]), inputs.files)
    else:
        found = inspect_files(
            inputs.files,
            inputs.format,
            rows=0,
            csv=inputs.notation.csv,
            json=inputs.notation.json,
            unfit=unfit,
            on_progress=on_progress,
            recognized=inputs.recognized,
        )
        notes = (f"{name}: {text}" for name, texts in found.notes.items() for text in texts)
        inputs = replace(inputs, csv=found.csv, json=found.json, remarks=(*found.remarks, *notes))
        schema = found.schema
    return DatasetDescriptor(schema=schema, partition_by=partition_by), inputs


def _show(output: Output, repository: Repository, report: LoadReport, *, duration_s: float) -> None:
    is_dry_run = report.commit.is_dry_run
    if report.is_repeated:
        output.note(f"Run {report.run!r} was loaded before; nothing was loaded.")
    elif is_dry_run:
        output.note(
            f"Would write {counted(report.row_count, 'row')} of "
            f"{counted(report.file_count, 'file')} in "
            f"{counted(len(report.commit.files_added), 'data file')}."
        )
        output.note(dry_run_text(report.commit))
    else:
        output.note(
            f"Wrote {counted(report.row_count, 'row')} of {counted(report.file_count, 'file')} in "
            f"{counted(len(report.commit.files_added), 'data file')}, {duration_s:.1f} s"
        )
    if is_dry_run:
        if report.rejected_count:
            output.note(
                f"Would put {counted(report.rejected_count, 'line')} that did not fit into "
                f"{repository.uri}/{report.quarantine}."
            )
    else:
        note_rejects(
            output,
            f"{repository.uri}/{report.quarantine}",
            report.run,
            line_count=report.rejected_count - report.rest_count,
            rest_count=report.rest_count,
        )
    note_ignored(output, report.ignored_row_count, report.ignored_file_count, report.ignored_fields)
    record = {
        **(dry_run_record(report.commit) if is_dry_run else commit_record(report.commit)),
        "run": None if is_dry_run and report.commit.run is None else report.run,
        "rejected_count": report.rejected_count,
        "rest_count": report.rest_count,
        "ignored_row_count": report.ignored_row_count,
        "quarantine": report.quarantine if report.rejected_count else None,
        "file_count": report.file_count,
        "size_bytes": report.size_bytes,
        "is_repeated": report.is_repeated,
    }
    output.record(record, facts=facts_of(record, hidden=["commit_id"]))

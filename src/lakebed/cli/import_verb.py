"""The verb import: raw files into a dataset, which is created if it is missing."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import click

from lakebed.arrow.reading.binary import avro_file_schema
from lakebed.arrow.reading.files import reading
from lakebed.arrow.reading.inference import infer_schema
from lakebed.arrow.reading.unknown import Unknown
from lakebed.cli.data import begun_option, commit_options, run_option, takes_files
from lakebed.cli.datasets import read_partitions
from lakebed.cli.inputs import Inputs
from lakebed.cli.output import Output
from lakebed.cli.records import commit_record
from lakebed.cli.shared_options import AttachedOption, Verb, takes_dataset, verb
from lakebed.common.progress import OnProgress
from lakebed.common.shown import counted, facts_of
from lakebed.errors import DatasetNotFoundError, InvalidInputError, LakebedError
from lakebed.model.descriptor import DOCUMENT, UUID, DatasetDescriptor
from lakebed.model.locations import shell_address, shell_text
from lakebed.model.partition import PartitionStrategy
from lakebed.model.predicate import sql_literal
from lakebed.model.schema import Field, Kind, Primitive, Schema, Struct
from lakebed.repository import Repository
from lakebed.spark.session import get_session, session_at
from lakebed.state.creation import check_place
from lakebed.work.ingest.load import LoadReport, load
from lakebed.work.ingest.load_options import LoadOptions

_TEXT = Primitive(Kind.STRING)
# Of these, what does not fit is set aside whether that is asked for or not.
_SIFTED = ("submissions", "avro")
# One process reads as much in about the time in which a session starts.
SPARK_FROM_BYTES = 64 * 2**20


def rules_options(function: Verb) -> Verb:
    """Add the options that say what of a raw file is taken."""
    limit = click.option(
        "--max-rejects",
        type=float,
        metavar="SHARE|LINES",
        help="A file of which more does not fit is not taken: a share of its lines from 0 to 1, or "
        "a number of lines from 2 on.  [default: 0.1, or 0.5 where ten lines or fewer do not fit]",
    )
    truncated = click.option(
        "--allow-truncated",
        is_flag=True,
        help="Take what can be read of a file whose end is missing or damaged, which else is not "
        "taken.",
    )
    unknown = click.option(
        "--unknown",
        type=click.Choice(get_args(Unknown)),
        help="A field that the dataset lacks: reject it, which sets the line or file aside; ignore "
        "it, which leaves it out and counts the rows; or keep it, which adds it to the schema, "
        "nullable.  [default: reject]",
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
    help="Of the dataset that is created; as for create.",
)
@click.option(
    "--dimensions",
    "dimensions_file",
    type=click.Path(path_type=Path),
    help="Of the dataset that is created: a file such as telemetry_schema.json; after "
    "--partition-by.",
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
    help="Set rows aside that do not fit, instead of failing; submissions and Avro always do.  "
    "[default name: that of the dataset, with _quarantine]",
)
@click.option(
    "--fail-on-rejects",
    is_flag=True,
    help="Commit nothing, and exit with 2, if something does not fit.",
)
@click.option(
    "--spark/--local",
    "with_spark",
    default=None,
    help="Whether tasks of Spark read the files, or this process.  [default: Spark where it is "
    "installed, and several files have 64 MiB together]",
)
@rules_options
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
    run: str | None,
    begun_at: dt.datetime | None,
) -> None:
    """Load files, and create the dataset if it is missing.

    One commit holds the rows. A named --run is loaded once, so that it can be started again.

    FILES are CSV with a header, JSON lines, submissions, Avro or Parquet, or directories of
    them. A dataset that is there says how they are read, and every column must be one of its
    fields, unless --unknown says otherwise. For one that is missing the types are those that `schema infer --rows 0` finds: times
    in CSV are found, in UTC; in JSON they stay text, so create the dataset first if it has times.
    For submissions it has a text field for each source of its partitions. It is created when all
    has been read, so that files that do not fit leave nothing.

    What does not fit is an error, and nothing is committed. With --quarantine it goes to another
    dataset, and so it does always for lines of submissions, and for rests of Avro files that are
    damaged. Then the types of a dataset that is missing are those that fit most lines. If more of a
    file does not fit than --max-rejects allows, or its end is missing, nothing is committed.

    Spark pays off for many large files, each of which one task reads.
    """
    if inputs.is_stdin:
        raise InvalidInputError("Standard input is read only once.", hint="Use `lakebed append`.")
    sets_aside = (quarantine is not None or inputs.format in _SIFTED) and not fail_on_rejects
    if sets_aside and is_overwrite:
        raise InvalidInputError(
            "What goes through quarantine is added, and replaces nothing.",
            hint="Leave --overwrite out, or add --fail-on-rejects.",
        )
    strategy = read_partitions(partition_by, dimensions_file)
    began = time.monotonic()
    create = None
    if not _exists(repository, name, strategy):
        with output.progress(f"Looking at {inputs.label}") as on_progress:
            unfit: Literal["error", "skip"] = "skip" if sets_aside else "error"
            create = _descriptor(inputs, strategy, unfit, on_progress)
    if with_spark is None:
        with_spark = pays_off(len(inputs.files), inputs.size_bytes)
    output.note(
        f"Reading {inputs.label} of {counted(inputs.size_bytes, 'byte')}{' with Spark' * with_spark}"
    )
    session = start_spark(output) if with_spark else None
    with output.progress("Reading") as on_progress, _spark_errors():
        report = load(
            repository.store,
            name,
            inputs.locations,
            inputs.format,
            run=run,
            spark=session,
            quarantine=quarantine or None,
            options=LoadOptions(
                csv=inputs.csv,
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
        output.note(f"Created {repository.uri}/{name}")
    _show(output, repository, report, duration_s=time.monotonic() - began)
    if not sets_aside and report.rejected_count:
        raise click.exceptions.Exit(2)  # of a run that was loaded before


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
    """Note how much did not fit, if anything, by kind, and how to see it."""
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
    """Note what was left out of rows, if anything."""
    if row_count:
        output.note(
            f"{counted(row_count, 'row')} of {counted(file_count, 'file')} had fields that the "
            f"dataset lacks, which were left out: {', '.join(fields)}."
        )


def pays_off(file_count: int, size_bytes: int) -> bool:
    """Whether a session of Spark is worth its start: a file is read by one task."""
    is_much = file_count > 1 and size_bytes >= SPARK_FROM_BYTES
    return is_much and find_spec("pyspark") is not None


def start_spark(output: Output, master: str | None = None) -> Any:
    """Return a session that does not chatter; of `get_session`, or of the master that is named."""
    with output.progress("Starting Spark"):
        session = session_at(master) if master else get_session()
    if not output.is_verbose:
        # Spark tells of a task that failed in a hundred lines; the error says it in one. A session
        # on Connect has no context here, and its log is elsewhere.
        with contextlib.suppress(AttributeError):
            session.sparkContext.setLogLevel("OFF")
    return session


# Spark's exceptions say `[CONDITION] text SQLSTATE: …`, each of a chain, the first cause last.
_CONDITION = re.compile(r"\[[A-Z][A-Z_.]+\] (.+?)\s*SQLSTATE", re.DOTALL)


@contextlib.contextmanager
def _spark_errors() -> Iterator[None]:
    """Say in a line what Spark says in a hundred.

    Raises:
        LakebedError: Something failed in Spark.
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
        hint = "Run it again with -v to see its log."
        raise LakebedError(f"Spark failed: {cause}", hint=hint) from exc


def _exists(repository: Repository, name: str, strategy: PartitionStrategy | None) -> bool:
    """Whether the dataset is there, partitioned as asked for."""
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


def _descriptor(
    inputs: Inputs,
    strategy: PartitionStrategy | None,
    unfit: Literal["error", "skip"],
    on_progress: OnProgress,
) -> DatasetDescriptor:
    """Return what a dataset for these files is."""
    partition_by = strategy or PartitionStrategy(())
    if inputs.format == "submissions":
        lines = (Field(name=name, type=_TEXT, nullable=False) for name in (UUID, DOCUMENT))
        sources = dict.fromkeys(one.source for one in partition_by if one.takes_source)
        paths = [name.split(".") for name in sources if name not in (UUID, DOCUMENT)]
        return DatasetDescriptor(
            schema=Schema(fields=(*lines, *_text_fields(paths))),
            partition_by=partition_by,
            format="submissions",
        )
    if inputs.format == "avro":
        with reading(inputs.locations[0]):
            schema = avro_file_schema(inputs.files[0])
    else:
        schema = infer_schema(
            inputs.locations,
            inputs.format,
            rows=0,
            csv=inputs.csv,
            unfit=unfit,
            on_progress=on_progress,
        )
    return DatasetDescriptor(schema=schema, partition_by=partition_by)


def _text_fields(paths: Sequence[Sequence[str]]) -> tuple[Field, ...]:
    """Return text fields for sources; those of a record, such as `application.name`, in one."""
    inner: dict[str, list[Sequence[str]]] = {}
    for name, *rest in paths:
        inner.setdefault(name, []).extend([rest] if rest else [])
    return tuple(
        Field(name=name, type=Struct(_text_fields(rests)) if rests else _TEXT)
        for name, rests in inner.items()
    )


def _show(output: Output, repository: Repository, report: LoadReport, *, duration_s: float) -> None:
    if report.is_repeated:
        output.note(f"Run {report.run!r} was loaded before; nothing was done.")
    else:
        output.note(
            f"Wrote {counted(report.row_count, 'row')} of {counted(report.file_count, 'file')} in "
            f"{counted(len(report.commit.files_added), 'data file')}, {duration_s:.1f} s"
        )
    note_rejects(
        output,
        f"{repository.uri}/{report.quarantine}",
        report.run,
        line_count=report.rejected_count - report.rest_count,
        rest_count=report.rest_count,
    )
    note_ignored(output, report.ignored_row_count, report.ignored_file_count, report.ignored_fields)
    record = {
        **commit_record(report.commit),
        "run": report.run,
        "rejected_count": report.rejected_count,
        "rest_count": report.rest_count,
        "ignored_row_count": report.ignored_row_count,
        "quarantine": report.quarantine if report.rejected_count else None,
        "file_count": report.file_count,
        "size_bytes": report.size_bytes,
        "is_repeated": report.is_repeated,
    }
    output.record(record, facts=facts_of(record, hidden=["commit_id"]))

"""The verb import: files through Spark."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import click

from lakebed.arrow.reading.binary import avro_file_schema
from lakebed.arrow.reading.files import reading
from lakebed.cli.data import run_option, show_commit, takes_files
from lakebed.cli.datasets import read_strategy
from lakebed.cli.inputs import Inputs
from lakebed.cli.options import takes_dataset, verb
from lakebed.cli.output import Output
from lakebed.cli.records import commit_record
from lakebed.cli.spark_files import read_frame, spark_errors
from lakebed.dataset import Dataset
from lakebed.errors import DatasetNotFoundError, InvalidInputError
from lakebed.model.descriptor import DOCUMENT, UUID, DatasetDescriptor
from lakebed.model.dimensions import DimensionSchema
from lakebed.model.partition import PartitionStrategy
from lakebed.model.schema import Field, Kind, Primitive, Schema
from lakebed.repository import Repository
from lakebed.spark.session import get_session
from lakebed.work.ingest.load import LoadReport
from lakebed.work.ingest.options import LoadOptions

# The others are read by Spark itself, which fails at the first row that does not fit.
_SIFTED = ("submissions", "avro")


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
    help="Of the dataset that is created: a file such as telemetry_schema.json.",
)
@click.option(
    "--overwrite", "is_overwrite", is_flag=True, help="Replace the partitions that rows touch."
)
@click.option(
    "--quarantine",
    "is_sifted",
    is_flag=True,
    help="Set rows aside that do not fit, instead of failing; submissions and Avro always do.",
)
@click.option(
    "--fail-on-rejects",
    is_flag=True,
    help="Commit nothing, and exit with 2, if something does not fit.",
)
@run_option
def import_(
    output: Output,
    *,
    repository: Repository,
    name: str,
    inputs: Inputs,
    partition_by: str | None,
    dimensions_file: Path | None,
    is_overwrite: bool,
    is_sifted: bool,
    fail_on_rejects: bool,
    run: str | None,
) -> None:
    """Load files with Spark.

    One commit holds the rows. A missing dataset is created.

    FILES are CSV with a header, JSON lines, submissions, Avro or Parquet, or directories of
    them. A dataset that is there says how they are read, and every column must be one of its
    fields. For one that is missing the types are inferred from all rows: times in CSV are found,
    in UTC; in JSON they stay text, so create the dataset first if it has times. For submissions
    it has a text field for each source of its partitions.

    What does not fit goes to the dataset NAME_quarantine: lines of submissions, and rests of
    files that are damaged. A named --run is loaded once, so that it can be started again.
    """
    if inputs.is_stdin:
        raise InvalidInputError("Spark reads no standard input.", hint="Use `lakebed append`.")
    strategy = _strategy(partition_by, dimensions_file)
    dataset = _find(repository, name, strategy)
    sifted = is_sifted or inputs.format in _SIFTED
    if sifted and is_overwrite:
        raise InvalidInputError(
            "What goes through quarantine is added, and replaces nothing.",
            hint="Leave --overwrite out.",
        )
    output.note(f"Reading {inputs.label} of {inputs.size_bytes:,} bytes with Spark")
    began = time.monotonic()
    session = start_spark(output)
    if dataset is None and inputs.format in _SIFTED:
        dataset = _create(output, repository, name, _descriptor(inputs, strategy))
    frame = None
    if not sifted or dataset is None:
        with output.progress("Reading with Spark"):
            frame = read_frame(session, inputs, None if dataset is None else dataset.descriptor)
    if dataset is None:
        descriptor = DatasetDescriptor(schema=frame, partition_by=strategy or ())
        dataset = _create(output, repository, name, descriptor)
    if sifted:
        _load(output, dataset, inputs, session, run, is_strict=fail_on_rejects)
        return
    with output.progress("Writing with Spark"), spark_errors(inputs):
        commit = dataset.overwrite(frame, run=run) if is_overwrite else dataset.append(frame, run)
    output.note(
        f"Wrote {commit.row_count:,} rows in {len(commit.files_added):,} data files, "
        f"{time.monotonic() - began:.1f} s"
    )
    show_commit(output, commit)


def start_spark(output: Output) -> Any:
    """Return a session that does not chatter."""
    with output.progress("Starting Spark"):
        session = get_session()
    if not output.is_verbose:
        # Spark tells of a bad row in a hundred lines; the error says it in one. A session on
        # Connect has no context here, and its log is elsewhere.
        with contextlib.suppress(AttributeError):
            session.sparkContext.setLogLevel("OFF")
    return session


def _strategy(partition_by: str | None, dimensions_file: Path | None) -> PartitionStrategy | None:
    if dimensions_file is None:
        return None if partition_by is None else read_strategy(partition_by)
    if partition_by is not None:
        message = "Give only one of --partition-by and --dimensions."
        raise click.UsageError(message, click.get_current_context())
    with reading(dimensions_file):
        return PartitionStrategy(DimensionSchema.from_json(dimensions_file).partition_by())


def _find(repository: Repository, name: str, strategy: PartitionStrategy | None) -> Dataset | None:
    """Return the dataset if it exists and is partitioned as asked for."""
    try:
        dataset = repository.open(name)
    except DatasetNotFoundError:
        return None
    if strategy is not None and strategy != dataset.descriptor.partition_by:
        raise InvalidInputError(
            f"Dataset {name!r} exists with another partition strategy.",
            hint="Leave --partition-by and --dimensions out, or import into another dataset.",
        )
    return dataset


def _create(
    output: Output, repository: Repository, name: str, descriptor: DatasetDescriptor
) -> Dataset:
    dataset = repository.create(name, descriptor, "open")
    output.note(f"Created {dataset.uri}")
    return dataset


def _descriptor(inputs: Inputs, strategy: PartitionStrategy | None) -> DatasetDescriptor:
    """Return what a dataset for these files is."""
    partition_by = strategy or PartitionStrategy(())
    if inputs.format == "avro":
        with reading(inputs.locations[0]):
            schema = avro_file_schema(inputs.files[0])
        return DatasetDescriptor(schema=schema, partition_by=partition_by)
    text = Primitive(Kind.STRING)
    sources = dict.fromkeys(one.source for one in partition_by)
    fields = (
        *(Field(name=one, type=text, nullable=False) for one in (UUID, DOCUMENT)),
        *(Field(name=one, type=text) for one in sources if one not in (UUID, DOCUMENT)),
    )
    return DatasetDescriptor(
        schema=Schema(fields=fields), partition_by=partition_by, format="submissions"
    )


def _load(
    output: Output,
    dataset: Dataset,
    inputs: Inputs,
    session: Any,
    run: str | None,
    *,
    is_strict: bool,
) -> None:
    with output.progress("Loading with Spark"), spark_errors(inputs):
        report = dataset.load(
            inputs.locations,
            inputs.format,
            run=run,
            spark=session,
            options=LoadOptions(csv=inputs.csv, fail_on_rejects=is_strict),
        )
    if report.is_repeated:
        output.note(f"Run {report.run!r} was loaded before; nothing was done.")
    output.note(f"Loaded {report.row_count:,} rows of {report.file_count:,} files.")
    if report.rejected_count:
        output.note(
            f"{report.rejected_count:,} lines did not fit. See why with: lakebed query "
            f"{dataset.uri.rpartition('/')[0]}/{report.quarantine} --where \"run = '{report.run}'\""
        )
    _show_report(output, report)
    if is_strict and report.rejected_count:
        raise click.exceptions.Exit(2)  # of a run that was loaded before


def _show_report(output: Output, report: LoadReport) -> None:
    record = {
        **commit_record(report.commit),
        "run": report.run,
        "rejected_count": report.rejected_count,
        "quarantine": report.quarantine if report.rejected_count else None,
        "file_count": report.file_count,
        "size_bytes": report.size_bytes,
        "is_repeated": report.is_repeated,
    }
    facts = {key.replace("_", " "): value for key, value in record.items() if key != "commit_id"}
    output.record(record, facts=facts)

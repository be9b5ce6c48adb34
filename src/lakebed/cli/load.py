"""The verb import: files through Spark."""

from __future__ import annotations

import contextlib
import time

import click

from lakebed.cli.data import run_option, show_commit, takes_files
from lakebed.cli.datasets import read_strategy
from lakebed.cli.inputs import STDIN, Inputs
from lakebed.cli.options import takes_dataset, verb
from lakebed.cli.output import Output
from lakebed.cli.spark_files import read_frame, spark_errors
from lakebed.dataset import Dataset
from lakebed.errors import DatasetNotFoundError, InvalidInputError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.repository import Repository
from lakebed.spark.session import get_session


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
    "--overwrite", "is_overwrite", is_flag=True, help="Replace the partitions that rows touch."
)
@run_option
def import_(
    output: Output,
    *,
    repository: Repository,
    name: str,
    inputs: Inputs,
    partition_by: str | None,
    is_overwrite: bool,
    run: str | None,
) -> None:
    """Load files with Spark.

    One commit holds the rows. A missing dataset is created.

    FILES are CSV with a header, JSON lines or Parquet, or directories of them. A dataset that
    is there says how they are read, and every column must be one of its fields. For one that
    is missing the types are inferred from all rows: times in CSV are found, in UTC; in JSON
    they stay text, so create the dataset first if it has times.
    """
    if STDIN in inputs.paths:
        raise InvalidInputError("Spark reads no standard input.", hint="Use `lakebed append`.")
    dataset = _find(repository, name, partition_by)
    output.note(f"Reading {inputs.label} of {inputs.size_bytes:,} bytes with Spark")
    began = time.monotonic()
    with output.progress("Starting Spark"):
        session = get_session()
    if not output.is_verbose:
        # Spark tells of a bad row in a hundred lines; the error says it in one. A session on
        # Connect has no context here, and its log is elsewhere.
        with contextlib.suppress(AttributeError):
            session.sparkContext.setLogLevel("OFF")
    with output.progress("Reading with Spark"):
        frame = read_frame(session, inputs, None if dataset is None else dataset.descriptor)
    if dataset is None:
        descriptor = DatasetDescriptor(schema=frame, partition_by=read_strategy(partition_by or ""))
        dataset = repository.create(name, descriptor, "open")
        output.note(f"Created {dataset.uri}")
    with output.progress("Writing with Spark"), spark_errors(inputs):
        commit = dataset.overwrite(frame, run=run) if is_overwrite else dataset.append(frame, run)
    output.note(
        f"Wrote {commit.row_count:,} rows in {len(commit.files_added):,} data files, "
        f"{time.monotonic() - began:.1f} s"
    )
    show_commit(output, commit)


def _find(repository: Repository, name: str, partition_by: str | None) -> Dataset | None:
    """Return the dataset if it exists and is partitioned as asked for."""
    try:
        dataset = repository.open(name)
    except DatasetNotFoundError:
        return None
    if partition_by is not None:
        wanted = read_strategy(partition_by)
        if wanted != dataset.descriptor.partition_by:
            raise InvalidInputError(
                f"Dataset {name!r} exists with another partition strategy.",
                hint="Leave --partition-by out, or import into another dataset.",
            )
    return dataset

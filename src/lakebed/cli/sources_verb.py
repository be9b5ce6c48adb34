"""The verb sources, which lists the raw files of a dataset."""

from __future__ import annotations

import click

from lakebed.cli.output import Output
from lakebed.cli.shared_options import takes_state, verb
from lakebed.dataset import Dataset

_COLUMNS = ("location", "id", "batch_id", "run", "row_count", "rejected_count", "is_held")
_HELD_COLUMNS = ("location", "held_at", "reason")


@verb("sources", example="lakebed sources lake/flights --held")
@takes_state
@click.option("--file", help="Only this file: its location, or its id in the archive.")
@click.option(
    "--held",
    "is_held",
    is_flag=True,
    help="Only the files held back from ingests until they are released, including unread ones.",
)
def sources(output: Output, *, dataset: Dataset, file: str | None, is_held: bool) -> None:
    """List the raw files that were ingested, and those held."""
    if is_held:
        output.rows(
            _HELD_COLUMNS,
            (
                {column: getattr(hold, column) for column in _HELD_COLUMNS}
                for hold in dataset.sources.holds()
            ),
        )
        return
    output.rows(
        _COLUMNS,
        (
            {
                "location": source.location,
                "id": source.file_id,
                "batch_id": source.batch_id,
                "run": source.run,
                "row_count": source.row_count,
                "rejected_count": source.rejected_count,
                "is_held": source.is_held,
            }
            for source in dataset.sources.list(file=file)
        ),
    )

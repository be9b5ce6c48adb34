"""Plans whose files have the columns of the footprint, for SQL that names them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TypeVar

from lakebed.model import footprint
from lakebed.plan.plan import DataFile, ScanPlan
from lakebed.state import runs
from lakebed.store.base import Store

AnyPlan = TypeVar("AnyPlan", bound=ScanPlan)


def with_footprint(store: Store, chosen: AnyPlan, wanted: Collection[str]) -> AnyPlan:
    """Return the plan with columns of the footprint, as far as the dataset has none of that name.

    Args:
        store: The store that holds the dataset.
        chosen: A plan.
        wanted: Columns of the footprint.

    Cost:
        The record of the runs, which is few objects, if `run` is among the columns.
    """
    hidden = footprint.hidden_columns(chosen.layout.column_types)
    names = tuple(name for name in hidden if name in wanted)
    known = runs.read(store, chosen.state.lists) if footprint.RUN in names else None

    def traced(file: DataFile) -> DataFile:
        run = None if known is None else known.of(file.label)
        run = ", ".join(runs.merged_runs(run)) or run
        values = footprint.values_of(names, file.label, run)
        return replace(file, run=run, partition={**file.partition, **values})

    layout = replace(chosen.layout, footprint=names)
    return replace(chosen, layout=layout, files=tuple(map(traced, chosen.files)))

"""Write the report of datasets as one HTML page."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.dataset import Dataset
from lakebed.errors import InvalidInputError, LakebedError
from lakebed.store.base import Store
from lakebed.view import View
from lakebed.web.dataset_facts import DatasetFacts, gather
from lakebed.web.first_rows import ShownRows, checked_count, first_rows
from lakebed.web.lake_page import Lake, names_in_detail, render
from lakebed.web.run_facts import gather_runs, newest_runs, runs_by_dataset
from lakebed.work.pipeline_runs import PipelineRun

_log = logging.getLogger(__name__)


def write_report(
    uri: str,
    names: Iterable[str],
    open_dataset: Callable[[str], Dataset],
    path: Path,
    *,
    store: Store,
    is_whole: bool = True,
    view: View | None = None,
    rows: int = 0,
    on_progress: OnProgress = NO_PROGRESS,
) -> Lake:
    """Write the report of some datasets; an existing file is replaced at the end.

    Args:
        uri: Title of the page.
        names: Names of the datasets, or their paths below namespaces.
        open_dataset: Opens a dataset by its name or path.
        path: Path of the HTML file.
        store: The store of the repository.
        is_whole: Whether the names are those of all datasets: then runs of pipelines whose dataset
            is missing are shown, too.
        view: A view whose plan is shown; None for no plan.
        rows: Number of first rows to show of each dataset with a section of its own.
        on_progress: Callback for progress; receives the number of datasets read so far.

    Returns:
        The contents of the page.

    Raises:
        InvalidInputError: The file cannot be written, or the number of rows is not valid.
        PredicateError: The view uses a field that its dataset does not have.
    """
    if rows:
        checked_count(rows)
    chosen = list(names)
    known: list[DatasetFacts] = []
    detailed: set[str] = set()
    failures: list[tuple[str, str]] = []
    recorded = runs_by_dataset(store) if is_whole else {}
    newest: list[PipelineRun] = []
    sizes = dict.fromkeys(chosen, 0)
    tally = Tally(on_progress, f"report on {uri}", sizes, unit="dataset")
    for name in chosen:
        try:
            # A namespace has a log of runs of its own.
            entries = recorded.pop(name, ()) if is_whole and "/" not in name else None
            known.append(replace(gather(open_dataset(name), entries), name=name))
            newest = newest_runs([*newest, *known[-1].runs.runs])
            # In a large lake, only the facts of datasets shown in detail are kept in memory.
            before, detailed = detailed | {known[-1].name}, names_in_detail(known)
            left_out = before - detailed
            if left_out:
                known = [each.in_short() if each.name in left_out else each for each in known]
        except LakebedError as error:
            # The page lists datasets that cannot be read, with the reason.
            _log.warning("dataset is not in the report dataset=%s error=%s", name, error.message)
            failures.append((name, error.message))
        tally.add(name)
    missing = {name: gather_runs(store, entries) for name, entries in recorded.items()}
    newest = newest_runs([*newest, *(run for each in missing.values() for run in each.runs)])
    lake = Lake(
        uri=uri,
        made_at=dt.datetime.now(dt.UTC),
        datasets=known,
        failures=sorted(failures),
        plan=None if view is None else view.plan().explain(),
        rows={each.name: _rows_of(each, rows) for each in known if each.name in detailed and rows},
        runs=newest,
        missing=missing,
    )
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        with unfinished.open("w", encoding="utf-8") as page:
            page.writelines(render(lake))
        unfinished.replace(path)
    except OSError as exc:
        with suppress(OSError):  # deletion may fail for the same reason
            unfinished.unlink(missing_ok=True)
        raise InvalidInputError(
            f"The report cannot be written to {path}: {exc.strerror or exc}.",
            hint="Name a file in a directory that exists and that you may write to.",
        ) from exc
    return lake


def _rows_of(facts: DatasetFacts, row_count: int) -> ShownRows | str:
    """Return the first rows of the version that the facts describe, or why they cannot be read."""
    try:
        dataset = facts.dataset.at(version=facts.version)
        return first_rows(dataset, dataset.schema.names, row_count=row_count)
    except LakebedError as error:
        return error.message

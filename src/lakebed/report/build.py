"""From datasets to a page."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from lakebed.dataset import Dataset
from lakebed.errors import InvalidInputError, LakebedError
from lakebed.model.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.report.facts import DatasetFacts, gather
from lakebed.report.page import Lake, names_in_detail, render
from lakebed.view import View


def write_report(
    uri: str,
    datasets: Iterable[Dataset],
    path: Path,
    *,
    failures: Sequence[tuple[str, str]] = (),
    view: View | None = None,
    on_progress: OnProgress = NO_PROGRESS,
) -> Lake:
    """Write the report of some datasets; a file that is there is replaced at the end.

    Args:
        uri: What the page is called.
        datasets: That it is about.
        path: Of the HTML file.
        failures: Names of other datasets, which cannot be opened, and why.
        view: Whose plan is shown, if one is asked for.
        on_progress: Is told how many datasets have been read.

    Returns:
        What the page tells.

    Raises:
        InvalidInputError: The file cannot be written.
        PredicateError: The view asks for something that its dataset does not have.
    """
    chosen = list(datasets)
    known: list[DatasetFacts] = []
    detailed: set[str] = set()
    unread = list(failures)
    sizes = dict.fromkeys((dataset.name for dataset in chosen), 0)
    tally = Tally(on_progress, f"report on {uri}", sizes, unit="dataset")
    for dataset in chosen:
        try:
            known.append(gather(dataset))
            # Of a lake of many, what is not told in detail is not held.
            before, detailed = detailed | {dataset.name}, names_in_detail(known)
            for place, each in enumerate(known):
                if each.name in before - detailed:
                    known[place] = each.in_short()
        except LakebedError as error:
            # One that cannot be read is told on the page, beside all others.
            unread.append((dataset.name, error.message))
        tally.add(dataset.name)
    lake = Lake(
        uri=uri,
        made_at=dt.datetime.now(dt.UTC),
        datasets=known,
        failures=sorted(unread),
        plan=None if view is None else view.plan().explain(),
    )
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        with unfinished.open("w", encoding="utf-8") as page:
            page.writelines(render(lake))
        unfinished.replace(path)
    except OSError as exc:
        with suppress(OSError):  # perhaps what keeps it from being written keeps it from going
            unfinished.unlink(missing_ok=True)
        raise InvalidInputError(
            f"The report cannot be written to {path}: {exc.strerror or exc}.",
            hint="Name a file in a directory that exists and that you may write to.",
        ) from exc
    return lake

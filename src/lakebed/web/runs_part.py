"""The table of recorded runs: what ran, when, how long, what it did, and what it left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakebed.common.shown import counted
from lakebed.web.markup import (
    Markup,
    data_head,
    data_table,
    element,
    folded,
    joined,
    row_head,
    whole_text,
)
from lakebed.web.run_facts import facts_of, left_out_of
from lakebed.work.pipeline_runs import PipelineRun

MAX_LEFT_OUT = 10  # raw files of a run
MAX_VERSIONS = 10  # of a run

RunOrder = Callable[[PipelineRun], Any]
ORDERS: Mapping[str, RunOrder] = {
    "began": lambda run: run.began_at,
    "pipeline": lambda run: run.pipeline,
    "dataset": lambda run: run.dataset,
    "state": lambda run: run.state,
    "seconds": lambda run: run.duration_s,
    "rows": lambda run: _count(run, "row_count"),
    "left out": lambda run: _left_out_count(run),
}
"""The columns that runs can be sorted by."""
_TEXTS = frozenset({"pipeline", "dataset", "state"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLinks:
    """Addresses that a table of runs leads to; all are left out in a file.

    Attributes:
        dataset: Returns the address of a dataset's page, by name.
        version: Returns the address of a version's page, by name of the dataset and version.
        sort: Returns the address of the same table in another order, by column and direction.
    """

    dataset: Callable[[str], str | None] = lambda _: None
    version: Callable[[str, int], str | None] = lambda _, __: None
    sort: Callable[[str, str], str] | None = None


def sorted_runs(runs: Sequence[PipelineRun], sort: str, order: str) -> list[PipelineRun]:
    """Return runs in an order.

    Args:
        runs: The runs, newest first, which is the order among equal ones.
        sort: A column of `ORDERS`.
        order: `desc` for the greatest first.
    """
    return sorted(runs, key=ORDERS[sort], reverse=order == "desc")


def runs_table(
    caption: str,
    runs: Sequence[PipelineRun],
    *,
    has_dataset: bool,
    links: RunLinks | None = None,
    sort: str = "began",
    order: str = "desc",
) -> Markup:
    """Return a table of runs; the steps of each can be opened.

    Args:
        caption: Caption of the table.
        runs: The runs, in the order to show.
        has_dataset: Whether to show the dataset of each run.
        links: Addresses that the table leads to.
        sort: The column that the runs are sorted by.
        order: `desc` if the greatest is first.
    """
    links = links or RunLinks()
    names = [
        *("began", "pipeline"),
        *(["dataset"] if has_dataset else []),
        *("state", "seconds", "did", "rows", "left out", "versions"),
    ]

    def head(name: str) -> Markup:
        is_sorted = name == sort and links.sort is not None
        text: str = name
        if links.sort is not None and name in ORDERS:
            sign = "" if not is_sorted else " ↓" if order == "desc" else " ↑"
            first = "asc" if name in _TEXTS else "desc"
            turned = first if not is_sorted else "asc" if order == "desc" else "desc"
            text = element("a", name + sign, href=links.sort(name, turned), rel="nofollow")
        direction = "descending" if order == "desc" else "ascending"
        is_number = name in ("seconds", "rows")
        return data_head(text, is_number=is_number, sorted_=direction if is_sorted else None)

    return data_table(
        caption,
        list(map(head, names)),
        [_row(run, links, has_dataset=has_dataset) for run in runs],
    )


def _row(run: PipelineRun, links: RunLinks, *, has_dataset: bool) -> Sequence[Markup]:
    is_wrong = run.state != "ok"
    address = links.dataset(run.dataset)
    dataset = run.dataset if address is None else element("a", run.dataset, href=address)
    rows = facts_of(run, "ingest").get("row_count")
    return [
        row_head(f"{run.began_at:%Y-%m-%d %H:%M:%S}"),
        element("td", run.pipeline or "-"),
        *([element("td", dataset)] if has_dataset else []),
        element("td", run.state, class_="warn" if is_wrong else None),
        element("td", "-" if run.ended_at is None else f"{run.duration_s:,.1f}", class_="number"),
        element("td", _deeds(run), *([_steps(run)] if run.steps else [])),
        element("td", f"{rows:,}" if isinstance(rows, int) else "-", class_="number"),
        element("td", _left_out(run) or "-"),
        element("td", _versions(run, links)),
    ]


def _deeds(run: PipelineRun) -> str:
    """Return what the steps of a run did, without those that found nothing to do."""
    if run.state in ("unfinished", "unreadable"):
        return run.summary
    done = [step for step in run.steps if step["status"] != "nothing"]
    return "; ".join(
        f"{step['step']}: {step['summary']}"
        if step["status"] == "done"
        else f"{step['step']} {step['status']}: {step['summary']}"
        for step in done
    ) or ("nothing to do" if run.steps else "-")


_LEFT_OUT = {"kept_back_count": "kept back", "rejected_count": "rejected", "held_count": "held"}


def _count(run: PipelineRun, name: str) -> int:
    count = facts_of(run, "ingest").get(name)
    return count if isinstance(count, int) else 0


def _left_out_count(run: PipelineRun) -> int:
    return sum(_count(run, name) for name in _LEFT_OUT)


def _left_out(run: PipelineRun) -> str:
    counts = {word: _count(run, name) for name, word in _LEFT_OUT.items()}
    return ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)


def _versions(run: PipelineRun, links: RunLinks) -> Markup:
    if not run.versions:
        return joined(["-"])
    left_out = len(run.versions) - MAX_VERSIONS
    parts: list[str] = [f"{counted(left_out, 'other')}, "] if left_out > 0 else []
    for version in run.versions[-MAX_VERSIONS:]:
        address = links.version(run.dataset, version)
        text = str(version)
        parts += [text if address is None else element("a", text, href=address), ", "]
    return joined(parts[:-1])


def _steps(run: PipelineRun) -> Markup:
    declared = f", declared in {run.file}" if run.file else ""
    return folded(
        counted(len(run.steps), "step"),
        element(
            "ul",
            *(element("li", *_step(step)) for step in run.steps),
            *(_file(one) for one in left_out_of(run)[:MAX_LEFT_OUT]),
            *_more_files(run),
            element("li", f"run by {run.by or 'an unknown user'}", declared, f", id {run.run_id}"),
        ),
    )


def _step(step: Mapping[str, Any]) -> Iterator[str]:
    again = f", {step['attempts']} attempts" if step["attempts"] > 1 else ""
    yield f"{step['step']} {step['status']} in {step['duration_s']:.1f} s{again}"
    error = step["error"]
    texts = [step["summary"]] if error is None else [error["message"], error["hint"]]
    if any(texts):
        yield ": "
        yield whole_text(" ".join(texts))


def _file(one: Mapping[str, Any]) -> Markup:
    detail = one.get("detail") or ""
    return element(
        "li",
        "left out: ",
        whole_text(str(one.get("location"))),
        f" ({one.get('why')}) ",
        whole_text(str(detail)),
    )


def _more_files(run: PipelineRun) -> Iterator[Markup]:
    more = len(left_out_of(run)) - MAX_LEFT_OUT
    if more > 0:
        yield element("li", f"left out: {counted(more, 'more file')}, see lakebed runs -o json")

"""The recorded runs of a dataset's pipelines, and what a person should mend about them."""

from __future__ import annotations

import datetime as dt
import itertools
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from lakebed.model.locations import shell_address
from lakebed.store.base import Store
from lakebed.web.findings import Advice, lasting
from lakebed.work.pipeline_runs import (
    PipelineRun,
    RunEntry,
    last_success,
    list_entries,
    read_entries,
    unreadable_run,
)

SHOWN_RUNS = 20
_USUAL_OF = 20  # intervals of which the median is the usual one
_FEWEST = 3  # intervals that suffice for that
_USUAL_TIMES = 1.5  # the usual interval, and some time for delays, until a run is late
_SPARE = dt.timedelta(minutes=30)
_LOOKED_AT = 10  # runs among which few may have been killed
_KILLED = 3
_AT_WORK = dt.timedelta(hours=1)  # a run may take, and four times as long as usual


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The runs of a dataset's pipelines.

    Attributes:
        runs: The newest runs, newest first.
        run_count: Number of runs in the log.
        findings: Findings that may need attention.
    """

    runs: Sequence[PipelineRun] = ()
    run_count: int = 0
    findings: Sequence[Advice] = field(default=())

    @property
    def quarantines(self) -> frozenset[str]:
        """The names of the quarantines that the runs have filled."""
        named = (facts_of(run, "ingest").get("quarantine") for run in self.runs)
        return frozenset(name for name in named if isinstance(name, str))


def facts_of(run: PipelineRun, step: str) -> Mapping[str, Any]:
    """Return the facts of a step of a run; empty if it was not run."""
    found: Mapping[str, Any] = next((one["facts"] for one in run.steps if one["step"] == step), {})
    return found


def runs_by_dataset(store: Store, dataset: str | None = None) -> dict[str, Sequence[RunEntry]]:
    """Return the recorded runs of each dataset, or of one, newest first.

    Cost:
        One LIST for each 1,000 objects of the log.
    """
    found: dict[str, list[RunEntry]] = {}
    for entry in list_entries(store, dataset):
        found.setdefault(entry.dataset, []).append(entry)
    return dict(found)


def newest_runs(runs: Iterable[PipelineRun]) -> list[PipelineRun]:
    """Return the newest of some runs, newest first."""
    return sorted(runs, key=lambda run: run.began_at, reverse=True)[:SHOWN_RUNS]


def gather_runs(store: Store, entries: Sequence[RunEntry]) -> RunFacts:
    """Return the runs of a dataset.

    Args:
        store: The store of the repository.
        entries: The recorded runs of the dataset, newest first.

    Cost:
        One GET for each of the newest runs, eight at a time, and up to two for each pipeline.
    """
    if not entries:
        return RunFacts()
    now = dt.datetime.now(dt.UTC)
    by_pipeline: dict[str, list[RunEntry]] = {}
    for entry in entries:
        by_pipeline.setdefault(entry.folder, []).append(entry)
    shown = read_entries(store, entries[:SHOWN_RUNS])
    findings = [
        finding
        for of_pipeline in by_pipeline.values()
        for finding in _Standing.read(store, of_pipeline, shown, now).findings()
    ]
    return RunFacts(runs=shown, run_count=len(entries), findings=findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """The standing of a pipeline.

    Attributes:
        lake: URI of the repository.
        entries: Its runs, newest first.
        newest: The newest run.
        ended: The newest run that has ended; None for none.
        success: The newest run without a failed step; None for none.
        now: Current time.
    """

    lake: str
    entries: Sequence[RunEntry]
    newest: PipelineRun
    ended: PipelineRun | None
    success: PipelineRun | None
    now: dt.datetime

    @classmethod
    def read(
        cls,
        store: Store,
        entries: Sequence[RunEntry],
        shown: Sequence[PipelineRun],
        now: dt.datetime,
    ) -> _Standing:
        """Read the runs that matter; those that are `shown` are not read again."""
        known = {(run.dataset, run.began_at, run.run_id): run for run in shown}

        def run_of(entry: RunEntry) -> PipelineRun | None:
            key = (entry.dataset, entry.began_at, entry.run_id)
            if key in known:
                return known[key]
            return next(iter(read_entries(store, [entry])), None)

        newest = run_of(entries[0])
        if newest is None:
            newest = unreadable_run(entries[0], "its entry was deleted meanwhile")
        first_ended = next((entry for entry in entries if entry.state != "unfinished"), None)
        ended = None if first_ended is None else run_of(first_ended)
        if ended is not None and ended.state == "ok":
            success: PipelineRun | None = ended
        else:
            success = last_success(store, entries)
        return cls(
            lake=store.uri, entries=entries, newest=newest, ended=ended, success=success, now=now
        )

    @property
    def name(self) -> str:
        """The name of the pipeline; that of its folder if no entry can be read."""
        return self.newest.pipeline or self.entries[0].folder.rpartition("run=")[2]

    @property
    def command(self) -> str:
        """The command that runs the pipeline again, or that lists its runs."""
        if self.newest.file:
            return f"lakebed run {shlex.quote(self.newest.file)}"
        return f"lakebed runs {shell_address(self.lake)}"

    def findings(self) -> Iterator[Advice]:
        """Yield what a person should mend."""
        yield from self._of_last_end()
        yield from self._of_age()
        yield from self._of_unfinished()
        if self.newest.state == "unreadable":
            yield self._finding(
                f"the newest entry of the log cannot be read: {self.newest.problem}",
                "It is unknown whether the run succeeded.",
            )

    def _finding(self, text: str, why: str) -> Advice:
        text = f"Pipeline {self.name}: {text}"
        return Advice(
            kind="run",
            text=text if text.endswith(".") else f"{text}.",
            why=why,
            command=self.command,
        )

    def _of_last_end(self) -> Iterator[Advice]:
        run = self.ended
        if run is None:
            return
        at = f"{run.began_at:%Y-%m-%d %H:%M}"
        if run.state == "failed":
            failed = [step for step in run.steps if step["error"] is not None]
            steps = ", ".join(step["step"] for step in failed)
            message = failed[0]["error"]["message"] if failed else ""
            yield self._finding(
                f"the last run, of {at}, failed in {steps or 'a step'}: {message}",
                "New rows, deletions or tables wait until it succeeds.",
            )
            return
        left_out = [one for one in left_out_of(run) if one.get("is_kept_back")]
        count = facts_of(run, "ingest").get("kept_back_count")
        if isinstance(count, int) and count:
            such_as = ""
            if left_out:
                such_as = f", such as {left_out[0].get('location')}: {left_out[0].get('why')}"
            yield self._finding(
                f"the last run, of {at}, kept {count:,} raw files back{such_as}"
                if count > 1
                else f"the last run, of {at}, kept a raw file back{such_as.replace(', such as', ',')}",
                "Their rows are missing in the dataset.",
            )

    def _of_age(self) -> Iterator[Advice]:
        limit, reason = self._limit()
        if self.success is None:
            if self.ended is not None:
                yield self._finding(
                    "no run in the log has succeeded", "The dataset does not get new rows."
                )
            return
        age = self.now - (self.success.ended_at or self.success.began_at)
        if limit is not None and age > limit:
            yield self._finding(
                f"the last successful run ended {lasting(age)} ago, and the limit is "
                f"{lasting(limit)}, {reason}",
                "The dataset is older than its readers expect.",
            )

    def _limit(self) -> tuple[dt.timedelta | None, str]:
        """Return the age from which on a run is late, and the reason; None if it is unknown."""
        declared = self.newest.max_age_s
        if declared is not None:
            return dt.timedelta(seconds=declared), "as its max_age declares"
        begins = [entry.began_at for entry in self.entries[: _USUAL_OF + 1]]
        intervals = [
            (later - earlier).total_seconds() for later, earlier in itertools.pairwise(begins)
        ]
        if len(intervals) < _FEWEST:
            return None, ""
        usual = dt.timedelta(seconds=median(intervals))
        return usual * _USUAL_TIMES + _SPARE, f"as it usually runs every {lasting(usual)}"

    def _of_unfinished(self) -> Iterator[Advice]:
        newest, older = self.entries[0], self.entries[1:]
        took = 0.0 if self.success is None else self.success.duration_s
        at_work = max(_AT_WORK, dt.timedelta(seconds=4 * took))
        age = self.now - newest.began_at
        if newest.state == "unfinished" and age > at_work:
            yield self._finding(
                f"the run that began {lasting(age)} ago has not ended",
                "It was killed, or it hangs. Each run goes on from where the last one was.",
            )
        looked_at = older[:_LOOKED_AT]
        killed = sum(entry.state == "unfinished" for entry in looked_at)
        if killed >= _KILLED:
            yield self._finding(
                f"{killed} of {len(looked_at)} runs before the newest have not ended",
                "They were killed: look at the limits of memory and time of the scheduler.",
            )


def left_out_of(run: PipelineRun) -> list[Mapping[str, Any]]:
    """Return the raw files that the ingest of a run has left out."""
    found = facts_of(run, "ingest").get("left_out")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

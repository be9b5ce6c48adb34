"""The log of the runs of a pipeline: each writes two small objects into the repository.

`lakebed.work.pipeline_runs` describes them, and reads them. Each run deletes the oldest entries of
its pipeline, so the log is bounded.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from lakebed.commit import Commit
from lakebed.common.plain import to_plain
from lakebed.errors import LakebedError, redacted
from lakebed.pipeline.ingest_report import IngestReport
from lakebed.pipeline.pipeline_report import PipelineReport
from lakebed.pipeline.table_report import TableIngestReport
from lakebed.store.base import Store
from lakebed.upkeep.step_report import StepReport
from lakebed.work.cleanup import CleanupReport
from lakebed.work.compaction import CompactionReport
from lakebed.work.pipeline_runs import (
    STAMP,
    ErrorDocument,
    PipelineRun,
    RunDocument,
    StepDocument,
    folder_of,
    last_success,
    list_entries,
    read_runs,
)
from lakebed.work.protection import caller

_log = logging.getLogger(__name__)

KEPT_RUNS = 500  # of each pipeline
_MAX_LISTED = 100  # items of a list in the facts of a step


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """The log of one pipeline.

    Attributes:
        store: The store of the repository.
        dataset: Name of the dataset.
        pipeline: Name of the pipeline.
        file: Path of the TOML file that declares it; empty for none.
        max_age_s: Declared limit for the age of the last successful run; None for none.
    """

    store: Store
    dataset: str
    pipeline: str
    file: str = ""
    max_age_s: float | None = None

    @property
    def folder(self) -> str:
        """Key of the folder of its entries."""
        return folder_of(self.dataset, self.pipeline)

    def begin(self, run_id: str, began_at: dt.datetime) -> None:
        """Record that a run has begun; a failure is logged as a warning."""
        self._write(began_at, run_id, "begun", self._document(run_id, began_at))

    def end(self, report: PipelineReport) -> None:
        """Record the end of a run, and delete the oldest entries; a failure is a warning."""
        document = msgspec.structs.replace(
            self._document(report.run_id, report.began_at),
            ended_at=report.began_at + dt.timedelta(seconds=report.duration_s),
            duration_s=report.duration_s,
            exit_code=report.exit_code,
            steps=tuple(map(_document_of, report.steps)),
        )
        state = "ok" if report.is_ok else "failed"
        self._write(report.began_at, report.run_id, state, document)
        try:
            self._prune()
        except LakebedError as exc:
            _log.warning("run log not pruned folder=%s: %s", self.folder, exc)

    def _document(self, run_id: str, began_at: dt.datetime) -> RunDocument:
        return RunDocument(
            pipeline=self.pipeline,
            dataset=self.dataset,
            run_id=run_id,
            began_at=began_at,
            by=caller(),
            file=self.file,
            max_age_s=self.max_age_s,
        )

    def _write(self, began_at: dt.datetime, run_id: str, state: str, document: RunDocument) -> None:
        key = f"{self.folder}/{began_at:{STAMP}}-{run_id}.{state}.json"
        try:
            self.store.put(key, msgspec.json.encode(document))
        except LakebedError as exc:
            _log.warning("run not logged key=%s: %s", key, exc)

    def _prune(self) -> None:
        """Delete all but the newest runs; the newest that has succeeded stays."""
        entries = list_entries(self.store, self.dataset, self.pipeline)
        last_ok = next((entry.name for entry in entries if "ok" in entry.objects), "")
        old = (entry for entry in entries[KEPT_RUNS:] if entry.name != last_ok)
        doomed = [info.key for entry in old for info in entry.objects.values()]
        if doomed:
            self.store.delete(doomed)

    def last_success(self) -> PipelineRun | None:
        """Return the newest run without a failed step; None if the log has none.

        Cost:
            One LIST for each 1,000 entries, and one GET.
        """
        return last_success(self.store, list_entries(self.store, self.dataset, self.pipeline))

    def last(self) -> PipelineRun | None:
        """Return the newest run; None if the log has none."""
        return next(iter(read_runs(self.store, self.dataset, self.pipeline, limit=1)), None)


def _document_of(step: StepReport) -> StepDocument:
    error = step.error
    return StepDocument(
        step=step.step,
        status=step.status,
        summary=_cut(step.summary),
        attempts=step.attempts,
        duration_s=round(step.duration_s, 3),
        facts={str(key): _bounded(to_plain(value)) for key, value in step.facts.items()},
        error=None
        if error is None
        else ErrorDocument(str(error.code), _cut(error.message), _cut(error.hint)),
        versions=tuple(dict.fromkeys(_versions_in(step.result))),
    )


def _versions_in(result: object) -> Iterator[int]:
    """Yield the versions of the dataset that a step made, from the result of its verb."""
    match result:
        case Commit():
            yield result.version
        case IngestReport():
            yield from _versions_in(result.commit)
        case TableIngestReport():
            yield from _versions_in(result.commits)
        case CompactionReport():
            yield from _versions_in(result.commits)
        case CleanupReport():
            if result.version is not None:
                yield result.version
        case (CleanupReport(), *_):
            yield from _versions_in(result[0])  # the others are of the quarantine
        case tuple():
            for one in result:
                if isinstance(one, Commit):
                    yield one.version


def _bounded(value: object) -> object:
    """Return a value for the log: long texts and lists are cut."""
    match value:
        case str():
            return _cut(value)
        case list():
            return [_bounded(item) for item in _first(value)]
        case dict():
            return {key: _bounded(item) for key, item in value.items()}
    return value


def _first(items: Sequence[object]) -> Sequence[object]:
    if len(items) <= _MAX_LISTED:
        return items
    return [*items[:_MAX_LISTED], f"… {len(items) - _MAX_LISTED:,} more"]


def _cut(text: str, length: int = 2_000) -> str:
    return redacted(text if len(text) <= length else f"{text[: length - 1]}…")

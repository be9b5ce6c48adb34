"""The log of the runs of pipelines, in the repository: small immutable objects.

    _lakebed.runs/flights/run=daily/20260115T020000123456Z-9f3c….begun.json
    _lakebed.runs/flights/run=daily/20260115T020000123456Z-9f3c….ok.json      or .failed.json

The first is written when a run begins, the second when it ends: a run without an end is at work,
or was killed. The folder has a dot in its name, so that no dataset can have the name, and begins
with `_`, so that Spark and Hive hide it; neither the list of datasets nor a cleanup looks there.
Each run deletes the oldest entries of its pipeline, so the log is bounded. Everything that is read is
checked, and an entry that cannot be read is reported as such.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec

from lakebed.common.items import Items
from lakebed.common.plain import to_plain
from lakebed.errors import LakebedError, redacted
from lakebed.model.keys import encode_path
from lakebed.model.names import is_dataset_name
from lakebed.pipeline.pipeline_report import PipelineReport
from lakebed.store.at_once import at_once
from lakebed.store.base import ObjectInfo, Store
from lakebed.work.protection import caller

_log = logging.getLogger(__name__)

FOLDER = "_lakebed.runs"
KEPT_RUNS = 500  # of each pipeline
MAX_ENTRY_BYTES = 2**20
_MAX_LISTED = 100  # items of a list in the facts of a step
_THREADS = 8
_NAME = re.compile(r"(\d{8}T\d{12}Z)-([0-9a-f]{8,32})\.(begun|ok|failed)\.json")
_STAMP = "%Y%m%dT%H%M%S%fZ"

RunState = Literal["ok", "failed", "unfinished", "unreadable"]

_Short = Annotated[str, msgspec.Meta(max_length=1_000)]
_Long = Annotated[str, msgspec.Meta(max_length=20_000)]
_Moment = Annotated[dt.datetime, msgspec.Meta(tz=True)]
_Duration = Annotated[float, msgspec.Meta(ge=0, le=10**9)]


class _ErrorDocument(msgspec.Struct, frozen=True):
    code: _Short
    message: _Long
    hint: _Long = ""


class _StepDocument(msgspec.Struct, frozen=True):
    step: _Short
    status: _Short
    summary: _Long = ""
    attempts: Annotated[int, msgspec.Meta(ge=0, le=10**6)] = 1
    duration_s: _Duration = 0.0
    facts: dict[_Short, Any] = {}
    error: _ErrorDocument | None = None


class _RunDocument(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal[1] = 1
    pipeline: _Short
    dataset: _Short
    run_id: _Short
    began_at: _Moment
    ended_at: _Moment | None = None
    duration_s: _Duration = 0.0
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    by: _Short = ""
    steps: Annotated[tuple[_StepDocument, ...], msgspec.Meta(max_length=100)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """A run of a pipeline, as the log records it.

    Attributes:
        pipeline: Name of the pipeline; empty if the entry cannot be read.
        dataset: Name of the dataset.
        run_id: Id of the run.
        began_at: Start time, by the clock of the machine that ran it; aware, UTC.
        state: `ok`, also if a file was kept back; `failed`; `unfinished` if it is at work or was
            killed; `unreadable` if its entry is damaged.
        ended_at: End time; None if it has not ended.
        duration_s: Duration in seconds.
        exit_code: Exit code of `lakebed run`; None if it has not ended.
        by: User and host that ran it.
        steps: A record for each step, as `StepReport.to_record` returns it.
        problem: Reason why the entry cannot be read.

    >>> began_at = dt.datetime(2026, 1, 15, 2, tzinfo=dt.UTC)
    >>> PipelineRun(
    ...     pipeline="daily", dataset="flights", run_id="9f", began_at=began_at, state="unfinished"
    ... ).summary
    'has not ended: it is at work, or was killed'
    """

    pipeline: str
    dataset: str
    run_id: str
    began_at: dt.datetime
    state: RunState
    ended_at: dt.datetime | None = None
    duration_s: float = 0.0
    exit_code: int | None = None
    by: str = ""
    steps: tuple[Mapping[str, object], ...] = field(default=())
    problem: str = ""

    def __repr__(self) -> str:
        return (
            f"<PipelineRun of {self.pipeline!r} at {self.began_at:%Y-%m-%d %H:%M:%S}: {self.state}>"
        )

    @property
    def summary(self) -> str:
        """The outcome of the steps, in words."""
        if self.state == "unreadable":
            return self.problem
        if self.state == "unfinished":
            return "has not ended: it is at work, or was killed"
        words = (f"{one['step']} {one['status']}" for one in self.steps)
        return ", ".join(words)

    def to_record(self) -> dict[str, object]:
        """Return the run as a record with stable keys."""
        return {
            "began_at": self.began_at,
            "pipeline": self.pipeline,
            "dataset": self.dataset,
            "state": self.state,
            "exit_code": self.exit_code,
            "duration_s": round(self.duration_s, 3),
            "summary": self.summary,
            "ended_at": self.ended_at,
            "by": self.by,
            "run_id": self.run_id,
            "steps": list(self.steps),
        }

    def _row_(self) -> dict[str, object]:
        names = ("began_at", "pipeline", "dataset", "state", "duration_s", "summary")
        return {name: value for name, value in self.to_record().items() if name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """The log of one pipeline.

    Attributes:
        store: The store of the repository.
        dataset: Name of the dataset.
        pipeline: Name of the pipeline.
    """

    store: Store
    dataset: str
    pipeline: str

    @property
    def folder(self) -> str:
        """Key of the folder of its entries."""
        return f"{FOLDER}/{self.dataset}/{encode_path({'run': self.pipeline})}"

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
            steps=tuple(_step_of(record) for record in report.to_records()),
        )
        state = "ok" if report.is_ok else "failed"
        self._write(report.began_at, report.run_id, state, document)
        try:
            self._prune()
        except LakebedError as exc:
            _log.warning("run log not pruned folder=%s: %s", self.folder, exc)

    def _document(self, run_id: str, began_at: dt.datetime) -> _RunDocument:
        return _RunDocument(
            pipeline=self.pipeline,
            dataset=self.dataset,
            run_id=run_id,
            began_at=began_at,
            by=caller(),
        )

    def _write(
        self, began_at: dt.datetime, run_id: str, state: str, document: _RunDocument
    ) -> None:
        key = f"{self.folder}/{began_at:{_STAMP}}-{run_id}.{state}.json"
        try:
            self.store.put(key, msgspec.json.encode(document))
        except LakebedError as exc:
            _log.warning("run not logged key=%s: %s", key, exc)

    def _prune(self) -> None:
        """Delete all but the newest runs; the newest that has succeeded stays."""
        groups = _by_run(self.store.list(f"{self.folder}/", recursive=False))
        old = sorted(groups, reverse=True)[KEPT_RUNS:]
        last_ok = max((run for run in groups if "ok" in groups[run]), default="")
        doomed = [info.key for run in old if run != last_ok for info in groups[run].values()]
        if doomed:
            self.store.delete(doomed)

    def last_success(self) -> PipelineRun | None:
        """Return the newest run without a failed step; None if the log has none.

        Cost:
            One LIST for each 1,000 entries, and one GET.
        """
        groups = _by_run(self.store.list(f"{self.folder}/", recursive=False))
        for run in sorted((run for run in groups if "ok" in groups[run]), reverse=True):
            found = _read(self.store, self.dataset, groups[run])
            if found is not None and found.state == "ok":
                return found
        return None

    def last(self) -> PipelineRun | None:
        """Return the newest run; None if the log has none."""
        return next(iter(read_runs(self.store, self.dataset, self.pipeline, limit=1)), None)


def read_runs(
    store: Store, dataset: str | None = None, pipeline: str | None = None, *, limit: int = 20
) -> Items[PipelineRun]:
    """Return the last runs of the pipelines of a repository, newest first.

    Args:
        store: The store of the repository.
        dataset: Only runs for this dataset.
        pipeline: Only runs of this pipeline.
        limit: Maximal number of runs.

    Cost:
        One LIST for each 1,000 entries, and one GET a run, eight at a time.
    """
    folder = FOLDER if dataset is None else f"{FOLDER}/{dataset}"
    groups: dict[tuple[str, str, str], dict[str, ObjectInfo]] = {}
    wanted = None if pipeline is None else encode_path({"run": pipeline})
    if dataset is not None and wanted is not None:
        folder = f"{folder}/{wanted}"
    for info in store.list(f"{folder}/"):
        of_dataset, of_pipeline = _place_of(info.key)
        if not is_dataset_name(of_dataset) or wanted not in (None, of_pipeline):
            continue
        for run, states in _by_run([info]).items():
            groups.setdefault((run, of_dataset, of_pipeline), {}).update(states)
    newest = sorted(groups, reverse=True)[:limit]
    read = at_once(lambda key: _read(store, key[1], groups[key]), newest, _THREADS)
    return Items(run for run in read if run is not None)


def _place_of(key: str) -> tuple[str, str]:
    """Return the dataset and the folder of the pipeline of an entry; empty texts if it has none."""
    parts = key.split("/")
    return (parts[1], parts[2]) if len(parts) == 4 else ("", "")


def _by_run(infos: Iterable[ObjectInfo]) -> dict[str, dict[str, ObjectInfo]]:
    """Return the objects of each run by their state; other objects are ignored."""
    groups: dict[str, dict[str, ObjectInfo]] = {}
    for info in infos:
        match = _NAME.fullmatch(info.key.rpartition("/")[2])
        if match is not None:
            groups.setdefault(f"{match[1]}-{match[2]}", {})[match[3]] = info
    return groups


def _read(store: Store, dataset: str, states: Mapping[str, ObjectInfo]) -> PipelineRun | None:
    """Return a run; None if its entry was deleted meanwhile."""
    state = next(one for one in ("failed", "ok", "begun") if one in states)
    info = states[state]
    try:
        if info.size_bytes > MAX_ENTRY_BYTES:
            return _unreadable(dataset, info, f"its entry has {info.size_bytes:,} bytes")
        document = msgspec.json.decode(store.get(info.key).data, type=_RunDocument)
    except LookupError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        return _unreadable(dataset, info, f"its entry cannot be read: {exc}")
    if document.dataset != dataset or (state != "begun") != (document.ended_at is not None):
        return _unreadable(dataset, info, "its entry belongs to another run")
    return PipelineRun(
        pipeline=document.pipeline,
        dataset=document.dataset,
        run_id=document.run_id,
        began_at=document.began_at.astimezone(dt.UTC),
        state="unfinished" if state == "begun" else "ok" if state == "ok" else "failed",
        ended_at=None if document.ended_at is None else document.ended_at.astimezone(dt.UTC),
        duration_s=document.duration_s,
        exit_code=document.exit_code,
        by=document.by,
        steps=tuple(msgspec.to_builtins(step) for step in document.steps),
    )


def _unreadable(dataset: str, info: ObjectInfo, problem: str) -> PipelineRun:
    name = info.key.rpartition("/")[2]
    match = _NAME.fullmatch(name)
    assert match is not None
    try:
        began_at = dt.datetime.strptime(match[1], _STAMP).replace(tzinfo=dt.UTC)
    except ValueError:  # no date has these digits
        began_at = info.modified_at
    return PipelineRun(
        pipeline="",
        dataset=dataset,
        run_id=match[2],
        began_at=began_at,
        state="unreadable",
        problem=problem,
    )


def _step_of(record: Mapping[str, Any]) -> _StepDocument:
    error = record["error"]
    return _StepDocument(
        step=record["step"],
        status=record["status"],
        summary=_cut(record["summary"]),
        attempts=record["attempts"],
        duration_s=record["duration_s"],
        facts={str(key): _bounded(to_plain(value)) for key, value in record["facts"].items()},
        error=None
        if error is None
        else _ErrorDocument(error["code"], _cut(error["message"]), _cut(error["hint"])),
    )


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

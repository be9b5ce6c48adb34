"""The recorded runs of pipelines, as they are read from the repository.

    _lakebed.runs/flights/run=daily/20260115T020000123456Z-9f3c….begun.json
    _lakebed.runs/flights/run=daily/20260115T020000123456Z-9f3c….ok.json      or .failed.json

The first is written when a run begins, the second when it ends: a run without an end is at work,
or was killed. The folder has a dot in its name, so that no dataset can have the name, and begins
with `_`, so that Spark and Hive hide it; neither the list of datasets nor a cleanup looks there.
The names have the time when a run began and how it ended. Everything that is read is checked, and an entry
that cannot be read is reported as such. `lakebed.pipeline.run_log` writes the entries.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec

from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.common.items import Items
from lakebed.model.keys import encode_path
from lakebed.model.names import is_dataset_name
from lakebed.store.at_once import at_once
from lakebed.store.base import ObjectInfo, Store

FOLDER = "_lakebed.runs"
MAX_ENTRY_BYTES = 2**20
STAMP = "%Y%m%dT%H%M%S%fZ"
_THREADS = 8
_NAME = re.compile(r"(\d{8}T\d{12}Z)-([0-9a-f]{8,32})\.(begun|ok|failed)\.json")

RunState = Literal["ok", "failed", "unfinished", "unreadable"]

_Short = Annotated[str, msgspec.Meta(max_length=1_000)]
_Long = Annotated[str, msgspec.Meta(max_length=20_000)]
_Moment = Annotated[dt.datetime, msgspec.Meta(tz=True)]
_Duration = Annotated[float, msgspec.Meta(ge=0, le=10**9)]
_Version = Annotated[int, msgspec.Meta(ge=0)]


class ErrorDocument(msgspec.Struct, frozen=True):
    """The stored form of the error of a step."""

    code: _Short
    message: _Long
    hint: _Long = ""


class StepDocument(msgspec.Struct, frozen=True):
    """The stored form of a step; `versions` are those that it made of the dataset."""

    step: _Short
    status: _Short
    summary: _Long = ""
    attempts: Annotated[int, msgspec.Meta(ge=0, le=10**6)] = 1
    duration_s: _Duration = 0.0
    facts: dict[_Short, Any] = {}
    error: ErrorDocument | None = None
    versions: Annotated[tuple[_Version, ...], msgspec.Meta(max_length=10_000)] = ()


class RunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The stored form of a run."""

    format: Literal[1] = 1
    pipeline: _Short
    dataset: _Short
    run_id: _Short
    began_at: _Moment
    ended_at: _Moment | None = None
    duration_s: _Duration = 0.0
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    by: _Short = ""
    file: _Long = ""
    max_age_s: _Duration | None = None
    steps: Annotated[tuple[StepDocument, ...], msgspec.Meta(max_length=100)] = ()


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
        file: Path of the TOML file that declares the pipeline, on that host; empty if it was built
            in Python.
        max_age_s: Declared limit in seconds, beyond which the last successful run is too old; None
            if none is declared.
        steps: A record for each step, as `StepReport.to_record` returns it, and the versions that
            the step made.
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
    file: str = ""
    max_age_s: float | None = None
    steps: tuple[Mapping[str, Any], ...] = field(default=())
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

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions of the dataset that the run made, as far as they are recorded."""
        return tuple(dict.fromkeys(version for step in self.steps for version in step["versions"]))

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
            "versions": list(self.versions),
            "steps": list(self.steps),
        }

    def _row_(self) -> dict[str, object]:
        names = ("began_at", "pipeline", "dataset", "state", "duration_s", "summary")
        return {name: value for name, value in self.to_record().items() if name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """The objects of one run, as a listing shows them.

    Attributes:
        dataset: Name of the dataset.
        folder: Key of the folder of the pipeline.
        name: Start time and id of the run; later runs have greater names.
        objects: The objects by their state: `begun`, `ok` or `failed`.
    """

    dataset: str
    folder: str
    name: str
    objects: Mapping[str, ObjectInfo]

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.name.partition("-")[2]

    @property
    def state(self) -> RunState:
        """The state, by the names of the objects."""
        return (
            "failed" if "failed" in self.objects else "ok" if "ok" in self.objects else "unfinished"
        )

    @property
    def began_at(self) -> dt.datetime:
        """Start time; the time of storage if the name holds no valid time."""
        try:
            return dt.datetime.strptime(self.name.partition("-")[0], STAMP).replace(tzinfo=dt.UTC)
        except ValueError:  # no date has these digits
            return next(iter(self.objects.values())).modified_at


def folder_of(dataset: str, pipeline: str) -> str:
    """Return the key of the folder of the runs of a pipeline."""
    return f"{FOLDER}/{dataset}/{encode_path({'run': pipeline})}"


def list_entries(
    store: Store, dataset: str | None = None, pipeline: str | None = None
) -> tuple[RunEntry, ...]:
    """Return the recorded runs, newest first; other objects are ignored.

    Args:
        store: The store of the repository.
        dataset: Only runs for this dataset.
        pipeline: Only runs of this pipeline.

    Cost:
        One LIST for each 1,000 objects; a run has two.
    """
    wanted = None if pipeline is None else encode_path({"run": pipeline})
    folder = FOLDER if dataset is None else f"{FOLDER}/{dataset}"
    if dataset is not None and wanted is not None:
        folder = f"{folder}/{wanted}"
    found: dict[tuple[str, str, str], dict[str, ObjectInfo]] = {}
    for info in store.list(f"{folder}/"):
        parts = info.key.split("/")
        match = _NAME.fullmatch(parts[-1])
        is_entry = len(parts) == 4 and is_dataset_name(parts[1]) and wanted in (None, parts[2])
        if match is not None and is_entry:
            run = (f"{match[1]}-{match[2]}", parts[1], parts[2])
            found.setdefault(run, {})[match[3]] = info
    return tuple(
        RunEntry(
            dataset=name, folder=f"{FOLDER}/{name}/{of}", name=run, objects=found[run, name, of]
        )
        for run, name, of in sorted(found, reverse=True)
    )


def read_entries(store: Store, entries: Sequence[RunEntry]) -> Items[PipelineRun]:
    """Return runs; those that were deleted meanwhile are left out.

    Cost:
        One GET a run, eight at a time.
    """
    read = at_once(lambda entry: _read(store, entry), entries, _THREADS)
    return Items(run for run in read if run is not None)


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
        One LIST for each 1,000 objects, and one GET a run, eight at a time.
    """
    return read_entries(store, list_entries(store, dataset, pipeline)[:limit])


def last_success(store: Store, entries: Iterable[RunEntry]) -> PipelineRun | None:
    """Return the newest run without a failed step; None if the log has none.

    Args:
        store: The store of the repository.
        entries: The recorded runs of one pipeline, newest first.

    Cost:
        One GET, and one for each entry that cannot be read.
    """
    for entry in entries:
        if entry.state == "ok":
            found = _read(store, entry)
            if found is not None and found.state == "ok":
                return found
    return None


def _read(store: Store, entry: RunEntry) -> PipelineRun | None:
    """Return a run; None if its entry was deleted meanwhile."""
    state = next(one for one in ("failed", "ok", "begun") if one in entry.objects)
    info = entry.objects[state]
    try:
        if info.size_bytes > MAX_ENTRY_BYTES:
            return unreadable_run(entry, f"its entry has {info.size_bytes:,} bytes")
        document = from_json(store.get(info.key).data, RunDocument)
    except LookupError:
        return None
    except UNREADABLE as exc:
        return unreadable_run(entry, f"its entry cannot be read: {exc}")
    if document.dataset != entry.dataset or (state != "begun") != (document.ended_at is not None):
        return unreadable_run(entry, "its entry belongs to another run")
    return PipelineRun(
        pipeline=document.pipeline,
        dataset=document.dataset,
        run_id=document.run_id,
        began_at=document.began_at.astimezone(dt.UTC),
        state=entry.state,
        ended_at=None if document.ended_at is None else document.ended_at.astimezone(dt.UTC),
        duration_s=document.duration_s,
        exit_code=document.exit_code,
        by=document.by,
        file=document.file,
        max_age_s=document.max_age_s,
        steps=tuple(msgspec.to_builtins(step) for step in document.steps),
    )


def unreadable_run(entry: RunEntry, problem: str) -> PipelineRun:
    """Return the run of an entry that cannot be read."""
    return PipelineRun(
        pipeline="",
        dataset=entry.dataset,
        run_id=entry.run_id,
        began_at=entry.began_at,
        state="unreadable",
        problem=problem,
    )

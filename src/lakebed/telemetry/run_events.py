"""Run events for OpenLineage: which job read which raw files and wrote which dataset and table.

A run is a verb that changes a dataset, a step of a pipeline, a whole pipeline, or a publication to
one table. Its last event has what it read and wrote.
"""

from __future__ import annotations

import atexit
import datetime as dt
import importlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakebed.errors import InvalidInputError, MissingDependencyError, redacted
from lakebed.pipeline.table_ingest import TableIngest
from lakebed.pipeline.table_report import TableIngestReport
from lakebed.state.committing import Committed
from lakebed.state.sources import SourceFile
from lakebed.telemetry.lineage_events import (
    CommittedTo,
    EventFacts,
    EventType,
    Facet,
    JobRun,
    Life,
    earlier_version,
    error_facet,
    life_output,
    own_facet,
    raw_file,
    run_event,
    spark_table,
    table_output,
    unrecorded_file,
)
from lakebed.telemetry.lineage_names import Named, place_of, table_of
from lakebed.telemetry.watching import Call, SentRequest, unwatch, watch
from lakebed.view import View

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

_log = logging.getLogger(__name__)

_DEFAULT_NAMESPACE = "default"
# Verbs that change the rows or the schema of a dataset.
_JOBS = frozenset(
    (
        *("append", "overwrite", "delete", "merge", "upsert", "update_rows", "rerun", "load"),
        *("evolve", "rollback", "erase", "compact", "create", "write", "adopt", "drop", "ingest"),
        *("staged.commit", "dimensions.promote", "run"),
    )
)
# These replace rows without reading them.
_BLIND = frozenset({"append", "overwrite", "rerun", "load"})
_LIVES: Mapping[str, Life] = {"create": "CREATE", "adopt": "CREATE", "drop": "DROP"}


def enable_lineage(
    client: OpenLineageClient | None = None, *, namespace: str | None = None
) -> None:
    """Send run events of all verbs of this process to OpenLineage.

    Events are sent while the verb runs. A failure to send one is logged as a warning, and changes
    nothing else. If it is enabled already, the given client takes the place of the former one.

    Args:
        client: The client; None for one by `openlineage.yml` and the variables `OPENLINEAGE_…`, as
            its documentation describes.
        namespace: Namespace of the jobs; None for that of `OPENLINEAGE_NAMESPACE`, else `default`.

    Raises:
        MissingDependencyError: The client of OpenLineage is not installed.
        InvalidInputError: `openlineage.yml` or a variable is wrong.

    Examples:
        >>> import lakebed.telemetry
        >>> lakebed.telemetry.enable_lineage()  # doctest: +SKIP
    """
    try:
        events = importlib.import_module("openlineage.client.event_v2")
        clients = importlib.import_module("openlineage.client")
    except ImportError as exc:
        raise MissingDependencyError.for_extra("openlineage-python", "lineage", "Lineage") from exc
    if client is None:
        client = _configured(clients)
    namespace = namespace or os.environ.get("OPENLINEAGE_NAMESPACE") or _DEFAULT_NAMESPACE
    parent = JobRun.parse(os.environ.get("OPENLINEAGE_PARENT_ID", ""))
    disable_lineage()
    _enabled.append(_OpenLineage(_Sender(client, events), namespace, parent))
    watch(_enabled[0])


def disable_lineage() -> None:
    """End the events of this process; nothing is changed if they were not enabled."""
    while _enabled:
        unwatch(_enabled.pop())


def _configured(clients: Any) -> Any:
    try:
        client = clients.OpenLineageClient()
    except Exception as exc:  # the client raises what its parsers and transports raise
        raise InvalidInputError(
            f"The configuration of OpenLineage cannot be used: {exc!r}",
            hint="Correct openlineage.yml or the variables OPENLINEAGE_…, or give a client.",
        ) from exc
    atexit.register(client.close, 10.0)  # a transport may hold events back
    return client


@dataclass(frozen=True, slots=True)
class _Sender:
    """Sends events by a client.

    Attributes:
        client: The client.
        classes: The module of the client's classes of events.
    """

    client: Any
    classes: Any

    def send(self, event: EventFacts) -> None:
        """Send an event; log a failure."""
        try:
            self.client.emit(self._as_object(event))
        except Exception as exc:  # noqa: BLE001 - what was done stands, whether or not it is reported
            _log.warning(
                "lineage not sent job=%s event=%s error=%s",
                event["job"]["name"],
                event["eventType"],
                redacted(repr(exc)),
            )

    def _as_object(self, event: EventFacts) -> Any:
        """Return the event as the client takes it; its classes check the values."""
        classes = self.classes
        return classes.RunEvent(
            eventType=classes.RunState(event["eventType"]),
            eventTime=event["eventTime"],
            producer=event["producer"],
            run=classes.Run(**event["run"]),
            job=classes.Job(**event["job"]),
            inputs=[classes.InputDataset(**one) for one in event["inputs"]],
            outputs=[classes.OutputDataset(**one) for one in event["outputs"]],
        )


@dataclass(slots=True, kw_only=True)
class _Run:
    """A run that has begun.

    Attributes:
        named: Job and run.
        inputs: Datasets and tables that it has read, by namespace and name.
        files: Records of the raw files that it has read, each with its dataset, same.
        written: Its commits, by repository and dataset.
        shown: Tables and datasets that it has published, created or dropped, same.
        facets: Further facets of the run.
    """

    named: JobRun
    inputs: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    files: dict[Named, list[tuple[str, SourceFile]]] = field(default_factory=dict)
    written: dict[tuple[str, str], CommittedTo] = field(default_factory=dict)
    shown: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    facets: dict[str, Facet] = field(default_factory=dict)

    def read(self, dataset: dict[str, Any]) -> None:
        """Add an input."""
        self.inputs.setdefault((dataset["namespace"], dataset["name"]), dataset)

    def show(self, dataset: dict[str, Any]) -> None:
        """Add an output other than by a commit."""
        self.shown[dataset["namespace"], dataset["name"]] = dataset

    def all_inputs(self) -> list[dict[str, Any]]:
        """Return the inputs, each once."""
        inputs = dict(self.inputs)
        inputs.update((named, raw_file(records)) for named, records in self.files.items())
        return list(inputs.values())

    def outputs(self) -> list[dict[str, Any]]:
        """Return the outputs, each dataset once."""
        outputs = dict(self.shown)
        for written in self.written.values():
            output = written.output()
            key = (output["namespace"], output["name"])
            shown = outputs.get(key, {"facets": {}})
            outputs[key] = {**output, "facets": {**shown["facets"], **output["facets"]}}
        return list(outputs.values())


class _OpenLineage:
    """The observer that makes events of calls."""

    counts_requests = False  # so tasks of Spark are sent as they are

    def __init__(self, sender: _Sender, namespace: str, parent: JobRun | None) -> None:
        self._sender = sender
        self._namespace = namespace
        self._parent = parent
        self._runs: dict[Call, _Run] = {}

    def begin(self, call: Call) -> None:
        """Send the first event of a run."""
        outer = self._run_of(call)
        if not _is_run(call, None if outer is None else outer[0]):
            return
        parent = self._parent if outer is None else outer[1].named
        run = _Run(named=JobRun(namespace=self._namespace, job=_job_of(call), parent=parent))
        self._runs[call] = run
        self._send("START", run, call.began_at)

    def end(self, call: Call) -> None:
        """Note what a call has done, and send the last event of a run."""
        if call.is_dry_run:
            return
        found = self._run_of(call)
        if found is not None:
            _note(call, found[1])
        run = self._runs.pop(call, None)
        if run is None:
            return
        error = call.failure
        if error is not None:
            run.facets["errorMessage"] = error_facet(error)
        self._send("COMPLETE" if error is None else "FAIL", run, dt.datetime.now(dt.UTC))

    def request(self, request: SentRequest, call: Call | None) -> None:
        """Ignore requests."""

    def _run_of(self, call: Call) -> tuple[Call, _Run] | None:
        """Return the innermost run that a call is or belongs to."""
        found = ((one, self._runs[one]) for one in call.and_outer() if one in self._runs)
        return next(found, None)

    def _send(self, kind: EventType, run: _Run, at: dt.datetime) -> None:
        self._sender.send(
            run_event(
                kind,
                run.named,
                at,
                inputs=run.all_inputs(),
                outputs=run.outputs(),
                facets=run.facets,
            )
        )


_enabled: list[_OpenLineage] = []


def _is_run(call: Call, outer: Call | None) -> bool:
    """Return whether a call is a run of its own, rather than a part of one."""
    if call.is_dry_run:
        return False
    is_inside = outer is not None and outer.name != "run"
    match call.kind:
        case "step":
            return True
        case "publication":
            return not _only_looks(call.arguments)
        case "verb":
            return call.name in _JOBS and not is_inside
        case "commit" | "reading":
            return not is_inside
    return False


def _only_looks(given: Mapping[str, Any]) -> bool:
    options = given.get("options")
    return any(given.get(name) or getattr(options, name, False) for name in ("check", "dry_run"))


def _job_of(call: Call) -> str:
    given = call.arguments
    match call.kind, call.name:
        case "verb", "run":
            return str(given["self"].name)
        case "verb", "ingest":
            return f"{given['self'].name}.ingest"
        case "step", _:
            return f"{given['setting'].ingest.name}.{given['step']}"
        case "reading", _:
            return f"{call.dataset}.{given['intake'].operation}"
        case "commit", _:
            return f"{call.dataset}.{given['terms'].change.operation or 'commit'}"
    return f"{call.dataset}.{call.name}"


def _note(call: Call, run: _Run) -> None:
    """Note in a run what one of its calls has done."""
    match call.kind:
        case "commit":
            if isinstance(call.result, Committed):
                _note_commit(call, call.result, run)
        case "reading":
            for candidate in () if call.result is None else call.result.due.files:
                run.read(unrecorded_file(candidate.file.location, candidate.file.size_bytes))
        case "publication":
            if call.result is not None and call.result.is_applied:
                _note_publication(call, run)
        case "verb":
            if call.name == "run" and call.result is not None:
                run.facets["lakebed_run"] = own_facet("LakebedRun", run_id=call.result.run_id)
            elif isinstance(call.arguments.get("self"), TableIngest):
                _note_table(call, run)
            elif call.name in _LIVES and call.error is None:
                _note_life(call, run)


def _note_commit(call: Call, made: Committed, run: _Run) -> None:
    terms, dataset = call.arguments["terms"], str(call.dataset)
    sources = terms.sources
    for file in () if sources is None else sources.files:
        run.files.setdefault(place_of(file.location), []).append((dataset, file))
    if made.entry.removed and made.entry.operation not in _BLIND:
        run.read(earlier_version(call.location, dataset, made.entry.version - 1))
    key = (call.location, dataset)
    written = run.written.setdefault(key, CommittedTo(location=call.location, dataset=dataset))
    written.commits.append((made, call.size_of(made)))


def _note_table(call: Call, run: _Run) -> None:
    """Note the table of Spark that an ingest has read; after a failure only its name is known."""
    report, source = call.result, call.arguments["self"].source
    if isinstance(report, TableIngestReport):
        count = sum(part.source_row_count for part in report.parts)
        run.read(spark_table(report.table, report.location, report.table_version, count))
    else:
        run.read(spark_table(source.title, None, None, None))


def _note_publication(call: Call, run: _Run) -> None:
    done = call.result
    run.read(earlier_version(call.location, str(call.dataset), done.version))
    named = table_of(done.kind, done.table, call.arguments.get("metastore"))
    run.show(table_output(done, named))


def _note_life(call: Call, run: _Run) -> None:
    """Note that a dataset was created or dropped."""
    source = call.arguments.get("source")
    if call.name == "adopt" and isinstance(source, str | os.PathLike):
        run.read({**place_of(source)._asdict(), "facets": {}})
    state = call.result._source.cached() if isinstance(call.result, View) else None
    run.show(life_output(call.location, str(call.dataset), _LIVES[call.name], state))

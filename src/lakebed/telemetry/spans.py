"""Spans and metrics by the API of OpenTelemetry; the SDK, its exporters and settings are the host's.

Names are those of Iceberg's `ScanReport`, `CommitReport` and `FileIOMetricsContext` where these have
one, behind `lakebed.scan.`, `lakebed.commit.` and `lakebed.store.`; those of OpenTelemetry's semantic
conventions for databases where these have one; and otherwise our own. docs/telemetry.md lists them.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import lakebed
from lakebed.commit import ChangedRows
from lakebed.errors import CommitConflictError, MissingDependencyError, redacted
from lakebed.plan.plan import ScanPlan
from lakebed.state.committing import Committed
from lakebed.telemetry.watching import Call, SentRequest, unwatch, watch

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Tracer, TracerProvider

_SYSTEM = "lakebed"
_SCHEMA_URL = (
    "https://opentelemetry.io/schemas/1.30.0"  # of the names that begin with db. or error.
)
# In seconds: OpenTelemetry's own limits for databases end at ten seconds.
_LIMITS = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 1800, 7200)

_Attributes = dict[str, str | int | float | bool]


def enable(
    tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Send spans and metrics of all verbs of this process to OpenTelemetry.

    If it is enabled already, the given providers take the place of the former ones.

    Args:
        tracer_provider: Provider for spans; None for the global one, also if that is set later.
        meter_provider: Provider for metrics; None for the global one, same.

    Raises:
        MissingDependencyError: The API of OpenTelemetry is not installed.

    Examples:
        >>> import lakebed.telemetry
        >>> lakebed.telemetry.enable()  # doctest: +SKIP
    """
    try:
        metrics = importlib.import_module("opentelemetry.metrics")
        trace = importlib.import_module("opentelemetry.trace")
    except ImportError as exc:
        raise MissingDependencyError.for_extra(
            "opentelemetry-api", "telemetry", "Telemetry"
        ) from exc
    version = lakebed.__version__
    tracer = trace.get_tracer(_SYSTEM, version, tracer_provider, _SCHEMA_URL)
    meter = metrics.get_meter(_SYSTEM, version, meter_provider, _SCHEMA_URL)
    disable()
    _enabled.append(_OpenTelemetry(tracer, meter))
    watch(_enabled[0])


def disable() -> None:
    """End the telemetry of this process; nothing is changed if it was not enabled."""
    while _enabled:
        unwatch(_enabled.pop())


class LakebedInstrumentor:
    """The instrumentor of `opentelemetry-instrument`, which an entry point of Lakebed names."""

    def instrument(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        **_others: object,
    ) -> None:
        """Enable telemetry; see `enable`."""
        enable(tracer_provider, meter_provider)

    def uninstrument(self, **_others: object) -> None:
        """End telemetry."""
        disable()


class _OpenTelemetry:
    """The observer that makes spans and metrics of calls.

    Each call is a span; the current span of the host is the parent of the outermost one.
    """

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self._tracer = tracer
        self._trace = importlib.import_module("opentelemetry.trace")
        self._context = importlib.import_module("opentelemetry.context")
        self._spans: dict[Call, tuple[Any, Any]] = {}
        self._add = _Instruments(meter)
        self._ends: Mapping[str, Callable[[Call, _Attributes], _Attributes]] = {
            "plan": self._end_plan,
            "reading": self._end_reading,
            "commit": self._end_commit,
            "publication": self._end_publication,
            "step": self._end_step,
        }

    def begin(self, call: Call) -> None:
        """Start the span of a call, below the current one."""
        kinds = self._trace.SpanKind
        span = self._tracer.start_span(
            call.name if call.dataset is None else f"{call.name} {call.dataset}",
            kind=kinds.CLIENT if call.kind == "verb" else kinds.INTERNAL,
            attributes={**_named(call), "db.namespace": call.location},
        )
        token = self._context.attach(self._trace.set_span_in_context(span))
        self._spans[call] = (span, token)

    def end(self, call: Call) -> None:
        """Record the metrics of a call, and end its span."""
        span, token = self._spans.pop(call)
        self._context.detach(token)
        failed = call.failure
        error: _Attributes = {} if failed is None else {"error.type": type(failed).__name__}
        facts = self._facts(call)
        if call.kind in ("verb", "step"):
            self._add.duration("db.client.operation.duration", call, {**_named(call), **error})
        if span.is_recording():
            span.set_attributes({**facts, **_of_requests(call), **error})
            if failed is not None:
                span.add_event("exception", _exception_of(failed))
                status = self._trace.Status(self._trace.StatusCode.ERROR, redacted(str(failed)))
                span.set_status(status)
        span.end()

    def request(self, request: SentRequest, call: Call | None) -> None:
        """Count requests and bytes, with the verb that sent them."""
        verb = None if call is None else call.verb or call
        attributes: _Attributes = {} if verb is None else _named(verb)
        self._add.count("lakebed.workers.records", request.row_count, attributes)
        if request.is_of_worker:
            attributes = {**attributes, _BY_WORKERS: True}
        if request.count:
            kind: _Attributes = {**attributes, "lakebed.request.kind": request.kind}
            self._add.count("lakebed.store.operations", request.count, kind)
        self._add.count("lakebed.store.read.bytes", request.read_bytes, attributes)
        self._add.count("lakebed.store.write.bytes", request.written_bytes, attributes)

    def _facts(self, call: Call) -> _Attributes:
        """Record the metrics of what a call has done, and return them as attributes of its span."""
        facts: _Attributes = {"lakebed.dry_run": True} if call.is_dry_run else {}
        end = self._ends.get(call.kind)
        if end is None:
            return facts
        outer = call.verb or call
        common = {**_named(call), "db.operation.name": outer.name}
        return {**facts, **end(call, common)}

    def _end_plan(self, call: Call, common: _Attributes) -> _Attributes:
        plan = call.result
        if not isinstance(plan, ScanPlan):
            return {}
        account, total = plan.account, len(plan.state.lists.files)
        scanned = min(account.statistics_segments, total)
        skipped = {
            "partition": account.dropped_by_partition,
            "schema": account.dropped_by_schema,
            "statistics": account.dropped_by_statistics,
            "index": account.dropped_by_index,
        }
        self._add.duration("lakebed.scan.total-planning-duration", call, common)
        counts = {
            "lakebed.scan.result-data-files": len(plan),
            "lakebed.scan.total-data-manifests": total,
            "lakebed.scan.scanned-data-manifests": scanned,
            "lakebed.scan.skipped-data-manifests": total - scanned,
        }
        self._add.counts(counts, common)
        for by, count in skipped.items():
            self._add.count(_SKIPPED, count, {**common, "lakebed.skipped.by": by})
        return {**counts, _SKIPPED: sum(skipped.values()), "lakebed.version": plan.version}

    def _end_reading(self, call: Call, common: _Attributes) -> _Attributes:
        done = call.result
        if done is None or call.is_dry_run:
            return {}
        counts = {
            "lakebed.ingest.files": len(done.due.files),
            "lakebed.ingest.records": done.row_count,
            "lakebed.ingest.rejected-records": done.rejects.count,
        }
        self._add.counts(counts, common)
        return dict(counts)

    def _end_commit(self, call: Call, common: _Attributes) -> _Attributes:
        if isinstance(call.error, CommitConflictError) and not call.is_dry_run:
            self._add.count("lakebed.commit.conflicts", 1, common)
        made = call.result
        if not isinstance(made, Committed) or call.is_dry_run:
            return {}
        entry = made.entry
        # The operation of the commit, such as `compact` also where a publication asked for it.
        common = {**common, "lakebed.operation": entry.operation}
        changed = ChangedRows.of(entry)
        counts: dict[str, int | None] = {
            "lakebed.commit.attempts": made.attempts,
            "lakebed.commit.added-data-files": len(entry.added),
            "lakebed.commit.removed-data-files": len(entry.removed),
            "lakebed.commit.added-records": entry.row_count,
            "lakebed.commit.removed-records": _removed_rows(entry.row_count, changed),
            "lakebed.commit.added-files-size-bytes": call.size_of(made),
        }
        totals = _totals(made)
        self._add.duration("lakebed.commit.total-duration", call, common)
        known = {name: count for name, count in counts.items() if count is not None}
        self._add.counts(known, common)
        for name, count in totals.items():
            self._add.gauge(name, count, _named(call, with_operation=False))
        return {
            **known,
            **totals,
            "lakebed.operation": entry.operation,
            "lakebed.version": entry.version,
            "lakebed.commit_id": entry.commit_id,
            **({} if entry.batch_id is None else {"lakebed.batch_id": entry.batch_id}),
            **({} if entry.run is None else {"lakebed.run": entry.run}),
        }

    def _end_publication(self, call: Call, common: _Attributes) -> _Attributes:
        done = call.result
        if done is None or not done.is_applied or call.is_dry_run:
            return {}
        common = {**common, "lakebed.publication.format": done.kind}
        counts = {
            "lakebed.publication.added-files": done.added_count,
            "lakebed.publication.removed-files": done.removed_count,
        }
        self._add.counts(counts, common)
        return {**counts, "lakebed.publication.table": done.table, "lakebed.version": done.version}

    def _end_step(self, call: Call, _common: _Attributes) -> _Attributes:
        report = call.result
        if report is None:
            return {}
        return {"lakebed.step.status": report.status, "lakebed.step.attempts": report.attempts}


_BY_WORKERS = "lakebed.request.by_workers"
_SKIPPED = "lakebed.scan.skipped-data-files"
_enabled: list[_OpenTelemetry] = []


class _Instruments:
    """The instruments of a meter, each made when it is first used."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._made: dict[str, Any] = {}

    def count(self, name: str, count: int, attributes: _Attributes) -> None:
        """Add to a counter."""
        if name not in self._made:
            unit = "By" if "bytes" in name else "1"
            self._made[name] = self._meter.create_counter(name, unit)
        if count:
            self._made[name].add(count, attributes)

    def counts(self, counts: Mapping[str, int], attributes: _Attributes) -> None:
        """Add to counters, by name."""
        for name, count in counts.items():
            self.count(name, count, attributes)

    def gauge(self, name: str, value: int, attributes: _Attributes) -> None:
        """Set a gauge."""
        if name not in self._made:
            self._made[name] = self._meter.create_gauge(name, "1")
        self._made[name].set(value, attributes)

    def duration(self, name: str, call: Call, attributes: _Attributes) -> None:
        """Record the duration of a call in a histogram of seconds."""
        if name not in self._made:
            self._made[name] = self._meter.create_histogram(
                name, "s", explicit_bucket_boundaries_advisory=_LIMITS
            )
        self._made[name].record(call.duration_s, attributes)


def _named(call: Call, *, with_operation: bool = True) -> _Attributes:
    """Return the attributes that all metrics of a call have: system, operation, dataset."""
    attributes: _Attributes = {"db.system.name": _SYSTEM}
    if with_operation:
        attributes["db.operation.name"] = call.name
    if call.dataset is not None:
        attributes["db.collection.name"] = call.dataset
    return attributes


def _of_requests(call: Call) -> _Attributes:
    counts: _Attributes = {
        f"lakebed.store.operations.{kind}": count for kind, count in call.requests.items()
    }
    if call.read_bytes:
        counts["lakebed.store.read.bytes"] = call.read_bytes
    if call.written_bytes:
        counts["lakebed.store.write.bytes"] = call.written_bytes
    of_workers = call.of_workers
    counts |= {
        f"lakebed.workers.store.operations.{kind}": count
        for kind, count in of_workers.requests.items()
    }
    others = {
        "store.read.bytes": of_workers.read_bytes,
        "store.write.bytes": of_workers.written_bytes,
        "records": of_workers.row_count,
    }
    counts |= {f"lakebed.workers.{name}": count for name, count in others.items() if count}
    return counts


def _exception_of(error: BaseException) -> _Attributes:
    """Return the attributes of an exception by OpenTelemetry's conventions, without secrets."""
    return {
        "exception.type": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception.message": redacted(str(error)),
        "exception.stacktrace": redacted("".join(traceback.format_exception(error))),
    }


def _removed_rows(added: int, changed: ChangedRows) -> int | None:
    """Return the number of rows in the removed files, if it is known."""
    if changed.deleted is None or changed.inserted is None:
        return None
    return changed.deleted + added - changed.inserted


def _totals(made: Committed) -> dict[str, int]:
    if made.state is None:
        return {}
    rows = getattr(made.state.live, "row_count", None)  # only a tree of files has it
    totals = {"lakebed.commit.total-data-files": made.state.live.count}
    return totals if rows is None else {**totals, "lakebed.commit.total-records": rows}

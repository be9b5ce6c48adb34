"""A collector of OpenTelemetry: it receives OTLP over HTTP, and keeps what it received."""

from __future__ import annotations

import gzip
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

Attributes = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Span:
    name: str
    span_id: bytes
    parent_id: bytes
    kind: int
    is_error: bool
    attributes: Attributes
    events: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Point:
    """A point of a metric: the sum of a counter or a histogram, or the value of a gauge."""

    value: float
    count: int
    attributes: Attributes


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@dataclass(kw_only=True)
class Collector:
    """What was received.

    Attributes:
        endpoint: URL of the receiver.
        tracers: A provider whose spans it receives, after `flush`.
        meters: A provider whose metrics it receives, after `flush`.
    """

    endpoint: str = ""
    bodies: list[tuple[str, bytes]] = field(default_factory=list)
    tracers: TracerProvider = field(init=False)
    meters: MeterProvider = field(init=False)

    def connect(self) -> None:
        """Make the providers; as a program that uses Lakebed does."""
        self.tracers = TracerProvider()
        traces = OTLPSpanExporter(endpoint=f"{self.endpoint}/v1/traces")
        self.tracers.add_span_processor(BatchSpanProcessor(traces))
        metrics = OTLPMetricExporter(endpoint=f"{self.endpoint}/v1/metrics")
        self.meters = MeterProvider([PeriodicExportingMetricReader(metrics, 600_000)])

    def flush(self) -> None:
        """Wait for what has not been sent."""
        assert self.tracers.force_flush()
        assert self.meters.force_flush()

    def spans(self) -> list[Span]:
        found = []
        for path, body in self.bodies:
            if path != "/v1/traces":
                continue
            request = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    assert scope.scope.name == "lakebed"
                    found += [
                        Span(
                            name=span.name,
                            span_id=span.span_id,
                            parent_id=span.parent_span_id,
                            kind=span.kind,
                            is_error=span.status.code == 2,
                            attributes=_plain(span.attributes),
                            events=tuple(event.name for event in span.events),
                        )
                        for span in scope.spans
                    ]
        return found

    def points(self, name: str) -> list[Point]:
        """Return the last points of a metric."""
        last: list[Point] = []
        for path, body in self.bodies:
            if path != "/v1/metrics":
                continue
            request = ExportMetricsServiceRequest.FromString(body)
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        if metric.name == name:
                            last = list(_points_of(metric))
        return last

    def total(self, name: str, **attributes: Any) -> float:
        """Return the sum of the points of a metric, of those that have the attributes."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        return sum(
            point.value for point in self.points(name) if wanted.items() <= point.attributes.items()
        )

    def by(self, name: str, attribute: str) -> Counter[Any]:
        """Return the sums of a metric by the value of an attribute."""
        sums: Counter[Any] = Counter()
        for point in self.points(name):
            sums[point.attributes.get(attribute)] += point.value
        return sums


def _points_of(metric: Any) -> Iterator[Point]:
    data = getattr(metric, metric.WhichOneof("data"))
    for point in data.data_points:
        attributes = _plain(point.attributes)
        if metric.WhichOneof("data") == "histogram":
            yield Point(value=point.sum, count=point.count, attributes=attributes)
        else:
            value = getattr(point, point.WhichOneof("value"))
            yield Point(value=value, count=1, attributes=attributes)


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on a port of this machine."""
    collector = Collector()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.bodies.append((self.path, body))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_given: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        collector.endpoint = f"http://127.0.0.1:{server.server_port}"
        collector.connect()
        yield collector
        collector.tracers.shutdown()
        collector.meters.shutdown()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

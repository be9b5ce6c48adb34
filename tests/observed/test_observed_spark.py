"""Verbs that run in Spark's tasks are observed in this process, and the tasks run as without."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakebed
import lakebed.telemetry

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

pytestmark = pytest.mark.spark

ROWS = 100_000  # so many that the driver does not write them itself


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def exporter(reader: InMemoryMetricReader) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    lakebed.telemetry.enable(tracers, MeterProvider([reader]))
    yield exporter
    lakebed.telemetry.disable()


def test_frames_are_written_and_read(spark, exporter: InMemorySpanExporter, tmp_path: Path) -> None:
    frame = spark.range(ROWS).selectExpr("id", "id % 2 AS part")
    sales = lakebed.open_repository(tmp_path).create("sales", frame, partition_by="part")

    commit = sales.append(frame)
    few = sales.delete("id < 3")
    count = sales.spark(spark, way="arrow").count()

    assert (commit.row_count, count) == (ROWS, ROWS - 3)
    assert few is not None
    spans = {
        (span.name, span.attributes.get("lakebed.operation")): span.attributes
        for span in exporter.get_finished_spans()
        if span.attributes is not None
    }
    appended = spans["commit sales", "append"]
    assert appended["lakebed.commit.added-records"] == ROWS
    assert appended["lakebed.commit.added-data-files"] == len(commit.files_added)
    # The tasks know the sizes of what they write, and this process does not.
    assert "lakebed.commit.added-files-size-bytes" not in appended
    assert ("spark sales", None) in spans


class Counted:
    """What a reader of metrics sees of the requests, bytes and rows of an append."""

    def __init__(self, reader: InMemoryMetricReader) -> None:
        data = reader.get_metrics_data()
        self.points = [
            (metric.name, dict(point.attributes), point.value)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name.startswith(("lakebed.store.", "lakebed.workers."))
            for point in metric.data.data_points
            if point.attributes["db.operation.name"] == "append"
        ]

    def of(self, name: str, *, by_workers: bool = True, kind: str | None = None) -> int:
        return sum(
            value
            for found, attributes, value in self.points
            if found == name
            and (
                name.startswith("lakebed.workers.")
                or attributes.get(BY_WORKERS, False) == by_workers
            )
            and (kind is None or attributes["lakebed.request.kind"] == kind)
        )


BY_WORKERS = "lakebed.request.by_workers"


@pytest.mark.classic("a session of Connect has no accumulators")
def test_requests_of_workers_are_those_that_they_sent(
    spark, exporter: InMemorySpanExporter, reader: InMemoryMetricReader, tmp_path: Path
) -> None:
    frame = spark.range(ROWS).selectExpr("id", "id % 2 AS part")
    sales = lakebed.open_repository(tmp_path).create(
        "sales",
        lakebed.DatasetDescriptor(
            schema='{"type": "record", "name": "s", "fields": [{"name": "id", "type": "long"}, '
            '{"name": "part", "type": "long"}]}',
            partition_by="part",
            index=["id"],
        ),
    )
    before = {path for path in tmp_path.rglob("*") if path.is_file()}

    sales.append(frame)

    # Workers write the data files and the entries of the index, each by one request, and read nothing.
    new = [path for path in set(tmp_path.rglob("*")) - before if path.is_file()]
    written = [path for path in new if {"data", "postings"}.intersection(path.parts)]
    size_bytes = sum(path.stat().st_size for path in written)
    counted = Counted(reader)
    spans = {span.name: dict(span.attributes or {}) for span in exporter.get_finished_spans()}
    append = spans["append sales"]
    of_workers = {name: value for name, value in append.items() if "workers" in name}
    assert len(written) >= 4
    assert of_workers == {
        "lakebed.workers.store.operations.put": len(written),
        "lakebed.workers.store.write.bytes": size_bytes,
        "lakebed.workers.records": ROWS,
    }
    assert counted.of("lakebed.store.operations") == len(written)
    assert counted.of("lakebed.store.operations", kind="put") == len(written)
    assert counted.of("lakebed.store.write.bytes") == size_bytes
    assert counted.of("lakebed.store.read.bytes") == 0
    assert counted.of("lakebed.workers.records") == ROWS
    # The span has those of this process, too, which the metrics keep apart.
    for kind in ("get", "put"):
        both = [
            counted.of("lakebed.store.operations", by_workers=one, kind=kind)
            for one in (True, False)
        ]
        assert append[f"lakebed.store.operations.{kind}"] == sum(both)


@pytest.mark.classic("a session of Connect has no accumulators")
def test_tasks_are_sent_as_they_are_if_nothing_counts(spark, tmp_path: Path) -> None:
    from lakebed.spark import observed_tasks

    def task(batches: object) -> object:
        return batches

    assert observed_tasks.observed(spark, task) is task  # type: ignore[arg-type]
    lakebed.telemetry.enable()
    try:
        assert observed_tasks.observed(spark, task) is not task  # type: ignore[arg-type]
    finally:
        lakebed.telemetry.disable()
    assert observed_tasks.observed(spark, task) is task  # type: ignore[arg-type]


def test_a_worker_imports_nothing_of_opentelemetry() -> None:
    program = (
        "import sys\n"
        "from lakebed.telemetry.worker_requests import counting\n"
        "reports = []\n"
        "task = counting(lambda batches: iter([1]), lambda *report: reports.append(report))\n"
        "assert list(task(())) == [1] and reports == []\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'openlineage'))])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert answer.stdout.strip() == "[]", answer.stderr

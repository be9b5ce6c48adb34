"""Verbs that run in Spark's tasks are observed in this process, and the tasks run as without."""

from __future__ import annotations

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
def exporter() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    lakebed.telemetry.enable(tracers, MeterProvider([InMemoryMetricReader()]))
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

"""Spans and metrics arrive in a collector, and their numbers are those that were counted."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from watched_lake import SALES, Lake

import lakebed
import lakebed.telemetry
from lakebed import Repository
from lakebed.errors import MissingDependencyError, SchemaMismatchError
from lakebed.store import open_store
from lakebed.testing import CountingStore, FailingStore
from lakebed.testing.stores import RequestCounts

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from otel_collector import Collector, Span, collecting

from lakebed.telemetry.watching import Call, SentRequest, unwatch, watch

CLIENT = 3  # SPAN_KIND_CLIENT of OTLP


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return Lake.in_folder(tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def ends_with_the_test() -> Iterator[None]:
    yield
    lakebed.telemetry.disable()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def observe(collector: Collector) -> None:
    lakebed.telemetry.enable(collector.tracers, collector.meters)


def counted(collector: Collector) -> RequestCounts:
    kinds = collector.by("lakebed.store.operations", "lakebed.request.kind")
    return RequestCounts(
        **{str(kind): int(count) for kind, count in kinds.items()},
        bytes_read=int(collector.total("lakebed.store.read.bytes")),
        bytes_written=int(collector.total("lakebed.store.write.bytes")),
    )


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A lake after a life of all verbs.

    Attributes:
        collector: What was received of it.
        counts: What the store has counted.
    """

    lake: Lake
    collector: Collector
    counts: RequestCounts


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    with collecting() as collector:
        with pytest.MonkeyPatch.context() as monkeypatch:
            lake = Lake.in_folder(tmp_path_factory.mktemp("seen"), monkeypatch)
            observe(collector)
            lake.demo()
            lake.lose_a_race()
        counts = lake.store.reset()
        lakebed.telemetry.disable()
        collector.flush()
        yield Seen(lake=lake, collector=collector, counts=counts)


def test_requests_and_bytes_are_those_that_the_store_has_counted(
    seen: Seen,
) -> None:
    assert seen.counts.total > 300
    assert seen.counts.bytes_written > 10_000
    assert counted(seen.collector) == seen.counts


def test_commits_are_those_of_the_histories(seen: Seen) -> None:
    collector, lake = seen.collector, seen.lake
    commits = [
        commit
        for name in ("sales", "sales_quarantine")
        for commit in lake.repository.open(name).history()
        if commit.version
    ]

    assert len(commits) > 12
    assert collector.total("lakebed.commit.attempts") == len(commits)
    for metric, expected in {
        "added-data-files": sum(len(commit.files_added) for commit in commits),
        "removed-data-files": sum(len(commit.files_removed) for commit in commits),
        "added-records": sum(commit.row_count for commit in commits),
    }.items():
        assert collector.total(f"lakebed.commit.{metric}") == expected, metric
    durations = collector.points("lakebed.commit.total-duration")
    assert sum(point.count for point in durations) == len(commits)
    assert collector.total("lakebed.commit.conflicts") == 1
    assert collector.total("lakebed.commit.total-data-files", db__collection__name="sales") == len(
        lake.repository.open("sales").files()
    )


def test_sizes_and_removed_rows_are_those_of_the_files(lake: Lake, collector: Collector) -> None:
    sales = lake.repository.create("sales", SALES, partition_by="shop")
    sales.append([{"id": n, "shop": "north", "amount": n} for n in range(10)])
    observe(collector)

    sales.append([{"id": 20, "shop": "south", "amount": 1}])
    added = [file for file in sales.files() if file.partition == "shop=south"]
    removed = sales.delete("id = 3")
    size = sum(file.size_bytes or 0 for file in sales.files() if file.partition == "shop=north")
    sales.compact()

    collector.flush()
    assert removed.row_count == 9
    sizes = collector.by("lakebed.commit.added-files-size-bytes", "lakebed.operation")
    assert sizes == {"append": sum(file.size_bytes or 0 for file in added), "delete": size}
    assert collector.by("lakebed.commit.removed-records", "lakebed.operation") == {"delete": 10}
    assert collector.by("lakebed.commit.added-records", "db.operation.name") == {
        "append": 1,
        "delete": 9,
    }


def parent_of(span: Span, spans: list[Span]) -> str | None:
    return next((other.name for other in spans if other.span_id == span.parent_id), None)


def test_spans_of_verbs_hold_those_of_their_parts(
    seen: Seen,
) -> None:
    counts, spans = seen.counts, seen.collector.spans()
    named = {span.name for span in spans}

    assert named >= {
        *("run sales", "run.ingest sales", "run.retain sales", "run.compact sales"),
        *("run.publish sales", "run.cleanup sales", "ingest sales", "create sales"),
        *("append sales", "rerun sales", "upsert sales", "merge sales", "delete sales"),
        *("rollback sales", "overwrite sales", "indices.build sales", "arrow sales"),
        *("plan sales", "commit sales", "compact sales", "publish sales", "publish.delta sales"),
        "cleanup sales",
    }
    parents = {(span.name, parent_of(span, spans)) for span in spans}
    assert parents >= {
        *{("run sales", None), ("run.ingest sales", "run sales"), ("append sales", None)},
        *{("ingest sales", "run.ingest sales"), ("read_in sales", "ingest sales")},
        *{
            ("commit sales_quarantine", "read_in sales"),
            ("commit sales", "read_in sales"),
            ("commit sales", "append sales"),
        },
        *{("publish.delta sales", "run.publish sales"), ("publish.delta sales", "publish sales")},
        *{("plan sales", "arrow sales"), ("merge sales", "upsert sales")},
        *{("compact sales", "run.compact sales"), ("compact sales", None)},
    }
    # One verb that is a part of itself, as a narrower view of the same class, is one span.
    assert [(name, outer) for name, outer in parents if name == outer] == []
    roots = [span for span in spans if not span.parent_id]
    assert {span.kind for span in spans if span.name in ("append sales", "run sales")} == {CLIENT}
    sent = {
        kind: sum(span.attributes.get(f"lakebed.store.operations.{kind}", 0) for span in roots)
        for kind in ("get", "put", "list", "head", "delete")
    }
    # What the test asks for between its verbs, such as opening a dataset, is in no span.
    outside = {
        kind: getattr(counts, kind) - sent[kind]
        for kind in ("get", "put", "list", "head", "delete")
    }
    assert outside["put"] == outside["delete"] == 0
    assert 0 <= outside["get"] < 10


def test_a_plan_counts_the_files_that_it_explains(lake: Lake, collector: Collector) -> None:
    sales = lake.repository.create("sales", SALES, partition_by="shop")
    for number in range(4):
        sales.append(
            [{"id": number, "shop": shop, "amount": number} for shop in ("north", "south")]
        )
    view = sales.where("shop = 'north' AND amount >= 2")
    observe(collector)

    explained = view.plan().explain()

    collector.flush()
    assert (explained.kept, explained.file_count) == (2, 8)
    assert collector.total("lakebed.scan.result-data-files") == explained.kept
    assert collector.by("lakebed.scan.skipped-data-files", "lakebed.skipped.by") == {
        "partition": explained.dropped_by_partition,
        "statistics": explained.dropped_by_statistics,
    }
    assert explained.dropped_by_partition + explained.dropped_by_statistics == 6
    scanned = collector.total("lakebed.scan.scanned-data-manifests")
    assert scanned == explained.statistics_segments
    manifests = collector.total("lakebed.scan.total-data-manifests")
    assert manifests == scanned + collector.total("lakebed.scan.skipped-data-manifests")
    assert [point.count for point in collector.points("lakebed.scan.total-planning-duration")] == [
        1
    ]


def test_an_error_is_in_its_span_and_its_metric(lake: Lake, collector: Collector) -> None:
    sales = lake.repository.create("sales", SALES)
    observe(collector)

    with pytest.raises(SchemaMismatchError):
        sales.append([{"id": 1, "shop": "north", "price": 3}])

    collector.flush()
    (failed,) = [span for span in collector.spans() if span.name == "append sales"]
    assert failed.is_error
    assert failed.events == ("exception",)
    assert failed.attributes["error.type"] == "SchemaMismatchError"
    (point,) = collector.points("db.client.operation.duration")
    assert point.attributes == {
        "db.system.name": "lakebed",
        "db.operation.name": "append",
        "db.collection.name": "sales",
        "error.type": "SchemaMismatchError",
    }


def test_secrets_of_an_error_are_not_sent(lake: Lake, collector: Collector) -> None:
    lake.repository.create("sales", SALES)
    error = OSError("https://me:hunter2@minio:9000/lake is down")
    sales = Repository(FailingStore(lake.store, fail_on="create", error=error)).open("sales")
    observe(collector)

    with pytest.raises(OSError, match="is down"):
        sales.append([{"id": 1, "shop": "north", "amount": 3}])

    collector.flush()
    (failed,) = [span for span in collector.spans() if span.name == "append sales"]
    assert failed.attributes["error.type"] == "OSError"
    assert [path for path, body in collector.bodies if b"hunter2" in body] == []


def test_a_step_that_fails_is_an_error(lake: Lake, collector: Collector) -> None:
    lake.deliver("a.jsonl", [{"id": 1, "shop": "north", "amount": 5}])
    pipeline = lake.pipeline()
    lake.root.joinpath("lake", "sales", "data", "_delta_log").mkdir(parents=True)
    lake.root.joinpath("lake/sales/data/_delta_log/00000000000000000000.json").write_text("{}\n")
    observe(collector)

    report = pipeline.run(fail=False)

    collector.flush()
    assert report["publish"].error is not None
    spans = {span.name: span for span in collector.spans()}
    assert spans["run.publish sales"].is_error
    assert spans["run.publish sales"].attributes["lakebed.step.status"] == "failed"
    assert not spans["run.ingest sales"].is_error


def test_attempts_of_a_commit_are_counted(lake: Lake, collector: Collector) -> None:
    lake.repository.create("sales", SALES)
    failing = FailingStore(lake.store, fail_on="replace", matching="by-dataset-metadata")
    sales = Repository(failing).open("sales")
    observe(collector)

    sales.append([{"id": 1, "shop": "north", "amount": 5}])

    collector.flush()
    assert failing.has_failed
    assert collector.total("lakebed.commit.attempts") == 2
    (commit,) = [span for span in collector.spans() if span.name == "commit sales"]
    assert commit.attributes["lakebed.commit.attempts"] == 2
    assert commit.attributes["lakebed.version"] == 1


def test_a_dry_run_commits_nothing_here_either(lake: Lake, collector: Collector) -> None:
    sales = lake.repository.create("sales", SALES)
    observe(collector)
    lake.store.reset()

    sales.append([{"id": 1, "shop": "north", "amount": 5}], dry_run=True)

    collector.flush()
    spans = {span.name: span for span in collector.spans()}
    assert spans["append sales"].attributes["lakebed.dry_run"] is True
    assert collector.points("lakebed.commit.attempts") == []
    assert counted(collector) == lake.store.reset()


def test_verbs_in_several_threads_are_apart(lake: Lake, collector: Collector) -> None:
    datasets = [lake.repository.create(f"sales{n}", SALES) for n in range(4)]
    observe(collector)
    lake.store.reset()
    start = threading.Barrier(len(datasets))

    def write(dataset: lakebed.Dataset) -> None:
        start.wait()
        for number in range(5):
            dataset.append([{"id": number, "shop": "north", "amount": 1}])

    threads = [threading.Thread(target=write, args=(dataset,)) for dataset in datasets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    collector.flush()
    assert counted(collector) == lake.store.reset()
    spans = collector.spans()
    for number in range(4):
        commits = [span for span in spans if span.name == f"commit sales{number}"]
        assert [parent_of(span, spans) for span in commits] == [f"append sales{number}"] * 5


def test_requests_of_listings_streams_and_deletions_are_those_of_a_bill(
    collector: Collector,
) -> None:
    observe(collector)
    store = CountingStore(open_store(f"memory://{uuid.uuid4().hex}"))

    for number in range(1001):
        store.put(f"many/{number:04}", b"12")
    assert len(list(store.list("many"))) == 1001
    assert list(store.list("none")) == []
    store.put_stream("stream", (store.get(f"many/{n:04}").data for n in range(3)))
    store.get_range("stream", 1, 3)
    store.get_range("stream", 0, 0)
    assert store.open_input("stream").read() == b"121212"
    etag = store.create("made", b"1")
    store.delete_if_match("made", etag=etag)
    with pytest.raises(lakebed.errors.LakebedError):
        store.get("missing")
    store.delete(f"many/{number:04}" for number in range(1001))
    store.delete([])

    expected = store.reset()
    collector.flush()
    assert (expected.list, expected.delete, expected.bytes_written) == (3, 3, 2002 + 6 + 1)
    assert counted(collector) == expected


def test_files_that_a_directory_takes_over_are_puts(tmp_path: Path) -> None:
    """A counting store has no files, so what a directory does is counted here from the disk."""
    requests: list[SentRequest] = []

    class Requests:
        def begin(self, call: Call) -> None:
            pass

        def end(self, call: Call) -> None:
            pass

        def request(self, request: SentRequest, call: Call | None) -> None:
            requests.append(request)

    sales = lakebed.open_repository(tmp_path).create("sales", SALES)
    observer = Requests()
    watch(observer)
    try:
        table = pa.table({"id": range(1000), "shop": ["x"] * 1000, "amount": range(1000)}, SALES)
        sales.append(table)
    finally:
        unwatch(observer)

    (file,) = sales.files()
    assert file.size_bytes in [one.written_bytes for one in requests if one.kind == "put"]


class Broken:
    """A provider of metrics whose instruments fail."""

    def get_meter(self, *_given: Any, **_options: Any) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name} is broken")


def test_a_failure_of_telemetry_changes_nothing_else(
    lake: Lake, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    sales = lake.repository.create("sales", SALES)
    lakebed.telemetry.enable(collector.tracers, Broken())  # type: ignore[arg-type]

    with caplog.at_level(logging.WARNING, "lakebed.telemetry"):
        commit = sales.append([{"id": 1, "shop": "north", "amount": 5}])

    assert commit.version == 1
    assert sales.count() == 1
    assert "telemetry failed" in caplog.text


def test_the_spans_of_the_program_are_the_parents(lake: Lake, collector: Collector) -> None:
    sales = lake.repository.create("sales", SALES)
    observe(collector)

    with collector.tracers.get_tracer("lakebed").start_as_current_span("nightly job"):
        sales.count()

    collector.flush()
    spans = collector.spans()
    (count,) = [span for span in spans if span.name == "count sales"]
    assert parent_of(count, spans) == "nightly job"


def test_enabling_again_takes_the_new_providers(lake: Lake, collector: Collector) -> None:
    from opentelemetry.sdk.metrics import MeterProvider

    reader = InMemoryMetricReader()
    observe(collector)
    lakebed.telemetry.enable(collector.tracers, MeterProvider([reader]))

    lake.repository.create("sales", SALES)

    collector.flush()
    assert collector.points("lakebed.store.operations") == []
    assert reader.get_metrics_data() is not None


def test_the_instrumentor_is_what_the_entry_point_names(lake: Lake, collector: Collector) -> None:
    instrumentor = lakebed.telemetry.LakebedInstrumentor()
    instrumentor.instrument(
        tracer_provider=collector.tracers, meter_provider=collector.meters, skip_dep_check=True
    )
    lake.repository.create("sales", SALES)
    instrumentor.uninstrument()
    lake.repository.create("more", SALES)

    collector.flush()
    assert [span.name for span in collector.spans()] == ["create sales"]


def test_the_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)

    with pytest.raises(MissingDependencyError, match=r"lakebed\[telemetry\]") as caught:
        lakebed.telemetry.enable()

    assert caught.value.extra == "telemetry"


def test_the_sdk_is_not_needed(tmp_path: Path) -> None:
    """The API alone, without a provider, swallows everything."""
    program = (
        "import sys, lakebed, lakebed.telemetry\n"
        "lakebed.telemetry.enable()\n"
        f"lake = lakebed.open_repository({str(tmp_path)!r})\n"
        f"lake.write('d', [{{'n': 1}}])\n"
        "assert lake.open('d').count() == 1\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry.sdk')]\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr


def test_nothing_of_a_condition_or_a_row_is_sent(lake: Lake, collector: Collector) -> None:
    secret = uuid.uuid4().hex
    sales = lake.repository.create("sales", SALES)
    sales.append([{"id": 1, "shop": secret, "amount": 5}])
    observe(collector)

    sales.where(f"shop = '{secret}'").arrow()
    sales.erase({"shop": secret}, reason="asked for")

    collector.flush()
    assert collector.bodies
    assert [path for path, body in collector.bodies if secret.encode() in body] == []

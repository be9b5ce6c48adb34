"""Requests of Spark's workers: each task counts its own, and reports them to this process.

The reports are those of accumulators, which a session of Spark Connect lacks: its tasks are not
counted. A worker imports nothing of OpenTelemetry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.spark.few import Task
    from lakebed.telemetry.watching import Call, RequestKind, SentRequest

OnWorkerReport = Callable[..., None]
"""Callback that receives the kind, the number of requests, and the bytes read and written."""


class WorkerCounts:
    """The observer of one task, in its worker."""

    def __init__(self) -> None:
        self.requests: Counter[RequestKind] = Counter()
        self.read_bytes: Counter[RequestKind] = Counter()
        self.written_bytes: Counter[RequestKind] = Counter()

    def begin(self, call: Call) -> None:
        """Ignore calls: tasks have none of their own."""

    def end(self, call: Call) -> None:
        """Ignore calls."""

    def request(self, request: SentRequest, _call: Call | None) -> None:
        """Count requests."""
        self.requests[request.kind] += request.count
        self.read_bytes[request.kind] += request.read_bytes
        self.written_bytes[request.kind] += request.written_bytes

    def send(self, report: OnWorkerReport) -> None:
        """Report the requests of each kind."""
        for kind, count in self.requests.items():
            report(kind, count, self.read_bytes[kind], self.written_bytes[kind])


def counting(task: Task, report: OnWorkerReport) -> Task:
    """Return a task that does the same, and reports its requests at its end."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # In a worker; this module is imported there without what it imports here.
        from lakebed.telemetry.watching import watching_stores

        counts = WorkerCounts()
        try:
            with watching_stores(counts):
                yield from task(batches)
        finally:
            counts.send(report)

    return run

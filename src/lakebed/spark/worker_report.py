"""Reports of Spark's workers: the Python that they run, and their access to a store.

A plain Python function collects the report, since that needs only Spark on the workers. So workers
report even if Lakebed cannot run there.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.common.redaction import StorageOptions
from lakebed.errors import AccessDeniedError, InvalidInputError, LakebedError, ReadOnlyError
from lakebed.spark.session import get_session, is_classic
from lakebed.spark.travel import find_worker_error, loading
from lakebed.store import Store, open_store
from lakebed.store.at_once import at_once
from lakebed.store.base import delete_or_leave, location_exists

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Kerberos refuses clocks that are further apart; object stores allow 15 minutes.
MOST_CLOCK_S = 300.0

_FOLDER = "lakebed-doctor"
_UNKNOWN_HOST = "?"
_TASKS_AN_EXECUTOR = 2  # Spark assigns them in turn, if executors are free
_TASKS = 32  # if the executors are unknown
_SINGLE_TASKS = 16
_HELD_S = 0.1  # a task occupies its executor, so that the next tasks use others
_ROUNDS = 5
_FAILED_ON = re.compile(r"\(TID \d+\) \((\S+) executor \S+\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """Report of one Python of Spark's workers.

    Attributes:
        host: Host of the worker; `?` where Spark does not report it.
        executable: Path of the Python; None if it could not answer.
        python: Release of the Python; None if it could not answer.
        lakebed: Release of Lakebed that it would import; None if there is none.
        pyarrow: Release of pyarrow that it would import; None if there is none.
        clock_s: Least difference between its clock and that of this process, in seconds: 0.0 if the
            duration of the request may explain it; None if it could not answer.
        store: Access to the location, `reads and writes` or `reads`; None if it was not tested, or
            failed.
        problems: Reasons why Lakebed does not work there, in full sentences.
    """

    host: str
    executable: str | None = None
    python: str | None = None
    lakebed: str | None = None
    pyarrow: str | None = None
    clock_s: float | None = None
    store: str | None = None
    problems: tuple[str, ...] = ()


def look_at_workers(
    spark: SparkSession | None = None,
    location: str | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
) -> tuple[WorkerReport, ...]:
    """Check which Python the workers of a session run, and whether they reach a store.

    Args:
        spark: The session, also of Spark Connect; None for the running one, else a local one.
        location: Location of the store, as for `lakebed.open_repository`; None to test none. This
            process and each worker write a small object there, which the others read, and remove
            it.
        storage_options: Options of the store, as for `lakebed.open_repository`.
        timeout_s: Seconds to wait for a cluster that runs no task.

    Returns:
        A report for each Python of each host that has executors now, ordered by name. Spark chooses
        where tasks run: a classic session knows its hosts, and a host on which no task has run is
        reported with that problem.

    Raises:
        InvalidInputError: Only this process can access the store, such as one in memory.
        StorageError: This process cannot reach the store.
        MissingDependencyError: pyspark, Java, or a client of the store is not installed.

    Cost:
        Some Spark jobs of short tasks, a second or two; about four requests to the store per task.
    """
    session = get_session(spark)
    with _scratch(location, storage_options or {}) as scratch:
        return _Inspection(session, scratch, timeout_s).reports()


@dataclass(frozen=True, slots=True)
class _Scratch:
    """A few objects in a store, by which workers and this process test whether they share it.

    Attributes:
        store: The store that holds the objects.
        folder: Start of their keys.
        is_writable: True if this process may write.
    """

    store: Store
    folder: str
    is_writable: bool

    @property
    def key(self) -> str:
        """Return the key of the object of this process."""
        return f"{self.folder}/driver"

    def try_from_worker(self) -> dict[str, str]:
        """Read and write, and report the outcome. Runs in a task."""
        try:
            if not self.is_writable:
                next(self.store.list(""), None)
                return {"store": "reads"}
            if not any(info.key == self.key for info in self.store.list(self.folder)):
                return {
                    "problem": f"It cannot read an object that this process wrote to {self.store.uri}: "
                    "a path must be the same mount on all hosts."
                }
            key = f"{self.folder}/{uuid.uuid4().hex}"
            self.store.put(key, self.store.get(self.key).data)
        except LakebedError as exc:
            return {"problem": str(exc)}
        return {"store": "reads and writes", "key": key}

    def sees(self, key: str) -> bool:
        """Return whether this process can read an object that a worker has written."""
        try:
            return self.store.get(key).data == self.store.get(self.key).data
        except LakebedError:
            return False


@contextlib.contextmanager
def _scratch(location: str | None, storage_options: Mapping[str, str]) -> Iterator[_Scratch | None]:
    if location is None:
        yield None
        return
    store = open_store(location, storage_options=StorageOptions(storage_options))
    if not store.is_shared:
        raise InvalidInputError(
            f"Workers cannot access {store.uri}, which is in the memory of this process.",
            hint="Name a directory that all hosts mount, or an object store.",
        )
    if not location_exists(store):
        raise InvalidInputError(
            f"The directory {store.uri} does not exist, so workers cannot test it.",
            hint="Create it, or leave it out.",
        )
    folder = f"{_FOLDER}/{uuid.uuid4().hex}"
    scratch = _Scratch(store, folder, is_writable=True)
    try:
        store.put(scratch.key, uuid.uuid4().hex.encode())
    except (AccessDeniedError, ReadOnlyError):
        scratch = _Scratch(store, folder, is_writable=False)
    try:
        yield scratch
    finally:
        if scratch.is_writable:
            with contextlib.suppress(LakebedError):
                delete_or_leave(store, [info.key for info in store.list(folder)])


@dataclass(frozen=True, slots=True)
class _Answer:
    """Report of a task.

    Attributes:
        report: Result of the function of `_asking`.
        clock_s: Difference of the clocks, as in `WorkerReport`.
    """

    report: Mapping[str, Any]
    clock_s: float

    @property
    def python(self) -> tuple[str, str]:
        return self.report["host"], self.report["executable"]


class _Inspection:
    """Requests of reports until no new worker answers."""

    def __init__(self, spark: SparkSession, scratch: _Scratch | None, timeout_s: float) -> None:
        self._spark = spark
        self._scratch = scratch
        self._timeout_s = timeout_s
        self._answers: dict[tuple[str, str], _Answer] = {}
        self._directories: set[tuple[str, str]] = set()  # of executors, with their hosts
        self._problems: dict[str, str] = {}  # by host, for hosts that could not answer

    def reports(self) -> tuple[WorkerReport, ...]:
        """Return all reports."""
        for _ in range(_ROUNDS):
            known = self._known_count
            self._ask_all()
            is_new = self._known_count > known
            if not is_new and not self._missing_hosts():
                break
            if not is_new and not self._answers:
                break  # no worker answers at all
        reports = [self._report(answer) for answer in self._answers.values()]
        reports += [
            WorkerReport(host=host, problems=(problem,)) for host, problem in self._problems.items()
        ]
        missing = self._missing_hosts()
        if missing:
            reports.append(WorkerReport(host=_UNKNOWN_HOST, problems=(missing,)))
        return tuple(sorted(reports, key=lambda one: (one.host, one.executable or "")))

    @property
    def _known_count(self) -> int:
        return len(self._answers) + len(self._problems)

    def _missing_hosts(self) -> str:
        """Return a problem if Spark has more hosts than have reported; empty otherwise."""
        # Compared by number: Spark may use another name of a host than the host itself, and a host
        # may have several names.
        executors = _executor_hosts(self._spark)
        count = len(set(executors))
        reported = {host for host, _ in self._answers} | set(self._problems)
        if len(reported) >= count or len(self._directories) >= len(executors):
            return ""
        return (
            f"Spark has executors on {count} hosts, but has run tasks on only {len(reported)} of them; "
            "the others may be busy."
        )

    def _ask_all(self) -> None:
        """Run one job, which reaches all hosts; if a host fails it, run jobs of one task."""
        count = _TASKS
        if is_classic(self._spark):
            count = _TASKS_AN_EXECUTOR * max(1, len(_executor_hosts(self._spark)))
        if not self._ask(count):
            list(at_once(lambda _: self._ask(1), range(min(count, _SINGLE_TASKS)), 4))

    def _ask(self, count: int) -> bool:
        """Collect the answers of some tasks; return whether the job has finished."""
        from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

        ask = F.udf(_asking(self._scratch), "string", useArrow=False).asNondeterministic()
        frame = self._spark.range(0, count, 1, count).select(ask("id").alias("report"))
        began = time.time()
        try:
            with _limited(self._spark, self._timeout_s) as is_over:
                rows = frame.collect()
        except Exception as exc:
            host, problem = self._failure(exc, is_over=is_over.is_set())
            if not problem:
                raise
            self._problems[host] = problem
            return False
        ended = time.time()
        for row in rows:
            report = json.loads(row.report)
            clock_s = max(0.0, began - report["now"], report["now"] - ended)
            answer = _Answer(report, clock_s)
            self._answers.setdefault(answer.python, answer)
            self._directories.add((report["host"], report["directory"]))
        return True

    def _failure(self, exc: BaseException, *, is_over: bool) -> tuple[str, str]:
        if is_over:
            return _UNKNOWN_HOST, (
                f"No task finished within {self._timeout_s:.0f} s; the cluster may have no "
                "free executors."
            )
        error = find_worker_error(exc)
        where, hosts = _FAILED_ON.search(str(exc)), set(_executor_hosts(self._spark))
        host = where[1] if where else hosts.pop() if len(hosts) == 1 else _UNKNOWN_HOST
        return host, "" if error is None else str(error)

    def _report(self, answer: _Answer) -> WorkerReport:
        report, problems = answer.report, list(answer.report["problems"])
        store, key = report.get("store"), report.get("key")
        if key is not None and self._scratch is not None and not self._scratch.sees(key):
            problems.append(
                f"This process cannot read an object that it wrote to {self._scratch.store.uri}."
            )
            store = None
        if answer.clock_s > MOST_CLOCK_S:
            problems.append(
                f"Its clock differs by {answer.clock_s:.0f} s from that of this process."
            )
        return WorkerReport(
            host=report["host"],
            executable=report["executable"],
            python=report["python"],
            lakebed=report["lakebed"],
            pyarrow=report["pyarrow"],
            clock_s=round(answer.clock_s, 1),
            store=store,
            problems=tuple(problems),
        )


def _asking(scratch: _Scratch | None) -> Callable[[int], str]:
    """Return the function of the tasks, which returns a report as JSON."""
    probe = None if scratch is None else scratch.try_from_worker
    load, held_s = loading(probe), _HELD_S

    # It travels by its code: it must name nothing of this module, and nothing that is not Python's.
    def ask(number: int) -> str:
        import json
        import os
        import platform
        import sys
        import time

        report: dict[str, Any] = {
            "task": number,
            "now": time.time(),
            "host": platform.node(),
            "directory": os.getcwd(),  # noqa: PTH109 - as little as can be loaded
            "executable": sys.executable,
            "python": platform.python_version(),
            "problems": [],
        }
        for name in ("lakebed", "pyarrow"):
            try:
                report[name] = __import__(name).__version__
            except ImportError:
                report[name] = None
        try:
            probe = load()
            tried = {} if probe is None else probe()
            report["problems"] += [tried.pop("problem")] if "problem" in tried else []
            report.update(tried)
        except ImportError as exc:
            report["problems"].append(str(exc))
        time.sleep(held_s)
        return json.dumps(report)

    return ask


@contextlib.contextmanager
def _limited(spark: SparkSession, timeout_s: float) -> Iterator[threading.Event]:
    """Cancel the jobs of this thread after a time limit, and set an event."""
    is_over, tag = threading.Event(), f"lakebed-doctor-{uuid.uuid4().hex}"

    def end() -> None:
        is_over.set()
        spark.interruptTag(tag)

    timer = threading.Timer(timeout_s, end)
    spark.addTag(tag)
    timer.start()
    try:
        yield is_over
    finally:
        timer.cancel()
        spark.removeTag(tag)


def _executor_hosts(spark: SparkSession) -> Sequence[str]:
    """Return the host of each executor by Spark's name for it; none if they are unknown.

    They are unknown on Spark Connect, and if the driver does the work of executors.
    """
    if not is_classic(spark):
        return ()
    context: Any = spark.sparkContext
    try:
        listed = context._jsc.sc().statusStore().executorList(True)  # noqa: FBT003 - of Spark
        executors = [listed.apply(number) for number in range(listed.size())]
        return [
            executor.hostPort().rpartition(":")[0]
            for executor in executors
            if executor.id() != "driver"
        ]
    except Exception:  # noqa: BLE001 - internals of Spark, which each release may change
        return ()

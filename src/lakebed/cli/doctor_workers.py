"""What `lakebed doctor --spark` tells of Spark's workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from lakebed.cli.doctor_lines import DoctorLine, doctor_line
from lakebed.cli.import_verb import start_spark
from lakebed.cli.output import Output
from lakebed.cli.shared_options import AttachedOption, Verb
from lakebed.errors import LakebedError
from lakebed.spark.worker_report import WorkerReport, look_at_workers


def spark_option(function: Verb) -> Verb:
    """Add `--spark`, which a master may follow."""
    return click.option(
        "--spark",
        "master",
        cls=AttachedOption,
        metavar="[=MASTER]",
        help="Ask Spark's workers, too: those of MASTER, such as spark://host:7077, yarn or "
        "sc://host, or of the session that the environment names; without one, of a local session.",
    )(function)


def worker_findings(
    output: Output, master: str, url: str | None, storage_options: Mapping[str, str]
) -> Iterator[DoctorLine]:
    """Yield what there is to tell of the session, and of each Python of its workers.

    Args:
        output: Where progress is shown.
        master: Of the cluster; empty for the session that the environment names.
        url: Of the store that the workers are to reach; None for none.
        storage_options: Of the store.
    """
    try:
        session = start_spark(output, master or None)
        yield doctor_line("spark", "ok", session.version, _place(session))
        with output.progress("Asking Spark's workers"):
            reports = look_at_workers(session, url, storage_options=storage_options)
    except LakebedError as error:
        yield doctor_line("workers", "failed", None, str(error))
        return
    for report in reports:
        status = "failed" if report.problems else "ok"
        detail = " ".join([_facts(report), *report.problems]).strip()
        yield doctor_line("worker", status, report.host, detail)


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

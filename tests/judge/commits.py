"""One append after the other, each with one fault of the put that commits it.

From `tests/`: `python -m judge.commits of SYSTEM`; `make judge` does it, too. Only of systems that commit
on S3: their commit is the last conditional put of an append. `append GIVEN` is the writer, in the
environment of its system: it appends once for each line that it reads.
"""

from __future__ import annotations

import collections
import importlib
import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from judge.faults import FAULTS, Fault, Kind, Plan
from judge.proxy import BUCKET, Proxy, proxied, tell
from judge.steps import Step
from judge.trial import python_of

SYSTEMS = ("lakebed", "lakebed_tree", "deltalake", "lance")
_COMMITS = ("dataset-metadata", "_delta_log/", "_versions/")  # in the names of what commits


def append(given: dict[str, Any]) -> None:
    """Append three rows for each line of the input, and print what the writer is told."""
    table = importlib.import_module(f"judge.adapters.{given['system']}").Table(given)
    table.create()
    for number, _ in enumerate(sys.stdin):
        name = f"w0-{number}"
        step = Step(name, "append", "a", tuple(f"{name}-{key}" for key in range(3)))
        told, error = "done", ""
        try:
            table.do(table.open(), step)
        except BaseException as exc:  # noqa: BLE001 - each library has its own, panics among them
            told, error = table.outcome_of(exc), f"{type(exc).__name__}: {exc}"[:200]
        print(json.dumps([told, error]), flush=True)  # noqa: T201 - how it answers
    counts = collections.Counter(op for _, op in table.rows())
    print(json.dumps(counts), flush=True)  # noqa: T201


def commit_faults(system: str) -> dict[str, Any]:
    """Return what each fault of a commit comes to: what was told, and how often the rows are there."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from s3_services import served

    with served(DomainDispatcherApplication(create_backend_app)) as service:
        host, _, port = service.removeprefix("http://").partition(":")
        with proxied(host, int(port)) as (endpoint, proxy):
            made = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
            urllib.request.urlopen(made, timeout=60).close()
            return _asked(system, endpoint, proxy)


class _Writer:
    """A process that appends when it is asked to."""

    def __init__(self, system: str, endpoint: str, proxy: Proxy) -> None:
        given = {"system": system, "endpoint": endpoint, "location": f"s3://{BUCKET}/{system}"}
        self._endpoint, self._proxy = endpoint, proxy
        self.process = subprocess.Popen(
            [str(python_of(system)), "-m", "judge.commits", "append", json.dumps(given)],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def append(self, at: dict[tuple[Kind, int], Fault]) -> tuple[list[str], Plan]:
        """Let it append with some faults; return what it was told, and the plan with its counts."""
        assert self.process.stdin is not None
        plan = self._proxy.plan = Plan(0, at=at)
        self._proxy.seen.clear()
        self.process.stdin.write("append\n")
        self.process.stdin.flush()
        told = self._read()
        tell(self._endpoint, "settle")
        return told, plan

    def end(self) -> dict[str, int]:
        """Return the number of rows of each append that are there."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return dict(self._read())

    def _read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


def _asked(system: str, endpoint: str, proxy: Proxy) -> dict[str, Any]:
    writer = _Writer(system, endpoint, proxy)
    with writer.process:
        writer.append({})  # it asks more than the others, such as whether conditions hold
        _, calm = writer.append({})
        commit = (Kind.CONDITIONAL_PUT, calm.asked[Kind.CONDITIONAL_PUT])
        told = []
        for fault in FAULTS[Kind.CONDITIONAL_PUT]:
            answer, _ = writer.append({commit: fault})
            hit = [target for _, target, met in proxy.seen if met is fault]
            if not any(mark in target for target in hit for mark in _COMMITS):
                message = f"{fault} met {hit} of {system}, which is not its commit"
                raise RuntimeError(message)
            told.append((fault, *answer))
        counts = writer.end()
    rows = {fault: counts.get(f"w0-{number}", 0) for number, (fault, *_) in enumerate(told, 2)}
    return {str(fault): [outcome, rows[fault], error] for fault, outcome, error in told}


def _main() -> None:
    action, text = sys.argv[1:]
    if action == "append":
        append(json.loads(text))
    else:
        print(json.dumps(commit_faults(text), indent=1))  # noqa: T201


if __name__ == "__main__":
    _main()

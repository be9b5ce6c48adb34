"""plateau and kartothek in processes of their own, and a lake that Lakebed has written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import lakebed

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TIMEOUT_S = 120

collect_ignore = ["plateau_worker.py", "kartothek_worker.py"]  # they run where those are

sys.path.insert(0, str(HERE))  # the modules that tests and worker share

import wire  # noqa: E402 - after the path
from oracles import Trial, trial_of  # noqa: E402 - same
from oracles import table as oracle_table  # noqa: E402 - same
from specimens import SPECIMENS, Specimen  # noqa: E402 - same


class OtherError(Exception):
    """An error that the other library has raised; `kind` is the name of its class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Other:
    """Calls of a worker as methods, whose first argument is a directory."""

    Error = OtherError

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def call(self, verb: str, /, **arguments: Any) -> Any:
        # A worker that hangs is killed, which ends the wait for its answer.
        timer = threading.Timer(TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            request = wire.to_json({"call": verb, "arguments": arguments})
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        assert line, f"the other process ended in {verb}({arguments})"
        answer = wire.from_json(json.loads(line))
        if "error" in answer:
            raise OtherError(answer["error"], answer["message"])
        return answer["result"]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(root: Path, dataset: str, **arguments: Any) -> Any:
            return self.call(name, location=f"hfs://{root}", name=dataset, **arguments)

        return call

    def ids(self, root: Path, dataset: str, predicates: Any = None) -> list[int]:
        """Return the ids of the rows that match, sorted."""
        rows = self.read(root, dataset, predicates=predicates, columns=["id"])
        return sorted(row["id"] for row in rows)


@contextmanager
def other(name: str, version: str, log: Path) -> Iterator[Other]:
    """Start the worker of a library in the environment that has it."""
    python = ROOT / f".venv-{name}" / "bin" / "python"
    if not python.exists():
        pytest.fail(f"the environment {python.parent.parent} is missing: make compat-env")
    with log.open("w") as errors:
        process = subprocess.Popen(
            [python, HERE / f"{name}_worker.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        with process:
            worker = Other(process)
            try:
                assert worker.call("version") == version, "run: make compat-env"
            except (AssertionError, BrokenPipeError) as error:
                process.kill()
                pytest.fail(f"{name} does not start ({error}):\n{log.read_text()}")
            yield worker
            process.stdin.close()


@pytest.fixture(scope="session")
def plateau(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Other]:
    with other("plateau", "4.6.2", tmp_path_factory.mktemp("plateau") / "stderr") as worker:
        yield worker


@pytest.fixture(scope="session")
def kartothek(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Other]:
    reason = ROOT / ".venv-kartothek" / "without"
    if reason.exists():
        pytest.skip(reason.read_text().strip())
    with other("kartothek", "5.3.0", tmp_path_factory.mktemp("kartothek") / "stderr") as worker:
        yield worker


@pytest.fixture
def repository(tmp_path: Path) -> lakebed.Repository:
    return lakebed.open_repository(tmp_path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of what was tried, where it is asked for: see `make compat`."""
    if not os.environ.get("LAKEBED_ORACLES"):
        return
    counts: dict[Trial, dict[str, int]] = {}
    outcomes = {"error": "failed", "failed": "failed", "passed": "passed", "skipped": "skipped"}
    for name, outcome in outcomes.items():
        for report in terminalreporter.stats.get(name, ()):
            trial = trial_of(report.nodeid.removeprefix("tests/"))
            if trial is not None:
                own = counts.setdefault(trial, {})
                own[outcome] = own.get(outcome, 0) + 1
    terminalreporter.section("libraries that Lakebed shares a format with")
    terminalreporter.write_line(oracle_table(counts))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    repository = lakebed.open_repository(root)
    for specimen in SPECIMENS:
        specimen.create(repository)
    return root


@pytest.fixture(params=SPECIMENS, ids=lambda specimen: specimen.name)
def specimen(request: pytest.FixtureRequest) -> Specimen:
    return request.param

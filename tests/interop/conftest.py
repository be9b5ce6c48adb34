"""plateau in a process of its own, and a lake that Lakebed has written."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lakebed

HERE = Path(__file__).parent
PYTHON = HERE.parent.parent / ".venv-plateau" / "bin" / "python"
TIMEOUT_S = 120

collect_ignore = ["plateau_worker.py"]  # runs where plateau is

sys.path.insert(0, str(HERE))  # the modules that tests and worker share

import wire  # noqa: E402 - after the path


class PlateauError(Exception):
    """An error that plateau has raised; `kind` is the name of its class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Plateau:
    """Calls of `plateau_worker.py` as methods, whose first argument is a directory."""

    Error = PlateauError

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
        assert line, f"plateau's process ended in {verb}({arguments})"
        answer = wire.from_json(json.loads(line))
        if "error" in answer:
            raise PlateauError(answer["error"], answer["message"])
        return answer["result"]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(root: Path, dataset: str, **arguments: Any) -> Any:
            return self.call(name, location=f"hfs://{root}", name=dataset, **arguments)

        return call

    def ids(self, root: Path, dataset: str, predicates: Any = None) -> list[int]:
        """Return the ids of the rows that match, sorted."""
        rows = self.read(root, dataset, predicates=predicates, columns=["id"])
        return sorted(row["id"] for row in rows)


@pytest.fixture(scope="session")
def plateau(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plateau]:
    if not PYTHON.exists():
        pytest.fail(f"plateau's environment {PYTHON.parent.parent} is missing: make interop-env")
    log = tmp_path_factory.mktemp("plateau") / "stderr"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [PYTHON, HERE / "plateau_worker.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        with process:
            worker = Plateau(process)
            try:
                assert worker.call("version") == "4.6.2", "run: make interop-env"
            except (AssertionError, BrokenPipeError) as error:
                process.kill()
                pytest.fail(f"plateau does not start ({error}):\n{log.read_text()}")
            yield worker
            process.stdin.close()


@pytest.fixture
def repository(tmp_path: Path) -> lakebed.Repository:
    return lakebed.open_repository(tmp_path)

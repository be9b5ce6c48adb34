"""Engines of an environment of their own (make doors-env): Spark, DuckDB and Daft in one process."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

ROOT = Path(__file__).parents[1]
PYTHON = ROOT / ".venv-doors" / "bin" / "python"
TIMEOUT_S = 600
NEEDS_ENGINES = pytest.mark.skipif(
    not PYTHON.exists(), reason="make doors-env installs the engines"
)


class Peers:
    """The process that reads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [PYTHON, ROOT / "tests" / "publication" / "peer_worker.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ask(self, **question: object) -> dict:
        timer = threading.Timer(TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            while not (line := self._process.stdout.readline()).startswith("{"):
                assert line, (self._folder / "log").read_text()[-2000:]
        finally:
            timer.cancel()
        return json.loads(line)

    def read(self, engine: str, dataset, where: str = "true") -> pa.Table:
        return self.read_at(engine, dataset.uri.removeprefix("file://"), where)

    def read_at(self, engine: str, root: str, where: str = "true", **more: object) -> pa.Table:
        return self._rows(engine=engine, root=root, where=where, **more)

    def rows_after(self, folder: Path, statement: str, table: str) -> pa.Table:
        """Return the rows of a table of Delta after a statement, or without one those of it."""
        return self._rows(rows_after=(str(folder), statement, table))

    def run(self, engine: str, url: str, token: str, text: str) -> pa.Table:
        """Run a statement of Spark or DuckDB on a served lake, and return its rows."""
        return self._rows(statement=(engine, url, token, text))

    def run_on_flights(self, format_: str, folder: Path, statements: Sequence[str]) -> pa.Table:
        """Run statements on tables of Delta or Iceberg, and return the rows of the last one.

        The folder has the first rows, in `flights.parquet`.
        """
        return self._rows(on_flights=(format_, str(folder), statements))

    def _rows(self, **question: object) -> pa.Table:
        out = self._folder / "rows.arrow"
        answer = self.ask(out=str(out), **question)
        assert "error" not in answer, f"{question}: {answer}"
        with pa.memory_map(str(out)) as source:
            return pa.ipc.open_file(source).read_all()

    def close(self) -> None:
        self._process.communicate()
        self._log.close()


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    """Start the process of other engines, which takes long: one for each module."""
    peers = Peers(tmp_path_factory.mktemp("peers"))
    yield peers
    peers.close()

"""Spark Connect served by this package: each session has the lake as a catalog."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click.testing
import psutil
import pyarrow as pa
import pytest

import lakebed
from lakebed.cli.main import main

TOKEN = "a-long-secret"

needs_spark = [
    pytest.mark.spark,
    pytest.mark.classic("it starts a server of its own"),
    pytest.mark.since_spark("4.3", "a server of Spark Connect was tried with no earlier release"),
    pytest.mark.thorough,
]


class Server:
    """A server of a lake, in a process of its own."""

    def __init__(self, lake: Path) -> None:
        self.lake = lake
        arguments = ("serve", str(lake), "--spark-connect", "--port", "0", "-o", "jsonl")
        path = os.pathsep.join(filter(None, sys.path))
        self.environment = {**os.environ, "PYTHONPATH": path}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lakebed", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environment, "LAKEBED_SERVE_TOKEN": TOKEN},
        )
        assert self.process.stdout is not None
        self.facts = json.loads(self.process.stdout.readline())
        self.children = psutil.Process(self.process.pid).children(recursive=True)

    def ask(self) -> dict[str, object]:
        """Return what a client has found."""
        client = Path(__file__).with_name("connect_client.py")
        url = self.facts["url"]
        done = subprocess.run(
            [sys.executable, str(client), f"{url}/;token={TOKEN}", str(self.lake)],
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
            env=self.environment,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("served")
    rows = pa.table({"n": list(range(9)), "part": [n % 3 for n in range(9)]})
    lakebed.open_repository(directory).write("numbers", rows, partition_by="part")
    server = Server(directory)
    with server.process:  # closes its pipes
        yield server
        server.process.kill()


@pytest.fixture(scope="module")
def found(server: Server) -> dict[str, object]:
    return server.ask()


class TestServed:
    pytestmark = needs_spark

    def test_address_is_shown(self, server: Server):
        assert server.facts["url"].startswith("sc://localhost:")
        assert server.facts["catalog"] == "lake"

    def test_session_has_the_catalog_from_its_first_call(self, found: dict[str, object]):
        assert found["current"] == "lake"
        assert found["tables"] == [["", "numbers", "False"]]

    def test_rows_are_read_and_changed(self, found: dict[str, object]):
        assert found["rows"] == [["3", "12"]]
        assert found["insert"] == found["create"] == found["update"] == found["merge"] == []
        assert found["created"] == [["0", "3"], ["1", "3"], ["2", "3"], ["4", "1"]]
        assert found["now"] == [["9", str(sum(range(10)) - 7)]]
        assert found["before"] == [["9", "36"]]
        assert found["saved"] == 5

    def test_errors_are_text_without_marks(self, found: dict[str, object]):
        assert "VersionNotFoundError: Dataset 'numbers' has no version 999." in found["error"]
        assert "Write DROP TABLE … PURGE" in found["hint"]
        assert "TABLE_OR_VIEW_NOT_FOUND" in found["missing"]
        assert "lakebed-error" not in json.dumps(found)

    def test_a_later_session_has_the_catalog(self, found: dict[str, object]):
        assert found["later"] == [["5"]]

    def test_lakebed_works_beside_the_client_alone(self, found: dict[str, object]):
        assert found["lakebed"] == {
            "read": [7, 7],
            "attached": {"of_thin": 2},
            "sql": 3,
            "format": 7,
            "appended": 12,
            "upserted": [[0, 0], [1, 2], [2, 4], [3, 0], [4, 0], [5, 0], [6, 0], [7, 0]],
            "catalog": found["lakebed"]["catalog"],
        }
        assert "lakebed serve" in found["lakebed"]["catalog"]

    def test_threads_of_statements_end(self, server: Server, found: dict[str, object]):
        process = psutil.Process(server.process.pid)
        deadline = time.monotonic() + 90

        while process.num_threads() > 15 and time.monotonic() < deadline:
            time.sleep(1)

        assert process.num_threads() <= 15  # a statement has one, and there were more than 40

    def test_wrong_token_is_refused(self, server: Server):
        text = (
            "from pyspark.sql import SparkSession\n"
            f"SparkSession.builder.remote('{server.facts['url']}/;token=other').getOrCreate()"
            ".sql('SELECT 1').collect()\n"  # the first call that reaches the server
        )
        done = subprocess.run(
            [sys.executable, "-c", text],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env=server.environment,
        )

        assert done.returncode != 0
        assert "UNAUTHENTICATED" in done.stderr

    def test_token_is_on_no_command_line(self, server: Server):
        running = [one for one in server.children if one.status() != psutil.STATUS_ZOMBIE]
        lines = [" ".join(process.cmdline()) for process in running]

        assert any("SparkConnectPlugin" in line for line in lines)
        assert not any(TOKEN in line for line in lines)

    def test_interrupt_ends_server_and_driver(self, server: Server, found: dict[str, object]):
        server.process.send_signal(signal.SIGINT)
        _, errors = server.process.communicate(timeout=120)

        assert server.process.returncode == 0
        assert "Traceback" not in errors
        _, alive = psutil.wait_procs(server.children, timeout=60)
        assert not alive


def serve(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(main, ["serve", *arguments])


@pytest.fixture
def lake(tmp_path: Path) -> str:
    lakebed.open_repository(tmp_path).write("numbers", pa.table({"n": [1]}))
    return str(tmp_path)


def test_other_machines_need_a_token(lake: str):
    refused = serve(lake, "--spark-connect", "--host", "0.0.0.0")

    assert refused.exit_code == 2
    assert "could run any code" in refused.stderr
    assert "LAKEBED_SERVE_TOKEN" in refused.stderr


def test_port_that_is_taken_is_refused(lake: str):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        refused = serve(lake, "--spark-connect", "--port", port)

    assert refused.exit_code == 2
    assert f"Port {port} of '127.0.0.1' cannot be used" in refused.stderr


def test_missing_pyspark_names_the_extra(lake: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "py4j", None)

    refused = serve(lake, "--spark-connect")

    assert refused.exit_code == 8
    assert "lakebed[spark]" in refused.stderr


def test_another_server_in_the_environment_is_refused(lake: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")

    refused = serve(lake, "--spark-connect")

    assert refused.exit_code == 2
    assert "sc://elsewhere" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--spark-connect", "--iceberg"), "--iceberg is of another server"),
        (("--spark-connect", "--archive", "memory://a"), "--archive is of another server"),
        (("--spark-connect", "--catalog", "a b"), "catalog is 'a b'"),
        (("--spark-connect", "--catalog", "spark_catalog"), "Spark has a catalog"),
        (("--catalog", "lake"), "give --spark-connect"),
    ],
)
def test_options_that_do_not_fit_are_refused(lake: str, arguments: tuple[str, ...], text: str):
    refused = serve(lake, *arguments)

    assert refused.exit_code == 2
    assert text in refused.stderr


def test_dataset_is_no_catalog(lake: str):
    refused = serve(f"{lake}/numbers", "--spark-connect")

    assert refused.exit_code == 2
    assert "its table is lake.numbers" in refused.stderr

"""A Thrift metastore, processes that use it, and datasets to publish."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.spark.java import ensure_java

_OPENED = "java.lang java.lang.reflect java.net java.nio java.util java.util.concurrent".split()


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a Hive metastore from the jars of pyspark, on Derby.

    It takes no address to listen on, only a port: so it lives no longer than the tests need it.
    """
    for _ in range(3):  # before it listens, somebody else may take its port
        home = tmp_path_factory.mktemp("metastore")
        process, port = _start(home)
        if _is_up(process, port):
            break
    else:
        pytest.fail(f"the metastore does not answer: {(home / 'log').read_text()[-3000:]}")
    try:
        yield f"thrift://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def _start(home: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a metastore and say on which port it will listen."""
    import pyspark

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={home}/db;create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"{home}/warehouse",
    }
    command = [
        str(ensure_java().path / "bin" / "java"),
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Dhive.async.log.enabled=false",
        f"-Dderby.system.home={home}",
        *(f"--add-opens=java.base/{one}=ALL-UNNAMED" for one in _OPENED),
        "-cp",
        str(Path(pyspark.__file__).parent / "jars" / "*"),
        "org.apache.hadoop.hive.metastore.HiveMetaStore",
        "-p",
        str(port),
    ]
    for name, value in settings.items():
        command += ["--hiveconf", f"{name}={value}"]
    with (home / "log").open("wb") as log:
        return subprocess.Popen(command, cwd=home, stdout=log, stderr=log), port


def _is_up(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until it answers; False if it has ended, or was ended because it never would."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return False
        with socket.socket() as client:
            client.settimeout(1)
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.1)
    process.kill()
    process.wait(timeout=30)
    return False


class HiveWorker:
    """A process with a session of the metastore."""

    def __init__(self, metastore: str, errors: Path) -> None:
        self._errors = errors.open("wb")
        # A path of this checkout must not be needed: the package is installed.
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("hive_worker.py")), metastore],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=dict(os.environ),
            text=True,
        )
        self._path = errors
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._path.read_text()[-3000:]
        return line

    def begin(self, do: str, **given: Any) -> None:
        """Ask for something without waiting for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **given}) + "\n")
        self._process.stdin.flush()

    def end(self) -> Any:
        """Wait for what was asked for."""
        told = json.loads(self._line())
        assert "error" not in told, f"{told['error']}: {told['message']}"
        return told["answer"]

    def __call__(self, do: str, **given: Any) -> Any:
        self.begin(do, **given)
        return self.end()

    def sql(self, text: str) -> list[list[str]]:
        return self("sql", text=text)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


@pytest.fixture(scope="session")
def start_worker(
    metastore: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], HiveWorker]]:
    """Start further processes that use the metastore."""
    started: list[HiveWorker] = []

    def start() -> HiveWorker:
        errors = tmp_path_factory.mktemp("worker") / "stderr"
        started.append(HiveWorker(metastore, errors))
        return started[-1]

    yield start
    for worker in started:
        worker.close()


@pytest.fixture(scope="session")
def hive(start_worker: Callable[[], HiveWorker]) -> HiveWorker:
    """A process that uses the metastore."""
    return start_worker()


SCHEMA = pa.schema([("dt", pa.string()), ("batch", pa.int64()), ("n", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    return lakebed.open_repository(tmp_path / "lake")


@pytest.fixture
def days(lake: lakebed.Repository) -> lakebed.Dataset:
    """An empty dataset, partitioned by a text."""
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="dt")
    return lake.create("days", descriptor)

"""A standalone cluster of Spark on the loopback interface, and programs that work on it.

A master and workers, each of them processes of their own with their own directory and Python; all
ports are chosen by the system.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Self

import pyarrow as pa
import pyspark

import lakebed
from lakebed.spark.java import ensure_java

SOURCE = Path(lakebed.__file__).parents[1]
PACKAGES = Path(pa.__file__).parents[1]
DRIVER = Path(__file__).parent / "cluster" / "driver.py"
SPARK_HOME = Path(pyspark.__file__).parent

_SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_STARTS_WITHIN_S = 300.0
_BEGIN = (
    f"import runpy, sys; sys.path.insert(0, {str(SOURCE)!r}); "
    f"runpy.run_path({str(DRIVER)!r}, run_name='__main__')"
)


def python_environment(directory: Path, *paths: Path) -> Path:
    """Make an environment without packages of its own, that sees those in some folders.

    Returns:
        The folder of its programs.
    """
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=120
    )
    packages = sysconfig.get_path(
        "purelib", "venv", {"base": str(directory), "platbase": str(directory)}
    )
    (Path(packages) / "paths.pth").write_text("".join(f"{path}\n" for path in paths))
    return directory / "bin"


def other_release(directory: Path, version: str) -> Path:
    """Return a folder with a copy of Lakebed that says it is of another release."""
    copy = directory / "lakebed"
    shutil.copytree(
        SOURCE / "lakebed", copy, ignore=lambda _, names: [n for n in names if n == "__pycache__"]
    )
    module = copy / "__init__.py"
    text, count = re.subn(r'__version__ = ".*"', f'__version__ = "{version}"', module.read_text())
    assert count == 1
    module.write_text(text)
    return directory


def eventually(look: Callable[[], Any], what: str, within_s: float = _STARTS_WITHIN_S) -> Any:
    """Return what a function gives, as soon as that is something."""
    end = time.monotonic() + within_s
    while not (answer := look()):
        assert time.monotonic() < end, f"after {within_s:.0f} s: {what}"
        time.sleep(0.05)
    return answer


def of_session(session: int) -> Iterator[tuple[int, bytes]]:
    """Yield the processes of a session with their commands: Spark makes groups of its own in it."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.getsid(int(entry.name)) == session:
                command = (entry / "cmdline").read_bytes()
                if command:  # else it has ended, and nobody has asked how
                    yield int(entry.name), command


def kill(pids: Iterable[int]) -> int:
    """Kill processes with signal 9, and return how many there were."""
    count = 0
    for pid in list(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            count += 1
    return count


class Processes:
    """Processes, each with a session and a log of its own, that end with this object."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._running: list[subprocess.Popen[str]] = []

    def start(
        self, name: str, command: list[str], environ: Mapping[str, str], **streams: Any
    ) -> subprocess.Popen[str]:
        home = self.directory / name
        home.mkdir(parents=True)
        log = (home / "log").open("w")
        with log:
            process = subprocess.Popen(
                command,
                cwd=home,
                env=dict(environ),
                stderr=log,
                stdout=streams.get("stdout", log),
                stdin=streams.get("stdin", subprocess.DEVNULL),
                text=True,
                start_new_session=True,
            )
        self._running.append(process)
        return process

    def log_of(self, name: str) -> str:
        return (self.directory / name / "log").read_text()

    def end(self) -> None:
        for process in self._running:
            kill([process.pid, *(pid for pid, _ in of_session(process.pid))])
            process.communicate(timeout=60)
        sessions = [process.pid for process in self._running]
        eventually(
            lambda: not [one for session in sessions for one in of_session(session)],
            "some processes do not end",
        )


class Cluster(Processes):
    """A master, and the workers that are added to it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.worker_sessions: list[int] = []
        command = self._spark_class("org.apache.spark.deploy.master.Master")
        self.start("master", [*command, "--webui-port", "0"], self._environ())
        self.url = eventually(
            lambda: re.search(r"Starting Spark master at (spark://\S+)", self.log_of("master")),
            "the master has not begun",
        )[1]

    def add_worker(self, name: str, programs: Path, host: str = "127.0.0.1") -> None:
        """Start a worker whose `python3` is that of an environment."""
        command = self._spark_class("org.apache.spark.deploy.worker.Worker", host)
        arguments = [
            *("--webui-port", "0", "--cores", "4", "--memory", "4g"),
            *("--work-dir", str(self.directory / name / "work"), self.url),
        ]
        worker = self.start(name, [*command, *arguments], self._environ(programs, host))
        self.worker_sessions.append(worker.pid)
        eventually(
            lambda: "Successfully registered with master" in self.log_of(name),
            f"{name} is not known to the master",
        )

    def kill_executor(self, number: int) -> int:
        """Kill one executor of a worker, if it has any; the worker starts another one."""
        executors = [
            pid
            for pid, command in of_session(self.worker_sessions[number])
            if b"CoarseGrainedExecutorBackend" in command
        ]
        return kill(executors[:1])

    def _spark_class(self, name: str, host: str = "127.0.0.1") -> list[str]:
        return [str(SPARK_HOME / "bin" / "spark-class"), name, "--host", host, "--port", "0"]

    def _environ(self, programs: Path | None = None, host: str = "127.0.0.1") -> dict[str, str]:
        path = "/usr/bin:/bin" if programs is None else f"{programs}:/usr/bin:/bin"
        return {
            "PATH": path,
            "HOME": str(self.directory),
            "JAVA_HOME": str(ensure_java().path),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _SMALL_JVM,
        }


class Driver:
    """A program with a session; it is asked for one of the functions of `driver.py` at a time."""

    def __init__(
        self,
        processes: Processes,
        name: str,
        master: str,
        *,
        programs: Path,
        program: str = _BEGIN,
        settings: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Start it.

        Args:
            processes: That it ends with.
            name: Of its folder.
            master: Of Spark.
            programs: Of the environment in which Spark looks for `python3` beside the driver.
            program: Its code.
            settings: Of the session, beside those that keep it small.
            environ: More of its environment.
        """
        self._processes, self._name = processes, name
        self.process = processes.start(
            name,
            # Not by PYTHONPATH, which Spark's workers of the same machine would have, too.
            [sys.executable, "-c", program, json.dumps({"master": master, **(settings or {})})],
            {
                "PATH": f"{programs}:/usr/bin:/bin",
                "HOME": str(processes.directory),
                "PYSPARK_PYTHON": "python3",
                "SPARK_LOCAL_IP": "127.0.0.1",
                **(environ or {}),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def begin(self, function: str, /, **arguments: Any) -> None:
        """Let it begin; `end` waits for the answer."""
        self._stream("stdin").write(json.dumps([function, arguments]) + "\n")
        self._stream("stdin").flush()

    def end(self) -> Any:
        line = self._stream("stdout").readline()
        assert line, self._processes.log_of(self._name)[-4000:]
        answer = json.loads(line)
        if "failed" in answer:
            raise AssertionError(answer["failed"])
        return answer["answer"]

    def ask(self, function: str, /, **arguments: Any) -> Any:
        self.begin(function, **arguments)
        return self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let it go, with its executors."""
        self._stream("stdin").write("\n")
        self._stream("stdin").flush()
        self.process.wait(60)

    def _stream(self, name: str) -> IO[str]:
        stream: IO[str] = getattr(self.process, name)
        return stream

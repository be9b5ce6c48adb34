"""One run of one system: writers in processes, some killed, faults between them and S3."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lakebed
from judge.proxy import BUCKET, tell
from judge.steps import Entry, Journal
from judge.verdict import Verdict, judge

_TESTS = Path(__file__).parents[1]
_ROOT = _TESTS.parent
_PEERS = _ROOT / ".venv-peers" / "bin" / "python"
OWN = ("lakebed", "lakebed_tree")
PEERS = ("deltalake", "pyiceberg", "lance", "ducklake")
_LONGEST_S = 900  # a writer that takes longer is ended, and the run says so
_KILLED_WITHIN_S = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a run is made of: the same seed has the same steps, faults and kills for each system."""

    system: str
    seed: int
    writers: int = 3
    steps: int = 10
    kills: int = 2
    versions: int = 0  # number of old versions that are read at the end, of Lakebed
    is_calm: bool = False  # without faults

    @property
    def name(self) -> str:
        """Its name in the results."""
        faults = "no faults" if self.is_calm else "faults"
        return f"{self.system} {self.seed} {self.writers}x{self.steps} {self.kills} kills {faults}"


@dataclass(slots=True)
class Outcome:
    """What a run has come to."""

    trial: Trial
    verdict: Verdict
    entries: list[Entry]
    faults: dict[str, Any]
    killed: int = 0
    stuck: list[str] = field(default_factory=list)
    seconds: float = 0.0
    release: str = ""


def python_of(system: str) -> Path:
    """Return the interpreter that has a system; `JUDGE_PEERS_PYTHON` names that of the peers."""
    if system in OWN:
        return Path(sys.executable)
    return Path(os.environ.get("JUDGE_PEERS_PYTHON") or _PEERS)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    source = str(Path(lakebed.__file__).parents[1])
    path = [source, str(_TESTS)]
    return {**kept, "PYTHONPATH": os.pathsep.join(path), "AWS_EC2_METADATA_DISABLED": "true"}


def _start(action: str, given: Mapping[str, Any], log: Path) -> subprocess.Popen[str]:
    with log.open("a") as errors:
        return subprocess.Popen(
            [str(python_of(given["system"])), "-m", "judge.worker", action, json.dumps(given)],
            cwd=_TESTS,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


def _answer(action: str, given: Mapping[str, Any], log: Path) -> dict[str, Any]:
    with _start(action, given, log) as process:
        output, _ = process.communicate(timeout=_LONGEST_S)
    if process.returncode:
        message = f"{action} of {given['system']} failed: {log.read_text()[-2000:]}"
        raise RuntimeError(message)
    return dict(json.loads(output.splitlines()[-1]))


class _Writer(threading.Thread):
    """Starts a writer, kills it at its moments, and starts it again until its steps are done."""

    def __init__(
        self, given: Mapping[str, Any], log: Path, kills: Sequence[tuple[int, float]]
    ) -> None:
        super().__init__(name=str(given["writer"]))
        self.given, self.log = given, log
        self.kills = dict(kills)
        self.killed, self.stuck = 0, ""
        self.is_ready, self.begin = threading.Event(), threading.Event()

    def run(self) -> None:
        while not self._write():
            pass

    def _write(self) -> bool:
        """Let a process write; return whether it came to its end."""
        process = _start("write", self.given, self.log)
        watch = threading.Timer(_LONGEST_S, process.kill)
        watch.start()
        delay: float | None = None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        self.is_ready.set()
        self.begin.wait()
        try:
            process.stdin.write("begin\n")
            process.stdin.flush()
            for line in process.stdout:
                delay = self.kills.pop(json.loads(line)["begun"], None)
                if delay is not None:
                    time.sleep(delay)
                    process.kill()
                    self.killed += 1
                    break
            is_killed = process.wait() != 0
        except BrokenPipeError:
            is_killed = True
        finally:
            is_over = not watch.is_alive()
            watch.cancel()
            process.kill()
            process.stdin.close()
            process.stdout.close()
            process.wait()
        if is_over:
            self.stuck = f"{self.name} was not done after {_LONGEST_S} s"
            return True
        if is_killed and delay is None:
            self.stuck = f"{self.name} ended by itself: {self.log.read_text()[-1000:]}"
            return True
        return not is_killed


def play(trial: Trial, endpoint: str, folder: Path) -> Outcome:
    """Play a run on the S3 that is behind a proxy; the folder keeps the journals."""
    folder.mkdir(parents=True)
    log = folder / "errors.txt"
    given: dict[str, Any] = {
        "system": trial.system,
        "endpoint": endpoint,
        "location": f"s3://{BUCKET}/{trial.system}-{trial.seed}-{time.time_ns()}",
        "folder": str(folder.resolve()),
        "seed": trial.seed,
        "steps": trial.steps,
        "versions": trial.versions,
    }
    begun = time.monotonic()
    tell(endpoint, "plan", None)
    release = _answer("create", given, log)["version"]
    writers = _writers(trial, given, folder)
    for one in writers:
        one.start()
    for one in writers:
        one.is_ready.wait(_LONGEST_S)
    tell(endpoint, "plan", {"seed": trial.seed, "is_calm": trial.is_calm})
    for one in writers:
        one.begin.set()
    for one in writers:
        one.join()
    faults = tell(endpoint, "settle")
    entries = [entry for one in writers for entry in Journal(Path(one.given["journal"])).read()]
    try:
        found = _answer("read", given, log)
    except (RuntimeError, subprocess.TimeoutExpired) as exc:
        found = {"rows": [], "history": {}, "error": f"the reader ended: {exc}"}
    (folder / "found.json").write_text(json.dumps(found))
    return Outcome(
        trial,
        judge(entries, found),
        entries,
        faults,
        killed=sum(one.killed for one in writers),
        stuck=[one.stuck for one in writers if one.stuck],
        seconds=round(time.monotonic() - begun, 1),
        release=release,
    )


def _writers(trial: Trial, given: Mapping[str, Any], folder: Path) -> list[_Writer]:
    dice = random.Random(f"kills {trial.seed}")
    moments = [
        (dice.randrange(trial.writers), dice.randrange(trial.steps), dice.random())
        for _ in range(trial.kills)
    ]
    return [
        _Writer(
            {
                **given,
                "writer": f"w{number}",
                "journal": str(folder.resolve() / f"w{number}.jsonl"),
            },
            folder / f"w{number}.txt",
            [(step, share * _KILLED_WITHIN_S) for one, step, share in moments if one == number],
        )
        for number in range(trial.writers)
    ]

"""An ingest that goes on: each raw file once, until it is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import (
    CommitConflictError,
    InvalidInputError,
    RejectsError,
    StorageError,
)
from lakebed.pipeline.following import IngestQuery
from lakebed.upkeep.upkeep_steps import may_pass

DESCRIPTOR = lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))


@pytest.fixture
def incoming(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


@pytest.fixture
def declared(tmp_path, incoming):
    return lakebed.Ingest(
        name="numbers",
        into=f"{tmp_path}/lake/numbers",
        source=lakebed.FromFiles(paths=str(incoming)),
        create=DESCRIPTOR,
        max_rejects=0.5,
    )


def push(folder: Path, name: str, *numbers: object) -> None:
    """Bring a file as a whole, as one should."""
    waiting = folder.parent / f"{name}.part"
    waiting.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
    waiting.rename(folder / name)


def wait_until(is_so) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def numbers_of(declared) -> list[int]:
    return sorted(row["n"] for row in declared.dataset().kite.reader())


def test_files_are_read_as_they_come_and_each_once(declared, incoming):
    push(incoming, "a.jsonl", 1, 2)
    with declared.follow(every="0s") as query:
        for place in range(5):
            push(incoming, f"{place}.jsonl", 10 + place)
        wait_until(lambda: sum(run.row_count for run in query.recent_progress) >= 7)
        assert query.is_active

    assert not query.is_active
    assert query.exception() is None
    assert query.await_termination() is True
    assert numbers_of(declared) == [1, 2, 10, 11, 12, 13, 14]
    assert query.last_progress == query.recent_progress[-1]
    # A look that finds nothing makes no version.
    reading = [run for run in query.recent_progress if run.row_count]
    assert len(declared.dataset().history()) == 1 + len(reading)


def test_one_look_takes_what_is_there_and_ends(declared, incoming):
    push(incoming, "a.jsonl", 1)

    query = declared.follow(once=True)

    assert query.await_termination(30) is True
    assert [run.row_count for run in query.recent_progress] == [1]


def test_what_does_not_fit_goes_to_quarantine_and_the_query_goes_on(declared, incoming):
    with declared.follow(every="0s") as query:
        push(incoming, "a.jsonl", 1, "one")
        wait_until(lambda: any(run.row_count for run in query.recent_progress))
        push(incoming, "b.jsonl", 2)
        wait_until(lambda: sum(run.row_count for run in query.recent_progress) == 2)

    assert numbers_of(declared) == [1, 2]
    reports = [run.report for run in query.recent_progress]
    assert sum(report.rejected_count for report in reports) == 1


def test_an_error_that_does_not_pass_ends_the_query_and_is_raised(declared, incoming):
    push(incoming, "a.jsonl", "one")

    query = declared.follow(every="0s", fail_on_rejects=True)

    with pytest.raises(RejectsError):
        query.await_termination(30)
    assert not query.is_active
    assert isinstance(query.exception(), RejectsError)


def test_a_wrong_declaration_is_told_at_once(tmp_path, incoming):
    missing = lakebed.Ingest(
        name="numbers",
        into=f"{tmp_path}/lake/numbers",
        source=lakebed.FromFiles(paths=str(incoming)),
    )

    with pytest.raises(lakebed.LakebedError, match="numbers"):
        missing.follow()


@pytest.mark.parametrize("every", ["soon", "-1s"])
def test_a_pause_that_is_none_is_refused(declared, every):
    with pytest.raises(InvalidInputError):
        declared.follow(every=every)


def test_what_may_pass_is_tried_again_later_and_later(monkeypatch):
    monkeypatch.setattr("lakebed.pipeline.following._FIRST_WAIT_S", 0.01)
    told: list[object] = []
    failures = [
        StorageError("The store hangs.", retryable=True),
        CommitConflictError("Another ingest was faster.", expected=1, actual=2),
    ]

    def run():
        if failures:
            raise failures.pop(0)
        return

    query = IngestQuery(run, name="flaky", every_s=0, once=True, on_run=told.append)

    assert query.await_termination(30) is True
    assert [type(one.error).__name__ for one in told] == [
        "StorageError",
        "CommitConflictError",
        "NoneType",
    ]
    assert [one.number for one in told] == [0, 1, 2]


def test_what_does_not_pass_is_not_tried_again():
    assert may_pass(StorageError("It hangs.", retryable=True))
    assert not may_pass(StorageError("It refuses.", retryable=False))
    assert not may_pass(InvalidInputError("It is wrong."))


def test_a_look_that_has_begun_is_finished_before_the_query_stops():
    began, may_end = threading.Event(), threading.Event()

    def run():
        began.set()
        may_end.wait()

    query = IngestQuery(run, name="slow", every_s=0)
    began.wait()
    query.stop(timeout=0.01)
    assert query.is_active
    may_end.set()
    query.stop()

    assert [progress.number for progress in query.recent_progress] == [0]


@pytest.mark.thorough
def test_the_command_follows_until_it_is_interrupted(tmp_path, incoming):
    schema = tmp_path / "n.avsc"
    fields = [{"name": "n", "type": ["null", "long"]}]
    schema.write_text(json.dumps({"type": "record", "name": "n", "fields": fields}))
    command = [
        *(sys.executable, "-m", "lakebed", "ingest", str(incoming), "--local", "--follow"),
        *("--every", "0s", "--into", f"{tmp_path}/lake/numbers", "--schema", str(schema)),
        *("-o", "jsonl"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(lakebed.__file__).parents[1])}
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        lines = []
        for place in range(2):
            push(incoming, f"{place}.jsonl", place)
            lines.append(json.loads(running.stdout.readline()))
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=30)
    finally:
        running.kill()

    assert [line["row_count"] for line in lines] == [1, 1]
    assert [line["version"] for line in lines] == [1, 2]
    assert running.returncode == 0, errors
    assert "Interrupted" in errors

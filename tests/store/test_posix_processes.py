"""A directory under several processes, and under processes that are killed."""

from __future__ import annotations

import json
import os
import random
import runpy
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import lakebed.store
from lakebed.store.posix import PosixStore

pytestmark = pytest.mark.thorough

WORKER = Path(__file__).with_name("posix_worker.py")
SOURCE = Path(lakebed.store.__file__).parents[2]
HEAD, document = map(runpy.run_path(str(WORKER)).get, ("HEAD", "document"))


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        text=True,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate()
    assert process.returncode == 0
    return output


def test_four_processes_lose_no_increment(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    store.create(HEAD, document(0))

    for process in [start("increment", tmp_path, 50) for _ in range(4)]:
        output_of(process)

    assert json.loads(store.get(HEAD).data)["number"] == 200
    assert store.remove_leftovers(older_than=timedelta(0)) == ()


def test_four_processes_never_create_the_same_object(tmp_path: Path) -> None:
    processes = [start("claim", tmp_path / "lake", 100) for _ in range(4)]
    outputs = [output_of(process) for process in processes]

    won = [number for output in outputs for number in json.loads(output)]

    assert sorted(won) == list(range(100))
    pids = {
        number: str(p.pid)
        for p, o in zip(processes, outputs, strict=True)
        for number in json.loads(o)
    }
    store = PosixStore(tmp_path / "lake")
    assert {n: store.get(f"batches/{n}.json").data.decode() for n in range(100)} == pids


@pytest.mark.crash
@pytest.mark.parametrize("operation", ["create", "replace", "put"])
def test_process_killed_at_any_step_leaves_the_old_or_the_new_object(
    tmp_path: Path, operation: str
) -> None:
    lines = output_of(start("die_at_each_step", tmp_path, operation)).splitlines()

    results = [json.loads(line) for line in lines]
    assert len(results) > 5
    assert [result["finished"] for result in results] == [False] * (len(results) - 1) + [True]
    seen = []
    for result in results:
        store = PosixStore(unquote(urlsplit(result["root"]).path))
        keys = [entry.key for entry in store.list()]
        assert keys in ([], ["d/key"])
        seen.append(store.get("d/key").data if keys else None)
        leftovers = store.remove_leftovers(older_than=timedelta(0))
        assert len(leftovers) <= 1
        # Nobody is kept out by what the dead process held.
        store.put("d/key", document(2))
        store.replace("d/key", document(3), if_match=store.get("d/key").etag)
        assert [entry.key for entry in store.list()] == ["d/key"]
    old = document(0) if operation == "replace" else None
    assert seen == sorted(seen, key=lambda data: data != old), "once new, always new"
    assert set(seen) == {old, document(1)}


@pytest.mark.crash
def test_process_killed_at_a_random_moment_loses_nothing_that_it_had_written(
    tmp_path: Path,
) -> None:
    store = PosixStore(tmp_path)
    store.create(HEAD, document(0))
    chance = random.Random(20130101)

    for _ in range(4):
        before = json.loads(store.get(HEAD).data)["number"]
        process = start("write_for_ever", tmp_path)
        assert process.stdout is not None
        written = [int(process.stdout.readline()) for _ in range(chance.randint(1, 20))]
        process.kill()
        written += [int(line) for line in process.communicate()[0].splitlines() if line.strip()]

        found = store.get(HEAD).data
        assert written == list(range(before + 1, before + 1 + len(written)))
        assert found in (document(written[-1]), document(written[-1] + 1))
        assert [entry.key for entry in store.list()] == [HEAD]
        assert len(store.remove_leftovers(older_than=timedelta(0))) <= 1


def test_full_storage_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    errors = output_of(start("fill_up", tmp_path)).splitlines()

    assert [json.loads(line) for line in errors] == [["StorageFullError", False]] * 2
    store = PosixStore(tmp_path)
    assert list(store.list()) == []
    assert store.remove_leftovers(older_than=timedelta(0)) == ()

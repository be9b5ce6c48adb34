"""Many processes commit to one dataset, in a directory and on servers."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from places import Place

import lakebed
from lakebed import by

pytestmark = pytest.mark.thorough

WORKER = Path(__file__).parent / "state" / "commit_worker.py"
SOURCE = Path(lakebed.__file__).parents[1]
DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=pa.schema([("p", pa.string()), ("tag", pa.string()), ("n", pa.int64())]),
    partition_by=[by.identity("p")],
)


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def answer_of(process: subprocess.Popen[str]) -> object:
    output, _ = process.communicate()  # closes its input, which ends a reader
    assert process.returncode == 0
    return json.loads(output.splitlines()[-1])


@pytest.mark.parametrize("head_format", ["json", "msgpack.zstd"])
def test_every_append_of_eight_processes_is_kept_and_a_reader_sees_whole_commits(
    place: Place, head_format: str
) -> None:
    repository = lakebed.open_repository(place.root)
    dataset = repository.create("d", DESCRIPTOR, head_format=head_format)

    reader = start("read_rows", place.root, "d")
    reader.stdout.readline()
    acknowledged = answer_of(start("append", place.root, "d", 8, 25))
    seen = answer_of(reader)

    assert sorted(version for _, version in acknowledged) == list(range(1, 201))
    commits = [one for one in dataset.history() if one.operation == "append"]
    assert len({one.batch_id for one in commits}) == 200
    assert [one.version for one in commits] == list(range(1, 201))
    assert [one.committed_at for one in commits] == sorted(one.committed_at for one in commits)
    counts = collections.Counter(dataset.arrow(["tag"]).column("tag").to_pylist())
    assert counts == {tag: 4 for tag, _ in acknowledged}
    assert seen["reads"] >= 2
    assert seen["commits"] == 200
    assert_nothing_is_left_over(repository, dataset)


def test_overwrites_of_one_partition_have_one_winner_and_losers_leave_nothing(
    place: Place,
) -> None:
    repository = lakebed.open_repository(place.root)
    dataset = repository.create("d", DESCRIPTOR)
    dataset.append([{"p": "a", "tag": "first", "n": 0}, {"p": "b", "tag": "other", "n": 0}])
    rounds = 6

    answers = answer_of(start("overwrite", place.root, "d", 4, rounds))

    winners = {one["commit"]: one for one in answers if "commit" in one}
    losers = [one for one in answers if "expected" in one]
    assert (len(winners), len(losers)) == (rounds, 3 * rounds)
    assert all(one["actual"] > one["expected"] for one in losers)
    history = [one for one in dataset.history() if one.operation == "overwrite"]
    assert [one.commit_id for one in history] == sorted(
        winners, key=lambda one: winners[one]["version"]
    )
    for commit in history:
        tags = dataset.at(version=commit.version).arrow(["tag"]).column("tag").to_pylist()
        assert sorted(tags) == sorted([winners[commit.commit_id]["tag"], "other"])
    assert_nothing_is_left_over(repository, dataset)


def assert_nothing_is_left_over(repository: lakebed.Repository, dataset: lakebed.Dataset) -> None:
    """Every data file belongs to a commit, and every reservation to a batch."""
    held = {info.key for info in repository.store.list("d/")}
    commits = dataset.history()
    files = {key for commit in commits for key in commit.files_added}
    assert {key for key in held if key.startswith("d/data/") and "_metadata" not in key} == files
    batches = {f"d/batches/{commit.batch_id}.json" for commit in commits if commit.batch_id}
    assert {key for key in held if key.startswith("d/batches/")} == batches

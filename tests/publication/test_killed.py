"""Publishers that are killed with signal 9 at each of their writes."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from table_doors import DOORS, assert_shows, rows_of
from tree_copies import shrink

import lakebed
from lakebed.store.posix import PosixStore

SOURCE = Path(lakebed.__file__).parents[1]
TESTS = Path(__file__).parents[1]
SCHEMA = pa.schema([("p", pa.string()), ("batch", pa.int64())])

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def worker():
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "kill_worker.py")],
        env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.communicate()


def is_killed(worker, **order: object) -> bool:
    worker.stdin.write(json.dumps(order) + "\n")
    worker.stdin.flush()
    return json.loads(worker.stdout.readline())


def rows(batch: int) -> list[dict]:
    return [{"p": p, "batch": batch} for p in "ab"]


CHANGES = {
    "overwrite": lambda dataset, batch: dataset.overwrite(rows(batch)),
    # Updates in one partition, inserts in another, and deletes what the data lacks.
    "merge": lambda dataset, batch: dataset.merge(
        [{"p": p, "batch": batch} for p in ("b", f"c{batch}")], "p", missing="delete"
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(
    "is_done",
    [
        pytest.param(True, id="after"),  # which is before the next one
        pytest.param(False, id="before", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("door", DOORS, ids=str)
@pytest.mark.parametrize("head", ["document", "tree"])
def test_reader_sees_a_whole_version_and_the_next_publisher_goes_on(
    head, door, worker, tmp_path, is_done, change, monkeypatch
):
    """One table is changed again and again, by publishers that each die a write later."""
    lake = lakebed.Repository(PosixStore(tmp_path, durable=False))
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p")
    days = lake.create("days", descriptor, head=head)
    if head == "tree":
        shrink(monkeypatch)
        # Polars does not know the checkpoints of a tree.
        readers = {name: read for name, read in door.readers.items() if name != "polars"}
        door = dataclasses.replace(door, readers=readers)
    days.append(rows(0))
    door.publish(days)
    whole = [rows_of(days.arrow(), SCHEMA.names)]
    deaths = 0
    for at in range(1, 20):
        change(days, at)
        whole.append(rows_of(days.arrow(), SCHEMA.names))
        killed = is_killed(
            worker, root=str(tmp_path), name="days", door=door.name, at=at, is_done=is_done
        )
        for reader, table in door.read(days).items():
            seen = rows_of(table, SCHEMA.names)
            assert seen in whole[-2:], (at, reader)
            assert killed or seen == whole[-1]
        deaths += killed
        assert door.publish(days).version == days.version
        assert_shows(door, days)
        if not killed:
            break

    assert deaths >= (5 if door.name == "delta" else 6)
    assert not killed
    assert door.publish(days, check=True).was_in_step

"""How many modules a call goes through: each is a file to open for whoever follows it."""

import datetime as dt
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest
from heads import ON_TREES

import lakebed
from lakebed import Dataset

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("v", pa.float64())])
# Among them `lakebed.index.paged_root`, whose streams of Arrow are those of all segments of an
# index, and in a merge `lakebed.common.decoding`, without which threads crash.
MOST_OF_AN_APPEND = 64
MOST_OF_A_MERGE = 91
OF_A_TREE = 14 if ON_TREES else 0


def rows(first: int, count: int) -> pa.Table:
    ids = list(range(first, first + count))
    columns = {"id": ids, "day": [dt.date(2013, 1, 1)] * count, "v": [float(one) for one in ids]}
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def events(tmp_path: Path) -> Dataset:
    """A dataset with an index that was written to before, so that all is loaded."""
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="day")
    events = lakebed.open_repository(tmp_path).create("events", descriptor)
    events.append(rows(0, 100))
    events.indices.build("id")
    events.upsert(rows(60, 10), on="id")
    return events


def modules_of(call: Callable[[], object]) -> set[str]:
    """Return the modules of ours in which a function was called, in any thread."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("lakebed."):
            seen.add(name)

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return seen


def test_an_append_goes_through_few_modules(events: Dataset) -> None:
    through = modules_of(lambda: events.append(rows(100, 100)))

    assert "lakebed.state.committing" in through
    assert len(through) <= MOST_OF_AN_APPEND + OF_A_TREE, sorted(through)


def test_a_merge_goes_through_few_modules(events: Dataset) -> None:
    through = modules_of(lambda: events.upsert(rows(95, 10), on="id"))

    assert "lakebed.work.merge" in through
    assert len(through) <= MOST_OF_A_MERGE + OF_A_TREE, sorted(through)

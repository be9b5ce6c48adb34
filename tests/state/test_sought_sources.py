"""The record of raw files read in part: what is asked for is the same as in the whole record."""

from __future__ import annotations

import datetime as dt
import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import CorruptMetadataError
from lakebed.state import sources as source_list
from lakebed.state.sources import Hold, Origins, Restored, Sought, SourceFile, Sources
from lakebed.store.memory import MemoryStore
from lakebed.store.segments import Segment, pack

NUMBERS = itertools.count()
DAY = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)
SLOTS = tuple(f"path:{number}" for number in range(6))
LABELS = tuple(f"day=1/{number}" for number in range(5))


def _file(number: int, slot: str, file_id: str | None, start: int | None) -> SourceFile:
    return SourceFile(
        key=f"{number}-0",
        location=f"raw/{number}",
        slot=slot,
        fingerprint=f"{number}",
        size_bytes=number,
        batch_id=number,
        run="daily",
        row_count=number,
        rejected_count=0,
        file_id=file_id,
        start=None if start is None else DAY + dt.timedelta(hours=start),
    )


@st.composite
def _parts(draw: st.DrawFn) -> tuple[Sources, ...]:
    ids = st.none() | st.sampled_from("abcdefgh")
    starts = st.none() | st.integers(0, 6)
    described = draw(st.lists(st.tuples(st.sampled_from(SLOTS), ids, starts), max_size=20))
    files = tuple(_file(number, *one) for number, one in enumerate(described))
    borders = sorted(draw(st.lists(st.integers(0, len(files)), max_size=3)))
    parts = []
    for begin, end in itertools.pairwise((0, *borders, len(files))):
        restored = []
        for after in sorted(draw(st.lists(st.integers(0, end - begin), max_size=2))):
            # As a rollback records it: a file in its own slot, or none.
            earlier = files[: begin + after]
            slot = draw(st.sampled_from(SLOTS))
            keys = ["", *(file.key for file in earlier if file.slot == slot)]
            current = {slot: draw(st.sampled_from(keys))}
            restored.append(Restored(commit_id=f"c{begin}-{after}", current=current, after=after))
        origins: dict[str, Origins] = {
            label: tuple((file.key, 1) for file in files[begin:end][:2])
            for label in draw(st.sets(st.sampled_from(LABELS)))
        }
        holds = tuple(
            Hold(name=f"id:{one}", location=one, held_at=DAY, commit_id="h")
            for one in draw(st.sets(st.sampled_from("ab"), max_size=1))
        )
        parts.append(
            Sources(files=files[begin:end], runs=origins, restored=tuple(restored), holds=holds)
        )
    return tuple(parts)


@given(
    parts=_parts(),
    file_ids=st.sets(st.sampled_from("abcdefgh")),
    starts=st.sets(st.integers(0, 6)),
    labels=st.sets(st.sampled_from((*LABELS, "day=2/none"))),
)
def test_what_is_sought_is_as_in_the_whole_record(
    parts: tuple[Sources, ...], file_ids: set[str], starts: set[int], labels: set[str]
) -> None:
    store = MemoryStore("sought-sources")
    segments = []
    for part in parts:
        segments.append(Segment(f"d/sources/{next(NUMBERS)}", 1))
        store.put(segments[-1].key, source_list.encode(part))
    moments = frozenset(DAY + dt.timedelta(hours=start) for start in starts)
    sought = Sought(file_ids=frozenset(file_ids), starts=moments, labels=labels)
    whole = source_list.read(store, segments)
    found = source_list.read_sought(store, segments, sought)
    asked = [
        file
        for file in whole.files
        if file.start is None or file.file_id in file_ids or file.start in moments
    ]
    slots = {file.slot for file in asked}
    assert found.files == tuple(file for file in whole.files if file.slot in slots)
    current = whole.current()
    assert found.current() == {slot: file for slot, file in current.items() if slot in slots}
    assert found.runs == {label: whole.runs[label] for label in labels if label in whole.runs}
    assert found.held == whole.held


def test_files_that_are_not_sought_are_not_decoded() -> None:
    store = MemoryStore("sought-sources")
    files = [_file(number, f"path:{number}", f"id{number}", number) for number in range(3)]
    listed = msgspec.json.decode(msgspec.json.encode(Sources(files=tuple(files))))
    listed["files"][0]["size_bytes"] = "a text"
    segments = [Segment("d/sources/first", 3), Segment("d/sources/second", 1)]
    store.put(segments[0].key, pack(listed))
    store.put(segments[1].key, source_list.encode(Sources(files=(_file(9, "path:9", "id9", 9),))))
    other = Sought(file_ids=frozenset({"id9"}), starts=frozenset(), labels=())
    assert [file.file_id for file in source_list.read_sought(store, segments, other).files] == [
        "id9"
    ]
    with pytest.raises(CorruptMetadataError, match="first"):
        source_list.read_sought(
            store, segments, Sought(file_ids=frozenset({"id1"}), starts=frozenset(), labels=())
        )


def test_damaged_origins_are_named() -> None:
    store = MemoryStore("sought-sources")
    store.put("d/sources/damaged", pack({"runs": {"day=1/0": [["1-0", "many"]]}}))
    segments = [Segment("d/sources/damaged", 1)]
    sought = Sought(file_ids=frozenset(), starts=frozenset(), labels={"day=1/0"})
    with pytest.raises(CorruptMetadataError, match="d/sources/damaged"):
        source_list.read_sought(store, segments, sought)

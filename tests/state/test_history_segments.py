"""Segments of the history: how they are weighed, merged and compressed, and those of early releases."""

from __future__ import annotations

import itertools
import json
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pytest
import zstandard

import lakebed
from lakebed import by
from lakebed.errors import CorruptMetadataError
from lakebed.state import history
from lakebed.state.facts import facts_schema
from lakebed.state.head import HeadFormat
from lakebed.state.reader import read_head
from lakebed.state.transaction import Transaction
from lakebed.state.written import Written
from lakebed.store import Store, open_store
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.segments import FANOUT, SMALL, Segment
from lakebed.work.metadata_compaction import compact_metadata

SCHEMA = pa.schema([("p", pa.string()), ("v", pa.int64())])
DESCRIPTOR = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("p")])
HEAD = HeadFormat.JSON.key("d")

_names = itertools.count()


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://history-{next(_names)}")


@pytest.fixture
def dataset(store: Store) -> lakebed.Dataset:
    return lakebed.Repository(store).create("d", DESCRIPTOR)


def segments_of(store: Store) -> tuple[Segment, ...]:
    return read_head(store, "d").state.lists.history


def load(store: Store, count: int) -> None:
    """Commit the facts of files that do not exist, as one batch."""
    transaction = Transaction.begin(store, "d", "append")
    labels = [f"p=a/batch_id={transaction.batch_id}/part-{n:032x}" for n in range(count)]
    kind = facts_schema(DESCRIPTOR.stored_schema)
    facts = [
        {"label": label, "row_count": 1, "size_bytes": 9, "checksum": "", "stats": None}
        for label in labels
    ]
    transaction.add(Written(facts=pa.Table.from_pylist(facts, kind)))
    transaction.commit()


def as_of_an_early_release(store: Store) -> None:
    """Write the history as plain JSON, weighed by its commits alone."""
    text = store.get(HEAD).data.decode()
    for segment in segments_of(store):
        entries = history.decode(store.get(segment.key).data, segment.key)
        place, _, name = segment.key.rpartition("/")
        plain = f"{place}/{len(entries):010d}{name[10:].removesuffix('.zst')}"
        store.put(plain, msgspec.json.encode({"entries": entries}))
        store.delete([segment.key])
        text = text.replace(segment.key, plain)
    head = json.loads(text)
    head["metadata"].pop("lakebed.checksum", None)
    store.put(HEAD, json.dumps(head).encode())


def rows(*values: int) -> list[dict[str, Any]]:
    return [{"p": "ab"[value % 2], "v": value} for value in values]


def contents_of(dataset: lakebed.Dataset) -> Any:
    """Return the entries of the history, and the rows of each version."""
    entries = dataset.history()
    versions = (dataset.at(version=entry.version) for entry in entries)
    return (
        [(entry.version, entry.commit_id, entry.operation) for entry in entries],
        [sorted(row["v"] for row in version.kite.reader()) for version in versions],
    )


def test_a_segment_is_weighed_by_its_commits_and_their_labels(
    dataset: lakebed.Dataset, store: Store
) -> None:
    dataset.append(rows(1, 2))  # one entry, two labels
    dataset.overwrite(rows(3))  # one label more, and one that goes

    assert [segment.weight for segment in segments_of(store)] == [1, 3, 3]
    assert sum(segment.weight for segment in segments_of(store)) == history.weight_of(
        history.read(store, segments_of(store))
    )


def test_a_segment_is_a_frame_of_zstd_that_holds_json(
    dataset: lakebed.Dataset, store: Store
) -> None:
    commit = dataset.append(rows(1))

    segment = segments_of(store)[-1]
    document = json.loads(zstandard.decompress(store.get(segment.key).data))
    assert segment.key.endswith(".json.zst")
    assert [entry["commit_id"] for entry in document["entries"]] == [commit.commit_id]


@pytest.mark.parametrize("count", [SMALL, history.MOST_MERGED])
def test_commits_after_a_load_leave_its_entry_alone(
    dataset: lakebed.Dataset, store: Store, count: int
) -> None:
    load(store, count)
    before = segments_of(store)

    for number in range(3 * FANOUT):
        dataset.append(rows(number))

    after = segments_of(store)
    assert after[:2] == before
    assert len(after) < len(before) + FANOUT
    assert after[2].weight >= 2 * FANOUT


def test_merges_of_a_commit_stay_below_the_limit() -> None:
    held: list[Segment] = []
    limit = history.MOST_MERGED
    heaviest = 0
    for number, weight in enumerate(itertools.islice(itertools.cycle([2, 2, 700, 2, 101]), 4000)):
        held.append(Segment(f"d/history/{number}{history.SUFFIX}", weight))
        tail = history.find_due(held)
        if tail:
            total = sum(segment.weight for segment in tail)
            heaviest = max(heaviest, total)
            held[-len(tail) :] = [Segment(f"d/history/m{number}{history.SUFFIX}", total)]

    assert limit // FANOUT < heaviest <= limit
    assert len(held) < 4 * FANOUT + 4000 * 161 // (limit // FANOUT)


def test_a_history_of_an_early_release_is_read_and_continued(
    dataset: lakebed.Dataset, store: Store
) -> None:
    dataset.append(rows(1, 2))
    dataset.overwrite(rows(3))
    expected = contents_of(dataset)
    as_of_an_early_release(store)
    early = segments_of(store)
    assert [segment.key.endswith(".json") for segment in early] == [True] * 3

    again = lakebed.Repository(store).open("d")
    assert contents_of(again) == expected

    for number in range(2 * FANOUT):
        again.append(rows(number))
    # The number of labels in a segment is unknown if its weight is that of its commits.
    assert segments_of(store)[:3] == early
    assert len(segments_of(store)) < 3 + 2 * FANOUT
    assert contents_of(again)[1][:3] == expected[1]

    before = contents_of(again)
    compact_metadata(store, "d")
    assert segments_of(store)[0].weight == history.weight_of(
        history.read(store, segments_of(store)[:1])
    )
    assert contents_of(again)[1][:-1] == before[1]
    assert contents_of(again)[0][:-1] == before[0]


def test_drop_of_a_dataset_of_an_early_release_leaves_the_first_entry_of_a_namesake(
    dataset: lakebed.Dataset, store: Store
) -> None:
    as_of_an_early_release(store)
    theirs = [f"d/history/0000000001-{'0' * 32}.first{end}" for end in (".json", ".json.zst")]
    for key in theirs:
        store.put(key, b"of a dataset whose head is not there yet")

    lakebed.Repository(store).drop("d")

    assert [info.key for info in store.list()] == theirs


def test_compaction_leaves_a_history_that_one_segment_cannot_hold(
    dataset: lakebed.Dataset, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        dataset.append(rows(number))
    before = segments_of(store)
    monkeypatch.setattr(history, "MOST_COMPACTED", sum(one.weight for one in before) - 1)

    assert "history" not in {one.name for one in compact_metadata(store, "d")}

    assert segments_of(store)[: len(before)] == before


@pytest.mark.parametrize("after", [-1, 0, 1, 2])
def test_entries_of_another_segment_are_noticed_by_readers_of_any_part(
    dataset: lakebed.Dataset, store: Store, after: int
) -> None:
    for value in range(5):
        dataset.append(rows(value))
    segments = segments_of(store)
    assert len(segments) == 6
    store.put(segments[3].key, store.get(segments[2].key).data)
    PROCESS_CACHE.clear()

    with pytest.raises(CorruptMetadataError, match=r"version [24] follows version 2"):
        history.read(store, segments, after=after, until=5)
    assert [one.version for one in history.read(store, segments, after=3, until=5)] == [4, 5]


@pytest.mark.parametrize("head", ["document", "tree"])
def test_a_check_notices_entries_of_another_segment(
    dataset: lakebed.Dataset, store: Store, head: Literal["document", "tree"]
) -> None:
    for value in range(5):
        dataset.append(rows(value))
    other = store.get(segments_of(store)[3].key).data
    if head == "tree":
        dataset.compact(head="tree")
        dataset.append(rows(5))
    assert dataset.check().problems == ()
    segments = segments_of(store)
    store.put(segments[len(segments) // 2 - 1].key, other)
    PROCESS_CACHE.clear()

    (problem,) = dataset.check().problems
    assert "cannot be read: version" in problem.what
    assert problem.key.startswith("d/history/")

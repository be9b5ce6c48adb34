"""The pure core: what a commit makes of a state, of the history and of the lists of segments."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from unittest import mock

import msgspec
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import by
from lakebed.model.evaluate import matches
from lakebed.model.keys import encode_path
from lakebed.model.predicate import TRUE, Comparison, Membership, NullCheck, Op
from lakebed.model.values import Scalar
from lakebed.state import history
from lakebed.state.codec import from_document, to_document
from lakebed.state.head import HeadFormat, decode_head, encode_head
from lakebed.state.history import Entry
from lakebed.state.reader import read_head
from lakebed.state.scope import Nothing, Scope, ThesePartitions, WholeView
from lakebed.state.state import Change, State, adopt, apply, new_labels
from lakebed.store import open_store, segments
from lakebed.store.segments import EncodedSegment, Segment, compact

DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=pa.schema([("p", pa.string()), ("v", pa.int64())]), partition_by=[by.identity("p")]
)
START = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
VALUES = ["a", "b/c", "", None]
VIEWS = [
    TRUE,
    NullCheck("p", negated=False),
    NullCheck("p", negated=True),
    Comparison("p", Op.EQ, "a"),
    Comparison("p", Op.GT, "a"),
    Membership("p", ("a", "b/c")),
]

_names = itertools.count()


def empty_state() -> State:
    store = open_store(f"memory://apply-{next(_names)}")
    lakebed.Repository(store).create("d", DESCRIPTOR)
    return read_head(store, "d").state


EMPTY = empty_state()


@dataclass(frozen=True)
class Step:
    """A commit: how many files it adds to which partitions, and what it replaces."""

    added: dict[Scalar, int]
    replaces: str
    view: int
    clock: int  # seconds since the start; clocks of writers differ

    @property
    def scope(self) -> Scope:
        if self.replaces == "touched":
            return ThesePartitions(frozenset(encode_path({"p": value}) for value in self.added))
        if self.replaces == "view":
            return WholeView(VIEWS[self.view], EMPTY.layout.partition_level_types)
        return Nothing()

    def is_replaced(self, value: Scalar) -> bool:
        if self.replaces == "view":
            return matches(VIEWS[self.view], {"p": value})
        return self.replaces == "touched" and value in self.added


steps = st.builds(
    Step,
    added=st.dictionaries(st.sampled_from(VALUES), st.integers(1, 3)),
    replaces=st.sampled_from(["nothing", "touched", "view"]),
    view=st.integers(0, len(VIEWS) - 1),
    clock=st.integers(-1000, 1000),
)


def change_of(step: Step, base: State, batch_id: int) -> Change:
    labels = tuple(
        f"{encode_path({'p': value, 'batch_id': batch_id})}/part-{number}"
        for value, count in step.added.items()
        for number in range(count)
    )
    return Change(
        operation="overwrite",
        commit_id=f"c{batch_id}",
        base_version=base.version,
        batch_id=batch_id,
        added=labels,
        row_count=len(labels),
        scope=step.scope,
    )


@given(st.lists(steps, max_size=12))
def test_states_and_replayed_history_are_those_of_a_dict_of_partitions(run: list[Step]) -> None:
    state, model = EMPTY, {value: set[str]() for value in VALUES}
    entries = [Entry(version=0, commit_id="c", operation="create", committed_at=START)]
    expected = [(state.labels, {})]

    for number, step in enumerate(run, 1):
        change = change_of(step, state, number)
        state, entry = apply(state, change, START + dt.timedelta(seconds=step.clock))
        for value in VALUES:
            if step.is_replaced(value):
                model[value] = set()
            prefix = encode_path({"p": value}) + "/"
            model[value] |= {label for label in change.added if label.startswith(prefix)}
        entries.append(entry)
        expected.append((state.labels, {v: frozenset(labels) for v, labels in model.items()}))
        assert set(state.labels) == set().union(*model.values())

    assert state.version == len(run)
    for version, (labels, partitions) in enumerate(expected):
        past = history.replay(entries, version)
        assert past.labels == labels
        assert past.entry.version == version
        assert not partitions or frozenset(labels) == frozenset().union(*partitions.values())
    for before, after in itertools.pairwise(entries[1:]):
        assert before.committed_at <= after.committed_at
    touched = [
        set(entry.partitions)
        == {label.rpartition("/")[0].rpartition("/")[0] for label in (*entry.added, *entry.removed)}
        for entry in entries
    ]
    assert all(touched)


@given(st.lists(steps, max_size=12), st.data())
def test_new_labels_of_a_later_state_are_those_that_the_earlier_one_lacks(
    run: list[Step], data: st.DataObject
) -> None:
    states = [EMPTY]
    for number, step in enumerate(run, 1):
        states.append(apply(states[-1], change_of(step, states[-1], number), START)[0])
    before = data.draw(st.integers(0, len(run)))
    earlier, later = states[before].labels, states[data.draw(st.integers(before, len(run)))].labels

    assert new_labels(earlier, later) == set(later) - set(earlier)
    # Whatever another tool has done to the order, no new label is left out.
    shuffled = data.draw(st.permutations(later))
    assert new_labels(earlier, shuffled) >= set(later) - set(earlier)
    assert new_labels(earlier, shuffled) <= set(later)


@given(st.lists(steps, max_size=5))
def test_a_head_says_the_whole_state(run: list[Step]) -> None:
    state = EMPTY
    for number, step in enumerate(run, 1):
        state, _ = apply(state, change_of(step, state, number), START)

    for head_format in HeadFormat:
        data = encode_head(to_document(state), head_format)
        found = from_document(decode_head(data, head_format, "k"), HeadFormat.JSON, "k")
        assert found == state
        assert not found.is_changed_by_others


@given(st.lists(steps, max_size=5), st.sets(st.integers(0, 20)), st.integers(0, 3))
def test_adopting_what_others_did_leads_to_what_they_left(
    run: list[Step], lost: set[int], added: int
) -> None:
    state, entries = EMPTY, []
    for number, step in enumerate(run, 1):
        state, entry = apply(state, change_of(step, state, number), START)
        entries.append(entry)
    create = Entry(version=0, commit_id="c", operation="create", committed_at=START)
    known = history.replay([create, *entries], state.version).labels
    kept = [label for number, label in enumerate(known) if number not in lost]
    theirs = [f"p=z/batch_id=1/{number:032x}" for number in range(added)]
    changed = state.with_labels((*kept, *theirs))

    entry = adopt(changed, known, START, "f")

    assert changed.is_changed_by_others is (changed.labels != known)
    assert history.replay([create, *entries, entry], entry.version).labels == changed.labels
    assert ("p=z" in entry.partitions) is bool(added)


@pytest.mark.parametrize("fanout", [2, 3, 8])
@given(weights=st.lists(st.integers(1, 3), min_size=1, max_size=60))
@examples(0.25)
def test_merged_history_reads_as_it_was_written(fanout: int, weights: list[int]) -> None:
    store = open_store(f"memory://apply-{next(_names)}")
    held: tuple[Segment, ...] = ()
    entries: list[Entry] = []

    def merged(tail: Sequence[Segment]) -> EncodedSegment:
        data = history.merge([store.get(segment.key) for segment in tail])
        weight = sum(segment.weight for segment in tail)
        return EncodedSegment(Segment.new("d/history", weight, history.SUFFIX), data)

    with mock.patch.object(segments, "FANOUT", fanout):
        for weight in weights:
            new = [
                Entry(
                    version=len(entries) + n,
                    commit_id="c",
                    operation="x",
                    committed_at=START + dt.timedelta(seconds=len(entries) + n),
                )
                for n in range(weight)
            ]
            segment = Segment.new("d/history", weight, history.SUFFIX)
            store.put(segment.key, history.encode(new))
            entries += new
            held = compact(store, (*held, segment), merged, [])

    def read(**given: int) -> tuple[Entry, ...]:
        found = history.read(store, held, **given)
        # Each segment ends in an entry that the storage took with it, at a time that stays known.
        ends = itertools.accumulate(weights)
        assert {one.version for one in found if one.stored_at} == {
            end - 1 for end in ends if end - 1 > given.get("after", -1)
        }
        return tuple(msgspec.structs.replace(one, stored_at=None) for one in found)

    assert read() == tuple(entries)
    assert sum(segment.weight for segment in held) == len(entries)
    for after in range(-1, len(entries)):
        assert read(after=after) == tuple(entries[after + 1 :])
    assert [Segment.parse(segment.key, "d") for segment in held] == list(held)


@pytest.mark.parametrize("fanout", [2, 8])
@given(weights=st.lists(st.integers(1, 1) | st.integers(1, 5000), max_size=200))
@examples(0.25)
def test_lists_of_segments_stay_short_and_entries_are_seldom_rewritten(
    fanout: int, weights: list[int]
) -> None:
    held: list[int] = []
    rewritten = 0

    with mock.patch.multiple(segments, FANOUT=fanout, SMALL=fanout):
        for weight in weights:
            held.append(weight)
            listed = [Segment(str(number), one) for number, one in enumerate(held)]
            count = segments.count_to_merge(listed)
            if count:
                tail = held[-count:]
                held[-count:] = [sum(tail)]
                rewritten += sum(tail)

    total = sum(weights) or 1
    levels = int(math.log(total, fanout)) + 1
    assert sum(held) == sum(weights)
    assert len(held) <= fanout * (levels + 1)
    assert rewritten <= total * 2 * (levels + 1)


@pytest.mark.parametrize("base", [0, 1_000_000])
def test_many_small_commits_write_a_large_list_seldom(base: int) -> None:
    held = [Segment("base", base)] if base else []
    commits, rewritten, rewritten_base = 5_000, 0, 0

    for number in range(commits):
        held.append(Segment(str(number), 1))
        count = segments.count_to_merge(held)
        if count:
            tail = held[-count:]
            held[-count:] = [Segment(f"merged {number}", sum(one.weight for one in tail))]
            rewritten += held[-1].weight
            rewritten_base += held[-1].weight >= base > 0

    assert rewritten_base == 0
    # The lowest level is written again at each merge; half of it a time is a few for each commit.
    assert rewritten / commits < segments.SMALL / segments.FANOUT
    assert len(held) <= 3 * segments.FANOUT

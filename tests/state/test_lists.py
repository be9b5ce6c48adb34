"""Lists of segments, and what a commit makes of them, whatever others have made of them before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.state.lists import (
    FILES,
    HISTORY,
    RUNS,
    SOURCES,
    Edit,
    Lists,
    Segments,
    column_of,
    postings_of,
)
from lakebed.store.segments import Segment

OLD = tuple(Segment(f"d/files/1-old{number}.parquet", 1) for number in range(4))
NEW = tuple(Segment(f"d/files/2-new{number}.parquet", 2) for number in range(2))
LATE = tuple(Segment(f"d/files/3-late{number}.parquet", 3) for number in range(2))


@given(st.lists(st.sampled_from(OLD + LATE), unique=True), st.sets(st.sampled_from(OLD)))
def test_what_is_removed_goes_wherever_it_stands_and_what_is_added_comes_last(
    segments: list[Segment], removed: set[Segment]
) -> None:
    edit = Edit(name=FILES, removed=tuple(removed), added=NEW)

    after = edit.of(tuple(segments))

    assert after == (*(one for one in segments if one not in removed), *NEW)


@given(st.integers(0, len(OLD)), st.sampled_from([(), LATE[:1], LATE]))
def test_edit_in_place_takes_the_place_of_the_begin(count: int, late: Segments) -> None:
    edit = Edit(name=HISTORY, removed=OLD[:count], added=NEW, is_in_place=True)

    assert edit.of((*OLD, *late)) == (*NEW, *OLD[count:], *late)


@pytest.mark.parametrize(
    "now",
    [
        (),
        OLD[1:],
        OLD[:2],  # others have merged the end
        (*LATE, *OLD),
        (OLD[1], OLD[0], *OLD[2:]),
        (*LATE[:1], *OLD[2:]),  # others have merged the begin
    ],
)
def test_edit_in_place_leaves_a_list_that_begins_otherwise_by_now(now: Segments) -> None:
    edit = Edit(name=HISTORY, removed=OLD[:3], added=NEW, is_in_place=True)

    assert edit.of(now) == now


@pytest.mark.parametrize("late", [(), LATE])
def test_edit_for_the_base_does_nothing_on_a_later_version(late: Segments) -> None:
    pruned = Edit(name=FILES, removed=OLD, added=NEW, is_in_place=True, is_for_base=True)
    other = Edit(name=FILES, added=LATE)
    lists = Lists(files=(*OLD, *late))

    assert lists.edited([pruned], (), is_base=True).files == (*NEW, *late)
    assert lists.edited([pruned, other], (), is_base=False).files == (*OLD, *late, *LATE)


def test_edits_of_a_list_are_made_one_after_the_other_and_leave_the_others_alone() -> None:
    lists = Lists(history=OLD[:1], files=OLD, sources=OLD[1:2], runs=OLD[2:3])
    edits = [
        Edit(name=FILES, removed=OLD[:2], added=NEW[:1], is_in_place=True),
        Edit(name=FILES, removed=(NEW[0], OLD[3]), added=LATE),
    ]

    after = lists.edited(edits, (), is_base=True)

    assert after == Lists(history=OLD[:1], files=(OLD[2], *LATE), sources=OLD[1:2], runs=OLD[2:3])


def test_list_of_a_column_that_is_not_indexed_any_more_is_left_out() -> None:
    lists = Lists(postings={"a": OLD[:1], "b": OLD[1:2]})
    edits = Lists(postings={"a": NEW[:1], "b": NEW[1:], "c": LATE[:1]}).additions()

    after = lists.edited(edits, ("c", "b"), is_base=True)

    assert list(after.postings.items()) == [("c", LATE[:1]), ("b", (OLD[1], NEW[1]))]


def test_list_of_a_column_without_segments_is_not_there() -> None:
    lists = Lists(postings={"a": OLD})

    after = lists.edited([Edit(name=postings_of("a"), removed=OLD)], ("a", "b"), is_base=True)

    assert after == Lists()


@given(
    st.fixed_dictionaries(
        {
            "history": st.sampled_from([(), OLD[:1]]),
            "files": st.sampled_from([(), OLD]),
            "sources": st.sampled_from([(), LATE]),
            "runs": st.sampled_from([(), NEW]),
            "postings": st.dictionaries(
                st.sampled_from(["a", "files", "postings of a", "a.b"]),
                st.sampled_from([OLD, NEW]),
            ),
        }
    )
)
def test_lists_are_told_by_name_and_by_their_own_additions(
    lists_by_kind: dict[str, object],
) -> None:
    lists = Lists(**lists_by_kind)  # type: ignore[arg-type]  # as the strategy makes them

    assert Lists.by_name(dict(lists.items())) == lists
    assert Lists().edited(lists.additions(), lists.postings, is_base=False) == lists
    assert all(lists[name] == segments for name, segments in lists.items())
    assert lists["postings of nothing"] == ()
    assert len(lists.keys) == sum(len(segments) for _, segments in lists.items())


def test_names_tell_lists_of_columns_from_the_others() -> None:
    assert [column_of(name) for name in (HISTORY, FILES, SOURCES, RUNS)] == [None] * 4
    assert [column_of(postings_of(name)) for name in ("a", "files")] == ["a", "files"]

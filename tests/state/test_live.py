"""The live files of a state that lists them all, as callers ask for them."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.keys import partition_of_label
from lakebed.state.scope import Nothing, RewrittenFiles, RunFiles, Scope, ThesePartitions
from lakebed.state.state import Listed

PARTITIONS = ["p=a", "p=b", "p=c/q=1"]
labels = st.builds(
    lambda place, batch, file: f"{place}/batch_id={batch}/part-{file}",
    st.sampled_from(PARTITIONS),
    st.integers(1, 3),
    st.integers(0, 4),
)
listed = st.lists(labels, unique=True, max_size=20).map(tuple)


@given(listed, st.lists(labels, max_size=8), st.sets(st.sampled_from(PARTITIONS)))
def test_answers_are_those_of_the_list(
    known: tuple[str, ...], some: list[str], places: set[str]
) -> None:
    live = Listed(known)

    assert live.count == len(known)
    assert tuple(itertools.chain.from_iterable(live.pieces())) == known
    assert live.of(places) == tuple(label for label in known if partition_of_label(label) in places)
    assert live.holding(some) == set(known) & set(some)


@given(listed, st.sets(labels, max_size=8), st.sets(st.sampled_from(PARTITIONS)))
def test_a_scope_removes_the_files_that_it_names(
    known: tuple[str, ...], some: set[str], places: set[str]
) -> None:
    scopes: list[Scope] = [
        Nothing(),
        ThesePartitions(frozenset(places)),
        RewrittenFiles(frozenset(some)),
        RunFiles("daily", labels=frozenset(some), partitions=frozenset(places)),
    ]

    for scope in scopes:
        removed = Listed(known).removed_by(scope)
        assert removed == tuple(label for label in known if scope.removes(label))

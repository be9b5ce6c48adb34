"""A tree answers as the set of its labels does, wherever it is folded and merged."""

from __future__ import annotations

import itertools
import random

import pytest
from effort import cases, examples
from hypothesis import given
from hypothesis import strategies as st
from tree_world import ORDER, SMALL, World

from lakebed.errors import CorruptMetadataError
from lakebed.model.keys import partition_of_label
from lakebed.state.scope import Nothing, TheseFiles, ThesePartitions
from lakebed.state.tree.fold import is_due, land
from lakebed.state.tree.leaf import PartitionFiles
from lakebed.state.tree.tree_files import TreeFiles, scrub
from lakebed.state.tree.tree_root import Sizes

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(0, 5), st.integers(0, 4)),
        st.tuples(st.just("commit"), st.integers(7, 30), st.integers(0, 12)),
        st.just(("fold", 0, 0)),
        st.just(("merge", 0, 0)),
        st.just(("store", 0, 0)),
    ),
    max_size=25,
)


def played(seed: int, steps: list[tuple[str, int, int]]) -> World:
    world = World(random.Random(seed))
    for step, added, removed in steps:
        match step:
            case "commit":
                world.commit(added, removed)
            case "fold":
                world.fold()
            case "merge":
                world.merge()
            case "store":
                world.store_and_read()
    return world


def check_answers(tree: TreeFiles, live: frozenset[str], rng: random.Random) -> None:
    assert sorted(tree.labels) == sorted(live)
    assert tree.count == len(live)
    pieces = list(itertools.chain.from_iterable(tree.pieces()))
    assert sorted(pieces) == sorted(live)
    places = sorted({partition_of_label(label) for label in live})
    some = set(rng.sample(places, min(2, len(places)))) | {"day=1999-01-01/n=1"}
    inside = {label for label in live if partition_of_label(label) in some}
    assert sorted(tree.of(some)) == sorted(inside)
    known = rng.sample(sorted(live), min(5, len(live)))
    assert tree.holding([*known, "day=2013-01-01/n=1/batch_id=1/none"]) == frozenset(known)
    assert sorted(tree.removed_by(ThesePartitions(frozenset(some)))) == sorted(inside)
    assert sorted(tree.removed_by(TheseFiles.of(known))) == sorted(known)
    assert tree.removed_by(Nothing()) == ()


def totals_of(tree: TreeFiles) -> dict[str, PartitionFiles]:
    return {one.path: one for one in tree.partitions()}


@given(st.integers(0, 2**32), STEPS)
@examples(0.5)
def test_answers_are_those_of_the_labels(seed: int, steps: list[tuple[str, int, int]]) -> None:
    world = played(seed, steps)

    check_answers(world.tree, world.versions[-1], random.Random(seed))
    world.root.check_balance()
    assert scrub(world.tree) == world.root.totals


@given(st.integers(0, 2**32), STEPS)
@examples(0.5)
def test_every_version_can_be_read_again(seed: int, steps: list[tuple[str, int, int]]) -> None:
    world = played(seed, steps)

    for version, live in enumerate(world.versions):
        check_answers(world.at(version), live, random.Random(seed))


@given(st.integers(0, 2**32), STEPS)
@examples(0.5)
def test_folds_and_merges_change_no_answer(seed: int, steps: list[tuple[str, int, int]]) -> None:
    folded = played(seed, steps)
    plain = played(seed, [step for step in steps if step[0] == "commit"])

    # The random names differ, so only what the seed decides is compared.
    assert [len(one) for one in folded.versions] == [len(one) for one in plain.versions]
    before = folded.root
    answers = (sorted(folded.tree.labels), totals_of(folded.tree), before.totals)
    folded.fold()
    folded.merge()
    folded.store_and_read()

    assert (sorted(folded.tree.labels), totals_of(folded.tree), folded.root.totals) == answers
    assert not folded.root.buffer


@given(st.integers(0, 2**32), STEPS)
@examples(0.3)
def test_facts_stay_with_their_files(seed: int, steps: list[tuple[str, int, int]]) -> None:
    world = played(seed, steps)
    known = facts_by_label(world)

    world.fold()
    world.merge()

    assert facts_by_label(world) == known


def facts_by_label(world: World) -> dict[str, object]:
    parts = [world.leaves.with_facts(ref) for ref in world.root.refs]
    parts.append(world.root.held_files(ORDER))
    facts = {}
    for files in parts:
        table = files.facts
        assert table is not None
        checksums = table.column("checksum").to_pylist()
        stats = table.column("stats").to_pylist() if "stats" in table.column_names else checksums
        rows = zip(files.rows.tolist(), files.since.tolist(), checksums, stats, strict=True)
        facts.update(zip(files.labels(), rows, strict=True))
    return {label: row for label, row in facts.items() if label in world.live}


@pytest.mark.parametrize("seed", range(cases(3)))
def test_long_history_keeps_few_runs_and_small_leaves(seed: int) -> None:
    world = World(random.Random(seed), Sizes(leaf=8, buffer=4, inline=6, fanout=3, merge=10**6))
    for _ in range(100):
        world.commit(world.rng.randint(0, 4), world.rng.choice([0, 0, 0, 3]))
        if is_due(world.root, world.sizes):
            world.fold()

    check_answers(world.tree, world.versions[-1], world.rng)
    assert all(ref.files <= world.sizes.leaf for ref in world.root.refs)
    for level in {ref.level for ref in world.root.refs}:
        runs = {ref.run for ref in world.root.refs if ref.level == level}
        assert len(runs) < world.sizes.fanout
    for version in (0, 1, 55, 99):
        check_answers(world.at(version), world.versions[version], world.rng)


@given(st.integers(0, 2**32), STEPS, st.integers(0, 4))
@examples(0.5)
def test_fold_holds_for_later_roots(
    seed: int, steps: list[tuple[str, int, int]], later: int
) -> None:
    world = played(seed, [*steps, ("commit", 3, 1)])
    folded = world.folded()
    assert folded is not None
    for _ in range(later):
        world.commit(world.rng.randint(0, 9), world.rng.randint(0, 9))
    world.leaves.objects |= folded.objects("d")
    before = sorted(world.tree.labels)

    landed = land(folded, world.root, world.leaves, ORDER)

    assert landed is not None
    assert sorted(TreeFiles(landed, ORDER, world.leaves).labels) == before
    assert landed.totals == world.root.totals
    assert len(landed.buffer) == later


def test_fold_does_not_land_on_another() -> None:
    world = World(random.Random(1))
    world.commit(3, 0)
    folded = world.folded()
    world.fold()
    world.commit(1, 0)

    assert folded is not None
    assert land(folded, world.root, world.leaves, ORDER) is None


def test_fold_of_an_empty_buffer_is_none() -> None:
    assert World(random.Random(1)).folded() is None


def test_leaf_that_overlaps_none_stays_as_it_is() -> None:
    world = World(random.Random(1), SMALL)
    for day in (1, 2, 3):
        labels = [f"day=2013-01-{day:02d}/n=1/batch_id={day}/x-{name}" for name in range(3)]
        world.label = iter(labels).__next__  # type: ignore[method-assign]
        world.commit(3, 0)
        del world.label
        world.fold()
    world.sizes = Sizes(leaf=6, buffer=4, inline=6, fanout=2)
    ids = {ref.id for ref in world.root.refs}

    world.merge()

    assert {ref.id for ref in world.root.refs} == ids
    assert len({ref.run for ref in world.root.refs}) == 1


def test_removal_of_a_file_that_is_not_live_is_refused() -> None:
    world = World(random.Random(1))
    world.commit(3, 0)
    world.live["day=2013-01-01/n=1/batch_id=1/unknown"] = 1
    world.rng.sample = lambda known, count: ["day=2013-01-01/n=1/batch_id=1/unknown"]  # type: ignore[method-assign]

    with pytest.raises(CorruptMetadataError, match="removes 1 files, of which 0 are live"):
        world.commit(0, 1)

"""The references of a root, which are decoded when they are asked for."""

from __future__ import annotations

import datetime as dt
import pickle
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tree_world import ORDER, World

from lakebed.errors import CorruptMetadataError
from lakebed.model.predicate import Comparison, Op
from lakebed.state.tree import leaf_refs, tree_root
from lakebed.state.tree.leaf_ranges import Ranges
from lakebed.state.tree.leaf_refs import Ref, Refs
from lakebed.state.tree.sums import Totals, added_up
from lakebed.state.tree.tree_root import Root

LEAVES = 400


def day(number: int) -> dt.date:
    return dt.date(2013, 1, 1) + dt.timedelta(days=number)


def ref(number: int, run: int = 0) -> Ref:
    """Return a reference to a leaf that holds one directory."""
    levels = (f"day={day(number)}", "n=1", "batch_id=1")
    directory = "/".join(levels)
    return Ref(
        id=number.to_bytes(16),
        level=0,
        run=run,
        totals=Totals(files=5, rows=50, bytes=500, unknown=1, low=2**64 - 3, high=number),
        first=directory,
        last=directory,
        low=levels,
        high=levels,
        nulls=(0,) * len(levels),
        lengths=(1, 2, 3),
        hashes=(bytes(16), bytes(16), bytes(16)),
        since=1,
    )


def stored(count: int = LEAVES, runs: int = 2) -> Root:
    """Return a root of many leaves as it is read."""
    refs = tuple(ref(number, run=runs * number // count) for number in range(count))
    totals = added_up([one.totals for one in refs])
    return tree_root.decode(tree_root.encode(Root(refs=refs, totals=totals, runs=runs)), "k")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the references that were decoded, which it gets."""
    found: list[Any] = []
    decode = leaf_refs.decode_ref

    def noting(raw: msgspec.Raw, key: str) -> Ref:
        found.append(decode(raw, key))
        return found[-1]

    monkeypatch.setattr(leaf_refs, "decode_ref", noting)
    return found


def test_commit_decodes_no_reference(decoded: list[Any]) -> None:
    world = World(random.Random(3))
    for _ in range(6):
        world.commit(4, 0)
        world.fold()
    data = tree_root.encode(world.root)
    world.root = tree_root.decode(data, "k")
    assert len(world.root.refs) > 1

    assert tree_root.encode(world.root) == data
    world.commit(3, 0)
    world.root.check_balance()
    tree_root.encode(world.root)

    assert not decoded


def test_lookup_of_a_directory_decodes_few_references(decoded: list[Any]) -> None:
    root = stored()

    ((found, _),) = Ranges(root.refs, ORDER).by_directory([ref(333).first])

    assert found == ref(333, run=1)
    assert len(decoded) < LEAVES // 10


def test_plan_decodes_the_edges_of_blocks_and_one_block(decoded: list[Any]) -> None:
    root = stored(runs=1)

    found = Ranges(root.refs, ORDER).may([Comparison("day", Op.EQ, day(333))])

    assert found == [ref(333)]
    assert len(decoded) < LEAVES // 5


def test_leaf_of_directories_of_another_form_is_found_before_levels_that_do_not_fit() -> None:
    other, unfit = "a-directory", "day=unknown/n=1/batch_id=1"
    last = replace(ref(9), first=unfit, last=unfit, low=("", "n=1", "batch_id=1"))
    last = replace(last, high=last.low)
    among = replace(ref(8), first=other, last=other, low=(), high=(), nulls=())
    refs = sorted([ref(1), ref(2), among, last], key=lambda one: ORDER(one.first))
    assert refs == [ref(1), ref(2), among, last]

    assert Ranges(refs, ORDER).of_partitions([f"day={day(1)}"]) == [ref(1), among]


@given(st.lists(st.integers(0, 30), unique=True), st.data())
def test_references_are_those_of_a_tuple(numbers: list[int], data: st.DataObject) -> None:
    known = tuple(ref(number, run=number // 10) for number in numbers)
    raw = [msgspec.Raw(msgspec.msgpack.encode(one)) for one in known]
    refs = Refs(known, raw, "k")
    begin, end = (data.draw(st.integers(-5, 35)) for _ in range(2))
    without = data.draw(st.sets(st.sampled_from([one.id for one in known] or [b""])))
    added = tuple(ref(number) for number in data.draw(st.sets(st.integers(40, 45))))

    assert tuple(refs[begin:end]) == known[begin:end]
    assert refs == known
    assert refs != (*known, ref(99))
    assert tuple(refs.changed(added, without=without)) == (
        *(one for one in known if one.id not in without),
        *added,
    )
    assert refs.totals == sum_of(known)
    assert refs.file_count == sum(one.files for one in known)
    assert [one for run in refs.runs() for one in run] == list(known)
    assert all(len({one.run for one in run}) == 1 for run in refs.runs())
    assert pickle.loads(pickle.dumps(refs)) == known


def sum_of(refs: tuple[Ref, ...]) -> Totals:
    found = Totals()
    for one in refs:
        found += one.totals
    return found


@pytest.mark.parametrize(
    ("position", "value"),
    [(4, None), (6, []), (9, [1, 2]), (10, [b"x"] * 3), (11, -1)],
)
def test_malformed_reference_is_refused_where_it_is_needed(position: int, value: object) -> None:
    plain = msgspec.msgpack.decode(tree_root.encode(stored(3, 1)))
    plain[4][1][position] = value
    root = tree_root.decode(msgspec.msgpack.encode(plain), "the head")

    assert root.refs[0] == ref(0)
    with pytest.raises(CorruptMetadataError, match="the head"):
        root.refs[1]

"""The codec of a root, of its buffer and of the history of a tree."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from tree_world import ORDER, World

from lakebed.errors import CorruptMetadataError
from lakebed.model.schema import Decimal, Field, Kind, ListOf, Primitive, Schema
from lakebed.state.facts import ColumnFacts, FileFacts, facts_table
from lakebed.state.tree import folded_commits as segment
from lakebed.state.tree import inline as inline_facts
from lakebed.state.tree import tree_root
from lakebed.state.tree.inline import InlineBounds, InlineFacts, inline
from lakebed.state.tree.sums import Totals
from lakebed.state.tree.tree_root import Gone


def grown(seed: int) -> World:
    world = World(random.Random(seed))
    for step in range(12):
        world.commit(world.rng.randint(0, 12), world.rng.randint(0, 8))
        if step % 5 == 4:
            world.fold()
    return world


@given(st.sets(st.integers(0, 60)))
def test_gone_places_are_kept_as_runs(places: set[int]) -> None:
    gone = Gone.at(sorted(places), Totals(files=len(places)))

    assert gone.places.tolist() == sorted(places)
    assert sum(gone.runs[1::2]) == len(places)


def test_day_that_is_gone_is_one_run() -> None:
    assert Gone.at(np.arange(500, 600), Totals()).runs == (500, 100)


def test_root_is_read_as_it_was_written() -> None:
    root = grown(1).root
    assert all((root.gone, root.buffer, root.refs, root.history))

    assert tree_root.decode(tree_root.encode(root), "k") == root


def test_segment_of_the_history_is_read_as_it_was_written() -> None:
    world = grown(1)
    commits = [commit for one in world.root.history for commit in world.commits_of(one)]
    commits += world.root.buffer

    assert [one.entry.version for one in commits] == list(range(1, 13))


def plain(root: tree_root.Root) -> list[Any]:
    stored: list[Any] = msgspec.msgpack.decode(tree_root.encode(root))
    return stored


VERSION, TOTALS, FOLDED, RUNS, REFS, GONE, BUFFER, HISTORY = range(8)


def _spoil(name: str, stored: list[Any]) -> None:
    match name:
        case "a version too many":
            stored[VERSION] += 1
        case "a negative version":
            stored[VERSION] = -1
        case "a leaf twice":
            stored[REFS].append(stored[REFS][0])
        case "a leaf that is unknown":
            stored[GONE][bytes(16)] = [[0, 1], [1, 0, 0, 0, 0, 0]]
        case "a gone place outside":
            leaf, (_, totals) = next(iter(stored[GONE].items()))
            stored[GONE][leaf] = [[10**6, totals[0]], totals]
        case "another number of gone places":
            leaf, (runs, totals) = next(iter(stored[GONE].items()))
            stored[GONE][leaf] = [runs, [totals[0] + 1, *totals[1:]]]
        case "a short id":
            stored[REFS][0][0] = b"x"
        case "a path upwards":
            stored[BUFFER][0][0]["added"] = ["../../x"] * len(stored[BUFFER][0][1][0])
        case "facts of fewer files":
            stored[BUFFER][0][1][0] = []
        case "a negative number of rows":
            stored[BUFFER][0][1][0][0] = -5
        case "a gap in the history":
            stored[HISTORY][0][3] -= 1
        case "a history of later versions":
            stored[HISTORY][-1][3] += 1


SPOILT = [
    "a version too many",
    "a negative version",
    "a leaf twice",
    "a leaf that is unknown",
    "a gone place outside",
    "another number of gone places",
    "a short id",
    "a path upwards",
    "facts of fewer files",
    "a negative number of rows",
    "a gap in the history",
    "a history of later versions",
]


@pytest.mark.parametrize("name", SPOILT)
def test_root_that_contradicts_itself_is_refused(name: str) -> None:
    world = grown(1)
    world.commit(3, 0)
    root = world.root
    stored = plain(root)
    stored[BUFFER] = [one for one in stored[BUFFER] if one[1][0]] + [
        one for one in stored[BUFFER] if not one[1][0]
    ]
    stored[BUFFER].sort(key=lambda one: one[0]["version"])
    if not stored[BUFFER][0][1][0]:
        pytest.skip("the first commit of the buffer has no file")
    _spoil(name, stored)

    with pytest.raises(CorruptMetadataError, match="in tree"):
        tree_root.decode(msgspec.msgpack.encode(stored), "k")


@given(st.data())
@examples(2)
def test_changed_bytes_of_a_root_are_read_or_refused_by_name(data: st.DataObject) -> None:
    raw = bytearray(tree_root.encode(ROOT))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptMetadataError):
        root = tree_root.decode(bytes(raw), "k")
        root.held_files(ORDER, "k")
        root.check_balance()


ROOT = grown(2).root


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_by_name(data: bytes) -> None:
    one = ROOT.history[0]
    with pytest.raises(CorruptMetadataError):
        tree_root.decode(data, "k")
    with pytest.raises(CorruptMetadataError):
        segment.decode(data, one, "k")


def test_segment_of_other_versions_is_refused() -> None:
    world = grown(1)
    one = world.root.history[0]
    data = world.leaves.objects[one.key("d")]

    with pytest.raises(CorruptMetadataError, match="has the versions"):
        segment.decode(data, msgspec.structs.replace(one, last=one.last + 1), "k")


# Facts in the buffer

SCHEMA = Schema(
    fields=(
        *(Field(name=kind.name.lower(), type=Primitive(kind)) for kind in Kind),
        Field(name="price", type=Decimal(precision=12, scale=3)),
    )
)
MOMENT = dt.datetime(2013, 1, 1, 12, 30, 15, 123456)
VALUES = {
    "boolean": (False, True),
    "int": (-(2**31), 2**31 - 1),
    "long": (-(2**63), 2**63 - 1),
    "unsigned_long": (0, 2**64 - 1),
    "float": (-0.5, 1.5),
    "double": (float("-inf"), 1e300),
    "string": ("", "ü\U0010ffff"),
    "bytes": (b"", b"\xff\x00"),
    "date": (dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "timestamp": (MOMENT.replace(tzinfo=dt.UTC), MOMENT.replace(year=3000, tzinfo=dt.UTC)),
    "timestamp_ntz": (MOMENT, MOMENT.replace(year=3000)),
    "price": (decimal.Decimal("-123456789.123"), decimal.Decimal("0.001")),
}


def test_facts_of_every_type_are_kept() -> None:
    columns = {
        name: ColumnFacts(min=low, max=high, null_count=3) for name, (low, high) in VALUES.items()
    }
    assert {field.name for field in SCHEMA} == VALUES.keys()
    table = facts_table(
        [
            FileFacts(label="a/x", row_count=5, size_bytes=7, checksum="sha256:0", columns=columns),
            FileFacts(
                label="a/y",
                row_count=0,
                size_bytes=9,
                checksum="sha256:1",
                columns=dict.fromkeys(columns, ColumnFacts()),
            ),
        ],
        SCHEMA,
    )

    facts = msgspec.msgpack.decode(msgspec.msgpack.encode(inline(table)), type=InlineFacts)
    (read,) = inline_facts.facts_table([facts], "k")

    assert (facts.rows, facts.sizes) == ([5, 0], [7, 9])
    assert read.schema.field("stats").type == table.schema.field("stats").type
    assert read.to_pylist() == table.select(["checksum", "stats"]).to_pylist()


def test_facts_without_columns_are_kept() -> None:
    schema = Schema(fields=(Field(name="x", type=ListOf(element=Primitive(Kind.INT))),))
    table = facts_table([FileFacts(label="x", row_count=1, size_bytes=2, checksum="c")], schema)

    (read,) = inline_facts.facts_table([inline(table)], "k")

    assert read.equals(pa.table({"checksum": ["c"]}))


@pytest.mark.parametrize(
    "column",
    [
        InlineBounds("unknown", [1], [1], [0]),
        InlineBounds("int64", ["x"], [1], [0]),
        InlineBounds("int64", [1, 2], [1], [0]),
        InlineBounds("int64", [1], [1], []),
        InlineBounds("decimal(99,2)", ["1"], ["1"], [0]),
        InlineBounds("date", [2**40], [1], [0]),
        InlineBounds("string", [{"a": [1]}], ["x"], [0]),
    ],
    ids=str,
)
def test_facts_of_another_form_are_refused(column: InlineBounds) -> None:
    with pytest.raises(CorruptMetadataError, match="'k' holds facts"):
        inline_facts.facts_table([InlineFacts([1], [1], ["c"], {"x": column})], "k")

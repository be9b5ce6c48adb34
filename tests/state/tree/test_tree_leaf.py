"""The codec of a leaf: what is written is read, and bytes of others give named errors only."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from tree_world import NULL, ORDER, World

from lakebed.errors import CorruptMetadataError
from lakebed.model.keys import partition_of_label
from lakebed.state.tree import leaf
from lakebed.state.tree.leaf import decode_facts, decode_files, decode_partitions, encode
from lakebed.state.tree.leaf_files import MOST, OTHER_NAME, Files, files_of, join, name_of

HEX = st.text("0123456789abcdef", min_size=32, max_size=32)
NAMES = st.one_of(
    HEX.map("part-{}".format),
    st.builds("part-{}-{}".format, st.integers(0, 10**9), HEX),
    st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1).filter(
        lambda name: name not in (".", "..")
    ),
)
PLACES = st.one_of(
    st.builds(
        "day=2013-01-{:02d}/n={}/batch_id={}".format,
        st.integers(1, 28),
        st.sampled_from(["1", "02", "10", "x", NULL]),
        st.integers(1, 99),
    ),
    st.sampled_from(["", "odd", "day=2013-01-01/n=1/batch_id=1/deeper"]),
)
LABELS = st.lists(
    st.builds(lambda place, name: f"{place}/{name}" if place else name, PLACES, NAMES),
    unique=True,
    min_size=1,
    max_size=30,
)
NUMBERS = st.one_of(st.none(), st.integers(0, MOST))


@st.composite
def some_files(draw: Callable) -> Files:
    labels = draw(LABELS)
    count = len(labels)
    numbers = st.lists(NUMBERS, min_size=count, max_size=count)
    rows, sizes, since = draw(numbers), draw(numbers), draw(numbers)
    facts = pa.table({"checksum": pa.array([f"sha256:{label}" for label in labels])})
    known = [number or 0 for number in since]
    return files_of(labels, ORDER, since=known, rows=rows, sizes=sizes, facts=facts)


def sections(files: Files) -> tuple[bytes, bytes, bytes]:
    encoded = encode(files, ORDER)
    first, second, _ = encoded.lengths
    data = encoded.data
    return data[:first], data[first : first + second], data[first + second :]


@given(some_files())
def test_files_are_read_as_they_were_written(files: Files) -> None:
    partitions, labels, facts = sections(files)

    read = decode_files(labels, "k")

    assert read.labels() == files.labels()
    assert read.directories == files.directories
    for name in ("counts", "names", "schemas", "since", "rows", "sizes"):
        assert np.array_equal(getattr(read, name), getattr(files, name))
    assert read.totals() == files.totals()
    assert decode_facts(facts, files.count, "k").equals(files.facts)
    checksums = files.facts.column("checksum").to_pylist()
    assert checksums == [f"sha256:{label}" for label in files.labels()]
    assert sum(one.files for one in decode_partitions(partitions, "k")) == files.count


@given(LABELS)
def test_order_is_that_of_the_typed_values(labels: list[str]) -> None:
    files = files_of(labels, ORDER)

    assert sorted(files.labels()) == sorted(labels)
    assert list(files.directories) == sorted(files.directories, key=ORDER)
    assert len({partition_of_label(label) for label in labels}) == len(leaf.partitions_of(files))


def test_numbers_are_in_the_order_of_numbers_and_null_is_first() -> None:
    levels = ["2", "10", "9", NULL]
    files = files_of([f"day=2013-01-01/n={level}/batch_id=1/x" for level in levels], ORDER)

    numbers = [directory.split("/")[1] for directory in files.directories]
    assert numbers == [f"n={NULL}", "n=2", "n=9", "n=10"]


@given(some_files(), some_files(), st.integers(0, 2**32))
def test_totals_are_conserved(one: Files, other: Files, seed: int) -> None:
    rng = random.Random(seed)
    places = np.array(sorted(rng.sample(range(one.count), rng.randint(0, one.count))), np.int64)

    assert one.take(places).totals() + one.without(places).totals() == one.totals()
    assert join([one, other], ORDER).totals() == one.totals() + other.totals()
    cut = rng.randint(0, one.count)
    parts = [one.slice(0, cut), one.slice(cut, one.count)]
    assert parts[0].labels() + parts[1].labels() == one.labels()


@given(some_files(), some_files())
def test_other_files_have_another_checksum(one: Files, other: Files) -> None:
    are_equal = sorted(one.labels()) == sorted(other.labels())

    assert (one.totals().checksum == other.totals().checksum) is are_equal


def test_names_swapped_between_directories_have_another_checksum() -> None:
    names = [f"part-{number:032x}" for number in (1, 2)]
    places = [f"day=2013-01-0{day}/n=1/batch_id=1" for day in (1, 2)]
    straight = [f"{place}/{name}" for place, name in zip(places, names, strict=True)]
    crossed = [f"{place}/{name}" for place, name in zip(places, reversed(names), strict=True)]

    assert files_of(straight, ORDER).totals() != files_of(crossed, ORDER).totals()


@given(some_files(), LABELS)
def test_files_are_found_by_label(files: Files, others: list[str]) -> None:
    labels = files.labels()

    assert files.find(labels) == {label: place for place, label in enumerate(labels)}
    assert files.find(others).keys() == set(others) & set(labels)


def test_name_that_begins_within_another_is_not_found() -> None:
    place = "day=2013-01-01/n=1/batch_id=1"
    files = files_of([f"{place}/part-{32 * '0'}", f"{place}/part-{31 * '0'}1"], ORDER)

    assert files.find([f"{place}/part-{30 * '0'}01", f"{place}/part-2-{32 * '0'}"]) == {
        f"{place}/part-{30 * '0'}01": 1
    }


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        (f"part-{32 * 'a'}", 1),
        (f"part-7-{32 * 'a'}", 7),
        (f"part-1-{32 * 'a'}", OTHER_NAME),
        (f"part-07-{32 * 'a'}", OTHER_NAME),
        (f"part-{32 * 'A'}", OTHER_NAME),
        (f"part-{32 * 'a'}\n", OTHER_NAME),
    ],
)
def test_only_names_that_can_be_made_again_have_no_text(name: str, schema: int) -> None:
    assert name_of(name)[0] == schema


def test_leaf_in_another_order_is_not_written() -> None:
    files = files_of([f"day=2013-01-0{day}/n=1/batch_id=1/x" for day in (1, 2)], ORDER)
    turned = replace(files, directories=files.directories[::-1])

    with pytest.raises(CorruptMetadataError, match="not in order"):
        encode(turned, ORDER)


# Bytes of others


@given(some_files(), st.data())
@examples(2)
def test_changed_bytes_are_read_or_refused_by_name(files: Files, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, 2))
    section = bytearray(sections(files)[number])
    for _ in range(data.draw(st.integers(1, 4))):
        section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.one_of(st.just(len(section)), st.integers(0, len(section))))

    read_any(number, bytes(section[:end]), files.count)


@given(st.integers(0, 2), st.binary(max_size=200))
def test_any_bytes_are_refused_by_name(number: int, data: bytes) -> None:
    read_any(number, data, 3)


def read_any(number: int, data: bytes, count: int) -> None:
    readers = [
        lambda: decode_partitions(data, "k"),
        lambda: decode_files(data, "k").labels(),
        lambda: decode_facts(data, count, "k"),
    ]
    with suppress(CorruptMetadataError):
        readers[number]()


def packed(value: object) -> bytes:
    raw = value if isinstance(value, bytes) else msgspec.msgpack.encode(value)
    return zstandard.ZstdCompressor().compress(raw)


def built(count: int, names: bytes, **changed: object) -> bytes:
    """Return section A, with parts of it changed."""
    parts = {
        "directories": ["day=2013-01-01/n=1/batch_id=1"],
        "counts": struct.pack("<I", count),
        "rows": struct.pack("<Q", 1) * count,
        "sizes": struct.pack("<Q", 1) * count,
        "runs": [[count, 1, 1, 0]],
        "others": {},
    } | changed
    encoded = [packed(part) for part in parts.values()]
    return struct.pack("<7I", count, *map(len, encoded)) + b"".join(encoded) + names


NAME = bytes(16)
HOSTILE = {
    "a path upwards": {"directories": ["day=2013-01-01/../../other"]},
    "an absolute path": {"directories": ["/etc"]},
    "a directory twice": {"directories": ["a", "a"], "counts": struct.pack("<2I", 1, 0)},
    "an empty directory": {"directories": ["a", "b"], "counts": struct.pack("<2I", 1, 0)},
    "too many counted": {"counts": struct.pack("<I", 2)},
    "a number beyond signed": {"rows": struct.pack("<Q", 2**64 - 1)},
    "a run too long": {"runs": [[2, 1, 1, 0]]},
    "a run of negative length": {"runs": [[-1, 1, 1, 0], [2, 1, 1, 0]]},
    "a name that is a path": {"others": {0: "../x"}, "runs": [[1, 0, 1, 0]]},
    "a name of a file that has none": {"others": {0: "x"}},
    "no name of a file that needs one": {"runs": [[1, 0, 1, 0]]},
    "more directories than files": {"directories": ["x"] * 1000},
    "a directory that is no text": {"directories": [1]},
    "a bomb": {"directories": bytes(2**25)},
}


@pytest.mark.parametrize("changed", HOSTILE.values(), ids=HOSTILE.keys())
def test_part_that_contradicts_the_others_is_refused(changed: dict[str, object]) -> None:
    assert decode_files(built(1, NAME), "k").count == 1

    with pytest.raises(CorruptMetadataError, match="Leaf 'k' cannot be read"):
        decode_files(built(1, NAME, **changed), "k")


def test_leaf_that_claims_more_than_it_holds_takes_no_memory() -> None:
    many = struct.pack("<7I", 2**32 - 1, *[2**32 - 1] * 6)
    huge = packed(b"\xdd\xff\xff\xff\xff" + b"\xa0" * 2**22)
    tracemalloc.start()
    try:
        for data in (many, built(1, NAME, directories=b"\xdd\x00\xff\xff\xff" + b"\xa0" * 2**22)):
            with pytest.raises(CorruptMetadataError):
                decode_files(data, "k")
        with pytest.raises(CorruptMetadataError):
            decode_partitions(huge, "k")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * 2**20


def test_facts_of_another_number_of_files_are_refused() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"checksum": ["a", "b"]}), sink)

    with pytest.raises(CorruptMetadataError, match="another number of rows"):
        decode_facts(sink.getvalue().to_pybytes(), 3, "k")


@pytest.mark.parametrize(
    "table", [{"x": [1]}, {"checksum": [1]}, {"checksum": ["a"], "stats": [1]}]
)
def test_facts_of_another_form_are_refused(table: dict[str, list]) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(table), sink)

    with pytest.raises(CorruptMetadataError):
        decode_facts(sink.getvalue().to_pybytes(), 1, "k")


def test_whole_leaf_is_as_large_as_its_names_suggest() -> None:
    rng = random.Random(1)
    labels = [
        f"day=2013-01-{number % 28 + 1:02d}/n=1/batch_id={number % 4}/part-{rng.getrandbits(128):032x}"
        for number in range(4096)
    ]
    files = files_of(labels, ORDER, since=1, rows=[10] * 4096, sizes=[1234] * 4096)

    assert len(sections(files)[1]) < 17 * 4096


def test_world_of_the_tests_makes_leaves_of_every_kind() -> None:
    world = World(random.Random(5))
    for _ in range(20):
        world.commit(20, 0)
    names = [label.rpartition("/")[2] for label in world.live]

    assert {name_of(name)[0] for name in names} == {OTHER_NAME, 1, 12}

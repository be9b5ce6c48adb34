"""The entry `partitions` of a head: fast where it can be proven, and never wrong."""

from __future__ import annotations

import json

import msgspec
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import CorruptMetadataError
from lakebed.model.keys import adopted_file_name
from lakebed.model.layout import Naming
from lakebed.state import head
from lakebed.state.head import (
    HeadDocument,
    HeadFormat,
    Partitions,
    decode_head,
    encode_head,
    encode_partitions,
    labels_of,
)

NAMING = Naming("d", "data", ".parquet")
FORMATS = list(HeadFormat)

both_formats = pytest.mark.parametrize("head_format", FORMATS)
components = st.text(
    st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=40
).filter(lambda one: one not in {".", ".."} and not one.startswith("adopted-"))
labels = st.lists(components, min_size=1, max_size=4).map("/".join)


def entries_of(*names: str, naming: Naming = NAMING) -> dict[str, dict[str, dict[str, str]]]:
    return {name: {"files": {naming.table: naming.key(name)}} for name in names}


def encode(document: object, head_format: HeadFormat) -> bytes:
    codec = msgspec.json if head_format is HeadFormat.JSON else msgspec.msgpack
    return codec.encode(document)


def head_with(data: bytes, head_format: HeadFormat) -> HeadDocument:
    return HeadDocument(
        dataset_metadata_version=4,
        dataset_uuid="d",
        partitions=Partitions(data, head_format),
        partition_keys=[],
    )


@both_formats
@given(names=st.lists(labels, unique=True, max_size=30), chunk=st.integers(1, 10))
def test_what_is_written_is_what_every_encoder_writes(
    head_format: HeadFormat, names: list[str], chunk: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head, "_CHUNK", chunk)

        written = encode_partitions(names, NAMING, head_format)

        assert written.encoded == encode(entries_of(*names), head_format)
        document = head_with(written.encoded, head_format)
        assert labels_of(document, NAMING, "k") == tuple(names)


@both_formats
@pytest.mark.parametrize("length", [1, 15, 16, 17, 18, 31, 32, 239, 240, 255, 256, 65_519, 65_536])
def test_labels_of_every_length_survive(head_format: HeadFormat, length: int) -> None:
    names = ["x" * length, "y" * length, "z"]

    written = encode_partitions(names, NAMING, head_format)

    assert written.encoded == encode(entries_of(*names), head_format)
    assert labels_of(head_with(written.encoded, head_format), NAMING, "k") == tuple(names)


@pytest.mark.thorough
@both_formats
@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_any_number_of_labels_survives(head_format: HeadFormat, count: int) -> None:
    names = tuple(f"p={number}/x" for number in range(count))

    written = encode_partitions(names, NAMING, head_format)

    assert written.encoded == encode(entries_of(*names), head_format)
    assert labels_of(head_with(written.encoded, head_format), NAMING, "k") == names


@both_formats
def test_adopted_files_keep_their_keys(head_format: HeadFormat) -> None:
    names = ("p=a/batch_id=1/x", "p=a/batch_id=1/" + adopted_file_name("p=a/000000_0"))

    written = encode_partitions(names, NAMING, head_format)

    read = written.decode(dict[str, head.PartitionEntry])
    assert [one.files["data"] for one in read.values()] == [
        "d/data/p=a/batch_id=1/x.parquet",
        "d/p=a/000000_0",
    ]
    assert labels_of(head_with(written.encoded, head_format), NAMING, "k") == names


def test_adopted_file_outside_the_dataset_is_refused() -> None:
    name = "p=a/batch_id=1/" + adopted_file_name("../e/data/x")
    data = json.dumps({name: {"files": {"data": "d/../e/data/x"}}}).encode()

    with pytest.raises(CorruptMetadataError, match="refers to"):
        labels_of(head_with(data, HeadFormat.JSON), NAMING, "k")


def test_other_ways_to_write_the_same_are_read_the_same() -> None:
    names = ("p=a/x", "p=b/y")

    for data in (
        json.dumps(entries_of(*names)),  # with spaces
        json.dumps(entries_of(*names), indent=1),
        json.dumps(entries_of(*names)).replace("p=a", "p=\\u0061"),
    ):
        found = labels_of(head_with(data.encode(), HeadFormat.JSON), NAMING, "k")
        assert sorted(found) == sorted(names)


def test_a_label_that_stands_twice_counts_once() -> None:
    text = msgspec.json.encode(entries_of("p=a/x")).decode()
    twice = f"{text[:-1]},{text[1:]}"

    found = labels_of(head_with(twice.encode(), HeadFormat.JSON), NAMING, "k")

    assert found == ("p=a/x",)


@both_formats
@given(name=labels, at=st.floats(0, 1), mask=st.integers(1, 255))
@examples(3)
def test_a_changed_byte_is_noticed_or_harmless(
    head_format: HeadFormat, name: str, at: float, mask: int
) -> None:
    data = bytearray(encode_partitions(["p=a/first", name], NAMING, head_format).encoded)
    data[int(at * (len(data) - 1))] ^= mask

    try:
        found = labels_of(head_with(bytes(data), head_format), NAMING, "k")
    except CorruptMetadataError:
        return

    # What is read is what the strict decoder reads, and every label leads to its key.
    codec = msgspec.json if head_format is HeadFormat.JSON else msgspec.msgpack
    assert codec.decode(bytes(data)) == entries_of(*found)


@both_formats
def test_a_head_can_be_written_in_the_other_format(head_format: HeadFormat) -> None:
    written = encode_partitions(["p=é/x", "p=a/y"], NAMING, head_format)
    document = head_with(written.encoded, head_format)

    for other in FORMATS:
        found = decode_head(encode_head(document, other), other, "k")
        assert labels_of(found, NAMING, "k") == ("p=é/x", "p=a/y")

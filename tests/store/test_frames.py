"""Side objects in one zstd frame, and a bit of them that flips on storage."""

import pytest

from lakebed.errors import CorruptMetadataError
from lakebed.store.segments import pack, unpack


def test_a_document_with_a_flipped_bit_is_refused_or_the_same() -> None:
    document = {f"raw/{n * 7919 % 1000:04d}.jsonl": n for n in range(100)}
    packed = pack(document)

    for place in range(len(packed)):
        damaged = bytearray(packed)
        damaged[place] ^= 1 << place % 8
        try:
            found = unpack(bytes(damaged), dict[str, int], "It", "Restore it.")
        except CorruptMetadataError:
            continue
        assert found == document


def test_a_document_that_is_cut_is_refused() -> None:
    with pytest.raises(CorruptMetadataError, match="It cannot be read"):
        unpack(pack({"a": 1})[:-1], dict[str, int], "It", "Restore it.")

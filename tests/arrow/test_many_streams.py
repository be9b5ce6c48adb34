"""Files of bz2 and xz hold one or several streams, and nothing else."""

from __future__ import annotations

import bz2
import io
import lzma
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.arrow.many_streams import open_streams

COMPRESS: dict[str, Callable[[bytes], bytes]] = {"bz2": bz2.compress, "xz": lzma.compress}
DAMAGE = (EOFError, OSError, lzma.LZMAError)


@pytest.mark.parametrize("codec", COMPRESS)
@given(parts=st.lists(st.binary(max_size=300), min_size=1, max_size=4), size=st.integers(1, 400))
def test_all_streams_of_a_file_are_read(codec: str, parts: list[bytes], size: int) -> None:
    raw = pa.BufferReader(b"".join(map(COMPRESS[codec], parts)))

    stream = open_streams(raw, codec)

    pieces = list(iter(lambda: stream.read(size), b""))
    assert b"".join(pieces) == b"".join(parts)
    assert all(len(piece) == size for piece in pieces[:-1])


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("position", [0, 1, 5, -1])
def test_damaged_later_stream_is_an_error(codec: str, position: int) -> None:
    later = bytearray(COMPRESS[codec](b"b\n" * 1_000))
    later[position] ^= 0xFF

    with pytest.raises(DAMAGE):
        open_streams(io.BytesIO(COMPRESS[codec](b"a\n") + bytes(later)), codec).read()


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("length", [0, 3, -1])
def test_file_that_is_empty_or_cut_is_an_error(codec: str, length: int) -> None:
    whole = COMPRESS[codec](b"a\n" * 1_000)

    with pytest.raises(DAMAGE):
        open_streams(io.BytesIO(whole[:length]), codec).read()


@pytest.mark.parametrize("codec", COMPRESS)
def test_what_follows_the_streams_is_an_error(codec: str) -> None:
    with pytest.raises(DAMAGE):
        open_streams(io.BytesIO(COMPRESS[codec](b"a\n") + b"something else"), codec).read()

"""Files of bz2 and xz, which may hold several compressed streams, one after another.

Programs that compress with several threads write such files. The decoder of Arrow refuses the second
stream of bz2; the files of the standard library end without an error where a later stream is damaged.
"""

from __future__ import annotations

import bz2
import io
import lzma
from collections.abc import Callable
from typing import Any, BinaryIO, cast

_CHUNK_BYTES = 64 * 2**10
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "bz2": bz2.BZ2Decompressor,
    "xz": lzma.LZMADecompressor,
}
MANY_STREAM_CODECS = frozenset(_DECOMPRESSORS)


def open_streams(raw: Any, codec: str) -> BinaryIO:
    r"""Open the uncompressed bytes of a file; `raw` stays open.

    A read raises `EOFError` where the file ends within a stream, or is empty; `OSError` or
    `lzma.LZMAError` where something else than a stream follows.

    Args:
        raw: The compressed bytes, with `read`.
        codec: One of `MANY_STREAM_CODECS`.

    >>> open_streams(io.BytesIO(bz2.compress(b"a\n") + bz2.compress(b"b\n")), "bz2").read()
    b'a\nb\n'
    """
    return cast(BinaryIO, io.BufferedReader(_ManyStreams(raw, _DECOMPRESSORS[codec])))


class _ManyStreams(io.RawIOBase):
    def __init__(self, raw: Any, new_decompressor: Callable[[], Any]) -> None:
        self._raw, self._new = raw, new_decompressor
        self._decompressor = new_decompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        while True:
            data = b""
            if self._decompressor.eof:
                data = self._decompressor.unused_data or self._raw.read(_CHUNK_BYTES)
                if not data:
                    return 0
                self._decompressor = self._new()
            elif self._decompressor.needs_input:
                data = self._raw.read(_CHUNK_BYTES)
                if not data:
                    raise EOFError("Compressed file ended within a stream")
            piece = self._decompressor.decompress(data, len(view))
            if piece:
                view[: len(piece)] = piece
                return len(piece)

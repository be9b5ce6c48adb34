"""What is one zstd frame: side objects of JSON, and heads.

A frame says how long its content is, and nothing makes that true. So nobody unpacks one but
`decompress`, which is told how much may come out.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
import zstandard

from lakebed.errors import CorruptMetadataError

MAX_DOCUMENT_BYTES = 2**30  # unpacked; a list of a million files has a quarter of that
_PIECE_BYTES = 4 * 2**20
_MAX_RATIO = 2**15  # a block of zstd takes four bytes at least, and holds 128 KiB at most

_T = TypeVar("_T")


def pack(document: object) -> bytes:
    """Return the bytes of a document."""
    return zstandard.ZstdCompressor(write_checksum=True).compress(msgspec.json.encode(document))


def unpack(data: bytes, kind: type[_T], what: str, hint: str) -> _T:
    """Read a document.

    Args:
        data: As stored.
        kind: Of the document.
        what: It is, for the error.
        hint: What its loss means, for the error.

    Raises:
        CorruptMetadataError: It is truncated, too large or of a wrong form.
    """
    try:
        return msgspec.json.decode(decompress(data, MAX_DOCUMENT_BYTES), type=kind)
    except (
        zstandard.ZstdError,
        msgspec.MsgspecError,
        MemoryError,
        UnicodeDecodeError,
        RecursionError,
    ) as exc:
        raise CorruptMetadataError(f"{what} cannot be read: {exc}.", hint=hint) from exc


def decompress(data: bytes, max_bytes: int) -> bytes:
    """Return the content of a frame.

    What is no frame, or is truncated, raises `zstandard.ZstdError`, and so does one that has more
    in it, before that much has been unpacked.

    Args:
        data: The frame.
        max_bytes: How much may come out of it.

    Cost:
        Memory for the content, and for no more than that many bytes of a frame could hold.
    """
    told = zstandard.get_frame_parameters(data).content_size
    if told != zstandard.CONTENTSIZE_UNKNOWN:
        if told > max_bytes:
            raise _too_large(max_bytes)
        if told > len(data) * _MAX_RATIO:
            message = f"it says that it holds {told} bytes, which {len(data)} cannot"
            raise zstandard.ZstdError(message)
        return zstandard.ZstdDecompressor().decompress(data)
    content = bytearray()
    with zstandard.ZstdDecompressor().stream_reader(data) as reader:
        while piece := reader.read(_PIECE_BYTES):
            content += piece
            if len(content) > max_bytes:
                raise _too_large(max_bytes)
    return bytes(content)


def _too_large(max_bytes: int) -> zstandard.ZstdError:
    return zstandard.ZstdError(f"it unpacks to more than {max_bytes} bytes")

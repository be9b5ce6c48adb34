"""Objects that are one zstd frame: side objects of JSON, and heads.

A frame declares the size of its content, and the declaration may be wrong. So all frames are
unpacked by `decompress`, which limits the size.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
import zstandard

from lakebed.errors import CorruptMetadataError

MAX_DOCUMENT_BYTES = 2**30  # unpacked; a list of a million files has a quarter of that
_PIECE_BYTES = 4 * 2**20
_MAX_RATIO = 2**15  # a block of zstd takes at least four bytes, and holds at most 128 KiB

_T = TypeVar("_T")


def pack(document: object, *, level: int = 3) -> bytes:
    """Return the bytes of a document.

    Args:
        document: The value that JSON represents.
        level: Level of zstd. Level 1 is best for labels: half of each is unpredictable digits, in
            which higher levels search in vain.
    """
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=True)
    return compressor.compress(msgspec.json.encode(document))


def unpack(data: bytes, kind: type[_T], what: str, hint: str) -> _T:
    """Read a document.

    Args:
        data: The stored bytes.
        kind: Type of the document.
        what: Name of the object, for the error.
        hint: Consequence of its loss, for the error.

    Raises:
        CorruptMetadataError: The document is truncated, too large or malformed.
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

    Raises `zstandard.ZstdError` for data that is not a frame or is truncated, and for a frame with
    more than `max_bytes` of content, before that much has been unpacked.

    Args:
        data: The frame.
        max_bytes: Upper limit of the size of the content.

    Cost:
        Memory for the content, but never more than a frame of that size could hold.
    """
    declared = zstandard.get_frame_parameters(data).content_size
    if declared != zstandard.CONTENTSIZE_UNKNOWN:
        if declared > max_bytes:
            raise _too_large(max_bytes)
        if declared > len(data) * _MAX_RATIO:
            message = f"it declares {declared} bytes, which {len(data)} bytes cannot hold"
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

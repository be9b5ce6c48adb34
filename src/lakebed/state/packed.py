"""Side objects that are one JSON document in one zstd frame."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import zstandard

from lakebed.errors import CorruptMetadataError

_MAX_BYTES = 2**31  # uncompressed: what is larger was not written here

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
        CorruptMetadataError: It is truncated or of a wrong form.
    """
    try:
        text = zstandard.ZstdDecompressor().decompress(data, max_output_size=_MAX_BYTES)
        return msgspec.json.decode(text, type=kind)
    except (
        zstandard.ZstdError,
        msgspec.MsgspecError,
        MemoryError,
        UnicodeDecodeError,
        RecursionError,
    ) as exc:
        raise CorruptMetadataError(f"{what} cannot be read: {exc}.", hint=hint) from exc

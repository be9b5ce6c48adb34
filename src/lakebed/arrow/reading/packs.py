"""Packs of small files, whose contents are read together: one parse and one batch for all of them."""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from lakebed.arrow.reading.chunks import without_mark
from lakebed.arrow.reading.files import (
    STDIN,
    DamageError,
    RawFile,
    Watch,
    pieces_of,
    small_text_of,
)
from lakebed.errors import FormatError, InvalidInputError

SMALL_BYTES = 2**20  # measured: for larger files, what a file costs is little beside its rows
_PACK_BYTES = 4 * 2**20  # as large as an ordinary block


def packs_of(
    files: Sequence[RawFile], *, is_hashing: bool = False
) -> Iterator[tuple[Sequence[RawFile], list[bytes]]]:
    """Yield the files in order: small ones together, with their texts, and each other by itself.

    A text is the whole content, uncompressed, without a byte order mark. A file by itself comes
    without one.

    Args:
        files: The files.
        is_hashing: Whether the `watch` of a file with a text has its content.
    """
    size_bytes = 0
    pack: list[RawFile] = []
    texts: list[bytes] = []
    for file in files:
        if is_hashing:
            file = replace(file, watch=Watch(is_hashing=True, first_bytes=file.first_bytes))
        text = _text_of(file)
        if text is not None:
            pack.append(file)
            texts.append(text)
            size_bytes += len(text)
            if size_bytes < _PACK_BYTES:
                continue
        if texts:
            yield pack, texts
        if text is None:
            yield [file], []
        size_bytes, pack, texts = 0, [], []
    if texts:
        yield pack, texts


def _text_of(file: RawFile) -> bytes | None:
    """Return the content of a small file; None for a larger, damaged or missing one."""
    # Text of rows is compressed to a fourth or less, so a larger file would be read in vain.
    most_bytes = SMALL_BYTES if file.codec is None else SMALL_BYTES // 4
    if file.size_bytes > most_bytes or file.location == STDIN:
        return None
    parts, size_bytes = [], 0
    try:
        looked_at = file.looked_at()
        text = small_text_of(looked_at, SMALL_BYTES)
        if text is not None:
            return without_mark(text) if len(text) <= SMALL_BYTES else None
        for piece in pieces_of(looked_at):
            parts.append(piece)
            size_bytes += len(piece)
            if size_bytes > SMALL_BYTES:  # it was compressed
                return None
    except (DamageError, FormatError, InvalidInputError):
        return None
    except (OSError, EOFError, lzma.LZMAError, pa.ArrowException):
        return None  # the reading of the file by itself names the cause
    return without_mark(b"".join(parts))

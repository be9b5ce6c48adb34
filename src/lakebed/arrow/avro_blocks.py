"""Avro files on their way to fastavro, which unpacks blocks of any size.

The blocks are unpacked here, up to a limit, and handed on as if the file were not compressed.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lakebed.store.segments import decompress

MAX_BLOCK_BYTES = 2**28  # unpacked; writers aim at less than a thousandth of that

_MAGIC = b"Obj\x01"
_CODEC, _PLAIN = b"avro.codec", b"null"
_SYNC_BYTES = 16
_PIECE_BYTES = 4 * 2**20
_MAX_VARINT_BYTES = 10


class UncompressedAvro(io.RawIOBase):
    """An Avro file as one whose blocks are not compressed; read from its begin to its end.

    Bytes that are not Avro, or that end too soon, raise `ValueError`. The error of a codec passes
    through. `EOFError` is never raised: fastavro takes it for the end of the file.
    """

    def __init__(self, source: Any) -> None:
        """Start at the begin of the file.

        Args:
            source: Has a `read`; at most one block of it is held, however long one claims to be.
        """
        super().__init__()
        self._source = source
        self._parts = self._uncompressed()
        self._part = b""
        self._place = 0
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in the bytes that were passed on."""
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        """Return `size` bytes, fewer only at the end."""
        data = self._part[self._place : self._place + size] if size >= 0 else b""
        self._place += len(data)
        if len(data) != size:
            data += self._gather(size - len(data) if size >= 0 else None)
        self._position += len(data)
        return data

    def _gather(self, size: int | None) -> bytes:
        """Return `size` bytes of the parts that follow; None for all."""
        pieces = [self._part[self._place :]]
        held = len(pieces[0])
        while size is None or held < size:
            part = next(self._parts, None)
            if part is None:
                break
            pieces.append(part)
            held += len(part)
        self._part, self._place = b"".join(pieces), held if size is None else min(size, held)
        return self._part[: self._place]

    def _uncompressed(self) -> Iterator[bytes]:
        header, codec = _header(self._source)
        unpack = _CODECS.get(codec) or _PASSED.get(codec, _as_it_is)
        yield header
        while count := _raw_varint(self._source, may_end=True):
            size = _number(_raw_varint(self._source))
            if size < 0:
                message = f"a block of {size} bytes"
                raise ValueError(message)
            content = unpack(_exactly(self._source, size))
            yield count + varint(len(content))
            yield content
            yield _exactly(self._source, _SYNC_BYTES)


def _header(source: Any) -> tuple[bytes, bytes]:
    """Return the header for an uncompressed file, and the codec that it names."""
    if _exactly(source, len(_MAGIC)) != _MAGIC:
        message = "it does not begin as an Avro file does"
        raise ValueError(message)
    entries: dict[bytes, bytes] = {}
    while count := _number(_raw_varint(source)):
        if count < 0:  # the size of the entries follows
            _raw_varint(source)
        for _ in range(abs(count)):
            name = _exactly(source, _length(source))
            entries[name] = _exactly(source, _length(source))
    codec = entries.get(_CODEC, _PLAIN)
    if codec in _CODECS:
        entries[_CODEC] = _PLAIN
    written = [_MAGIC, varint(len(entries))] if entries else [_MAGIC]
    for name, value in entries.items():
        written += [varint(len(name)), name, varint(len(value)), value]
    return b"".join((*written, b"\0", _exactly(source, _SYNC_BYTES))), codec


def _length(source: Any) -> int:
    length = _number(_raw_varint(source))
    if length < 0:
        message = f"a text of {length} bytes"
        raise ValueError(message)
    return length


def _exactly(source: Any, size: int) -> bytes:
    """Return exactly `size` bytes; the claimed size takes no memory before the bytes arrive."""
    pieces: list[bytes] = []
    missing = size
    while missing and (piece := _read(source, min(missing, _PIECE_BYTES))):
        pieces.append(piece)
        missing -= len(piece)
    if missing:
        message = f"it ends {missing} bytes too soon"
        raise ValueError(message)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _raw_varint(source: Any, *, may_end: bool = False) -> bytes:
    """Return the bytes of a number; empty at the end of the file, where `may_end` allows it."""
    encoded = b""
    while byte := _read(source, 1):
        encoded += byte
        if byte[0] < 0x80:
            return encoded
        if len(encoded) == _MAX_VARINT_BYTES:
            message = "a number of more than 64 bits"
            raise ValueError(message)
    if encoded or not may_end:
        message = "it ends in the middle of a number"
        raise ValueError(message)
    return b""


def _read(source: Any, size: int) -> bytes:
    try:
        data: bytes = source.read(size)
    except EOFError as exc:  # of the compression around the file
        raise ValueError(str(exc)) from exc
    return data


def _number(raw: bytes) -> int:
    encoded = _unsigned(raw)
    return encoded >> 1 ^ -(encoded & 1)


def varint(number: int) -> bytes:
    """Return a number that is not negative as Avro writes it."""
    zigzag, encoded = number << 1, bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def _as_it_is(data: bytes) -> bytes:
    return data


def _inflate(data: bytes) -> bytes:
    # The end marker is not checked: some writers leave it out.
    return _checked(zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, MAX_BLOCK_BYTES + 1))


def _bunzip2(data: bytes) -> bytes:
    return _checked(_whole(bz2.BZ2Decompressor(), data))


def _unxz(data: bytes) -> bytes:
    return _checked(_whole(lzma.LZMADecompressor(memlimit=MAX_BLOCK_BYTES), data))


def _unzstd(data: bytes) -> bytes:
    return decompress(data, MAX_BLOCK_BYTES)


def _whole(decompressor: bz2.BZ2Decompressor | lzma.LZMADecompressor, data: bytes) -> bytes:
    content = decompressor.decompress(data, MAX_BLOCK_BYTES + 1)
    if not decompressor.eof and len(content) <= MAX_BLOCK_BYTES:
        message = "a block ends before its content does"
        raise ValueError(message)
    return content


def _checked(content: bytes) -> bytes:
    _check_size(len(content))
    return content


def _check_size(size: int) -> None:
    if size > MAX_BLOCK_BYTES:
        message = f"a block unpacks to more than {MAX_BLOCK_BYTES} bytes"
        raise ValueError(message)


def _snappy(data: bytes) -> bytes:
    """Leave it to fastavro, which trusts the length at the begin of the block."""
    _check_size(_unsigned(data[:_MAX_VARINT_BYTES]))
    return data


def _unsigned(data: bytes) -> int:
    number = 0
    for place, byte in enumerate(data):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return number


_CODECS: Mapping[bytes, Callable[[bytes], bytes]] = {
    _PLAIN: _as_it_is,
    b"deflate": _inflate,
    b"bzip2": _bunzip2,
    b"xz": _unxz,
    b"zstandard": _unzstd,
}
# Passed on after a check of the length that they claim; fastavro supports no further codecs either.
_PASSED: Mapping[bytes, Callable[[bytes], bytes]] = {b"snappy": _snappy}

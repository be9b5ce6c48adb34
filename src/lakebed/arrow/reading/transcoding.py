"""Text of any encoding as UTF-8, with newlines as ends of its lines."""

from __future__ import annotations

import codecs
from typing import Any

_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # begins with the mark of UTF-16
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
MARK_BYTES = 4
# As browsers read it: the five bytes that cp1252 lacks are control characters.
_CP1252 = "".join(
    bytes([n]).decode("cp1252") if n not in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else chr(n)
    for n in range(256)
)


def marked_encoding(head: bytes) -> str | None:
    r"""Return the encoding that the byte order mark of a text shows; None without a mark.

    >>> marked_encoding(b"\xff\xfea\x00"), marked_encoding(b"abc")
    ('utf-16', None)
    """
    return next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)


def is_utf8(encoding: str) -> bool:
    """Return whether a text of this encoding needs no conversion."""
    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii")


class Transcoded:
    """A stream of bytes as UTF-8; what cannot be decoded becomes bytes that are not UTF-8.

    So a line with such bytes is rejected by itself, as a line of a UTF-8 file is.
    """

    def __init__(self, source: Any, encoding: str, line_end: str) -> None:
        self._source = source
        self._encoding = encoding
        self._is_cr = line_end == "\r"
        self._decode: Any = None
        self._is_begun = self._is_ended = False
        self._ready = b""

    def read(self, size: int) -> bytes:
        """Return the next bytes; fewer than `size` at the end alone."""
        if not self._is_begun:
            self._begin()
        if not (self._ready or self._decode or self._is_cr):
            return bytes(self._source.read(size))
        while len(self._ready) < size and not self._is_ended:
            self._add(bytes(self._source.read(size - len(self._ready))))
        out, self._ready = self._ready[:size], self._ready[size:]
        return out

    def _begin(self) -> None:
        """Look for a byte order mark."""
        self._is_begun, head = True, b""
        try:
            while len(head) < MARK_BYTES and (piece := self._source.read(MARK_BYTES - len(head))):
                head += piece
        finally:  # what was read before damage is part of the text
            encoding = marked_encoding(head) or self._encoding
            self._decode = None if is_utf8(encoding) else _decoder(encoding)
            if head:
                self._add(head)

    def _add(self, piece: bytes) -> None:
        self._is_ended = not piece
        if self._decode is not None:
            piece = self._decode(piece, self._is_ended).encode("utf-8", "surrogatepass")
        self._ready += piece.replace(b"\r", b"\n") if self._is_cr else piece


def _decoder(encoding: str) -> Any:
    name = codecs.lookup(encoding).name
    if name == "cp1252":
        return lambda data, final: codecs.charmap_decode(data, "strict", _CP1252)[0]  # noqa: ARG005
    decoder = codecs.getincrementaldecoder(name)("backslashreplace")
    if not name.startswith(("utf-16", "utf-32")):
        decoder.errors = "surrogateescape"
        return lambda data, final: decoder.decode(data, final)
    decoder.errors = "surrogatepass"

    def decode(data: bytes, final: bool) -> str:  # noqa: FBT001 - the signature of decoders
        try:
            return str(decoder.decode(data, final))
        except UnicodeDecodeError:  # half a character at the end, or a number beyond Unicode
            decoder.reset()
            return "\udcff"

    return decode

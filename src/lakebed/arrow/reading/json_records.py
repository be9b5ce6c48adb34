"""JSON objects of a file: one on each line, the elements of an array, or one behind the other."""

from __future__ import annotations

import contextlib
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lakebed.arrow.reading.chunks import text_lines, without_blanks
from lakebed.arrow.reading.dialect import JsonOptions
from lakebed.arrow.reading.files import MAX_LINE_BYTES, DamageError, Line, RawFile, pieces_of
from lakebed.errors import SchemaMismatchError
from lakebed.model.schema import ListOf, MapOf, Struct, Type

_BETWEEN = re.compile(rb"[ \t\r\n\x1e]*")  # the last one begins the records of RFC 7464
_SIGN = re.compile(rb'"|[\[\]{}]')
# Possessive, so that a text of any size needs no memory; a backslash at the end is left for later.
_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
# A whole object or array with at most one level of others in it, as most elements of arrays are.
_INSIDE = rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+'
SHALLOW = re.compile(rb"[{\[]%b(?:[{\[]%b[}\]]%b)*+[}\]]" % (_INSIDE, _INSIDE, _INSIDE), re.DOTALL)
_PLAIN = re.compile(rb"[^,\]\s\x1e]*+")

_encoder = msgspec.json.Encoder(decimal_format="number")


def json_records(file: RawFile, options: JsonOptions) -> Iterator[Line]:
    """Yield the objects of a file, each as a line, whose number is that of its first line."""
    if options.records == "lines":
        return without_blanks(text_lines(file))
    return objects_of(pieces_of(file), options)


def objects_of(chunks: Iterator[bytes], options: JsonOptions) -> Iterator[Line]:
    """Yield the objects of an array, or those that follow one another; see `json_records`."""
    source = _Source(chunks)
    try:
        if options.records == "array":
            if options.inside:
                source.enter(options.inside)
            source.expect(b"[")
            yield from _elements(source)
            if options.inside:
                return  # members behind the array are left out, as those before it
        else:
            while source.skip_blanks():
                yield source.value()
        if source.skip_blanks():
            yield source.rest("Something follows the end of the array.")
    except _EndError as end:
        yield end.line


def _elements(source: _Source) -> Iterator[Line]:
    source.skip_blanks(must=True)
    if source.take(b"]"):
        return
    while True:
        source.skip_blanks(must=True)
        yield source.value()
        source.skip_blanks(must=True)
        if source.take(b"]"):
            return
        source.expect(b",")


class _EndError(Exception):
    """The text ends, or is not JSON, from this line on."""

    def __init__(self, line: Line) -> None:
        super().__init__(line.problem)
        self.line = line


class _Source:
    """Text of a file with a position, read piece by piece."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._text, self._at = bytearray(), 0  # grows and shrinks without a copy of the whole
        self._number, self._counted_at = 1, 0  # number of the line at this position
        self._is_first = True

    def _line_number(self) -> int:
        """Return the number of the line at the position."""
        self._number += self._text.count(b"\n", self._counted_at, self._at)
        self._counted_at = self._at
        return self._number

    def _more(self) -> bool:
        """Read on; return False at the end of the file."""
        try:
            piece = next(self._chunks, None)
        except DamageError as damage:
            rest = bytes(self._text[self._at :])
            line = Line(self._line_number(), rest, str(damage), is_rest=True)
            raise _EndError(line) from damage
        if piece is None:
            return False
        if self._is_first:
            piece, self._is_first = piece.removeprefix(BOM_UTF8), False
        if self._at:
            self._line_number()
            del self._text[: self._at]
            self._at = self._counted_at = 0
        self._text += piece
        return True

    def skip_blanks(self, *, must: bool = False) -> bool:
        """Move to the next sign; return False at the end of the file.

        Raises:
            _EndError: The file ends, and must not.
        """
        while True:
            match = _BETWEEN.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text):
                return True
            if not self._more():
                if must:
                    raise _EndError(self.rest("The file ends inside of the array."))
                return False

    def rest(self, problem: str) -> Line:
        """Return what follows as one line with a problem, up to the limit of a line."""
        number, parts = self._line_number(), [bytes(self._text[self._at :])]
        size_bytes = len(parts[0])
        with contextlib.suppress(DamageError):
            for piece in self._chunks:
                if size_bytes > MAX_LINE_BYTES:
                    break
                parts.append(piece)
                size_bytes += len(piece)
        return Line(number, b"".join(parts)[:MAX_LINE_BYTES], problem, is_rest=True)

    def take(self, sign: bytes) -> bool:
        """Pass a sign, if it is the next one."""
        if self._text[self._at : self._at + 1] != sign:
            return False
        self._at += 1
        return True

    def expect(self, sign: bytes) -> None:
        """Pass a sign, which must be the next one.

        Raises:
            _EndError: It is not.
        """
        if not self.skip_blanks(must=True) or not self.take(sign):
            raise _EndError(self.rest(f"Here {sign.decode()!r} is missing, which JSON needs."))

    def enter(self, name: str) -> None:
        """Move into an object, to the value of one of its members.

        Raises:
            _EndError: There is no such member.
        """
        self.expect(b"{")
        while True:
            self.skip_blanks(must=True)
            if self._text[self._at : self._at + 1] != b'"':
                raise _EndError(self.rest(f"The object has no member {name!r}."))
            label = self.value().data
            self.expect(b":")
            self.skip_blanks(must=True)
            with contextlib.suppress(msgspec.MsgspecError):
                if msgspec.json.decode(label) == name:
                    return
            self.value()
            self.skip_blanks(must=True)
            if not self.take(b","):
                raise _EndError(self.rest(f"The object has no member {name!r}."))

    def value(self) -> Line:
        """Pass a value, which begins at the position, and return its text."""
        number, depth = self._line_number(), 0
        at = self._at  # up to which signs have been looked at
        if bytes(self._text[at : at + 1]) not in (b"{", b"[", b'"'):
            return self._scalar(number)
        shallow = SHALLOW.match(self._text, at)
        if shallow is not None:
            return Line(number, self._passed(shallow.end()))
        while True:
            match = _SIGN.search(self._text, at)
            if match is None:
                at = self._read_on(len(self._text))
                continue
            if match[0] == b'"':
                at = self._end_of_string(match.end())
            else:
                depth += 1 if match[0] in b"{[" else -1
                at = match.end()
            if depth <= 0:
                return Line(number, self._passed(at))

    def _passed(self, at: int) -> bytes:
        """Move to a position, and return the text before it."""
        begin, self._at = self._at, at
        return bytes(self._text[begin:at])

    def _end_of_string(self, at: int) -> int:
        """Return the position behind the end of a string, which goes on at a position."""
        while True:
            match = _IN_STRING.match(self._text, at)
            at = match.end() if match else at
            if self._text[at : at + 1] == b'"':
                return at + 1
            at = self._read_on(at)

    def _read_on(self, at: int) -> int:
        """Read on inside of a value; return a position, which moves with the text."""
        begin = self._at
        if len(self._text) - begin > MAX_LINE_BYTES or not self._more():
            raise _EndError(self.rest("The file ends inside of this object."))
        return at - begin

    def _scalar(self, number: int) -> Line:
        at = self._at
        while (match := _PLAIN.match(self._text, at)) and match.end() == len(self._text):
            size_bytes = match.end() - self._at
            if size_bytes > MAX_LINE_BYTES or not self._more():
                at = len(self._text)
                break
            at = self._at + size_bytes  # the text may have moved
        else:
            at = match.end() if match else at
        return Line(number, self._passed(max(at, self._at + 1)))


def renamed(value: Any, names: Mapping[str, str], read_as: Type | None = None) -> Any:
    """Return a JSON value whose objects have other names of members, at any depth.

    Args:
        value: The value.
        names: The names that are replaced.
        read_as: Type of the field that the value is for; keys of a map are data, and stay.

    Raises:
        SchemaMismatchError: Two members of an object would have the same name.
    """
    match value:
        case dict():
            if isinstance(read_as, MapOf):
                return {key: renamed(item, names, read_as.value) for key, item in value.items()}
            fields = read_as.fields if isinstance(read_as, Struct) else ()
            types = {field.name: field.type for field in fields}
            members = {}
            for name, item in value.items():
                new = names.get(name, name)
                members[new] = renamed(item, names, types.get(new))
            if len(members) < len(value):
                taken = Counter(names.get(name, name) for name in value)
                twice = next(name for name in names if taken[names[name]] > 1)
                raise SchemaMismatchError(
                    f"The member {twice!r} is named {names[twice]!r}, as another one is.",
                    hint="Map it to another name by names.",
                )
            return members
        case list():
            element = read_as.element if isinstance(read_as, ListOf) else None
            return [renamed(item, names, element) for item in value]
    return value


def with_texts(document: dict[str, Any], texts: Sequence[str]) -> dict[str, Any]:
    """Return a document in which the values of some paths are their JSON texts.

    A text stays as it is, and so does null.
    """
    for path in texts:
        _make_text(document, path.replace("[]", ".[]").split("."))
    return document


def _make_text(value: Any, path: Sequence[str]) -> None:
    first, *rest = path
    places: list[Any] = []
    if first == "[]" and isinstance(value, list):
        places = list(range(len(value)))
    elif isinstance(value, dict) and first in value:
        places = [first]
    for place in places:
        if rest:
            _make_text(value[place], rest)
        elif value[place] is not None and not isinstance(value[place], str):
            value[place] = _encoder.encode(value[place]).decode()

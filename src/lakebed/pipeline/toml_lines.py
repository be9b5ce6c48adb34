"""Lines of the tables and keys of a TOML document, which Python's parser does not report."""

from __future__ import annotations

import re

KeyPath = tuple[str, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"[ \t\r]*")
_QUOTES = ('"""', "'''", '"', "'")  # the longer ones first


def lines_of(text: str) -> dict[KeyPath, int]:
    r"""Return the line of each table and key of a valid document, counted from 1.

    Keys in inline tables and in arrays have no entry; `find_line` returns that of their table.

    >>> lines_of('name = "a"\n[source]\npaths = [\n  "in"]\n')
    {('name',): 1, ('source',): 2, ('source', 'paths'): 3}
    """
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    position, line = 0, 1
    while position < len(text):
        begin = position
        position = _after_blank(text, position)
        if text[position : position + 1] == "[":
            position = _after_blank(text, position + 1)
            if text[position : position + 1] == "[":
                position += 1
            table, position = _key_at(text, position)
            _note(found, table, line)
        elif text[position : position + 1] not in ("", "\n", "#"):
            key, position = _key_at(text, position)
            _note(found, (*table, *key), line)
        position = _end_of_statement(text, position)
        line += text.count("\n", begin, position)
    return found


def find_line(lines: dict[KeyPath, int], path: KeyPath) -> int | None:
    """Return the line of a key, or else of the nearest table around it; None for the document."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def _note(found: dict[KeyPath, int], path: KeyPath, line: int) -> None:
    for length in range(1, len(path) + 1):
        found.setdefault(path[:length], line)


def _after_blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return position if match is None else match.end()


def _key_at(text: str, position: int) -> tuple[KeyPath, int]:
    """Return the parts of a key that may be dotted and quoted, and the position after it."""
    parts: list[str] = []
    while True:
        position = _after_blank(text, position)
        bare = _BARE.match(text, position)
        if bare is not None:
            parts.append(bare[0])
            position = bare.end()
        else:
            end = _end_of_text(text, position)
            if end == position:
                return tuple(parts), position
            parts.append(text[position + 1 : end - 1])
            position = end
        position = _after_blank(text, position)
        if text[position : position + 1] != ".":
            return tuple(parts), position
        position += 1


def _end_of_text(text: str, position: int) -> int:
    """Return the position after a quoted text; the same position if there is none."""
    quote = next((one for one in _QUOTES if text.startswith(one, position)), None)
    if quote is None:
        return position
    position += len(quote)
    while position < len(text) and not text.startswith(quote, position):
        position += 2 if text[position] == "\\" and quote[0] == '"' else 1
    position += len(quote)
    while len(quote) > 1 and text.startswith(quote[0], position):
        position += 1  # up to two quotes may end a text of several lines
    return min(position, len(text))


def _end_of_statement(text: str, position: int) -> int:
    """Return the position after the end of the line on which a statement ends."""
    depth = 0
    while position < len(text):
        character = text[position]
        if character in "\"'":
            position = _end_of_text(text, position)
            continue
        if character == "#":
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
            continue
        depth += (character in "[{") - (character in "]}")
        position += 1
        if character == "\n" and depth <= 0:
            break
    return position

"""Texts on a terminal: lines break between words, never in a word, a path or a command."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from typing import IO

# Words; a text in backticks is one word, so that it can be copied.
_WORD = re.compile(r"[^\s`]*(?:`[^`]+`[^\s`]*)+|\S+")
_WIDE = frozenset("WF")  # East Asian letters that take two cells
_ELLIPSIS = "…"


def terminal_width(stream: IO[str]) -> int | None:
    """Return the number of cells in a terminal line; None if the stream is not a terminal."""
    if not stream.isatty():
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except OSError:
        return None


def cells_of(text: str) -> int:
    """Return the number of terminal cells that a text takes.

    >>> cells_of("Größe"), cells_of("東京")
    (5, 4)
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in _WIDE)
        for letter in text
    )


def folded(text: str, width: int | None) -> str:
    r"""Return a text with long lines broken between words.

    A word longer than the line stays whole, and so does a line that is a command: the terminal
    breaks it, and it can still be copied.

    >>> folded("Run `lakebed show x` now.", 20)
    'Run `lakebed show x`\nnow.'
    """
    if width is None:
        return text
    return "\n".join(part for line in text.split("\n") for part in _lines(line, width))


def folded_to(text: str, width: int) -> list[str]:
    """Return the lines of a text in a column; longer words are cut in their middle.

    >>> folded_to("see lake/events/data/part-0", 12)
    ['see', 'lake/e…art-0']
    """
    words = (cut_middle(word, width) for word in text.split())
    return list(_lines(" ".join(words), width))


def _lines(line: str, width: int) -> Iterator[str]:
    if cells_of(line) <= width or line.startswith("  lakebed "):
        yield line
        return
    indent = line[: len(line) - len(line.lstrip())]
    current = ""
    for word in _WORD.findall(line):
        longer = f"{current} {word}" if current else indent + word
        if current and cells_of(longer) > width:
            yield current
            longer = indent + word
        current = longer
    yield current


def cut_middle(text: str, width: int) -> str:
    """Return a text in at most `width` cells; a longer one keeps its beginning and its end.

    >>> cut_middle("lake/events/data/part-0.parquet", 15)
    'lake/ev…parquet'
    """
    if cells_of(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{_beginning(text, width - 1 - end)}{_ELLIPSIS}{_beginning(text[::-1], end)[::-1]}"


def _beginning(text: str, width: int) -> str:
    taken = 0
    for position, letter in enumerate(text):
        taken += cells_of(letter)
        if taken > width:
            return text[:position]
    return text

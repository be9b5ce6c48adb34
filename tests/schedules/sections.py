"""The sections of docs/reliability.md that are written of results of their own."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

_LAST = "## What is not covered\n"


def section_of(page: str, title: str) -> str:
    """Return a section as a page has it, or an empty text.

    Args:
        page: Text of the page.
        title: The line that the section begins with.
    """
    _, found, rest = page.partition(title)
    end = rest.find("\n## ")
    return found + (rest if end < 0 else rest[: end + 1])


def with_section(page: str, title: str, text: str) -> str:
    """Return a page with another text of a section.

    Args:
        page: Text of the page; without the section it gets it before what is not covered.
        title: The line that the section begins with.
        text: The whole section, with that line.
    """
    old = section_of(page, title)
    if old:
        return page.replace(old, text)
    before, last, rest = page.partition(_LAST)
    return f"{before}{text}{last}{rest}"


def paragraph(text: str) -> str:
    """Return a paragraph in lines of the usual length."""
    lines = textwrap.wrap(text, 118, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + "\n\n"


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_shown, line))} |\n" for line in lines)


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)

"""HTML and SVG as text, in which every value is escaped.

Names, values, predicates and runs of a lake are untrusted text. Here they can only become text of a
page: an element takes texts, which it escapes, and other elements, which are escaped already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from lakebed.common.plain import to_text
from lakebed.common.shown import visible

MAX_TEXT = 120  # letters of a cell or a label


class Markup(str):
    """Text that is HTML already. Only this module creates it."""

    __slots__ = ()


_VOID = frozenset({"br", "col", "input", "link", "meta"})


def element(name: str, /, *inner: str | int, **attributes: str | float | None) -> Markup:
    """Return an element; inner texts are escaped, inner elements are not.

    Args:
        name: Name of the element.
        inner: Texts and elements inside.
        attributes: Attributes by name, with `class_` for `class` and `_` for `-`; an attribute of
            None is left out.

    >>> element("td", "a < b", element("b", "!"), class_="number", aria_label='"')
    '<td class="number" aria-label="&quot;">a &lt; b<b>!</b></td>'
    """
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{words}>")
    return Markup(f"<{name}{words}>{joined(inner)}</{name}>")


def joined(parts: Iterable[str | int]) -> Markup:
    """Return texts and elements as one."""
    return Markup(
        "".join(part if isinstance(part, Markup) else escape(short(str(part))) for part in parts)
    )


def short(text: str) -> str:
    r"""Return a text with control characters escaped, and shortened to the length of a cell.

    >>> short("a\u202eb\nc"), len(short("x" * 10_000))
    ('a\\u202eb\\nc', 120)
    """
    text = visible(text[: MAX_TEXT + 1])
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def lines(text: str) -> list[str]:
    """Return a text in pieces that are short enough for a page, at most ten.

    >>> lines("one two"), [len(line) for line in lines("word " * 30)]
    (['one two'], [99, 49])
    """
    words, pieces = text.split(), [""]
    for word in words:
        if len(pieces[-1]) + len(word) > 100:
            pieces.append("")
        pieces[-1] = f"{pieces[-1]} {word}".strip()
    return [piece for piece in pieces if piece][:10]


def whole_text(text: str) -> Markup:
    """Return a text that may be longer than a cell."""
    return joined(f" {line}" if number else line for number, line in enumerate(lines(text)))


def command_line(text: str) -> Markup:
    """Return a command to copy: it is shown as a whole, however long it is."""
    return Markup(f"<code>{escape(visible(text))}</code>")


def table(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[str | int | None]]
) -> Markup:
    """Return a table; numbers are aligned to the right, and None is a dash."""
    rows = list(rows)
    first: Sequence[str | int | None] = rows[0] if rows else columns
    head = element("tr", *map(_head, columns, first))
    body = [element("tr", _cell(row[0], of="row"), *map(_cell, row[1:])) for row in rows]
    if not body:
        body = [element("tr", element("td", "none", colspan=len(columns)))]
    return wide(
        caption,
        element(
            "table",
            element("caption", caption),
            element("thead", head),
            element("tbody", *body),
        ),
    )


def data_table(caption: str, columns: Sequence[Markup], rows: Iterable[Sequence[Markup]]) -> Markup:
    """Return a table of data, whose values are shown as they are.

    Args:
        caption: Caption of the table.
        columns: Heads of the columns, from `data_head`.
        rows: Cells of the rows: the first of each from `row_head`, the others from `data_cell`.
    """
    body = [element("tr", *cells) for cells in rows]
    if not body:
        body = [element("tr", element("td", "none", colspan=len(columns)))]
    return wide(
        caption,
        element(
            "table",
            element("caption", caption),
            element("thead", element("tr", *columns)),
            element("tbody", *body),
            class_="data",
        ),
    )


def data_head(text: str, *, is_number: bool = False, sorted_: str | None = None) -> Markup:
    """Return the head of a column of data.

    Args:
        text: The name of the column, or a link.
        is_number: True for a column of numbers, which are aligned to the right.
        sorted_: Direction if the rows are sorted by this column: ascending or descending.
    """
    class_ = "number" if is_number else None
    return element("th", text, scope="col", class_=class_, aria_sort=sorted_)


def data_cell(value: object) -> Markup:
    """Return a cell with a plain value; null looks different from the text null."""
    if value is None:
        return element("td", element("i", "null"))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return element("td", to_text(value), class_="number" if is_number else None)


def row_head(text: str) -> Markup:
    """Return the cell that names a row of data: text, or a link."""
    return element("th", text, scope="row")


def wide(label: str, *inner: Markup) -> Markup:
    """Return a box that scrolls sideways in a narrow window, by keys too.

    It is not a landmark for screen readers, because a page has many of these boxes.
    """
    return element("div", *inner, class_="wide", tabindex="0", role="group", aria_label=label)


def _head(column: str, first: str | int | None) -> Markup:
    """Return the head of a column, aligned like its cells."""
    class_ = "number" if isinstance(first, int) else None
    return element("th", column, scope="col", class_=class_)


def _cell(value: str | int | None, *, of: str | None = None) -> Markup:
    """Return a cell; with `of`, the cell is the head of its row or column."""
    name = "td" if of is None else "th"
    if value is None:
        return element(name, "-", scope=of)
    if isinstance(value, int):
        return element(name, f"{value:,}", scope=of, class_="number")
    return element(name, value, scope=of)


def facts(pairs: Mapping[str, str | int | None]) -> Markup:
    """Return names and values as a list of definitions."""
    parts: list[Markup] = []
    for name, value in pairs.items():
        text = "-" if value is None else f"{value:,}" if isinstance(value, int) else value
        parts.append(element("div", element("dt", name), element("dd", text)))
    return element("dl", *parts)


def folded(summary: str, *inner: Markup) -> Markup:
    """Return a section that a reader can open; it is printed only if it is open."""
    return element("details", element("summary", summary), *inner)

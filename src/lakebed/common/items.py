"""Tuples of results that are shown as tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, SupportsIndex, TypeVar, overload

MAX_ROWS = 16  # with header, rule and count the text has at most 20 lines
MAX_CELL = 40


class HasRow(Protocol):
    """An object that can be shown as a row of a table."""

    def _row_(self) -> Mapping[str, object]: ...


T_co = TypeVar("T_co", bound=HasRow, covariant=True)


class Items(tuple[T_co, ...]):
    """A tuple that Python's prompt and notebooks show as a table.

    It is equal to any tuple of the same items. Of many items the first and the last are shown, with
    the total number.
    """

    __slots__ = ()

    @overload
    def __getitem__(self, position: SupportsIndex, /) -> T_co: ...
    @overload
    def __getitem__(self, position: slice, /) -> Items[T_co]: ...
    def __getitem__(self, position: SupportsIndex | slice, /) -> Any:
        """Return an item, or a part as `Items`."""
        if isinstance(position, slice):
            return Items(super().__getitem__(position))
        return super().__getitem__(position)

    def __repr__(self) -> str:
        if not self:
            return "()"
        names, rows = self._shown()
        widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
        lines = [_line(names, widths), _line(["-" * width for width in widths], widths)]
        lines += [_line(row, widths) for row in rows]
        if len(self) > MAX_ROWS:
            lines.insert(
                2 + MAX_ROWS // 2, f"… {len(self) - MAX_ROWS:,} more, {len(self):,} in all"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        if not self:
            return "<p>none</p>"
        names, rows = self._shown()
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = [
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        ]
        if len(self) > MAX_ROWS:
            count = f"… {len(self) - MAX_ROWS:,} more, {len(self):,} in all"
            body.insert(MAX_ROWS // 2, f'<tr><td colspan="{len(names)}">{count}</td></tr>')
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"

    def _shown(self) -> tuple[list[str], list[list[str]]]:
        """Return the header, and the cells of the first and the last items."""
        items: Sequence[HasRow] = self
        if len(self) > MAX_ROWS:
            half = MAX_ROWS // 2
            items = (
                *tuple.__getitem__(self, slice(half)),
                *tuple.__getitem__(self, slice(-half, None)),
            )
        rows = [item._row_() for item in items]
        return list(rows[0]), [[_cell(value) for value in row.values()] for row in rows]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(
        cell.rjust(width) if _is_number(cell) else cell.ljust(width)
        for cell, width in zip(cells, widths, strict=True)
    ).rstrip()


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").isdigit()


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case dt.datetime():
            text = value.strftime("%Y-%m-%d %H:%M:%S")
        case _:
            text = str(value)
    if not text.isprintable():
        text = text.encode("unicode_escape").decode("ascii")
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"

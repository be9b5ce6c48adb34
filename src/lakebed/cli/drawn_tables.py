"""Tables for people, drawn by rich, which is loaded only when a table is shown."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich.box import Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakebed.cli.folding import cells_of, cut_middle, folded_to
from lakebed.common.shown import visible

# A rule under the header and nothing else, in ASCII.
_RULE = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_GAP = 3  # blanks between two columns
_TEXT_WIDTH = 24  # of a column whose texts are broken between words
_PATH_WIDTH = 40  # of a column whose paths are cut in their middle
_ID_WIDTH = 8
_ID = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}|[0-9a-f]{40,64}")
_FRACTION = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d+Z$")
_UNLIMITED_WIDTH = 100_000  # a pipe has no edge at which lines should break


def print_table(
    names: Sequence[str], rows: Iterable[Sequence[str]], *, are_numbers: Sequence[bool]
) -> tuple[list[str], list[str]]:
    """Print rows of cells under a header, in the width of the terminal.

    Args:
        names: The column names.
        rows: The cells of each row, in the order of the columns.
        are_numbers: For each column, whether it is aligned to the right.

    Returns:
        The columns that did not fit, and those whose cells are cut.
    """
    columns = [
        _Column(name=visible(name), cells=cells, is_number=is_number)
        for name, cells, is_number in zip(
            names, _turned(rows, len(names)), are_numbers, strict=True
        )
    ]
    console = _console()
    chosen = _fitting(columns, console.width)
    shown = [column.within(width) for column, width in _widths(chosen, console.width)]
    table = Table(box=_RULE, show_edge=False, pad_edge=False, header_style="bold")
    for column in shown:
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        table.add_column(Text(column.name), justify=justify, no_wrap=True)
    for row in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*(Text(cell) for cell in row))
    _print_stripped(console, table)
    kept = {column.name for column in shown}
    left_out = [column.name for column in columns if column.name not in kept]
    pairs = zip(chosen, shown, strict=True)
    return left_out, [new.name for old, new in pairs if _cuts(new) > _cuts(old)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column of cells in their shown form."""

    name: str
    cells: Sequence[str]
    is_number: bool

    @property
    def width(self) -> int:
        return max(map(cells_of, (self.name, *self.cells)))

    @property
    def is_one_word(self) -> bool:
        """True if no cell has a space to break at."""
        return not any(" " in cell for cell in self.cells)

    @property
    def is_path(self) -> bool:
        return self.is_one_word and any("/" in cell for cell in self.cells)

    @property
    def is_empty(self) -> bool:
        return all(cell in ("", "-", "[]") for cell in self.cells)

    @property
    def least(self) -> int:
        """The least useful width."""
        if self.is_path:
            return min(self.width, max(len(self.name), _PATH_WIDTH))
        if self.is_one_word:
            return self.width
        longest = max(cells_of(word) for cell in self.cells for word in cell.split() or [""])
        return min(self.width, max(len(self.name), _TEXT_WIDTH, min(longest, _PATH_WIDTH)))

    def shortened(self) -> _Column:
        """Return the column with ids cut to their first characters, and times to seconds."""
        if self.cells and all(_ID.fullmatch(cell) or cell == "-" for cell in self.cells):
            return replace(self, cells=[cell[:_ID_WIDTH] for cell in self.cells])
        return replace(self, cells=[_FRACTION.sub(r"\1Z", cell) for cell in self.cells])

    def within(self, width: int) -> _Column:
        """Return the column in a width: texts are folded, paths lose their common folder."""
        if self.width <= width:
            return self
        if not self.is_one_word:
            return replace(self, cells=["\n".join(folded_to(cell, width)) for cell in self.cells])
        shared = _folder_of([cell for cell in self.cells if cell != "-"])
        cells = [
            f"…/{cell.removeprefix(shared)}" if shared and cell != "-" else cell
            for cell in self.cells
        ]
        return replace(self, cells=[cut_middle(cell, width) for cell in cells])


def _cuts(column: _Column) -> int:
    return sum(cell.count("…") for cell in column.cells)


def _folder_of(paths: Sequence[str]) -> str:
    """Return the common folder of all paths, with a slash at its end; or nothing."""
    if not paths:
        return ""
    # The common prefix of the least and the greatest path is common to all.
    levels = zip(*(path.split("/")[:-1] for path in (min(paths), max(paths))), strict=False)
    same = [level for level, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], levels)]
    return "/".join([*same, ""]) if any(same) else ""


def _turned(rows: Iterable[Sequence[str]], count: int) -> list[list[str]]:
    """Return the cells of each column."""
    columns: list[list[str]] = [[] for _ in range(count)]
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            column.append(visible(cell))
    return columns


def _fitting(columns: Sequence[_Column], width: int) -> Sequence[_Column]:
    """Choose the columns that fit into a terminal; words stay whole.

    First ids and times are shortened, then columns are left out: empty ones, then the last ones.
    The first column stays, since it names the row.
    """
    if _width_of(columns) <= width:
        return columns
    shown = [column.shortened() for column in columns]
    order = [column for column in reversed(shown[1:]) if column.is_empty]
    order += [column for column in reversed(shown[1:]) if not column.is_empty]
    for column in order:
        if sum(other.least for other in shown) + _GAP * (len(shown) - 1) <= width:
            break
        shown.remove(column)
    return shown


def _widths(columns: Sequence[_Column], width: int) -> list[tuple[_Column, int]]:
    """Return the width of each column; spare width goes to paths, then to texts."""
    widths = [min(column.least, width) for column in columns]
    room = width - sum(widths) - _GAP * (len(columns) - 1)
    order = sorted(range(len(columns)), key=lambda position: not columns[position].is_path)
    for position in order:
        more = max(0, min(columns[position].width - widths[position], room))
        widths[position] += more
        room -= more
    return list(zip(columns, widths, strict=True))


def _width_of(columns: Sequence[_Column]) -> int:
    return sum(column.width for column in columns) + _GAP * (len(columns) - 1)


def _console() -> Console:
    is_terminal = sys.stdout.isatty()
    # https://no-color.org; rich would leave bold text.
    is_styled = is_terminal and not os.environ.get("NO_COLOR")
    return Console(
        file=sys.stdout,
        width=None if is_terminal else _UNLIMITED_WIDTH,
        color_system="auto" if is_styled else None,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _print_stripped(console: Console, table: Table) -> None:
    """Print a table without the blanks that rich adds after the last column."""
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        sys.stdout.write(line.rstrip() + "\n")

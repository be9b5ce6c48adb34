"""Tables for people, drawn by rich, which is loaded only where one is shown."""

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
_PATH_WIDTH = 32  # of a column whose paths are cut in their middle
_ID_WIDTH = 8
_ID = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}|[0-9a-f]{40,64}")
_FRACTION = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d+Z$")
_UNLIMITED_WIDTH = 100_000  # a pipe has no edge at which lines should break


def print_table(
    names: Sequence[str], rows: Iterable[Sequence[str]], *, are_numbers: Sequence[bool]
) -> tuple[list[str], list[str]]:
    """Print rows of cells under a header, as wide as a terminal is.

    Args:
        names: Of the columns.
        rows: The cells of each, in the order of the columns.
        are_numbers: For each column, whether it is set to the right.

    Returns:
        The columns that there was no room for, and those whose cells are cut.
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
    """A column of cells as they are shown."""

    name: str
    cells: Sequence[str]
    is_number: bool

    @property
    def width(self) -> int:
        return max(map(cells_of, (self.name, *self.cells)))

    @property
    def is_one_word(self) -> bool:
        """Whether no cell can be broken between words."""
        return not any(" " in cell for cell in self.cells)

    @property
    def is_path(self) -> bool:
        return self.is_one_word and any("/" in cell for cell in self.cells)

    @property
    def is_empty(self) -> bool:
        return all(cell in ("", "-", "[]") for cell in self.cells)

    @property
    def least(self) -> int:
        """The width that it must have at least to be of use."""
        if self.is_path:
            return min(self.width, max(len(self.name), _PATH_WIDTH))
        if self.is_one_word:
            return self.width
        longest = max(cells_of(word) for cell in self.cells for word in cell.split() or [""])
        return min(self.width, max(len(self.name), _TEXT_WIDTH, min(longest, _PATH_WIDTH)))

    def shortened(self) -> _Column:
        """Return it with ids cut to what tells them apart by eye, and times to seconds."""
        if self.cells and all(_ID.fullmatch(cell) or cell == "-" for cell in self.cells):
            return replace(self, cells=[cell[:_ID_WIDTH] for cell in self.cells])
        return replace(self, cells=[_FRACTION.sub(r"\1Z", cell) for cell in self.cells])

    def within(self, width: int) -> _Column:
        """Return it in a width: texts in lines, and of paths what they do not all begin with."""
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
    """Return the folder that several paths begin with, with a slash at its end; or nothing."""
    if len(paths) < 2:
        return ""
    # What the least and the greatest have in common all have.
    levels = zip(*(path.split("/")[:-1] for path in (min(paths), max(paths))), strict=False)
    same = [one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], levels)]
    return "/".join([*same, ""]) if any(same) else ""


def _turned(rows: Iterable[Sequence[str]], count: int) -> list[list[str]]:
    """Return the cells of each column."""
    columns: list[list[str]] = [[] for _ in range(count)]
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            column.append(visible(cell))
    return columns


def _fitting(columns: Sequence[_Column], width: int) -> Sequence[_Column]:
    """Choose what a terminal has room for; words stay whole.

    First ids and times become shorter, then columns go: the empty ones, then those at the end.
    The first column stays, as it says what a row is about.
    """
    if _width_of(columns) <= width:
        return columns
    shown = [column.shortened() for column in columns]
    order = [column for column in reversed(shown[1:]) if column.is_empty]
    order += [column for column in reversed(shown[1:]) if not column.is_empty]
    for column in order:
        if sum(each.least for each in shown) + _GAP * (len(shown) - 1) <= width:
            break
        shown.remove(column)
    return shown


def _widths(columns: Sequence[_Column], width: int) -> list[tuple[_Column, int]]:
    """Return how wide each column is; what room is left is for paths, then for texts."""
    widths = [min(column.least, width) for column in columns]
    room = width - sum(widths) - _GAP * (len(columns) - 1)
    order = sorted(range(len(columns)), key=lambda place: not columns[place].is_path)
    for place in order:
        more = max(0, min(columns[place].width - widths[place], room))
        widths[place] += more
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
    """Print a table without the blanks that rich puts behind the last column."""
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        sys.stdout.write(line.rstrip() + "\n")

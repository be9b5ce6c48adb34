"""Tables for people, drawn by rich, which is loaded only where one is shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from rich.box import Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakebed.cli.output import to_screen

# A rule under the header and nothing else, in ASCII.
_RULE = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_UNLIMITED_WIDTH = 100_000  # a pipe has no edge at which lines should break


def print_table(
    names: Sequence[str], rows: Iterable[Sequence[str]], *, are_numbers: Sequence[bool]
) -> None:
    """Print rows of cells under a header.

    Args:
        names: Of the columns.
        rows: The cells of each, in the order of the columns.
        are_numbers: For each column, whether it is set to the right.
    """
    table = Table(box=_RULE, show_edge=False, pad_edge=False, header_style="bold")
    for name, is_number in zip(names, are_numbers, strict=True):
        table.add_column(
            Text(to_screen(name)), justify="right" if is_number else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(to_screen(cell)) for cell in row))
    _print_stripped(table)


def print_facts(lines: Iterable[tuple[str, str]]) -> None:
    """Print lines of a label and a text each on a terminal."""
    table = Table(box=None, show_header=False, show_edge=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in lines:
        table.add_row(Text(label), Text(text))
    _print_stripped(table)


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


def _print_stripped(table: Table) -> None:
    """Print a table without the blanks that rich puts behind the last column."""
    console = _console()
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        sys.stdout.write(line.rstrip() + "\n")

"""Output of results as tables, JSON, JSON lines, CSV or plain lines.

Results go to stdout, everything else to stderr. Values look the same in every format, as
`lakebed.common.plain` describes; and

- plain is only the first column, a line each and without a header, for `xargs` and the like;
- all formats except tables are UTF-8, on every terminal.

`lakebed append` reads JSON lines of this form back, and CSV if no column is nested or bytes.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum

import click

from lakebed.cli.folding import cells_of, folded, terminal_width
from lakebed.common.plain import to_cell, to_json, to_plain, to_text
from lakebed.common.progress import NO_PROGRESS, OnProgress
from lakebed.common.shown import visible


class OutputFormat(StrEnum):
    """The values of `--output`."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Output of a verb: its result, notes and progress.

    Attributes:
        format: The format of the result.
        is_quiet: True leaves out notes and progress.
        is_verbose: True shows a log, and details.
    """

    format: OutputFormat = OutputFormat.TABLE
    is_quiet: bool = False
    is_verbose: bool = False

    @property
    def is_table(self) -> bool:
        """True if the result is for a person."""
        return self.format is OutputFormat.TABLE

    def rows(
        self, columns: Sequence[str], rows: Iterable[Mapping[str, object]], *, null: str = "-"
    ) -> None:
        """Show rows of the same columns.

        Args:
            columns: The keys of the rows, in order.
            rows: Mappings, which are read one by one as they are written, except for a table.
            null: The text for null in a table.
        """
        self._begin()
        plain = ({name: to_plain(row[name]) for name in columns} for row in rows)
        match self.format:
            case OutputFormat.TABLE:
                left_out, cut = _print_table(columns, list(plain), null)
                note = f"Too wide for this terminal: {', '.join(left_out)}. " if left_out else ""
                note += f"Cut to fit: {', '.join(cut)}. " if cut else ""
                if note:
                    self.note(f"{note}See `-o json`.")
            case OutputFormat.JSON:
                _write_array(plain)
            case OutputFormat.JSONL:
                for row in plain:
                    _write_line(to_json(row))
            case OutputFormat.CSV:
                _write_line(",".join(to_cell(name) for name in columns))
                for row in plain:
                    _write_line(",".join(to_cell(row[name]) for name in columns))
            case OutputFormat.PLAIN:
                for row in plain:
                    _write_line("" if row[columns[0]] is None else to_text(row[columns[0]]))

    def record(
        self, record: Mapping[str, object], *, facts: Mapping[str, object] | None = None
    ) -> None:
        """Show one record.

        Args:
            record: The keys and values.
            facts: Keys and values that a table shows instead; a list takes a line an item.
        """
        self._begin()
        if self.is_table:
            _print_facts(record if facts is None else facts)
        elif self.format is OutputFormat.JSON:
            _write_line(json.dumps(to_plain(record), ensure_ascii=False, indent=2))
        else:
            self.rows(tuple(record), [record])

    def _begin(self) -> None:
        """Write UTF-8 for programs, also if the terminal has another encoding."""
        if not self.is_table and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")

    def note(self, text: str) -> None:
        """Show a note to a person, on stderr."""
        if not self.is_quiet:
            echo_folded(text)

    def progress(self, text: str) -> AbstractContextManager[OnProgress]:
        """Show the progress of an operation; see `lakebed.cli.progress_bar`."""
        if self.is_quiet:
            return nullcontext(NO_PROGRESS)
        # Imported here, since a verb that ends at once does not need it.
        from lakebed.cli.progress_bar import showing

        return showing(text)


def next_commands(*commands: str) -> str:
    """Return a note that proposes command lines, each on a line of its own for copying."""
    return "\n".join(["Next:", *(f"  lakebed {command}" for command in commands)])


def show_error(
    code: str, message: str, hint: str, *, as_json: bool, notes: Sequence[str] = ()
) -> None:
    """Show an error on stderr, with its hint and notes of what was committed before."""
    if as_json:
        error: dict[str, object] = {"code": code, "message": message, "hint": hint}
        if notes:
            error["notes"] = list(notes)
        click.echo(json.dumps({"error": error}, ensure_ascii=False), err=True)
        return
    echo_folded(f"Error: {message}")
    if hint:
        echo_folded(f"Hint: {hint}")
    for note in notes:
        echo_folded(f"Note: {note}")


def echo_folded(text: str) -> None:
    """Write a text for a person on stderr; on a terminal lines break between words."""
    click.echo(folded(text, terminal_width(sys.stderr)), err=True)


def _write_line(text: str) -> None:
    sys.stdout.write(text + "\n")


def _write_array(rows: Iterable[object]) -> None:
    """Write a JSON array row by row, since there may be many."""
    opening = "["
    for row in rows:
        _write_line(opening if opening == "[" else opening + ",")
        sys.stdout.write("  ")
        sys.stdout.write(to_json(row))
        opening = ""
    _write_line("[]" if opening == "[" else "\n]")


def _print_table(
    columns: Sequence[str], rows: Sequence[Mapping[str, object]], null: str
) -> tuple[list[str], list[str]]:
    # Imported here, since programs, which ask for JSON, do not need rich.
    from lakebed.cli.drawn_tables import print_table

    return print_table(
        columns,
        ([null if row[name] is None else to_text(row[name]) for name in columns] for row in rows),
        are_numbers=[_are_numbers(row[name] for row in rows) for name in columns],
    )


def _are_numbers(values: Iterable[object]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in known
    )


def _print_facts(facts: Mapping[str, object]) -> None:
    lines = []
    for name, value in facts.items():
        items = list(value) if isinstance(value, list | tuple) else [value]
        for item, label in zip(items, itertools.chain([name], itertools.repeat("")), strict=False):
            text = "-" if item is None else to_text(to_plain(item))
            lines.append((visible(label), visible(text)))
    width = max((cells_of(label) for label, _ in lines), default=0)
    for label, text in lines:
        _write_line(_fact(label + " " * (width - cells_of(label)), text))


def _fact(label: str, text: str) -> str:
    """Return a label and a text as a line; on a terminal long texts are folded between words."""
    width = terminal_width(sys.stdout)
    if width is None:
        return f"{label}  {text}".rstrip()
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    begin = label if is_plain else click.style(label, bold=True)
    room = max(width - cells_of(label) - 2, 1)
    lines = []
    for line in folded(text, room).split("\n"):
        if cells_of(line) <= room:
            lines.append(f"{begin}  {line}".rstrip())
        else:  # a word too long for the room beside the label
            lines += [begin, line] if not lines else [line]
        begin = " " * cells_of(label)
    return "\n".join(lines)

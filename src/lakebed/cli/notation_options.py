"""Options for the notation of raw files; what is not given is found in the files."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli.shared_options import Verb
from lakebed.errors import InvalidInputError
from lakebed.model.names import nearest

if TYPE_CHECKING:
    from lakebed.arrow.reading.dialect import CsvOptions, JsonOptions


_WRITTEN = {"\\t": "\t", "\\n": "\n", "\\r": "\r"}
_LISTS = frozenset({"nulls", "texts"})
_MAPPINGS = frozenset({"dates", "names"})
_FLAGS = frozenset({"has_header", "trim", "skip_empty", "exact"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Notation:
    """Parts of the notation of files that are given.

    Attributes:
        csv: Given values of attributes of `CsvOptions`, by their names.
        json: Given values of attributes of `JsonOptions`, by their names.
    """

    csv: Mapping[str, Any] = field(default_factory=dict)
    json: Mapping[str, Any] = field(default_factory=dict)

    @property
    def csv_options(self) -> CsvOptions:
        """The notation of CSV, with defaults for what is not given."""
        from lakebed.arrow.reading.dialect import CsvOptions  # most commands read no files

        return CsvOptions(**self.csv)

    @property
    def json_options(self) -> JsonOptions:
        """The notation of JSON, with defaults for what is not given."""
        from lakebed.arrow.reading.dialect import JsonOptions

        return JsonOptions(**self.json)


def takes_notation(function: Verb) -> Verb:
    """Give a command the options of notation, and the function `notation`."""

    @functools.wraps(function)
    def run(
        *arguments: Any,
        has_header: bool | None,
        delimiter: str | None,
        null_text: str | None,
        csv_parts: tuple[str, ...],
        json_parts: tuple[str, ...],
        **others: Any,
    ) -> Any:
        from lakebed.arrow.reading.dialect import CsvOptions, JsonOptions

        parts = {"has_header": has_header, "delimiter": delimiter, "null_text": null_text}
        csv = {name: value for name, value in parts.items() if value is not None}
        notation = Notation(
            csv={**csv, **_read_parts(csv_parts, CsvOptions, "--csv")},
            json=_read_parts(json_parts, JsonOptions, "--json-form"),
        )
        _ = notation.csv_options, notation.json_options  # checks the values
        return function(*arguments, notation=notation, **others)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def _read_delimiter(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    delimiter = None if value is None else _WRITTEN.get(value, value)
    if delimiter is not None and len(delimiter) != 1:
        raise click.BadParameter(f"{value!r} is not one character.", context, parameter)
    return delimiter


_OPTIONS = (
    click.option(
        "--header/--no-header",
        "has_header",
        default=None,
        help="Whether CSV files begin with column names.  [default: found in the file]",
    ),
    click.option(
        "--delimiter",
        callback=_read_delimiter,
        help="Delimiter between CSV cells; '\\t' for a tab.  [default: found in the file]",
    ),
    click.option(
        "--null-text", help="CSV text for null in every column, such as NA, besides the empty cell."
    ),
    click.option(
        "--csv",
        "csv_parts",
        multiple=True,
        metavar="KEY=VALUE",
        help="Another part of the notation of CSV, as in [source.csv] of a pipeline: encoding=cp1252, "
        "skip=2, nulls=NA, dates.day=%d.%m.%Y. Repeatable.",
    ),
    click.option(
        "--json-form",
        "json_parts",
        multiple=True,
        metavar="KEY=VALUE",
        help="A part of the notation of JSON, as in [source.json] of a pipeline: records=array, "
        "texts=id, names.log.level=level. Repeatable.",
    ),
)


def _read_parts(
    texts: tuple[str, ...], options: type[CsvOptions] | type[JsonOptions], label: str
) -> dict[str, Any]:
    """Return the parts of a notation that are written as KEY=VALUE.

    Raises:
        InvalidInputError: A key is unknown, or a value is of another type.
    """
    known = [entry.name for entry in fields(options)]
    parts: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        name, dot, member = key.partition(".")
        if not equals or name not in known or bool(dot) != (name in _MAPPINGS):
            raise InvalidInputError(
                f"{label} {text!r} names no part of a notation.",
                hint=nearest(name, known) or f"Give KEY=VALUE, with a key of: {', '.join(known)}.",
            )
        value = _WRITTEN.get(value, value)
        if name in _LISTS:
            parts.setdefault(name, []).append(value)
        elif name in _MAPPINGS:
            parts.setdefault(name, {})[member] = value
        else:
            parts[name] = _read_value(name, value, label)
    return parts


def _read_value(name: str, value: str, label: str) -> Any:
    if name in _FLAGS:
        if value not in ("true", "false"):
            raise InvalidInputError(f"{label} {name} is {value!r}.", hint="Give true or false.")
        return value == "true"
    if name == "skip":
        if not value.isdecimal():
            raise InvalidInputError(f"{label} skip is {value!r}.", hint="Give a number of lines.")
        return int(value)
    return value

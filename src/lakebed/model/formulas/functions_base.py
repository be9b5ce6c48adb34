"""Parts of the tables of functions: calls, the types of arguments, and declarations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakebed.errors import PredicateError
from lakebed.model.formulas.casts import cast
from lakebed.model.formulas.typed import (
    BOOLEAN,
    BYTES,
    CLOCK,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    TEXT,
    TIMESTAMP,
    WIDTHS,
    Typed,
    is_atomic,
    is_number,
    is_whole,
    joined,
)
from lakebed.model.schema import ListOf, MapOf, Type

if TYPE_CHECKING:
    from lakebed.model.formulas.compiler import Compiler


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function.

    Attributes:
        compiler: Reads the arguments.
        name: Name of the function, in lower case.
        arguments: Trees of the arguments.
        node: Tree of the call, for errors.
    """

    compiler: Compiler
    name: str
    arguments: Sequence[object]
    node: object

    def values(self, least: int, most: int | None = None) -> list[Typed]:
        """Return the arguments.

        Args:
            least: Least number of them.
            most: Greatest number; None for the least.
        """
        most = least if most is None else most
        if not least <= len(self.arguments) <= most:
            raise self.refused(f"{self.name} takes {least} to {most} arguments")
        return [self.compiler.read(argument) for argument in self.arguments]

    def refused(self, reason: str = "") -> PredicateError:
        """Return the error for a call that is not computed without Spark."""
        return self.compiler.refused(self.node, reason)


SqlFunction = Callable[[FunctionCall], Typed]

_TYPES: Final[dict[str, Type]] = {
    "text": TEXT, "int": INT, "bigint": LONG, "double": DOUBLE, "date": DATE, "time": TIMESTAMP,
    "binary": BYTES, "boolean": BOOLEAN,
}  # fmt: skip


def taken(value: Typed, wanted: str, call: FunctionCall) -> Typed:
    """Return an argument in the type that a function takes, as far as Spark converts it by itself.

    Args:
        value: The argument.
        wanted: A word of `_TYPES`; or `number`, `whole`, `moment`, `list`, `map`, `any`, which
            leave its type as it is.
        call: The call.
    """
    kind = value.type
    if wanted == "any" or (kind is None and wanted in ("number", "whole", "moment", "list", "map")):
        return cast(value, DOUBLE) if kind is None and wanted == "number" else value
    if wanted == "number" and kind == TEXT:
        return cast(value, DOUBLE)
    is_fit = {
        "number": is_number(kind),
        "whole": is_whole(kind),
        "moment": kind in (DATE, TIMESTAMP, CLOCK),
        "list": isinstance(kind, ListOf),
        "map": isinstance(kind, MapOf),
    }.get(wanted)
    if is_fit:
        return value
    to = _TYPES.get(wanted)
    if to is None or (kind is not None and not _converts_by_itself(kind, to)):
        raise call.refused(f"{call.name} takes {wanted}, not {kind}")
    return cast(value, to)


def _converts_by_itself(kind: Type, to: Type) -> bool:
    if kind in (to, TEXT) or to == TEXT:
        return is_atomic(kind) and (kind != BYTES or to == BYTES)
    if is_number(kind) and is_number(to):
        order: tuple[Type, ...] = (*WIDTHS, FLOAT, DOUBLE)
        return to == DOUBLE or (kind in order and order.index(kind) <= order.index(to))
    return {kind, to} <= {DATE, TIMESTAMP, CLOCK}


def simple(takes: str, gives: Type | str, template: str, *, raises: bool = False) -> SqlFunction:
    """Return a function that is one expression of its arguments.

    Args:
        takes: The type of each argument, as for `taken`; those behind `?` may be left out, and the
            default stands behind `=`.
        gives: The type of the result; a text for that of an argument, such as `0`.
        template: The expression.
        raises: Whether some values are errors.
    """
    words = takes.split()
    least = sum("=" not in word and not word.endswith("?") for word in words)

    def call_it(call: FunctionCall) -> Typed:
        values = call.values(least, len(words))
        parts = [
            taken(value, word.partition("=")[0].rstrip("?"), call)
            for value, word in zip(values, words, strict=False)
        ]
        for word in words[len(parts) :]:
            name, _, default = word.partition("=")
            parts.append(Typed(sql=default, type=_TYPES.get(name)))
        kind = parts[int(gives)].type if isinstance(gives, str) else gives
        return joined(template, parts, kind, raises=raises)

    return call_it


def declarer(subject: str) -> Callable[..., None]:
    """Return what declares the functions of a subject.

    Args:
        subject: Title of their part of the page that lists all functions.
    """

    def declare(names: str, function: SqlFunction, note: str = "") -> None:
        for name in names.split():
            assert name not in FUNCTIONS, name
            FUNCTIONS[name] = function
            SUBJECTS[name] = subject
            if note:
                NOTES[name] = note

    return declare


# By the names of functions, in lower case.
FUNCTIONS: Final[dict[str, SqlFunction]] = {}
SUBJECTS: Final[dict[str, str]] = {}
NOTES: Final[dict[str, str]] = {}

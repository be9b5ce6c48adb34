"""Checks of arguments: an error that names the argument, before anything is done."""

from __future__ import annotations

import datetime as dt
import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ParamSpec, SupportsIndex, TypeVar

from lakebed.common.shown import shown
from lakebed.errors import FormatError, InvalidInputError

_P = ParamSpec("_P")
_R = TypeVar("_R")

_LEAST_BATCH_ID = 10**6  # a smaller number is a version

FileNames = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""One file or several: paths, URLs or ids."""


def check_given(
    name: str, value: object, kind: type | tuple[type, ...], remedy: str, *, or_none: bool = True
) -> None:
    """Check that an argument has the right type, or was left out.

    Args:
        name: Name of the argument, as the caller writes it.
        value: Value of the argument.
        kind: The types that it may have.
        remedy: Hint of the error, as a sentence.
        or_none: Accept None, which means that the argument was left out.

    Raises:
        InvalidInputError: The value has another type.
    """
    if not (isinstance(value, kind) or (value is None and or_none)):
        raise InvalidInputError(f"{name} is {shown(value)}.", hint=remedy)


def read_given(path: Path, max_bytes: int | None = None) -> str | None:
    """Return the text of a small file that a caller names; None if there is no such file.

    Args:
        path: The argument of the caller, which need not be a valid path.
        max_bytes: Maximal size of the file; None for any.

    Raises:
        FormatError: The file is too large, or is not UTF-8.
        InvalidInputError: The file cannot be read.
    """
    try:
        if not path.is_file():
            return None
    except OSError:  # too long for a name
        return None
    try:
        size_bytes = path.stat().st_size
        if max_bytes is not None and size_bytes > max_bytes:
            raise FormatError(
                f"{str(path)!r} has {size_bytes:,} bytes; at most {max_bytes:,} are expected.",
                hint="Name the right file.",
            )
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as exc:
        raise FormatError(
            f"{str(path)!r} is not valid UTF-8: {exc}.", hint="Name the right file."
        ) from exc
    except OSError as exc:
        raise InvalidInputError(
            f"{str(path)!r} cannot be read: {exc.strerror or exc}.", hint="Check the file."
        ) from exc


def check_run_name(run: object) -> None:
    """Check that the name of a run is a text or None.

    Raises:
        InvalidInputError: It is something else.
    """
    check_given("run", run, str, "Give a text, such as '2013-01'.")


def naming_moment(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a method with keyword arguments only, so that its error suggests the right keyword.

    A positional number may mean a version or a batch, a positional text a time.

    Raises:
        InvalidInputError: An argument is positional.
    """

    @functools.wraps(method)
    def run(*given: _P.args, **named: _P.kwargs) -> _R:
        if len(given) == 1:
            return method(*given, **named)
        value, verb = given[1], method.__name__
        name = "version"
        if isinstance(value, str | dt.date):
            name = "time"
        elif isinstance(value, SupportsIndex) and int(value) >= _LEAST_BATCH_ID:
            name = "batch_id"
        raise InvalidInputError(
            f"{verb}({shown(value)}) is ambiguous: the argument needs a keyword.",
            hint=f"Write {verb}({name}={shown(value)}).",
        )

    return run


def check_number(name: str, value: object) -> None:
    """Check that a version or a batch id is a whole number, or was left out.

    Raises:
        InvalidInputError: It is something else.
    """
    check_given(name, value, SupportsIndex, "Give a whole number, as `history` shows it.")


def given_names(argument: str, names: str | Iterable[str]) -> tuple[str, ...]:
    """Return names that a caller gives; a text is one name.

    Args:
        argument: Name of the argument, as the caller writes it.
        names: One name or several.

    Raises:
        InvalidInputError: They are something else.

    >>> given_names("on", "id"), given_names("on", ["id", "day"])
    (('id',), ('id', 'day'))
    """
    hint = 'Give a name, or a list of names such as ["id"].'
    check_given(argument, names, Iterable, hint, or_none=False)
    several = (names,) if isinstance(names, str) else tuple(names)
    for name in several:
        if not isinstance(name, str):
            raise InvalidInputError(
                f"{argument} names {shown(name)}, which is not a text.", hint=hint
            )
    return several


def given_files(argument: str, files: FileNames) -> tuple[str, ...]:
    """Return files that a caller gives; a text or path is one file.

    Args:
        argument: Name of the argument, as the caller writes it.
        files: One file or several.

    Raises:
        InvalidInputError: They are something else.

    >>> given_files("files", "in/a.csv"), given_files("files", [Path("in/a.csv")])
    (('in/a.csv',), ('in/a.csv',))
    """
    hint = "Give a path, a URL or an id, or a list of these."
    check_given(argument, files, (Iterable, os.PathLike), hint, or_none=False)
    several = (files,) if isinstance(files, str | os.PathLike) else tuple(files)
    for file in several:
        if not isinstance(file, str | os.PathLike):
            raise InvalidInputError(f"{argument} names {shown(file)}.", hint=hint)
    return tuple(os.fspath(file) for file in several)

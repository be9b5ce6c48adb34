"""Arguments of a kind that no call takes: an error that names them, before anything is done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import SupportsIndex

from lakebed.errors import InvalidInputError
from lakebed.model.shown import shown


def check_given(
    name: str, value: object, kind: type | tuple[type, ...], remedy: str, *, or_none: bool = True
) -> None:
    """Check that an argument is of a kind, or was left out.

    Args:
        name: As the caller writes it.
        value: What was given.
        kind: What it must be.
        remedy: What to give instead, as a sentence.
        or_none: Whether it may be left out.

    Raises:
        InvalidInputError: It is something else.
    """
    if not (isinstance(value, kind) or (value is None and or_none)):
        raise InvalidInputError(f"{name} is {shown(value)}.", hint=remedy)


def check_run_name(run: object) -> None:
    """Check that a run is named by a text, or has no name.

    Raises:
        InvalidInputError: It is something else.
    """
    check_given("run", run, str, "Name it by a text, such as '2013-01'.")


def check_number(name: str, value: object) -> None:
    """Check that what names a version or a batch is a whole number, or was left out.

    Raises:
        InvalidInputError: It is something else.
    """
    check_given(name, value, SupportsIndex, "Give a whole number, as `history` tells it.")


def check_column_names(columns: object) -> None:
    """Check that columns are a list, not one text; None stands for all.

    Raises:
        InvalidInputError: They are something else.
    """
    if isinstance(columns, str) or not isinstance(columns, Iterable | None):
        name = columns if isinstance(columns, str) else "name"
        raise InvalidInputError(
            f"columns is {shown(columns)}.", hint=f"Give a list of names: columns=[{name!r}]."
        )

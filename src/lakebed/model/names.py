"""Rules for names, and suggestions for wrong ones."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lakebed.common.shown import shown
from lakebed.errors import InvalidNameError

# Kartothek's rule for a uuid. Matched as a whole: Kartothek accepts a final newline.
_DATASET_NAME = re.compile(r"[A-Za-z0-9+\-_]+")
# Kite's rule: as in Avro, but digits may lead.
_FIELD_NAME = re.compile(r"[A-Za-z0-9_]+")

MAX_DATASET_NAME_LENGTH = 200  # leaves room for ".by-dataset-metadata.msgpack.zstd" in 255 bytes


def check_dataset_name(name: object) -> str:
    """Return `name` if a dataset may have it.

    Raises:
        InvalidNameError: The name is not text, is empty or too long, or holds characters other
            than letters, digits, `+`, `-` and `_`.
    """
    if not isinstance(name, str) or not _DATASET_NAME.fullmatch(name):
        because = (
            ": a dot ends the name in the keys of its objects"
            if isinstance(name, str) and "." in name
            else ""
        )
        raise InvalidNameError(
            f"Illegal dataset name {shown(name)}{because}.",
            hint="Use letters, digits, '+', '-' and '_' only.",
        )
    if len(name) > MAX_DATASET_NAME_LENGTH:
        raise InvalidNameError(
            f"The dataset name has {len(name)} characters.",
            hint=f"Use at most {MAX_DATASET_NAME_LENGTH}.",
        )
    return name


def is_dataset_name(text: str) -> bool:
    """Return whether a dataset may have a name.

    >>> is_dataset_name("flights"), is_dataset_name("flights copy")
    (True, False)
    """
    try:
        check_dataset_name(text)
    except InvalidNameError:
        return False
    return True


def split_table(name: str) -> tuple[str, str]:
    """Return the dataset and the table of `DATASET:TABLE`; the table is empty if none is named.

    Only datasets of kartothek have several tables.

    Raises:
        InvalidNameError: The name of the dataset or of the table is illegal.

    >>> split_table("sales:core"), split_table("sales")
    (('sales', 'core'), ('sales', ''))
    """
    dataset, colon, table = name.partition(":") if isinstance(name, str) else (name, "", "")
    check_dataset_name(dataset)
    if colon and (not table or "/" in table or table.startswith(".")):
        raise InvalidNameError(
            f"Illegal table name {shown(table)} in {shown(name)}.",
            hint=f"Write {dataset}:TABLE, or {dataset} alone.",
        )
    return dataset, table


def check_field_name(name: object) -> str:
    """Return `name` if a field of a schema may have it.

    Raises:
        InvalidNameError: The name is not text, is empty, or holds characters other than letters,
            digits and `_`.
    """
    if not isinstance(name, str) or not _FIELD_NAME.fullmatch(name):
        suggestion = re.sub(r"[^A-Za-z0-9_]+", "_", str(name)[:80]).strip("_").lower() or "field"
        raise InvalidNameError(
            f"Illegal field name {shown(name)}.",
            hint=f"Use letters, digits and '_' only, for example {suggestion!r}.",
        )
    return name


def check_partition_name(name: str) -> str:
    """Return `name` if a partition field may have it.

    Raises:
        InvalidNameError: The name is not a field name, or starts with `_`: Spark and Hive hide
            such directories.
    """
    check_field_name(name)
    if name.startswith("_"):
        raise InvalidNameError(
            f"Illegal partition field name {name!r}: readers hide directories that start with '_'.",
            hint=f"Name it {name.lstrip('_') or 'field'!r}.",
        )
    return name


def find_alike(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names that differ only in case; None if there are none.

    >>> find_alike(["id", "day", "id", "Day"])
    ('day', 'Day')
    """
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.casefold(), name)
        if other != name:
            return other, name
    return None


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests the nearest known name; empty if none is near."""
    names, begin = list(known), str(name)
    same = [candidate for candidate in names if candidate.casefold() == begin.casefold()]
    longer = [candidate for candidate in names if begin and candidate.startswith(begin)]
    import difflib

    near = longer if len(longer) == 1 else difflib.get_close_matches(begin, names, n=1)
    matches = same or near
    return f"Did you mean {matches[0]!r}?" if matches else ""

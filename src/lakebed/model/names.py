"""Rules for names, and suggestions for wrong ones."""

from __future__ import annotations

import re
import unicodedata
import urllib.parse
from collections.abc import Iterable

from lakebed.common.shown import shown
from lakebed.errors import InvalidNameError

# Kartothek's rule for a uuid. Matched as a whole: Kartothek accepts a final newline.
_DATASET_NAME = re.compile(r"[A-Za-z0-9+\-_]+")
# Names that every format and engine can hold.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_]+")
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Control and format characters, halves of surrogate pairs, and separators other than the space.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"})
_LISTED_NAME = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^`,]*?))\s*(,|\Z)")

MAX_COMPONENT_BYTES = 255  # bytes of a file name on POSIX systems
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
    """Return `name` if a field of a schema may have it: any letters, digits, signs and spaces.

    Raises:
        InvalidNameError: The name is not text, is empty, begins or ends with a space, or has a
            character that is invisible or has another meaning in the name of a column.
    """
    if isinstance(name, str) and _PLAIN_NAME.fullmatch(name):
        return name
    reason = _what_is_wrong(name)
    if reason:
        suggestion = re.sub(r"[^\w -]+", "_", str(name)[:80]).strip("_ ") or "field"
        raise InvalidNameError(
            f"Illegal field name {shown(name)}: {reason}.",
            hint=f"Rename it, for example to {suggestion!r}.",
        )
    return str(name)


def _what_is_wrong(name: object) -> str:
    """Return why no field may have a name; empty if one may."""
    if not isinstance(name, str):
        return "it is not text"
    if not name:
        return "it is empty"
    for character in name:
        if character != " " and unicodedata.category(character) in _INVISIBLE:
            return f"it has the invisible character U+{ord(character):04X}"
    if name != name.strip():
        return "it begins or ends with a space"
    if "." in name:
        return "a dot leads to a field of a record, as in position.latitude"
    if "`" in name:
        return "backticks quote names"
    if "[]" in name or "{}" in name:
        return "[] and {} stand for the elements of a list and the values of a map"
    return ""


def check_partition_name(name: str) -> str:
    """Return `name` if a partition field may have it.

    Raises:
        InvalidNameError: The name is not a field name, or starts with `_`, since Spark and Hive hide
            such directories, or is too long for a directory.
    """
    check_field_name(name)
    if name.startswith("_"):
        raise InvalidNameError(
            f"Illegal partition field name {name!r}: readers hide directories that start with '_'.",
            hint=f"Name it {name.lstrip('_') or 'field'!r}.",
        )
    # The least that a directory has besides are the sign and one character.
    check_encoded_length(name, MAX_COMPONENT_BYTES - 2, "partition field")
    return name


def encoded_length(name: str) -> int:
    """Return how many bytes a name has in a path, where its special characters are percent-encoded.

    >>> encoded_length("carrier"), encoded_length("größe")
    (7, 15)
    """
    return len(urllib.parse.quote(name, safe=""))


def check_encoded_length(name: str, most: int, what: str) -> None:
    """Check that a name can stand in a path.

    Args:
        name: Name of a field.
        most: Maximal length of the encoded name, in bytes.
        what: The object that has the name, for the message.

    Raises:
        InvalidNameError: It is longer.
    """
    length = encoded_length(name)
    if length > most:
        raise InvalidNameError(
            f"The name of {what} {shown(name)} needs {length} bytes in a path.",
            hint=f"Paths have room for {most}: shorten it. A letter outside ASCII takes up to 12.",
        )


def is_avro_name(name: str) -> bool:
    """Return whether a name is valid in Avro.

    >>> is_avro_name("air_time"), is_avro_name("air time"), is_avro_name("2nd")
    (True, False, False)
    """
    return _AVRO_NAME.fullmatch(name) is not None


def split_names(text: str) -> list[str]:
    """Return the names of a comma-separated list; one with a comma stands in backticks.

    >>> split_names("carrier, air time, `price, net`")
    ['carrier', 'air time', 'price, net']
    """
    names, start = [], 0
    while match := _LISTED_NAME.match(text, start):
        quoted, plain, comma = match.groups()
        names.append(plain if quoted is None else quoted.replace("``", "`"))
        if not comma:
            return names
        start = match.end()
    return [part.strip() for part in text.split(",")]  # a backtick stands alone: an unknown name


def find_alike(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names that differ only in case; None if there are none.

    Letters that are composed in another way count as the same, since they look alike.

    >>> find_alike(["id", "day", "id", "Day"])
    ('day', 'Day')
    """
    known: dict[str, str] = {}
    for name in names:
        folded = unicodedata.normalize("NFC", name.casefold())
        other = known.setdefault(folded, name)
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

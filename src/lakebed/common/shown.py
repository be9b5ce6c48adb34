"""Texts of values, counts and sizes for messages."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Collection, Mapping

_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class _Short(reprlib.Repr):
    """Shortens quoted values, including whole numbers that Python refuses to write out."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 80

    def repr_int(self, number: int, level: int) -> str:
        try:
            return super().repr_int(number, level)
        except ValueError:  # more digits than sys.get_int_max_str_digits()
            digits = int(number.bit_length() * math.log10(2)) + 1
            return f"a whole number of about {digits:,} digits"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun, in the singular or plural.

    >>> counted(1, "row"), counted(1200, "row"), counted(0, "batch", "batches")
    ('1 row', '1,200 rows', '0 batches')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def human_size(size_bytes: int | None) -> str:
    """Return a size in the largest unit that leaves a number of at least 1.

    >>> human_size(0), human_size(1023), human_size(1536), human_size(5 * 2**30), human_size(None)
    ('0 B', '1023 B', '1.5 KiB', '5.0 GiB', 'unknown')
    """
    if size_bytes is None:
        return "unknown"
    size, unit = float(size_bytes), 0
    while size >= 1024 and unit < len(_SIZE_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:,.1f} {_SIZE_UNITS[unit]}" if unit else f"{size_bytes} B"


def visible(text: str) -> str:
    r"""Return a text with escape codes for characters that control the cursor or text direction.

    >>> visible("a\u202eb\nc")
    'a\\u202eb\\nc'
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def cut(text: str, length: int = 200) -> str:
    """Return a text; of a long one, the beginning and the number of characters left out.

    >>> cut("a = 1"), cut("x" * 1000, 3)
    ('a = 1', 'xxx … 997 more characters')
    """
    if len(text) <= length:
        return text
    return f"{text[:length]} … {len(text) - length:,} more characters"


def facts_of(record: Mapping[str, object], *, hidden: Collection[str] = ()) -> dict[str, object]:
    """Return a record for people: keys become words, and some are left out.

    >>> facts_of({"row_count": 3, "commit_id": "9f"}, hidden=["commit_id"])
    {'row count': 3}
    """
    return {key.replace("_", " "): value for key, value in record.items() if key not in hidden}


def shown(value: object) -> str:
    """Return the `repr` of a value for a message, in at most a line.

    >>> shown("UA"), shown(10**5000)
    ("'UA'", 'a whole number of about 5,001 digits')
    """
    return _Short().repr(value)

"""How messages show a value that may be anything."""

from __future__ import annotations

import math
import reprlib


class _Short(reprlib.Repr):
    """Shortens what a message quotes, also whole numbers that Python refuses to write out."""

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
    """Return how many there are of something, in words that fit the number.

    >>> counted(1, "row"), counted(1200, "row"), counted(0, "batch", "batches")
    ('1 row', '1,200 rows', '0 batches')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def cut(text: str, length: int = 200) -> str:
    """Return a text, or its beginning and how much is left out.

    >>> cut("a = 1"), cut("x" * 1000, 3)
    ('a = 1', 'xxx … 997 more characters')
    """
    if len(text) <= length:
        return text
    return f"{text[:length]} … {len(text) - length:,} more characters"


def shown(value: object) -> str:
    """Return what a message shows of a value: its `repr`, in at most a line.

    >>> shown("UA"), shown(10**5000)
    ("'UA'", 'a whole number of about 5,001 digits')
    """
    return _Short().repr(value)

"""Sizes as a caller gives them: a number of bytes, or text such as `128MB`."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import SupportsIndex

from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError

Size = int | str
"""A number of bytes, or a text such as `128MB`, `64 MiB` or `1.5g`; units are powers of 1024."""

_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([kmgtp]?)(i?b)?", re.IGNORECASE)
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def parse_size(size: object, name: str = "size") -> int:
    """Return the number of bytes of a size, which is at least 1.

    Args:
        size: A whole number of bytes, or text with an optional unit. KB and KiB are 1,024 bytes, MB
            and MiB 1,024 times as many, and so on: the units of Spark, Java and Delta.
        name: Name of the argument, as the caller writes it.

    Raises:
        InvalidInputError: It has another form, or is less than a byte.

    >>> parse_size("128MB") == parse_size("128 MiB") == parse_size(128 * 2**20) == 128 * 2**20
    True
    >>> parse_size("1.5k"), parse_size("1000")
    (1536, 1000)
    """
    number = None
    if type(size) is int:  # most are, and the test of a protocol takes longer than the rest
        number = size
    elif isinstance(size, str):
        match = _SIZE.fullmatch(size.strip())
        if match is not None and (match[2] or "." not in match[1]):
            number = int(Decimal(match[1]) * 1024 ** _UNITS[match[2].lower()])
    elif isinstance(size, SupportsIndex) and not isinstance(size, bool):
        number = size.__index__()
    if number is None or number < 1:
        raise InvalidInputError(
            f"{name} is {shown(size)}, which is not a size.",
            hint="Give a number of bytes of at least 1, or text such as '128MB', which is "
            "128 * 1024 * 1024 bytes.",
        )
    return number

"""Sums of numbers, some of which may be unknown."""

from __future__ import annotations

from collections.abc import Sequence


def known_total(numbers: Sequence[int | None]) -> int | None:
    """Return the sum; None if a number is unknown, such as the rows of another tool's file.

    >>> known_total([1, 2]), known_total([1, None]), known_total([])
    (3, None, 0)
    """
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None

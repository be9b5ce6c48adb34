"""Divide files into groups of similar size, to process in parallel or one after the other."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from lakebed.errors import InvalidInputError


class HasSize(Protocol):
    """An object that has a size."""

    @property
    def size_bytes(self) -> int:
        """Size in bytes."""


_Sized = TypeVar("_Sized", bound=HasSize)
_Name = TypeVar("_Name", str, tuple[str, ...])


def portions(things: Iterable[_Sized], limit_bytes: int) -> Iterator[list[_Sized]]:
    """Divide things into portions of limited size, in their order.

    Args:
        things: Things to divide.
        limit_bytes: Maximal size of a portion; a larger thing is a portion of its own.
    """
    portion: list[_Sized] = []
    size_bytes = 0
    for thing in things:
        if portion and size_bytes + thing.size_bytes > limit_bytes:
            yield portion
            portion, size_bytes = [], 0
        portion.append(thing)
        size_bytes += thing.size_bytes
    if portion:
        yield portion


def balanced_groups(
    sizes: Mapping[_Name, int], count: int, *, threshold_bytes: int | None = None
) -> list[list[_Name]]:
    """Divide files into groups of about equal size, each file to the smallest group so far.

    The largest group is at most 4/3 as large as in the best division.

    Args:
        sizes: Sizes in bytes by name of a file, or by the parts of that of a directory.
        count: Number of groups.
        threshold_bytes: Each larger file gets a group of its own, in addition to the others.

    Returns:
        The groups, without empty ones; in each the largest file first.

    Raises:
        InvalidInputError: The count is below 1, or a size below 0.

    >>> balanced_groups({"a": 100, "b": 1, "c": 1, "d": 1}, 2)
    [['a'], ['b', 'c', 'd']]
    """
    if count < 1 or any(size < 0 for size in sizes.values()):
        raise InvalidInputError(
            f"Cannot divide {len(sizes)} files into {count} groups.",
            hint="Give a count of at least 1, and sizes that are not negative.",
        )
    by_size = sorted(sizes, key=lambda name: (-sizes[name], name))
    alone = [
        name for name in by_size if threshold_bytes is not None and sizes[name] > threshold_bytes
    ]
    groups: list[list[_Name]] = [[] for _ in range(count)]
    # Among equal groups the one with fewer files comes first, so that empty files spread too.
    smallest = [(0, 0, position) for position in range(count)]
    for name in by_size[len(alone) :]:
        size, length, position = heapq.heappop(smallest)
        groups[position].append(name)
        heapq.heappush(smallest, (size + sizes[name], length + 1, position))
    return [[name] for name in alone] + [group for group in groups if group]

"""Dividing files: into groups of about equal size, to be read side by side, or one after the other."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from lakebed.errors import InvalidInputError


class HasSize(Protocol):
    """A thing of some bytes."""

    @property
    def size_bytes(self) -> int:
        """How many."""


_Sized = TypeVar("_Sized", bound=HasSize)


def portions(things: Iterable[_Sized], limit_bytes: int) -> Iterator[list[_Sized]]:
    """Cut things in their order into portions, such as what one commit takes.

    Args:
        things: Any number.
        limit_bytes: Of a portion, unless it is of one thing alone.
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
    sizes: Mapping[str, int], count: int, *, threshold_bytes: int | None = None
) -> list[list[str]]:
    """Divide files into groups of about equal size, each file to the smallest group so far.

    The largest group is at most 4/3 of what the best division could reach.

    Args:
        sizes: Bytes by name.
        count: Number of groups.
        threshold_bytes: A file that is larger gets a group of its own, beside the others.

    Returns:
        The groups, without empty ones; in each the largest file first.

    Raises:
        InvalidInputError: The count is below 1, or a size below 0.

    >>> balanced_groups({"a": 100, "b": 1, "c": 1, "d": 1}, 2)
    [['a'], ['b', 'c', 'd']]
    """
    if count < 1 or any(size < 0 for size in sizes.values()):
        raise InvalidInputError(
            f"{count} groups of {len(sizes)} files.", hint="Give a count of at least 1, and sizes."
        )
    by_size = sorted(sizes, key=lambda name: (-sizes[name], name))
    alone = [
        name for name in by_size if threshold_bytes is not None and sizes[name] > threshold_bytes
    ]
    groups: list[list[str]] = [[] for _ in range(count)]
    # Of equal groups, the one with fewer files, so that empty files spread too.
    smallest = [(0, 0, position) for position in range(count)]
    for name in by_size[len(alone) :]:
        size, length, position = heapq.heappop(smallest)
        groups[position].append(name)
        heapq.heappush(smallest, (size + sizes[name], length + 1, position))
    return [[name] for name in alone] + [group for group in groups if group]

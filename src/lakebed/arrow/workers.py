"""Workers: many items, one function, in threads of this process or in tasks of Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from lakebed.store.at_once import at_once
from lakebed.store.base import Store, delete_or_leave

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_ROUNDS = 4  # so that a slow share does not keep the others waiting


class Workers(ABC):
    """Runs one function on many items.

    Attributes:
        count: Number of groups into which work is best divided.
    """

    count: int

    def count_for(self, size_bytes: int, file_count: int) -> int:  # noqa: ARG002 - for tasks
        """Return the number of groups into which some files are best divided."""
        return self.count

    def shares(self, items: Sequence[_Item]) -> list[tuple[_Item, ...]]:
        """Divide items that take about the same time, among several rounds of the workers."""
        size = max(1, -(-len(items) // (_ROUNDS * self.count)))
        return [tuple(items[start : start + size]) for start in range(0, len(items), size)]

    @abstractmethod
    def map(
        self,
        task: Callable[[_Item], _Result],
        items: Sequence[_Item],
        kind: type[_Result],
    ) -> Iterator[_Result]:
        """Yield the result of `task` for each item, in order; raise the first error at the end.

        So the caller knows all completed work, even after an error, and can undo it; see `gather`.

        Args:
            task: Function to call with each item.
            items: Items to process.
            kind: Type of the results, which must be able to travel from a task, such as `Written`.
        """

    @abstractmethod
    def share_of(self, memory_bytes: int) -> int:
        """Return the share of each worker in the memory of a process."""

    @abstractmethod
    def listening(self, listener: Callable[..., None]) -> Callable[..., None]:
        """Return a function that a task calls with plain values, which then reach `listener`.

        The calls arrive while tasks run, if the workers support that, else never.
        """


class Threads(Workers):
    """Some threads of this process."""

    def __init__(self, count: int) -> None:
        """Use `count` threads, at least one."""
        self.count = max(1, count)

    def map(
        self,
        task: Callable[[_Item], _Result],
        items: Sequence[_Item],
        kind: type[_Result],  # noqa: ARG002 - nothing travels
    ) -> Iterator[_Result]:
        """Yield the results of `task`; after a failure, no other begins. See `Workers.map`."""
        return at_once(task, items, self.count)

    def share_of(self, memory_bytes: int) -> int:
        """Return the share of one thread: all threads share the memory."""
        return max(1, memory_bytes // self.count)

    def listening(self, listener: Callable[..., None]) -> Callable[..., None]:
        """Return the listener."""
        return listener


def gather(
    store: Store, parts: Iterable[_Result], keys_of: Callable[[_Result], Iterable[str]]
) -> list[_Result]:
    """Return the results of all workers, or delete their objects and raise their error.

    Args:
        store: Store that holds the objects.
        parts: Results of `Workers.map`.
        keys_of: Returns the keys of the objects of a part. Objects that cannot be deleted stay as
            invisible garbage.
    """
    gathered: list[Any] = []
    try:
        gathered.extend(parts)
    except BaseException:
        delete_or_leave(store, [key for part in gathered for key in keys_of(part)])
        raise
    return gathered

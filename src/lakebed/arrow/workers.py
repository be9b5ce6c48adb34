"""Workers: many items, one function, in threads of this process or in tasks of Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from lakebed.store.at_once import at_once
from lakebed.store.base import Store, delete_or_leave

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Workers(ABC):
    """What runs one function on many items.

    Attributes:
        count: Into how many items work is best divided.
    """

    count: int

    @abstractmethod
    def map(
        self,
        task: Callable[[_Item], _Result],
        items: Sequence[_Item],
        kind: type[_Result],
    ) -> Iterator[_Result]:
        """Yield what `task` gave of each item, in their order; raise the first error at the end.

        So whoever takes the results knows all that was done, also where something failed, and can
        undo it; see `gather`.

        Args:
            task: What is done with each item.
            items: Any number.
            kind: Of the results: what can travel from a task, such as `Written`.
        """

    @abstractmethod
    def share_of(self, memory_bytes: int) -> int:
        """Return what each worker may hold where all of a process may hold so much."""

    @abstractmethod
    def telling(self, listener: Callable[..., None]) -> Callable[..., None]:
        """Return what a task calls with plain values, so that `listener` in this process is told.

        It is told while tasks run, where they can do that, else never.
        """


class Threads(Workers):
    """Some threads of this process."""

    def __init__(self, count: int) -> None:
        """Take so many threads, at least one."""
        self.count = max(1, count)

    def map(
        self,
        task: Callable[[_Item], _Result],
        items: Sequence[_Item],
        kind: type[_Result],  # noqa: ARG002 - nothing travels
    ) -> Iterator[_Result]:
        """Yield what `task` gave; once one has failed, no other begins. See `Workers.map`."""
        return at_once(task, items, self.count)

    def share_of(self, memory_bytes: int) -> int:
        """Return the part of one thread: they have the memory in common."""
        return max(1, memory_bytes // self.count)

    def telling(self, listener: Callable[..., None]) -> Callable[..., None]:
        """Return the listener."""
        return listener


def gather(
    store: Store, parts: Iterable[_Result], keys_of: Callable[[_Result], Iterable[str]]
) -> list[_Result]:
    """Return all that workers have written, or raise their error and delete it.

    Args:
        store: Where it is.
        parts: That `Workers.map` yields.
        keys_of: Says which objects a part consists of. What cannot be deleted stays invisible
            garbage.
    """
    gathered: list[Any] = []
    try:
        gathered.extend(parts)
    except BaseException:
        delete_or_leave(store, [key for part in gathered for key in keys_of(part)])
        raise
    return gathered

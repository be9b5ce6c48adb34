"""One function on many items by a few threads, as for requests that need not wait for one another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def at_once(
    work: Callable[[_Item], _Result], items: Sequence[_Item], threads: int
) -> Iterator[_Result]:
    """Yield what a function gives of each item, in their order and as soon as it is there.

    Once it has failed for one, no other begins; what others have done by then is still yielded, and
    then the first error raised. So whoever takes the results knows all that was done.

    Args:
        work: What is done with each item.
        items: Any number.
        threads: At most; a single item needs none.
    """
    count = min(threads, len(items))
    if count < 2:
        # In this thread, which an interrupt ends at once.
        yield from map(work, items)
        return
    errors: list[BaseException] = []
    futures: list[Future[_Result]] = [Future() for _ in items]
    waiting = deque(range(len(items)))

    def taken() -> Iterator[int]:
        with suppress(IndexError):
            while True:
                yield waiting.popleft()

    def stop() -> None:
        for number in taken():
            futures[number].cancel()
            futures[number].set_running_or_notify_cancel()

    def run() -> None:
        for number in taken():
            try:
                futures[number].set_result(work(items[number]))
            except BaseException as exc:  # noqa: BLE001 - raised below
                futures[number].set_exception(exc)
                stop()

    with ThreadPoolExecutor(count, thread_name_prefix="lakebed-work") as pool:
        try:
            try:
                for _ in range(count):
                    pool.submit(run)
            except BaseException as exc:  # noqa: BLE001 - an interrupt, raised below
                errors.append(exc)
                stop()
            for future in futures:
                try:
                    wait([future])
                except BaseException as exc:  # noqa: BLE001 - same
                    errors.append(exc)
                    stop()
                    wait([future])
                error = None if future.cancelled() else future.exception()
                if error is not None:
                    errors.append(error)
                elif not future.cancelled():
                    yield future.result()
        finally:
            stop()  # whoever takes the results may have had enough
    if errors:
        raise errors[0]

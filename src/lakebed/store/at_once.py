"""Apply a function to many items in a few threads, such as independent requests."""

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
    """Yield the result of a function for each item, in their order and as soon as it is there.

    Once a call has failed, no other call begins; the results that exist by then are still
    yielded, and then the first error is raised. So the caller knows every call that succeeded.

    Args:
        work: The function to call with each item.
        items: The items; they may be none.
        threads: Maximum number of threads; a single item needs none.
    """
    count = min(threads, len(items))
    if count < 2:
        # In this thread, which an interrupt ends immediately.
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
            stop()  # the caller may have stopped taking results
    if errors:
        raise errors[0]

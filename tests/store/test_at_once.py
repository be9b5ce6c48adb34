"""One function on many items by a few threads: what is yielded, and what no longer begins."""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from lakebed.store.at_once import at_once

WAIT_S = 20


def test_a_result_is_there_before_the_last_item_is_done() -> None:
    may_end = threading.Event()

    def work(n: int) -> int:
        if n == 9:
            assert may_end.wait(WAIT_S)
        return n * n

    results = at_once(work, range(10), 2)

    assert [next(results) for _ in range(9)] == [n * n for n in range(9)]
    may_end.set()
    assert list(results) == [81]


def test_what_was_done_is_yielded_before_the_first_error_and_no_other_begins() -> None:
    begun: list[int] = []
    done: list[int] = []

    def work(n: int) -> int:
        begun.append(n)
        if n >= 3:
            raise ValueError(n)
        return n

    with pytest.raises(ValueError, match="3"):
        done.extend(at_once(work, range(1_000), 2))

    assert done == [0, 1, 2]
    assert len(begun) < 100


def test_nothing_begins_for_who_has_had_enough() -> None:
    begun = []
    may_go_on = threading.Event()

    def work(n: int) -> int:
        begun.append(n)
        assert n == 0 or may_go_on.wait(WAIT_S)
        return n

    results = at_once(work, range(100), 2)
    assert next(results) == 0
    stopping = threading.Timer(0.05, may_go_on.set)
    stopping.start()
    results.close()  # type: ignore[attr-defined]  # it is a generator
    stopping.join()

    assert len(begun) <= 4


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Take interrupts, which a shell lets what it starts in the background ignore."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_is_raised_once_all_that_was_done_is_known() -> None:
    begun, done = [], []

    def work(n: int) -> int:
        begun.append(n)
        if n == 1:
            _thread.interrupt_main()
            time.sleep(0.1)  # it comes while this one is waited for
        return n

    with pytest.raises(KeyboardInterrupt):
        done.extend(at_once(work, range(1_000), 2))

    assert done == sorted(begun)

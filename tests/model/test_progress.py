"""What is told of files that are done adds up, whoever tells of it, and however often."""

from __future__ import annotations

import itertools
import logging
import threading
from types import SimpleNamespace

import pytest

from lakebed.common import progress as module
from lakebed.common.progress import NO_PROGRESS, Progress, Tally


def test_files_and_bytes_add_up_and_each_file_counts_once() -> None:
    told: list[Progress] = []
    tally = Tally(told.append, "count", {"a": 10, "b": 30})

    tally.add("a")
    tally.add("a")  # a task that ran twice
    tally.expect({"b": 30, "c": 60})
    tally.add("b", "c", "nobody expects it")

    assert [(one.file_count, one.size_bytes) for one in told] == [
        (0, 0),
        (1, 10),
        (1, 10),
        (3, 100),
    ]
    assert [(one.file_total, one.size_total_bytes) for one in told] == [
        (2, 40),
        (2, 40),
        (3, 100),
        (3, 100),
    ]
    assert [one.share for one in told] == [0.0, 0.25, 0.1, 1.0]


def test_nothing_to_do_is_done_and_files_without_bytes_count_as_files() -> None:
    nothing = Progress(file_count=0, file_total=0, size_bytes=0, size_total_bytes=0)
    empty = Progress(file_count=1, file_total=4, size_bytes=0, size_total_bytes=0)

    assert (nothing.share, empty.share) == (1.0, 0.25)


def test_threads_tell_one_after_the_other_and_never_of_less() -> None:
    told: list[int] = []
    names = [f"{number}" for number in range(400)]
    tally = Tally(
        lambda progress: told.append(progress.file_count), "count", dict.fromkeys(names, 1)
    )
    threads = [
        threading.Thread(target=lambda part=part: [tally.add(name) for name in names[part::4]])
        for part in range(4)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert told == list(range(401))


def test_where_nobody_listens_workers_tell_nobody() -> None:
    assert Tally(NO_PROGRESS, "count", {"a": 1}).listener is NO_PROGRESS


def test_rows_add_up_whether_they_are_known_before_or_not() -> None:
    told: list[Progress] = []
    tally = Tally(told.append, "count")

    tally.expect({"a": 10, "b": 30, "c": 5}, {"a": 7})
    tally.add("c")
    tally.add("a")
    tally.add(row_count=100)  # of a file that is still being read
    tally.add("b", row_count=3, rejected_count=2)

    assert [(one.file_count, one.row_count) for one in told] == [
        (0, None),
        (1, None),
        (2, 7),
        (2, 107),
        (3, 110),
    ]
    assert told[-1].rejected_count == 2


def test_time_left_is_unknown_before_the_first_file_and_none_after_the_last() -> None:
    told: list[Progress] = []
    tally = Tally(told.append, "count", {"a": 1, "b": 3})

    tally.add("a")
    tally.finish()

    begun, quarter, done = told
    assert begun.left_s is None
    assert quarter.left_s == pytest.approx(3 * quarter.elapsed_s)
    assert done.left_s == 0


def test_what_a_listener_raises_comes_out_and_the_next_is_told_as_if_nothing_was() -> None:
    def refuse(progress: Progress) -> None:
        if progress.file_count == 1:
            raise RuntimeError("enough")

    tally = Tally(refuse, "count", {"a": 1, "b": 1})

    with pytest.raises(RuntimeError, match="enough"):
        tally.add("a")
    tally.add("b")


def test_log_is_told_at_intervals_where_nobody_listens(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "lakebed")
    clock = SimpleNamespace(monotonic=itertools.count().__next__)  # a second at each look
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "LOG_INTERVAL_S", 0.0)
    Tally(NO_PROGRESS, "compact d", {"a": 1, "b": 3}).add("a")
    Tally(lambda progress: None, "index d", {"a": 1}).add("a")
    monkeypatch.setattr(module, "LOG_INTERVAL_S", 3600.0)
    Tally(NO_PROGRESS, "check d", {"a": 1}).add("a")

    texts = [record.getMessage() for record in caplog.records]

    assert texts[0] == "compact d files=0/2 bytes=0/4 rows=- left_s=-"
    assert texts[1:] == ["compact d files=1/2 bytes=1/4 rows=- left_s=6"]

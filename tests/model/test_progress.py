"""What is told of files that are done adds up, whoever tells of it, and however often."""

from __future__ import annotations

import threading

from lakebed.model.progress import NO_PROGRESS, Progress, Tally


def test_files_and_bytes_add_up_and_each_file_counts_once() -> None:
    told: list[Progress] = []
    tally = Tally(told.append, {"a": 10, "b": 30})

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
    tally = Tally(lambda progress: told.append(progress.file_count), dict.fromkeys(names, 1))
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
    assert Tally(NO_PROGRESS, {"a": 1}).listener is NO_PROGRESS

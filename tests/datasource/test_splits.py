"""How files are shared out to tasks: each row once, about as many bytes for each task."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.datasource.frame_source import split
from lakebed.plan.plan import DataFile, Share

MIB = 2**20


def files(count: int) -> list[DataFile]:
    return [
        DataFile(key=f"k{number}", label=f"{number}", partition={}, is_filtered=False)
        for number in range(count)
    ]


def test_many_tiny_files_go_to_few_tasks() -> None:
    tasks = split(files(10_000), [1_000] * 10_000, split_bytes=None, is_divisible=True)

    assert 10 <= len(tasks) <= 100
    assert max(map(len, tasks)) <= 2 * min(map(len, tasks))


def test_one_large_file_goes_to_many_tasks() -> None:
    tasks = split(files(1), [4096 * MIB], split_bytes=None, is_divisible=True)

    assert len(tasks) >= 60
    assert {file.share for (file,) in tasks} == {Share(n, len(tasks)) for n in range(len(tasks))}


def test_dataset_of_few_bytes_goes_to_one_task() -> None:
    assert len(split(files(3), [10, 20, 30], split_bytes=None, is_divisible=True)) == 1


def test_file_that_cannot_be_divided_is_read_by_one_task() -> None:
    tasks = split(files(2), [1024 * MIB, MIB], split_bytes=64 * MIB, is_divisible=False)

    assert [file.share for task in tasks for file in task] == [None, None]


def test_file_of_unknown_size_is_read_whole() -> None:
    (task,) = split(files(1), [None], split_bytes=None, is_divisible=True)

    assert [file.share for file in task] == [None]


def test_nothing_to_read_is_no_task() -> None:
    assert split([], [], split_bytes=None, is_divisible=True) == []


@given(
    sizes=st.lists(st.one_of(st.none(), st.integers(0, 500 * MIB)), max_size=30),
    split_bytes=st.one_of(st.none(), st.integers(MIB, 200 * MIB)),
    is_divisible=st.booleans(),
)
def test_each_part_of_each_file_goes_to_exactly_one_task(
    sizes: list[int | None], split_bytes: int | None, is_divisible: bool
) -> None:
    given_files = files(len(sizes))

    tasks = split(given_files, sizes, split_bytes=split_bytes, is_divisible=is_divisible)

    parts: dict[str, list[Share | None]] = {}
    for task in tasks:
        assert task
        for file in task:
            parts.setdefault(file.label, []).append(file.share)
    assert set(parts) == {file.label for file in given_files}
    for shares in parts.values():
        count = len(shares)
        whole: list[Share | None] = [None] if shares == [None] else []
        assert sorted(shares, key=str) == (
            whole or sorted([Share(n, count) for n in range(count)], key=str)
        )


@pytest.mark.parametrize("row_counts", [[], [0], [5], [1, 1, 1], [10, 0, 3, 100], [7] * 50])
@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_each_row_group_belongs_to_exactly_one_share(row_counts: list[int], count: int) -> None:
    taken = [group for n in range(count) for group in Share(n, count).row_groups(row_counts)]

    assert taken == list(range(len(row_counts)))

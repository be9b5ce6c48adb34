"""The judge of `test_chaos.py` finds what it looks for."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from judge import verdict
from judge.steps import DONE, REFUSED, Entry

from chaos.trial import (
    COMMITS,
    KEPT,
    SCHEMA,
    STRAY,
    VERBS,
    base_entries,
    judged,
    prepare,
    rows_of,
)
from lakebed import Dataset

APPEND, ERASE = VERBS["append"], VERBS["erase"]


def write(dataset: Dataset, times: int = 1, count: int | None = None) -> None:
    """Append the rows of the step that an append by Spark would write, or the first of them."""
    numbers = range(*rows_of(10))[:count]
    rows = [{"n": n, "part": "k0", "text": "new"} for n in numbers]
    for _ in range(times):
        dataset.append(pa.Table.from_pylist(rows, SCHEMA))


def put_beside(dataset: Dataset) -> None:
    write(dataset)
    path = Path(dataset.files()[0].location)
    shutil.copy(path, path.with_name("other.parquet"))


def lose(dataset: Dataset) -> None:
    write(dataset)
    Path(dataset.files()[0].location).unlink()


@pytest.mark.parametrize(
    ("act", "outcome", "rule"),
    [
        (lambda dataset: None, DONE, verdict.LOST),
        (write, REFUSED, verdict.REFUSED_IS_THERE),
        (lambda dataset: write(dataset, times=2), DONE, verdict.DOUBLED),
        (lambda dataset: write(dataset, count=7), DONE, verdict.TORN),
        (lambda dataset: write(dataset, times=2), DONE, COMMITS),
        (put_beside, DONE, STRAY),
    ],
)
def test_a_broken_rule_is_found(
    tmp_path: Path, act: Callable[[Dataset], None], outcome: str, rule: str
) -> None:
    dataset = prepare(tmp_path, APPEND)
    (step,) = APPEND.steps()

    act(dataset)

    found = judged(dataset, [*base_entries(dataset), Entry(step, outcome)], [1])
    assert rule in {one.rule for one in found.violations}


def test_what_is_as_it_should_be_breaks_no_rule(tmp_path: Path) -> None:
    dataset = prepare(tmp_path, APPEND)
    (step,) = APPEND.steps()

    write(dataset)

    found = judged(dataset, [*base_entries(dataset), Entry(step, DONE)], [1])
    assert found.violations == []


def test_a_lost_file_is_found(tmp_path: Path) -> None:
    dataset = prepare(tmp_path, APPEND)

    lose(dataset)

    found = judged(dataset, base_entries(dataset))
    assert {one.rule for one in found.violations} == {verdict.UNREADABLE}


def test_rows_that_were_only_deleted_are_found_in_older_versions(tmp_path: Path) -> None:
    dataset = prepare(tmp_path, ERASE)
    (step,) = ERASE.steps()

    dataset.delete("text = 'target'")

    found = judged(dataset, [*base_entries(dataset), Entry(step, DONE)])
    assert {one.rule for one in found.violations} == {KEPT}

"""Random statements find what they are for: with a bug put in, rows differ, or a right one fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from catalog_bugs import BUGS, TEXTS, Bug, play, shows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
]

QUICK = [
    "a rewrite forgets runs",
    "a read in this process leaves out rows of files that are rewritten",
]


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(one, id=one.name, marks=[] if one.name in QUICK else pytest.mark.long)
        for one in BUGS
    ],
)
def test_bug_is_found(spark: Any, tmp_path: Path, one: Bug):
    found, _ = play(spark, tmp_path, TEXTS[one.name], one)

    assert shows(one, found), found


@pytest.mark.long
@pytest.mark.parametrize("text", sorted(set(TEXTS.values())))
def test_statements_that_find_a_bug_are_right_without_it(spark: Any, tmp_path: Path, text: str):
    found, _ = play(spark, tmp_path, text)

    assert not found


def test_each_bug_has_statements_that_find_it():
    names = [one.name for one in BUGS]

    assert sorted(names) == sorted(TEXTS)
    assert len(names) == len(set(names)) >= 10

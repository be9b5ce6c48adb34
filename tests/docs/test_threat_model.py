"""The threat model cites tests that there are, and what it says of code is so."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import lakebed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
CITED = sorted(set(re.findall(r"`(tests/[^`]+\.py)::(test_\w+)`", PAGE)))
SOURCE = Path(lakebed.__file__).parent

# Tasks that Spark carries from the driver to its workers, and the contract of stores for tests.
OF_SPARK = {"spark/travel.py", "spark/few.py", "testing/contract.py"}
EVALUATING = {"eval", "exec", "compile"}
PICKLING = {"pickle", "marshal", "shelve", "yaml", "dill"}


def test_the_page_cites_tests() -> None:
    assert len(CITED) > 15


@pytest.mark.parametrize(("module", "name"), CITED)
def test_each_cited_test_is_there(module: str, name: str) -> None:
    assert f"def {name}(" in (ROOT / module).read_text(encoding="utf-8")


def test_pickles_and_code_are_of_spark_tasks_alone() -> None:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id=name)) if name in EVALUATING:
                    found.append(f"{place}:{node.lineno} {name}")
                case ast.Import(names=names) if place not in OF_SPARK:
                    found += [f"{place} {one.name}" for one in names if one.name in PICKLING]
                case ast.ImportFrom(module=name) if place not in OF_SPARK and name in PICKLING:
                    found.append(f"{place} {name}")
    assert not found

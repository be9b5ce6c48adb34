"""The page of the five documents: what it names is there, and what is partly there has a reason."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Any

import pytest
from numbered_rules import TESTS, is_test

import lakebed

ROOT = TESTS.parent
PAGE = ROOT / "docs" / "documents.md"
VERDICTS = ("whole", "partly", "not offered", "no promise")

_ROW = re.compile(r"^\| (.+) \|$", re.MULTILINE)
_TEST = re.compile(r"[\w/-]+\.py(?:::\w+)*")
_MODULE = re.compile(r"`((?:[a-z_]+/)+|(?:[a-z_]+/)*[a-z_]+\.py)`")
_DOCUMENT = re.compile(r"docs/[\w-]+\.md")
_CALL = re.compile(r"`([A-Z]\w+)\.(\w+)[`(]")


def rows() -> list[tuple[str, str, str, str]]:
    """Return the rows of all documents."""
    found = []
    for row in _ROW.findall(PAGE.read_text(encoding="utf-8")):
        cells = [cell.strip() for cell in row.split(" | ")]
        if len(cells) == 4 and not set("".join(cells)) <= set("- ") and cells[0] != "statement":
            found.append(tuple(cells))
    return found


ROWS = rows()


def test_the_page_has_every_document():
    headings = re.findall(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert headings == [
        "Kartothek specification",
        "datalake-common",
        "CDK Data module (Kite)",
        "Batch identification",
        "Telemetry storage layout",
        "Joints",
    ]
    # A row that is written otherwise would not be looked at.
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    documents = len(headings) - 1  # which the first table lists
    heads = 2 * (len(headings) + 1)
    assert len(ROWS) == len(lines) - heads - documents
    assert len(ROWS) > 100


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:50] for row in ROWS])
def test_what_a_row_names_is_there(row: tuple[str, str, str, str]):
    _, where, shown, verdict = row
    tests = _TEST.findall(shown)

    # A name without a function is a whole file, or a class of tests.
    missing = [name for name in tests if not (is_test(name) or _is_group(name))]
    missing += [name for name in _MODULE.findall(where) if not _is_module(name)]
    missing += [name for name in _DOCUMENT.findall(" ".join(row)) if not (ROOT / name).exists()]
    missing += [
        f"{owner}.{name}" for owner, name in _CALL.findall(where) if not _is_call(owner, name)
    ]

    assert missing == []
    assert tests or verdict.startswith(("no promise", "not offered"))


def _is_group(name: str) -> bool:
    path, _, group = name.partition("::")
    file = TESTS / path
    if not file.is_file():
        return False
    return not group or re.search(rf"^class {group}\b", file.read_text(), re.MULTILINE) is not None


def _is_call(owner: str, name: str) -> bool:
    """Whether a class of ours, exported or not, has something of a name."""
    if hasattr(getattr(lakebed, owner, None), name):
        return True
    text = _sources().get(owner, "")
    return re.search(rf"\b{name}\b", text) is not None


@functools.cache
def _sources() -> dict[str, str]:
    """Return the text of each class by its name."""
    return {
        node.name: ast.unparse(node)
        for path in (ROOT / "src" / "lakebed").rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }


def _is_module(name: str) -> bool:
    return (ROOT / "src" / "lakebed" / name).exists()


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:50] for row in ROWS])
def test_what_is_partly_there_says_why(row: tuple[str, str, str, str]):
    verdict = row[3]

    assert verdict.startswith(VERDICTS)
    if verdict.startswith(("partly", "not offered")):
        assert re.match(r"(partly|not offered): .{20}", verdict), verdict


def test_the_page_of_the_originals_has_the_table_that_make_interop_prints(monkeypatch):
    monkeypatch.syspath_prepend(str(TESTS / "interop"))
    import oracles

    lines = (ROOT / "docs" / "interop.md").read_text(encoding="utf-8").splitlines()

    for trial in oracles.TRIALS:
        cells = (trial.oracle, trial.direction, trial.tried, trial.differs or "nothing")
        assert f"| {' | '.join(cells)} |" in lines
        assert any(is_test_of(trial, path) for path in TESTS.rglob("test_*.py"))


def is_test_of(trial: Any, path: Path) -> bool:
    """Whether a file has a test that shows a row."""
    name = path.relative_to(TESTS).as_posix()
    files = {pattern.partition("::")[0].rstrip("*") for pattern in trial.tests}
    return any(name.startswith(file) for file in files)

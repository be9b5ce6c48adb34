"""Each statement about security has a test that exists, and what is said of code is so."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import lakebed

ROOT = Path(__file__).parents[2]
PAGES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in ("SECURITY.md", "docs/threat-model.md", "docs/reliability.md")
}
PAGE = PAGES["docs/threat-model.md"]
_TEST = re.compile(r"`(tests/[^`:]+\.py)::(test_\w+)`")
CITED = sorted({found for page in PAGES.values() for found in _TEST.findall(page)})
SOURCE = Path(lakebed.__file__).parent

# Tasks that Spark carries from the driver to its workers, and the contract of stores for tests.
OF_SPARK = {"spark/travel.py", "spark/few.py", "testing/contract.py"}
# Modules by names that the code has: of its own parts, and of packages that are checked for.
COMPUTED_IMPORTS = {
    ("archive/http/server.py", "package"),
    ("cli/group.py", "home.module"),
    ("common/lazy.py", "f'{package}.{name}'"),
    ("common/lazy.py", "home"),
    ("spark/attached_names.py", "module"),
    ("spark/worker_report.py", "name"),
    ("state/after.py", "_JUDGE"),
    ("state/after.py", "_PUBLISHER"),
    ("state/after.py", "_QUARANTINE"),
    ("telemetry/watching.py", "one.module"),
    ("telemetry/watching.py", "verbs.module"),
}
EVALUATING = {"eval", "exec", "compile"}
PICKLING = {"pickle", "marshal", "shelve", "yaml", "dill"}


def section(page: str, title: str) -> str:
    return PAGES[page].partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(page: str, title: str) -> list[list[str]]:
    """Return the cells of each row of the table of a section."""
    lines = [line for line in section(page, title).splitlines() if line.startswith("|")]
    assert len(lines) > 2, title
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def parts(page: str, title: str, beginning: str) -> list[str]:
    """Return the list items or paragraphs of a section, each in a line."""
    texts = re.split(rf"\n(?={beginning})|\n\n", section(page, title))
    found = [" ".join(text.split()) for text in texts if re.match(beginning, text.strip())]
    assert found, title
    return [re.sub(r"^- |\*\*", "", text) for text in found]


SECURITY, THREATS = "SECURITY.md", "docs/threat-model.md"
STATEMENTS = [
    *(cells[0] for cells in rows(SECURITY, "Permissions")),
    *(cells[0] for cells in rows(SECURITY, "SQL")),
    *parts(SECURITY, "SQL", "- "),
    *parts(SECURITY, "Data from storage is not trusted", "- "),
    *parts(SECURITY, "How releases are made", "- "),
    *(cells[0] for cells in rows(THREATS, "Objects and their writers")),
    *parts(THREATS, "What each party can do", r"\*\*"),
    *(cells[0] for cells in rows(THREATS, "What other engines do not verify")),
]
TESTED = rows(THREATS, "Tests of the other statements")


@pytest.mark.parametrize(("module", "name"), CITED)
def test_each_cited_test_is_there(module: str, name: str) -> None:
    assert f"def {name}(" in (ROOT / module).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_each_file_of_tests_that_a_page_names_is_there(page: str) -> None:
    named = re.findall(r"`(tests/[^`:]+)", PAGES[page])

    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_all_that_is_defended_has_a_test() -> None:
    defended = rows(THREATS, "What is defended")

    assert [cells[0] for cells in defended if not _TEST.search(cells[-1])] == []


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement[:40])
def test_each_statement_has_a_test_or_promises_nothing(statement: str) -> None:
    (tests,) = [cell for key, cell in TESTED if statement.startswith(key.rstrip("… "))]

    assert _TEST.search(tests) or tests.startswith("—: ")


def test_each_row_of_tests_is_of_a_statement() -> None:
    keys = [key.rstrip("… ") for key, _ in TESTED]

    assert [key for key in keys if not any(text.startswith(key) for text in STATEMENTS)] == []


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


def test_modules_are_imported_by_names_of_the_code_alone() -> None:
    """A name that is computed comes from a table or a constant of the module that imports it."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id="import_module" | "__import__")
                    | ast.Attribute(attr="import_module"),
                    args=[name, *_],
                ) if not isinstance(name, ast.Constant):
                    found[path.relative_to(SOURCE).as_posix(), ast.unparse(name)] = node.lineno
    assert sorted(found) == sorted(COMPUTED_IMPORTS)

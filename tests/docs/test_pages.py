"""README and docs are run: every code block is executed, or says why not.

What may stand in a page:

- ```` ```python ````: executed in order; the blocks of a page share their names and an empty
  directory. A block that calls `local_session` gets the session of the tests.
- ```` ```console ````: the lines after `$ ` are run by the shell in that directory, with those that
  follow a backslash; the lines between must be what they print on stdout.
- ```` ```text ```` after `<!-- output -->`: what the Python block before it prints, where `...`
  stands for anything.
- ```` ```text ```` and ```` ```json ````: shown, not run; JSON must parse.
- any block after `<!-- not run: REASON -->`.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from lakebed import errors

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
# Also what is read beside them: the changelog, how to contribute, how to report what is wrong.
LINKED = sorted({*PAGES, *ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.md")})
SHOWN = {"text", "json"}

_FENCE = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    language: str
    body: str
    mark: str
    line: int

    @property
    def is_run(self) -> bool:
        is_code = self.language in ("python", "console")
        return is_code and not self.mark.startswith("not run: ")


def blocks_of(text: str) -> list[Block]:
    return [
        Block(
            language=found["language"],
            body=found["body"],
            mark=found["mark"] or "",
            line=text.count("\n", 0, found.start("body")) + 1,
        )
        for found in _FENCE.finditer(text)
    ]


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _needs_spark(page: Path) -> bool:
    return any(
        block.is_run and block.language == "python" and "local_session" in block.body
        for block in blocks_of(page.read_text(encoding="utf-8"))
    )


def _starts_processes(page: Path) -> bool:
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    return any(block.is_run and block.language == "console" for block in blocks)


def _parameters() -> list[Any]:
    return [
        pytest.param(
            page,
            id=page_name(page),
            marks=[pytest.mark.spark] * _needs_spark(page)
            + [pytest.mark.thorough] * (_needs_spark(page) or _starts_processes(page)),
        )
        for page in PAGES
    ]


@pytest.mark.parametrize("page", _parameters())
def test_code_of_a_page_runs_and_prints_what_the_page_says(
    page: Path,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if _needs_spark(page):
        request.getfixturevalue("spark")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""

    with mock.patch.dict(os.environ):  # a page may set variables, which no other test shall see
        for block in blocks_of(page.read_text(encoding="utf-8")):
            if block.is_run and block.language == "console":
                _run_commands(block, page)
            elif block.is_run:
                printed = _run(block, page, names)
            elif block.mark == "output":
                assert _is_same(block.body, printed), f"{page_name(page)}:{block.line}\n{printed}"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "page",
    [
        page
        for page in PAGES
        if any(block.is_run for block in blocks_of(page.read_text(encoding="utf-8")))
    ],
    ids=page_name,
)
def test_a_process_that_runs_the_code_of_a_page_ends_with_success(page: Path) -> None:
    """What libraries do at the end of a process shows in its exit status alone."""
    test = f"{test_code_of_a_page_runs_and_prints_what_the_page_says.__name__}[{page_name(page)}]"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{__file__}::{test}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}{done.stderr}"


FIRST_PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "getting-started.md"]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("page", FIRST_PAGES, ids=page_name)
def test_first_block_of_a_first_page_can_be_run_again(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = next(block for block in blocks_of(page.read_text(encoding="utf-8")) if block.is_run)
    printed = [_run(first, page, {"__name__": "__main__"}) for _ in range(2)]

    # The second run makes a later version; the rows are the same.
    tables = [[line for line in text.splitlines() if line.startswith("|")] for text in printed]
    assert tables[0] == tables[1]
    assert printed[0].split()[1:] == printed[1].split()[1:] or tables[0]


def _run(block: Block, page: Path, names: dict[str, Any]) -> str:
    # Empty lines before the code make tracebacks name the line of the page.
    source = "\n" * (block.line - 1) + block.body
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, str(page), "exec", dont_inherit=True), names)
    return printed.getvalue()


def _run_commands(block: Block, page: Path) -> None:
    commands = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}
    for command, wanted in _COMMAND.findall(block.body):
        done = subprocess.run(
            command, shell=True, env=environment, capture_output=True, text=True, check=False
        )
        place = f"{page_name(page)}:{block.line} $ {command}"
        assert _is_same(wanted, done.stdout), f"{place}\n{done.stdout}{done.stderr}"


def _is_same(wanted: str, printed: str) -> bool:
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(wanted, printed, options)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    undeclared = [
        f"{page_name(page)}:{block.line} ({block.language or 'no language'})"
        for block in blocks_of(text)
        if not block.is_run
        and block.language not in SHOWN
        and not block.mark.startswith("not run: ")
    ]

    assert undeclared == []
    assert text.count("\n```") == 2 * len(blocks_of(text)), "a fence is not closed"
    for block in blocks_of(text):
        if block.language == "json":
            json.loads(block.body)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_python_that_is_not_run_is_python_all_the_same(page: Path) -> None:
    for block in blocks_of(page.read_text(encoding="utf-8")):
        if block.language == "python" and not block.is_run:
            source = "\n" * (block.line - 1) + block.body
            compile(source, str(page), "exec", dont_inherit=True)


@pytest.mark.parametrize("page", LINKED, ids=page_name)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))

    broken = []
    for link in _LINK.findall(text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)

    assert broken == []


def _anchors(page: Path) -> set[str]:
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def test_every_page_is_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        links = _LINK.findall(page.read_text(encoding="utf-8"))
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in links]
        waiting += [target for target in targets if target.suffix == ".md" and target.is_file()]

    assert set(PAGES) - reached == set()


def _all_errors() -> list[type[errors.LakebedError]]:
    found: list[type[errors.LakebedError]] = []
    waiting: list[type[errors.LakebedError]] = [errors.LakebedError]
    while waiting:
        cls = waiting.pop(0)
        found.append(cls)
        waiting += cls.__subclasses__()
    return [cls for cls in found if cls.__module__ == errors.__name__]


def test_the_table_of_errors_is_the_tree_of_errors() -> None:
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")

    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| `([\w-]+)` \| (\d) \|", text, re.MULTILINE)

    assert sorted(rows) == sorted(
        (cls.__name__, cls.__bases__[0].__name__, str(cls.code), str(cls.exit_code))
        for cls in _all_errors()
    )


MOST_COLUMNS = 75  # what the site shows of a line of code without scrolling


def wide_lines(text: str) -> list[tuple[int, int]]:
    """Return the lines of code that are too wide, with their widths."""
    return [
        (block.line + offset, len(line))
        for block in blocks_of(text)
        for offset, line in enumerate(block.body.splitlines())
        if len(line) > MOST_COLUMNS
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != ROOT], ids=page_name)
def test_no_line_of_code_is_cut_on_the_site(page: Path) -> None:
    # `ruff format docs` mends Python; a command goes on after a backslash, output after a break.
    assert wide_lines(page.read_text(encoding="utf-8")) == []


def test_a_line_of_code_that_is_too_wide_is_found() -> None:
    page = f"{'prose ' * 20}\n```python\n{'x' * 75}\n{'x' * 76}\n```\n"

    assert wide_lines(page) == [(4, 76)]

"""The search of the site finds the answers to questions that users type."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from site_search import LAST_RANK, QUESTIONS, SITE, rank_of

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-docs" / "bin" / "python"


def test_each_question_has_an_answer_among_the_pages():
    answers = {answer for pages in QUESTIONS.values() for answer in pages}

    assert len(QUESTIONS) >= 30
    assert [name for name in answers if not (ROOT / "docs" / f"{name}.md").is_file()] == []


def test_the_best_of_several_answers_gives_the_rank():
    pages = ["glossary.html", "merge.html", "command-line.html", "views.html"]

    assert rank_of(pages, ("views", "merge")) == 2
    assert rank_of(pages, ("erase",)) is None


@pytest.mark.thorough
def test_the_site_finds_the_answers():
    if not (PYTHON.exists() and SITE.is_dir()):
        pytest.skip("no site: make docs")

    done = subprocess.run(
        [PYTHON, ROOT / "tests" / "site_search.py"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, f"not among the first {LAST_RANK}:\n{done.stdout}{done.stderr}"


_RANKING = """
import json, sys, site_search
search = site_search.SiteSearch(site_search.read_index())
print(json.dumps([search.pages(question) for question in json.load(sys.stdin)]))
"""


@pytest.mark.thorough
def test_the_script_of_the_site_ranks_pages_as_we_do():
    node = shutil.which("node")
    if not (PYTHON.exists() and SITE.is_dir() and node):
        pytest.skip("no site (make docs), or no node")
    tests = ROOT / "tests"

    of_the_site, ours = (
        json.loads(
            subprocess.run(
                command,
                input=json.dumps(list(QUESTIONS)),
                cwd=tests,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for command in (
            [node, tests / "site_search.js", SITE],
            [PYTHON, "-c", _RANKING],
        )
    )

    first = {
        question: (theirs[:LAST_RANK], pages[:LAST_RANK])
        for question, theirs, pages in zip(QUESTIONS, of_the_site, ours, strict=True)
    }
    assert {question: pair for question, pair in first.items() if pair[0] != pair[1]} == {}


@pytest.mark.thorough
def test_the_site_holds_no_modules_and_no_settings():
    if not SITE.is_dir():
        pytest.skip("no site: make docs")

    assert [
        path.name for path in SITE.rglob("*") if path.match("*.py*") or path.match("*.toml")
    ] == []

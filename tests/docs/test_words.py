"""The pages use one spelling and plain words; each entry says what to write instead."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# It says in its own words what the five documents ask for.
QUOTING = DOCS / "documents.md"
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
    + [page for page in DOCS.rglob("*.md") if page.parent.name != "design" and page != QUOTING]
)

INSTEAD = {
    # one spelling
    r"[Dd]ata sets?": "dataset",
    r"[Mm]eta[ -]data": "metadata",
    r"[Dd]ata ?[Ff]rames?(?<!DataFrame)(?<!DataFrames)": "DataFrame, or frame",
    r"[Ff]ilenames?": "file name",
    r"[Tt]ime stamps?": "timestamp",
    r"[Ww]ork-?flows?": "job, or run",
    r"[Bb]ack-?ends?": "store, or engine",
    r"[Rr]e-run|[Rr]oll-back|[Cc]lean-up": "rerun, rollback, cleanup",
    r"sub-?director(?:y|ies)": "folder, or directory",
    r"metadata (?:file|document)|head (?:file|object)": "head",
    r"catalogues?": "catalog",
    r"colou?red? scheme|\bcolors?\b|behaviors?|licenses\b": "British spelling: colour, behaviour",
    # names of others
    r"Pyspark|pySpark": "PySpark",
    r"Duckdb|DuckDb": "DuckDB",
    r"Github": "GitHub",
    r"Javascript": "JavaScript",
    r"parquet files?": "Parquet",
    r"py[Aa]rrow(?<!pyarrow)": "pyarrow",
    # plain language, to the reader
    r"[Ss]hall": "must, will, is to; or say who does it",
    r"without a say": "by default",
    r"Of these together": "a whole sentence",
    r"and (?:its|their) like": "such as",
    r"e\. ?g\.|i\. ?e\.|etc\.": "such as, that is",
    r"[Ss]imply|[Oo]bviously|[Oo]f course": "nothing: what is simple needs no such word",
    r"(?:master|slave) (?:node|copy)|whitelist|blacklist": "first, copy, allowed, refused",
    r"[Ss]ee (?:above|below)(?! )": "a link",
}

_NOT_PROSE = re.compile(
    r"^```.*?^```$|<!--.*?-->|`[^`\n]+`|\]\([^)\s]*\)|^::: .*$|https?://\S+",
    re.MULTILINE | re.DOTALL,
)
_WRONG = {word: re.compile(rf"(?<![\w-])(?:{word})(?![\w-])") for word in INSTEAD}


def _blank(found: re.Match[str]) -> str:
    return "·" + "\n" * found[0].count("\n")


def wrong_words(text: str) -> list[tuple[int, str, str]]:
    """Return what stands in the prose of a page, with its line and what to write instead."""
    prose = _NOT_PROSE.sub(_blank, text)
    return [
        (prose.count("\n", 0, found.start()) + 1, found[0], INSTEAD[word])
        for word, pattern in _WRONG.items()
        for found in pattern.finditer(prose)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_uses_our_words(page: Path):
    assert wrong_words(page.read_text(encoding="utf-8")) == []


def test_what_a_page_says_otherwise_is_found():
    page = "One data set.\n```python\nfilename\n```\nA `filename`, e.g. in Github; Dataframes.\n"

    found = [(line, word) for line, word, _ in wrong_words(page)]

    assert sorted(found) == [(1, "data set"), (5, "Dataframes"), (5, "Github"), (5, "e.g.")]

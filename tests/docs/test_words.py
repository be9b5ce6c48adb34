"""Pages and source use one spelling and plain words; each entry has the words to write instead."""

import re
from collections import Counter
from pathlib import Path

import pytest
from plain_words import CONSTRUCTIONS, uses, uses_in_page, uses_in_source

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


MOST_USES = 20  # of each construction, where the plain word does not serve
WRITTEN = {
    "src": [ROOT / "src"],
    "docs": [page for page in [*PAGES, *(DOCS / "design").glob("*.md")] if page != QUOTING],
}


@pytest.mark.parametrize("part", WRITTEN)
def test_sentences_are_plain(part: str):
    found = [use for path in WRITTEN[part] for use in uses(path)]

    counts = Counter(use.construction for use in found)

    listed = "\n".join(f"{use.path}:{use.line}: {use.construction}: {use.text}" for use in found)
    assert all(count < MOST_USES for count in counts.values()), f"{counts}\n{listed}"
    assert not counts["headless summary"] + counts["stub argument"], listed


def test_words_of_an_f_string_are_read_as_one_text(tmp_path: Path):
    module = tmp_path / "module.py"
    module.write_text(
        """name = f"outer {f'{told} nobody'} told"
text = (
    f'''first {told}
    {'say'!r:>{said}} somebody'''
    rf"{5} is no name"
)
""",
        encoding="utf-8",
    )

    found = sorted((use.line, use.construction) for use in uses_in_source(module))

    assert found == [(1, "tell/say"), (4, "nobody/somebody"), (5, "is no X")]


def test_sentences_that_are_not_plain_are_found(tmp_path: Path):
    module, page = tmp_path / "module.py", tmp_path / "page.md"
    module.write_text(
        '''"""Who asks a service."""


def load(store: object, limit: int = 5) -> str:
    """Load what was stored.

    Args:
        store: Where it is.
        limit: The number of rows to load.
    """
    # Nobody else is told.
    return f"{store.told} is no store."
''',
        encoding="utf-8",
    )
    page.write_text("It says so. There is no head. `5 is no name`\n", encoding="utf-8")

    in_source = Counter(use.construction for use in uses_in_source(module))
    in_page = [(use.construction, use.line) for use in uses_in_page(page)]

    assert in_source == {"headless summary": 1, "stub argument": 1} | dict.fromkeys(
        CONSTRUCTIONS, 1
    )
    assert in_page == [("tell/say", 1)]

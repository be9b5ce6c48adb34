"""The glossary has the words of Lakebed, once each, and says where more stands."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| ([a-z][a-z -]+) \| (.+?) \| (.+) \|$", re.MULTILINE)
# The words in which Lakebed was designed.
WORDS = {
    *("archive", "batch", "commit", "data file", "dataset", "descriptor", "entity", "head"),
    *("index", "partition", "partition strategy", "plan", "publish", "repository", "version"),
    "view",
}


def rows() -> list[tuple[str, str, str]]:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    return [row for row in _ROW.findall(text) if row[0] != "word"]


def test_words_are_in_order_and_once():
    words = [word for word, _, _ in rows()]

    assert set(words) >= WORDS
    assert words == sorted(set(words))


def test_every_word_leads_to_a_page():
    assert [word for word, _, more in rows() if not re.search(r"\]\([\w-]+\.md", more)] == []

"""The page of environment variables has every one that the source reads, and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| (`[A-Z_][^|]*) \|", re.MULTILINE)
_OWN = re.compile(r"(?<![A-Za-z])_?LAKEBED_[A-Z]+(?:_[A-Z]+)*\b")
_READ = re.compile(r"[^\n]*\benviron\b[^\n]*")
_NAME = re.compile(r"[\"']([A-Z][A-Z_]{3,})[\"']")
# What every program reads, and nobody sets for Lakebed.
_COMMON = {"HOME", "PATH"}


def on_the_page() -> set[str]:
    text = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    return {name for row in _ROW.findall(text) for name in re.findall(r"`([A-Z_…]+)`", row)}


def sources() -> list[str]:
    return [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]


def test_variables_of_lakebed_are_those_on_the_page():
    read = {name for text in sources() for name in _OWN.findall(text)}

    assert len(read) > 8
    assert {name for name in on_the_page() if "LAKEBED_" in name} == read


def test_variables_of_others_that_are_read_are_on_the_page():
    read = {
        name for text in sources() for line in _READ.findall(text) for name in _NAME.findall(line)
    }

    told = on_the_page()
    beginnings = tuple(name.removesuffix("…") for name in told if name.endswith("…"))

    assert {"JAVA_HOME", "HADOOP_USER_NAME"} <= read
    missing = {name for name in read - _COMMON - told if not name.startswith(beginnings)}
    assert missing == set()

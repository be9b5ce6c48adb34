"""The reference of the site has an entry for each public name."""

import importlib
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import lakebed

ROOT = Path(__file__).parents[2]
_ENTRY = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
# `import lakebed` shows these; the others are imported by their path.
PACKAGES = ["lakebed", "lakebed.spark"]


def entries() -> set[str]:
    pages = (ROOT / "docs").rglob("*.md")
    return {name for page in pages for name in _ENTRY.findall(page.read_text(encoding="utf-8"))}


def home_of(thing: object) -> str:
    if isinstance(thing, types.ModuleType):
        return thing.__name__
    return f"{thing.__module__}.{thing.__qualname__}"


def test_every_public_name_has_an_entry():
    told = entries()
    missing = []
    for package in map(importlib.import_module, PACKAGES):
        for name in package.__all__:
            home = home_of(getattr(package, name))
            module = home.rpartition(".")[0]
            is_told = home in told or module in told
            if not is_told and home not in PACKAGES:  # these list their own names
                missing.append(f"{package.__name__}.{name} ({home})")

    assert len(lakebed.__all__) > 30
    assert missing == []


def test_every_entry_is_there():
    for entry in entries():
        module, _, name = entry.rpartition(".")
        try:
            importlib.import_module(entry)
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), name), entry


def test_every_page_has_a_place_on_the_shelves_of_the_site():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    docs = ROOT / "docs"

    pages = [page.relative_to(docs).as_posix() for page in sorted(docs.rglob("*.md"))]

    assert len(pages) > 40
    assert [page for page in pages if page not in site] == []


def test_a_page_is_called_in_the_navigation_as_its_title_is():
    site = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    docs = ROOT / "docs"
    titles = {
        page.relative_to(docs).as_posix(): page.read_text(encoding="utf-8").partition("\n")[0]
        for page in docs.rglob("*.md")
    }

    renamed = [entry for entry in _pages_of(site["nav"]) if isinstance(entry, tuple)]

    # MkDocs takes the first heading of a page whose entry has no title.
    assert renamed == []
    assert [page for page, title in titles.items() if not title.startswith("# ")] == []
    assert len(set(titles.values())) == len(titles)


def _pages_of(shelf: list[Any]) -> Iterator[str | tuple[str, str]]:
    """Yield the entries of a shelf: a page, or a title and a page."""
    for entry in shelf:
        if isinstance(entry, str):
            yield entry
        else:
            for title, below in entry.items():
                if isinstance(below, str):
                    yield title, below
                else:
                    yield from _pages_of(below)


def test_the_site_brings_its_scripts_and_asks_no_other_host():
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))

    scripts = site["extra"]["polyfills"] + site.get("extra_javascript", [])

    # The plugin would load its script from another host if none of ours had this name.
    assert "offline" in site["plugins"]
    assert any("iframe-worker" in script for script in scripts)
    assert [script for script in scripts if not (ROOT / "docs" / script).is_file()] == []
    assert site["theme"]["font"] is False

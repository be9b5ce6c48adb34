"""The drawn pictures are legible, need nothing from elsewhere, and show what there is."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest

import lakebed
from lakebed.groups.staged_group import StagedGroup

ROOT = Path(__file__).parents[2]
PICTURES = sorted((ROOT / "docs" / "assets").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"
WIDTH = 360
# Widths in parts of the size: every letter of a monospaced font, and a letter of others on average.
MONOSPACED, PROPORTIONAL = 0.605, 0.52
_SIZE = 13


def texts(picture: Path, kind: str | None = None) -> list[ET.Element]:
    every = ET.parse(picture).getroot().iter(f"{SVG}text")
    return [text for text in every if kind is None or text.get("data-is") == kind]


def test_there_is_a_picture_of_each_of_the_four_ideas():
    assert [picture.stem for picture in PICTURES] == ["batch-life", "commit", "index", "layout"]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.stem)
def test_a_picture_says_in_words_what_it_shows(picture: Path):
    root = ET.parse(picture).getroot()

    labels = {element.get("id"): element.text for element in root if element.get("id")}

    assert root.get("role") == "img"
    assert root.get("aria-labelledby", "").split() == list(labels)
    assert [element.tag for element in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert all(len(text or "") > 15 for text in labels.values())


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.stem)
def test_a_picture_has_no_script_and_asks_for_nothing(picture: Path):
    text = picture.read_text(encoding="utf-8")

    tags = {element.tag.removeprefix(SVG) for element in ET.fromstring(text).iter()}

    assert tags <= {"svg", "title", "desc", "style", "g", "text", "rect", "path"}
    assert re.findall(r"https?://[^\"\s]+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"href|url\(|@import|@font-face|\son\w+=", text)
    assert picture.stat().st_size < 8_000


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.stem)
def test_a_picture_is_legible_on_a_telephone_and_in_the_dark(picture: Path):
    root = ET.parse(picture).getroot()
    text = picture.read_text(encoding="utf-8")

    assert root.get("viewBox", "").split()[2] == str(WIDTH)
    assert {element.get("font-size") for element in root.iter()} == {None, str(_SIZE)}
    assert "prefers-color-scheme: dark" in text
    # One colour besides the page's own; it stands out from white and from black.
    assert set(re.findall(r"#[0-9a-f]{6}", text)) <= {"#1f2933", "#e3e7ea", "#0e8fbf"}
    outside = []
    for label in texts(picture):
        wide = MONOSPACED if "monospace" in label.get("font-family", "") else PROPORTIONAL
        length = len(label.text or "") * wide * _SIZE
        x = float(label.get("x", "0"))
        start = {"end": x - length, "middle": x - length / 2}.get(label.get("text-anchor", ""), x)
        if start < 0 or start + length > WIDTH:
            outside.append(label.text)
    assert outside == []


def test_every_name_in_a_picture_is_one_that_a_dataset_has_on_storage(tmp_path: Path):
    lake = lakebed.open_repository(tmp_path / "lake")
    descriptor = lakebed.DatasetDescriptor(
        schema={
            "type": "record",
            "name": "flight",
            "fields": [{"name": "day", "type": "string"}, {"name": "tailnum", "type": "string"}],
        },
        partition_by="day",
        index=["tailnum"],
    )
    flights = lake.create("flights", descriptor)
    rows = [{"day": day, "tailnum": "N7"} for day in ("2013-06-04", "2013-06-05")]
    flights.append(rows, run="first")
    flights.overwrite(rows[:1], run="second")
    keys = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")]
    keys += [f"{key}/" for key in keys if (tmp_path / key).is_dir()]

    drawn = {label.text or "" for picture in PICTURES for label in texts(picture, "key")}
    patterns = {name: re.escape(name).replace("…", ".+") for name in drawn}

    assert len(drawn) > 12
    unknown = [
        name
        for name, pattern in patterns.items()
        if not any(re.search(rf"(^|/){pattern}$", key) for key in keys)
    ]
    assert unknown == []


def test_every_verb_in_a_picture_is_one_that_a_caller_has():
    drawn = [label.text or "" for picture in PICTURES for label in texts(picture, "verb")]

    verbs = {verb for text in drawn for verb in text.split()}

    assert len(verbs) > 8
    owners = (lakebed.Dataset, lakebed.Staged, StagedGroup)
    named = {verb.removeprefix("staged.") for verb in verbs}
    assert [verb for verb in named if not any(hasattr(owner, verb) for owner in owners)] == []


def test_every_picture_stands_in_the_concepts_and_in_the_page_that_tells_more():
    pages = {
        "batch-life": "batches.md",
        "commit": "commit-protocol.md",
        "index": "indices.md",
        "layout": "format.md",
    }

    for picture, page in pages.items():
        for name in ("concepts.md", page):
            text = (ROOT / "docs" / name).read_text(encoding="utf-8")
            assert re.search(rf"!\[[^]]{{40,}}\]\(assets/{picture}\.svg\)", text), (picture, name)


def test_the_site_draws_pictures_in_the_colour_of_the_page():
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    html = '<p><img alt="The layout" src="../assets/layout.svg" /></p> <img src="plot.png">'

    drawn = hooks.on_page_content(
        html, config={"docs_dir": str(ROOT / "docs")}, page=SimpleNamespace()
    )

    assert "<svg style=" in drawn
    assert "<style" not in drawn
    assert 'stroke="currentColor"' in drawn
    assert drawn.endswith('</p> <img src="plot.png">')

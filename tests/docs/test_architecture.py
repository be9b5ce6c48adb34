"""What is written of the house is how it is built."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"From the top down:\n\n((?: {4}.+\n)+)")


def test_layers_that_contributing_tells_are_those_that_are_checked():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    checked = next(one["layers"] for one in contracts if one["id"] == "layers")
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

    # Two spaces are before what a room is for.
    told = [line.strip().partition("  ")[0] for line in _BLOCK.search(page)[1].splitlines()]

    assert told == [re.sub("[()]", "", layer) for layer in checked]


def layers_that_are_checked() -> list[list[str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    checked = next(one["layers"] for one in contracts if one["id"] == "layers")
    return [re.findall(r"\w+", layer) for layer in checked]


def test_picture_of_the_rooms_shows_each_once_and_above_what_it_imports():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = page.partition("```text\n")[2].partition("```")[0].splitlines()

    rooms = [room for layer in layers_that_are_checked() for room in layer if room != "__main__"]
    # Rooms stand by themselves, between bars, commas and gaps.
    cells = [re.split(r" {2,}|, |│", line.strip()) for line in picture]
    lines = {room: [number for number, row in enumerate(cells) if room in row] for room in rooms}

    assert {room: found for room, found in lines.items() if len(found) != 1} == {}
    order = [
        min(lines[room][0] for room in layer if room in lines)
        for layer in layers_that_are_checked()[1:]
    ]
    assert order == sorted(order)


def test_modules_that_architecture_names_are_there():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+(?:\.py)?)?)`", page))

    assert len(named) > 20
    places = (ROOT, ROOT / "src" / "lakebed")
    assert [one for one in sorted(named) if not any((at / one).exists() for at in places)] == []

"""The versions of Python and of packages that are named are those that are tested."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from lock_files import pinned_versions
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pythons_of_the_makefile() -> list[str]:
    return re.search(r"^PYTHONS := (.+)$", MAKEFILE, re.MULTILINE)[1].split()


def pythons_of_the_classifiers() -> list[str]:
    name = "Programming Language :: Python :: "
    found = (text.removeprefix(name) for text in PROJECT["classifiers"] if text.startswith(name))
    return [version for version in found if re.fullmatch(r"3\.\d+", version)]


def job(workflow: str, name: str) -> dict:
    return yaml.safe_load((ROOT / ".github" / "workflows" / workflow).read_text())["jobs"][name]


def needed() -> Iterator[Requirement]:
    """Yield what the package and its extras ask for."""
    for text in PROJECT["dependencies"]:
        yield Requirement(text)
    for texts in PROJECT["optional-dependencies"].values():
        yield from (one for one in map(Requirement, texts) if one.name != PROJECT["name"])


def floor_of(requirement: Requirement) -> Version:
    (specifier,) = requirement.specifier
    assert specifier.operator == ">=", requirement
    return Version(specifier.version)


def test_each_python_that_is_named_is_tested():
    named = pythons_of_the_classifiers()

    assert PROJECT["requires-python"] == f">={named[0]}"
    assert pythons_of_the_makefile() == list(reversed(named))
    assert "PYTHON_CANDIDATES := python3 $(PYTHONS:%=python%)\n" in MAKEFILE
    docs = (ROOT / "docs" / "limits.md").read_text()
    assert f"Python {named[0]} to {named[-1]}" in docs


@pytest.mark.skipif(
    not (ROOT / ".github").is_dir(), reason="The source distribution has no workflows"
)
def test_each_python_and_each_lane_of_versions_has_a_job():
    pythons = job("test.yml", "gate")["strategy"]["matrix"]["python"]
    assert pythons == pythons_of_the_classifiers()
    steps = [step.get("run") for step in job("test.yml", "versions")["steps"]]
    assert "make ${{ matrix.target }}" in steps
    assert job("test.yml", "versions")["strategy"]["matrix"]["target"] == [
        "test-lowest",
        "test-pandas3",
    ]
    lanes = job("long.yml", "long")["strategy"]["matrix"]["target"]
    sparks = re.search(r"^OLDER_SPARKS := (.+)$", MAKEFILE, re.MULTILINE)[1].split()
    assert {"test-newest", *(f"spark-{release}" for release in sparks)} <= set(lanes)


def test_the_lowest_lane_takes_the_floors_of_all_packages():
    named = (ROOT / "locks" / "lowest.in").read_text().splitlines()
    floors = dict(line.lower().split("==") for line in named if not line.startswith("#"))
    pins = pinned_versions("lowest")

    assert len(list(needed())) > 30
    for requirement in needed():
        name = canonicalize_name(requirement.name)
        assert Version(pins[name]) == Version(floors[name]) == floor_of(requirement), requirement


def test_a_package_has_one_floor_wherever_it_is_named():
    group = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["test"]
    floors = {}
    for requirement in (*needed(), *map(Requirement, group)):
        is_tool = len(requirement.specifier) != 1
        if not is_tool:
            floors.setdefault(requirement.name, set()).add(floor_of(requirement))

    assert {name: found for name, found in floors.items() if len(found) > 1} == {}


def test_pandas_and_pyspark_have_no_cap():
    for requirement in needed():
        assert [one.operator for one in requirement.specifier] == [">="], requirement

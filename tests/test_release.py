"""What is published: the version, what the source distribution holds, the page on a package index."""

import re
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

import lakebed

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# What only somebody needs who works in the repository itself.
FOR_THE_REPOSITORY = ["/.gitignore", "/.github/*", "/RELEASING.md"]


def test_version_is_the_same_wherever_it_is_told():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())

    assert lakebed.__version__ == PROJECT["project"]["version"] == citation["version"]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_source_distribution_takes_along_all_that_its_tests_need():
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    tracked = ["/" + name for name in listing.split("\0") if name]

    left_out = [
        name
        for name in tracked
        if not any(fnmatch(name, kind) or name.startswith(kind + "/") for kind in included)
        and not any(fnmatch(name, kind) for kind in FOR_THE_REPOSITORY)
    ]

    assert len(tracked) > 500
    assert left_out == []


def test_page_on_a_package_index_links_to_this_release_and_to_files_that_exist():
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    (substitution,) = hook["substitutions"]
    readme = (ROOT / "README.md").read_text()

    page = re.sub(substitution["pattern"], substitution["replacement"], readme)

    targets = re.findall(r"\]\(([^)]+)\)", page)
    assert all(target.startswith("https://") for target in targets), targets
    base = "https://github.com/lakebed/lakebed/blob/v$HFPR_VERSION/"
    ours = [target.removeprefix(base) for target in targets if target.startswith(base)]
    assert len(ours) > 30
    assert [name for name in ours if not (ROOT / name.split("#")[0]).exists()] == []


@pytest.mark.parametrize(
    "workflow", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.stem
)
def test_workflows_call_targets_that_the_makefile_has(workflow):
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    makefile = (ROOT / "Makefile").read_text()
    steps = [step for job in jobs for step in job.get("steps", [])]
    commands = [step["run"] for step in steps if "run" in step]
    targets = [command.removeprefix("make ") for command in commands if command.startswith("make ")]
    for job in jobs:
        targets += job.get("strategy", {}).get("matrix", {}).get("target", [])

    patterns = set(re.findall(r"^([\w-]+-)%:", makefile, re.MULTILINE))
    unknown = [
        target
        for target in targets
        if "{{" not in target
        and not re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE)
        and "".join(target.rpartition("-")[:2]) not in patterns
    ]

    assert unknown == []
    of_no_target = [command for command in commands if not command.startswith("make ")]
    assert {command.partition('"')[0] for command in of_no_target} <= {
        ".ci/run",
        "gh release create ",
    }

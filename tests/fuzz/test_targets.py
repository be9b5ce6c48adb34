"""Hostile input: the kept inputs, and a few hundred mutations of each parser, by a fixed seed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fuzz.campaign import CORPUS
from fuzz.targets import TARGETS

TESTS = Path(__file__).parents[1]
COUNT = 200  # of mutations, times the share of the target

# Functions as targets are, each of which breaks a rule.
BROKEN = """
import sys
from fuzz import campaign, limits
from fuzz.targets import Target
from lakebed.errors import LakebedError

limits.SECONDS = 3
limits.install()
limits._SOURCE = "<"  # a text that is run stands for a module of Lakebed


def hang(data):
    while True:
        pass


def write(data):
    try:
        open(sys.argv[1], "w")
    except Exception:
        pass


def grow(data):
    len(b"x" * (600 << 20))


def refuse(data):
    len(b"x" * (1300 << 20))
    raise LakebedError("It is too large.")


def evaluate(data):
    exec(compile("eval('1 + 1')", "<lakebed>", "exec"))


def load(data):
    import pickle

    pickle.loads(pickle.dumps(campaign.Found))


calls = [lambda data: {}[data], hang, write, grow, refuse, evaluate, load, lambda data: None]
found = [campaign.tried(Target("t", call, tuple), b"x") for call in calls]
print(*(one and one.error.partition(":")[0] for one in found))
"""


@pytest.fixture(scope="module")
def played() -> dict[str, Any]:
    """Return the results of all targets, from a process with limits."""
    command = [sys.executable, "-m", "fuzz", "--short", str(COUNT), "--json"]
    done = subprocess.run(
        command, cwd=TESTS, capture_output=True, text=True, check=False, timeout=1_800
    )
    assert done.stdout, done.stderr[-3000:]
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_input_raises_named_errors_alone(name: str, played: dict[str, Any]) -> None:
    found = played[name]["found"]
    assert not found, "\n".join(found)


def test_each_kept_input_belongs_to_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= TARGETS.keys()


def test_what_breaks_a_rule_is_found(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BROKEN, str(tmp_path / "written")],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )

    errors = "KeyError TooLongError ForbiddenError TooLargeError TooLargeError ForbiddenError ForbiddenError None"
    assert done.stdout.split() == errors.split(), done.stderr
    assert not (tmp_path / "written").exists()

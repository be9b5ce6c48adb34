"""The Makefile: what it says of itself is so."""

import re
from pathlib import Path

import pytest
from quick_selection import CORE, modules_for

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()


def recipe_of(target: str) -> str:
    return re.search(rf"^{re.escape(target)}:.*\n((?:\t.*\n)*)", MAKEFILE, re.MULTILINE)[1]


def test_each_environment_is_noted_as_made_so_that_it_is_not_made_again():
    environments = re.findall(r"^(\S+/\.installed\)?):", MAKEFILE, re.MULTILINE)

    assert len(environments) == 5
    for environment in environments:
        assert "\t@touch $@\n" in recipe_of(environment), environment


def test_each_environment_of_pins_has_its_pins():
    pinned = re.search(r"^PINNED := (.+)$", MAKEFILE, re.MULTILINE)[1].split()

    assert len(pinned) == 8
    for name in pinned:
        assert (ROOT / f"locks/{name}.txt").is_file(), name


def test_help_names_each_target():
    phony = {
        name
        for line in re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
        for name in line.split()
    }
    told = set(re.findall(r"make ([a-z0-9-]+)", recipe_of("help")))

    inner = {"help", "compat-env", "doors-env", "servers-env", "chromium"}
    assert told == phony - inner


def variable(name: str) -> str:
    value = re.search(rf"^{name} := (.+)$", MAKEFILE, re.MULTILINE)[1]
    return re.sub(r"\$\((\w+)\)", lambda match: variable(match[1]), value)


def test_what_make_test_leaves_out_is_run_by_other_targets_and_by_the_gate():
    outside = variable("OUTSIDE").split(" or ")

    assert outside == ["thorough", "compat", "browser", "long"]
    for tier in outside[:3]:
        assert recipe_of(tier), tier
    assert "-m 'not ($(OUTSIDE))'" in recipe_of("test")
    assert "-m 'not long'" in recipe_of("gate")
    ci = (ROOT / ".ci" / "run").read_text()
    for target in ("check", "test", "compat", "pages"):
        assert f"make {target}\n" in ci, target


def test_each_tier_prints_its_slowest_tests():
    for target in ("quick", "test", "thorough", "compat", "gate", "browser", "test-long"):
        assert "$(PYTEST)" in recipe_of(target), target
    assert "--durations=10" in variable("PYTEST")


def test_make_test_needs_one_environment_and_no_package_of_the_system():
    for target in ("quick", "test", "thorough"):
        assert re.search(rf"^{target}: setup$", MAKEFILE, re.MULTILINE), target
    asks = [line for line in MAKEFILE.splitlines() if re.search(r"as_root|apt-get", line)]
    # In make-venv behind SYSTEM_PACKAGES, and in browser-env; the others are words to the user.
    for line in asks:
        is_behind_a_switch = "SYSTEM_PACKAGES" in line or "echo" in line or line.startswith("#")
        assert is_behind_a_switch or line in recipe_of("browser-env") or line in MAKE_VENV, line


MAKE_VENV = MAKEFILE[MAKEFILE.index("define make-venv") :]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("src/lakebed/model/uri.py", "tests/model/test_uri.py"),
        ("src/lakebed/work/merge.py", "tests/work/test_merge.py"),
        ("tests/copies.py", "tests/plan/test_plan.py"),
        ("tests/test_view.py", "tests/test_view.py"),
        ("docs/merge.md", "tests/docs"),
        (".ci/run", "tests/test_makefile.py"),
    ],
)
def test_quick_runs_what_tests_a_change(changed: str, expected: str):
    assert expected in modules_for([changed])


def test_quick_runs_few_modules_for_a_change_of_one():
    assert len(modules_for(["src/lakebed/work/merge.py"])) < 10
    assert modules_for([]) == set()
    assert all((ROOT / "tests" / name).is_file() for name in CORE)

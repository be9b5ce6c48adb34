"""The Makefile: what it says of itself is so."""

import re
from pathlib import Path

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

    assert len(pinned) == 6
    for name in pinned:
        assert (ROOT / f"constraints-{name}.txt").is_file(), name


def test_help_names_each_target():
    phony = {
        name
        for line in re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
        for name in line.split()
    }
    told = set(re.findall(r"make ([a-z-]+)", recipe_of("help")))

    inner = {"help", "interop-env", "doors-env", "servers-env", "browser-env"}
    assert told == phony - inner

"""Every verb explains itself, and its example is a command line that parses."""

import shlex

import click
import pytest
from command_tree import COMMANDS

from lakebed.cli import main
from lakebed.cli.verbs import SECTIONS

VERBS = list(COMMANDS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_that_ends_in_an_example(cli, verb: str) -> None:
    told = cli(*verb.split(), "--help").stdout

    lines = told.rstrip().splitlines()
    assert lines[-2].strip() == "Example:"
    assert lines[-1].strip().startswith(f"lakebed {verb} ")
    assert COMMANDS[verb].get_short_help_str(limit=60).endswith(".")


def test_help_of_all_says_of_a_verb_what_its_own_help_begins_with() -> None:
    told = {name: home.help for verbs in SECTIONS.values() for name, home in verbs.items()}

    assert told == {
        name: COMMANDS[name].get_short_help_str(limit=1000) for name in main.list_commands(None)
    }


def test_help_of_all_shows_each_verb_whole_in_a_section_and_fits_80_columns(cli) -> None:
    lines = cli("--help").stdout.splitlines()

    assert [line[:-1] for line in lines if line in {f"{title}:" for title in SECTIONS}] == [
        *SECTIONS
    ]
    for verbs in SECTIONS.values():
        for name, home in verbs.items():
            assert any(line.split() == [name, *home.help.split()] for line in lines), name
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_is_explained(verb: str) -> None:
    options = [one for one in COMMANDS[verb].params if isinstance(one, click.Option)]

    assert [one.name for one in options if not one.help] == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_example_parses(verb: str) -> None:
    example = shlex.split(COMMANDS[verb].epilog.splitlines()[-1])

    assert example[: 1 + len(verb.split())] == ["lakebed", *verb.split()]
    arguments = example[1 + len(verb.split()) :]
    COMMANDS[verb].make_context(verb, arguments, **main.context_settings)


def test_short_help_option_works_everywhere(cli) -> None:
    assert cli("-h").stdout.startswith("Usage: lakebed")
    assert cli("query", "-h").stdout.startswith("Usage: lakebed query")


def test_nearest_verb_is_suggested(cli) -> None:
    result = cli("hystory", exit_code=2)

    assert "Did you mean 'history'?" in result.stderr


def test_version_is_shown(cli) -> None:
    assert cli("--version").stdout.startswith("lakebed 0.")

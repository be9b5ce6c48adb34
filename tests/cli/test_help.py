"""Every verb explains itself, and its example is a command line that parses."""

import shlex

import click
import pytest

from lakebed.cli import main

VERBS = list(main.commands)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_that_ends_in_an_example(cli, verb: str) -> None:
    told = cli(verb, "--help").stdout

    lines = told.rstrip().splitlines()
    assert lines[-2].strip() == "Example:"
    assert lines[-1].strip().startswith(f"lakebed {verb} ")
    assert main.commands[verb].get_short_help_str(limit=60).endswith(".")


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_is_explained(verb: str) -> None:
    options = [one for one in main.commands[verb].params if isinstance(one, click.Option)]

    assert [one.name for one in options if not one.help] == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_example_parses(verb: str) -> None:
    example = shlex.split(main.commands[verb].epilog.splitlines()[-1])

    name, command, rest = main.resolve_command(click.Context(main), example[1:])

    assert name == verb
    command.make_context(verb, rest)


def test_short_help_option_works_everywhere(cli) -> None:
    assert cli("-h").stdout.startswith("Usage: lakebed")
    assert cli("query", "-h").stdout.startswith("Usage: lakebed query")


def test_nearest_verb_is_suggested(cli) -> None:
    result = cli("hystory", exit_code=2)

    assert "Did you mean 'history'?" in result.stderr


def test_version_is_shown(cli) -> None:
    assert cli("--version").stdout.startswith("lakebed 0.")

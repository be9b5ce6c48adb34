"""Words of other tools, each of which leads to the verb that does the same here."""

import re
import shlex

import click
import pytest
from command_tree import COMMANDS

from lakebed.cli import main
from lakebed.cli.other_words import WORDS, command_here

PAIRS = [
    (group, word, ours)
    for group, words in WORDS.items()
    for ours, others in words.items()
    for word in others.split()
]


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("vacuum", "cleanup"),
        ("optimize", "compact"),
        ("zorder", "compact"),
        ("upsert", "merge"),
        ("info", "show"),
        ("describe", "show"),
        ("restore", "rollback"),
        ("log", "history"),
        ("rm", "delete"),
        ("rm", "drop"),
        ("insert", "append"),
        ("select", "query"),
        ("ls", "list"),
        ("tag", "protection add"),
        ("VACUUM", "cleanup"),
        ("describe_history", "history"),
        ("vaccum", "cleanup"),
        ("optimse", "compact"),
    ],
)
def test_word_of_another_tool_leads_to_the_verb_here(cli, word: str, ours: str) -> None:
    told = cli(word, "lake/flights", exit_code=2).stderr

    assert f"There is no command {word!r}." in told
    assert f"`lakebed {ours} --help`" in told


@pytest.mark.parametrize(("word", "ours"), [("get", "fetch"), ("rm", "delete"), ("ls", "list")])
def test_word_in_a_group_leads_to_the_verb_of_the_group(cli, word: str, ours: str) -> None:
    assert f"`lakebed archive {ours} --help`" in cli("archive", word, exit_code=2).stderr


@pytest.mark.parametrize(("group", "word", "ours"), PAIRS)
def test_every_pointer_leads_to_help_that_is_there(cli, group: str, word: str, ours: str) -> None:
    told = command_here(group, word, ())

    assert ours in told
    for line in re.findall("`(.*?)`", told):
        assert cli(*shlex.split(line)[1:]).stdout.startswith(
            f"Usage: {line.removesuffix(' --help')} "
        )


@pytest.mark.parametrize("group", WORDS)
def test_no_word_of_another_tool_is_a_verb_here(group: str) -> None:
    command = main if group == "lakebed" else COMMANDS[group]
    known = command.list_commands(click.Context(command))
    words = {word for _, word, _ in (pair for pair in PAIRS if pair[0] == group)}

    assert words.isdisjoint(known)


@pytest.mark.parametrize(
    ("typed", "verb"), [("hystory", "history"), ("quer", "query"), ("chek", "check")]
)
def test_a_slip_in_a_verb_of_ours_is_still_told(cli, typed: str, verb: str) -> None:
    told = cli(typed, exit_code=2).stderr

    assert f"Did you mean {verb!r}?" in told
    assert "In Lakebed" not in told


def test_copy_leads_to_a_verb_that_exists(cli) -> None:
    told = cli("copy", "lake/a", exit_code=2).stderr

    assert "In Lakebed it is 'create --like': see `lakebed create --help`." in told
    assert "copy-into" not in told

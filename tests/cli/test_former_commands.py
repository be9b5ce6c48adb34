"""Former commands and options, which are refused with the new ones; one option for one thing."""

import shlex

import pytest
from command_tree import COMMANDS


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("stage lake/d x.csv", "staged add"),
        ("staged lake/d", "lakebed staged list lake/d"),
        ("commit lake/d 1", "staged commit"),
        ("discard lake/d 1", "staged discard"),
        ("protect lake/d --version 1", "protection add"),
        ("unprotect lake/d --version 1", "protection remove"),
        ("protections lake/d", "protection list"),
        ("history lake/d --last 3", "--limit"),
        ("doctor --store s3://bucket/lake", "--races"),
        ("report lake -o page.html", "--file page.html"),
    ],
)
def test_former_command_is_refused_with_the_new_one(cli, line: str, ours: str) -> None:
    assert ours in cli(*shlex.split(line), exit_code=2).stderr


def test_the_help_says_when_to_use_each_way_to_load_files(cli) -> None:
    ways = cli("--help").stdout.partition("Ways to load files:")[2]

    for verb in ("import", "append", "overwrite", "rerun", "ingest", "staged add"):
        assert verb in ways
        assert " ".join(verb.split()) in COMMANDS


def test_o_is_the_output_format_of_every_command() -> None:
    for name, command in COMMANDS.items():
        for parameter in command.params:
            if "-o" in parameter.opts:
                assert "--output" in parameter.opts, name
            if "-n" in parameter.opts:
                assert "--limit" in parameter.opts, name

"""Whatever a hint, a message, a help text or a page names exists: commands, options, methods."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from command_tree import COMMANDS

import lakebed
from lakebed.archive import Archive
from lakebed.cli import main
from lakebed.cli.other_words import WORDS
from lakebed.dataset import Dataset
from lakebed.kite_words import EntityReader, KiteGroup
from lakebed.repository import TreeGroup

pytestmark = pytest.mark.thorough

SOURCES = Path(lakebed.__file__).parent
ROOT = SOURCES.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ELSEWHERE = {word for words in WORDS["lakebed"].values() for word in words.split()}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
# Pages on how Lakebed was measured and tested name scripts of the repository with their options.
OPTIONS_OF_SCRIPTS = {
    option
    for folder in ("bench", "tests")
    for path in (ROOT / folder).rglob("*.py")
    for option in re.findall(r'add_argument\(\s*"(--[a-z-]+)"', path.read_text(encoding="utf-8"))
}
# Options of java, curl, spark-submit, airflow and a data source, or no option at all.
FOREIGN = {
    *("--add-modules", "--negotiate", "--archives", "--deploy-mode", "--master"),
    *(
        "--python-prefix",
        "--dag-id",
        "--from-date",
        "--to-date",
        "--spec",
        "--option",
    ),
}


def texts_of(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield all texts of a module, with `{}` for what is put in."""
    pieces = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            pieces.update(map(id, node.values))
            yield (
                node,
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "{}"
                    for part in node.values
                ),
            )
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in pieces
        ):
            yield node, node.value


def written() -> Iterator[tuple[str, str]]:
    """Yield every text of the package and every page, with where it stands."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node, text in texts_of(ast.parse(path.read_text())):
            yield f"{path.relative_to(SOURCES)}:{getattr(node, 'lineno', '')}", text
    for page in PAGES:
        # What stands in backticks may go on in the next line.
        text = re.sub(r"(?<!`)`[^`]+`(?!`)", lambda m: " ".join(m[0].split()), page.read_text())
        yield page.relative_to(ROOT).as_posix(), text


def commands_in(text: str) -> Iterator[str]:
    """Yield what follows `lakebed ` where a command is meant, to the end of the line or the quote."""
    for found in re.finditer(r"(?<![\w./'-])lakebed ([a-z][a-z_-]*\b[^`\n|;]*)", text):
        if found[1].partition(" ")[0] not in ("has", "and"):  # of a sentence
            yield found[1]


def command_of(words: list[str]) -> click.Command | None:
    """Return the command that words begin with; of a group itself, with nothing behind it, that."""
    bare = [word.rstrip(".,:)\"'") for word in words]
    command = COMMANDS.get(bare[0])
    if isinstance(command, click.Group) and bare[1:] and re.match("[a-z]", bare[1]):
        return COMMANDS.get(" ".join(bare[:2]))
    return command


WRITTEN = list(written())
NAMED = [(where, line) for where, text in WRITTEN for line in commands_in(text)]


def test_every_command_that_is_named_exists() -> None:
    assert len(NAMED) > 300
    assert [
        (where, line[:60])
        for where, line in NAMED
        if command_of(line.split()) is None and line.split()[0] not in ELSEWHERE
    ] == []


def test_every_option_that_is_named_behind_a_command_is_one_of_it() -> None:
    wrong = []
    for where, line in NAMED:
        command = command_of(line.split())
        if command is None or isinstance(command, click.Group):
            continue
        options = {one for each in command.params for one in (*each.opts, *each.secondary_opts)}
        given = re.findall(r"(?<![\w-])--?[a-z][a-z-]*", line)
        wrong += [(where, line[:60], one) for one in given if one not in options | {"--help", "-h"}]

    assert wrong == []


def test_every_option_that_is_named_alone_is_one_of_some_command() -> None:
    options = {
        one
        for command in COMMANDS.values()
        for each in command.params
        for one in (*each.opts, *each.secondary_opts)
    }
    named = {
        (where, one)
        for where, text in WRITTEN
        if not where.startswith("cli/other_words.py")
        for one in OPTION.findall(text)
    }

    unknown = {
        (where, one)
        for where, one in named
        if one not in options | {"--help", "--version"}
        and not (where.startswith("docs/") and one in OPTIONS_OF_SCRIPTS)
    }
    assert {one for _, one in unknown} == FOREIGN, sorted(unknown)


def test_every_whole_command_line_in_backticks_parses() -> None:
    wrong = []
    for where, text in WRITTEN:
        for found in re.findall(r"(?<!`)`lakebed ([^`\n]+)`(?!`)", text):
            words = shlex.split(re.split(r"\\?[|]", found)[0].replace("{}", "1"))
            command = command_of(words)
            arguments = words[2:] if command is COMMANDS.get(" ".join(words[:2])) else words[1:]
            positional = [word for word in arguments if not word.startswith("-")]
            if command is None or isinstance(command, click.Group) or not positional:
                continue  # a mention of the verb, which the tests above look at
            if {"...", "…"} & set(words):
                continue
            try:
                command.make_context(words[0], arguments, **main.context_settings)
            except click.MissingParameter as error:
                if error.param is not None and isinstance(error.param, click.Option):
                    wrong.append((where, found, error.format_message()))
            except click.BadParameter:
                pass  # a placeholder in the place of a number or a file
            except click.UsageError as error:
                wrong.append((where, found, error.format_message()))

    assert wrong == []


def test_every_method_that_a_hint_names_exists() -> None:
    """What stands in backticks is a verb, a method or an argument, in the words of Python."""
    classes = (Dataset, lakebed.Repository, Archive, lakebed.Ingest, EntityReader)
    groups = (KiteGroup, TreeGroup)
    known = {name for each in (*classes, *groups, lakebed) for name in dir(each)}
    known |= {word for name in COMMANDS for word in name.split()}
    known |= {"telemetry", "kite", "delta", "iceberg", "kartothek", "history", "with"}
    hints = [
        (path.relative_to(SOURCES).as_posix(), text)
        for path in sorted(SOURCES.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.keyword) and node.arg == "hint"
        for _, text in texts_of(node.value)
    ]

    assert len(hints) > 500
    assert [
        (where, name)
        for where, text in hints
        for name in re.findall("`([a-z_]+)`", text)
        if name not in known
    ] == []

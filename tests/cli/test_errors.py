"""Errors: one line for a person, one document for a program, and an exit code for a script."""

import ast
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from heads import head_key

import lakebed
from lakebed.cli import main
from lakebed.cli.shared_options import verb
from lakebed.errors import CommitConflictError, LakebedError, StorageError


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["show", "{lake}/flight"], "dataset-not-found", 3),
        (["query", "{lake}/flights", "--version", "9"], "version-not-found", 3),
        (["query", "{lake}/flights", "--where", "nope = 1"], "predicate", 2),
        (["query", "{lake}/flights", "--columns", "fligth"], "schema-mismatch", 2),
        (["show", "{lake}/no.name"], "invalid-name", 2),
        (["show", "{lake}/flights", "--version", "x"], "invalid-input", 2),
        (["show", "{lake}/flights", "--time", "soon"], "invalid-input", 2),
        (["show", "{lake}/flights", "--time", "2013", "--version", "1"], "invalid-input", 2),
        (["show", "{lake}/flights", "--nope"], "invalid-input", 2),
        (["show", "{lake}/flights", "--storage-option", "x"], "invalid-input", 2),
        (["show"], "invalid-input", 2),
        (["shwo", "{lake}/flights"], "invalid-input", 2),
    ],
)
def test_error_is_a_document_with_an_exit_code(
    cli, address, lake, arguments: list[str], code: str, exit_code: int
) -> None:
    error = cli.error(*[one.format(lake=lake.uri) for one in arguments])

    assert (error["code"], error["exit_code"]) == (code, exit_code)


def test_error_of_a_table_is_a_message_and_a_hint(cli, address) -> None:
    result = cli("show", address + "x", exit_code=3)

    assert result.stdout == ""
    assert result.stderr.startswith("Error: Dataset 'flightsx'")
    assert "'flights'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "words", [["--where", "carrier", "=", "UA"], ["carrier = 'UA'"], ["--where", "n", ">", "1"]]
)
def test_predicate_that_the_shell_has_cut_is_told_to_be_quoted(cli, address, words) -> None:
    result = cli("query", address, *words, exit_code=2)

    assert """--where "carrier = 'UA'", in double quotes""" in result.stderr


def test_words_too_many_of_a_verb_without_predicates_are_only_that(cli, lake) -> None:
    assert "quotes" not in cli("list", lake.uri, "more", exit_code=2).stderr


def test_help_is_an_option_of_each_verb(cli) -> None:
    assert "See `lakebed query --help`." in cli("help", "query", exit_code=2).stderr
    assert "See `lakebed --help`." in cli("help", exit_code=2).stderr
    assert "See `lakebed index build --help`." in cli("index", "help", "build", exit_code=2).stderr


def test_repository_in_place_of_a_dataset_is_told(cli, address, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    told = cli("query", "lake", exit_code=2).stderr
    assert "Write lake/NAME, such as lake/flights; `lakebed show lake` lists all." in told
    assert "'lake' is a repository itself" in cli("query", "./lake", exit_code=3).stderr


def test_damaged_head_is_an_error_of_format(cli, address, tmp_path) -> None:
    (tmp_path / "lake" / head_key("flights")).write_text("{")

    assert cli.error("show", address)["exit_code"] == 7


@pytest.fixture
def failing(monkeypatch):
    """A verb that ends as it is told."""

    def add(error: BaseException) -> None:
        @verb("fail", example="lakebed fail")
        def fail(output) -> None:
            raise error

        monkeypatch.setitem(main.commands, "fail", fail)

    return add


def test_exit_code_is_that_of_the_class(cli, failing) -> None:
    failing(CommitConflictError("Too late.", hint="Again.", expected=1, actual=2))

    result = cli("fail", "--json", exit_code=5)

    assert json.loads(result.stderr) == {
        "error": {"code": "commit-conflict", "message": "Too late.", "hint": "Again."}
    }


def test_what_was_done_before_an_error_is_told(cli, failing) -> None:
    error = StorageError("No answer.", hint="Again.")
    error.add_note("Version 3 is there.")
    failing(error)

    assert cli("fail", exit_code=6).stderr.splitlines() == [
        "Error: No answer.",
        "Hint: Again.",
        "Note: Version 3 is there.",
    ]
    told = json.loads(cli("fail", "--json", exit_code=6).stderr)
    assert told["error"]["notes"] == ["Version 3 is there."]


def test_interrupt_has_the_exit_code_of_the_signal(cli, failing) -> None:
    failing(KeyboardInterrupt())

    cli("fail", exit_code=130)


def test_mistake_of_ours_is_not_hidden(cli, failing) -> None:
    failing(ZeroDivisionError("ours"))

    result = cli("fail", exit_code=1)

    assert isinstance(result.exception, ZeroDivisionError)


def test_errors_reach_a_caller_that_is_no_shell(lake) -> None:
    with pytest.raises(LakebedError):
        main.main(["show", f"{lake.uri}/x"], standalone_mode=False)
    with pytest.raises(click.UsageError):
        main.main(["shwo"], standalone_mode=False)


@pytest.mark.parametrize(("flag", "level"), [("-v", "INFO"), ("-vv", "DEBUG")])
def test_log_goes_to_stderr_and_leaves_no_trace(cli, address, write, flag, level) -> None:
    rows = write("rows.jsonl", '{"time_hour": "2013-01-01"}\n')
    before = (logging.getLogger("lakebed").level, logging.getLogger("lakebed").handlers[:])

    result = cli("append", address, rows, flag, "-o", "json")

    assert json.loads(result.stdout)["row_count"] == 1
    assert level in result.stderr
    after = (logging.getLogger("lakebed").level, logging.getLogger("lakebed").handlers)
    assert after == before


def test_list_of_a_missing_directory_is_an_error(cli, tmp_path) -> None:
    (tmp_path / "empty").mkdir()

    error = cli.error("list", tmp_path / "mistyped")
    empty = cli("list", tmp_path / "empty")

    assert error["code"] == "not-found"
    assert "mistyped" in error["message"]
    assert empty.exit_code == 0


@pytest.mark.thorough
def test_hints_are_for_the_command_line_as_well_as_for_python() -> None:
    """A hint names verbs, which both have; calls and keywords are those of Python alone.

    No command has a catalog of Spark.
    """
    # Partition functions, directories and constraints of URIs are written alike in both; frames and
    # expressions of other libraries, with their methods, come from Python alone.
    both = r"(?!date\(|hash\(|hour\(|exists\(|batch_id=…)"
    others = r"(?!to_frame\(|unnest\(|drop_null\(|is_nan\(|is_not_nan\()"
    python = re.compile(rf"(?<!\?)\b{both}{others}[a-z_]+(?:\((?:\)|[a-z_]+=|…\))|=['…])")
    sources = Path(lakebed.__file__).parent

    spoken = [
        f"{path.relative_to(sources)}:{node.lineno}: {text}"
        for path in sources.rglob("*.py")
        if not path.is_relative_to(sources / "spark/catalog")
        for node, text in hints_of(ast.parse(path.read_text()))
        if python.search(text)
    ]

    assert spoken == []


def hints_of(tree: ast.AST) -> Iterator[tuple[ast.keyword, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "hint":
            parts = [
                part.value
                for part in ast.walk(node.value)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
            yield node, "{}".join(parts)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--json", "show", "lake/d"), "lakebed show --json"),
        (("-o", "json", "list", "lake"), "lakebed list -o"),
        (("--quiet", "archive", "list"), "lakebed archive list --quiet"),
        (("archive", "--json", "list"), "lakebed archive list --json"),
    ],
)
def test_an_option_before_its_verb_is_told_where_it_belongs(cli, words, told) -> None:
    stderr = cli(*words, exit_code=2).stderr

    assert f"goes after the verb: {told}" in stderr


def test_an_option_that_no_verb_has_is_not_told_to_stand_elsewhere(cli) -> None:
    assert "No such option" in cli("--jsn", "show", "lake/d", exit_code=2).stderr

"""What a shell completes."""

import os
import subprocess
import sys

import pyarrow as pa
import pytest

import lakebed

pytestmark = pytest.mark.thorough  # each asks a process


@pytest.fixture
def folder(tmp_path):
    repository = lakebed.open_repository(str(tmp_path / "lake"))
    for name in ("flights", "fleet", "airports"):
        repository.create(name, lakebed.DatasetDescriptor(schema=pa.schema([("id", pa.int64())])))
    (tmp_path / "lake" / "old").mkdir()
    return tmp_path


def completed(folder, *words: str, **variables: str) -> list[str]:
    """Return what bash is told after some words, of which the last is begun."""
    line = ["lakebed", *words]
    environment = {
        **os.environ,
        **variables,
        "_LAKEBED_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
    }
    code = "from lakebed.cli import main; main(prog_name='lakebed')"
    command = [sys.executable, "-c", code]
    answer = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert answer.stderr == ""
    return [word.partition(",")[2] for word in answer.stdout.split()]


def test_verbs_are_completed(folder):
    assert completed(folder, "pro") == ["promote", "protection"]
    assert completed(folder, "staged", "d") == ["discard"]


def test_options_are_completed(folder):
    assert completed(folder, "history", "--li") == ["--limit"]


@pytest.mark.parametrize(
    ("begun", "addresses"),
    [
        ("lake/f", ["lake/fleet", "lake/flights"]),
        ("lake/", ["lake/airports", "lake/fleet", "lake/flights", "lake/old/"]),
        ("la", ["lake/"]),
        ("lake/nothing", []),
        ("missing/x", []),
        ("s3://bucket/x", []),
    ],
)
def test_datasets_and_directories_are_completed(folder, begun, addresses):
    assert completed(folder, "show", begun) == addresses


def test_bare_names_are_completed_from_the_repository_that_the_environment_names(folder):
    lake = str(folder / "lake")

    assert completed(folder, "show", "fl", LAKEBED_REPOSITORY=lake) == ["fleet", "flights"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_of_each_shell_is_printed(cli, shell):
    assert "_LAKEBED_COMPLETE" in cli("completion", shell).stdout


def test_unknown_shell_is_told_with_those_that_are_known(cli, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/tcsh")

    failed = cli("completion", exit_code=2)

    assert "'tcsh'" in failed.stderr
    assert "bash, zsh, fish" in failed.stderr


def test_datasets_are_completed_where_a_lake_or_one_of_it_may_stand(folder):
    assert completed(folder, "report", "lake/f") == ["lake/fleet", "lake/flights"]

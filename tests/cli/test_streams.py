"""What stands at the ends of a command: a full disk, nothing at all, a terminal without our letters."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed

pytestmark = pytest.mark.thorough  # each asks a process

TEXT = "é日 \u202e"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    lake = tmp_path_factory.mktemp("lake")
    schema = pa.schema([("text", pa.string())])
    dataset = lakebed.open_repository(lake).create("d", lakebed.DatasetDescriptor(schema=schema))
    dataset.append([{"text": TEXT}])
    return f"{lake}/d"


def run(words: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a verb in a shell, which lets its streams be what `words` say."""
    command = f'"{sys.executable}" -m lakebed "$@" {words}'
    return subprocess.run(
        ["sh", "-c", command, "sh", *arguments],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize("form", ["csv", "plain", "json", "jsonl"])
def test_programs_read_utf_8_whatever_the_terminal_takes(address: str, form: str) -> None:
    result = run("", "query", address, "-o", form, PYTHONIOENCODING="ascii")

    assert result.returncode == 0, result.stderr
    text = result.stdout.decode("utf-8")
    if form.startswith("json"):
        document = json.loads(text)
        assert document in ([{"text": TEXT}], {"text": TEXT})
    else:
        assert text.splitlines()[-1] == TEXT


def test_table_has_codes_for_letters_that_the_terminal_lacks(address: str) -> None:
    result = run("", "query", address, PYTHONIOENCODING="latin-1")

    assert result.returncode == 0, result.stderr
    assert result.stdout.decode("latin-1").splitlines()[-1] == r"é\u65e5 \u202e"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize(
    "arguments", [["query", "{}"], ["query", "{}", "-o", "csv"], ["explain", "{}"], ["--help"]]
)
def test_result_that_finds_no_room_is_a_named_error(address: str, arguments: list[str]) -> None:
    result = run("> /dev/full", *(each.format(address) for each in arguments))

    assert result.returncode == 6
    assert result.stderr.startswith(b"Error: The result cannot be written: No space left")
    assert b"Traceback" not in result.stderr


def test_stream_that_the_caller_has_closed_takes_and_gives_nothing(address: str) -> None:
    shown = run(">&- 2>&-", "query", address)
    asked = run("<&-", "drop", address)

    assert (shown.returncode, shown.stderr) == (0, b"")
    assert asked.returncode == 1
    assert asked.stderr.endswith(b"Aborted.\n")
    assert run("", "query", address, "--count", "-o", "plain").stdout == b"1\n"

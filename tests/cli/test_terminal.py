"""Tables on a terminal: what does not fit is left out and named, and no word is broken."""

import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios

import pyarrow as pa
import pytest

import lakebed

pytestmark = pytest.mark.slow  # each asks a process


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    repository = lakebed.open_repository(str(tmp_path_factory.mktemp("lake")))
    schema = pa.schema([("id", pa.int64())])
    dataset = repository.create("d", lakebed.DatasetDescriptor(schema=schema))
    dataset.append(pa.table({"id": [1]}))
    dataset.append(pa.table({"id": [2]}))
    return repository.uri.removeprefix("file://")


def on_terminal(width: int, *arguments: str) -> tuple[list[str], str]:
    """Return what a terminal of a width shows, and the notes."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    command = [sys.executable, "-m", "lakebed", *arguments]
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:
        pass  # Linux says so when the other side is closed
    os.close(ours)
    notes = process.communicate()[1].decode()
    assert process.returncode == 0, notes
    return shown.decode().replace("\r\n", "\n").splitlines(), notes


@pytest.mark.parametrize("width", [40, 80, 120, 160])
def test_table_fits_the_terminal_and_names_what_it_leaves_out(lake, width):
    lines, notes = on_terminal(width, "history", f"{lake}/d")

    assert len(lines) == 2 + 3
    assert max(map(len, lines)) <= width
    names = lines[0].split()
    assert names[0] == "version"
    told = notes.partition("Too wide for this terminal: ")[2].partition(". See")[0]
    told = [name for name in told.split(", ") if name]
    assert not set(names) & set(told)
    assert "…" not in "".join(lines)
    assert len(names) + len(told) == 11


def test_table_with_room_for_all_leaves_nothing_out_and_shortens_nothing(lake):
    lines, notes = on_terminal(400, "history", f"{lake}/d")
    commit_ids = [commit.commit_id for commit in lakebed.open_repository(lake).open("d").history()]

    assert notes == ""
    assert [line.split()[-1] for line in lines[2:]] == commit_ids


def test_ids_are_shortened_before_a_column_goes(lake):
    whole, _ = on_terminal(400, "history", f"{lake}/d")

    lines, notes = on_terminal(len(max(whole, key=len)) - 5, "history", f"{lake}/d")

    assert notes == ""
    assert lines[-1].split()[-1] == whole[-1].split()[-1][:8]


def test_sentences_are_broken_between_words(lake, tmp_path):
    shutil.copytree(lake, tmp_path / "lake")
    dataset = lakebed.open_repository(str(tmp_path / "lake")).open("d")
    dataset.protect(version=1, reason="the yearly report was made of it and somebody may ask again")

    lines, _ = on_terminal(80, "protections", f"{tmp_path}/lake/d")

    words = " ".join(lines).split()
    assert {"yearly", "report", "somebody", "again"} <= set(words)
    assert max(map(len, lines)) <= 80


def test_pipe_gets_every_column_whole(lake, cli):
    header = cli("history", f"{lake}/d").stdout.splitlines()[0]

    assert len(header.split()) == 11


def test_history_shows_the_newest_commits_when_asked_for_some(lake, cli):
    lines = cli("history", f"{lake}/d", "-n", "1", "-o", "jsonl").stdout.splitlines()

    assert len(lines) == 1
    assert '"version": 2' in lines[0]

"""Tables on a terminal: what does not fit is left out and named, and no word is broken."""

import datetime as dt
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios

import pyarrow as pa
import pytest

import lakebed

pytestmark = pytest.mark.thorough  # each asks a process


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    repository = lakebed.open_repository(str(tmp_path_factory.mktemp("lake")))
    schema = pa.schema([("id", pa.int64())])
    dataset = repository.create("d", lakebed.DatasetDescriptor(schema=schema))
    dataset.append(pa.table({"id": [1]}))
    dataset.append(pa.table({"id": [2]}))
    return repository.uri.removeprefix("file://")


def on_terminal(
    width: int, *arguments: str, exit_code: int = 0, with_notes: bool = False
) -> tuple[list[str], str]:
    """Return what a terminal of a width shows, and the notes, which may go to it, too."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    command = [sys.executable, "-m", "lakebed", *arguments]
    notes_to = theirs if with_notes else subprocess.PIPE
    process = subprocess.Popen(command, stdout=theirs, stderr=notes_to, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:
        pass  # Linux says so when the other side is closed
    os.close(ours)
    notes = (process.communicate()[1] or b"").decode()
    assert process.returncode == exit_code, notes
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
    dataset.protections.add(
        version=1, reason="the yearly report was made of it and somebody may ask again"
    )

    lines, _ = on_terminal(80, "protection", "list", f"{tmp_path}/lake/d")

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


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """The address of a dataset whose files lie deep, beneath long names."""
    lake = lakebed.open_repository(tmp_path_factory.mktemp("long"))
    schema = pa.schema([("region", pa.string()), ("day", pa.date32()), ("id", pa.int64())])
    descriptor = lakebed.DatasetDescriptor(schema=schema, partition_by="day, region")
    dataset = lake.create("measurements-of-everything", descriptor)
    days = [dt.date(2026, 9, day) for day in range(1, 6)]
    rows = [{"region": f"region-{n}", "day": day, "id": n} for n in range(3) for day in days]
    dataset.append(pa.Table.from_pylist(rows, schema=schema))
    return dataset.uri.removeprefix("file://")


@pytest.mark.parametrize("width", [80, 120])
def test_files_show_rows_and_size_and_a_path_that_is_cut_in_its_middle(deep, width):
    lines, notes = on_terminal(width, "files", deep)

    paths = [file.location for file in lakebed.open_uri(f"dataset:{deep}").files()]
    assert lines[0].split()[:3] == ["path", "rows", "size_bytes"]
    assert max(map(len, lines)) <= width
    for line, path in zip(lines[2:], paths, strict=True):
        shown, row_count, size_bytes = line.split()[:3]
        lead, begin, end = shown.split("…")
        assert lead == ""
        assert begin.startswith("/day=2026-09-0")
        assert begin in path
        assert path.endswith(end)
        assert end.endswith(".parquet")
        assert row_count == "1"
        assert size_bytes.isdecimal()
    assert "Cut to fit: path." in notes


@pytest.mark.parametrize(
    "words", ["history", "batches", "files", "cleanup --dry-run", "drop --dry-run", "schema show"]
)
def test_no_note_and_no_table_breaks_inside_a_word(deep, words):
    width = 80
    whole = run(*words.split(), deep, "--quiet").stdout
    known = {*re.sub(r"(:\d\d)\.\d+Z", r"\1Z", whole).split(), *whole.split()}

    table, _ = on_terminal(width, *words.split(), deep)
    shown, _ = on_terminal(width, *words.split(), deep, with_notes=True)

    cells = {word for line in [table[0], *table[2:]] for word in line.split() if "…" not in word}
    assert cells <= known
    lines = [line for line in shown if "\x1b" not in line]  # a bar that moves
    # A word alone that is longer than the terminal, such as an address, is not broken.
    assert [line for line in lines if len(line) > width and " " in line.strip()] == []


@pytest.mark.parametrize("width", [40, 80])
def test_errors_break_between_words_and_commands_stay_whole(deep, width):
    slip, _ = on_terminal(width, "shwo", deep, exit_code=2, with_notes=True)
    pointer, _ = on_terminal(width, "vacuum", deep, exit_code=2, with_notes=True)
    mistake, _ = on_terminal(width, "list", deep, exit_code=2, with_notes=True)

    assert all(len(line) <= width for line in [*slip, *pointer])
    assert "There is no command 'shwo'. Did you mean 'show'?" in " ".join(slip)
    assert any("`lakebed cleanup --help`." in line for line in pointer)
    assert any(f"`lakebed show {deep}`" in line for line in mistake)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command line whose result goes to a pipe."""
    command = [sys.executable, "-m", "lakebed", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True)

"""How far a verb is: a bar on a terminal, lines elsewhere, and nothing of it among results."""

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

import lakebed
from lakebed.common import progress


def test_lines_tell_how_far_it_is_where_there_is_no_terminal(cli, address, monkeypatch):
    monkeypatch.setattr(progress, "LOG_INTERVAL_S", 0.0)

    told = cli("check", address, "--deep", "-o", "json")
    quiet = cli("check", address, "--deep", "-o", "json", "--quiet")

    assert json.loads(told.stdout) == json.loads(quiet.stdout) == []
    assert "INFO lakebed.common.progress: compare files of flights files=0/2" in told.stderr
    assert quiet.stderr == ""


def test_what_is_done_at_once_tells_nothing(cli, address):
    assert "progress" not in cli("check", address, "--deep").stderr


@pytest.mark.thorough  # asks a process
def test_interrupt_leaves_the_terminal_as_it_was_and_nothing_half_written(flights, write, tmp_path):
    address = str(tmp_path / "lake" / "flights")
    raw = write("many.csv", "time_hour,carrier\n" + "2013-01-01T05:00:00Z,UA\n" * 2_000_000)
    store = lakebed.open_repository(tmp_path / "lake").store
    before = {info.key for info in store.list("flights/data/")}
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "lakebed", "import", address, str(raw), "--local"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            if b"rows" in piece and b"rows" not in shown:
                process.send_signal(signal.SIGINT)
            shown += piece
    except OSError:
        pass  # Linux says so when the other side is closed
    os.close(ours)
    stdout, _ = process.communicate()

    assert process.returncode == 130, shown.decode()
    assert stdout == b""
    assert b"0 of 1 file" in shown
    assert b"Aborted." in shown
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")  # the cursor is back
    assert {info.key for info in store.list("flights/data/")} == before
    assert flights.version == 1
    assert flights.check(deep=True).is_ok

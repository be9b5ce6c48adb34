"""Publication to Delta and Iceberg on the command line."""

import os
import socket
import subprocess
import sys

import pytest


@pytest.mark.parametrize("door", ["--delta", "--iceberg"])
def test_table_is_published_checked_mended_and_dropped(cli, address, flights, door) -> None:
    done = cli.json("publish", address, door)
    assert (done["created"], done["is_in_step"], done["version"]) == (True, True, flights.version)
    assert done["kind"] == door[2:]
    assert cli.json("publish", address, door, "--check")["was_in_step"]

    flights.delete(flights.where("flight >= 0"))
    checked = cli("publish", address, door, "--check", "-o", "json", exit_code=1)
    assert "not in step" in checked.stderr
    assert cli.json("publish", address, door, "--repair")["removed_count"] > 0
    assert cli.json("unpublish", address, door)["is_dropped"]
    assert not cli.json("unpublish", address, door)["was_there"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "Give --table for a Hive table, or --delta, or --iceberg"),
        (["--delta", "--iceberg"], "only one of --delta and --iceberg"),
        (["--delta", "--table", "a.b"], "no name"),
        (["--delta", "--catalog", "prod"], "--catalog is for --iceberg"),
        (["--delta", "--mode", "batches"], "--mode is for a Hive table"),
        (["--delta", "--root", "s3://b"], "leave --root out"),
        (["--delta", "--metastore", "thrift://h:1"], "--metastore is for a Hive table"),
        (["--table", "a.b", "--metastore", "hive:9083"], "--metastore is thrift://HOST:PORT"),
        (["--table", "a.b", "--warehouse", "hive:9083"], "'hive:9083' is no metastore"),
        (["--delta", "--check", "--repair"], "only one of --check and --repair"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    cli, address, flights, options, said, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))

    done = cli("publish", address, *options, exit_code=2)

    assert said in done.stderr.replace("\n", " ")
    assert sorted(tmp_path.rglob("*")) == before


def test_metastore_that_nobody_answers_for_is_told_without_a_session(address, flights) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens there
        place = f"thrift://127.0.0.1:{unused.getsockname()[1]}"
        # In another process: in this one a session of other tests may run.
        done = subprocess.run(
            [
                *(sys.executable, "-m", "lakebed", "publish", address),
                *("--table", "a.b", "--metastore", place),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JAVA_HOME": "/nowhere"},
            capture_output=True,
            text=True,
            check=False,
        )

    assert done.returncode == 6, done.stderr
    assert f"No metastore answers at {place}: Connection refused" in done.stderr


@pytest.mark.parametrize("day", ["infinity", "0044-03-15 (BC)"])
def test_answer_that_python_cannot_hold_is_an_error_with_what_to_ask_for(cli, lake, day) -> None:
    place = lake.uri

    error = cli.error("sql", place, f"SELECT 1 AS n, DATE '{day}' AS day")
    text = cli.json("sql", place, f"SELECT DATE '{day}'::VARCHAR AS day")

    assert (error["code"], error["exit_code"]) == ("invalid-input", 2)
    assert "Column 'day'" in error["message"]
    assert "CAST" in error["hint"]
    assert text == [{"day": day}]

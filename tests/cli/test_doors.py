"""Publication to Delta and Iceberg on the command line."""

import dataclasses
import json
import os
import socket
import subprocess
import sys

import pyarrow as pa
import pytest

import lakebed
from lakebed.tables.outcome import Publication


@pytest.mark.parametrize("door", ["delta", "iceberg"])
def test_table_is_published_checked_mended_and_dropped(cli, address, flights, door) -> None:
    done = cli.json("publish", door, address)
    assert (done["created"], done["is_in_step"], done["version"]) == (True, True, flights.version)
    assert done["kind"] == door
    facts = {field.name for field in dataclasses.fields(Publication)}
    assert done.keys() == {*facts, "is_in_step", "was_in_step"}
    assert cli.json("publish", door, address, "--check")["was_in_step"]

    flights.delete(flights.where("flight >= 0"))
    checked = cli("publish", door, address, "--check", "-o", "json", exit_code=1)
    assert "not in step" in checked.stderr
    assert cli.json("publish", door, address, "--repair")["removed_count"] > 0
    assert cli.json("unpublish", door, address)["is_dropped"]
    assert not cli.json("unpublish", door, address)["was_there"]


def test_batch_ids_are_hidden_and_shown(cli, address, flights) -> None:
    cli.json("publish", "iceberg", address, "--hide-batch-id")
    assert cli.json("publish", "iceberg", address, "--check")["was_in_step"]
    refused = cli("publish", "iceberg", address, "--show-batch-id", exit_code=2)
    assert "was published without the column 'batch_id'" in refused.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["all"], "Set publish.delta, publish.iceberg or publish.hive to true, or name the target"),
        (["delta", "--table", "a.b"], "No such option … --table"),
        (["delta", "--catalog", "prod"], "No such option … --catalog"),
        (["delta", "--root", "s3://b"], "No such option … --root"),
        (["iceberg", "--metastore", "thrift://h:1"], "No such option … --metastore"),
        (["hive"], "Missing option '--table'"),
        (["hive", "--table", "a.b", "--since", "1"], "Give --since with --print-sql"),
        (
            ["hive", "--table", "a.b", "--metastore", "hive:9083"],
            "--metastore takes thrift://HOST:PORT",
        ),
        (
            ["hive", "--table", "a.b", "--warehouse", "hive:9083"],
            "'hive:9083' does not name a metastore",
        ),
        (["delta", "--check", "--repair"], "only one of --check and --repair"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    cli, address, flights, options, said, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))

    done = cli("publish", options[0], address, *options[1:], exit_code=2)

    told = done.stderr.replace("\n", " ")
    assert all(part in told for part in said.split(" … ")), told  # click 8.1 quotes no names
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "now"),
    [
        (("publish", "lake/t", "--delta"), "publish delta lake/t"),
        (("publish", "--iceberg", "lake/t", "--catalog=p"), "publish iceberg lake/t"),
        (("publish", "lake/t", "--table", "a.b"), "publish hive lake/t"),
        (("publish", "lake/t"), "publish all lake/t"),
        (("unpublish", "lake/t", "--delta"), "unpublish delta lake/t"),
        (("unpublish", "lake/t"), "unpublish FORMAT lake/t"),
    ],
)
def test_dataset_before_the_format_is_refused_with_the_spelling_of_now(cli, words, now) -> None:
    done = cli(*words, exit_code=2)

    assert f"The format comes first: lakebed {now}." in done.stderr.replace("\n", " ")


def test_metastore_that_nobody_answers_for_is_told_without_a_session(address, flights) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens there
        place = f"thrift://127.0.0.1:{unused.getsockname()[1]}"
        # In another process: in this one a session of other tests may run.
        done = subprocess.run(
            [
                *(sys.executable, "-m", "lakebed", "publish", "hive", address),
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


@pytest.fixture
def automatic(lake):
    """Return the address of a dataset that each commit publishes."""
    schema = pa.schema([("p", pa.string()), ("n", pa.int64())])
    properties = {"publish.delta": "true", "publish.iceberg": "true"}
    lake.create(
        "auto", lakebed.DatasetDescriptor(schema=schema, partition_by="p", properties=properties)
    )
    return f"{lake.uri.removeprefix('file://')}/auto"


def rows_in(tmp_path, *partitions: str) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"p": name, "n": 1}) + "\n" for name in partitions))
    return str(path)


@pytest.mark.parametrize("verb", ["append", "overwrite", "import", "ingest"])
def test_verb_whose_commit_a_table_cannot_show_ends_with_a_code_of_its_own(
    cli, automatic, tmp_path, verb
):
    cli("append", automatic, rows_in(tmp_path, "a"))
    path = rows_in(tmp_path, "")  # which Delta takes for null
    words = (path, "--into", automatic) if verb == "ingest" else (automatic, path)

    done = cli(verb, *words, "-o", "json", exit_code=9)

    assert json.loads(done.stdout)["version"] == 2, "the result of the commit is there"
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert error["code"] == "not-published"
    assert "'auto' is committed, but not published to delta:" in error["message"]
    assert "next commit" in error["hint"]
    assert cli.json("show", automatic)["version"] == 2
    assert cli.json("show", automatic)["published"] == [
        {"kind": "delta", "table": None, "version": 1, "is_in_step": False},
        {"kind": "iceberg", "table": None, "version": 2, "is_in_step": True},
    ]
    assert "delta: version 1 of 2, NOT in step" in cli("show", automatic).stdout
    assert "Not published: delta shows version 1 of 2." in cli("history", automatic).stderr
    assert cli("publish", "all", automatic, exit_code=9).stderr.count("Error: ") == 1
    page = tmp_path / "report.html"
    cli("report", automatic, "--file", page)
    assert (
        "delta shows version 1 of 2, although each commit should be published" in page.read_text()
    )

    cli("delete", automatic, "--where", "p = ''", "--yes")

    assert {table["is_in_step"] for table in cli.json("publish", "all", automatic)} == {True}
    assert "Not published" not in cli("history", automatic).stderr


def test_append_without_a_metastore_says_how_to_name_one(lake, tmp_path):
    properties = {"publish.hive": "true", "publish.hive.table": "a.b"}
    schema = pa.schema([("p", pa.string()), ("n", pa.int64())])
    lake.create("hived", lakebed.DatasetDescriptor(schema=schema, properties=properties))
    address = f"{lake.uri.removeprefix('file://')}/hived"

    # In another process: in this one a session of other tests may run.
    done = subprocess.run(
        [*(sys.executable, "-m", "lakebed", "append", address), rows_in(tmp_path, "a")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 9, done.stderr
    assert "not published to hive a.b: No Spark session is running" in done.stderr
    assert "LAKEBED_METASTORE" in done.stderr
    assert lake.open("hived").count() == 1

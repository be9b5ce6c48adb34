"""Each verb gives a valid result in each form of output."""

import csv
import datetime as dt
import io
import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.cli import main
from lakebed.cli.output import OutputFormat
from lakebed.common.plain import to_plain

AVRO = json.dumps(
    {"type": "record", "name": "planes", "fields": [{"name": "seats", "type": "int"}]}
)

DIMENSIONS = json.dumps(
    {"version": 1, "dimensions": [{"field_name": "channel", "allowed_values": ["beta", "esr"]}]}
)

# What follows the verb; {lake} is a repository with the dataset `flights`.
CALLS = {
    "create": "{lake}/planes --schema {schema}",
    "import": "{lake}/imported {csv}",
    "ingest": "{rows} --into {lake}/flights --local",
    "append": "{lake}/flights {rows}",
    "overwrite": "{lake}/flights {rows}",
    "merge": "{lake}/flights {rows} --on carrier",
    "update": "{lake}/flights --set carrier='DL' --where flight=7",
    "delete": "{lake}/flights --where flight=7 --yes",
    "show": "{lake}/flights",
    "history": "{lake}/flights",
    "sources": "{lake}/flights",
    "schema": "show {lake}/flights",
    "index": "show {lake}/flights",
    "query": "{lake}/flights",
    "explain": "{lake}/flights --where flight=7",
    "files": "{lake}/flights",
    "sql": "{lake} FROM/**/flights",
    "list": "{lake}",
    "drop": "{lake}/flights --yes",
    "batches": "{lake}/flights",
    "rerun": "{lake}/flights {rows} --run first --replace-all",
    "diff": "{lake}/flights 0 1",
    "changes": "{lake}/flights 0 1",
    "rollback": "{lake}/flights --version 0",
    "staged": "list {lake}/flights",
    "protection": "list {lake}/flights",
    "cleanup": "{lake}/flights",
    "compact": "{lake}/flights",
    "promote": "{lake}/pings {dimensions}",
    "check": "{lake}/flights",
    "publish": "hive {lake}/flights --table lake.{table}",
    "unpublish": "hive {lake}/flights --table lake.{table}",
    "adopt": "{lake}/plain",
    "export": "{lake}/lines {lake}/tree --telemetry",
    "archive": "init --storage {lake}/raw",
    "doctor": "{lake}",
    "report": "{lake} --file {csv}.html",
    "run": "{pipeline}",
    "runs": "{lake}",
    "maintain": "{lake}",
    "erase": "{lake}/flights --where flight=7 --reason request --grace 0s --yes",
}
OTHER_SHAPES = {
    "show --partitions": "{lake}/flights",
    "schema infer": "{csv}",
    "schema add": "{lake}/flights note string",
    "schema change-type": "{lake}/flights flight long",
    "schema drop": "{lake}/flights flight",
    "schema rename": "{lake}/flights flight number",
    "schema show": "{lake}/flights --history",
    "schema update": "{lake}/flights --property owner=ops",
    "maintain --dry-run": "{lake}",
    "index build": "{lake}/flights carrier",
    "index drop": "{lake}/flights flight",
    "query --count": "{lake}/flights",
    "query --limit=0": "{lake}/flights",
    "merge --dry-run": "{lake}/flights {rows} --on carrier",
    "delete --dry-run": "{lake}/flights --where flight=7",
    "delete --yes": "{lake}/flights --where flight=8",
    "drop --dry-run": "{lake}/flights",
    "compact --dry-run": "{lake}/flights",
    "compact --metadata": "{lake}/flights",
    "compact --head=msgpack": "{lake}/flights",
    "promote --dry-run": "{lake}/pings {dimensions}",
    "rerun --empty": "{lake}/flights --run first",
    "diff --rows": "{lake}/flights 0 --columns carrier,flight",
    "rollback --dry-run": "{lake}/flights --version 0",
    "rollback --version=1": "{lake}/flights",
    "staged add": "{lake}/flights {rows}",
    "staged commit": "{lake}/flights {staged} --not-null time_hour",
    "staged discard": "{lake}/flights {staged} --yes",
    "protection add": "{lake}/flights --version 1 --reason audit",
    "protection remove": "{lake}/flights --version 0",
    "staged commit --dry-run": "{lake}/flights {staged} --check flight>0 --unique carrier",
    "staged discard --dry-run": "{lake}/flights {staged}",
    "cleanup --yes": "{lake}/flights --older-than 0s --kept",
    "cleanup --dry-run": "{lake}/flights --older-than 0s --kept",
    "append --dry-run": "{lake}/flights {rows}",
    "import --dry-run": "{lake}/imported {csv}",
    "staged add --dry-run": "{lake}/flights {rows}",
    "index build --dry-run": "{lake}/flights carrier",
    "publish hive": "{lake}/flights --table lake.{table} --dry-run",
    "publish hive --print-sql": "{lake}/flights --table lake.{table}",
    "publish delta": "{lake}/flights",
    "publish iceberg": "{lake}/flights --repair",
    "unpublish delta": "{lake}/flights",
    "unpublish iceberg": "{lake}/flights --dry-run",
    "adopt --dry-run": "{lake}/plain",
    "check --deep": "{lake}/flights --repair",
}


def check_json(text: str) -> None:
    assert isinstance(json.loads(text, parse_constant=pytest.fail), list | dict)


def check_json_lines(text: str) -> None:
    for line in text.splitlines():
        assert isinstance(json.loads(line, parse_constant=pytest.fail), dict)


def check_csv(text: str) -> None:
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert rows
    assert {len(row) for row in rows} == {len(rows[0])}


def check_table(text: str) -> None:
    assert text.isascii()
    assert "\x1b" not in text
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


def check_plain(text: str) -> None:
    assert text.isprintable() or text.endswith("\n")
    assert "\x1b" not in text


CHECKS: dict[str, Callable[[str], None]] = {
    "json": check_json,
    "jsonl": check_json_lines,
    "csv": check_csv,
    "table": check_table,
    "plain": check_plain,
}


def needs_spark(verb: str) -> bool:
    is_publication = verb.split()[0] in ("publish", "unpublish")
    return is_publication and not any(one in verb for one in ("delta", "iceberg", "--print-sql"))


def test_every_verb_and_every_format_is_checked() -> None:
    # What a shell reads, pages, and the draft of a pipeline have one form.
    others = {"completion", "init", "serve"}
    assert set(CALLS) == set(main.list_commands(None)) - others
    assert set(CHECKS) == {str(one) for one in OutputFormat}


# Lines and cells are the same rows as JSON, written by the same code for all verbs.
@pytest.mark.parametrize(
    "output",
    [
        pytest.param(output, marks=[pytest.mark.thorough] if output in ("jsonl", "csv") else [])
        for output in CHECKS
    ],
)
@pytest.mark.parametrize(
    ("verb", "call"),
    [
        pytest.param(verb, call, marks=[pytest.mark.spark] if needs_spark(verb) else [])
        for verb, call in {**CALLS, **OTHER_SHAPES}.items()
    ],
)
def test_result_is_valid(cli, address, write, request, verb: str, call: str, output: str) -> None:
    if needs_spark(verb):
        request.getfixturevalue("spark")
    if verb == "index drop":
        cli("index", "build", address, "flight")
    if verb in ("protection", "protection remove"):
        cli("protection", "add", address, "--version", 0, "--reason", "a test")
    places = {
        "lake": str(Path(address).parent),
        "schema": write("planes.avsc", AVRO),
        "rows": write("rows.jsonl", '{"time_hour": "2013-01-01T00:00:00", "carrier": "UA"}\n'),
        "csv": write("rows.csv", "a,b\n1,x\n"),
        "table": uuid.uuid4().hex,
    }
    plain = write("lake/plain/rows.parquet", "")
    pq.write_table(pa.table({"n": [1]}), plain)
    if "{lake}/lines" in call:
        lines = write("lines.tsv", 'a1\t{"channel": "beta"}\n')
        cli("import", f"{places['lake']}/lines", lines, "--partition-by", "channel")
    if "{pipeline}" in call:
        text = (
            f'[source]\npaths = "{places["rows"]}"\n[dataset]\ninto = "{places["lake"]}/flights"\n'
        )
        places["pipeline"] = write("flights.toml", text)
    if "{staged}" in call:
        rows = [{"time_hour": dt.datetime(2013, 1, 3, tzinfo=dt.UTC), "flight": 1}]
        waiting = request.getfixturevalue("flights").staged.add(rows)
        places["staged"] = str(waiting.batch_id)
    if "{dimensions}" in call:
        request.getfixturevalue("pings")
        places["dimensions"] = write("dimensions.json", DIMENSIONS)
    arguments = [one.format(**places) for one in call.split()]

    result = cli(*verb.split(), *arguments, "--output", output)

    CHECKS[output](result.stdout)


def test_json_flag_is_short_for_the_option(cli, address) -> None:
    assert cli("show", address, "--json").stdout == cli("show", address, "-o", "json").stdout


def test_values_have_one_form_that_json_can_hold(cli, address) -> None:
    rows = cli.json("query", address)

    assert rows[0] == {
        "time_hour": "2013-01-01T05:00:00Z",
        "carrier": "UA",
        "flight": 1545,
        "delay": 2.5,
        "price": "10.25",
        "day": "2013-01-01",
    }
    assert [row["delay"] for row in rows] == [2.5, "NaN", "-Infinity", None]
    assert rows[2]["time_hour"] == "2013-01-02T07:30:00.250000Z"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (b"\x00\xff", "AP8="),
        (dt.datetime(2013, 1, 1, 5), "2013-01-01T05:00:00"),
        (
            dt.datetime(2013, 1, 1, 5, tzinfo=dt.timezone(dt.timedelta(hours=1))),
            "2013-01-01T04:00:00Z",
        ),
        ({"deep": [float("inf"), None, True]}, {"deep": ["Infinity", None, True]}),
    ],
)
def test_value_becomes_plain(value: object, plain: object) -> None:
    assert to_plain(value) == plain


def test_null_and_empty_text_differ_in_csv(cli, address) -> None:
    told = cli("query", address, "-o", "csv", "--columns", "carrier,flight").stdout

    assert told.endswith(',-1\n"",7\n')


def test_data_cannot_break_a_table(cli, address) -> None:
    lines = cli("query", address, "--where", "carrier is not null and flight is null").stdout

    assert len(lines.splitlines()) == 3
    assert 'a "quoted", name\\nof two lines' in lines


def test_table_shows_null_and_aligns_numbers(cli, address) -> None:
    lines = cli("query", address, "--columns", "flight,carrier").stdout.splitlines()

    assert lines[0].split() == ["flight", "carrier"]
    assert lines[4].startswith("    -1   null")

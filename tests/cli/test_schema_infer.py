"""schema infer: an Avro schema for files."""

import json

from lakebed import DatasetDescriptor

CSV = "code,n,at\n007,-1,2013-06-01\nNA,2e3,2013-06-01T10:00:00Z\n"


def test_result_is_a_schema_that_create_takes(cli, lake, write, tmp_path) -> None:
    rows = write("rows.csv", CSV)

    told = cli.json("schema", "infer", rows, "--null-text", "NA", "--require", "n", "--name", "row")

    assert told["name"] == "row"
    descriptor = DatasetDescriptor(schema=told)
    assert [f"{one.name}: {one.type}" for one in descriptor.schema] == [
        "code: string",
        "n: double",
        "at: timestamp",
    ]
    assert [one.nullable for one in descriptor.schema] == [True, False, True]
    schema = write("rows.avsc", json.dumps(told))
    cli("create", f"{lake.uri}/rows", "--schema", schema)
    cli("append", f"{lake.uri}/rows", rows, "--null-text", "NA")
    assert [row["code"] for row in lake.open("rows").kite.reader()] == ["007", None]


def test_table_shows_the_fields_and_a_file_keeps_the_schema(cli, write, tmp_path) -> None:
    rows = write("rows.csv", CSV)

    told = cli("schema", "infer", rows, "--to", tmp_path / "rows.avsc").stdout

    assert told.splitlines()[2].split() == ["code", "string", "true"]
    document = json.loads((tmp_path / "rows.avsc").read_text())
    assert document["type"] == "record"


def test_rows_bounds_what_is_looked_at(cli, write) -> None:
    rows = write("rows.jsonl", '{"a": 1}\n{"a": "x"}\n')

    assert cli.json("schema", "infer", rows, "--rows", "1")["fields"][0]["type"] == ["null", "long"]
    error = cli.error("schema", "infer", rows)
    assert "line 1" in error["message"]
    assert "line 2" in error["message"]
    assert error["exit_code"] == 2


def test_bad_name_becomes_a_legal_one(cli, write) -> None:
    schema = cli.json("schema", "infer", write("a.csv", "dep.delay\n1\n"))

    assert [field["name"] for field in schema["fields"]] == ["dep_delay"]

"""--base: what somebody else has committed since it was looked at is not lost."""

import datetime as dt
import json

import click
import pyarrow as pa
import pytest

import lakebed
from lakebed.model.avro import schema_to_avro

MOMENT = dt.datetime(2013, 1, 2, 9, tzinfo=dt.UTC)
ROW = "time_hour,carrier,flight\n2013-01-01 10:00,AA,1\n"
VERBS = {
    "append": (),
    "overwrite": (),
    "rerun": ("--run", "first", "--replace-all"),
    "staged add": ("--operation", "overwrite"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_writing_verbs_refuse_what_was_made_from_an_older_version(
    cli, flights, address, write, verb: str
) -> None:
    rows = write("rows.csv", ROW)
    taken_out = flights.where("flight = 1545").delete()
    arguments = (*verb.split(), address, rows, *VERBS[verb])

    if verb == "staged add":
        (batch, *_) = cli.json(*arguments, "--base", 1).values()
        error = cli.error("staged", "commit", address, batch)
    else:
        error = cli.error(*arguments, "--base", 1)

    assert (error["code"], error["exit_code"]) == ("commit-conflict", 5)
    assert taken_out.commit_id in error["message"]
    assert flights.version == 2
    cli(*arguments, "--base", 2)
    assert flights.version == (2 if verb == "staged add" else 3)


def test_delete_and_rollback_too(cli, flights, address) -> None:
    flights.append([{"time_hour": MOMENT, "flight": 9}])
    where = ("--where", "dt = '2013-01-02'")

    error = cli.error("delete", address, *where, "--yes", "--base", 1)
    assert "the append that made version 2" in error["message"]
    error = cli.error("rollback", address, "--version", 0, *where, "--base", 1)
    assert "the append that made version 2" in error["message"]

    assert flights.version == 2
    cli("rollback", address, "--version", 1, "--base", 2)
    assert flights.count() == 4


def test_delete_takes_no_more_than_was_confirmed(
    cli, flights, address, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def confirm(question: str, **_: object) -> None:
        asked.append(question)
        flights.append([{"time_hour": MOMENT, "flight": 7}])

    monkeypatch.setattr(click, "confirm", confirm)
    error = cli.error("delete", address, "--where", "flight = 7")

    assert asked == ["Delete 1 row in 1 file of 1 partition?"]
    assert "the append that made version 2" in error["message"]
    assert flights.where("flight = 7").count() == 2


def test_schema_update_keeps_what_others_added(cli, lake, tmp_path, write) -> None:
    fields = [("n", pa.int64())]
    dataset = lake.create("d", lakebed.DatasetDescriptor(schema=pa.schema(fields)))
    schema = '{"type": "record", "name": "d", "fields": [{"name": "n", "type": ["null", "long"]}]}'
    mine = write("d.avsc", schema.replace("]}]", ']}, {"name": "mine", "type": ["null", "int"]}]'))
    dataset.evolve(
        lakebed.DatasetDescriptor(schema=pa.schema([*fields, ("theirs", pa.int64())])),
        base=dataset.version,
    )

    error = cli.error("schema", "update", f"{lake.uri}/d", "--schema", mine, "--base", 0)

    assert error["code"] == "commit-conflict"
    assert "the update that made version 1" in error["message"]
    cli("schema", "update", f"{lake.uri}/d", "--property", "owner=ops")
    assert dataset.schema.names == ("n", "theirs")
    cli("schema", "update", f"{lake.uri}/d", "--schema", mine, "--base", 2)
    assert dataset.schema.names == ("n", "mine")


def test_schema_without_a_field_of_the_dataset_needs_the_version_that_it_was_made_from(
    cli, lake, write
) -> None:
    position = pa.struct([("latitude", pa.float64()), ("longitude", pa.float64())])
    fields = [("n", pa.int64()), ("theirs", pa.int64()), ("position", position)]
    dataset = lake.create("d", lakebed.DatasetDescriptor(schema=pa.schema(fields)))
    shorter = lakebed.DatasetDescriptor(
        schema=pa.schema([fields[0], ("position", pa.struct([("latitude", pa.float64())]))])
    )
    mine = write("d.avsc", json.dumps(schema_to_avro(shorter.schema)))

    error = cli.error("schema", "update", f"{lake.uri}/d", "--schema", mine)

    assert "lacks 'position.longitude, theirs'" in error["message"]
    assert "--base" in error["hint"]
    assert dataset.version == 0
    cli("schema", "update", f"{lake.uri}/d", "--schema", mine, "--base", 0)
    assert dataset.schema.names == ("n", "position")

"""`lakebed schema`: what a dataset's fields are, were and shall be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import lakebed

TEXT = ["null", "string"]


def avro(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "plane", "fields": list(fields)})


SEATS = {"name": "seats", "type": "int"}
WIDER = [
    {"name": "seats", "type": "long", "doc": "All of them."},
    {"name": "maker", "type": "string", "default": "unknown"},
]


def planes(tmp_path: Path) -> str:
    descriptor = lakebed.DatasetDescriptor(schema=avro(SEATS), properties={"owner": "ops"})
    dataset = lakebed.open_repository(tmp_path).create("planes", descriptor)
    dataset.append([{"seats": 3}])
    return f"{tmp_path}/planes"


def test_update_changes_the_schema_and_keeps_the_rest(
    cli: Any, write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    address = planes(tmp_path)

    commit = cli.json("schema", "update", address, "--schema", write("new.avsc", avro(*WIDER)))

    assert (commit["operation"], commit["version"]) == ("update", 2)
    assert cli.json("query", address) == [{"seats": 3, "maker": "unknown"}]
    dataset = lakebed.open_repository(tmp_path).open("planes")
    assert dataset.descriptor.properties == {"owner": "ops"}


def test_update_adds_properties(cli: Any, tmp_path: Path) -> None:
    address = planes(tmp_path)

    cli("schema", "update", address, "--property", "team=a", "--property", "owner=dev")

    dataset = lakebed.open_repository(tmp_path).open("planes")
    assert dataset.descriptor.properties == {"owner": "dev", "team": "a"}


def test_an_update_that_changes_nothing_says_so(cli: Any, tmp_path: Path) -> None:
    address = planes(tmp_path)

    result = cli("schema", "update", address, "--property", "owner=ops")

    assert "properties already" in result.stderr
    assert lakebed.open_repository(tmp_path).open("planes").version == 1


def test_a_refused_update_says_why(
    cli: Any, write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    address = planes(tmp_path)
    text = write("new.avsc", avro({"name": "seats", "type": TEXT}))

    result = cli("schema", "update", address, "--schema", text, exit_code=2)

    assert "'seats' is of type int in schema 1 and cannot become string" in result.stderr


def test_an_update_of_nothing_is_refused(cli: Any, tmp_path: Path) -> None:
    assert "Give --schema" in cli("schema", "update", planes(tmp_path), exit_code=2).stderr


def test_show_tells_since_when_a_field_is_there(
    cli: Any, write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    address = planes(tmp_path)
    cli("schema", "update", address, "--schema", write("new.avsc", avro(*WIDER)))

    assert cli.json("schema", "show", address) == [
        {
            "field": "seats",
            "type": "long",
            "nullable": False,
            "default": None,
            "since": 1,
            "doc": "All of them.",
        },
        {
            "field": "maker",
            "type": "string",
            "nullable": False,
            "default": "unknown",
            "since": 2,
            "doc": "",
        },
    ]
    assert [row["field"] for row in cli.json("schema", "show", address, "--version", 1)] == [
        "seats"
    ]


def test_history_tells_what_changed(
    cli: Any, write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    address = planes(tmp_path)
    cli("schema", "update", address, "--schema", write("new.avsc", avro(*WIDER)))

    first, second = cli.json("schema", "show", address, "--history")

    assert (first["schema"], first["version"], first["changes"]) == (1, 0, "")
    assert (second["schema"], second["version"], second["field_count"]) == (2, 2, 2)
    assert second["changes"] == "seats: int to long, seats: doc, +maker: string"


def test_rename_gives_a_field_another_name(cli: Any, tmp_path: Path) -> None:
    address = planes(tmp_path)

    commit = cli.json("schema", "rename", address, "seats", "places")

    assert (commit["operation"], commit["version"]) == ("update", 2)
    assert cli.json("query", address, "--where", "places = 3") == [{"places": 3}]
    assert cli.json("query", address, "--version", 1) == [{"seats": 3}]
    (field,) = cli.json("schema", "show", address)
    assert (field["field"], field["since"]) == ("places", 1)
    changes = [one["changes"] for one in cli.json("schema", "show", address, "--history")]
    assert changes == ["", "seats renamed to places"]
    (held,) = lakebed.open_repository(tmp_path).open("planes").files()
    assert pq.read_schema(tmp_path / held.key).names == ["seats"]


def test_a_rename_that_cannot_be_is_refused_by_name(cli: Any, tmp_path: Path) -> None:
    address = planes(tmp_path)

    assert (
        "Unknown column 'seat'"
        in cli.error("schema", "rename", address, "seat", "places")["message"]
    )
    cli("schema", "update", address, "--property", "publish.delta=true")
    error = cli.error("schema", "rename", address, "seats", "places")
    assert error["message"].startswith("Delta cannot show the renamed field 'places'")
    assert "publish to Iceberg" in error["hint"]


def test_a_rename_to_the_same_name_says_so(cli: Any, tmp_path: Path) -> None:
    address = planes(tmp_path)

    assert "has this name already" in cli("schema", "rename", address, "seats", "seats").stderr

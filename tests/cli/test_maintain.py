"""`lakebed maintain` through the command line."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pytest
from heads import change_entries, rename_property

import lakebed
from lakebed.errors import InvalidInputError
from lakebed.store import open_store

SCHEMA = pa.schema([("day", pa.date32()), ("n", pa.int64())])
TODAY = dt.datetime.now(dt.UTC).date()


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    lake = lakebed.open_repository(tmp_path / "lake")
    for name in ("clicks", "sales"):
        dataset = lake.create(
            name, SCHEMA, partition_by="day", properties={"retention.keep": "30d"}
        )
        for n in range(8):
            dataset.append([{"day": TODAY, "n": n}])
    lake.open("sales").append([{"day": TODAY - dt.timedelta(days=40), "n": 9}])
    return tmp_path / "lake"


def test_each_step_is_a_line(cli, lake: Path) -> None:
    planned = cli("maintain", lake, "--dry-run").stdout.splitlines()
    lines = cli("maintain", lake).stdout.splitlines()

    assert [line.split()[:3] for line in lines] == [
        ["clicks", "retain", "nothing"],
        ["clicks", "compact", "done"],
        ["clicks", "metadata", "nothing"],
        ["clicks", "cleanup", "nothing"],
        ["sales", "retain", "done"],
        ["sales", "compact", "done"],
        ["sales", "metadata", "nothing"],
        ["sales", "cleanup", "nothing"],
    ]
    assert "1 row in 1 partition, 1 file of" in lines[4]
    assert "8 files to 1 in 1 partition" in lines[5]
    assert "8 files to 1 in 1 partition; 10 requests" in planned[5]
    again = cli("maintain", lake).stdout.splitlines()
    assert {line.split()[2] for line in again} == {"nothing"}


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "plain"])
def test_each_step_is_a_record(cli, lake: Path, form: str) -> None:
    out = cli("maintain", lake, "-o", form, "--dataset", "sales").stdout

    match form:
        case "json":
            names = [one["dataset"] for one in json.loads(out)]
        case "jsonl":
            names = [json.loads(line)["dataset"] for line in out.splitlines()]
        case "csv":
            names = [line.partition(",")[0] for line in out.splitlines()[1:]]
        case _:
            names = out.splitlines()
    assert names == ["sales"] * 4


def test_options(cli, lake: Path) -> None:
    (one,) = cli.json("maintain", lake, "--only", "retain", "--dataset", "sales", "--dry-run")
    assert one["facts"]["row_count"] == 1
    few = cli.json("maintain", lake, "--only", "compact", "--min-files", 9)
    assert [step["status"] for step in few] == ["nothing"] * 2
    small = cli.json("maintain", lake, "--only", "compact", "--target-size", "1", "--dry-run")
    assert [step["status"] for step in small] == ["nothing"] * 2
    cli("maintain", lake)
    cleaned = cli.json("maintain", lake, "--older-than", "0s", "--only", "cleanup")
    assert [step["status"] for step in cleaned] == ["done"] * 2


def test_mistakes(cli, lake: Path, tmp_path: Path) -> None:
    assert cli.error("maintain", lake, "--dataset", "sale")["code"] == "dataset-not-found"
    assert "compat" in cli("maintain", lake, "--only", "compat", exit_code=2).stderr
    assert "is not a size" in cli("maintain", lake, "--target-size", "x", exit_code=2).stderr
    assert "not a repository" in cli("maintain", lake / "sales", exit_code=2).stderr
    assert "There is no dataset" in cli("maintain", tmp_path / "none").stderr


def test_a_failure_is_shown_and_the_others_are_maintained(cli, lake: Path) -> None:
    rename_property(open_store(lake), "clicks", "retention.keep", "retention.kep")

    shown = cli("maintain", lake, exit_code=InvalidInputError("").exit_code)

    assert "clicks, retain: Unknown property 'retention.kep'" in shown.stderr
    assert "sales   retain    done" in shown.stdout
    assert "clicks  cleanup   skipped" in shown.stdout
    rows = json.loads(cli("maintain", lake, "-o", "json", exit_code=2).stdout)
    assert rows[0]["error"]["code"] == "invalid-input"


def test_a_dataset_that_is_skipped_has_a_line(cli, lake: Path) -> None:
    change_entries(open_store(lake), "clicks", {"lakebed.format_version": "99"})

    first, *_ = cli("maintain", lake).stdout.splitlines()
    (record, *_) = cli.json("maintain", lake)

    assert first.startswith("clicks  -         skipped")
    assert (record["dataset"], record["step"], record["status"]) == ("clicks", None, "skipped")


def test_properties_are_set_shown_and_removed(cli, lake: Path) -> None:
    address = f"{lake}/sales"
    cli("schema", "update", address, "--property", "retention.delete_where=n = 9")

    assert "keep 30d; delete where n = 9" in cli("show", address).stdout
    assert cli.json("show", address)["properties"]["retention.keep"] == "30d"
    error = cli.error("schema", "update", address, "--property", "retention.keep=30")
    assert "retention.keep" in error["message"]
    planned = cli(
        "schema", "update", address, "--drop-property", "retention.keep", "--dry-run"
    ).stderr
    assert "Would change property retention.keep: removed" in planned
    cli("schema", "update", address, "--drop-property", "retention.keep")
    assert list(cli.json("show", address)["properties"]) == ["retention.delete_where"]
    missing = cli.error("schema", "update", address, "--drop-property", "retention.keep")
    assert "no property 'retention.keep'" in missing["message"]

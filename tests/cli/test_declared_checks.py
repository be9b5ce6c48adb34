"""`lakebed schema checks`, `add-check` and `drop-check`, and what other commands show of checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed


@pytest.fixture
def address(tmp_path: Path) -> str:
    schema = pa.schema([("id", pa.int64()), ("delay", pa.int64())])
    lakebed.open_repository(tmp_path).create("flights", schema).append([{"id": 1, "delay": 5}])
    return f"{tmp_path}/flights"


ADDED = [
    (["--rows", "delay >= 0"], "condition('delay >= 0')"),
    (["--not-null", "id,delay"], "not_null(id, delay)"),
    (["--unique", "id"], "unique(id)"),
    (["--reference", "id -> flights.id"], "reference(id -> flights.id)"),
    (["--min-rows", "0", "--max-rows", "9"], "row_count(min=0, max=9)"),
    (["--row-count-within", "0.5", "--of-last", "3"], "row_count_within(0.5, of_last=3)"),
]


@pytest.mark.parametrize(("options", "shown"), ADDED)
def test_check_is_added_listed_and_dropped(
    cli: Any, address: str, options: list[str], shown: str
) -> None:
    would_be = cli.json("schema", "add-check", address, "one", *options, "--dry-run")
    assert (would_be["operation"], would_be["is_dry_run"]) == ("update", True)
    assert cli.json("schema", "checks", address) == []

    cli("schema", "add-check", address, "one", *options, "--on-failure", "warn")

    record = {"name": "one", "check": shown, "on_failure": "warn", "outcome": "passed"}
    assert cli.json("schema", "checks", address) == [record]
    assert cli.json("show", address)["checks"] == [record]
    cli("schema", "drop-check", address, "one")
    assert cli.json("schema", "checks", address) == []


def test_existing_rows_are_tested_unless_told_otherwise(cli: Any, address: str) -> None:
    result = cli("schema", "add-check", address, "late", "--rows", "delay > 9", exit_code=2)
    assert "1 row fails, such as delay = 5" in result.stderr
    assert "--existing unchecked" in result.stderr

    cli("schema", "add-check", address, "late", "--rows", "delay > 9", "--existing", "unchecked")

    assert cli.json("schema", "checks", address)[0]["outcome"] == "not checked"
    (finding,) = cli.json("check", address)
    assert (finding["severity"], "'late'" in finding["what"]) == ("note", True)


def test_history_and_update_keep_checks(cli: Any, address: str, tmp_path: Path) -> None:
    cli("schema", "add-check", address, "sane", "--rows", "delay > 0", "--on-failure", "reject")
    rows = tmp_path / "rows.csv"
    rows.write_text("id,delay\n2,-7\n3,7\n")

    commit = cli.json("append", address, rows)

    assert commit["row_count"] == 1
    (result,) = commit["checks"]
    assert (result["outcome"], result["row_count"]) == ("rejected", 1)
    assert result["examples"] == ["delay = -7"]
    assert cli.json("history", address)[-1]["checks"] == [result]
    assert "sane: 1 rejected" in cli("history", address).stdout
    cli("schema", "update", address, "--property", "team=a")
    assert cli.json("schema", "checks", address)[0]["name"] == "sane"


def test_wrong_checks_are_refused(cli: Any, address: str) -> None:
    for options, message in (
        ([], "has none of the keys"),
        (["--rows", "delay > 0", "--unique", "id"], "unknown key 'unique'"),
        (["--rows", "delai > 0"], "delai"),
        (["--unique", "id", "--on-failure", "reject"], "cannot reject rows"),
        (["--within", "2h"], "column is"),
    ):
        result = cli("schema", "add-check", address, "one", *options, exit_code=2)
        assert message in result.stderr, result.stderr

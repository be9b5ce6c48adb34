"""The verb sql with --write: statements that change datasets."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    repository = lakebed.open_repository(tmp_path)
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    repository.create("events", schema).append([{"id": n, "v": n} for n in range(3)])
    return repository


@pytest.mark.parametrize(
    "text", ["DELETE FROM events", "/* all */ drop table events", "VACUUM events"]
)
def test_change_needs_the_option(cli: Any, lake: lakebed.Repository, text: str) -> None:
    error = cli.error("sql", lake.uri, text)

    assert "write=True is not given" in error["message"]
    assert "on the command line --write" in error["hint"]
    assert lake["events"].version == 1


def test_change_is_one_record(cli: Any, lake: lakebed.Repository) -> None:
    text = "UPDATE events SET v = v + 1 WHERE id > 0"

    dry = cli.json("sql", lake.uri, text, "--dry-run")
    assert (dry["is_dry_run"], dry["updated_row_count"], lake["events"].version) == (True, 2, 1)

    done = cli.json("sql", "--write", lake.uri, text, "--run", "r")
    assert (done["statement"], done["version"], done["updated_row_count"]) == ("UPDATE", 2, 2)
    assert {commit.run for commit in lake["events"].history()} == {None, "r"}


def test_statement_that_asks_needs_no_option(cli: Any, lake: lakebed.Repository) -> None:
    assert cli("sql", lake.uri, "SHOW TABLES", "-o", "csv").stdout == "name\nevents\n"
    assert len(cli.json("sql", lake.uri, "DESCRIBE HISTORY events")) == 2

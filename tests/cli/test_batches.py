"""Verbs on batches."""

from collections import Counter

import pyarrow as pa
import pytest
from heads import ON_TREES

import lakebed
from lakebed import DatasetDescriptor

ROW = '{"time_hour": "2013-01-01T00:00:00", "carrier": "UA", "flight": %d}\n'


@pytest.fixture
def rows(write):
    return write("rows.jsonl", ROW % 9)


def flights_of(cli, address) -> list[int | None]:
    return [row["flight"] for row in cli.json("query", address)]


def test_rerun_replaces_what_the_run_wrote(cli, address, rows) -> None:
    told = cli.json("rerun", address, rows, "--run", "first", "--replace-all")

    assert (told["operation"], told["run"], told["removed_file_count"]) == ("rerun", "first", 2)
    assert flights_of(cli, address) == [9]
    cli("rerun", address, "--run", "first", "--empty")
    assert flights_of(cli, address) == []


@pytest.mark.parametrize("verb", ["rerun", "staged add"])
def test_no_rows_must_be_meant(cli, address, rows, verb: str) -> None:
    assert "--empty" in cli(*verb.split(), address, "--run", "first", exit_code=2).stderr
    assert (
        "--empty" in cli(*verb.split(), address, rows, "--run", "x", "--empty", exit_code=2).stderr
    )


def test_batches_tell_when_they_came_and_went(cli, address, rows) -> None:
    cli("rerun", address, rows, "--run", "first", "--replace-all")

    first, second = cli.json("batches", address)

    assert (first["run"], first["is_live"], first["live_file_count"]) == ("first", False, 0)
    assert first["superseded_at"] == second["committed_at"]
    assert (second["version"], second["superseded_at"], second["is_staged"]) == (2, None, False)


def test_diff_tells_partitions_or_rows(cli, address, rows) -> None:
    cli("append", address, rows)

    (partition,) = cli.json("diff", address, 1)
    assert partition == {
        "partition": "dt=2013-01-01",
        "files_added": 1,
        "files_removed": 0,
        "rows_added": 1,
        "rows_removed": 0,
    }
    assert cli.json("diff", address, 2, 1, "--rows", "--columns", "flight,carrier") == [
        {"operation": "removed", "flight": 9, "carrier": "UA"}
    ]
    assert "--rows" in cli("diff", address, 1, "--columns", "flight", exit_code=2).stderr
    assert cli.error("diff", address, 7)["code"] == "version-not-found"


def test_rollback_goes_back_and_says_before_what_it_would_do(cli, address, rows) -> None:
    before = flights_of(cli, address)
    cli("append", address, rows)

    (file,) = cli.json("rollback", address, "--version", 1, "--dry-run")
    assert file["operation"] == "removed"
    assert cli.json("show", address)["version"] == 2

    told = cli.json("rollback", address, "--version", 1)
    assert (told["operation"], told["version"], told["removed_file_count"]) == ("rollback", 3, 1)
    assert flights_of(cli, address) == before
    again = cli("rollback", address, "--version", 1, "-o", "json")
    assert "no new version" in again.stderr
    assert "Give one of" in cli("rollback", address, exit_code=2).stderr
    told = cli.json("rollback", address, "--version", 0, "--where", "dt = '2013-01-01'")
    assert told["partition_count"] == 1


def test_batch_is_staged_checked_and_committed(cli, address, rows) -> None:
    before = flights_of(cli, address)
    staged = cli.json("staged", "add", address, rows, "--run", "second", "--lease", "12h")
    batch = staged["batch_id"]

    assert (staged["operation"], staged["row_count"]) == ("append", 1)
    assert [one["batch_id"] for one in cli.json("staged", "list", address)] == [batch]
    assert flights_of(cli, address) == before
    assert len(cli.json("query", address, "--batch-id", batch)) == 5

    options = ("--check", "flight > 10", "--not-null", "flight,carrier", "--min-rows", 1)
    found = cli.json("staged", "commit", address, batch, *options, "--dry-run", exit_code=2)
    assert [one["has_passed"] for one in found] == [False, True, True]
    error = cli.error("staged", "commit", address, batch, *options)
    assert (error["code"], error["exit_code"]) == ("checks-failed", 2)
    assert "1 row fails it" in error["message"]
    whole = cli.json(
        "staged", "commit", address, batch, "--whole", "--max-rows", 4, "--dry-run", exit_code=2
    )
    assert [(one["of"], one["count"]) for one in whole] == [("dataset", 5)]
    assert flights_of(cli, address) == before

    told = cli.json(
        "staged", "commit", address, batch, "--check", "flight = 9", "--unique", "flight"
    )
    assert (told["operation"], told["run"], told["batch_id"]) == ("append", "second", batch)
    found = flights_of(cli, address)
    assert Counter(found) == Counter([*before, 9])
    assert ON_TREES or found == [*before, 9]  # a tree has another order of files
    assert cli.json("staged", "list", address) == []


def test_commit_may_be_repeated_with_its_checks(cli, address, rows) -> None:
    batch = cli.json("staged", "add", address, rows)["batch_id"]
    options = ("--whole", "--unique", "flight")
    told = cli.json("staged", "commit", address, batch, *options)

    assert cli.json("staged", "commit", address, batch, *options) == told
    (found,) = cli.json("staged", "commit", address, batch, *options, "--dry-run")
    assert found["has_passed"]


def test_staged_rerun_may_replace_whole_partitions(cli, address, rows) -> None:
    how = ("--operation", "rerun", "--run", "fix", "--partitions", "--replace-all")
    staged = cli.json("staged", "add", address, rows, *how)
    cli("staged", "commit", address, staged["batch_id"])

    assert sorted(flights_of(cli, address)) == [-1, 7, 9]
    assert cli.error("staged", "add", address, rows, "--partitions")["code"] == "invalid-input"


def test_staged_view_may_be_emptied(cli, address) -> None:
    where = ("--where", "dt = '2013-01-01'")
    staged = cli.json("staged", "add", address, "--operation", "overwrite", *where, "--empty")
    cli("staged", "commit", address, staged["batch_id"])

    assert len(flights_of(cli, address)) == 2


def test_staged_batch_is_discarded_after_a_question(cli, address, rows) -> None:
    batch = cli.json("staged", "add", address, rows)["batch_id"]

    cli("staged", "discard", address, batch, "--dry-run")
    assert cli("staged", "discard", address, batch, stdin="n\n", exit_code=1).stderr.count(
        "Delete batch"
    )
    assert len(cli.json("staged", "list", address)) == 1
    cli("staged", "discard", address, batch, "--yes")

    assert cli.json("staged", "list", address) == []
    assert cli.error("staged", "commit", address, batch)["code"] == "version-not-found"
    assert cli.error("staged", "add", address, rows, "--lease", "soon")["code"] == "invalid-input"


def test_nothing_staged_is_told(cli, address) -> None:
    assert "There are no staged batches" in cli("staged", "list", address).stderr


def test_a_first_rerun_names_what_it_adds_to_or_replaces_it(cli, address, rows) -> None:
    added = cli.json("rerun", address, rows, "--run", "new", "--replace-all")
    replaced = cli.json("rerun", address, rows, "--run", "newer", "--partitions", "--replace-all")

    assert "The run 'new' is new" in added["notes"][0]
    assert "notes" not in replaced
    assert replaced["removed_file_count"] > 0


def test_what_a_protected_batch_brought_is_read_alone_as_the_hint_says(cli, tmp_path) -> None:
    schema = pa.schema([("id", pa.int64())])
    dataset = lakebed.open_repository(tmp_path).create("d", DatasetDescriptor(schema=schema))
    dataset.append([{"id": 0}])
    batch_id = dataset.append([{"id": 1}]).batch_id
    dataset.overwrite([{"id": 2}])
    dataset.protections.add(batch_id=batch_id, reason="audit")
    dataset.cleanup(older_than="0s", dry_run=False)
    address = str(tmp_path / "d")

    hint = cli.error("query", address, "--batch-id", batch_id)["hint"]

    assert f"--batch-id {batch_id} --alone" in hint
    assert cli.json("query", address, "--batch-id", batch_id, "--alone") == [{"id": 1}]
    assert "--alone needs a batch" in cli("query", address, "--alone", exit_code=2).stderr

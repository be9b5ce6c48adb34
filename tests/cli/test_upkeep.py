"""The verbs of upkeep on the command line."""

import datetime as dt
import time
from pathlib import Path

import pytest
from inside import store_of


@pytest.fixture
def old(flights):
    """A dataset whose first version is superseded."""
    flights.overwrite([*flights.kite.reader()])
    return flights


def test_dry_run_of_cleanup_only_lists(cli, address, old) -> None:
    rows = cli.json("cleanup", address, "--older-than", "0s", "--dry-run")

    assert [row["reason"] for row in rows] == ["superseded", "superseded"]
    assert rows[0]["version"] == 2
    assert cli.json("cleanup", address, "--older-than", "0s", "--dry-run") == rows
    assert cli.json("cleanup", address, "--dry-run") == []


def test_cleanup_asks_before_it_deletes(cli, address, old) -> None:
    arguments = ("cleanup", address, "--older-than", "0s")

    refused = cli(*arguments, stdin="n\n", exit_code=1)
    assert "Versions before 2 can then no longer be read" in refused.stderr
    assert len(cli.json("cleanup", address, "--older-than", "0s", "--dry-run")) == 2
    done = cli(*arguments, "--yes")

    assert "Deleted 2 objects" in done.stderr
    assert cli.json("cleanup", address, "--older-than", "0s", "--dry-run") == []
    error = cli.error("query", address, "--version", "1")
    assert (error["code"], error["exit_code"]) == ("version-not-found", 3)
    assert "was cleaned up" in error["message"]


def test_what_is_kept_is_shown_on_request(cli, address, old) -> None:
    rows = cli.json("cleanup", address, "--kept", "--dry-run")

    assert {row["reason"] for row in rows} == {"retained"}


def test_protected_version_is_listed_and_kept(cli, address, old) -> None:
    cli("protection", "add", address, "--version", 1, "--reason", "audit", "--until", "2100-01-01")

    (one,) = cli.json("protection", "list", address)
    assert (one["target"], one["reason"], one["until"]) == (
        "version 1",
        "audit",
        "2100-01-01T00:00:00Z",
    )
    assert one["is_expired"] is False
    assert cli.json("cleanup", address, "--older-than", "0s", "--dry-run") == []
    cli("protection", "remove", address, "--version", 1)
    assert len(cli.json("cleanup", address, "--older-than", "0s", "--dry-run")) == 2


def test_age_that_is_none_is_refused(cli, address) -> None:
    assert cli.error("cleanup", address, "--older-than", "soon")["exit_code"] == 2


def test_check_ends_with_7_while_a_problem_remains(cli, address, tmp_path: Path) -> None:
    (segment,) = (tmp_path / "lake" / "flights" / "files").iterdir()
    segment.write_bytes(b"damaged")

    found = cli("check", address, "-o", "json", exit_code=7)
    repaired = cli("check", address, "--repair")

    assert "damaged" not in found.stdout
    assert str(segment.name) in found.stdout
    assert "All is well" in repaired.stderr
    assert cli.json("check", address, "--deep") == []


def test_cleanup_takes_out_what_has_expired_though_nothing_is_dead(cli, address, flights) -> None:
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=50)
    flights.protections.add(version=1, reason="audit", until=soon)
    time.sleep(0.06)

    assert cli.json("cleanup", address, "--dry-run") == []
    assert len(cli.json("protection", "list", address)) == 1
    assert cli.json("cleanup", address) == []  # and does not ask
    assert cli.json("protection", "list", address) == []


@pytest.mark.parametrize("age", ["999999d", "60000w"])
def test_age_that_is_beyond_all_years_is_refused(cli, address, age) -> None:
    assert cli.error("cleanup", address, "--older-than", age)["code"] == "invalid-input"


def test_cleanup_of_a_published_dataset_asks_for_the_metastore(cli, address, old, flights) -> None:
    from lakebed.state.published import Note

    note = Note(store_of(flights), flights.name, "lake.flights")
    note.read()
    note.begin(flights.version)
    note.finish()

    refused = cli.error("cleanup", address, "--older-than", "0s", "--yes")

    assert (refused["code"], refused["exit_code"]) == ("invalid-input", 2)
    assert "--metastore" in refused["hint"]
    assert "--published noted" in refused["hint"]
    rows = cli.json("cleanup", address, "--older-than", "0s", "--published", "noted", "--dry-run")
    assert len(rows) == 2

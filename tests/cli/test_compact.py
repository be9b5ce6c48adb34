"""Compacting and promoting on the command line."""

import datetime as dt
import json
from pathlib import Path

import pytest
from heads import ON_TREES


@pytest.fixture
def small(flights):
    """The flights, in more files than they need."""
    for n in range(3):
        hour = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
        flights.append([{"time_hour": hour, "flight": n}])
    return flights


class TestCompact:
    def test_brings_files_together_and_says_what_it_did(self, cli, small, address) -> None:
        before = sorted(map(str, small.arrow().to_pylist()))

        rows = cli.json("compact", address)

        partitions = [one for one in rows if one["what"] == "partition"]
        assert [(one["name"], one["files_before"], one["files_after"]) for one in partitions] == [
            ("dt=2013-01-01", 3, 1)
        ]
        assert sorted(map(str, small.arrow().to_pylist())) == before
        assert {one["name"] for one in rows if one["what"] == "metadata"} == (
            {"leaves"} if ON_TREES else {"files", "history"}
        )

    def test_dry_run_changes_nothing(self, cli, small, address) -> None:
        result = cli("compact", address, "--dry-run")

        assert "Would make 1 of 3 files" in result.stderr
        assert small.version == 4

    def test_second_run_finds_nothing_and_makes_no_version(self, cli, small, address) -> None:
        cli("compact", address)
        version = small.version

        result = cli("compact", address, "-o", "json")

        assert json.loads(result.stdout) == []
        assert "No partition has small files" in result.stderr
        assert small.version == version

    def test_where_and_target_size_narrow_it(self, cli, small, address) -> None:
        for narrower in (["--target-size", "1k"], ["--where", "dt = '2013-01-02'"]):
            found = cli.json("compact", address, "--dry-run", *narrower)
            assert [one for one in found if one["what"] == "partition"] == []

    @pytest.mark.parametrize("size", ["", "much", "-1", "1.5", "1XB"])
    def test_size_must_be_one(self, cli, address, size: str) -> None:
        error = cli.error("compact", address, "--target-size", size)

        assert error["exit_code"] == 2
        assert "128MB" in error["message"]

    def test_metadata_alone_leaves_data_files(self, cli, small, address) -> None:
        files = small.files()

        rows = cli.json("compact", address, "--metadata")

        assert {one["what"] for one in rows} == {"metadata"}
        assert small.files() == files

    @pytest.mark.parametrize("alone", [["--metadata"], ["--head", "msgpack"]])
    @pytest.mark.parametrize("more", [["--where", "TRUE"], ["--spark"], ["--sort-by", "flight"]])
    def test_options_that_exclude_each_other_are_refused(
        self, cli, flights, address, alone: list[str], more: list[str]
    ) -> None:
        assert cli.error("compact", address, *alone, *more)["exit_code"] == 2
        assert flights.version == 1

    def test_head_moves_to_the_other_format_and_back(self, cli, flights, lake, address) -> None:
        rows = str(flights.arrow().to_pylist())

        assert "Would move" in cli("compact", address, "--head", "msgpack", "--dry-run").stderr
        assert flights.version == 1
        (moved,) = cli.json("compact", address, "--head", "msgpack")
        assert moved["name"] == "msgpack.zstd"
        assert lake.store.size("flights.by-dataset-metadata.msgpack.zstd")
        assert "already" in cli("compact", address, "--head", "msgpack").stderr
        cli("compact", address, "--head", "json")

        assert lake.store.size("flights.by-dataset-metadata.json")
        assert str(flights.arrow().to_pylist()) == rows

    def test_head_becomes_a_tree_and_a_document_again(self, cli, flights, address) -> None:
        rows = str(flights.arrow().to_pylist())

        assert "Would move" in cli("compact", address, "--head", "tree", "--dry-run").stderr
        assert flights.version == 1
        (moved,) = cli.json("compact", address, "--head", "tree")
        assert moved["name"] == "tree"
        assert "already" in cli("compact", address, "--head", "tree").stderr
        for head_format in ("json", "msgpack"):
            for options in ((), ("--dry-run",)):
                error = cli.error("compact", address, "--head", head_format, *options)
                assert "is a tree" in error["message"]
                assert "--head document" in error["hint"]
        assert str(flights.arrow().to_pylist()) == rows
        (back,) = cli.json("compact", address, "--head", "document")

        assert back["name"] == "document"
        assert "already" in cli("compact", address, "--head", "document").stderr
        assert str(flights.arrow().to_pylist()) == rows

    def test_dataset_is_created_with_a_tree(self, cli, tmp_path) -> None:
        place = f"{tmp_path}/lake/many"

        cli("create", place, "--schema", _schema_in(tmp_path), "--head", "tree")

        assert "already" in cli("compact", place, "--head", "tree").stderr


def _schema_in(folder: Path) -> str:
    path = folder / "schema.json"
    schema = {"type": "record", "name": "row", "fields": [{"name": "n", "type": "long"}]}
    path.write_text(json.dumps(schema), encoding="utf-8")
    return str(path)


class TestPromote:
    @pytest.fixture
    def schema(self, write):
        rule = {"field_name": "channel", "allowed_values": ["beta", "esr"]}
        return write("dimensions.json", json.dumps({"version": 1, "dimensions": [rule]}))

    def test_moves_rows_and_says_which(self, cli, pings, schema) -> None:
        moves = cli.json("promote", pings.uri, schema)

        assert moves == [
            {
                "from": "channel_dimension=OTHER",
                "to": "channel_dimension=esr",
                "row_count": 1,
            }
        ]
        assert pings.where("channel_dimension = 'esr'").count() == 1

    def test_dry_run_says_the_same_and_changes_nothing(self, cli, pings, schema) -> None:
        planned = cli.json("promote", pings.uri, schema, "--dry-run")

        assert pings.version == 1
        assert cli.json("promote", pings.uri, schema) == planned

    def test_again_is_no_version(self, cli, pings, schema) -> None:
        cli("promote", pings.uri, schema)

        assert "allow these values already" in cli("promote", pings.uri, schema).stderr
        assert pings.version == 2

    def test_loss_of_values_is_refused(self, cli, pings, write) -> None:
        rule = {"field_name": "channel", "allowed_values": ["esr"]}
        schema = write("less.json", json.dumps({"version": 1, "dimensions": [rule]}))

        error = cli.error("promote", pings.uri, schema)

        assert "would lose values" in error["message"]
        assert error["exit_code"] == 2
        assert pings.version == 1

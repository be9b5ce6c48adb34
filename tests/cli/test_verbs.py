"""What the verbs do, asked through the command line and looked at through the library."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.state import published

AVRO = {
    "type": "record",
    "name": "flight",
    "fields": [
        {"name": "time_hour", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "user_id", "type": "long"},
    ],
}


class TestCreate:
    def test_from_avro_with_a_strategy_as_text(self, cli, lake, write, tmp_path) -> None:
        schema = write("flight.avsc", json.dumps(AVRO))

        shown = cli.json(
            *("create", tmp_path / "lake" / "users", "--schema", schema),
            *("--partition-by", "date(time_hour) as dt, hash(user_id, 64)"),
            *("--compression", "snappy", "--property", "owner=a=b"),
        )

        descriptor = lake.open("users").descriptor
        assert list(descriptor.partition_by.types(descriptor.schema)) == ["dt", "user_id_hash"]
        assert descriptor.compression == "snappy"
        assert descriptor.properties == {"owner": "a=b"}
        assert shown["version"] == 0
        assert shown["schema"]["fields"][1]["name"] == "user_id"

    def test_from_parquet_with_a_strategy_in_a_file(self, cli, lake, write, tmp_path) -> None:
        schema = pa.schema([("n", pa.int32()), ("carrier", pa.string())])
        pq.write_table(schema.empty_table(), tmp_path / "some.parquet")
        strategy = write("strategy.json", '[{"type": "identity", "source": "carrier"}]')

        cli(
            *("create", tmp_path / "lake" / "some", "--schema", tmp_path / "some.parquet"),
            *("--partition-by", strategy, "--head-format", "msgpack.zstd"),
        )

        descriptor = lake.open("some").descriptor
        assert [field.name for field in descriptor.schema] == ["n", "carrier"]
        assert list(descriptor.partition_types) == ["carrier", "batch_id"]
        assert (tmp_path / "lake" / "some.by-dataset-metadata.msgpack.zstd").exists()

    def test_shown_schema_creates_an_equal_dataset(
        self, cli, lake, flights, address, write, tmp_path
    ) -> None:
        schema = write("again.avsc", json.dumps(cli.json("show", address)["schema"]))

        cli("create", tmp_path / "lake" / "again", "--schema", schema)

        assert lake.open("again").schema == flights.schema

    def test_existing_dataset_is_opened_only_if_asked(self, cli, lake, write, tmp_path) -> None:
        schema = write("flight.avsc", json.dumps(AVRO))
        call = ("create", tmp_path / "lake" / "users", "--schema", schema)
        cli(*call)

        error = cli.error(*call)
        cli(*call, "--if-exists", "open")

        assert error["code"] == "dataset-exists"
        assert error["exit_code"] == 4

    @pytest.mark.parametrize("name", ["missing.avsc", "table.csv", "text.avsc"])
    def test_unfit_schema_file_is_an_error_of_input(self, cli, lake, write, tmp_path, name) -> None:
        write("table.csv", "a,b\n")
        write("text.avsc", "flight")

        error = cli.error("create", tmp_path / "lake" / "x", "--schema", tmp_path / name)

        assert error["exit_code"] == 2
        assert name in error["message"]
        assert lake.list() == []


class TestShow:
    def test_tells_what_the_dataset_is_and_holds(self, cli, address) -> None:
        shown = cli.json("show", address)

        assert shown["name"] == "flights"
        assert shown["location"].endswith("/lake/flights")
        assert (shown["version"], shown["row_count"], shown["partition_count"]) == (1, 4, 2)
        assert shown["partition_by"] == [{"type": "date", "source": "time_hour", "name": "dt"}]
        assert shown["properties"] == {"owner": "ops"}
        assert shown["last_commit"]["operation"] == "append"

    def test_table_names_the_fields_and_the_strategy(self, cli, address) -> None:
        told = cli("show", address).stdout

        assert "time_hour: timestamp, not null" in told
        assert "date(time_hour) as dt" in told

    def test_older_version_is_shown_as_it_was(self, cli, address) -> None:
        assert cli.json("show", address, "--version", 0)["row_count"] == 0

    def test_partitions_have_typed_values(self, cli, address) -> None:
        rows = cli.json("show", address, "--partitions")

        assert [row["values"] for row in rows] == [{"dt": "2013-01-01"}, {"dt": "2013-01-02"}]
        assert [row["row_count"] for row in rows] == [2, 2]

    def test_dataset_of_another_tool_counts_what_is_known(self, cli) -> None:
        store = Path(__file__).parents[1] / "data" / "golden-kartothek" / "plateau-4.6.2" / "store"

        shown = cli.json("show", store / "keys")

        assert (shown["row_count"], shown["last_commit"]) == (None, None)
        assert shown["file_count"] > 0
        assert cli.json("query", store / "keys", "--count")["count"] > 0


class TestHistory:
    def test_lists_commits_oldest_first(self, cli, flights, address) -> None:
        flights.overwrite([], view=flights.where("dt = '2013-01-01'"), run="fix")

        commits = cli.json("history", address)

        assert [one["operation"] for one in commits] == ["create", "append", "overwrite"]
        assert [one["run"] for one in commits] == [None, "first", "fix"]
        assert commits[2]["removed_file_count"] == 1


class TestQuery:
    def test_filters_and_chooses_columns(self, cli, address) -> None:
        rows = cli.json(
            *("query", address, "--where", "time_hour >= '2013-01-02' AND flight > 0"),
            *("--columns", "flight,dt"),
        )

        assert rows == [{"flight": 7, "dt": "2013-01-02"}]

    def test_table_is_cut_with_a_note_and_jsonl_is_not(self, cli, flights, address) -> None:
        flights.append([{"time_hour": flights.history()[0].committed_at}] * 30)

        table, lines = cli("query", address), cli("query", address, "-o", "jsonl")

        assert len(table.stdout.splitlines()) == 2 + 20
        assert "First 20 rows" in table.stderr
        assert len(lines.stdout.splitlines()) == 34
        assert lines.stderr == ""

    def test_note_is_left_out_when_quiet(self, cli, flights, address) -> None:
        flights.append([{"time_hour": flights.history()[0].committed_at}] * 30)

        assert cli("query", address, "--quiet").stderr == ""

    @pytest.mark.parametrize(("limit", "expected"), [(0, 0), (3, 3), (4, 4), (9, 4)])
    def test_limit_holds_across_files(self, cli, address, limit: int, expected: int) -> None:
        assert len(cli.json("query", address, "--limit", limit)) == expected

    def test_counts(self, cli, address) -> None:
        assert cli.json("query", address, "--count", "--where", "flight = 7") == {"count": 1}

    def test_reads_older_states(self, cli, flights, address) -> None:
        first = flights.history()[1]
        flights.overwrite([], view=flights.where("dt = '2013-01-01'"))

        by_version = cli.json("query", address, "--count", "--version", 1)
        by_batch = cli.json("query", address, "--count", "--batch-id", first.batch_id)
        by_time = cli.json("query", address, "--count", "--time", first.committed_at.isoformat())

        assert cli.json("query", address, "--count") == {"count": 2}
        assert by_version == by_batch == by_time == {"count": 4}

    def test_explain_tells_which_files_are_dropped(self, cli, address) -> None:
        told = cli.json("explain", address, "--where", "time_hour < '2013-01-02'")

        assert (told["file_count"], told["kept"], told["dropped_by_partition"]) == (2, 1, 1)
        assert "1 of 2 kept" in cli("explain", address, "--where", "dt < '2013-01-02'").stdout

    def test_explain_accounts_for_every_file(self, cli, address) -> None:
        told = cli.json("explain", address, "--where", "flight = 1000000")

        by = ("partition", "schema", "statistics", "index")
        assert told["kept"] + sum(told[f"dropped_by_{one}"] for one in by) == told["file_count"]
        assert (told["dropped_by_statistics"], told["statistics_segments"]) == (2, 1)
        assert (told["indices"], told["ignored"]) == ({}, [])
        assert "2 by statistics" in cli("explain", address, "--where", "flight = 1000000").stdout


class TestListAndDrop:
    def test_list_names_datasets_with_their_addresses(self, cli, address, tmp_path) -> None:
        (row,) = cli.json("list", tmp_path / "lake")

        assert row["name"] == "flights"
        assert cli.json("show", row["location"])["name"] == "flights"

    def test_empty_repository_is_said_on_stderr(self, cli, tmp_path) -> None:
        (tmp_path / "nothing").mkdir()

        result = cli("list", tmp_path / "nothing", "-o", "json")

        assert json.loads(result.stdout) == []
        assert "no dataset" in result.stderr

    def test_dry_run_lists_everything_and_deletes_nothing(
        self, cli, lake, address, tmp_path
    ) -> None:
        on_disk = {
            path.relative_to(tmp_path / "lake").as_posix(): path.stat().st_size
            for path in (tmp_path / "lake").rglob("*")
            if path.is_file() and not any(part.startswith(".") for part in path.parts)
        }

        rows = cli.json("drop", address, "--dry-run")

        assert {row["key"]: row["size_bytes"] for row in rows} == on_disk
        assert lake.open("flights").count() == 4

    def test_asks_first_and_takes_no_for_an_answer(self, cli, lake, address) -> None:
        result = cli("drop", address, exit_code=1, stdin="n\n")

        assert "Delete" in result.stderr
        assert lake.exists("flights")

    def test_tables_that_show_the_dataset_are_named_first(self, cli, lake, address) -> None:
        note = published.Note(lake.store, "flights", "web.flights")
        note.read()
        note.begin(1)
        note.finish()

        said = cli("drop", address, exit_code=1, stdin="n\n").stderr

        assert said.index("published as web.flights") < said.index("Delete ")
        assert "unpublish it first" in said
        assert lake.exists("flights")

    def test_silence_is_no_consent(self, cli, lake, address) -> None:
        cli("drop", address, exit_code=1, stdin="")

        assert lake.exists("flights")

    @pytest.mark.parametrize(("flags", "stdin"), [(["--yes"], None), ([], "y\n")])
    def test_deletes_when_sure(self, cli, lake, address, tmp_path, flags, stdin) -> None:
        cli("drop", address, *flags, stdin=stdin)

        assert lake.list() == []
        assert not list((tmp_path / "lake").glob("flights*/**/*.parquet"))


class TestDoctor:
    def test_names_what_is_installed(self, cli, lake, flights) -> None:
        found = {row["name"]: row for row in cli.json("doctor", lake.uri)}

        assert found["lakebed"]["value"] == lakebed.__version__
        assert found["pyarrow"]["status"] == "ok"
        assert {"python", "pyspark", "obstore", "java"} <= set(found)
        assert found["store"]["status"] == "ok"

    @pytest.mark.parametrize("package", ["duckdb", "polars", "pyiceberg", "deltalake", "fastavro"])
    def test_names_the_engines_that_extras_bring(self, cli, package: str) -> None:
        found = {row["name"]: row for row in cli.json("doctor")}

        assert (found[package]["status"], found[package]["value"]) == ("ok", version(package))

    def test_directory_that_is_not_there_is_told(self, cli, tmp_path) -> None:
        found = {row["name"]: row for row in cli.json("doctor", tmp_path / "laek")}

        assert found["store"]["status"] == "absent"
        assert "no such directory" in found["store"]["detail"]
        assert not (tmp_path / "laek").exists()

    def test_store_that_does_not_answer_is_an_exit_code(self, cli) -> None:
        result = cli("doctor", "nowhere://lake", "-o", "json", exit_code=1)

        (store,) = [row for row in json.loads(result.stdout) if row["name"] == "store"]
        assert store["status"] == "failed"
        assert "nowhere" in store["detail"]


class TestAddress:
    def test_bare_name_is_looked_for_in_the_repository_of_the_environment(
        self, cli, address, monkeypatch
    ) -> None:
        monkeypatch.setenv("LAKEBED_REPOSITORY", str(Path(address).parent))

        assert cli.json("query", "flights", "--count") == {"count": 4}
        assert [row["name"] for row in cli.json("list")] == ["flights"]

    @pytest.mark.parametrize("form", ["{}/", "file://{}"])
    def test_paths_and_urls_are_addresses(self, cli, address, form: str) -> None:
        assert cli.json("query", form.format(address), "--count") == {"count": 4}

    @pytest.mark.parametrize("text", ["flights", "", "/", "s3://bucket", "memory:", "s3:/bucket"])
    def test_text_that_names_no_dataset_in_a_repository_is_refused(self, cli, text: str) -> None:
        error = cli.error("show", text)

        assert error["code"] == "invalid-input"
        assert "LOCATION/NAME" in error["hint"]

    def test_storage_options_reach_the_store(self, cli, address) -> None:
        cli("show", address, "--storage-option", "durable=false")
        error = cli.error("show", address, "--storage-option", "region=x")

        assert "region" in error["message"]


@pytest.mark.thorough
class TestProcess:
    """The command as the shell sees it."""

    def run(self, *arguments: str, **options) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lakebed", *arguments],
            capture_output=True,
            text=True,
            check=False,
            **options,
        )

    def test_module_is_the_command(self, address) -> None:
        answer = self.run("query", address, "-o", "jsonl", "--columns", "flight")

        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.splitlines()[0] == '{"flight": 1545}'
        assert answer.stderr == ""

    def test_help_loads_nothing_heavy(self) -> None:
        answer = self.run("--help", env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1"})

        assert answer.returncode == 0
        loaded = {line.rpartition("|")[2].strip() for line in answer.stderr.splitlines()}
        assert "lakebed.cli.main" in loaded
        assert loaded.isdisjoint({"pyspark", "obstore", "sqlglot"})

    def test_reader_that_stops_early_causes_no_complaint(self, address) -> None:
        command = f"{sys.executable} -m lakebed query {address} -o jsonl | true"
        answer = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=False
        )

        assert answer.returncode == 0
        assert answer.stderr == ""

    def test_shell_completion_is_there(self) -> None:
        answer = subprocess.run(
            [Path(sys.executable).parent / "lakebed"],
            env=os.environ
            | {
                "_LAKEBED_COMPLETE": "bash_complete",
                "COMP_WORDS": "lakebed hi",
                "COMP_CWORD": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )

        assert answer.stdout.strip() == "plain,history"

"""Deleting rows, and partitions as a tree."""

import json

import pytest

import lakebed
from lakebed import by


@pytest.fixture
def nested(lake: lakebed.Repository) -> str:
    """A dataset in two levels of directories; return its address."""
    import pyarrow as pa

    position = pa.struct([("latitude", pa.float64())])
    descriptor = lakebed.DatasetDescriptor(
        schema=pa.schema([("p", pa.string()), ("n", pa.int64()), ("position", position)]),
        partition_by=[by.identity("p"), by.hash("n", 2, name="bucket")],
    )
    dataset = lake.create("nested", descriptor)
    rows = [{"p": p, "n": n, "position": {"latitude": n / 2}} for p in "ab" for n in range(3)]
    dataset.append(rows)
    return f"{lake.uri}/nested"


class TestDelete:
    def test_deletes_in_one_commit(self, cli, flights, address) -> None:
        done = cli.json("delete", address, "--where", "flight = 7", "--yes", "--run", "tidy")

        assert (done["operation"], done["version"], done["run"]) == ("delete", 2, "tidy")
        assert flights.count() == 3

    def test_dry_run_lists_files_and_rows_and_changes_nothing(self, cli, flights, address) -> None:
        result = cli("delete", address, "--where", "flight = 7 OR dt = '2013-01-01'", "--dry-run")
        files = cli.json(
            "delete", address, "--where", "flight = 7 OR dt = '2013-01-01'", "--dry-run"
        )

        assert "Would delete 3 rows in 2 files of 2 partitions." in result.stderr
        assert [(one["partition"], one["row_count"], one["is_whole"]) for one in files] == [
            ("dt=2013-01-01", 2, True),
            ("dt=2013-01-02", 1, False),
        ]
        assert flights.version == 1

    def test_asks_before_it_deletes(self, cli, flights, address) -> None:
        refused = cli("delete", address, "--where", "flight = 7", stdin="n\n", exit_code=1)
        assert "Delete 1 row in 1 file of 1 partition?" in refused.stderr
        assert flights.version == 1

        cli("delete", address, "--where", "flight = 7", stdin="y\n")
        assert flights.version == 2

    def test_nothing_to_delete_is_said_and_is_no_version(self, cli, flights, address) -> None:
        result = cli("delete", address, "--where", "flight = 8", "-o", "json")

        assert "No row matches" in result.stderr
        assert flights.version == 1
        done = json.loads(result.stdout)
        assert (done["version"], done["row_count"], done["deleted_row_count"]) == (None, 0, 0)

    def test_table_names_the_same_facts_whether_anything_went(self, cli, address) -> None:
        tables = [
            cli("delete", address, "--where", f"flight = {one}", "--yes").stdout for one in (8, 7)
        ]

        nothing, something = ([line.split("  ")[0] for line in one.splitlines()] for one in tables)
        assert nothing == something
        assert "deleted row count" in something

    def test_view_uri_says_which_rows(self, cli, flights) -> None:
        cli("delete", flights.kite.with_("flight", 7).kite.uri, "--yes")

        assert flights.count() == 3

    def test_unknown_constraint_of_a_view_uri_is_refused(self, cli, flights) -> None:
        error = cli.error("delete", f"view:{flights.uri}?flihgt=7", "--yes")

        assert error["exit_code"] == 2
        assert "Did you mean 'flight'?" in error["hint"]
        assert flights.version == 1

    @pytest.mark.parametrize("extra", [[], ["--yes"], ["--dry-run"]])
    def test_rows_must_be_said_once(self, cli, flights, address, extra: list[str]) -> None:
        assert "--where" in cli.error("delete", address, *extra)["message"]
        uri = flights.kite.with_("flight", 7).kite.uri
        assert "--where" in cli.error("delete", uri, "--where", "flight = 7", *extra)["message"]
        assert flights.version == 1

    def test_nested_column_narrows(self, cli, nested) -> None:
        where = ("--where", "position.latitude >= 1")

        assert cli.json("query", nested, "--count", *where)["count"] == 2
        assert "position.latitude >= 1.0" in cli("explain", nested, *where).stdout
        cli("delete", nested, *where, "--yes")
        assert cli.json("query", nested, "--count")["count"] == 4


class TestUris:
    def test_dataset_uri_names_a_dataset(self, cli, flights) -> None:
        assert cli.json("show", flights.kite.uri)["name"] == "flights"

    @pytest.mark.parametrize("verb", ["drop", "history", "append"])
    def test_other_uris_are_refused(self, cli, flights, lake, verb: str) -> None:
        files = ["-"] if verb == "append" else []
        uris = [
            flights.kite.with_("flight", 7).kite.uri,
            lake.repo_uri,
            flights.kite.uri + "?@version=1",
        ]

        for uri in uris:
            error = cli.error(verb, uri, *files)
            assert "does not name a whole dataset" in error["message"]
        assert flights.version == 1


class TestTree:
    def test_partitions_are_a_tree_with_totals_at_each_level(self, cli, nested) -> None:
        lines = cli("show", nested, "--partitions").stdout.splitlines()

        cells = [line.split() for line in lines]
        assert cells[0] == ["partition", "files", "rows", "bytes", "size"]
        assert [line[: line.index("=")] for line in lines[3:]] == [
            "  p",
            "    bucket",
            "    bucket",
            "  p",
            "    bucket",
            "    bucket",
        ]
        assert [(one[0], one[1], one[2]) for one in cells[2:]] == [
            ("nested", "4", "6"),
            ("p=a", "2", "3"),
            ("bucket=0", "1", "2"),
            ("bucket=1", "1", "1"),
            ("p=b", "2", "3"),
            ("bucket=0", "1", "2"),
            ("bucket=1", "1", "1"),
        ]
        sizes = [int(one[3]) for one in cells[2:]]
        assert sizes[0] == sizes[1] + sizes[4]
        assert sizes[1] == sizes[2] + sizes[3]
        assert cells[2][5] == "KiB"

    def test_programs_get_flat_rows(self, cli, nested) -> None:
        rows = cli.json("show", nested, "--partitions")

        assert [row["values"] for row in rows] == [
            {"p": p, "bucket": bucket} for p in "ab" for bucket in (0, 1)
        ]

    def test_empty_dataset_is_one_line(self, cli, lake, flights, address) -> None:
        flights.delete(flights)

        lines = cli("show", address, "--partitions").stdout.splitlines()

        assert [line.split() for line in lines[2:]] == [["flights", "0", "0", "0", "0", "B"]]

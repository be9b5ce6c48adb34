"""Verbs for other programs: files of a view, and SQL."""

from pathlib import Path

import pytest


class TestFiles:
    def test_planned_files_are_listed_with_rows_and_partitions(self, cli, address) -> None:
        (row,) = cli.json("files", address, "--where", "time_hour < '2013-01-02'")

        assert (row["rows"], row["partition"]) == (2, "dt=2013-01-01")
        assert Path(row["path"]).stat().st_size == row["size_bytes"]
        assert f"batch_id={row['batch_id']}" in row["path"]

    def test_plain_paths_are_for_other_programs(self, cli, address) -> None:
        paths = cli("files", address, "-o", "plain").stdout.splitlines()

        assert len(paths) == 2
        assert all(Path(path).read_bytes()[:4] == b"PAR1" for path in paths)

    def test_files_of_an_older_version_are_listed(self, cli, address) -> None:
        assert cli.json("files", address, "--version", 0) == []
        assert cli("files", address, "--version", 0, "-o", "plain").stdout == ""


class TestSql:
    def test_datasets_are_tables(self, cli, address) -> None:
        lake = str(Path(address).parent)
        query = "SELECT carrier, flight FROM flights WHERE flight > 0 ORDER BY flight"

        assert cli.json("sql", lake, query) == [
            {"carrier": "", "flight": 7},
            {"carrier": "UA", "flight": 1545},
        ]
        assert cli("sql", lake, query, "--limit", 1, "-o", "csv").stdout == 'carrier,flight\n"",7\n'

    def test_table_says_that_there_is_more(self, cli, address) -> None:
        result = cli("sql", Path(address).parent, "SELECT * FROM range(30)")

        assert len(result.stdout.splitlines()) == 22
        assert "First 20 rows" in result.stderr

    def test_columns_of_one_name_are_told_apart(self, cli, address) -> None:
        query = "SELECT 1 AS a, 2 AS a, 3 AS a_1"

        (row,) = cli.json("sql", Path(address).parent, query)

        assert sorted(row.values()) == [1, 2, 3]

    @pytest.mark.parametrize("query", ["DROP TABLE flights", "SELECT nope FROM flights", "SELEC"])
    def test_what_cannot_be_asked_is_wrong_input(self, cli, address, query: str) -> None:
        error = cli.error("sql", Path(address).parent, query)

        assert (error["code"], error["exit_code"]) == ("invalid-input", 2)

    def test_unknown_dataset_is_not_found(self, cli, address) -> None:
        error = cli.error("sql", Path(address).parent, "SELECT * FROM flight")

        assert error["exit_code"] == 3
        assert "'flights'" in error["hint"]

    def test_a_dataset_in_the_place_of_its_repository_is_told(self, cli, address) -> None:
        error = cli.error("sql", address, "SELECT * FROM flights")

        assert (error["code"], error["exit_code"]) == ("dataset-not-found", 3)
        assert "is a dataset" in error["message"]
        assert f"lakebed sql {Path(address).parent} " in error["hint"]


def test_plain_output_of_a_value_is_the_value(cli, address) -> None:
    assert cli("query", address, "--count", "-o", "plain").stdout == "4\n"
    assert cli("list", Path(address).parent, "-o", "plain").stdout == "flights\n"

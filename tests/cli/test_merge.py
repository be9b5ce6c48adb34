"""Merging files on the command line."""

import io
import json

import pytest


@pytest.fixture
def changes(tmp_path):
    path = tmp_path / "changes.csv"
    path.write_text(
        "flight,carrier,time_hour,op\n"
        "1545,DL,2013-01-01T05:00:00,U\n"
        "7,,2013-01-02T07:30:00.25,D\n"
        "99,AA,2013-01-03T00:00:00,U\n"
    )
    return path


CLAUSES = (
    "--on",
    "flight",
    "--delete-where",
    "source.op = 'D'",
    "--insert-where",
    "source.op != 'D'",
)


class TestMerge:
    def test_updates_deletes_and_inserts_in_one_commit(
        self, cli, flights, address, changes
    ) -> None:
        done = cli.json("merge", address, changes, *CLAUSES, "--run", "tidy")

        assert (done["operation"], done["version"], done["run"]) == ("merge", 2, "tidy")
        counts = ("inserted_row_count", "updated_row_count", "deleted_row_count")
        assert [done[name] for name in counts] == [1, 1, 1]
        assert done["rewritten_file_count"] == 2
        (row,) = flights.where("flight = 1545").arrow().to_pylist()
        # Fields that the file lacks stay as they are.
        assert (row["carrier"], row["delay"]) == ("DL", 2.5)
        assert flights.where("flight = 7").count() == 0
        assert flights.where("flight = 99").count() == 1

    def test_dry_run_says_what_would_change_and_changes_nothing(
        self, cli, flights, address, changes
    ) -> None:
        result = cli("merge", address, changes, *CLAUSES, "--dry-run")
        told = cli.json("merge", address, changes, *CLAUSES, "--dry-run")

        assert "Would merge: 1 rows inserted, 1 updated, 1 deleted." in result.stderr
        assert (told["version"], told["inserted_row_count"]) == (None, 1)
        assert flights.version == 1

    def test_what_comes_through_standard_input_has_the_columns_that_it_has(
        self, cli, flights, address
    ) -> None:
        lines = json.dumps({"flight": 1545, "delay": 9.5}) + "\n"

        done = cli.json(
            "merge", address, "-", "--on", "flight", "--not-matched", "ignore", stdin=lines
        )

        assert done["updated_row_count"] == 1
        (row,) = flights.where("flight = 1545").arrow().to_pylist()
        assert (row["carrier"], row["delay"]) == ("UA", 9.5)

    def test_nothing_to_change_is_said_and_is_no_version(
        self, cli, flights, address, changes
    ) -> None:
        result = cli("merge", address, changes, "--on", "flight", "--matched", "ignore",
                     "--not-matched", "insert", "--insert-where", "source.op = 'X'")  # fmt: skip

        assert "no new version" in result.stderr
        assert flights.version == 1

    def test_only_a_view_is_merged_into(self, cli, flights, address, changes) -> None:
        done = cli.json(
            "merge", address, changes, "--on", "flight", "--where", "dt = '2013-01-02'",
            "--matched", "delete", "--not-matched", "ignore", "--delete-where", "source.op = 'D'",
            "--missing", "delete", "--missing-where", "target.flight IS NULL",
        )  # fmt: skip

        assert (done["updated_row_count"], done["inserted_row_count"]) == (0, 0)
        assert done["deleted_row_count"] >= 1
        assert flights.where("flight = 1545").count() == 1

    @pytest.mark.parametrize(
        ("options", "word"),
        [
            (("--on", "flihgt"), "flight"),
            (("--on", "flight"), "op"),
            (("--on", "flight", "--update-where", "op = 'U'"), "source.op"),
            (("--on", "flight", "--matched", "ignore", "--delete-where", "TRUE"), "delete_where"),
        ],
    )
    def test_what_means_nothing_is_refused(self, cli, address, changes, options, word) -> None:
        error = cli.error("merge", address, changes, *options)

        assert word in error["message"] + error["hint"]

    def test_a_key_that_comes_twice_is_shown(self, cli, flights, address) -> None:
        lines = io.StringIO('{"flight": 5}\n{"flight": 5}\n').getvalue()

        error = cli.error(
            "merge", address, "-", "--on", "flight", "--not-matched", "ignore", stdin=lines
        )

        assert error["code"] == "duplicate-key"
        assert "flight = 5" in error["message"]
        assert flights.version == 1

    def test_a_broken_line_of_standard_input_is_told_as_such(self, cli, flights, address) -> None:
        error = cli.error(
            "merge", address, "-", "--on", "flight", stdin='{"flight": 5}\n{"flight\n'
        )

        assert "standard input" in error["message"]
        assert "/tmp" not in error["message"] + error["hint"]
        assert flights.version == 1

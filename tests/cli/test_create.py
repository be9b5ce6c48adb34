"""`lakebed create` by a file of rows."""

import json

import lakebed

ROWS = "day,id,name\n2020-01-01,1,a\n2020-01-02,2,NA\n"


def test_types_are_found_and_told_before_the_dataset_is_created(cli, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text(ROWS)
    address = tmp_path / "lake" / "d"

    answer = cli("create", str(address), "--like", str(rows), "--null-text", "NA", "-o", "json")

    told = [line.split() for line in answer.stderr.splitlines()[1:]]
    assert told == [["day", "date"], ["id", "long"], ["name", "string"]]
    fields = [field["name"] for field in json.loads(answer.stdout)["schema"]["fields"]]
    assert fields == ["day", "id", "name"]
    assert lakebed.open_repository(str(tmp_path / "lake")).open("d").count() == 0


def test_dry_run_tells_the_types_and_creates_nothing(cli, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text(ROWS)

    answer = cli("create", str(tmp_path / "lake" / "d"), "--like", str(rows), "--dry-run")

    assert "name  string" in answer.stderr
    assert answer.stdout == ""
    assert not (tmp_path / "lake").exists()


def test_schema_and_rows_are_not_taken_together_nor_neither(cli, tmp_path):
    address = str(tmp_path / "lake" / "d")

    neither = cli("create", address, exit_code=2)
    both = cli("create", address, "--like", "rows.csv", "--schema", "x.avsc", exit_code=2)

    assert "one of --schema and --like" in neither.stderr
    assert "one of --schema and --like" in both.stderr


def test_show_says_what_may_be_done_next(cli, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text(ROWS)
    address = str(tmp_path / "lake" / "d")
    cli("create", address, "--like", str(rows))

    empty = cli("show", address)
    cli("append", address, str(rows))
    filled = cli("show", address)

    assert f"lakebed append {address} FILE" in empty.stderr
    assert f"lakebed query {address}" in filled.stderr
    assert cli("show", address, "-o", "json").stderr == cli("show", address, "-q").stderr == ""


def test_rows_of_an_unknown_suffix_are_told_what_helps_here(cli, tmp_path):
    rows = tmp_path / "rows.txt"
    rows.write_text(ROWS)

    answer = cli("create", str(tmp_path / "lake" / "d"), "--like", str(rows), exit_code=2)

    assert "schema infer" in answer.stderr
    assert not (tmp_path / "lake").exists()

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


def test_a_directory_stands_for_the_rows_of_its_files(cli, tmp_path):
    for dt, row in (("2020-01-01", {"id": 1}), ("2020-01-02", {"id": 2, "name": "a"})):
        folder = tmp_path / "rows" / f"dt={dt}"
        folder.mkdir(parents=True)
        (folder / "rows.jsonl").write_text(json.dumps(row))
    address = tmp_path / "lake" / "d"

    cli("create", str(address), "--like", str(tmp_path / "rows"))

    dataset = lakebed.open_repository(str(tmp_path / "lake")).open("d")
    assert dataset.descriptor.schema.names == ("id", "name", "dt")
    assert str(dataset.schema.get("dt").type) == "date"


def test_a_directory_without_rows_is_told(cli, tmp_path):
    (tmp_path / "rows").mkdir()

    answer = cli("create", str(tmp_path / "d"), "--like", str(tmp_path / "rows"), exit_code=2)

    assert "No CSV, JSON lines" in answer.stderr


def test_a_dataset_stands_for_its_fields(cli, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text(ROWS)
    cli("create", str(tmp_path / "lake" / "a"), "--like", str(rows), "--partition-by", "day")

    answer = cli("create", str(tmp_path / "lake" / "b"), "--like", str(tmp_path / "lake" / "a"))

    b = lakebed.open_repository(str(tmp_path / "lake")).open("b")
    assert b.descriptor.schema.names == ("day", "id", "name")
    assert not b.descriptor.partition_by.functions
    assert "nothing else of it" in answer.stderr


HOURS = ("--partition-by", "hour(at)")


def test_partitions_that_come_again_are_noted_on_stderr(cli, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("at,n\n2020-01-01T05:00:00Z,1\n")
    address = str(tmp_path / "lake" / "d")

    dry = cli("create", address, "--like", str(rows), *HOURS, "--dry-run")
    made = cli("create", address, "--like", str(rows), *HOURS, "-o", "json")
    imported = cli("import", f"{address}2", str(rows), *HOURS)
    safe = cli("import", f"{address}3", str(rows), "--partition-by", "date(at), hour(at)")

    for result in (dry, made, imported):
        (line,) = [line for line in result.stderr.splitlines() if line.startswith("Warning: ")]
        assert "repeat every day" in line
        assert "date(at), hour(at)" in line
    assert json.loads(made.stdout)["version"] == 0
    assert "Warning" not in safe.stderr

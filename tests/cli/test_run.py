"""`lakebed run` and `lakebed runs` through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sales_days import Sales

import lakebed
from lakebed.pipeline.declaration import schema_of_pipelines
from lakebed.pipeline.pipeline_report import STEPS


@pytest.fixture
def sales(tmp_path: Path) -> Sales:
    sales = Sales(root=tmp_path)
    sales.declare()
    sales.write_day("a", 1, 400)
    return sales


def test_each_step_is_a_line(cli, sales: Sales) -> None:
    lines = cli("run", sales.file).stdout.splitlines()

    assert [line.split()[:2] for line in lines] == [
        ["ingest", "done"],
        ["retain", "done"],
        ["compact", "nothing"],
        ["publish", "done"],
        ["cleanup", "done"],
    ]
    assert "1 file, 8 rows" in lines[0]


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "plain"])
def test_each_step_is_a_record(cli, sales: Sales, form: str) -> None:
    out = cli("run", sales.file, "-o", form).stdout

    match form:
        case "json":
            steps = [one["step"] for one in json.loads(out)]
        case "jsonl":
            steps = [json.loads(line)["step"] for line in out.splitlines()]
        case "csv":
            steps = [line.partition(",")[0] for line in out.splitlines()[1:]]
        case _:
            steps = out.splitlines()
    assert ["checks", *steps] == list(STEPS)


def test_csv_has_one_header(cli, sales: Sales) -> None:
    out = cli("run", sales.file, "-o", "csv").stdout

    assert out.count("step,status") == 1


def test_a_dry_run_shows_files_bytes_and_requests(cli, sales: Sales) -> None:
    cli("run", sales.file)
    sales.write_day("b", 1, 2)

    ingest, retain, compact, publish, cleanup = cli.json("run", sales.file, "--dry-run")

    assert ingest["facts"]["new_count"] == ingest["facts"]["request_count"] == 1
    assert ingest["facts"]["size_bytes"] > 0
    assert [one["status"] for one in (retain, compact, publish, cleanup)] == ["nothing"] * 4
    assert lakebed.open_repository(sales.lake).open("sales").count() == 3


def test_steps_are_chosen_by_options(cli, sales: Sales) -> None:
    assert [one["step"] for one in cli.json("run", sales.file, "--only", "ingest")] == ["ingest"]
    chosen = cli.json("run", sales.file, "--from", "publish")
    assert [one["step"] for one in chosen] == ["publish", "cleanup"]
    assert "compat" in cli("run", sales.file, "--only", "compat", exit_code=2).stderr


def test_a_file_that_is_kept_back_makes_the_exit_code_2_and_is_named(cli, sales: Sales) -> None:
    (sales.root / "in" / "bad.jsonl").write_text("garbage\n" * 20)

    result = cli("run", sales.file, exit_code=2)

    assert result.stdout.split()[:2] == ["ingest", "attention"]
    assert "Kept back: " in result.stderr
    assert "bad.jsonl" in result.stderr


def test_the_exit_code_is_that_of_the_step_that_failed(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests of the process may have left a session.
    monkeypatch.setattr("lakebed.tables.automatic.is_session_running", lambda: False)
    sales = Sales(root=tmp_path, tables='delta = true\nhive = "lake.sales"\n')
    sales.declare()
    sales.write_day("a", 1)

    shown = cli("run", sales.file, exit_code=9)
    assert "Error: publish: 'sales' is not published to hive lake.sales" in shown.stderr
    steps = json.loads(cli("run", sales.file, "-o", "json", exit_code=9).stdout)
    assert [one["error"]["code"] for one in steps if one["error"]] == ["not-published"]


def test_mistakes_are_an_error_of_input_with_their_lines(cli, sales: Sales) -> None:
    sales.file.write_text(sales.file.read_text().replace("paths", "pths").replace("keep", "kep"))

    error = cli.error("run", sales.file)

    assert (error["code"], error["exit_code"]) == ("invalid-input", 2)
    assert "line 2, [source] pths" in error["message"]
    assert "[retention] kep" in error["message"]
    assert not sales.lake.exists()


def test_a_check_is_for_alerts(cli, sales: Sales) -> None:
    never = cli("run", sales.file, "--check", exit_code=10)
    assert "no successful run" in never.stderr

    cli("run", sales.file)
    told = cli.json("run", sales.file, "--check", "--max-age", "1h")
    assert (told["is_overdue"], told["last_state"]) == (False, "ok")
    late = cli("run", sales.file, "--check", "--max-age", "0s", exit_code=10)
    assert "the limit is 0:00:00" in late.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "Missing argument"),
        (("x.toml", "--max-age", "1h"), "with --check"),
        (("x.toml", "--check", "--dry-run"), "runs nothing"),
        (("x.toml", "--check", "--only", "ingest"), "runs nothing"),
    ],
)
def test_options_that_do_not_go_together_are_refused(cli, options, said: str) -> None:
    assert said in cli("run", *options, exit_code=2).stderr


def test_the_schema_is_printed_for_editors(cli) -> None:
    assert json.loads(cli("run", "--schema").stdout) == schema_of_pipelines()


def test_runs_are_listed_of_a_repository_and_of_a_pipeline(cli, sales: Sales) -> None:
    cli("run", sales.file)
    cli("run", sales.file)
    other = sales.root / "other.toml"
    other.write_text(f'name = "other"\n{sales.file.read_text()}')
    cli("run", other)

    rows = cli.json("runs", sales.lake)
    assert [row["pipeline"] for row in rows] == ["other", "sales", "sales"]
    assert [row["state"] for row in rows] == ["ok"] * 3
    assert [step["step"] for step in rows[0]["steps"]] == list(STEPS[1:]), "no checks are declared"
    assert len(cli.json("runs", sales.file)) == 2
    assert len(cli.json("runs", sales.file, "--limit", "1")) == 1
    table = cli("runs", sales.lake).stdout
    assert "ingest done, retain done" in table


def test_a_run_in_a_repository_without_a_log_lists_nothing(cli, lake) -> None:
    assert cli.json("runs", lake.uri) == []

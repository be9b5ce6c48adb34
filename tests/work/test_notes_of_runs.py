"""Notes on commits of named runs that add rows where the user may have meant to replace some."""

import logging

import pytest
from click.testing import CliRunner

import lakebed
from lakebed.cli.main import main

ROWS = [{"day": 1, "n": 1}, {"day": 1, "n": 2}]


@pytest.fixture
def lake(tmp_path):
    return lakebed.open_repository(tmp_path)


def test_second_append_of_a_run_is_noted_and_logged(lake, caplog):
    lake.write("o", ROWS, partition_by="day")
    assert lake["o"].append(ROWS, run="second").notes == ()
    assert lake["o"].append(ROWS, run="third").notes == ()
    assert lake["o"].append(ROWS).notes == ()

    with caplog.at_level(logging.WARNING, logger="lakebed"):
        again = lake["o"].append(ROWS, run="second")

    (note,) = again.notes
    assert note.startswith("Run 'second' has rows already; append adds to them.")
    assert "`rerun`" in note
    assert note in caplog.text


def test_append_of_a_run_without_live_rows_is_not_noted(lake):
    lake.write("o", ROWS, partition_by="day", run="first")
    lake["o"].overwrite(ROWS)

    assert lake["o"].append(ROWS, run="first").notes == ()


def test_append_of_no_rows_is_not_noted(lake):
    lake.write("o", ROWS, run="first")

    assert lake["o"].append([], run="first").notes == ()


def test_append_of_a_run_whose_rows_were_compacted_is_noted(lake):
    lake.write("o", ROWS, run="first")
    lake["o"].append(ROWS, run="first")
    lake["o"].compact()

    assert len(lake["o"].append(ROWS, run="first").notes) == 1


@pytest.mark.parametrize("verb", ["write", "rerun"])
def test_rerun_whose_rows_an_unnamed_overwrite_has_replaced_is_noted(lake, verb):
    lake.write("o", ROWS, partition_by="day", run="first")
    lake["o"].overwrite(ROWS)

    if verb == "write":
        done = lake.write("o", ROWS, run="first")
    else:
        done = lake["o"].rerun(ROWS, run="first", replace_all=True)

    (note,) = done.notes
    assert "'first' had no rows left" in note
    assert "added to those of no named run in day=1" in note
    assert "partitions=True" in note
    assert lake["o"].count() == 4


def test_rerun_that_replaces_its_rows_is_not_noted(lake):
    lake.write("o", ROWS, partition_by="day", run="first")
    lake["o"].append(ROWS)

    assert lake.write("o", ROWS, run="first").notes == ()


def test_rerun_beside_no_other_rows_is_not_noted(lake):
    lake.write("o", ROWS, partition_by="day", run="first")
    lake["o"].delete("n > 0")

    assert lake.write("o", ROWS, run="first").notes == ()


def test_staged_append_is_noted(lake):
    lake.write("o", ROWS, run="first")
    staged = lake["o"].staged.add(ROWS, run="first")

    assert "has rows already" in staged.commit().notes[0]


def test_command_line_shows_the_note(lake, tmp_path):
    (tmp_path / "rows.csv").write_text("day,n\n1,1\n")
    lake.write("o", ROWS, run="first")

    done = CliRunner().invoke(
        main, ["append", f"{tmp_path}/o", f"{tmp_path}/rows.csv", "--run", "first"]
    )

    assert done.exit_code == 0, done.stderr
    assert "has rows already" in done.stderr


def test_compaction_of_files_of_many_runs_reports_why_it_merges_none(lake, tmp_path):
    for hour in range(24):
        lake.write("o", [{"day": 1, "n": hour}], partition_by="day", run=f"hour {hour}")

    for report in (lake["o"].compact(dry_run=True), lake["o"].compact()):
        assert report.commits == ()
        (note,) = report.notes
        assert note.startswith("24 small files belong to 24 runs and stay apart")

    done = CliRunner().invoke(main, ["compact", f"{tmp_path}/o", "--dry-run"])
    assert "24 small files belong to 24 runs and stay apart" in done.stderr
    day = lake["o"].where("day = 1")
    day.overwrite(day.arrow(), run="day 1, closed")
    assert (lake["o"].count(), len(lake["o"].files())) == (24, 1)
    assert lake["o"].compact().notes == ()


def test_compaction_that_merges_the_files_of_a_run_has_no_notes(lake):
    for n in range(3):
        lake.write("o", [{"day": 1, "n": n}], partition_by="day")

    report = lake["o"].compact()

    assert (report.files_after, report.notes) == (1, ())

"""The verb ingest, from options and from a file."""

import csv
import io
import json
import shlex

import pytest

import lakebed

AVSC = {"type": "record", "name": "n", "fields": [{"name": "n", "type": "long"}]}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with two files, one bad line and a schema."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"n": 1}\n{"n": "one"}\n')
    (tmp_path / "in" / "b.jsonl").write_text('{"n": 2}\n')
    (tmp_path / "n.avsc").write_text(json.dumps(AVSC))
    return tmp_path


OPTIONS = ("--max-rejects", "0.5", "--into", "lake/n", "--schema", "n.avsc", "--local")
KNOWN = ("--max-rejects", "0.5", "--into", "lake/n", "--local")


def test_options_declare_an_ingest_of_a_folder(cli, place) -> None:
    told = cli.json("ingest", "in", *OPTIONS, "--run", "daily")

    assert (told["name"], told["row_count"], told["rejected_count"]) == ("daily", 2, 1)
    assert (told["file_count"], told["quarantine"]) == (2, "n_quarantine")
    again = cli.json("ingest", "in", "--into", "lake/n", "--local")
    assert (again["file_count"], again["unchanged_count"], again["batch_id"]) == (0, 2, None)


def test_a_question_to_an_archive_is_written_as_key_value(cli, place) -> None:
    archive = lakebed.open_archive("raw")
    archive.push("in/a.jsonl", where="box", what="n", start="2015-03-20")
    archive.push("in/b.jsonl", where="box", what="n", start="2016-03-20")

    told = cli.json(
        "ingest", "--from-archive", "what=n", "where=box", "start=2015-01-01", "end=2015-12-31",
        "--storage", "raw", "--format", "json", *OPTIONS,
    )  # fmt: skip

    assert (told["file_count"], told["row_count"]) == (1, 1)


def test_a_file_declares_an_ingest(cli, place) -> None:
    (place / "n.toml").write_text(
        '[source]\npaths = "in"\n[dataset]\ninto = "lake/n"\nschema = "n.avsc"\n'
        "[ingest]\nmax_rejects = 0.5\n"
    )

    assert cli.json("ingest", "n.toml", "--local")["row_count"] == 2
    assert "leave --into out" in cli.error("ingest", "n.toml", "--into", "lake/n")["message"]


def test_dry_run_says_what_would_be_read_and_writes_nothing(cli, place) -> None:
    told = cli.json("ingest", "in", *OPTIONS, "--dry-run")

    assert [name.rpartition("/")[2] for name in told["new"]] == ["a.jsonl", "b.jsonl"]
    assert told["creates_dataset"] is True
    assert not (place / "lake").exists()


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "csv"])
def test_the_summary_comes_in_every_form(cli, place, form) -> None:
    out = cli("ingest", "in", *OPTIONS, "-o", form).stdout

    match form:
        case "table":
            assert "\nrow count                2\n" in out
        case "csv":
            (row,) = csv.DictReader(io.StringIO(out))
            assert row["row_count"] == "2"
        case _:
            assert json.loads(out)["row_count"] == 2


def test_rejects_can_fail_the_command_before_anything_is_committed(cli, place) -> None:
    error = cli.error("ingest", "in", *OPTIONS, "--fail-on-rejects")

    assert (error["code"], error["exit_code"]) == ("rejects", 2)
    assert "a.jsonl, line 2: " in error["message"]
    assert cli.error("query", "lake/n")["code"] == "dataset-not-found"
    assert not list((place / "lake").glob("n_quarantine*"))


def test_fields_that_the_dataset_lacks_are_ignored_kept_or_rejected_as_asked_for(
    cli, place
) -> None:
    (place / "in" / "a.jsonl").write_text('{"n": 1, "note": "x"}\n')

    rejected = cli.json("ingest", "in", *OPTIONS, exit_code=2)
    assert (rejected["row_count"], rejected["rejected_line_count"]) == (1, 1)
    again = cli("ingest", "in", *OPTIONS, exit_code=2)
    assert "--unknown keep" in again.stderr
    assert "--unknown ignore" in again.stderr
    ignored = cli.json("ingest", "in", *OPTIONS, "--unknown", "ignore")
    assert (ignored["row_count"], ignored["ignored_fields"]) == (1, "note")
    kept = cli("ingest", "in", *OPTIONS, "--unknown", "keep", "--again", "in/a.jsonl")
    assert "The schema of the dataset has changed: +note: string." in kept.stderr
    assert cli.json("query", "lake/n", "--where", "n = 1") == [{"n": 1, "note": "x"}]


def test_options_that_hints_name_go_with_a_file(cli, place) -> None:
    (place / "in" / "a.jsonl").write_text("garbage\n" * 3)
    (place / "n.toml").write_text(
        '[source]\npaths = "in"\n[dataset]\ninto = "lake/n"\nschema = "n.avsc"\n'
    )

    kept_back = cli("ingest", "n.toml", "--local", exit_code=2)
    assert "--max-rejects 1" in kept_back.stderr
    taken = cli.json("ingest", "n.toml", "--local", "--max-rejects", "1", "--allow-truncated")
    assert taken["kept_back_count"] == 0
    wrong = cli.error("ingest", "n.toml", "--supersede", "span")
    assert "supersede is 'span'" in wrong["message"]


def test_the_quarantine_is_readable_at_80_columns(cli, place, monkeypatch) -> None:
    cli("ingest", "in", *OPTIONS)
    monkeypatch.setenv("COLUMNS", "80")

    shown = cli("query", "lake/n_quarantine").stdout

    header = shown.splitlines()[0].split()
    assert header[:3] == ["line_number", "reason", "text"]
    assert "one" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("in", "--local"), "--into"),
        (("in", "--into", "lake/n", "--partition-by", "n"), "--schema"),
        (("--from-archive", "what=n", "--into", "lake/n"), "--storage"),
        (("--from-archive", "whta=n", "--storage", "raw", "--into", "lake/n"), "whta"),
        (("--from-archive", "where=n", "--storage", "raw", "--into", "lake/n"), "lacks 'what'"),
        (("nowhere", "--into", "lake/n", "--local"), "nowhere"),
    ],
)
def test_wrong_command_lines_are_refused(cli, place, arguments, said) -> None:
    error = cli.error("ingest", *arguments)

    assert said in error["message"]
    assert error["exit_code"] == 2


def test_programs_are_told_which_file_is_kept_back_and_why(cli, place) -> None:
    cli("ingest", "in", *OPTIONS)
    (place / "in" / "b.jsonl").write_text('{"n": "two"}\n')

    options = ("--into", "lake/n", "--local", "--supersede", "path")
    checked = cli.json("ingest", "in", *options, "--dry-run")
    told = cli.json("ingest", "in", *options, exit_code=2)

    assert checked["left_out"] == []
    (left,) = told["left_out"]
    assert (left["location"], left["why"]) == (str(place / "in" / "b.jsonl"), "rejects")
    assert left["is_kept_back"]
    assert "does not fit" in left["detail"]
    assert "left out" not in cli("ingest", "in", *options, exit_code=2).stdout
    dry = cli.json("ingest", "in", *options, "--dry-run", exit_code=2)
    assert dry["left_out"] == told["left_out"], "as the run, once it is known"


def test_a_question_that_no_file_answers_is_told_from_files_that_were_read_before(
    cli, place
) -> None:
    archive = lakebed.open_archive("raw")
    archive.push("in/b.jsonl", where="box", what="n", start="2015-03-20")
    options = ("start=2015-01-01", "end=now", "--storage", "raw", "--format", "json", *OPTIONS)

    nothing = cli("ingest", "--from-archive", "what=m", *options)
    cli("ingest", "--from-archive", "what=n", *options)
    again = cli("ingest", "--from-archive", "what=n", *options)

    assert "Nothing was loaded: there is no file." in nothing.stderr
    assert "Nothing was loaded: all usable files were read before." in again.stderr


@pytest.fixture
def no_spark(monkeypatch) -> None:
    def fail() -> None:
        pytest.fail("a session was started")

    monkeypatch.setattr("lakebed.cli.import_verb.get_session", fail)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("where", [(), ("--spark",)])
def test_a_missing_dataset_is_noticed_before_spark_starts(cli, place, where) -> None:
    error = cli.error("ingest", "in", "--into", "lake/n", *where)

    assert (error["code"], error["exit_code"]) == ("dataset-not-found", 3)


@pytest.mark.usefixtures("no_spark")
def test_spark_starts_for_large_files_that_are_due_and_for_no_others(
    cli, place, monkeypatch
) -> None:
    assert cli.json("ingest", "in", *OPTIONS[:-1])["row_count"] == 2
    monkeypatch.setattr("lakebed.cli.import_verb.SPARK_FROM_BYTES", 1)
    for where in ((), ("--spark",)):
        assert cli.json("ingest", "in", "--into", "lake/n", *where)["unchanged_count"] == 2
    (place / "in" / "c.jsonl").write_text('{"n": 3}\n')
    (place / "in" / "d.jsonl").write_text('{"n": 4}\n')

    with pytest.raises(pytest.fail.Exception, match="a session was started"):
        cli("ingest", "in", "--into", "lake/n")

    assert cli.json("ingest", "in", "--into", "lake/n", "--local")["row_count"] == 2


@pytest.mark.parametrize(
    ("option", "quarantine"),
    [
        (("--quarantine",), "n_quarantine"),
        (("--quarantine=bad",), "bad"),
        (("--quarantine", "bad"), "bad"),  # as releases before took it
    ],
)
def test_the_quarantine_of_an_ingest_may_have_a_name(cli, place, option, quarantine) -> None:
    told = cli.json("ingest", "in", *option, *OPTIONS)

    assert told["quarantine"] == quarantine
    assert lakebed.open_repository("lake").open(quarantine).count() == 1


@pytest.mark.parametrize("run", ["daily", "Bob's", 'a "$HOME"', "`x` \\\\"])
def test_what_did_not_fit_is_found_by_the_command_that_the_note_names(cli, place, run) -> None:
    told = cli("ingest", "in", *OPTIONS, "--run", run)

    line = next(line for line in told.stderr.splitlines() if "See why with: " in line)
    program, *words = shlex.split(line.partition("See why with: ")[2])
    assert (program, len(cli.json(*words))) == ("lakebed", 1)


def test_a_file_is_held_listed_and_released(cli, place) -> None:
    held = cli.json("ingest", "in", *OPTIONS, "--hold", "in/b.jsonl", "--reason", "torn")
    told = cli("ingest", "in", *KNOWN)

    assert held["operation"] == "hold"
    assert "Held: " in told.stderr
    assert "in/b.jsonl: held since" in told.stderr
    assert [row["reason"] for row in cli.json("sources", "lake/n", "--held")] == ["torn"]
    assert [hold["reason"] for hold in cli.json("show", "lake/n")["held"]] == ["torn"]
    cli("ingest", "--into", "lake/n", "--release", "in/b.jsonl")
    assert cli.json("ingest", "in", *KNOWN)["file_count"] == 1
    assert [row["is_held"] for row in cli.json("sources", "lake/n")] == [False, False]


@pytest.mark.parametrize("option", ["--dry-run", "--follow", "--again=in/b.jsonl"])
def test_an_option_of_reading_is_refused_beside_a_hold(cli, place, option: str) -> None:
    cli("ingest", "in", *OPTIONS)

    told = cli("ingest", "in", *OPTIONS, "--hold", "in/b.jsonl", option, exit_code=2)

    assert f"leave {option.partition('=')[0]} out" in told.stderr.replace("\n", " ")
    assert cli.json("sources", "lake/n", "--held") == []


def test_a_reason_without_a_hold_is_refused(cli, place) -> None:
    cli("ingest", "in", *OPTIONS)

    for verb in (("ingest", "in", *OPTIONS), ("rollback", "lake/n", "--version", "0")):
        assert "Give --reason with --hold" in cli(*verb, "--reason", "torn", exit_code=2).stderr


def test_a_rollback_names_or_holds_what_the_next_ingest_reads(cli, place) -> None:
    cli("ingest", "in/b.jsonl", *OPTIONS)
    cli("ingest", "in/a.jsonl", *KNOWN)

    tried = cli("rollback", "lake/n", "--version", "1", "--dry-run")
    told = cli.json("rollback", "lake/n", "--version", "1")
    again = cli("ingest", "in", *KNOWN)
    held = cli.json("rollback", "lake/n", "--version", "1", "--hold")
    last = cli.json("ingest", "in", *KNOWN)

    assert "The next ingest reads 1 raw file again" in tried.stderr
    assert "The next ingest reads 1 raw file again" in told["notes"][0]
    assert "Read again, since a rollback removed their rows: 1 file" in again.stderr
    assert "No ingest reads 1 raw file" in held["notes"][0]
    assert (last["file_count"], last["held_count"]) == (0, 1)

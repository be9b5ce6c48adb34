"""The second attempt: a first run that went wrong, a correction of the declaration, and the words."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed

FIELDS = {"n": "long"}


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    return tmp_path


def declare(place: Path, kind: str, *more: str) -> None:
    fields = [{"name": "n", "type": ["null", kind]}]
    schema = json.dumps({"type": "record", "name": "row", "fields": fields})
    lines = ['[source]\npaths = "in"\n[dataset]\ninto = "lake/t"', f"schema = '{schema}'", *more]
    (place / "p.toml").write_text("\n".join(lines) + "\n")


def test_a_first_run_that_loads_nothing_leaves_no_dataset_and_the_corrected_one_loads(
    cli, place
) -> None:
    (place / "in/a.jsonl").write_text('{"n": "x"}\n{"n": "y"}\n')
    declare(place, "long")

    told = cli("run", "p.toml", exit_code=2)

    assert "Nothing was loaded: 1 file was kept back." in told.stderr
    assert "WARNING" not in told.stderr
    assert cli.error("show", "lake/t")["code"] == "dataset-not-found"
    declare(place, "string")
    cli("run", "p.toml")
    assert [row["n"] for row in cli.json("query", "lake/t")] == ["x", "y"]
    assert cli.json("query", "lake/t_quarantine") == []


def test_a_run_without_files_makes_no_dataset(place) -> None:
    declared = lakebed.Ingest(
        name="t",
        into="lake/t",
        source=lakebed.FromFiles(paths="in", may_be_empty=True),
        create=lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())])),
    )

    report = declared.run()

    assert (report.file_count, report.version) == (0, 0)
    assert not Path("lake/t.by-dataset-metadata.json").exists()
    Path("in/a.jsonl").write_text('{"n": 1}\n')
    assert (declared.run().version, declared.dataset().count()) == (1, 1)


def test_two_first_runs_at_once_make_one_dataset(place) -> None:
    declare(place, "long")
    for name in ("a", "b"):
        (place / f"in/{name}.jsonl").write_text(f'{{"n": {ord(name)}}}\n')
    declared = lakebed.Ingest.from_toml("p.toml")
    runs = []

    def meanwhile(progress: object) -> None:
        if not runs:
            runs.append(1)
            declared.run()

    report = declared.run(on_progress=meanwhile)

    assert report.unchanged_count == 2
    assert declared.dataset().count() == 2


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("string", "", "n is declared as string, and long in the dataset"),
        ("long", ', {"name": "m", "type": ["null", "long"]}', "m is missing in the dataset"),
    ],
)
def test_an_edited_schema_of_a_dataset_that_exists_is_noticed(
    cli, place, kind: str, more: str, said: str
) -> None:
    (place / "in/a.jsonl").write_text('{"n": 1}\n')
    declare(place, "long")
    assert "declared schema" not in cli("run", "p.toml").stderr
    declare(place, kind)
    text = (place / "p.toml").read_text()
    (place / "p.toml").write_text(text.replace("}]}'", f"}}{more}]}}'"))

    told = cli("run", "p.toml")

    assert said in told.stderr.replace("\n", " ")
    assert "lakebed drop" in told.stderr
    step = cli.json("run", "p.toml")[0]
    assert step["facts"]["schema_differences"] == said


@pytest.mark.parametrize(
    ("text", "as_key", "as_option"),
    [
        ('{"n": 1}\n' + '{"n": "x"}\n' * 3, "max_rejects = 1 in [ingest]", "--max-rejects 1"),
        ('{"n": 1, "m": 2}\n', "unknown = 'keep' in [ingest]", "--unknown keep"),
    ],
)
def test_a_pipeline_names_keys_and_a_command_names_options(
    cli, place, text: str, as_key: str, as_option: str
) -> None:
    (place / "in/a.jsonl").write_text(text)
    declare(place, "long")

    run = cli("run", "p.toml", exit_code=2).stderr.replace("\n", " ")
    ingest = cli("ingest", "p.toml", "--local", exit_code=2).stderr.replace("\n", " ")

    assert (as_key in run, as_option in run) == (True, False)
    assert (as_key in ingest, as_option in ingest) == (False, True)


def test_lines_with_another_number_of_cells_point_at_the_notation(cli, place) -> None:
    (place / "in/a.csv").write_text("n\n" + "1,2\n" * 3)
    declare(place, "long")

    told = cli("run", "p.toml", exit_code=2).stderr.replace("\n", " ")

    assert "look at delimiter" in told
    assert "max_rejects" not in told


def test_init_names_what_no_run_reads(cli, place) -> None:
    (place / "in/a.jsonl").write_text('{"n": 1}\n')
    (place / "in/notes.txt").write_text("hello")
    os.mkfifo(place / "in/pipe")

    draft = cli("init", "in", "--into", "lake/t").stdout

    assert "# Not read: in/notes.txt (another suffix), in/pipe (a pipe)." in draft
    (place / "p.toml").write_text(draft)
    cli("run", "p.toml")


def test_an_empty_folder_is_an_error_that_names_the_key(cli, place) -> None:
    declare(place, "long")

    told = cli("run", "p.toml", exit_code=2)

    assert "may_be_empty = true in [source]" in told.stderr.replace("\n", " ")


def test_progress_moves_within_a_file_by_its_bytes(place) -> None:
    (place / "in/a.csv").write_text("s\n" + ("x" * 2_000 + "\n") * 20_000)
    dataset = lakebed.open_repository("lake").create(
        "t", lakebed.DatasetDescriptor(schema=pa.schema([("s", pa.string())]))
    )
    seen = []

    dataset.load("in/a.csv", on_progress=seen.append)

    total = seen[-1].size_total_bytes
    assert [one for one in seen if 0 < one.size_bytes < total]


@pytest.mark.thorough  # asks a process
def test_run_shows_a_bar_on_a_terminal_and_whole_lines_of_steps(place) -> None:
    (place / "in/a.jsonl").write_text('{"n": 1}\n' * 400_000)
    declare(place, "long")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "lakebed", "run", "p.toml"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:
        pass  # Linux says so when the other side is closed
    os.close(ours)

    assert process.wait() == 0, shown.decode()
    assert b"of 1 file" in shown
    assert b"ingest   done       1 file, 400,000 rows" in shown

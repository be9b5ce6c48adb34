"""The history tells runs of one ingest apart, by the raw files or the window that they have read."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import lakebed
from lakebed.cli import main
from lakebed.commit import RawFilesRead

SCHEMA = {"type": "record", "name": "row", "fields": [{"name": "n", "type": "long"}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def ingest_of(root: Path, source: object, **more: object) -> lakebed.Ingest:
    return lakebed.Ingest(
        name="daily",
        into=f"{root}/lake/d",
        source=source,  # type: ignore[arg-type]
        create=lakebed.DatasetDescriptor(schema=SCHEMA),
        **more,  # type: ignore[arg-type]
    )


def run_in_words(dataset: lakebed.Dataset) -> list[str | None]:
    return [commit.run_in_words() for commit in dataset.history()]


def test_runs_over_a_folder_are_named_by_their_files(tmp_path: Path, folder: Path) -> None:
    ingest = ingest_of(tmp_path, lakebed.FromFiles(paths=str(folder)))
    (folder / "monday.jsonl").write_text('{"n": 1}\n')
    ingest.run()
    for name in ("tuesday", "wednesday", "thursday"):
        (folder / f"{name}.jsonl").write_text(f'{{"n": {len(name)}}}\n')
    ingest.run()
    (folder / "monday.jsonl").write_text('{"n": 1}\n{"n": 3}\n')
    ingest.run()
    dataset = ingest.dataset()
    dataset.append([{"n": 9}], run="by-hand")
    dataset.append([{"n": 9}])

    assert run_in_words(dataset) == [
        None,
        "daily: monday.jsonl",
        "daily: thursday.jsonl and 2 more",
        "daily: monday.jsonl",
        "by-hand",
        None,
    ]
    read = dataset.history()[2].read
    assert read is not None
    assert (read.file_count, read.first, read.start) == (3, "thursday.jsonl", None)
    assert "daily: thursday.jsonl and 2 more" in repr(dataset.history())
    # An older version knows the runs up to it.
    assert run_in_words(dataset.at(version=1)) == [None, "daily: monday.jsonl"]


def test_runs_over_an_archive_are_named_by_their_window(tmp_path: Path) -> None:
    archive = lakebed.open_archive(str(tmp_path / "raw"))

    def push(start: str, end: str | None = None) -> None:
        content = io.BytesIO(f'{{"n": {len(start)}}}\n'.encode())
        path = f"/srv/weather/{start[:13]}.jsonl"
        archive.push(content, path=path, where="ewr", what="weather", start=start, end=end)

    source = lakebed.FromArchive(
        storage=archive.store.uri, what="weather", start="2013-01-01", end="2013-12-31"
    )
    ingest = ingest_of(tmp_path, source, format="json")
    push("2013-06-01")
    ingest.run()
    push("2013-06-02")
    push("2013-06-05")
    ingest.run()
    push("2013-06-06T10:30", "2013-06-06T11:00")
    push("2013-06-06T12:00", "2013-06-06T12:30")
    ingest.run()

    assert run_in_words(ingest.dataset()) == [
        None,
        "daily: 2013-06-01.jsonl",
        "daily: 2 files of weather, 2013-06-02 to 2013-06-05",
        "daily: 2 files of weather, 2013-06-06 10:30 to 2013-06-06 12:30",
    ]


def test_long_names_make_no_long_noise() -> None:
    read = RawFilesRead(file_count=1200, first="x" * 500 + "-2013.jsonl")
    of_archive = RawFilesRead(
        file_count=2, first="a", what="y" * 500, start=dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
    )

    assert str(read) == f"…{'x' * 18}-2013.jsonl and 1,199 more"
    assert len(str(of_archive)) < 60


def test_the_command_line_shows_them_and_has_them_as_records(tmp_path: Path, folder: Path) -> None:
    ingest = ingest_of(tmp_path, lakebed.FromFiles(paths=str(folder)))
    (folder / "monday.jsonl").write_text('{"n": 1}\n')
    ingest.run()
    address = str(tmp_path / "lake" / "d")

    def ask(*more: str) -> str:
        result = CliRunner().invoke(main, ["history", address, *more])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "daily: monday.jsonl" in ask("-o", "table")
    create, read = json.loads(ask("-o", "json"))
    assert create["read"] is None
    assert read["run"] == "daily"
    assert read["read"] == {
        "file_count": 1,
        "first": "monday.jsonl",
        "what": None,
        "start": None,
        "end": None,
    }
    rows = list(csv.DictReader(io.StringIO(ask("-o", "csv"))))
    assert json.loads(rows[1]["read"])["first"] == "monday.jsonl"


def test_a_history_is_read_even_if_the_record_of_raw_files_is_damaged(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ingest = ingest_of(tmp_path, lakebed.FromFiles(paths=str(folder)))
    (folder / "monday.jsonl").write_text('{"n": 1}\n')
    commit = ingest.run().commit
    dataset = ingest.dataset()
    assert dataset.history()[-1] == commit  # the raw files are no part of what it is
    for segment in (tmp_path / "lake" / "d" / "sources").iterdir():
        segment.write_bytes(b"damaged")

    fresh = lakebed.open_repository(tmp_path / "lake")["d"]

    assert run_in_words(fresh) == [None, "daily"]
    assert "raw files not named" in caplog.text


def test_commits_of_a_quarantine_name_the_files_of_their_rejects(
    tmp_path: Path, folder: Path
) -> None:
    ingest = ingest_of(tmp_path, lakebed.FromFiles(paths=str(folder)), max_rejects=1)
    (folder / "monday.jsonl").write_text('{"n": 1}\n{"n": "x"}\n')
    ingest.run()

    quarantine = lakebed.open_repository(tmp_path / "lake")["d_quarantine"]

    assert run_in_words(quarantine)[-1] == "daily: monday.jsonl"

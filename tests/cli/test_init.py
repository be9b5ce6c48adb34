"""`lakebed init`: what it prints is a declaration that runs as it is."""

from __future__ import annotations

import datetime as dt
import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Pipeline


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    return tmp_path


def run_of(cli, place: Path, *words: object) -> tuple[Pipeline, lakebed.PipelineReport]:
    """Save what the verb prints, and run it."""
    printed = cli("init", *words, "-q").stdout
    (place / "draft.toml").write_text(printed)
    pipeline = Pipeline.from_toml(place / "draft.toml")
    return pipeline, pipeline.run()


def test_csv_is_partitioned_by_its_day(cli, place: Path) -> None:
    for day in (1, 2):
        text = f"day,shop,amount\n2026-01-0{day},north,5\n2026-01-0{day},south,7.5\n"
        (place / f"in/{day}.csv.gz").write_bytes(gzip.compress(text.encode()))

    pipeline, report = run_of(cli, place, "in", "--into", "lake/sales")

    assert (report.exit_code, report["ingest"].facts["row_count"]) == (0, 4)
    descriptor = pipeline.ingest.dataset().descriptor
    assert list(descriptor.partition_types) == ["day", "batch_id"]
    assert [str(field.type) for field in descriptor.schema] == ["date", "string", "double"]
    assert pipeline.steps == ("ingest", "compact", "cleanup")


def test_a_time_is_partitioned_by_its_date_and_other_times_are_named(cli, place: Path) -> None:
    rows = pa.table(
        {
            "sent at": pa.array([dt.datetime(2026, 1, 1, 5)], pa.timestamp("us", "UTC")),
            "seen": pa.array([dt.date(2026, 1, 2)]),
        }
    )
    pq.write_table(rows, place / "in/a.parquet")

    pipeline, report = run_of(cli, place, "in")

    assert report["ingest"].facts["row_count"] == 1
    assert pipeline.into.endswith("lake/in")
    assert [one.source for one in pipeline.ingest.dataset().descriptor.partition_by] == ["sent at"]
    assert "Other fields with a time: seen." in (place / "draft.toml").read_text()


def test_json_without_a_time_and_with_odd_names_runs_too(cli, place: Path) -> None:
    (place / "in/a.jsonl").write_text('{"it\'\'\'s": "x", "größe": 1}\nnot JSON\n' * 5)

    pipeline, report = run_of(cli, place, "in/*.jsonl", "--into", "lake/odd")

    assert report["ingest"].facts["row_count"] == 5
    assert set(pipeline.ingest.dataset().schema.names) == {"it'''s", "größe"}


def test_another_delimiter_is_declared(cli, place: Path) -> None:
    (place / "in/a.csv").write_text("a;b\n1;2\n")

    pipeline, report = run_of(cli, place, "in", "--delimiter", ";")

    assert pipeline.ingest.csv.delimiter == ";"
    assert report["ingest"].facts["row_count"] == 1


def test_an_archive_is_looked_at_too(cli, place: Path) -> None:
    archive = lakebed.open_archive("raw")
    for day in (1, 2):
        (place / f"{day}.csv").write_text(f"day,n\n2026-01-0{day},{day}\n")
        archive.push(f"{day}.csv", where="north", what="counts", start=f"2026-01-0{day}")

    pipeline, report = run_of(
        cli, place, "raw", "--what", "counts", "--where", "north", "--format", "csv"
    )

    assert report["ingest"].facts["row_count"] == 2
    assert pipeline.name == "counts"


def test_nothing_is_written(cli, place: Path) -> None:
    (place / "in/a.csv").write_text("a,b\n1,2\n")

    cli("init", "in")

    assert sorted(path.name for path in place.rglob("*")) == ["a.csv", "in"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing",), "nothing"),
        (("in",), "in"),
        (("raw", "--what", "counts", "--format", "csv"), "no file of 'counts'"),
        (("in", "--where", "north"), "--what"),
        (("in/a.txt",), "format"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(cli, place: Path, words, said: str) -> None:
    (place / "in/a.txt").write_text("x")
    lakebed.open_archive("raw").push("in/a.txt", where="north", what="other", start="2026-01-01")

    result = cli("init", *words, exit_code=None)

    assert result.exit_code in (2, 3)
    assert said in result.stderr
    assert result.stdout == ""

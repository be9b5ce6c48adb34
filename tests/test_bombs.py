"""Small raw files that unpack to much, or would take minutes: refused soon, by name."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import lakebed
from lakebed.arrow.reading import files, sniffing
from lakebed.cli.main import main
from lakebed.errors import InvalidInputError, LakebedError, SchemaMismatchError

ROW = {"json": b'{"n": 1}', "csv": b"n,m\n1,2", "submissions": b"id\t{}"}


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let limits be low, so that the tests are fast."""
    monkeypatch.setattr(files, "MOST_EMPTY_LINES", 1_000)


def bomb(folder: Path, name: str, empty: bytes, row: bytes, *, between: int) -> Path:
    """Write 3,000 empty lines, with a row after some of them."""
    path = folder / name
    with gzip.open(path, "wb") as file:
        file.write(row + b"\n")
        for number in range(3_000):
            file.write(empty)
            if number % between == 0:
                file.write(row.rpartition(b"\n")[2] + b"\n")
    return path


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("empty", [b"\n", b"\r\n", b"  \t\n"], ids=["lf", "crlf", "white space"])
@pytest.mark.parametrize("between", [5_000, 100])
@pytest.mark.parametrize("format_", ["json", "csv", "submissions"])
def test_more_empty_lines_than_any_file_has_are_refused_by_every_reader(
    tmp_path: Path, format_: str, empty: bytes, between: int
) -> None:
    suffix = {"json": "jsonl", "csv": "csv", "submissions": "tsv"}[format_]
    path = bomb(tmp_path, f"a.{suffix}.gz", empty, ROW[format_], between=between)
    (tmp_path / f"b.{suffix}").write_bytes(ROW[format_] + b"\n")
    schema = lakebed.infer_schema(tmp_path / f"b.{suffix}", format_)
    lake = lakebed.open_repository(tmp_path / "lake")
    dataset = lake.create("t", lakebed.DatasetDescriptor(schema=schema))

    assert dataset.load(path, format=format_).rejected_count == 1  # the rest, as of a damaged file
    with pytest.raises(LakebedError, match="More than 1,000 lines are empty"):
        lakebed.infer_schema(path, format_, rows=0, unfit="error")


@pytest.mark.usefixtures("limits")
def test_short_lines_are_no_empty_ones(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"n,m\n" + b"1,\n" * 5_000 + b"\n" * 900)
    lake = lakebed.open_repository(tmp_path / "lake")
    dataset = lake.create("t", pa.schema([("n", pa.int64()), ("m", pa.int64())]))

    assert dataset.load(tmp_path / "a.csv").row_count == 5_000


def test_more_columns_than_any_table_has_are_refused(tmp_path: Path) -> None:
    count = files.MOST_COLUMNS + 1
    names = [f"c{number}" for number in range(count)]
    (tmp_path / "a.csv").write_text(",".join(names) + "\n" + ",".join("1" * count) + "\n")
    with (tmp_path / "b.jsonl").open("w") as file:
        for start in range(0, count, 100):
            file.write(json.dumps(dict.fromkeys(names[start : start + 100], 1)) + "\n")

    with pytest.raises(SchemaMismatchError, match="has 10,001 columns; at most 10,000"):
        lakebed.infer_schema(tmp_path / "a.csv")
    with pytest.raises(SchemaMismatchError, match="have 10,001 fields; at most 10,000"):
        lakebed.infer_schema(tmp_path / "b.jsonl", rows=0)
    result = CliRunner().invoke(main, ["import", f"{tmp_path}/lake/t", str(tmp_path / "a.csv")])
    assert result.exit_code != 0
    assert "at most 10,000" in result.output


@pytest.mark.parametrize("blank", [b"\n", b" \r\n", b"\0"])
def test_rows_after_many_blank_bytes_are_not_called_an_empty_file(
    tmp_path: Path, blank: bytes
) -> None:
    path = tmp_path / "a.jsonl"
    count = sniffing.SAMPLE_BYTES // len(blank) + 1

    path.write_bytes(blank * count + b'{"n": 1}\n')
    with pytest.raises(InvalidInputError, match=r"The first 262,144 bytes of .* are blank"):
        lakebed.infer_schema(path)
    path.write_bytes(blank * 1_000)
    with pytest.raises(InvalidInputError, match="is empty: it has only blanks"):
        lakebed.infer_schema(path)

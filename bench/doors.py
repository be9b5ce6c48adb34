"""DuckDB and Polars over `view.dataset()`, beside the same engines over the same files by a pattern.

Three questions of the same rows: the sum of one column, rows by a condition that one in a hundred
meets, and a count. Medians of interleaved rounds; 1.00 is the pattern. The files are those of one
append, so that both answers are equal; after a delete only one of them is right.

    python bench/doors.py [--rows 2000000] [--files 40] [--rounds 7]
"""

from __future__ import annotations

import argparse
import datetime as dt
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

import lakebed
from lakebed import by

START = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)


def make(root: Path, row_count: int, file_count: int) -> lakebed.Dataset:
    numbers = np.arange(row_count)
    random = np.random.default_rng(7)
    rows = pa.table(
        {
            "id": numbers,
            "time": pa.array(numbers * 1_000_000, pa.timestamp("us", "UTC")),
            "kind": random.choice(["a", "b", "c", "d"], row_count),
            "value": random.random(row_count),
            "amount": random.integers(0, 1_000_000, row_count),
        }
    )
    descriptor = lakebed.DatasetDescriptor(
        schema=rows.schema, partition_by=[by.fixed_range("id", -(-row_count // file_count))]
    )
    dataset = lakebed.open_repository(root).create("rows", descriptor)
    dataset.append(rows)
    return dataset


def questions(dataset: lakebed.Dataset, root: Path) -> dict[str, dict[str, Callable[[], object]]]:
    row_count = dataset.count()
    pattern = str(root / "rows" / "data" / "**" / "*.parquet")
    low, high = row_count // 2, row_count // 2 + row_count // 100
    sql = {
        "sum of one column": "SELECT sum(amount) FROM {}",
        "1 % by a condition": f"SELECT sum(amount) FROM {{}} WHERE id >= {low} AND id < {high}",
        "count": "SELECT count(*) FROM {}",
    }
    found = {}
    for name, query in sql.items():

        def by_dataset(query: str = query) -> object:
            rows = dataset.dataset()
            assert rows is not None  # DuckDB finds it by its name
            return duckdb.sql(query.format("rows")).fetchall()[0][0]

        def by_pattern(query: str = query) -> object:
            return duckdb.sql(query.format(f"read_parquet('{pattern}')")).fetchall()[0][0]

        found[f"DuckDB, {name}"] = {"dataset()": by_dataset, "pattern": by_pattern}
    lazily = {
        "sum of one column": lambda frame: frame.select(pl.col("amount").sum()),
        "1 % by a condition": lambda frame: frame.filter(
            (pl.col("id") >= low) & (pl.col("id") < high)
        ).select(pl.col("amount").sum()),
        "count": lambda frame: frame.select(pl.len()),
    }
    for name, ask in lazily.items():
        found[f"Polars, {name}"] = {
            "dataset()": lambda ask=ask: (
                ask(pl.scan_pyarrow_dataset(dataset.dataset())).collect().item()
            ),
            "pattern": lambda ask=ask: ask(pl.scan_parquet(pattern)).collect().item(),
        }
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--rows", type=int, default=2_000_000)
    arguments.add_argument("--files", type=int, default=40)
    arguments.add_argument("--rounds", type=int, default=7)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        dataset = make(root, given.rows, given.files)
        print(f"{given.rows:,} rows, {len(dataset.files())} files, {given.rounds} rounds\n")
        print(f"{'question':30} {'pattern':>10} {'dataset()':>10} {'ratio':>7}")
        for name, ways in questions(dataset, root).items():
            times: dict[str, list[float]] = {way: [] for way in ways}
            answers = set()
            for number in range(given.rounds + 1):
                for way, ask in ways.items():
                    began = time.perf_counter()
                    answers.add(ask())
                    if number:  # the first one warms up
                        times[way].append(time.perf_counter() - began)
            assert len(answers) == 1, answers
            plain, ours = (statistics.median(times[way]) for way in ("pattern", "dataset()"))
            print(f"{name:30} {plain * 1e3:7.1f} ms {ours * 1e3:7.1f} ms {ours / plain:7.2f}")


if __name__ == "__main__":
    main()

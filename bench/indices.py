"""What an index costs: an append with two indexed columns against the same append without.

The frame is that of `run.py`, 5 million rows of 9 columns; indexed are a number that comes about 5
times, and a text that comes about 1,200 times. Every round does both, in turns; the median of the
rounds' ratios is compared with the limit. The size of the indices is told as bytes a row, and a
lookup of one value in them is timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
from run import alternate, compare, mixed_frame

import lakebed
from lakebed.spark.session import local_session
from lakebed.store.cache import PROCESS_CACHE

COST_LIMIT = 1.25  # time of the append with indices over time of the one without, at most
INDEXED = ("user_id", "tail")
_SPARK = {"spark.driver.memory": "4g"}
_LOOKUPS = 50


def run(rows: int, rounds: int, directory: Path, *, is_local: bool) -> list[dict[str, object]]:
    """Return the comparison, and what the indices are like."""
    spark = local_session("*", app_name="lakebed-bench", settings=_SPARK)
    frame = mixed_frame(spark, rows, directory / "source")
    data = pq.read_table(directory / "source") if is_local else frame
    schema = frame.schema
    if is_local:
        spark.stop()
    repository = lakebed.open_repository(directory / "lake")

    def append(name: str, index: tuple[str, ...]) -> object:
        descriptor = lakebed.DatasetDescriptor(schema=schema, compression="snappy", index=index)
        return lambda number: repository.create(
            f"{name}{number}".replace("-", "m"), descriptor
        ).append(data)

    found = alternate(
        {"append": append("plain", ()), "append with indices": append("indexed", INDEXED)}, rounds
    )
    where = "this process" if is_local else "Spark"
    case = f"append with {len(INDEXED)} indexed columns / append, {where}"
    results = [compare(case, found, "append with indices", "append", COST_LIMIT)]
    dataset = repository.open("indexed0")
    results += [
        {
            "case": f"index of {index.column}",
            "bytes_per_row": round(index.size_bytes / rows, 3),
            "size_bytes": index.size_bytes,
            "segments": index.segment_count,
            "values": index.value_count,
            "files": index.file_count,
        }
        for index in dataset.indices.list()
    ]
    for column, values in (
        ("user_id", range(1, _LOOKUPS)),
        ("tail", [f"N{n:05d}" for n in range(1, _LOOKUPS)]),
    ):
        seconds = []
        for value in values:
            PROCESS_CACHE.clear()
            text = f"'{value}'" if isinstance(value, str) else str(value)
            start = time.perf_counter()
            dataset.where(f"{column} = {text}").plan()
            seconds.append(time.perf_counter() - start)
        results.append(
            {
                "case": f"plan of {column} = …, cold",
                "median_ms": round(1000 * statistics.median(seconds), 2),
            }
        )
    return results


def main() -> int:
    """Run, print a line of JSON for each result, and say whether the limit was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--local", action="store_true", help="append from Arrow, without Spark")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        results = run(options.rows, options.rounds, Path(directory), is_local=options.local)
    for result in results:
        print(json.dumps(result))
    return 0 if results[0]["met"] else 1


if __name__ == "__main__":
    sys.exit(main())

"""Raw files into a dataset partitioned by day, beside DuckDB and Polars with deltalake.

Each engine reads the same files with the same declared types, in a process of its own, and writes
Parquet by day: Lakebed with file facts, checksums and an index of one column; DuckDB by COPY with
PARTITION_BY; Polars by `write_delta`. With `--spark` Lakebed's tasks stand beside `spark.read` with a
schema and a partitioned write, both on `local[2]` and by elapsed time, since another process does
the work. With `--imports` `lakebed import`, which finds the notation and the types, stands beside
`polars.read_*`, which finds the types, and `lake.write` of its frame. Printed are the processor seconds after imports (user and
system, of all threads), the elapsed seconds and the peak of memory, of the best of some runs.
Machines that do other work at the same time make elapsed seconds useless, and processor seconds
larger for all.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gzip
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.arrow.reading.files import FileFormat

ROWS = 1_500_000
KINDS = ("csv", "csv.gz", "jsonl", "tsv", "avro")
ENGINES = ("lakebed", "duckdb", "polars")
SPARK_ENGINES = ("lakebed-spark", "spark")
IMPORT_ENGINES = ("import", "polars-write")
COLUMNS = {
    "id": "long",
    "at": "timestamp",
    "user": "long",
    "amount": "double",
    "note": "text",
    "carrier": "text",
}
FIRST_DAY = dt.datetime(2025, 9, 1, tzinfo=dt.UTC)
CARRIERS = ("UA", "AA", "DL", "B6")


def entities(start: int, count: int, *, dirty: bool) -> Iterator[dict[str, object]]:
    for i in range(start, start + count):
        at = FIRST_DAY + dt.timedelta(seconds=i * 7 % (28 * 86_400))
        yield {
            "id": i,
            "at": f"{at:%Y-%m-%dT%H:%M:%SZ}",
            "user": "n/a" if dirty and i % 100 == 99 else i * 31 % 977,
            "amount": i % 1000 / 8,
            "note": f"note of {i % 5000} with, comma",
            "carrier": CARRIERS[i % 4],
        }


def write_file(path: Path, kind: str, start: int, count: int, *, dirty: bool) -> None:
    """Write a file of rows."""
    if kind == "avro":
        write_avro(path, start, count)
        return
    rows = entities(start, count, dirty=dirty)
    with gzip.open(path, "wt", 6) if kind.endswith(".gz") else path.open("w") as file:
        match kind.removesuffix(".gz"):
            case "csv":
                file.write(",".join(COLUMNS) + "\n")
                for row in rows:
                    cells = (f'"{v}"' if "," in str(v) else str(v) for v in row.values())
                    file.write(",".join(cells) + "\n")
            case "jsonl":
                for row in rows:
                    file.write(json.dumps(row, separators=(",", ":")) + "\n")
            case "tsv":
                for row in rows:
                    file.write(f"u{row['id']:012}\t{json.dumps(row, separators=(',', ':'))}\n")


def write_avro(path: Path, start: int, count: int) -> None:
    import fastavro

    instant = {"type": "long", "logicalType": "timestamp-micros"}
    types = {"long": "long", "double": "double", "text": "string", "timestamp": instant}
    schema = {
        "type": "record",
        "name": "row",
        "fields": [{"name": name, "type": types[kind]} for name, kind in COLUMNS.items()],
    }
    rows = (
        row | {"at": dt.datetime.fromisoformat(str(row["at"]))}
        for row in entities(start, count, dirty=False)
    )
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, codec="deflate")


def by_lakebed(
    folder: Path, kind: str, into: Path, spark: SparkSession | None = None
) -> Callable[[], int]:
    import pyarrow as pa

    import lakebed

    types = {
        "long": pa.int64(),
        "double": pa.float64(),
        "text": pa.string(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    fields = [(name, types[kind]) for name, kind in COLUMNS.items()]
    if kind == "tsv":
        fields = [
            pa.field(name, pa.string(), nullable=False) for name in ("uuid", "document")
        ] + fields
    repository = lakebed.open_repository(str(into))
    descriptor = lakebed.DatasetDescriptor(
        schema=pa.schema(fields),
        partition_by="date(at) as dt",
        index=["user"],
        format="submissions" if kind == "tsv" else "parquet",
    )
    dataset = repository.create("rows", descriptor)

    def run() -> int:
        formats: dict[str, FileFormat] = {"jsonl": "json", "tsv": "submissions", "avro": "avro"}
        # The others are told the notation too.
        options = lakebed.LoadOptions(csv=lakebed.CsvOptions(), json=lakebed.JsonOptions())
        report = dataset.load(str(folder), formats.get(kind, "csv"), options=options, spark=spark)
        return int(report.row_count)

    return run


def by_lakebed_spark(folder: Path, kind: str, into: Path) -> Callable[[], int]:
    return by_lakebed(folder, kind, into, two_tasks())


def by_spark(folder: Path, kind: str, into: Path) -> Callable[[], int]:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

    spark = two_tasks()
    types = {"long": "bigint", "double": "double", "text": "string", "timestamp": "timestamp"}
    schema = ", ".join(f"`{name}` {types[kind]}" for name, kind in COLUMNS.items())

    def run() -> int:
        reader = spark.read.schema(schema)
        rows = reader.json(str(folder)) if kind == "jsonl" else reader.csv(str(folder), header=True)
        counted = rows.withColumn("dt", F.to_date("at"))
        counted.write.partitionBy("dt").option("compression", "zstd").parquet(str(into))
        return int(spark.read.parquet(str(into)).count())

    return run


def two_tasks() -> SparkSession:
    from lakebed.spark.session import local_session

    return local_session("2")


def by_import(folder: Path, _: str, into: Path) -> Callable[[], int]:
    from click.testing import CliRunner

    from lakebed.cli.main import main as lakebed

    command = ["import", f"{into}/rows", str(folder), "--partition-by", "carrier"]

    def run() -> int:
        done = CliRunner().invoke(lakebed, command, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return count_rows(into)

    return run


def by_polars_write(folder: Path, kind: str, into: Path) -> Callable[[], int]:
    import polars as pl

    import lakebed

    def run() -> int:
        if kind == "jsonl":
            rows = pl.concat([pl.read_ndjson(path) for path in sorted(folder.iterdir())])
        else:
            rows = pl.read_csv(f"{folder}/*")
        lakebed.open_repository(str(into)).write("rows", rows, partition_by=["carrier"])
        return count_rows(into)

    return run


def count_rows(into: Path) -> int:
    import lakebed

    return int(lakebed.open_repository(str(into)).open("rows").count())


def by_duckdb(folder: Path, kind: str, into: Path) -> Callable[[], int]:
    import duckdb

    types = {"long": "BIGINT", "double": "DOUBLE", "text": "VARCHAR", "timestamp": "TIMESTAMPTZ"}
    columns = "{" + ", ".join(f"'{n}': '{types[k]}'" for n, k in COLUMNS.items()) + "}"
    if kind == "jsonl":
        source = f"read_json('{folder}/*', format='newline_delimited', columns={columns}, ignore_errors=true)"
    else:
        source = f"read_csv('{folder}/*', header=true, columns={columns}, ignore_errors=true)"
    day = 'CAST("at" AS DATE)'
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")

    def run() -> int:
        (count,) = connection.execute(
            f"COPY (SELECT *, {day} AS dt FROM {source}) TO '{into}' "
            "(FORMAT parquet, PARTITION_BY (dt), COMPRESSION zstd)"
        ).fetchall()[0]
        return int(count)

    return run


def by_polars(folder: Path, kind: str, into: Path) -> Callable[[], int]:
    import deltalake  # noqa: F401 - `write_delta` imports it
    import polars as pl

    types = {
        "long": pl.Int64(),
        "double": pl.Float64(),
        "text": pl.String(),
        "timestamp": pl.String(),
    }
    schema = pl.Schema({name: types[kind] for name, kind in COLUMNS.items()})

    def run() -> int:
        if kind == "jsonl":
            rows = pl.scan_ndjson(f"{folder}/*", schema=schema)
        else:
            rows = pl.scan_csv(f"{folder}/*", schema=schema, ignore_errors=True)
        at = pl.col("at").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_zone="UTC")
        frame = rows.with_columns(at=at).with_columns(dt=pl.col("at").dt.date()).collect()
        frame.write_delta(str(into), delta_write_options={"partition_by": ["dt"]})
        return frame.height

    return run


MAKERS: dict[str, Callable[[Path, str, Path], Callable[[], int]]] = {
    "lakebed": by_lakebed,
    "duckdb": by_duckdb,
    "polars": by_polars,
    "lakebed-spark": by_lakebed_spark,
    "spark": by_spark,
    "import": by_import,
    "polars-write": by_polars_write,
}


def measure(engine: str, folder: Path, kind: str) -> None:
    """Print what one run in this process costs."""
    with tempfile.TemporaryDirectory() as into:
        first = Path(into) / "first"
        first.mkdir()
        write_file(first / f"0.{kind}", kind, 0, 100, dirty=False)
        MAKERS[engine](first, kind, Path(into) / "warm")()  # imports what the run needs
        run = MAKERS[engine](folder, kind, Path(into) / "into")
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        count = run()
        elapsed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"rows": count, "s": used, "elapsed": elapsed, "mib": after.ru_maxrss / 1024}))


def best_of(engine: str, folder: Path, kind: str, runs: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", engine, kind, str(folder)]
    found = []
    for _ in range(runs):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return min(found, key=itemgetter("elapsed" if engine in SPARK_ENGINES else "s"))


def compare(title: str, folder: Path, kind: str, engines: list[str], runs: int) -> None:
    has_peers = kind in ("csv", "csv.gz", "jsonl")
    results = {
        engine: best_of(engine, folder, kind, runs)
        for engine in engines
        if has_peers or engine == "lakebed"
    }
    by = "elapsed" if engines[0] in SPARK_ENGINES else "s"
    text = "   ".join(
        f"{engine} {one['s']:6.2f} s ({one['elapsed']:6.2f} elapsed, {one['mib']:5.0f} MiB, {one['rows']:,.0f} rows)"
        for engine, one in results.items()
    )
    if len(engines) > 1 and engines[1] in results:
        text += f"   ratio {results[engines[0]][by] / results[engines[1]][by]:.2f}"
    print(f"{title:34} {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--files", default="1,20,200")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument(
        "--small-files", type=int, default=20_000, help="files of 50 rows; 0 for none"
    )
    parser.add_argument("--dirty", action="store_true", help="also with 1 %% of bad lines")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument(
        "--spark", dest="engines", action="store_const", const=",".join(SPARK_ENGINES)
    )
    parser.add_argument(
        "--imports", dest="engines", action="store_const", const=",".join(IMPORT_ENGINES)
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--measure", nargs=3, metavar=("ENGINE", "KIND", "FOLDER"))
    given = parser.parse_args()
    if given.measure:
        engine, kind, folder = given.measure
        measure(engine, Path(folder), kind)
        return
    engines, kinds = given.engines.split(","), given.kinds.split(",")
    cases = [
        (kind, int(files), given.rows, dirty)
        for kind in kinds
        for files in given.files.split(",")
        for dirty in ((False, True) if given.dirty and kind != "avro" else (False,))
    ]
    if given.small_files:
        cases += [
            (kind, given.small_files, given.small_files * 50, False)
            for kind in kinds
            if kind in ("csv", "jsonl", "tsv")
        ]
    for kind, files, rows, dirty in cases:
        folder = Path(tempfile.mkdtemp())
        try:
            each = rows // files
            for n in range(files):
                path = folder / f"{n:05}.{kind}"
                write_file(path, kind, n * each, each, dirty=dirty)
            title = f"{kind}, {files:,} files, {rows:,} rows" + (", 1 % bad" if dirty else "")
            compare(title, folder, kind, engines, given.runs)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()

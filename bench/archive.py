"""The archive with many records, and its ingest beside Spark's own way to read the same files.

    python bench/archive.py [RECORDS] [FILES]

First RECORDS files (100,000) are pushed into an archive with an index of SQLite, and the four
questions and latest are asked: p50 and p99. Then FILES raw files (120) of `<uuid> <tab> <json>`
are ingested as a batch, in turns with `spark.read.text` and `from_json`, which writes Parquet into
the same partitions. The ratio of the two is of one run, each time the same files.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import lakebed
from lakebed import by
from lakebed.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS = 86_400_000
T0 = 1_356_998_400_000  # 2013-01-01
WHATS, WHERES, DAYS, QUESTIONS = 20, 50, 365, 300
LINES_A_FILE, ROUNDS = 10_000, 3

SCHEMA = pa.schema(
    [
        pa.field("uuid", pa.string(), nullable=False),
        ("day", pa.int32()),
        ("kind", pa.string()),
        ("host", pa.string()),
        ("size", pa.int64()),
        ("ratio", pa.float64()),
        ("ok", pa.bool_()),
    ]
)
KINDS = ["a", "b", "c", "d"]


def main(record_count: int, file_count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        ask(Path(directory), record_count)
    with tempfile.TemporaryDirectory() as directory:
        ingest(Path(directory), file_count)


# Records.


def ask(directory: Path, count: int) -> None:
    rng = random.Random(7)
    archive = lakebed.open_archive(directory / "raw")
    times_ms = []
    began = time.perf_counter()
    for number in range(count):
        start = T0 + rng.randrange(DAYS * DAY_MS)
        before = time.perf_counter()
        archive.push(
            io.BytesIO(b"%d" % number),
            path=f"/var/log/{number}.log",
            where=f"box-{rng.randrange(WHERES)}",
            what=f"log-{rng.randrange(WHATS)}",
            start=start,
            end=start + rng.choice([3_600_000, DAY_MS, 3 * DAY_MS]),
            work_id=f"job-{number // 10}",
        )
        times_ms.append(1_000 * (time.perf_counter() - before))
    show(f"push, {count:,} files", times_ms)
    print(f"{count / (time.perf_counter() - began):,.0f} files pushed a second")

    def what() -> str:
        return f"log-{rng.randrange(WHATS)}"

    def where() -> str:
        return f"box-{rng.randrange(WHERES)}"

    def day() -> dict[str, int]:
        start = T0 + rng.randrange(DAYS) * DAY_MS
        return {"start": start, "end": start + DAY_MS - 1}

    def job() -> str:
        return f"job-{rng.randrange(max(1, count // 10))}"

    now = lakebed.archive.to_epoch_ms(T0 + DAYS * DAY_MS)
    moment = time_of(now)
    questions: dict[str, Callable[[], object]] = {
        "by time, a day": lambda: list(archive.list(what(), **day())),
        "by time and where": lambda: list(archive.list(what(), where=where(), **day())),
        "by work id": lambda: list(archive.list(what(), work_id=job())),
        "by work id and where": lambda: list(archive.list(what(), work_id=job(), where=where())),
        "latest": lambda: latest(archive, what(), where(), moment),
    }
    for label, question in questions.items():
        times_ms = []
        for _ in range(QUESTIONS):
            before = time.perf_counter()
            question()
            times_ms.append(1_000 * (time.perf_counter() - before))
        show(label, times_ms)


def time_of(epoch_ms: int) -> object:
    return lakebed.archive.times.to_datetime(epoch_ms)


def latest(archive: lakebed.Archive, what: str, where: str, now: object) -> None:
    try:
        archive.latest(what, where, now=now)
    except lakebed.errors.RecordNotFoundError:
        return  # few files: a place may have none in the last days


def show(label: str, times_ms: list[float]) -> None:
    cuts = statistics.quantiles(times_ms, n=100)
    print(f"{label:<28} p50 {cuts[49]:8.3f} ms   p99 {cuts[98]:8.3f} ms")


# Ingest.


def ingest(directory: Path, count: int) -> None:
    rng = random.Random(7)
    archive = lakebed.open_archive(directory / "raw")
    copies = directory / "copies"
    copies.mkdir()
    size_bytes = 0
    for number in range(count):
        content = raw_file(rng, number)
        # Spark tells the codec by the suffix, and knows no lz4 frames: it gets its own copy.
        path = copies / f"{number}.tsv.gz"
        path.write_bytes(content)
        size_bytes += len(content)
        archive.push(
            path, where="box", what="events", start=T0 + number * 60_000, path=f"/log/{path.name}"
        )
    rows = count * LINES_A_FILE
    print(f"\n{count} files of {size_bytes / 2**20:.1f} MiB, {rows:,} lines")
    spark = local_session()
    ours, theirs = [], []
    try:
        for turn in range(ROUNDS + 1):
            theirs.append(with_spark(spark, copies, directory / f"spark-{turn}", rows))
            ours.append(with_lakebed(spark, directory, turn, rows))
    finally:
        spark.stop()
    # The first turn warms up both.
    best_ours, best_theirs = min(ours[1:]), min(theirs[1:])
    for label, best in (("lakebed ingest", best_ours), ("read.text and from_json", best_theirs)):
        speed = size_bytes / 2**20 / best
        print(f"{label:<28} {best:6.2f} s   {rows / best:10,.0f} rows/s   {speed:6.1f} MiB/s")
    ratios = [b / a for a, b in zip(ours[1:], theirs[1:], strict=True)]
    print(
        f"throughput of Lakebed to Spark's: {best_theirs / best_ours:.2f} "
        f"(by turns: {', '.join(f'{ratio:.2f}' for ratio in ratios)})"
    )


def raw_file(rng: random.Random, number: int) -> bytes:
    lines = []
    for n in range(LINES_A_FILE):
        document = {
            "day": number % 30,
            "kind": rng.choice(KINDS),
            "host": f"host-{rng.randrange(500)}",
            "size": rng.randrange(10**9),
            "ratio": rng.random(),
            "ok": n % 7 > 0,
            "rest": {"message": f"{rng.getrandbits(64):x}", "level": n % 5},
        }
        lines.append(f"{uuid.UUID(int=rng.getrandbits(128))}\t{json.dumps(document)}\n".encode())
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "gzip") as stream:
        stream.write(b"".join(lines))
    return bytes(sink.getvalue())


def with_lakebed(spark: SparkSession, directory: Path, turn: int, rows: int) -> float:
    declared = lakebed.Ingest(
        name="bench",
        into=f"{directory}/lake-{turn}/events",
        source=lakebed.FromArchive(
            storage=directory / "raw", what="events", start="2013-01-01", end="2014-01-01"
        ),
        format="submissions",
        create=lakebed.DatasetDescriptor(
            schema=SCHEMA, partition_by=[by.dimension("kind", ["a", "b"])], compression="zstd"
        ),
    )
    began = time.perf_counter()
    report = declared.run(spark)
    elapsed = time.perf_counter() - began
    assert report.row_count == rows, report
    return elapsed


def with_spark(spark: SparkSession, copies: Path, target: Path, rows: int) -> float:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

    fields = "day int, kind string, host string, size long, ratio double, ok boolean"
    began = time.perf_counter()
    pair = F.split("value", "\t", 2)
    frame = (
        spark.read.text(str(copies))
        .select(pair[0].alias("uuid"), F.from_json(pair[1], fields).alias("d"))
        .select("uuid", "d.*")
        .withColumn(
            "kind_dimension",
            F.when(F.col("kind").isin("a", "b"), F.col("kind")).otherwise("OTHER"),
        )
    )
    frame.write.option("compression", "zstd").partitionBy("kind_dimension").parquet(str(target))
    elapsed = time.perf_counter() - began
    assert spark.read.parquet(str(target)).count() == rows
    return elapsed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record_count", nargs="?", type=int, default=100_000)
    parser.add_argument("file_count", nargs="?", type=int, default=120)
    main(**vars(parser.parse_args()))

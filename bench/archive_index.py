"""The SQLite index of the archive with 100,000 records: how long a push and each question takes.

python bench/archive_index.py [COUNT]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lakebed.archive import ArchiveRecord, FileMetadata, open_index
from lakebed.archive.query import ArchiveQuery

DAY = 86_400_000
T0 = 1_426_809_600_000
WHATS, WHERES, DAYS, ROUNDS = 20, 50, 365, 300


def make_record(rng: random.Random, number: int) -> ArchiveRecord:
    start = T0 + rng.randrange(DAYS * DAY)
    metadata = FileMetadata(
        {
            "start": start,
            "end": start + rng.choice([3_600_000, DAY, 3 * DAY]),
            "where": f"box-{rng.randrange(WHERES)}",
            "what": f"log-{rng.randrange(WHATS)}",
            "work_id": f"job-{number // 10}",
            "path": f"/var/log/{number}.log",
            "hash": f"{number:032x}",
            "id": f"{rng.getrandbits(128):032x}",
        }
    )
    return ArchiveRecord(
        url=f"s3://raw/{metadata.id}/data", metadata=metadata, create_time_ms=start, size_bytes=1
    )


def measure(label: str, work: Callable[[], object]) -> None:
    times_ms = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        work()
        times_ms.append(1_000 * (time.perf_counter() - begin))
    cuts = statistics.quantiles(times_ms, n=100)
    print(f"{label:<28} p50 {cuts[49]:8.3f} ms   p99 {cuts[98]:8.3f} ms")


def main(count: int) -> None:
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as directory:
        index = open_index(Path(directory) / "index.db")
        begin = time.perf_counter()
        index.put(make_record(rng, number) for number in range(count))
        elapsed_s = time.perf_counter() - begin
        print(f"{count:,} records in {elapsed_s:.1f} s, {count / elapsed_s:,.0f} a second")

        def day() -> dict[str, int]:
            first = T0 + rng.randrange(DAYS) * DAY
            return {"start": first, "end": first + DAY - 1}

        def ask(**question: object) -> object:
            what = f"log-{rng.randrange(WHATS)}"
            return index.page(ArchiveQuery.of(what, **question))  # type: ignore[arg-type]

        def where() -> str:
            return f"box-{rng.randrange(WHERES)}"

        def work() -> str:
            return f"job-{rng.randrange(count // 10)}"

        def latest() -> object:
            last_ms = T0 + rng.randrange(DAYS) * DAY + DAY - 1
            return index.latest(
                f"log-{rng.randrange(WHATS)}",
                where(),
                first_ms=last_ms + 1 - 15 * DAY,
                last_ms=last_ms,
            )

        measure("put of one record", lambda: index.put([make_record(rng, rng.getrandbits(40))]))
        measure("what of a day", lambda: ask(**day()))
        measure("what of a day and a place", lambda: ask(**day(), where=where()))
        measure("what of a work", lambda: ask(work_id=work()))
        measure("what of a work and a place", lambda: ask(work_id=work(), where=where()))
        measure("latest", latest)
        index.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=100_000)
    main(**vars(parser.parse_args()))

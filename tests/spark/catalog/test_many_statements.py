"""Many statements of one session, one after the other and at once: memory stays, answers are right."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.spark.catalog.session_jvm import Jvm, Proxied

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
]

THREADS = 8


def numbers(count: int) -> pa.Table:
    return pa.table(
        {
            "n": list(range(count)),
            "part": [number % 5 for number in range(count)],
            "text": [f"t{number}" for number in range(count)],
        }
    )


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[lakebed.Repository]:
    lake = lakebed.open_repository(tmp_path / "lake")
    lake.write("numbers", numbers(60), partition_by="part")
    lake.write("keys", pa.table({"n": [3, 4], "part": [3, 4]}))
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        yield lake


# Joins and subqueries are planned by threads of Spark, which call the catalog, too.
QUERIES = {
    "SELECT count(*), max(n) FROM lake.numbers WHERE part = 2": [(12, 57)],
    "SELECT n FROM lake.numbers WHERE text = 't7'": [(7,)],
    "SELECT /*+ BROADCAST(k) */ count(*) FROM lake.numbers t JOIN lake.keys k ON t.part = k.part": [
        (24,)
    ],
    "SELECT /*+ MERGE(k) */ t.text FROM lake.numbers t JOIN lake.keys k ON t.n = k.n": [
        ("t3",),
        ("t4",),
    ],
    "SELECT count(*) FROM lake.numbers WHERE n > (SELECT max(n) FROM lake.keys)": [(55,)],
    "SELECT (SELECT min(n) FROM lake.keys), (SELECT max(part) FROM lake.numbers)": [(3, 4)],
    "SELECT part, count(*) FROM lake.numbers VERSION AS OF 1 WHERE n < 3 GROUP BY part": [
        (0, 1),
        (1, 1),
        (2, 1),
    ],
    "SELECT count(*) FROM lake.numbers.files": [(5,)],
}


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_eight_threads_query_and_change_tables_at_once(spark: Any, lake: lakebed.Repository):
    wrong: list[object] = []
    done: list[int] = []

    def rows(statement: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in spark.sql(statement).collect())

    def work(number: int) -> None:
        try:
            for turn in range(len(QUERIES)):
                statement = list(QUERIES)[(number + turn) % len(QUERIES)]
                if (found := rows(statement)) != QUERIES[statement]:
                    wrong.append((statement, found))
            own = f"lake.own{number}"
            spark.sql(f"CREATE TABLE {own} AS SELECT n FROM lake.keys")
            spark.sql(f"UPDATE {own} SET n = n + {number} WHERE n = 4 AND abs(n) > 0")
            spark.sql(f"INSERT INTO {own} SELECT count(*) FROM lake.numbers")
            if (found := rows(f"SELECT n FROM {own}")) != sorted([(3,), (4 + number,), (60,)]):
                wrong.append((own, found))
            done.append(number)
        except Exception as error:  # noqa: BLE001 - of a thread, which nobody would see
            wrong.append(error)

    threads = [
        threading.Thread(target=work, args=(number,), daemon=True) for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(1_200)

    assert wrong == []
    assert sorted(done) == list(range(THREADS))  # else one hangs


class Call(Proxied):
    """Something that threads of Java call, as they call a catalog."""

    class Java:
        implements = ("java.lang.Runnable",)

    def run(self) -> None:
        """Do nothing."""


def test_ended_threads_of_java_leave_no_thread_here(
    spark: Any, lake: lakebed.Repository, monkeypatch: pytest.MonkeyPatch
):
    """Threads for broadcasts and subqueries end after a minute: 16 stayed here after each query."""
    monkeypatch.setattr("lakebed.spark.callbacks.CLOSE_EVERY_S", 0.0)
    concurrent = spark._jvm.java.util.concurrent
    call = Call(Jvm(spark))
    before = threading.active_count()

    for _ in range(5):
        pool = concurrent.Executors.newFixedThreadPool(THREADS)
        for future in [pool.submit(call) for _ in range(THREADS)]:
            future.get()
        assert threading.active_count() >= THREADS
        pool.shutdown()
        assert pool.awaitTermination(60, concurrent.TimeUnit.SECONDS)

    deadline = time.monotonic() + 60  # a closed connection ends its thread a little later
    while threading.active_count() > before + THREADS and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before + THREADS  # those of the last round


@pytest.mark.long
@pytest.mark.parametrize(
    "options", [{"catalog": "lake"}, {"prefix": "lake_"}], ids=["catalog", "views"]
)
def test_queries_with_pauses_leave_no_threads(spark: Any, tmp_path: Path, options: dict[str, str]):
    lake = lakebed.open_repository(tmp_path / "lake")
    lake.write("numbers", numbers(60), partition_by="part")
    lake.write("keys", pa.table({"n": [3, 4], "part": [3, 4]}))
    counts = []

    with lakebed.spark.attach(spark, lake, **options):
        for _ in range(3):
            for key in range(4):
                query = (
                    "SELECT /*+ BROADCAST(k) */ * FROM lake.numbers t JOIN lake.keys k "
                    f"ON t.part = k.part AND k.n <> {key} "
                    f"WHERE t.n > (SELECT min(n) FROM lake.numbers WHERE n > {key}) "
                    f"AND t.n < (SELECT max(n) FROM lake.numbers WHERE n < {key + 50})"
                )
                if "prefix" in options:
                    query = query.replace("lake.", "lake_")
                assert spark.sql(query).count()
            counts.append(threading.active_count())
            time.sleep(65)  # threads of Spark without work end after 60 seconds

    assert counts[-1] <= counts[0] + 4, counts

"""Dangers of a catalog: wrong rows, lost errors, sessions and threads, and calls from outside."""

from __future__ import annotations

import datetime as dt
import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inside import callbacks_of, tokens_of

import lakebed
from lakebed.errors import CommitConflictError, InvalidInputError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
]

NAN = float("nan")


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[lakebed.Repository]:
    lake = lakebed.open_repository(tmp_path)
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        yield lake


def numbers(count: int) -> pa.Table:
    return pa.table({"n": list(range(count)), "part": [number % 3 for number in range(count)]})


def rows(spark: Any, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(statement).collect()]


def sorted_rows(spark: Any, frame: Any) -> list[str]:
    return sorted(repr(tuple(row)) for row in frame.collect())


def test_nan_is_found(spark: Any, lake: Any):
    lake.write("floats", pa.table({"x": [0.0, 1.0, 2.0, NAN, None]}))

    assert rows(spark, "SELECT count(*) FROM lake.floats WHERE x > 1.5") == [(2,)]
    assert math.isnan(rows(spark, "SELECT max(x) FROM lake.floats")[0][0])


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_conditions_on_times_are_in_the_zone_of_the_session(spark: Any, lake: Any, zone: str):
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    times = [start + dt.timedelta(hours=hour) for hour in range(48)]
    lake.write("times", pa.table({"at": times}), partition_by="date(at) as day")
    condition = "at >= TIMESTAMP '2026-01-01 20:00:00' AND at < TIMESTAMP '2026-01-02 05:00:00'"
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        found = rows(spark, f"SELECT count(*) FROM lake.times WHERE {condition}")
        wanted = lake.open("times").spark(spark).where(condition).count()
        spark.sql(f"DELETE FROM lake.times WHERE {condition}")
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)

    assert found == [(wanted,)]
    assert wanted == 9
    assert lake.open("times").count() == 48 - wanted


def evolve_renamed(table: Any) -> None:
    table.evolve(lambda old: old.rename_field("n", "number"))


def evolve_swapped(table: Any) -> None:
    table.evolve(
        lambda old: old.rename_field("n", "x").rename_field("m", "n").rename_field("x", "m")
    )


def evolve_widened(table: Any) -> None:
    table.evolve(lambda old: old.change_type("i", "long").change_type("f", "double"))


def evolve_added(table: Any) -> None:
    table.evolve(lambda old: old.add_field("note", "string"))


def evolve_added_default(table: Any) -> None:
    table.evolve(lambda old: old.add_field("note", "long", default=7))


def evolve_readded(table: Any) -> None:
    table.evolve(lambda old: old.drop_field("m"))
    table.evolve(lambda old: old.add_field("m", "long"))


def evolve_twice(table: Any) -> None:
    evolve_widened(table)
    evolve_added(table)
    evolve_renamed(table)


EVOLUTIONS = [
    evolve_renamed,
    evolve_swapped,
    evolve_widened,
    evolve_added,
    evolve_added_default,
    evolve_readded,
    evolve_twice,
]


@pytest.mark.parametrize("partition_by", ["part", "n", "hash(n, 3) as bucket", None])
@pytest.mark.parametrize("evolve", EVOLUTIONS, ids=lambda evolve: evolve.__name__)
def test_evolved_table_is_read_as_the_dataset(
    spark: Any, lake: Any, evolve: Any, partition_by: str | None
):
    if (
        partition_by is not None
        and "n" in partition_by
        and evolve.__name__
        not in (*("evolve_widened", "evolve_added", "evolve_added_default", "evolve_readded"),)
    ):
        pytest.skip("the source of a partition keeps its name")
    schema = pa.schema(
        [
            *(("n", pa.int64()), ("part", pa.string()), ("m", pa.int64())),
            *(("i", pa.int32()), ("f", pa.float32())),
        ]
    )
    columns = {
        "n": list(range(9)),
        "part": [f"p{number % 2}" for number in range(9)],
        "m": [number * 10 for number in range(9)],
        "i": [number - 4 for number in range(9)],
        "f": [number / 2 for number in range(9)],
    }
    lake.write("evolved", pa.table(columns, schema=schema), partition_by=partition_by)
    dataset = lake.open("evolved")

    evolve(dataset)
    spark.sql("INSERT INTO lake.evolved SELECT * FROM lake.evolved WHERE part = 'p1'")

    names = dataset.schema.names
    wanted = dataset.spark(spark, columns=names)
    assert sorted_rows(spark, spark.table("lake.evolved")) == sorted_rows(spark, wanted)
    for name in names:
        column = f"`{name}`"
        both = (spark.table("lake.evolved"), wanted)
        one, other = (
            sorted_rows(spark, frame.where(f"CAST({column} AS STRING) > '2'").select(column))
            for frame in both
        )
        assert one == other
        exact, expected = (
            sorted_rows(spark, frame.where(f"{column} >= '3'").select(column)) for frame in both
        )
        assert exact == expected


@pytest.mark.parametrize("text", ["plain", "é", "a b", "a/b=c", ""])
def test_text_of_a_partition_is_read_as_it_is(spark: Any, lake: Any, text: str):
    lake.write("texts", pa.table({"n": [1, 2], "part": [text, "other"]}), partition_by="part")

    assert rows(spark, "SELECT part, n FROM lake.texts WHERE n = 1") == [(text, 1)]
    assert spark.table("lake.texts").where(f"part = '{text}'").count() == 1
    spark.sql(f"DELETE FROM lake.texts WHERE part = '{text}'")
    assert lake.open("texts").arrow().to_pylist() == [{"n": 2, "part": "other"}]


def test_rows_that_came_after_a_statement_was_read_are_not_replaced(spark: Any, lake: Any):
    lake.write("numbers", numbers(9), partition_by="part")
    plan = spark.table("lake.numbers")._jdf.queryExecution().analyzed()
    table = plan.collectLeaves().head().table()
    lake.open("numbers").append(numbers(1))

    with pytest.raises(CommitConflictError):
        table.truncateTable()

    assert lake.open("numbers").count() == 10


def test_failed_replace_leaves_the_rows(spark: Any, lake: Any):
    lake.write("numbers", numbers(9))

    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
        spark.sql(
            "REPLACE TABLE lake.numbers AS SELECT n, part, CAST(raise_error('x') AS INT) AS m "
            "FROM lake.numbers"
        )
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
        spark.sql(
            "CREATE TABLE lake.new AS SELECT CAST(raise_error('x') AS INT) AS a FROM range(3)"
        )

    assert lake.list() == ["numbers"]
    assert rows(spark, "SELECT count(*), max(part) FROM lake.numbers") == [(9, 2)]


def test_statement_sees_commits_of_python_and_a_frame_keeps_its_version(spark: Any, lake: Any):
    lake.write("numbers", numbers(9))
    frame = spark.table("lake.numbers")
    assert frame.count() == 9

    lake.open("numbers").append(numbers(2))

    assert rows(spark, "SELECT count(*) FROM lake.numbers") == [(11,)]
    assert frame.count() == 9


def test_dropped_and_created_again_is_another_table(spark: Any, lake: Any):
    lake.write("numbers", numbers(9))
    assert spark.table("lake.numbers").count() == 9

    lake.drop("numbers")
    lake.write("numbers", pa.table({"text": ["a"]}))

    assert rows(spark, "SELECT * FROM lake.numbers") == [("a",)]


def test_memory_of_this_process_is_read_and_not_written_by_tasks(spark: Any):
    lake = lakebed.open_repository("memory://catalog-dangers")
    lake.write("numbers", numbers(9), partition_by="part")
    with lakebed.spark.attach(spark, lake, catalog="memory"):
        assert rows(spark, "SELECT count(*), sum(n) FROM memory.numbers WHERE part = 1") == [
            (3, 12)
        ]
    lake.drop("numbers")


def test_other_sessions_have_the_catalog_until_it_is_detached(spark: Any, tmp_path: Path):
    from pyspark.errors import AnalysisException

    lake = lakebed.open_repository(tmp_path)
    lake.write("numbers", numbers(9))
    other = spark.newSession()
    attached = lakebed.spark.attach(spark, lake, catalog="lake")
    later = spark.newSession()

    assert repr(attached) == f"<AttachedCatalog lake of {lake.store.uri}>"
    assert [session.table("lake.numbers").count() for session in (spark, later)] == [9, 9]
    with pytest.raises(AnalysisException):
        other.table("lake.numbers").count()
    attached.detach()
    attached.detach()
    for session in (spark, later):
        with pytest.raises(AnalysisException):
            session.table("lake.numbers").count()


def test_attached_again_shows_the_other_repository(spark: Any, tmp_path: Path):
    first, second = (lakebed.open_repository(tmp_path / name) for name in ("first", "second"))
    first.write("numbers", numbers(9))
    second.write("numbers", numbers(3))

    with lakebed.spark.attach(spark, first, catalog="lake"):
        assert spark.table("lake.numbers").count() == 9
        with lakebed.spark.attach(spark, second, catalog="lake"):
            assert spark.table("lake.numbers").count() == 3


def test_session_is_not_left_in_a_catalog_that_is_gone(spark: Any, tmp_path: Path):
    first, second = (lakebed.open_repository(tmp_path / name) for name in ("first", "second"))
    second.write("numbers", numbers(3))
    before = lakebed.spark.attach(spark, first, catalog="lake")
    other = spark.newSession()
    for session in (spark, other):
        session.sql("USE lake")

    attached = lakebed.spark.attach(spark, second, catalog="lake")
    before.detach()

    for session in (spark, other):  # another repository is the same catalog
        assert session.table("numbers").count() == 3
    attached.detach()
    for session in (spark, other):
        assert session.catalog.currentCatalog() == "spark_catalog"
        assert session.range(2).count() == 2


@pytest.mark.parametrize("name", ["", "a b", "a.b", "spark_catalog", "é", 7, "declared"])
def test_name_that_cannot_be_a_catalog_is_refused(spark: Any, tmp_path: Path, name: Any):
    spark.conf.set("spark.sql.catalog.declared", "org.example.Catalog")
    try:
        with pytest.raises(InvalidInputError):
            lakebed.spark.attach(spark, lakebed.open_repository(tmp_path), catalog=name)
    finally:
        spark.conf.unset("spark.sql.catalog.declared")


@pytest.mark.parametrize("options", [{"prefix": "x_"}, {"datasets": ["a"]}, {"footprint": True}])
def test_options_of_views_are_refused_beside_a_catalog(
    spark: Any, tmp_path: Path, options: dict[str, Any]
):
    with pytest.raises(InvalidInputError, match="catalog is 'lake'"):
        lakebed.spark.attach(spark, lakebed.open_repository(tmp_path), catalog="lake", **options)


def test_threads_share_a_catalog(spark: Any, lake: Any):
    lake.write("numbers", numbers(30), partition_by="part")
    found: list[Any] = []

    def read(part: int) -> None:
        statement = f"SELECT count(*) FROM lake.numbers WHERE part = {part}"
        found.extend(rows(spark, statement) for _ in range(3))

    def write(part: int) -> None:
        spark.sql(f"INSERT INTO lake.numbers VALUES ({1000 + part}, {part + 10})")

    threads = [
        threading.Thread(target=work, args=(part,)) for work in (read, write) for part in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert found == [[(10,)]] * 9
    assert rows(spark, "SELECT count(*) FROM lake.numbers") == [(33,)]


def test_batch_of_a_stream_names_tables_of_the_catalog(spark: Any, lake: Any, tmp_path: Path):
    lake.write("numbers", numbers(9))
    spark.range(5).write.parquet(str(tmp_path / "rates"))
    stream = spark.readStream.schema("id LONG").parquet(str(tmp_path / "rates"))

    def insert(frame: Any, _epoch: int) -> None:
        frame.createOrReplaceTempView("rates")
        frame.sparkSession.sql("INSERT INTO lake.numbers SELECT id, 0 FROM rates")

    query = (
        stream.writeStream.foreachBatch(insert)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )

    assert query.awaitTermination(120)
    assert lake.open("numbers").count() == 14


CALLER = """
import socket, sys
port, target = int(sys.argv[1]), sys.argv[2]
with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
    connection.settimeout(20)
    connection.sendall(f"{sys.argv[3]}c\\n{target}\\nname\\ne\\n".encode())
    print(connection.recv(100))
"""


@pytest.mark.parametrize("begins", ["", "A\nwrong\ne\n"])
def test_other_process_cannot_call_the_catalog(spark: Any, lake: Any, begins: str):
    lake.write("numbers", numbers(9))
    assert spark.table("lake.numbers").count() == 9
    port, targets = callbacks_of(spark)
    assert targets

    for target in targets[:3]:
        answer = subprocess.run(
            [sys.executable, "-c", CALLER, str(port), target, begins],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "lake" not in answer.stdout
        assert answer.stdout.strip() in ("", "b''", "b'!x\\n'") or "!x" in answer.stdout

    assert spark.table("lake.numbers").count() == 9  # the JVM still can


def test_token_is_not_the_one_of_the_gateway(spark: Any, lake: Any):
    callbacks, gateway = tokens_of(spark)

    assert len(callbacks) == 64
    assert callbacks != gateway


def test_calls_from_outside_are_refused_or_named(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "lakebed.spark.catalog.sessions.start_callbacks", lambda _gateway: "no such field"
    )
    lake = lakebed.open_repository(tmp_path)

    with pytest.raises(InvalidInputError, match=r"no such field.*shared_host=True"):
        lakebed.spark.attach(spark, lake, catalog="lake")
    with lakebed.spark.attach(spark, lake, catalog="lake", shared_host=True) as attached:
        assert attached.name == "lake"


def test_threads_of_java_are_known_to_the_server(spark: Any, lake: Any):
    calls = []

    class Call:
        def run(self) -> None:
            calls.append(threading.current_thread().name)

        class Java:
            implements = ("java.lang.Runnable",)

    pool = spark._jvm.java.util.concurrent.Executors.newFixedThreadPool(2)
    for future in [pool.submit(Call()) for _ in range(4)]:
        future.get()
    pool.shutdown()

    assert len(calls) == 4

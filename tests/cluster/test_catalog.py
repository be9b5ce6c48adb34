"""A catalog whose tasks run in other JVMs than its objects: nothing that Python keeps travels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from standalone import Driver, Processes

import lakebed

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

PARTS = 70  # more files than the driver rewrites by itself
COUNT = 40_000  # more rows than it writes by itself
ROWS = [(n, n % 3, f"t{n}") for n in range(12)]
Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def driver(directory: Path, whole_environment: Path) -> Iterator[Driver]:
    """A driver with two executors, each of which is a JVM of its own with one core."""
    processes = Processes(directory / "local-cluster")
    try:
        with Driver(
            processes, "driver", "local-cluster[2, 1, 1024]", programs=whole_environment
        ) as driver:
            yield driver
    finally:
        processes.end()


@pytest.fixture
def lake(driver: Driver, tmp_path: Path) -> lakebed.Repository:
    lake = lakebed.open_repository(tmp_path / "lake")
    lake.write("t", table(ROWS), run="first", partition_by="part")
    lake.write("keys", pa.table({"n": [3, 4, 500], "name": ["three", "four", "more"]}))
    driver.ask("attach", lake=str(tmp_path / "lake"))
    return lake


def table(rows: Rows) -> pa.Table:
    names = ("n", "part", "text")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])


def stored(lake: lakebed.Repository, name: str = "t") -> Rows:
    dataset = lake[name]
    names = dataset.schema.names
    return sorted(tuple(row[name] for name in names) for row in dataset.arrow().to_pylist())


def selected(driver: Driver, statement: str) -> Rows:
    return sorted(tuple(row) for row in driver.ask("sql", statement=statement))


def test_tasks_run_in_two_jvms_beside_the_driver(driver: Driver, lake: lakebed.Repository):
    statement = "SELECT DISTINCT java_method('java.lang.ProcessHandle', 'current') FROM lake.t"

    jvms = {int(pid) for (pid,) in selected(driver, statement)}

    assert len(jvms) == 2
    assert driver.ask("driver_process") not in jvms


JOINED = [(3, 0, "three"), (4, 1, "four")]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT * FROM lake.t", ROWS),
        ("SELECT text, n FROM lake.t WHERE part = 1 AND n > 4", [("t10", 10), ("t7", 7)]),
        ("SELECT part, count(*), max(text) FROM lake.t WHERE length(text) = 2 GROUP BY part",
         [(0, 4, "t9"), (1, 3, "t7"), (2, 3, "t8")]),
        ("SELECT /*+ MERGE(k) */ t.n, part, name FROM lake.t t JOIN lake.keys k ON t.n = k.n", JOINED),
        ("SELECT /*+ BROADCAST(k) */ t.n, part, name FROM lake.t t JOIN lake.keys k ON t.n = k.n",
         JOINED),
        ("SELECT n, text FROM lake.t VERSION AS OF 1 WHERE n IN (SELECT max(n) FROM lake.keys "
         "WHERE n < 5)", [(4, "t4")]),
        ("SELECT version, operation FROM lake.t.history", [(0, "create"), (1, "rerun")]),
        ("SELECT count(*), min(n) FROM lake.t", [(12, 0)]),
    ],
)  # fmt: skip
def test_query_gives_the_right_rows(
    driver: Driver, lake: lakebed.Repository, statement: str, expected: Rows
):
    assert selected(driver, statement) == sorted(expected)


def test_renamed_and_added_columns_are_read(driver: Driver, lake: lakebed.Repository):
    lake["t"].evolve(lambda old: old.rename_field("text", "label").add_field("m", "long"))

    driver.ask("sql", statement="INSERT INTO lake.t VALUES (100, 1, 'new', 7)")

    expected = sorted([*((n, part, text, None) for n, part, text in ROWS), (100, 1, "new", 7)])
    assert selected(driver, "SELECT n, part, label, m FROM lake.t") == expected


CHANGES: dict[str, tuple[str, Callable[[Rows], Rows]]] = {
    "insert": (
        "INSERT INTO lake.t SELECT n + 100, 5, name FROM lake.keys",
        lambda rows: [*rows, (103, 5, "three"), (104, 5, "four"), (600, 5, "more")],
    ),
    "dynamic overwrite": (
        "INSERT OVERWRITE lake.t SELECT n, 1, name FROM lake.keys",
        lambda rows: [
            *(row for row in rows if row[1] != 1),
            *((3, 1, "three"), (4, 1, "four"), (500, 1, "more")),
        ],
    ),
    "update": (
        "UPDATE lake.t SET text = concat(text, '!'), part = part + 10 WHERE n % 4 = 1",
        lambda rows: [(n, p + 10, f"{t}!") if n % 4 == 1 else (n, p, t) for n, p, t in rows],
    ),
    "delete": (
        "DELETE FROM lake.t WHERE length(text) = 3",
        lambda rows: [row for row in rows if len(row[2]) != 3],
    ),
    "merge": (
        "MERGE INTO lake.t t USING lake.keys k ON t.n = k.n "
        "WHEN MATCHED AND k.n = 4 THEN DELETE WHEN MATCHED THEN UPDATE SET text = k.name "
        "WHEN NOT MATCHED THEN INSERT (n, part, text) VALUES (k.n, 9, k.name)",
        lambda rows: [
            *(row for row in rows if row[0] not in (3, 4)),
            *((3, 0, "three"), (500, 9, "more")),
        ],
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_gives_the_right_rows(driver: Driver, lake: lakebed.Repository, name: str):
    statement, change = CHANGES[name]
    driver.ask("sql", statement="SET spark.sql.sources.partitionOverwriteMode=dynamic")

    driver.ask("sql", statement=statement)

    assert stored(lake) == sorted(change(ROWS))
    assert selected(driver, "SELECT * FROM lake.t") == stored(lake)


def test_table_made_of_a_query_has_its_rows(driver: Driver, lake: lakebed.Repository):
    driver.ask(
        "sql",
        statement="CREATE TABLE lake.made PARTITIONED BY (bucket(3, n)) AS SELECT t.n, name "
        "FROM lake.t t JOIN lake.keys k ON t.n = k.n",
    )

    assert stored(lake, "made") == [(3, "three"), (4, "four")]


def test_many_rows_and_files_are_written_by_tasks(driver: Driver, lake: lakebed.Repository):
    for statement in (
        f"INSERT INTO lake.t SELECT id, id % {PARTS} + 100, 'many' FROM range(0, {COUNT}, 1, 4)",
        "UPDATE lake.t SET text = 'odd' WHERE n % 2 = 1 AND part >= 100",
        f"MERGE INTO lake.t t USING (SELECT id FROM range({COUNT - 500}, {COUNT + 500}, 1, 4)) s "
        "ON t.n = s.id AND t.part >= 100 WHEN MATCHED THEN UPDATE SET text = 'met' "
        "WHEN NOT MATCHED THEN INSERT (n, part, text) VALUES (s.id, 99, 'new')",
    ):
        driver.ask("sql", statement=statement)

    texts = Counter(text for _, part, text in stored(lake) if part >= 99)
    assert texts == {"many": COUNT // 2 - 250, "odd": COUNT // 2 - 250, "met": 500, "new": 500}
    assert [row for row in stored(lake) if row[1] < 99] == ROWS
    assert lake["t"].check(deep=True).is_ok

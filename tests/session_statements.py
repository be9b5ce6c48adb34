"""Statements by a session of Spark, classic or Connect: what they do is in `EXPECTED`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.errors import LakebedError

EXPECTED = {
    "merged": [1, 2, 1],
    "rows": [[1, "ua+AA"], [2, "UA"], [4, "x"], [6, "Y"]],
    "inserted": 2,
    "narrow": "SchemaMismatchError",
    "ctas": 3,
    "asked": [["UA", 1], ["Y", 1], ["ua+AA", 1], ["x", 1]],
    "seen at once": 9,
    "refused": ["InvalidInputError"] * 2,
    "passed on": 7,
}


def run(spark: Any, directory: str) -> dict[str, Any]:
    """Carry out statements, and return what was found."""
    lake = lakebed.open_repository(directory)
    schema = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.int32())])
    events = lake.create("events", schema, partition_by="hash(id, 2)")
    events.append(
        [{"id": n, "carrier": c, "delay": n} for n, c in enumerate(["AA", "UA", "B6"], 1)]
    )
    spark.sql(
        "SELECT * FROM VALUES (1L, 'ua', 'U'), (3L, 'b6', 'D'), (4L, 'x', 'U'), (5L, 'z', 'D'), "
        "(6L, 'y', 'U') AS v(key, name, op)"
    ).createOrReplaceTempView("changes")
    found: dict[str, Any] = {}
    report = lake.sql(
        "MERGE INTO events t USING (SELECT *, upper(name) AS big FROM changes) s ON t.id = s.key "
        "WHEN MATCHED AND s.op = 'D' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET carrier = s.name || '+' || t.carrier "
        "WHEN NOT MATCHED AND s.op = 'U' AND s.key > 5 THEN INSERT (id, carrier) VALUES (s.key, s.big) "
        "WHEN NOT MATCHED AND s.op = 'U' THEN INSERT (id, carrier, delay) VALUES (s.key, s.name, 7L)",
        spark,
        write=True,
    )
    found["merged"] = [
        report.updated_row_count,
        report.inserted_row_count,
        report.deleted_row_count,
    ]
    found["rows"] = _rows(events)
    commit = lake.sql(
        "INSERT INTO events SELECT key + 100, name, NULL FROM changes WHERE key < 4",
        spark,
        write=True,
    )
    found["inserted"] = commit.inserted_row_count
    try:
        lake.sql("INSERT INTO events SELECT 1L, 'UA', 1.5D", spark, write=True)
    except LakebedError as error:
        found["narrow"] = type(error).__name__
    except Exception as error:  # noqa: BLE001 - a job of Spark fails with the text of the error
        found["narrow"] = "SchemaMismatchError" if "does not fit" in str(error) else str(error)
    lake.sql("DELETE FROM events WHERE id > 100", spark, write=True)
    commit = lake.sql(
        "CREATE TABLE late AS SELECT id, carrier FROM events WHERE id > 1", spark, write=True
    )
    found["ctas"] = commit.row_count
    answer = lake.sql(
        "SELECT carrier, count(*) AS n FROM events GROUP BY carrier ORDER BY 1", spark
    )
    found["asked"] = [[row["carrier"], row["n"]] for row in answer.to_pylist()]
    with lakebed.spark.attach(spark, lake, prefix="l_"):
        lake.sql(
            "MERGE INTO events t USING changes s ON t.id = s.key "
            "WHEN MATCHED AND t.id = 1 THEN UPDATE SET delay = 9",
            spark,
            write=True,
        )
        found["seen at once"] = spark.sql("SELECT delay FROM l_events WHERE id = 1").collect()[0][0]
        found["refused"] = [
            _error_of(lambda: spark.sql("DELETE FROM l_events WHERE id = :id", args={"id": 1})),
            _error_of(lambda: spark.sql(sqlQuery="UPDATE l_events SET delay = 1")),
        ]
        found["passed on"] = spark.sql("SELECT 7 AS n").collect()[0][0]
    return found


def _error_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except LakebedError as error:
        return type(error).__name__
    return "none"


def _rows(events: lakebed.Dataset) -> list[list[Any]]:
    return sorted([row["id"], row["carrier"]] for row in events.arrow().to_pylist())

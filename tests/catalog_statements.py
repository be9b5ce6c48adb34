"""Statements on tables of flights in a catalog, each with the rows that SQL gives."""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

import pyarrow as pa

JANUARY = dt.date(2026, 1, 1)
SCHEMA = pa.schema([("flight", pa.int64()), ("carrier", pa.string()), ("day", pa.date32())])


def flights(numbers: range) -> pa.Table:
    """Return flights of two carriers on five days."""
    return pa.table(
        {
            "flight": list(numbers),
            "carrier": ["UA" if number % 3 == 0 else "B6" for number in numbers],
            "day": [JANUARY + dt.timedelta(days=number % 5) for number in numbers],
        },
        schema=SCHEMA,
    )


class Case(NamedTuple):
    """Statements on the catalog `lake`, whose table `flights` has 20 rows; and the rows of the last one."""

    statements: tuple[str, ...]
    expected: list[tuple[Any, ...]]


COUNT = "SELECT count(*) FROM lake.flights"
NEW = "SELECT count(*), min(flight), max(flight) FROM lake.new"
DAY_1 = "day = DATE '2026-01-01'"
CASES = {
    "select": Case(
        ("SELECT flight, carrier, day FROM lake.flights WHERE flight = 3",),
        [(3, "UA", dt.date(2026, 1, 4))],
    ),
    "star has the order of the fields": Case(
        ("SELECT * FROM lake.flights WHERE flight = 3",), [(3, "UA", dt.date(2026, 1, 4))]
    ),
    "count": Case((COUNT,), [(20,)]),
    "count of nothing": Case((f"{COUNT} WHERE day > DATE '2027-01-01'",), [(0,)]),
    "level alone": Case(
        ("SELECT DISTINCT day FROM lake.flights ORDER BY day LIMIT 2",),
        [(JANUARY,), (dt.date(2026, 1, 2),)],
    ),
    "hidden batch": Case(
        ("SELECT count(DISTINCT batch_id) FROM lake.flights WHERE batch_id > 0",), [(1,)]
    ),
    "version": Case(
        (f"INSERT INTO lake.flights VALUES (100, 'X', {DAY_1[6:]})", f"{COUNT} VERSION AS OF 1"),
        [(20,)],
    ),
    "current after an insert": Case(
        (f"INSERT INTO lake.flights VALUES (100, 'X', {DAY_1[6:]})", COUNT), [(21,)]
    ),
    "timestamp": Case((f"{COUNT} TIMESTAMP AS OF current_timestamp()",), [(20,)]),
    "show tables": Case(("SHOW TABLES IN lake",), [("", "flights", False)]),
    "show namespaces": Case(("SHOW NAMESPACES IN lake",), []),
    "show columns": Case(("SHOW COLUMNS IN lake.flights",), [("flight",), ("carrier",), ("day",)]),
    "describe": Case(
        ("DESCRIBE lake.flights",),
        [
            ("flight", "bigint", None),
            ("carrier", "string", None),
            ("day", "date", None),
            ("# Partition Information", "", ""),
            ("# col_name", "data_type", "comment"),
            ("day", "date", None),
        ],
    ),
    "property": Case(
        (
            "CREATE TABLE lake.new (n INT) TBLPROPERTIES ('team' = 'ops')",
            "SHOW TBLPROPERTIES lake.new ('team')",
        ),
        [("team", "ops")],
    ),
    "use": Case(("USE lake", "SELECT count(*) FROM flights", "USE spark_catalog", COUNT), [(20,)]),
    "create": Case(
        (
            "CREATE TABLE lake.new (flight BIGINT COMMENT 'key', at TIMESTAMP) USING lakebed "
            "PARTITIONED BY (days(at), bucket(4, flight))",
            "INSERT INTO lake.new SELECT id, timestamp_seconds(1767225600 + id * 3600) "
            "FROM range(96)",
            "SELECT count(*), count(DISTINCT at_day), count(DISTINCT flight_hash) FROM lake.new "
            "WHERE at >= TIMESTAMP '2026-01-03 00:00:00' AND at < TIMESTAMP '2026-01-04 00:00:00'",
        ),
        [(24, 1, 4)],
    ),
    "create by other transforms": Case(
        (
            "CREATE TABLE lake.new (n INT, at TIMESTAMP) PARTITIONED BY (years(at), months(at), "
            "hours(at))",
            "INSERT INTO lake.new VALUES (1, TIMESTAMP '2026-03-04 05:06:07')",
            "SELECT n, at_year, at_month, at_hour FROM lake.new",
        ),
        [(1, 2026, "2026-03", "2026-03-04-05")],
    ),
    "create what is there": Case(
        ("CREATE TABLE IF NOT EXISTS lake.flights (n INT)", COUNT), [(20,)]
    ),
    "create what was shown": Case(
        (
            "CREATE TABLE lake.new LIKE lake.flights",
            "INSERT INTO lake.new SELECT * FROM lake.flights",
            NEW,
        ),
        [(20, 0, 19)],
    ),
    "default": Case(
        (
            "CREATE TABLE lake.new (n INT, a INT DEFAULT 7, b STRING DEFAULT 'it''s', c DATE)",
            "INSERT INTO lake.new (n) VALUES (1)",
            "SELECT * FROM lake.new",
        ),
        [(1, 7, "it's", None)],
    ),
    "create as select": Case(
        ("CREATE TABLE lake.new PARTITIONED BY (day) AS SELECT * FROM lake.flights", NEW),
        [(20, 0, 19)],
    ),
    "create as select of nothing": Case(
        (
            "CREATE TABLE lake.new AS SELECT * FROM lake.flights WHERE flight < 0",
            "SELECT count(*) FROM lake.new",
        ),
        [(0,)],
    ),
    "replace as select": Case(
        (
            "CREATE TABLE lake.new PARTITIONED BY (day) AS SELECT * FROM lake.flights",
            "CREATE OR REPLACE TABLE lake.new PARTITIONED BY (day) AS "
            "SELECT * FROM lake.new WHERE flight < 10",
            NEW,
        ),
        [(10, 0, 9)],
    ),
    "replace keeps the history": Case(
        (
            "CREATE TABLE lake.new AS SELECT * FROM lake.flights",
            "CREATE OR REPLACE TABLE lake.new AS SELECT 1L AS flight",
            "SELECT count(*) FROM lake.new VERSION AS OF 1",
        ),
        [(20,)],
    ),
    "replace with other columns": Case(
        (
            "CREATE TABLE lake.new AS SELECT flight, carrier FROM lake.flights",
            "REPLACE TABLE lake.new AS SELECT flight, 'x' AS note FROM lake.flights "
            "WHERE flight < 2",
            "SELECT * FROM lake.new ORDER BY flight",
        ),
        [(0, "x"), (1, "x")],
    ),
    "replace without rows": Case(
        (
            "CREATE TABLE lake.new AS SELECT flight, carrier FROM lake.flights",
            "REPLACE TABLE lake.new (flight BIGINT, carrier STRING)",
            "SELECT count(*) FROM lake.new",
        ),
        [(0,)],
    ),
    "insert by name": Case(
        (
            "INSERT INTO lake.flights BY NAME SELECT 'N' AS carrier, 100L AS flight, "
            "DATE '2026-02-01' AS day",
            "SELECT * FROM lake.flights WHERE flight = 100",
        ),
        [(100, "N", dt.date(2026, 2, 1))],
    ),
    "insert some columns": Case(
        (
            "INSERT INTO lake.flights (day, flight) VALUES (DATE '2026-02-01', 100)",
            "SELECT * FROM lake.flights WHERE flight = 100",
        ),
        [(100, None, dt.date(2026, 2, 1))],
    ),
    "insert overwrite": Case(
        ("INSERT OVERWRITE lake.flights SELECT * FROM lake.flights WHERE flight < 7", COUNT),
        [(7,)],
    ),
    "insert overwrite of a partition": Case(
        (
            "INSERT OVERWRITE lake.flights PARTITION (day = '2026-01-01') SELECT 100, 'P'",
            f"SELECT count(*), count_if({DAY_1}) FROM lake.flights",
        ),
        [(17, 1)],
    ),
    "replace where": Case(
        (
            f"INSERT INTO lake.flights REPLACE WHERE {DAY_1} SELECT 100L, 'R', {DAY_1[6:]}",
            f"SELECT count(*), count_if({DAY_1}) FROM lake.flights",
        ),
        [(17, 1)],
    ),
    "truncate": Case(("TRUNCATE TABLE lake.flights", COUNT), [(0,)]),
    "delete a partition": Case((f"DELETE FROM lake.flights WHERE {DAY_1}", COUNT), [(16,)]),
    "delete rows": Case(
        (
            "DELETE FROM lake.flights WHERE flight < 5 OR carrier IN ('UA') AND NOT flight = 6",
            "SELECT count(*), count_if(flight = 6) FROM lake.flights",
        ),
        [(11, 1)],
    ),
    "delete by a side of OR that has no older form": Case(
        (
            f"DELETE FROM lake.flights WHERE {DAY_1} OR NOT flight % 4 = 1",
            "SELECT flight FROM lake.flights ORDER BY flight",
        ),
        [(1,), (9,), (13,), (17,)],
    ),
    "delete everything": Case(("DELETE FROM lake.flights WHERE 1 = 1", COUNT), [(0,)]),
    "delete nothing": Case(("DELETE FROM lake.flights WHERE flight < 0", COUNT), [(20,)]),
    "delete nulls": Case(
        (
            "INSERT INTO lake.flights VALUES (100, NULL, DATE '2026-01-01')",
            "DELETE FROM lake.flights WHERE carrier IS NULL",
            COUNT,
        ),
        [(20,)],
    ),
    "delete leaves nulls": Case(
        (
            "INSERT INTO lake.flights VALUES (100, NULL, DATE '2026-01-01')",
            "DELETE FROM lake.flights WHERE carrier <> 'UA'",
            "SELECT count(*), count_if(carrier IS NULL) FROM lake.flights",
        ),
        [(8, 1)],
    ),
    "add columns": Case(
        (
            "ALTER TABLE lake.flights ADD COLUMNS (note STRING COMMENT 'a note', n INT DEFAULT 7)",
            "INSERT INTO lake.flights VALUES (100, 'X', DATE '2026-01-01', 'new', 1)",
            "SELECT note, n, count(*) FROM lake.flights GROUP BY note, n ORDER BY n",
        ),
        [("new", 1, 1), (None, 7, 20)],
    ),
    "change columns": Case(
        (
            "ALTER TABLE lake.flights RENAME COLUMN carrier TO airline",
            "ALTER TABLE lake.flights ALTER COLUMN airline COMMENT 'its code'",
            "ALTER TABLE lake.flights ADD COLUMNS (n INT)",
            "ALTER TABLE lake.flights ALTER COLUMN n TYPE BIGINT",
            "INSERT INTO lake.flights VALUES (100, 'X', DATE '2026-01-01', 5000000000)",
            "SELECT airline, n FROM lake.flights WHERE n > 0",
        ),
        [("X", 5000000000)],
    ),
    "drop a column": Case(
        (
            "ALTER TABLE lake.flights DROP COLUMN carrier",
            "SELECT * FROM lake.flights WHERE flight = 3",
        ),
        [(3, dt.date(2026, 1, 4))],
    ),
    "set a property": Case(
        (
            "ALTER TABLE lake.flights SET TBLPROPERTIES ('team' = 'ops', 'other' = 'x')",
            "ALTER TABLE lake.flights UNSET TBLPROPERTIES ('other')",
            "COMMENT ON TABLE lake.flights IS 'all flights'",
            "SHOW TBLPROPERTIES lake.flights ('team')",
        ),
        [("team", "ops")],
    ),
    "purge": Case(
        ("CREATE TABLE lake.new (n INT)", "DROP TABLE lake.new PURGE", "SHOW TABLES IN lake"),
        [("", "flights", False)],
    ),
    "drop what is not there": Case(("DROP TABLE IF EXISTS lake.nothing", COUNT), [(20,)]),
    "cache follows an insert": Case(
        (
            "CACHE TABLE lake.flights",
            f"INSERT INTO lake.flights VALUES (100, 'X', {DAY_1[6:]})",
            COUNT,
        ),
        [(21,)],
    ),
    "describe a column": Case(
        ("DESCRIBE lake.flights day",),
        [("col_name", "day"), ("data_type", "date"), ("comment", "NULL")],
    ),
    "refresh": Case(("REFRESH TABLE lake.flights", COUNT), [(20,)]),
    "uncache": Case(
        (
            "CACHE TABLE lake.flights",
            "TRUNCATE TABLE lake.flights",
            "UNCACHE TABLE lake.flights",
            COUNT,
        ),
        [(0,)],
    ),
    "create as select from itself": Case(
        (
            "CREATE TABLE lake.new PARTITIONED BY (day) AS SELECT * FROM lake.flights",
            "INSERT OVERWRITE lake.new SELECT * FROM lake.new WHERE day = DATE '2026-01-02'",
            NEW,
        ),
        [(4, 1, 16)],
    ),
    "hidden level": Case(
        (
            "CREATE TABLE lake.new PARTITIONED BY (days(at)) AS SELECT id, "
            "timestamp_seconds(1767225600 + id * 86400) AS at FROM range(3)",
            "SELECT at_day, id FROM lake.new WHERE at_day > DATE '2026-01-01' ORDER BY id",
        ),
        [(dt.date(2026, 1, 2), 1), (dt.date(2026, 1, 3), 2)],
    ),
    "insert after a rename": Case(
        (
            "ALTER TABLE lake.flights RENAME COLUMN carrier TO airline",
            "ALTER TABLE lake.flights ADD COLUMNS (x INT COMMENT 'an x')",
            "INSERT INTO lake.flights (flight, day, airline, x) "
            "VALUES (100, DATE '2026-05-05', 'w', NULL)",
            "SELECT count(*), count(x), max(airline) FROM lake.flights",
        ),
        [(21, 0, "w")],
    ),
    "join with itself": Case(
        (
            "SELECT count(*) FROM lake.flights a JOIN lake.flights b ON a.flight = b.flight "
            "WHERE b.day > DATE '2026-01-03'",
        ),
        [(8,)],
    ),
    "join that drops partitions": Case(
        (
            "CREATE TABLE lake.new AS SELECT DISTINCT day, day = DATE '2026-01-02' AS is_open "
            "FROM lake.flights",
            "SELECT count(*) FROM lake.flights f JOIN lake.new n ON f.day = n.day WHERE n.is_open",
        ),
        [(4,)],
    ),
    "join that drops all partitions": Case(
        (
            "CREATE TABLE lake.new AS SELECT DISTINCT day, day < DATE '2020-01-02' AS is_open "
            "FROM lake.flights",
            "SELECT count(*) FROM lake.flights f JOIN lake.new n ON f.day = n.day WHERE n.is_open",
        ),
        [(0,)],
    ),
    "subqueries": Case(
        (
            "SELECT (SELECT max(flight) FROM lake.flights), (SELECT count(*) FROM lake.flights), "
            "(SELECT min(day) FROM lake.flights)",
        ),
        [(19, 20, JANUARY)],
    ),
}

"""Clients of Iceberg that create, fill and drop tables by a started `lakebed serve --iceberg`.

pyiceberg is always there; Spark and DuckDB are in an environment of their own (make doors-env).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from engine_peers import NEEDS_ENGINES, Peers
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from table_doors import rows_of

import lakebed

TOKEN = "a-token-for-writes"


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    lake = lakebed.open_repository(tmp_path / "lake")
    lake.write("flights", [{"id": 1}])
    return lake


@pytest.fixture
def url(lake: lakebed.Repository, tmp_path: Path) -> Iterator[str]:
    words = ("serve", lake.uri, "--iceberg", "--iceberg-metadata", str(tmp_path / "metadata"))
    words += ("--allow-writes", "all", "--port", "0", "-o", "jsonl")
    with subprocess.Popen(
        [sys.executable, "-m", "lakebed", *words],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "LAKEBED_WRITE_TOKEN": TOKEN,
        },
    ) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"].rstrip("/")
        process.kill()


def files_of(lake: lakebed.Repository, folder: str) -> list[str]:
    """Return the keys of a namespace, without the small objects that the catalog keeps."""
    keys = (info.key for info in lake.store.list(folder))
    return [key for key in keys if not key.endswith((".iceberg-table.json", ".namespace.json"))]


@pytest.mark.thorough
def test_pyiceberg_creates_fills_renames_and_purges(url: str, lake: lakebed.Repository) -> None:
    settings = {"token": TOKEN, "scan-planning-mode": "client"}
    catalog = load_catalog("lb", type="rest", uri=url, **settings)
    rows = pa.table({"id": [1, 2], "kind": ["a", None]})

    catalog.create_namespace("sales")
    catalog.create_table("sales.orders", rows.schema).append(rows)
    catalog.create_table("sales.kept", rows.schema)
    catalog.rename_table("sales.orders", "sales.bought")

    found = catalog.load_table("sales.bought").scan().to_arrow()
    assert found.sort_by("id").to_pylist() == rows.to_pylist()
    assert sorted(catalog.list_tables("sales")) == [("sales", "bought"), ("sales", "kept")]
    catalog.purge_table("sales.bought")
    assert not [key for key in files_of(lake, "sales") if key.startswith("sales/orders")]
    catalog.drop_table("sales.kept")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("sales.kept")
    catalog.drop_namespace("sales")
    assert catalog.list_namespaces() == [("lake",)]
    assert catalog.load_table("lake.flights").scan().to_arrow().to_pylist() == [{"id": 1}]


ORDERS = (
    "(id BIGINT, kind {text}, day DATE, price DECIMAL(10, 2), moment {moment}) {using} "
    "PARTITIONED BY (day)"
)
FIRST = (
    "VALUES (1, 'a', DATE '2026-01-01', 1.25, TIMESTAMP '2026-01-01 00:00:00'), "
    "(2, NULL, NULL, NULL, NULL)"
)
SUMS = "SELECT count(*), sum(id), max(kind) FROM {catalog}.sales.orders"
# Statements of each client in order, with the rows that they give; None gives none.
SPARK = [
    ("CREATE NAMESPACE {catalog}.sales", None),
    ("CREATE NAMESPACE IF NOT EXISTS {catalog}.sales", None),
    ("ALTER NAMESPACE {catalog}.sales SET PROPERTIES ('team' = 'web')", None),
    (
        "CREATE TABLE {catalog}.sales.orders "
        + ORDERS.format(text="STRING", moment="TIMESTAMP", using="USING iceberg"),
        None,
    ),
    ("INSERT INTO {catalog}.sales.orders " + FIRST, None),
    (
        "INSERT INTO {catalog}.sales.orders SELECT id, 'b', DATE '2026-02-01', 0.5, NULL "
        "FROM range(10, 20)",
        None,
    ),
    (SUMS, [(12, 148, "b")]),
    ("ALTER TABLE {catalog}.sales.orders ADD COLUMN note STRING", None),
    ("ALTER TABLE {catalog}.sales.orders RENAME COLUMN kind TO sort", None),
    ("ALTER TABLE {catalog}.sales.orders RENAME COLUMN sort TO kind", None),
    ("ALTER TABLE {catalog}.sales.orders ALTER COLUMN price TYPE DECIMAL(12, 2)", None),
    ("ALTER TABLE {catalog}.sales.orders ADD PARTITION FIELD kind", None),
    ("ALTER TABLE {catalog}.sales.orders SET TBLPROPERTIES ('team' = 'web')", None),
    ("DELETE FROM {catalog}.sales.orders WHERE id > 14", None),
    ("UPDATE {catalog}.sales.orders SET kind = 'z' WHERE id = 1", None),
    (
        "MERGE INTO {catalog}.sales.orders t USING (SELECT 2L AS id UNION ALL SELECT 99L) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET note = 'merged' "
        "WHEN NOT MATCHED THEN INSERT (id, kind) VALUES (s.id, 'new')",
        None,
    ),
    (SUMS, [(8, 162, "z")]),
    ("SELECT id, kind, note FROM {catalog}.sales.orders WHERE id = 2", [(2, None, "merged")]),
    (
        "CREATE TABLE {catalog}.sales.copy USING iceberg AS SELECT * FROM {catalog}.sales.orders",
        None,
    ),
    ("ALTER TABLE {catalog}.sales.copy CREATE BRANCH tried", None),
    ("INSERT INTO {catalog}.sales.copy.branch_tried (id) VALUES (7)", None),
    ("SELECT count(*) FROM {catalog}.sales.copy VERSION AS OF 'tried'", [(9,)]),
    (
        "ALTER TABLE {catalog}.sales.copy SET TBLPROPERTIES "
        "('write.delete.mode' = 'merge-on-read')",
        None,
    ),
    ("DELETE FROM {catalog}.sales.copy WHERE id = 10", None),
    ("SELECT count(*) FROM {catalog}.sales.copy", [(7,)]),
    (
        "CREATE OR REPLACE TABLE {catalog}.sales.copy USING iceberg AS "
        "SELECT id FROM {catalog}.sales.orders WHERE id < 3",
        None,
    ),
    ("SELECT count(*) FROM {catalog}.sales.copy", [(2,)]),
    ("TRUNCATE TABLE {catalog}.sales.copy", None),
    ("ALTER TABLE {catalog}.sales.copy RENAME TO sales.moved", None),
    ("SELECT count(*) FROM {catalog}.sales.moved", [(0,)]),
    ("DROP TABLE {catalog}.sales.moved", None),
    ("CREATE TABLE {catalog}.sales.gone USING iceberg AS SELECT 1 AS n", None),
    ("DROP TABLE {catalog}.sales.gone PURGE", None),
    ("SHOW TABLES IN {catalog}.sales", [("sales", "orders", False)]),
]
SPARK_REFUSED = [
    ("CREATE NAMESPACE {catalog}.sales.inner", "one level of namespaces"),
    ("CREATE TABLE {catalog}.sales.`a b` (n INT) USING iceberg", "Illegal dataset name"),
    (
        "CREATE TABLE {catalog}.sales.v3 (n INT) USING iceberg "
        "TBLPROPERTIES ('format-version' = '3')",
        "format version 3",
    ),
    ("CREATE VIEW {catalog}.sales.shown AS SELECT 1 AS n", "does not support endpoint"),
    # Spark takes the name of the catalog for that of a namespace.
    (
        "ALTER TABLE {catalog}.sales.orders RENAME TO {catalog}.sales.moved",
        "Namespace does not exist",
    ),
    ("DROP NAMESPACE {catalog}.sales", "it holds orders"),
    # Iceberg's catalog of Spark does not drop what a namespace holds.
    ("DROP NAMESPACE {catalog}.sales CASCADE", "it holds orders"),
    ("DROP TABLE {catalog}.lake.flights", "Drop it with purge"),
]
DUCKDB = [
    ("CREATE SCHEMA {catalog}.sales", None),
    ("CREATE SCHEMA IF NOT EXISTS {catalog}.sales", None),
    (
        "CREATE TABLE {catalog}.sales.orders "
        + ORDERS.format(text="VARCHAR", moment="TIMESTAMPTZ", using=""),
        None,
    ),
    ("INSERT INTO {catalog}.sales.orders " + FIRST, None),
    (
        "INSERT INTO {catalog}.sales.orders SELECT n, 'b', DATE '2026-02-01', 0.5, NULL "
        "FROM range(10, 20) AS r(n)",
        None,
    ),
    (SUMS, [(12, 148, "b")]),
    ("ALTER TABLE {catalog}.sales.orders ADD COLUMN note VARCHAR", None),
    ("ALTER TABLE {catalog}.sales.orders RENAME COLUMN kind TO sort", None),
    ("ALTER TABLE {catalog}.sales.orders RENAME COLUMN sort TO kind", None),
    ("SELECT id, kind, note FROM {catalog}.sales.orders WHERE id = 1", [(1, "a", None)]),
    # The first commit creates these tables, with their rows.
    (
        "CREATE TABLE {catalog}.sales.copy AS "
        "SELECT id, kind, price FROM {catalog}.sales.orders WHERE id < 12",
        None,
    ),
    ("BEGIN", None),
    ("CREATE TABLE {catalog}.sales.gone (n INTEGER)", None),
    ("INSERT INTO {catalog}.sales.gone VALUES (1)", None),
    ("COMMIT", None),
    ("SELECT count(*) FROM {catalog}.sales.gone", [(1,)]),
    ("BEGIN", None),
    ("INSERT INTO {catalog}.sales.gone VALUES (2)", None),
    ("ROLLBACK", None),
    ("SELECT count(*) FROM {catalog}.sales.gone", [(1,)]),
    ("UPDATE {catalog}.sales.copy SET kind = 'z' WHERE id = 1", None),
    ("DELETE FROM {catalog}.sales.copy WHERE id = 10", None),
    (
        "MERGE INTO {catalog}.sales.copy t USING (SELECT 2 AS id UNION ALL SELECT 99) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET kind = 'merged' "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
        None,
    ),
    (
        "SELECT id, kind FROM {catalog}.sales.copy ORDER BY id",
        [(1, "z"), (2, "merged"), (11, "b"), (99, None)],
    ),
    ("ALTER TABLE {catalog}.sales.copy RENAME TO moved", None),
    ("SELECT count(*) FROM {catalog}.sales.moved", [(4,)]),
    ("ALTER TABLE {catalog}.sales.moved DROP COLUMN price", None),
    ("TRUNCATE {catalog}.sales.moved", None),
    ("SELECT * FROM {catalog}.sales.moved", []),
    ("DROP TABLE {catalog}.sales.moved", None),
    ("DROP TABLE {catalog}.sales.gone", None),
    # To a dataset, DuckDB appends.
    ("INSERT INTO {catalog}.lake.flights VALUES (2)", None),
    ("SELECT id FROM {catalog}.lake.flights ORDER BY id", [(1,), (2,)]),
]
DUCKDB_REFUSED = [
    ("CREATE VIEW {catalog}.sales.shown AS SELECT 1 AS n", "Not implemented"),
    ("CREATE OR REPLACE TABLE {catalog}.sales.orders AS SELECT 1 AS n", "CREATE OR REPLACE"),
    ("CREATE TABLE {catalog}.sales.v3 (n INTEGER) WITH ('format-version' = '3')", "version 3"),
    ("ALTER TABLE {catalog}.sales.orders ALTER kind SET NOT NULL", "nullable"),
    ("DROP SCHEMA {catalog}.sales", "it holds orders"),
    ("DROP TABLE {catalog}.lake.flights", "Drop it with purge"),
    # DuckDB marks rows as deleted, which a dataset does not take.
    ("DELETE FROM {catalog}.lake.flights WHERE id = 2", "merge-on-read"),
    ("UPDATE {catalog}.lake.flights SET id = 3 WHERE id = 2", "marks rows"),
]
REWRITE = (
    "CALL {catalog}.system.rewrite_data_files(table => 'sales.orders', "
    "options => map('rewrite-all', 'true'))"
)
CLIENTS = {"spark": (SPARK, SPARK_REFUSED), "duckdb": (DUCKDB, DUCKDB_REFUSED)}


@pytest.mark.long
@pytest.mark.timeout(1800)
@NEEDS_ENGINES
@pytest.mark.parametrize("engine", CLIENTS)
def test_sql_of_a_client_creates_changes_and_drops(
    peers: Peers, url: str, lake: lakebed.Repository, engine: str
) -> None:
    statements, refused = CLIENTS[engine]
    for text, wanted in statements:
        table = peers.run(engine, url, TOKEN, text)
        if wanted is not None:
            assert [tuple(row.values()) for row in table.to_pylist()] == wanted, text

    for text, words in refused:
        with pytest.raises(AssertionError, match=words):
            peers.run(engine, url, TOKEN, text)

    assert not [key for key in files_of(lake, "sales/gone") if engine == "spark"]
    sales = lake["sales"]
    if engine == "spark":  # files of an older partition spec are not adopted
        peers.run(engine, url, TOKEN, REWRITE)
    wanted = peers.run(engine, url, TOKEN, "SELECT * FROM {catalog}.sales.orders")
    dataset = sales.adopt("orders", iceberg=True)
    names = wanted.schema.names
    assert rows_of(dataset.arrow(), names) == rows_of(wanted, names)
    assert lake["flights"].count() == (2 if engine == "duckdb" else 1)
    again = peers.run(engine, url, TOKEN, "SELECT * FROM {catalog}.sales.orders")
    assert rows_of(again, names) == rows_of(wanted, names)

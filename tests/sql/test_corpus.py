"""Forms of statements as Delta and Iceberg document them, each mapped to a verb or refused by name."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_peers import NEEDS_ENGINES, Peers

import lakebed
from lakebed import Repository
from lakebed.errors import InvalidInputError, LakebedError, PredicateError, SchemaMismatchError

# Each is carried out, on datasets as `lake` has them.
MAPPED = """
MERGE INTO people USING news ON people.id = news.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
MERGE INTO people p USING news n ON p.id = n.id WHEN MATCHED THEN UPDATE SET p.name = n.name
MERGE INTO people AS p USING news AS n ON p.id = n.id WHEN NOT MATCHED THEN INSERT *
MERGE INTO people p USING (SELECT DISTINCT id, name FROM news) n ON p.id = n.id WHEN NOT MATCHED THEN INSERT (id, name) VALUES (n.id, n.name)
MERGE INTO people p USING news n ON p.id = n.id AND p.city = n.city WHEN MATCHED THEN DELETE
MERGE INTO people p USING news n ON p.id = n.id WHEN MATCHED AND n.age IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET age = n.age
MERGE INTO people p USING news n ON p.id = n.id WHEN MATCHED AND p.age < n.age THEN UPDATE SET age = n.age WHEN MATCHED AND p.age = n.age THEN DELETE
MERGE INTO people p USING news n ON p.id = n.id WHEN NOT MATCHED BY TARGET THEN INSERT *
MERGE INTO people p USING news n ON p.id = n.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE
MERGE INTO people p USING news n ON p.id = n.id WHEN NOT MATCHED BY SOURCE AND p.age >= 100 THEN UPDATE SET p.city = 'unknown'
MERGE INTO people p USING news n ON p.id = n.id AND p.seen > DATE '2020-01-01' WHEN MATCHED THEN UPDATE SET name = n.name
MERGE INTO people p USING news n ON n.id = p.id AND n.age > 3 WHEN MATCHED THEN UPDATE SET name = upper(n.name) || '!'
MERGE INTO people p USING news n ON p.id = n.id AND p.age <= n.age WHEN MATCHED THEN UPDATE SET age = p.age + 1
MERGE INTO people p USING news n ON p.name = trim(n.name) WHEN MATCHED THEN UPDATE SET city = coalesce(n.city, p.city)
MERGE INTO people p USING news n ON p.id = n.id WHEN MATCHED THEN UPDATE SET age = CASE WHEN n.age > p.age THEN n.age ELSE p.age END
MERGE INTO people p USING news n ON p.id = n.id WHEN NOT MATCHED AND n.age > 5 THEN INSERT (id, name, age) VALUES (n.id, concat(n.name, '?'), n.age * 2) WHEN NOT MATCHED THEN INSERT (id) VALUES (n.id)
MERGE INTO people p USING (VALUES (1, 'x'), (7, 'y')) AS n(id, name) ON p.id = n.id WHEN MATCHED THEN UPDATE SET name = n.name
MERGE INTO people p USING (WITH q AS (SELECT id FROM news) SELECT * FROM q) n ON p.id = n.id WHEN MATCHED THEN DELETE
MERGE INTO people p USING news n ON p.id = n.id WHEN MATCHED THEN UPDATE SET seen = current_date
UPDATE people SET city = 'Ulm'
UPDATE people SET city = 'Ulm', age = age + 1 WHERE id = 1
UPDATE people p SET p.age = p.age * 2 WHERE p.city LIKE 'B%' OR p.age BETWEEN 3 AND 9
UPDATE people SET name = CASE WHEN age > 3 THEN upper(name) ELSE name END WHERE name IS NOT NULL
UPDATE people SET city = NULL WHERE id IN (1, 2, 3)
UPDATE people SET seen = DATE '2024-02-29' WHERE seen < current_date
UPDATE people SET age = id WHERE age > id
DELETE FROM people
DELETE FROM people WHERE city = 'Bonn'
DELETE FROM people AS p WHERE p.id >= 1 AND NOT (p.city IN ('Ulm', 'Bonn'))
DELETE FROM people WHERE seen < DATE '2020-06-01'
DELETE FROM people WHERE name IS NULL OR lower(name) = 'bo'
DELETE FROM people WHERE age = id
TRUNCATE TABLE people
INSERT INTO people VALUES (10, 'Dee', 5, 'Bonn', NULL)
INSERT INTO TABLE people VALUES (10, 'Dee', 5, 'Bonn', NULL), (11, 'Eve', 6, 'Ulm', DATE '2021-01-01')
INSERT INTO people (id, name) VALUES (10, 'Dee')
INSERT INTO people SELECT id + 50, name, age, city, NULL FROM news
INSERT INTO people (id, city) SELECT id, city FROM news WHERE age > 1
INSERT INTO people BY NAME SELECT 12 AS id, 'Ulm' AS city
INSERT INTO people TABLE more
INSERT INTO people WITH q AS (SELECT 20 AS id) SELECT id, NULL, NULL, NULL, NULL FROM q
INSERT INTO people SELECT * FROM people VERSION AS OF 1
INSERT OVERWRITE people SELECT * FROM people WHERE id = 1
INSERT OVERWRITE TABLE people VALUES (1, 'Ann', 1, 'Ulm', NULL)
INSERT INTO people REPLACE WHERE city = 'Ulm' SELECT 30, 'Flo', 3, 'Ulm', NULL
CREATE TABLE cars (id BIGINT, make STRING)
CREATE TABLE IF NOT EXISTS people (id BIGINT)
CREATE TABLE cars (id BIGINT NOT NULL COMMENT 'number', made DATE, price DECIMAL(8, 2) DEFAULT 0) USING parquet
CREATE TABLE cars (id BIGINT, made TIMESTAMP, make STRING) PARTITIONED BY (months(made), bucket(8, id), make)
CREATE TABLE cars (id BIGINT, made TIMESTAMP) PARTITIONED BY (hours(made)) TBLPROPERTIES ('owner' = 'me')
CREATE TABLE cars AS SELECT id, name FROM people
CREATE TABLE cars PARTITIONED BY (city) AS SELECT * FROM people
ALTER TABLE people ADD COLUMN phone STRING
ALTER TABLE people ADD COLUMNS (phone STRING COMMENT 'home', floor INT)
ALTER TABLE people DROP COLUMN name
ALTER TABLE people RENAME COLUMN name TO called
ALTER TABLE people ALTER COLUMN floor TYPE BIGINT
ALTER TABLE people SET TBLPROPERTIES ('owner' = 'me')
ALTER TABLE people ADD CONSTRAINT old CHECK (age >= 0 OR age IS NULL)
DROP TABLE people
DROP TABLE IF EXISTS cars
SHOW TABLES
SHOW TABLES LIKE 'p*|n*'
DESCRIBE TABLE people
DESC EXTENDED people
DESCRIBE DETAIL people
DESCRIBE HISTORY people
DESCRIBE HISTORY people LIMIT 1
OPTIMIZE people
OPTIMIZE people WHERE city = 'Ulm'
OPTIMIZE people ZORDER BY (id, age)
VACUUM people
VACUUM people RETAIN 100 HOURS
VACUUM people DRY RUN
RESTORE TABLE people TO VERSION AS OF 1
RESTORE people TO VERSION AS OF 1
SELECT * FROM people VERSION AS OF 1 AS p JOIN more m ON p.id = m.id
SELECT count(*) FROM people TIMESTAMP AS OF '2100-01-01'
""".strip().splitlines()

# Each is refused; the second part is in the hint, which has the remedy.
REFUSED = [
    ("MERGE WITH SCHEMA EVOLUTION INTO people USING news ON people.id = news.id WHEN MATCHED THEN UPDATE SET *", "ALTER TABLE t ADD COLUMN"),
    ("MERGE INTO people p USING news n ON p.id > n.id WHEN MATCHED THEN DELETE", "at least one equality"),
    ("MERGE INTO people p USING news n ON p.id = n.id OR p.name = n.name WHEN MATCHED THEN DELETE", "at least one equality"),
    ("MERGE INTO people p USING news n ON p.id <=> n.id WHEN MATCHED THEN DELETE", "at least one equality"),
    ("MERGE INTO people p USING news n ON p.id = n.id WHEN MATCHED THEN DELETE WHEN MATCHED AND n.age > 1 THEN UPDATE SET *", "last"),
    ("MERGE INTO people p USING news n ON FALSE WHEN NOT MATCHED THEN INSERT *", "at least one equality"),
    ("MERGE INTO people p USING news n ON p.id = n.id WHEN MATCHED AND n.id IN (SELECT id FROM more) THEN DELETE", "MERGE INTO t USING"),
    ("MERGE INTO people p USING news n ON p.id = n.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = n.name", "columns of the dataset"),
    ("MERGE INTO people p USING news n ON p.id = n.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *", "UPDATE SET x = value"),
    ("MERGE INTO people p USING news n ON p.id = n.id WHEN NOT MATCHED THEN INSERT (id) VALUES (p.id)", "columns of the source"),
    ("MERGE INTO people p USING news n ON p.id = n.id WHEN NOT MATCHED AND p.age > 1 THEN INSERT *", "columns of the source"),
    ("MERGE INTO people p USING news n ON p.id = n.id WHEN MATCHED THEN UPDATE SET age = DEFAULT", "Write the value"),
    ("MERGE INTO people p USING news n ON p.id = n.id WHEN MATCHED THEN UPDATE SET age = sum(p.age)", "in Spark"),
    ("WITH q AS (SELECT 1 AS id) MERGE INTO people p USING q ON p.id = q.id WHEN MATCHED THEN DELETE", "into USING"),
    ("UPDATE people SET name = n.name FROM news n WHERE people.id = n.id", "MERGE INTO t USING"),
    ("UPDATE people SET age = (SELECT max(age) FROM news)", "MERGE INTO t USING"),
    ("UPDATE people SET age = 1 WHERE id IN (SELECT id FROM news)", "MERGE INTO t USING"),
    ("UPDATE people SET age = DEFAULT", "Write the value"),
    ("DELETE FROM people WHERE EXISTS (SELECT 1 FROM news WHERE news.id = people.id)", "MERGE INTO t USING"),
    ("DELETE FROM people USING news WHERE people.id = news.id", "MERGE INTO t USING"),
    ("DELETE FROM people VERSION AS OF 1", "current version"),
    ("TRUNCATE TABLE people PARTITION (city = 'Ulm')", "DELETE FROM t WHERE"),
    ("INSERT INTO people PARTITION (city = 'Ulm') SELECT 1, 'x', 1, NULL", "REPLACE WHERE"),
    ("INSERT OVERWRITE people PARTITION (city) SELECT * FROM more", "REPLACE WHERE"),
    ("INSERT INTO people DEFAULT VALUES", "INSERT INTO t VALUES"),
    ("INSERT INTO people VALUES (1, DEFAULT, 1, 'Ulm', NULL)", "Leave the column out"),
    ("INSERT INTO people REPLACE WHERE age > 3 SELECT * FROM more", "boundaries"),
    ("INSERT INTO people REPLACE USING (city) SELECT * FROM more", "REPLACE WHERE"),
    ("INSERT INTO people REPLACE ON people.id = more.id SELECT * FROM more", "REPLACE WHERE"),
    ("CREATE OR REPLACE TABLE people AS SELECT 1 AS id", "INSERT OVERWRITE"),
    ("CREATE TABLE cars LIKE people", "columns, PARTITIONED BY"),
    ("CREATE TABLE cars (id BIGINT) USING delta", "delta-iceberg.md"),
    ("CREATE TABLE cars (id BIGINT) LOCATION '/elsewhere'", "lies in its repository"),
    ("CREATE TABLE cars (id BIGINT) CLUSTER BY (id)", "lies in its repository"),
    ("CREATE TABLE cars (id BIGINT, PRIMARY KEY (id))", "ADD CONSTRAINT"),
    ("CREATE TABLE cars (id BIGINT GENERATED ALWAYS AS IDENTITY)", "NOT NULL, DEFAULT and COMMENT"),
    ("CREATE TABLE cars (id INTERVAL DAY)", "Types are"),
    ("CREATE TABLE cars (name VARCHAR(10))", "Types are"),
    ("CREATE TABLE cars (id BIGINT, name STRING) PARTITIONED BY (truncate(4, name))", "create the dataset in Python"),
    ("CREATE TABLE cars (id BIGINT) PARTITIONED BY (dt STRING)", "Declare the column"),
    ("CREATE VIEW old AS SELECT * FROM people", "views belong to Spark"),
    ("CREATE DATABASE lake", "CREATE TABLE t"),
    ("ALTER TABLE people RENAME TO folk", "keeps its name"),
    ("ALTER TABLE people ADD COLUMN phone STRING AFTER name", "last one"),
    ("ALTER TABLE people ALTER COLUMN name SET NOT NULL", "Write ADD COLUMN"),
    ("ALTER TABLE people UNSET TBLPROPERTIES ('owner')", "Write ALTER TABLE"),
    ("ALTER TABLE people ADD PARTITION FIELD bucket(8, id)", "ALTER TABLE"),
    ("DROP VIEW people", "views belong to Spark"),
    ("SHOW PARTITIONS people", "SHOW TABLES"),
    ("SHOW CREATE TABLE people", "SHOW TABLES"),
    ("OPTIMIZE people FULL", "OPTIMIZE t"),
    ("VACUUM people RETAIN 7 DAYS", "RETAIN n HOURS"),
    ("RESTORE TABLE people TO VERSION 1", "VERSION AS OF 3"),
    ("COPY INTO people FROM '/data' FILEFORMAT = CSV", "lakebed append"),
    ("CALL system.rollback_to_snapshot('people', 1)", "RESTORE"),
    ("MSCK REPAIR TABLE people", "head names all files"),
    ("ANALYZE TABLE people COMPUTE STATISTICS", "each commit records"),
    ("REORG TABLE people APPLY (PURGE)", "OPTIMIZE"),
    ("CONVERT TO DELTA parquet.`/data`", "adopt"),
    ("GRANT SELECT ON TABLE people TO ann", "storage"),
    ("UPDATE people p JOIN news n ON p.id = n.id SET age = 0", "MERGE INTO t USING"),
    ("UPDATE people, news SET age = 0", "MERGE INTO t USING"),
    ("UPDATE people SET age = 0 LIMIT 1", "choose rows by WHERE"),
    ("UPDATE people SET age = 0 RETURNING *", "choose rows by WHERE"),
    ("UPDATE people TABLESAMPLE (10 PERCENT) SET age = 0", "alone"),
    ("DELETE FROM people JOIN news ON people.id = news.id", "MERGE INTO t USING"),
    ("DELETE FROM people, news WHERE people.age = 1", "MERGE INTO t USING"),
    ("DELETE FROM people TABLESAMPLE (10 PERCENT)", "alone"),
    ("DELETE FROM people AS p (age, id) WHERE age = 1", "alone"),
    ("INSERT OVERWRITE DIRECTORY '/data' SELECT * FROM people", "alone"),
    ("INSERT INTO people SELECT * FROM more ON CONFLICT DO NOTHING", "WHEN NOT MATCHED THEN INSERT"),
    ("MERGE INTO people p USING news n USING (id) WHEN MATCHED THEN DELETE", "ON t.id = s.id"),
    ("MERGE INTO people TABLESAMPLE (10 PERCENT) USING news n ON people.id = n.id WHEN MATCHED THEN DELETE", "alone"),
    ("MERGE INTO people p USING news n ON p.id = n.id WHEN MATCHED THEN UPDATE SET age = 0 WHERE n.age > 99", "before THEN"),
    ("MERGE INTO people p USING news n ON p.id = n.id WHEN NOT MATCHED THEN INSERT (id) VALUES (n.id) WHERE n.age > 99", "before THEN"),
    ("MERGE INTO people p USING news n ON p.id = n.id WHEN MATCHED THEN UPDATE SET * EXCEPT (age)", "Name the columns"),
    ("MERGE INTO people p USING news n ON p.id = n.id WHEN NOT MATCHED THEN INSERT * EXCEPT (age)", "Name the columns"),
    ("ALTER TABLE people DROP COLUMN city.name", "`evolve`"),
    ("ALTER TABLE people DROP COLUMNS (city.name, age)", "`evolve`"),
    ("ALTER TABLE people RENAME COLUMN city.name TO called", "`evolve`"),
    ("ALTER TABLE people ADD COLUMN city.phone STRING", "whole record"),
    ("ALTER TABLE people ALTER COLUMN age TYPE BIGINT USING age + 1", "set values by UPDATE"),
    ("ALTER TABLE people PARTITION (city = 'Ulm') DROP COLUMN age", "alone"),
]  # fmt: skip


@pytest.fixture
def lake() -> Repository:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    fields = [
        ("id", pa.int64()), ("name", pa.string()), ("age", pa.int64()), ("city", pa.string()),
        ("seen", pa.date32()),
    ]  # fmt: skip
    people = repository.create("people", pa.schema(fields), partition_by="city")
    people.append(
        [
            {"id": 1, "name": "Ann", "age": 1, "city": "Ulm", "seen": None},
            {"id": 2, "name": "Bo", "age": 5, "city": "Bonn", "seen": None},
        ]
    )
    rows = [{"id": 2, "name": "Bob", "age": 9, "city": "Bonn", "seen": None},
            {"id": 3, "name": "Cy", "age": None, "city": "Ulm", "seen": None}]  # fmt: skip
    for name in ("news", "more"):
        repository.create(name, pa.schema(fields)).append(rows)
    people.evolve(lambda old: old.add_field("floor", "int"))
    people.evolve(lambda old: old.drop_field("floor"))
    return repository


def test_corpus_is_large() -> None:
    assert len(MAPPED) >= 70
    assert len(REFUSED) >= 50


@pytest.mark.parametrize("text", MAPPED)
def test_form_is_mapped(lake: Repository, text: str) -> None:
    if "floor TYPE" in text:
        lake["people"].evolve(lambda old: old.add_field("floor", "int"))

    if text.startswith(("SHOW", "DESC", "SELECT")):
        assert isinstance(lake.sql(text, write=True), pa.Table)
        return
    versions = {name: lake[name].version for name in lake.list()}
    lake.sql(text, dry_run=True, write=True)
    assert {name: lake[name].version for name in lake.list()} == versions

    lake.sql(text, write=True)

    after = {name: lake[name].version for name in lake.list()}
    changed = {name for name in {*after, *versions} if after.get(name) != versions.get(name)}
    assert changed <= {"people", "cars"}
    assert all(after[name] - versions.get(name, 0) <= 1 for name in changed if name in after)


NO_ROWS = ("ALTER", "DROP", "DESC", "SHOW", "OPTIMIZE", "VACUUM", "RESTORE")
# What Spark 4.1 with Delta 4.4 refuses, and Lakebed takes: a part of the statement, and of the error.
NOT_OF_DELTA = {
    "AS n(id, name)": "COLUMN_ALIASES_NOT_ALLOWED",
    "TIMESTAMP AS OF '2100-01-01'": "DELTA_TIMESTAMP_GREATER_THAN_COMMIT",
}


def _peer_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = sorted(table.column_names)
    return sorted((tuple(row[name] for name in columns) for row in table.to_pylist()), key=str)


@pytest.mark.long
@NEEDS_ENGINES
def test_rows_are_those_of_spark_with_delta(
    peers: Peers, lake: Repository, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """The rows of each table are those that Delta has after the same statement."""
    first = {name: lake[name].arrow() for name in ("people", "news", "more")}
    for name, rows in first.items():
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    compared = 0
    for text in MAPPED:
        if text.startswith(NO_ROWS) or (text.startswith("CREATE") and " AS SELECT" not in text):
            continue
        with subtests.test(text):
            table = "cars" if text.startswith("CREATE") else "people"
            table = "" if text.startswith("SELECT") else table
            if lake["people"].version != 3:
                lake["people"].rollback(version=3)
            if table == "cars" and "cars" in lake.list():
                lake.drop("cars")
            found = lake.sql(text, write=True)

            refusals = [name for part, name in NOT_OF_DELTA.items() if part in text]
            if refusals:
                with pytest.raises(AssertionError, match=refusals[0]):
                    peers.rows_after(tmp_path, text, table)
                continue
            wanted = peers.rows_after(tmp_path, text, table)

            assert _peer_rows(lake[table].arrow() if table else found) == _peer_rows(wanted)
            compared += 1
    assert compared >= 45


@pytest.mark.parametrize(("text", "instead"), REFUSED)
def test_form_is_refused_by_name(lake: Repository, text: str, instead: str) -> None:
    with pytest.raises(LakebedError) as refusal:
        lake.sql(text, write=True)

    assert isinstance(refusal.value, InvalidInputError | PredicateError)
    assert instead in refusal.value.hint, refusal.value
    assert lake["people"].version == 3
    assert lake.list() == ["more", "news", "people"]


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE cars (id BIGINT, ID STRING)",
        "CREATE TABLE cars (id BIGINT, id STRING)",
        "CREATE TABLE cars AS SELECT id, name AS ID FROM people",
        "ALTER TABLE people ADD COLUMN Name STRING",
        "ALTER TABLE people ADD COLUMNS (phone STRING, PHONE STRING)",
        "ALTER TABLE people RENAME COLUMN name TO AGE",
    ],
)
def test_columns_that_sql_cannot_distinguish_are_refused(lake: Repository, text: str) -> None:
    with pytest.raises(SchemaMismatchError, match="cannot distinguish"):
        lake.sql(text, write=True)

    assert lake.list() == ["more", "news", "people"]
    assert lake["people"].version == 3
    lake.sql("ALTER TABLE people RENAME COLUMN name TO Name", write=True)

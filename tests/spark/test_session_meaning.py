"""SQL that comes by `spark.sql` means what it means in the session, or is refused by name."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import LakebedError

pytestmark = pytest.mark.spark

ROWS = """SELECT * FROM VALUES
 (1L, 2.5D, CAST(2.5 AS DECIMAL(10, 2)), 'straße', DATE '2024-03-31', TIMESTAMP '2024-03-31 23:30:00Z',
  TIMESTAMP_NTZ '2024-03-10 02:30:00', 7, CAST(0.1 AS FLOAT), true),
 (2L, -2.5D, CAST(-2.55 AS DECIMAL(10, 2)), 'İΑΣ ﬁ', DATE '1582-10-20', TIMESTAMP '2024-01-01 05:00:00Z',
  TIMESTAMP_NTZ '2011-12-30 23:30:00', -7, CAST(16777216 AS FLOAT), false),
 (3L, -0.3D, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
 (4L, DOUBLE('NaN'), CAST(0 AS DECIMAL(10, 2)), '12', DATE '2024-02-29', TIMESTAMP '2024-11-03 05:30:00Z',
  TIMESTAMP_NTZ '2024-11-03 01:30:00', 2, FLOAT('NaN'), true),
 (5L, 0D, CAST(1 AS DECIMAL(10, 2)), '', current_date(), current_timestamp(),
  TIMESTAMP_NTZ '2024-01-01 00:00:00', 0, CAST(0.5 AS FLOAT), false)
 AS v(id, x, c, s, d, t, w, n, f, k)"""
CONDITIONS = (
    *("t < '2024-01-02'", "t < TIMESTAMP '2024-04-01 00:00:00'", "t = '2024-01-01'"),
    *("t <= TIMESTAMP_LTZ '2024-04-01 08:30:00'", "t < TIMESTAMP_NTZ '2024-04-01 00:00:00'"),
    *("t < DATE '2024-04-01'", "t >= '2024-03-31 23:30:00Z'", "'2024-01-02' > t"),
    *("t > current_date()", "t > current_timestamp() - INTERVAL 1 DAY", "NOT (t < '2024-01-02')"),
    *("t BETWEEN '2024-01-01' AND '2024-04-01'", "t IN ('2024-01-01', '2024-03-31 19:30:00')"),
    *("t >= to_timestamp('2024-03-31')", "t > date_trunc('DAY', TIMESTAMP '2024-03-31 12:00:00')"),
    *("t IN (TIMESTAMP '2024-01-01', DATE '2024-04-01')", "t > '2024'", "t > '20240101'"),
    *(
        "d = current_date",
        "d >= date_sub(current_date(), 3)",
        "d < TIMESTAMP '2024-03-31 12:00:00'",
    ),
    *("d IN ('2024-02-29', '1582-10-20')", "d = '2024-2-29'", "d > make_date(2024, 3, 1)"),
    *("w = '2024-01-01'", "w < TIMESTAMP '2024-03-10 03:00:00'", "w < DATE '2024-03-10'"),
    *("w >= '2024-03-10 02:30:00'", "t = d", "w = t", "CAST(t AS DATE) = '2024-03-31'"),
    *("f = 0.1", "f > 0.1", "f >= 0.1", "f < 0.1", "f <= 0.1", "f != 0.1", "NOT (f = 0.1)"),
    *("f IN (0.1, 0.5)", "f NOT IN (0.1)", "f BETWEEN 0.1 AND 0.5", "f = 16777217", "0.1 < f"),
    *("f > 16777215.5", "f < 1e300", "f = 'NaN'", "f = x", "n = f", "x > n", "id = n"),
    *("upper(s) = 'STRASSE'", "lower(s) LIKE 'st%'", "s ILIKE 'STRASSE'", "s LIKE 'stra%'"),
    *("c = 2.5", "c = 25e-1", "c < x", "x = 'NaN'", "x IN ('nan')", "k", "NOT k", "n = 7.0"),
    *("n BETWEEN -5 AND 7", "id IN (1, 2) OR x IS NULL", "coalesce(s, '') = ''", "rand() < 2"),
)
VALUES = {
    "s": ("upper(s)", "lower(s)", "concat(s, '!')", "CAST(d AS STRING)", "CAST(c AS STRING)", "x",
          "CASE WHEN t < '2024-01-02' THEN 'p' ELSE s END", "current_date()"),
    "x": ("round(x)", "round(x, 1)", "x * 1.1", "n / 2", "n * n", "0.1 + 0.2", "f", "f + 1", "-x", "c"),
    "f": ("f * 1.1", "CAST(CAST(f AS DOUBLE) * 2 AS FLOAT)", "greatest(f, 0.1)", "-f"),
    "n": ("n + 1", "CAST(s AS INT)", "1 + 1", "abs(n)"),
    "c": ("c + 1", "c * c", "round(c, 1)"),
    "d": ("CAST(t AS DATE)", "DATE '2024-01-01'", "t", "coalesce(d, DATE '2000-01-01')", "current_date()"),
    "t": ("CAST(d AS TIMESTAMP)", "d", "TIMESTAMP '2024-07-01 00:00:00'", "DATE '2024-01-01'", "w",
          "coalesce(t, TIMESTAMP '2024-07-01')", "greatest(t, TIMESTAMP '2024-04-01')"),
    "w": ("TIMESTAMP_NTZ '2024-01-01 00:00:00'", "TIMESTAMP '2024-01-01'", "CAST(d AS TIMESTAMP_NTZ)"),
}  # fmt: skip
# Forms that must be carried out, so that refusing all of them is not right.
CARRIED_OUT = {
    "t < '2024-01-02'",
    "t > current_date()",
    "d = current_date",
    "f = 0.1",
    "f IN (0.1, 0.5)",
}


@contextlib.contextmanager
def settings(spark: Any, **values: str) -> Iterator[None]:
    names = {"zone": "spark.sql.session.timeZone", "ansi": "spark.sql.ansi.enabled"}
    before = {name: spark.conf.get(names[name]) for name in values}
    for name, value in values.items():
        spark.conf.set(names[name], value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(names[name], value)


def create(spark: Any, directory: Path) -> lakebed.Dataset:
    lake = lakebed.open_repository(directory)
    rows = spark.sql(ROWS)
    dataset = lake.create("t", lakebed.DatasetDescriptor(schema=nullable(rows)))
    dataset.append(rows)
    dataset.snapshot().spark(spark).createOrReplaceTempView("whole")
    return dataset


def nullable(frame: Any) -> Any:
    return type(frame.schema)([type(f)(f.name, f.dataType, True) for f in frame.schema.fields])


def differing(
    spark: Any,
    dataset: lakebed.Dataset,
    conditions: Sequence[str],
    values: dict[str, Sequence[str]],
) -> tuple[list[str], set[str]]:
    """Return the statements that leave other rows than SELECT shows, and the forms carried out."""
    wrong, done = [], set()
    lake = lake_of(dataset)
    attached = lakebed.spark.attach(spark, lake)

    def rows_after(statement: str, query: str, form: str) -> list[Any] | None:
        version = dataset.version
        try:
            lake.sql(statement, spark, write=True)
        except LakebedError:
            return None
        done.add(form)
        rows = [tuple(row) for row in spark.sql(query).collect()]
        if dataset.version != version:
            dataset.rollback(version=version)
        return rows

    for condition in conditions:
        kept = f"SELECT id FROM whole WHERE id NOT IN (SELECT id FROM whole WHERE {condition})"
        for statement in (
            f"DELETE FROM t WHERE {condition}",
            f"UPDATE t SET id = id + 1000 WHERE {condition}",
            "MERGE INTO t USING (SELECT id AS other FROM whole) s ON t.id = s.other AND "
            f"{condition} WHEN MATCHED THEN DELETE",
            "MERGE INTO t USING (SELECT id AS other FROM whole) s ON t.id = s.other WHEN MATCHED AND "
            f"{condition} THEN UPDATE SET id = t.id + 1000",
        ):
            found = rows_after(statement, "SELECT id FROM t WHERE id < 1000 ORDER BY 1", condition)
            if found is None:
                continue
            try:
                wanted = [tuple(row) for row in spark.sql(f"{kept} ORDER BY 1").collect()]
            except Exception as error:  # noqa: BLE001 - what Spark refuses must be refused
                wanted = [(type(error).__name__,)]
            if found != wanted:
                wrong.append(f"{statement}: {found}, not {wanted}")
    types = dict(spark.table("whole").dtypes)
    for name, expressions in values.items():
        for expression in expressions:
            shown = "id, CAST(({}) AS STRING) AS v"
            found = rows_after(
                f"UPDATE t SET {name} = {expression}",
                f"SELECT {shown.format(name)} FROM t ORDER BY id",
                expression,
            )
            if found is None:
                continue
            cast = shown.format(f"CAST(({expression}) AS {types[name]})")
            wanted = [
                tuple(row) for row in spark.sql(f"SELECT {cast} FROM whole ORDER BY id").collect()
            ]
            if found != wanted:
                wrong.append(f"SET {name} = {expression}: {found}, not {wanted}")
    attached.detach()
    return wrong, done


def lake_of(dataset: lakebed.Dataset) -> lakebed.Repository:
    return lakebed.open_repository(dataset.uri.removeprefix("file://").rsplit("/", 1)[0])


@pytest.mark.long
@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo", "Pacific/Apia"])
def test_statement_changes_the_rows_that_select_shows(
    spark: Any, tmp_path: Path, zone: str, ansi: str
) -> None:
    with settings(spark, zone=zone, ansi=ansi):
        dataset = create(spark, tmp_path)
        wrong, done = differing(spark, dataset, CONDITIONS, VALUES)
    assert not wrong
    assert done >= CARRIED_OUT


def test_some_statements_change_the_rows_that_select_shows(spark: Any, tmp_path: Path) -> None:
    with settings(spark, zone="America/New_York"):
        dataset = create(spark, tmp_path)
        some = ("t < '2024-01-02'", "d = current_date", "f IN (0.1, 0.5)", "upper(s) = 'STRASSE'")
        values = {"t": VALUES["t"][:3], "s": ("upper(s)",)}
        wrong, done = differing(spark, dataset, some, values)
    assert not wrong
    assert done == {*some[:3], "TIMESTAMP '2024-07-01 00:00:00'", "upper(s)"}


def test_each_statement_sets_the_same_moment(spark: Any, tmp_path: Path) -> None:
    at = "TIMESTAMP '2024-06-01 00:00:00'"
    merge = "MERGE INTO t USING (SELECT 3L AS other) s ON t.id = s.other"
    statements = (
        f"UPDATE t SET t = {at} WHERE id = 3",
        f"{merge} WHEN MATCHED THEN UPDATE SET t = {at}",
        f"{merge} WHEN MATCHED THEN UPDATE SET t = '2024-06-01'",
        f"{merge} WHEN NOT MATCHED BY SOURCE THEN UPDATE SET t = {at}",
        f"MERGE INTO t USING (SELECT 9L AS other) s ON t.id = s.other "
        f"WHEN NOT MATCHED THEN INSERT (id, t) VALUES (s.other, {at})",
    )
    for number, statement in enumerate(statements):
        dataset = create(spark, tmp_path / str(number))
        lake = lake_of(dataset)
        with settings(spark, zone="America/New_York"), lakebed.spark.attach(spark, lake):
            lake.sql(statement, spark, write=True)
            assert spark.sql(f"SELECT id FROM t WHERE t = {at}").count() > 0, statement


def test_moments_of_versions_are_in_the_zone_of_the_session(spark: Any, tmp_path: Path) -> None:
    dataset = create(spark, tmp_path)
    lake = lake_of(dataset)
    time.sleep(1.1)
    with settings(spark, zone="Asia/Tokyo"):
        between = spark.sql("SELECT CAST(current_timestamp() AS STRING) s").collect()[0].s
        time.sleep(0.1)
        dataset.append(spark.sql(ROWS))
        old = lake.sql(f"SELECT count(*) AS n FROM t TIMESTAMP AS OF '{between}'", spark)
        assert old["n"].to_pylist() == [5]
        lake.sql(f"RESTORE TABLE t TO TIMESTAMP AS OF '{between}'", spark, write=True)
    assert dataset.count() == 5

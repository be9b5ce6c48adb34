"""Columns of the footprint in SQL of DuckDB: there if they are named, and hidden otherwise."""

from pathlib import Path

import pyarrow as pa
import pytest
from footprints import changed_datasets, expected_footprints

import lakebed
from lakebed.errors import InvalidInputError

NATIVE = "SELECT id, batch_id, batch_time, run FROM d"


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    lake = lakebed.open_repository(tmp_path)
    lake.write("t", pa.table({"n": [1, 2], "g": ["a", "b"]}), partition_by=["g"], run="first")
    lake.open("t").append(pa.table({"n": [3], "g": ["b"]}))
    lake.write("own", pa.table({"n": [1, 2], "run": [7, 8]}), run="x")
    return lake


@pytest.mark.parametrize("file_format", ["parquet", "avro"])
def test_footprint_is_right_after_every_change(tmp_path: Path, file_format: str) -> None:
    lake = lakebed.open_repository(tmp_path)

    for dataset, runs in changed_datasets(lake, file_format=file_format):
        rows = [tuple(row.values()) for row in lake.sql(NATIVE, write=True).to_pylist()]
        assert sorted(rows, key=lambda row: row[0]) == expected_footprints(dataset, runs)


@pytest.mark.parametrize(
    ("query", "columns", "count"),
    [
        ("FROM t WHERE run = 'first'", ["n", "g"], 2),
        ("SELECT * FROM t WHERE run IS NULL", ["n", "g"], 1),
        ("SELECT t.* FROM t WHERE RUN = 'first' AND batch_id > 0", ["n", "g"], 2),
        ("SELECT *, run FROM t", ["n", "g", "run"], 3),
        ("SELECT * EXCLUDE (g) FROM t WHERE batch_time < now()", ["n"], 3),
        ("SELECT * REPLACE (n + 1 AS n) FROM t ORDER BY batch_time", ["n", "g"], 3),
        ("SELECT * FROM (SELECT n, run FROM t)", ["n", "run"], 3),
        ("WITH f AS (SELECT *, run FROM t) SELECT * FROM f", ["n", "g", "run"], 3),
        ("WITH t AS (SELECT 1 AS run) SELECT * FROM t WHERE run = 1", ["run"], 1),
        ("SELECT * FROM t AS a JOIN t AS b USING (n) WHERE a.run = b.run", ["n", "g", "g"], 2),
        ("SELECT * FROM t SEMI JOIN own ON t.n = own.n AND t.run = 'first'", ["n", "g"], 2),
        ("SELECT n, run FROM own", ["n", "run"], 2),
        ("SELECT * FROM own WHERE batch_id > 0", ["n", "run"], 2),
        ("SELECT own.n, run FROM own JOIN t USING (n) WHERE t.batch_id > 0", ["n", "run"], 2),
        ("SELECT count(*) AS c FROM t WHERE run = 'first'", ["c"], 1),
        ("SELECT * FROM t WHERE run = 'first' UNION ALL SELECT * FROM t", ["n", "g"], 5),
        ("SELECT n AS run FROM t ORDER BY run", ["run"], 3),
    ],
)
def test_named_columns_are_there_and_a_star_shows_none(
    lake: lakebed.Repository, query: str, columns: list[str], count: int
) -> None:
    answer = lake.sql(query, write=True)

    assert answer.column_names == columns
    assert answer.num_rows == count


def test_column_of_the_dataset_keeps_its_name_and_values(lake: lakebed.Repository) -> None:
    query = "SELECT own.run AS own, t.run AS hidden FROM own JOIN t USING (n) ORDER BY n"

    assert lake.sql(query, write=True).to_pylist() == [
        {"own": 7, "hidden": "first"},
        {"own": 8, "hidden": "first"},
    ]


def test_name_of_an_outer_query_is_not_captured(lake: lakebed.Repository) -> None:
    query = (
        "SELECT n, batch_id FROM own WHERE EXISTS (SELECT 1 FROM t WHERE t.n = own.n AND run = 7)"
    )

    assert lake.sql(query, write=True)["n"].to_pylist() == [1]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT t, run FROM t",
        "SELECT * FROM t NATURAL JOIN own WHERE batch_id > 0",
        "SELECT COLUMNS('n'), run FROM t",
        "SELECT * FROM t PIVOT (sum(n) FOR run IN ('first'))",
    ],
)
def test_what_would_show_them_all_the_same_is_refused(lake: lakebed.Repository, query: str) -> None:
    with pytest.raises(InvalidInputError, match="hidden columns batch_id, batch_time, run"):
        lake.sql(query, write=True)


def test_wrong_name_beside_one_is_told(lake: lakebed.Repository) -> None:
    with pytest.raises(InvalidInputError, match="foo"):
        lake.sql("SELECT run, foo FROM t")


def test_given_reader_is_read_once(lake: lakebed.Repository) -> None:
    reader = pa.table({"n": [1, 3]}).to_reader()
    query = "SELECT s.n, run FROM s JOIN t USING (n) ORDER BY s.n"

    answer = lake.sql(query, tables={"s": reader}, write=True)

    assert answer.to_pylist() == [{"n": 1, "run": "first"}, {"n": 3, "run": None}]


def test_statement_reads_them_in_its_query(lake: lakebed.Repository) -> None:
    lake.sql("CREATE TABLE log AS SELECT n, run FROM t", write=True)
    lake.sql(
        "MERGE INTO log USING (SELECT n, batch_id FROM t) s ON log.n = s.n "
        "WHEN MATCHED AND s.batch_id > 0 THEN UPDATE SET run = 'seen'",
        write=True,
    )

    assert lake.sql("FROM log ORDER BY n").to_pylist() == [
        {"n": n, "run": "seen"} for n in (1, 2, 3)
    ]


def test_files_of_other_runs_are_not_read(lake: lakebed.Repository, tmp_path: Path) -> None:
    last = lake["t"].batches()[-1].batch_id
    for file in lake["t"].files():
        if file.batch_id == last:
            (tmp_path / file.key).unlink()

    assert lake.sql("SELECT n FROM t WHERE run = 'first' ORDER BY n")["n"].to_pylist() == [1, 2]

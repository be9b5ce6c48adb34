"""A doubled quote is a quote in every text that Lakebed reads as SQL."""

from __future__ import annotations

import tomllib
import uuid
from collections.abc import Callable
from pathlib import Path

import click.testing
import pyarrow as pa
import pytest

import lakebed
from lakebed import Dataset, Repository, checks
from lakebed.cli import main
from lakebed.errors import ChecksFailedError, PredicateError

NAME = "O'Brien"  # in SQL, 'O''Brien'
ROWS = pa.table({"id": [1, 2], "s": [NAME, "OBrien"]})


@pytest.fixture
def lake() -> Repository:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    repository.write("t", ROWS, partition_by="id")
    return repository


def stored(dataset: Dataset) -> dict[int, str]:
    rows = dataset.arrow(["id", "s"]).to_pylist()
    return {row["id"]: row["s"] for row in rows}


WHERE = "s = 'O''Brien'"
SOURCE = pa.table({"id": [1, 3], "s": ["x", "y"]})
MERGE = "MERGE INTO t USING u ON t.id = u.id "


def sql(text: str) -> Callable[[Repository], object]:
    return lambda lake: lake.sql(text, tables={"u": SOURCE}, write=True)


DELETING = {
    "where": lambda lake: lake["t"].where(WHERE).delete(),
    "delete": lambda lake: lake["t"].delete(WHERE),
    "IN": lambda lake: lake["t"].delete("s IN ('a''b', 'O''Brien')"),
    "LIKE": lambda lake: lake["t"].delete("s LIKE 'O''B%'"),
    "startswith": lambda lake: lake["t"].delete("startswith(s, 'O''')"),
    "upper": lambda lake: lake["t"].delete("upper(s) = 'O''BRIEN'"),
    "delete_where": lambda lake: lake["t"].merge(
        SOURCE, "id", delete_where="target.s = 'O''Brien'", not_matched="ignore"
    ),
    "missing_where": lambda lake: lake["t"].merge(
        SOURCE.slice(1),
        "id",
        missing="delete",
        missing_where="target.s = 'O''Brien'",
        not_matched="ignore",
    ),
    "DELETE": sql(f"DELETE FROM t WHERE {WHERE}"),
    "MERGE": sql(MERGE + "WHEN MATCHED AND t.s = 'O''Brien' THEN DELETE"),
    "BY SOURCE": sql(
        "MERGE INTO t USING (SELECT 9 AS id) u ON t.id = u.id "
        "WHEN NOT MATCHED BY SOURCE AND t.s = 'O''Brien' THEN DELETE"
    ),
    "USING": sql(
        "MERGE INTO t USING (SELECT 'O''Brien' AS s) u ON t.s = u.s WHEN MATCHED THEN DELETE"
    ),
    "REPLACE WHERE": sql(
        "INSERT INTO t REPLACE WHERE id = 1 SELECT id, s FROM t WHERE id = 1 AND s != 'O''Brien'"
    ),
}


@pytest.mark.parametrize("door", DELETING)
def test_a_doubled_quote_in_a_condition_is_a_quote(lake: Repository, door: str) -> None:
    DELETING[door](lake)

    assert stored(lake["t"]).get(1, "x") == "x"
    assert stored(lake["t"])[2] == "OBrien"


SETTING = {
    "update_rows": lambda lake: lake["t"].where("id = 1").update_rows({"s": "'it''s'"}),
    "CASE": lambda lake: lake["t"].update_rows(
        {"s": "CASE WHEN s = 'O''Brien' THEN 'it''s' ELSE s END"}
    ),
    "merge": lambda lake: lake["t"].merge(
        SOURCE, "id", update={"s": "'it''s'"}, not_matched="ignore"
    ),
    "update_where": lambda lake: lake["t"].merge(
        SOURCE,
        "id",
        update={"s": "'it''s'"},
        update_where="target.s = 'O''Brien'",
        insert_where="source.s = 'y''s'",
    ),
    "missing_update": lambda lake: lake["t"].merge(
        SOURCE.slice(1),
        "id",
        missing="update",
        missing_where="target.id = 1",
        missing_update={"s": "'it''s'"},
        not_matched="ignore",
    ),
    "UPDATE": sql(f"UPDATE t SET s = 'it''s' WHERE {WHERE}"),
    "MERGE": sql(MERGE + "WHEN MATCHED THEN UPDATE SET s = 'it''s'"),
    "MERGE of both": sql(MERGE + "WHEN MATCHED AND u.s = 'x' THEN UPDATE SET s = 'it''' || 's'"),
    "VALUES": sql("INSERT OVERWRITE t VALUES (1, 'it''s'), (2, 'OBrien')"),
    "SELECT": sql("INSERT OVERWRITE t SELECT id, replace(s, 'O''Brien', 'it''s') FROM t"),
}


@pytest.mark.parametrize("door", SETTING)
def test_a_doubled_quote_in_a_value_is_a_quote(lake: Repository, door: str) -> None:
    SETTING[door](lake)

    assert stored(lake["t"]) == {1: "it's", 2: "OBrien"}


CHECKED = {
    "create": lambda lake, text: lake.create(
        "c", lakebed.DatasetDescriptor(schema=ROWS.schema, checks={"c": checks.condition(text)})
    ),
    "TOML": lambda lake, text: lake.create(
        "c",
        lakebed.DatasetDescriptor(
            schema=ROWS.schema,
            checks=checks.from_table(tomllib.loads(f'[checks]\nc = "{text}"')["checks"]),
        ),
    ),
    "ADD CONSTRAINT": lambda lake, text: (
        lake.sql("CREATE TABLE c (id BIGINT, s STRING)", write=True),
        lake.sql(f"ALTER TABLE c ADD CONSTRAINT c CHECK ({text})", write=True),
    ),
}


@pytest.mark.parametrize("door", CHECKED)
def test_a_doubled_quote_in_a_check_is_a_quote(lake: Repository, door: str) -> None:
    CHECKED[door](lake, "s != 'O''Brien'")

    lake["c"].append(ROWS.slice(1))
    with pytest.raises(ChecksFailedError):
        lake["c"].append(ROWS)
    lake["c"].evolve(lambda old: old.rename_field("s", "name"))
    with pytest.raises(ChecksFailedError):
        lake["c"].append(ROWS.rename_columns(["id", "name"]))


def test_a_staged_check_takes_a_doubled_quote(lake: Repository) -> None:
    with pytest.raises(ChecksFailedError):
        lake["t"].staged.add(ROWS).commit(checks=[checks.condition("s != 'O''Brien'")])


def test_a_doubled_quote_selects_files_to_compact(lake: Repository) -> None:
    lake["t"].append(ROWS)

    report = lake.sql("OPTIMIZE t WHERE s = 'O''Brien' AND id = 1", write=True)

    assert [partition.path for partition in report.partitions] == ["id=1"]


def test_texts_of_a_definition_take_a_doubled_quote(lake: Repository) -> None:
    lake.sql(
        "CREATE TABLE d (id BIGINT COMMENT 'it''s', s STRING) TBLPROPERTIES ('a' = 'b''c')",
        write=True,
    )

    assert lake["d"].descriptor.properties["a"] == "b'c"
    assert lake["d"].descriptor.schema.get("id").doc == "it's"


@pytest.mark.parametrize("tables", [{}, {"u": SOURCE}, {"unused": SOURCE}])
def test_a_query_is_of_one_dialect_whatever_tables_are_given(
    lake: Repository, tables: dict[str, pa.Table]
) -> None:
    text = """SELECT "s", 7 // 2 AS n, 'a\\nb' AS b FROM t WHERE "s" = 'O''Brien'"""

    assert lake.sql(text, tables=tables, write=True).to_pylist() == [
        {"s": NAME, "n": 3, "b": "a\\nb"}
    ]


def test_a_query_joins_given_tables_and_datasets(lake: Repository) -> None:
    found = lake.sql('SELECT t.id, "u"."s" FROM t JOIN u USING (id)', tables={"u": SOURCE})

    assert found.to_pylist() == [{"id": 1, "s": "x"}]


def test_a_query_at_a_version_refuses_double_quotes(lake: Repository) -> None:
    assert lake.sql("SELECT s FROM t VERSION AS OF 1 WHERE `s` = 'O''Brien'").num_rows == 1
    for text in ("\"s\" = 'OBrien'", 's = "OBrien"'):
        with pytest.raises(lakebed.errors.InvalidInputError, match="text in double quotes"):
            lake.sql(f"SELECT s FROM t VERSION AS OF 1 WHERE {text}")


@pytest.mark.parametrize(
    "text",
    [
        'DELETE FROM t WHERE s = "id"',
        'UPDATE t SET s = "s"',
        "INSERT INTO t REPLACE WHERE s = \"S\" SELECT 1, 'a'",
        MERGE + 'WHEN MATCHED AND u.s = "s" THEN DELETE',
    ],
)
def test_a_column_in_double_quotes_is_no_text_in_a_statement(lake: Repository, text: str) -> None:
    with pytest.raises(PredicateError, match="may be a text"):
        lake.sql(text, tables={"u": SOURCE}, write=True)
    with pytest.raises(PredicateError, match="may be a text"):
        lake["t"].update_rows({"s": '"id"'})


def test_the_command_line_takes_a_doubled_quote(tmp_path: Path) -> None:
    lake = lakebed.open_repository(tmp_path)
    lake.write("t", ROWS)
    address = f"{tmp_path}/t"

    def run(*words: str) -> str:
        result = click.testing.CliRunner().invoke(main, words, catch_exceptions=False)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    assert NAME in run("query", address, "--where", WHERE, "-o", "csv")
    run("update", address, "--set", "s='it''s'", "--where", WHERE)
    assert stored(lake["t"]) == {1: "it's", 2: "OBrien"}
    run("sql", "--write", str(tmp_path), "UPDATE t SET s = 'O''Brien' WHERE s = 'it''s'")
    run("schema", "add-check", address, "c", "--rows", "s != 'x''y'")
    run("delete", address, "--where", WHERE, "--yes")
    assert stored(lake["t"]) == {2: "OBrien"}

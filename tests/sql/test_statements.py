"""Statements of SQL text that change datasets: each form, and what it makes of the rows."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed import Repository
from lakebed.errors import (
    CommitConflictError,
    DatasetExistsError,
    DatasetNotFoundError,
    DuplicateKeyError,
    InvalidInputError,
    PredicateError,
    SchemaMismatchError,
)

FLIGHTS = pa.schema(
    [("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.int64()), ("day", pa.date32())]
)


@pytest.fixture
def lake() -> Repository:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    flights = repository.create("flights", FLIGHTS, partition_by="carrier")
    flights.append(
        [
            {
                "id": n,
                "carrier": "UA" if n % 2 else "B6",
                "delay": 10 * n,
                "day": dt.date(2013, 1, n),
            }
            for n in range(1, 5)
        ],
        run="first",
    )
    return repository


def rows(lake: Repository, name: str = "flights") -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in lake[name].arrow(["id", "delay"]).to_pylist())


CHANGES = pa.table({"id": [1, 2, 9], "delay": [100, 200, 900], "op": ["U", "D", "U"]})
MERGE = """
    MERGE INTO flights AS t USING changes AS s ON t.id = s.id
    WHEN MATCHED AND s.op = 'D' THEN DELETE
    WHEN MATCHED THEN UPDATE SET delay = t.delay + s.delay
    WHEN NOT MATCHED THEN INSERT (id, carrier, delay) VALUES (s.id, 'UA', s.delay)
"""


CHANGING = {
    "MERGE": MERGE,
    "UPDATE": "UPDATE flights SET delay = 0",
    "DELETE": "/* all */ delete from `flights`",
    "INSERT": "INSERT INTO flights (id, carrier) VALUES (7, 'UA')",
    "INSERT of a part": "WITH s AS (SELECT 9 AS id) INSERT INTO flights (id) SELECT id FROM s",
    "INSERT OVERWRITE": "INSERT OVERWRITE flights SELECT * FROM flights WHERE id = 1",
    "CREATE TABLE": "CREATE TABLE more (n BIGINT)",
    "CREATE TABLE AS": "CREATE TABLE more AS SELECT id FROM flights",
    "ALTER TABLE": "ALTER TABLE flights ADD COLUMN more STRING",
    "DROP TABLE": "-- away\nDROP TABLE IF EXISTS flights",
    "TRUNCATE": "TRUNCATE TABLE flights",
    "OPTIMIZE": "OPTIMIZE flights",
    "VACUUM": "VACUUM flights",
    "RESTORE": "RESTORE TABLE flights TO VERSION AS OF 0",
}


@pytest.mark.parametrize("text", CHANGING.values(), ids=list(CHANGING))
def test_statement_that_changes_something_needs_write(lake: Repository, text: str) -> None:
    before = (lake.list(), lake["flights"].version, rows(lake))

    with pytest.raises(InvalidInputError, match=r"may change datasets, and write=True") as refused:
        lake.sql(text, tables={"changes": CHANGES})

    assert "lake.sql(…, write=True), on the command line --write" in refused.value.hint
    assert (lake.list(), lake["flights"].version, rows(lake)) == before
    lake.sql(text, tables={"changes": CHANGES}, dry_run=True)
    assert (lake.list(), lake["flights"].version, rows(lake)) == before
    lake.sql(text, tables={"changes": CHANGES}, write=True)


READING = [
    "SELECT id FROM flights",
    "WITH s AS (SELECT id FROM flights) SELECT * FROM s",
    "FROM flights",
    "SELECT id FROM flights VERSION AS OF 1",
    "SHOW TABLES",
    "DESCRIBE HISTORY flights",
    "DESC DETAIL flights",
]


@pytest.mark.parametrize("text", READING)
def test_statement_that_reads_needs_nothing(lake: Repository, text: str) -> None:
    assert lake.sql(text).num_rows > 0
    assert lake["flights"].version == 1


OTHERS = [
    "COPY flights TO 'out.csv'",
    "SET VARIABLE x = 1",
    "SET memory_limit = '1GB'",
    "CALL pragma_version()",
    "SELECT 1; DELETE FROM flights",
    "EXPLAIN DELETE FROM flights",
    "WITH s AS (DELETE FROM flights RETURNING *) SELECT * FROM s",
    "PRAGMA memory_limit = '1GB'",
    "ATTACH 'other.db' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "USE other",
    "EXPORT DATABASE 'out'",
    "IMPORT DATABASE 'out'",
    "CHECKPOINT",
    "CREATE SECRET s (TYPE s3)",
]


def test_statements_that_the_page_on_security_names_are_tried() -> None:
    page = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
    section = page.partition("## SQL\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]

    named = [re.findall(r"`([A-Z]+)[A-Z ]*`", cell) for cell in cells[2:]]

    assert list(map(bool, named)) == [True] * 3
    for words, tried in zip(named, (READING, [*CHANGING, *CHANGING.values()], OTHERS), strict=True):
        assert set(words) <= {text.split()[0].upper() for text in tried}


@pytest.mark.parametrize("allows", [False, True])
@pytest.mark.parametrize("text", OTHERS)
def test_statement_of_another_kind_is_refused_with_and_without_write(
    lake: Repository, text: str, allows: bool
) -> None:
    with pytest.raises(InvalidInputError):
        lake.sql(text, write=allows)

    assert lake["flights"].version == 1


def test_merge_is_one_commit_with_a_run(lake: Repository) -> None:
    report = lake.sql(MERGE, tables={"changes": CHANGES}, run="nightly", write=True)

    assert (report.inserted_row_count, report.updated_row_count, report.deleted_row_count) == (
        1,
        1,
        1,
    )
    assert rows(lake) == [(1, 110), (3, 30), (4, 40), (9, 900)]
    assert report.commit.version == 2
    assert report.commit.run == "nightly"
    lake["flights"].rerun([], "nightly", replace_all=True)
    assert rows(lake) == [(1, 110), (3, 30), (4, 40)]  # an updated row stays with its own run


def test_dry_run_of_a_merge_writes_nothing(lake: Repository) -> None:
    report = lake.sql(MERGE, tables={"changes": CHANGES}, dry_run=True, write=True)

    assert (report.is_dry_run, report.updated_row_count, lake["flights"].version) == (True, 1, 1)


def test_first_clause_that_fits_wins(lake: Repository) -> None:
    lake.sql(
        "MERGE INTO flights t USING changes s ON t.id = s.id "
        "WHEN MATCHED AND t.delay < 15 THEN UPDATE SET delay = -1 "
        "WHEN MATCHED AND s.op = 'U' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET delay = -2 "
        "WHEN NOT MATCHED BY SOURCE AND t.delay > 35 THEN DELETE "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET delay = t.delay + 1",
        tables={"changes": CHANGES},
        write=True,
    )

    assert rows(lake) == [(1, -1), (2, -2), (3, 31)]


def test_further_conditions_in_on_decide_what_matches(lake: Repository) -> None:
    source = pa.table({"id": [1, 2, 3], "carrier": ["UA"] * 3, "least": [0, 99, 20]})
    text = (
        "MERGE INTO flights t USING s ON t.id = s.id AND {} WHEN MATCHED THEN UPDATE SET delay = 0 "
        "WHEN NOT MATCHED THEN INSERT (id, carrier, delay) VALUES (s.id + 10, s.carrier, 1) "
        "WHEN NOT MATCHED BY SOURCE AND t.id < 4 THEN UPDATE SET delay = -1"
    )

    lake.sql(text.format("t.delay > 15"), tables={"s": source}, write=True)
    assert rows(lake) == [(1, -1), (2, 0), (3, 0), (4, 40), (11, 1)]

    lake.sql("RESTORE TABLE flights TO VERSION AS OF 1", write=True)
    lake.sql(text.format("s.least < 50 AND t.delay >= s.least"), tables={"s": source}, write=True)
    assert rows(lake) == [(1, 0), (2, -1), (3, 0), (4, 40), (12, 1)]


def test_star_takes_columns_by_their_names(lake: Repository) -> None:
    source = pa.table(
        {
            "DELAY": [5, 6],
            "carrier": ["AA", "AA"],
            "id": [1, 7],
            "day": [None, None],
            "extra": [1, 2],
        }
    )
    text = (
        "MERGE INTO flights USING source ON flights.id = source.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )

    lake.sql(text, tables={"source": source}, write=True)

    assert rows(lake) == [(1, 5), (2, 20), (3, 30), (4, 40), (7, 6)]


def test_source_is_a_query_over_datasets_at_a_version(lake: Repository) -> None:
    lake.sql("UPDATE flights SET delay = 0", write=True)
    lake.sql(
        "MERGE INTO flights t USING (SELECT id, max(delay) AS delay FROM flights VERSION AS OF 1 "
        "WHERE id > 2 GROUP BY id) old ON t.id = old.id WHEN MATCHED THEN UPDATE SET delay = old.delay",
        write=True,
    )

    assert rows(lake) == [(1, 0), (2, 0), (3, 30), (4, 40)]


def test_key_that_comes_twice_is_refused_only_where_it_changes_a_row(lake: Repository) -> None:
    text = (
        "MERGE INTO flights t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET delay = s.delay "
        "WHEN NOT MATCHED THEN INSERT (id, carrier, delay) VALUES (s.id, 'UA', s.delay)"
    )

    lake.sql(text, tables={"s": pa.table({"id": [50, 50], "delay": [1, 2]})}, write=True)
    with pytest.raises(DuplicateKeyError) as refusal:
        lake.sql(text, tables={"s": pa.table({"id": [1, 1], "delay": [1, 2]})}, write=True)

    assert rows(lake)[-2:] == [(50, 1), (50, 2)]
    assert "id = 1 would be changed by 2 rows" in refusal.value.message
    assert lake["flights"].version == 2


def test_unknown_is_not_true(lake: Repository) -> None:
    lake.sql("INSERT INTO flights (id, carrier) VALUES (8, 'UA')", write=True)

    lake.sql("UPDATE flights SET delay = 1 WHERE delay > 15", write=True)
    lake.sql("DELETE FROM flights WHERE NOT delay = 1", write=True)

    assert [id_ for id_, _ in rows_with_nulls(lake)] == [2, 3, 4, 8]


def rows_with_nulls(lake: Repository) -> list[tuple[Any, ...]]:
    table = lake["flights"].arrow(["id", "delay"]).to_pylist()
    return sorted((tuple(row.values()) for row in table), key=lambda row: row[0])


def test_update_computes_on_the_row_as_it_was(lake: Repository) -> None:
    commit = lake.sql(
        "UPDATE flights f SET delay = CASE WHEN f.delay > 20 THEN delay * 2 ELSE 0 END, "
        "carrier = lower(carrier) WHERE id <= 3",
        write=True,
    )

    assert rows(lake) == [(1, 0), (2, 0), (3, 60), (4, 40)]
    assert (commit.operation, commit.updated_row_count) == ("update_rows", 3)
    assert set(lake["flights"].arrow()["carrier"].to_pylist()) == {"b6", "ua", "B6"}


def test_condition_may_compare_two_columns(lake: Repository) -> None:
    lake.sql("UPDATE flights SET delay = id WHERE id = 3", write=True)

    commit = lake.sql("DELETE FROM flights WHERE delay = id AND carrier = 'UA'", write=True)
    nothing = lake.sql("UPDATE flights SET delay = 0 WHERE delay < id", write=True)

    assert rows(lake) == [(1, 10), (2, 20), (4, 40)]
    assert (commit.operation, commit.deleted_row_count, nothing) == ("delete", 1, None)


def test_delete_and_truncate(lake: Repository) -> None:
    assert (
        lake.sql(
            "DELETE FROM flights WHERE carrier = 'UA'", dry_run=True, write=True
        ).deleted_row_count
        == 2
    )
    assert (
        lake.sql("DELETE FROM flights f WHERE f.carrier = 'UA'", write=True).deleted_row_count == 2
    )
    assert lake.sql("TRUNCATE TABLE flights", write=True).deleted_row_count == 2
    assert lake.sql("DELETE FROM flights", write=True) is None


def test_insert_by_position_by_list_and_by_name(lake: Repository) -> None:
    lake.sql(
        "INSERT INTO flights VALUES (5, 'UA', 50, DATE '2013-01-05'), (6, 'UA', NULL, NULL)",
        write=True,
    )
    lake.sql(
        "INSERT INTO TABLE flights (delay, id, carrier) SELECT 70, 7, 'UA'",
        run="by hand",
        write=True,
    )
    lake.sql("INSERT INTO flights BY NAME SELECT 'UA' AS carrier, 8 AS id", write=True)
    lake.sql(
        "WITH q AS (SELECT 9 AS id, 'UA' AS c) INSERT INTO flights (id, carrier) SELECT * FROM q",
        write=True,
    )
    lake.sql(
        "INSERT INTO flights TABLE more",
        tables={"more": lake["flights"].where("id = 4").arrow()},
        write=True,
    )

    assert [id_ for id_, _ in rows_with_nulls(lake)] == [1, 2, 3, 4, 4, 5, 6, 7, 8, 9]
    assert "by hand" in [commit.run for commit in lake["flights"].history()]


def test_overwrite_and_replace_where(lake: Repository) -> None:
    lake.sql(
        "INSERT INTO flights REPLACE WHERE carrier = 'UA' SELECT 20, 'UA', 1, NULL", write=True
    )
    assert rows(lake) == [(2, 20), (4, 40), (20, 1)]

    found = lake.sql(
        "INSERT OVERWRITE flights SELECT * FROM flights WHERE id = 2", dry_run=True, write=True
    )
    assert found.deleted_row_count == 3
    lake.sql(
        "INSERT OVERWRITE TABLE flights SELECT id, carrier, delay, day FROM flights WHERE id = 2",
        write=True,
    )
    assert rows(lake) == [(2, 20)]


def test_condition_may_name_a_field_deep_in_records(lake: Repository) -> None:
    given = pa.table({"id": [1, 2], "a": [{"b": {"c": {"d": d}}} for d in ("x", "y")]})
    lake.create("deep", given.schema, partition_by="identity(a.b.c.d) as d").append(given)

    lake.sql(
        "INSERT INTO deep REPLACE WHERE a.b.c.d = 'x' SELECT id + 10, a FROM given WHERE id = 1",
        tables={"given": given},
        write=True,
    )
    assert sorted(lake["deep"].arrow(["id"])["id"].to_pylist()) == [2, 11]
    lake.sql("DELETE FROM deep WHERE deep.a.b.c.d = 'x'", write=True)
    assert lake["deep"].arrow(["id"])["id"].to_pylist() == [2]


def test_overwrite_from_itself_does_not_lose_a_later_row(
    lake: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakebed.sql import statement_source

    asked = statement_source.ask

    def meddled(*given: Any) -> pa.Table:
        answer = asked(*given)
        if answer.num_rows:
            lake["flights"].append([{"id": 77, "carrier": "UA", "delay": 1, "day": None}])
        return answer

    monkeypatch.setattr(statement_source, "ask", meddled)

    with pytest.raises(CommitConflictError):
        lake.sql("INSERT OVERWRITE flights SELECT DISTINCT * FROM flights", write=True)


def test_create_alter_and_drop(lake: Repository) -> None:
    planes = lake.sql(
        "CREATE TABLE planes (tail STRING NOT NULL COMMENT 'its sign', seen TIMESTAMP, "
        "price DECIMAL(10, 2), parts ARRAY<STRUCT<name: STRING, n: INT>>, tags MAP<STRING, BIGINT>, days MAP<DATE, DECIMAL(3, 1)>) "
        "USING parquet PARTITIONED BY (days(seen), bucket(4, tail)) TBLPROPERTIES ('team' = 'ops')",
        write=True,
    )
    lake.sql("ALTER TABLE planes ADD COLUMNS (year INT, note STRING DEFAULT 'none')", write=True)
    lake.sql("ALTER TABLE planes RENAME COLUMN note TO remark", write=True)
    lake.sql("ALTER TABLE planes ALTER COLUMN year TYPE BIGINT", write=True)
    lake.sql("ALTER TABLE planes SET TBLPROPERTIES ('team' = 'fleet')", write=True)
    lake.sql(
        "ALTER TABLE planes ADD CONSTRAINT sane CHECK (year > 1900 OR year IS NULL)", write=True
    )
    lake.sql("ALTER TABLE planes DROP COLUMN price", dry_run=True, write=True)
    lake.sql("ALTER TABLE planes DROP COLUMN price", write=True)

    descriptor = lake["planes"].descriptor
    assert [str(part) for part in planes.descriptor.partition_by] == [
        "date(seen) as seen_day",
        "hash(tail, 4) as tail_hash",
    ]
    assert descriptor.schema.names == (
        *("tail", "seen", "parts", "tags", "days", "year", "remark"),
    )
    assert str(descriptor.schema.get("days").type) == "map<date, decimal(3, 1)>"
    assert str(descriptor.schema.get("year").type) == "long"
    assert (descriptor.schema.get("tail").nullable, descriptor.schema.get("tail").doc) == (
        False,
        "its sign",
    )
    assert (descriptor.properties["team"], list(descriptor.checks)) == ("fleet", ["sane"])
    assert lake.sql("DROP TABLE planes", dry_run=True, write=True) is True
    assert lake.sql("DROP TABLE planes", write=True) is True
    assert lake.sql("DROP TABLE IF EXISTS planes", write=True) is False
    with pytest.raises(DatasetNotFoundError):
        lake.sql("DROP TABLE planes", write=True)


def test_create_as_select_is_one_commit_with_the_rows(lake: Repository) -> None:
    text = "CREATE TABLE late PARTITIONED BY (carrier) AS SELECT carrier, sum(delay) AS delay FROM flights GROUP BY ALL"

    planned = lake.sql(text, dry_run=True, write=True)
    assert (planned.row_count, planned.is_dry_run) == (2, True)
    assert lake.list() == ["flights"]
    commit = lake.sql(text, run="late", write=True)

    assert (commit.version, commit.row_count, commit.run) == (1, 2, "late")
    assert [part.name for part in lake["late"].descriptor.partition_by] == ["carrier"]
    with pytest.raises(DatasetExistsError):
        lake.sql(text, write=True)
    assert lake.sql(text.replace("TABLE late", "TABLE IF NOT EXISTS late"), write=True).version == 1


def test_statements_that_ask_return_tables(lake: Repository) -> None:
    lake.sql("UPDATE flights SET delay = 0 WHERE id = 1", write=True)

    assert lake.sql("SHOW TABLES LIKE 'fl*'").to_pylist() == [{"name": "flights"}]
    assert lake.sql("SHOW TABLES LIKE 'x*'").num_rows == 0
    history = lake.sql("DESCRIBE HISTORY flights LIMIT 1").to_pylist()
    assert [(row["version"], row["operation"]) for row in history] == [(2, "update_rows")]
    (detail,) = lake.sql("DESCRIBE DETAIL flights").to_pylist()
    assert (detail["version"], detail["row_count"], detail["partition_by"]) == (
        2,
        4,
        ["identity(carrier) as carrier"],
    )
    assert lake.sql("DESC TABLE flights")["name"].to_pylist()[:2] == ["id", "carrier"]


def test_upkeep(lake: Repository) -> None:
    lake.sql("INSERT INTO flights SELECT 11, 'UA', 1, NULL", write=True)
    lake.sql("INSERT INTO flights SELECT 12, 'UA', 2, NULL", write=True)

    report = lake.sql("OPTIMIZE flights WHERE carrier = 'UA' ZORDER BY (id)", write=True)
    cleanup = lake.sql(
        "VACUUM /* of a week */ flights RETAIN 168 HOURS DRY RUN; -- nightly", write=True
    )
    restored = lake.sql("RESTORE TABLE flights TO VERSION AS OF 1", write=True)

    assert (report.files_before, report.files_after) == (2, 1)  # the third is of another run
    assert cleanup.is_dry_run
    assert restored.operation == "rollback"
    assert rows(lake) == [(1, 10), (2, 20), (3, 30), (4, 40)]
    assert lake.sql("SELECT count(*) AS n FROM flights VERSION AS OF 2").to_pylist() == [{"n": 5}]
    moment = lake["flights"].history()[-1].committed_at.isoformat()
    text = f"SELECT count(*) AS n FROM flights TIMESTAMP AS OF '{moment}'"
    assert lake.sql(text, write=True).to_pylist() == [{"n": 4}]


@pytest.mark.parametrize(
    ("select", "reason"),
    [
        ("SELECT 1, 'UA', 1.5, NULL", "does not fit long"),
        ("SELECT 1, 'UA', 'ten', NULL", "Write how, such as CAST"),
        ("SELECT 1, 'UA', 1, '2013-01-01'", "not converted to date"),
        ("SELECT 1, 'UA', 1, TIMESTAMP '2013-01-01 12:00:00'", "not converted to date"),
        ("SELECT 99999999999999999999, 'UA', 1, NULL", "does not fit long"),
        ("SELECT 1, 'UA', TRUE, NULL", "not converted to long"),
    ],
)
def test_value_that_would_change_is_refused(lake: Repository, select: str, reason: str) -> None:
    with pytest.raises(SchemaMismatchError) as refusal:
        lake.sql(f"INSERT INTO flights {select}", write=True)

    assert reason in f"{refusal.value.message} {refusal.value.hint}"
    assert lake["flights"].version == 1


def test_values_are_converted_where_they_stay_themselves(lake: Repository) -> None:
    lake.sql(
        "INSERT INTO flights SELECT 5.0, 6, CAST(7 AS DECIMAL(20, 0)), DATE '2013-01-01'",
        write=True,
    )

    row = lake["flights"].where("id = 5").arrow().to_pylist()
    assert row == [{"id": 5, "carrier": "6", "delay": 7, "day": dt.date(2013, 1, 1)}]


def test_doubled_quote_is_a_quote(lake: Repository) -> None:
    lake.sql("UPDATE flights SET carrier = 'it''s' WHERE id = 1", write=True)
    lake.sql("""UPDATE flights SET carrier = "6""" + '""' + """ wide" WHERE id = 2""", write=True)
    lake.sql(
        "INSERT INTO flights (id, carrier) VALUES (9, 'it''s'), (10, 'it\\'s \\\\')", write=True
    )
    lake.sql("DELETE FROM flights WHERE carrier = 'it''s' AND id = 1", write=True)

    found = lake["flights"].where("id IN (1, 2, 9, 10)").arrow(["id", "carrier"]).to_pylist()
    assert sorted((row["id"], row["carrier"]) for row in found) == [
        (2, '6" wide'),
        (9, "it's"),
        (10, "it's \\"),
    ]


def test_words_in_texts_and_comments_are_not_words_of_the_statement(lake: Repository) -> None:
    text = "SELECT \"id\", 'VERSION AS OF 1' AS x FROM flights WHERE id = 1 -- timestamp as of"
    assert lake.sql(text, write=True).to_pylist() == [{"id": 1, "x": "VERSION AS OF 1"}]

    inner = "WITH q AS (SELECT ') INSERT INTO flights' AS x) SELECT * FROM q"
    assert lake.sql(inner, write=True).to_pylist() == [{"x": ") INSERT INTO flights"}]

    lake.sql("UPDATE flights SET carrier = 'replace on' WHERE id = 1", write=True)
    lake.sql(
        "WITH q AS (SELECT ')' AS x) /* of q */ INSERT INTO flights (id, carrier) SELECT 9, x FROM q",
        write=True,
    )
    found = lake["flights"].where("id IN (1, 9)").arrow(["carrier"]).to_pylist()
    assert sorted(row["carrier"] for row in found) == [")", "replace on"]


def test_pattern_of_a_source_has_the_escape_of_spark(lake: Repository) -> None:
    names = pa.table({"id": [21, 22, 23], "name": ["100%", "1000", "100_"]})
    text = "INSERT INTO flights (id, carrier) SELECT id, name FROM names WHERE name {}"

    lake.sql(text.format(r"LIKE '100\\%'"), tables={"names": names}, write=True)
    lake.sql(text.format("LIKE '100!_' ESCAPE '!'"), tables={"names": names}, write=True)

    assert [id_ for id_, _ in rows_with_nulls(lake)] == [1, 2, 3, 4, 21, 23]


def test_key_of_text_is_not_compared_with_a_number(lake: Repository) -> None:
    text = (
        "MERGE INTO flights t USING s ON t.carrier = {} "
        "WHEN NOT MATCHED THEN INSERT (id, carrier) VALUES (s.code, '7')"
    )
    lake.sql("INSERT INTO flights (id, carrier) VALUES (7, '007')", write=True)

    with pytest.raises(SchemaMismatchError, match="not converted to string"):
        lake.sql(text.format("s.code"), tables={"s": pa.table({"code": [7]})}, write=True)
    lake.sql(
        text.format("lpad(CAST(s.code AS STRING), 3, '0')"),
        tables={"s": pa.table({"code": [7]})},
        write=True,
    )

    assert [id_ for id_, _ in rows_with_nulls(lake)] == [1, 2, 3, 4, 7]


def test_lists_and_records_take_the_types_of_their_fields(lake: Repository) -> None:
    lake.sql(
        "CREATE TABLE parts (id BIGINT, counts ARRAY<BIGINT>, size STRUCT<w: BIGINT, h: BIGINT>)",
        write=True,
    )

    lake.sql("INSERT INTO parts VALUES (1, array(1, 2), named_struct('h', 3, 'w', 4))", write=True)
    with pytest.raises(SchemaMismatchError, match=r"counts\[\]"):
        lake.sql("INSERT INTO parts (id, counts) VALUES (2, array(1.5))", write=True)

    assert lake["parts"].arrow().to_pylist() == [
        {"id": 1, "counts": [1, 2], "size": {"w": 4, "h": 3}}
    ]


ALIKE = pa.table({"ID": [1], "id": [2], "delay": [7]})
TWICE = pa.table([[1], [2], [7]], names=["id", "id", "delay"])


@pytest.mark.parametrize(
    "text",
    [
        "MERGE INTO flights t USING alike s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "MERGE INTO flights t USING twice s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "MERGE INTO flights t USING (SELECT * FROM flights a JOIN flights b ON a.id = b.delay / 10) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET delay = s.delay + 1",
        "INSERT INTO flights (id) SELECT id FROM alike",
        "CREATE TABLE copies AS SELECT 1 AS id, 2 AS id",
    ],
)
def test_columns_of_one_name_are_refused(lake: Repository, text: str) -> None:
    with pytest.raises(SchemaMismatchError, match="cannot distinguish"):
        lake.sql(text, tables={"alike": ALIKE, "twice": TWICE}, write=True)

    assert (lake["flights"].version, lake.list()) == (1, ["flights"])
    assert (
        lake.sql("INSERT INTO flights (id, delay) SELECT id, id FROM flights", write=True).row_count
        == 4
    )


def test_partition_may_derive_from_a_part_of_a_record(lake: Repository) -> None:
    visits = lake.sql(
        "CREATE TABLE visits (id BIGINT, who STRUCT<id: BIGINT>) PARTITIONED BY (bucket(4, who.id))",
        write=True,
    )

    assert [str(part) for part in visits.descriptor.partition_by] == [
        "hash(who.id, 4) as who_id_hash"
    ]


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("UPDATE flights SET wrong = 1", SchemaMismatchError, "wrong"),
        ("UPDATE flights SET delay = wrong + 1", PredicateError, "Unknown column 'wrong'"),
        ("UPDATE flight SET delay = 1", DatasetNotFoundError, "flights"),
        ("DELETE FROM flights WHERE", InvalidInputError, "cannot be read"),
        ("DELETE FROM flights; DELETE FROM flights", InvalidInputError, "2 statements"),
        ("DELETE FROM lake.flights", InvalidInputError, "alone: flights"),
        ("DELETE FROM delta.`/data/x`", InvalidInputError, "alone"),
        ("INSERT INTO flights SELECT 1, 'UA'", SchemaMismatchError, "has 2 columns, and 4"),
        ("INSERT INTO flights (id, id) SELECT 1, 2", SchemaMismatchError, "names 'id' twice"),
        ("INSERT INTO flights SELECT * FROM read_csv('/etc/passwd')", InvalidInputError, "DuckDB"),
        ("RESTORE TABLE flights TO VERSION AS OF 'x'", InvalidInputError, "Write a number"),
        ("CREATE TABLE t (x DECIMAL(a))", InvalidInputError, "Write DECIMAL"),
        ("CREATE TABLE t (x TIME)", InvalidInputError, "no type TIME. "),
        ("CREATE TABLE t (x STRUCT<y: TIMESTAMP(3)>)", InvalidInputError, "no type TIMESTAMP(3)"),
        ("CREATE TABLE t (x CHAR)", InvalidInputError, "no type CHAR"),
        ("CREATE TABLE t (x ARRAY<INTERVAL DAY>)", InvalidInputError, "no type INTERVAL DAY"),
        ("UPDATE flights SET delay = CAST(id AS DECIMAL(a))", PredicateError, "Write DECIMAL"),
        ("SELECT * FROM flights VERSION AS OF 99", lakebed.errors.VersionNotFoundError, "99"),
    ],
)
def test_mistake_is_named(
    lake: Repository, text: str, error: type[lakebed.errors.LakebedError], words: str
) -> None:
    with pytest.raises(error) as refusal:
        lake.sql(text, write=True)

    assert words in f"{refusal.value.message} {refusal.value.hint}"
    assert lake["flights"].version == 1


@pytest.mark.parametrize("form", ["SELECT", "UPDATE", "DELETE", "MERGE"])
def test_statement_that_is_nested_too_deeply_is_named(lake: Repository, form: str) -> None:
    many = 2000
    text = {
        "SELECT": f"SELECT {'(' * 100}1{')' * 100}",
        "UPDATE": f"UPDATE flights SET delay = delay{' + 1' * many}",
        "DELETE": f"DELETE FROM flights WHERE {'NOT ' * many}id = 1",
        "MERGE": f"MERGE INTO flights t USING s ON t.id = s.id AND {'NOT ' * many}t.id > 0 "
        "WHEN MATCHED THEN DELETE",
    }[form]

    given = {"s": pa.table({"id": [1]})} if form == "MERGE" else None  # else DuckDB reads SELECT
    with pytest.raises(InvalidInputError, match="it is nested too deeply"):
        lake.sql(text, tables=given, write=True)


def test_query_that_only_duckdb_reads_is_named_without_codes_for_terminals(
    lake: Repository,
) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read: it is incomplete") as caught:
        lake.sql("SELECT x'41'")
    assert str(caught.value).isprintable()


def test_tables_are_given_by_name(lake: Repository) -> None:
    with pytest.raises(InvalidInputError, match="tables is"):
        lake.sql("SELECT 1", tables=[CHANGES])  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="'changes' is"):
        lake.sql(MERGE, tables={"changes": 5}, write=True)

    answer = lake.sql("SELECT count(*) AS n FROM changes", tables={"changes": CHANGES})
    assert answer.to_pylist() == [{"n": 3}]


class TestNullKeys:
    """A null in the key of the source matches nothing, and is checked where it is inserted."""

    @pytest.fixture
    def keyed(self, lake: Repository) -> Repository:
        lake.sql("CREATE TABLE k (id BIGINT NOT NULL, v STRING)", write=True)
        lake.sql("INSERT INTO k VALUES (1, 'a')", write=True)
        return lake

    SOURCE = pa.table({"id": [5, 1], "mk": pa.array([None, 1], pa.int64()), "v": ["x", "m"]})

    def test_an_insert_may_give_another_value(self, keyed: Repository) -> None:
        report = keyed.sql(
            "MERGE INTO k t USING s ON t.id = s.mk WHEN MATCHED THEN UPDATE SET v = s.v "
            "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)",
            tables={"s": self.SOURCE},
            write=True,
        )

        assert (report.updated_row_count, report.inserted_row_count) == (1, 1)
        assert keyed["k"].arrow().sort_by("id").to_pylist() == [
            {"id": 1, "v": "m"},
            {"id": 5, "v": "x"},
        ]

    @pytest.mark.parametrize("is_items", [False, True])
    def test_a_row_that_is_not_inserted_may_have_one(
        self, keyed: Repository, is_items: bool
    ) -> None:
        data: Any = pa.table({"id": pa.array([None, 1], pa.int64()), "v": ["n", "p"]})
        data = data.to_pylist() if is_items else data

        report = keyed["k"].merge(data, "id", not_matched="ignore")

        assert (report.updated_row_count, report.inserted_row_count) == (1, 0)
        with pytest.raises(SchemaMismatchError, match="'id' is not nullable"):
            keyed["k"].upsert(data, "id")
        assert keyed["k"].arrow().to_pylist() == [{"id": 1, "v": "p"}]

    def test_other_columns_are_checked_as_ever(self, keyed: Repository) -> None:
        keyed.create(
            "w", pa.schema([("id", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
        )
        with pytest.raises(SchemaMismatchError, match="'n' is not nullable"):
            keyed["w"].upsert(pa.table({"id": [1], "n": pa.array([None], pa.int64())}), "id")


@pytest.mark.parametrize("verb", ["UPDATE", "MERGE"])
def test_a_text_sets_a_date_or_a_time_alike_in_each_statement(verb: str) -> None:
    lake = lakebed.open_repository(f"memory://texts-{verb}")
    fields = {"d": pa.date32(), "at": pa.timestamp("us", "UTC"), "wall": pa.timestamp("us")}
    lake.create("t", pa.schema([("id", pa.int64()), *fields.items()]))
    lake["t"].append([{"id": 1}])
    values = "d = '2024-06-01', at = '2024-06-01 12:00:00-04:00', wall = '2024-06-01 12:00:00'"
    head = "MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE"

    lake.sql(f"{head if verb == 'MERGE' else 'UPDATE t'} SET {values}", write=True)

    (row,) = lake["t"].arrow().to_pylist()
    noon = dt.datetime(2024, 6, 1, 12)
    assert row == {
        "id": 1, "d": noon.date(), "wall": noon, "at": noon.replace(hour=16, tzinfo=dt.UTC)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("clause", "wanted", "unwanted"),
    [
        (
            "WHEN MATCHED THEN UPDATE SET day = s.op",
            "'s.op' of type string.*CAST\\(s.op AS",
            "source",
        ),
        (
            "WHEN MATCHED THEN UPDATE SET day = S.Op",
            "'s.op' of type string.*CAST\\(s.op AS",
            "source",
        ),
        ("WHEN NOT MATCHED THEN INSERT (id, day) VALUES (s.id, s.op)", "'s.op'", "source_"),
        ("WHEN MATCHED AND t.day > s.delay THEN DELETE", r"t\.`day` > s\.delay", "target"),
        ("WHEN MATCHED AND s.delay || 'x' > t.delay THEN DELETE", "s.delay || 'x'", "source_"),
    ],
)
def test_errors_of_a_merge_name_columns_as_they_are_typed(
    lake: Repository, clause: str, wanted: str, unwanted: str
) -> None:
    text = f"MERGE INTO flights t USING changes s ON t.id = s.id {clause}"

    with pytest.raises(lakebed.LakebedError, match=wanted) as caught:
        lake.sql(text, tables={"changes": CHANGES}, write=True)

    assert unwanted not in str(caught.value).replace("columns of the source", "")

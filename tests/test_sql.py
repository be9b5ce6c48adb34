"""Questions in SQL: the datasets of a repository are tables, and nothing else is."""

import datetime as dt
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import lakebed
from lakebed import DatasetDescriptor, Repository, by
from lakebed.errors import (
    DatasetNotFoundError,
    InvalidInputError,
    InvalidNameError,
    SchemaMismatchError,
)
from lakebed.sql.asking import tables_of, tree_of

FLIGHTS = pa.schema(
    [("ts", pa.timestamp("us", tz="UTC")), ("carrier", pa.string()), ("n", pa.int64())]
)


@pytest.fixture
def lake(tmp_path: Path) -> Repository:
    repository = lakebed.open_repository(tmp_path)
    flights = repository.create(
        "flights",
        DatasetDescriptor(schema=FLIGHTS, partition_by=[by.date("ts", name="dt")]),
    )
    hours = pa.array(range(0, 24 * 10 * 3_600_000_000, 3_600_000_000), pa.timestamp("us", "UTC"))
    carriers = ["UA", "B6", None] * 80
    flights.append(pa.table({"ts": hours, "carrier": carriers, "n": range(240)}))
    carriers_of = DatasetDescriptor(
        schema=pa.schema([("carrier", pa.string()), ("name", pa.string())])
    )
    repository.create("carriers", carriers_of).append(
        [{"carrier": "UA", "name": "United"}, {"carrier": "B6", "name": "JetBlue"}]
    )
    return repository


def test_datasets_are_tables_by_their_names(lake: Repository) -> None:
    answer = lake.sql(
        "SELECT name, count(*) AS n FROM flights JOIN carriers USING (carrier) "
        "WHERE n >= 120 GROUP BY ALL ORDER BY name"
    )

    assert answer.to_pylist() == [{"name": "JetBlue", "n": 40}, {"name": "United", "n": 40}]


def test_part_of_a_question_may_hide_a_table(lake: Repository) -> None:
    query = "WITH flights AS (SELECT * FROM flights WHERE n < 10) SELECT count(*) AS n FROM flights"

    assert lake.sql(query, write=True).to_pylist() == [{"n": 10}]


def test_conditions_reach_the_planner(lake: Repository, tmp_path: Path) -> None:
    kept = {file.key for file in lake["flights"].where("ts >= '1970-01-09 12:00:00'").files()}
    for file in lake["flights"].files():
        if file.key not in kept:
            (tmp_path / file.key).unlink()  # what is opened all the same is an error

    answer = lake.sql("SELECT min(n) AS n FROM flights WHERE ts >= '1970-01-09 12:00:00'")

    assert len(kept) == 2
    assert answer.to_pylist() == [{"n": 204}]


def test_partition_fields_that_are_derived_are_columns_and_drop_files(
    lake: Repository, tmp_path: Path
) -> None:
    everything = lake.sql("SELECT * FROM flights LIMIT 1")
    for file in lake["flights"].files():
        if "dt=1970-01-03" not in file.key:
            (tmp_path / file.key).unlink()  # what is opened all the same is an error

    answer = lake.sql("SELECT dt, count(*) AS n FROM flights WHERE dt = '1970-01-03' GROUP BY dt")

    assert everything.column_names == ["ts", "carrier", "n", "dt"]
    assert answer.to_pylist() == [{"dt": dt.date(1970, 1, 3), "n": 24}]


def test_a_field_that_is_its_own_partition_is_one_column(lake: Repository) -> None:
    descriptor = DatasetDescriptor(schema=FLIGHTS, partition_by="carrier, hash(n, 2) as part")
    lake.create("others", descriptor).append([{"ts": None, "carrier": "UA", "n": 5}])

    assert lake.sql("SELECT * FROM others").column_names == ["ts", "carrier", "n", "part"]


def test_only_what_is_named_is_opened(lake: Repository, tmp_path: Path) -> None:
    (tmp_path / "carriers.by-dataset-metadata.json").write_text("no head")

    assert lake.sql("SELECT count(*) AS n FROM flights").to_pylist() == [{"n": 240}]


def test_format_that_pyarrow_does_not_know_is_read_all_the_same(lake: Repository) -> None:
    descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]), format="avro")
    lake.create("numbers-avro", descriptor).append([{"n": 1}, {"n": 2}])

    assert lake.sql('SELECT sum(n)::INT AS n FROM "numbers-avro"').to_pylist() == [{"n": 3}]


@pytest.mark.parametrize(
    "extra",
    [
        [("M", pa.int64())],
        [("r", pa.struct([("m", pa.int64()), ("M", pa.int64())]))],
        [("r", pa.list_(pa.struct([("m", pa.int64()), ("M", pa.int64())])))],
        [("r", pa.struct([("q", pa.struct([("m", pa.int64()), ("M", pa.int64())]))]))],
    ],
    ids=["column", "record", "list", "deeper"],
)
def test_dataset_whose_fields_differ_in_case_only_is_refused_and_read_by_where(
    lake: Repository, extra: list[tuple[str, pa.DataType]]
) -> None:
    schema = pa.schema([("id", pa.int64()), ("m", pa.int64()), *extra])
    dataset = lake.create("alike", DatasetDescriptor(schema=schema))
    dataset.append([{"id": 1, "m": 10}, {"id": 2, "m": 99}])

    with pytest.raises(SchemaMismatchError, match="'m' and 'M' of 'alike'") as caught:
        lake.sql("SELECT id FROM alike WHERE m = 99")

    assert "where" in str(caught.value.hint)
    assert dataset.where("m = 99").arrow(["id"]).to_pylist() == [{"id": 2}]


def test_partition_field_that_differs_from_a_field_in_case_only_is_refused(
    lake: Repository,
) -> None:
    descriptor = DatasetDescriptor(schema=FLIGHTS, partition_by="hash(n, 2) as CARRIER")
    lake.create("parted", descriptor).append([{"ts": None, "carrier": "UA", "n": 5}])

    with pytest.raises(SchemaMismatchError, match="'carrier' and 'CARRIER'"):
        lake.sql("SELECT CARRIER FROM parted")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("CREATE VIEW copy AS SELECT * FROM flights", "no such CREATE statement"),
        ("COPY flights TO 'flights.csv'", "no such COPY statement"),
        ("ATTACH 'lake.db'", "Only a single SELECT"),
        ("WITH a AS (DELETE FROM flights RETURNING *) SELECT * FROM a", "Only a single SELECT"),
        ("SET enable_external_access = true", "no such SET statement"),
        ("SELECT 1; SELECT 2", "Only a single SELECT"),
        ("EXPLAIN SELECT * FROM flights", "single SELECT.*use .explain"),
        ("CALL pragma_version()", "no such CALL statement"),
        ("", "Only a single SELECT"),
        ("SELECT FROM WHERE", "cannot be read|DuckDB rejected"),
        ("SELECT nope FROM flights", '"nope" not found'),
        ("SELECT * FROM read_csv('/etc/passwd')", "DuckDB rejected.*(disabled|Permission)"),
        ("SELECT * FROM read_text('/etc/passwd')", "DuckDB rejected.*(disabled|Permission)"),
        ("SELECT * FROM glob('/*')", "DuckDB rejected.*(disabled|Permission)"),
        ("SELECT * FROM flights, Flights", "cannot distinguish"),
    ],
)
def test_what_is_no_question_about_datasets_is_refused(
    lake: Repository, query: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidInputError, match=f"(?s){message}"):
        lake.sql(query, write=True)

    assert not caplog.records  # of the libraries that have read it
    assert lake["flights"].version == 1


def test_files_variables_and_unknown_names_are_no_tables(lake: Repository, tmp_path: Path) -> None:
    secret = pa.table({"n": [1]})
    assert secret.num_rows == 1

    with pytest.raises(DatasetNotFoundError, match="Did you mean 'flights'"):
        lake.sql("SELECT * FROM flight")
    with pytest.raises(DatasetNotFoundError, match="'secret' not found"):
        lake.sql("SELECT * FROM secret")
    with pytest.raises((DatasetNotFoundError, InvalidInputError)):
        lake.sql(f"SELECT * FROM '{tmp_path / lake['flights'].files()[0].key}'")


def test_no_table_function_of_duckdb_reads_or_writes_a_file(
    lake: Repository, tmp_path: Path
) -> None:
    secret = tmp_path / "folder" / "a.csv"
    secret.parent.mkdir()
    secret.write_bytes(b"h1d\nd3n\n")
    functions = duckdb.sql(
        """
        SELECT DISTINCT function_name FROM duckdb_functions()
        WHERE function_type LIKE 'table%' AND parameter_types[1] LIKE 'VARCHAR%' ORDER BY ALL
        """
    ).fetchall()
    reading = set()

    for (name,) in functions:
        try:
            table = lake.sql(f"""SELECT * FROM "{name}"('{secret}')""")
        except InvalidInputError as exc:
            if "operations are disabled" in str(exc):
                reading.add(name)
            continue
        shown = str([column.to_string() for column in table.columns])
        assert not {"h1d", "d3n"} & {*re.findall(r"\w+", shown)}, name
    for name in sorted(reading):
        with pytest.raises(InvalidInputError, match="operations are disabled"):
            lake.sql(f"""SELECT * FROM "{name}"('https://127.0.0.1:1/a.csv')""")

    assert {"read_csv", "read_parquet", "read_text", "glob"} <= reading
    assert list(secret.parent.iterdir()) == [secret]


def test_settings_of_duckdb_are_closed_and_locked(lake: Repository, tmp_path: Path) -> None:
    closed = ["enable_external_access", "autoinstall_known_extensions", "autoload_known_extensions"]
    names = ["lock_configuration", *closed, "python_enable_replacements"]
    columns = ", ".join(f"current_setting('{name}')" for name in names)

    assert list(lake.sql(f"SELECT {columns}").to_pylist()[0].values()) == [True, *[False] * 4]
    for call in (
        f"enable_profiling(save_location='{tmp_path}/a.json')",
        f"enable_logging('QueryLog', storage='file', storage_path='{tmp_path}/log')",
    ):
        with pytest.raises(InvalidInputError, match="configuration has been locked"):
            lake.sql(f"SELECT * FROM {call}")


def test_what_is_wrong_is_told_in_a_sentence_without_names_of_our_libraries(
    lake: Repository,
) -> None:
    with pytest.raises(InvalidInputError) as misspelt:
        lake.sql("SELCT * FROM flights", write=True)
    with pytest.raises(InvalidInputError) as unknown:
        lake.sql("SELECT carier FROM flights")

    assert 'syntax error at or near "SELCT". Write one SELECT' in str(misspelt.value)
    assert '"carrier"' in unknown.value.message
    assert "\n" not in unknown.value.message
    assert unknown.value.message.endswith(".")


def test_tables_of_a_question_are_found_wherever_they_stand() -> None:
    query = (
        "SELECT * FROM a, (SELECT 1 FROM b) WHERE x IN (FROM c) UNION ALL FROM d, range(3), "
        'LATERAL (FROM "e-f")'
    )

    assert sorted(tables_of(tree_of(query))) == ["a", "b", "c", "d", "e-f"]


class TestRepositoryAsContainer:
    def test_datasets_are_opened_by_name(self, lake: Repository) -> None:
        assert lake["flights"].count() == 240
        with pytest.raises(DatasetNotFoundError, match="Did you mean"):
            lake["flight"]
        with pytest.raises(InvalidNameError):
            lake["a/b"]

    def test_names_are_what_it_holds(self, lake: Repository) -> None:
        assert "flights" in lake
        assert "flight" not in lake
        assert "a/b" not in lake
        assert 5 not in lake
        assert list(lake) == lake.list() == ["carriers", "flights"]
        assert len(lake) == 2

    def test_empty_repository_is_there_all_the_same(self, tmp_path: Path) -> None:
        empty = lakebed.open_repository(tmp_path / "empty")

        assert len(empty) == 0
        assert empty

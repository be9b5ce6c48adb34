"""Whole numbers of 8 and 16 bits: kept by every door that takes rows, shows them or publishes them."""

from __future__ import annotations

import json
import operator
import uuid
from pathlib import Path

import deltalake
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed.cli import main
from lakebed.errors import InvalidInputError, LakebedError, PredicateError, SchemaMismatchError
from lakebed.model.schema import SMALLINT, TINYINT, Kind, Primitive

LIMITS = {"b": (-(2**7), 2**7 - 1), "s": (-(2**15), 2**15 - 1)}
INTS = {name: st.none() | st.integers(*limits) for name, limits in LIMITS.items()}
PARTS = pa.struct([("x", pa.int8()), ("y", pa.list_(pa.int16()))])
ALL = pa.schema(
    [
        ("id", pa.int64()),
        ("b", pa.int8()),
        ("s", pa.int16()),
        ("r", PARTS),
        ("m", pa.map_(pa.int8(), pa.int16())),
    ]
)
PLAIN = pa.schema(list(ALL)[:3])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 9),
            **INTS,
            "r": st.none()
            | st.fixed_dictionaries(
                {"x": INTS["b"], "y": st.none() | st.lists(INTS["s"], max_size=2)}
            ),
            "m": st.none() | st.dictionaries(st.integers(*LIMITS["b"]), INTS["s"], max_size=2),
        }
    ),
    min_size=1,
    max_size=5,
)
SOME = [
    {"id": 1, "b": 1, "s": 300},
    {"id": 2, "b": -128, "s": -(2**15)},
    {"id": 3, "b": None, "s": None},
]
FORMATS = pytest.mark.parametrize("format_", ["parquet", "avro"])


def dataset_of(schema: object, place: Path | None = None, **options: object) -> lakebed.Dataset:
    descriptor = lakebed.DatasetDescriptor(schema=schema, **options)
    uri = place or f"memory://{uuid.uuid4().hex}"
    return lakebed.open_repository(uri).create("d", descriptor)


def some(place: Path | None = None, **options: object) -> lakebed.Dataset:
    dataset = dataset_of(PLAIN, place, **options)
    dataset.append(SOME)
    return dataset


def ids(rows: lakebed.View) -> list[int]:
    return sorted(rows.arrow()["id"].to_pylist())


def by_id(dataset: lakebed.Dataset) -> list[dict]:
    return sorted(dataset.kite.reader(), key=lambda row: row["id"])


@FORMATS
@examples(0.2)
@given(rows=ROWS)
def test_rows_come_back_in_their_types(format_: str, rows: list[dict]) -> None:
    table = pa.Table.from_pylist(rows, schema=ALL)
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    source = repository.create("d", lakebed.DatasetDescriptor(schema=ALL, format=format_))
    source.append(table)

    doors = {
        "python": rows,
        "pandas of pyarrow": source.pandas(dtype_backend="pyarrow"),
        "duckdb": duckdb.from_arrow(table),
        "polars": source.polars(),
        "view": source,
        "answer": repository.sql("SELECT * FROM d"),
    }
    for door, given_rows in doors.items():
        copy = dataset_of(ALL, format=format_)
        copy.append(given_rows)
        assert list(copy.kite.reader()) == rows, door
        assert copy.arrow().schema.equals(ALL), door


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"b": pa.array([1], pa.int8()), "s": pa.array([2], pa.int16())}),
        pd.DataFrame({"b": pd.Series([1], dtype="int8"), "s": pd.Series([2], dtype="Int16")}),
        pl.DataFrame({"b": [1], "s": [2]}, schema={"b": pl.Int8, "s": pl.UInt8}),
        duckdb.sql("SELECT 1::TINYINT AS b, 2::SMALLINT AS s"),
    ],
    ids=["pyarrow", "pandas", "polars", "duckdb"],
)
def test_new_dataset_has_the_types_of_its_rows(rows: object) -> None:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")

    repository.write("d", rows)

    assert [str(field.type) for field in repository["d"].schema] == ["tinyint", "smallint"]


@pytest.mark.parametrize("value", [128, -129, 2**15, 2**31, 2**63])
@FORMATS
def test_value_that_does_not_fit_is_refused_on_each_door(
    format_: str, value: int, tmp_path: Path
) -> None:
    repository = lakebed.open_repository(tmp_path)
    dataset = repository.create("d", lakebed.DatasetDescriptor(schema=PLAIN, format=format_))
    dataset.append(SOME)
    wide = {"id": [7], "b": [value]}
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"id": 7, "b": value}))
    texts = tmp_path / "rows.csv"
    texts.write_text(f"id,b\n7,{value}\n")
    strict = lakebed.LoadOptions(fail_on_rejects=True)
    doors = {
        "rows": lambda: dataset.append([{"id": 7, "b": value}]),
        "upsert": lambda: dataset.upsert([{"id": 1, "b": value}], on="id"),
        "arrow": lambda: dataset.append(pa.table(wide)),
        "pandas": lambda: dataset.append(pd.DataFrame(wide)),
        "polars": lambda: dataset.append(pl.DataFrame(wide, strict=False)),
        "update_rows": lambda: dataset.where("id = 1").update_rows({"b": str(value)}),
        "insert": lambda: repository.sql(f"INSERT INTO d (id, b) VALUES (7, {value})", write=True),
        "update": lambda: repository.sql(f"UPDATE d SET b = {value} WHERE id = 1", write=True),
        "json": lambda: dataset.load(file, options=strict),
        "csv": lambda: dataset.load(texts, options=strict),
    }
    for door, write in doors.items():
        with pytest.raises((LakebedError, OverflowError)) as refused:
            write()
        assert isinstance(refused.value, LakebedError) or value == 2**63, door
    assert by_id(dataset) == SOME


def test_computed_value_that_does_not_fit_is_refused() -> None:
    dataset = some()

    with pytest.raises(SchemaMismatchError, match="'b' of type tinyint cannot be set"):
        dataset.update_rows({"b": "b - 1"})
    with pytest.raises(SchemaMismatchError, match="'b' of type tinyint cannot be set"):
        dataset.update_rows({"b": "CAST(s AS TINYINT)"})

    dataset.where("id = 1").update_rows({"b": "CAST(id AS TINYINT)", "s": "b + s"})
    assert by_id(dataset)[0] == {"id": 1, "b": 1, "s": 301}


@pytest.mark.parametrize("column", ["b", "s", "i", "id"])
@pytest.mark.parametrize(
    "value", [0, 127, -128, 128, -129, 300, 32768, -32769, 2**31, -(2**31) - 1, 2**63, -(10**30)]
)
def test_number_of_any_size_is_compared_as_in_sql(column: str, value: int) -> None:
    schema = pa.schema([*PLAIN, ("i", pa.int32())])
    rows = [{**row, "i": row["s"]} for row in SOME]
    indexed = dataset_of(schema, index=["b", "s", "i"])
    partitioned = dataset_of(schema, partition_by="identity(b), hash(s, 4)")
    for dataset in (indexed, partitioned):
        dataset.append(rows)
        dataset.append([{"id": 4, "b": 127, "s": 2**15 - 1, "i": 2**31 - 1}])
        held = {row["id"]: row[column] for row in by_id(dataset)}
        for sign, is_met in {
            "=": operator.eq,
            "<>": operator.ne,
            "<": operator.lt,
            "<=": operator.le,
            ">": operator.gt,
            ">=": operator.ge,
        }.items():
            wanted = [key for key, own in held.items() if own is not None and is_met(own, value)]
            others = [key for key, own in held.items() if own is not None and key not in wanted]
            term = (column, {"=": "==", "<>": "!="}.get(sign, sign), value)

            assert ids(dataset.where(f"{column} {sign} {value}")) == wanted
            assert ids(dataset.where(f"NOT {column} {sign} {value}")) == others
            assert ids(dataset.where([term])) == wanted
            assert dataset.where(f"{column} {sign} ?", [value]).count() == len(wanted)
            if -(2**63) <= value < 2**63:
                assert ids(dataset.where(is_met(pc.field(column), value))) == wanted
        wanted = [key for key, own in held.items() if own in (1, value)]
        others = [key for key, own in held.items() if own is not None and key not in wanted]
        assert ids(dataset.where(f"{column} IN (1, {value})")) == wanted
        assert ids(dataset.where(f"{column} NOT IN (1, {value})")) == others


def test_delete_by_a_number_that_no_row_holds_deletes_nothing() -> None:
    dataset = some()

    assert dataset.delete("b = 300 OR b > 127 OR b IN (-129, 128)") is None or by_id(dataset)
    assert by_id(dataset) == SOME

    dataset.delete("b < 300")
    assert [row["id"] for row in by_id(dataset)] == [3]


def test_view_means_the_same_after_its_column_is_widened() -> None:
    dataset = some()
    view = dataset.where("b < 300")

    dataset.evolve(lambda descriptor: descriptor.change_type("b", "int"))
    dataset.append([{"id": 4, "b": 200}, {"id": 5, "b": 400}])

    assert ids(view) == [1, 2, 4]


@FORMATS
def test_types_widen_and_never_narrow(format_: str) -> None:
    dataset = some(format=format_)
    wanted = list(SOME)
    steps = {"smallint": 2**15 - 1, "int": 2**31 - 1, "long": 2**63 - 1}

    for number, (wider, most) in enumerate(steps.items(), 4):
        dataset.evolve(lambda descriptor, to=wider: descriptor.change_type("b", to))
        dataset.append([{"id": number, "b": most}])
        wanted.append({"id": number, "b": most, "s": None})
        assert by_id(dataset) == wanted
        assert ids(dataset.where(f"b = {most}")) == [number]
        for narrower in ("tinyint", "smallint", "int", "long"):
            if narrower == wider:
                break
            with pytest.raises(SchemaMismatchError, match=f"cannot become {narrower}"):
                dataset.evolve(lambda descriptor, to=narrower: descriptor.change_type("b", to))

    dataset.compact()
    assert by_id(dataset) == wanted
    assert dataset.check(deep=True).findings == ()


def test_wider_rows_widen_a_field_where_they_may() -> None:
    dataset = some()

    dataset.append(pa.table({"id": [4], "b": pa.array([300], pa.int16())}), types="widen")

    assert dataset.schema.get("b").type == SMALLINT
    assert ids(dataset.where("b >= 300")) == [4]


@pytest.mark.parametrize("strategy", ["b", "hash(b, 8)", "fixed_range(b, 10)", "dimension(b)"])
def test_partitions_stay_when_their_source_is_widened(strategy: str) -> None:
    """A number has the same hash and path in each width up to an int, but not in a long."""
    narrow = dataset_of(PLAIN, partition_by=strategy)
    wide = dataset_of(
        pa.schema([*list(PLAIN)[:1], ("b", pa.int32()), *list(PLAIN)[2:]]), partition_by=strategy
    )
    rows = [{"id": number, "b": number, "s": number} for number in range(-128, 128, 5)]
    for dataset in (narrow, wide):
        dataset.append(rows)
    assert [(one.path, one.row_count) for one in narrow.inspect.partitions()] == [
        (one.path, one.row_count) for one in wide.inspect.partitions()
    ]

    narrow.evolve(lambda descriptor: descriptor.change_type("b", "int"))
    narrow.append([{"id": 1000, "b": 2, "s": 2}, {"id": 1001, "b": 1000, "s": 2}])

    assert ids(narrow.where("b = 2")) == [2, 1000]
    assert ids(narrow.where("b > 125")) == [127, 1001]
    assert narrow.check(deep=True).findings == ()
    with pytest.raises(InvalidInputError, match="cannot become long"):
        narrow.evolve(lambda descriptor: descriptor.change_type("b", "long"))


def test_sql_names_the_types() -> None:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    repository.sql(
        "CREATE TABLE t (b TINYINT NOT NULL, s SMALLINT DEFAULT 7, l ARRAY<TINYINT>, "
        "m MAP<TINYINT, SMALLINT>)",
        write=True,
    )
    repository.sql("ALTER TABLE t ADD CONSTRAINT positive CHECK (b > 0)", write=True)
    repository.sql("INSERT INTO t VALUES (5, 6, array(1, 2), map(1, 2))", write=True)
    repository.sql("INSERT INTO t (b) VALUES (6)", write=True)

    assert [str(field.type) for field in repository["t"].schema] == [
        "tinyint",
        "smallint",
        "list<tinyint>",
        "map<tinyint, smallint>",
    ]
    assert repository.sql("SELECT b, s, l FROM t ORDER BY b").to_pylist() == [
        {"b": 5, "s": 6, "l": [1, 2]},
        {"b": 6, "s": 7, "l": None},
    ]
    for wrong in (
        "INSERT INTO t (b) VALUES (-1)",
        "INSERT INTO t (b, l) VALUES (1, array(300))",
        "CREATE TABLE u (b TINYINT DEFAULT 200)",
        "ALTER TABLE t ALTER COLUMN s SET DEFAULT 40000",
    ):
        with pytest.raises(InvalidInputError):
            repository.sql(wrong, write=True)

    repository.sql("ALTER TABLE t ALTER COLUMN b TYPE SMALLINT", write=True)
    assert repository["t"].schema.get("b").type == SMALLINT


def test_command_line_names_the_types(tmp_path: Path) -> None:
    some(tmp_path)
    place = str(tmp_path / "d")

    def run(*words: str) -> str:
        answer = CliRunner().invoke(main, [*words])
        assert answer.exit_code == 0, answer.output
        return answer.stdout

    run("schema", "add", place, "t", "tinyint", "--default", "5")
    run("schema", "change-type", place, "b", "smallint")

    shown = {
        one["field"]: one["type"] for one in json.loads(run("schema", "show", place, "-o", "json"))
    }
    assert (shown["t"], shown["b"], shown["s"]) == ("tinyint", "smallint", "smallint")
    assert json.loads(run("query", place, "--where", "id = 1", "-o", "jsonl"))["t"] == 5


def test_default_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"200 .*tinyint"):
        some().evolve(lambda descriptor: descriptor.add_field("t", "tinyint", default=200))


def test_files_have_the_types(tmp_path: Path) -> None:
    some(tmp_path)

    (file,) = (tmp_path / "d" / "data").rglob("*.parquet")

    assert pq.read_schema(file).types == PLAIN.types
    assert pl.read_parquet_schema(file)["b"] == pl.Int8


def test_tables_of_other_formats_are_published(tmp_path: Path) -> None:
    dataset = some(tmp_path)
    for kind in ("delta", "iceberg", "kartothek"):
        dataset.publish(kind)

    delta = deltalake.DeltaTable(tmp_path / "d" / "data")
    assert [field.type.type for field in delta.schema().fields[:3]] == ["long", "byte", "short"]
    assert (
        sorted(
            delta.to_pyarrow_table(columns=["id", "b", "s"]).to_pylist(), key=lambda row: row["id"]
        )
        == SOME
    )

    from pyiceberg.table import StaticTable

    (newest, *_) = sorted((tmp_path / "d" / "iceberg").rglob("*.metadata.json"))[::-1]
    table = StaticTable.from_metadata(str(newest))
    assert [str(field.field_type) for field in table.schema().fields[1:3]] == ["int", "int"]
    assert (
        sorted(
            table.scan(selected_fields=("id", "b", "s")).to_arrow().to_pylist(),
            key=lambda row: row["id"],
        )
        == SOME
    )
    assert table.scan("b < 100 and s > 0").to_arrow()["id"].to_pylist() == [1]

    statements = dataset.publish("hive", table="t", print_sql=True)
    assert "`b` tinyint" in str(statements)
    assert "`s` smallint" in str(statements)


def test_table_of_delta_is_taken_over(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "t", pa.Table.from_pylist(SOME, schema=PLAIN))

    taken = lakebed.open_repository(tmp_path).adopt("t", delta=True)

    assert [taken.schema.get(name).type for name in "bs"] == [TINYINT, SMALLINT]
    assert by_id(taken) == SOME


def test_table_of_iceberg_is_taken_over_as_int(tmp_path: Path) -> None:
    from pyiceberg.catalog.memory import InMemoryCatalog

    wide = pa.schema([PLAIN[0], ("b", pa.int32()), ("s", pa.int32())])
    with InMemoryCatalog("c", warehouse=tmp_path.as_uri()) as catalog:
        catalog.create_namespace("n")
        table = catalog.create_table("n.t", schema=wide, location=f"{tmp_path.as_uri()}/t")
        table.append(pa.Table.from_pylist(SOME, schema=wide))

    taken = lakebed.open_repository(tmp_path).adopt("t", iceberg=table.metadata_location)

    assert taken.schema.get("b").type == Primitive(Kind.INT)
    assert by_id(taken) == SOME


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        (pa.int8(), pa.int8(), "tinyint"),
        (pa.uint8(), pa.uint8(), "smallint"),
        (pa.int8(), pa.int16(), "smallint"),
        (pa.int8(), pa.uint8(), "smallint"),
        (pa.int16(), pa.uint16(), "int"),
        (pa.int8(), pa.int64(), "long"),
    ],
    ids=str,
)
def test_files_of_parquet_are_taken_over(
    one: pa.DataType, other: pa.DataType, wanted: str, tmp_path: Path
) -> None:
    (tmp_path / "t").mkdir()
    for number, kind in enumerate((one, other)):
        rows = pa.table({"id": [number], "b": pa.array([100 + number], kind)})
        pq.write_table(rows, tmp_path / "t" / f"{number}.parquet")

    taken = lakebed.open_repository(tmp_path).adopt("t")

    assert str(taken.schema.get("b").type) == wanted
    assert by_id(taken) == [{"id": 0, "b": 100}, {"id": 1, "b": 101}]
    assert ids(taken.where("b > 100")) == [1]


def test_literal_of_another_type_is_refused_or_has_the_meaning_of_spark() -> None:
    dataset = some()

    assert dataset.where("b = 1.5").count() == 0
    for condition in ("b = 'x'", "b = TRUE"):
        with pytest.raises(PredicateError, match="tinyint"):
            dataset.where(condition)

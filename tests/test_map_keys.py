"""Maps whose keys are no texts: kept by every door that takes rows, shows them or publishes them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import json
import uuid
from pathlib import Path

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed.cli import main
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.schema import Decimal, Kind, MapOf, Primitive

UTC = dt.UTC
INSTANT = pa.timestamp("us", "UTC")
KEYS = {
    "boolean": (pa.bool_(), st.booleans()),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "unsigned": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=5)),
    "bytes": (pa.binary(), st.binary(max_size=5)),
    "date": (pa.date32(), st.dates()),
    "instant": (INSTANT, st.datetimes(timezones=st.just(UTC))),
    "clock": (pa.timestamp("us"), st.datetimes()),
    "decimal": (pa.decimal128(9, 3), st.decimals(-1000, 1000, places=3)),
}
ALL = pa.schema(
    [
        (name, pa.map_(kind, pa.field("value", pa.int64(), nullable=False)))
        for name, (kind, _) in KEYS.items()
    ]
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            name: st.none() | st.dictionaries(keys, st.integers(0, 9), max_size=3)
            for name, (_, keys) in KEYS.items()
        }
    ),
    min_size=1,
    max_size=5,
)
BY_DAY = pa.schema(
    [("id", pa.int64()), ("m", pa.map_(pa.date32(), pa.map_(pa.int32(), pa.string())))]
)
DAY, OTHER = dt.date(2020, 1, 2), dt.date(1969, 12, 31)
DAYS = [
    {"id": 1, "m": {DAY: {1: "x", -5: None}}},
    {"id": 2, "m": None},
    {"id": 3, "m": {OTHER: {}}},
]


def dataset_of(schema: object, place: Path | None = None, **options: object) -> lakebed.Dataset:
    descriptor = lakebed.DatasetDescriptor(schema=schema, **options)
    uri = place or f"memory://{uuid.uuid4().hex}"
    return lakebed.open_repository(uri).create("d", descriptor)


def by_id(dataset: lakebed.Dataset) -> list[dict]:
    return sorted(dataset.kite.reader(), key=lambda row: row["id"])


@pytest.mark.parametrize("format_", ["parquet", "avro"])
@examples(0.2)
@given(rows=ROWS)
def test_rows_of_python_and_of_arrow_come_back(format_: str, rows: list[dict]) -> None:
    for given_rows in (rows, pa.Table.from_pylist(rows, schema=ALL)):
        dataset = dataset_of(ALL, format=format_)

        dataset.append(given_rows)

        assert list(dataset.kite.reader()) == rows
        assert dataset.arrow().schema.equals(ALL)


@pytest.mark.parametrize("format_", ["parquet", "avro"])
@examples(0.2)
@given(rows=ROWS)
def test_frames_of_others_come_back(format_: str, rows: list[dict]) -> None:
    table = pa.Table.from_pylist(rows, schema=ALL)
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    source = repository.create("d", lakebed.DatasetDescriptor(schema=ALL, format=format_))
    source.append(table)

    doors = {
        "pandas": source.pandas(),
        "pandas of pyarrow": source.pandas(dtype_backend="pyarrow"),
        "duckdb": duckdb.from_arrow(table),
        "polars": source.polars(),
        "view": source,
        "answer": repository.sql("SELECT * FROM d"),
    }
    for door, frame in doors.items():
        copy = dataset_of(ALL, format=format_)
        copy.append(frame)
        assert copy.arrow() == table, door


@pytest.mark.parametrize(
    "keys", [pa.array([7], pa.int16()), pa.array([7], pa.int32()).dictionary_encode()], ids=str
)
def test_narrower_keys_become_those_of_the_field(keys: pa.Array) -> None:
    dataset = dataset_of(pa.schema([("m", pa.map_(pa.int64(), pa.string()))]))
    maps = pa.MapArray.from_arrays([0, 1], keys, pa.array(["x"]))

    dataset.append(pa.table({"m": maps}))

    assert list(dataset.kite.reader()) == [{"m": {7: "x"}}]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"x": "a"}, r"'m\{key\}' of type int"),
        ({None: "a"}, r"'m\{key\}' of type int"),
        ({2**31: "a"}, r"2147483648 .*'m\{key\}'"),
        ({True: "a"}, r"True .*'m\{key\}'"),
        ([(1, "a")], "'m' of type map<int, string>"),
    ],
)
def test_key_that_does_not_fit_is_refused_with_its_place(value: object, message: str) -> None:
    dataset = dataset_of(pa.schema([("m", pa.map_(pa.int32(), pa.string()))]))

    with pytest.raises(SchemaMismatchError, match=message):
        dataset.append([{"m": value}])


def test_keys_that_are_the_same_in_the_field_are_refused() -> None:
    dataset = dataset_of(pa.schema([("m", pa.map_(INSTANT, pa.string()))]))
    noon = dt.datetime(2020, 1, 1, 12)

    with pytest.raises(SchemaMismatchError, match=r"Two keys of .* are equal in column 'm'"):
        dataset.append([{"m": {noon: "a", noon.replace(tzinfo=UTC): "b"}}])


def test_keys_do_not_evolve() -> None:
    dataset = dataset_of(BY_DAY)
    dataset.append(DAYS)
    other = MapOf(dataset.schema.get("m").type.value, key=Primitive(Kind.TIMESTAMP_NTZ))

    with pytest.raises(SchemaMismatchError, match=r"'m' is of type map<date.* cannot become"):
        dataset.evolve(lambda descriptor: descriptor.change_type("m", other))

    wider = pa.table(
        {
            "id": [4],
            "m": pa.array(
                [[(noon(), [])]], pa.map_(pa.timestamp("us"), BY_DAY.field("m").type.item_type)
            ),
        }
    )
    for types in ("strict", "widen"):
        with pytest.raises(SchemaMismatchError, match=r"m\{key\}.*keys of a map stay of type date"):
            dataset.append(wider, types=types)


def noon() -> dt.datetime:
    return dt.datetime(2020, 1, 2, 12)


@pytest.mark.parametrize("format_", ["parquet", "avro"])
def test_values_evolve_below_such_keys(format_: str) -> None:
    before = pa.map_(pa.date32(), pa.struct([("a", pa.int32())]))
    dataset = dataset_of(pa.schema([("id", pa.int64()), ("m", before)]), format=format_)
    dataset.append([{"id": 1, "m": {DAY: {"a": 1}}}])
    after = pa.map_(pa.date32(), pa.struct([("a", pa.int64()), ("b", pa.string())]))

    dataset.append(
        pa.table({"id": [2], "m": pa.array([[(OTHER, {"a": 2**40, "b": "x"})]], after)}),
        types="widen",
        unknown="keep",
    )

    assert by_id(dataset) == [
        {"id": 1, "m": {DAY: {"a": 1, "b": None}}},
        {"id": 2, "m": {OTHER: {"a": 2**40, "b": "x"}}},
    ]


@pytest.mark.parametrize("format_", ["parquet", "avro"])
def test_new_field_defaults_to_an_empty_map(format_: str) -> None:
    dataset = dataset_of(pa.schema([("id", pa.int64())]), format=format_)
    dataset.append([{"id": 1}])

    dataset.evolve(
        lambda descriptor: descriptor.add_field("m", pa.map_(pa.int32(), pa.int32()), default={})
    )
    dataset.append([{"id": 2, "m": {5: 6}}])

    assert by_id(dataset) == [{"id": 1, "m": {}}, {"id": 2, "m": {5: 6}}]


@pytest.mark.parametrize("format_", ["parquet", "avro"])
def test_rows_are_changed_and_rewritten(format_: str) -> None:
    dataset = dataset_of(BY_DAY, format=format_)
    dataset.append(DAYS)

    dataset.upsert([{"id": 2, "m": {DAY: {9: "new"}}}], on="id")
    changed = list(dataset.changes(1, 2).arrow().to_pylist(maps_as_pydicts="strict"))
    dataset.append([{"id": 4, "m": {}}])
    dataset.compact()

    wanted = [DAYS[0], {"id": 2, "m": {DAY: {9: "new"}}}, DAYS[2], {"id": 4, "m": {}}]
    assert by_id(dataset) == wanted
    assert [row["m"] for row in changed] == [None, {DAY: {9: "new"}}]


def test_classes_declare_such_maps() -> None:
    @dataclasses.dataclass
    class Entity:
        id: int
        m: dict[int, str]

    dataset = dataset_of(Entity)
    dataset.append([Entity(1, {5: "x"})])

    assert list(dataset.kite.reader(type=Entity)) == [Entity(1, {5: "x"})]


def test_keys_of_json_are_texts(tmp_path: Path) -> None:
    keyed = pa.schema([(name, pa.map_(kind, pa.int64())) for name, (kind, _) in KEYS.items()])
    dataset = dataset_of(keyed)
    document = {
        "boolean": {"true": 1},
        "int": {"-5": 1},
        "unsigned": {str(2**63): 1},
        "double": {"0.5": 1, "NaN": 2},
        "text": {"a": 1},
        "bytes": {"/w==": 1},
        "date": {"2020-01-02": 1},
        "instant": {"2020-01-02T03:00:00Z": 1},
        "decimal": {"1.25": 1},
    }
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(document) + "\n")

    dataset.load(file)

    (row,) = dataset.kite.reader()
    assert (row["boolean"], row["int"], row["unsigned"]) == ({True: 1}, {-5: 1}, {2**63: 1})
    assert str(row["double"]) == "{0.5: 1, nan: 2}"
    assert (row["text"], row["bytes"], row["date"]) == ({"a": 1}, {b"\xff": 1}, {DAY: 1})
    assert row["instant"] == {dt.datetime(2020, 1, 2, 3, tzinfo=UTC): 1}
    assert row["decimal"] == {decimal.Decimal("1.250"): 1}


def test_schema_names_its_keys() -> None:
    dataset = dataset_of(pa.schema([("m", pa.map_(pa.decimal128(5, 2), pa.int32()))]))

    kind = dataset.schema.get("m").type

    assert kind == MapOf(Primitive(Kind.INT), key=Decimal(5, 2))
    assert str(kind) == "map<decimal(5, 2), int>"


def test_files_of_avro_hold_them_as_iceberg_does(tmp_path: Path) -> None:
    import fastavro

    dataset = dataset_of(BY_DAY, tmp_path, format="avro")
    dataset.append(DAYS)

    (file,) = tmp_path.rglob("*.avro")
    with file.open("rb") as source:
        reader = fastavro.reader(source)
        (kind,) = (one for one in reader.writer_schema["fields"][1]["type"] if one != "null")
        rows = sorted(reader, key=lambda row: row["id"])
    assert (kind["type"], kind["logicalType"]) == ("array", "map")
    assert [field["name"] for field in kind["items"]["fields"]] == ["key", "value"]
    assert rows[0]["m"][0]["key"] == DAY


def test_hive_refuses_what_it_does_not_read_in_avro(tmp_path: Path) -> None:
    schema = pa.schema([("m", pa.list_(pa.map_(pa.int32(), pa.string())))])
    avro = dataset_of(schema, tmp_path / "avro", format="avro")

    with pytest.raises(InvalidInputError, match=r"'m' .* with texts as keys only"):
        avro.publish("hive", table="t", print_sql=True)


def test_polars_reads_files(tmp_path: Path) -> None:
    dataset = dataset_of(BY_DAY, tmp_path)
    dataset.append(DAYS)

    rows = (
        pl.read_parquet(list((tmp_path / "d" / "data").rglob("*.parquet")))
        .sort("id")
        .rows(named=True)
    )

    assert rows[0]["m"] == {DAY: {1: "x", -5: None}}


def test_tables_of_other_formats_are_published(tmp_path: Path) -> None:
    schema = BY_DAY.append(pa.field("c", pa.map_(pa.timestamp("us"), pa.string())))
    rows = [{**row, "c": {dt.datetime(2020, 1, 2, 12): "x"}} for row in DAYS]
    dataset = dataset_of(schema, tmp_path)
    dataset.append(rows)
    for kind, folder in (
        ("delta", "d/data"),
        ("iceberg", "d/iceberg"),
        ("kartothek", "d-kartothek"),
    ):
        dataset.publish(kind)
        assert (tmp_path / folder).is_dir()

    (log,) = (tmp_path / "d" / "data" / "_delta_log").glob("*.json")
    lines = log.read_text().splitlines()
    protocol = next(json.loads(line) for line in lines if '"protocol"' in line)
    (shown,) = (tmp_path / "d-kartothek").rglob("_common_metadata")

    assert protocol["protocol"]["readerFeatures"] == ["timestampNtz"]  # of the keys
    assert pq.read_schema(shown).field("m").type.equals(schema.field("m").type)


def test_table_of_delta_is_taken_over(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "t", pa.Table.from_pylist(DAYS, schema=BY_DAY))

    taken = lakebed.open_repository(tmp_path).adopt("t", delta=True)

    assert taken.schema.get("m").type == dataset_of(BY_DAY).schema.get("m").type
    assert by_id(taken) == DAYS


def test_table_of_iceberg_is_taken_over(tmp_path: Path) -> None:
    from pyiceberg.catalog.memory import InMemoryCatalog

    with InMemoryCatalog("c", warehouse=tmp_path.as_uri()) as catalog:
        catalog.create_namespace("n")
        table = catalog.create_table("n.t", schema=BY_DAY, location=f"{tmp_path.as_uri()}/t")
        table.append(pa.Table.from_pylist(DAYS, schema=BY_DAY))

    taken = lakebed.open_repository(tmp_path).adopt("t", iceberg=table.metadata_location)

    assert taken.schema.get("m").type == dataset_of(BY_DAY).schema.get("m").type
    assert by_id(taken) == DAYS


def test_files_of_parquet_are_taken_over(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.Table.from_pylist(DAYS, schema=BY_DAY), tmp_path / "t" / "a.parquet")

    taken = lakebed.open_repository(tmp_path).adopt("t")

    assert by_id(taken) == DAYS


def test_command_line_prints_keys_as_texts(tmp_path: Path) -> None:
    dataset_of(BY_DAY, tmp_path).append(DAYS[:1])

    answer = CliRunner().invoke(main, ["query", str(tmp_path / "d"), "-o", "jsonl"])

    assert json.loads(answer.stdout) == {"id": 1, "m": {"2020-01-02": {"1": "x", "-5": None}}}

"""File formats: every type and every codec, in both directions, with exact facts."""

import datetime as dt
import decimal
import io
import math
import sys
import uuid

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed.arrow.formats.avro_files import AvroReader, AvroWriter
from lakebed.arrow.formats.file_format import find_reader, open_writer
from lakebed.errors import (
    CorruptMetadataError,
    InvalidInputError,
    MissingDependencyError,
    SchemaMismatchError,
)
from lakebed.model.arrow_types import schema_from_arrow
from lakebed.model.avro import schema_from_avro
from lakebed.model.descriptor import COMPRESSIONS, DatasetDescriptor
from lakebed.model.schema import Field, Kind, Primitive, Schema, Struct
from lakebed.state.facts import ColumnFacts
from lakebed.store.memory import MemoryStore

FORMATS = ["parquet", "avro"]
INSTANT = pa.timestamp("us", tz="UTC")

LEAVES = {
    "boolean": (pa.bool_(), st.booleans()),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "unsigned": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "string": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=9)),
    "bytes": (pa.binary(), st.binary(max_size=9)),
    "date": (pa.date32(), st.dates()),
    "instant": (INSTANT, st.datetimes(timezones=st.just(dt.UTC))),
    "wall": (pa.timestamp("us"), st.datetimes()),
    "decimal": (pa.decimal128(38, 9), st.decimals(-(10**20), 10**20, places=9)),
}
NESTED = {
    "list": (pa.list_(pa.field("element", INSTANT)), st.lists(LEAVES["instant"][1], max_size=3)),
    "map": (
        pa.map_(pa.string(), pa.field("value", pa.uint64())),
        st.dictionaries(st.text("ab", max_size=2), LEAVES["unsigned"][1], max_size=3),
    ),
    "map_of_numbers": (
        pa.map_(pa.uint64(), pa.field("value", pa.date32())),
        st.dictionaries(LEAVES["unsigned"][1], st.none() | st.dates(), max_size=3),
    ),
    "map_of_times": (
        pa.map_(INSTANT, pa.field("value", pa.map_(pa.decimal128(38, 9), pa.string()))),
        st.dictionaries(
            LEAVES["instant"][1],
            st.dictionaries(LEAVES["decimal"][1], st.text("ab"), max_size=2),
            max_size=2,
        ),
    ),
    "struct": (
        pa.struct([("d", pa.date32()), ("l", pa.list_(pa.field("element", pa.int32())))]),
        st.fixed_dictionaries(
            {"d": st.none() | st.dates(), "l": st.lists(st.integers(0, 9), max_size=2)}
        ),
    ),
}
COLUMNS = LEAVES | NESTED
ALL = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()}),
    max_size=12,
)


def dataset_of(schema: object, **options: object) -> lakebed.Dataset:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    return repository.create("d", DatasetDescriptor(schema=schema, **options))


@pytest.mark.parametrize("format_", FORMATS)
@examples(0.5)
@given(rows=ROWS)
def test_what_was_written_is_read(format_: str, rows: list[dict]) -> None:
    dataset = dataset_of(ALL, format=format_)

    dataset.append(pa.Table.from_pylist(rows, schema=ALL))

    assert list(dataset.kite.reader()) == rows
    assert dataset.count() == len(rows)


@examples(0.5)
@given(rows=ROWS)
def test_facts_of_both_formats_are_the_same(rows: list[dict]) -> None:
    table = pa.Table.from_pylist([*rows, dict.fromkeys(ALL.names)], schema=ALL)

    parquet, avro = (facts_of(table, format_) for format_ in FORMATS)

    assert parquet.keys() == avro.keys() == LEAVES.keys()
    for name, facts in avro.items():
        assert facts.null_count == parquet[name].null_count == table[name].null_count
        if parquet[name].min is not None:  # Parquet leaves out some that are long
            assert (facts.min, facts.max) == (parquet[name].min, parquet[name].max)


def facts_of(table: pa.Table, format_: str) -> dict:
    writer = open_writer(DatasetDescriptor(schema=table.schema, format=format_))
    for batch in table.to_batches(max_chunksize=5):
        writer.write(pa.Table.from_batches([batch]))
    written = writer.close()
    assert written.row_count == table.num_rows
    return dict(written.columns)


@pytest.mark.parametrize("format_", FORMATS)
def test_nan_and_nulls_are_no_bounds(format_: str) -> None:
    table = pa.table({"some": [math.nan, 2.0, None], "none": [math.nan, None, None]})

    facts = facts_of(table, format_)

    assert (facts["some"].min, facts["some"].max, facts["some"].null_count) == (2.0, 2.0, 1)
    assert (facts["none"].min, facts["none"].max, facts["none"].null_count) == (None, None, 2)


@pytest.mark.parametrize("format_", FORMATS)
def test_times_outside_the_calendar_survive_without_bounds(format_: str) -> None:
    far = pa.table({"t": pa.array([253402300800000000, 0]).cast(INSTANT)})
    dataset = dataset_of(far.schema, format=format_)

    dataset.append(far)

    assert dataset.arrow() == far
    assert facts_of(far, format_)["t"].max is None


@pytest.mark.parametrize(
    ("format_", "compression"), [(f, c) for f in FORMATS for c in COMPRESSIONS[f]]
)
def test_every_codec_writes_and_reads(format_: str, compression: str) -> None:
    dataset = dataset_of(pa.schema([("n", pa.int64())]), format=format_, compression=compression)

    dataset.append([{"n": n} for n in range(100)])

    assert [row["n"] for row in dataset.where("n >= 98").kite.reader()] == [98, 99]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "avro", "compression": "gzip"}, "Unknown compression 'gzip' for format 'avro'"),
        (
            {"format": "parquet", "compression": "xz"},
            "Unknown compression 'xz' for format 'parquet",
        ),
        ({"format": "orc"}, "Unknown format 'orc'"),
        ({"format": "Avro"}, "Unknown format 'Avro'"),
    ],
)
def test_codec_that_the_format_lacks_is_refused(options: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        DatasetDescriptor(schema=ALL, **options)


def test_each_format_has_a_default_codec_and_a_suffix() -> None:
    parquet, avro = (DatasetDescriptor(schema=ALL, format=format_) for format_ in FORMATS)

    assert (parquet.compression, parquet.file_suffix) == ("zstd", ".parquet")
    assert (avro.compression, avro.file_suffix) == ("snappy", ".avro")
    assert DatasetDescriptor.from_document(avro.to_document()) == avro


# Avro


def avro_file(table: pa.Table, compression: str = "deflate") -> bytes:
    writer = AvroWriter(schema_from_arrow(table.schema), compression)
    writer.write(table)
    return writer.close().content.getvalue()


def read(data: bytes, wanted: Schema) -> list[dict]:
    batches = AvroReader().batches(pa.BufferReader(data), wanted)
    return [row for batch in batches for row in batch.to_pylist()]


def test_any_avro_reader_understands_the_files() -> None:
    row = {
        "n": 2**64 - 1,
        "t": dt.datetime(2013, 1, 1, tzinfo=dt.UTC),
        "w": dt.datetime(2013, 1, 1),
        "d": dt.date(2013, 1, 1),
        "q": decimal.Decimal("1.25"),
        "s": None,
    }
    schema = pa.schema(
        [
            pa.field("n", pa.uint64(), nullable=False),
            ("t", INSTANT),
            ("w", pa.timestamp("us")),
            ("d", pa.date32()),
            ("q", pa.decimal128(9, 2)),
            ("s", pa.string()),
        ]
    )

    reader = fastavro.reader(io.BytesIO(avro_file(pa.Table.from_pylist([row], schema=schema))))

    assert list(reader) == [row]
    types = {field["name"]: field["type"] for field in reader.writer_schema["fields"]}
    assert types["n"]["logicalType"] == "decimal"
    assert types["t"][1]["logicalType"] == "timestamp-micros"


def test_behaviour_11_file_of_an_older_schema_is_read_by_the_newer() -> None:
    old = pa.table(
        {"n": pa.array([1, 2], pa.int32()), "gone": ["x", "y"], "s": [{"a": 1}, {"a": None}]}
    )
    long, text, raw = (Primitive(kind) for kind in (Kind.LONG, Kind.STRING, Kind.BYTES))
    inner = Struct(
        (
            Field(name="a", type=long),
            Field(name="q", type=raw, nullable=False, default=b"\xe9"),
        )
    )
    wanted = Schema(
        name="renamed",
        fields=(
            Field(name="added", type=text, nullable=False, default="none"),
            Field(name="s", type=inner),
            Field(name="n", type=long),
            Field(name="empty", type=text),
            Field(name="since", type=Primitive(Kind.DATE), default=dt.date(2013, 1, 1)),
        ),
    )

    rows = read(avro_file(old), wanted)

    common = {"added": "none", "empty": None, "since": dt.date(2013, 1, 1)}
    assert rows == [
        common | {"n": 1, "s": {"a": 1, "q": b"\xe9"}},
        common | {"n": 2, "s": {"a": None, "q": b"\xe9"}},
    ]


def test_damaged_file_is_named_so() -> None:
    wanted = Schema(fields=(Field(name="n", type=Primitive(Kind.LONG)),))
    whole = avro_file(pa.table({"n": range(1000)}))

    for damaged in [b"", b"Obj\x01", whole[:-20], whole[:60], whole.replace(b'"long"', b'"lung"')]:
        with pytest.raises(CorruptMetadataError, match="damaged"):
            read(damaged, wanted)
    with pytest.raises(CorruptMetadataError, match="does not fit"):
        read(avro_file(pa.table({"n": ["text"]})), wanted)


def test_damaged_file_of_a_dataset_is_an_error_of_the_dataset() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    dataset = lakebed.open_repository(store.uri).create(
        "d", DatasetDescriptor(schema=pa.schema([("n", pa.int64())]), format="avro")
    )
    dataset.append([{"n": 1}])
    (file,) = dataset.files()
    assert file.key.endswith(".avro")

    store.put(file.key, b"Obj")
    with pytest.raises(CorruptMetadataError, match="damaged"):
        dataset.arrow()
    store.delete([file.key])
    with pytest.raises(CorruptMetadataError, match="missing"):
        dataset.arrow()


def test_two_values_under_one_key_are_refused() -> None:
    twice = pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))

    with pytest.raises(SchemaMismatchError, match="two values under one key"):
        avro_file(pa.table({"m": twice}))


def test_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from lakebed.arrow.formats import avro_files

    avro_files._fastavro.cache_clear()
    monkeypatch.setitem(sys.modules, "fastavro", None)

    with pytest.raises(MissingDependencyError, match=r"lakebed\[avro\]"):
        open_writer(DatasetDescriptor(schema=ALL, format="avro"))


def test_partitioned_avro_is_read_with_its_partition_fields() -> None:
    schema = pa.schema([("k", pa.string()), ("n", pa.int64())])
    dataset = dataset_of(schema, partition_by="k, hash(n, 2)", format="avro")
    rows = [{"k": "ab"[n % 2], "n": n} for n in range(20)] + [{"k": None, "n": None}]

    dataset.append(rows)

    assert sorted(dataset.kite.reader(), key=str) == sorted(rows, key=str)
    assert dataset.where("k = 'a' AND n > 15").arrow().to_pylist() == [
        {"k": "a", "n": 16},
        {"k": "a", "n": 18},
    ]
    assert dataset.where("n > 15").count() == 4
    assert sorted(dataset.arrow(columns=["n_hash"])["n_hash"].to_pylist(), key=str) == sorted(
        [n % 2 for n in range(20)] + [None], key=str
    )


def test_only_parquet_is_left_to_arrows_own_scan() -> None:
    assert find_reader("parquet") is None
    assert isinstance(find_reader("avro"), AvroReader)


def test_no_bounds_are_written_of_floats_with_nan_and_the_facts_know_them() -> None:
    position = pa.struct([("latitude", pa.float64())])
    types = [("id", pa.int64()), ("x", pa.float64()), ("y", pa.float32()), ("at", position)]
    descriptor = DatasetDescriptor(schema=pa.schema(types))
    groups = [[0.0, None], [2.5, math.nan], [math.nan, math.nan]]
    writer = open_writer(descriptor)
    for group in groups:
        rows = [{"id": 1, "x": x, "y": 1.5, "at": {"latitude": x}} for x in group]
        writer.write(pa.Table.from_pylist(rows, pa.schema(types)))
    written = writer.close()

    footer = pq.read_metadata(pa.BufferReader(written.content.getvalue()))
    assert footer.num_row_groups == len(groups)
    for number in range(len(groups)):
        columns = [footer.row_group(number).column(i) for i in range(footer.num_columns)]
        bounded = {c.path_in_schema for c in columns if c.is_stats_set}
        assert bounded == {"id"}  # nothing is said of a float once one of them holds a NaN
    assert written.columns["x"] == ColumnFacts(min=0.0, max=2.5, null_count=1)
    assert written.columns["y"] == ColumnFacts(min=1.5, max=1.5, null_count=0)
    rows = pq.read_table(pa.BufferReader(written.content.getvalue()))
    assert str(rows["x"].to_pylist()) == str([x for group in groups for x in group])


def test_bounds_are_written_of_floats_without_nan() -> None:
    descriptor = DatasetDescriptor(schema=pa.schema([("x", pa.float64())]))
    writer = open_writer(descriptor)
    writer.write(pa.table({"x": [1.0, None, 2.0]}))

    footer = pq.read_metadata(pa.BufferReader(writer.close().content.getvalue()))

    statistics = footer.row_group(0).column(0).statistics
    assert (statistics.min, statistics.max, statistics.null_count) == (1.0, 2.0, 1)


def test_avro_of_other_tools_is_read_by_the_names_of_its_fields() -> None:
    place = {"type": "record", "name": "Place", "fields": [{"name": "at", "type": "int"}]}
    kind = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    written = {
        "type": "record",
        "name": "org.example.Trip",
        "fields": [
            {"name": "start", "type": place},
            {"name": "stop", "type": ["null", "org.example.Place"]},
            {"name": "kind", "type": kind},
            {"name": "other", "type": ["null", "Kind"]},
            {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
            {"name": "via", "type": {"type": "array", "items": "Place"}},
            {"name": "by_name", "type": {"type": "map", "values": "Place"}},
        ],
    }
    row = {
        "start": {"at": 1},
        "stop": {"at": 2},
        "kind": "A",
        "other": None,
        "code": b"ab",
        "via": [{"at": 3}],
        "by_name": {"x": {"at": 4}},
    }
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(written), [row])
    wider = {"type": "record", "name": "Place", "fields": [{"name": "at", "type": "long"}]}
    added = {"name": "more", "type": ["null", wider], "default": None}
    newer = {**written, "fields": [*written["fields"], added]}
    newer["fields"][0] = {"name": "start", "type": wider | {"name": "Other"}}
    newer["fields"][1] = {"name": "stop", "type": ["null", wider]}
    newer["fields"][-1] = {"name": "more", "type": ["null", "org.example.Place"], "default": None}

    batches = AvroReader().batches(pa.BufferReader(sink.getvalue()), schema_from_avro(newer))

    assert pa.Table.from_batches(batches).to_pylist(maps_as_pydicts="strict") == [
        row | {"more": None}
    ]

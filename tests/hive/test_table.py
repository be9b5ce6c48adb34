"""Names, types and partitions of a Hive table."""

import datetime as dt
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed.errors import InvalidInputError, InvalidNameError, SchemaMismatchError
from lakebed.model.publishing import TableName
from lakebed.state.creation import first_state
from lakebed.state.head import HeadFormat
from lakebed.store.root import plain_location
from lakebed.tables.hive.table import Column, Spec, columns_of, ddl_type, unescape

TEXT = Column(name="Text", type="string")
NUMBER = Column(name="number", type="bigint")
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: text != "__HIVE_DEFAULT_PARTITION__"
)


def state_of(schema: pa.Schema, partition_by: str | tuple[()] = (), **options: str):
    descriptor = lakebed.DatasetDescriptor(schema=schema, partition_by=partition_by, **options)
    return first_state("flights", descriptor, HeadFormat.JSON)


@given(text=texts | st.none(), number=st.integers(-(2**63), 2**63 - 1))
def test_partition_reads_back_from_what_a_metastore_tells(text, number):
    spec = Spec.of({"Text": text, "number": number}, [TEXT, NUMBER])

    assert spec.values() == {"text": text, "number": str(number)}
    assert Spec.parse(spec.path) == spec
    assert Spec.parse(spec.path.replace("text=", "TEXT=")) == spec


@given(texts)
def test_escaping_may_differ_between_tools(text):
    spec = Spec.of({"Text": text}, [TEXT])
    loose = "".join(f"%{ord(one):02x}" if one in "/%=:'\"" else one for one in text)

    assert Spec.parse(f"Text={loose}") == spec
    assert unescape(loose) == text


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_value_that_a_metastore_takes_for_null_is_refused(value):
    with pytest.raises(InvalidInputError, match="reads as null"):
        Spec.of({"Text": value}, [TEXT])


def test_values_are_typed_literals():
    keys = [
        Column(name="d", type="date"),
        Column(name="n", type="int"),
        Column(name="b", type="boolean"),
        TEXT,
    ]
    spec = Spec.of({"d": dt.date(2013, 1, 1), "n": 7, "b": True, "Text": "it's a \\ b"}, keys)

    assert (
        spec.sql(keys)
        == r"PARTITION (`d`=DATE'2013-01-01', `n`=7, `b`=true, `Text`='it\'s a \\ b')"
    )


@pytest.mark.parametrize("text", ["a.b.c", "", "a b", "a`b", "a.", "a;drop"])
def test_table_name_that_is_none_is_refused(text):
    with pytest.raises(InvalidNameError, match="table name"):
        TableName.parse(text)


def test_derived_partition_fields_become_partition_columns():
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("user_id", pa.int64())])
    state = state_of(schema, "date(ts) as dt, hash(user_id, 16)")

    columns = columns_of(state, "batches")

    assert [(one.name, one.type) for one in columns.data] == [
        ("ts", "timestamp"),
        ("user_id", "bigint"),
    ]
    assert [(one.name, one.type) for one in columns.keys] == [
        ("dt", "date"),
        ("user_id_hash", "int"),
        ("batch_id", "bigint"),
    ]


def test_fields_that_differ_only_in_case_are_refused_by_name():
    for schema in (
        pa.schema([("Carrier", pa.string()), ("carrier", pa.string())]),
        pa.schema([("x", pa.list_(pa.struct([("Carrier", pa.int64()), ("carrier", pa.int64())])))]),
    ):
        with pytest.raises(SchemaMismatchError, match="'Carrier' and 'carrier'"):
            columns_of(state_of(schema), "partitions")


def test_field_that_a_partition_field_hides_is_refused():
    schema = pa.schema([("BATCH_ID", pa.int64())])

    assert columns_of(state_of(schema), "partitions")
    with pytest.raises(SchemaMismatchError, match="'BATCH_ID' and 'batch_id'"):
        columns_of(state_of(schema), "batches")


@pytest.mark.parametrize("kind", [pa.timestamp("us", tz="UTC"), pa.float64(), pa.uint64()])
def test_partition_type_that_does_not_read_back_from_text_is_refused(kind):
    schema = pa.schema([("at", kind), ("n", pa.int64())])

    with pytest.raises(InvalidInputError, match="'at' is of type"):
        columns_of(state_of(schema, "at"), "partitions")


def test_other_formats_than_parquet_and_avro_are_refused():
    texts = pa.schema([("uuid", pa.string()), ("document", pa.string())])
    with pytest.raises(InvalidInputError, match="format is 'submissions'") as caught:
        columns_of(state_of(texts, format="submissions"), "partitions")

    assert caught.value.hint == "Append its rows to a dataset of Parquet, and publish that one."


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (pa.timestamp("us", "UTC"), "a"),
        (pa.timestamp("us"), "a"),
        (pa.list_(pa.map_(pa.string(), pa.timestamp("us", "UTC"))), "a"),
        (pa.list_(pa.struct([("x", pa.timestamp("us"))])), r"a\[\]\.x"),
    ],
)
def test_times_in_avro_are_refused_by_name(kind, path):
    schema = pa.schema([("n", pa.int64()), ("a", kind)])

    with pytest.raises(InvalidInputError, match=rf"Field '{path}' .* in microseconds") as caught:
        columns_of(state_of(schema, format="avro"), "partitions")
    assert "dataset of Parquet" in caught.value.hint
    assert columns_of(state_of(schema), "partitions").format == "parquet"


def test_upper_case_names_in_avro_are_found_by_a_schema_of_the_table():
    inner = pa.struct([("X", pa.int64())])
    nested = pa.list_(pa.struct([("Y", pa.map_(pa.string(), inner))]))
    schema = pa.schema([pa.field("N", pa.int64(), nullable=False), ("n2", nested)])

    columns = columns_of(state_of(schema, format="avro"), "partitions")

    assert set(columns.properties) == {"avro.schema.literal"}
    literal = json.loads(columns.properties["avro.schema.literal"])
    assert [(field["name"], field["default"]) for field in literal["fields"]] == [
        ("N", None),
        ("n2", None),
    ]
    assert literal["fields"][0]["type"] == ["null", "long"]
    record = literal["fields"][1]["type"][1]["items"][1]
    assert record["fields"][0]["name"] == "Y"
    assert record["fields"][0]["type"][1]["values"][1]["fields"][0]["name"] == "X"


@pytest.mark.parametrize(("name", "format_"), [("n", "avro"), ("N", "parquet")])
def test_tables_whose_names_hive_finds_need_no_schema(name, format_):
    columns = columns_of(state_of(pa.schema([(name, pa.int64())]), format=format_), "partitions")

    assert columns.properties == {}


def test_types_are_those_that_spark_reads():
    schema = pa.schema(
        [
            ("u", pa.uint64()),
            ("d", pa.decimal128(8, 2)),
            ("m", pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.timestamp("us"))])))),
        ]
    )
    state = state_of(schema)

    assert [ddl_type(one.type) for one in state.descriptor.schema] == [
        "decimal(20,0)",
        "decimal(8,2)",
        "map<string,array<struct<`x`:timestamp_ntz>>>",
    ]


def test_locations_are_compared_in_one_form():
    assert plain_location("file:/a/b") == plain_location("file:///a/b/") == "file:///a/b"
    assert plain_location("hdfs://name:8020/a") == "hdfs://name:8020/a"


def test_what_no_table_shows_is_refused_before_any_contact_with_a_metastore():
    texts = pa.schema([("uuid", pa.string()), ("document", pa.string())])
    lake = lakebed.open_repository("memory://refused-by-hive")
    submissions = lake.create("s", lakebed.DatasetDescriptor(schema=texts, format="submissions"))

    with pytest.raises(InvalidInputError, match="format is 'submissions'"):
        submissions.publish("hive", "thrift://127.0.0.1:1", table="lake.s")

"""A schema comes back unchanged from each of the worlds that it is translated to."""

import json
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.arrow_types import schema_from_arrow, schema_to_arrow
from lakebed.model.avro import schema_from_avro, schema_to_avro
from lakebed.model.schema import (
    SMALLINT,
    TINYINT,
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
)
from lakebed.model.spark_types import schema_from_spark, schema_to_spark

NAMES = st.from_regex(r"[A-Za-z0-9_]{1,8}", fullmatch=True)
DECIMALS = st.integers(1, 38).flatmap(
    lambda precision: st.builds(Decimal, st.just(precision), st.integers(0, precision))
)


def fields_of(types: st.SearchStrategy) -> st.SearchStrategy:
    field = st.builds(Field, name=NAMES, type=types, nullable=st.booleans())
    return st.lists(field, min_size=1, max_size=4, unique_by=lambda f: f.name).map(tuple)


def schemas(kinds: st.SearchStrategy) -> st.SearchStrategy:
    plain = kinds.map(Primitive) | st.sampled_from([TINYINT, SMALLINT]) | DECIMALS
    types = st.recursive(
        plain,
        lambda inner: (
            st.builds(ListOf, inner, st.booleans())
            | st.builds(MapOf, inner, st.booleans(), plain)
            | st.builds(Struct, fields_of(inner))
        ),
        max_leaves=6,
    )
    return st.builds(
        Schema, fields=fields_of(types), name=st.sampled_from(["entity", "a.b-c", "3x"])
    )


@given(schemas(st.sampled_from(Kind)))
def test_schema_survives_avro_json(schema: Schema) -> None:
    text = json.dumps(schema_to_avro(schema))

    assert schema_from_avro(json.loads(text)) == schema


@given(schemas(st.sampled_from(Kind)))
def test_schema_survives_arrow(schema: Schema) -> None:
    found = schema_from_arrow(schema_to_arrow(schema))

    assert found.fields == schema.fields


@given(schemas(st.sampled_from([kind for kind in Kind if kind is not Kind.UNSIGNED_LONG])))
def test_schema_survives_spark_json(schema: Schema) -> None:
    text = json.dumps(schema_to_spark(schema))

    assert schema_from_spark(json.loads(text)).fields == schema.fields


@given(schemas(st.sampled_from(Kind)))
def test_schema_pickles(schema: Schema) -> None:
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_unsigned_long_is_a_decimal_for_spark() -> None:
    schema = Schema(fields=(Field(name="n", type=Primitive(Kind.UNSIGNED_LONG)),))

    found = schema_to_spark(schema)

    assert found["fields"][0]["type"] == "decimal(20,0)"


def test_schema_needs_a_field() -> None:
    with pytest.raises(SchemaMismatchError, match="has no fields"):
        Schema(fields=())


@pytest.mark.parametrize("build", [Struct, lambda fields: Schema(fields=fields)])
def test_field_that_stands_twice_is_refused_at_any_depth(build) -> None:
    twice = Field(name="n", type=Primitive(Kind.INT))

    with pytest.raises(SchemaMismatchError, match="'n' appears twice"):
        build((twice, twice))


@pytest.mark.parametrize(("precision", "scale"), [(0, 0), (39, 0), (5, 6), (5, -1)])
def test_decimal_that_spark_cannot_hold_is_refused(precision: int, scale: int) -> None:
    with pytest.raises(InvalidInputError, match=r"Illegal decimal"):
        Decimal(precision, scale)


def test_unknown_column_names_the_nearest() -> None:
    schema = Schema(fields=(Field(name="carrier", type=Primitive(Kind.STRING)),))

    with pytest.raises(SchemaMismatchError, match="Did you mean 'carrier'"):
        schema.get("carier")


@pytest.mark.parametrize(
    ("arrow", "kind"),
    [
        (pa.uint16(), Kind.INT),
        (pa.uint32(), Kind.LONG),
        (pa.uint64(), Kind.UNSIGNED_LONG),
        (pa.float16(), Kind.FLOAT),
        (pa.large_string(), Kind.STRING),
        (pa.string_view(), Kind.STRING),
        (pa.dictionary(pa.int8(), pa.string()), Kind.STRING),
        (pa.binary(4), Kind.BYTES),
        (pa.date64(), Kind.DATE),
        (pa.timestamp("ns", tz="Europe/Berlin"), Kind.TIMESTAMP),
        (pa.timestamp("s"), Kind.TIMESTAMP_NTZ),
    ],
)
def test_narrow_arrow_type_becomes_the_next_wider_one(arrow: pa.DataType, kind: Kind) -> None:
    schema = schema_from_arrow(pa.schema([pa.field("a", arrow, nullable=False)]))

    assert schema.fields == (Field(name="a", type=Primitive(kind), nullable=False),)


@pytest.mark.parametrize(
    ("arrow", "message"),
    [
        (pa.null(), "null type"),
        (pa.time32("s"), r"time32\[s\] of column 's\.t'"),
        (pa.duration("s"), r"of column 's\.t'"),
        (pa.map_(pa.list_(pa.int32()), pa.int32()), r"'s\.t' has keys of type list<int>"),
        (pa.map_(pa.time64("us"), pa.int32()), r"of column 's\.t\{key\}'"),
        (pa.decimal256(60, 2), r"of column 's\.t'"),
        (pa.list_(pa.time64("us")), r"of column 's\.t\[\]'"),
    ],
)
def test_unsupported_arrow_type_is_refused_with_its_place(arrow: pa.DataType, message: str) -> None:
    nested = pa.schema([("s", pa.struct([("t", arrow)]))])

    with pytest.raises(SchemaMismatchError, match=message):
        schema_from_arrow(nested)


@pytest.mark.parametrize(
    ("spark", "kind"),
    [
        ("byte", TINYINT),
        ("short", SMALLINT),
        ("varchar(10)", Primitive(Kind.STRING)),
        ("string collate UTF8_BINARY", Primitive(Kind.STRING)),
        ("decimal(10, 2)", Decimal(10, 2)),
        ("timestamp_ntz", Primitive(Kind.TIMESTAMP_NTZ)),
    ],
)
def test_spark_type_is_read_without_pyspark(spark: str, kind: object) -> None:
    field = {"name": "a", "type": spark, "nullable": True, "metadata": {}}

    found = schema_from_spark({"type": "struct", "fields": [field]})

    assert found.fields == (Field(name="a", type=kind),)


COLLATED = [
    {"type": "string", "metadata": {"__COLLATIONS": {"a": "spark.UTF8_LCASE"}}},
    {"type": "string collate UTF8_LCASE", "metadata": {}},
    {
        "type": {"type": "array", "elementType": "string", "containsNull": True},
        "metadata": {"__COLLATIONS": {"a.element": "spark.UTF8_LCASE"}},
    },
]


@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize("collated", COLLATED)
def test_collation_of_spark_is_refused_by_name(collated: dict, is_inside: bool) -> None:
    field = {"name": "a", "nullable": True, **collated}
    if is_inside:
        record = {"type": "struct", "fields": [field]}
        field = {"name": "r", "nullable": True, "type": record, "metadata": {}}

    with pytest.raises(SchemaMismatchError, match=r"a' has the collation UTF8_LCASE.*COLLATE UTF8"):
        schema_from_spark({"type": "struct", "fields": [field]})


@pytest.mark.parametrize(
    ("spark", "arrow", "remedy"),
    [
        ("time(6)", pa.time64("us"), "microseconds since midnight"),
        ("time(0)", pa.time32("s"), "microseconds since midnight"),
        ("interval day to second", pa.duration("us"), "a long of a unit"),
        ("interval year to month", pa.month_day_nano_interval(), "a long of a unit"),
        (
            {
                "type": "map",
                "keyType": {"type": "array", "elementType": "long", "containsNull": False},
                "valueType": "long",
                "valueContainsNull": True,
            },
            pa.map_(pa.list_(pa.int64()), pa.int64()),
            "keys of a map are single values",
        ),
    ],
)
def test_type_that_is_not_stored_is_refused_with_its_remedy(spark, arrow, remedy: str) -> None:
    field = {"name": "a", "type": spark, "nullable": True, "metadata": {}}

    with pytest.raises(SchemaMismatchError, match=remedy):
        schema_from_spark({"type": "struct", "fields": [field]})
    with pytest.raises(SchemaMismatchError, match=remedy):
        schema_from_arrow(pa.schema([("a", arrow)]))


@pytest.mark.parametrize(
    "document",
    [
        "integer",
        None,
        {"type": "struct"},
        {"type": "struct", "fields": {}},
        {"type": "struct", "fields": [1]},
        {"type": "struct", "fields": [{"name": "a", "type": "integer"}]},
        {"type": "struct", "fields": [{"name": "a", "type": "variant", "nullable": True}]},
        {
            "type": "struct",
            "fields": [
                {
                    "name": "a",
                    "nullable": True,
                    "type": {
                        "type": "map",
                        "keyType": {"type": "struct", "fields": []},
                        "valueType": "long",
                        "valueContainsNull": True,
                    },
                }
            ],
        },
    ],
)
def test_spark_json_that_is_no_supported_struct_is_refused(document: object) -> None:
    with pytest.raises(SchemaMismatchError):
        schema_from_spark(document)

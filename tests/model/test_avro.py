"""Avro schemas: what is read, how defaults are kept, and that hostile ones give named errors."""

import datetime as dt
import decimal
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidNameError, SchemaMismatchError
from lakebed.model.avro import MAX_DEPTH, schema_from_avro, schema_to_avro
from lakebed.model.schema import (
    MISSING,
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
    has_limits,
    limits_of,
    without_limits,
)
from lakebed.model.values import check_value


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "entity", "fields": list(fields), **more}


def read_type(kind: object) -> Field:
    (field,) = schema_from_avro(record({"name": "a", "type": kind})).fields
    return field


@pytest.mark.parametrize(
    ("avro", "kind"),
    [
        ("boolean", Kind.BOOLEAN),
        ("int", Kind.INT),
        ("long", Kind.LONG),
        ("float", Kind.FLOAT),
        ("double", Kind.DOUBLE),
        ("string", Kind.STRING),
        ("bytes", Kind.BYTES),
        ({"type": "int", "logicalType": "date"}, Kind.DATE),
        ({"type": "long", "logicalType": "timestamp-millis"}, Kind.TIMESTAMP),
        ({"type": "long", "logicalType": "timestamp-micros"}, Kind.TIMESTAMP),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, Kind.TIMESTAMP_NTZ),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, Kind.TIMESTAMP_NTZ),
        ({"type": "string", "logicalType": "uuid"}, Kind.STRING),
        ({"type": "long", "logicalType": "nobody-knows"}, Kind.LONG),
        ({"type": {"type": "int"}}, Kind.INT),
        ({"type": "enum", "name": "colour", "symbols": ["RED"]}, Kind.STRING),
        ({"type": "fixed", "name": "id", "size": 16}, Kind.BYTES),
    ],
)
def test_avro_type_is_read(avro: object, kind: Kind) -> None:
    assert read_type(avro) == Field(name="a", type=Primitive(kind), nullable=False)


def test_enum_and_fixed_keep_what_they_allow() -> None:
    colour = {"type": "enum", "name": "colour", "symbols": ["RED", "BLUE"]}
    code = {"type": "fixed", "name": "code", "size": 4}
    inner = record({"name": "x", "type": ["null", "colour"]}, {"name": "y", "type": "code"})
    document = record(
        {"name": "a", "type": colour},
        {"name": "b", "type": ["null", code]},
        {"name": "c", "type": {"type": "array", "items": {**inner, "name": "inner"}}},
    )

    schema = schema_from_avro(document)
    again = schema_from_avro(schema_to_avro(schema))

    for one in (schema, again):
        assert one.get("a").type.symbols == ("RED", "BLUE")
        assert one.get("b").type.size == 4
        assert limits_of(one.get("c").type) == (
            ("x", ((("RED", "BLUE"), None),)),
            ("y", (((), 4),)),
        )
        assert not any(has_limits(field.type) for field in without_limits(one))


@pytest.mark.parametrize(
    "document",
    [
        {"type": "enum", "name": "a"},
        {"type": "enum", "name": "a", "symbols": []},
        {"type": "enum", "name": "a", "symbols": [1]},
        {"type": "fixed", "name": "a"},
        {"type": "fixed", "name": "a", "size": True},
        {"type": "fixed", "name": "a", "size": -1},
    ],
)
def test_enum_without_symbols_and_fixed_without_size_are_refused(document: object) -> None:
    with pytest.raises(SchemaMismatchError, match="no symbols"):
        read_type(document)


@pytest.mark.parametrize("base", ["bytes", "fixed"])
def test_decimal_is_read_from_bytes_and_fixed(base: str) -> None:
    avro = {"type": base, "name": "d", "logicalType": "decimal", "precision": 9, "scale": 2}

    assert read_type(avro).type == Decimal(9, 2)


@pytest.mark.parametrize("union", [["null", "int"], ["int", "null"]])
def test_union_with_null_is_a_nullable_field(union: list[str]) -> None:
    assert read_type(union) == Field(name="a", type=Primitive(Kind.INT), nullable=True)


def test_nested_types_keep_their_nullability() -> None:
    avro = {
        "type": "array",
        "items": ["null", {"type": "map", "values": record({"name": "x", "type": "int"})}],
    }

    struct = Struct((Field(name="x", type=Primitive(Kind.INT), nullable=False),))
    assert read_type(avro).type == ListOf(
        MapOf(struct, value_nullable=False), element_nullable=True
    )


def test_named_type_is_used_again_by_short_and_full_name() -> None:
    colour = {"type": "enum", "name": "colour", "symbols": ["RED"]}
    document = record(
        {"name": "a", "type": colour},
        {"name": "b", "type": "colour"},
        {"name": "c", "type": ["null", "com.example.colour"]},
        namespace="com.example",
    )

    schema = schema_from_avro(document)

    assert [field.type for field in schema] == [Primitive(Kind.STRING)] * 3


def test_types_of_one_name_in_two_namespaces_are_kept_apart() -> None:
    document = record(
        {"name": "a", "type": {"type": "fixed", "name": "x.id", "size": 1}},
        {"name": "b", "type": {"type": "enum", "name": "id", "namespace": "y", "symbols": ["A"]}},
        {"name": "c", "type": "x.id"},
        {"name": "d", "type": "y.id"},
    )

    schema = schema_from_avro(document)

    assert schema.get("c").type == Primitive(Kind.BYTES)
    assert schema.get("d").type == Primitive(Kind.STRING)


@pytest.mark.parametrize(
    ("avro", "default", "value"),
    [
        ("int", 5, 5),
        ("double", 1, 1.0),
        ("string", "x", "x"),
        ("bytes", "\u00ff\u0001", b"\xff\x01"),
        (["null", "int"], None, None),
        (["int", "null"], 7, 7),
        ({"type": "int", "logicalType": "date"}, 1, dt.date(1970, 1, 2)),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            1500,
            dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=dt.UTC),
        ),
        (
            ["null", {"type": "long", "logicalType": "local-timestamp-micros"}],
            1500,
            dt.datetime(1970, 1, 1, 0, 0, 0, 1500),
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            "\u00ff\u0038",
            decimal.Decimal("-2.00"),
        ),
        ({"type": "array", "items": "int"}, [], []),
        ({"type": "map", "values": "int"}, {}, {}),
    ],
)
def test_default_is_a_value_of_its_type_and_survives(
    avro: object, default: object, value: object
) -> None:
    schema = schema_from_avro(record({"name": "a", "type": avro, "default": default}))

    again = schema_from_avro(json.loads(json.dumps(schema_to_avro(schema))))

    assert schema.get("a").default == value
    assert again == schema


def test_default_belongs_to_the_first_type_of_the_union() -> None:
    schema = schema_from_avro(record({"name": "a", "type": ["int", "null"], "default": 7}))

    (field,) = schema_to_avro(schema)["fields"]

    assert field["type"] == ["int", "null"]


def test_no_default_differs_from_null() -> None:
    assert read_type(["null", "int"]).default is MISSING


@pytest.mark.parametrize(
    ("avro", "default"),
    [
        ("int", "5"),
        ("int", True),
        ("int", None),
        ("int", 2**31),
        ("boolean", 0),
        ("bytes", "\u0100"),
        ({"type": "int", "logicalType": "date"}, "2013-01-01"),
        ({"type": "long", "logicalType": "timestamp-micros"}, 2**62),
        ({"type": "array", "items": "int"}, [1]),
        ({"type": "array", "items": "int"}, {}),
    ],
)
def test_default_of_another_type_is_refused_with_its_place(avro: object, default: object) -> None:
    with pytest.raises(SchemaMismatchError, match="at 'a'"):
        schema_from_avro(record({"name": "a", "type": avro, "default": default}))


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        (Primitive(Kind.LONG), "x"),
        (Primitive(Kind.FLOAT), decimal.Decimal("0.1")),
        (Primitive(Kind.INT), 2**31),
        (Primitive(Kind.DATE), "2026-01-01"),
        (Decimal(10, 2), decimal.Decimal("0.001")),
        (Decimal(10, 2), decimal.Decimal("NaN")),
        (ListOf(Primitive(Kind.INT)), [1]),
    ],
)
def test_default_that_could_not_be_read_is_not_written(type_: Type, default: object) -> None:
    """A dataset was committed with it, and could not be opened again."""
    with pytest.raises(SchemaMismatchError, match="at 'a'"):
        schema_to_avro(Schema(fields=(Field(name="a", type=type_, default=default),)))


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        (Decimal(10, 4), decimal.Decimal("1.5")),  # it was read as 0.0015
        (Decimal(10, 4), decimal.Decimal("-15E+1")),
        (Decimal(10, 2), 7),
        (Decimal(38, 1), decimal.Decimal("1234567890123456789012345678901234567.8")),
        (Decimal(38, 38), decimal.Decimal("-0." + "9" * 38)),
        (Primitive(Kind.TIMESTAMP), dt.date(2026, 1, 1)),
    ],
)
def test_default_in_another_form_keeps_its_value(type_: Type, default: object) -> None:
    schema = Schema(fields=(Field(name="a", type=type_, default=default),))

    again = schema_from_avro(json.loads(json.dumps(schema_to_avro(schema))))

    assert again.get("a").default == check_value(default, type_, "a")


def test_doc_and_names_of_other_rules_are_kept_legal() -> None:
    schema = schema_from_avro(record({"name": "3a", "type": "int", "doc": "x"}, name="my.rec-1"))

    assert schema.name == "my_rec_1"
    assert schema.get("3a").doc == "x"


@pytest.mark.parametrize("name", ["", "a.b", " a", "a ", "a`b", "a\n", "a\u200bb", "a[]"])
def test_illegal_field_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError, match="Illegal field name"):
        schema_from_avro(record({"name": name, "type": "int"}))


@pytest.mark.parametrize(
    "kind",
    [
        "null",
        "nobody",
        "",
        None,
        5,
        {},
        {"type": None},
        {"type": []},
        {"type": ["null", "int"]},
        {"type": "array"},
        {"type": "map", "values": 3},
        {"type": "record"},
        {"type": "record", "name": {}, "fields": "x"},
        {"type": "record", "name": "r", "fields": []},
        {"type": "record", "name": "r", "fields": [{"name": 5, "type": "int"}]},
        {"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}] * 2},
        {"type": "int", "logicalType": "time-millis"},
        {"type": "bytes", "logicalType": "decimal"},
        {"type": "bytes", "logicalType": "decimal", "precision": "9"},
        {"type": "bytes", "logicalType": "decimal", "precision": True},
        {"type": "bytes", "logicalType": "decimal", "precision": 99},
        [],
        ["null"],
        ["int", "string"],
        ["null", "int", "string"],
        ["null", ["null", "int"]],
        "entity",
    ],
)
def test_type_that_is_not_supported_is_a_named_error(kind: object) -> None:
    with pytest.raises(SchemaMismatchError):
        schema_from_avro(record({"name": "a", "type": kind}))


@pytest.mark.parametrize(
    "document",
    [
        None,
        5,
        "int",
        [],
        {},
        {"type": "record"},
        {"type": ["record"]},
        {"type": "record", "fields": 1},
    ],
)
def test_document_that_is_no_record_is_a_named_error(document: object) -> None:
    with pytest.raises(SchemaMismatchError):
        schema_from_avro(document)


def test_error_names_the_place_inside_lists_maps_and_records() -> None:
    inner = {"type": "record", "name": "r", "fields": [{"name": "t", "type": ["int", "string"]}]}
    kind = {"type": "array", "items": {"type": "map", "values": inner}}

    with pytest.raises(SchemaMismatchError, match=r"at 'a\[\]\{\}\.t'"):
        read_type(kind)


def test_record_that_contains_itself_is_refused() -> None:
    node = {
        "type": "record",
        "name": "node",
        "fields": [{"name": "next", "type": ["null", "node"]}],
    }

    with pytest.raises(SchemaMismatchError, match="contains itself"):
        read_type(node)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 20_000])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: {"type": "array", "items": inner},
        lambda inner: {"type": "map", "values": ["null", inner]},
        lambda inner: {"type": inner},
        lambda inner: {"type": "record", "name": "r", "fields": [{"name": "x", "type": inner}]},
    ],
)
def test_deep_nesting_is_a_named_error(wrap, depth: int) -> None:
    kind: object = "int"
    for _ in range(depth):
        kind = wrap(kind)

    with pytest.raises(SchemaMismatchError, match="deep"):
        read_type(kind)


def test_document_that_contains_itself_is_a_named_error() -> None:
    kind: dict[str, Any] = {"type": "array"}
    kind["items"] = kind

    with pytest.raises(SchemaMismatchError, match="deep"):
        read_type(kind)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "name", "fields", "items", "values", "logicalType", "default"]
            ),
            inner
            | st.sampled_from(["record", "array", "map", "int", "bytes", "decimal", "enum", "a"]),
            max_size=5,
        )
    ),
    max_leaves=15,
)


@given(JSON)
def test_hostile_json_is_read_or_a_named_error(document: object) -> None:
    for hostile in (document, record({"name": "a", "type": document})):
        try:
            schema = schema_from_avro(hostile)
        except (SchemaMismatchError, InvalidNameError):
            continue

        assert schema_from_avro(schema_to_avro(schema)) == schema

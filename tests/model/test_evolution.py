"""Which updates the rules allow, and what they note of the schemas before."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed import DatasetDescriptor, by
from lakebed.errors import CorruptMetadataError, InvalidInputError, PartitionSpecError
from lakebed.errors import SchemaMismatchError as Refused
from lakebed.model.avro import schema_from_avro
from lakebed.model.evolution import changes, check_schema, check_update
from lakebed.model.lineage import AS_IT_IS, Lineage, simplify
from lakebed.model.predicate import FALSE, TRUE, Comparison, NullCheck, Op, all_of, any_of
from lakebed.model.schema import (
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
)

DATE = {"type": "int", "logicalType": "date"}
INSTANT = {"type": "long", "logicalType": "timestamp-micros"}
WALL = {"type": "long", "logicalType": "local-timestamp-micros"}


def money(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def one(kind: Any, name: str = "a", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def record(*fields: dict[str, Any], name: str = "place") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def schema(*fields: dict[str, Any]) -> Schema:
    """A schema with these fields beside one that stays."""
    return schema_from_avro(record(one("long", "id"), *fields, name="entity"))


def described(*fields: dict[str, Any], **more: Any) -> DatasetDescriptor:
    return DatasetDescriptor(schema=schema(*fields), **more)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param([], [one(["null", "int"])], id="add a nullable field"),
        pytest.param([], [one("int", default=7)], id="add a field with a default"),
        pytest.param([one("int")], [], id="remove a field"),
        pytest.param([one("int")], [one(["null", "int"])], id="make a field nullable"),
        pytest.param([one("int")], [one("int", default=1)], id="give a default"),
        pytest.param([one("int", default=1)], [one("int", default=2)], id="change a default"),
        pytest.param([one("int", default=1)], [one("int")], id="take a default away"),
        pytest.param([one("int")], [one("int", doc="How many.")], id="change the doc"),
        pytest.param(
            [one("int"), one("int", "b")], [one("int", "b"), one("int")], id="reorder fields"
        ),
        pytest.param([one("int")], [one("long")], id="int to long"),
        pytest.param([one("int")], [one("double")], id="int to double"),
        pytest.param([one("float")], [one("double")], id="float to double"),
        pytest.param([one(DATE)], [one(WALL)], id="date to timestamp_ntz"),
        pytest.param([one(money(9, 2))], [one(money(18, 2))], id="more digits"),
        pytest.param([one(money(9, 2))], [one(money(11, 4))], id="more digits on both sides"),
        pytest.param(
            [one(record(one("int", "x")))],
            [one(record(one("long", "x"), one(["null", "int"], "y")))],
            id="in a record",
        ),
        pytest.param(
            [one({"type": "array", "items": "int"})],
            [one({"type": "array", "items": ["null", "long"]})],
            id="in a list",
        ),
        pytest.param(
            [one({"type": "map", "values": record(one("int", "x"))})],
            [one({"type": "map", "values": record(one("int", "y", default=0))})],
            id="in a record in a map",
        ),
    ],
)
def test_allowed(old: list[Any], new: list[Any]) -> None:
    check_schema(schema(*old), schema(*new), 1)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param([], [one("int")], "'a' is missing in schema 4", id="add without default"),
        pytest.param([one(["null", "int"])], [one("int")], "cannot become required", id="required"),
        pytest.param([one("string")], [one("int")], "string in schema 4", id="string to int"),
        pytest.param([one("int")], [one("string")], "cannot become string", id="int to string"),
        pytest.param([one("long")], [one("int")], "long in schema 4", id="long to int"),
        pytest.param([one("long")], [one("double")], "become double", id="long to double rounds"),
        pytest.param([one("int")], [one("float")], "become float", id="int to float rounds"),
        pytest.param([one("double")], [one("float")], "become float", id="double to float"),
        pytest.param([one("string")], [one("bytes")], "become bytes", id="string to bytes"),
        pytest.param([one("bytes")], [one("string")], "become string", id="bytes to string"),
        pytest.param([one(DATE)], [one(INSTANT)], "become timestamp", id="a day is no instant"),
        pytest.param([one(WALL)], [one(DATE)], "become date", id="timestamp_ntz to date"),
        pytest.param([one(WALL)], [one(INSTANT)], "become timestamp", id="wall clock to instant"),
        pytest.param([one(money(9, 2))], [one(money(9, 3))], "decimal", id="fewer whole digits"),
        pytest.param([one(money(9, 2))], [one(money(12, 1))], "decimal", id="fewer decimals"),
        pytest.param([one("int")], [one(money(20, 0))], "decimal", id="int to decimal"),
        pytest.param(
            [one(record(one("int", "x")))],
            [one(record(one("int", "x"), one("int", "y")))],
            r"'a\.y' is missing",
            id="in a record",
        ),
        pytest.param(
            [one({"type": "array", "items": ["null", "int"]})],
            [one({"type": "array", "items": "int"})],
            r"'a\[\]' is nullable",
            id="in a list",
        ),
        pytest.param(
            [one({"type": "map", "values": "string"})],
            [one({"type": "map", "values": "int"})],
            r"'a\{\}' is of type string",
            id="in a map",
        ),
        pytest.param(
            [one({"type": "array", "items": "int"})],
            [one({"type": "map", "values": "int"})],
            "cannot become map",
            id="list to map",
        ),
    ],
)
def test_refused_with_the_place_and_the_reason(old: list[Any], new: list[Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        check_schema(schema(*old), schema(*new), 4)


def test_a_rename_by_removal_and_addition_is_pointed_to_the_rename_of_a_field() -> None:
    with pytest.raises(Refused, match=r"'b'.*missing") as caught:
        check_schema(schema(one("int")), schema(one("int", "b")), 1)

    assert "'a' under a new name" in caught.value.hint
    assert "rename_field" in caught.value.hint


def test_the_format_stays() -> None:
    with pytest.raises(InvalidInputError, match="parquet to avro"):
        check_update(described(), described(format="avro"), {})


def test_properties_and_compression_change_freely() -> None:
    new = described(compression="snappy", properties={"owner": "ops"})

    check_update(described(properties={"a": "b"}), new, {1: schema()})


INT = [one("int"), one("int", "b")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param([by.identity("a")], [], id="to unpartitioned"),
        pytest.param([], [by.identity("a")], id="to partitioned"),
        pytest.param([by.identity("a")], [by.identity("b")], id="another source"),
        pytest.param([by.hash("a", 4)], [by.hash("a", 8)], id="another number of buckets"),
        pytest.param([by.hash("a", 4, name="h")], [by.hash("a", 4)], id="another name"),
        pytest.param(
            [by.identity("a"), by.hash("b", 2)], [by.hash("b", 2), by.identity("a")], id="order"
        ),
        pytest.param([by.identity("a")], [by.identity("a"), by.hash("b", 2)], id="one more"),
    ],
)
def test_other_partitions_are_refused(old: list[Any], new: list[Any]) -> None:
    with pytest.raises(PartitionSpecError, match="cannot"):
        check_update(described(*INT, partition_by=old), described(*INT, partition_by=new), {})


@pytest.mark.parametrize(
    ("values", "function", "fits"),
    [
        ("int", by.identity("small", name="v"), True),
        ("int", by.identity("large", name="v"), True),
        ("int", by.identity("text", name="v"), True),
        ("long", by.identity("small", name="v"), False),
        ("long", by.identity("large", name="v"), True),
        ("long", by.identity("text", name="v"), True),
        ("string", by.identity("small", name="v"), False),
        ("string", by.identity("large", name="v"), False),
        ("string", by.identity("text", name="v"), True),
        ("int", by.provided("v", "long"), True),
        ("long", by.provided("v", "int"), False),
        ("int", by.hash("text", 4, name="v"), True),
        ("int", by.identity("small", name="w"), False),
    ],
)
def test_a_provided_function_may_be_replaced_by_one_that_holds_its_values(
    values: str, function: Any, fits: bool
) -> None:
    """Behaviour 36."""
    fields = [one("int", "small"), one("long", "large"), one("string", "text")]
    old = described(*fields, partition_by=[by.provided("v", values)])
    new = described(*fields, partition_by=[function])

    if fits:
        check_update(old, new, {1: old.schema})
        lineage = Lineage().after(old, new)
        assert (lineage.number, lineage.replaced) == (2, ("v",))
        assert not len(lineage.sure_strategy(new.partition_by))
    else:
        with pytest.raises(PartitionSpecError, match="cannot"):
            check_update(old, new, {1: old.schema})


def test_the_source_of_a_partition_function_keeps_its_type() -> None:
    """A long -1 has another hash code than an int -1."""
    old = described(one("int"), partition_by="hash(a, 53)")
    new = described(one("long"), partition_by="hash(a, 53)")

    with pytest.raises(PartitionSpecError, match=r"it cannot become long"):
        check_update(old, new, {1: old.schema})


def test_the_source_of_a_partition_function_may_become_nullable() -> None:
    old = described(one("int"), partition_by="hash(a, 53)")
    new = described(one(["null", "int"]), partition_by="hash(a, 53)")

    check_update(old, new, {1: old.schema})


def test_every_historic_schema_must_stay_readable() -> None:
    """Behaviour 35: each step fits its predecessor, yet schema 1 holds texts under that name."""
    texts, nothing, numbers = (
        described(one(["null", "string"], "foo")),
        described(one(["null", "string"], "bar")),
        described(one(["null", "int"], "foo")),
    )
    check_update(texts, nothing, {1: texts.schema})
    check_update(nothing, numbers, {2: nothing.schema})

    with pytest.raises(Refused, match=r"'foo' is of type string in schema 1"):
        check_update(nothing, numbers, {1: texts.schema, 2: nothing.schema})


_LEAVES: st.SearchStrategy[Type] = st.sampled_from(
    [Primitive(kind) for kind in (Kind.INT, Kind.LONG, Kind.FLOAT, Kind.DOUBLE, Kind.STRING)]
    + [Decimal(5, 2), Decimal(9, 2), Decimal(12, 4)]
)


def _records(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[tuple[Field, ...]]:
    fields = st.builds(Field, name=st.sampled_from("abc"), type=inner, nullable=st.booleans())
    return st.lists(fields, min_size=1, max_size=3, unique_by=lambda f: f.name).map(tuple)


_TYPES: st.SearchStrategy[Type] = st.recursive(
    _LEAVES,
    lambda inner: (
        st.builds(ListOf, inner, st.booleans())
        | st.builds(MapOf, inner, st.booleans())
        | st.builds(Struct, _records(inner))
    ),
    max_leaves=4,
)
SCHEMAS = st.builds(Schema, fields=_records(_TYPES))


def allowed(old: Schema, new: Schema) -> bool:
    try:
        check_schema(old, new, 1)
    except Refused:
        return False
    return True


@given(SCHEMAS, SCHEMAS)
def test_a_schema_reads_itself_and_two_that_read_each_other_differ_in_nothing_that_counts(
    one: Schema, other: Schema
) -> None:
    assert allowed(one, one)
    if allowed(one, other) and allowed(other, one):
        shared = [f for f in one if f.name in other]
        assert [f.nullable for f in shared] == [other.get(f.name).nullable for f in shared]


@given(st.lists(SCHEMAS, min_size=2, max_size=5))
def test_lineage_survives_storage_and_tells_what_each_schema_held(schemas: list[Schema]) -> None:
    lineage, past = Lineage(), [schemas[0]]
    for wanted in schemas[1:]:
        if wanted.fields == past[-1].fields or not all(allowed(one, wanted) for one in past):
            continue
        lineage = lineage.after(
            DatasetDescriptor(schema=past[-1]), DatasetDescriptor(schema=wanted)
        )
        past.append(wanted)

    assert lineage.number == len(past)
    current = past[-1]
    if lineage.number > 1:
        now = DatasetDescriptor(schema=current)
        assert Lineage.from_document(lineage.to_document(current), now) == lineage
    for number, older in enumerate(past, start=1):
        reading = lineage.reading(current, number)
        # A name that an intermediate schema lacked is another field since then.
        lacking = {
            f.name for f in current if any(f.name not in schema for schema in past[number - 1 :])
        }
        assert set(reading.constants) == lacking
        for name, held in {**reading.promoted, **reading.rebuilt}.items():
            assert held == older.get(name).type or name in reading.rebuilt
    assert lineage.reading(current, None) == AS_IT_IS


def test_a_changed_default_is_none_of_older_files() -> None:
    steps = [
        described(),
        described(one("int", default=1)),
        described(one("int", default=2)),
        described(one("double", default=3.0)),
    ]
    lineage = Lineage()
    for old, new in itertools.pairwise(steps):
        lineage = lineage.after(old, new)

    assert lineage.reading(steps[-1].schema, 1).constants == {"a": 1.0}
    assert lineage.reading(steps[-1].schema, 2).promoted == {"a": Primitive(Kind.INT)}


def test_defaults_of_every_type_are_kept() -> None:
    fields = [
        one("boolean", "boolean", default=True),
        one("bytes", "bytes", default="\u00ff"),
        one(DATE, "date", default=-1),
        one(INSTANT, "instant", default=1),
        one(WALL, "wall", default=-1),
        one(money(9, 2), "money", default="\u00ff"),
        one(["string", "null"], "text", default="ä"),
        one({"type": "array", "items": "int"}, "list", default=[]),
        one({"type": "map", "values": "int"}, "map", default={}),
    ]
    old, new = described(), described(*fields)

    lineage = Lineage().after(old, new)

    stored = Lineage.from_document(lineage.to_document(new.schema), new)
    assert stored.reading(new.schema, 1).constants == {
        "boolean": True,
        "bytes": b"\xff",
        "date": dt.date(1969, 12, 31),
        "instant": dt.datetime(1970, 1, 1, microsecond=1, tzinfo=dt.UTC),
        "wall": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
        "money": decimal.Decimal("-0.01"),
        "text": "ä",
        "list": [],
        "map": {},
    }


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        {"number": 1},
        {"number": True},
        {"number": 2, "additions": {"nobody": {"since": 2}}},
        {"number": 2, "additions": {"a": {"since": 3}}},
        {"number": 2, "additions": {"a": {"since": 2, "initial": "text"}}},
        {"number": 2, "types": {"a": [{"until": 2, "type": "no type"}]}},
        {"number": 2, "types": {"a": [{"until": "2", "type": "int"}]}},
        {"number": 2, "types": {"nobody": []}},
        {"number": 2, "replaced": 5},
        {"number": 2, "ids": {}},
        {"number": 2, "ids": {"by_path": {"id": 1, "a": 2}, "last": 3}},
        {"number": 2, "ids": {"by_path": {"id": 1, "a": 2, "batch_id": 2}, "last": 3}},
        {"number": 2, "ids": {"by_path": {"id": 0, "a": 1, "batch_id": 2}, "last": 3}},
        {"number": 2, "ids": {"by_path": {"id": 1, "a": 2, "batch_id": 3}, "last": 2}},
        {"number": 2, "ids": {"by_path": {"id": 1, "a": 2, "batch_id": "3"}, "last": 3}},
        {"number": 2, "ids": {"by_path": {"id": True, "a": 2, "batch_id": 3}, "last": 3}},
        {"number": 2, "ids": {"by_path": {"id": 1, "a": 2, "batch_id": 3}, "last": 10**9}},
        {"number": 0, "ids": {"by_path": {"id": 1, "a": 2, "batch_id": 3}, "last": 3}},
    ],
)
def test_a_damaged_lineage_is_refused(document: Any) -> None:
    whole = {"additions": {}, "types": {}, "replaced": []}
    if document is not None:
        document = {**whole, **document}

    with pytest.raises(CorruptMetadataError, match="lineage"):
        Lineage.from_document(document, described(one("long")))


def test_what_is_known_of_constants_is_taken_out_of_a_predicate() -> None:
    is_five, is_null = Comparison("a", Op.EQ, 5), NullCheck("a")
    other = Comparison("id", Op.GT, 1)

    assert simplify(all_of([is_five, other]), {"a": 5}) == other
    assert simplify(all_of([is_five, other]), {"a": 6}) == FALSE
    assert simplify(any_of([is_five, other]), {"a": None}) == other
    assert simplify(is_null, {"a": None}) == TRUE
    assert simplify(NullCheck("a.b"), {"a": None}) == TRUE
    assert simplify(all_of([is_five, other]), {}) == all_of([is_five, other])


def test_changes_are_told_for_a_person() -> None:
    old = schema(one("int"), one("int", "b"))
    new = schema(one(["null", "long"], doc="d"), one("int", "c", default=1))

    assert changes(old, new) == ("-b", "a: int to long", "a: nullable", "a: doc", "+c: int")
    assert changes(old, schema(one("int", "b"), one("int"))) == ("order",)
    assert changes(old, old) == ()

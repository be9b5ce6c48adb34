"""telemetry_schema.json: what it may say, and where it is wrong."""

import json

import pytest
from dimension_documents import TELEMETRY, UNIFIED, document
from hypothesis import given
from hypothesis import strategies as st

from lakebed import DimensionSchema
from lakebed.errors import InvalidInputError, PartitionSpecError, UnsupportedVersionError
from lakebed.model.allowed import AnyValue, Between, Matching, OneOf, read_allowed
from lakebed.model.schema import Kind, Primitive

KINDS = document(
    ("any", "*"),
    ("list", ["a", "b"]),
    ("none", []),
    ("text", "only"),
    ("range", {"min": "a", "max": "c"}),
    ("number", {"min": 448, "type": "long"}),
    ("open", {}),
    ("pattern", {"regex": r"2[0-9]\..*"}),
)


def test_every_kind_is_read() -> None:
    schema = DimensionSchema.from_json(KINDS)

    assert [rule.allowed for rule in schema] == [
        AnyValue(),
        OneOf(("a", "b")),
        OneOf(()),
        OneOf(("only",)),
        Between(min="a", max="c"),
        Between(min=448, read_as=Kind.LONG),
        Between(),
        Matching(r"2[0-9]\..*"),
    ]


@pytest.mark.parametrize("text", [KINDS, TELEMETRY, UNIFIED])
def test_schema_survives_its_document(text: str) -> None:
    schema = DimensionSchema.from_json(text)

    assert DimensionSchema.from_json(schema.to_json()) == schema


def test_cap_of_a_dimension_is_read() -> None:
    text = '{"version": 1, "dimensions": [{"field_name": "v", "allowed_values": "*", "cap": 7}]}'

    schema = DimensionSchema.from_json(text)

    assert schema.get("v").cap == 7
    assert DimensionSchema.from_json(schema.to_json()) == schema


def rule(**changes: object) -> dict:
    return {"field_name": "a", "allowed_values": "*", **changes}


@pytest.mark.parametrize(
    ("dimensions", "place"),
    [
        ([], "dimensions: "),
        ({"a": 1}, "dimensions: "),
        ([rule(), "text"], r"dimensions\[1\]: "),
        ([{"allowed_values": "*"}], r"dimensions\[0\]\.field_name is missing"),
        ([{"field_name": "a"}], r"dimensions\[0\]\.allowed_values is missing"),
        ([rule(field_name=7)], r"dimensions\[0\]\.field_name: 7"),
        ([rule(field_name="")], r"dimensions\[0\]\.field_name: ''"),
        ([rule(), rule()], r"dimensions\[1\]\.field_name: 'a' appears twice"),
        ([rule(is_variable=True)], r"dimensions\[0\]\.is_variable: unknown"),
        ([rule(cap=0)], r"dimensions\[0\]\.cap: 0"),
        ([rule(cap=None)], r"dimensions\[0\]\.cap: None"),
        ([rule(allowed_values=None)], r"dimensions\[0\]\.allowed_values: None"),
        ([rule(allowed_values=5)], r"dimensions\[0\]\.allowed_values: 5"),
        ([rule(allowed_values=True)], r"dimensions\[0\]\.allowed_values: True"),
        ([rule(allowed_values=["x", None])], r"dimensions\[0\]\.allowed_values\[1\]: None"),
        ([rule(allowed_values=["x", ["y"]])], r"dimensions\[0\]\.allowed_values\[1\]: "),
        ([rule(allowed_values=[float("nan")])], r"dimensions\[0\]\.allowed_values\[0\]: nan"),
        ([rule(allowed_values=["\ud800"])], r"dimensions\[0\]\.allowed_values\[0\]"),
        ([rule(allowed_values={"min": None})], r"dimensions\[0\]\.allowed_values\.min: None"),
        ([rule(allowed_values={"min": True})], "A range of booleans"),
        ([rule(allowed_values={"from": 1})], r"dimensions\[0\]\.allowed_values: unknown kind"),
        ([rule(allowed_values={"min": 1, "type": "text"})], r"allowed_values\.type: 'text'"),
        ([rule(allowed_values={"min": 1, "type": []})], r"allowed_values\.type: \[\]"),
        ([rule(allowed_values={"regex": 1})], r"allowed_values\.regex: 1"),
        ([rule(allowed_values={"regex": "("})], r"allowed_values\.regex: '\('"),
        ([rule(allowed_values={"regex": r"(a)\1"})], r"allowed_values\.regex"),
        ([rule(allowed_values={"regex": r"\Qa"})], r"allowed_values\.regex"),
        ([rule(allowed_values={"regex": "a", "min": 1})], "unknown kind"),
        ([rule(allowed_values={"regex": "a" * 1001})], "1001 characters"),
        ([rule(allowed_values=["x"] * 10_001)], "a list of 10001 values"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(dimensions: object, place: str) -> None:
    with pytest.raises(PartitionSpecError, match=place):
        DimensionSchema.from_document({"version": 1, "dimensions": dimensions})


@pytest.mark.parametrize(
    ("head", "error", "message"),
    [
        ({"version": "1"}, PartitionSpecError, "version: '1'"),
        ({"version": True}, PartitionSpecError, "version: True"),
        ({"version": 3}, UnsupportedVersionError, "version 3"),
        ({"version": None}, PartitionSpecError, "version: None"),
        ({"version": 1, "more": 1}, PartitionSpecError, "more: unknown"),
    ],
)
def test_version_is_checked(head: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        DimensionSchema.from_document({"dimensions": [rule()], **head})


def test_version_may_be_left_out() -> None:
    schema = DimensionSchema.from_document({"dimensions": [rule()]})

    assert schema == DimensionSchema.from_document({"version": 1, "dimensions": [rule()]})
    assert DimensionSchema.from_json(schema.to_json()) == schema
    with pytest.raises(PartitionSpecError, match="dimensions is missing"):
        DimensionSchema.from_document({"version": 1})


@pytest.mark.parametrize("found", ["[]", "[1]", '["version"]'])
def test_document_is_an_object(found: str) -> None:
    with pytest.raises(PartitionSpecError, match="the document"):
        DimensionSchema.from_json(found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["field_name", "allowed_values", "min", "max", "type", "regex", "cap"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_whatever_stands_there_is_read_or_refused(found: object) -> None:
    text = json.dumps({"version": 1, "dimensions": [rule(allowed_values=found), found]})

    try:
        schema = DimensionSchema.from_json(text)
    except InvalidInputError:
        return

    assert DimensionSchema.from_json(schema.to_json()) == schema


def test_functions_take_the_names_that_they_are_given() -> None:
    schema = DimensionSchema.from_json(document(("appName", ["Firefox"]), ("appVersion", "*")))

    plain = schema.partition_by()
    nested = schema.partition_by(sources={"appName": "app.name"}, names={"appVersion": "version"})

    assert [f.name for f in plain] == ["appName_dimension", "appVersion_dimension"]
    assert [f.source for f in nested] == ["app.name", "appVersion"]
    assert [f.name for f in nested] == ["app_name_dimension", "version"]
    with pytest.raises(InvalidInputError, match="Did you mean 'appName'"):
        schema.partition_by(names={"appNam": "x"})


@pytest.mark.parametrize(
    ("allowed", "kind", "yes", "no"),
    [
        ({"min": 9, "max": 20}, Kind.LONG, [9, 10, 20], [8, 21, 100]),
        ({"min": "9", "max": "20"}, Kind.INT, [9, 10, 20], [8, 21, 100]),
        ({"min": 9, "type": "long"}, Kind.STRING, ["9", "10", "+9"], ["8", "OTHER", "", "9.5"]),
        ({"min": 0.5, "type": "double"}, Kind.STRING, ["1e3", "0.5"], ["nan", "0.4", "x"]),
        ({"min": "9"}, Kind.STRING, ["9", "OTHER"], ["10", ""]),
        ({"max": "2013-06-07", "type": "date"}, Kind.STRING, ["2013-06-07"], ["2013-06-08", "9"]),
        ({"regex": "a|bc"}, Kind.STRING, ["a", "bc"], ["ab", "abc", "a\n", "xa", ""]),
        (["1", "2"], Kind.LONG, [1, 2], [3, 12]),
        ([1, 2], Kind.LONG, [1, 2], [3]),
        ([True], Kind.BOOLEAN, [True], [False]),
        ("true", Kind.BOOLEAN, [True], [False]),
        ("*", Kind.BOOLEAN, [True, False], []),
    ],
)
def test_values_are_compared_in_the_type_of_the_field(allowed, kind, yes, no) -> None:
    bound = read_allowed(allowed, "here").bind(Primitive(kind), "here")

    assert [value for value in (*yes, *no) if bound.allows(value)] == yes


@pytest.mark.parametrize(
    ("allowed", "kind", "message"),
    [
        (["a"], Kind.LONG, "here: Text 'a' is not a valid long"),
        ([1], Kind.STRING, "here: Value 1"),
        ([1.5], Kind.LONG, "here: Value 1.5"),
        ([True], Kind.LONG, "here: Value True"),
        ({"min": 5}, Kind.STRING, "here: a range of numbers"),
        ({"min": "a"}, Kind.BOOLEAN, "here: a range of booleans"),
        ({"min": 5, "max": 4}, Kind.LONG, "is above max"),
        ({"min": 5, "type": "long"}, Kind.DATE, "a range of long does not fit values of type date"),
        ({"regex": "a"}, Kind.LONG, "here: a regular expression"),
    ],
)
def test_values_of_another_type_than_the_field_are_refused(allowed, kind, message) -> None:
    with pytest.raises(PartitionSpecError, match=message):
        read_allowed(allowed, "here").bind(Primitive(kind), "here")


def test_hostile_pattern_takes_no_longer_for_a_hostile_text() -> None:
    rule = Matching("(a+)+b").bind(Primitive(Kind.STRING), "here")

    assert not rule.allows("a" * 100_000)  # a backtracking engine would not come back

"""Names, and partition values as directory levels."""

import datetime as dt
import math
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakebed.errors import CorruptMetadataError, InvalidNameError, PartitionSpecError
from lakebed.model.keys import (
    NULL_VALUE,
    check_under,
    decode_path,
    encode_level,
    encode_path,
    partition_of,
    split_label,
)
from lakebed.model.names import (
    MAX_COMPONENT_BYTES,
    MAX_DATASET_NAME_LENGTH,
    check_dataset_name,
    check_field_name,
    check_partition_name,
    nearest,
    split_names,
)
from lakebed.model.schema import Kind, Primitive
from lakebed.store.base import validate_key

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = {
    Kind.BOOLEAN: st.booleans(),
    Kind.INT: st.integers(-(2**31), 2**31 - 1),
    Kind.LONG: st.integers(-(2**63), 2**63 - 1),
    Kind.UNSIGNED_LONG: st.integers(0, 2**64 - 1),
    Kind.FLOAT: st.floats(width=32),
    Kind.DOUBLE: st.floats(),
    Kind.STRING: TEXT,
    Kind.DATE: st.dates(),
    Kind.TIMESTAMP: st.datetimes(timezones=st.just(dt.UTC)),
    Kind.TIMESTAMP_NTZ: st.datetimes(),
}
TYPED = st.sampled_from(list(VALUES)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.none() | VALUES[kind])
)
LEVELS = st.dictionaries(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_]{0,8}", fullmatch=True), TYPED)


def same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or (one == other and math.copysign(1, one) == math.copysign(1, other))
    return one == other and type(one) is type(other)


@given(LEVELS)
@example({"a": (Kind.STRING, "a/b")})
@example({"a": (Kind.STRING, "%2F")})
@example({"a": (Kind.STRING, NULL_VALUE)})
@example({"a": (Kind.STRING, "")})
@example({"a": (Kind.STRING, "..")})
@example({"a": (Kind.STRING, "a=b&c d+~*\\\t\n'日本\U0001f600\0")})
@example({"a": (Kind.BOOLEAN, False), "b": (Kind.TIMESTAMP, dt.datetime(1, 1, 1, tzinfo=dt.UTC))})
def test_every_value_of_every_type_survives_its_path(levels: dict) -> None:
    values = {name: value for name, (_, value) in levels.items()}
    types = {name: Primitive(kind) for name, (kind, _) in levels.items()}

    path = encode_path(values)
    found = decode_path(path, types)

    assert list(found) == list(values)
    assert all(same(found[name], values[name]) for name in values)


@given(LEVELS.filter(bool))
def test_path_is_a_legal_key_with_one_component_a_level(levels: dict) -> None:
    values = {name: value for name, (_, value) in levels.items()}

    path = encode_path(values)

    assert validate_key(path) == path
    assert path.count("/") == len(values) - 1
    assert re.fullmatch(r"[A-Za-z0-9_.~%=/-]*", path)


@given(TEXT, TEXT)
def test_two_values_never_share_a_level(one: str, other: str) -> None:
    assert (encode_level("a", one) == encode_level("a", other)) is (one == other)


@pytest.mark.parametrize(
    ("value", "level"),
    [
        ("a=b", "x=a%3Db"),
        ("100%", "x=100%25"),
        ("NY/USA", "x=NY%2FUSA"),
        ("John Doe", "x=John%20Doe"),
        ("a,b", "x=a%2Cb"),
        ("a+b", "x=a%2Bb"),
        ("\t", "x=%09"),
        ("日本", "x=%E6%97%A5%E6%9C%AC"),
        ("", "x="),
        (None, "x=__HIVE_DEFAULT_PARTITION__"),
        (dt.date(2013, 9, 2), "x=2013-09-02"),
        (True, "x=True"),
    ],
)
def test_level_reads_as_hive_and_kartothek_expect(value: object, level: str) -> None:
    assert encode_level("x", value) == level


def test_longest_level_fits_a_file_name() -> None:
    longest = "a" * (MAX_COMPONENT_BYTES - len("x="))

    assert len(encode_level("x", longest)) == MAX_COMPONENT_BYTES
    with pytest.raises(PartitionSpecError, match=r"'x' needs 256 bytes.*hash\(x"):
        encode_level("x", longest + "a")
    with pytest.raises(PartitionSpecError):
        encode_level("x", "é" * 43)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a=1",
        "a=1/b=2/c=3",
        "b=2/a=1",
        "a=1/b",
        "a/b=2",
        "a=1//b=2",
        "/a=1/b=2",
        "a=1/b=2/",
        "a=1/b=x=2",
        "a=1/B=2",
        "a=x/b=2",
        "a=/b=2",
        "a=1.0/b=2",
        "a=1/b=%FF",
        "a=%ZZ/b=2",
        "a=9999999999/b=2",
    ],
)
def test_path_that_does_not_fit_is_corrupt(path: str) -> None:
    types = {"a": Primitive(Kind.INT), "b": Primitive(Kind.STRING)}

    with pytest.raises(CorruptMetadataError):
        decode_path(path, types)


def test_kites_padded_numbers_are_read() -> None:
    types = {"year": Primitive(Kind.INT), "month": Primitive(Kind.INT)}

    assert decode_path("year=2013/month=09", types) == {"year": 2013, "month": 9}


@pytest.mark.parametrize("name", ["flights", "a-b+c_9", "9", "_x", "x" * MAX_DATASET_NAME_LENGTH])
def test_dataset_name_of_kartotheks_rule_is_legal(name: str) -> None:
    assert check_dataset_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a.b",
        "a/b",
        "../a",
        "a b",
        "ä",
        "a\n",
        "\na",
        "a\0",
        "x" * (MAX_DATASET_NAME_LENGTH + 1),
        5,
        None,
        b"flights",
        Path("flights"),
        pytest.param(10**5000, id="5,001 digits"),
    ],
)
def test_illegal_dataset_name_is_refused(name: object) -> None:
    with pytest.raises(InvalidNameError):
        check_dataset_name(name)


@pytest.mark.parametrize("name", ["foo", "Foo", "3foo", "_foo", "foo3", "foo_bar"])
def test_kites_field_names_are_legal(name: str) -> None:
    assert check_field_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["foo-bar", "foo*", "Größe", "中", "air time", "a/b", "a=b", "50%", "[EUR]", "'\"", "%2e"],
)
def test_letters_signs_and_spaces_are_legal_in_field_names(name: str) -> None:
    assert check_field_name(name) == name
    assert check_partition_name(name) == name
    assert split_names(f"x, `{name}`,y") == ["x", name, "y"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("foo.bar", "dot"),
        ("..", "dot"),
        ("", "empty"),
        ("foo\n", "U\\+000A"),
        ("a\0b", "U\\+0000"),
        ("a\u200bb", "U\\+200B"),
        ("a\u00a0b", "U\\+00A0"),
        ("\ud800", "U\\+D800"),
        (" a", "space"),
        ("a ", "space"),
        ("a`b", "backtick"),
        ("a[]", "elements"),
        ("{}a", "elements"),
        (3, "not text"),
    ],
)
def test_illegal_field_name_is_refused_with_its_reason(name: object, reason: str) -> None:
    with pytest.raises(InvalidNameError, match=reason):
        check_field_name(name)


@pytest.mark.parametrize("name", ["foo.bar", "a`b", "", "foo\n", "."])
def test_illegal_field_name_is_refused_with_a_suggestion(name: str) -> None:
    with pytest.raises(InvalidNameError) as caught:
        check_field_name(name)

    (suggestion,) = re.findall(r"for example to '(\w+)'", caught.value.hint)
    assert check_field_name(suggestion) == suggestion


@pytest.mark.parametrize("name", ["_foo", "__", "_"])
def test_partition_field_that_readers_would_hide_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError, match="hide"):
        check_partition_name(name)


def test_nearest_name_is_a_question_or_nothing() -> None:
    assert nearest("carier", ["carrier", "origin"]) == "Did you mean 'carrier'?"
    assert nearest("zzz", ["carrier", "origin"]) == ""
    assert nearest("", ["carrier"]) == ""


def test_nearest_name_is_the_one_that_differs_by_its_case_only() -> None:
    assert nearest("ID", ["idea", "id", "name"]) == "Did you mean 'id'?"


def test_nearest_name_is_the_only_one_that_begins_so() -> None:
    assert nearest("hist", ["list", "history"]) == "Did you mean 'history'?"
    assert nearest("un", ["unprotect", "unpublish", "run"]) == "Did you mean 'run'?"


@pytest.mark.parametrize(
    ("label", "directory", "partition"),
    [
        ("a=1/batch_id=5/part-0", "a=1/batch_id=5", "a=1"),
        ("batch_id=5/part-0", "batch_id=5", ""),
        ("a=1/part-0", "a=1", "a=1"),
        ("part-0", "", ""),
        ("a=batch_id%3D5/part-0", "a=batch_id%3D5", "a=batch_id%3D5"),
    ],
)
def test_label_says_directory_and_partition(label: str, directory: str, partition: str) -> None:
    found, tail = split_label(label)

    assert (found, tail) == (directory, "part-0")
    assert partition_of(found) == partition


@pytest.mark.parametrize("key", ["b/x", "a/../b", "a/..", "ab/x", "/a/x", "a/\0"])
def test_reference_that_leaves_its_prefix_is_corrupt(key: str) -> None:
    with pytest.raises(CorruptMetadataError, match="outside 'a/'"):
        check_under(key, "a/")


def test_reference_under_its_prefix_is_returned() -> None:
    assert check_under("a/x..y", "a/") == "a/x..y"

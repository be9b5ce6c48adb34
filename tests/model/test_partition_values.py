"""Partition functions: their two faces hold the same, and Kite's vectors."""

import datetime as dt

import pyarrow as pa
import pytest
from effort import cases
from hypothesis import given
from hypothesis import strategies as st
from partition_cases import CASES, accepted, function_of, values_of

from lakebed import by
from lakebed.errors import InvalidInputError, PartitionSpecError
from lakebed.model.arrow_types import schema_to_arrow, type_to_arrow
from lakebed.model.partition import CALENDAR_UNITS, PartitionStrategy, build_function
from lakebed.model.schema import Field, Kind, Primitive, Schema, Struct


def check_faces(text: str, kind: Kind, count: int) -> None:
    function, source = function_of(text), Primitive(kind)
    values = accepted(function, kind, values_of(kind, count, seed=count))
    values[3:3] = [None]
    result = type_to_arrow(function.result_type(source))

    found = function.array(pa.array(values, type_to_arrow(source)), source)

    assert found.type == result
    alone = [None if value is None else function.value(value, source) for value in values]
    # As text, in which NaN equals itself.
    same = [str(one) == str(other) for one, other in zip(found.to_pylist(), alone, strict=True)]
    assert all(same), values[same.index(False)]


@pytest.mark.parametrize(("text", "kind"), CASES)
def test_column_gives_what_each_value_gives(text: str, kind: Kind) -> None:
    check_faces(text, kind, cases(300))


@pytest.mark.long
@pytest.mark.parametrize(("text", "kind"), CASES)
def test_column_gives_what_each_of_many_values_gives(text: str, kind: Kind) -> None:
    check_faces(text, kind, 12_000)


@pytest.mark.parametrize(
    ("text", "kind"),
    [c for c in CASES if len(accepted(function_of(c[0]), c[1], values_of(c[1], 50)))
     < len(values_of(c[1], 50))],
)  # fmt: skip
def test_value_without_a_partition_is_refused_by_both_faces(text: str, kind: Kind) -> None:
    function, source = function_of(text), Primitive(kind)
    values = values_of(kind, 50)
    fits = accepted(function, kind, values)

    for value in [value for value in values if value not in fits][:20]:
        with pytest.raises(PartitionSpecError) as alone:
            function.value(value, source)
        with pytest.raises(PartitionSpecError) as column:
            function.array(pa.array([*fits[:2], None, value], type_to_arrow(source)), source)
        assert repr(value) in alone.value.message
        assert column.value.message == alone.value.message


# Kite's vectors


@pytest.mark.parametrize(
    ("value", "kind", "buckets"),
    [
        (-1, Kind.INT, (1, 15, 47, 20)),
        (1234, Kind.INT, (0, 2, 34, 15)),
        (1234, Kind.LONG, (0, 2, 34, 15)),
        (-(2**31), Kind.INT, (0, 0, 0, 0)),
        (-1, Kind.LONG, (0, 0, 0, 0)),
        (4294967296, Kind.LONG, (1, 1, 1, 1)),
        (2**63 - 1, Kind.LONG, (0, 0, 0, 0)),
        ("", Kind.STRING, (0, 0, 0, 0)),
        ("a", Kind.STRING, (1, 1, 47, 44)),
        ("b", Kind.STRING, (0, 2, 48, 45)),
        ("green", Kind.STRING, (1, 3, 39, 25)),
        ("orange", Kind.STRING, (0, 14, 38, 7)),
        ("jane", Kind.STRING, (0, 14, 24, 3)),
        ("polygenelubricants", Kind.STRING, (0, 0, 0, 0)),
        ("h\u00e9llo", Kind.STRING, (0, 14, 34, 35)),
        (True, Kind.BOOLEAN, (1, 15, 31, 12)),
        (False, Kind.BOOLEAN, (1, 5, 37, 18)),
        (1.5, Kind.FLOAT, (0, 0, 20, 47)),
        (1.5, Kind.DOUBLE, (0, 0, 36, 25)),
        (0.0, Kind.DOUBLE, (0, 0, 0, 0)),
    ],
)
def test_vectors_19_1_hash_goes_by_the_type_of_the_schema(value, kind, buckets) -> None:
    source = Primitive(kind)
    column = pa.array([value], type_to_arrow(source))
    functions = [by.hash("a", count) for count in (2, 16, 50, 53)]

    assert tuple(function.value(value, source) for function in functions) == buckets
    assert tuple(f.array(column, source).to_pylist()[0] for f in functions) == buckets


@pytest.mark.parametrize("kind", [Kind.INT, Kind.LONG])
@pytest.mark.parametrize(
    ("text", "values", "images"),
    [
        ("range(a, 5, 10, 15, 20)", [-100, 5, 6, 10, 11, 15, 20], [0, 0, 1, 1, 2, 2, 3]),
        ("fixed_range(a, 10)", [0, 9, 10, 11, -1, -10], [0, 0, 10, 10, -10, -10]),
        ("values(a, [7, 14], [11, 14])", [14, 11, 7], [0, 1, 0]),
    ],
)
def test_vectors_19_2_ranges(kind: Kind, text: str, values: list, images: list) -> None:
    function, source = function_of(text), Primitive(kind)

    assert [function.value(value, source) for value in values] == images
    assert function.array(pa.array(values, type_to_arrow(source)), source).to_pylist() == images


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("range(a, 5, 10, 15, 20)", 21),
        ("values(a, [7, 14], [11, 14])", 12),
        ("range(a, 'b')", "c"),
        ("values(a, ['b'])", "c"),
    ],
)
def test_vectors_19_2_value_without_a_place_is_an_error_that_names_it(text: str, value) -> None:
    kind = Kind.STRING if isinstance(value, str) else Kind.LONG

    with pytest.raises(PartitionSpecError, match=f"value {value!r}"):
        function_of(text).value(value, Primitive(kind))


def test_defect_20_11_fixed_ranges_are_exact_at_the_ends_of_a_long() -> None:
    function, source = by.fixed_range("a", 10), Primitive(Kind.LONG)
    values = [2**63 - 1, 2**63 - 8, 2**63 - 9, -(2**63), -(2**63) + 7, -(2**63) + 8]

    found = function.array(pa.array(values, pa.int64()), source).to_pylist()

    top, least = 9223372036854775800, -(2**63)
    assert found == [top, top, top - 10, least, least, -9223372036854775800]
    assert [function.value(value, source) for value in values] == found
    # The lowest range begins where a long does, and counts what it holds.
    assert function.count_of(least, source) == 8
    assert function.count_of(top, source) == 8


def test_text_ranges_go_by_utf_16_code_units_as_in_java() -> None:
    # U+1F600 is a surrogate pair that begins with 0xD83D, which is less than 0xE000.
    function, source = by.range("a", ["m", "\U0001f600", "\ue000"]), Primitive(Kind.STRING)

    found = [function.value(text, source) for text in ("a", "m", "n", "\ud7ff", "\ue000")]

    assert found == ["m", "m", "\U0001f600", "\U0001f600", "\ue000"]


@pytest.mark.parametrize(
    ("millis", "parts"),
    [
        (1384912178434, (2013, 11, 20, 1, 49)),
        (1379020547042, (2013, 9, 12, 21, 15)),
        (1384204547042, (2013, 11, 11, 21, 15)),
        (0, (1970, 1, 1, 0, 0)),
        (-1, (1969, 12, 31, 23, 59)),
        (-86400000, (1969, 12, 31, 0, 0)),
        (253402300800000, (10000, 1, 1, 0, 0)),
    ],
)
@pytest.mark.parametrize(("unit", "ticks_a_milli"), [("ms", 1), ("us", 10**3)])
def test_vectors_19_3_calendar_of_numbers(millis: int, parts, unit: str, ticks_a_milli) -> None:
    source = Primitive(Kind.LONG)
    functions = [build_function(part, "ts", {"unit": unit}) for part in CALENDAR_UNITS]

    assert tuple(f.value(millis * ticks_a_milli, source) for f in functions) == parts


@pytest.mark.parametrize(
    ("millis", "pattern", "text"),
    [
        (1384912178434, "yyyy_MM_dd_HHmmss", "2013_11_20_014938"),
        (1384912178434, "MM-dd", "11-20"),
        (1384912178434, "D", "324"),
        (1384912178434, "yy", "13"),
        (-1, "YYYY-'W'ww", "1970-W01"),
        (1384912178434, "EEE, EEEE d MMM MMMM y", "Wed, Wednesday 20 Nov November 2013"),
        (1384912178434, "h a K k S SSS SSSSS u", "1 AM 1 1 434 434 00434 3"),
        (1384912178434, "HH'o''clock' ''", "01o'clock '"),
        (1384912178434, "''''", "''"),
        (0, "k h K a", "24 12 0 AM"),
        (1356825600000, "YYYY ww", "2013 01"),  # Sunday, 2012-12-30
    ],
)
def test_vectors_19_3_date_format(millis: int, pattern: str, text: str) -> None:
    function = by.date_format("ts", pattern)
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=millis)

    assert function.value(millis, Primitive(Kind.LONG)) == text
    assert function.value(moment, Primitive(Kind.TIMESTAMP)) == text


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("yyyy/MM", "leave out '/'"),
        ("'a/b'", "leave out '/'"),
        ("yyyy-MM-dd'T", "not closed"),
        ("yyyy Z", "letter 'Z' is not supported"),
        ("yyyy G", "letter 'G' is not supported"),
        ("yyyy \u00e9 T", "letter 'T'"),
        ("", "Give one such as"),
        ("y" * 31, "at most 30"),
        (5, "Give one such as"),
    ],
)
def test_pattern_that_is_not_supported_is_refused_by_name(pattern, message: str) -> None:
    with pytest.raises(PartitionSpecError, match=message):
        by.date_format("ts", pattern)


def test_day_outside_the_years_of_a_date_is_refused_by_value() -> None:
    function, source = by.date("ts"), Primitive(Kind.LONG)

    assert function.value(253402300799999, source) == dt.date.max
    for value in (253402300800000, -62135596800001):
        with pytest.raises(PartitionSpecError, match=str(value)):
            function.value(value, source)
        with pytest.raises(PartitionSpecError, match=str(value)):
            function.array(pa.array([0, None, value]), source)


# Nested sources and provided values

NESTED = Schema(
    fields=(
        Field(
            name="position",
            type=Struct(
                (
                    Field(name="latitude", type=Primitive(Kind.LONG)),
                    Field(
                        name="inner",
                        type=Struct((Field(name="name", type=Primitive(Kind.STRING)),)),
                    ),
                )
            ),
        ),
        Field(name="n", type=Primitive(Kind.LONG)),
    )
)


def test_nested_sources_have_flat_names_and_null_where_a_record_is_null() -> None:
    strategy = PartitionStrategy.parse(
        "hash(position.latitude, 7), position.inner.name, range(position.latitude, 5, 10)"
    )
    strategy.check(NESTED)
    rows = [
        {"position": {"latitude": 8, "inner": {"name": "x"}}, "n": 1},
        {"position": {"latitude": None, "inner": None}, "n": 2},
        {"position": None, "n": 3},
    ]
    # A null record over values that are not: a writer of Arrow may leave them there.
    batch = pa.RecordBatch.from_pylist(rows, schema=schema_to_arrow(NESTED))
    hidden = pa.StructArray.from_arrays(
        [pa.array([8, None, 99]), batch.column("position").field("inner")],
        fields=list(batch.schema.field("position").type),
        mask=pa.array([False, False, True]),
    )
    batch = batch.set_column(0, batch.schema.field("position"), hidden)

    columns = strategy.arrays(batch, NESTED)

    names = ["position_latitude_hash", "position_inner_name", "position_latitude_bound"]
    found = pa.RecordBatch.from_arrays(columns, names=names).to_pylist()
    assert [function.name for function in strategy] == names
    assert found == [strategy.values(row, NESTED) for row in rows]
    assert list(found[0].values()) == [1, "x", 1]
    assert all(value is None for row in found[1:] for value in row.values())
    assert strategy.stored_names(NESTED) == ("position", "n")


@pytest.mark.parametrize("source", ["position.longitude", "n.x", "position.inner.name.x", "no.x"])
def test_nested_source_that_is_missing_is_refused(source: str) -> None:
    with pytest.raises(PartitionSpecError, match="is not in the schema"):
        PartitionStrategy((by.hash(source, 3),)).check(NESTED)


def test_provided_value_comes_with_the_write() -> None:
    strategy = PartitionStrategy((by.provided("version", "int"), by.hash("n", 3)))
    strategy.check(NESTED)
    batch = pa.RecordBatch.from_pylist([{"n": 4}, {"n": None}], schema=schema_to_arrow(NESTED))

    columns = strategy.arrays(batch, NESTED, {"version": 7})

    assert [column.to_pylist() for column in columns] == [[7, 7], [1, None]]
    assert strategy.values({"n": 4}, NESTED, {"version": 7}) == {"version": 7, "n_hash": 1}
    assert strategy.types(NESTED)["version"] == Primitive(Kind.INT)


def test_provided_value_that_is_missing_or_wrong_is_refused() -> None:
    strategy = PartitionStrategy((by.provided("version", "int"),))

    with pytest.raises(PartitionSpecError, match="'version' needs a value with each write"):
        strategy.values({"version": 5}, NESTED)
    with pytest.raises(InvalidInputError, match="'version'"):
        strategy.values({}, NESTED, {"version": "7"})
    with pytest.raises(PartitionSpecError, match="Did you mean 'version'"):
        strategy.values({}, NESTED, {"version": 7, "versoin": 7})


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("hash(a, 16)", 16),
        ("range(a, 1, 2, 3)", 3),
        ("values(a, [1], [2])", 2),
        ("month(t)", 12),
        ("day(t)", 31),
        ("hour(t)", 24),
        ("minute(t)", 60),
        ("hash(a, 16), month(t)", 192),
        ("year(t)", None),
        ("hash(a, 16), fixed_range(a, 5)", None),
        ("date(t)", None),
        ("date_format(t, 'yyyy')", None),
        ("a", None),
        ("provided(v)", None),
    ],
)
def test_cardinality_is_the_product_where_every_function_knows_its_own(text, count) -> None:
    assert PartitionStrategy.parse(text).cardinality == count


@given(st.lists(st.none() | st.text("am~z\0\u00e9\ud7ff", max_size=3), max_size=20))
def test_texts_without_surrogate_pairs_go_by_columns_to_the_same_bounds(texts) -> None:
    function, source = (
        by.range("a", ["", "a", "m\u00e9", "\ud7ff\ud7ff\ud7ff"]),
        Primitive(Kind.STRING),
    )

    found = function.array(pa.array(texts, pa.string()), source).to_pylist()

    assert found == [None if text is None else function.value(text, source) for text in texts]
    with pytest.raises(PartitionSpecError, match="is above the last bound"):
        function.array(pa.array([*texts, "\ud7ff\ud7ff\ud7ff~"]), source)

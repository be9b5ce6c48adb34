"""Partition functions: what they give, on a Python value and on an Arrow column, and their forms."""

import datetime as dt
import json

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakebed import by
from lakebed.errors import InvalidNameError, PartitionSpecError
from lakebed.model.arrow_types import schema_to_arrow, type_to_arrow
from lakebed.model.partition import (
    CALENDAR_UNITS,
    CalendarPart,
    PartitionStrategy,
    build_function,
)
from lakebed.model.schema import Decimal, Field, Kind, ListOf, Primitive, Schema

VALUES = {
    Kind.BOOLEAN: st.booleans(),
    Kind.INT: st.integers(-(2**31), 2**31 - 1),
    Kind.LONG: st.integers(-(2**63), 2**63 - 1),
    Kind.UNSIGNED_LONG: st.integers(0, 2**64 - 1),
    Kind.FLOAT: st.floats(width=32, allow_nan=False),
    Kind.DOUBLE: st.floats(allow_nan=False),
    Kind.STRING: st.text(st.characters(codec="utf-8")),
    Kind.BYTES: st.binary(),
    Kind.DATE: st.dates(),
    Kind.TIMESTAMP: st.datetimes(timezones=st.just(dt.UTC)),
    Kind.TIMESTAMP_NTZ: st.datetimes(),
}
CALLS = [
    ("identity", [], set(Kind) - {Kind.BYTES}),
    ("hash", [1], set(Kind)),
    ("hash", [53], set(Kind)),
    ("hash", [2**31 - 1], set(Kind)),
    ("date", [], {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ}),
    *[(unit, [], {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ}) for unit in CALENDAR_UNITS[:3]],
    *[(unit, [], {Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ}) for unit in CALENDAR_UNITS[3:]],
]


def utc(millis: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=millis)


@pytest.mark.parametrize(
    ("millis", "parts"),
    [
        (1384912178434, (2013, 11, 20, 1, 49)),
        (1379020547042, (2013, 9, 12, 21, 15)),
        (1384204547042, (2013, 11, 11, 21, 15)),
        (0, (1970, 1, 1, 0, 0)),
        (-1, (1969, 12, 31, 23, 59)),
        (-86400000, (1969, 12, 31, 0, 0)),
    ],
)
def test_calendar_parts_are_kites_in_utc(millis: int, parts: tuple[int, ...]) -> None:
    kind = Primitive(Kind.TIMESTAMP)
    functions = [build_function(unit, "ts") for unit in CALENDAR_UNITS]

    found = tuple(function.value(utc(millis), kind) for function in functions)
    day = by.date("ts").value(utc(millis), kind)

    assert found == parts
    assert day == dt.date(*parts[:3])


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [(name, arguments, kind) for name, arguments, kinds in CALLS for kind in sorted(kinds)],
)
@given(data=st.data())
def test_column_gives_what_each_value_gives(name: str, arguments, kind: Kind, data) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind], max_size=20))
    function, source = build_function(name, "a", arguments, "p"), Primitive(kind)
    result = type_to_arrow(function.result_type(source))

    found = function.array(pa.array(values, type_to_arrow(source)), source).cast(result)

    alone = [None if value is None else function.value(value, source) for value in values]
    assert found.to_pylist() == alone


@given(st.lists(st.none() | VALUES[Kind.TIMESTAMP], min_size=1, max_size=20))
@example([None, dt.datetime.min.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC)])
def test_strategy_gives_a_row_what_it_gives_an_entity(moments) -> None:
    schema = Schema(
        fields=(
            Field(name="ts", type=Primitive(Kind.TIMESTAMP)),
            Field(name="n", type=Primitive(Kind.LONG), nullable=False),
        )
    )
    strategy = PartitionStrategy.parse(
        "date(ts) as dt, year(ts), hour(ts), hash(n, 7), hash(ts, 5)"
    )
    strategy.check(schema)
    rows = [{"ts": moment, "n": number} for number, moment in enumerate(moments)]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema_to_arrow(schema))

    columns = strategy.arrays(batch, schema)

    names = [function.name for function in strategy]
    found = pa.RecordBatch.from_arrays(columns, names=names).to_pylist()
    assert found == [strategy.values(row, schema) for row in rows]


def test_slices_of_a_column_are_taken_as_they_are() -> None:
    column = pa.array(["x", None, "a", None, "b"])[2:]

    found = by.hash("a", 53).array(column, Primitive(Kind.STRING))

    assert found.to_pylist() == [44, None, 45]


def test_missing_source_of_an_entity_is_null() -> None:
    schema = Schema(fields=(Field(name="a", type=Primitive(Kind.STRING)),))

    assert PartitionStrategy((by.hash("a", 3),)).values({}, schema) == {"a_hash": None}


# Forms

KITE = """
[ {"type": "hash", "source": "user", "name": "user_hash", "buckets": 16},
  {"type": "identity", "source": "release", "name": "release"},
  {"type": "year", "source": "seen", "name": "year"},
  {"type": "month", "source": "seen", "name": "month"},
  {"type": "day", "source": "seen", "name": "day"},
  {"type": "hour", "source": "seen", "name": "hour"},
  {"type": "minute", "source": "seen", "name": "minute"},
  {"type": "date", "source": "seen", "name": "dt"} ]
"""


def test_strategy_survives_kites_json() -> None:
    strategy = PartitionStrategy.from_json(KITE)

    again = PartitionStrategy.from_json(strategy.to_json())

    assert again == strategy
    assert strategy.to_document() == json.loads(KITE)


def test_json_names_are_optional_and_numeric_sources_are_text() -> None:
    strategy = PartitionStrategy.from_json(
        '[{"type": "hash", "source": 5, "buckets": 3}, {"type": "month", "source": "t"}]'
    )

    assert [(f.source, f.name) for f in strategy] == [("5", "5_hash"), ("t", "month")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        '"date"',
        "[1]",
        "[{}]",
        '[{"source": "a"}]',
        '[{"type": 5, "source": "a"}]',
        '[{"type": "date"}]',
        '[{"type": "date", "source": null}]',
        '[{"type": "date", "source": ["a"]}]',
        '[{"type": "date", "source": "a", "name": 5}]',
        '[{"type": "hash", "source": "a"}]',
        '[{"type": "hash", "source": "a", "buckets": "16"}]',
        '[{"type": "hash", "source": "a", "buckets": true}]',
        '[{"type": "hash", "source": "a", "buckets": 1.5}]',
        '[{"type": "hash", "source": "a", "buckets": 0}]',
        '[{"type": "date", "source": "a", "buckets": 3}]',
        '[{"type": "nobody", "source": "a"}]',
        "[" * 100_000,
    ],
)
def test_json_that_is_no_strategy_is_refused(text: str) -> None:
    with pytest.raises(PartitionSpecError):
        PartitionStrategy.from_json(text)


def test_text_form_reads_calls_names_and_bare_fields() -> None:
    strategy = PartitionStrategy.parse(
        " date(ts) as dt , hash( user_id,64 ), carrier, year(ts) AS y"
    )

    assert strategy == PartitionStrategy(
        (
            by.date("ts", name="dt"),
            by.hash("user_id", 64),
            by.identity("carrier"),
            by.year("ts", name="y"),
        )
    )


def test_strategy_survives_its_text() -> None:
    strategy = PartitionStrategy.from_json(KITE)

    assert PartitionStrategy.parse(str(strategy)) == strategy
    assert str(strategy).startswith("hash(user, 16) as user_hash, identity(release) as release")


def test_strategy_shows_its_fields_in_a_notebook() -> None:
    shown = PartitionStrategy.parse("hash(user, 16)")._repr_html_()

    assert "<tr><th>user_hash</th><td>hash(user, 16) as user_hash</td></tr>" in shown


@pytest.mark.parametrize(
    "text",
    [
        ",",
        "date(ts",
        "date(ts))",
        "date(date(ts))",
        "date()",
        "date(ts) as",
        "date(ts, 5)",
        "hash(a)",
        "hash(a, b)",
        "hash(a, \u00b2)",
        "hash(a, --5)",
        "hash(a, 0)",
        "hash(a, 99999999999)",
        "nobody(a)",
        "(a)",
    ],
)
def test_text_that_is_no_strategy_is_refused(text: str) -> None:
    with pytest.raises(PartitionSpecError):
        PartitionStrategy.parse(text)


def test_unknown_function_names_the_nearest() -> None:
    with pytest.raises(PartitionSpecError, match="Did you mean 'identity'"):
        PartitionStrategy.parse("identty(ts)")
    # Of a time, one letter decides between a period and its number: no guess.
    with pytest.raises(
        PartitionSpecError, match=r"months\(ts\) is the year and month, month\(ts\)"
    ):
        PartitionStrategy.parse("mnth(ts)")


def test_calendar_unit_of_its_own_class_is_checked() -> None:
    with pytest.raises(PartitionSpecError, match="'week'"):
        CalendarPart(source="ts", name="week", part="week")


# Checks

SCHEMA = Schema(
    fields=(
        Field(name="ts", type=Primitive(Kind.TIMESTAMP)),
        Field(name="day_of", type=Primitive(Kind.DATE)),
        Field(name="s", type=Primitive(Kind.STRING)),
        Field(name="raw", type=Primitive(Kind.BYTES)),
        Field(name="price", type=Decimal(9, 2)),
        Field(name="tags", type=ListOf(Primitive(Kind.STRING))),
        Field(name="year", type=Primitive(Kind.INT)),
    )
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("date(tss)", "Did you mean 'ts'"),
        ("date(zzzzz)", "Fields are: ts, day_of"),
        ("date(s)", "does not take field 's' of type string"),
        ("hour(day_of)", "is a date"),
        ("raw", "does not take"),
        ("price", "does not take"),
        ("hash(price, 3)", "does not take"),
        ("tags", "does not take"),
        ("year(ts)", "has the name of a data field"),
        ("identity(s) as year", "has the name of a data field"),
    ],
)
def test_strategy_that_does_not_fit_the_schema_is_refused(text: str, message: str) -> None:
    with pytest.raises(PartitionSpecError, match=message):
        PartitionStrategy.parse(text).check(SCHEMA)


def test_partition_field_that_stands_twice_is_refused() -> None:
    with pytest.raises(PartitionSpecError, match="'month' appears twice"):
        PartitionStrategy.parse("month(ts), month(day_of)")


def test_batch_id_is_taken_as_partition_field_and_as_field() -> None:
    schema = Schema(
        fields=(
            Field(name="batch_id", type=Primitive(Kind.LONG)),
            Field(name="s", type=Primitive(Kind.STRING)),
        )
    )

    with pytest.raises(PartitionSpecError, match="'batch_id' is reserved"):
        PartitionStrategy.parse("identity(s) as batch_id")
    with pytest.raises(PartitionSpecError, match="which every batch adds"):
        PartitionStrategy().check(schema)


def test_some_field_must_be_left_for_data_files() -> None:
    schema = Schema(fields=(Field(name="s", type=Primitive(Kind.STRING)),))

    with pytest.raises(PartitionSpecError, match="no field is left"):
        PartitionStrategy.parse("s").check(schema)
    PartitionStrategy.parse("identity(s) as copy").check(schema)


@pytest.mark.parametrize("name", ["_x", "a.b", "a`b", "a\n", "中" * 29])
def test_illegal_partition_field_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError):
        by.date("ts", name=name)


def test_only_plain_identity_moves_its_field_into_the_path() -> None:
    strategy = PartitionStrategy.parse("s, identity(year) as y, hash(s, 3)")

    assert "s" not in strategy.stored_names(SCHEMA)
    assert "year" in strategy.stored_names(SCHEMA)
    assert strategy.types(SCHEMA) == {
        "s": Primitive(Kind.STRING),
        "y": Primitive(Kind.INT),
        "s_hash": Primitive(Kind.INT),
    }


@pytest.mark.parametrize("buckets", [0, -1, 2**31, 1.5, True, "3", None])
def test_bucket_count_is_a_whole_number_from_1_on(buckets: object) -> None:
    with pytest.raises(PartitionSpecError):
        by.hash("s", buckets)  # type: ignore[arg-type]


ARGUMENTS = {
    "hash": [3],
    "range": [[1]],
    "fixed_range": [5],
    "values": [[[1]]],
    "date_format": ["yyyy"],
}
# The functions that SQL's names stand for.
SQL_NAMES = {
    "bucket": "hash",
    "days": "date",
    "hours": "date_format",
    "months": "date_format",
    "years": "year",
}


def test_every_export_of_by_is_a_function_of_its_name() -> None:
    for name in by.__all__:
        named = {} if name == "provided" else {"name": "p"}

        arguments = [3, "a"] if name == "bucket" else ["a", *ARGUMENTS.get(name, [])]
        function = getattr(by, name)(*arguments, **named)

        assert function.type_name == SQL_NAMES.get(name, name)
        assert function.name == ("a" if name == "provided" else "p")
        assert function.source == ("" if name == "provided" else "a")
    assert sorted(by.__all__) == by.__all__

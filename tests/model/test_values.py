"""Values of columns: what is taken, what is refused, and their text form."""

import datetime as dt
import decimal
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidInputError
from lakebed.model.schema import Decimal, Kind, ListOf, Primitive
from lakebed.model.values import check_value, format_value, parse_value

BERLIN = dt.timezone(dt.timedelta(hours=1))


@pytest.mark.parametrize(
    ("value", "kind", "normal"),
    [
        (5, Kind.DOUBLE, 5.0),
        (0.1, Kind.FLOAT, 0.10000000149011612),
        (dt.date(2013, 1, 1), Kind.TIMESTAMP, dt.datetime(2013, 1, 1, tzinfo=dt.UTC)),
        (dt.datetime(2013, 1, 1), Kind.TIMESTAMP, dt.datetime(2013, 1, 1, tzinfo=dt.UTC)),
        (
            dt.datetime(2013, 1, 1, 1, tzinfo=BERLIN),
            Kind.TIMESTAMP,
            dt.datetime(2013, 1, 1, tzinfo=dt.UTC),
        ),
        (dt.date(2013, 1, 1), Kind.TIMESTAMP_NTZ, dt.datetime(2013, 1, 1)),
        (2**64 - 1, Kind.UNSIGNED_LONG, 2**64 - 1),
    ],
)
def test_value_gets_the_one_form_of_its_type(value: object, kind: Kind, normal: object) -> None:
    found = check_value(value, Primitive(kind), "a")

    assert (found, type(found)) == (normal, type(normal))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, Kind.INT),
        (1, Kind.BOOLEAN),
        (1.0, Kind.LONG),
        ("1", Kind.LONG),
        (2**31, Kind.INT),
        (-(2**63) - 1, Kind.LONG),
        (-1, Kind.UNSIGNED_LONG),
        (True, Kind.DOUBLE),
        (10**400, Kind.DOUBLE),
        (1e300, Kind.FLOAT),
        ("1.0", Kind.DOUBLE),
        (b"a", Kind.STRING),
        ("half a pair \ud800", Kind.STRING),
        ("a", Kind.BYTES),
        (dt.datetime(2013, 1, 1), Kind.DATE),
        ("2013-01-01", Kind.DATE),
        ("2013-01-01", Kind.TIMESTAMP),
        (dt.datetime(2013, 1, 1, tzinfo=dt.UTC), Kind.TIMESTAMP_NTZ),
        (dt.datetime(1, 1, 1, tzinfo=BERLIN), Kind.TIMESTAMP),
    ],
)
def test_value_of_another_type_or_range_is_refused(value: object, kind: Kind) -> None:
    with pytest.raises(InvalidInputError, match=r"does not fit column 'here'"):
        check_value(value, Primitive(kind), "here")


@pytest.mark.parametrize("value", ["1.2", "-999.99", "0"])
def test_decimal_is_taken_at_its_scale(value: str) -> None:
    found = check_value(decimal.Decimal(value), Decimal(5, 2), "a")

    assert found == decimal.Decimal(value)
    assert found.as_tuple().exponent == -2


@pytest.mark.parametrize("value", ["1.234", "1000", "NaN", "sNaN", "Infinity", "1E+9"])
def test_decimal_that_would_lose_digits_is_refused(value: str) -> None:
    with pytest.raises(InvalidInputError):
        check_value(decimal.Decimal(value), Decimal(5, 2), "a")


@pytest.mark.parametrize("value", [1.5, True, "1"])
def test_decimal_takes_numbers_that_are_exact(value: object) -> None:
    with pytest.raises(InvalidInputError):
        check_value(value, Decimal(5, 2), "a")


def test_nanoseconds_are_refused() -> None:
    pandas = pytest.importorskip("pandas")

    with pytest.raises(InvalidInputError):
        check_value(
            pandas.Timestamp("2013-01-01 00:00:00.000000001"), Primitive(Kind.TIMESTAMP_NTZ), "a"
        )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1_000", Kind.INT),
        (" 1", Kind.LONG),
        ("\u0661", Kind.LONG),
        ("1.0", Kind.LONG),
        ("", Kind.LONG),
        ("1_0.5", Kind.DOUBLE),
        ("1.5 ", Kind.DOUBLE),
        ("yes", Kind.BOOLEAN),
        ("1", Kind.BOOLEAN),
        ("2013-02-30", Kind.DATE),
        ("2013-01-01T00:00:00.0000001", Kind.TIMESTAMP),
        ("2013-01-01T00:00:00+01:00", Kind.TIMESTAMP_NTZ),
        ("0001-01-01T00:00:00+01:00", Kind.TIMESTAMP),
        ("x", Kind.BYTES),
    ],
)
def test_text_that_is_no_value_is_refused(text: str, kind: Kind) -> None:
    with pytest.raises(InvalidInputError, match="'a'"):
        parse_value(text, Primitive(kind), "a")


def test_text_of_a_nested_type_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no text form"):
        parse_value("[]", ListOf(Primitive(Kind.INT)), "a")


@pytest.mark.parametrize("text", ["False", "false", "FALSE"])
def test_false_is_read_as_false(text: str) -> None:
    assert parse_value(text, Primitive(Kind.BOOLEAN), "a") is False


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-999, max_value=999))
def test_decimal_survives_text(value: decimal.Decimal) -> None:
    assert parse_value(format_value(value), Decimal(9, 3), "a") == value


@given(st.floats(width=32))
def test_float_of_32_bits_survives_text(value: float) -> None:
    found = parse_value(format_value(value), Primitive(Kind.FLOAT), "a")

    assert found == value or (math.isnan(found) and math.isnan(value))
    assert math.copysign(1, found) == math.copysign(1, value) or math.isnan(value)

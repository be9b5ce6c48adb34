"""Usual forms of texts, as their bytes show them: never more than regular expressions and the calendar."""

import datetime as dt
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.arrow.reading.usual_forms import are_usual, usual_days
from lakebed.model.schema import Kind

WHOLE = re.compile(r"0|[1-9][0-9]{0,13}")
TEXT = re.compile(r"[A-Za-z](.*[A-Za-z0-9])?", re.DOTALL)
FORMS = {
    10: re.compile(r"[12]\d{3}-\d\d-\d\d", re.ASCII),
    19: re.compile(r"[12]\d{3}-\d\d-\d\d[T ]\d\d:\d\d:\d\d", re.ASCII),
    20: re.compile(r"[12]\d{3}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ", re.ASCII),
}
TIMES = st.datetimes(dt.datetime(900, 1, 1), dt.datetime(3100, 1, 1)).map(
    lambda time: time.replace(microsecond=0).isoformat()
)
ODD = [
    "2024-02-30T00:00:00Z",
    "2023-02-29T00:00:00Z",
    "2024-01-01T24:00:00Z",
    "2024-01-01T23:60:00Z",
    "2024-01-01T23:59:60Z",
    "2024-13-01T00:00:00Z",
    "2024-00-10T00:00:00Z",
    "2024-01-01t00:00:00Z",
    "2024-01-01T00:00:00z",
    "2024-01-01T0 :00:00Z",
    "2024-01-01T-1:00:00Z",
    "2024-01-01T00:00:0OZ",
    "2024-01-01T00:00:00.",
    "2024/01/01T00:00:00Z",
    "+024-01-01T00:00:00Z",
    "0999-12-31T00:00:00Z",
    "3000-01-01T00:00:00Z",
    "\xe924-01-01T00:00:00Z",
]


def is_time(text: str, size: int) -> bool:
    if not FORMS[size].fullmatch(text):
        return False
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


@given(st.lists(st.text("019a -\n,é", max_size=16) | st.from_regex(WHOLE, fullmatch=True)))
def test_whole_numbers_and_texts_are_usual_by_their_forms(texts: list[str]) -> None:
    for kind, form in ((Kind.LONG, WHOLE), (Kind.STRING, TEXT)):
        for part in (texts, [text for text in texts if form.fullmatch(text)]):
            is_alike = bool(part) and all(form.fullmatch(text) for text in part)

            assert are_usual(pa.array(["x", *part, ""], pa.string())[1:-1], kind) == is_alike


@given(
    st.lists(TIMES, min_size=1),
    st.sampled_from([10, 19, 20]),
    st.sampled_from("T "),
    st.sampled_from(["", *ODD]),
)
def test_days_are_those_of_times_that_all_have_one_form(times, size, mark, odd) -> None:
    texts = [f"{time}Z".replace("T", mark)[:size] for time in times]
    texts += [odd[:size]] if odd else []
    expected = list(dict.fromkeys(text[:10] for text in texts))

    days = usual_days(pa.array(["x", *texts], pa.string())[1:], size)

    if all(is_time(text, size) for text in texts):
        assert days is not None
        assert days.to_pylist() == expected
    else:
        assert days is None


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_time_makes_a_column_unusual(odd: str) -> None:
    texts = pa.array(["2024-01-01T00:00:00Z"] * 99 + [odd])

    assert usual_days(texts[:99], 20).to_pylist() == ["2024-01-01"]
    assert usual_days(texts, 20) is None

"""The forms of batch ids: what they tell, and that they grow."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidInputError
from lakebed.model.keys import BATCH_IDS, BatchIds, date_of, started_ms

MOMENTS = st.datetimes(
    dt.datetime(1995, 1, 1), dt.datetime(2099, 12, 31), timezones=st.just(dt.UTC)
)
UNITS = {
    BatchIds.MILLISECONDS: dt.timedelta(milliseconds=1),
    BatchIds.SECONDS: dt.timedelta(seconds=1),
    BatchIds.DATE_MINUTES: dt.timedelta(minutes=1),
    BatchIds.DATE_SECONDS: dt.timedelta(seconds=1),
}


@given(moment=MOMENTS, form=st.sampled_from(BatchIds))
def test_id_tells_its_moment_to_the_unit_and_its_form(moment: dt.datetime, form: BatchIds) -> None:
    if form is BatchIds.MILLISECONDS and moment.year < 2002:
        return  # of 12 digits: nobody has written such an id

    batch_id = form.of(moment)
    told = dt.datetime.fromtimestamp(started_ms(batch_id) / 1000, dt.UTC)

    assert dt.timedelta() <= moment - told < UNITS[form]
    assert BatchIds.written_as(batch_id) is form


@given(moment=MOMENTS, form=st.sampled_from(BatchIds))
def test_next_id_is_the_next_unit(moment: dt.datetime, form: BatchIds) -> None:
    assert form.after(form.of(moment)) == form.of(moment + UNITS[form])


@given(batch_id=st.integers(0, 10**17), form=st.sampled_from(BatchIds))
def test_next_id_is_above_whatever_was_there(batch_id: int, form: BatchIds) -> None:
    assert form.after(batch_id) > batch_id


@pytest.mark.parametrize(
    ("above", "expected"),
    [
        (201512312359, 201601010000),
        (201512102358, 201512102359),
        (201512102360, 201512110001),  # a limit, drawn one above an id
        (201602282359, 201602290000),
        (1449784608123, 1449784608124),  # of another form
        (999999999999, 1000000000000),
    ],
)
def test_minutes_are_counted_as_a_clock_does(above: int, expected: int) -> None:
    assert BatchIds.DATE_MINUTES.after(above) == expected


@pytest.mark.parametrize("number", [201513010000, 201502300000, 198001010000, 1449784608123, 0])
def test_number_that_spells_no_date_is_none(number: int) -> None:
    assert date_of(number) is None


def test_form_is_named_by_a_property() -> None:
    assert BatchIds.named_by({}) is BatchIds.MILLISECONDS
    assert BatchIds.named_by({BATCH_IDS: "seconds"}) is BatchIds.SECONDS
    with pytest.raises(InvalidInputError, match="'hours'") as caught:
        BatchIds.named_by({BATCH_IDS: "hours"})
    assert "yyyyMMddHHmm" in caught.value.hint

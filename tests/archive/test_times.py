"""Times: what users write, and the days that files touch."""

import datetime as dt
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.archive import time_buckets, times_in_name, to_epoch_ms
from lakebed.archive.times import to_datetime, to_iso
from lakebed.errors import InvalidInputError, MissingDependencyError
from lakebed.model.moments import bound_to_epoch_ms, stored_to_epoch_ms, to_moment

B = 86_400_000

VECTORS = [
    ("2015-03-20", 1426809600000),
    ("2015-03-20T00:00:00Z", 1426809600000),
    (dt.datetime(2015, 3, 20), 1426809600000),
    (dt.datetime(2015, 3, 20, tzinfo=dt.timezone(dt.timedelta(hours=-7))), 1426834800000),
    ("2015-12-27T11:01:20.954", 1451214080954),
    ("2015-12-21T09:11:14.08Z", 1450689074080),
    ("1426809600", 1426809600000),
    (1426809600, 1426809600000),
    ("1426809600123", 1426809600123),
    (1426809600123, 1426809600123),
    (1426809600.25, 1426809600250),
    (1426809600.0005, 1426809600000),
    (1456833600000.7, 1456833600000),
    (99999999999, 99999999999000),
    (100000000000, 100000000000000),
    ("2015-03-20T00:00:00.123456Z", 1426809600123),
    ("20150320", 1426809600000),
    (20150320, 1426809600000),
    ("18150618", -4876848000000),
    ("20150320123000", 1426854600000),
    (20150320123000, 1426854600000),
    ("201503201230", 1426854600000),
    ("20150320T123000Z", 1426854600000),
    (631152000, 631152000000),
    (631152000000, 631152000000),
    ("32503680000000", 32503680000000),
    ("20/03/2015", 1426809600000),
    ("Fri Mar 20 00:00:00 UTC 2015", 1426809600000),
    ("Fri Mar 20 00:00:00 PST 2015", 1426809600000),
    ("03/04/2015", 1425427200000),
    ("9999-12-31T23:59:59.999Z", 253402300799999),
    ("5138-11-16T09:46:40Z", 100000000000000),
    ("0001-01-01", -62135596800000),
    ("2015-03-20T23:59.114Z", 1426895946000),
]
NO_TIMES = [
    "2015-03-20T00:00:05:32.345Z", "bxfl230", "notaninteger", "nan", "2015-W12", "2015-079",
    "NOW", "now ", "today", "", " ", "2015-13-01", "2015-03-20 24:00:00", "99999-01-01",
    "inf", "-inf", "1e400", 1e15, 1e18, float("inf"), float("nan"), 10**400, "9" * 5000,
    "20261301", 20260230, "20261301000000", 20260901250000, None, [], {}, b"2015", dt.date(2015, 3, 20), object,
]  # fmt: skip


@pytest.mark.parametrize(("value", "ms"), VECTORS, ids=repr)
def test_time_becomes_milliseconds(value: object, ms: int) -> None:
    assert to_epoch_ms(value) == ms


@pytest.mark.parametrize("value", NO_TIMES, ids=lambda value: repr(value)[:30])
def test_what_is_no_time_is_refused_and_nothing_leaks(value: object) -> None:
    with pytest.raises(InvalidInputError, match="not a time"):
        to_epoch_ms(value)


EARLY = [
    0, 0.0, "0", -1, "-1", 123, "123", 2015, "2015", "12", 202609, 1426809600 / 1000, 20260901.0,
    " 20260901 ", "1e6", 631151999, 473385600000, "473385600000", True,
]  # fmt: skip


@pytest.mark.parametrize("value", EARLY, ids=repr)
def test_number_that_counts_to_a_time_before_1990_is_refused(value: object) -> None:
    with pytest.raises(InvalidInputError, match="not a clear time"):
        to_epoch_ms(value)


def test_refusal_of_an_early_number_names_both_readings_and_the_remedy() -> None:
    with pytest.raises(InvalidInputError) as caught:
        to_epoch_ms(142680960)

    assert caught.value.message == (
        "142680960 is not a clear time: as seconds it is 1974-07-10T09:36:00Z, "
        "as milliseconds it is 1970-01-02T15:38:00Z."
    )
    assert "20150320" in caught.value.hint
    assert "milliseconds" in caught.value.hint


@pytest.mark.parametrize("value", ["2150070112", 2150070112])
def test_date_with_an_hour_in_ten_digits_is_not_taken_for_seconds_to_come(value: object) -> None:
    for read in (to_epoch_ms, bound_to_epoch_ms):
        with pytest.raises(InvalidInputError) as caught:
            read(value)
        assert caught.value.message == (
            f"{value!r} is not a clear time: as seconds it is 2038-02-18T01:41:52Z, "
            "as a date with an hour it is 2150-07-01T12:00:00Z."
        )
        assert "215007011200" in caught.value.hint
    with pytest.raises(InvalidInputError, match="'2150070112' in the name"):
        times_in_name(r"\d{10}", "a-2150070112.log")
    assert stored_to_epoch_ms(str(value)) == to_epoch_ms(float(value)) == 2150070112000


def test_ten_digits_of_seconds_are_seconds() -> None:
    # The first could be an hour of the year 1610, the second has no such month.
    for seconds in (1610121510, 1788220800, 2_199_000_000):
        assert to_epoch_ms(str(seconds)) == to_epoch_ms(seconds) == seconds * 1000


@given(st.dates(dt.date(1900, 1, 1), dt.date(2199, 12, 31)), st.times())
def test_digits_of_a_date_are_that_date_in_every_call(day: dt.date, time: dt.time) -> None:
    moment = dt.datetime.combine(day, time.replace(microsecond=0), dt.UTC)
    begin = to_epoch_ms(f"{day.isoformat()}T00:00:00Z")

    for value in (f"{day:%Y%m%d}", int(f"{day:%Y%m%d}")):
        assert to_epoch_ms(value) == bound_to_epoch_ms(value) == begin
        assert to_moment(value) == moment.replace(hour=0, minute=0, second=0)
    for value in (f"{moment:%Y%m%d%H%M%S}", int(f"{moment:%Y%m%d%H%M%S}")):
        assert to_moment(value) == moment
    assert times_in_name(r"\d+", f"a-{moment:%Y%m%d%H%M%S}.log") == (to_epoch_ms(moment), None)


@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_moment_keeps_its_microseconds(moment: dt.datetime) -> None:
    assert to_moment(moment) == to_moment(moment.isoformat()) == moment


@pytest.mark.parametrize(
    ("value", "ms"),
    [(0, 0), ("0", 0), (473385600000, 473385600000), ("473385600000", 473385600000)],
)
def test_question_may_begin_at_0_and_at_any_milliseconds(value: object, ms: int) -> None:
    assert bound_to_epoch_ms(value) == ms


@pytest.mark.parametrize("value", [200, "200", -1, 20260901.0, "202609", 631151999])
def test_question_refuses_other_early_numbers(value: object) -> None:
    with pytest.raises(InvalidInputError, match="not a clear time"):
        bound_to_epoch_ms(value)


@pytest.mark.parametrize(
    ("value", "ms"),
    [(0, 0), (-1, -1), (1000, 1000), (20150320, 20150320), (1000.5, 1000500), ("1000", 1000000)],
)
def test_stored_time_is_read_however_early(value: object, ms: int) -> None:
    assert stored_to_epoch_ms(value) == ms


@pytest.mark.parametrize(
    "text",
    ["2026-09", "2026/09", "Sep 2026", "September", "2026-09 10:30", "01.09.2026", "1.9.26", "1.9.2026 10:30"],
)  # fmt: skip
def test_date_that_lacks_the_day_or_may_be_another_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="not a clear time"):
        to_epoch_ms(text)


@pytest.mark.parametrize("text", ["13.09.2026", "13.9.26", "13. September 2026", "Sep 13 2026"])
def test_date_that_says_its_day_in_another_way_is_read(text: str) -> None:
    assert to_epoch_ms(text) == to_epoch_ms("2026-09-13")


def test_missing_parts_are_those_of_today() -> None:
    now = dt.datetime(2015, 3, 20, 23, 30, tzinfo=dt.timezone(dt.timedelta(hours=-7)))

    assert to_epoch_ms("10:30", now=now) == to_epoch_ms("2015-03-21T10:30")
    assert to_epoch_ms("now", now=now) == to_epoch_ms("2015-03-21T06:30")


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_times_survive_as_datetime_and_as_text(ms: int) -> None:
    assert to_epoch_ms(to_datetime(ms)) == ms
    assert to_epoch_ms(to_iso(ms)) == ms


@given(
    st.datetimes(
        timezones=st.sampled_from(
            [dt.UTC, *(dt.timezone(dt.timedelta(minutes=m)) for m in (-420, 330))]
        )
    )
)
def test_iso_text_is_read_as_dateutil_reads_it(moment: dt.datetime) -> None:
    from dateutil import parser

    for text in (moment.isoformat(), moment.isoformat(" ", "milliseconds")):
        try:
            expected = parser.parse(text).astimezone(dt.UTC)
        except OverflowError:
            continue
        assert to_epoch_ms(text) == to_epoch_ms(expected)


@given(st.one_of(st.text(), st.floats(), st.integers(), st.binary()))
def test_anything_is_a_time_or_is_refused(value: object) -> None:
    try:
        ms = to_epoch_ms(value)
    except InvalidInputError:
        return
    assert isinstance(to_datetime(ms), dt.datetime)


def test_without_dateutil_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dateutil.parser", None)

    assert to_epoch_ms("2015-03-20T10:00Z") == 1426845600000
    with pytest.raises(MissingDependencyError, match=r"lakebed\[archive\]"):
        to_epoch_ms("20/03/2015")


@pytest.mark.parametrize(
    ("start", "end", "buckets"),
    [
        (1430092800000, 1430330070000, [16552, 16553, 16554]),
        (1430092800000, 1430157270000, [16552]),
        (1430092800000, 1430096400000, [16552]),
        (1430092800000, None, [16552]),
        (0, B - 1, [0]),
        (0, B, [0, 1]),
        (1431648000000, 1431734400000, [16570, 16571]),
        (0, 29 * B, list(range(30))),
        (0, 30 * B, list(range(31))),
        (-1, 0, [-1, 0]),
        (-5, 0, [-1, 0]),
    ],
)
def test_file_touches_these_days(start: int, end: int | None, buckets: list[int]) -> None:
    assert list(time_buckets(start, end)) == buckets


def test_days_of_times_that_are_no_whole_milliseconds_are_those_of_the_whole_ones() -> None:
    assert list(time_buckets(1430092800000.0, 1430330070000.5)) == [16552, 16553, 16554]


@pytest.mark.parametrize("moment", [float("nan"), float("inf")])
def test_no_day_has_a_time_that_is_none(moment: float) -> None:
    with pytest.raises(InvalidInputError, match="is not a time"):
        time_buckets(moment, None)


def test_text_with_underscores_is_no_number_of_seconds():
    with pytest.raises(InvalidInputError, match="is not a time"):
        to_epoch_ms("2015_03_20")

"""Columns of dates in a format are read as `strptime` reads each text."""

import datetime as dt
import random
import re

import pyarrow as pa
import pytest
from nasty_files import EDGE, GOOD, WILD

from lakebed.arrow.reading.csv import to_timestamps
from lakebed.arrow.reading.date_formats import has_time, iso_text, iso_texts, read_dates
from lakebed.arrow.reading.texts import DATE_FORMATS

ODD_FORMATS = (
    *("%Y%m%d", "%Y%m%d%H%M%S", "%d%m%Y %H:%M:%S.%f", "%f %d %m %Y", "%H:%M:%S.%f", "%y-%m-%d"),
    *("%Y-%j", "%d/%m/%Y %p", "%d/%m/%Y %I", "%d/%m/%Y %I:%M%p", "%d/%m/%Y%%", "%d/%m/%Y  %H"),
    *("%Y-%m-%dT%H:%M:%S%z", "%B %Y %d", "%d.%m.%Y %H:%M:%S.%f Uhr", "%d,%m,%Y", "%m", ""),
)
ODD_PARTS = ("00", "12", "13", "23", "24", "29", "30", "31", "32", "59", "60", "61")
LOCAL = ("2024-03-31 02:30", "2024-10-27 02:30:00", "1999-12-31", "2024-01-01 10:00:00.5", "10:00")
SIGNS = "0123456789 /:-.apAPm\u0665é\n_T"


def texts_of(format_: str, seed: int) -> list[str | None]:
    """Return texts of a format, many of them spoiled."""
    chance = random.Random(seed)
    texts: list[str | None] = []
    for _ in range(300):
        moment = dt.datetime(
            chance.choice([1, 999, 1000, 1900, 2000, 2023, 2024, 9999]),
            chance.randint(1, 12),
            chance.randint(1, 28),
            chance.randint(0, 23),
            chance.randint(0, 59),
            chance.randint(0, 59),
            chance.choice([0, 5, 123_456, 999_999, 120_000]),
        )
        text = moment.strftime(format_)
        if chance.random() < 0.3:
            text = "".join(sign for sign in text if sign != "0" or chance.random() < 0.8)
        if chance.random() < 0.3:
            at = chance.randint(0, len(text))
            text = text[:at] + chance.choice(SIGNS) + text[at + chance.randint(0, 1) :]
        groups = list(re.finditer("[0-9]{2}", text))
        if (
            groups and chance.random() < 0.4
        ):  # days, hours and seconds that no clock or calendar has
            begin, end = chance.choice(groups).span()
            text = text[:begin] + chance.choice(ODD_PARTS) + text[end:]
        if text and chance.random() < 0.1:
            text = text[: -chance.randint(1, min(8, len(text)))]
        if chance.random() < 0.1:
            text = text.lower()
        texts.append(text if chance.random() < 0.95 else None)
    return texts


def expected_value(text: str | None, format_: str) -> int | None:
    """Return the days or microseconds since 1970 of a text, as `strptime` reads it."""
    iso = None if text is None else iso_text(text, format_)
    if iso is None:
        return None
    since = dt.datetime.fromisoformat(iso) - dt.datetime(1970, 1, 1)
    return since // dt.timedelta(microseconds=1) if has_time(format_) else since.days


@pytest.mark.parametrize("format_", [*DATE_FORMATS, *ODD_FORMATS])
def test_dates_are_read_as_strptime_reads_them(format_: str) -> None:
    texts = texts_of(format_, seed=len(format_))
    column = pa.array(texts, pa.string()).slice(5)

    values, is_read = read_dates(column, format_)
    iso = iso_texts(column, format_).to_pylist()

    numbers = values.cast(pa.int64() if has_time(format_) else pa.int32()).to_pylist()
    expected = [
        expected_value(text, format_) if is_one_read else None
        for text, is_one_read in zip(texts[5:], is_read, strict=True)
    ]
    assert numbers == expected
    assert all(number is not None for number, read in zip(numbers, is_read, strict=True) if read)
    for text, found in zip(texts[5:], iso, strict=True):
        form = None if text is None else (iso_text(text, format_) or text)
        assert found == form or dt.datetime.fromisoformat(found) == dt.datetime.fromisoformat(form)


@pytest.mark.parametrize("format_", DATE_FORMATS)
def test_texts_as_producers_write_them_need_no_call_for_each(format_: str) -> None:
    moments = [dt.datetime(1999 + n, 1 + n % 12, 1 + n, n, n, n, n) for n in range(24)]
    texts = pa.array([moment.strftime(format_) for moment in moments])

    _, is_read = read_dates(texts, format_)

    assert is_read.all() != ("%B" in format_)  # names of months differ in their length


@pytest.mark.parametrize("format_", ["%d/%m/%Y %H:%M:%S.%f", "%m/%d/%Y %H:%M", "%d.%m.%Y"])
def test_parts_without_their_zeros_are_read_too(format_: str) -> None:
    moment = dt.datetime(2024, 2, 3, 4, 5, 6, 120_000)
    full = moment.strftime(format_)
    short = full.rstrip("0") if "%f" in format_ else full.replace("/0", "/").replace(" 04", " 4")

    values, is_read = read_dates(pa.array([short, full, "0" + short]), format_)

    assert is_read.tolist()[:2] == [True, True]
    assert values[0] == values[1]


@pytest.mark.parametrize("time_zone", ["", "Europe/Berlin"])
def test_a_time_alone_is_the_time_beside_others(time_zone: str) -> None:
    texts = sorted({*WILD, *EDGE["t"], *EDGE["n"], *GOOD["t"], *GOOD["n"], *GOOD["y"], *LOCAL})

    def moment_of(*column: str) -> int | str:
        try:
            return to_timestamps(pa.array(column), time_zone).cast(pa.int64())[0].as_py()
        except pa.ArrowInvalid:
            return "refused"

    alone = {text: moment_of(text) for text in texts}
    # Blanks around a text make a cast of the whole column fail, and so each text is looked at.
    beside = {text: moment_of(text, " 2024-01-01T00:00:00Z ") for text in texts}

    assert alone == beside
    assert sum(moment != "refused" for moment in alone.values()) >= 20

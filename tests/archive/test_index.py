"""One promise of every index: the four questions, paging, the latest, and no file twice."""

import datetime as dt
import itertools
import pickle
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from open_files import CAN_TELL, open_files

import lakebed
from lakebed.archive import (
    Archive,
    ArchiveIndex,
    ArchiveRecord,
    Retraction,
    WhatSummary,
    open_index,
)
from lakebed.archive.query import ArchiveQuery
from lakebed.archive.times import to_datetime
from lakebed.errors import (
    AccessDeniedError,
    CorruptMetadataError,
    InvalidInputError,
    StorageError,
    UnsupportedVersionError,
)
from lakebed.store.memory import MemoryStore

DAY = 86_400_000
HOUR = DAY // 24
T0 = 1426809600000  # 2015-03-20, day 16514


def ask(index: ArchiveIndex, what: str, limit: int = 100, **question: Any) -> list[ArchiveRecord]:
    """Return the answer over all pages."""
    return [record for page in pages(index, what, limit, **question) for record in page]


def pages(
    index: ArchiveIndex, what: str, limit: int = 100, **question: Any
) -> list[tuple[ArchiveRecord, ...]]:
    query = ArchiveQuery.of(what, **question)
    found, cursor = [], None
    while True:
        page = index.page(query, limit=limit, cursor=cursor)
        found.append(page.records)
        cursor = page.next_cursor
        if cursor is None:
            return found


def ids(records: list[ArchiveRecord]) -> list[str]:
    return sorted(record.id for record in records)


# The four questions


@pytest.fixture
def filled(index: ArchiveIndex, record_of) -> ArchiveIndex:
    index.put(
        record_of(
            id=f"{what}-{where}-{number}",
            what=what,
            where=where,
            work_id=work_id,
            start=T0 + number * DAY,
            end=T0 + number * DAY + HOUR,
        )
        for what in ("apache", "syslog")
        for where in ("nebraska", "texas", "texas2")
        for number, work_id in enumerate(["job-1", "job-2", None])
    )
    return index


def test_what_of_a_time(filled: ArchiveIndex) -> None:
    found = ask(filled, "apache", start=T0, end=T0 + DAY + 1)

    assert ids(found) == [
        "apache-nebraska-0",
        "apache-nebraska-1",
        "apache-texas-0",
        "apache-texas-1",
        "apache-texas2-0",
        "apache-texas2-1",
    ]


def test_what_of_a_time_and_a_place(filled: ArchiveIndex) -> None:
    found = ask(filled, "apache", start=T0, end=T0 + DAY + 1, where="texas")

    assert ids(found) == ["apache-texas-0", "apache-texas-1"]


def test_what_of_a_work(filled: ArchiveIndex) -> None:
    found = ask(filled, "syslog", work_id="job-2")

    assert ids(found) == ["syslog-nebraska-1", "syslog-texas-1", "syslog-texas2-1"]


def test_what_of_a_work_and_a_place(filled: ArchiveIndex) -> None:
    assert ids(ask(filled, "syslog", work_id="job-2", where="texas")) == ["syslog-texas-1"]


BOUNDS = (
    (None, None),
    (T0 + DAY, None),
    (None, T0 + DAY),
    (T0 + DAY, T0 + 2 * DAY),
    (T0 + 90 * DAY, T0 + 90 * DAY),
    (T0 - DAY, T0 - 1),
)


def test_whats_are_counted_as_the_records_say(filled: ArchiveIndex, record_of) -> None:
    long = record_of(id="long", what="long", where="texas", start=T0, end=T0 + 100 * DAY)
    moment = record_of(id="moment", what="syslog", where="ohio", start=T0 + 5 * DAY, end=None)
    torn = record_of(id="torn", what="syslog", where="texas", start=T0, end=T0 + 9 * DAY)
    note = Retraction(reason="torn", retracted_at=to_datetime(T0))
    filled.put([long, moment, replace(torn, retraction=note, size_bytes=2**40)])
    filled.put([long])  # a repetition counts once
    archive = Archive(MemoryStore("whats"), filled)
    records = list(filled.records())

    for where, (start, end), retracted in itertools.product(
        (None, "texas", "nope"), BOUNDS, (False, True)
    ):
        told = archive.whats(where=where, start=start, end=end, retracted=retracted)

        assert told == summaries(
            record
            for record in records
            if (start is None or record.last_ms >= start)
            and (end is None or record.metadata.start <= end)
            and where in (None, record.where)
            and (retracted or record.retraction is None)
        )
    assert [one.what for one in archive.whats()] == ["apache", "long", "syslog"]
    assert archive.whats(retracted=True)[2].size_bytes > 2**40 > archive.whats()[2].size_bytes


def summaries(records: Iterable[ArchiveRecord]) -> tuple[WhatSummary, ...]:
    """Count records in the plain way."""
    by_what: dict[str, list[ArchiveRecord]] = {}
    for record in records:
        by_what.setdefault(record.what, []).append(record)
    return tuple(
        WhatSummary(
            what=what,
            file_count=len(files),
            size_bytes=sum(file.size_bytes for file in files),
            first=min(file.start for file in files),
            last=max(file.end or file.start for file in files),
            wheres=tuple(sorted({file.where for file in files})),
        )
        for what, files in sorted(by_what.items())
    )


def test_whats_refuse_bounds_that_are_no_times(filled: ArchiveIndex) -> None:
    archive = Archive(MemoryStore("whats"), filled)
    mistakes: list[dict[str, Any]] = [{"start": "soon"}, {"start": T0 + 1, "end": T0}, {"where": 7}]
    for bounds in mistakes:
        with pytest.raises(InvalidInputError):
            archive.whats(**bounds)


def test_what_is_not_there_is_not_found(filled: ArchiveIndex) -> None:
    for question in (
        {"what": "nope", "work_id": "job-1"},
        {"what": "Not Legal", "work_id": "job-1"},
        {"what": "apache", "work_id": "nope"},
        {"what": "apache", "work_id": "job-1", "where": "tex"},
        {"what": "apache", "work_id": "job-1", "where": ""},
        {"what": "nope", "start": T0 - 9 * DAY, "end": T0 + DAY},
        {"what": "apache", "start": T0, "end": T0 + DAY, "where": "tex"},
        {"what": "apache", "start": T0 - 2 * DAY, "end": T0 - 1},
    ):
        assert ask(filled, **question) == [], question


def test_record_comes_back_as_it_went_in(index: ArchiveIndex, record_of) -> None:
    record = record_of(
        id="a", work_id="job-1", more={"deep": [1, 2.5, None, True, "é", {"x": ""}]}, rate=0.1
    )
    index.put([record])

    assert index.find("a") == record
    assert ask(index, "apache", work_id="job-1") == [record]
    assert ask(index, "apache", start=T0, end=T0) == [record]
    assert list(index.records()) == [record]
    assert index.find("b") is None


# Intervals


def test_intervals_are_closed(index: ArchiveIndex, record_of) -> None:
    index.put([record_of(id="a", start=T0, end=T0 + HOUR)])

    for start, end, is_found in (
        (T0, T0, True),
        (T0 - 1, T0 - 1, False),
        (T0 + HOUR, T0 + DAY, True),
        (T0 + HOUR + 1, T0 + DAY, False),
        (T0 + 1, T0 + 2, True),
        (T0 - 5 * DAY, T0 + 5 * DAY, True),
    ):
        assert bool(ask(index, "apache", start=start, end=end)) is is_found


@pytest.mark.parametrize("end", [None, ...])
def test_without_end_only_the_start_counts(index, record_of, end: object) -> None:
    index.put([record_of(id="a", start=T0 + HOUR, end=end)])

    assert ids(ask(index, "apache", start=T0, end=T0 + HOUR)) == ["a"]
    assert ask(index, "apache", start=T0 + HOUR + 1, end=T0 + DAY) == []
    assert ask(index, "apache", start=T0, end=T0 + HOUR - 1) == []


@pytest.mark.parametrize("days", [0, 1, 29, 30, 31, 400, 100_000])
def test_files_of_any_span_are_found_on_each_of_their_days(index, record_of, days: int) -> None:
    index.put([record_of(id="a", start=T0, end=T0 + days * DAY)])

    for day in {0, 1, days // 2, days - 1, days}:
        found = ask(index, "apache", start=T0 + day * DAY, end=T0 + day * DAY + HOUR)
        assert ids(found) == (["a"] if 0 <= day <= days else [])
    assert ask(index, "apache", start=T0 - DAY, end=T0 - 1) == []
    after = T0 + days * DAY + 1
    assert ask(index, "apache", start=after, end=after + DAY) == []


def test_times_before_the_epoch_are_times(index: ArchiveIndex, record_of) -> None:
    records = [
        record_of(id="a", start=to_datetime(-1), end=None),
        record_of(id="b", start=to_datetime(-2), end=to_datetime(1)),
    ]
    index.put(records)

    assert [index.find(one) for one in "ab"] == records
    assert ids(ask(index, "apache", start="1969-12-31", end="1970-01-01")) == ["a", "b"]
    assert ids(ask(index, "apache", start=0, end="1970-01-01T00:00:00.001")) == ["b"]


def test_answers_agree_with_a_plain_search(index: ArchiveIndex, record_of) -> None:
    rng = random.Random(7)
    records = []
    for number in range(120 if index.kind == "sqlite" else 25):
        start = T0 + rng.randrange(60 * DAY)
        span = rng.choice([None, 0, 1, HOUR, HOUR - 1, DAY, 5 * DAY, 29 * DAY, 31 * DAY, 90 * DAY])
        records.append(
            record_of(
                id=f"f{number:03d}",
                where=rng.choice(["a", "b"]),
                start=start,
                end=None if span is None else start + span,
            )
        )
    index.put(records)

    for _ in range(40 if index.kind == "sqlite" else 8):
        first = T0 + rng.randrange(-5, 65) * DAY + rng.choice([0, 1, HOUR])
        last = first + rng.choice([0, 1, HOUR, DAY - 1, DAY, 10 * DAY])
        where = rng.choice([None, "a", "b"])
        found = ask(
            index,
            "apache",
            limit=rng.choice([1, 7, 100]),
            start=str(first),
            end=str(last),
            where=where,
        )
        assert ids(found) == [
            record.id
            for record in records
            if record.metadata.start <= last
            and record.last_ms >= first
            and where in {None, record.where}
        ]


# Pages


@pytest.mark.parametrize("count", [0, 4, 5, 6, 10])
def test_records_are_complete_over_pages_and_none_comes_twice(index, record_of, count: int) -> None:
    index.put(
        record_of(id=f"f{n}", start=T0, end=T0 + 3 * DAY, work_id="job-1") for n in range(count)
    )

    for question in ({"start": T0, "end": T0 + 5 * DAY}, {"work_id": "job-1"}):
        found = pages(index, "apache", 5, **question)
        assert [len(page) for page in found[:-1]] == [5] * (len(found) - 1)
        assert len(found[-1]) > 0 or count == 0
        assert ids([record for page in found for record in page]) == sorted(
            f"f{n}" for n in range(count)
        )


def test_page_has_a_hundred_records_unless_told_otherwise(record_of) -> None:
    index = open_index("sqlite://")
    index.create()
    index.put(record_of(id=f"f{n}", start=T0, end=None) for n in range(250))
    query = ArchiveQuery.of("apache", start=T0, end=T0)

    first = index.page(query)

    assert len(first.records) == 100
    assert [len(page) for page in pages(index, "apache", start=T0, end=T0)] == [100, 100, 50]


def test_few_matches_among_many_are_on_the_first_page(index: ArchiveIndex, record_of) -> None:
    index.put(record_of(id=f"f{n}", start=T0 + n, end=None) for n in range(25))

    first, *others = pages(index, "apache", start=T0 + 10, end=T0 + 15)

    assert (len(first), others) == (6, [])


def test_page_of_one_record_at_a_time(filled: ArchiveIndex) -> None:
    question = {"start": T0, "end": T0 + 2 * DAY}

    one_by_one = pages(filled, "apache", 1, **question)

    assert [len(page) for page in one_by_one] == [1] * 9
    assert ids([page[0] for page in one_by_one]) == ids(ask(filled, "apache", **question))


def test_limit_out_of_range_is_refused(index: ArchiveIndex) -> None:
    for limit in (0, -1, 1001):
        with pytest.raises(InvalidInputError, match="A page holds"):
            index.page(ArchiveQuery.of("apache", work_id="x"), limit=limit)


NO_CURSORS = [
    "foobar", "", "a", "é", "eyJ4IjoxfQ", "WzFd", "NQ", "W10", "bnVsbA", "x" * 10_000,
    "eyJjdXJyZW50X3RpbWVfYnVja2V0IjogMTY1NTIsICJsYXN0X2lkIjogImFiYyJ9",
]  # fmt: skip


def test_what_is_no_cursor_is_refused(index: ArchiveIndex) -> None:
    for question in ({"start": T0, "end": T0}, {"work_id": "job-1"}):
        for cursor in NO_CURSORS:
            with pytest.raises(InvalidInputError, match="not a cursor"):
                index.page(ArchiveQuery.of("apache", **question), cursor=cursor)


def test_cursor_is_bound_to_its_question(filled: ArchiveIndex) -> None:
    first = filled.page(ArchiveQuery.of("apache", start=T0, end=T0 + DAY), limit=1)

    for other in (
        ArchiveQuery.of("apache", start=T0, end=T0 + DAY + 1),
        ArchiveQuery.of("syslog", start=T0, end=T0 + DAY),
        ArchiveQuery.of("apache", start=T0, end=T0 + DAY, where="texas"),
        ArchiveQuery.of("apache", work_id="job-1"),
    ):
        with pytest.raises(InvalidInputError, match="another query"):
            filled.page(other, cursor=first.next_cursor)


def test_forged_positions_leak_nothing(filled: ArchiveIndex) -> None:
    from lakebed.archive.query import encode_cursor

    for question in ({"start": T0, "end": T0 + DAY}, {"work_id": "job-1"}):
        query = ArchiveQuery.of("apache", **question)
        for first in (0, -(10**40), 10**40, "", "16514:syslog", "99999:apache", "x\ud800", "id:a"):
            for second in ("", "x", "\ud800", "nebraska:"):
                try:
                    page = filled.page(
                        query, cursor=encode_cursor(query, filled.kind, (first, second))
                    )
                except InvalidInputError:
                    continue
                assert {record.what for record in page.records} <= {"apache"}


# Changes


def test_put_is_idempotent(index: ArchiveIndex, record_of) -> None:
    record = record_of(id="a", end=T0 + 3 * DAY, work_id="job-1")

    for _ in range(3):
        index.put([record])

    assert ask(index, "apache", start=T0, end=T0 + 5 * DAY) == [record]
    assert ask(index, "apache", work_id="job-1") == [record]


@pytest.mark.parametrize(
    "change",
    [
        {"start": T0 + 10 * DAY, "end": T0 + 11 * DAY},
        {"end": T0 + 300 * DAY},
        {"end": None},
        {"where": "texas"},
        {"what": "syslog"},
        {"work_id": "job-2"},
        {"work_id": None},
    ],
)
def test_changed_file_leaves_no_stale_record(index, record_of, change: dict[str, Any]) -> None:
    before = record_of(id="a", end=T0 + 3 * DAY, work_id="job-1")
    after = record_of(**{"id": "a", "end": T0 + 3 * DAY, "work_id": "job-1", **change})
    index.put([before])

    index.put([after])

    assert list(index.records()) == [after]
    for what in ("apache", "syslog"):
        for where in (None, "texas"):
            expected = [after] if after.what == what and where in {None, after.where} else []
            found = ask(index, what, start=T0 - DAY, end=T0 + 12 * DAY, where=where)
            assert found == expected
        for work_id in ("job-1", "job-2", "nulla"):
            is_there = (after.what, after.work_id) == (what, work_id)
            assert ask(index, what, work_id=work_id) == ([after] if is_there else [])
    on_old_day = ask(index, after.what, start=T0 + 2 * DAY, end=T0 + 2 * DAY)
    assert on_old_day == ([after] if after.metadata.start <= T0 + 2 * DAY <= after.last_ms else [])


def test_deleted_file_is_gone_from_everywhere(index: ArchiveIndex, record_of) -> None:
    index.put(record_of(id=name, end=T0 + 3 * DAY, work_id="job-1") for name in "ab")

    index.delete(["a", "missing"])

    assert index.find("a") is None
    assert ids(list(index.records())) == ["b"]
    assert ids(ask(index, "apache", start=T0, end=T0 + 5 * DAY)) == ["b"]
    assert ids(ask(index, "apache", work_id="job-1")) == ["b"]


def test_work_id_that_looks_like_a_file_without_one_finds_no_other(index, record_of) -> None:
    index.put([record_of(id="abc", work_id=None), record_of(id="x", work_id="nullabc")])

    assert ids(ask(index, "apache", work_id="nullabc")) == ["x"]


# Latest


def latest(index: ArchiveIndex, lookback: int = 14, now: int = T0 + HOUR) -> str | None:
    today = now // DAY
    found = index.latest(
        "apache", "nebraska", first_ms=(today - lookback) * DAY, last_ms=(today + 1) * DAY - 1
    )
    return None if found is None else found.id


def test_latest_is_the_greatest_start_in_either_order(index: ArchiveIndex, record_of) -> None:
    first = record_of(id="first", start=1314877177402, end=None)
    second = record_of(id="second", start=1314877177413, end=None)

    for records in ([first, second], [second, first]):
        index.put(records)
        assert latest(index, now=1314877177413) == "second"


def test_of_equal_starts_the_one_stored_later_is_latest(index: ArchiveIndex, record_of) -> None:
    index.put(
        record_of(id=name, start=1500000000000, end=None, create_time_ms=created)
        for name, created in (("b", 5_000), ("a", 9_000), ("c", 7_000))
    )

    assert latest(index, now=1500000000000) == "a"


def test_latest_today_yesterday_and_none(index: ArchiveIndex, record_of) -> None:
    assert latest(index) is None

    index.put([record_of(id="yesterday", start=T0 - 1, end=None)])
    assert latest(index) == "yesterday"
    assert latest(index, lookback=0) is None

    index.put([record_of(id="later-today", start=T0 + 20 * HOUR, end=None)])
    assert latest(index) == "later-today"


def test_file_of_tomorrow_hides_no_other(index: ArchiveIndex, record_of) -> None:
    index.put(
        [
            record_of(id="tomorrow", start=T0 + DAY, end=None),
            record_of(id="next-year", start=T0 + 365 * DAY, end=T0 + 800 * DAY),
            record_of(id="today", start=T0, end=None),
        ]
    )

    assert latest(index) == "today"


def test_file_that_reaches_into_today_does_not_beat_a_later_start(index, record_of) -> None:
    index.put(
        [
            record_of(id="long", start=T0 - 5 * DAY, end=T0 + HOUR),
            record_of(id="yesterday", start=T0 - DAY, end=T0 - DAY + HOUR),
        ]
    )

    assert latest(index) == "yesterday"


@pytest.mark.parametrize(("lookback", "is_found"), [(19, False), (20, True)])
def test_lookback_is_in_days(index, record_of, lookback: int, is_found: bool) -> None:
    index.put([record_of(id="a", start=T0 - 20 * DAY + HOUR, end=None)])

    assert (latest(index, lookback) == "a") is is_found


@pytest.mark.parametrize("days", [25, 29, 31, 400])
def test_long_file_that_still_runs_is_the_latest(index, record_of, days: int) -> None:
    index.put(
        [
            record_of(id="running", start=T0 - days * DAY, end=T0),
            record_of(id="over", start=T0 - 20 * DAY, end=T0 - 19 * DAY),
            record_of(id="other", where="texas", start=T0, end=T0),
        ]
    )

    assert latest(index) == "running"


def test_latest_agrees_with_a_plain_search(index: ArchiveIndex, record_of) -> None:
    rng = random.Random(11)
    records = [
        record_of(
            id=f"f{number}",
            start=(start := T0 + rng.randrange(-80, 10) * DAY + rng.choice([0, HOUR])),
            end=start + rng.choice([0, HOUR, 3 * DAY, 40 * DAY]),
            create_time_ms=number,
        )
        for number in range(60 if index.kind == "sqlite" else 15)
    ]
    index.put(records)

    for lookback in (0, 5, 14, 60):
        for day in (-30, 0, 9):
            today = T0 // DAY + day
            touching = [
                record
                for record in records
                if record.last_ms >= (today - lookback) * DAY
                and record.metadata.start < (today + 1) * DAY
            ]
            best = max(
                touching, key=lambda one: (one.metadata.start, one.create_time_ms), default=None
            )
            assert latest(index, lookback, now=today * DAY) == (None if best is None else best.id)


# The index as a value


def test_creating_again_keeps_what_is_there(index: ArchiveIndex, record_of) -> None:
    index.put([record_of(id="a")])

    index.create()

    assert index.find("a") is not None


def test_text_that_is_no_unicode_is_refused_by_name(index: ArchiveIndex, record_of) -> None:
    for use in (
        lambda: index.put([record_of(id="x\ud800")]),
        lambda: index.find("\ud800"),
        lambda: ask(index, "\ud800", work_id="x"),
    ):
        with pytest.raises(InvalidInputError):
            use()


@pytest.mark.parametrize("kind", ["sqlite", "dynamodb"])
def test_pickled_index_is_the_same(kind, request, tmp_path, record_of) -> None:
    url = (
        f"sqlite://{tmp_path}/x.db" if kind == "sqlite" else request.getfixturevalue("dynamodb_url")
    )
    index = open_index(url)
    index.create()
    index.put([record_of(id="a")])

    copy = pickle.loads(pickle.dumps(index))

    assert copy.url == index.url == url
    assert copy.find("a") == index.find("a")
    assert url in repr(copy)
    copy.close()
    assert copy.find("a") is not None
    copy.close()
    index.close()


@pytest.mark.parametrize("kind", ["sqlite", "dynamodb"])
def test_index_that_is_not_there_is_told_with_its_remedy(kind, request, tmp_path) -> None:
    url = (
        f"sqlite://{tmp_path}/x.db" if kind == "sqlite" else request.getfixturevalue("dynamodb_url")
    )

    with pytest.raises(StorageError, match="archive init"):
        open_index(url).find("a")

    assert not (tmp_path / "x.db").exists()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mysql://x",
        "dynamodb://",
        "dynamodb:x",
        "dynamodb://t/x",
        "dynamodb://t?nope=1",
        "sqlite:x",
    ],
)
def test_url_of_no_index_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError):
        open_index(url)


# SQLite alone


def test_file_of_another_program_is_left_alone(tmp_path) -> None:
    import sqlite3

    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as theirs, theirs:
        theirs.execute("CREATE TABLE files (x)")

    with pytest.raises(InvalidInputError, match="another program"):
        open_index(path).create()


def test_newer_format_is_refused(tmp_path) -> None:
    import sqlite3

    index = open_index(tmp_path / "new.db")
    index.create()
    index.close()
    with closing(sqlite3.connect(tmp_path / "new.db")) as file:
        file.execute("PRAGMA user_version = 2")

    with pytest.raises(UnsupportedVersionError, match="format 2"):
        index.find("a")


def files_of(folder: Path) -> list[str]:
    return [path for path in open_files() if path.startswith(f"{folder.resolve()}/")]


def test_a_closed_archive_leaves_no_file_open_and_opens_again_on_use(tmp_path: Path) -> None:
    with lakebed.open_archive(tmp_path / "raw") as archive:
        archive.init()
        assert bool(files_of(tmp_path)) == CAN_TELL
    assert files_of(tmp_path) == []

    assert archive.index.find("a") is None
    assert bool(files_of(tmp_path)) == CAN_TELL
    archive.close()
    archive.close()
    assert files_of(tmp_path) == []


# From Python 3.13 on, a connection that nobody closed is a warning, which is an error here.
@pytest.mark.parametrize("url", ["sqlite://{}/index.db", "sqlite://"])
def test_an_index_that_is_dropped_closes_its_connection(tmp_path: Path, url: str) -> None:
    index = open_index(url.format(tmp_path))
    index.create()

    del index

    assert files_of(tmp_path) == []


def test_a_memory_index_keeps_its_records_when_it_is_closed(record_of) -> None:
    record = record_of()
    index = open_index("sqlite://")
    index.put([record])
    index.close()
    assert index.find(record.id) == record


_FORKS = """
import os, sys
from lakebed.archive import open_index

index = open_index(sys.argv[1])
index.create()
parents = index._connection
child = os.fork()
if child == 0:
    assert index.find("a") is None
    index.close()
    parents.total_changes  # an error if it is closed
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert index.find("a") is None
index.close()
"""


def test_a_forked_process_leaves_the_connection_of_its_parent_open(tmp_path: Path) -> None:
    # Python 3.12 and newer advise against forks where there are threads, as numpy's.
    warnings = ["-W", "error::ResourceWarning", "-W", "ignore::DeprecationWarning"]
    words = [sys.executable, *warnings, "-c", _FORKS, tmp_path / "index.db"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_index_is_there_once_it_is_made(tmp_path, dynamodb_url: str) -> None:
    for url in (f"sqlite://{tmp_path}/new.db", dynamodb_url):
        index = open_index(url)
        assert not index.exists()
        assert not index.exists()  # asking does not make it
        index.create()
        assert index.exists()
        index.close()


@pytest.mark.parametrize("content", [b"no database at all, but long enough to look at" * 100])
def test_damaged_file_is_an_error_of_format(tmp_path, content: bytes) -> None:
    (tmp_path / "bad.db").write_bytes(content)

    with pytest.raises(CorruptMetadataError, match="reindex"):
        open_index(tmp_path / "bad.db").find("a")


def test_directory_in_the_place_of_the_index_is_told(tmp_path) -> None:
    with pytest.raises(AccessDeniedError):
        open_index(tmp_path).create()


# DynamoDB alone


def test_table_with_other_keys_is_refused(aws: str, dynamodb_url: str) -> None:
    import boto3

    client = boto3.client("dynamodb", region_name="us-east-1", endpoint_url=aws)
    name = dynamodb_url.partition("://")[2].partition("?")[0]
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "x", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "x", "KeyType": "HASH"}],
    )

    with pytest.raises(InvalidInputError, match="table of its own"):
        open_index(dynamodb_url).create()


def test_table_has_the_keys_and_records_of_the_document(aws, dynamodb_url, record_of) -> None:
    import boto3

    index = open_index(dynamodb_url)
    index.create()
    record = record_of(id="91dd2525a5924c6c972e3d67fee8cda9", end=T0 + DAY, work_id="job-1")
    index.put([record])

    client = boto3.client("dynamodb", region_name="us-east-1", endpoint_url=aws)
    name = dynamodb_url.partition("://")[2].partition("?")[0]
    items = client.scan(TableName=name)["Items"]
    table = client.describe_table(TableName=name)["Table"]

    keys = sorted((one["time_index_key"]["S"], one["range_key"]["S"]) for one in items)
    assert keys == [
        ("16514:apache", "nebraska:91dd2525a5924c6c972e3d67fee8cda9"),
        ("16515:apache", "nebraska:91dd2525a5924c6c972e3d67fee8cda9"),
        ("id:91dd2525a5924c6c972e3d67fee8cda9", "nebraska:91dd2525a5924c6c972e3d67fee8cda9"),
    ]
    by_key = {one["time_index_key"]["S"]: one for one in items}
    for document in record.to_documents():
        stored = by_key[document["time_index_key"]]
        assert document.keys() <= stored.keys()
        assert stored["work_id_index_key"]["S"] == "job-1:apache"
    assert sorted(by_key["id:91dd2525a5924c6c972e3d67fee8cda9"]) == [
        "day_keys",
        "range_key",
        "time_index_key",
        "token",
    ]
    by_name = {one["IndexName"]: one["KeySchema"] for one in table["GlobalSecondaryIndexes"]}
    assert [one["AttributeName"] for one in by_name["work-id-index"]] == [
        "work_id_index_key",
        "range_key",
    ]
    index.close()


def day_keys(client: Any, url: str) -> list[str]:
    """Return the time keys under which another reader of the table finds something."""
    table = url.partition("://")[2].partition("?")[0]
    pages = client.get_paginator("scan").paginate(TableName=table)
    keys = [item["time_index_key"]["S"] for page in pages for item in page["Items"]]
    return sorted(key for key in keys if not key.startswith(("id:", "long:")))


@pytest.fixture
def daily(dynamodb_url: str) -> Iterator[ArchiveIndex]:
    index = open_index(f"{dynamodb_url}&daily=true")
    index.create()
    yield index
    index.close()


@pytest.mark.parametrize("days", [31, 100, 366])
def test_long_file_has_a_record_a_day_by_choice_and_one_answer(
    daily: ArchiveIndex, dynamodb_client: Any, dynamodb_url: str, record_of: Any, days: int
) -> None:
    record = record_of(end=T0 + (days - 1) * DAY, work_id="job-1")
    daily.put([record])

    expected = sorted(f"{16514 + day}:apache" for day in range(days))
    assert day_keys(dynamodb_client, dynamodb_url) == expected
    table = dynamodb_url.partition("://")[2].partition("?")[0]
    found = dynamodb_client.query(
        TableName=table,
        KeyConditionExpression="time_index_key = :k",
        ExpressionAttributeValues={":k": {"S": f"{16514 + days - 1}:apache"}},
    )["Items"]
    assert [one["metadata"]["M"]["id"]["S"] for one in found] == [record.id]
    for question in (
        {"start": T0, "end": T0 + days * DAY},
        {"start": T0 + 5 * DAY, "end": T0 + 6 * DAY},
        {"work_id": "job-1"},
    ):
        assert ask(daily, "apache", **question) == [record]
    assert list(daily.records()) == [record]
    assert daily.find(record.id) == record
    last_ms = T0 + 40 * DAY
    assert daily.latest("apache", "nebraska", first_ms=T0 + DAY, last_ms=last_ms) == record


def test_records_of_days_follow_a_change_and_go_with_the_file(
    daily: ArchiveIndex, dynamodb_client: Any, dynamodb_url: str, record_of: Any
) -> None:
    daily.put([record_of(id="same", end=T0 + 120 * DAY)])
    daily.put([record_of(id="same", start=T0 + 3 * DAY, end=T0 + 60 * DAY, what="nginx")])

    changed = day_keys(dynamodb_client, dynamodb_url)

    assert changed == sorted(f"{16514 + day}:nginx" for day in range(3, 61))
    daily.put([record_of(id="same", end=T0 + DAY)])
    assert day_keys(dynamodb_client, dynamodb_url) == ["16514:apache", "16515:apache"]
    daily.put([record_of(id="same", end=T0 + 60 * DAY)])
    daily.delete(["same"])
    assert day_keys(dynamodb_client, dynamodb_url) == []
    assert list(daily.records()) == []


def test_index_without_the_choice_takes_the_records_of_days_away(
    daily: ArchiveIndex, dynamodb_client: Any, dynamodb_url: str, record_of: Any
) -> None:
    record = record_of(end=T0 + 60 * DAY)
    daily.put([record])
    plain = open_index(dynamodb_url)

    plain.put([record])

    assert day_keys(dynamodb_client, dynamodb_url) == []
    assert list(plain.records()) == [record]
    daily.put(plain.records())  # as reindex does
    assert len(day_keys(dynamodb_client, dynamodb_url)) == 61
    plain.close()


def test_file_of_too_many_days_for_a_record_a_day_is_refused(
    daily: ArchiveIndex, record_of: Any
) -> None:
    with pytest.raises(InvalidInputError, match=r"3,661 days is too long for a record a day"):
        daily.put([record_of(end=T0 + 3_660 * DAY)])


def test_choice_of_records_of_days_that_is_neither_is_refused(dynamodb_url: str) -> None:
    with pytest.raises(InvalidInputError, match="daily='yes'"):
        open_index(f"{dynamodb_url}&daily=yes")


def test_question_about_too_many_days_is_refused_with_the_limit(dynamodb_url) -> None:
    index = open_index(dynamodb_url)
    index.create()

    with pytest.raises(InvalidInputError, match="3,660"):
        index.page(ArchiveQuery.of("apache", start=0, end="2026-01-01"))
    index.close()


def test_missing_credentials_are_told(dynamodb_url, monkeypatch) -> None:
    import boto3

    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it remembers those of other tests
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")

    with pytest.raises(AccessDeniedError, match="credentials"):
        open_index(dynamodb_url).find("a")


def test_endpoint_that_does_not_answer_is_retryable(monkeypatch, aws) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    index = open_index("dynamodb://t?region=us-east-1&endpoint=http%3A%2F%2F127.0.0.1%3A9")

    with pytest.raises(StorageError) as failure:
        index.find("a")

    assert failure.value.retryable
    index.close()


# Questions


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({}, "no 'what'"),
        ({"start": 1}, "no 'what'"),
        ({"what": "x"}, "neither a work id nor a time"),
        ({"what": "x", "work_id": "j", "start": 1}, "both"),
        ({"what": "x", "work_id": "j", "end": 1}, "both"),
        ({"what": "x", "start": 1}, "no end"),
        ({"what": "x", "end": 1}, "no start"),
        ({"what": "x", "start": T0, "end": T0 - 1}, "after end"),
        ({"what": "x", "start": "notaninteger", "end": T0}, "not a time"),
        ({"what": "x", "start": T0, "end": "notaninteger"}, "not a time"),
        ({"what": "x", "start": 200, "end": T0}, "not a clear time"),
        ({"what": 5, "work_id": "j"}, "not text"),
        ({"what": "x", "work_id": ["j"]}, "not text"),
    ],
)
def test_bad_question_is_refused(question: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ArchiveQuery.of(question.pop("what", None), **question)


def test_now_is_a_time_of_a_question() -> None:
    now = dt.datetime(2015, 3, 20, tzinfo=dt.UTC)

    assert ArchiveQuery.of("x", start=0, end="now", now=now).end == T0


def test_table_of_an_earlier_release_is_read_and_mended_by_the_next_put(
    aws, dynamodb_url, record_of
) -> None:
    """Its items of days had no key of the work id, and the item of the file held the record."""
    import boto3

    index = open_index(dynamodb_url)
    index.create()
    record = record_of(id="a", end=T0 + DAY, work_id="job-1")
    index.put([record])
    table = boto3.resource("dynamodb", region_name="us-east-1", endpoint_url=aws).Table(
        dynamodb_url.partition("://")[2].partition("?")[0]
    )
    items = {item["time_index_key"]: item for item in table.scan()["Items"]}
    first = items["16514:apache"]
    table.put_item(Item={**first, **items["id:a"]})
    for key in ("16514:apache", "16515:apache"):
        old = {name: items[key][name] for name in items[key] if name != "work_id_index_key"}
        table.put_item(
            Item={name: old[name] for name in old if name not in ("start", "what_where_key")}
        )

    def answers() -> list[object]:
        return [
            index.find("a"),
            list(index.records()),
            ask(index, "apache", work_id="job-1"),
            ask(index, "apache", start=T0, end=T0 + DAY),
            latest(index),
        ]

    expected = [record, [record], [record], [record], "a"]
    assert answers() == expected
    index.put([record])
    assert answers() == expected
    assert (
        "metadata"
        not in table.get_item(Key={"time_index_key": "id:a", "range_key": record.range_key})["Item"]
    )
    index.delete(["a"])
    assert table.scan()["Items"] == []
    index.close()

"""The conditions and values that Delta's documentation shows, as they stand there."""

from __future__ import annotations

import datetime as dt
import uuid

import pyarrow as pa
import pytest

import lakebed
from lakebed import Repository

TODAY = dt.datetime.now(dt.UTC).date()


@pytest.fixture
def lake() -> Repository:
    lake = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    events = {
        "id": list(range(6)),
        "date": [dt.date(2016, 12, 31), dt.date(2017, 1, 1), *[TODAY] * 4],
        "eventType": ["clck", "click", "clck", "", None, "open"],
        "status": ["active"] * 6,
        "lastSeen": [TODAY - dt.timedelta(days=days) for days in (0, 1, 4, 5, 6, 30)],
        "deleted": [False] * 6,
        "key": [f"k{number}" for number in range(6)],
    }
    lake.write("events", pa.table(events))
    return lake


def updates(**columns: list[object]) -> dict[str, pa.Table]:
    return {"updates": pa.table(columns)}


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("date < '2017-01-01'", [0]),
        ("eventType = 'clck'", [0, 2]),
        ("id % 2 == 0", [0, 2, 4]),
        ("eventType = 'clck' and date < '2017-01-01'", [0]),
        ("date >= current_date() - INTERVAL '5' DAY", [2, 3, 4, 5]),
        ("date > current_date() - INTERVAL 7 DAYS", [2, 3, 4, 5]),
        ("eventType <=> null", [4]),
        ("length(eventType) = 0 OR eventType IS NULL", [3, 4]),
        ("date_format(date, 'yyyy') = '2016'", [0]),
    ],
)
def test_conditions_of_deletes_and_updates(
    lake: Repository, condition: str, ids: list[int]
) -> None:
    assert sorted(lake["events"].where(condition).arrow(["id"])["id"].to_pylist()) == ids
    report = lake.sql(f"UPDATE events SET status = 'x' WHERE {condition}", write=True)
    assert report.updated_row_count == len(ids)
    lake.sql(f"DELETE FROM events WHERE {condition}", write=True)
    assert lake["events"].count() == 6 - len(ids)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({"eventType": "'click'"}, "click"),
        ({"id": "id + 100"}, 100),
        ({"eventType": "upper(eventType)"}, "CLCK"),
        ({"date": "date_add(date, 1)"}, dt.date(2017, 1, 1)),
    ],
)
def test_values_of_updates(lake: Repository, values: dict[str, str], wanted: object) -> None:
    lake["events"].where("id = 0").update_rows(values)
    (name,) = values
    assert lake["events"].where("key = 'k0'").arrow([name])[name].to_pylist() == [wanted]


@pytest.mark.parametrize(
    ("clauses", "changed"),
    [
        ("WHEN MATCHED AND s.deleted = true THEN DELETE", (0, 1)),
        ("WHEN MATCHED THEN UPDATE SET t.status = concat(t.status, '-', s.status)", (2, 0)),
        ("WHEN MATCHED AND s.lastSeen > t.lastSeen THEN UPDATE SET status = s.status", (1, 0)),
        (
            "WHEN NOT MATCHED BY SOURCE AND t.lastSeen >= (current_date() - INTERVAL '5' DAY) "
            "THEN UPDATE SET t.status = 'inactive'",
            (2, 0),
        ),
        ("WHEN MATCHED AND t.id % 2 = s.id % 2 AND length(s.status) > 2 THEN DELETE", (0, 2)),
    ],
)
@pytest.mark.parametrize("on", ["t.key = s.key", "upper(t.key) = upper(s.key)", "t.id = s.id"])
def test_clauses_of_merges(
    lake: Repository, on: str, clauses: str, changed: tuple[int, int]
) -> None:
    given = updates(
        id=[1, 3],
        key=["k1", "k3"],
        status=["new", "old"],
        lastSeen=[TODAY - dt.timedelta(days=1), TODAY],
        deleted=[True, False],
    )
    report = lake.sql(
        f"MERGE INTO events t USING updates s ON {on} {clauses}", tables=given, write=True
    )
    assert (report.updated_row_count, report.deleted_row_count) == changed


def test_deduplication_of_logs(lake: Repository) -> None:
    given = updates(id=[4, 10, 11], date=[TODAY, TODAY, dt.date(2020, 1, 1)])
    report = lake.sql(
        "MERGE INTO events logs USING updates newDedupedLogs "
        "ON logs.id = newDedupedLogs.id AND logs.date > current_date() - INTERVAL 7 DAYS "
        "WHEN NOT MATCHED AND newDedupedLogs.date > current_date() - INTERVAL 7 DAYS "
        "THEN INSERT (id, date) VALUES (newDedupedLogs.id, newDedupedLogs.date)",
        tables=given,
        write=True,
    )
    assert report.inserted_row_count == 1

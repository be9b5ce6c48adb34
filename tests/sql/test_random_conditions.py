"""SELECT, DELETE, UPDATE and count of one condition choose the same rows, or refuse it by name."""

from __future__ import annotations

import uuid

import pytest
from random_conditions import Conditions, make_rows

import lakebed
from lakebed.errors import InvalidInputError, PredicateError


def rows_of(lake: lakebed.Repository, condition: str) -> dict[str, object]:
    """Return what each way finds: ids or a number of rows; an error stands for itself."""
    dataset = lake["t"]

    def count(report: object, name: str) -> object:
        return 0 if report is None else getattr(report, name)

    ways = {
        "SELECT": lambda: sorted(lake.sql(f"SELECT id FROM t WHERE {condition}")["id"].to_pylist()),
        "where": lambda: sorted(dataset.where(condition).arrow(["id"])["id"].to_pylist()),
        "count": lambda: dataset.where(condition).count(),
        "DELETE": lambda: count(
            lake.sql(f"DELETE FROM t WHERE {condition}", dry_run=True, write=True),
            "deleted_row_count",
        ),
        "UPDATE": lambda: count(
            lake.sql(f"UPDATE t SET i = 5 WHERE {condition}", dry_run=True, write=True),
            "updated_row_count",
        ),
    }
    found: dict[str, object] = {}
    for name, way in ways.items():
        try:
            found[name] = way()
        except (InvalidInputError, PredicateError) as error:
            found[name] = error
    return found


@pytest.mark.parametrize("count", [25, pytest.param(2_000, marks=pytest.mark.long)])
def test_each_statement_chooses_the_same_rows(count: int) -> None:
    lake = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    rows = make_rows()
    lake.write("t", rows.slice(0, 30), partition_by="b")
    lake["t"].append(rows.slice(30))
    conditions, answered = Conditions(seed=7), 0

    for _ in range(count):
        condition = conditions.make()
        found = rows_of(lake, condition)
        ids = {name: answer for name, answer in found.items() if isinstance(answer, list)}
        numbers = {
            len(answer) if isinstance(answer, list) else answer
            for answer in found.values()
            if not isinstance(answer, Exception)
        }
        assert len(numbers) <= 1, (condition, found)
        assert len(set(map(tuple, ids.values()))) <= 1, (condition, found)
        answered += len(ids) == 2

    assert answered > 0.9 * count

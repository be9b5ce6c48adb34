"""Checks as values: the tables that declare them, what is refused, and conditions on rows."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakebed.arrow.row_checks as row_checks_module
from lakebed import DatasetDescriptor, checks, open_repository
from lakebed.arrow.row_checks import RowChecks
from lakebed.errors import (
    InvalidInputError,
    InvalidNameError,
    LakebedError,
    PredicateError,
    SchemaMismatchError,
)
from lakebed.model.declared import check_from_table, to_tables

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("delay", pa.int64()),
        ("share", pa.float64()),
        ("carrier", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("spot", pa.struct([("x", pa.int64())])),
    ]
)

TABLES: dict[str, Any] = {
    "sane_delay": {"rows": "delay >= -120", "on_failure": "quarantine"},
    "named": {"not_null": ["carrier", "spot.x"], "on_failure": "reject"},
    "ids": {"unique": ["id"]},
    "pairs": {"unique": ["id", "carrier"], "of": "batch", "on_failure": "warn"},
    "airports": {"reference": "carrier -> airports.code"},
    "volume": {"row_count_within": 0.5, "of_last": 10},
    "some": {"min_rows": 1, "max_rows": 10},
    "recent": {"column": "ts", "within": "90m", "on_failure": "warn"},
}


def test_tables_are_read_and_written_alike() -> None:
    declared = checks.from_table(TABLES)

    assert to_tables(declared) == TABLES
    assert checks.from_table(to_tables(declared)) == declared
    descriptor = DatasetDescriptor(schema=SCHEMA, checks=declared)
    assert DatasetDescriptor.from_document(descriptor.to_document()) == descriptor
    assert "checks sane_delay, named" in repr(descriptor)
    assert "sane_delay: condition" in descriptor._repr_html_()


def test_functions_make_the_same_checks() -> None:
    made = {
        "sane_delay": checks.condition("delay >= -120", on_failure="quarantine"),
        "named": checks.not_null("carrier", "spot.x", on_failure="reject"),
        "ids": checks.unique("id"),
        "pairs": checks.unique("id", "carrier", of="batch", on_failure="warn"),
        "airports": checks.reference("carrier", "airports.code"),
        "volume": checks.row_count_within(0.5, of_last=10),
        "some": checks.row_count(min=1, max=10),
        "recent": checks.fresh("ts", within=dt.timedelta(minutes=90), on_failure="warn"),
    }

    assert made == checks.from_table(TABLES)


def test_text_stands_for_a_condition_and_one_name_for_a_list() -> None:
    assert check_from_table("a", "delay > 0") == checks.condition("delay > 0")
    assert check_from_table("a", {"unique": "id"}) == checks.unique("id")


WRONG: list[tuple[Any, str]] = [
    ({"a": 5}, "Check 'a' is 5"),
    ({"a": {}}, "has none of the keys rows, not_null, unique"),
    ({"a": {"rows": 7}}, "rows is 7"),
    ({"a": {"rows": "x > 1", "on_fail": "warn"}}, "unknown key 'on_fail'"),
    ({"a": {"rows": "x > 1", "unique": ["x"]}}, "unknown key 'unique'"),
    ({"a": {"rows": "x > 1", "on_failure": "drop"}}, "on_failure is 'drop'"),
    ({"a": {"rows": "x > 1", "on_failure": ["warn"]}}, "on_failure is"),
    ({"a": {"rows": "x > 1", "of": "table"}}, "of 'table'"),
    ({"a": {"rows": "x" * 10_001}}, "has 10,001 characters"),
    ({"a": {"unique": []}}, "unique is"),
    ({"a": {"unique": [3]}}, "unique has 3"),
    ({"a": {"unique": ["x"], "on_failure": "reject"}}, "cannot reject rows"),
    ({"a": {"min_rows": 1, "on_failure": "quarantine"}}, "cannot quarantine rows"),
    ({"a": {"min_rows": -1}}, "min_rows is -1"),
    ({"a": {"max_rows": True}}, "max_rows is True"),
    ({"a": {"reference": "x"}}, "reference is 'x'"),
    ({"a": {"reference": "x -> y"}}, "'y' does not name a column of a dataset"),
    ({"a": {"row_count_within": 0}}, "row_count_within is 0"),
    ({"a": {"row_count_within": "half"}}, "row_count_within is 'half'"),
    ({"a": {"row_count_within": 0.5, "of_last": 0}}, "of_last is 0"),
    ({"a": {"row_count_within": 0.5, "of_last": 10**6}}, "of_last is 1000000"),
    ({"a": {"column": "ts", "within": "2 parsecs"}}, "within is '2 parsecs'"),
    ({"a": {"column": "ts", "within": "999999999w"}}, "within is '999999999w'"),
    ({"a": {"within": "2h"}}, "column is None"),
    ({"1a": {"rows": "x > 1"}}, "'1a' is not a valid name"),
    ({"a b": {"rows": "x > 1"}}, "'a b' is not a valid name"),
    ({"a" * 65: {"rows": "x > 1"}}, "is not a valid name"),
    ({f"c{n}": {"rows": "x > 1"} for n in range(65)}, "cannot declare 65 checks"),
    ([], r"Checks are"),
]


@pytest.mark.parametrize(("table", "message"), WRONG)
def test_wrong_table_is_refused_by_name(table: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        checks.from_table(table)


@pytest.mark.parametrize(
    "within", [dt.timedelta(milliseconds=500), dt.timedelta(seconds=10**9 + 1)]
)
def test_age_that_cannot_be_stored_is_refused(within: dt.timedelta) -> None:
    with pytest.raises(InvalidInputError, match="within is"):
        checks.fresh("ts", within=within)


def test_name_of_another_dataset_is_checked() -> None:
    with pytest.raises(InvalidNameError):
        checks.from_table({"a": {"reference": "x -> ../airports.code"}})


@pytest.mark.parametrize(
    ("check", "kind", "message"),
    [
        (checks.condition("delay >"), PredicateError, "cannot be used"),
        (checks.condition("nothing > 1"), PredicateError, "nothing"),
        (checks.condition("batch_id > 1"), PredicateError, "batch_id"),
        (checks.condition("delay > 0", of="dataset"), InvalidInputError, "Leave out of"),
        (checks.not_null("delai"), SchemaMismatchError, "unknown column: 'delai'"),
        (checks.unique("spot"), InvalidInputError, "cannot be a key"),
        (checks.unique("spot.x"), InvalidInputError, "cannot be a key"),
        (checks.reference("spot", "a.b"), InvalidInputError, "cannot be a key"),
        (checks.fresh("delay", within="2h"), InvalidInputError, "a column of times"),
        (checks.custom(lambda _: True, name="even"), InvalidInputError, "it is a function"),
        ("delay > 0", InvalidInputError, "is a str"),
    ],
)
def test_descriptor_refuses_a_check(check: Any, kind: type[LakebedError], message: str) -> None:
    with pytest.raises(kind) as caught:
        DatasetDescriptor(schema=SCHEMA, checks={"a": check})
    assert message in str(caught.value)


def test_stage_checks_cannot_leave_rows_out(tmp_path: Path) -> None:
    numbers = open_repository(tmp_path).create("numbers", pa.schema([("n", pa.int64())]))
    staged = numbers.staged.add([{"n": 1}])

    with pytest.raises(InvalidInputError, match="cannot reject rows of a batch"):
        staged.check(checks.condition("n > 1", on_failure="reject"))
    with pytest.raises(InvalidInputError, match="only for datasets that declare it"):
        staged.check(checks.reference("n", "a.b"))
    audit = staged.check(checks.condition("n > 1", on_failure="warn"))
    assert audit.has_passed
    assert not audit.results[0].has_passed


# Conditions with what they are in plain Python; None is unknown, and so fails.
ORACLES: dict[str, Any] = {
    "delay >= -120": lambda row: row["delay"] is not None and row["delay"] >= -120,
    "delay >= -120 OR delay IS NULL": lambda row: row["delay"] is None or row["delay"] >= -120,
    "NOT delay = 3": lambda row: row["delay"] is not None and row["delay"] != 3,
    "delay BETWEEN -1 AND 1 AND carrier <> 'UA'": lambda row: (
        row["delay"] is not None
        and -1 <= row["delay"] <= 1
        and row["carrier"] is not None
        and row["carrier"] != "UA"
    ),
    "carrier IN ('UA', 'AA')": lambda row: row["carrier"] in ("UA", "AA"),
    "carrier NOT IN ('UA', 'AA') OR delay = 0": lambda row: (
        (row["carrier"] is not None and row["carrier"] not in ("UA", "AA")) or row["delay"] == 0
    ),
    "carrier LIKE 'U%'": lambda row: row["carrier"] is not None and row["carrier"].startswith("U"),
    # NaN is greater than every number.
    "share <= 1.5": lambda row: row["share"] is not None and row["share"] <= 1.5,
    "share > 1.5": lambda row: row["share"] is not None and not row["share"] <= 1.5,
    "spot.x > 0": lambda row: row["spot"] is not None and (row["spot"]["x"] or 0) > 0,
}

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "delay": st.none() | st.integers(-200, 200) | st.integers(-3, 3),
            "share": st.none() | st.floats(width=32) | st.sampled_from([1.5, -0.0]),
            "carrier": st.none() | st.sampled_from(["UA", "AA", "U", ""]) | st.text(max_size=3),
            "spot": st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(-1, 1)}),
        }
    ),
    max_size=30,
)


@given(
    ROWS,
    st.dictionaries(
        st.sampled_from(sorted(ORACLES)),
        st.sampled_from(["refuse", "reject", "quarantine", "warn"]),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([0, row_checks_module.ROWS_FOR_BOUNDS]),
)
def test_rows_fail_as_in_plain_python(
    rows: list[dict[str, Any]], chosen: dict[str, checks.OnFailure], rows_for_bounds: int
) -> None:
    declared = {
        f"c{number}": checks.condition(sql, on_failure=action)
        for number, (sql, action) in enumerate(chosen.items())
    }
    row_checks = RowChecks(DatasetDescriptor(schema=SCHEMA, checks=declared))
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)

    with mock.patch.object(row_checks_module, "ROWS_FOR_BOUNDS", rows_for_bounds):
        judged = row_checks.judge(batch)

    passes = {
        name: np.array([bool(ORACLES[check.sql](row)) for row in rows], dtype=bool)  # type: ignore[attr-defined]
        for name, check in declared.items()
    }
    for status in row_checks.statuses():
        assert status.count == np.count_nonzero(~passes[status.name]), status
        assert (status.outcome == "passed") is bool(passes[status.name].all())
    leaving_out = [
        name for name, check in declared.items() if check.on_failure in ("reject", "quarantine")
    ]
    is_kept = np.ones(len(rows), dtype=bool)
    for name in leaving_out:
        is_kept &= passes[name]
    assert (
        judged.is_kept if judged else np.ones(len(rows), dtype=bool)
    ).tolist() == is_kept.tolist()
    quarantining = [name for name in leaving_out if declared[name].on_failure == "quarantine"]
    failing = [
        place for place in range(len(rows)) if any(not passes[name][place] for name in quarantining)
    ]
    assert (judged.quarantined.tolist() if judged else []) == failing
    refusing = [name for name, check in declared.items() if check.on_failure == "refuse"]
    assert row_checks.is_refused is any(not passes[name].all() for name in refusing)


def test_bounds_alone_prove_checks_of_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = {
        "sane": checks.condition("delay >= -120 AND delay < 1000"),
        "paid": checks.condition("share >= 0"),
        "named": checks.not_null("id"),
    }
    row_checks = RowChecks(DatasetDescriptor(schema=SCHEMA, checks=declared))
    many = row_checks_module.ROWS_FOR_BOUNDS
    columns = {"id": range(many), "delay": [7] * many, "share": [0.5] * many}
    batch = pa.table(columns).to_batches()[0]
    bad = batch.set_column(1, "delay", pa.array([7] * (many - 1) + [1000]))
    unknown = batch.set_column(2, "share", pa.array([0.5] * (many - 1) + [float("nan")]))
    evaluated: list[int] = []
    failing = row_checks_module.RowChecks.evaluated

    def counted(self: RowChecks, rules: list[Any], rows: pa.RecordBatch) -> Any:
        evaluated.append(len(rules))
        return failing(self, rules, rows)

    monkeypatch.setattr(RowChecks, "evaluated", counted)

    assert row_checks.judge(batch) is None
    assert evaluated == []
    assert row_checks.judge(unknown) is None  # NaN is greater than every number
    assert evaluated == [1]
    row_checks.judge(bad)

    assert [status.count for status in row_checks.statuses()] == [1, 0, 0]
    assert evaluated == [1, 1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["rows", "not_null", "unique", "reference", "row_count_within", "of_last", "min_rows",
     "max_rows", "column", "within", "of", "on_failure"]
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=5) | st.just("a"), st.dictionaries(KEYS, JSON) | JSON))
def test_any_stored_table_is_read_or_refused(table: dict[str, Any]) -> None:
    try:
        declared = checks.from_table(table)
    except (InvalidInputError, InvalidNameError):
        return
    assert checks.from_table(to_tables(declared)) == declared

"""Values of numpy, pyarrow and pandas, and of any collection, as parameters of conditions and values."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidInputError, PredicateError
from lakebed.model.schema import Kind, Primitive
from lakebed.model.values import check_value, listed_values, plain_value

MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 678, dt.UTC)
NAIVE = MOMENT.replace(tzinfo=None)
ROW = {
    "i": 2,
    "f": 2.5,
    "s": "a",
    "b": True,
    "raw": b"x",
    "d": dt.date(2026, 1, 2),
    "t": MOMENT,
    "q": decimal.Decimal("2.50"),
}
OTHER = {
    "i": 3,
    "f": 3.5,
    "s": "b",
    "b": False,
    "raw": b"y",
    "d": dt.date(2027, 1, 2),
    "t": MOMENT + dt.timedelta(days=1),
    "q": decimal.Decimal("3.50"),
}
# Each is the value of its column in ROW.
SAME: list[tuple[str, Any]] = [
    *[("i", kind(2)) for kind in (np.int8, np.uint8, np.int16, np.int32, np.uint64, np.int64)],
    *[("i", pa.scalar(2, kind)) for kind in (pa.int8(), pa.int64(), pa.uint64())],
    ("i", np.array(2)),
    ("i", decimal.Decimal("2.0")),
    ("f", np.float64(2.5)),
    ("f", np.float32(2.5)),
    ("f", pa.scalar(2.5)),
    ("f", decimal.Decimal("2.5")),
    ("s", np.str_("a")),
    ("s", pa.scalar("a", pa.large_string())),
    ("s", np.array("a")),
    ("b", np.bool_(True)),
    ("b", pa.scalar(True)),
    ("raw", np.bytes_(b"x")),
    ("raw", pa.scalar(b"x")),
    ("d", np.datetime64("2026-01-02")),
    ("d", pa.scalar(ROW["d"])),
    ("t", pd.Timestamp(MOMENT)),
    ("t", pd.Timestamp(NAIVE)),
    ("t", pd.Timestamp(MOMENT).tz_convert("Europe/Berlin")),
    ("t", np.datetime64(NAIVE)),
    ("t", np.datetime64(NAIVE, "ns")),
    ("t", pa.scalar(MOMENT, pa.timestamp("us", "UTC"))),
    ("t", pa.scalar(MOMENT, pa.timestamp("ns", "UTC"))),
    ("q", pa.scalar(decimal.Decimal("2.50"))),
    ("q", np.int64(2)),
]


@pytest.fixture(scope="module")
def dataset() -> lakebed.Dataset:
    lake = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    lake.write("t", [ROW, OTHER, dict.fromkeys(ROW)])
    return lake["t"]


@pytest.mark.parametrize(
    ("column", "value"), SAME, ids=lambda value: f"{type(value).__module__}.{type(value).__name__}"
)
def test_a_value_of_another_library_is_the_value(
    dataset: lakebed.Dataset, column: str, value: Any
) -> None:
    wanted = 0 if (column, value) == ("q", 2) else 1  # the column has 2.50

    for view in (
        dataset.where(f"{column} = ?", [value]),
        dataset.where(f"{column} = :x", {"x": value}),
        dataset.where(f"{column} IN ?", [[value]]),
        dataset.where(f"{column} IN ?", [value]),
        dataset.where(f"{column} IN (?, ?)", [value, value]),
        dataset.where([(column, "==", value)]),
        dataset.where([[(column, "in", [value])]]),
        dataset.kite.with_(column, value),
        dataset.kite.from_(column, value).kite.to(column, value),
    ):
        assert view.count() == wanted
    if column != "s":
        done = dataset.where("i = 3").update_rows({column: value}, dry_run=True)
        assert done is not None
        assert done.updated_row_count == 1


@pytest.mark.parametrize(
    "values",
    [
        [2, 3],
        (2, 3),
        {2, 3},
        frozenset((2, 3)),
        range(2, 4),
        dict.fromkeys((2, 3)).keys(),
        np.array([2, 3], dtype=np.int16),
        pa.array([2, 3]),
        pa.chunked_array([[2], [3]]),
        pd.Series([2, 3]),
        pd.Index([2, 3]),
        pd.array([2, 3], dtype="Int64"),
        pl.Series([2, 3]),
        [np.int64(2), pa.scalar(3)],
    ],
    ids=lambda values: f"{type(values).__module__}.{type(values).__name__}",
)
def test_values_of_any_collection_are_a_list(dataset: lakebed.Dataset, values: Any) -> None:
    for view in (
        dataset.where("i IN ?", [values]),
        dataset.where("i IN :x", {"x": values}),
        dataset.where("NOT (i NOT IN ?)", (values,)),
        dataset.where([("i", "in", values)]),
        dataset.where([[("i", "in", values)], [("i", "in", values)]]),
    ):
        assert view.count() == 2


def test_a_generator_is_read_once(dataset: lakebed.Dataset) -> None:
    assert dataset.where("i IN ?", [(k for k in (2, 3))]).count() == 2
    assert dataset.where("i IN ? AND s = ?", ((k for k in (2, 3)), "a")).count() == 1
    assert dataset.where([("i", "in", (k for k in (2, 3)))]).count() == 2
    assert dataset.where("i = ? OR i = ?", (k for k in (2, 3))).count() == 2


def test_a_flat_list_is_an_and(dataset: lakebed.Dataset) -> None:
    assert dataset.where([("i", "in", [2, 3]), ("s", "==", "a")]).count() == 1
    assert dataset.where((["i", ">", 2],)).count() == 1
    assert dataset.where([("i", "in", [2, None])]).count() == 2


@pytest.mark.parametrize("null", [None, pd.NaT, pd.NA, np.datetime64("NaT"), pa.scalar(None)])
def test_nulls_of_other_libraries_are_null(dataset: lakebed.Dataset, null: Any) -> None:
    assert dataset.where([("t", "==", null)]).count() == 1
    assert dataset.where([("t", "in", [null, MOMENT])]).count() == 2
    done = dataset.update_rows({"t": null}, dry_run=True)
    assert done is not None
    assert done.updated_row_count == 3
    with pytest.raises(PredicateError, match="compared with NULL"):
        dataset.where("t = ?", [null])


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("i", np.float64(2.0)),
        ("i", decimal.Decimal("2.5")),
        ("i", np.bool_(True)),
        ("i", np.array([[2]])),
        ("i", pd.DataFrame({"i": [2]})),
        ("i", pl.DataFrame({"i": [2]})),
        ("i", pa.table({"i": [2]})),
        ("s", np.int64(2)),
        ("t", pd.Timestamp(1)),
        ("t", np.datetime64(1, "ns")),
        ("t", pd.Timedelta(1, "s")),
        ("d", pd.Timestamp(NAIVE)),
        ("t", pa.scalar(2**62, pa.timestamp("us", "UTC"))),
        ("s", pa.array([b"\xff"]).view(pa.string())[0]),
        ("i", [[1], [2]]),
        ("i", object()),
    ],
    ids=lambda value: f"{type(value).__module__}.{type(value).__name__}",
)
def test_what_is_not_a_value_of_the_column_is_refused(
    dataset: lakebed.Dataset, column: str, value: Any
) -> None:
    for form in (
        lambda: dataset.where(f"{column} = ?", [value]),
        lambda: dataset.where(f"{column} IN ?", [value]),
        lambda: dataset.where([(column, "==", value)]),
        lambda: dataset.kite.with_(column, value),
    ):
        with pytest.raises(PredicateError):
            form()


def test_a_number_of_rows_may_be_of_numpy(dataset: lakebed.Dataset) -> None:
    assert dataset.limit(np.int64(1)).arrow().num_rows == 1
    assert dataset.limit(pa.scalar(2)).arrow().num_rows == 2
    for wrong in (np.int64(-1), np.float64(1), np.bool_(True), "1"):
        with pytest.raises(InvalidInputError, match="number of rows"):
            dataset.limit(wrong)


def test_checked_values_are_those_of_python() -> None:
    for value, kind in (
        (np.str_("a"), Kind.STRING),
        (pd.Timestamp(MOMENT), Kind.TIMESTAMP),
        (np.float64(1), Kind.DOUBLE),
        (np.int64(1), Kind.LONG),
    ):
        plain = check_value(value, Primitive(kind), "x")
        assert type(plain) in (str, dt.datetime, float, int)
        assert plain == value


def test_texts_and_tables_are_no_lists() -> None:
    for value in ("ab", b"ab", {"a": 1}, pa.table({"a": [1]}), np.array([[1]]), 5):
        assert listed_values(value) is None
    assert plain_value("ab") == "ab"

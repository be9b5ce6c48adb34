"""Random MERGE statements: the rows afterwards are those of DuckDB's MERGE of the same text."""

from __future__ import annotations

import uuid
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed.errors import DuplicateKeyError

TARGET = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64()), ("w", pa.string())])
SOURCE = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64()), ("op", pa.string())])
_TEXTS = st.sampled_from([None, "a", "b", "B c", ""])
_NUMBERS = st.one_of(st.none(), st.integers(0, 6))
_TARGET_ROWS = st.lists(
    st.fixed_dictionaries({"id": st.one_of(st.none(), st.integers(0, 4)), "p": _TEXTS,
                           "v": _NUMBERS, "w": _TEXTS}), max_size=8
)  # fmt: skip
_SOURCE_ROWS = st.lists(
    st.fixed_dictionaries({"id": st.one_of(st.none(), st.integers(0, 4)), "p": _TEXTS,
                           "v": _NUMBERS, "op": st.sampled_from([None, "U", "D"])}), max_size=8
)  # fmt: skip
_ON = st.sampled_from(
    [
        "t.id = s.id",
        "s.id = t.id AND t.p = s.p",
        "t.id = s.id + 1",
        "t.id = s.id AND t.v > 2",
        "t.id = s.id AND (s.op = 'U' OR s.v > 4)",
        "t.id = s.id AND t.v < s.v",
        "(t.p = upper(s.p)) AND t.id = s.id AND s.op IS NOT NULL",
    ]
)
_OF_BOTH = st.sampled_from(
    [
        "s.v > t.v",
        "s.op = 'D'",
        "NOT (t.p = 'a') AND s.v + 1 > 3",
        "t.v IS NULL OR s.op = 'U'",
        "t.v BETWEEN 1 AND s.v",
        "t.v IN (s.v, s.v + 1)",
        "length(s.p) > 0 AND NOT t.v >= s.v",
        "s.v = 3 OR t.w = s.p",
    ]
)
_OF_SOURCE = st.sampled_from(["s.op != 'D'", "s.v > 2 OR s.p IS NULL", "coalesce(s.v, 9) % 2 = 1"])
_OF_TARGET = st.sampled_from(["t.v > 3", "t.p = 'a' OR t.w IS NULL", "t.id < t.v", "NOT t.v = 2"])
_SET = st.sampled_from(
    [
        "v = s.v",
        "v = t.v + s.v * 2, w = s.p",
        "v = coalesce(s.v, t.v, -1), w = upper(t.w)",
        "w = CASE WHEN t.v > s.v THEN 'more' WHEN s.op = 'U' THEN s.p ELSE t.w END",
        "v = greatest(t.v, 3) - abs(s.v - 4), p = lower(concat(s.p, 'Q'))",
        "w = t.w || '-' || s.p, v = 7",
        "p = NULL, w = NULL",
    ]
)
_RESET = st.sampled_from(["v = 0", "v = t.v + 1, w = 'gone'", "w = CASE t.p WHEN 'a' THEN 'A' END"])
_ROWS = st.sampled_from(
    [
        "(id, p, v, w) VALUES (s.id, s.p, s.v, s.op)",
        "(id, w) VALUES (s.id + 100, repeat(s.p, 2))",
        "(v, id) VALUES (s.v * s.v, s.id)",
    ]
)


@st.composite
def _clauses(draw: st.DrawFn) -> list[str]:
    def whens(kind: str, condition: st.SearchStrategy[str], actions: list[str]) -> list[str]:
        """Give each action but the last one a condition: else those behind it are never reached."""
        last = len(actions) - 1
        return [
            f"WHEN {kind}{f' AND {draw(condition)}' if n < last or draw(st.booleans()) else ''} "
            f"THEN {action}"
            for n, action in enumerate(actions)
        ]

    def changes(values: st.SearchStrategy[str], most: int) -> list[str]:
        return [
            "DELETE" if draw(st.booleans()) else f"UPDATE SET {draw(values)}"
            for _ in range(draw(st.integers(0, most)))
        ]

    inserts = [f"INSERT {draw(_ROWS)}" for _ in range(draw(st.integers(0, 2)))]
    kinds = [
        whens("MATCHED", _OF_BOTH, changes(_SET, 3)),
        whens("NOT MATCHED", _OF_SOURCE, inserts),
        whens("NOT MATCHED BY SOURCE", _OF_TARGET, changes(_RESET, 2)),
    ]
    clauses = [clause for kind in draw(st.permutations(kinds)) for clause in kind]
    return clauses or ["WHEN MATCHED THEN DELETE"]


def _counted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def _by_duckdb(target: pa.Table, source: pa.Table, text: str) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        connection.register("given", target)
        connection.register("s", source)
        connection.execute("CREATE TABLE t AS SELECT * FROM given")
        connection.execute(text)
        return connection.sql("SELECT * FROM t").to_arrow_table().to_pylist()


def _distinct(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row of each id: DuckDB takes any of several."""
    kept: dict[Any, dict[str, Any]] = {}
    for row in rows:
        kept[row["id"] if row["id"] is not None else len(kept) + 100] = row
    return list(kept.values())


@examples(2, long=1_000)
@given(target=_TARGET_ROWS, source=_SOURCE_ROWS, on=_ON, clauses=_clauses(), is_split=st.booleans())
def test_rows_are_those_of_duckdbs_merge(
    target: list[dict[str, Any]],
    source: list[dict[str, Any]],
    on: str,
    clauses: list[str],
    *,
    is_split: bool,
) -> None:
    text = f"MERGE INTO t USING s ON {on} {' '.join(clauses)}"
    rows = pa.Table.from_pylist(_distinct(source), schema=SOURCE)
    lake = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    dataset = lake.create("t", TARGET, partition_by="p" if is_split else None)
    before = pa.Table.from_pylist(target, schema=TARGET)
    if target:
        dataset.append(before)

    report = lake.sql(text, tables={"s": rows}, write=True)

    assert _counted(dataset.arrow().to_pylist()) == _counted(_by_duckdb(before, rows, text))
    assert dataset.version - bool(target) == (report.commit is not None)


def _expected(target: list[dict[str, Any]], source: list[dict[str, Any]]) -> list[str] | None:
    """Return the rows of `UPDATE where s.v > 2, else INSERT`; None if a row is changed twice."""
    result, matched = [], set()
    for row in target:
        pairs = [n for n, s in enumerate(source) if s["id"] is not None and s["id"] == row["id"]]
        matched.update(pairs)
        acting = [source[n] for n in pairs if source[n]["v"] is not None and source[n]["v"] > 2]
        if len(acting) > 1:
            return None
        result.append({**row, "v": acting[0]["v"]} if acting else row)
    new = [s for n, s in enumerate(source) if n not in matched]
    return _counted(result + [{"id": s["id"], "p": s["p"], "v": s["v"], "w": None} for s in new])


@examples(1, long=1_000)
@given(target=_TARGET_ROWS, source=_SOURCE_ROWS)
def test_key_may_come_twice_unless_two_rows_change_the_same_row(
    target: list[dict[str, Any]], source: list[dict[str, Any]]
) -> None:
    lake = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    dataset = lake.create("t", TARGET)
    if target:
        dataset.append(pa.Table.from_pylist(target, schema=TARGET))
    text = (
        "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND s.v > 2 THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED THEN INSERT (id, p, v) VALUES (s.id, s.p, s.v)"
    )
    expected = _expected(target, source)
    rows = pa.Table.from_pylist(source, schema=SOURCE)

    if expected is None:
        with pytest.raises(DuplicateKeyError, match="would be changed by"):
            lake.sql(text, tables={"s": rows}, write=True)
        return
    lake.sql(text, tables={"s": rows}, write=True)

    assert _counted(dataset.arrow().to_pylist()) == expected

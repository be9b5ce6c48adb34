"""Each door selects the rows for which a condition is true, and sets the values of an expression.

`tests/expressions/test_random_as_spark.py` proves what the compiled expressions give beside Spark.
Here the doors are compared with them: reading with and without partitions, counting, SELECT, DELETE,
UPDATE, MERGE and checks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from random_expressions import Expressions, Made, make_rows

import lakebed
from lakebed import by
from lakebed.errors import LakebedError, PredicateError
from lakebed.model.arrow_types import type_from_arrow
from lakebed.model.formulas.compiler import Compiler, compiled
from lakebed.model.formulas.computation import evaluate
from lakebed.model.sql_dialect import parse_condition

ROWS = make_rows()
ROWS = ROWS.append_column("id", pa.array(range(ROWS.num_rows), pa.int64()))
ROWS = ROWS.append_column("part", pa.array([number % 4 for number in range(ROWS.num_rows)]))
TYPES = tuple((field.name, type_from_arrow(field.type)) for field in ROWS.schema)
COLUMNS = {name: ROWS.column(name).combine_chunks() for name in ROWS.column_names}
COUNT = 120


def _cases(make: str) -> list[tuple[str, pa.Array]]:
    """Return expressions that no row makes an error, with their values."""
    expressions, cases = Expressions(7), []
    while len(cases) < COUNT:
        made: Made = getattr(expressions, make)()
        try:
            (values,) = evaluate([compiled(made.text, TYPES).sql], COLUMNS)
        except PredicateError:
            continue
        cases.append((made.text, values))
    return cases


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> lakebed.Repository:
    folder: Path = tmp_path_factory.mktemp("doors")
    lake = lakebed.open_repository(str(folder / "lake"))
    lake.write("whole", ROWS)
    lake.write("parts", ROWS, partition_by="part")
    return lake


def _ids(condition: pa.Array) -> list[int]:
    return np.flatnonzero(condition.fill_null(False).to_numpy(zero_copy_only=False)).tolist()


def _deleted(commit: object) -> int:
    return 0 if commit is None else commit.deleted_row_count  # type: ignore[attr-defined]  # of a commit


def _bare(text: str) -> str:
    """Return a text without the double quotes that DuckDB reads as names."""
    return "" if '"' in text else text


def test_conditions_select_the_same_rows_by_all_doors(lake: lakebed.Repository) -> None:
    refused, differing = [], []
    for text, truth in _cases("condition"):
        wanted = _ids(truth)
        for name in ("whole", "parts"):
            try:
                view = lake[name].where(text)
            except PredicateError as exc:
                refused.append(f"{text}: {exc}")
                continue
            found = {
                "where": sorted(view.arrow()["id"].to_pylist()),
                "count": view.count(),
                "DELETE": _deleted(lake.sql(f"DELETE FROM {name} WHERE {text}", dry_run=True)),
                "negated": sorted(lake[name].where(f"NOT ({text})").arrow()["id"].to_pylist()),
            }
            if _bare(text):
                rows = lake.sql(f"SELECT id FROM {name} WHERE {text}")
                found["SELECT"] = sorted(rows["id"].to_pylist())
            same = (
                found["where"] == wanted
                and found.get("SELECT", wanted) == wanted
                and found["count"] == len(wanted)
                and found["DELETE"] == len(wanted)
                and found["negated"] == _ids(pa.compute.invert(truth))
            )
            if not same:
                differing.append(f"{name}: {text}: {found}, not {wanted}")
    assert not differing, "\n".join(differing[:5])
    assert len(refused) <= COUNT * 2 * 0.05, "\n".join(refused[:5])


def test_conditions_check_and_merge_the_same_rows(lake: lakebed.Repository) -> None:
    changes = ROWS.select(["id"])
    refused = []
    for text, truth in _cases("condition")[:40]:
        wanted = len(_ids(truth))
        of_target = _of_side(text, "target")
        if of_target is None:
            continue
        try:
            report = lake["whole"].merge(
                changes, on="id", matched="delete", delete_where=of_target, not_matched="ignore",
                dry_run=True,
            )  # fmt: skip
        except PredicateError as exc:
            refused.append(f"{text}: {exc}")
            continue
        assert report.deleted_row_count == wanted, text
    assert len(refused) <= 2, "\n".join(refused)


def test_values_of_a_partition_that_no_row_has_raise_nothing(lake: lakebed.Repository) -> None:
    """Partitions by lists of values are chosen by their values, of which not all have rows."""
    function = by.values("id", [[0, 1], [2, 3]])
    lake.write("listed", pa.table({"id": [1, 2, 3]}), partition_by=function)

    view = lake["listed"].where("id < 4 AND 6 / id > 2.5")
    assert sorted(view.arrow()["id"].to_pylist()) == [1, 2]


def _of_side(text: str, side: str) -> str | None:
    """Return a condition whose columns belong to a side."""
    compiler = Compiler(text, dict(TYPES))
    compiler.read(parse_condition(text))
    for name in sorted(compiler.named, key=len, reverse=True):
        text = text.replace(name, f"{side}.{name}")
    return text if compiler.named else None


def test_values_are_set_as_they_are_computed(tmp_path: Path) -> None:
    """In one field of the type of the value, or of the type nearest to it."""
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    lake.write("one", ROWS)
    fields = {str(kind): name for name, kind in TYPES if name.endswith("1")}
    differing, count = [], 0
    for text, values in _cases("value"):
        kind = str(compiled(text, TYPES).type)
        if kind not in fields:
            continue
        count += 1
        name = fields[kind]
        dataset = lake["one"]
        try:
            dataset.update_rows({name: text})
        except LakebedError as exc:
            differing.append(f"{text}: {exc}")
            continue
        found = dataset.arrow().sort_by("id")[name].combine_chunks()
        if not _same(found, values.cast(found.type)):
            differing.append(f"{text}: {found}, not {values}")
        dataset.rollback(version=1)
    assert count > COUNT / 2
    assert not differing, "\n".join(differing[:5])


def _same(one: pa.Array, other: pa.Array) -> bool:
    if pa.types.is_temporal(one.type):  # of years that Python has not
        kind = pa.int32() if pa.types.is_date(one.type) else pa.int64()
        return bool(one.cast(kind).equals(other.cast(kind)))
    return [repr(value) for value in one.to_pylist()] == [
        repr(value) for value in other.to_pylist()
    ]

"""Tables of many columns: no verb takes a time that grows as their square."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed

FEW, MANY = 1_000, 8_000
# Linear verbs took up to 13 times as long, and a loop that asks for all columns in each of its turns 30 to 60.
MOST_TIMES = 22


def seconds(root: Path, count: int) -> Mapping[str, float]:
    """Return the processor time of each verb on a table of so many columns."""
    names = ["id", *(f"c{number}" for number in range(1, count))]
    rows = pa.table(dict.fromkeys(names, pa.array([1, 2])))
    lake = lakebed.open_repository(root / "lake")
    dataset = lake.create("t", rows.schema)
    (root / "a.csv").write_text(",".join(names) + "\n" + ",".join("1" * count) + "\n")
    (root / "a.jsonl").write_text(json.dumps(dict.fromkeys(names, 1)) + "\n")
    verbs: dict[str, Callable[[], object]] = {
        "append": lambda: dataset.append(rows),
        "append of records": lambda: dataset.append(rows.to_pylist()),
        "read": lambda: dataset.arrow(),
        "read of all columns by name": lambda: dataset.arrow(names),
        "read by a condition": lambda: dataset.where("c5 = 1").arrow(),
        "read by another engine": lambda: dataset.dataset().to_table(),
        "SQL": lambda: lake.sql("SELECT * FROM t"),
        "merge": lambda: dataset.where("c5 = 2").merge(rows.slice(1, 1), on="c1"),
        "update": lambda: dataset.where("id = 1").update_rows({"c1": 5}),
        "delete": lambda: dataset.where("id = 1").delete(),
        "compaction": lambda: dataset.compact(),
        "schema of CSV": lambda: lakebed.infer_schema(root / "a.csv"),
        "schema of JSON": lambda: lakebed.infer_schema(root / "a.jsonl", rows=0),
        "load of CSV": lambda: dataset.load(root / "a.csv"),
        "load of JSON": lambda: dataset.load(root / "a.jsonl"),
        "check": lambda: dataset.check(deep=True),
        "report": lambda: lake.report(root / "page.html", rows=1),
        "publication of Delta": lambda: dataset.publish("delta"),
        "publication of Iceberg": lambda: dataset.publish("iceberg"),
    }
    taken = {}
    for name, verb in verbs.items():
        begin = time.process_time()
        verb()
        taken[name] = time.process_time() - begin
    return taken


@pytest.mark.thorough
def test_no_verb_takes_a_time_that_grows_as_the_square_of_columns(tmp_path: Path) -> None:
    for name in ("warm", "few", "many"):
        (tmp_path / name).mkdir()
    seconds(tmp_path / "warm", 20)  # imports

    few, many = seconds(tmp_path / "few", FEW), seconds(tmp_path / "many", MANY)

    ratios = {name: many[name] / max(few[name], 0.05) for name in few}
    assert {name: ratio for name, ratio in ratios.items() if ratio > MOST_TIMES} == {}

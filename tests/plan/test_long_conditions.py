"""A long condition gives its rows, or a named error, in a thread with a small stack."""

from __future__ import annotations

import subprocess
import sys

import pytest

# What a thread has on macOS. The child process ends by a signal where a stack overflows.
STACK_BYTES = 512 * 1024
CODE = """
import operator, os, sys, threading
from functools import reduce
import duckdb, polars as pl, pyarrow as pa, pyarrow.compute as pc
import lakebed

count = int(sys.argv[1])
lake = lakebed.open_repository("memory://deep")
lake.write("t", pa.table({"i": pa.array(range(9), pa.int32()), "s": [f"x{n}" for n in range(9)]}))
t = lake["t"]
lake.write("u", t.arrow())
merged = " OR ".join(f"(t.i = {n} AND u.s = 'x{n}')" for n in range(count))
pairs = [(n, f"x{n}") for n in range(count)]
arrow_pairs = reduce(operator.or_, [(pc.field("i") == n) & (pc.field("s") == s) for n, s in pairs])
# It is kept: to delete it is recursion of Polars itself, which ends the process.
polars_pairs = reduce(operator.or_, [(pl.col("i") == n) & (pl.col("s") == s) for n, s in pairs])
# DuckDB and Polars themselves walk what they push down by recursion, on this stack.
short = " OR ".join(f"(i = {n} AND s = '{s}')" for n, s in pairs[:500])
short_polars = reduce(operator.or_, [(pl.col("i") == n) & (pl.col("s") == s) for n, s in pairs[:50]])
texts = " OR ".join(f"(i = {n} AND s = '{s}')" for n, s in pairs)
FORMS = {
    "lists": lambda: t.where([[("i", "==", n), ("s", "==", s)] for n, s in pairs]).count(),
    "one column": lambda: t.where([[("i", "==", n)] for n, _ in pairs]).count(),
    "negated": lambda: 9 - t.where([[("i", "!=", n) for n, _ in pairs]]).count(),
    "text": lambda: t.where(texts).count(),
    "pyarrow": lambda: t.where(arrow_pairs).count(),
    "polars": lambda: t.where(polars_pairs).count(),
    "unknown part": lambda: t.where(
        reduce(operator.or_, [pc.field("i") + 1 == n for n, _ in pairs])
    ).count(),
    "parentheses": lambda: t.where("(" * count + "i = 1" + ")" * count).count(),
    "NOT": lambda: t.where("NOT " * count + "i = 1").count(),
    "sum": lambda: t.update_rows({"i": "i" + " + 1" * count}, dry_run=True),
    "DELETE": lambda: lake.sql(f"DELETE FROM t WHERE {texts}", dry_run=True).deleted_row_count,
    "MERGE": lambda: lake.sql(
        f"MERGE INTO t USING u ON t.i = u.i AND ({merged}) WHEN MATCHED THEN UPDATE SET s = u.s",
        dry_run=True,
    ).updated_row_count,
    "MERGE of many": lambda: lake.sql(
        "MERGE INTO t USING u ON t.i = u.i AND "
        + " AND ".join(f"t.i <> {n + 9}" for n, _ in pairs)
        + " WHEN MATCHED THEN UPDATE SET s = u.s",
        dry_run=True,
    ).updated_row_count,
    "SELECT": lambda: lake.sql(f"SELECT * FROM t WHERE {texts}").num_rows,
    "SELECT with a sum": lambda: lake.sql(
        f"SELECT * FROM t WHERE i < 9{' + 1' * (count if count > 1_000 else 900)}"
    ).num_rows,
    "SELECT with UNION": lambda: lake.sql(
        "SELECT * FROM t" + " UNION ALL SELECT * FROM t WHERE i > 9" * count
    ).num_rows,
    "pushed": lambda: t.dataset().count_rows(filter=arrow_pairs),
    "pushed negated": lambda: 9 - t.dataset().to_table(filter=~arrow_pairs).num_rows,
    "pushed twice": lambda: t.dataset().filter(arrow_pairs).scanner(filter=arrow_pairs).count_rows(),
    "pushed by place": lambda: t.dataset().count_rows(
        filter=reduce(operator.or_, [pc.field(0) == n for n, _ in pairs])
    ),
    "pushed sum": lambda: t.dataset().count_rows(
        filter=reduce(operator.add, [pc.field("i")] * count) > 0
    ),
    "pushed column": lambda: t.dataset().scanner(
        columns={"sum": reduce(operator.add, [pc.field("i")] * count)}
    ),
    "DuckDB": lambda: len(
        duckdb.connect().register("q", t.dataset()).sql(f"FROM q WHERE {short}").fetchall()
    ),
    "scan of Polars": lambda: pl.scan_pyarrow_dataset(t.dataset())
    .filter(short_polars)
    .collect()
    .height,
}

def run():
    for name, form in FORMS.items():
        try:
            print(name, form(), sep=": ", flush=True)
        except lakebed.LakebedError as error:
            words = "nested too deeply", "nested in each other", "Cannot use", "Max expression depth"
            assert any(part in str(error) for part in words), error
            print(name, "refused", sep=": ", flush=True)

threading.stack_size(int(sys.argv[2]))
thread = threading.Thread(target=run)
thread.start()
thread.join()
sys.stdout.flush()
os._exit(0)
"""
RIGHT = {
    "lists": ("9",),
    "one column": ("9",),
    "negated": ("9",),
    "text": ("9", "refused"),
    "pyarrow": ("9",),
    "polars": ("refused",),
    "unknown part": ("refused",),
    "parentheses": ("refused",),
    "NOT": ("refused",),
    "sum": ("refused",),
    "DELETE": ("9", "refused"),
    "MERGE": ("9", "refused"),
    "MERGE of many": ("9", "refused"),
    "SELECT": ("9", "refused"),
    "SELECT with a sum": ("9", "refused"),
    "SELECT with UNION": ("9", "refused"),
    "pushed": ("9",),
    "pushed negated": ("9",),
    "pushed twice": ("9",),
    "pushed by place": ("refused",),
    "pushed sum": ("refused",),
    "pushed column": ("refused",),
    "DuckDB": ("9",),
    "scan of Polars": ("9",),
}


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_long_condition_ends_no_process(count: int) -> None:
    result = subprocess.run(
        [sys.executable, "-c", CODE, str(count), str(STACK_BYTES)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (result.returncode, result.stderr) == (0, "")
    # DuckDB writes a progress bar between them if a query takes two seconds.
    answers = dict(line.split(": ") for line in result.stdout.splitlines() if ": " in line)
    assert answers.keys() == RIGHT.keys()
    assert {name: answer for name, answer in answers.items() if answer not in RIGHT[name]} == {}

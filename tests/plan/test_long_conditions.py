"""A long condition gives its rows, or a named error, in a thread with a small stack."""

from __future__ import annotations

import subprocess
import sys

import pytest

# What a thread has on macOS. The child process ends by a signal where a stack overflows.
STACK_BYTES = 512 * 1024
CODE = """
import operator, sys, threading
from functools import reduce
import polars as pl, pyarrow as pa, pyarrow.compute as pc
import lakebed

count = int(sys.argv[1])
lake = lakebed.open_repository("memory://deep")
lake.write("t", pa.table({"i": pa.array(range(9), pa.int32()), "s": [f"x{n}" for n in range(9)]}))
t = lake["t"]
pairs = [(n, f"x{n}") for n in range(count)]
texts = " OR ".join(f"(i = {n} AND s = '{s}')" for n, s in pairs)
FORMS = {
    "lists": lambda: t.where([[("i", "==", n), ("s", "==", s)] for n, s in pairs]).count(),
    "one column": lambda: t.where([[("i", "==", n)] for n, _ in pairs]).count(),
    "negated": lambda: 9 - t.where([[("i", "!=", n) for n, _ in pairs]]).count(),
    "text": lambda: t.where(texts).count(),
    "pyarrow": lambda: t.where(
        reduce(operator.or_, [(pc.field("i") == n) & (pc.field("s") == s) for n, s in pairs])
    ).count(),
    "polars": lambda: t.where(
        reduce(operator.or_, [(pl.col("i") == n) & (pl.col("s") == s) for n, s in pairs[:2000]])
    ).count(),
    "unknown part": lambda: t.where(
        reduce(operator.or_, [pc.field("i") + 1 == n for n, _ in pairs])
    ).count(),
    "parentheses": lambda: t.where("(" * count + "i = 1" + ")" * count).count(),
    "NOT": lambda: t.where("NOT " * count + "i = 1").count(),
    "sum": lambda: t.update_rows({"i": "i" + " + 1" * count}, dry_run=True),
    "DELETE": lambda: lake.sql(f"DELETE FROM t WHERE {texts}", dry_run=True).deleted_row_count,
    "pushed": lambda: t.dataset().count_rows(
        filter=reduce(operator.or_, [pc.field("i") == n for n, _ in pairs[:500]])
    ),
}

def run():
    for name, form in FORMS.items():
        try:
            print(name, form(), sep=": ", flush=True)
        except lakebed.LakebedError as error:
            assert "nested too deeply" in str(error) or "Cannot use" in str(error), error
            print(name, "refused", sep=": ", flush=True)

threading.stack_size(int(sys.argv[2]))
thread = threading.Thread(target=run)
thread.start()
thread.join()
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
    "pushed": ("9",),
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
    answers = dict(line.split(": ") for line in result.stdout.splitlines())
    assert answers.keys() == RIGHT.keys()
    assert {name: answer for name, answer in answers.items() if answer not in RIGHT[name]} == {}

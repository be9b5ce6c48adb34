"""Rows and statements of LakeBench, for `bench/lakebench.py`.

Run by `make bench-lakebench`, in an environment of its own: LakeBench pins versions of what Lakebed
takes. It makes a folder with `tpch` and `tpcds`, whose folders are tables of Parquet, and with
`statements.json`: queries in Spark's SQL, definitions of the tables, and the statements of ELTBench.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from lakebench.benchmarks.elt_bench.engine_impl.spark import SparkELTBench
from lakebench.benchmarks.tpcds.tpcds import TPCDS
from lakebench.benchmarks.tpch.tpch import TPCH
from lakebench.datagen.tpcds import TPCDSDataGenerator
from lakebench.datagen.tpch import TPCHDataGenerator
from lakebench.engines.spark import Spark

MERGES = 3
SHARE = 0.001  # of the rows, in a merge


class Recorder:
    """A session that keeps the texts of statements."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    @property
    def spark(self) -> Recorder:
        return self

    def sql(self, text: str) -> Recorder:
        self.texts.append(text)
        return self

    def collect(self) -> None:
        """Do nothing."""


def statements_of(kind: type[Any]) -> dict[str, object]:
    """Return queries, definitions of tables, and columns that the generator calls otherwise."""
    engine = Spark.__new__(Spark)  # one that is initialized has a session
    engine.extended_engine_metadata = {}
    engine.catalog_name = engine.schema_name = None
    benchmark = kind.__new__(kind)
    benchmark.engine, benchmark.scale_factor = engine, None
    benchmark._configure_query_resources()
    folder = files(f"lakebench.benchmarks.{kind.__name__.lower()}.resources.ddl.canonical")
    return {
        "queries": {name: benchmark._return_query_definition(name) for name in kind.QUERY_REGISTRY},
        "tables": (folder / kind.DDL_FILE_NAME).read_text(),
        "renamed": kind.COLUMN_NAME_MAPPING_REGISTRY,
    }


def statements_of_elt() -> dict[str, object]:
    """Return the statements of ELTBench; of its merges, the queries of their sources."""
    np.random.seed(7)
    session = Recorder()
    benchmark = SparkELTBench(session)
    benchmark.create_total_sales_fact()
    for _ in range(MERGES):
        with contextlib.suppress(ImportError):  # of Delta, for the merge itself
            benchmark.merge_percent_into_total_sales_fact(SHARE)
    benchmark.query_total_sales_fact()
    fact, *sources, query = session.texts
    return {"fact": fact, "sources": sources, "query": query}


def main() -> None:
    """Make the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, default=0.1, help="scale factor of the rows")
    given = parser.parse_args()
    TPCHDataGenerator(given.scale, str(given.folder / "tpch")).run()
    TPCDSDataGenerator(given.scale, str(given.folder / "tpcds")).run()
    statements = {
        "tpch": statements_of(TPCH),
        "tpcds": statements_of(TPCDS),
        "elt": statements_of_elt(),
    }
    (given.folder / "statements.json").write_text(json.dumps(statements), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Queries of TPC-H and TPC-DS on the catalog beside plain Parquet, and ELTBench beside Delta Lake.

Run by `make bench-lakebench`, on a folder of `bench/lakebench_inputs.py`. Queries run on both sides
in one session, in turns, and their rows are compared. The phases of ELTBench run in the session of
`bench/peers_spark.py`, each round on new tables, in turns. `cpu` is processor time of this process
and of all that it has started, as a ratio to the other side; `time` is the ratio on the clock.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import lakebed
from lakebed.spark.session import local_session

FACT = "total_sales_fact"
LOADED = ("store_sales", "date_dim", "store", "item", "customer")
KEYS = ("s_store_id", "i_item_id", "c_customer_id", "sale_date")
SUMS = ("total_quantity", "total_net_paid", "total_net_profit")
Cost = tuple[float, float]


def processor_time() -> float:
    """Return the seconds of this process and of all that it has started, from /proc."""
    parts = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parts[int(stat.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _) in parts.items() if parent in ours} - ours:
        ours |= more
    return sum(parts[pid][1] for pid in ours if pid in parts) / os.sysconf("SC_CLK_TCK")


def measure(action: Callable[[], Any]) -> tuple[Any, Cost]:
    """Return the result of an action, with its processor time and its time."""
    used, began = processor_time(), time.perf_counter()
    result = action()
    return result, (processor_time() - used, time.perf_counter() - began)


def read(spark: SparkSession, folder: Path, renamed: dict[str, str]) -> DataFrame:
    """Return a table of the generator, with the names of its definition."""
    return spark.read.parquet(str(folder)).withColumnsRenamed(renamed)


def create_all(spark: SparkSession, text: str, source: str = "") -> None:
    """Create the tables of a script in the current namespace."""
    for statement in text.split(";"):
        if statement.strip():
            spark.sql(f"{statement} {source}")


@contextlib.contextmanager
def limit(spark: SparkSession, seconds: float) -> Iterator[None]:
    """Cancel the jobs of a session that takes longer; what Spark plans is not stopped."""
    is_done = threading.Event()

    def cancel() -> None:
        while not is_done.wait(seconds):
            spark.sparkContext.cancelAllJobs()

    timer = threading.Thread(target=cancel)
    timer.start()
    try:
        yield
    finally:
        is_done.set()
        timer.join()


def rows_of(spark: SparkSession, query: str, most_seconds: float) -> list[tuple[Any, ...]] | str:
    """Return the rows of a query, in an order of their texts, or why there are none."""
    began = time.monotonic()
    try:
        with limit(spark, most_seconds):
            rows = [tuple(row) for row in spark.sql(query).collect()]
    except (PySparkException, Py4JJavaError, lakebed.LakebedError) as error:
        if time.monotonic() - began > most_seconds:
            return f"takes longer than {most_seconds:g} s"
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"[:300]
    return sorted(
        rows, key=lambda row: [f"{v:.6g}" if isinstance(v, float) else str(v) for v in row]
    )


def is_same(left: Any, right: Any) -> bool:
    """Return whether two results are equal; floats may differ by the order of their sum."""
    if isinstance(left, list | tuple) and type(left) is type(right):
        return len(left) == len(right) and all(map(is_same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9) or left != left != right
    return type(left) is type(right) and left == right


def compare_queries(
    spark: SparkSession, kind: str, folder: Path, statements: dict[str, Any], most_seconds: float
) -> dict[str, object]:
    """Run all queries on tables of the catalog and on plain Parquet."""
    plain = spark.newSession()
    spark.sql(f"CREATE NAMESPACE lake.{kind}")
    spark.sql(f"USE lake.{kind}")
    create_all(spark, statements["tables"])
    for table in sorted(path for path in (folder / kind).iterdir() if path.is_dir()):
        renamed = statements["renamed"].get(table.name, {})
        read(spark, table, renamed).write.insertInto(table.name)
        read(plain, table, renamed).createOrReplaceTempView(table.name)
    same, with_rows, findings = 0, 0, {}
    costs: dict[SparkSession, list[Cost]] = {plain: [], spark: []}
    for number, (name, query) in enumerate(statements["queries"].items()):
        results = {}
        for session in (plain, spark) if number % 2 else (spark, plain):
            results[session], cost = measure(partial(rows_of, session, query, most_seconds))
            costs[session].append(cost)
        ours, theirs = results[spark], results[plain]
        if isinstance(ours, str) or isinstance(theirs, str):
            findings[name] = {"catalog": ours if isinstance(ours, str) else "runs"}
            findings[name]["parquet"] = theirs if isinstance(theirs, str) else "runs"
        elif not is_same(ours, theirs):
            findings[name] = {"catalog": f"{len(ours)} rows", "parquet": f"{len(theirs)} rows"}
        else:
            same, with_rows = same + 1, with_rows + bool(ours)
    cpu, seconds = (
        sum(cost[part] for cost in costs[spark]) / sum(cost[part] for cost in costs[plain])
        for part in (0, 1)
    )
    return {
        "queries": kind,
        "same": same,
        "with_rows": with_rows,
        "of": len(statements["queries"]),
        "cpu": round(cpu, 2),
        "time": round(seconds, 2),
        "findings": findings,
    }


def phases(
    spark: SparkSession, folder: Path, statements: dict[str, Any], system: str, namespace: str
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the phases of a round of ELTBench on new tables, in their order."""
    is_delta = system == "delta"
    elt, tpcds = statements["elt"], statements["tpcds"]
    catalog = "spark_catalog" if is_delta else "lake"
    spark.sql(f"CREATE NAMESPACE {catalog}.{namespace}")
    spark.sql(f"USE {catalog}.{namespace}")
    scripts = [text for text in tpcds["tables"].split(";") if _name_of(text) in LOADED]
    create_all(spark, ";".join(scripts), "USING delta" if is_delta else "")

    def load() -> None:
        for name in LOADED:
            renamed = tpcds["renamed"].get(name, {})
            read(spark, folder / "tpcds" / name, renamed).write.insertInto(name)
        spark.sql(elt["fact"] if is_delta else elt["fact"].replace("USING DELTA", ""))

    def merge() -> None:
        keys = " AND ".join(f"target.{name} = source.{name}" for name in KEYS)
        sums = {name: f"target.{name} + source.{name}" for name in SUMS}
        for source in elt["sources"]:
            merge_rows = merge_by_delta if is_delta else merge_by_sql
            merge_rows(spark, spark.sql(source), keys, sums)

    def maintain() -> None:
        if is_delta:
            spark.sql(f"OPTIMIZE {FACT}")
            spark.sql(f"VACUUM {FACT} RETAIN 0 HOURS")
        else:
            call = f"CALL lake.{namespace}"
            spark.sql(f"{call}.compact('{FACT}')")
            spark.sql(f"{call}.cleanup('{FACT}', older_than => '0s', dry_run => false)")

    yield "load", load
    yield "merge", merge
    yield "maintain", maintain
    yield "query", lambda: spark.sql(elt["query"]).collect()


def merge_by_sql(spark: SparkSession, rows: DataFrame, keys: str, sums: dict[str, str]) -> None:
    """Merge random rows, which Spark refuses in MERGE unless they are computed before."""
    rows.localCheckpoint().createOrReplaceTempView("changes")
    new = ", ".join(f"{name} = {value}" for name, value in sums.items())
    spark.sql(
        f"MERGE INTO {FACT} AS target USING changes AS source ON {keys} "
        f"WHEN MATCHED THEN UPDATE SET {new} WHEN NOT MATCHED THEN INSERT *"
    )


def merge_by_delta(spark: Any, rows: Any, keys: str, sums: dict[str, str]) -> None:
    """Merge rows as LakeBench does: MERGE of Delta 4.4 fails on columns that both sides have."""
    table = spark._jvm.io.delta.tables.DeltaTable.forName(spark._jsparkSession, FACT)
    merged = getattr(table, "as")("target").merge(getattr(rows._jdf, "as")("source"), keys)
    merged.whenMatched().updateExpr(sums).whenNotMatched().insertAll().execute()


def _name_of(definition: str) -> str:
    return definition.partition("(")[0].split()[-1] if definition.strip() else ""


def compare_phases(
    spark: SparkSession, folder: Path, statements: dict[str, Any], rounds: int
) -> Iterator[dict[str, object]]:
    """Run ELTBench after a round that does not count, and yield the ratios of its phases."""
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    costs: dict[str, dict[str, list[Cost]]] = {}
    for number in range(rounds + 1):
        systems = ("lakebed", "delta") if number % 2 else ("delta", "lakebed")
        for system in systems:
            for phase, action in phases(spark, folder, statements, system, f"round_{number}"):
                cost = measure(action)[1]
                if number:
                    costs.setdefault(phase, {}).setdefault(system, []).append(cost)
    for phase, of_systems in costs.items():
        pairs = list(zip(of_systems["lakebed"], of_systems["delta"], strict=True))
        cpu, seconds = (
            statistics.median(ours[part] / theirs[part] for ours, theirs in pairs)
            for part in (0, 1)
        )
        yield {"phase": phase, "rounds": rounds, "cpu": round(cpu, 2), "time": round(seconds, 2)}


def main() -> None:
    """Print a line for each set of queries, or for each phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what bench/lakebench_inputs.py made")
    parser.add_argument("--elt", action="store_true", help="ELTBench in place of the queries")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of ELTBench")
    parser.add_argument("--limit", type=float, default=300, help="seconds that a query may take")
    given = parser.parse_args()
    statements = json.loads((given.folder / "statements.json").read_text(encoding="utf-8"))
    directory = Path(tempfile.mkdtemp(prefix="lakebed-lakebench-"))
    if given.elt:
        from peers_spark import start

        spark = start(directory)
    else:
        # Plain Parquet broadcasts a table of two million rows, which 1 GB cannot hold.
        memory = {"spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "4"}
        spark = local_session("2", settings=memory)
    lake = lakebed.open_repository(directory / "lake")
    results: Iterator[dict[str, object]]
    try:
        with lakebed.spark.attach(spark, lake, catalog="lake"):
            if given.elt:
                results = compare_phases(spark, given.folder, statements, given.rounds)
            else:
                results = (
                    compare_queries(spark, kind, given.folder, statements[kind], given.limit)
                    for kind in ("tpch", "tpcds")
                )
            for result in results:
                print(json.dumps(result), flush=True)
            spark.sql("USE spark_catalog.default")
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()

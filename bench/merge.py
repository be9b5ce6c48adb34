"""What a merge takes, beside deltalake's merge and pyiceberg's upsert on the same data.

    python bench/merge.py                          10 million rows, three rounds
    python bench/merge.py --rows 1000000 --rounds 1
    python bench/merge.py --spark                  beside a join and an overwrite written by hand

A table of 100 files, in order of `id`; `code` is a key in no order. Merged is 1 % of the rows with
another amount, and a tenth as many new ones:

- `spread`: their ids are spread over all files, so that all are written anew;
- `near`: their ids are those of one file;
- `far`: they are those of one file too, but merged by `code`, of which bounds tell nothing. Lakebed
  does this with an index of `code` and without.

Each system builds its table in a process, and merges in another one, on a fresh copy, so that peak
memory is that of the merge. What all of them hold afterwards is compared. pyiceberg takes so long
that it has a share of the rows, beside Lakebed on that share. All files are compressed by snappy, which
is what deltalake takes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROOT = Path(__file__).parents[1]
PEERS = ROOT / ".venv-peers" / "bin" / "python"
FILES = 100
CASES = ("spread", "near", "far")
SYSTEMS = ("lakebed", "lakebed-indexed", "deltalake", "pyiceberg")
_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("code", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.float64()),
        ("count", pa.int32()),
        ("day", pa.date32()),
    ]
)


def rows_of(ids: np.ndarray, amount: float) -> pa.Table:
    """Return rows by their ids, the same each time."""
    mixed = (ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(1)
    return pa.table(
        {
            "id": ids,
            "code": mixed.astype(np.int64),
            "name": pc.binary_join_element_wise("name of ", pa.array(mixed % 1_000_003).cast(pa.string()), ""),
            "amount": ids % 1000 * amount,
            "count": (ids % 97).astype(np.int32),
            "day": pa.array((ids % 3650).astype(np.int32)).cast(pa.date32()),
        },
        schema=_SCHEMA,
    )  # fmt: skip


def chunks(rows: int) -> Iterator[pa.Table]:
    """Yield what each of the files holds."""
    for ids in np.array_split(np.arange(rows, dtype=np.int64), FILES):
        yield rows_of(ids, 1.0)


def changes(case: str, rows: int) -> pa.Table:
    """Return what is merged: 1 % of the rows, and a tenth as many new ones, in no order."""
    rng = np.random.default_rng(7)
    count = max(1, rows // 100)
    if case == "spread":
        known = rng.choice(rows, count, replace=False)
    else:
        known = np.array_split(np.arange(rows), FILES)[FILES // 2][:count]
    new = rows + np.arange(max(1, count // 10))
    ids = np.concatenate([known, new]).astype(np.int64)
    rng.shuffle(ids)
    return rows_of(ids, 2.0)


def expected(case: str, rows: int) -> list[float]:
    """Return the number of rows, and the sum of their amounts, after the merge."""
    ids = changes(case, rows)["id"].to_numpy()
    before = float((np.arange(rows) % 1000).sum())
    more = (ids % 1000) * np.where(ids < rows, 1.0, 2.0)
    return [rows + int((ids >= rows).sum()), before + float(more.sum())]


class Lakebed:
    """This library, with or without an index of `code`."""

    def __init__(self, directory: Path, *, is_indexed: bool) -> None:
        import lakebed

        self._lakebed, self._index = lakebed, ("code",) if is_indexed else ()
        self._repository = lakebed.open_repository(directory / "lake")

    def build(self, rows: int) -> None:
        descriptor = self._lakebed.DatasetDescriptor(
            schema=_SCHEMA, index=self._index, compression="snappy"
        )
        dataset = self._repository.create("d", descriptor)
        for chunk in chunks(rows):
            dataset.append(chunk)

    def merge(self, data: pa.Table, key: str) -> int:
        return self._repository.open("d").merge(data, key).rewritten_file_count

    def answer(self) -> list[float]:
        amounts = self._repository.open("d").arrow(["amount"])["amount"]
        return [len(amounts), pc.sum(amounts).as_py()]


class Delta:
    """deltalake, which is delta-rs."""

    def __init__(self, directory: Path) -> None:
        self._path = str(directory / "delta")

    def build(self, rows: int) -> None:
        from deltalake import write_deltalake

        for chunk in chunks(rows):
            write_deltalake(self._path, chunk, mode="append")

    def merge(self, data: pa.Table, key: str) -> int:
        from deltalake import DeltaTable

        merging = DeltaTable(self._path).merge(
            data, f"target.{key} = source.{key}", source_alias="source", target_alias="target"
        )
        told = merging.when_matched_update_all().when_not_matched_insert_all().execute()
        return int(told["num_target_files_removed"])

    def answer(self) -> list[float]:
        from deltalake import DeltaTable

        amounts = DeltaTable(self._path).to_pyarrow_table(columns=["amount"])["amount"]
        return [len(amounts), pc.sum(amounts).as_py()]


class Iceberg:
    """pyiceberg, with its catalog in SQLite."""

    def __init__(self, directory: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        directory.mkdir(parents=True, exist_ok=True)
        settings = {"uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}"}
        self._catalog = SqlCatalog("bench", **settings)

    def build(self, rows: int) -> None:
        self._catalog.create_namespace("bench")
        table = self._catalog.create_table(
            "bench.d",
            schema=_SCHEMA,
            properties={"write.parquet.compression-codec": "snappy"},
        )
        for chunk in chunks(rows):
            table.append(chunk)

    def merge(self, data: pa.Table, key: str) -> int:
        table = self._catalog.load_table("bench.d")
        before = {task.file.file_path for task in table.scan().plan_files()}
        self.started = time.perf_counter()
        table.upsert(data, join_cols=[key])
        self.seconds = time.perf_counter() - self.started
        return len(before - {task.file.file_path for task in table.scan().plan_files()})

    def answer(self) -> list[float]:
        table = self._catalog.load_table("bench.d").scan(selected_fields=("amount",)).to_arrow()
        return [len(table), pc.sum(table["amount"]).as_py()]


def open_system(name: str, directory: Path) -> Any:
    """Return a system on a directory."""
    if name.startswith("lakebed"):
        return Lakebed(directory, is_indexed=name.endswith("indexed"))
    return Delta(directory) if name == "deltalake" else Iceberg(directory)


def work(system: str, task: str, directory: Path, rows: int, case: str) -> dict[str, Any]:
    """Do one task of one system, in a process of its own."""
    opened = open_system(system, directory)
    if task == "build":
        opened.build(rows)
        return {}
    if task == "answer":
        return {"answer": opened.answer()}
    data = changes(case, rows)
    base_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start, cpu = time.perf_counter(), time.process_time()
    files = opened.merge(data, "code" if case == "far" else "id")
    seconds = time.perf_counter() - start
    return {
        "seconds": getattr(opened, "seconds", seconds),
        "cpu_seconds": time.process_time() - cpu,
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "before_mib": round(base_mib),
        "files_rewritten": files,
    }


def call(system: str, task: str, directory: Path, rows: int, case: str) -> dict[str, Any]:
    """Let a process do it, and return what it says."""
    python = str(PEERS) if not system.startswith("lakebed") and PEERS.exists() else sys.executable
    told = subprocess.run(
        [python, __file__, "--work", system, task, str(directory), str(rows), case],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    ).stdout
    result: dict[str, Any] = json.loads(told.splitlines()[-1])
    return result


def measure(
    systems: list[str], rows: int, rounds: int, cases: list[str], directory: Path
) -> Iterator[dict[str, Any]]:
    """Let systems do all cases, in turns, and yield what they took, beside Lakebed without index."""
    for system in systems:
        if system != "pyiceberg":  # whose paths are absolute: it builds where it merges
            call(system, "build", directory / "built" / system, rows, "")
    for case in cases:
        found: dict[str, list[dict[str, Any]]] = {system: [] for system in systems}
        for _ in range(rounds):
            for system in systems:
                place = directory / "run"
                shutil.rmtree(place, ignore_errors=True)
                if system == "pyiceberg":
                    call(system, "build", place, rows, "")
                else:
                    shutil.copytree(directory / "built" / system, place)
                found[system].append(call(system, "merge", place, rows, case))
                told = call(system, "answer", place, rows, case)["answer"]
                if not np.allclose(told, expected(case, rows)):
                    message = f"{system} holds {told} after {case}, not {expected(case, rows)}"
                    raise SystemExit(message)
        first = statistics.median(one["seconds"] for one in found[systems[0]])
        for system in systems:
            seconds = statistics.median(one["seconds"] for one in found[system])
            yield {
                "case": case,
                "system": system,
                "rows": rows,
                "seconds": round(seconds, 2),
                "to_lakebed": round(seconds / first, 2),
                "cpu_seconds": round(
                    statistics.median(one["cpu_seconds"] for one in found[system]), 2
                ),
                "peak_mib": max(one["peak_mib"] for one in found[system]),
                "before_mib": max(one["before_mib"] for one in found[system]),
                "files_rewritten": found[system][0]["files_rewritten"],
            }
    shutil.rmtree(directory / "built", ignore_errors=True)


def on_spark(rows: int, rounds: int, directory: Path) -> Iterator[dict[str, Any]]:
    """Yield what a merge takes on Spark, beside a join and an overwrite written by hand."""
    import lakebed
    from lakebed.spark.session import local_session

    spark = local_session("*", app_name="lakebed-bench", settings={"spark.driver.memory": "4g"})
    repository = lakebed.open_repository(directory / "lake")
    plain = directory / "plain"
    for case in CASES:
        key = "code" if case == "far" else "id"
        source = directory / f"changes-{case}"
        spark.createDataFrame(changes(case, rows)).write.parquet(str(source), mode="overwrite")
        seconds: dict[str, list[float]] = {"lakebed": [], "join and overwrite": []}
        files = 0
        for number in range(rounds + 1):
            name = f"{case}{number}"
            descriptor = lakebed.DatasetDescriptor(
                schema=_SCHEMA, index=["code"], compression="snappy"
            )
            dataset = repository.create(name, descriptor)
            for chunk in chunks(rows):
                dataset.append(chunk)
            before = [str(directory / "lake" / file.key) for file in dataset.files()]
            data = spark.read.parquet(str(source))

            def by_hand() -> None:
                old = spark.read.parquet(*before).select(*_SCHEMA.names)  # noqa: B023 - called here
                kept = old.join(data.select(key), key, "left_anti").select(*_SCHEMA.names)  # noqa: B023
                kept.unionByName(data).write.parquet(str(plain), mode="overwrite")  # noqa: B023

            def by_lakebed() -> None:
                nonlocal files
                files = dataset.merge(data, key).rewritten_file_count  # noqa: B023 - called here

            ways: dict[str, Callable[[], None]] = {
                "lakebed": by_lakebed,
                "join and overwrite": by_hand,
            }
            for way in list(ways)[:: -1 if number % 2 else 1]:
                start = time.perf_counter()
                ways[way]()
                if number:  # the first is to warm up
                    seconds[way].append(time.perf_counter() - start)
            total = [
                dataset.count(),
                dataset.spark(spark, ["amount"]).agg({"amount": "sum"}).first()[0],
            ]
            if not np.allclose(total, expected(case, rows)):
                message = f"Lakebed holds {total} after {case}, not {expected(case, rows)}"
                raise SystemExit(message)
            repository.drop(name)
        first = statistics.median(seconds["lakebed"])
        for way, times in seconds.items():
            taken = statistics.median(times)
            yield {
                "case": f"{case}, on Spark",
                "system": way,
                "rows": rows,
                "seconds": round(taken, 2),
                "to_lakebed": round(taken / first, 2),
                "files_rewritten": files if way == "lakebed" else FILES,
            }
    spark.stop()


def main() -> None:
    """Run, and print a line of JSON for each result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--spark", action="store_true", help="on Spark instead")
    parser.add_argument("--iceberg-share", type=float, default=0.02, help="0 leaves it out")
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        system, task, place, rows, case = options.work
        print(json.dumps(work(system, task, Path(place), int(rows), case)), flush=True)
        os._exit(0)  # threads of Arrow that read through Python now and then abort at the end
    cases = options.cases.split(",")
    with tempfile.TemporaryDirectory() as directory:
        if options.spark:
            results = [on_spark(options.rows, options.rounds, Path(directory))]
        else:
            most = ["lakebed", "lakebed-indexed", "deltalake"]
            results = [measure(most, options.rows, options.rounds, cases, Path(directory))]
            share = int(options.rows * options.iceberg_share)
            if share:
                both = ["lakebed", "pyiceberg"]
                results.append(measure(both, share, options.rounds, cases, Path(directory)))
        for result in (one for part in results for one in part):
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()

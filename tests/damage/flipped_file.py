"""A child process that flips single bits of a file, and asks what remains of the dataset.

Reads `offset mask` lines, and writes a line for each: `same`, `error NAME`, `other QUESTIONS` or
`unnamed ERROR`. A parent sees in its silence, or in its end, what no exception can report.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import inside
import pyarrow as pa
import pyarrow.compute as pc

import lakebed
from lakebed.errors import InvalidInputError, LakebedError, SchemaMismatchError
from lakebed.store.cache import PROCESS_CACHE

Questions = Mapping[str, Callable[[lakebed.Dataset], object]]

QUESTIONS: Questions = {
    "version": lambda dataset: dataset.version,
    "schema": lambda dataset: (str(dataset.schema), str(dataset.descriptor)),
    "history": lambda dataset: [(one.version, one.operation) for one in dataset.history()],
    "older": lambda dataset: dataset.at(version=1).arrow(),
    "all": lambda dataset: dataset.arrow(),
    "range": lambda dataset: dataset.where("n BETWEEN 20 AND 110").arrow(),
    "one column": lambda dataset: dataset.where("x > 6").select("x").arrow(),
    "null": lambda dataset: dataset.where("s IS NULL").arrow(),
    "time": lambda dataset: dataset.where("at < '2024-01-03'").arrow(),
    "count": lambda dataset: dataset.where("x > 6").count(),
    "count all": lambda dataset: dataset.count(),
    "first": lambda dataset: dataset.where("n > 3").limit(2).arrow().num_rows,
    "engine": lambda dataset: read_by_engine(dataset),
    "sql": lambda dataset: ask_by_sql(dataset),
    "delete": lambda dataset: planned_deletion(dataset),
}


def read_by_engine(dataset: lakebed.Dataset) -> pa.Table:
    """Read by Arrow's own scan, which takes no files of Avro."""
    if dataset.descriptor.format == "avro":
        return dataset.where("x > 6").arrow()
    return dataset.dataset().to_table(filter=pc.field("x") > 6)


def planned_deletion(dataset: lakebed.Dataset) -> int:
    commit = dataset.delete("n >= 20", dry_run=True)
    return 0 if commit is None else commit.row_count


def ask_by_sql(dataset: lakebed.Dataset) -> pa.Table:
    """Read through DuckDB, which turns errors of readers into its own."""
    lake = lakebed.Repository(inside.store_of(dataset))
    return lake.sql("SELECT * FROM t WHERE x > 6 ORDER BY n")


def answer(dataset: lakebed.Dataset, truth: Mapping[str, object]) -> str:
    """Ask everything, and compare with the truth."""
    errors, others = [], []
    for name, ask in QUESTIONS.items():
        try:
            if ask(dataset) != truth[name]:
                others.append(name)
        except SchemaMismatchError as exc:
            if "of another tool" not in exc.message:
                return f"unnamed {name}: {exc!r}"
            errors.append(type(exc).__name__)  # it names the file
        except InvalidInputError as exc:
            return f"unnamed {name}: {exc!r}"  # the questions are right
        except LakebedError as exc:
            errors.append(type(exc).__name__)
        except BaseException as exc:  # noqa: BLE001 - the parent judges each error without a name
            return f"unnamed {name}: {exc!r}"
    if others:
        return f"other {', '.join(others)}"
    return f"error {errors[0]}" if errors else "same"


def main(lake: Path, file: Path) -> None:
    def opened() -> lakebed.Dataset:
        PROCESS_CACHE.clear()
        return lakebed.open_repository(str(lake)).open("t")

    whole = file.read_bytes()
    truth = {name: ask(opened()) for name, ask in QUESTIONS.items()}
    for line in sys.stdin:
        offset, mask = map(int, line.split())
        damaged = bytearray(whole)
        damaged[offset] ^= mask
        file.write_bytes(damaged)
        try:
            found = answer(opened(), truth)
        except LakebedError as exc:
            found = f"error {type(exc).__name__}"
        finally:
            file.write_bytes(whole)
        sys.stdout.write(f"{found}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

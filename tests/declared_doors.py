"""Every door by which rows enter a dataset, without Spark: each takes rows and a dataset."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from click.testing import CliRunner
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StringType, StructField, StructType

import lakebed
from lakebed import Dataset, DatasetDescriptor, Repository
from lakebed.checks import Check

SCHEMA = pa.schema([("id", pa.int64()), ("delay", pa.int64()), ("carrier", pa.string())])
Rows = Sequence[Mapping[str, Any]]
Door = Callable[[Dataset, Rows, Path], object]

GOOD: Rows = [{"id": 1, "delay": 5, "carrier": "UA"}, {"id": 2, "delay": None, "carrier": "AA"}]
BAD: Rows = [
    {"id": 11, "delay": -500, "carrier": "UA"},
    {"id": 12, "delay": 7, "carrier": "UA"},
    {"id": 13, "delay": -700, "carrier": "AA"},
]
SANE = "delay >= -120 OR delay IS NULL"


def created(lake: Repository, checks: Mapping[str, Check], **options: Any) -> Dataset:
    """Return a dataset that declares checks, with two good rows."""
    descriptor = DatasetDescriptor(schema=SCHEMA, checks=checks, **options)
    flights = lake.create("flights", descriptor)
    flights.append(GOOD)
    return flights


def ids_of(dataset: Dataset) -> list[int]:
    """Return the ids of all rows, in order."""
    return sorted(row["id"] for row in dataset.arrow().to_pylist())


def _table(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCHEMA)


def _append(dataset: Dataset, rows: Rows, _: Path) -> object:
    return dataset.append(_table(rows))


def _append_iterator(dataset: Dataset, rows: Rows, _: Path) -> object:
    return dataset.append(iter(rows))


def _overwrite(dataset: Dataset, rows: Rows, _: Path) -> object:
    kept = list(GOOD)
    return dataset.overwrite(_table([*kept, *rows]))


def _rerun(dataset: Dataset, rows: Rows, _: Path) -> object:
    return dataset.rerun(_table(rows), run="monday", replace_all=True)


def _upsert(dataset: Dataset, rows: Rows, _: Path) -> object:
    return dataset.upsert(_table(rows), on="id")


def _staged(dataset: Dataset, rows: Rows, _: Path) -> object:
    return dataset.staged.add(_table(rows)).commit()


def _transaction(dataset: Dataset, rows: Rows, _: Path) -> object:
    with dataset.transaction() as transaction:
        transaction.append(_table(rows))
    return transaction.commit


def _entities(dataset: Dataset, rows: Rows, _: Path) -> object:
    with dataset.kite.writer() as writer:
        for row in rows:
            writer.write(row)
    return writer.commit


def _lines(path: Path, rows: Rows) -> Path:
    file = path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def _load(dataset: Dataset, rows: Rows, path: Path) -> object:
    return dataset.load([str(_lines(path, rows))], "json", run="load")


def _ingest(dataset: Dataset, rows: Rows, path: Path) -> object:
    tables = {
        "source": {"paths": [str(_lines(path, rows))], "format": "json"},
        "dataset": {"into": dataset.uri.removeprefix("file://")},
        "ingest": {"max_rejects": 1, "quarantine": "flights_quarantine"},
    }
    lines = ['name = "daily"']
    for table, settings in tables.items():
        lines += [f"[{table}]", *(f"{key} = {json.dumps(one)}" for key, one in settings.items())]
    file = path / "daily.toml"
    file.write_text("\n".join(lines))
    return lakebed.Ingest.from_toml(file).run()


def _command(dataset: Dataset, rows: Rows, path: Path) -> object:
    from lakebed.cli import main

    arguments = ["append", dataset.uri.removeprefix("file://"), str(_lines(path, rows))]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    if result.exit_code:
        raise lakebed.errors.ChecksFailedError(result.stderr, counts={"sane": 2})
    return result


def _data_source(dataset: Dataset, rows: Rows, _: Path) -> object:
    from lakebed.datasource.frame_sink import LakebedWriter

    schema = StructType(
        [
            StructField("id", LongType()),
            StructField("delay", LongType()),
            StructField("carrier", StringType()),
        ]
    )
    texts = {"path": dataset.uri.removeprefix("file://")}
    writer = LakebedWriter.begin(texts, schema, is_overwrite=False)
    writer = cloudpickle.loads(cloudpickle.dumps(writer))
    return writer.commit([writer.write(iter(_table(rows).to_batches()))])


DOORS: dict[str, Door] = {
    "append": _append,
    "append of an iterator": _append_iterator,
    "overwrite": _overwrite,
    "rerun": _rerun,
    "upsert": _upsert,
    "staged": _staged,
    "transaction": _transaction,
    "entity writer": _entities,
    "load": _load,
    "ingest": _ingest,
    "command line": _command,
    "data source": _data_source,
}

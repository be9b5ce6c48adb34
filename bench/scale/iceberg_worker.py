"""The actions with pyiceberg and its SQLite catalog, in its own environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import layout
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import EqualTo, In
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, DoubleType, LongType, NestedField

SCHEMA = Schema(
    NestedField(1, "day", DateType(), required=False),
    NestedField(2, "id", LongType(), required=False),
    NestedField(3, "amount", DoubleType(), required=False),
)
SPEC = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "day"))
ARROW = pa.schema([("day", pa.date32()), ("id", pa.int64()), ("amount", pa.float64())])


def _catalog(location: str, catalog: str, storage: dict[str, str]) -> SqlCatalog:
    return SqlCatalog("bench", uri=f"sqlite:///{catalog}", warehouse=_uri(location), **storage)


def _uri(location: str) -> str:
    return location if "://" in location else f"file://{location}"


def _open(location: str, catalog: str, storage: dict[str, str]) -> Any:
    return _catalog(location, catalog, storage).load_table("bench.t")


def prepare(location: str, catalog: str, count: int, storage: dict[str, str]) -> dict[str, Any]:
    """Write one manifest for each 100,000 files."""
    made = _catalog(location, catalog, storage)
    made.create_namespace("bench")
    table = made.create_table("bench.t", SCHEMA, location=_uri(location), partition_spec=SPEC)
    for piece in layout.batches(count, 100_000):
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for file in piece:
                append.append_data_file(_data_file(location, file, count))
    return {}


def _data_file(location: str, file: int, count: int) -> DataFile:
    day = layout.day_of(file)
    ids = layout.ids_of(file, count)
    found = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{_uri(location)}/data/day={day.isoformat()}/part-{file:08d}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record((day - layout.dt.date(1970, 1, 1)).days),
        record_count=layout.ROWS_A_FILE,
        file_size_in_bytes=layout.FILE_BYTES,
        column_sizes={2: 100, 3: 100},
        value_counts={2: layout.ROWS_A_FILE, 3: layout.ROWS_A_FILE},
        null_value_counts={2: 0, 3: 0},
        nan_value_counts={},
        lower_bounds={2: to_bytes(LongType(), ids[0]), 3: to_bytes(DoubleType(), 0.5)},
        upper_bounds={2: to_bytes(LongType(), ids[-1]), 3: to_bytes(DoubleType(), 99.5)},
        split_offsets=[4],
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )
    found.spec_id = 0
    return found


def open_and_prune(
    location: str, catalog: str, count: int, storage: dict[str, str]
) -> dict[str, Any]:
    """Open the table in this process for the first time, and choose the files of one day."""
    watch = layout.Stopwatch()
    with watch:
        table = _open(location, catalog, storage)
        condition = EqualTo("day", layout.day_to_ask(count).isoformat())
        found = list(table.scan(row_filter=condition).plan_files())
    return {"seconds": watch.seconds, "kept": len(found)}


def lookup(
    location: str, catalog: str, count: int, number: int, storage: dict[str, str]
) -> dict[str, Any]:
    """Choose the files that may hold some ids."""
    watch = layout.Stopwatch()
    ids = layout.ids_to_ask(count, number)
    with watch:
        table = _open(location, catalog, storage)
        found = list(table.scan(row_filter=In("id", ids)).plan_files())
    return {"seconds": watch.seconds, "kept": len(found)}


def commit(
    location: str, catalog: str, count: int, number: int, storage: dict[str, str]
) -> dict[str, Any]:
    """Append one small file, a few times, each with a table opened before."""
    seconds = []
    for i in range(number):
        rows = pa.table(layout.rows_of_new_file(count + i), schema=ARROW)
        watch = layout.Stopwatch()
        with watch:
            _open(location, catalog, storage).append(rows)
        seconds.append(watch.seconds)
    return {"seconds": sorted(seconds)[len(seconds) // 2], "all": seconds}


def import_files(location: str, catalog: str, files: list[str]) -> dict[str, Any]:
    """Make a table of Parquet files as they are."""
    made = _catalog(location, catalog, {})
    made.create_namespace("bench")
    table = made.create_table("bench.t", pq.read_schema(files[0]), location=_uri(location))
    table.add_files([_uri(str(Path(one))) for one in files], check_duplicate_files=False)
    return {}


def read(location: str, catalog: str, ids: list[int]) -> dict[str, Any]:
    """Read the rows of some ids, from a table not yet opened."""
    watch = layout.Stopwatch()
    with watch:
        table = _open(location, catalog, {})
        rows = table.scan(row_filter=In("id", ids)).to_arrow()
    return {"seconds": watch.seconds, "rows": sorted(rows.column("id").to_pylist())}


layout.answer(
    {
        "prepare": prepare,
        "open_and_prune": open_and_prune,
        "lookup": lookup,
        "commit": commit,
        "import_files": import_files,
        "read": read,
    }
)

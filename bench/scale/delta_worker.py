"""The actions with delta-rs, in its own environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import layout
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

SCHEMA = pa.schema([("day", pa.date32()), ("id", pa.int64()), ("amount", pa.float64())])


def prepare(location: str, count: int, storage: dict[str, str]) -> dict[str, Any]:
    """Write the log as one checkpoint, which is the state that delta-rs opens fastest."""
    DeltaTable.create(
        location, schema=SCHEMA, partition_by=["day"], storage_options=storage or None
    )
    table = DeltaTable(location, storage_options=storage or None)
    from deltalake.transaction import AddAction

    for piece in layout.batches(count, 100_000):
        table.create_write_transaction(
            [_add(AddAction, file, count) for file in piece],
            mode="append",
            schema=table.schema(),
            partition_by=["day"],
        )
        table = DeltaTable(location, storage_options=storage or None)
    table.create_checkpoint()
    return {"version": table.version()}


def _add(kind: Any, file: int, count: int) -> Any:
    day = layout.day_of(file).isoformat()
    ids = layout.ids_of(file, count)
    bounds = ({"id": ids[0], "amount": 0.5}, {"id": ids[-1], "amount": 99.5})
    return kind(
        path=f"day={day}/part-{file:08d}.parquet",
        size=layout.FILE_BYTES,
        partition_values={"day": day},
        modification_time=1_700_000_000_000,
        data_change=True,
        stats=json.dumps(
            {
                "numRecords": layout.ROWS_A_FILE,
                "minValues": bounds[0],
                "maxValues": bounds[1],
                "nullCount": {"id": 0, "amount": 0},
            }
        ),
    )


def open_and_prune(location: str, count: int, storage: dict[str, str]) -> dict[str, Any]:
    """Open the table in this process for the first time, and choose the files of one day."""
    watch = layout.Stopwatch()
    with watch:
        table = DeltaTable(location, storage_options=storage or None)
        day = layout.day_to_ask(count).isoformat()
        found = table.file_uris(file_pruning_predicate=[("day", "=", day)])
    return {"seconds": watch.seconds, "kept": len(found)}


def lookup(location: str, count: int, number: int, storage: dict[str, str]) -> dict[str, Any]:
    """Choose the files that may hold some ids."""
    watch = layout.Stopwatch()
    ids = layout.ids_to_ask(count, number)
    with watch:
        table = DeltaTable(location, storage_options=storage or None)
        found = table.file_uris(file_pruning_predicate=f"id IN ({', '.join(map(str, ids))})")
    return {"seconds": watch.seconds, "kept": len(found)}


def commit(location: str, count: int, number: int, storage: dict[str, str]) -> dict[str, Any]:
    """Append one small file, a few times, each with a table opened before."""
    seconds = []
    for i in range(number):
        rows = pa.table(layout.rows_of_new_file(count + i), schema=SCHEMA)
        watch = layout.Stopwatch()
        with watch:
            write_deltalake(location, rows, mode="append", storage_options=storage or None)
        seconds.append(watch.seconds)
    return {"seconds": sorted(seconds)[len(seconds) // 2], "all": seconds}


def import_files(location: str, files: list[str]) -> dict[str, Any]:
    """Make a table of Parquet files that lie under its location already, and of their statistics."""
    import pyarrow.parquet as pq
    from deltalake.transaction import AddAction

    schema = pq.read_schema(files[0])
    DeltaTable.create(location, schema=schema)
    table = DeltaTable(location)
    actions = []
    for name in files:
        path = Path(name)
        footer = pq.read_metadata(path)
        stats = [footer.row_group(i).column(0).statistics for i in range(footer.num_row_groups)]
        actions.append(
            AddAction(
                path=str(path.relative_to(location)),
                size=path.stat().st_size,
                partition_values={},
                modification_time=1_700_000_000_000,
                data_change=True,
                stats=json.dumps(
                    {
                        "numRecords": footer.num_rows,
                        "minValues": {"id": min(one.min for one in stats)},
                        "maxValues": {"id": max(one.max for one in stats)},
                        "nullCount": {"id": 0},
                    }
                ),
            )
        )
    table.create_write_transaction(actions, mode="append", schema=table.schema())
    DeltaTable(location).create_checkpoint()
    return {}


def read(location: str, ids: list[int], way: str) -> dict[str, Any]:
    """Read the rows of some ids, from a table not yet opened, in one of delta-rs's two ways."""
    watch = layout.Stopwatch()
    with watch:
        table = DeltaTable(location)
        if way == "pyarrow":
            rows = table.to_pyarrow_table(filters=[("id", "in", ids)])
        else:
            from deltalake import QueryBuilder

            asked = ", ".join(map(str, ids))
            query = QueryBuilder().register("t", table)
            rows = pa.table(query.execute(f"select * from t where id in ({asked})").read_all())
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

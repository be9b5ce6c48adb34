"""Planned files as rows of a table, the form in which tasks receive them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakebed.model import footprint
from lakebed.model.keys import split_label
from lakebed.model.layout import Layout
from lakebed.plan.plan import DataFile, Share
from lakebed.state.facts import Recorded

_SCHEMA = pa.schema(
    [
        ("label", pa.string()),
        ("is_filtered", pa.bool_()),
        ("schema_number", pa.int32()),
        ("row_count", pa.int64()),
        ("size_bytes", pa.int64()),
        ("checksum", pa.string()),
        ("share_number", pa.int32()),
        ("share_count", pa.int32()),
        ("run", pa.string()),
    ]
)


def files_table(files: Sequence[DataFile]) -> pa.Table:
    """Return files as rows, without facts that the layout of their dataset holds."""
    return pa.table(
        [
            [file.label for file in files],
            [file.is_filtered for file in files],
            [file.schema_number for file in files],
            [file.row_count for file in files],
            [file.recorded and file.recorded.size_bytes for file in files],
            [file.recorded and file.recorded.checksum for file in files],
            [file.share and file.share.number for file in files],
            [file.share and file.share.count for file in files],
            [file.run for file in files],
        ],
        schema=_SCHEMA,
    )


def planned_files(layout: Layout, rows: pa.RecordBatch | pa.Table) -> Iterator[DataFile]:
    """Yield the planned files that rows describe."""
    for row in rows.to_pylist():
        number, checksum = row["schema_number"], row["checksum"]
        yield DataFile(
            key=layout.key(row["label"]),
            label=row["label"],
            partition=layout.directory_values(split_label(row["label"])[0])
            | footprint.values_of(layout.footprint, row["label"], row["run"]),
            is_filtered=row["is_filtered"],
            schema_number=number,
            constants=layout.lineage.reading(layout.stored_schema, number).constants,
            row_count=row["row_count"],
            recorded=None
            if checksum is None
            else Recorded(size_bytes=row["size_bytes"], checksum=checksum),
            share=None
            if row["share_number"] is None
            else Share(row["share_number"], row["share_count"]),
            run=row["run"],
        )

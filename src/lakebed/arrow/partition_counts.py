"""Rows of each partition, counted by the write kernel without a write."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.kernel import BatchTarget, KernelWriter
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import Kind, Primitive
from lakebed.store.base import Store

_Bounds = dict[str, tuple[dt.datetime, dt.datetime]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCounts:
    """Rows that a write would put into each partition.

    Attributes:
        rows: Number of rows, by path of the partition.
        bounds: Least and greatest time in each partition, by column in data files; of the columns
            that partition functions divide.
        zones: Time zones, other than UTC, of these times.
    """

    rows: dict[str, int]
    bounds: dict[str, _Bounds]
    zones: frozenset[str] = frozenset()


def count_by_partition(
    store: Store, target: BatchTarget, batches: Iterable[pa.RecordBatch]
) -> PartitionCounts:
    """Return how many rows a write would put into each partition.

    Raises:
        LakebedError: The data does not fit; see `KernelWriter.write`.
    """
    kernel = KernelWriter(store, target)  # it only checks rows
    columns = _divided_columns(target.descriptor)
    counts = np.zeros(0, dtype=np.int64)
    bounds: dict[str, list[_Bounds]] = {stored: [] for stored in columns.values()}
    for batch in batches:
        checked = kernel.checked(batch)
        rows = checked.rows
        numbers = np.broadcast_to(checked.numbers, rows.num_rows)
        judged = kernel.judge(checked)
        if judged is not None:
            numbers = numbers[judged.is_kept]
            rows = rows.filter(pa.array(judged.is_kept))
        more = np.bincount(numbers, minlength=len(kernel.partitions))
        more[: len(counts)] += counts
        counts = more
        for name, stored in columns.items():
            bounds[stored].append(_bounds_of(rows.column(name), numbers, kernel.partitions))
    kernel.require_checks()
    return PartitionCounts(
        rows=dict(zip(kernel.partitions, counts.tolist(), strict=True)),
        bounds={name: _joined_bounds(parts) for name, parts in bounds.items()},
        zones=kernel.zones,
    )


def joined_counts(parts: Iterable[PartitionCounts]) -> PartitionCounts:
    """Return the counts of all parts of the rows."""
    counts: Counter[str] = Counter()
    bounds: dict[str, list[_Bounds]] = {}
    zones: set[str] = set()
    for part in parts:
        counts.update(part.rows)
        zones |= part.zones
        for name, of_part in part.bounds.items():
            bounds.setdefault(name, []).append(of_part)
    return PartitionCounts(
        rows=dict(counts),
        bounds={name: _joined_bounds(found) for name, found in bounds.items()},
        zones=frozenset(zones),
    )


def _divided_columns(descriptor: DatasetDescriptor) -> dict[str, str]:
    """Return the fields whose instants partition functions divide, with their names in data files."""
    stored = descriptor.stored_schema
    fields = (stored.find(function.source) for function in descriptor.partition_by)
    return {
        field.name: field.stored_name
        for field in fields
        if field is not None and field.type == Primitive(Kind.TIMESTAMP)
    }


def _bounds_of(column: pa.Array, numbers: np.ndarray, paths: Sequence[str]) -> _Bounds:
    rows = pa.table({"number": numbers, "time": pc.cast(column, pa.timestamp("us", "UTC"))})
    found = rows.group_by("number").aggregate([("time", "min"), ("time", "max")])
    return {
        paths[row["number"]]: (row["time_min"], row["time_max"])
        for row in found.to_pylist()
        if row["time_min"] is not None
    }


def _joined_bounds(parts: Iterable[_Bounds]) -> _Bounds:
    joined: _Bounds = {}
    for part in parts:
        for path, (low, high) in part.items():
            known = joined.get(path, (low, high))
            joined[path] = min(known[0], low), max(known[1], high)
    return joined

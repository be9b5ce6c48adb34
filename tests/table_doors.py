"""Datasets as tables of other formats: how to publish them there, and what readers of these get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakebed.dataset import Dataset
from lakebed.publication.report import TablePublication

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Door:
    """A format in which a dataset is published."""

    name: str
    publish: Callable[..., TablePublication]
    unpublish: Callable[..., bool]
    readers: Mapping[str, Callable[[Path], pa.Table]]
    folder: str
    """Of its metadata, in the dataset's."""

    def __str__(self) -> str:
        return self.name

    def read(self, dataset: Dataset) -> dict[str, pa.Table]:
        """Return what each reader gets."""
        root = Path(dataset.uri.removeprefix("file://"))
        return {name: read(root) for name, read in self.readers.items()}


def by_deltalake(root: Path) -> pa.Table:
    from deltalake import DeltaTable, QueryBuilder

    query = QueryBuilder().register("t", DeltaTable(root / "data"))
    return pa.table(query.execute("SELECT * FROM t").read_all())


def by_polars(root: Path) -> pa.Table:
    import polars

    return polars.scan_delta(str(root / "data")).collect().to_arrow()


def by_pyiceberg(root: Path) -> pa.Table:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(str(root / "iceberg")).scan().to_arrow()


DELTA = Door(
    "delta",
    Dataset.publish_delta,
    Dataset.unpublish_delta,
    {"deltalake": by_deltalake, "polars": by_polars},
    "data/_delta_log",
)
ICEBERG = Door(
    "iceberg",
    Dataset.publish_iceberg,
    Dataset.unpublish_iceberg,
    {"pyiceberg": by_pyiceberg},
    "iceberg/metadata",
)
DOORS = (DELTA, ICEBERG)


def rows_of(table: pa.Table, columns: list[str]) -> list[str]:
    """Return rows in an order of their own, as texts: lists and maps do not sort."""
    rows = ({name: plain(row[name]) for name in columns} for row in table.to_pylist())
    return sorted(map(repr, rows))


def plain(value: Any) -> Any:
    """Return a value so that what engines spell otherwise is equal."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in sorted(value.items())}
    if isinstance(value, list):
        pairs = [one for one in value if isinstance(one, tuple) and len(one) == 2]
        if value and len(pairs) == len(value):
            return plain(dict(pairs))
        if value and all(isinstance(one, dict) and set(one) == {"key", "value"} for one in value):
            return plain({one["key"]: one["value"] for one in value})  # a map of Polars
        return [plain(one) for one in value]
    if hasattr(value, "tzinfo") and value.tzinfo is not None:
        return ("instant", value.timestamp())
    return value


def assert_shows(door: Door, dataset: Dataset) -> None:
    """Check that all readers get the rows of the dataset's current version."""
    wanted = dataset.arrow()
    names = list(wanted.schema.names)
    for reader, table in door.read(dataset).items():
        assert rows_of(table, names) == rows_of(wanted, names), reader

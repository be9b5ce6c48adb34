"""Datasets as tables of other formats: how to publish them there, and what readers of these get."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from heads import ON_TREES

from lakebed.dataset import Dataset
from lakebed.tables.outcome import Publication

Rows = list[dict[str, Any]]

_STRUCT = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
EVERY_TYPE = pa.schema(
    [
        ("day", pa.date32()),
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("date", pa.date32()),
        ("instant", pa.timestamp("us", "UTC")),
        ("clock", pa.timestamp("us")),
        ("small", pa.decimal128(7, 2)),
        ("big", pa.decimal128(38, 10)),
        ("list", pa.list_(pa.int64())),
        ("map", pa.map_(pa.string(), pa.float64())),
        ("dated", pa.map_(pa.date32(), pa.map_(pa.int32(), pa.string()))),
        ("struct", _STRUCT),
        ("structs", pa.list_(_STRUCT)),
    ]
)
EVERY_VALUE: Mapping[str, Any] = {
    "day": dt.date(2013, 1, 1),
    "boolean": True,
    "int": -(2**31),
    "long": 2**63 - 1,
    "float": 1.5,
    "double": -0.1,
    "text": "ä/%\n'\"",
    "bytes": b"\x00\xff",
    "date": dt.date(1969, 12, 31),
    "instant": dt.datetime(2013, 1, 1, 5, 0, 0, 123456, tzinfo=dt.UTC),
    "clock": dt.datetime(1900, 1, 1, 0, 0, 0, 1),
    "small": decimal.Decimal("-12345.67"),
    "big": decimal.Decimal("1234567890123456789012345678.0123456789"),
    "list": [1, None, 3],
    "map": {"a": 1.5, "b": None},
    "dated": {dt.date(2013, 1, 1): {1: "x", -2: None}, dt.date(1969, 12, 31): {}},
    "struct": {"x": 1, "y": ["z", None]},
    "structs": [{"x": None, "y": None}, {"x": 2, "y": []}],
}


@dataclass(frozen=True)
class Door:
    """A format in which a dataset is published."""

    name: str
    publish: Callable[..., Publication]
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
    lambda dataset, **options: dataset.publish("delta", **options),
    lambda dataset, **options: dataset.unpublish("delta", **options),
    # Polars reads no table whose checkpoints have sidecars, as those of a tree do.
    {"deltalake": by_deltalake} | ({} if ON_TREES else {"polars": by_polars}),
    "data/_delta_log",
)
ICEBERG = Door(
    "iceberg",
    lambda dataset, **options: dataset.publish("iceberg", **options),
    lambda dataset, **options: dataset.unpublish("iceberg", **options),
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

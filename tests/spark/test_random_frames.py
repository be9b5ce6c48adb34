"""Random frames of each library, created, appended and upserted, are read back by each reader.

A frame has any of the library's types. What is not kept is refused by name: a reader never shows
another value.
"""

from __future__ import annotations

import collections
import datetime as dt
import logging
import math
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import LakebedError

pytestmark = pytest.mark.spark

_log = logging.getLogger(__name__)

NOON = dt.datetime(2020, 1, 1, 12)
POOLS: dict[str, list[Any]] = {
    **{f"int{bits}": [-(2 ** (bits - 1)), -1, 0, 1, 2 ** (bits - 1) - 1] for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": [0, 1, 2 ** (bits - 1), 2**bits - 1] for bits in (8, 16, 32, 64)},
    "float32": [-0.0, 0.0, float(np.float32(0.1)), -1.5, math.inf, -math.inf, 2.0**100],
    "float64": [-0.0, 0.0, 0.1, -1.5, math.inf, -math.inf, 5e-324, 1.7976931348623157e308],
    "bool": [True, False],
    "text": ["", "a", "größe", "1", "nan", "None", "a\x00b", "😀", "x" * 300],
    "bytes": [b"", b"\xff\x00", b"a"],
    "date": [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    "time": [NOON, dt.datetime(1582, 10, 10, 1, 2, 3), dt.datetime(1969, 12, 31, 23, 59, 59),
             dt.datetime(2300, 1, 1)],
    "near time": [NOON, dt.datetime(1700, 1, 2, 3), dt.datetime(1969, 12, 31, 23, 59, 59),
                  dt.datetime(2026, 3, 8, 7, 30)],
    "number": [Decimal("0.000"), Decimal("-99999.125"), Decimal("12345678901234567.001")],
    "uuid": [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)],
}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A type of a library's column.

    Attributes:
        pool: Values, as Python has them.
        build: Makes a column of some of them.
        has_nulls: Whether a value may be missing.
        is_kept: Whether Lakebed keeps the type; else it refuses it.
    """

    pool: list[Any]
    build: Callable[[list[Any]], Any]
    has_nulls: bool = True
    is_kept: bool = True


def arrow(type_: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    return lambda values: pa.array(values, type_)


def backed(type_: pa.DataType) -> Callable[[list[Any]], pd.Series]:
    return lambda values: pd.Series(pd.arrays.ArrowExtensionArray(pa.array(values, type_)))


def series(dtype: Any) -> Callable[[list[Any]], pd.Series]:
    return lambda values: pd.Series(values, dtype=dtype)


def moments(unit: str, zone: str | None = None) -> Callable[[list[Any]], pd.Series]:
    def build(values: list[Any]) -> pd.Series:
        naive = [None if value is None else value.replace(tzinfo=None) for value in values]
        column = pd.Series(np.array(naive, "datetime64[us]").astype(f"datetime64[{unit}]"))
        return column if zone is None else column.dt.tz_localize("UTC").dt.tz_convert(zone)

    return build


def categories(values: list[Any]) -> pd.Series:
    known = list(dict.fromkeys(value for value in values if value is not None))
    return pd.Series(pd.Categorical(values, categories=known))


def of_polars(dtype: str) -> Callable[[list[Any]], pl.Series]:
    return lambda values: pl.Series(values, dtype=getattr(pl, dtype))


def objects(null: Any = None) -> Callable[[list[Any]], pd.Series]:
    def build(values: list[Any]) -> pd.Series:
        cells = np.empty(len(values), dtype=object)
        for n, value in enumerate(values):
            cells[n] = null if value is None else value
        return pd.Series(cells)

    return build


def aware(pool: str) -> list[dt.datetime]:
    return [value.replace(tzinfo=dt.UTC) for value in POOLS[pool]]


def refused(pool: list[Any], build: Callable[[list[Any]], Any]) -> Kind:
    return Kind(pool, build, has_nulls=False, is_kept=False)


def names(prefix: str, kinds: dict[str, Kind]) -> dict[str, Kind]:
    return {f"{prefix} {name}": kind for name, kind in kinds.items()}


WIDTHS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
ARROW: dict[str, Kind] = {
    **{width: Kind(POOLS[width], arrow(getattr(pa, width)())) for width in WIDTHS},
    "float32": Kind([*POOLS["float32"], math.nan], arrow(pa.float32())),
    "float64": Kind([*POOLS["float64"], math.nan], arrow(pa.float64())),
    "half float": Kind([0.5, -1.5, math.inf], lambda v: pa.array(
        [None if x is None else np.float16(x) for x in v], pa.float16())),
    "bool": Kind(POOLS["bool"], arrow(pa.bool_())),
    "string": Kind(POOLS["text"], arrow(pa.string())),
    "large string": Kind(POOLS["text"], arrow(pa.large_string())),
    "string view": Kind(POOLS["text"], arrow(pa.string_view())),
    "dictionary": Kind(POOLS["text"], lambda v: pa.array(v, pa.string()).dictionary_encode()),
    "binary": Kind(POOLS["bytes"], arrow(pa.binary())),
    "binary view": Kind(POOLS["bytes"], arrow(pa.binary_view())),
    "fixed binary": Kind([b"abc", b"\xff\x00\x01"], arrow(pa.binary(3))),
    "date32": Kind(POOLS["date"], arrow(pa.date32())),
    "date64": Kind(POOLS["date"], arrow(pa.date64())),
    **{f"timestamp {unit}": Kind(POOLS["near time"], arrow(pa.timestamp(unit)))
       for unit in ("s", "ms", "us", "ns")},
    "old timestamp": Kind(POOLS["time"], arrow(pa.timestamp("us"))),
    "zoned": Kind(aware("time"), arrow(pa.timestamp("us", "America/New_York"))),
    "decimal": Kind(POOLS["number"], arrow(pa.decimal128(20, 3))),
    "decimal256": Kind(POOLS["number"], arrow(pa.decimal256(30, 3))),
    "list": Kind([[], [1, None], [2**40]], arrow(pa.list_(pa.int64()))),
    "large list": Kind([[], ["a", None]], arrow(pa.large_list(pa.large_string()))),
    "list view": Kind([[], ["a", None]], arrow(pa.list_view(pa.string()))),
    "fixed list": Kind([[1, 2], [3, None]], arrow(pa.list_(pa.int32(), 2))),
    "record": Kind([{"a": 1, "b": None}, {"a": None, "b": [dt.date(1582, 10, 10)]}], arrow(
        pa.struct([("a", pa.int8()), ("b", pa.list_(pa.date32()))]))),
    "map": Kind([[], [("k", 1.5), ("", None)]], arrow(pa.map_(pa.string(), pa.float64()))),
    "map of records": Kind([[("k", {"a": 1}), ("l", None)]], arrow(
        pa.map_(pa.string(), pa.struct([("a", pa.int64())])))),
    "uuid": Kind(POOLS["uuid"], arrow(pa.uuid())),
    "json": Kind(['{"a": 1}'], arrow(pa.json_())),
    "time": refused([1], arrow(pa.time64("us"))),
    "duration": refused([1], arrow(pa.duration("us"))),
    "interval": refused([(1, 2, 3)], arrow(pa.month_day_nano_interval())),
    "odd nanoseconds": refused([1001], arrow(pa.timestamp("ns"))),
    "wide decimal": refused([Decimal(10**38)], arrow(pa.decimal256(45, 2))),
}  # fmt: skip
PANDAS: dict[str, Kind] = {
    **{width: Kind(POOLS[width], series(width), has_nulls=False) for width in WIDTHS},
    **{f"nullable {width}": Kind(POOLS[width], series(width.replace("i", "I").replace("u", "U")))
       for width in WIDTHS},
    "float32": Kind(POOLS["float32"], series("float32")),
    "float64": Kind(POOLS["float64"], series("float64")),
    "nullable Float32": Kind(POOLS["float32"], series("Float32")),
    "nullable Float64": Kind(POOLS["float64"], series("Float64")),
    "bool": Kind(POOLS["bool"], series("bool"), has_nulls=False),
    "boolean": Kind(POOLS["bool"], series("boolean")),
    "string": Kind(POOLS["text"], series("string")),
    "string of Arrow": Kind(POOLS["text"], series("string[pyarrow]")),
    "category of text": Kind(POOLS["text"], categories),
    "category of integers": Kind(POOLS["int64"], categories),
    "category of days": Kind(POOLS["date"], categories),
    **{f"datetime64 {unit}": Kind(POOLS["near time"], moments(unit))
       for unit in ("s", "ms", "us", "ns")},
    **{f"zoned {unit}": Kind(aware("near time"), moments(unit, "Asia/Tokyo"))
       for unit in ("s", "ms", "us", "ns")},
    "old datetime64": Kind(POOLS["time"], moments("us")),
    "objects of text": Kind(POOLS["text"], objects()),
    "objects of text and NaN": Kind(POOLS["text"], objects(math.nan)),
    "objects of text and NA": Kind(POOLS["text"], objects(pd.NA)),
    "objects of integers": Kind(POOLS["int64"], objects()),
    "objects of booleans": Kind(POOLS["bool"], objects()),
    "objects of bytes": Kind(POOLS["bytes"], objects()),
    "objects of days": Kind(POOLS["date"], objects()),
    "objects of times": Kind(POOLS["time"], objects()),
    "objects of moments": Kind(aware("time"), objects()),
    "objects of decimals": Kind(POOLS["number"][:2], objects()),
    "objects of UUIDs": Kind(POOLS["uuid"], objects()),
    "objects of lists": Kind([[], [1], [2**40, None]], objects()),
    "objects of records": Kind([{"a": 1, "b": "x"}, {"a": None, "b": "y"}], objects()),
    **{f"of Arrow: {name}": Kind(kind.pool, lambda v, build=kind.build: pd.Series(
           pd.arrays.ArrowExtensionArray(build(v))))
       for name, kind in ARROW.items()
       if kind.is_kept and "view" not in name and name not in ("uuid", "json", "half float")},
    "timedelta": refused([dt.timedelta(1)], series("timedelta64[ns]")),
    "period": refused(["2020"], lambda v: pd.Series(pd.PeriodIndex(v, freq="Y"))),
    "interval": refused([1], lambda v: pd.Series(pd.interval_range(0, len(v)))),
    "sparse": refused([1, 0], lambda v: pd.Series(pd.arrays.SparseArray(v))),
    "complex": refused([1j], series("complex128")),
    "objects of a mixture": refused([1], lambda v: objects()([*v[1:], "a"])),
    "objects of days and times": refused(
        [dt.date(2020, 1, 1)], lambda v: objects()([*v[1:], NOON])),
    "time of Arrow": refused([1], backed(pa.time64("us"))),
}  # fmt: skip
POLARS: dict[str, Kind] = {
    **{width: Kind(POOLS[width], of_polars(width.replace("ui", "UI").replace("int", "Int")))
       for width in WIDTHS},
    **{f"Float{bits}": Kind([*POOLS[f"float{bits}"], math.nan], of_polars(f"Float{bits}"))
       for bits in (32, 64)},
    "Boolean": Kind(POOLS["bool"], lambda v: pl.Series(v, dtype=pl.Boolean)),
    "String": Kind(POOLS["text"], lambda v: pl.Series(v, dtype=pl.String)),
    "Categorical": Kind(POOLS["text"], lambda v: pl.Series(v, dtype=pl.Categorical)),
    "Enum": Kind(POOLS["text"], lambda v: pl.Series(v, dtype=pl.Enum(POOLS["text"]))),
    "Binary": Kind(POOLS["bytes"], lambda v: pl.Series(v, dtype=pl.Binary)),
    "Date": Kind(POOLS["date"], lambda v: pl.Series(v, dtype=pl.Date)),
    **{f"Datetime {unit}": Kind(POOLS["near time"],
                                lambda v, u=unit: pl.Series(v, dtype=pl.Datetime(u)))
       for unit in ("ms", "us", "ns")},
    "Datetime of a zone": Kind(aware("time"), lambda v: pl.Series(
        v, dtype=pl.Datetime("us", "UTC")).dt.convert_time_zone("Asia/Tokyo")),
    "Decimal": Kind(POOLS["number"], lambda v: pl.Series(v, dtype=pl.Decimal(20, 3))),
    "List": Kind([[], [1, None]], lambda v: pl.Series(v, dtype=pl.List(pl.Int16))),
    "Array": Kind([[1, 2], [3, None]], lambda v: pl.Series(v, dtype=pl.Array(pl.Int8, 2))),
    "Struct": Kind([{"a": 1, "b": ["x", None]}, {"a": None, "b": []}], lambda v: pl.Series(
        v, dtype=pl.Struct({"a": pl.Int32, "b": pl.List(pl.String)}))),
    "Object": refused([uuid.UUID(int=1)], lambda v: pl.Series(v, dtype=pl.Object)),
    "Int128": refused([1], lambda v: pl.Series(v, dtype=pl.Int128)),
    "Time": refused([dt.time(1)], lambda v: pl.Series(v)),
    "Duration": refused([dt.timedelta(1)], lambda v: pl.Series(v)),
}  # fmt: skip
NUMPY: dict[str, Kind] = {
    **{width: Kind(POOLS[width], lambda v, t=width: np.array(v, t), has_nulls=False)
       for width in WIDTHS},
    "float32": Kind(POOLS["float32"], lambda v: np.array(v, "f4"), has_nulls=False),
    "float64": Kind(POOLS["float64"], lambda v: np.array(v, "f8"), has_nulls=False),
    "bool": Kind(POOLS["bool"], lambda v: np.array(v, "?"), has_nulls=False),
    "text": Kind(["", "a", "größe", "😀"], lambda v: np.array(v, "U9"), has_nulls=False),
    "bytes": Kind([b"", b"a", b"\xff"], lambda v: np.array(v, "S3"), has_nulls=False),
    "day": Kind(POOLS["date"], lambda v: np.array(v, "M8[D]")),
    **{unit: Kind(POOLS["near time"], lambda v, u=unit: np.array(v, f"M8[{u}]"))
       for unit in ("s", "ms", "us", "ns")},
    "objects": Kind(POOLS["text"], lambda v: np.array(v, "O")),
    "duration": refused([1], lambda v: np.array(v, "m8[s]")),
    "complex": refused([1j], lambda v: np.array(v, "c16")),
}  # fmt: skip
SPARK: dict[str, Kind] = {
    "TINYINT": Kind(POOLS["int8"], list),
    "SMALLINT": Kind(POOLS["int16"], list),
    "INT": Kind(POOLS["int32"], list),
    "BIGINT": Kind(POOLS["int64"], list),
    "FLOAT": Kind([*POOLS["float32"], math.nan], list),
    "DOUBLE": Kind([*POOLS["float64"], math.nan], list),
    "BOOLEAN": Kind(POOLS["bool"], list),
    "STRING": Kind(POOLS["text"], list),
    "BINARY": Kind(POOLS["bytes"], list),
    "DATE": Kind(POOLS["date"], list),
    "TIMESTAMP": Kind(aware("time"), list),
    "TIMESTAMP_NTZ": Kind(POOLS["time"], list),
    "DECIMAL(20, 3)": Kind(POOLS["number"], list),
    "ARRAY<SMALLINT>": Kind([[], [1, None]], list),
    "MAP<STRING, DOUBLE>": Kind([{}, {"k": 1.5, "": None}], list),
    "MAP<STRING, STRUCT<a: BIGINT>>": Kind([{"k": {"a": 1}, "l": None}], list),
    "STRUCT<a: INT, b: ARRAY<DATE>>": Kind(
        [{"a": 1, "b": None}, {"a": None, "b": [dt.date(1582, 10, 10)]}], list
    ),
    "INTERVAL DAY TO SECOND": refused([dt.timedelta(1)], list),
    "VOID": refused([None], list),
}
LIBRARIES: dict[str, dict[str, Kind]] = {
    "pandas": PANDAS,
    "Polars": POLARS,
    "NumPy": NUMPY,
    "Arrow": ARROW,
    "Spark": SPARK,
}


def frame_of(library: str, columns: dict[str, tuple[str, list[Any]]], spark: Any) -> Any:
    """Return a frame of columns, each of a kind and values."""
    kinds = LIBRARIES[library]
    if library == "Spark":
        schema = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
        rows = list(zip(*(values for _, values in columns.values()), strict=True))
        return spark.createDataFrame(rows, schema)
    made = {name: kinds[kind].build(values) for name, (kind, values) in columns.items()}
    if library == "pandas":
        return pd.DataFrame(made)
    if library == "Polars":
        return pl.DataFrame(made)
    if library == "Arrow":
        return pa.table(made)
    rows = np.empty(len(made["id"]), [(name, column.dtype) for name, column in made.items()])
    for name, column in made.items():
        rows[name] = column
    return rows


def plain(value: Any) -> Any:
    """Return a value in one form for all libraries, which tells apart all that differs."""
    if value is None or value is pd.NaT or value is pd.NA:
        return None
    match value:
        case bool() | np.bool_():
            return bool(value)
        case float() | np.floating():
            return "nan" if math.isnan(value) else repr(float(value))
        case int() | Decimal() | np.integer():
            return Decimal(int(value) if isinstance(value, np.integer) else value).normalize()
        case pd.Timestamp():
            return plain(value.to_pydatetime())
        case dt.datetime():
            return value.astimezone(dt.UTC) if value.tzinfo else value
        case uuid.UUID():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case dict() if value:
            return tuple((key, plain(part)) for key, part in sorted(value.items()))
        case dict() | list() | np.ndarray() | tuple():
            parts = list(value)
            # A map is a list of pairs in Arrow.
            if parts and all(isinstance(p, tuple) and isinstance(p[0], str) for p in parts):
                return plain(dict(parts))
            return "[]" if not parts else tuple(plain(part) for part in parts)
    return value


def rows_by_id(rows: Sequence[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {
        int(row["id"]): {name: plain(value) for name, value in row.items() if name != "id"}
        for row in rows
    }


def readers(dataset: lakebed.Dataset, spark: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    yield "Arrow", dataset.arrow().to_pylist()
    backed_by_arrow = dataset.pandas(dtype_backend="pyarrow")
    yield "pandas", pa.Table.from_pandas(backed_by_arrow, preserve_index=False).to_pylist()
    yield "Polars", dataset.polars().to_arrow().to_pylist()
    files = [str(file.location).removeprefix("file://") for file in dataset.files()]
    with duckdb.connect() as connection:
        connection.sql("SET TimeZone = 'UTC'")
        query = "SELECT * FROM read_parquet(?, hive_partitioning = false, union_by_name = true)"
        yield "DuckDB", connection.sql(query, params=[files]).to_arrow_table().to_pylist()
    yield "Spark", dataset.spark(spark).toArrow().to_pylist()


def made_columns(
    library: str, kinds: dict[str, str], ids: range, source: random.Random
) -> dict[str, tuple[str, list[Any]]]:
    own = LIBRARIES[library]
    identity = {"Spark": "BIGINT", "Polars": "int64"}.get(library, "int64")
    columns: dict[str, tuple[str, list[Any]]] = {"id": (identity, list(ids))}
    for name, kind in kinds.items():
        choices = [*own[kind].pool, None] if own[kind].has_nulls else own[kind].pool
        values = [source.choice(choices) for _ in ids]
        # Without a value, objects have no type.
        if not own[kind].is_kept or "objects" in kind:
            values[0] = own[kind].pool[0]
        columns[name] = (kind, values)
    return columns


def differences(
    seed: int, lake: lakebed.Repository, spark: Any, counts: collections.Counter[str]
) -> list[str]:
    """Return what readers show of a random dataset other than was written."""
    source = random.Random(seed)
    library = source.choice(list(LIBRARIES))
    own = LIBRARIES[library]
    kinds = {f"c{n}": source.choice(list(own)) for n in range(source.randrange(1, 6))}
    name = f"t{seed}"
    found: list[str] = []
    expected: dict[Any, dict[str, Any]] = {}
    steps: dict[str, tuple[range, Callable[[Any], object]]] = {
        "create": (range(3), lambda rows: lake.write(name, rows)),
        "append": (range(3, 5), lambda rows: lake[name].append(rows)),
        "upsert": (range(2, 7), lambda rows: lake[name].upsert(rows, "id")),
    }
    for verb, (ids, write) in steps.items():
        columns = made_columns(library, kinds, ids, source)
        bad = sorted({kind for kind, _ in columns.values() if not own[kind].is_kept})
        try:
            write(frame_of(library, columns, spark))
        except LakebedError as error:
            counts[f"{verb} refused"] += 1
            if not bad:
                found.append(f"{seed} {library} {verb} of {columns} is refused: {error}")
            return found
        counts[f"{verb} of {library}"] += 1
        if bad:
            return [*found, f"{seed} {library} {verb}: {bad} was taken"]
        expected |= rows_by_id(
            [{name: values[n] for name, (_, values) in columns.items()} for n in range(len(ids))]
        )
        for reader, rows in readers(lake[name], spark):
            counts[reader] += 1
            got = rows_by_id(rows)
            if len(rows) != len(expected) or got != expected:
                found.append(f"{seed} {library} {verb} {reader} {kinds}: {got}, not {expected}")
    return found


@pytest.mark.parametrize(
    ("first", "count"),
    [
        (0, 8),
        *(pytest.param(first, 200, marks=pytest.mark.long) for first in (1_000, 2_000, 3_000)),
    ],
)
def test_frames_are_read_back_as_they_were(
    spark: Any, tmp_path: Path, first: int, count: int
) -> None:
    lake = lakebed.open_repository(tmp_path)
    counts: collections.Counter[str] = collections.Counter()
    found: list[str] = []
    for seed in range(first, first + count):
        found += differences(seed, lake, spark, counts)
    _log.info("%d frames: %s", count, dict(sorted(counts.items())))
    assert not found, "\n".join(found)

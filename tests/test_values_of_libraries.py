"""Values of other libraries are kept, converted without loss, or refused by column and remedy."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import math
import random
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakebed
from lakebed import Repository
from lakebed.errors import LakebedError, SchemaMismatchError

ID = uuid.UUID(int=1)
NOON = dt.datetime(2020, 1, 1, 12)
DAY = dt.date(2020, 1, 1)
REFUSED = object()

Point = collections.namedtuple("Point", "a b")


def series(values: list[Any], dtype: Any = object) -> pd.Series:
    return pd.Series(values, dtype=dtype)


def records(kind: Any, value: Any) -> np.ndarray:
    return np.array([(value,)], dtype=[("x", kind)])


def uuids(*values: uuid.UUID | None) -> pa.Array:
    return pa.array(values, pa.uuid())


def runs(*values: object) -> pa.Array:
    ends = pa.array(range(1, len(values) + 1), pa.int32())
    return pa.RunEndEncodedArray.from_arrays(ends, pa.array(values))


# Column x of a frame, and its values afterwards.
PANDAS: dict[str, tuple[pd.Series, Any]] = {
    **{
        f"numpy {dtype}": (series([1], dtype), [1])
        for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
    **{f"numpy {dtype}": (series([1.5, None], dtype), [1.5, None])
       for dtype in ("float16", "float32", "float64", "Float32", "Float64")},
    **{f"nullable {dtype}": (series([1, None], dtype), [1, None])
       for dtype in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")},
    "bool": (series([True], "bool"), [True]),
    "boolean": (series([True, None], "boolean"), [True, None]),
    "string": (series(["a", None], "string"), ["a", None]),
    "string of Arrow": (series(["a", None], "string[pyarrow]"), ["a", None]),
    "category": (series(["a", None], "category"), ["a", None]),
    "category of integers": (series([2, 1], "category"), [2, 1]),
    "category of days": (series([DAY], "category"), [DAY]),
    "category of a mixture": (series([1, "a"], "category"), REFUSED),
    "category of intervals": (pd.Series(pd.cut([1, 2], 2)), REFUSED),
    "interval": (pd.Series(pd.interval_range(0, 2)), REFUSED),
    "period": (pd.Series(pd.period_range("2020", "2021", freq="Y")), REFUSED),
    "sparse": (pd.Series(pd.arrays.SparseArray([1, 0])), REFUSED),
    "complex": (series([1j], "complex128"), REFUSED),
    "longdouble": (series([1.5], np.longdouble), REFUSED),
    "timedelta": (series([dt.timedelta(1)], "timedelta64[ns]"), REFUSED),
    **{f"datetime in {unit}": (series([NOON, None], f"datetime64[{unit}]"), [NOON, None])
       for unit in ("s", "ms", "us", "ns")},
    "nanosecond": (pd.Series([pd.Timestamp(1)]), REFUSED),
    "zone": (pd.Series([NOON]).dt.tz_localize("Europe/Berlin"),
             [NOON.replace(hour=11, tzinfo=dt.UTC)]),
    "objects: mixture": (series([1, "a"]), REFUSED),
    "objects: text and bytes": (series(["a", b"b"]), REFUSED),
    "objects: day and time": (series([DAY, NOON]), REFUSED),
    "objects: time and day": (series([NOON, DAY]), REFUSED),
    "objects: local and instant": (series([NOON, NOON.replace(tzinfo=dt.UTC)]), REFUSED),
    "objects: boolean and integer": (series([True, 2]), REFUSED),
    "objects: in lists, day and time": (series([[DAY, NOON]]), REFUSED),
    "objects: in records, text and bytes": (series([{"a": "x"}, {"a": b"y"}]), REFUSED),
    "objects: large integer": (series([2**70]), REFUSED),
    "objects: of no type": (series([object()]), REFUSED),
    "objects: time of day": (series([dt.time(1)]), REFUSED),
    "objects: integers": (series([1, None]), [1, None]),
    "objects: numbers": (series([1, 1.5]), [1.0, 1.5]),
    "objects: text": (series(["a", None, math.nan, pd.NA]), ["a", None, None, None]),
    "objects: bytes": (series([b"a", None]), [b"a", None]),
    "objects: days": (series([DAY, None]), [DAY, None]),
    "objects: decimals": (series([Decimal("1.5"), None]), [Decimal("1.5"), None]),
    "objects: UUIDs": (series([ID, None]), [str(ID), None]),
    "objects: lists": (series([[1, None], None]), [[1, None], None]),
    "objects: arrays": (series([np.array([1, 2])]), [[1, 2]]),
    "objects: records": (series([{"a": 1, "b": [ID]}, None]), [{"a": 1, "b": [str(ID)]}, None]),
    "objects: named tuples": (series([Point(1, "x")]), [{"a": 1, "b": "x"}]),
    "of Arrow: map": (
        pd.Series(pd.arrays.ArrowExtensionArray(
            pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())))),
        [[("k", 1)]],
    ),
    "of Arrow: decimal": (
        pd.Series(pd.arrays.ArrowExtensionArray(pa.array([Decimal("1.50")]))),
        [Decimal("1.50")],
    ),
    "of Arrow: time of day": (
        pd.Series(pd.arrays.ArrowExtensionArray(pa.array([1], pa.time64("us")))),
        REFUSED,
    ),
}  # fmt: skip
POLARS: dict[str, tuple[pl.Series, Any]] = {
    **{str(dtype): (pl.Series([1, None], dtype=dtype), [1, None])
       for dtype in (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)},
    **{str(dtype): (pl.Series([1.5, None], dtype=dtype), [1.5, None])
       for dtype in (pl.Float32, pl.Float64)},
    "Object": (pl.Series([ID], dtype=pl.Object), REFUSED),
    "Int128": (pl.Series([1], dtype=pl.Int128), REFUSED),
    "Int128 in a list": (pl.Series([[1]], dtype=pl.List(pl.Int128)), REFUSED),
    "Int128 in an array": (pl.Series([[1]], dtype=pl.Array(pl.Int128, 1)), REFUSED),
    "Int128 in a record": (pl.Series([{"a": 1}], dtype=pl.Struct({"a": pl.Int128})), REFUSED),
    "Time": (pl.Series([dt.time(1)]), REFUSED),
    "Duration": (pl.Series([dt.timedelta(1)]), REFUSED),
    "Null": (pl.Series([None]), REFUSED),
    "Boolean": (pl.Series([True, None]), [True, None]),
    "String": (pl.Series(["a", None]), ["a", None]),
    "Binary": (pl.Series([b"\xff"]), [b"\xff"]),
    "Categorical": (pl.Series(["a", None], dtype=pl.Categorical), ["a", None]),
    "Enum": (pl.Series(["a"], dtype=pl.Enum(["a"])), ["a"]),
    "Date": (pl.Series([DAY]), [DAY]),
    "Datetime": (pl.Series([NOON]), [NOON]),
    "Datetime in ns": (pl.Series([NOON], dtype=pl.Datetime("ns")), [NOON]),
    "Decimal": (pl.Series([Decimal("1.5")]), [Decimal("1.5")]),
    "List": (pl.Series([["a", None], None]), [["a", None], None]),
    "Array": (pl.Series([[1, 2]], dtype=pl.Array(pl.Int8, 2)), [[1, 2]]),
    "Struct": (pl.Series([{"a": 1, "b": ["x"]}]), [{"a": 1, "b": ["x"]}]),
}  # fmt: skip
ARROW: dict[str, tuple[pa.Array, Any]] = {
    "uint32": (pa.array([2**32 - 1], pa.uint32()), [2**32 - 1]),
    "half float": (pa.array([np.float16(1.5)]), [1.5]),
    "decimal32": (pa.array([Decimal("1.50")], pa.decimal32(5, 2)), [Decimal("1.50")]),
    "decimal64": (pa.array([Decimal("1.50")], pa.decimal64(12, 2)), [Decimal("1.50")]),
    "decimal256": (pa.array([Decimal("1.50")], pa.decimal256(30, 2)), [Decimal("1.50")]),
    "wide decimal256": (pa.array([Decimal("1.50")], pa.decimal256(40, 2)), REFUSED),
    "time32": (pa.array([1], pa.time32("s")), REFUSED),
    "time64": (pa.array([1], pa.time64("us")), REFUSED),
    "duration": (pa.array([1], pa.duration("us")), REFUSED),
    "interval": (pa.array([(1, 1, 1)], pa.month_day_nano_interval()), REFUSED),
    "date64": (pa.array([DAY], pa.date64()), [DAY]),
    "nanoseconds": (pa.array([1000], pa.timestamp("ns")), [dt.datetime(1970, 1, 1, 0, 0, 0, 1)]),
    "odd nanoseconds": (pa.array([1001], pa.timestamp("ns")), REFUSED),
    "seconds": (pa.array([0], pa.timestamp("s")), [dt.datetime(1970, 1, 1)]),
    "string view": (pa.array(["a"], pa.string_view()), ["a"]),
    "binary view": (pa.array([b"a"], pa.binary_view()), [b"a"]),
    "fixed binary": (pa.array([b"abc"], pa.binary(3)), [b"abc"]),
    "large string": (pa.array(["a"], pa.large_string()), ["a"]),
    "large list": (pa.array([[1]], pa.large_list(pa.int8())), [[1]]),
    "list view": (pa.array([["a"], None], pa.list_view(pa.string_view())), [["a"], None]),
    "large list view": (pa.array([[1]], pa.large_list_view(pa.int64())), [[1]]),
    "fixed list": (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), [[1, 2], None]),
    "map of large texts": (
        pa.array([[("a", "b")]], pa.map_(pa.large_string(), pa.large_string())),
        [[("a", "b")]],
    ),
    "runs": (runs("a", None), ["a", None]),
    "dictionary": (pa.array(["a", None]).dictionary_encode(), ["a", None]),
    "UUID": (uuids(ID, None, uuid.UUID(int=2**128 - 1)),
             [str(ID), None, "ffffffff-ffff-ffff-ffff-ffffffffffff"]),
    "sliced UUIDs": (uuids(ID, None, ID).slice(1), [None, str(ID)]),
    "UUIDs in lists": (
        pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), uuids(ID)),
        [[str(ID)]],
    ),
    "JSON": (pa.array(['{"a":1}'], pa.json_()), ['{"a":1}']),
    "bool8": (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 5, None], pa.int8())),
              [False, True, None]),
    "opaque": (pa.ExtensionArray.from_storage(pa.opaque(pa.string(), "t", "v"), pa.array(["x"])),
               REFUSED),
    "tensor": (
        pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.int8(), [2]), pa.array([[1, 2]], pa.list_(pa.int8(), 2))),
        REFUSED,
    ),
    "union": (pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]), REFUSED),
}  # fmt: skip
NUMPY: dict[str, tuple[np.ndarray, Any]] = {
    "int16": (records("i2", 1), [1]),
    "text": (records("U3", "abc"), ["abc"]),
    "bytes": (records("S3", b"abc"), [b"abc"]),
    "day": (records("M8[D]", "2020-01-01"), [DAY]),
    "second": (records("M8[s]", "2020-01-01T12"), [NOON]),
    "nanosecond": (records("M8[ns]", "2020-01-01T12"), [NOON]),
    "object": (records("O", "x"), ["x"]),
    "hour": (records("M8[h]", "2020-01-01"), REFUSED),
    "duration": (records("m8[s]", 1), REFUSED),
    "part of several values": (records(("i4", (2,)), (1, 2)), REFUSED),
    "part of records": (records([("q", "i4")], (1,)), REFUSED),
    "complex": (records("c16", 1j), REFUSED),
}


@dataclasses.dataclass
class Inner:
    a: int


ROWS: dict[str, tuple[Any, Any]] = {
    "int8 of NumPy": (np.int8(1), 1),
    "float16 of NumPy": (np.float16(1.5), 1.5),
    "boolean of NumPy": (np.bool_(True), True),
    "text of NumPy": (np.str_("a"), "a"),
    "day of NumPy": (np.datetime64("2020-01-01"), DAY),
    "hour of NumPy": (np.datetime64("2020-01-01T12"), NOON),
    "nanoseconds of NumPy": (np.datetime64("2020-01-01T12", "ns"), NOON),
    "odd nanoseconds of NumPy": (np.datetime64(1, "ns"), REFUSED),
    "far year of NumPy": (np.datetime64("20000-01-01"), REFUSED),
    "duration of NumPy": (np.timedelta64(1, "s"), REFUSED),
    "days of NumPy": ([np.datetime64("2020-01-01")], [DAY]),
    "record of NumPy": (records("i2", 1)[0], {"x": 1}),
    "array of NumPy": (np.array([1, 2]), [1, 2]),
    "matrix of NumPy": (np.array([[1, 2]]), REFUSED),
    "decimal": (Decimal("1.50"), Decimal("1.50")),
    "NaN as a decimal": (Decimal("NaN"), REFUSED),
    "decimal of 39 digits": (Decimal(10**38), REFUSED),
    "UUID": (ID, str(ID)),
    "UUIDs": ([ID, None], [str(ID), None]),
    "UUID in a record": ({"u": ID}, {"u": str(ID)}),
    "named tuple": (Point(1, "x"), {"a": 1, "b": "x"}),
    "named tuples": ([Point(1, Inner(2))], [{"a": 1, "b": {"a": 2}}]),
    "dataclass": (Inner(1), {"a": 1}),
    "NA of pandas": (pd.NA, REFUSED),
    "NaT of pandas": (pd.NaT, REFUSED),
    "interval of pandas": (pd.Interval(0, 1), REFUSED),
    "scalar of Arrow": (pa.scalar(1), 1),
    "timedelta": (dt.timedelta(1), REFUSED),
    "time of day": (dt.time(1), REFUSED),
    "complex": (1j, REFUSED),
    "object": (object(), REFUSED),
}
GIVEN: dict[str, tuple[Callable[[], Any], Any]] = {}
for _name, (_column, _expected) in PANDAS.items():
    GIVEN[f"pandas {_name}"] = (lambda column=_column: pd.DataFrame({"x": column}), _expected)
for _name, (_column, _expected) in POLARS.items():
    GIVEN[f"Polars {_name}"] = (lambda column=_column: pl.DataFrame({"x": column}), _expected)
    GIVEN[f"lazy Polars {_name}"] = (lambda column=_column: pl.LazyFrame({"x": column}), _expected)
for _name, (_column, _expected) in ARROW.items():
    GIVEN[f"Arrow {_name}"] = (lambda column=_column: pa.table({"x": column}), _expected)
    GIVEN[f"reader {_name}"] = (
        lambda column=_column: pa.table({"x": column}).to_reader(),
        _expected,
    )
for _name, (_column, _expected) in NUMPY.items():
    GIVEN[f"NumPy {_name}"] = (lambda column=_column: column, _expected)
for _name, (_value, _expected) in ROWS.items():
    GIVEN[f"rows {_name}"] = (
        lambda value=_value: [{"x": value}],
        REFUSED if _expected is REFUSED else [_expected],
    )


@pytest.fixture
def lake() -> Repository:
    return lakebed.open_repository(f"memory://{uuid.uuid4().hex}")


@pytest.mark.parametrize("name", GIVEN)
def test_every_type_is_kept_or_refused_and_an_append_agrees_with_a_new_dataset(
    lake: Repository, name: str
) -> None:
    make, expected = GIVEN[name]
    if expected is REFUSED:
        with pytest.raises(LakebedError, match=r"x") as caught:
            lake.write("t", make())
        assert caught.value.hint
        assert not lake.exists("t")
        return

    lake.write("t", make())
    appended = lake.create("u", lake["t"].descriptor)
    appended.append(make())

    rows = lake["t"].arrow()
    assert rows["x"].to_pylist() == expected
    assert appended.arrow().equals(rows)
    if not name.startswith("rows"):
        assert lake.create("v", make()).schema == lake["t"].schema


@pytest.mark.parametrize("name", [name for name, given in GIVEN.items() if given[1] is not REFUSED])
def test_upsert_and_sql_take_what_an_append_takes(lake: Repository, name: str) -> None:
    make, expected = GIVEN[name]
    lake.write("t", make())
    # A null key matches no row.
    if not any(value is None or isinstance(value, list | dict) for value in expected):
        lake["t"].upsert(make(), "x")
        assert lake["t"].arrow()["x"].to_pylist() == expected

    lake.sql("CREATE TABLE u AS SELECT * FROM s", tables={"s": make()}, write=True)

    assert lake["u"].arrow()["x"].to_pylist() == expected


def test_columns_of_one_value_are_refused_by_name(lake: Repository) -> None:
    for column in (pl.Series("x", [1]), pd.Series([1], name="x"), pa.array([1])):
        with pytest.raises(LakebedError, match="gives no rows"):
            lake.write("t", column)


def test_records_of_arrow_are_rows(lake: Repository) -> None:
    lake.write("t", pa.array([{"x": 0}, {"x": 1}]).slice(1))
    lake["t"].append(pa.chunked_array([pa.array([{"x": 2}])]))

    assert sorted(lake["t"].arrow()["x"].to_pylist()) == [1, 2]
    with pytest.raises(LakebedError, match="cannot be null"):
        lake["t"].append(pa.array([{"x": 3}, None]))


def test_decimals_of_later_rows_fit_the_type_of_the_first(lake: Repository) -> None:
    lake.write("rows", [{"d": Decimal("1.5")}])
    lake["rows"].append([{"d": Decimal("-12345678.123456")}])
    lake.write("frame", pd.DataFrame({"d": [Decimal("1.5")]}))
    lake["frame"].append(pd.DataFrame({"d": [Decimal("12345678.123456"), None]}))
    lake.write("large", [{"d": Decimal(10**30) + Decimal("0.5")}])
    lake.write("small", [{"d": Decimal("1e-30")}])

    assert str(lake["rows"].schema.get("d").type) == "decimal(38, 18)"
    assert lake["frame"].schema.get("d").type == lake["rows"].schema.get("d").type
    assert str(lake["large"].schema.get("d").type) == "decimal(38, 7)"
    assert str(lake["small"].schema.get("d").type) == "decimal(38, 30)"


def test_column_of_pandas_without_values_is_null_in_a_field_of_any_type(lake: Repository) -> None:
    for number, kind in enumerate([pa.string(), pa.int64(), pa.date32(), pa.list_(pa.int64())]):
        dataset = lake.create(f"t{number}", pa.schema([("x", kind)]))
        for values in ([math.nan, math.nan], [None, None]):
            dataset.append(pd.DataFrame({"x": values}))
        assert dataset.arrow()["x"].to_pylist() == [None] * 4


def test_floats_of_pandas_are_integers_only_where_each_is_exact(lake: Repository) -> None:
    dataset = lake.create("t", pa.schema([("x", pa.int64())]))
    dataset.append(pd.DataFrame({"x": [1.0, math.nan, 2.0**53]}))

    for value in (1.5, 2.0**60, math.inf):
        with pytest.raises(SchemaMismatchError, match="'x'"):
            dataset.append(pd.DataFrame({"x": [value, math.nan]}))

    assert sorted(dataset.arrow()["x"].drop_null().to_pylist()) == [1, 2**53]


# Types of fields, and a value of each at random.
def _value(kind: pa.DataType, source: random.Random) -> Any:
    if source.random() < 0.2:
        return None
    if pa.types.is_boolean(kind):
        return source.random() < 0.5
    if pa.types.is_uint64(kind):
        return source.choice([0, 5, 2**53])
    if pa.types.is_integer(kind):
        return source.choice([-1, 0, 2**31 - 1])
    if pa.types.is_floating(kind):
        return source.choice([0.0, -1.5, math.inf, 2.0**20])
    if pa.types.is_string(kind):
        return source.choice(["", "a", "größe", "1", "nan"])
    if pa.types.is_binary(kind):
        return source.choice([b"", b"\xff\x00"])
    if pa.types.is_date(kind):
        return source.choice([DAY, dt.date(1, 1, 1), dt.date(9999, 12, 31)])
    if pa.types.is_timestamp(kind):
        zone = None if kind.tz is None else dt.UTC
        moments = [NOON, dt.datetime(1582, 10, 10, 1, 2, 3, 4), dt.datetime(2262, 4, 11)]
        return source.choice(moments).replace(tzinfo=zone)
    if pa.types.is_decimal(kind):
        return source.choice([Decimal("0.000"), Decimal("-99999.125")])
    size = source.randrange(3)
    if pa.types.is_map(kind):
        return [(key, _value(kind.item_type, source)) for key in ("k", "", "l")[:size]]
    if pa.types.is_list(kind):
        return [_value(kind.value_type, source) for _ in range(size)]
    return {field.name: _value(field.type, source) for field in kind}


LEAVES = [
    pa.bool_(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.string(),
    pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.decimal128(20, 3),
]  # fmt: skip


def _kind(source: random.Random, depth: int = 0) -> pa.DataType:
    shape = source.random() if depth < 3 else 0
    if shape < 0.6:
        return source.choice(LEAVES)
    inner = _kind(source, depth + 1)
    if shape < 0.75:
        return pa.list_(inner)
    if shape < 0.85:
        return pa.map_(pa.string(), inner)
    return pa.struct([("a", inner), ("b", source.choice(LEAVES))])


# Forms in which a dataset gives its own rows.
OUTPUTS: dict[str, Callable[[lakebed.Dataset], Any]] = {
    "pandas": lambda t: t.pandas(),
    "pandas, nullable": lambda t: t.pandas(dtype_backend="numpy_nullable"),
    "pandas, of Arrow": lambda t: t.pandas(dtype_backend="pyarrow"),
    "Polars": lambda t: t.polars(),
    "Arrow": lambda t: t.arrow(),
    "reader": lambda t: t.record_batches(),
    "batches": lambda t: list(t.record_batches()),
    "rows": lambda t: t.arrow().to_pylist(maps_as_pydicts="strict"),
    "DuckDB": lambda t: duckdb.from_arrow(t.arrow()),
    "view": lambda t: t.snapshot(),
}


# Decimals that exceed the type of their column, which Arrow does not check and engines may pass on.
EXCEEDING = pa.table(
    {
        "id": [1, 2],
        "v": pa.Array.from_buffers(
            pa.decimal128(5, 2), 2, pa.array([1, 123456], pa.decimal128(38, 2)).buffers()
        ),
    }
)
ENTRIES: dict[str, Callable[[Repository], object]] = {
    "create": lambda lake: lake.write("new", EXCEEDING),
    "append": lambda lake: lake["t"].append(EXCEEDING),
    "append of batches": lambda lake: lake["t"].append(EXCEEDING.to_reader()),
    "write that widens": lambda lake: lake.write("t", EXCEEDING, types="widen"),
    "overwrite": lambda lake: lake["t"].overwrite(EXCEEDING),
    "rerun": lambda lake: lake["t"].rerun(EXCEEDING, run="first"),
    "upsert": lambda lake: lake["t"].upsert(EXCEEDING, on=["id"]),
    "merge": lambda lake: lake["t"].merge(EXCEEDING, on=["id"]),
    "merge on the decimal": lambda lake: lake["t"].merge(EXCEEDING, on=["v"]),
    "INSERT": lambda lake: lake.sql(
        "INSERT INTO t SELECT * FROM s", tables={"s": EXCEEDING}, write=True
    ),
    "MERGE": lambda lake: lake.sql(
        "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED THEN INSERT *",
        tables={"s": EXCEEDING},
        write=True,
    ),
    "CREATE": lambda lake: lake.sql(
        "CREATE TABLE new AS SELECT * FROM s", tables={"s": EXCEEDING}, write=True
    ),
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("partition_by", [None, "id"])
def test_decimals_that_exceed_their_precision_are_refused_by_column_and_value(
    lake: Repository, entry: str, partition_by: str | None
) -> None:
    fits = pa.table({"id": [1, 3], "v": pa.array([1, 2], pa.decimal128(5, 2))})
    lake.write("t", fits, partition_by=partition_by, run="first")

    with pytest.raises(SchemaMismatchError, match=r"Value 123456\.00 does not fit column 'v'"):
        ENTRIES[entry](lake)

    assert lake.list() == ["t"]
    assert lake["t"].arrow().sort_by("id").equals(fits)


def _differences(seed: int) -> list[str]:
    """Return the outputs of a random dataset that it does not take back, or takes as other rows."""
    source = random.Random(seed)
    lake = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    schema = pa.schema([(f"c{n}", _kind(source)) for n in range(source.randrange(1, 5))])
    rows = [
        {field.name: _value(field.type, source) for field in schema}
        for _ in range(source.randrange(4))
    ]
    lake.write("t", pa.Table.from_pylist(rows, schema))
    want = lake["t"].arrow()
    found = []
    for number, (name, give) in enumerate(OUTPUTS.items()):
        copies = {"append": lake.create(f"append{number}", lake["t"].descriptor)}
        copies["append"].append(give(lake["t"]))
        if rows and name in ("Arrow", "Polars", "DuckDB", "reader"):
            lake.write(f"new{number}", give(lake["t"]))
            copies["new"] = lake[f"new{number}"]
        for verb, copy in copies.items():
            readers = {
                "Arrow": copy.arrow().cast(want.schema),
                "Polars": copy.polars().to_arrow(),
                "DuckDB": duckdb.from_arrow(copy.arrow()).to_arrow_table(),
                "pandas": pa.Table.from_pandas(
                    copy.pandas(dtype_backend="pyarrow"), preserve_index=False
                ),
            }
            for reader, got in readers.items():
                if _plain(got) != _plain(want):
                    found.append(f"{seed} {name} {verb} {reader}: {_plain(got)} {_plain(want)}")
    return found


def _plain(rows: pa.Table) -> list[dict[str, Any]]:
    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(each) for each in value]
        if isinstance(value, tuple):
            return tuple(plain(each) for each in value)
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        return value.astimezone(dt.UTC) if getattr(value, "tzinfo", None) else value

    return [plain(row) for row in rows.to_pylist()]


@pytest.mark.parametrize("seed", range(8))
def test_own_output_is_taken_back_in_every_form(seed: int) -> None:
    assert _differences(seed) == []


@pytest.mark.long
def test_own_output_of_many_random_datasets_is_taken_back() -> None:
    assert [one for seed in range(100, 300) for one in _differences(seed)] == []

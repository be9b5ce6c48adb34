"""Data is made to fit a schema only where no value changes, else the error says where it does not."""

import datetime as dt
import decimal
import sys
import types

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.arrow.conform import Conformer
from lakebed.arrow.entities import opened
from lakebed.errors import PartitionSpecError, SchemaMismatchError
from lakebed.model.descriptor import DatasetDescriptor

UTC = pa.timestamp("us", tz="UTC")
DECIMALS = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}


def conform(column: pa.Array, declared: pa.DataType, *, nullable: bool = True) -> pa.Array:
    schema = pa.schema([pa.field("a", declared, nullable=nullable)])
    batch = pa.RecordBatch.from_arrays([column], names=["a"])
    return Conformer(batch.schema, DatasetDescriptor(schema=schema)).conform(batch).column(0)


@pytest.mark.parametrize(
    ("given", "declared"),
    [
        (pa.array([1, -128], pa.int8()), pa.int32()),
        (pa.array([1, 65535], pa.uint16()), pa.int32()),
        (pa.array([2**32 - 1], pa.uint32()), pa.int64()),
        (pa.array([-(2**31)], pa.int32()), pa.int64()),
        (pa.array([2**31 - 1], pa.int32()), pa.float64()),
        (pa.array([5], pa.int64()), pa.uint64()),
        (pa.array([1.5], pa.float16()), pa.float32()),
        (pa.array([1.5], pa.float32()), pa.float64()),
        (pa.array(["x"], pa.large_string()), pa.string()),
        (pa.array(["x", None]).dictionary_encode(), pa.string()),
        (pa.array([b"x"], pa.binary(1)), pa.binary()),
        (pa.array([86_400_000], pa.date64()), pa.date32()),
        (pa.array([1000], pa.timestamp("ns", tz="UTC")), UTC),
        (pa.array([1], pa.timestamp("s", tz="Europe/Berlin")), UTC),
        (pa.array([1], pa.timestamp("ms")), pa.timestamp("us")),
        (pa.array([decimal.Decimal("1.5")], pa.decimal128(3, 1)), pa.decimal128(5, 2)),
        (pa.array([decimal.Decimal("1.5")], pa.decimal256(3, 1)), pa.decimal128(5, 2)),
        (pa.array([[1, None]], pa.list_(pa.int32())), pa.list_(pa.int64())),
        (pa.array([[1]], pa.large_list(pa.int8())), pa.list_(pa.int32())),
        (
            pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
            pa.map_(pa.string(), pa.int64()),
        ),
        (pa.nulls(2), pa.struct([("x", pa.int64())])),
    ],
)
def test_type_that_fits_is_widened(given: pa.Array, declared: pa.DataType) -> None:
    found = conform(given, declared)

    assert found.cast(declared).equals(given.cast(declared))


@pytest.mark.parametrize(
    "kind",
    [pa.decimal32(5, 2), pa.decimal64(5, 2), pa.decimal128(5, 2), pa.decimal256(5, 2)],
    ids=str,
)
@pytest.mark.parametrize("value", ["1000.00", "-1000.00"])
def test_decimal_of_more_digits_than_its_own_type_has_is_refused(
    kind: pa.Decimal128Type, value: str
) -> None:
    fits = relabelled(["999.99", None, "-999.99"], kind)
    exceeds = relabelled(["1.00", value, None], kind)

    assert conform(fits, pa.decimal128(5, 2)).cast(kind).equals(fits)
    assert conform(exceeds, pa.decimal128(6, 2)).to_pylist()[1] == decimal.Decimal(value)
    with pytest.raises(SchemaMismatchError, match=f"Value {value} does not fit column 'a'") as info:
        conform(exceeds, pa.decimal128(5, 2))
    assert str(info.value.hint).startswith("At most 3 digits")


def relabelled(values: list[str | None], kind: pa.Decimal128Type) -> pa.Array:
    """Return decimals of a type that Arrow did not check, as some engines pass them on."""
    exact = [None if text is None else decimal.Decimal(text) for text in values]
    wide = pa.array(exact, DECIMALS[kind.bit_width](9, 2))
    return pa.Array.from_buffers(kind, len(wide), wide.buffers())


@pytest.mark.parametrize(
    ("given", "declared"),
    [
        (pa.array([1], pa.int64()), pa.int32()),
        (pa.array([1], pa.uint64()), pa.int64()),
        (pa.array([1], pa.int64()), pa.decimal128(20, 0)),
        (pa.array([1.0], pa.float64()), pa.int64()),
        (pa.array([1.0], pa.float64()), pa.float32()),
        (pa.array(["1"]), pa.int64()),
        (pa.array([1]), pa.string()),
        (pa.array(["2013-01-01"]), pa.date32()),
        (pa.array(["2013-01-01"]), UTC),
        (pa.array([1], pa.date32()), UTC),
        (pa.array([1], UTC), pa.date32()),
        (pa.array([1], pa.timestamp("us")), UTC),
        (pa.array([1], UTC), pa.timestamp("us")),
        (pa.array([True]), pa.int32()),
        (pa.array([1], pa.int32()), pa.bool_()),
        (pa.array([b"x"]), pa.string()),
        (pa.array(["x"]), pa.binary()),
        (pa.array([1], pa.decimal128(5, 3)), pa.decimal128(5, 2)),
        (pa.array([1], pa.decimal128(6, 2)), pa.decimal128(5, 2)),
        (pa.array([[1.5]]), pa.list_(pa.int64())),
        (pa.array([1]), pa.list_(pa.int64())),
    ],
)
def test_type_in_which_a_value_could_change_is_refused(
    given: pa.Array, declared: pa.DataType
) -> None:
    with pytest.raises(SchemaMismatchError, match=r"Column 'a.*is of type .* but the dataset's is"):
        conform(given, declared)


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.int32()])
@pytest.mark.parametrize(("declared", "digits"), [(pa.float64(), 53), (pa.float32(), 24)])
def test_integers_are_taken_for_floats_where_each_stays_itself(
    kind: pa.DataType, declared: pa.DataType, digits: int
) -> None:
    most = min(2**digits, 2**31 - 1) if kind == pa.int32() else 2**digits
    most = min(most, 2**24) if declared == pa.float32() else most

    taken = conform(pa.array([1, None, most], kind), declared)

    assert taken.to_pylist() == [1.0, None, float(most)]
    if kind == pa.int32() and declared == pa.float64():
        return
    with pytest.raises(SchemaMismatchError, match=f"Column 'a.*{2**digits + 1}"):
        conform(pa.array([2**digits + 1], kind), declared)


@pytest.mark.parametrize(
    ("given", "declared"),
    [
        (pa.array([1001], pa.timestamp("ns", tz="UTC")), UTC),
        (pa.array([2**62], pa.timestamp("s", tz="UTC")), UTC),
        (pa.array([86_400_001], pa.date64()), pa.date32()),
        (pa.array([-1], pa.int64()), pa.uint64()),
        (pa.array([[1001]], pa.list_(pa.timestamp("ns"))), pa.list_(pa.timestamp("us"))),
    ],
)
def test_value_that_would_change_is_refused(given: pa.Array, declared: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError, match=r"does not fit.*nothing is converted"):
        conform(given, declared)


INT_REQUIRED = pa.field("x", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("values", "declared", "nullable", "place"),
    [
        ([1, None], pa.int64(), False, "'a'"),
        ([[1], [2, None]], pa.list_(INT_REQUIRED), True, r"'a\[\]'"),
        ([{"x": 1}, {"x": None}], pa.struct([INT_REQUIRED]), True, r"'a\.x'"),
        ([[("k", None)]], pa.map_(pa.string(), INT_REQUIRED), True, r"'a\{\}'"),
        ([[{"x": None}]], pa.list_(pa.struct([INT_REQUIRED])), True, r"'a\[\]\.x'"),
    ],
)
def test_null_where_none_may_be_is_refused_at_any_depth(
    values, declared: pa.DataType, nullable: bool, place: str
) -> None:
    given = pa.array(values, optional(declared))

    with pytest.raises(SchemaMismatchError, match=f"{place}.*(has nulls|is not nullable)"):
        conform(given, declared, nullable=nullable)


def optional(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(optional(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, optional(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, optional(f.type)) for f in kind])
    return kind


@pytest.mark.parametrize(
    ("values", "declared"),
    [
        ([[1], None, []], pa.list_(INT_REQUIRED)),
        ([{"x": 1}, None], pa.struct([INT_REQUIRED])),
        ([[("k", 1)], None], pa.map_(pa.string(), INT_REQUIRED)),
    ],
)
def test_null_parent_is_no_null_child(values, declared: pa.DataType) -> None:
    given = pa.array(values, optional(declared))

    assert conform(given, declared).to_pylist() == values


REQUIRED = pa.struct([pa.field("x", pa.float64(), nullable=False)])
DECLARED = st.recursive(
    st.sampled_from(
        [pa.int64(), pa.string(), pa.bool_(), pa.date32(), UTC, pa.decimal128(5, 2), REQUIRED]
    ),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        inner.map(lambda kind: pa.struct([("p", kind), ("q", pa.int64())])),
    ),
    max_leaves=3,
)


@st.composite
def all_null(draw: st.DrawFn, declared: pa.DataType) -> tuple[pa.DataType, object]:
    """Return a type of data with a null type at some depth, and a value of it."""
    if draw(st.booleans()) or not pa.types.is_nested(declared):
        return pa.null(), None
    if pa.types.is_struct(declared):
        kind, value = draw(all_null(declared.field(0).type))
        return pa.struct([(declared.field(0).name, kind)]), {declared.field(0).name: value}
    if pa.types.is_map(declared):
        kind, value = draw(all_null(declared.item_type))
        return pa.map_(pa.string(), kind), draw(st.sampled_from([None, [], [("k", value)]]))
    kind, value = draw(all_null(declared.value_type))
    made = draw(st.sampled_from([pa.list_, pa.large_list, lambda kind: pa.list_(kind, 1)]))(kind)
    sizes = [None, [value]] if pa.types.is_fixed_size_list(made) else [None, [], [value]]
    return made, draw(st.sampled_from(sizes))


@given(data=st.data())
def test_null_type_at_any_depth_is_null_of_the_declared_type(data: st.DataObject) -> None:
    declared = data.draw(DECLARED)
    kind, value = data.draw(all_null(declared))
    if declared == REQUIRED and kind != pa.null():
        kind, value = pa.null(), None  # a null in a required part is refused
    given_column = pa.array([value, None], kind)

    try:
        found = conform(given_column, declared)
    except SchemaMismatchError as error:
        assert "not nullable" in error.message and "x" in str(declared)  # noqa: PT017, PT018
        return

    found.validate(full=True)
    assert without_absent(found.to_pylist()) == without_absent(given_column.to_pylist())


def without_absent(value: object) -> object:
    """Return a value without the null parts of records."""
    match value:
        case dict():
            parts = {name: without_absent(part) for name, part in value.items()}
            return {name: part for name, part in parts.items() if part is not None}
        case list() | tuple():
            return [without_absent(part) for part in value]
    return value


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("wrap", [lambda kind: kind, pa.list_])
def test_null_value_of_a_map_of_records_with_required_parts(wrap, start: int) -> None:
    kind = wrap(pa.map_(pa.string(), REQUIRED))
    maps = [[("a", {"x": 1.5}), ("b", None)], None, [], [("c", None), ("d", {"x": 2.5})]]
    values = maps if wrap is not pa.list_ else [maps, None, [], [None, maps[0]]]
    column = pa.array(values, kind).slice(start)

    assert conform(column, kind).to_pylist() == values[start:]


def test_hidden_pairs_of_null_maps_are_dropped() -> None:
    kind = pa.map_(pa.string(), REQUIRED)
    whole = pa.array([[("a", {"x": 1.5})], [("b", None)], [("c", {"x": 2.5})]], kind)
    buffers = pa.array([True, None, True]).buffers()
    offsets = whole.buffers()[1]
    column = pa.Array.from_buffers(
        kind, 3, [buffers[0], offsets], children=[pair_array(whole)], null_count=1
    )

    found = conform(column, kind)

    assert found.to_pylist() == [[("a", {"x": 1.5})], None, [("c", {"x": 2.5})]]


def pair_array(maps: pa.MapArray) -> pa.Array:
    names = [maps.type.key_field, maps.type.item_field]
    return pa.StructArray.from_arrays([maps.keys, maps.items], fields=names)


def test_rows_outside_a_slice_are_not_looked_at() -> None:
    given = pa.array([[("k", None)], [("k", 1)], [("k", None)]], pa.map_(pa.string(), pa.int64()))

    found = conform(given[1:2], pa.map_(pa.string(), INT_REQUIRED))

    assert found.to_pylist() == [[("k", 1)]]


def test_struct_fields_come_in_the_order_of_the_schema() -> None:
    given = pa.array([{"y": 1}, {"y": 2}], pa.struct([("y", pa.int64())]))

    found = conform(given, pa.struct([("x", pa.string()), ("y", pa.int64())]))

    assert found.to_pylist() == [{"x": None, "y": 1}, {"x": None, "y": 2}]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pa.array([{"z": 1}]), r"Unknown field 'a\.z' in the data. Fields are: x"),
        (pa.array([{"xx": 1}]), r"Unknown field 'a\.xx' in the data. Did you mean 'x'|Fields are"),
        (pa.array([{"x": "1"}]), r"Column 'a\.x' is of type string"),
        (pa.array([{}], pa.struct([])), r"record has no fields|lacks field 'a\.x'"),
    ],
)
def test_struct_that_does_not_fit_names_its_field(given: pa.Array, message: str) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        conform(given, pa.struct([INT_REQUIRED]))


DESCRIPTOR = DatasetDescriptor(
    schema={
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "k", "type": ["null", "string"]},
            {"name": "n", "type": "int"},
            {"name": "d", "type": {"type": "int", "logicalType": "date"}, "default": 1},
            {"name": "o", "type": ["null", "long"]},
        ],
    },
    partition_by="hash(k, 3)",
)


def conform_table(columns: dict[str, list], types: list | None = None) -> list[dict]:
    batch = pa.RecordBatch.from_pydict(columns)
    return Conformer(batch.schema, DESCRIPTOR).conform(batch).to_pylist()


def test_columns_come_in_order_and_missing_ones_are_default_or_null() -> None:
    rows = conform_table({"n": pa.array([5], pa.int32()), "k": ["a"]})

    assert rows == [{"k": "a", "n": 5, "d": dt.date(1970, 1, 2), "o": None}]
    assert list(rows[0]) == ["k", "n", "d", "o"]


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"k": ["a"], "n": [1], "kk": [1]}, SchemaMismatchError, "Unknown column 'kk'.*'k'"),
        ({"k": ["a"], "n": [1], "zzz": [1]}, SchemaMismatchError, "Fields are: k, n, d, o"),
        ({"n": pa.array([1], pa.int32())}, PartitionSpecError, "lacks 'k', the source"),
        ({"k": ["a"]}, SchemaMismatchError, "lacks column 'n', which is not nullable"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns, error, message: str) -> None:
    with pytest.raises(error, match=message):
        conform_table(columns)


def test_column_that_stands_twice_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["k", "k"])

    with pytest.raises(SchemaMismatchError, match="'k' appears twice"):
        Conformer(batch.schema, DESCRIPTOR)


def test_rows_are_taken_while_another_thread_imports_pyarrow_dataset(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", types.ModuleType("pyarrow.dataset"))
    rows = pa.table({"n": [1]})

    assert opened(rows) is rows

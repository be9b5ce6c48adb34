"""Tables that nobody expects: what fits is there as it was given, and all else is refused by name."""

import decimal
import uuid
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.arrow.entities import to_plain
from lakebed.errors import InvalidInputError, SchemaMismatchError


def required(kind: pa.DataType, name: str = "a") -> pa.Field:
    return pa.field(name, kind, nullable=False)


SCHEMA = pa.schema(
    [
        required(pa.int64(), "id"),
        ("name", pa.string()),
        ("n", pa.int32()),
        ("f", pa.float32()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("d", pa.decimal128(6, 2)),
        ("raw", pa.binary()),
        ("s", pa.struct([required(pa.int64()), ("b", pa.string())])),
        ("deep", pa.struct([required(pa.struct([required(pa.string(), "x")]))])),
        ("l", pa.list_(required(pa.int64(), "element"))),
        ("ls", pa.list_(pa.field("element", pa.struct([required(pa.int64())])))),
        ("m", pa.map_(pa.string(), required(pa.int64(), "value"))),
    ]
)
IDS = pa.array([1, 2])
WITH_NULL = pa.array([1, None])
SECOND = pa.array([False, True])


class OddType(pa.ExtensionType):
    """A type of somebody's own, which holds whole numbers."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "test.odd")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: object, serialized: bytes) -> "OddType":
        return cls()


def run_ends(*values: object, kind: pa.DataType | None = None) -> pa.Array:
    ends = pa.array(range(1, len(values) + 1), pa.int32())
    return pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, kind))


def struct_of(*arrays: pa.Array, names: str, mask: pa.Array | None = None) -> pa.Array:
    return pa.StructArray.from_arrays(arrays, names=list(names), mask=mask)


INSTANT = pa.timestamp("us", tz="Europe/Berlin")
# Column, its values, and what they are afterwards.
TAKEN = {
    "dictionary": ("name", pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
    "null in a dictionary": (
        "name",
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])),
        ["a", None],
    ),
    "large string": ("name", pa.array(["a", None], pa.large_string()), ["a", None]),
    "string view": ("name", pa.array(["a", None], pa.string_view()), ["a", None]),
    "binary view": ("raw", pa.array([b"a", None], pa.binary_view()), [b"a", None]),
    "fixed binary": ("raw", pa.array([b"a", b"b"], pa.binary(1)), [b"a", b"b"]),
    "runs": ("n", run_ends(7, None, kind=pa.int32()), [7, None]),
    "float16": ("f", pa.array(np.array([1.5, 2], np.float16)), [1.5, 2.0]),
    "another zone": ("ts", pa.array([0, None], INSTANT), [0, None]),
    "nanoseconds that are whole": ("ts", pa.array([3000, 0], pa.timestamp("ns", "UTC")), [3, 0]),
    "decimal of 256 bits": ("d", pa.array([decimal.Decimal("1.5")] * 2, pa.decimal256(6, 2)), None),
    "decimal of 32 bits": ("d", pa.array([decimal.Decimal("1.5")] * 2, pa.decimal32(4, 1)), None),
    "date in milliseconds": ("day", pa.array([0, None], pa.date64()), None),
    "nothing but null": ("s", pa.nulls(2), None),
    "null record, parts null": (
        "s",
        struct_of(WITH_NULL, names="a", mask=SECOND),
        [{"a": 1, "b": None}, None],
    ),
    "null record of the very type": ("s", pa.nulls(2, SCHEMA.field("s").type), None),
    "null record, parts in another order": (
        "s",
        struct_of(pa.array(["x", None]), WITH_NULL, names="ba", mask=SECOND),
        None,
    ),
    "null record, dictionary below": (
        "deep",
        struct_of(struct_of(pa.array(["x", None]).dictionary_encode(), names="x"), names="a", mask=SECOND),
        [{"a": {"x": "x"}}, None],
    ),
    "null record in a record": (
        "deep",
        struct_of(struct_of(pa.array(["x", None]), names="x"), names="a", mask=SECOND),
        None,
    ),
    "null record in a list": (
        "ls",
        pa.ListArray.from_arrays(
            pa.array([0, 2, 2], pa.int32()), struct_of(WITH_NULL, names="a", mask=SECOND)
        ),
        [[{"a": 1}, None], []],
    ),
    "null list, elements null": (
        "l",
        pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), WITH_NULL, mask=SECOND),
        [[1], None],
    ),
    "null large list, elements null": (
        "l",
        pa.LargeListArray.from_arrays(pa.array([0, 1, 2], pa.int64()), WITH_NULL, mask=SECOND),
        [[1], None],
    ),
    "null list of fixed size": (
        "l",
        pa.FixedSizeListArray.from_arrays(pa.array([1, 2, None, None]), 2, mask=SECOND),
        [[1, 2], None],
    ),
    "null map, values null": (
        "m",
        pa.MapArray.from_arrays(
            pa.array([0, 1, 2], pa.int32()), pa.array(["k", "l"]), WITH_NULL, mask=SECOND
        ),
        [[("k", 1)], None],
    ),
    "list view": ("l", pa.array([[1], None], pa.list_view(pa.int64())), [[1], None]),
    "map of large keys": (
        "m",
        pa.array([[("k", 1)], None], pa.map_(pa.large_string(), pa.int64())),
        [[("k", 1)], None],
    ),
}  # fmt: skip


def append(dataset: lakebed.Dataset, data: object) -> None:
    dataset.append(data)


def overwrite(dataset: lakebed.Dataset, data: object) -> None:
    dataset.overwrite(data)


def merge(dataset: lakebed.Dataset, data: object) -> None:
    dataset.merge(data, on="id")


WAYS = [append, overwrite, merge]
Way = Callable[[lakebed.Dataset, object], None]


@pytest.fixture
def dataset() -> lakebed.Dataset:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    return repository.create("d", lakebed.DatasetDescriptor(schema=SCHEMA))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", TAKEN)
def test_values_that_fit_are_there_as_they_were_given(
    dataset: lakebed.Dataset, way: Way, kind: str
) -> None:
    name, column, expected = TAKEN[kind]

    way(dataset, pa.table({"id": IDS, name: column}))

    table = dataset.arrow().sort_by("id")
    now = table[name].cast(pa.int64()) if name == "ts" else table[name]
    assert now.to_pylist() == (column.to_pylist() if expected is None else expected)
    assert table.schema.field(name).type == SCHEMA.field(name).type


# Columns, and what the refusal says.
REFUSED = {
    "text for a number": ({"id": ["a", "b"]}, "'id' is of type string"),
    "null where none may be": ({"id": WITH_NULL}, "'id' is not nullable, but 1 of 2"),
    "null in a dictionary": (
        {"id": pa.DictionaryArray.from_arrays(pa.array([0, 1]), WITH_NULL)},
        "'id' is not nullable, but 1 of 2",
    ),
    "required part null": ({"s": struct_of(WITH_NULL, names="a")}, r"'s\.a' is not nullable, but 1 of 2"),
    "required part null, inside": (
        {"deep": struct_of(struct_of(pa.array(["x", None]), names="x"), names="a")},
        r"'deep\.a\.x' is not nullable, but 1 of 2",
    ),
    "required part null, in a list": (
        {"ls": pa.array([[{"a": None}], []], pa.list_(pa.struct([("a", pa.int64())])))},
        r"'ls\[\]\.a' is not nullable, but 1 of 1",
    ),
    "required part of null type": (
        {"s": pa.array([{"a": None}] * 2)},
        r"'s\.a' (has the null type|is not nullable)",
    ),
    "element null": ({"l": pa.array([[1, None], None])}, r"'l\[\]' is not nullable"),
    "value null": (
        {"m": pa.array([[("k", None)], None], pa.map_(pa.string(), pa.int64()))},
        r"'m\{\}' is not nullable",
    ),
    "part missing": ({"s": struct_of(pa.array(["x", "y"]), names="b")}, r"'s\.a', which is not"),
    "part unknown": ({"s": struct_of(IDS, IDS, names="ac")}, r"'s\.c'"),
    "part twice": ({"s": struct_of(IDS, IDS, names="aa")}, "twice"),
    "record without fields": ({"s": pa.array([{}, {}], pa.struct([]))}, "has no fields"),
    "record for a list": ({"l": struct_of(IDS, names="a")}, "'l' is of type struct"),
    "list for a record": ({"s": pa.array([[1], [2]])}, "'s' is of type list"),
    "keys of another type": (
        {"m": pa.array([[(1, 1)], None], pa.map_(pa.int64(), pa.int64()))},
        r"'m\{key\}' is of type long, but the dataset's is string",
    ),
    "keys with parts": (
        {"m": pa.array([[([1], 1)], None], pa.map_(pa.list_(pa.int64()), pa.int64()))},
        "'m' has keys of type list<long>, which have parts",
    ),
    "nanoseconds": ({"ts": pa.array([1, 2], pa.timestamp("ns", "UTC"))}, "'ts'.*lose data"),
    "too far away": ({"ts": pa.array([2**62, 0], pa.timestamp("s", "UTC"))}, "'ts'.*out of bounds"),
    "time without zone": ({"ts": pa.array([1, 2], pa.timestamp("us"))}, "'ts' is of type"),
    "time with zone": ({"local": pa.array([1, 2], INSTANT)}, "'local' is of type"),
    "decimal of more digits": ({"d": pa.array([1, 2], pa.decimal128(7, 2))}, "'d' is of type"),
    "decimal of a negative scale": ({"d": pa.array([100, 0], pa.decimal128(3, -2))}, "'d'"),
    "interval": ({"n": pa.array([pa.MonthDayNano([1, 2, 3]), None])}, "interval.*'n'"),
    "duration": ({"n": pa.array([1, 2], pa.duration("s"))}, "duration.*'n'"),
    "time of day": ({"n": pa.array([1, 2], pa.time64("us"))}, "time64.*'n'"),
    "union": (
        {"n": pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [IDS])},
        "union.*'n'",
    ),
    "extension": ({"name": pa.ExtensionArray.from_storage(OddType(), IDS)}, "'name'"),
    "unknown column": ({"nam": ["a", "b"]}, "'nam'"),
    "column without a name": ({"": ["a", "b"]}, "''"),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", REFUSED)
def test_what_does_not_fit_is_refused_by_column_and_nothing_is_written(
    dataset: lakebed.Dataset, way: Way, kind: str
) -> None:
    columns, said = REFUSED[kind]
    before = dataset.version

    with pytest.raises(SchemaMismatchError, match=said) as caught:
        way(dataset, pa.table({"id": IDS, **columns}))

    assert caught.value.hint
    assert (dataset.version, dataset.count()) == (before, 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("names", [["id", "id"], ["id", "z", "z"]])
def test_column_that_stands_twice_is_refused(
    dataset: lakebed.Dataset, way: Way, names: list[str]
) -> None:
    with pytest.raises(SchemaMismatchError, match=f"{names[-1]!r} appears twice"):
        way(dataset, pa.Table.from_arrays([IDS] * len(names), names=names))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("frame", ["twice", "complex", "sparse"])
def test_pandas_frame_that_arrow_refuses_is_refused_by_name(
    dataset: lakebed.Dataset, way: Way, frame: str
) -> None:
    pandas = pytest.importorskip("pandas")
    frames = {
        "twice": lambda: pandas.DataFrame([[1, 2]], columns=["id", "id"]),
        "complex": lambda: pandas.DataFrame({"id": [1], "n": [1j]}),
        "sparse": lambda: pandas.DataFrame({"id": pandas.arrays.SparseArray([1, 2])}),
    }

    with pytest.raises(SchemaMismatchError, match=r"frame cannot be read: .*(id|n)"):
        way(dataset, frames[frame]())


@pytest.mark.parametrize(
    "value", [2**70, "\ud800", object(), 1j], ids=["large", "surrogate", "object", "complex"]
)
def test_merge_refuses_values_of_a_column_beside_the_schema_by_its_name(
    dataset: lakebed.Dataset, value: object
) -> None:
    with pytest.raises(SchemaMismatchError, match="'mark' of the data"):
        dataset.merge([{"id": 1, "mark": value}], on="id", delete_where="source.mark = 1")


@pytest.mark.parametrize("way", WAYS)
def test_name_that_is_no_text_is_refused(dataset: lakebed.Dataset, way: Way) -> None:
    with pytest.raises(InvalidInputError, match="column 2"):
        way(dataset, [{"id": 1, 2: 3}])


@pytest.mark.parametrize("kind", ["list", "large list", "map"])
@pytest.mark.parametrize("start", [0, 1])
def test_values_that_a_null_list_hides_stay_hidden(kind: str, start: int) -> None:
    values = pa.array(["a", "b", "c"], pa.string_view())
    wide = pa.int64() if kind == "large list" else pa.int32()
    bits, offsets = pa.array([True, None, True]).buffers()[0], pa.array(range(4), wide).buffers()[1]
    if kind == "map":
        keys = pa.array(["k"] * 3)
        pairs = pa.StructArray.from_arrays(
            [keys, values],
            fields=[
                pa.field("key", pa.string(), nullable=False),
                pa.field("value", pa.string_view()),
            ],
        )
        column = pa.Array.from_buffers(
            pa.map_(pa.string(), pa.string_view()), 3, [bits, offsets], children=[pairs]
        )
    else:
        type_ = (pa.large_list if kind == "large list" else pa.list_)(pa.string_view())
        column = pa.Array.from_buffers(type_, 3, [bits, offsets], children=[values])
    column = column.slice(start)

    plain = to_plain(pa.record_batch({"l": column})).column(0)

    plain.validate(full=True)
    assert plain.to_pylist() == column.to_pylist()

"""Entities of all kinds as record batches."""

import dataclasses
import datetime as dt
import decimal
import math

import numpy as np
import pyarrow as pa
import pytest

from lakebed import by
from lakebed.arrow.entities import ENTITIES_PER_BATCH, entities_to_batch, to_batches
from lakebed.errors import InvalidInputError, PartitionSpecError, SchemaMismatchError
from lakebed.model.descriptor import DatasetDescriptor

SCHEMA = pa.schema([pa.field("k", pa.string()), pa.field("n", pa.int64(), nullable=False)])
DESCRIPTOR = DatasetDescriptor(schema=SCHEMA, partition_by="k")
ROWS = [{"k": "a", "n": 1}, {"k": None, "n": 2}]


@dataclasses.dataclass
class Row:
    n: int
    k: str | None = None


def rows_of(data: object) -> list[dict]:
    return [row for batch in to_batches(data, DESCRIPTOR) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "make",
    [
        lambda: pa.Table.from_pylist(ROWS, schema=SCHEMA),
        lambda: pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA),
        lambda: pa.Table.from_pylist(ROWS, schema=SCHEMA).to_reader(max_chunksize=1),
        lambda: iter(pa.Table.from_pylist(ROWS, schema=SCHEMA).to_batches(max_chunksize=1)),
        lambda: [pa.Table.from_pylist(ROWS, schema=SCHEMA)],
        lambda: ROWS,
        lambda: tuple(ROWS),
        lambda: (dict(row) for row in ROWS),
        lambda: [Row(1, "a"), Row(2)],
        lambda: [Row(1, "a"), {"k": None, "n": 2}],
    ],
)
def test_rows_are_read_from_every_form(make) -> None:
    assert rows_of(make()) == ROWS


def test_rows_are_read_from_pandas_without_its_index() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, index=[7, 8])

    assert rows_of(frame) == ROWS


def test_index_of_pandas_that_has_the_name_of_a_field_is_that_field() -> None:
    """As `groupby` and `set_index` make it: else its values would be lost, and null in their place."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS)

    assert rows_of(frame.set_index("k")) == ROWS
    assert [sorted(row) for row in rows_of(frame.set_index(["n", "k"]))] == [["k", "n"]] * 2
    assert rows_of(frame.set_index("n", drop=False)) == ROWS
    assert rows_of(frame.rename_axis("other")) == ROWS


@pytest.mark.parametrize("name", ["k", None])
def test_column_of_pandas_alone_is_refused(name) -> None:
    pandas = pytest.importorskip("pandas")
    column = pandas.Series(["a"], index=pandas.Index([1], name=name))

    with pytest.raises(InvalidInputError):
        rows_of(column)


def test_pandas_column_of_mixed_types_is_refused() -> None:
    pandas = pytest.importorskip("pandas")

    with pytest.raises(SchemaMismatchError, match="cannot be read"):
        rows_of(pandas.DataFrame({"k": ["a", 1]}))


@pytest.mark.parametrize("data", [None, 5, "abc", b"abc", {"k": "a"}, Row(1)])
def test_data_of_no_known_form_is_refused(data: object) -> None:
    with pytest.raises(InvalidInputError, match="Cannot write"):
        rows_of(data)


@pytest.mark.parametrize("item", [5, "a", None, Row, ("a", 1)])
def test_entity_of_no_known_form_is_refused(item: object) -> None:
    with pytest.raises(InvalidInputError, match="Cannot read an entity of type"):
        rows_of([{"k": "a", "n": 1}, item])


def test_frame_of_an_unknown_library_is_refused_with_how_to_convert_it() -> None:
    class Frame:
        columns = ("k", "n")

        def __iter__(self):
            return iter(self.columns)

    with pytest.raises(InvalidInputError, match="'k'") as caught:
        rows_of(Frame())
    assert "compute()" in caught.value.hint


def test_stream_of_batches_is_not_gathered() -> None:
    taken = []

    def stream():
        for number in range(3):
            taken.append(number)
            yield pa.RecordBatch.from_pylist([{"k": "a", "n": number}], schema=SCHEMA)

    batches = to_batches(stream(), DESCRIPTOR)
    next(batches)

    assert taken == [0]


def test_entities_are_gathered_into_batches() -> None:
    entities = ({"k": "a", "n": number} for number in range(ENTITIES_PER_BATCH + 1))

    sizes = [batch.num_rows for batch in to_batches(entities, DESCRIPTOR)]

    assert sizes == [ENTITIES_PER_BATCH, 1]


def test_table_without_rows_still_shows_its_columns() -> None:
    (batch,) = to_batches(SCHEMA.empty_table(), DESCRIPTOR)

    assert (batch.num_rows, batch.schema) == (0, SCHEMA)


@pytest.mark.parametrize(
    ("entity", "error", "message"),
    [
        ({"k": "a", "n": 1, "nn": 2}, SchemaMismatchError, "Unknown column 'nn'.*Did you mean 'n'"),
        ({"k": "a", "n": 1, 5: 2}, SchemaMismatchError, "Unknown column 5"),
        ({"k": "a"}, SchemaMismatchError, "lacks column 'n'"),
        ({"k": "a", "n": None}, SchemaMismatchError, "Column 'n' is not nullable"),
        ({"k": "a", "n": "1"}, SchemaMismatchError, r"Value '1' \(str\).*'n' of type long"),
        ({"k": "a", "n": 1.0}, SchemaMismatchError, "does not fit"),
        ({"k": "a", "n": True}, SchemaMismatchError, "does not fit"),
        ({"k": "a", "n": 2**63}, SchemaMismatchError, "Values are"),
        ({"k": 5, "n": 1}, SchemaMismatchError, "does not fit"),
        ({"k": "\ud800", "n": 1}, SchemaMismatchError, "does not fit"),
    ],
)
def test_entity_that_does_not_fit_is_refused(entity, error, message: str) -> None:
    with pytest.raises(error, match=message):
        entities_to_batch([ROWS[0], entity], DESCRIPTOR)


NESTED = DatasetDescriptor(
    schema=pa.schema(
        [
            ("l", pa.list_(pa.int64())),
            ("m", pa.map_(pa.string(), pa.float64())),
            (
                "s",
                pa.struct([pa.field("x", pa.int32(), nullable=False), ("q", pa.decimal128(5, 2))]),
            ),
            ("r", pa.list_(pa.field("element", pa.string(), nullable=False))),
        ]
    )
)


def nested(**values: object) -> dict:
    (row,) = entities_to_batch([values], NESTED).to_pylist(maps_as_pydicts="strict")
    return row


def test_nested_values_are_kept() -> None:
    row = nested(
        l=(1, None, np.int64(3)),
        m={"a": 1, "b": None},
        s={"x": 5, "q": decimal.Decimal("1.5")},
        r=["a"],
    )

    assert row == {
        "l": [1, None, 3],
        "m": {"a": 1.0, "b": None},
        "s": {"x": 5, "q": decimal.Decimal("1.50")},
        "r": ["a"],
    }


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"l": [1.5]}, r"'l\[\]'"),
        ({"l": [True]}, r"'l\[\]'"),
        ({"l": "12"}, "'l'"),
        ({"l": {"a": 1}}, "'l'"),
        ({"l": 5}, "'l'"),
        ({"m": {"a": "x"}}, r"'m\{\}'"),
        ({"m": {5: 1.0}}, r"'m\{key\}'"),
        ({"m": [("a", 1.0)]}, "'m'"),
        ({"s": {"x": 1, "z": 2}}, r"'s\.z'"),
        ({"s": {"q": None}}, r"'s\.x'"),
        ({"s": {"x": 2**31}}, r"'s\.x'"),
        ({"s": {"x": 1, "q": decimal.Decimal("1.234")}}, r"'s\.q'"),
        ({"s": (1, None)}, "'s'"),
        ({"r": ["a", None]}, r"'r\[\]'"),
    ],
)
def test_nested_value_that_does_not_fit_names_its_place(values: dict, place: str) -> None:
    with pytest.raises(SchemaMismatchError, match=place):
        nested(**values)


def test_default_stands_for_a_field_that_an_entity_lacks() -> None:
    descriptor = DatasetDescriptor(
        schema={
            "type": "record",
            "name": "r",
            "fields": [
                {"name": "a", "type": "int", "default": 5},
                {"name": "b", "type": ["string", "null"], "default": "x"},
            ],
        }
    )

    batch = entities_to_batch([{}, {"a": 1, "b": None}], descriptor)

    assert batch.to_pylist() == [{"a": 5, "b": "x"}, {"a": 1, "b": None}]


def test_numpy_scalars_are_values() -> None:
    schema = pa.schema([("n", pa.int64()), ("x", pa.float32()), ("b", pa.bool_())])
    entity = {"n": np.int32(5), "x": np.float64(0.5), "b": np.True_}

    batch = entities_to_batch([entity], DatasetDescriptor(schema=schema))

    assert batch.to_pylist() == [{"n": 5, "x": 0.5, "b": True}]


def test_nan_is_a_number_and_naive_times_are_utc() -> None:
    schema = pa.schema([("x", pa.float64()), ("t", pa.timestamp("us", tz="UTC"))])
    entity = {"x": math.nan, "t": dt.datetime(2013, 1, 1)}

    (row,) = entities_to_batch([entity], DatasetDescriptor(schema=schema)).to_pylist()

    assert math.isnan(row["x"])
    assert row["t"] == dt.datetime(2013, 1, 1, tzinfo=dt.UTC)


def partitioned(*partition_by) -> DatasetDescriptor:
    schema = pa.schema([("n", pa.int64()), ("carrier", pa.string())])
    return DatasetDescriptor(schema=schema, partition_by=partition_by)


def test_entity_that_lacks_a_partition_source_has_null_there() -> None:
    entities = [{"n": 1, "carrier": "UA"}, {"n": 2}]

    batch = entities_to_batch(entities, partitioned(by.identity("carrier")))

    assert batch.column("carrier").to_pylist() == ["UA", None]


@pytest.mark.parametrize("place", [0, -1])
def test_whether_a_partition_source_may_lack_goes_by_all_entities_together(place: int) -> None:
    entities: list[dict] = [{"n": n} for n in range(ENTITIES_PER_BATCH + 1)]
    entities[place]["carrier"] = "UA"

    batches = list(to_batches(entities, partitioned(by.hash("carrier", 2))))

    assert sum(batch.column("carrier").null_count for batch in batches) == ENTITIES_PER_BATCH


@pytest.mark.parametrize("entity", [{"n": 1}, {}])
def test_entities_that_all_lack_a_partition_source_are_a_mistake(entity: dict) -> None:
    with pytest.raises(PartitionSpecError, match="lacks 'carrier', the source"):
        list(to_batches([entity] * 2, partitioned(by.hash("carrier", 2))))


def test_entities_may_all_lack_the_source_of_a_dimension() -> None:
    (batch,) = to_batches([{"n": 1}], partitioned(by.dimension("carrier", ["UA"])))

    assert batch.column("carrier").to_pylist() == [None]

"""Arrow data of other libraries: every layout is taken, and no value changes."""

import datetime as dt
import decimal
import uuid
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import lakebed
from lakebed.arrow.entities import batches_of, to_plain
from lakebed.errors import DamagedFileError, InvalidInputError, SchemaMismatchError

TEXTS = ["a", None, "a text that does not fit into a view"]
VIEWS = pa.array(TEXTS, pa.string_view())
RUNS = pa.array([2, 3, 5], pa.int32())
LAYOUTS = {
    "string_view": VIEWS,
    "binary_view": pa.array([b"a", None, b"\xff" * 20], pa.binary_view()),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([2, None, 0, 1], pa.uint32()), VIEWS),
    "runs": pa.RunEndEncodedArray.from_arrays(RUNS, pa.array(["x", None, "y"])),
    "runs of views": pa.RunEndEncodedArray.from_arrays(RUNS, VIEWS),
    "lists": pa.array([["a", None], None, [], ["b"]], pa.list_(pa.string_view())),
    "large lists": pa.array([["a", None], None, [], ["b"]], pa.large_list(pa.string_view())),
    "pairs": pa.array([["a", "b"], None, ["c", None]], pa.list_(pa.string_view(), 2)),
    "list_view": pa.array([[1, 2], None, [], [3, None]], pa.list_view(pa.int64())),
    "large_list_view": pa.array([[1], None, [2, 3]], pa.large_list_view(pa.int64())),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.large_string(), pa.int64())),
    "map of views": pa.array([[("k", "v")], None], pa.map_(pa.string_view(), pa.string_view())),
    "struct": pa.array([{"a": "x"}, None, {"a": None}], pa.struct([("a", pa.string_view())])),
    "lists of structs": pa.array(
        [[{"a": "x"}], None, [{"a": None}, None]], pa.list_(pa.struct([("a", pa.string_view())]))
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("start", "length"), [(0, None), (1, None), (1, 2), (0, 0)])
def test_layout_becomes_plain_and_keeps_its_values(layout: str, start: int, length) -> None:
    column = LAYOUTS[layout].slice(start, length)

    plain = to_plain(pa.RecordBatch.from_arrays([column], ["c"])).column("c")

    plain.validate(full=True)
    assert plain.to_pylist() == column.to_pylist()
    assert not any(word in str(plain.type) for word in ("view", "run_end"))


def test_json_of_an_extension_is_text() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(['{"a": 1}'], pa.json_())], ["c"])

    assert to_plain(batch).schema.field("c").type == pa.string()


def test_plain_batches_are_not_copied() -> None:
    batch = pa.record_batch({"n": [1, 2], "s": ["a", None]})

    assert to_plain(batch) is batch


def test_stream_without_batches_still_shows_its_columns() -> None:
    stream = pa.RecordBatchReader.from_batches(pa.schema([("s", pa.string_view())]), [])

    (batch,) = batches_of(stream)

    assert (batch.num_rows, batch.schema) == (0, pa.schema([("s", pa.string())]))


class Hands:
    """Hands over what it holds, as any library may."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


SCHEMA = pa.schema([("s", pa.string()), ("n", pa.int64())])
ROWS = [{"s": "a", "n": 1}, {"s": None, "n": 2}]


@pytest.fixture
def dataset() -> lakebed.Dataset:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    return repository.create("rows", lakebed.DatasetDescriptor(schema=SCHEMA))


@pytest.mark.parametrize(
    "make",
    [
        lambda: pl.DataFrame(ROWS),
        lambda: pl.DataFrame(ROWS, schema={"s": pl.Categorical, "n": pl.Int32}),
        lambda: pl.DataFrame(ROWS, schema={"s": pl.Enum(["a", "b"]), "n": pl.UInt8}),
        lambda: [pl.DataFrame(ROWS[:1]), pl.DataFrame(ROWS[1:])],
        lambda: iter([pl.DataFrame(ROWS[:1]), ROWS[1]]),
        lambda: duckdb.sql("SELECT * FROM (VALUES ('a', 1), (NULL, 2)) AS rows(s, n)"),
        lambda: pytest.importorskip("arro3.core").Table.from_arrow(
            pa.Table.from_pylist(ROWS, SCHEMA)
        ),
        lambda: Hands(pa.RecordBatch.from_pylist(ROWS, SCHEMA)),
        lambda: pa.RecordBatchReader.from_stream(pl.DataFrame(ROWS)),
        lambda: pa.table({"s": pa.array(["a", None], pa.string_view()), "n": [1, 2]}),
    ],
)
def test_rows_of_other_libraries_are_appended(dataset: lakebed.Dataset, make) -> None:
    dataset.append(make())

    assert dataset.arrow().to_pylist() == ROWS


def test_every_call_that_writes_takes_a_frame(dataset: lakebed.Dataset) -> None:
    frame = pl.DataFrame(ROWS)

    dataset.append(frame)
    dataset.overwrite(frame)
    dataset.rerun(frame, run="daily", replace_all=True)
    dataset.staged.add(frame).commit()
    with dataset.transaction() as transaction:
        transaction.append(frame)

    assert dataset.count() == 8


def test_view_is_rows_for_another_dataset(dataset: lakebed.Dataset) -> None:
    dataset.append(ROWS)
    copy = dataset.where("n = 2")

    dataset.append(copy)
    dataset.append(dataset.select("n").limit(1))

    assert sorted(dataset.arrow()["n"].to_pylist()) in ([1, 1, 2, 2], [1, 2, 2, 2])


def test_error_of_a_view_that_is_written_keeps_its_class(tmp_path) -> None:
    repository = lakebed.open_repository(tmp_path)
    source = repository.create("source", lakebed.DatasetDescriptor(schema=SCHEMA))
    target = repository.create("target", lakebed.DatasetDescriptor(schema=SCHEMA))
    source.append(ROWS)
    (tmp_path / source.files()[0].key).write_bytes(b"PAR1 no more")

    with pytest.raises(DamagedFileError):
        target.append(source)

    assert target.version == 0


@pytest.mark.parametrize("data", [pl.Series("n", [1]), pa.chunked_array([[1]]), pa.array([1]), 5])
def test_what_hands_over_no_rows_is_refused(dataset: lakebed.Dataset, data: object) -> None:
    with pytest.raises(InvalidInputError, match=r"gives no rows|Cannot write int"):
        dataset.append(data)

    assert dataset.version == 0


TIMES = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("wall", pa.timestamp("us"))])
NOON = dt.datetime(2013, 6, 1, 12)


def at(unit: str, value: Any, zone: str | None = "UTC") -> pl.DataFrame:
    return pl.DataFrame({"at": pl.Series([value]).cast(pl.Datetime(unit, zone))})


@pytest.fixture
def times() -> lakebed.Dataset:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    return repository.create("times", lakebed.DatasetDescriptor(schema=TIMES))


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_times_of_other_units_are_the_same_instants(times: lakebed.Dataset, unit: str) -> None:
    times.append(at(unit, NOON))

    assert times.arrow()["at"].to_pylist() == [NOON.replace(tzinfo=dt.UTC)]


def test_times_of_other_zones_are_the_same_instants(times: lakebed.Dataset) -> None:
    moment = pa.array([0], pa.timestamp("s", tz="Europe/Berlin"))

    times.append(pa.table({"at": moment}))

    assert times.arrow()["at"].to_pylist() == [dt.datetime(1970, 1, 1, tzinfo=dt.UTC)]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (at("ns", 1_500), "'at' of type timestamp.*would lose data"),
        (at("us", NOON, None), "Column 'at' is of type timestamp_ntz"),
        (pl.DataFrame({"wall": [dt.time(12)]}), "Unsupported Arrow type time64.*'wall'"),
        (pl.DataFrame({"wall": [dt.timedelta(1)]}), "Unsupported Arrow type duration.*'wall'"),
    ],
)
def test_time_that_would_change_is_refused_by_name(times, frame, message: str) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        times.append(frame)

    assert times.version == 0


def test_decimals_of_other_widths_keep_their_digits() -> None:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    schema = pa.schema([("price", pa.decimal128(10, 2))])
    prices = repository.create("prices", lakebed.DatasetDescriptor(schema=schema))
    amount = decimal.Decimal("12.50")

    prices.append(pl.DataFrame({"price": [amount]}, schema={"price": pl.Decimal(8, 1)}))
    prices.append(duckdb.sql("SELECT 12.50::DECIMAL(9, 2) AS price"))
    prices.append(pa.table({"price": pa.array([amount], pa.decimal64(10, 2))}))
    with pytest.raises(SchemaMismatchError, match="'price' is of type decimal"):
        prices.append(pl.DataFrame({"price": [amount]}, schema={"price": pl.Decimal(38, 2)}))

    assert prices.arrow()["price"].to_pylist() == [amount] * 3

"""Text that is not UTF-8 is refused where it comes in, at every depth, with its row and its bytes."""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import CsvOptions, JsonOptions, LoadOptions
from lakebed.arrow.utf8 import check_texts
from lakebed.errors import LakebedError, PartitionSpecError, SchemaMismatchError
from lakebed.model.partition import PartitionStrategy
from lakebed.model.schema import Field, Kind, Primitive, Schema

BAD = b"\xc3("
TEXTS = (pa.string(), pa.large_string(), pa.string_view())
WRAPS = ("list", "large list", "fixed list", "struct", "map key", "map value", "dictionary")


def texts_of(values: list[bytes | None], kind: pa.DataType = TEXTS[0]) -> pa.Array:
    """Return texts that hold any bytes."""
    if pa.types.is_string_view(kind):
        return pa.array(values, pa.binary_view()).view(kind)
    if pa.types.is_large_string(kind):
        return pa.array(values, pa.large_binary()).view(kind)
    return pa.array(values, pa.binary()).view(kind)


def wrapped(array: pa.Array, how: str) -> pa.Array:
    """Return a column of the same length, with one value of the array in each row."""
    starts = pa.array(range(len(array) + 1), pa.int32())
    numbers = pa.array(range(len(array)))
    match how:
        case "list":
            return pa.ListArray.from_arrays(starts, array)
        case "large list":
            return pa.LargeListArray.from_arrays(starts.cast(pa.int64()), array)
        case "fixed list":
            return pa.FixedSizeListArray.from_arrays(array, 1)
        case "struct":
            return pa.StructArray.from_arrays([numbers, array], names=["n", "x"])
        case "map key":
            if array.null_count:
                return pa.MapArray.from_arrays(starts, numbers, array)
            return pa.MapArray.from_arrays(starts, array, numbers)
        case "map value":
            return pa.MapArray.from_arrays(starts, numbers, array)
    return array.dictionary_encode() if pa.types.is_string(array.type) else array


@given(
    values=st.lists(st.none() | st.binary(max_size=3) | st.text(max_size=3), max_size=12),
    kind=st.sampled_from(TEXTS),
    wraps=st.lists(st.sampled_from(WRAPS), max_size=3),
    start=st.integers(0, 3),
)
def test_exactly_the_texts_that_python_cannot_decode_are_refused(values, kind, wraps, start):
    values = [value.encode() if isinstance(value, str) else value for value in values]
    column = texts_of(values, kind)
    for how in wraps:
        column = wrapped(column, how)
    rows = values[start:]
    damaged = [number for number, value in enumerate(rows, 1) if not is_sound(value)]

    if not damaged:
        check_texts(column.slice(start), "s")
        return
    with pytest.raises(SchemaMismatchError) as caught:
        check_texts(column.slice(start), "s")

    where = f"in row {damaged[0]} of {len(rows)} of a batch"
    assert (where in caught.value.message) is (len(rows) > 1)
    assert repr(rows[damaged[0] - 1]) in caught.value.message
    assert "make_valid_utf8" in caught.value.hint


def is_sound(value: bytes | None) -> bool:
    try:
        return value is None or bool(value.decode() or True)
    except UnicodeDecodeError:
        return False


def test_text_below_a_null_is_no_value():
    inner = texts_of([b"a", BAD])
    null = pa.array([False, True])

    check_texts(pa.StructArray.from_arrays([inner], names=["x"], mask=null), "s")
    starts = pa.array([0, None, 2], pa.int32())
    check_texts(pa.ListArray.from_arrays(starts, inner).slice(1), "s")


DOORS = {
    "append": lambda dataset, rows: dataset.append(rows),
    "overwrite": lambda dataset, rows: dataset.overwrite(rows),
    "upsert": lambda dataset, rows: dataset.upsert(rows, on="id"),
    "merge": lambda dataset, rows: dataset.merge(rows, on="id"),
    "batches": lambda dataset, rows: dataset.append(rows.to_reader()),
}
FORMS = {
    "plain": {},
    "index": {"index": ["s"]},
    "identity": {"partition_by": "s"},
    "hash": {"partition_by": "hash(s, 4)"},
    "range": {"partition_by": "range(s, 'g', 'p')"},
    "dimension": {"partition_by": "dimension(s)"},
    "avro": {"format": "avro"},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("door", DOORS)
def test_every_door_of_every_form_refuses_it(tmp_path, door, form):
    rows = pa.table({"id": [1, 2], "s": texts_of([b"ab", BAD])})
    descriptor = lakebed.DatasetDescriptor(schema=rows.schema, **FORMS[form])
    dataset = lakebed.open_repository(tmp_path).create("t", descriptor)

    with pytest.raises(SchemaMismatchError, match=r"'s' has text that is not UTF-8 in row 2 of 2"):
        DOORS[door](dataset, rows)

    assert dataset.version == 0


@pytest.mark.parametrize("name", ["a.parquet", "b.csv", "c.json", "d.avro"])
def test_a_raw_file_loses_only_the_row_that_has_it(tmp_path, name):
    folder = tmp_path / "raw"
    folder.mkdir()
    write_raw(folder / name)
    schema = pa.schema({"id": pa.int64(), "s": pa.string()})
    dataset = lakebed.open_repository(tmp_path / "lake").create("t", schema)

    notation = LoadOptions(csv=CsvOptions(), json=JsonOptions())  # else an encoding is looked for
    report = dataset.load(folder / name, quarantine="bad", options=notation)

    assert report.rejected_count == 1
    assert dataset.arrow(columns=["id"]).to_pylist() == [{"id": 1}]


def write_raw(path: pathlib.Path) -> None:
    match path.suffix:
        case ".parquet":
            pq.write_table(pa.table({"id": [1, 2], "s": texts_of([b"ab", BAD])}), path)
        case ".csv":
            path.write_bytes(b"id,s\n1,ab\n2," + BAD + b"\n")
        case ".json":
            path.write_bytes(b'{"id": 1, "s": "ab"}\n{"id": 2, "s": "' + BAD + b'"}\n')
        case _:
            import fastavro

            fields = [{"name": "id", "type": "long"}, {"name": "s", "type": "string"}]
            schema = {"type": "record", "name": "r", "fields": fields}
            with path.open("wb") as file:
                fastavro.writer(file, schema, [{"id": 1, "s": "ab"}, {"id": 2, "s": "ZQ"}])
            path.write_bytes(path.read_bytes().replace(b"ZQ", BAD))


def test_adoption_refuses_a_file_whose_bounds_show_it(tmp_path):
    (tmp_path / "t").mkdir()
    pq.write_table(
        pa.table({"id": [1, 2], "s": texts_of([b"ab", BAD])}), tmp_path / "t" / "a.parquet"
    )

    with pytest.raises(SchemaMismatchError, match=r"a\.parquet.*'s' has text that is not UTF-8"):
        lakebed.open_repository(tmp_path).adopt("t")


READS = {
    "arrow": lambda t: t.arrow(),
    "one column": lambda t: t.arrow(["s"]),
    "batches": lambda t: list(t.record_batches()),
    "pandas": lambda t: t.pandas(),
    "Polars": lambda t: t.polars(),
    "reader": lambda t: list(t.kite.reader()),
    "where": lambda t: t.where("id > 1").arrow(),
    "where of any case": lambda t: t.where("s ILIKE 'A%'").arrow(["id"]),
    "head": lambda t: t.limit(2).arrow(),
    "pyarrow's dataset": lambda t: t.dataset().to_table(),
    "batches of a view": lambda t: t.where("id < 9").dataset().to_table(),
    "upsert": lambda t: t.upsert([{"id": 1, "s": "new"}], "id"),
    "delete": lambda t: t.where("id = 1").delete(),
    "compact": lambda t: t.compact(),
}


@pytest.mark.parametrize("wrap", ["none", "struct", "list"])
@pytest.mark.parametrize("read", READS)
def test_a_read_of_an_adopted_file_names_text_that_its_bounds_do_not_show(tmp_path, read, wrap):
    (tmp_path / "t").mkdir()
    texts = texts_of([b"a", BAD, "\u4e00".encode()])
    column = texts if wrap == "none" else wrapped(texts, wrap)
    sound = pa.table({"id": [4], "s": column.slice(0, 1)})
    pq.write_table(pa.table({"id": [1, 2, 3], "s": column}), tmp_path / "t" / "a.parquet")
    pq.write_table(sound, tmp_path / "t" / "b.parquet")
    lake = lakebed.open_repository(tmp_path)
    lake.adopt("t")
    if wrap != "none" and read in ("where of any case", "upsert"):
        pytest.skip("the column is no text")

    with pytest.raises(LakebedError) as caught:
        READS[read](lake["t"])

    assert "'s" in caught.value.message
    assert "UTF-8" in caught.value.message
    assert "a.parquet" in caught.value.message
    assert caught.value.hint
    assert lake["t"].version == 1
    assert lake["t"].arrow(["id"]).num_rows == lake["t"].count() == 4
    if wrap == "none":
        assert lake["t"].where("s = 'a'").arrow()["id"].to_pylist() == [1, 4]


@pytest.mark.parametrize("call", ["hash(s, 4)", "range(s, 'zz')", "dimension(s)"])
def test_partition_functions_name_it_for_columns_that_no_writer_has_seen(call):
    schema = Schema(fields=(Field(name="s", type=Primitive(Kind.STRING)),))
    rows = pa.record_batch({"s": texts_of([b"ab", BAD])})

    with pytest.raises(PartitionSpecError, match=r"not UTF-8: b'\\xc3\('"):
        PartitionStrategy.parse(call).arrays(rows, schema)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("distinct", [3, 5_000, 200_000])
@pytest.mark.parametrize("damaged", [1, 100_000, 150_000, None])
def test_one_damaged_text_of_many_is_found(kind, distinct, damaged):
    values = [f"é{number * 7919 % distinct}".encode() for number in range(150_001)]
    values[7] = None
    if damaged is not None:
        values[damaged] = BAD
    column = texts_of(values, kind).slice(1)

    if damaged is None:
        check_texts(column, "s")
        return
    with pytest.raises(SchemaMismatchError, match=f"in row {damaged:,} of 150,000 of a batch"):
        check_texts(column, "s")


def test_damaged_text_of_a_dictionary_that_no_row_has_is_no_value():
    texts = texts_of([b"a", BAD])

    check_texts(pa.DictionaryArray.from_arrays(pa.array([0, None, 0]), texts), "s")
    with pytest.raises(SchemaMismatchError, match="in row 2 of 2"):
        check_texts(pa.DictionaryArray.from_arrays(pa.array([0, 1]), texts), "s")

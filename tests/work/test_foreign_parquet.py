"""Parquet of other tools: each column is read as its own tools read it, or its file is refused."""

import datetime as dt
import decimal
import re
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed.cli import main
from lakebed.errors import InvalidInputError, SchemaMismatchError

FOREVER = dt.datetime(9999, 12, 31)
FIRST = dt.datetime(1, 1, 1)
NOW = dt.datetime(2020, 1, 1, 12, 30, 5, 123456)


@pytest.fixture
def lake(tmp_path):
    return lakebed.open_repository(tmp_path / "lake")


@pytest.fixture
def put(tmp_path):
    def write(*tables, name="t", **options):
        home = tmp_path / "lake" / name
        home.mkdir(parents=True)
        for number, table in enumerate(tables):
            pq.write_table(table, home / f"{number}.parquet", **options)
        return home

    return write


def troubles(dataset):
    return [one for one in dataset.check(deep=True).findings if one.severity != "note"]


def naive(values):
    """Return times without their zone, at any depth."""
    if isinstance(values, dt.datetime):
        return values.replace(tzinfo=None)
    if isinstance(values, list):
        return [naive(value) for value in values]
    if isinstance(values, tuple):
        return tuple(map(naive, values))
    if isinstance(values, dict):
        return {name: naive(value) for name, value in values.items()}
    return values


# --- Times in INT96

TIMES = [NOW, FOREVER, FIRST, None]
SHAPES = {
    "top": pa.array(TIMES, pa.timestamp("us")),
    "struct": pa.array([{"at": time} for time in TIMES], pa.struct([("at", pa.timestamp("us"))])),
    "list": pa.array([TIMES, [], None], pa.list_(pa.timestamp("us"))),
    "map": pa.array([[("a", NOW), ("b", FOREVER)], None], pa.map_(pa.string(), pa.timestamp("us"))),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_adopted_times_in_int96_are_read_by_every_way(lake, put, shape) -> None:
    table = pa.table({"c": SHAPES[shape], "n": list(range(len(SHAPES[shape])))})
    put(table, use_deprecated_int96_timestamps=True)

    adopted = lake.adopt("t")

    assert naive(adopted.arrow().column("c").to_pylist()) == table.column("c").to_pylist()
    assert troubles(adopted) == []
    adopted.append(adopted.arrow())
    adopted.compact(gather=True)
    assert adopted.count() == 2 * len(table)
    if shape == "top":
        assert adopted.where("c > '2020-01-02'").count() == 2
        assert lake.sql("SELECT max(c) AS m FROM t").to_pylist()[0]["m"].year == 9999


@pytest.mark.parametrize("shape", SHAPES)
def test_loaded_times_in_int96_are_the_same(lake, tmp_path, shape) -> None:
    table = pa.table({"c": SHAPES[shape]})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    loaded = lake.create("t", lakebed.infer_schema(path))

    assert loaded.load(path).rejected_count == 0

    assert loaded.arrow().column("c").to_pylist() == table.column("c").to_pylist()


def test_times_in_int96_fit_a_dataset_of_instants(lake, tmp_path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": SHAPES["top"]}), path, use_deprecated_int96_timestamps=True)
    instants = lake.create("t", pa.schema([("c", pa.timestamp("us", "UTC"))]))

    instants.load(path)

    assert naive(instants.arrow().column("c").to_pylist()) == TIMES


def test_times_of_spark_in_int96_are_instants(lake, tmp_path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"c": SHAPES["top"]})
    table = table.replace_schema_metadata({"org.apache.spark.version": "4.3.0"})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)

    assert str(lakebed.infer_schema(path).get("c").type) == "timestamp"


def test_a_set_aside_row_keeps_its_times(lake, tmp_path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"c": pa.array([FOREVER], pa.timestamp("us")), "n": [2**40]})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    schema = pa.schema([("c", pa.timestamp("us")), ("n", pa.int64())])
    check = {"small": lakebed.checks.condition("n < 10", on_failure="quarantine")}
    dataset = lake.create("t", lakebed.DatasetDescriptor(schema=schema, checks=check))

    dataset.load(path)

    (line,) = lake["t_quarantine"].arrow().column("line").to_pylist()
    assert b"9999-12-31" in (line if isinstance(line, bytes) else line.encode())


# --- Times in nanoseconds


@given(
    ticks=st.lists(st.integers(min_value=-(2**62), max_value=2**62), min_size=1, max_size=5),
    is_whole=st.booleans(),
    zone=st.sampled_from([None, "UTC"]),
    nesting=st.sampled_from(["top", "list", "struct"]),
)
def test_nanoseconds_are_adopted_as_they_are_or_refused(
    tmp_path_factory, ticks, is_whole, zone, nesting
) -> None:
    ticks = [tick // 1000 * 1000 if is_whole else tick for tick in ticks]
    column = pa.array(ticks, pa.timestamp("ns", zone))
    if nesting == "list":
        column = pa.array([column.to_pylist()], pa.list_(column.type)) if is_whole else column
    elif nesting == "struct":
        column = pa.StructArray.from_arrays([column], ["at"])
    root = tmp_path_factory.mktemp("ns")
    (root / "t").mkdir()
    pq.write_table(pa.table({"c": column}), root / "t/a.parquet")
    lake = lakebed.open_repository(root)

    if all(tick % 1000 == 0 for tick in ticks):
        adopted = lake.adopt("t")
        assert troubles(adopted) == []
        assert adopted.arrow().column("c").combine_chunks().cast(column.type).equals(column)
        return
    with pytest.raises(SchemaMismatchError, match="times in microseconds") as caught:
        lake.adopt("t")
    (command,) = re.findall("`(.*)`", caught.value.hint)
    eval(command, {"pyarrow": pa})
    assert troubles(lake.adopt("t")) == []


# --- Narrow types, and columns without values

D = decimal.Decimal
NARROW = {
    "uint8": pa.array([0, 255, None], pa.uint8()),
    "uint16": pa.array([0, 65535, None], pa.uint16()),
    "fixed bytes": pa.array([b"abcd", None, b"\xff\xff\xff\xff"], pa.binary(4)),
    "fixed list": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    "decimal32": pa.array([D("1.5"), None, D("-2.5")], pa.decimal32(5, 2)),
    "decimal64": pa.array([D("1.5"), None, D("-2.5")], pa.decimal64(15, 2)),
    "decimal256": pa.array([D("1.5"), None, D("-2.5")], pa.decimal256(38, 2)),
    "list of uint8": pa.array([[1], None, [255]], pa.list_(pa.uint8())),
    "struct of fixed list": pa.array(
        [{"a": [1.0, 2.0]}, None], pa.struct([("a", pa.list_(pa.float32(), 2))])
    ),
    "map of uint8": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.uint8())),
}


@pytest.mark.parametrize("kind", NARROW)
def test_narrow_types_are_adopted(lake, put, kind) -> None:
    put(pa.table({"c": NARROW[kind]}))

    adopted = lake.adopt("t")

    assert adopted.arrow().column("c").to_pylist() == NARROW[kind].to_pylist()
    assert troubles(adopted) == []


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array([2**32 - 1], pa.uint32()), "uint32 instead of int64: some readers"),
        (pa.array([[2**32 - 1]], pa.list_(pa.uint32())), "some readers take its values"),
        (pa.array(np.array([1.5], np.float16)), "Spark does not read half floats"),
    ],
)
def test_types_that_a_reader_takes_wrong_are_refused_with_a_remedy_that_works(
    lake, put, column, reason
) -> None:
    put(pa.table({"c": column}))

    with pytest.raises(
        SchemaMismatchError, match=f"'t/0.parquet' cannot be adopted.*{reason}"
    ) as caught:
        lake.adopt("t")

    (command,) = re.findall("`(.*)`", caught.value.hint)
    eval(command, {"pyarrow": pa, "repository": lake})
    assert lake["t-copy"].arrow().column("c").to_pylist() == column.to_pylist()


def test_a_type_that_datasets_lack_is_refused_by_its_file(lake, put) -> None:
    fits = pa.table({"n": [1]})
    put(fits, fits.append_column("c", pa.array([D(1)], pa.decimal256(50, 2))))

    with pytest.raises(InvalidInputError, match=r"'t/1.parquet' cannot be adopted: Unsupported"):
        lake.adopt("t")


TYPED = {
    "text": pa.array(["a"]),
    "number": pa.array([7]),
    "list": pa.array([["a"]]),
    "struct": pa.array([{"a": 1}]),
}
EMPTY = {
    "top": pa.nulls(2),
    "list": pa.array([[], [None]], pa.list_(pa.null())),
    "struct": pa.array([{"a": None}, None], pa.struct([("a", pa.null())])),
}


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    ("kind", "depth"), [*((kind, "top") for kind in TYPED), ("list", "list"), ("struct", "struct")]
)
def test_a_column_without_values_in_one_file_is_taken(lake, put, kind, depth, is_first) -> None:
    empty, typed = pa.table({"c": EMPTY[depth]}), pa.table({"c": TYPED[kind]})
    put(*((empty, typed) if is_first else (typed, empty)))

    adopted = lake.adopt("t")

    rows = adopted.arrow().column("c").to_pylist()
    assert sorted(map(str, rows)) == sorted(
        map(str, [*TYPED[kind].to_pylist(), *EMPTY[depth].to_pylist()])
    )
    assert troubles(adopted) == []


@pytest.mark.parametrize("is_first", [True, False])
def test_files_of_narrower_numbers_are_taken_beside_wider_ones(lake, put, is_first) -> None:
    narrow = pa.table({"n": pa.array([1], pa.int32()), "x": pa.array([1.5], pa.float32())})
    wide = pa.table({"n": [2**40], "x": [2.1]})
    put(*((narrow, wide) if is_first else (wide, narrow)))

    adopted = lake.adopt("t")

    assert sorted(adopted.arrow().column("n").to_pylist()) == [1, 2**40]
    assert sorted(adopted.arrow().column("x").to_pylist()) == [1.5, 2.1]
    assert adopted.where("n = 1").count() == 1


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (NARROW["uint8"], 255),
        (NARROW["uint16"], 65535),
        (NARROW["fixed bytes"], b"abcd"),
        (NARROW["decimal32"], D("1.5")),
        (NARROW["decimal256"], D("1.5")),
    ],
)
def test_narrow_columns_are_filtered(lake, put, column, value) -> None:
    put(pa.table({"c": column}))
    adopted = lake.adopt("t")

    for op, count in {"==": 1, "!=": 1, "in": 1}.items():
        given = [value] if op == "in" else value
        assert adopted.where([[("c", op, given)]]).count() == count


def test_decimals_of_fewer_digits_are_taken_beside_longer_ones(lake, put) -> None:
    short = pa.table({"d": pa.array([D("1.25")], pa.decimal128(9, 2))})
    long = pa.table({"d": pa.array([D("99999999999.25")], pa.decimal128(18, 2))})
    put(short, long)

    adopted = lake.adopt("t")

    assert sorted(adopted.arrow().column("d").to_pylist()) == [D("1.25"), D("99999999999.25")]
    assert adopted.where("d = 1.25").count() == 1


# --- UUIDs

UUIDS = [uuid.UUID(int=7), None]
OF_UUIDS = pa.ExtensionArray.from_storage(
    pa.uuid(), pa.array([None if one is None else one.bytes for one in UUIDS], pa.binary(16))
)
SHAPES_OF_UUIDS = {
    "top": OF_UUIDS,
    "struct": pa.StructArray.from_arrays([OF_UUIDS], names=["u"]),
    "list": pa.ListArray.from_arrays([0, 1, 2], OF_UUIDS),
    "map": pa.MapArray.from_arrays([0, 1, 2], pa.array(["a", "b"]), OF_UUIDS),
}


@pytest.mark.parametrize("has_arrow_schema", [True, False])
@pytest.mark.parametrize("shape", SHAPES_OF_UUIDS)
def test_uuids_in_files_are_texts_and_never_their_bytes(lake, put, shape, has_arrow_schema) -> None:
    table = pa.table({"c": SHAPES_OF_UUIDS[shape], "n": [1, 2]})
    home = put(table, store_schema=has_arrow_schema)
    lake.write("written", table)
    wanted = lake["written"].arrow()
    assert str(UUIDS[0]) in str(wanted["c"][0].as_py())

    loaded = lake.create("loaded", lakebed.infer_schema(home / "0.parquet"))
    loaded.load(home / "0.parquet", options=lakebed.LoadOptions(fail_on_rejects=True))

    assert loaded.arrow() == wanted
    with pytest.raises(SchemaMismatchError, match="'c' is of type UUID") as refused:
        lake.adopt("t")
    words = re.search("`lakebed (.*)`", refused.value.hint)[1].split()
    answer = CliRunner().invoke(main, words)
    assert answer.exit_code == 0, answer.output
    assert lake["t_copy"].arrow().select(["c", "n"]) == wanted

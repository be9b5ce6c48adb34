"""Schemas from files: the narrowest types that hold every row."""

import csv
import datetime as dt
import io
import json
import math
from decimal import Decimal

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import CsvOptions, DatasetDescriptor, LoadOptions, infer_schema
from lakebed.arrow.reading import dialect, sniffing
from lakebed.arrow.reading.column_types import TextColumn
from lakebed.arrow.reading.files import find_any_files
from lakebed.arrow.reading.inference import find_notation, inspect_files
from lakebed.arrow.reading.texts import BOOLEANS, NOTATIONS, NULL_WORDS, kind_of_text
from lakebed.errors import (
    InvalidInputError,
    InvalidNameError,
    LakebedWarning,
    SchemaMismatchError,
)
from lakebed.model.schema import Kind


@pytest.fixture
def write(tmp_path):
    def write(name: str, text: str):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return write


def types(schema) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "-2", "0"], "long"),
        (["1", "-9223372036854775808"], "long"),
        (["9223372036854775808"], "string"),
        (["1", "-2.5", "1e-3", ".5", "6."], "double"),
        (["9007199254740993", "0.5"], "string"),
        (["0.12345678901234567890123"], "string"),
        (["1e999"], "string"),
        (["1e-999"], "string"),
        (["007", "1"], "string"),
        (["+1"], "string"),
        (["1", "one"], "string"),
        (["true", "false"], "boolean"),
        (["true", "FALSE", "True"], "boolean"),
        (["true", "1"], "string"),
        (["true", "yes"], "string"),
        (["1E5", "2"], "string"),
        (["0x1F", "2"], "string"),
        (["NA", "1", "-"], "long"),
        (["NA", "x"], "string"),
        (["31.12.2024", "1.2.2024"], "date"),
        (["1/2/2024", "3/4/2024"], "string"),
        (["1/2/2024", "13/4/2024"], "date"),
        (["2024-01-01 10:00:00 UTC", "2024-01-01T10:00:00+0100"], "timestamp"),
        (["2013-06-01", "1969-12-31"], "date"),
        (["2013-06-31"], "string"),
        (["2013-06-01", "2013-06-01T12:30:00.5Z", "2013-06-01 12:30"], "timestamp"),
        (["2013-06-01T12:30:00.0000005"], "string"),
        (["2013-06-01", "1"], "string"),
        (["", ""], "string"),
        (["", "1"], "long"),
        ([" 1"], "long"),
        (['""', "1"], "long"),
    ],
)
def test_column_of_csv_has_the_narrowest_type_that_holds_all(write, cells, expected) -> None:
    path = write("a.csv", "x,y\n" + "".join(f"{cell},0\n" for cell in cells))

    assert types(infer_schema(path))["x"] == expected


def test_type_comes_from_all_rows_not_from_the_first(write) -> None:
    path = write("a.csv", "x\n" + "1\n" * 20_000 + "last\n")

    assert types(infer_schema(path)) == {"x": "string"}
    assert types(infer_schema(path, rows=100)) == {"x": "long"}
    assert types(infer_schema(path, rows=0)) == {"x": "string"}


def test_fields_are_nullable_unless_required(write) -> None:
    path = write("a.csv", "a,b\n1,2\n1,\n")

    assert [field.nullable for field in infer_schema(path)] == [True, True]
    assert [field.nullable for field in infer_schema(path, require=["a"])] == [False, True]
    with pytest.raises(SchemaMismatchError, match=r"'b' is null.*line 3"):
        infer_schema(path, require=["b"])
    with pytest.raises(SchemaMismatchError, match="'c'"):
        infer_schema(path, require=["c"])


def test_options_of_csv_are_heeded(write) -> None:
    path = write("a.csv", "1;NA\n2;3\n")

    schema = infer_schema(path, csv=CsvOptions(has_header=False, delimiter=";", null_text="NA"))

    assert types(schema) == {"field_1": "long", "field_2": "long"}


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.jsonl", '{"dep.delay": 1}\n', "dep_delay"),
        ("a.jsonl", '{"a": {"dep.delay": 1}}\n', "dep_delay"),
    ],
)
def test_bad_name_comes_with_a_legal_one(write, name: str, text: str, told: str) -> None:
    with pytest.raises(InvalidNameError, match=told):
        infer_schema(write(name, text))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.csv", "", "empty"),
        ("a.csv", "<html><body>no</body>", "HTML"),
        ("a.csv", "PK\3\4", "zip"),
        ("a.csv", "a,b\n1,2\n1,2,3\n", "Line 3: The line has 3 cells, but there are 2 columns"),
        ("a.csv", 'a\n"1\n', "quote"),
        ("a.jsonl", '{"a": 1}\n{"a"\n', "Line 2"),
        ("a.jsonl", "[1]\n", "object"),
        ("a.jsonl", "{}\n", "No object"),
        ("a.jsonl", '{"a": 99999999999999999999}\n', "'a'"),
        ("a.jsonl", '{"a": ' + "[" * 60 + "]" * 60 + "}\n", "deep"),
    ],
)
def test_file_that_cannot_be_read_is_named_with_the_line(write, name, text, told) -> None:
    with pytest.raises(InvalidInputError, match=told) as caught:
        infer_schema(write(name, text))

    assert name in str(caught.value) or told == "No object"


def test_text_of_another_encoding_is_told_with_its_line_and_how_to_convert_it(tmp_path) -> None:
    (tmp_path / "a.csv").write_bytes(b"city,n\nBonn,1\nK\xf6ln,2\n")

    with pytest.raises(SchemaMismatchError, match=r"Line 3: This is not UTF-8.*cp1252"):
        infer_schema(tmp_path / "a.csv", csv=CsvOptions())


def test_objects_lists_and_numbers_of_json(write) -> None:
    path = write(
        "a.jsonl",
        '{"a": 1, "b": {"c": null, "d": [1]}, "e": []}\n'
        '\n{"a": 1.5, "b": {"c": true, "d": [2.5, null]}, "f": {}, "g": "2013-06-01"}\n',
    )

    assert types(infer_schema(path)) == {
        "a": "double",
        "b": "struct<c: boolean, d: list<double>>",
        "e": "list<string>",
        "f": "map<string, string>",
        "g": "string",
    }


def test_conflicting_types_name_the_field_and_both_lines(write) -> None:
    first = write("a.jsonl", '{"x": {"y": [1]}}\n')
    second = write("b.jsonl", '{"z": 1}\n{"x": {"y": ["1"]}}\n')

    with pytest.raises(SchemaMismatchError) as caught:
        infer_schema([first, second])

    message = str(caught.value)
    assert "'x.y[]' is long and string" in message
    assert f"{first}, line 1" in message
    assert f"{second}, line 2" in message


def test_whole_numbers_that_a_double_would_round_are_a_conflict(write) -> None:
    path = write("a.jsonl", '{"x": 9007199254740993}\n{"x": 0.5}\n')

    with pytest.raises(SchemaMismatchError, match=r"'x'.*line 1.*line 2"):
        infer_schema(path)


def test_submissions_have_the_fields_of_the_line_and_of_the_document(write) -> None:
    schema = infer_schema(write("a.tsv", 'u1\t{"n": 1}\nu2\t{"uuid": 5, "s": "x"}\n'))

    assert types(schema) == {"uuid": "string", "document": "string", "n": "long", "s": "string"}
    assert [field.nullable for field in schema][:2] == [True, True]


def test_avro_and_parquet_have_a_schema(tmp_path) -> None:
    pq.write_table(pa.table({"n": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    record = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "float"}]}
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, record, [])

    assert types(infer_schema(tmp_path / "a.parquet")) == {"n": "int"}
    assert types(infer_schema(tmp_path / "a.avro")) == {"n": "float"}
    pq.write_table(pa.table({"m": [1]}), tmp_path / "b.parquet")
    with pytest.raises(SchemaMismatchError, match="different schemas"):
        infer_schema(tmp_path / "*.parquet")


def load_all(path, schema, options=None):
    """Read a file by the schema that was found in it; nothing may be rejected."""
    repository = lakebed.open_repository(f"memory://inference-{path.parent.name}")
    dataset = repository.create("rows", DatasetDescriptor(schema=schema))
    report = dataset.load(path, options=options)
    assert report.rejected_count == 0, list(repository.open("rows_quarantine").kite.reader())
    return list(dataset.kite.reader())


CELLS = st.one_of(
    st.none(),
    st.integers(-(10**20), 10**20).map(str),
    st.floats(allow_nan=True).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.booleans().map(lambda value: str(value).lower()),
    st.dates().map(str),
    st.datetimes().map(str),
    st.datetimes(timezones=st.just(dt.UTC)).map(dt.datetime.isoformat),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=5),
    st.from_regex(r"[-+]?[0-9]{0,3}[.]?[0-9]{0,3}(e[0-9])?", fullmatch=True),
)


def says_the_same(value: object, text: str) -> bool:
    match value:
        case bool():
            return text.lower() == str(value).lower()
        case int():
            return text == str(value)
        case float():
            return math.isclose(float(text), value, rel_tol=0)
        case dt.datetime():
            moment = dt.datetime.fromisoformat(text)
            return value == (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC))
        case dt.date():
            return text == value.isoformat()
    return value == text


@examples(0.5)
@given(
    st.integers(1, 3).flatmap(
        lambda width: st.lists(
            st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=8
        )
    )
)
def test_every_row_of_csv_is_read_without_loss(tmp_path_factory, rows) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    text = io.StringIO()
    names = [f"c{n}" for n in range(len(rows[0]))]
    csv.writer(text, lineterminator="\n").writerow(names)
    for row in rows:
        # The csv module does not tell null and the empty text apart.
        cells = ["" if cell is None else f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row]
        text.write(",".join(cells) + "\n")
    path.write_text(text.getvalue(), encoding="utf-8", newline="")

    schema = infer_schema(path)
    found = load_all(path, schema)

    for read, row in zip(found, rows, strict=True):
        for name, cell in zip(names, row, strict=True):
            value = read[name]
            if value is None and cell is not None:  # a word for null, in a column of another type
                assert cell.strip() in {"", *NULL_WORDS}
                assert str(schema.get(name).type) != "string"
                continue
            assert (value is None) == (cell is None)
            assert cell is None or says_the_same(value, cell), (value, cell)


LATE = [
    *("7", "-3", "007", "-007", "0x1F", "-0x1F", "-0", "+5", "1", "0", " 8 ", "9007199254740993"),
    *("00.5", "0.5", ".5", "5.", "1e-7", "1E5", "1.5E3", "0.30000000000000004", "inf", "nan"),
    *("0.12345678901234567890", "-123456789012345678.5", "-0.0000001234567890123456", "1e999"),
    *("true", "True", "FALSE", "1_000", "x"),
]


@pytest.mark.parametrize("first", ["12", "0.25", "false"])
def test_a_number_that_comes_later_is_kept_as_it_is_written_or_rejected(write, first) -> None:
    path = write(
        "a.csv", f"id,c\n0,{first}\n" + "".join(f"{n},{t}\n" for n, t in enumerate(LATE, 1))
    )

    found = inspect_files(find_any_files([path]), None, rows=1)
    lake = lakebed.open_repository(f"memory://late-{first}")
    dataset = lake.create("rows", DatasetDescriptor(schema=found.schema))
    report = dataset.load(path, options=LoadOptions(csv=found.csv, max_rejects=1.0))

    values = {row["id"]: row["c"] for row in dataset.kite.reader() if row["id"]}
    assert len(values) + report.rejected_count == len(LATE)
    texts = {number: LATE[number - 1].strip() for number in values}
    if first == "false":
        assert set(texts.values()) == {"true", "True", "FALSE"}
        return
    large = {"9007199254740993"} if first == "0.25" else set()
    usual = {Kind.LONG, Kind.DOUBLE} if first == "0.25" else {Kind.LONG}
    plain = {text.strip() for text in LATE if kind_of_text(text.strip()) in usual}
    words = {"inf", "nan"} if first == "0.25" else set()
    assert set(texts.values()) == (plain - large) | words
    for number, text in texts.items():
        assert text in words or Decimal(text) == Decimal(repr(values[number]))


def documents(depth: int):
    """One shape of object, of which each has some of the fields."""
    leaf = st.sampled_from(
        [
            st.integers(-(2**63), 2**63 - 1),
            st.floats(allow_nan=False, allow_infinity=False) | st.integers(-1000, 1000),
            st.booleans(),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
            st.none(),
        ]
    )
    if depth:
        inner = documents(depth - 1)
        leaf = leaf | inner | inner.map(lambda one: st.lists(one | st.none(), max_size=3))
    names = st.sampled_from(["a", "b", "c", "from", "_x", "9"])
    return st.dictionaries(names, leaf, min_size=1, max_size=3).map(
        lambda shape: st.fixed_dictionaries(
            {}, optional={name: one | st.none() for name, one in shape.items()}
        )
    )


@examples(0.5)
@given(documents(2).flatmap(lambda shape: st.lists(shape, min_size=1, max_size=5)))
def test_every_object_is_read_without_loss(tmp_path_factory, objects) -> None:
    path = tmp_path_factory.mktemp("json") / "a.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in objects), encoding="utf-8")
    if not any(objects):
        with pytest.raises(SchemaMismatchError):
            infer_schema(path)
        return

    found = load_all(path, infer_schema(path))

    for one, row in zip(objects, found, strict=True):
        assert without_nulls(row) == without_nulls(one)


def without_nulls(value):
    """A missing field reads as null, and an object of none of its fields as one of nulls."""
    match value:
        case dict():
            return {k: without_nulls(v) for k, v in value.items() if v is not None}
        case list():
            return [without_nulls(one) for one in value]
    return value


MISFITS = {
    "a.csv": "a,b\n1,2\n3\n4,5\n6,7,8\n9,9\n",
    "a.jsonl": '{"a": 1, "b": 2}\n{"a"\n{"a": 4, "b": 5}\n[6]\n{"a": 9, "b": 9}\n',
}


@pytest.mark.parametrize("name", MISFITS)
def test_lines_that_are_not_rows_are_left_out_and_reported(write, name) -> None:
    path = write(name, MISFITS[name])

    with pytest.warns(LakebedWarning, match=r"2 lines of 5 are not rows.*--quarantine") as caught:
        schema = infer_schema(path)

    assert [(field.name, str(field.type)) for field in schema] == [("a", "long"), ("b", "long")]
    assert name in str(caught[0].message)
    assert infer_schema(path, unfit="skip") == schema
    with pytest.raises(InvalidInputError, match=r"(Line|line) [23]"):
        infer_schema(path, unfit="error")


@pytest.mark.parametrize("name", MISFITS)
def test_lines_that_are_mostly_not_rows_are_an_error(write, name) -> None:
    bad = MISFITS[name].splitlines()[2 if name == "a.csv" else 1]

    with pytest.raises(InvalidInputError, match=name):
        infer_schema(write(name, MISFITS[name] + f"{bad}\n"))


@pytest.mark.parametrize(
    "cells",
    [
        ["1", "2", "3", "x"],
        ["1", "2.5", "3", "x"],
        ["2013-01-01", "2013-01-02T00:00:00", "2013-01-03", "soon"],
        ["true", "false", "true", "maybe"],
        ["1", "1", "1", "007"],
    ],
)
@pytest.mark.parametrize("unfit", ["report", "skip", "error"])
def test_a_column_whose_type_one_value_does_not_have_is_text(write, cells, unfit) -> None:
    path = write("a.csv", "a,b\n" + "".join(f"{cell},0\n" for cell in cells))

    assert str(infer_schema(path, unfit=unfit).get("a").type) == "string"


def text_values() -> st.SearchStrategy[list[str | None]]:
    """Return columns of CSV: mostly values of one or two kinds, with words among them."""
    days = st.dates(dt.date(900, 1, 1)).map(str) | st.sampled_from(["2024-02-30", "2023-02-29"])
    times = st.datetimes(dt.datetime(1000, 1, 1)).map(lambda time: f"{time:%Y-%m-%dT%H:%M:%S}")
    kinds = [
        st.integers(-(10**19), 10**19).map(str),
        st.integers(0, 99).map("{:04}".format),
        st.floats(-1e9, 1e9).map("{:.4f}".format),
        st.integers(0, 10**7).map("{:,}".format),
        st.integers(0, 10**6).map(lambda n: f"{n / 100:.2f}".replace(".", ",")),
        days,
        times | times.map("{}Z".format) | times.map(lambda text: text.replace(":59", ":60")),
        st.dates(dt.date(1990, 1, 1)).map("{:%d.%m.%Y}".format),
        st.integers(0, 999).map("note {}".format) | st.text(max_size=3),
    ]
    words = st.sampled_from([None, "", " ", "\u00a0NA", *NULL_WORDS, *BOOLEANS])
    return st.lists(st.sampled_from(kinds), min_size=1, max_size=2).flatmap(
        lambda chosen: st.lists(
            st.one_of(*chosen, *chosen, *chosen, words), min_size=1, max_size=200, unique=True
        )
    )


@examples(1)
@given(text_values())
def test_a_column_is_the_same_looked_at_in_one_go_and_value_by_value(values) -> None:
    by_value, at_once = TextColumn(NULL_WORDS), TextColumn(NULL_WORDS)

    for value in values:
        by_value.add(pa.chunked_array([pa.array([value], pa.string())]), [], "a.csv")
    at_once.add(pa.chunked_array([pa.array(values, pa.string())]), [], "a.csv")

    for column in (by_value, at_once):
        column.null_at = "somewhere" if column.null_at else ""
    for notation in NOTATIONS:
        kind = at_once.kind(notation)
        assert kind == by_value.kind(notation)
        assert at_once.proves(notation) == by_value.proves(notation)
        assert at_once.notes(kind) == by_value.notes(kind)
    assert at_once.words == by_value.words
    assert at_once.date_format == by_value.date_format
    assert at_once.days == by_value.days
    assert at_once.is_local == by_value.is_local


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_a_notation_that_is_given_is_not_searched_for(write, name, monkeypatch) -> None:
    files = find_any_files(write(name, '{"a": "1"}\n'), None)
    format_ = "csv" if name.endswith("csv") else "json"
    parts = dialect.parts_of(CsvOptions() if format_ == "csv" else lakebed.JsonOptions())
    for search in ("sniff_csv", "_json_notation", "_encoding_of"):
        monkeypatch.delattr(sniffing, search)

    found = find_notation(files, format_, **{format_: parts}, is_known={format_})

    assert dialect.parts_of(getattr(found, format_)) == parts


def test_of_files_with_one_header_all_have_the_notation_of_the_first(tmp_path) -> None:
    for number in range(3):
        rows = "".join(f'{i};"a;b";{i / 8}\n' for i in range(300))
        (tmp_path / f"{number}.csv").write_text(f"n;text;share\n{rows}", encoding="utf-8")

    found = find_notation(find_any_files(tmp_path, None), None)

    assert found.csv == CsvOptions(delimiter=";")


def test_another_notation_below_the_same_header_is_an_error(write, tmp_path) -> None:
    write("0.csv", "a,b\n" + "1,2\n" * 50)
    write("1.csv", "a,b\n" + "1;2;3\n" * 50)

    with pytest.raises(InvalidInputError, match=r"1\.csv"):
        find_notation(find_any_files(tmp_path, None), None)

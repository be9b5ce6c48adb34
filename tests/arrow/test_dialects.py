"""A table that is written in any notation is read as it was, or refused."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
import lzma
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import CsvOptions, JsonOptions
from lakebed.arrow.reading import json_records
from lakebed.arrow.reading.files import Line, RawFile
from lakebed.arrow.reading.json_records import objects_of
from lakebed.arrow.reading.rows import read_rows
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import Field, Kind, Primitive, Schema


def described(**kinds: Kind) -> DatasetDescriptor:
    fields = (Field(name=name, type=Primitive(kind)) for name, kind in kinds.items())
    return DatasetDescriptor(schema=Schema(fields=tuple(fields)))


def rows_of(path: Path, format_: str, descriptor: DatasetDescriptor, **options: object) -> list:
    file = RawFile(location=str(path), size_bytes=path.stat().st_size)
    return read_rows([file], format_, descriptor, **options).read_all().to_pylist()


def write_cell(text: str | None, csv: CsvOptions) -> str:
    """Write a cell as the producers of a notation do."""
    if text is None:
        return ""
    signs = (csv.delimiter, "\n", "\r")
    if csv.quote:
        if csv.escape:
            inside = text.replace(csv.escape, csv.escape * 2)
            inside = inside.replace(csv.quote, csv.escape + csv.quote)
        else:
            inside = text.replace(csv.quote, csv.quote * 2)
        return f"{csv.quote}{inside}{csv.quote}"
    if csv.escape:
        for sign in (csv.escape, *signs[:2]):
            text = text.replace(sign, csv.escape + sign)
    return text


letters = st.text(st.sampled_from("aé€ 1,;|\t\"'\\#\n.😀"), max_size=6)
dialects = st.builds(
    CsvOptions,
    delimiter=st.sampled_from([",", ";", "\t", "|", "^", "§"]),
    quote=st.sampled_from(['"', "'"]),
    escape=st.sampled_from(["", "\\"]),
    skip=st.integers(0, 2),
    comment=st.sampled_from(["", "#"]),
    trim=st.booleans(),
    encoding=st.sampled_from(["utf-8", "utf-16", "utf-16-be", "utf-32"]),
    ragged=st.sampled_from(["reject", "fill"]),
)


@given(csv=dialects, rows=st.lists(st.tuples(letters, st.none() | letters), max_size=5))
def test_a_table_comes_back_from_any_notation(tmp_path_factory, csv: CsvOptions, rows) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    lines = ["Report, of; a| day"] * csv.skip + [csv.delimiter.join(("x", "y"))]
    for row in rows:
        if csv.comment:
            lines.append(f'{csv.comment} a "remark')
        lines.append(csv.delimiter.join(write_cell(text, csv) for text in row))
    path.write_bytes("".join(f"{line}\n" for line in lines).encode(csv.encoding))

    read = rows_of(path, "csv", described(x=Kind.STRING, y=Kind.STRING), csv=csv)

    assert [(row["x"], row["y"]) for row in read] == rows


@given(rows=st.lists(st.tuples(letters.filter(bool), letters.filter(bool)), max_size=5))
def test_a_table_without_quotes_comes_back_by_its_escapes(tmp_path_factory, rows) -> None:
    csv = CsvOptions(delimiter="\t", quote="", escape="\\", null_text="\\N")
    path = tmp_path_factory.mktemp("csv") / "a.tsv"
    lines = ["x\ty", *("\t".join(write_cell(text, csv) for text in row) for row in rows), "1\t\\N"]
    path.write_text("\n".join(lines), newline="")

    read = rows_of(path, "csv", described(x=Kind.STRING, y=Kind.STRING), csv=csv)

    assert [(row["x"], row["y"]) for row in read] == [*rows, ("1", None)]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("quote", ['"', "'"])
def test_every_line_end_is_read(tmp_path, line_end: str, quote: str) -> None:
    (tmp_path / "a.csv").write_text(
        line_end.join(["x,n", f"{quote}a,b{quote},1", "c,2", ""]), newline=""
    )
    csv = CsvOptions(quote=quote, line_end="\r" if line_end == "\r" else "\n")

    read = rows_of(tmp_path / "a.csv", "csv", described(x=Kind.STRING, n=Kind.LONG), csv=csv)

    assert [tuple(row.values()) for row in read] == [("a,b", 1), ("c", 2)]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("cp1252", "José “5” €"), ("latin-1", "Zürich"), ("shift_jis", "東京"), ("utf-16-le", "Ω")],
)
def test_text_of_an_encoding_is_read(tmp_path, encoding: str, text: str) -> None:
    (tmp_path / "a.csv").write_bytes(f"x\n{text}\nb\n".encode(encoding))

    read = rows_of(
        tmp_path / "a.csv", "csv", described(x=Kind.STRING), csv=CsvOptions(encoding=encoding)
    )

    assert [row["x"] for row in read] == [text, "b"]


def test_every_byte_has_a_meaning_in_cp1252_and_comes_back(tmp_path) -> None:
    signs = bytes(n for n in range(32, 256) if n not in b'",')
    (tmp_path / "a.csv").write_bytes(b"x\n" + signs + b"\n")

    (row,) = rows_of(
        tmp_path / "a.csv", "csv", described(x=Kind.STRING), csv=CsvOptions(encoding="cp1252")
    )

    assert len(set(row["x"])) == len(signs)


@pytest.mark.parametrize("encoding", ["utf-8", "shift_jis", "utf-16-le"])
def test_bytes_that_are_no_text_cost_their_line_alone(tmp_path, encoding: str) -> None:
    bad = {"utf-8": b"\xff", "shift_jis": b"\xfd\xfd", "utf-16-le": b"\x00\xd8"}[encoding]
    data = [line.encode(encoding) for line in ("x\n", "a\n", "b", "\n", "c\n")]
    (tmp_path / "a.csv").write_bytes(b"".join([*data[:3], bad, *data[3:]]))
    lake = lakebed.open_repository(f"memory://no-text-{encoding}")
    dataset = lake.create("t", described(x=Kind.STRING))

    report = dataset.load(
        tmp_path / "a.csv", options=lakebed.LoadOptions(csv=CsvOptions(encoding=encoding))
    )

    assert (report.row_count, report.rejected_count) == (2, 1)
    assert [row["line_number"] for row in lake["t_quarantine"].pandas().to_dict("records")] == [3]


@pytest.mark.parametrize(
    ("compress", "suffix"),
    [
        (gzip.compress, ".csv"),
        (bz2.compress, ".csv"),
        (lzma.compress, ".txt"),
        (bytes, ".csv.gz"),
        (bytes, ".csv.xz"),
        (gzip.compress, ".csv.zst"),
    ],
)
def test_the_first_bytes_show_the_compression_whatever_the_suffix(tmp_path, compress, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(compress(b"x\na\nb\n"))

    read = rows_of(path, "csv", described(x=Kind.STRING))

    assert [row["x"] for row in read] == ["a", "b"]


@pytest.mark.parametrize(
    ("kind", "csv", "cells", "values"),
    [
        (Kind.LONG, {}, ["5", '""', "", '" 7"'], [5, None, None, 7]),
        (Kind.LONG, {"nulls": ["NA", "-"]}, ["5", "NA", "-", "7"], [5, None, None, 7]),
        (Kind.DOUBLE, {"nulls": ["NaN"]}, ["1.5", "NaN"], [1.5, None]),
        (Kind.STRING, {"nulls": ["NA"]}, ["NA", '""', ""], ["NA", "", None]),
        (Kind.STRING, {"null_text": "NA"}, ["NA", '"NA"'], [None, "NA"]),
        (Kind.DOUBLE, {"decimal": ",", "thousands": "."}, ['"1.234,50"', '"2,75"'], [1234.5, 2.75]),
        (Kind.LONG, {"thousands": ","}, ['"12,345,678"', "999"], [12345678, 999]),
    ],
)
def test_texts_have_the_meaning_that_the_notation_gives_them(tmp_path, kind, csv, cells, values):
    (tmp_path / "a.csv").write_text(
        "".join(f"{n},{cell}\n" for n, cell in enumerate(["x", *cells]))
    )

    read = rows_of(
        tmp_path / "a.csv", "csv", described(**{"0": Kind.LONG, "x": kind}), csv=CsvOptions(**csv)
    )

    assert [row["x"] for row in read] == values


@pytest.mark.parametrize("kind", [Kind.LONG, Kind.DOUBLE, Kind.TIMESTAMP, Kind.DATE, Kind.BOOLEAN])
@pytest.mark.parametrize("beside", ["1", '""'])
def test_an_empty_cell_in_quotes_is_null_but_in_a_text(tmp_path, kind: Kind, beside: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f'a,t,n\n"","",{beside}\n')

    (row,) = rows_of(path, "csv", described(a=kind, t=Kind.STRING, n=Kind.LONG))

    assert (row["a"], row["t"]) == (None, "")


@pytest.mark.parametrize(
    ("csv", "cell"),
    [
        ({"decimal": ","}, "1.5"),
        ({"decimal": ",", "thousands": "."}, "1.5"),
        ({"thousands": ","}, '"1,5"'),
        ({"thousands": ","}, '"1,23,4"'),
        ({}, "NA"),
    ],
)
def test_numbers_of_another_notation_are_refused(tmp_path, csv, cell: str) -> None:
    (tmp_path / "a.csv").write_text(f"n,x\n1,{cell}\n")

    with pytest.raises(SchemaMismatchError, match="Line 2"):
        rows_of(
            tmp_path / "a.csv",
            "csv",
            described(n=Kind.LONG, x=Kind.DOUBLE),
            csv=CsvOptions(**csv),
        )


@pytest.mark.parametrize(
    ("format_", "text", "moment"),
    [
        ("%d.%m.%Y %H:%M", "1.2.2024 10:30", "2024-02-01T09:30:00+00:00"),
        ("%m/%d/%Y %I:%M:%S %p", "07/04/2024 01:02:03 PM", "2024-07-04T11:02:03+00:00"),
        ("", "2024-02-01 10:30", "2024-02-01T09:30:00+00:00"),
        ("", "2024-02-01T10:30:00Z", "2024-02-01T10:30:00+00:00"),
        ("", "2024-02-01 10:30:00 UTC", "2024-02-01T10:30:00+00:00"),
        ("", "2024-02-01T10:30:00.5+0100", "2024-02-01T09:30:00.500000+00:00"),
    ],
)
def test_local_times_have_the_declared_format_and_zone(tmp_path, format_, text, moment) -> None:
    (tmp_path / "a.csv").write_text(f"n,at\n1,{text}\n")
    csv = CsvOptions(dates={"at": format_} if format_ else {}, time_zone="Europe/Berlin")

    (row,) = rows_of(tmp_path / "a.csv", "csv", described(n=Kind.LONG, at=Kind.TIMESTAMP), csv=csv)

    assert row["at"].isoformat() == moment


def test_a_time_that_the_clock_skips_is_refused(tmp_path) -> None:
    (tmp_path / "a.csv").write_text("n,at\n1,2024-03-31 02:30:00\n")

    with pytest.raises(SchemaMismatchError, match="Line 2"):
        rows_of(
            tmp_path / "a.csv",
            "csv",
            described(n=Kind.LONG, at=Kind.TIMESTAMP),
            csv=CsvOptions(time_zone="Europe/Berlin"),
        )


def test_ragged_lines_are_filled_on_request_and_cells_beyond_must_be_empty(tmp_path) -> None:
    (tmp_path / "a.csv").write_text("x,y\na\nb,c,,\n")
    descriptor = described(x=Kind.STRING, y=Kind.STRING)

    read = rows_of(tmp_path / "a.csv", "csv", descriptor, csv=CsvOptions(ragged="fill"))
    assert [tuple(row.values()) for row in read] == [("a", None), ("b", "c")]

    (tmp_path / "a.csv").write_text("x,y\na\nb,c,,d\n")
    with pytest.raises(SchemaMismatchError, match="Line 3: The line has 4 cells"):
        rows_of(tmp_path / "a.csv", "csv", descriptor, csv=CsvOptions(ragged="fill"))


@pytest.mark.parametrize(
    "given",
    [
        {"delimiter": ",,"},
        {"quote": "''"},
        {"quote": ","},
        {"escape": '"'},
        {"encoding": "klingon"},
        {"encoding": "rot13"},
        {"skip": -1},
        {"ragged": "drop"},
        {"line_end": "\r\n"},
        {"decimal": ";"},
        {"thousands": "."},
        {"time_zone": "Mars"},
        {"dates": {"a": "%d%d"}},
        {"dates": {"a": "%Y%d%d"}},
        {"dates": {"a": "%d.%m."}},
        {"dates": {"a": "%H:%M"}},
        {"dates": {"a": "%%Y"}},
        {"dates": {"a": "%Y-%Q"}},
        {"dates": {"a": "%"}},
        {"names": {"a": "b.c"}},
    ],
)
def test_a_notation_that_means_nothing_is_refused(given) -> None:
    with pytest.raises(InvalidInputError) as refused:
        CsvOptions(**given)

    assert refused.value.hint


@pytest.mark.parametrize(
    "format_", ["%d.%m.%Y", "%j %y", "%y %I:%M:%S.%f %p %z", "%c", "%a %e, %B%% %Y"]
)
def test_a_format_of_dates_is_one_that_strptime_knows(format_: str) -> None:
    try:
        dt.datetime.strptime(dt.datetime(2024, 2, 3, tzinfo=dt.UTC).strftime(format_), format_)
    except ValueError:
        with pytest.raises(InvalidInputError, match="no format of dates and times"):
            CsvOptions(dates={"a": format_})
    else:
        assert CsvOptions(dates={"a": format_}).dates == {"a": format_}


values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(
    rows=st.lists(st.tuples(st.integers(-9, 9), values), max_size=4),
    form=st.sampled_from(["array", "concatenated", "inside", "lines"]),
    indent=st.none() | st.integers(0, 2),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_objects_come_back_from_any_form_of_json(tmp_path_factory, rows, form, indent, encoding):
    path = tmp_path_factory.mktemp("json") / "a.json"
    objects = [{"n": n, "v": value} for n, value in rows]
    if form == "lines":
        text = "\n".join(map(json.dumps, objects))
    elif form == "concatenated":
        text = "".join(json.dumps(item, indent=indent) for item in objects)
    elif form == "array":
        text = json.dumps(objects, indent=indent)
    else:
        text = json.dumps({"v": [{"n": 0}], "rows": objects, "count": 1}, indent=indent)
    path.write_text(text, encoding=encoding)
    options = JsonOptions(
        records="array" if form == "inside" else form,  # type: ignore[arg-type]
        inside="rows" if form == "inside" else "",
        texts=["v"],
    )

    read = rows_of(path, "json", described(n=Kind.LONG, v=Kind.STRING), json=options)

    assert [row["n"] for row in read] == [n for n, _ in rows]
    for row, (_, value) in zip(read, rows, strict=True):
        assert row["v"] == value if isinstance(value, str | None) else json.loads(row["v"]) == value


@given(
    text=st.lists(
        st.sampled_from(["{", "}", "[", "]", '"', "\\", ",", ":", " ", "\n", "a", "1", "é", "{}"]),
        max_size=30,
    ),
    usual=st.lists(values, max_size=3),
    records=st.sampled_from(["array", "concatenated"]),
    size=st.integers(1, 40),
)
def test_shallow_elements_are_found_as_deep_ones_are(text, usual, records, size) -> None:
    objects = "".join(f"{json.dumps({'v': value})}," for value in usual)
    data = f"[{objects}{''.join(text)}".encode()

    def found() -> list[Line]:
        pieces = (data[at : at + size] for at in range(0, len(data), size))
        return list(objects_of(pieces, JsonOptions(records=records)))  # type: ignore[arg-type]

    at_once = found()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_records, "SHALLOW", re.compile(rb"(?!)"))
        assert at_once == found()


@pytest.mark.parametrize(
    "part", [b'"x"', b'"\\"\\""', b"1", b'{"a":1}'], ids=["text", "escapes", "number", "objects"]
)
def test_a_huge_value_of_json_is_read_in_time_that_grows_with_its_size(part: bytes) -> None:
    def effort(count: int) -> float:
        inner = part[1:-1] * count if part.startswith(b'"') else b""
        value = b'"' + inner + b'"' if inner else b"[" + b",".join([part] * count) + b"]"
        value = part * count if part == b"1" else value
        text = b"[" + value + b"]"
        times = []
        for _ in range(3):
            pieces = (text[at : at + 1_024] for at in range(0, len(text), 1_024))
            begin = time.process_time()
            (line,) = objects_of(pieces, JsonOptions(records="array"))
            times.append(time.process_time() - begin)
            assert line.data == value
        return min(times)

    assert effort(400_000) < 24 * effort(50_000)  # 64 times if the time grows by the square


@pytest.mark.parametrize(
    "text", ['[{"n":1},', '[{"n":1}', '[{"n":1}] {"n":2}', '[{"n":1} {"n":2}]', '{"n":1}']
)
def test_an_array_that_is_cut_or_goes_on_loses_nothing_silently(tmp_path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    dataset = lakebed.open_repository("memory://cut-array").create(
        "t", described(n=Kind.LONG), if_exists="open"
    )

    report = dataset.load(
        tmp_path / "a.json", options=lakebed.LoadOptions(json=JsonOptions(records="array"))
    )

    assert report.rejected_count == 1
    assert report.rest_count == 1


def test_names_of_members_are_mapped_at_any_depth(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"log.level": "info", "a": [{"log.level": 5}]}\n')

    schema = lakebed.infer_schema(
        tmp_path / "a.jsonl", json=JsonOptions(names={"log.level": "level"})
    )
    (row,) = rows_of(
        tmp_path / "a.jsonl",
        "json",
        DatasetDescriptor(schema=schema),
        json=JsonOptions(names={"log.level": "level"}),
    )

    assert row == {"level": "info", "a": [{"level": 5}]}

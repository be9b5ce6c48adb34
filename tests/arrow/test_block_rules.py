"""A case for each rule by which a block vouches for rows, cut into blocks at every place."""

import itertools
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from nasty_files import FLAT, NESTED, NastyFiles
from reading_twice import files_in, open_block_reader, open_line_reader, read_file

from lakebed import CsvOptions
from lakebed.arrow.reading import csv
from lakebed.arrow.reading.cells import Splitter
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import MISSING, Field, Schema

MARK = b"\xef\xbb\xbf"


def lines_of(form: bytes, values: bytes) -> bytes:
    """Return a line for each value, between lines of a good one, the first."""
    first, *others = values.split(b" ")
    return b"".join(form % value + b"\n" + form % first + b"\n" for value in others)


AT = b'"t":"0001-01-01T00:00:00+02:00"'
# Format, fields (`!` for a required one, `=` for a default), rule for others, content.
CASES = {
    "quote of the last line": ("csv", "s l", "reject", b's,l\na,1\n"b\nc",2\nd,3\n'),
    "as many rows as newlines": ("csv", "s l", "reject", b's,l\n"a\nb",1\nc\nd,2\n'),
    "blank line in quotes": ("csv", "s l", "reject", b's,l\n"a\n\nb",1\n\nc,2\n'),
    "not UTF-8": ("csv", "s l", "reject", b"s,l\n\xff,1\nx\ny,2\n"),
    "lone carriage return": ("csv", "s l", "reject", b"s,l\na,1\rb,2\nc,3\n\rd,4\n"),
    "numbers of ragged rows": ("csv", "s l", "reject", b"s,l\na,1\nb\nc,2,3\nd,4\n"),
    "blank lines with CRLF": ("csv", "s l", "reject", b"s,l\r\na,1\r\n\r\nb,x\r\n\r\nc,3\r\n"),
    "quote within a cell": ("csv", "s l", "reject", b's,l\nx "a\nb",1\n5" pipe,2\n"c\nd",3\n'),
    "text after a closing quote": ("csv", "s l", "reject", b's,l\n"a"x,1\n"b"y"\nc,2\n"d\ne",3\n'),
    "open quote at the end": ("csv", "s l", "reject", b's,l\na,1\n"b,2\nc,3'),
    "days of the calendar": (
        "csv",
        "y l",
        "reject",
        b"y,l\n2024-02-30,1\n2024-02-29,x\n2024-02-28,3\n",
    ),
    "required cells": ("csv", "s! l", "reject", b"s,l\n,1\na,x\nb,2\n"),
    "large decimals": ("csv", "m s", "reject", b"m,s\n12345678,a\n1,b\n1234567.25,c\n"),
    "byte order mark": ("csv", "s l", "reject", MARK + b"s,l\na,1\n" + MARK + b"b,2\n"),
    "empty cells in quotes": ("csv", "l s", "reject", b'l,s\n"",a\n1,""\n,b\n'),
    "empty times in quotes": ("csv", "l t", "reject", b'l,t\n"",""\n1,""\n"",\n2,x\n'),
    "header after a blank line": ("csv", "s l", "reject", b"\r\n\ns,l\na,1\nb,x\n"),
    "header before a lone carriage return": ("csv", "s l", "reject", b"s,l\ra,1\nb,2\n"),
    "ragged row not in UTF-8": ("csv", "s l", "reject", b"s,l\n\xff\nx,1\ny,\xff,2\nz,3\n"),
    "quote open at the end of the file": ("csv", "s l", "reject", b's,l\na,1\n"b\nc,3'),
    "blank lines in one column": ("csv", "s", "reject", b's\na\n\n"b\nc"\n\nd\n'),
    "one column": ("csv", "l", "reject", b"l\n1\n\nx\n2\n"),
    "unknown column": ("csv", "l", "ignore", b"l,more\n1,\n2,a\nx,b\n3,c\n"),
    "unknown column to keep": ("csv", "l", "keep", b"l,more\n1,\n2,a\n3,\n"),
    "other members": ("json", "l", "reject", b'{"l":1}\n{"l":2,"m":3}\n{"l":4}\n'),
    "texts in other members": ("json", "l", "reject", b'{"l":1,"m":"x"}\n' * 2 + b'{"l":1}\n'),
    "other members ignored": (
        "json",
        "l",
        "ignore",
        b'{"l":1,"m":1}\n{"l":2,"m":null}\n{"l":3,"m":2}\n',
    ),
    "other members to keep": (
        "json",
        "l",
        "keep",
        b'{"l":1,"m":1}\n{"l":2,"m":[]}\n{"l":3,"m":2}\n',
    ),
    "defaults": ("json", "l=7 s", "reject", b'{"s":"a"}\n{"l":null}\n{"l":1}\n'),
    "overflow of a float": ("json", "f", "reject", b'{"f":1e39}\n{"f":1}\n{"f":-1e39}\n'),
    "first year": ("json", "t", "reject", b"{" + AT + b'}\n{"t":"2024-01-01T00:00:00Z"}\n'),
    "required members": ("json", "l! s", "reject", b'{"s":"a"}\n{"l":null}\n{"l":1}\n'),
    "required members of a record": (
        "json",
        "r",
        "reject",
        b'{"r":{"x":1}}\n{"r":{"w":"a"}}\n{"r":null}\n',
    ),
    "two objects": ("json", "l", "reject", b'{"l":1}{"l":2}\n{"l":3\n}\n{"l":4}\n'),
    "names twice": ("json", "l", "reject", b'{"l":"x","l":1}\n{"l":1,"l":2}\n'),
    "mark before an object": ("json", "l", "reject", MARK + b'{"l":1}\n' + MARK + b'{"l":2}\n'),
    "numbers of other forms": (
        "json",
        "l d",
        "reject",
        b'{"l":1.0,"d":1}\n{"l":-0,"d":-0}\n{"l":1e2}\n',
    ),
    "blank lines": ("json", "l", "reject", b'\n{"l":1}\n  \r\n{"l":x}\n\t\n{"l":2}'),
    "end inside of an object": ("json", "l s", "reject", b'{"l":1}\n{"l":2,"s":"a'),
    "members in another order": (
        "json",
        "l i",
        "reject",
        b'{"l":1,"i":2}\n{"i":3,"l":4}\n{"l":5,"i":6}\n{"l":7,"l":8}\n{"l":9,"i":1]\n',
    ),
    "required literals": ("json", "l! b!", "reject", b'{"l":1,"b":true}\n{"l":null,"b":true}\n'),
    "texts with escapes": (
        "json",
        "s l",
        "reject",
        b'{"s":"a","l":1}\n{"s":"\\n","l":2}\n{"s":"\\"","l":3}\n{"s":"","l":4}\n{"s":"\\q","l":5}\n',
    ),
    "texts with control characters": (
        "json",
        "s",
        "reject",
        b'{"s":"a"}\n{"s":"\t"}\n{"s":"\r"}\n{"s":"\x00"}\r\n{"s":"\x7f"}\n{\t"s":"b"}\n{"s":"c"}\r',
    ),
    "lines that end in a carriage return": (
        "json",
        "s l",
        "reject",
        b'{"s":"a","l":1}\r\n{"s":"b","l":x}\r\n' * 2,
    ),
    "texts not in UTF-8": ("json", "s", "reject", b'{"s":"a"}\n{"s":"\xff"}\n{"s":"\xc3\xa9"}\n'),
    "null for a text or a time": (
        "json",
        "s t n y!",
        "reject",
        b'{"s":null,"t":null,"n":null,"y":"2024-01-01"}\n' * 2
        + b'{"s":nulp,"t":null,"n":null,"y":"2024-01-01"}\n{"s":null,"t":null,"n":null,"y":null}\n',
    ),
    "times that do not fit": (
        "json",
        "t y",
        "reject",
        lines_of(
            b'{"t":"%b","y":"2024-01-01"}',
            b"2024-01-01T00:00:00Z 2024-02-30T00:00:00Z x 2024-01-01T00:00:00.123456789Z 0000-01-01T00:00:00Z",
        )
        + b'{"t":"2024-01-01T00:00:00Z","y":"2024-02-30"}\n',
    ),
    "numbers as texts": (
        "json",
        "l d",
        "reject",
        b'{"l":1,"d":1.5}\n{"l":"1","d":1}\n{"l":1,"d":"1"}\n',
    ),
    "members that are left out": (
        "json",
        "l=7 s d",
        "reject",
        b'{"s":"a"}\n{"s":"b"}\n{"l":1}\n{"d":2,"s":"c"}\n{}\n{"s":null,"l":null}\n',
    ),
    "space between members": (
        "json",
        "l s",
        "reject",
        b'{"l": 1, "s": "a"}\n{"l": 2, "s": "b"}\n{"l":3,"s":"c"}\n{"l": 4 ,"s": "d"}\n { "l" : 5 } \n',
    ),
    "no value between spaces": (
        "json",
        "l s",
        "reject",
        b'{"l": 1 ,"s":"a"}\n{"l": ,"s":"b"}\n{"l": 2 ,"s":"c"}\n',
    ),
    "short last line": ("json", "l document", "reject", b'{"l":1,"document":"a"}\n{"l":1,"":"a"}'),
    "quotes and tabs beside an object": (
        "submissions",
        "uuid! document! l s",
        "reject",
        b'a\t{"l":1,"s":"x"}\n"b"\t{"l":2,"s":"y"}\nc\t{"l":3,"s":"\t"}\nd\t\t{"l":4,"s":"z"}\n'
        b'\xc3\xa9\t{"l":5,"s":"v"}\r\n\t{"l":6,"s":"w"}\ne{"l":7,"s":"w"}\t\nf\r\t{"l":8,"s":"u"}\n',
    ),
    "further members of a document": (
        "submissions",
        "document! l",
        "reject",
        b'a\t{"m":"x","l":1}\nb\t{"m":"y","l":2}\nc\t{"m":1e999,"l":3}\nd\t{"m":01,"l":4}\n'
        b'e\t{"m":"\\ud800","l":5}\nf\t{"m":"x","m":"y","l":6}\ng\t{"m":[1],"l":7}\n',
    ),
    "carriage return in a uuid": ("submissions", "l", "reject", b'a\r\t{"l":1}\nb\t{"l":2}\r\n'),
    "empty uuid": ("submissions", "l", "reject", b'\t{"l":1}\nb\t{"l":2}\n'),
    "no tab": ("submissions", "l", "reject", b'a{"l":1}\nb\t{"l":2}\n'),
    "carriage return in a document": (
        "submissions",
        "document! l",
        "reject",
        b'a\t{"l":\r1}\nb\t{}\r\n',
    ),
    "document of another kind": (
        "submissions",
        "l",
        "reject",
        b'a\t[1]\nb\t{"l":"x"}\nc\t{"l":1,"m":{}}\n',
    ),
    "submissions not in UTF-8": (
        "submissions",
        "uuid! l",
        "reject",
        b'\xff\t{"l":1}\nb\t{"m":"\xff"}\nc\t{}\n',
    ),
}

# The same with a notation of CSV: fields, rule for others, notation, content.
NOTATIONS = {
    "words in texts": (
        "s l",
        "reject",
        {"nulls": ("NA",)},
        b's,l\na,NA\nNA,1\n,2\n"NA",x\n"",NA\n',
    ),
    "words in quotes": (
        "l t b",
        "reject",
        {"nulls": ("NA",)},
        b'l,t,b\n"NA",NA,"NA"\n1,"NA",NA\n NA ,x,\n',
    ),
    "words for required cells": ("l! s", "reject", {"nulls": ("-",)}, b"l,s\n1,-\n-,a\n2,b\n"),
    "words and a null text": (
        "s l",
        "reject",
        {"nulls": ("NA",), "null_text": "none"},
        b"s,l\nnone,NA\nNA,none\nx,\n",
    ),
    "words in unknown columns": ("l", "ignore", {"nulls": ("NA",)}, b"l,more\n1,NA\nNA,\n2,a\n"),
    "words in columns to keep": ("l", "keep", {"nulls": ("NA",)}, b"l,more\n1,NA\nNA,\n2,\n"),
    "exact numbers beside words": (
        "l d",
        "reject",
        {"nulls": ("NA",), "exact": True},
        b"l,d\n1,NA\nNA,0.5\n007,1\n NA ,2\n3,1E5\n",
    ),
    "days of a format": (
        "y s",
        "reject",
        {"dates": {"y": "%d.%m.%Y"}},
        b"y,s\n01.02.2024,a\n1.2.2024,b\n30.02.2024,c\n2024-02-01,d\n,e\n01.02.0999,f\n",
    ),
    "times of a format": (
        "t n",
        "reject",
        {"dates": {"t": "%d/%m/%Y %H:%M:%S", "n": "%Y%m%d"}},
        b"t,n\n01/02/2024 03:04:05,20240201\n01/02/2024 03:04:60,20240201\n2024-01-01T00:00Z,1\n",
    ),
    "day of a time": (
        "y t",
        "reject",
        {"dates": {"y": "%d/%m/%Y %H:%M", "t": "%d/%m/%Y"}},
        b"y,t\n01/02/2024 03:04,01/02/2024\n2024-02-01,02/02/2024\n,29/02/2024\n",
    ),
    "local times": (
        "t s",
        "reject",
        {"time_zone": "Europe/Berlin"},
        b"t,s\n2024-01-01 00:00:00,a\n2024-03-31 02:30:00,b\n2024-10-27 02:30:00,c\n2024-01-01,d\n",
    ),
    "local times of a format": (
        "t s",
        "reject",
        {"time_zone": "Europe/Berlin", "dates": {"t": "%d.%m.%Y %H:%M"}},
        b"t,s\n01.01.2024 00:00,a\n31.03.2024 02:30,b\n27.10.2024 02:30,c\n1.1.2024 0:00,d\n",
    ),
    "decimal comma": (
        "d m",
        "reject",
        {"decimal": ",", "thousands": ".", "delimiter": ";"},
        b"d;m\n1,5;2,25\n1.234,5;1.234\n1.5;3\n12.34;4\n;5,125\n",
    ),
    "exact numbers with groups": (
        "l d",
        "reject",
        {"thousands": " ", "exact": True},
        b"l,d\n1 234,1 234.5\n007,1\n12 34,2\n5,0.12345678901234567890\n",
    ),
    "lines to fill": (
        "s l",
        "reject",
        {"ragged": "fill"},
        b's,l\na\nb,1,\nc,1,x\n"d",2\n"e\nf"\n"",3,""\n,,\ng,4\n',
    ),
    "lines to fill, required": ("s l!", "reject", {"ragged": "fill"}, b"s,l\na\nb,1,\nc,2\n"),
    "lines to fill in one column": ("l", "reject", {"ragged": "fill"}, b"l\n1,\n\n2\n3,x\n"),
    "mark before a line to fill": (
        "s l",
        "reject",
        {"ragged": "fill"},
        b"s,l\n" + MARK + b"a,1\n" + MARK + b"b\n" + MARK + b",x\nc,2\n",
    ),
}


def fields_of(text: str) -> tuple[Field, ...]:
    types = FLAT | NESTED | {"document": FLAT["s"], "uuid": FLAT["s"]}
    fields = []
    for part in text.split():
        name, _, default = part.removesuffix("!").partition("=")
        given = int(default) if default else MISSING
        nullable = not part.endswith("!")
        fields.append(Field(name=name, type=types[name], nullable=nullable, default=given))
    return tuple(fields)


@pytest.mark.parametrize("name", CASES)
def test_every_cut_into_blocks_gives_what_lines_give(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_format, fields, unknown, content = CASES[name]
    check_cuts(file_format, fields, unknown, CsvOptions(), content, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", NOTATIONS)
def test_every_cut_of_a_notation_gives_what_lines_give(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields, unknown, options, content = NOTATIONS[name]
    check_cuts("csv", fields, unknown, CsvOptions(**options), content, tmp_path, monkeypatch)


def check_cuts(
    file_format: str,
    fields: str,
    unknown: str,
    notation: CsvOptions,
    content: bytes,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    suffix = {"csv": "csv", "json": "jsonl", "submissions": "tsv"}[file_format]
    given = NastyFiles(
        descriptor=DatasetDescriptor(schema=Schema(fields=fields_of(fields))),
        csv=notation,
        unknown=unknown,
        contents={f"rows.{suffix}": content},
    )
    (file,) = files_in(folder, file_format, given)
    expected = read_file(open_line_reader(file_format, given), file, refused_share=3)

    for scale in (1, 4):  # lines of objects are read in blocks of a fourth
        for size in range(1, len(content) + 2, 1 + len(content) // 100):
            monkeypatch.setattr("lakebed.arrow.reading.blocks.BLOCK_BYTES", size * scale)
            monkeypatch.setattr("lakebed.arrow.reading.files.READ_BYTES", 1 + size % 7)
            found = read_file(open_block_reader(file_format, given), file, refused_share=3)
            assert found == expected, size


@pytest.mark.parametrize(
    ("options", "row"),
    [
        ({"nulls": ("NA",)}, b"NA,NA,2024-01-01T00:00:00Z,1.5"),
        ({"dates": {"t": "%d/%m/%Y %H:%M"}}, b"1,a,1/2/2024 3:04,1.5"),
        ({"dates": {"t": "%d.%m.%Y"}, "exact": True}, b"1,a,01.02.2024,1.5"),
        ({"ragged": "fill"}, b"1,a,2024-01-01T00:00:00Z"),
        ({"time_zone": "Europe/Berlin"}, b"1,a,2024-01-01 00:00:00,1.5"),
        ({"decimal": ",", "delimiter": ";"}, b"1;a;2024-01-01T00:00:00Z;1,5"),
    ],
)
def test_files_in_a_usual_notation_are_read_by_blocks(
    options: dict, row: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notation = CsvOptions(**options)
    head = notation.delimiter.encode().join([b"l", b"s", b"t", b"d"])
    given = NastyFiles(
        descriptor=DatasetDescriptor(schema=Schema(fields=fields_of("l s t d"))),
        csv=notation,
        unknown="reject",
        contents={"rows.csv": b"\n".join([head, *[row] * 300, b""])},
    )
    (file,) = files_in(tmp_path, "csv", given)
    monkeypatch.setattr("lakebed.arrow.reading.csv_blocks.grouped", lambda *_: pytest.fail("lines"))

    read = read_file(open_block_reader("csv", given), file)

    assert len(read.rows) == 300
    assert read.rejects == []


# Literals between two good ones: Arrow converts many that JSON does not have, or to another value.
LITERALS = {
    "l": (
        *(
            "01",
            "-1",
            "-0",
            "-01",
            "-",
            "0x1F",
            "-0x1F",
            "1.0",
            "1e2",
            "12a",
            "+1",
            "0",
            "00",
            "1-2",
        ),
        *("nul", "null", "None", "nullnull", "9223372036854775807", "9223372036854775808", '"1"'),
    ),
    "u": ("-1", "-0", "18446744073709551615", "18446744073709551616", "0x1", "01"),
    "i1": ("127", "128", "-128", "-129", "01"),
    "d": (
        *("1.", ".5", "-.5", "1.e5", "1.5e", "-0", "-0.0", "NaN", "nan", "inf", "-inf", "Infinity"),
        *("1e5", "1E5", "1e999", "+1", "--1", "1-1", "-", "00.5", "01.5", "-01.5", "0.25", "1..2"),
        *("1.2.3", "0x1p3", "0x10", "9007199254740993", "0.1000000000000000055511151231257827"),
        *("1" + "0" * 39, "1" + "0" * 40, "1" + "0" * 400, "0." + "0" * 400 + "1", "1_0", "1.-5"),
        *("12345678.1234567", "1.1234567", "1.12345678", "-12345678.5", "/.5", "1./", "1234567:"),
    ),
    "f": ("16777217", "1" + "0" * 39, "1.00000017881393432617187499", "0.1", "-0", "01.0"),
    "b": ("false", "True", "1", "0", "null", "tru", "fals", '"true"', "truefalse"),
    "s": ("null", "nulp", "1", "abc"),
    "t": ("null", "nulp", "1"),
}
GOOD_LITERALS = {"b": "true", "s": "null", "t": "null"}


@pytest.mark.parametrize("is_required", [False, True])
@pytest.mark.parametrize(
    ("name", "literal"), [(name, literal) for name in LITERALS for literal in LITERALS[name]]
)
def test_literals_are_those_of_json(
    name: str, literal: str, is_required: bool, tmp_path: Path
) -> None:
    good = GOOD_LITERALS.get(name, "7")
    content = "".join(f'{{"{name}":{value}}}\n' for value in (good, literal, good)).encode()
    given = NastyFiles(
        descriptor=DatasetDescriptor(schema=Schema(fields=fields_of(name + "!" * is_required))),
        csv=CsvOptions(),
        unknown="reject",
        contents={"rows.jsonl": content},
    )
    (file,) = files_in(tmp_path, "json", given)

    found = read_file(open_block_reader("json", given), file)

    assert found == read_file(open_line_reader("json", given), file)


def test_lines_behind_a_bad_one_are_not_split_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = NastyFiles(
        descriptor=DatasetDescriptor(schema=Schema(fields=fields_of("l s"))),
        csv=CsvOptions(),
        unknown="reject",
        contents={"rows.csv": b"l,s\n" + b"".join(b"1,a\nx%d,b\n" % n for n in range(200))},
    )
    (file,) = files_in(tmp_path, "csv", given)
    split_counts: list[int] = []
    split_plainly = csv.split_plainly

    def count_lines(data: bytes, *args: object) -> pa.Table:
        split_counts.append(data.count(b"\n"))
        return split_plainly(data, *args)

    monkeypatch.setattr(csv, "split_plainly", count_lines)

    read = read_file(open_block_reader("csv", given), file)

    assert [reject.line_number for reject in read.rejects] == [*range(3, 402, 2)]
    assert sum(split_counts) == 200


@pytest.mark.parametrize("notation", [{"skip": 1}, {"trim": True}, {"comment": "#"}])
def test_lines_of_other_notations_behind_a_bad_one_are_split_once_more_at_most(
    notation: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = NastyFiles(
        descriptor=DatasetDescriptor(schema=Schema(fields=fields_of("l s"))),
        csv=CsvOptions(**notation),
        unknown="reject",
        contents={
            "rows.csv": b"x\n" * ("skip" in notation) + b"l,s\n" + b"1,a\n2,b,3\n1,c\n" * 200
        },
    )
    (file,) = files_in(tmp_path, "csv", given)
    records: list[bytes] = []
    split = Splitter.cells

    def count_records(splitter: Splitter, record: bytes) -> list[str | None]:
        records.append(record)
        return split(splitter, record)

    monkeypatch.setattr(Splitter, "cells", count_records)

    read = read_file(open_line_reader("csv", given), file)

    assert (len(read.rows), len(read.rejects)) == (400, 200)
    assert len(records) < 2 * 600


@pytest.mark.parametrize("seed", range(20))
def test_plain_numbers_of_all_lengths_are_those_of_json(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    whole = [rng.randrange(10 ** rng.randint(1, 17)) for _ in range(40)]
    decimals = [
        f"{rng.choice(('', '-'))}{rng.randrange(10 ** rng.randint(1, 9))}"
        f".{rng.randrange(10 ** rng.randint(1, 8))}"
        for _ in range(40)
    ]
    if seed % 2:  # no more digits than are read without a look at each number
        whole = [number % 10**16 for number in whole]
        decimals = [number[:8] + "5" for number in decimals]
    content = "".join(
        f'{{"l":{number},"d":{decimal}}}\n' for number, decimal in zip(whole, decimals, strict=True)
    )
    given = NastyFiles(
        descriptor=DatasetDescriptor(schema=Schema(fields=fields_of("l d"))),
        csv=CsvOptions(),
        unknown="reject",
        contents={"rows.jsonl": content.encode()},
    )
    (file,) = files_in(tmp_path, "json", given)

    found = read_file(open_block_reader("json", given), file)

    assert found == read_file(open_line_reader("json", given), file)
    assert found.rows == [
        repr((str(number), str(float(decimal))))
        for number, decimal in zip(whole, decimals, strict=True)
    ]


def test_numbers_next_to_each_other_are_those_of_json(tmp_path: Path) -> None:
    for name in ("l", "d", "f", "u"):
        pairs = itertools.product(LITERALS[name], LITERALS[name])
        given = NastyFiles(
            descriptor=DatasetDescriptor(schema=Schema(fields=fields_of(name))),
            csv=CsvOptions(),
            unknown="reject",
            contents={
                f"{number}.jsonl": "".join(
                    f'{{"{name}":{value}}}\n' for value in ("7", *pair, "7")
                ).encode()
                for number, pair in enumerate(pairs)
            },
        )
        by_blocks, by_lines = open_block_reader("json", given), open_line_reader("json", given)
        for file in files_in(tmp_path, "json", given):
            assert read_file(by_blocks, file) == read_file(by_lines, file), file.location

"""The law of reading by blocks: rows, types, rejects, line numbers and order are those of lines."""

import datetime as dt
import os
import random
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import fastavro
import pyarrow.csv
import pytest
from nasty_files import FLAT, NESTED, NastyFiles, nasty_files
from reading_twice import (
    check_file,
    files_in,
    open_block_reader,
    open_element_reader,
    open_line_reader,
    plain_rows,
    read_file,
)

from lakebed import CsvOptions, JsonOptions
from lakebed.arrow.documents import is_cut_object
from lakebed.arrow.entities import entities_to_batch
from lakebed.arrow.reading.dialect import parts_of
from lakebed.arrow.reading.files import RawFile, find_files
from lakebed.arrow.reading.inference import Inspection, inspect_files
from lakebed.arrow.reading.lines import JsonReader
from lakebed.arrow.reading.rows import open_reader
from lakebed.errors import LakebedError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import Field, Kind, Primitive, Schema

FORMATS = ("csv", "json", "submissions")
# Blocks of a few lines, and one for the whole file.
SIZES = (1, 40, 200, 1_000, 4 * 2**20)


def check_seed(
    folder: Path, file_format: str, seed: int, patch: pytest.MonkeyPatch
) -> tuple[int, int]:
    """Compare both readers on the files of a seed; return the number of rows and rejects."""
    # A quote that does not end in so many bytes is reported for its line alone.
    most_bytes = (12, 2**20)[bool(seed % 3)]
    for module in ("csv", "csv_blocks"):
        patch.setattr(f"lakebed.arrow.reading.{module}.MAX_RECORD_BYTES", most_bytes)
    given = nasty_files(file_format, seed)
    files = files_in(folder, file_format, given)
    by_lines = open_line_reader(file_format, given)
    share = (0, 7)[seed % 2]
    expected = [read_file(by_lines, file, share) for file in files]
    for size in (SIZES[seed % 4], SIZES[4]):
        patch.setattr("lakebed.arrow.reading.blocks.BLOCK_BYTES", size)
        by_blocks = open_block_reader(file_format, given)
        for file, one in zip(files, expected, strict=True):
            assert check_file(by_blocks, file) == check_file(by_lines, file), (seed, size)
            found = read_file(by_blocks, file, share)
            for part in ("error", "rejects", "rows", "schema", "ignored"):
                assert getattr(found, part) == getattr(one, part), (seed, size, file.location, part)
    for file in files:
        Path(file.location).unlink()
    return sum(len(one.rows) for one in expected), sum(len(one.rejects) for one in expected)


@pytest.mark.parametrize("file_format", FORMATS)
def test_lines_that_are_too_long_come_in_the_same_pieces(
    file_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakebed.arrow.reading.files.MAX_LINE_BYTES", 60)
    monkeypatch.setattr("lakebed.arrow.reading.files.READ_BYTES", 16)

    for seed in range(25):
        check_seed(tmp_path, file_format, seed, monkeypatch)


def inspected(files: Sequence[RawFile], given: NastyFiles, rows: int) -> object:
    """Return what an inspection of files finds, without the first misfit; or the type of its error."""
    csv = parts_of(replace(given.csv, ragged=("reject", "fill")[rows % 2]))
    try:
        inspection = inspect_files(files, "csv", csv=csv, rows=rows)
    except LakebedError as error:
        return type(error)
    remarks = tuple(remark.partition("The first")[0] for remark in inspection.remarks)
    return replace(inspection, remarks=remarks)


def without_lines(found: object) -> object:
    """Return an inspection without the lines of its nulls, which records left out can hide."""
    if not isinstance(found, Inspection):
        return found
    places = {name: place.partition(", line ")[0] for name, place in found.nulls.items()}
    return replace(found, nulls=places)


@pytest.mark.parametrize(
    ("content", "delimiter"),
    [
        (b's\n"a\nb"\nc\n', ","),
        (b's,n\n"x\ny",1\nz,\n', ","),
        (b"s\tn\nx\t1\n\t\nz\t2\n", "\t"),
        (b"s,n\nx,1\n\nz,\n", ","),
        (b"s,n\nx,1\ry,2\nz,\n", ","),
        (b"s,n\nx,1,2\nz,\n", ","),
        (b"s,n\nx,1\n\xff,2\nz,3", ","),
        (b'\xef\xbb\xbfs,n\r\n"x",1\r\nz,\r\n', ","),
        (b'"s\nt",n\nx,1\nz,\n', ","),
    ],
)
def test_an_inspection_by_blocks_counts_the_records_of_lines(
    content: bytes, delimiter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    _, files = find_files([str(path)], "csv")
    given = NastyFiles(
        descriptor=DatasetDescriptor(schema=Schema(fields=(Field(name="s", type=FLAT["s"]),))),
        csv=CsvOptions(delimiter=delimiter),
        unknown="reject",
        contents={},
    )
    with monkeypatch.context() as patch:
        patch.setattr("lakebed.arrow.reading.inference.text_blocks", lambda *_, **__: None)
        by_lines = [inspected(files, given, rows) for rows in (0, 1, 2)]

    for size in (*range(1, len(content)), SIZES[-1]):
        monkeypatch.setattr("lakebed.arrow.reading.blocks.BLOCK_BYTES", size)
        assert [inspected(files, given, rows) for rows in (0, 1, 2)] == by_lines, size


@pytest.mark.parametrize("seed", range(20))
def test_an_inspection_by_blocks_finds_what_one_by_lines_finds(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, rows = nasty_files("csv", seed), (0, 0, 7, 1)[seed % 4]
    files = files_in(tmp_path, "csv", given)
    with monkeypatch.context() as patch:
        patch.setattr("lakebed.arrow.reading.inference.text_blocks", lambda *_, **__: None)
        by_lines = without_lines(inspected(files, given, rows))

    for size in SIZES:
        monkeypatch.setattr("lakebed.arrow.reading.blocks.BLOCK_BYTES", size)
        assert without_lines(inspected(files, given, rows)) == by_lines, size


@pytest.mark.parametrize("file_format", FORMATS)
def test_blocks_give_the_rows_and_rejects_of_lines(
    file_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = int(os.environ.get("LAKEBED_NASTY_FILES", "80"))

    totals = [check_seed(tmp_path, file_format, seed, monkeypatch) for seed in range(count)]

    rows, rejects = (sum(part) for part in zip(*totals, strict=True))
    assert rows > 10 * count
    assert rejects > count


@pytest.mark.parametrize("records", ["array", "concatenated"])
def test_elements_in_groups_give_the_rows_and_rejects_of_single_ones(
    records: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, row_count, reject_count = JsonOptions(records=records), 0, 0  # type: ignore[arg-type]
    between = b",\n" if records == "array" else b"\n"
    for seed in range(40):
        given = nasty_files("json", seed)
        contents = {
            name: between.join(line for line in text.split(b"\n") if line.strip())
            for name, text in given.contents.items()
            if name.endswith(".json")
        }
        if not contents:
            continue
        if records == "array":
            contents = {name: b"[%b]" % text for name, text in contents.items()}
        files = files_in(tmp_path, "json", replace(given, contents=contents))
        share = (0, 7)[seed % 2]
        for file in files:
            monkeypatch.setattr(
                "lakebed.arrow.reading.lines.ELEMENTS_PER_BLOCK", (1, 5, 4_096)[seed % 3]
            )
            by_blocks = JsonReader(given.descriptor, given.unknown, options)
            singly = read_file(open_element_reader(given, options), file, share)
            assert read_file(by_blocks, file, share) == singly, (seed, file.location)
            row_count, reject_count = (
                row_count + len(singly.rows),
                reject_count + len(singly.rejects),
            )

    assert row_count > 100
    assert reject_count > 40


def csv_file(folder: Path, content: bytes, names: Sequence[str], options: CsvOptions) -> NastyFiles:
    """Write a CSV file, and return how it is to be read."""
    (folder / "rows.csv").write_bytes(content)
    fields = tuple(Field(name=name, type=FLAT[name]) for name in names)
    descriptor = DatasetDescriptor(schema=Schema(fields=fields))
    return NastyFiles(descriptor=descriptor, csv=options, unknown="reject", contents={})


def read_lines(
    folder: Path, content: bytes, schema: str, delimiter: str = ","
) -> tuple[list[str], list[int]]:
    """Return the rows of a CSV file as texts, and the numbers of the rejected lines."""
    given = csv_file(folder, content, schema.split(), CsvOptions(delimiter=delimiter))
    _, files = find_files([str(folder / "rows.csv")], "csv")
    read = read_file(open_block_reader("csv", given), files[0], refused_share=2)
    also = read_file(open_line_reader("csv", given), files[0], refused_share=2)
    assert (read.rows, read.rejects) == (also.rows, also.rejects)
    whole = read_file(open_block_reader("csv", given), files[0])
    return whole.rows, [reject.line_number for reject in read.rejects]


MANY_TEXTS = (
    *("1", "-7", "007", "1.5", "1e3", " 5", "+5", "", "n/a", "NaN", "2024-01-02", "2024-02-30"),
    *("2024-01-02T03:04:05Z", "true", "T", "x" * 40, '"1"', '"a,b"', '""', "9" * 30, "\t", "é"),
)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_many_bad_cells_in_many_columns_are_the_rejects_of_lines(
    tmp_path: Path, seed: int, exact: bool
) -> None:
    chance = random.Random(seed)
    names = [name for name in FLAT if chance.random() < 0.8]
    usual = {name: chance.choice(MANY_TEXTS) for name in names}
    rows = [
        [usual[name] if chance.random() < 0.7 else chance.choice(MANY_TEXTS) for name in names]
        for _ in range(400)
    ]
    rows = [row[: chance.choice([99] * 30 + [1])] for row in rows]
    content = "\n".join(map(",".join, [names, *rows])).encode()

    given = csv_file(tmp_path, content, names, CsvOptions(exact=exact))
    _, files = find_files([str(tmp_path / "rows.csv")], "csv")
    read = read_file(open_block_reader("csv", given), files[0])
    alone = read_file(open_line_reader("csv", given), files[0])

    assert (read.rows, read.rejects) == (alone.rows, alone.rejects)
    assert len(read.rejects) > 50


def test_many_ragged_lines_are_found_by_few_parses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = ("1,2,3", "1,2", "1,2,3,4")
    content = "n,l,d\n" + "".join(f"{cells[row % 3]}\n" for row in range(3_000))
    calls, parse = [], pyarrow.csv.read_csv
    monkeypatch.setattr(
        pyarrow.csv, "read_csv", lambda *given: calls.append(given) or parse(*given)
    )
    given = csv_file(tmp_path, content.encode(), ["s"], CsvOptions())
    fields = tuple(Field(name=name, type=Primitive(Kind.LONG)) for name in "nld")
    given = replace(given, descriptor=DatasetDescriptor(schema=Schema(fields=fields)))
    _, files = find_files([str(tmp_path / "rows.csv")], "csv")

    read = read_file(open_block_reader("csv", given), files[0])

    assert len(calls) < 60
    assert len(read.rows) == 1_000
    assert [(reject.line_number, reject.reason) for reject in read.rejects] == [
        (row + 2, f"The line has {3 + [0, -1, 1][row % 3]} cells, but there are 3 columns.")
        for row in range(3_000)
        if row % 3
    ]


def test_a_row_of_empty_cells_is_a_row_in_a_file_of_tabs(tmp_path: Path) -> None:
    rows, _ = read_lines(tmp_path, b"s\tl\nx\t1\n\t\n \nz\t2\n", "s l", "\t")

    assert rows == ["('x', '1')", "('None', 'None')", "('z', '2')"]


def test_rows_after_a_lone_carriage_return_keep_the_numbers_of_their_lines(tmp_path: Path) -> None:
    content = b"l,s\n" + b"1,a\r2,b\n" + b"".join(b"%d,c\n" % n for n in range(3, 40))

    rows, rejected = read_lines(tmp_path, content, "l s")

    values = content.replace(b"\r", b"\n").split(b"\n")[1:-1]
    assert rows == [str(tuple(value.decode().split(","))) for value in values]
    lines = content.split(b"\n")
    refused = [
        number
        for number, line in enumerate(lines[1:-1], 2)
        for part in line.split(b"\r")
        if zlib.crc32(str(tuple(part.decode().split(","))).encode()) % 2 == 0
    ]
    assert rejected == refused


def test_a_mark_of_byte_order_within_a_file_stays_in_its_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakebed.arrow.reading.blocks.BLOCK_BYTES", 1)

    rows, _ = read_lines(tmp_path, "\ufeffs,l\n\ufeffa,1\n\ufeffb,2\n".encode(), "s l")

    assert rows == ["('\\ufeffa', '1')", "('\\ufeffb', '2')"]


def test_a_number_that_is_too_large_for_a_decimal_is_refused(tmp_path: Path) -> None:
    rows, _ = read_lines(tmp_path, b"m,q\n1234567.25,0.5\n12345678,0.5\n1,1\n-3,-0.125\n", "m q")

    assert rows == ["('1234567.25', '0.500')", "('-3.00', '-0.125')"]


def test_half_of_a_surrogate_pair_is_a_bad_line_and_no_cut_file() -> None:
    document = b'{"s":"\\ud800"}'

    assert not is_cut_object(document)
    assert is_cut_object(document[:-1])
    assert is_cut_object(document[:-2])


def test_avro_rows_by_columns_are_those_of_entities(tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "l", "type": ["null", "long"]},
            {"name": "f", "type": "float"},
            {"name": "s", "type": "string"},
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "ll", "type": {"type": "array", "items": ["null", "long"]}},
        ],
    }
    at = dt.datetime(2024, 1, 1, 12, 30, 0, 123_456, dt.UTC)
    key = uuid.UUID(int=7)
    rows = [
        {"l": n or None, "f": 0.5, "s": "ä", "t": at, "u": key, "ll": [n, None]}
        for n in range(5_000)
    ]
    path = tmp_path / "rows.avro"
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, codec="deflate")
    types = {name: FLAT[name] for name in ("l", "f", "s", "t")} | {
        "u": FLAT["s"],
        "ll": NESTED["ll"],
    }
    fields = (Field(name=name, type=types[name], nullable=name != "l") for name in types)
    descriptor = DatasetDescriptor(schema=Schema(fields=tuple(fields)))
    _, files = find_files([str(path)], "avro")
    reader = open_reader("avro", descriptor, CsvOptions())

    read = read_file(reader, files[0])

    entities = entities_to_batch([row | {"u": str(row["u"])} for row in rows[1:]], descriptor)
    assert read.rows == plain_rows(entities)
    assert read.schema == entities.schema
    assert [reject.line_number for reject in read.rejects] == [1]
    assert "'l' is not nullable" in read.rejects[0].reason
    assert b'"u": "00000000-0000-0000-0000-000000000007"' in read.rejects[0].line

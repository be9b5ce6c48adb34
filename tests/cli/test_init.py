"""`lakebed init`: what it prints is a declaration that runs as it is."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import itertools
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Pipeline


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    return tmp_path


def run_of(cli, place: Path, *words: object) -> tuple[Pipeline, lakebed.PipelineReport]:
    """Save what the verb prints, and run it."""
    printed = cli("init", *words, "-q").stdout
    (place / "draft.toml").write_text(printed)
    pipeline = Pipeline.from_toml(place / "draft.toml")
    return pipeline, pipeline.run()


def test_csv_is_partitioned_by_its_day(cli, place: Path) -> None:
    for day in (1, 2):
        text = f"day,shop,amount\n2026-01-0{day},north,5\n2026-01-0{day},south,7.5\n"
        (place / f"in/{day}.csv.gz").write_bytes(gzip.compress(text.encode()))

    pipeline, report = run_of(cli, place, "in", "--into", "lake/sales")

    assert (report.exit_code, report["ingest"].facts["row_count"]) == (0, 4)
    descriptor = pipeline.ingest.dataset().descriptor
    assert list(descriptor.partition_types) == ["day", "batch_id"]
    assert [str(field.type) for field in descriptor.schema] == ["date", "string", "double"]
    assert pipeline.steps == ("ingest", "compact", "cleanup")


def test_a_time_is_partitioned_by_its_date_and_other_times_are_named(cli, place: Path) -> None:
    rows = pa.table(
        {
            "sent at": pa.array([dt.datetime(2026, 1, 1, 5)], pa.timestamp("us", "UTC")),
            "seen": pa.array([dt.date(2026, 1, 2)]),
        }
    )
    pq.write_table(rows, place / "in/a.parquet")

    pipeline, report = run_of(cli, place, "in")

    assert report["ingest"].facts["row_count"] == 1
    assert pipeline.into.endswith("lake/in")
    assert [one.source for one in pipeline.ingest.dataset().descriptor.partition_by] == ["sent at"]
    assert "Other fields with a time: seen." in (place / "draft.toml").read_text()


@pytest.mark.parametrize("folder", [".", "./", "deep/..", "../in", "../in/."])
def test_the_folder_one_stands_in_gives_its_name(cli, place, monkeypatch, folder: str) -> None:
    (place / "in/a.csv").write_text("id\n1\n")
    (place / "in/deep").mkdir()
    monkeypatch.chdir(place / "in")

    pipeline, report = run_of(cli, place / "in", folder)

    assert pipeline.into.endswith("in/lake/in")
    assert report["ingest"].facts["row_count"] == 1


def test_json_without_a_time_and_with_odd_names_runs_too(cli, place: Path) -> None:
    row = '{"it\'\'\'s": "x", "größe": 1}\n'
    (place / "in/a.jsonl").write_text((row * 10 + "not JSON\n") * 5)

    pipeline, report = run_of(cli, place, "in/*.jsonl", "--into", "lake/odd")

    assert report["ingest"].facts["row_count"] == 50
    assert set(pipeline.ingest.dataset().schema.names) == {"it'''s", "größe"}


def test_times_of_json_are_named_and_can_be_declared(cli, place: Path) -> None:
    (place / "in/a.jsonl").write_text('{"id":1,"at":"2024-01-01T00:00:00Z"}\n' * 3)

    draft = cli("init", "in", "--into", "lake/t").stdout

    assert "at has dates or times, such as '2024-01-01T00:00:00Z'" in draft
    declared = re.sub(
        r'(?s)("name": "at",\s*"type": \[\s*"null",\s*)"string"',
        r'\1{"type": "long", "logicalType": "timestamp-micros"}',
        draft,
    )
    (place / "p.toml").write_text(declared)
    assert declared != draft
    assert cli("run", "p.toml").exit_code == 0
    rows = lakebed.open_repository(str(place / "lake"))["t"].arrow().to_pylist()
    assert [row["at"] for row in rows] == [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)] * 3


def test_what_pandas_writes_by_default_runs_as_it_comes(cli, place: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"id": [1, 2], "name": ["x", None], "empty": [None, None]})
    frame.to_csv(place / "in/a.csv")
    (place / "json").mkdir()
    frame.to_json(place / "json/a.json", orient="records")
    (place / "parquet").mkdir()
    frame.to_parquet(place / "parquet/a.parquet")

    for number, folder in enumerate(("in", "json", "parquet")):
        pipeline, report = run_of(cli, place, folder, "--into", f"lake/t{number}")

        assert (report.exit_code, report["ingest"].facts["row_count"]) == (0, 2)
        rows = pipeline.ingest.dataset().arrow().to_pylist()
        assert [(row["id"], row["name"], row["empty"]) for row in rows] == [
            (1, "x", None),
            (2, None, None),
        ]


@pytest.mark.parametrize(
    ("data", "keys", "first"),
    [
        (b"id;Preis;Tag\n1;1.234,50;31.12.2024\n2;2,5;1.1.2025\n", {"delimiter": ";"}, None),
        ("id,name\n1,Jos\u00e9\n2,x\n".encode("latin-1"), {"encoding": "cp1252"}, None),
        ("id,name\n1,x\n2,y\n".encode("utf-16"), {}, None),
        (b"id,n\r1,2\r3,4\r", {}, None),
        (b"Report\n\nid,n\n1,2\n3,4\n", {"skip": 2}, None),
        (b"# made by x\nid,n\n1,2\n3,4\n", {"comment": "#"}, None),
        (b"sep=;\nid;n\n1;2\n3;4\n", {"skip": 1, "delimiter": ";"}, None),
        (b"1,a,2.5\n2,b,3.5\n", {"has_header": False}, None),
        (b'id,t\n1,"say \\"hi\\", x"\n2,"\\"y\\""\n', {"escape": "\\"}, 'say "hi", x'),
        (b"id,t\n1,'a, b'\n2,'c, d'\n", {"quote": "'"}, "a, b"),
        (b'id, t, n\n1, "a, b", 5\n2, "c", 6\n', {"trim": True}, "a, b"),
        (b'id,t\n1,"\\"hi\\""\n2,"x"\n', {"escape": "\\"}, '"hi"'),
        (b'id,t\n1,"C:\\a\\"\n2,x\n', {"escape": ""}, "C:\\a\\"),
        (b"[],id,t\n0,1,x\n0,2,y\n", {}, "x"),
        (b"id,t\n1,01234\n2,10001\n", {}, "01234"),
        (b"id,t\n1,2\n2,NA\n", {"nulls": ("NA",), "exact": True}, 2),
    ],
)
def test_the_notation_is_found_and_declared(cli, place: Path, data, keys, first) -> None:
    (place / "in/a.csv").write_bytes(data)

    pipeline, report = run_of(cli, place, "in", "--into", "lake/t")

    assert (report.exit_code, report["ingest"].facts["row_count"]) == (0, 2)
    for name, value in keys.items():
        assert getattr(pipeline.ingest.csv, name) == value
    if first is not None:
        rows = sorted(pipeline.ingest.dataset().arrow().to_pylist(), key=lambda row: row["id"])
        assert rows[0]["t"] == first


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<!DOCTYPE html><title>503</title>", "HTML"),
        (b"PK\x03\x04" + bytes(30), "zip"),
        (b'{"error": "rate limit exceeded"}', "one JSON object"),
        (b"", "empty"),
        (gzip.compress(b"id,n\n1,2\n", mtime=0)[:12], "Get the file again"),
        (b"id,name\n", "no row"),
    ],
)
def test_what_is_no_table_is_refused_with_what_to_do(cli, place: Path, data, said: str) -> None:
    (place / "in/a.csv").write_bytes(data)

    result = cli("init", "in", exit_code=None)

    assert result.exit_code == 2
    assert said in result.stderr
    assert "Hint" in result.stderr


TABLES = {
    "a header of one name above rows of codes": (
        b"Report of 2024,,\n,,\nSource,,\n" + b"".join(b"T%d,x,\n" % n for n in range(1, 6)),
        ("Source", "column_2", "column_3"),
        5,
    ),
    "a title above a header": (
        b"Report of 2024,,\n,,\nid,n,t\n" + b"".join(b"%d,x,\n" % n for n in range(1, 6)),
        ("id", "n", "t"),
        5,
    ),
    "units below names": (
        b"id,city,temp,rain\n,,C,\n" + b"".join(b"%d,a,2,3\n" % n for n in range(6)),
        ("id", "city", "temp C", "rain"),
        6,
    ),
    "a row of few values": (
        b"id,city,temp,rain\n,,5,\n" + b"".join(b"%d,a,2,3\n" % n for n in range(6)),
        ("id", "city", "temp", "rain"),
        7,
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_lines_around_a_header_are_told_from_rows(cli, place: Path, name: str) -> None:
    data, names, count = TABLES[name]
    (place / "in/a.csv").write_bytes(data)

    pipeline, report = run_of(cli, place, "in", "--into", "lake/t")

    assert (report.exit_code, report["ingest"].facts["row_count"]) == (0, count)
    assert pipeline.ingest.dataset().schema.names == names
    draft = (place / "draft.toml").read_text()
    assert ("Report of 2024" in draft) == data.startswith(b"Report")


# The first lines, and some with words for null, of files that R and Python ship.
SHIPPED = {
    "planes.csv": b"""tailnum,year,type,manufacturer,model,engines,seats,speed,engine
N10156,2004,Fixed wing multi engine,EMBRAER,EMB-145XR,2,55,NA,Turbo-fan
N14558,NA,Fixed wing multi engine,EMBRAER,EMB-145LR,2,55,NA,Turbo-fan
N201AA,1959,Fixed wing single engine,CESSNA,150,1,2,90,Reciprocating
""",
    "weather.csv": b"""origin,year,month,day,hour,temp,dewp,wind_dir,wind_speed,wind_gust,visib,time_hour
EWR,2013,1,1,1,39.02,26.06,270,10.357019999999999,NA,10,2013-01-01T06:00:00Z
EWR,2013,1,1,17,39.2,28.4,NA,NA,20.71404,10,2013-01-01T22:00:00Z
""",
    "penguins.csv": b"""species,island,bill_length_mm,bill_depth_mm,flipper_length_mm,body_mass_g,sex,year
Adelie,Torgersen,39.1,18.7,181,3750,male,2007
Adelie,Torgersen,NA,NA,NA,NA,NA,2007
""",
    "kine.csv": b'"","sex","age"\n"1","F",8\n"2",NA,NA\n',
}
TYPES = {
    "planes.csv": {"year": "long", "speed": "long", "model": "string"},
    "weather.csv": {"wind_dir": "long", "wind_speed": "double", "time_hour": "timestamp"},
    "penguins.csv": {"bill_length_mm": "double", "body_mass_g": "long", "sex": "string"},
    "kine.csv": {"column_1": "long", "sex": "string", "age": "long"},
}


@pytest.mark.parametrize("name", SHIPPED)
def test_files_that_packages_ship_come_in_whole(cli, place: Path, name: str) -> None:
    (place / "in" / name).write_bytes(SHIPPED[name])

    pipeline, report = run_of(cli, place, "in", "--into", "lake/t")

    count = SHIPPED[name].count(b"\n") - 1
    assert (report.exit_code, report["ingest"].facts["row_count"]) == (0, count)
    fields = {field.name: str(field.type) for field in pipeline.ingest.dataset().schema}
    assert fields | TYPES[name] == fields


@pytest.mark.parametrize("separator", [";", "|"])
def test_a_table_named_tsv_may_have_another_delimiter(cli, place: Path, separator: str) -> None:
    text = "id,n,t\n1,2,x\n3,4,y\n".replace(",", separator)
    (place / "in/a.tsv").write_text(text)

    pipeline, report = run_of(cli, place, "in", "--into", "lake/t")

    assert (report.exit_code, report["ingest"].facts["row_count"]) == (0, 2)
    assert pipeline.ingest.dataset().schema.names == ("id", "n", "t")


@pytest.mark.parametrize(
    "names", [("", "1", "2"), ("a", "2", "3"), ("10", "20", "30"), ("1.5", "", "x")]
)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_names_alone_in_quotes_are_a_header(
    cli, place: Path, names: tuple[str, ...], delimiter: str
) -> None:
    rows = [(n, 2 * n, 0.5) for n in range(8)]
    with (place / "in/a.csv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerows([names, *rows])

    pipeline, report = run_of(cli, place, "in", "--into", "lake/t")

    assert (report.exit_code, report["ingest"].facts["row_count"]) == (0, 8)
    columns = pipeline.ingest.dataset().arrow().columns
    assert [tuple(row) for row in zip(*(c.to_pylist() for c in columns), strict=True)] == rows


@pytest.mark.parametrize(("delimiter", "mark"), [*itertools.permutations(",;|\t", 2)])
def test_a_mark_in_quotes_is_no_delimiter(cli, place: Path, delimiter: str, mark: str) -> None:
    rows = [["id", "kind", "n"], *([str(n), f'"type{n % 3}{mark}2"', "9"] for n in range(60))]
    text = "".join(delimiter.join(row) + "\n" for row in rows)
    (place / "in/a.csv").write_text(text)

    pipeline, report = run_of(cli, place, "in", "--into", "lake/t")

    assert (report.exit_code, report["ingest"].facts["row_count"]) == (0, 60)
    table = pipeline.ingest.dataset().arrow()
    assert table["kind"].to_pylist()[:2] == [f"type0{mark}2", f"type1{mark}2"]


def test_objects_between_carriage_returns_are_rows(cli, place: Path) -> None:
    (place / "in/a.json").write_bytes(b'{"id":1}\r{"id":2}\r{"id":3}\r')

    _, report = run_of(cli, place, "in", "--into", "lake/t")

    assert (report.exit_code, report["ingest"].facts["row_count"]) == (0, 3)


def test_a_birthday_makes_no_partitions(cli, place: Path) -> None:
    (place / "in/a.csv").write_text("id,birth_date,seen\n1,1980-01-01,2024-01-01\n")

    pipeline, _ = run_of(cli, place, "in", "--into", "lake/t")

    assert [one.source for one in pipeline.ingest.dataset().descriptor.partition_by] == ["seen"]


def test_another_delimiter_is_declared(cli, place: Path) -> None:
    (place / "in/a.csv").write_text("a;b\n1;2\n")

    pipeline, report = run_of(cli, place, "in", "--delimiter", ";")

    assert pipeline.ingest.csv.delimiter == ";"
    assert report["ingest"].facts["row_count"] == 1


def test_an_archive_is_looked_at_too(cli, place: Path) -> None:
    archive = lakebed.open_archive("raw")
    for day in (1, 2):
        (place / f"{day}.csv").write_text(f"day,n\n2026-01-0{day},{day}\n")
        archive.push(f"{day}.csv", where="north", what="counts", start=f"2026-01-0{day}")

    pipeline, report = run_of(
        cli, place, "raw", "--what", "counts", "--where", "north", "--format", "csv"
    )

    assert report["ingest"].facts["row_count"] == 2
    assert pipeline.name == "counts"


def test_nothing_is_written(cli, place: Path) -> None:
    (place / "in/a.csv").write_text("a,b\n1,2\n")

    cli("init", "in")

    assert sorted(path.name for path in place.rglob("*")) == ["a.csv", "in"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing",), "nothing"),
        (("in",), "in"),
        (("raw", "--what", "counts", "--format", "csv"), "no file of 'counts'"),
        (("in", "--where", "north"), "--what"),
        (("in/a.txt",), "format"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(cli, place: Path, words, said: str) -> None:
    (place / "in/a.txt").write_text("x")
    lakebed.open_archive("raw").push("in/a.txt", where="north", what="other", start="2026-01-01")

    result = cli("init", *words, exit_code=None)

    assert result.exit_code in (2, 3)
    assert said in result.stderr
    assert result.stdout == ""

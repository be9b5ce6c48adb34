"""import: files into a dataset, which may have to be created."""

import datetime as dt
import gzip
import json

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import DatasetDescriptor
from lakebed.arrow.reading import sniffing

CSV = 'time_hour,carrier,flight\n2013-03-01T10:00:00Z,"A ""B"", C",1\n2013-03-02 10:00,NA,\n'


def test_csv_makes_a_partitioned_dataset_and_fills_it(cli, lake, write) -> None:
    result = cli(
        *("import", f"{lake.uri}/flights", write("flights.csv", CSV), "--null-text", "NA"),
        *("--partition-by", "date(time_hour) as dt", "--run", "march", "-o", "json"),
    )

    commit = json.loads(result.stdout)
    assert (commit["version"], commit["row_count"], commit["run"]) == (1, 2, "march")
    dataset = lake.open("flights")
    assert [f"{field.name}: {field.type}" for field in dataset.schema] == [
        "time_hour: timestamp",
        "carrier: string",
        "flight: long",
    ]
    rows = sorted(dataset.kite.reader(), key=lambda row: row["time_hour"])
    assert [row["carrier"] for row in rows] == ['A "B", C', None]
    assert [row["time_hour"].hour for row in rows] == [10, 10]
    assert [one.values["dt"].isoformat() for one in dataset.inspect.partitions()] == [
        "2013-03-01",
        "2013-03-02",
    ]
    assert "1 CSV file" in result.stderr
    assert "Wrote 2 rows" in result.stderr


def test_the_notation_of_a_file_is_found_once(cli, lake, write, monkeypatch) -> None:
    found, sniff = [], sniffing.sniff_csv

    def sniff_once(*given, **named):
        found.append(given)
        return sniff(*given, **named)

    monkeypatch.setattr(sniffing, "sniff_csv", sniff_once)
    cli("import", f"{lake.uri}/flights", write("flights.csv", CSV.replace(",", ";")))

    assert len(found) == 1
    assert lake.open("flights").schema.names == ("time_hour", "carrier", "flight")


def test_an_encoding_that_is_given_counts_for_the_format_that_is_found(cli, lake, tmp_path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("id,name\n1,Ja\u017a\n".encode("cp1250"))

    cli("import", f"{lake.uri}/names", str(path), "--csv", "encoding=cp1250")

    assert lake.open("names").arrow().to_pylist() == [{"id": 1, "name": "Ja\u017a"}]


@pytest.mark.parametrize("text", ["", "\n"])
def test_files_without_content_make_no_dataset(cli, lake, write, text) -> None:
    error = cli.error("import", f"{lake.uri}/rows", write("rows.csv", text))

    assert "is empty" in error["message"]
    assert not lake.exists("rows")


def test_csv_is_read_by_the_types_of_a_dataset_that_is_there(cli, flights, address, write) -> None:
    # Inferred, carrier were an int, and the missing columns would be shifted.
    rows = write("rows.csv", "flight,carrier,time_hour\n7,007,2013-03-01T10:00:00+01:00\n")

    cli("import", address, rows)

    (row,) = flights.where("dt = '2013-03-01'").arrow().to_pylist()
    assert (row["flight"], row["carrier"], row["time_hour"].hour) == (7, "007", 9)
    assert row["delay"] is None


def test_what_query_writes_import_reads(cli, lake, flights, address, write) -> None:
    copy = lake.create("copy", flights.descriptor)
    table = write("rows.csv", cli("query", address, "-o", "csv").stdout)
    lines = write("rows.jsonl", cli("query", address, "-o", "jsonl").stdout)

    cli("import", f"{lake.uri}/copy", table)
    cli("import", f"{lake.uri}/copy", lines)

    expected = sorted(map(repr, flights.kite.reader()))
    for entry in copy.history()[1:]:
        part = copy.where(f"batch_id = {entry.batch_id}")
        assert sorted(map(repr, part.kite.reader())) == expected


def test_directory_of_parquet_is_one_commit(cli, lake, tmp_path) -> None:
    (tmp_path / "in [1]").mkdir()
    for n in range(3):
        table = pa.table({"n": [n, None], "tags": [["a"], []]})
        pq.write_table(table, tmp_path / "in [1]" / f"{n}.parquet")

    commit = cli.json("import", f"{lake.uri}/numbers", tmp_path / "in [1]")

    assert (commit["version"], commit["row_count"]) == (1, 6)
    assert sum(row["n"] or 0 for row in lake.open("numbers").kite.reader()) == 3


def test_overwrite_replaces_what_rows_touch(cli, flights, address, write) -> None:
    rows = write("rows.jsonl", '{"time_hour": "2013-01-01T00:00:00Z", "flight": 100}\n')

    cli("import", address, rows, "--overwrite")

    assert flights.where("dt = '2013-01-01'").arrow()["flight"].to_pylist() == [100]
    assert flights.count() == 3


BAD = {
    "unknown.csv": ("time_hour,carier\n2013-03-01,AA\n", "Did you mean 'carrier'?"),
    "missing.csv": ("carrier\nAA\n", "time_hour"),
    "type.csv": ("time_hour,flight\n2013-03-01,1\n2013-03-01,one\n", "one"),
    "ragged.csv": ("time_hour,flight\n2013-03-01,1,2\n", "3 cells"),
    "null.csv": ("time_hour,flight\n,1\n", "time_hour"),
    "unknown.jsonl": ('{"time_hour": "2013-03-01", "carier": "AA"}\n', "Did you mean 'carrier'?"),
    "type.jsonl": ('{"time_hour": "2013-03-01", "flight": "one"}\n', "flight"),
    "cut.jsonl": ('{"time_hour": "2013-0\n', "cut.jsonl"),
    "text.parquet": ("no parquet", "text.parquet"),
}


@pytest.mark.parametrize("name", BAD)
def test_file_that_does_not_fit_is_an_error_of_input(
    cli, flights, address, write, name: str
) -> None:
    text, told = BAD[name]

    error = cli.error("import", address, write(name, text))

    assert error["exit_code"] == 2, error
    assert told in error["message"] + error["hint"]
    assert len(error["message"]) < 500
    assert (flights.version, flights.count()) == (1, 4)


def test_columns_of_files_go_by_their_names(cli, lake, write) -> None:
    files = [write("a.csv", "a,b\n1,2\n"), write("b.csv", "b,a\n1,2\n"), write("c.csv", "b\n3\n")]

    cli("import", f"{lake.uri}/mixed", *files)

    rows = sorted((row["b"], row["a"]) for row in lake.open("mixed").kite.reader() if row["b"] < 3)
    assert rows == [(1, 2), (2, 1)]
    assert lake.open("mixed").where("b = 3").arrow()["a"].to_pylist() == [None]


INFERRED = {
    "rows.csv": "n,share,day,at,code,flag\n1,0.5,2013-01-01,2013-01-01T00:00:00Z,007,true\n,,,,,\n",
    "rows.jsonl": '{"n": 1, "at": "2013-01-01", "path": [{"x": 0.5}]}\n{"n": 2}\n',
}


@pytest.mark.parametrize("name", INFERRED)
def test_a_dataset_that_is_created_has_the_types_that_schema_infer_finds(
    cli, lake, write, name: str
) -> None:
    rows = write(name, INFERRED[name])

    cli("import", f"{lake.uri}/made", rows)

    assert lake.open("made").schema.fields == lakebed.infer_schema(rows).fields
    assert lake.open("made").count() == 2


@pytest.mark.parametrize(
    ("name", "text"), [("a.csv", "dep.delay,b\n1,2\n"), ("a.jsonl", '{"dep.delay": 1, "b": 2}\n')]
)
def test_illegal_column_name_becomes_a_legal_one_and_is_said(cli, lake, write, name, text) -> None:
    address = f"{lake.uri}/x"

    said = cli("import", address, write(name, text)).stderr
    cli("import", address, write(name, text))

    assert "dep_delay: 'dep.delay' in the" in said
    assert (
        lake["x"].arrow().select(["dep_delay", "b"]).to_pylist() == [{"dep_delay": 1, "b": 2}] * 2
    )


def test_strategy_of_a_dataset_that_is_there_is_not_changed(cli, flights, address, write) -> None:
    rows = write("rows.csv", "time_hour\n2013-03-01\n")

    cli("import", address, rows, "--partition-by", "date(time_hour) as dt")
    error = cli.error("import", address, rows, "--partition-by", "carrier")

    assert "partition strategy" in error["message"]
    assert flights.version == 2


def test_all_types_are_read_from_json_lines(cli, lake, write) -> None:
    schema = pa.schema(
        [
            ("raw", pa.binary()),
            ("path", pa.list_(pa.struct([("at", pa.timestamp("us", tz="UTC"))]))),
            ("prices", pa.map_(pa.string(), pa.decimal128(20, 4))),
            ("wall", pa.timestamp("us")),
        ]
    )
    dataset = lake.create("typed", DatasetDescriptor(schema=schema))
    line = {
        "raw": "AP8=",
        "path": [{"at": "2013-01-01T00:00:00Z"}],
        "prices": {"a": "1.5000"},
        "wall": "2013-01-01T00:00:00",
    }

    cli("import", f"{lake.uri}/typed", write("typed.jsonl", json.dumps(line)))

    assert cli.json("query", f"{lake.uri}/typed") == [line]
    assert dataset.arrow().to_pylist()[0]["raw"] == b"\x00\xff"


TREE = {
    "20131113/a.tsv": 'u1\t{"appName":"Firefox","version":"28"}\nu2\t{"appName":"Other"}\nno tab\n',
    "20131114/b.tsv": 'u3\t{"version":"29"}\nu4\t{"appName":\n',
}
DIMENSIONS = {
    "version": 1,
    "dimensions": [
        {"field_name": "appName", "allowed_values": ["Firefox", "Fennec"]},
        {"field_name": "version", "allowed_values": "*"},
    ],
}


@pytest.fixture
def tree(write, tmp_path):
    for name, text in TREE.items():
        write(f"tree/{name}", text)
    return tmp_path / "tree"


def test_tree_of_submissions_makes_a_dataset_with_dimensions(cli, lake, write, tree) -> None:
    dimensions = write("telemetry_schema.json", json.dumps(DIMENSIONS))
    call = ("import", f"{lake.uri}/pings", tree, "--format", "submissions", "--run", "first")
    call += ("--max-rejects", "0.5")

    result = cli(*call, "--dimensions", dimensions, "-o", "json")

    told = json.loads(result.stdout)
    assert (told["row_count"], told["rejected_count"], told["file_count"]) == (3, 2, 2)
    assert told["quarantine"] == "pings_quarantine"
    assert "2 lines did not fit" in result.stderr
    pings = lake.open("pings")
    assert pings.descriptor.format == "submissions"
    assert {one.path for one in pings.inspect.partitions()} == {
        "appName_dimension=Firefox/version_dimension=28",
        "appName_dimension=OTHER/version_dimension=UNKNOWN",
        "appName_dimension=UNKNOWN/version_dimension=29",
    }
    # The note says how to see them.
    query = result.stderr.partition("lakebed query ")[2].splitlines()[0]
    address, _, where = query.partition(" --where ")
    assert len(cli.json("query", address, "--where", where.strip('"'))) == 2
    again = cli.json(*call)
    assert again["is_repeated"]
    assert pings.count() == 3


def test_rejects_fail_the_command_before_anything_is_committed(cli, lake, tree) -> None:
    error = cli.error("import", f"{lake.uri}/pings", tree, "--fail-on-rejects")

    assert (error["code"], error["exit_code"]) == ("rejects", 2)
    assert lake.list() == []


UNFIT = {
    "damaged.parquet": b"no parquet",
    "cut.jsonl": b'{"a": 1}\n{"a": \n',
    "outside.csv": b"a\n1\n99\n",
}


@pytest.mark.parametrize("name", UNFIT)
def test_files_that_do_not_fit_leave_no_dataset_that_was_missing(
    cli, lake, tmp_path, name: str
) -> None:
    (tmp_path / name).write_bytes(UNFIT[name])

    cli.error("import", f"{lake.uri}/new", tmp_path / name, "--partition-by", "range(a, [10, 20])")

    assert lake.list() == []
    assert list(lake.store.list("")) == []


def test_a_named_run_is_imported_once(cli, flights, address, write) -> None:
    rows = write("rows.csv", "time_hour,flight\n2013-03-01,1\n")

    told = [cli.json("import", address, rows, "--run", "march") for _ in range(2)]

    assert [one["is_repeated"] for one in told] == [False, True]
    assert flights.where("dt = '2013-03-01'").count() == 1


def test_avro_makes_a_dataset_of_the_schema_in_it(cli, lake, tmp_path) -> None:
    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "n", "type": ["null", "int"]},
    ]
    rows = [{"at": dt.datetime(2013, 6, 1, tzinfo=dt.UTC), "n": n or None} for n in range(3)]
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, rows)

    commit = cli.json(
        *("import", f"{lake.uri}/rows", tmp_path / "a.avro"),
        *("--partition-by", "date(at) as dt"),
    )

    assert (commit["row_count"], commit["rejected_count"], commit["quarantine"]) == (3, 0, None)
    assert [str(one.type) for one in lake.open("rows").schema] == ["timestamp", "int"]
    assert lake.list() == ["rows"]


def test_rows_of_csv_are_set_aside_where_that_is_asked_for(
    cli, lake, flights, address, write
) -> None:
    rows = write("rows.csv", "time_hour,flight\n2013-03-01,1\n2013-03-01,one\n")

    told = cli.json("import", address, rows, "--quarantine", "--max-rejects", "0.5")

    assert (told["row_count"], told["rejected_count"]) == (1, 1)
    assert lake.open("flights_quarantine").arrow(["line"])["line"].to_pylist() == [
        b"2013-03-01,one"
    ]


@pytest.mark.parametrize(
    ("name", "text", "types", "good", "bad"),
    [
        ("a.jsonl", '{"n": 1}\nrubbish\n{"n": 2, "s": "x"}\n', ["long", "string"], 2, [b"rubbish"]),
        ("b.jsonl", '{"n": "N/A"}\n{"n": 1}\n[2]\n{"n": 2.5}\n', ["string"], 3, [b"[2]"]),
        ("d.csv", "n,s\n1,x\n2\n3,y,z\n4,y\n", ["long", "string"], 2, [b"2", b"3,y,z"]),
    ],
)
def test_quarantine_of_a_dataset_to_create_takes_the_lines_that_its_types_do_not_hold(
    cli, lake, write, name: str, text: str, types: list[str], good: int, bad: list[bytes]
) -> None:
    address, rows = f"{lake.uri}/rows", write(name, text)
    cli.error("import", address, rows)
    assert lake.list() == []

    told = cli.json("import", address, rows, "--quarantine", "--max-rejects", "0.5")

    assert (told["row_count"], told["rejected_count"]) == (good, len(bad))
    assert [str(one.type) for one in lake.open("rows").schema] == types
    assert lake.open("rows_quarantine").arrow(["line"])["line"].to_pylist() == bad


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(
    ("option", "quarantine"),
    [("--quarantine", "flights_quarantine"), ("--quarantine=bad", "bad")],
)
def test_the_quarantine_of_an_import_may_have_a_name_wherever_the_option_stands(
    cli, lake, flights, address, write, place: int, option: str, quarantine: str
) -> None:
    rows = write("rows.csv", "time_hour,flight\n2013-03-01,1\n2013-03-01,one\n")
    words: list[object] = [address, rows, "--max-rejects=0.5"]
    words.insert(place, option)

    told = cli.json("import", *words)

    assert told["quarantine"] == quarantine
    assert lake.open(quarantine).count() == 1


@pytest.mark.parametrize("verb", ["import", "append"])
def test_files_that_stand_before_the_dataset_are_told_apart(cli, address, write, verb: str) -> None:
    rows = write("rows.csv", "time_hour,flight\n2013-03-01,1\n")

    error = cli.error(verb, rows, address)

    assert "is a file, not a dataset" in error["message"]
    assert error["hint"] == f"The dataset comes first: lakebed {verb} {address} {rows}"


@pytest.mark.parametrize("text", ["2013-03-01\n", "2013-03-01,1,2\n"])
def test_csv_without_header_must_have_a_column_for_each_field(
    cli, flights, address, write, text: str
) -> None:
    error = cli.error("import", address, write("rows.csv", text), "--no-header")

    assert "6 fields" in error["message"]
    assert (error["exit_code"], flights.version) == (2, 1)


# With Spark.


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_tasks_of_spark_import_what_one_process_imports(cli, flights, address, lake, write) -> None:
    folder = write("in/a.csv", "time_hour,flight\n2013-03-01,1\n").parent
    write("in/b.csv", "flight,time_hour\n2,2013-01-01\n")
    write("in/c.csv", "time_hour,flight\n2013-03-01,one\n")
    lake.create("alone", flights.descriptor).append(flights.arrow())
    told = []

    for name, where in (("flights", "--spark"), ("alone", "--local")):
        call = ("import", f"{lake.uri}/{name}", where)
        told.append(cli.error(*call, folder)["message"])
        cli(*call, folder / "[ab].csv", "--overwrite")

    assert told[0] == told[1]
    assert "c.csv, line 2: Text 'one' is not a valid int" in told[0]
    rows = [sorted(map(repr, lake.open(name).kite.reader())) for name in ("flights", "alone")]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 4


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_spark_reads_where_several_files_are_large(cli, address, write, monkeypatch) -> None:
    monkeypatch.setattr("lakebed.cli.import_verb.SPARK_FROM_BYTES", 50)
    files = [write(f"{n}.csv", f"time_hour,flight\n2013-03-01,{n}\n") for n in range(2)]

    notes = [cli("import", address, *some).stderr for some in (files, files[:1])]

    assert ["with Spark" in note for note in notes] == [True, False]


def test_small_files_are_imported_without_spark(cli, address, write, monkeypatch) -> None:
    def fail() -> None:
        pytest.fail("a session was started")

    monkeypatch.setattr("lakebed.cli.import_verb.get_session", fail)

    cli("import", address, write("rows.csv", "time_hour,flight\n2013-03-01,1\n"))


def test_files_of_a_directory_are_found_by_a_format_whatever_hadoop_calls_them(
    cli, lake, tmp_path
) -> None:
    folder = tmp_path / "customer"
    folder.mkdir()
    for number in range(2):
        text = f"id,name\n{number},n{number}\n".encode()
        (folder / f"part-r-0000{number}.gz").write_bytes(gzip.compress(text))
    (folder / "part-r-00002").write_text("id,name\n2,n2\n")
    (folder / "_SUCCESS").write_text("")
    (folder / "notes.txt").write_text("nothing of this\n")

    cli("import", f"{lake.uri}/customer", folder, "--format", "csv")

    assert sorted(row["id"] for row in lake.open("customer").kite.reader()) == [0, 1, 2]
    error = cli.error("import", f"{lake.uri}/others", folder)
    assert "of one notation" in error["hint"]
    named = cli.error("import", f"{lake.uri}/customer.gz", folder, "--format", "csv")
    assert "'customer.gz': a dot ends the name" in named["message"]


def test_an_import_of_garbage_or_of_a_truncated_file_commits_nothing_and_fails(
    cli, lake, write, tmp_path
) -> None:
    good = b"".join(b'u%d\t{"n": %d}\n' % (n, n) for n in range(3_000))
    garbage, cut = tmp_path / "a.tsv", tmp_path / "b.tsv.gz"
    garbage.write_bytes(b"garbage\n" * 200)
    cut.write_bytes(gzip.compress(good)[:-100])
    lake.create(
        "pings",
        DatasetDescriptor(
            schema=pa.schema([("uuid", pa.string()), ("document", pa.string())]),
            format="submissions",
        ),
    )

    for path, said in ((garbage, "200 of its 200 lines"), (cut, "cannot be read to its end")):
        error = cli.error("import", f"{lake.uri}/pings", path)
        assert (error["code"], error["exit_code"]) == ("rejects", 2)
        assert said in error["message"]
    assert (lake.open("pings").version, lake.exists("pings_quarantine")) == (0, False)
    told = cli("import", f"{lake.uri}/pings", cut, "--allow-truncated", "--json")
    taken = json.loads(told.stdout)
    assert (taken["rejected_count"], taken["rest_count"]) == (1, 1)
    assert "1 file could not be read to the end. See why with" in told.stderr
    assert 0 < lake.open("pings").count() <= 3_000


def test_an_import_that_fails_tells_rests_of_files_from_lines_and_names_what_takes_them(
    cli, lake, tmp_path
) -> None:
    text = b"n\n" + b"".join(b"%d\n" % n for n in range(3_000))
    cut = tmp_path / "a.csv.gz"
    cut.write_bytes(gzip.compress(text)[:-100])
    (tmp_path / "b.csv").write_text("n\n1\nx\ny\n")
    lake.create("numbers", DatasetDescriptor(schema=pa.schema([("n", pa.int64())])))

    alone = cli.error("import", f"{lake.uri}/numbers", cut)
    both = cli.error("import", f"{lake.uri}/numbers", cut, tmp_path / "b.csv")

    assert alone["message"].startswith("1 file cannot be read to the end: ")
    assert "--allow-truncated" in alone["hint"]
    assert both["message"].startswith(
        "2 lines of 1 file do not fit; 1 file cannot be read to the end: "
    )
    cli("import", f"{lake.uri}/numbers", cut, "--quarantine", "--allow-truncated")
    assert 0 < lake.open("numbers").count() < 3_000


@pytest.mark.parametrize("options", [(), ("--quarantine",)])
def test_an_import_that_fails_for_fields_that_the_dataset_lacks_names_the_option(
    cli, lake, tmp_path, options
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1, "note": "x"}\n' * 20)
    lake.create("numbers", DatasetDescriptor(schema=pa.schema([("n", pa.int64())])))

    error = cli.error("import", f"{lake.uri}/numbers", path, *options)

    assert (error["code"], "--unknown keep" in error["hint"]) == ("rejects", True)
    cli("import", f"{lake.uri}/numbers", path, "--unknown", "keep")
    assert lake.open("numbers").schema.names == ("n", "note")


def test_import_takes_a_type_that_holds_all_values(cli, lake, write) -> None:
    rows = write("rows.csv", "id,n,zip\n1,10,01234\n2,x,10001\n3,NA,20002\n")

    said = cli("import", f"{lake.uri}/o", rows).stderr

    assert sorted(lake["o"].arrow()["n"].to_pylist()) == ["10", "NA", "x"]
    assert "01234" in lake["o"].arrow()["zip"].to_pylist()
    assert "zip: text: 1 of 3 are not long, such as '01234'" in said

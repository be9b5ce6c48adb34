"""append and overwrite: files fit the dataset, or nothing is written."""

import gzip
import json
import re

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from lakebed import DatasetDescriptor

GOOD = "time_hour,carrier,flight\n2013-03-01 10:00,AA,1\n2013-03-01T10:00:00+01:00,,2\n"


WRITES = {
    "append": ["append"],
    "overwrite": ["overwrite"],
    "rerun": ["rerun", "--run", "r"],
    "staged": ["staged", "add"],
}
WIDE = {
    "csv": "n,note\n3000000000,a\n1,\n",
    "jsonl": '{"n": 3000000000, "note": "a"}\n{"n": 1}\n',
}
WIDE_ROWS = [{"n": 3000000000, "note": "a"}, {"n": 1, "note": None}]


@pytest.fixture
def narrow(lake):
    return lake.create("narrow", DatasetDescriptor(schema=pa.schema([("n", pa.int32())])))


@pytest.mark.parametrize("verb", WRITES)
class TestGrowth:
    """The options unknown and types mean on the command line what they mean in Python."""

    @pytest.mark.parametrize("way", [*WIDE, "stdin", "parquet"])
    def test_the_schema_grows_for_files(self, cli, lake, narrow, write, tmp_path, verb, way):
        stdin = None
        if way == "parquet":
            file = tmp_path / "rows.parquet"
            pq.write_table(pa.Table.from_pylist(WIDE_ROWS), file)
        elif way == "stdin":
            file, stdin = "-", WIDE["jsonl"]
        else:
            file = write(f"rows.{way}", WIDE[way])
        growth = ["--unknown", "keep", "--types", "widen"]

        cli(*command_of(verb, lake, file), *growth, stdin=stdin)

        if verb == "staged":
            (batch,) = lake.open("narrow").staged.list()
            assert narrow.schema.names == ("n", "note")
            batch.commit()
        assert lake.open("narrow").arrow().sort_by([("n", "descending")]).to_pylist() == WIDE_ROWS

    def test_a_dry_run_changes_nothing(self, cli, lake, narrow, write, verb):
        growth = ["--unknown", "keep", "--types", "widen", "--dry-run"]

        cli(*command_of(verb, lake, write("rows.csv", WIDE["csv"])), *growth)

        assert lake.open("narrow").version == 0
        assert narrow.schema.names == ("n",)

    @pytest.mark.parametrize(
        ("growth", "reason"),
        [
            (["--unknown", "keep"], "3000000000"),
            (["--types", "widen"], "note"),
            ([], "note"),
        ],
    )
    def test_what_is_not_allowed_is_refused(self, cli, lake, narrow, write, verb, growth, reason):
        refused = cli(*command_of(verb, lake, write("rows.csv", WIDE["csv"])), *growth, exit_code=2)

        assert reason in refused.stderr
        assert lake.open("narrow").count() == 0

    def test_files_without_a_header_name_no_columns(self, cli, lake, narrow, write, verb):
        file = write("rows.csv", "1,a\n")
        growth = ["--no-header", "--unknown", "keep"]

        refused = cli(*command_of(verb, lake, file), *growth, exit_code=2)

        assert "Files without a header have no names" in refused.stderr
        assert narrow.schema.names == ("n",)


def command_of(verb: str, lake, file) -> list[str]:
    words = WRITES[verb]
    if verb == "staged":
        return [*words, f"{lake.uri}/narrow", str(file)]
    return [words[0], f"{lake.uri}/narrow", str(file), *words[1:]]


class TestRoundTrip:
    """What query writes, append reads."""

    @pytest.mark.parametrize("output", ["csv", "jsonl"])
    def test_rows_come_back_equal(self, cli, lake, flights, address, write, output: str) -> None:
        copy = lake.create("copy", flights.descriptor)
        written = write(f"rows.{output}", cli("query", address, "-o", output).stdout)

        cli("append", f"{lake.uri}/copy", written)

        assert repr(copy.arrow().to_pylist()) == repr(flights.arrow().to_pylist())

    def test_json_lines_come_from_stdin(self, cli, lake, flights, address) -> None:
        copy = lake.create("copy", flights.descriptor)
        lines = cli("query", address, "-o", "jsonl").stdout

        cli("append", f"{lake.uri}/copy", "-", stdin=lines)

        assert copy.count() == 4

    def test_parquet_comes_back_equal(self, cli, lake, flights, tmp_path) -> None:
        copy = lake.create("copy", flights.descriptor)
        pq.write_table(flights.arrow(), tmp_path / "rows.parquet")

        cli("append", f"{lake.uri}/copy", tmp_path / "rows.parquet")

        assert repr(copy.arrow().to_pylist()) == repr(flights.arrow().to_pylist())

    def test_nested_values_and_bytes_survive_json(self, cli, lake, write) -> None:
        point = pa.struct([("at", pa.timestamp("us", tz="UTC")), ("x", pa.float32())])
        schema = pa.schema(
            [
                ("raw", pa.binary()),
                ("path", pa.list_(point)),
                ("prices", pa.map_(pa.string(), pa.decimal128(38, 10))),
                ("ok", pa.bool_()),
                ("wall", pa.timestamp("us")),
            ]
        )
        first = lake.create("first", DatasetDescriptor(schema=schema))
        second = lake.create("second", DatasetDescriptor(schema=schema))
        line = {
            "raw": "AP8=",
            "path": [{"at": "2013-01-01T00:00:00Z", "x": 0.5}, None],
            "prices": {"a": "1234567890123456789012345678.0123456789"},
            "ok": True,
            "wall": "2013-01-01T00:00:00",
        }
        cli("append", f"{lake.uri}/first", "-", stdin=json.dumps(line))

        lines = cli("query", f"{lake.uri}/first", "-o", "jsonl").stdout
        cli("append", f"{lake.uri}/second", "-", stdin=lines)

        assert json.loads(lines) == line
        assert first.arrow().to_pylist()[0]["raw"] == b"\x00\xff"
        assert first.arrow().equals(second.arrow())

    def test_single_nullable_column_keeps_its_nulls_in_csv(self, cli, lake, write) -> None:
        dataset = lake.create("one", DatasetDescriptor(schema=pa.schema([("a", pa.string())])))
        written = write("one.csv", 'a\nx\n\n""\n')

        cli("append", f"{lake.uri}/one", written)

        assert dataset.arrow()["a"].to_pylist() == ["x", None, ""]


class TestAppend:
    def test_reports_the_commit(self, cli, flights, address, write) -> None:
        commit = cli.json("append", address, write("good.csv", GOOD), "--run", "march")

        assert (commit["version"], commit["operation"], commit["row_count"]) == (2, "append", 2)
        assert commit["run"] == "march"
        hours = flights.where("dt = '2013-03-01'").arrow(["time_hour", "flight", "carrier"])
        assert [hour.hour for hour in hours["time_hour"].to_pylist()] == [10, 9]
        assert hours["carrier"].to_pylist() == ["AA", None]

    def test_takes_many_files_and_directories_in_one_commit(
        self, cli, flights, address, write, tmp_path
    ) -> None:
        write("in/a.csv", GOOD)
        with gzip.open(tmp_path / "in" / "b.csv.gz", "wt") as file:
            file.write("flight,time_hour\n3,2013-03-02\n")
        write("in/_started", "")

        commit = cli.json("append", address, tmp_path / "in")

        assert commit["row_count"] == 3
        assert flights.version == 2

    def test_delimiter_header_and_null_can_be_said(self, cli, flights, address, write) -> None:
        rows = write("rows.txt", "2013-03-01\tNA\t5\tNA\tNA\tNA\n")

        cli(
            *("append", address, rows, "--format", "csv", "--no-header"),
            *("--delimiter", "\\t", "--null-text", "NA"),
        )

        (row,) = flights.where("dt = '2013-03-01'").arrow().to_pylist()
        assert (row["carrier"], row["flight"], row["delay"]) == (None, 5, None)


BAD = {
    "unknown.csv": ("time_hour,carier\n2013-03-01,AA\n", "Did you mean 'carrier'?"),
    "missing.csv": ("carrier\nAA\n", "time_hour"),
    "twice.csv": ("time_hour,flight,flight\n2013-03-01,1,2\n", "twice"),
    "type.csv": ("time_hour,flight\n2013-03-01,one\n", "'one'"),
    "ragged.csv": ("time_hour,flight\n2013-03-01,1,2\n", "3 cells, but there are 2 columns"),
    "time.csv": ("time_hour,flight\nyesterday,1\n", "yesterday"),
    "semicolon.csv": ("time_hour;flight\n2013-03-01;1\n", "delimiter ';'"),
    "empty.csv": ("", "empty"),
    "null.csv": ("time_hour,flight\n,1\n", "time_hour"),
    "unknown.jsonl": ('{"time_hour": "2013-03-01", "carier": "AA"}\n', "Did you mean 'carrier'?"),
    "type.jsonl": ('{"time_hour": "2013-03-01", "flight": 1.5}\n', "Line 1"),
    "second.jsonl": (
        '{"time_hour": "2013-03-01"}\n\n{"time_hour": "2013-03-01", "day": "no"}\n',
        "Line 3",
    ),
    "array.jsonl": ('["time_hour", "2013-03-01"]\n', "Line 1"),
    "cut.jsonl": ('{"time_hour": "2013-0', "Line 1"),
    "text.parquet": ("no parquet", "text.parquet"),
}


class TestNothingIsWritten:
    """Exit code 2, a message that names the file, and the dataset as before."""

    @pytest.mark.parametrize("verb", ["append", "overwrite"])
    @pytest.mark.parametrize("name", BAD)
    def test_of_a_file_that_does_not_fit(
        self, cli, flights, address, write, verb: str, name: str
    ) -> None:
        text, told = BAD[name]
        good = write("good" + name[name.index(".") :], GOOD)
        bad = write(name, text)
        files = [good, bad] if name.endswith("csv") else [bad]

        error = cli.error(verb, address, *files)

        assert error["exit_code"] == 2
        assert name in error["message"]
        assert told in error["message"] + error["hint"]
        assert (flights.version, flights.count()) == (1, 4)

    def test_of_parquet_with_another_type(self, cli, flights, address, tmp_path) -> None:
        table = pa.table({"time_hour": pa.array(["2013"]), "flight": [1]})
        pq.write_table(table, tmp_path / "bad.parquet")

        error = cli.error("append", address, tmp_path / "bad.parquet")

        assert error["code"] == "schema-mismatch"
        assert "'time_hour'" in error["message"]
        assert flights.version == 1

    def test_of_csv_into_a_nested_column(self, cli, lake, write) -> None:
        schema = pa.schema([("a", pa.int32()), ("tags", pa.list_(pa.string()))])
        lake.create("nested", DatasetDescriptor(schema=schema))

        error = cli.error("append", f"{lake.uri}/nested", write("a.csv", "a\n1\n"))

        assert "'tags'" in error["message"]

    @pytest.mark.parametrize(
        ("files", "told"),
        [
            (["missing.csv"], "missing.csv"),
            (["a.csv", "b.jsonl"], "different formats"),
            (["c.dat"], "--format"),
            (["-", "a.csv"], "Standard input"),
            (["empty"], "No CSV"),
        ],
    )
    def test_of_inputs_that_cannot_be_used(
        self, cli, flights, address, write, tmp_path, files: list[str], told: str
    ) -> None:
        for name in ("a.csv", "b.jsonl", "c.dat"):
            write(name, "")
        (tmp_path / "empty").mkdir()
        paths = [one if one == "-" else tmp_path / one for one in files]

        error = cli.error("append", address, *paths)

        assert error["exit_code"] == 2
        assert told in error["message"] + error["hint"]
        assert flights.version == 1


class TestOverwrite:
    def test_replaces_the_partitions_that_rows_touch(self, cli, flights, address, write) -> None:
        rows = write("rows.csv", "time_hour,flight\n2013-01-01,100\n")

        commit = cli.json("overwrite", address, rows)

        assert (commit["operation"], commit["removed_file_count"]) == ("overwrite", 1)
        assert flights.where("dt = '2013-01-01'").arrow()["flight"].to_pylist() == [100]
        assert flights.count() == 3

    def test_replaces_a_view_by_nothing(self, cli, flights, address) -> None:
        cli("overwrite", address, "--where", "time_hour < '2013-01-02'")

        assert flights.where("dt = '2013-01-01'").count() == 0
        assert flights.count() == 2

    def test_replaces_a_view_by_rows_that_lie_in_it(self, cli, flights, address, write) -> None:
        rows = write("rows.csv", "time_hour,flight\n2013-01-01,100\n")

        error = cli.error("overwrite", address, rows, "--where", "dt = '2013-01-02'")
        cli("overwrite", address, rows, "--where", "dt <= '2013-01-02'")

        assert "outside the view" in error["message"]
        assert flights.arrow()["flight"].to_pylist() == [100]

    def test_refuses_a_view_across_a_partition(self, cli, flights, address) -> None:
        error = cli.error("overwrite", address, "--where", "flight = 7")

        assert (error["code"], error["exit_code"]) == ("predicate", 2)
        assert flights.version == 1

    def test_without_files_and_view_says_not_what_to_replace(self, cli, address) -> None:
        assert cli.error("overwrite", address)["exit_code"] == 2


@pytest.mark.thorough
def test_file_of_many_rows_is_streamed(cli, flights, address, tmp_path) -> None:
    n = 200_000
    table = pa.table({"flight": range(n), "time_hour": ["2013-01-05T00:00:00Z"] * n})
    pacsv.write_csv(table, tmp_path / "many.csv")

    commit = cli.json("append", address, tmp_path / "many.csv")

    assert commit["row_count"] == n
    assert flights.where("dt = '2013-01-05'").count() == n


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "2013-01-01T05:00:00,UA,1,2.5,10.25,2013-13-01",
            "Text '2013-13-01' is not a valid date .*'day'",
        ),
        (
            "yesterday,UA,1,2.5,10.25,2013-01-01",
            "Text 'yesterday' is not a valid timestamp .*'time_hour'",
        ),
        (
            "2013-01-01T05:00:00,UA,one,2.5,10.25,2013-01-01",
            "Text 'one' is not a valid int .*'flight'",
        ),
        (
            "2013-01-01T05:00:00,UA,1,late,10.25,2013-01-01",
            "Text 'late' is not a valid double .*'delay'",
        ),
        (
            "2013-01-01T05:00:00,UA,1,2.5,dear,2013-01-01",
            "Text 'dear' is not a valid decimal.*'price'",
        ),
        ("2013-01-01T05:00:00,UA,1", "3 cells, but there are 6 columns"),
    ],
)
def test_cell_of_csv_that_does_not_fit_is_told_with_its_line_and_column(
    cli, address, write, row, message
) -> None:
    good = "2013-01-01T05:00:00,UA,1,2.5,10.25,2013-01-01"
    rows = write("rows.csv", f"time_hour,carrier,flight,delay,price,day\n{good}\n{row}\n")

    error = cli.error("append", address, rows)

    assert re.search(f"rows.csv: Line 3: .*{message}", error["message"])
    assert "CSV column" not in error["message"]


class TestDryRun:
    """overwrite --dry-run tells what would be replaced."""

    def test_partitions_and_rows_are_told_and_nothing_is_written(
        self, cli, flights, address, write
    ) -> None:
        rows = write("rows.csv", "time_hour,carrier\n2013-01-01 10:00,AA\n2013-05-01 10:00,AA\n")

        dry = cli("overwrite", address, rows, "--dry-run", "-o", "json")

        assert json.loads(dry.stdout) == [
            {
                "partition": "dt=2013-01-01",
                "inserted_row_count": 1,
                "deleted_row_count": 2,
                "removed_file_count": 1,
            },
            {
                "partition": "dt=2013-05-01",
                "inserted_row_count": 1,
                "deleted_row_count": 0,
                "removed_file_count": 0,
            },
        ]
        assert "Would write 2 rows in place of 2 rows in 1 file of 1 partition." in dry.stderr
        assert flights.version == 1

    def test_view_is_told_as_a_whole(self, cli, flights, address) -> None:
        where = ("--where", "dt = '2013-01-02'")

        dry = cli("overwrite", address, *where, "--dry-run")
        done = cli.json("overwrite", address, *where)

        assert "Would write 0 rows in place of 2 rows in 1 file of 1 partition." in dry.stderr
        assert (done["deleted_row_count"], done["replaced_partition_count"]) == (2, 1)
        assert "2 rows deleted in 1 partition" in cli("history", address).stdout

    def test_rows_that_do_not_fit_are_refused_as_by_the_write(self, cli, address, write) -> None:
        rows = write("rows.csv", "time_hour,carrier\nsoon,AA\n")

        assert cli.error("overwrite", address, rows, "--dry-run")["code"] == "schema-mismatch"

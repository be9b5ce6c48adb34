"""Raw files read in: one batch of what fits, and a quarantine of what does not."""

import contextlib
import datetime as dt
import gzip
import io
import json
import lzma
import re

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import CsvOptions, DatasetDescriptor, LoadOptions, by
from lakebed.arrow.reading.sniffing import check_kind
from lakebed.errors import (
    InvalidInputError,
    PartitionSpecError,
    SchemaMismatchError,
    StorageError,
)
from lakebed.store import open_store
from lakebed.testing import FailingStore

PINGS = pa.schema(
    [("uuid", pa.string()), ("document", pa.string()), ("reason", pa.string()), ("n", pa.int64())]
)
FLIGHTS = pa.schema(
    [
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
    ]
)

OUTAGE = StorageError("The store is out.", retryable=False)


@pytest.fixture
def lake(tmp_path):
    return lakebed.open_repository(tmp_path / "lake")


@pytest.fixture
def raw(tmp_path):
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"


@pytest.fixture
def pings(lake):
    return lake.create(
        "pings", DatasetDescriptor(schema=PINGS, format="submissions", partition_by="reason")
    )


@pytest.fixture
def flights(lake):
    return lake.create(
        "flights", DatasetDescriptor(schema=FLIGHTS, partition_by=[by.date("at", name="dt")])
    )


def lines(numbers, reason="main"):
    return b"".join(b'u%d\t{"reason":"%s","n":%d}\n' % (n, reason.encode(), n) for n in numbers)


def kept(lake, name="pings_quarantine"):
    rows = lake.open(name).kite.reader()
    return sorted(rows, key=lambda row: (row["source_file"], row["line_number"]))


def test_good_lines_become_one_batch_and_the_others_are_kept_with_their_place(
    lake, pings, raw
) -> None:
    path = raw / "a.tsv"
    bad = [b"no tab", b'x\t{"n":"one"}', b"\xff\t{}", b"y\t[1]", b"z\t{", b"\t{}"]
    path.write_bytes(lines(range(5_000)) + b"\n".join(bad) + b"\n" + lines(range(5_000, 5_010)))

    report = pings.load(path, run="monday")

    assert (report.row_count, report.rejected_count, report.file_count) == (5_010, 6, 1)
    assert report.size_bytes == path.stat().st_size
    assert (report.commit.operation, report.commit.run) == ("load", "monday")
    assert report.commit.version == pings.version == 1
    assert sorted(row["n"] for row in pings.kite.reader()) == list(range(5_010))
    rows = kept(lake)
    assert [row["line"] for row in rows] == bad
    assert [row["line_number"] for row in rows] == list(range(5_001, 5_007))
    assert {row["source_file"] for row in rows} == {str(path)}
    assert {row["run"] for row in rows} == {"monday"}
    for row, told in zip(rows, ["tab", "'n'", "UTF-8", "object", "JSON", "Uuid"], strict=True):
        assert told in row["reason"]


def test_what_was_kept_can_be_corrected_and_loaded_again(lake, pings, raw) -> None:
    (raw / "a.tsv").write_bytes(lines(range(3)) + b'x\t{"n":"7"}\n')
    pings.load(raw / "a.tsv")
    (row,) = kept(lake)
    (raw / "b.tsv").write_bytes(row["line"].replace(b'"7"', b"7") + b"\n")

    report = pings.load(raw / "b.tsv")

    assert report.rejected_count == 0
    assert sorted(row["n"] for row in pings.kite.reader()) == [0, 1, 2, 7]


def test_nothing_to_keep_makes_no_quarantine(lake, pings, raw) -> None:
    (raw / "a.tsv").write_bytes(lines(range(3)))

    report = pings.load(raw)

    assert (report.quarantine_commit, report.rejected_count) == (None, 0)
    assert lake.list() == ["pings"]


def test_named_run_is_loaded_once(lake, pings, raw) -> None:
    (raw / "a.tsv").write_bytes(lines(range(3)) + b"bad\n")
    first = pings.load(raw, run="monday")

    again = pings.load(raw, run="monday")

    assert again.is_repeated
    assert (again.commit, again.quarantine_commit) == (first.commit, first.quarantine_commit)
    assert (again.row_count, again.rejected_count) == (3, 1)
    assert (pings.count(), len(kept(lake))) == (3, 1)
    assert pings.load(raw, run="tuesday").row_count == 3
    assert (pings.count(), len(kept(lake))) == (6, 2)


def ping(uuid, reason, number):
    return {"uuid": uuid, "document": json.dumps({"reason": reason, "n": number})}


def numbers(pings):
    return sorted(row["n"] for row in pings.kite.reader())


def test_run_that_was_taken_out_is_loaded_again(lake, pings, raw) -> None:
    (raw / "a.tsv").write_bytes(lines(range(3)) + b"bad\n")
    take_out = {
        "rollback": lambda: pings.rollback(version=0),
        "empty rerun": lambda: pings.rerun([], "monday", replace_all=True),
        "rollback, then empty rerun": lambda: (
            pings.rollback(version=0),
            pings.rerun([], "monday", replace_all=True),
        ),
    }
    pings.load(raw, run="monday")

    for act in take_out.values():
        act()
        assert pings.count() == 0
        report = pings.load(raw, run="monday")

        assert (report.is_repeated, report.row_count, report.rejected_count) == (False, 3, 1)
        assert numbers(pings) == [0, 1, 2]
        assert len(kept(lake)) == 1
        assert pings.load(raw, run="monday").is_repeated


def test_run_that_is_back_or_was_changed_on_purpose_is_not_loaded_again(pings, raw) -> None:
    (raw / "a.tsv").write_bytes(lines(range(3)))
    first = pings.load(raw, run="monday").commit.version
    change = [
        lambda: (pings.rollback(version=0), pings.rollback(version=first)),
        lambda: (pings.rerun([], "monday", replace_all=True), pings.rollback(version=first)),
        lambda: pings.rerun([ping("c", "main", 7)], "monday", replace_all=True),
        lambda: pings.rollback(version=first),
        lambda: pings.where("reason = 'main' AND n = 1").delete(),
        lambda: pings.overwrite([ping("o", "main", 8)]),
        lambda: pings.rerun([], "another", replace_all=True),
    ]

    for act in change:
        act()
        before = pings.version

        assert pings.load(raw, run="monday").is_repeated
        assert pings.version == before


def test_run_of_which_a_part_was_taken_out_is_replaced_as_a_whole(pings, raw) -> None:
    pings.append([ping("x", "main", 9)], run="sunday")
    (raw / "a.tsv").write_bytes(lines(range(3)) + lines(range(3, 5), reason="idle"))
    pings.load(raw, run="monday")
    pings.rollback(version=1, view=pings.where("reason = 'idle'"))
    assert numbers(pings) == [0, 1, 2, 9]

    report = pings.load(raw, run="monday")

    assert (report.is_repeated, report.row_count) == (False, 5)
    assert numbers(pings) == [0, 1, 2, 3, 4, 9]


def test_run_of_an_append_is_no_load(pings, raw) -> None:
    pings.append([{"uuid": "a", "document": "{}"}], run="monday")
    (raw / "a.tsv").write_bytes(lines(range(3)))

    assert pings.load(raw, run="monday").row_count == 3


@pytest.mark.thorough
@pytest.mark.parametrize("nth", range(1, 12))
@pytest.mark.parametrize("landed", [True, False])
def test_run_that_broke_off_is_started_again_and_loses_and_doubles_nothing(
    tmp_path, raw, nth: int, landed: bool
) -> None:
    (raw / "a.tsv").write_bytes(lines(range(10)) + b"bad\nworse\n")
    store = open_store(tmp_path / "lake")
    good = lakebed.Repository(store)
    descriptor = DatasetDescriptor(schema=PINGS, format="submissions", partition_by="reason")
    good.create("pings", descriptor)
    failing = FailingStore(store, fail_on="put", nth=nth, landed=landed, error=OUTAGE)
    broken = lakebed.Repository(failing).open("pings")

    with contextlib.suppress(lakebed.LakebedError):
        broken.load(raw, run="monday")
    # Whatever was loaded, what did not fit is there.
    if good.open("pings").count():
        assert len(kept(good)) == 2
    good.open("pings").load(raw, run="monday")

    assert good.open("pings").count() == 10
    assert [row["line"] for row in kept(good)] == [b"bad", b"worse"]


@pytest.mark.parametrize("suffix", ["gz", "xz", "lz4", "zst"])
@pytest.mark.parametrize("damage", ["cut", "overwritten"])
def test_damaged_file_gives_its_good_lines_and_one_reject(
    lake, pings, raw, suffix: str, damage: str
) -> None:
    noise = b"".join(b'u%d\t{"n":%d,"x":"%d"}\n' % (n, n, n * 7919**3) for n in range(8_000))
    whole = {
        "gz": gzip.compress,
        "xz": lambda data: lzma.compress(data, preset=0),
        "lz4": lambda data: pa.compress(data, "lz4", asbytes=True),
        "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
    }[suffix](noise)
    middle = len(whole) // 2
    data = whole[:middle] if damage == "cut" else whole[:middle] + b"\xff" * 9_000
    (raw / f"a.tsv.{suffix}").write_bytes(data)
    (raw / "b.tsv").write_bytes(lines(range(10)))

    report = pings.load(raw)

    good = report.row_count - 10
    rows = kept(lake)
    assert 0 < good < 8_000
    last = rows[-1]
    assert "damaged" in last["reason"] or "tab" in rows[0]["reason"]
    assert last["source_file"].endswith(f"a.tsv.{suffix}")
    if damage == "cut":
        assert len(rows) == 1
        assert last["line_number"] == good + 1


def test_line_that_is_too_long_is_kept_in_pieces(lake, pings, raw, monkeypatch) -> None:
    monkeypatch.setattr("lakebed.arrow.reading.files.MAX_LINE_BYTES", 200_000)
    long = b'x\t{"n":1,"text":"' + b"a" * 500_000 + b'"}'
    (raw / "a.tsv").write_bytes(lines([1]) + long + b"\n" + lines([2]))

    report = pings.load(raw)

    rows = lake.open("pings_quarantine").arrow().to_pylist()
    assert report.row_count == 2
    assert len(rows) > 1
    assert {row["line_number"] for row in rows} == {2}
    assert b"".join(row["line"] for row in rows) == long


def test_other_dataset_takes_fields_of_documents(lake, raw) -> None:
    schema = pa.schema([("uuid", pa.string()), ("n", pa.int64())])
    dataset = lake.create("numbers", DatasetDescriptor(schema=schema))
    (raw / "a.tsv").write_bytes(lines([7]))

    dataset.load(raw)

    assert list(dataset.kite.reader()) == [{"uuid": "u7", "n": 7}]


def test_value_outside_the_bounds_of_a_partition_function_is_kept(lake, raw) -> None:
    descriptor = DatasetDescriptor(
        schema=pa.schema([("n", pa.int64())]), partition_by=[by.range("n", [10, 20])]
    )
    dataset = lake.create("bounded", descriptor)
    (raw / "a.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in (1, 25, 15)))

    report = dataset.load(raw)

    assert (report.row_count, report.rejected_count) == (2, 1)
    (row,) = kept(lake, "bounded_quarantine")
    assert (row["line_number"], row["line"]) == (2, b'{"n": 25}')
    assert "25" in row["reason"]


def test_provided_partition_fields_have_one_value_for_all_rows(lake, raw) -> None:
    descriptor = DatasetDescriptor(
        schema=PINGS, format="submissions", partition_by=[by.provided("day")]
    )
    dataset = lake.create("pings", descriptor)
    (raw / "a.tsv").write_bytes(lines([1]))

    with pytest.raises(PartitionSpecError, match="day"):
        dataset.load(raw)
    dataset.load(raw, options=LoadOptions(provided={"day": "20131113"}))

    assert [one.path for one in dataset.inspect.partitions()] == ["day=20131113"]


def test_json_lines_know_no_other_fields(lake, flights, raw) -> None:
    good = '{"at": "2013-01-01T10:00:00Z", "carrier": "UA"}'
    (raw / "a.jsonl").write_text(f'{good}\n\n{{"at": "2013-01-01", "carier": "UA"}}\n{good}')

    report = flights.load(raw)

    assert report.row_count == 2
    (row,) = kept(lake, "flights_quarantine")
    assert row["line_number"] == 3
    assert "carier" in row["reason"]


def test_line_without_a_partition_source_has_null_there_whatever_is_around_it(lake, raw) -> None:
    bad = '{"carrier": "UA", "flight": "bad"}'
    by_name = {
        "alone": ['{"flight": 1}'],
        "many": [*['{"flight": 1}'] * 1_500, '{"flight": 1, "carrier": "UA"}'],
        "beside_a_bad_one": ['{"flight": 1}', bad, '{"flight": 1, "carrier": "UA"}'],
    }
    schema = pa.schema([("carrier", pa.string()), ("flight", pa.int32())])
    for name, texts in by_name.items():
        dataset = lake.create(name, DatasetDescriptor(schema=schema, partition_by="carrier"))
        (raw / f"{name}.jsonl").write_text("\n".join(texts))

        report = dataset.load(raw / f"{name}.jsonl")

        assert report.rejected_count == texts.count(bad)
        assert dataset.where("carrier IS NULL").count() == texts.count('{"flight": 1}')


class TestCsv:
    def test_rows_that_do_not_fit_are_kept_as_they_stand_there(self, lake, flights, raw) -> None:
        (raw / "a.csv").write_bytes(
            b"\xef\xbb\xbfat,carrier,flight\r\n"
            b"2013-01-01T10:00:00Z,UA,1\r\n"
            b"2013-01-01T11:00:00Z,UA\r\n"
            b'2013-01-02,"of\r\ntwo lines, ""quoted""",2\r\n'
            b"2013-01-02,AA,two\r\n"
            b"noon,AA,3\r\n"
            b",AA,4\r\n"
            b"2013-01-03,AA,5\r\n"
        )

        report = flights.load(raw)

        rows = sorted(flights.kite.reader(), key=lambda row: row["flight"])
        assert [row["carrier"] for row in rows] == ["UA", 'of\r\ntwo lines, "quoted"', "AA"]
        assert report.rejected_count == 4
        quarantined = kept(lake, "flights_quarantine")
        assert [row["line_number"] for row in quarantined] == [3, 6, 7, 8]
        assert quarantined[1]["line"] == b"2013-01-02,AA,two\r"

    def test_quote_without_an_end_spoils_its_line_alone(self, lake, flights, raw) -> None:
        (raw / "a.csv").write_text('at,carrier\n2013-01-01,"UA\n2013-01-02,AA\n2013-01-03,B6\n')

        report = flights.load(raw)

        assert (report.row_count, report.rejected_count) == (2, 1)
        (row,) = kept(lake, "flights_quarantine")
        assert row["line"] == b'2013-01-01,"UA'

    @pytest.mark.parametrize(
        ("text", "options", "told"),
        [
            ("at,carier\n2013-01-01,UA\n", CsvOptions(), "Did you mean 'carrier'"),
            ("2013-01-01,UA,1\n", CsvOptions(), "2013-01-01"),
            ("carrier\nUA\n", CsvOptions(), "'at'"),
            ("", CsvOptions(), "header"),
            ("2013-01-01,UA\n", CsvOptions(has_header=False), "2 columns"),
            ("2013-01-01,UA,1,x\n", CsvOptions(has_header=False), "4 columns"),
            ("at;carrier\n2013-01-01;UA\n", CsvOptions(), "at;carrier"),
        ],
    )
    def test_header_that_does_not_fit_is_an_error(
        self, lake, flights, raw, text: str, options: CsvOptions, told: str
    ) -> None:
        (raw / "a.csv").write_text(text)

        with pytest.raises((SchemaMismatchError, PartitionSpecError), match=r"\.csv") as caught:
            flights.load(raw, options=LoadOptions(csv=options))

        assert told in str(caught.value)
        assert (flights.version, lake.list()) == (0, ["flights"])

    def test_columns_without_header_go_by_position(self, flights, raw) -> None:
        (raw / "a.csv").write_text("2013-01-01;UA;1\n")
        options = LoadOptions(csv=CsvOptions(has_header=False, delimiter=";"))

        assert flights.load(raw, options=options).row_count == 1
        assert flights.where("carrier = 'UA' AND flight = 1").count() == 1


def avro_bytes(rows, fields, codec="null"):
    sink = io.BytesIO()
    fastavro.writer(sink, {"type": "record", "name": "r", "fields": fields}, rows, codec=codec)
    return sink.getvalue()


AVRO_FIELDS = [
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "carrier", "type": {"type": "enum", "name": "c", "symbols": ["UA", "AA"]}},
    {"name": "flight", "type": ["null", "int"]},
]
NOON = dt.datetime(2013, 6, 1, 12, tzinfo=dt.UTC)


class TestAvro:
    def test_file_is_read_by_the_schema_in_it(self, flights, raw) -> None:
        rows = [{"at": NOON, "carrier": "UA", "flight": n or None} for n in range(3)]
        (raw / "a.avro").write_bytes(avro_bytes(rows, AVRO_FIELDS, "deflate"))

        assert flights.load(raw).row_count == 3

        assert sorted(flights.kite.reader(), key=lambda row: row["flight"] or 0) == rows

    def test_schema_that_does_not_fit_is_an_error(self, flights, raw) -> None:
        fields = [AVRO_FIELDS[0], {"name": "flight", "type": "string"}]
        (raw / "a.avro").write_bytes(avro_bytes([{"at": NOON, "flight": "1"}], fields))

        with pytest.raises(SchemaMismatchError, match=r"a\.avro.*'flight'"):
            flights.load(raw)

    def test_uuid_is_text(self, lake, raw) -> None:
        schema = pa.schema([("id", pa.string())])
        dataset = lake.create("ids", DatasetDescriptor(schema=schema))
        fields = [{"name": "id", "type": {"type": "string", "logicalType": "uuid"}}]
        text = "123e4567-e89b-12d3-a456-426614174000"
        (raw / "a.avro").write_bytes(avro_bytes([{"id": text}], fields))

        dataset.load(raw)

        assert list(dataset.kite.reader()) == [{"id": text}]

    @pytest.mark.parametrize("part", [0.0, 0.5, 0.95])
    def test_damaged_file_gives_its_good_blocks(self, lake, flights, raw, part: float) -> None:
        rows = [{"at": NOON, "carrier": "UA", "flight": n} for n in range(20_000)]
        whole = avro_bytes(rows, AVRO_FIELDS)
        (raw / "a.avro").write_bytes(whole[: int(len(whole) * part)])

        report = flights.load(raw)

        assert report.rejected_count == 1
        assert (report.row_count > 0) == (part > 0)
        (row,) = kept(lake, "flights_quarantine")
        assert row["line_number"] == report.row_count + 1


class TestParquet:
    def test_rows_that_no_partition_takes_are_kept_as_json(self, lake, raw) -> None:
        descriptor = DatasetDescriptor(
            schema=pa.schema([("n", pa.int64()), ("raw", pa.binary())]),
            partition_by=[by.range("n", [10])],
        )
        dataset = lake.create("bounded", descriptor)
        pq.write_table(pa.table({"n": [1, 11, 2], "raw": [b"a", b"\xff", None]}), raw / "a.parquet")

        report = dataset.load(raw)

        assert (report.row_count, report.rejected_count) == (2, 1)
        (row,) = kept(lake, "bounded_quarantine")
        assert (row["line_number"], json.loads(row["line"])) == (2, {"n": 11, "raw": "/w=="})

    def test_schema_that_does_not_fit_is_an_error(self, flights, raw) -> None:
        pq.write_table(pa.table({"at": [1]}), raw / "a.parquet")

        with pytest.raises(SchemaMismatchError, match=r"a\.parquet.*'at'"):
            flights.load(raw)

    def test_damaged_file_is_one_reject(self, lake, flights, raw) -> None:
        (raw / "a.parquet").write_bytes(b"no parquet")

        report = flights.load(raw)

        assert (report.row_count, report.rejected_count) == (0, 1)
        assert kept(lake, "flights_quarantine")[0]["source_file"].endswith("a.parquet")


class TestFiles:
    def test_of_a_tree_are_those_whose_suffix_fits(self, pings, raw) -> None:
        for name in (
            "a/b/1.tsv",
            "a/2.tsv.gz",
            "3.lz4",
            "x.log",
            "README.md",
            "_tmp/4.tsv",
            ".5.tsv",
        ):
            path = raw / name
            path.parent.mkdir(parents=True, exist_ok=True)
            data = lines([1])
            if name.endswith(".gz"):
                data = gzip.compress(data)
            if name.endswith(".lz4"):
                data = pa.compress(data, "lz4", asbytes=True)
            path.write_bytes(data)

        assert pings.load(raw).file_count == 2
        assert pings.load(raw, "submissions").file_count == 4
        assert pings.load(str(raw / "**" / "*.tsv"), run="pattern").file_count == 1

    def test_of_a_url_are_read_through_its_store(self, pings) -> None:
        store = open_store("memory://load-url")
        store.put("in/a/1.tsv", lines([1]))
        store.put("in/2.tsv.gz", gzip.compress(lines([2])))

        assert pings.load("memory://load-url/in/").row_count == 2
        assert pings.load("memory://load-url/in/2.tsv.gz").row_count == 1
        assert pings.load("memory://load-url/in/*.gz").row_count == 1
        store.put("in/a/b/3.tsv", lines([3]))
        for pattern, row_count in [
            ("in/*", 1),
            ("in/*/*.tsv", 1),
            ("in/**/*.tsv", 2),
            ("in/**", 3),
            ("**/[12].*", 2),
        ]:
            assert pings.load(f"memory://load-url/{pattern}").row_count == row_count
        with pytest.raises(InvalidInputError, match="No file"):
            pings.load("memory://load-url/in/*.tsv")
        with pytest.raises(InvalidInputError, match="No file"):
            pings.load("memory://load-url/in/none.tsv")

    def test_that_are_missing_or_mixed_are_errors(self, pings, raw) -> None:
        (raw / "a.tsv").write_bytes(b"")
        (raw / "b.csv").write_bytes(b"")

        for paths, told in [
            (raw / "c.tsv", "No file"),
            (raw / "*.json", "No file"),
            (raw, "different formats"),
            ([], "No file"),
            (7, "int"),
        ]:
            with pytest.raises(InvalidInputError, match=told):
                pings.load(paths)
        with pytest.raises(InvalidInputError, match="orc"):
            pings.load(raw / "a.tsv", "orc")

    def test_that_are_empty_make_a_batch_without_rows(self, pings, raw) -> None:
        (raw / "a.tsv").write_bytes(b"")

        report = pings.load(raw)

        assert (report.row_count, report.commit.version) == (0, 1)


def test_quarantine_may_have_another_name_but_must_be_one(lake, pings, raw) -> None:
    (raw / "a.tsv").write_bytes(b"bad\n")

    pings.load(raw, quarantine="rejects")

    assert len(kept(lake, "rejects")) == 1
    for name in ("pings", "other"):
        lake.create("other", DatasetDescriptor(schema=FLIGHTS), "open")
        with pytest.raises(InvalidInputError, match="quarantine"):
            pings.load(raw, quarantine=name)
    assert pings.version == 1


def test_storage_that_fails_is_no_reject(tmp_path, raw) -> None:
    (raw / "a.tsv").write_bytes(lines(range(3)))
    store = open_store(tmp_path / "lake")
    descriptor = DatasetDescriptor(schema=PINGS, format="submissions")
    lakebed.Repository(store).create("pings", descriptor)
    failing = FailingStore(store, fail_on="put", nth=1, error=OUTAGE)

    with pytest.raises(StorageError):
        lakebed.Repository(failing).open("pings").load(raw)

    assert lakebed.Repository(store).list() == ["pings"]


@pytest.mark.parametrize("junk", [b"junk", b"\x00", b"a,b"])
def test_lines_after_a_damaged_one_are_submissions_still(pings, raw, junk: bytes) -> None:
    (raw / "a.tsv").write_bytes(junk + b"\n" + lines(range(20)))

    report = pings.load(raw)

    assert (report.row_count, report.rejected_count) == (20, 1)


@examples(0.4)
@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 99), st.binary(max_size=20)),
        min_size=1,
        max_size=40,
    )
)
def test_every_line_is_loaded_or_kept(tmp_path_factory, drawn) -> None:
    path = tmp_path_factory.mktemp("raw") / "a.tsv"
    given_lines = [
        b'u\t{"n":%d}' % n if good else junk.replace(b"\n", b"") for good, n, junk in drawn
    ]
    path.write_bytes(b"\n".join(given_lines) + b"\n")
    repository = lakebed.open_repository(f"memory://load-law-{path.parent.name}")
    dataset = repository.create("pings", DatasetDescriptor(schema=PINGS, format="submissions"))

    try:
        check_kind(path.read_bytes(), str(path))
    except InvalidInputError as exc:  # the beginning of a zip archive, for example
        with pytest.raises(InvalidInputError, match=re.escape(exc.message)):
            dataset.load(path)  # a file whose format is to be recognized
        assert dataset.version == 0
        return
    # Junk alone may look like a table of another delimiter, which is refused as a whole.
    report = dataset.load(path, "submissions")

    rejected = repository.open("pings_quarantine").kite.reader() if report.rejected_count else []
    # A mark that some programs put before a text belongs to no line.
    expected = sorted(
        line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line
        for number, line in enumerate(given_lines)
    )
    found = [f"{row['uuid']}\t{row['document']}".encode() for row in dataset.kite.reader()]
    found += [row["line"] for row in rejected]
    assert sorted(found) == [line for line in expected if line.strip()]

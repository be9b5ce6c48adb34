"""Raw files read in, and submissions written and read, by tasks of Spark."""

import gzip
import json

import pyarrow as pa
import pytest

import lakebed
from lakebed import DatasetDescriptor, LoadOptions, WriteOptions
from lakebed.errors import SchemaMismatchError

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [("uuid", pa.string()), ("document", pa.string()), ("reason", pa.string()), ("n", pa.int64())]
)


@pytest.fixture
def lake(tmp_path):
    return lakebed.open_repository(tmp_path / "lake")


@pytest.fixture
def pings(lake):
    return lake.create(
        "pings", DatasetDescriptor(schema=SCHEMA, format="submissions", partition_by="reason")
    )


@pytest.fixture
def raw(tmp_path):
    """Twelve files of different sizes, one of them damaged, with seven bad lines."""
    directory = tmp_path / "raw"
    directory.mkdir()
    for file in range(12):
        data = b"".join(
            b'u%d-%d\t{"reason":"r%d","n":%d}\n' % (file, n, n % 3, n)
            for n in range(100 * (file + 1))
        )
        if file < 7:
            data += b"bad line %d\n" % file
        data = gzip.compress(data)
        (directory / f"{file}.tsv.gz").write_bytes(data[:-20] if file == 11 else data)
    return directory


def rows_of(dataset):
    return sorted(map(repr, dataset.kite.reader()))


def test_tasks_load_what_one_process_loads(spark, lake, pings, raw) -> None:
    report = pings.load(raw, run="monday", spark=spark)

    alone = lake.create("alone", pings.descriptor)
    expected = alone.load(raw, run="monday")
    assert report.row_count == expected.row_count == pings.count()
    assert report.rejected_count == expected.rejected_count == 8
    assert rows_of(pings) == rows_of(alone)
    told = [
        sorted(
            (row["source_file"], row["line_number"], row["reason"], row["line"])
            for row in lake.open(f"{name}_quarantine").kite.reader()
        )
        for name in ("pings", "alone")
    ]
    assert told[0] == told[1]
    assert pings.load(raw, run="monday", spark=True).is_repeated
    # Nothing of what was set aside for a while is left.
    assert [one.key for one in lake.store.list("pings/staging/")] == []


def test_header_that_does_not_fit_leaves_nothing(spark, lake, tmp_path) -> None:
    (tmp_path / "a.csv").write_text("n,m\n1,2\n")
    dataset = lake.create("numbers", DatasetDescriptor(schema=pa.schema([("n", pa.int64())])))

    with pytest.raises(SchemaMismatchError, match="'m'"):
        dataset.load(tmp_path / "a.csv", spark=spark)

    assert dataset.version == 0


def test_store_of_one_process_is_loaded_in_it(spark, raw) -> None:
    repository = lakebed.open_repository("memory://spark-load")
    dataset = repository.create("pings", DatasetDescriptor(schema=SCHEMA, format="submissions"))

    assert dataset.load(raw / "0.tsv.gz", spark=spark).row_count == 100


def test_frame_of_submissions_is_written_and_read_by_tasks(spark, pings) -> None:
    documents = [(f"u{n}", json.dumps({"reason": "ab"[n % 2], "n": n})) for n in range(200)]
    frame = spark.createDataFrame(documents, "uuid string, document string").repartition(3)

    commit = pings.with_options(write=WriteOptions(target_bytes=1_000)).append(frame)

    assert commit.row_count == 200
    assert all(key.endswith(".tsv.zst") for key in commit.files_added)
    assert sorted(row.n for row in pings.spark(spark, columns=["n"]).collect()) == list(range(200))
    found = pings.where("reason = 'b' AND n < 10").spark(spark).collect()
    assert sorted((row.uuid, row.document) for row in found) == sorted(documents[1:10:2])
    assert pings.spark(spark).count() == 200


def test_bad_document_of_a_frame_is_an_error(spark, pings) -> None:
    frame = spark.createDataFrame([("a", "{}"), ("b", "{")], "uuid string, document string")

    with pytest.raises(SchemaMismatchError, match="'b'"):
        pings.append(frame)

    assert pings.version == 0


def test_options_reach_the_tasks(spark, lake, tmp_path) -> None:
    (tmp_path / "a.csv").write_text("1;NA\n2;x\n")
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    dataset = lake.create("numbers", DatasetDescriptor(schema=schema))
    csv = lakebed.CsvOptions(has_header=False, delimiter=";", null_text="NA")

    dataset.load(tmp_path / "a.csv", spark=spark, options=LoadOptions(csv=csv))

    assert sorted(map(repr, dataset.kite.reader())) == [
        "{'n': 1, 'text': None}",
        "{'n': 2, 'text': 'x'}",
    ]

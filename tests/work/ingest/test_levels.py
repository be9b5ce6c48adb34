"""Folders `name=value` above raw files: their values are columns of the rows, or are refused."""

import contextlib
import datetime as dt
import io
import json
import os
import socket
import threading
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import lakebed
from lakebed import DatasetDescriptor, FromFiles, Ingest, LoadOptions
from lakebed.arrow.reading.files import find_files
from lakebed.cli import main
from lakebed.errors import InvalidInputError, LakebedWarning, RejectsError, SchemaMismatchError
from lakebed.store import open_store

FORMATS = ("csv", "json", "avro", "parquet")
SCHEMA = pa.schema(
    [("n", pa.int64()), ("dt", pa.date32()), ("k", pa.int32()), ("place", pa.string())]
)
NULL = "__HIVE_DEFAULT_PARTITION__"
TREE = {
    "dt=2020-01-01/k=7/place=at%20sea": [{"n": 1}, {"n": 2}],
    f"dt=2020-01-02/k={NULL}/place=a=b": [{"n": 3}],
}
ROWS = [
    {"n": 1, "dt": dt.date(2020, 1, 1), "k": 7, "place": "at sea"},
    {"n": 2, "dt": dt.date(2020, 1, 1), "k": 7, "place": "at sea"},
    {"n": 3, "dt": dt.date(2020, 1, 2), "k": None, "place": "a=b"},
]


def content(format_: str, rows: list[dict[str, object]]) -> bytes:
    """Return rows as a file of a format."""
    if format_ == "csv":
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        return "\n".join([*lines, ""]).encode()
    if format_ == "json":
        return "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    sink = io.BytesIO()
    if format_ == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), sink)
    else:
        kinds = {int: "long", str: "string"}
        fields = [{"name": name, "type": kinds[type(value)]} for name, value in rows[0].items()]
        fastavro.writer(sink, {"type": "record", "name": "r", "fields": fields}, rows)
    return sink.getvalue()


def plant(root, format_, tree=None):
    suffix = {"json": "jsonl"}.get(format_, format_)
    for number, (folder, rows) in enumerate((tree or TREE).items()):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / f"{number}.{suffix}").write_bytes(content(format_, rows))
    return root


def rows_of(dataset):
    return sorted(dataset.arrow().to_pylist(), key=lambda row: row["n"])


@pytest.fixture
def lake(tmp_path):
    return lakebed.open_repository(tmp_path / "lake")


@pytest.fixture(params=FORMATS)
def format_(request):
    return request.param


@pytest.fixture
def raw(tmp_path, format_):
    return plant(tmp_path / "raw", format_)


@pytest.fixture
def flights(lake):
    return lake.create("t", DatasetDescriptor(schema=SCHEMA, partition_by="dt"))


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(one) for one in arguments])
    assert result.exit_code == code, result.output
    return result.output


# --- Fields are filled


def test_load_fills_fields_by_their_type(flights, raw) -> None:
    assert flights.load(raw).rejected_count == 0

    assert rows_of(flights) == ROWS


def test_ingest_fills_fields_and_reads_each_file_once(flights, raw, tmp_path) -> None:
    declared = Ingest(name="t", into=f"{tmp_path}/lake/t", source=FromFiles(paths=raw))

    assert declared.run().row_count == 3
    assert declared.run().unchanged_count == 2

    assert rows_of(flights) == ROWS


@pytest.mark.parametrize("verb", ["append", "import"])
def test_verbs_fill_fields(flights, raw, tmp_path, verb) -> None:
    run(verb, tmp_path / "lake/t", raw)

    assert rows_of(flights) == ROWS


def test_a_missing_dataset_has_the_levels_as_fields(lake, raw, tmp_path) -> None:
    run("import", tmp_path / "lake/new", raw)

    assert rows_of(lake["new"]) == ROWS
    kinds = {field.name: str(field.type) for field in lake["new"].schema}
    assert kinds == {"n": "long", "dt": "date", "k": "long", "place": "string"}
    assert str(lakebed.infer_schema(raw).get("dt").type) == "date"


def test_a_declaration_that_is_drafted_has_the_levels(lake, raw, tmp_path) -> None:
    declared = tmp_path / "p.toml"

    declared.write_text(run("init", raw, "--into", tmp_path / "lake/drafted", "-q"))
    run("run", declared)

    assert rows_of(lake["drafted"]) == ROWS


def test_merge_reads_levels(lake, raw, flights, tmp_path) -> None:
    run("merge", tmp_path / "lake/t", raw, "--on", "n")

    assert rows_of(flights) == ROWS


def test_every_way_to_name_the_files_gives_the_same(lake, flights, raw) -> None:
    first = next((raw / "dt=2020-01-01").rglob("0.*"))
    for given in (raw, f"{raw}/**/*", f"{raw}/dt=*/k=7", raw / "dt=2020-01-01", first, str(first)):
        if "*" in str(given) and not str(given).endswith("*"):
            given = f"{given}/*/*"
        _, files = find_files(given)
        levels = {file.location: dict(file.levels) for file in files}
        assert levels[str(first)] == {"dt": "2020-01-01", "k": "7", "place": "at sea"}, given


def test_files_of_a_store_are_read_alike(lake, flights, raw, format_) -> None:
    url = f"memory://levels-{format_}"
    store = open_store(url)
    for path in raw.rglob("*.*"):
        store.put(f"in/{path.relative_to(raw).as_posix()}", path.read_bytes())

    flights.load(f"{url}/in/")

    assert rows_of(flights) == ROWS
    _, files = find_files(f"{url}/in/dt=*/k=7/*/*")
    assert [file.levels["k"] for file in files] == ["7"]


@pytest.mark.spark
def test_tasks_of_spark_fill_fields(lake, tmp_path, spark) -> None:
    for format_ in FORMATS:
        dataset = lake.create(format_, DatasetDescriptor(schema=SCHEMA))
        dataset.load(plant(tmp_path / format_, format_), spark=spark)
        assert rows_of(dataset) == ROWS, format_


@pytest.mark.spark
def test_a_folder_of_spark_means_what_spark_reads(lake, tmp_path, spark) -> None:
    values = [("a b", 1), ("é/ü%41", 2), (None, 3), ("x=y", 4), ("2020-01-01", 5)]
    frame = spark.createDataFrame([(text, n) for text, n in values], "s string, n long")
    frame.write.partitionBy("s").parquet(f"file://{tmp_path}/raw")
    frame.write.partitionBy("s").json(f"file://{tmp_path}/lines")

    for name in ("raw", "lines"):
        run("import", tmp_path / f"lake/{name}", tmp_path / name)
        assert {(row["s"], row["n"]) for row in rows_of(lake[name])} == set(values)


def test_submissions_take_levels_that_their_documents_agree_with(lake, tmp_path) -> None:
    schema = pa.schema([("uuid", pa.string()), ("document", pa.string()), ("n", pa.int64())])
    pings = lake.create("pings", DatasetDescriptor(schema=schema, format="submissions"))
    for n, document in ((1, '{"n":1}'), (2, '{"n":3}')):
        (tmp_path / f"raw/n={n}").mkdir(parents=True)
        (tmp_path / f"raw/n={n}/a.tsv").write_text(f"u{n}\t{document}\n")

    report = pings.load(tmp_path / "raw")

    assert (report.row_count, report.rejected_count) == (1, 1)
    assert pings.arrow().column("n").to_pylist() == [1]


def test_a_required_field_and_one_with_a_default_are_filled(lake, raw) -> None:
    schema = pa.schema([*SCHEMA.remove(1), pa.field("dt", pa.date32(), nullable=False)])
    dataset = lake.create("t", DatasetDescriptor(schema=schema, partition_by="dt"))
    dataset.evolve(lambda old: old.add_field("note", "string", default="none"))

    dataset.load(raw)

    assert {row["dt"] for row in rows_of(dataset)} == {row["dt"] for row in ROWS}
    assert {row["note"] for row in rows_of(dataset)} == {"none"}


def test_csv_without_header_has_the_other_fields_in_order(flights, tmp_path) -> None:
    folder = tmp_path / "raw/dt=2020-01-01"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("1,7,at sea\n")

    flights.load(tmp_path / "raw", options=LoadOptions(csv=lakebed.CsvOptions(has_header=False)))

    assert rows_of(flights) == ROWS[:1]


# --- Levels that do not fit


def test_unknown_levels_are_refused_kept_or_ignored_as_unknown_columns(lake, raw) -> None:
    for rule in ("reject", "ignore", "keep"):
        dataset = lake.create(rule, DatasetDescriptor(schema=SCHEMA.remove(1)))
        options = LoadOptions(unknown=rule)
        if rule == "reject":
            with pytest.raises(SchemaMismatchError, match="Unknown column 'dt', from the folder"):
                dataset.load(raw, options=options)
            continue
        report = dataset.load(raw, options=options)
        assert report.row_count == 3
        assert report.ignored_row_count == (3 if rule == "ignore" else 0)
    assert lake["ignore"].schema.names == ("n", "k", "place")
    assert lake["keep"].schema.names == ("n", "k", "place", "dt")
    assert {row["dt"] for row in rows_of(lake["keep"])} == {row["dt"] for row in ROWS}


def test_an_ingest_keeps_files_with_unknown_levels_back(lake, raw, tmp_path) -> None:
    lake.create("t", DatasetDescriptor(schema=SCHEMA.remove(1)))
    source = FromFiles(paths=raw)
    declared = Ingest(name="t", into=f"{tmp_path}/lake/t", source=source)

    report = declared.run()

    assert [entry.why for entry in report.left_out] == ["refused", "refused"]
    plain = Ingest(
        name="t", into=f"{tmp_path}/lake/t", source=FromFiles(paths=raw, levels=False)
    ).run()
    assert plain.row_count == 3
    assert lake["t"].arrow().column("k").null_count == 3


@pytest.mark.parametrize("value", [7, 8])
def test_a_column_that_is_in_the_file_too_must_agree(lake, tmp_path, format_, value) -> None:
    raw = plant(tmp_path / "raw", format_, {"k=7": [{"n": 1, "k": 7}, {"n": 2, "k": value}]})
    schema = pa.schema([("n", pa.int64()), ("k", pa.int64())])
    dataset = lake.create("t", DatasetDescriptor(schema=schema))

    report = dataset.load(raw)

    assert report.row_count == (2 if value == 7 else 1)
    assert dataset.arrow().column("k").to_pylist() == [7] * report.row_count
    if value == 8:
        reasons = lake["t_quarantine"].arrow().column("reason").to_pylist()
        assert ["'k' is 8" in reason and "stands for 7" in reason for reason in reasons] == [True]
        with pytest.raises(RejectsError, match="'k' is 8 in the file"):
            dataset.load(raw, options=LoadOptions(fail_on_rejects=True))


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("dt=yesterday", "dt=yesterday"),
        ("k=3000000000", "k=3000000000"),
        ("k=", "has no value"),
        ("k=1/k=1", "lies in two folders"),
        ("place=%ff", "is not UTF-8"),
    ],
)
def test_a_level_that_is_no_value_of_its_field_is_refused_by_name(
    lake, tmp_path, folder, reason
) -> None:
    raw = plant(tmp_path / "raw", "json", {folder: [{"n": 1}]})

    with pytest.raises(InvalidInputError, match=reason) as caught:
        lake.create("t", DatasetDescriptor(schema=SCHEMA)).load(raw)

    assert "levels=False" in caught.value.hint
    assert lake["t"].load(raw, options=LoadOptions(levels=False)).row_count == 1


def test_a_null_level_of_a_required_field_is_refused(lake, tmp_path) -> None:
    raw = plant(tmp_path / "raw", "json", {f"k={NULL}": [{"n": 1}]})
    required = pa.schema([("n", pa.int64()), pa.field("k", pa.int64(), nullable=False)])

    with pytest.raises(SchemaMismatchError, match="'k' is not nullable"):
        lake.create("t", DatasetDescriptor(schema=required)).load(raw)


def test_files_with_other_levels_do_not_make_a_schema(tmp_path) -> None:
    raw = plant(tmp_path / "raw", "json", {"dt=2020-01-01": [{"n": 1}], "x": [{"n": 2}]})

    with pytest.raises(SchemaMismatchError, match=r"folders of dt=….* of no level"):
        lakebed.infer_schema(raw)


@pytest.mark.parametrize("verb", ["append", "import", "ingest"])
def test_levels_can_be_read_as_plain_folders(lake, raw, tmp_path, verb) -> None:
    lake.create("t", DatasetDescriptor(schema=SCHEMA.remove(1)))
    address = tmp_path / "lake/t"
    into = [verb, raw, "--into", address] if verb == "ingest" else [verb, address, raw]

    run(*into, code=2)
    assert lake["t"].count() == 0
    run(*into, "--no-levels")

    assert lake["t"].arrow().column("k").null_count == 3


# --- Batches


BATCHES = {
    "dt=2020-01-01/batch_id=9": [{"n": 1}, {"n": 2}],
    "dt=2020-01-01/batch_id=10": [{"n": 3}],
    "dt=2020-01-02/batch_id=9": [{"n": 4}],
}


def test_only_the_newest_batch_of_each_partition_counts(lake, tmp_path, format_) -> None:
    raw = plant(tmp_path / "raw", format_, BATCHES)

    with pytest.warns(LakebedWarning, match="1 file of older batches did not count"):
        assert lake.create("t", DatasetDescriptor(schema=SCHEMA)).load(raw).row_count == 2

    assert [row["n"] for row in rows_of(lake["t"])] == [3, 4]
    assert {row["dt"] for row in rows_of(lake["t"])} == {row["dt"] for row in ROWS}
    assert "1 file of older batches" in run("import", tmp_path / "lake/new", raw)
    assert lake["new"].count() == 2


def test_an_ingest_of_batches_is_refused_since_older_rows_would_stay(lake, tmp_path) -> None:
    raw = plant(tmp_path / "raw", "parquet", BATCHES)
    lake.create("t", DatasetDescriptor(schema=SCHEMA))

    with pytest.raises(InvalidInputError, match="lies in a batch") as caught:
        Ingest(name="t", into=f"{tmp_path}/lake/t", source=FromFiles(paths=raw)).run()

    assert "adopt" in caught.value.hint


def test_batches_without_a_number_are_refused(lake, tmp_path) -> None:
    raw = plant(tmp_path / "raw", "json", {"batch_id=first": [{"n": 1}]})

    with pytest.raises(InvalidInputError, match="id is not a number"):
        lake.create("t", DatasetDescriptor(schema=SCHEMA)).load(raw)


# --- Folders that belong to a dataset or table


@pytest.mark.parametrize("scheme", ["path", "store"])
def test_files_of_a_dataset_are_refused_with_the_way_to_read_it(tmp_path, scheme) -> None:
    root = str(tmp_path / "lake") if scheme == "path" else "memory://levels-of-a-dataset/deep"
    lake = lakebed.open_repository(root)
    lake.write("t", pa.table({"n": [1, 2]}))
    lake["t"].where("n = 1").delete()
    copy = lake.create("copy", DatasetDescriptor(schema=pa.schema([("n", pa.int64())])))

    for given in (f"{root}/t/", f"{root}/t/data/", f"{root}/**/*.parquet"):
        with pytest.raises(InvalidInputError, match="is a dataset of Lakebed") as caught:
            copy.load(given)

    address, name = caught.value.hint.split("'")[1:4:2]
    assert lakebed.open_repository(address)[name].count() == lake[name].count()


def test_a_copy_of_the_data_of_a_dataset_is_refused(lake, tmp_path) -> None:
    lake.write("t", pa.table({"n": [1, 2]}))
    lake["t"].where("n = 1").delete()
    (tmp_path / "lake/t/data").rename(tmp_path / "moved")

    with pytest.raises(InvalidInputError, match="of a dataset of Lakebed, whose head"):
        lakebed.infer_schema(tmp_path / "moved")


# --- What is not a raw file


def test_hidden_files_and_folders_are_left_out_as_by_spark(tmp_path) -> None:
    for name in (
        "a.csv",
        "_year=1/b.csv",
        "_SUCCESS",
        ".a.csv.crc",
        "_temporary/0/c.csv",
        ".hidden/d.csv",
        "e.csv._COPYING_",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("n\n1\n")

    for given in (tmp_path, f"{tmp_path}/**/*.csv", f"{tmp_path}/**/*"):
        _, files = find_files(given, "csv")
        names = {os.path.relpath(file.location, tmp_path) for file in files}
        assert names == {"a.csv", "_year=1/b.csv"}, given


def test_pipes_and_sockets_are_left_out_or_refused_and_never_waited_for(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n')
    os.mkfifo(tmp_path / "b.jsonl")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        with contextlib.chdir(tmp_path):  # the path of a socket is short
            listener.bind("c.jsonl")
        found: list[str] = []

        def search() -> None:
            for given in (tmp_path, f"{tmp_path}/*.jsonl"):
                found.extend(Path(f.location).name for f in find_files(given)[1])
            for name in ("b.jsonl", "c.jsonl", "/dev/null"):
                with pytest.raises(InvalidInputError, match="is not a regular file"):
                    find_files(tmp_path / name, "json")
            found.append("end")

        thread = threading.Thread(target=search, daemon=True)
        thread.start()
        thread.join(timeout=20)

    assert found == ["a.jsonl", "a.jsonl", "end"]


@pytest.mark.parametrize("given", ["in", "in/*.jsonl", "in/**/*.jsonl", "in/*/*.jsonl", "i?/x/*"])
@pytest.mark.parametrize("link", ["b.jsonl", "x", "x/b.jsonl"])
def test_a_link_that_a_search_meets_is_refused_unless_an_option_allows_it(
    tmp_path, given: str, link: str
) -> None:
    raw, outside = tmp_path / "in", tmp_path / "outside"
    for folder in (raw, outside, *([raw / "x"] if link != "x" else [])):
        folder.mkdir()
        (folder / "a.jsonl").write_text('{"n": 1}\n')
    (outside / "s.jsonl").write_text('{"n": 777}\n')
    (raw / link).symlink_to(outside if link == "x" else outside / "s.jsonl")
    meets = {
        "in": True,
        "in/*.jsonl": link == "b.jsonl",
        "in/**/*.jsonl": True,
        "in/*/*.jsonl": link != "b.jsonl",
        "i?/x/*": link != "b.jsonl",
    }[given]

    if meets:
        with pytest.raises(InvalidInputError, match="is a symbolic link") as refused:
            find_files(f"{tmp_path}/{given}")
        assert "links=true" in refused.value.hint
    else:
        assert find_files(f"{tmp_path}/{given}")[1]
    _, files = find_files(f"{tmp_path}/{given}", storage_options={"links": "true"})
    names = {os.path.relpath(file.location, raw) for file in files}
    assert any(name.startswith(link) for name in names) is meets


def test_a_link_that_is_named_is_read_and_one_above_is_followed(tmp_path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.jsonl").write_text('{"n": 1}\n')
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    (tmp_path / "file.jsonl").symlink_to(tmp_path / "real" / "a.jsonl")

    for given in ("folder", "folder/*.jsonl", "folder/a.jsonl", "file.jsonl"):
        assert len(find_files(tmp_path / given)[1]) == 1, given


def test_links_in_a_circle_end(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n')
    (tmp_path / "again").symlink_to(tmp_path)

    _, files = find_files(tmp_path, storage_options={"links": "true"})

    assert [Path(file.location).name for file in files] == ["a.jsonl"]


def test_import_of_a_folder_with_a_link_writes_nothing(lake, tmp_path) -> None:
    raw = plant(tmp_path / "raw", "parquet", {"k=1": [{"n": 1}]})
    (tmp_path / "raw" / "k=1" / "secret.parquet").symlink_to(tmp_path / "elsewhere")

    refused = run("import", tmp_path / "lake/t", raw, code=2)

    assert "is a symbolic link" in refused
    assert not lake.exists("t")


def test_pyarrow_reads_the_same_from_the_folders(lake, tmp_path) -> None:
    raw = plant(tmp_path / "raw", "parquet", {"k=1/p=a%20b": [{"n": 1}], "k=2/p=c": [{"n": 2}]})

    run("import", tmp_path / "lake/t", raw)

    judge = pads.dataset(raw, partitioning="hive").to_table().to_pylist()
    assert rows_of(lake["t"]) == sorted(judge, key=lambda row: row["n"])

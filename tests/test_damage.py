"""A bit that flips on storage: no read gives wrong values, and no call writes them anew."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from effort import cases
from heads import ON_TREES

import lakebed
from lakebed import Dataset, DatasetDescriptor, by
from lakebed.errors import CorruptMetadataError, DamagedFileError, InvalidInputError
from lakebed.store.posix import PosixStore
from lakebed.work.check import Severity

SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("text", pa.string()),
        ("few", pa.string()),
        ("is_odd", pa.bool_()),
        ("day", pa.date32()),
        ("list", pa.list_(pa.int64())),
    ]
)
CASES = [
    *[("parquet", one) for one in ("zstd", "snappy", "gzip", "lz4", "uncompressed")],
    *[("avro", one) for one in ("deflate", "zstd", "snappy", "bzip2", "xz", "uncompressed")],
    *[("submissions", one) for one in ("zstd", "lz4", "gzip", "xz", "uncompressed")],
]


def rows(count: int, seed: int = 0) -> list[dict]:
    """Rows that compress, and rows that do not; of columns with a dictionary, and without one."""
    rng = random.Random(seed)
    return [
        {
            "kind": rng.choice("ab"),
            "n": rng.randrange(10**12),
            "x": rng.random(),
            "text": f"{rng.getrandbits(40):x}",
            "few": f"value {n % 7}" if n % 5 else None,
            "is_odd": rng.random() < 0.5,
            "day": dt.date(2013, 1, 1) + dt.timedelta(rng.randrange(4000)),
            "list": [rng.randrange(1000) for _ in range(n % 4)],
        }
        for n in range(count)
    ]


def submissions(count: int) -> list[dict]:
    return [
        {"uuid": row["text"], "document": json.dumps({"n": row["n"], "few": row["few"]})}
        for row in rows(count)
    ]


def new_lake(root: Path) -> lakebed.Repository:
    return lakebed.Repository(PosixStore(root, durable=False))


def create(lake: lakebed.Repository, kind: str, compression: str) -> Dataset:
    """Return a dataset of one file in the format."""
    schema = SCHEMA
    if kind == "submissions":
        fields = [("uuid", pa.string()), ("document", pa.string()), ("n", pa.int64())]
        schema = pa.schema(fields)
    dataset = lake.create(
        "d", DatasetDescriptor(schema=schema, format=kind, compression=compression)
    )
    dataset.append(submissions(300) if kind == "submissions" else rows(300))
    return dataset


def data_range(data: bytes, kind: str) -> range:
    """Return where the pages of a Parquet file are, with their heads; of others, all of it."""
    if kind != "parquet":
        return range(len(data))
    return range(4, len(data) - 8 - int.from_bytes(data[-8:-4], "little"))


def flipped(data: bytes, places: range, rng: random.Random) -> bytes:
    damaged = bytearray(data)
    damaged[rng.choice(places)] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def columns_by_themselves(dataset: Dataset) -> pa.Table:
    names = dataset.schema.names
    return pa.table({name: dataset.arrow([name]).column(name) for name in names})


def filtered(dataset: Dataset) -> pa.Table:
    low, high = (dataset.where(text).arrow() for text in ("n < 500000000000", "n >= 500000000000"))
    # In the order of the file again, if both hold what they should.
    return pa.concat_tables([low, high])


def whole(dataset: Dataset) -> pa.Table:
    return dataset.arrow()


READS: list[Callable[[Dataset], pa.Table]] = [whole, columns_by_themselves, filtered]


def outcome(
    read: Callable[[Dataset], pa.Table], dataset: Dataset
) -> tuple[DamagedFileError | None, pa.Table]:
    try:
        return None, read(dataset)
    except DamagedFileError as error:
        return error, None


def check_reads(root: Path, kind: str, compression: str, flips: int, seed: int) -> None:
    lake = new_lake(root)
    dataset = create(lake, kind, compression)
    (file,) = dataset.files()
    path = root / file.key
    data = path.read_bytes()
    expected = {read: read(dataset) for read in READS}
    rng = random.Random(f"{kind} {compression} {seed}")
    refused = 0
    for number in range(flips):
        path.write_bytes(flipped(data, data_range(data, kind), rng))
        read = READS[number % len(READS)]
        error, found = outcome(read, dataset)
        if error is None:
            assert found.equals(expected[read])
            continue
        assert (error.dataset, error.key) == ("d", file.key)
        assert "check --deep" in error.hint
        refused += 1
    assert refused > flips // 2
    path.write_bytes(data)
    assert whole(dataset).equals(expected[whole])


@pytest.mark.parametrize(("kind", "compression"), CASES)
@pytest.mark.thorough
def test_a_read_after_a_bit_has_flipped_is_right_or_names_the_file(
    kind: str, compression: str, tmp_path: Path
) -> None:
    check_reads(tmp_path, kind, compression, flips=cases(12) if kind == "parquet" else 4, seed=0)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "compression"), CASES)
def test_reads_after_many_flips_are_right_or_name_the_file(
    kind: str, compression: str, tmp_path: Path
) -> None:
    check_reads(tmp_path, kind, compression, flips=400, seed=1)


@pytest.mark.parametrize("place_in_head", range(3))
def test_a_page_that_says_it_is_of_another_kind_is_not_passed_over(
    place_in_head: int, tmp_path: Path
) -> None:
    dataset = create(new_lake(tmp_path), "parquet", "zstd")
    (file,) = dataset.files()
    path = tmp_path / file.key
    data = bytearray(path.read_bytes())
    data[pq.read_metadata(path).row_group(0).column(1).data_page_offset + 1] ^= 2 << place_in_head
    path.write_bytes(data)

    for read in (
        whole,
        lambda one: one.arrow(["n"]),
        lambda one: one.arrow(["n", "x"]),
        lambda one: one.where("n > 5").arrow(["n"]),
        lambda one: one.where("n > 5").count(),
        lambda one: one.where("n > 5 AND n < 1000000000001").arrow(["x"]),
    ):
        with pytest.raises(DamagedFileError, match=path.name):
            read(dataset)


def test_a_column_whose_name_has_changed_in_the_footer_is_not_read_as_null(tmp_path: Path) -> None:
    dataset = create(new_lake(tmp_path), "parquet", "zstd")
    (file,) = dataset.files()
    path = tmp_path / file.key
    data = bytearray(path.read_bytes())
    data[data.index(b"text", data_range(data, "parquet").stop)] ^= 1
    path.write_bytes(data)

    for read in (
        whole,
        lambda one: one.arrow(["text"]),
        lambda one: one.where("text IS NULL").count(),
        lambda one: one.where("text > 'a' AND x > 0").arrow(["n"]),
        lambda one: one.arrow(["n", "x"]),
    ):
        with pytest.raises(DamagedFileError, match=path.name):
            read(dataset)


def test_of_many_files_the_damaged_one_is_named(tmp_path: Path) -> None:
    dataset = new_lake(tmp_path).create("d", DatasetDescriptor(schema=SCHEMA))
    for seed in range(5):
        dataset.append(rows(50, seed))
    victim = dataset.files()[3].key
    damage_page(tmp_path / victim)

    for read in (whole, filtered, lambda one: one.where("x > 0.5").count()):
        with pytest.raises(DamagedFileError, match=victim) as caught:
            read(dataset)
        assert caught.value.key == victim


def damage_page(path: Path) -> None:
    """Flip a bit in the last page of a Parquet file."""
    data = bytearray(path.read_bytes())
    footer = pq.read_metadata(path)
    group = footer.row_group(footer.num_row_groups - 1)
    column = group.column(SCHEMA.names.index("x"))
    data[column.data_page_offset + column.total_compressed_size - 9] ^= 4
    path.write_bytes(bytes(data))


def damage_footer(path: Path) -> None:
    """Flip a bit in the footer of a Parquet file."""
    data = bytearray(path.read_bytes())
    data[-100] ^= 4
    path.write_bytes(bytes(data))


SQL = (
    "SELECT * FROM d",
    "SELECT count(*) FROM d WHERE x > 0.5",
    "SELECT l.n FROM d AS l JOIN d AS r ON l.x = r.x",
    "SELECT batch_time, n FROM d WHERE x > 0.5",
    "INSERT INTO d SELECT * FROM d",
    "MERGE INTO d USING (SELECT * FROM d WHERE x > 0.5) AS s ON d.n = s.n "
    "WHEN MATCHED THEN UPDATE SET text = s.text",
    "UPDATE d SET text = 'a' WHERE x > 0.5",
)


@pytest.mark.parametrize("statement", SQL)
@pytest.mark.parametrize("place", ["page", "footer"])
@pytest.mark.parametrize("format_", ["parquet", "avro"])
def test_a_statement_of_sql_names_the_damaged_file(
    tmp_path: Path, format_: str, place: str, statement: str
) -> None:
    lake = new_lake(tmp_path)
    dataset = lake.create("d", DatasetDescriptor(schema=SCHEMA, format=format_))
    dataset.append(rows(50))
    dataset.append(rows(50, 1))
    victim = dataset.files()[1].key
    path = tmp_path / victim
    (damage_page if (format_, place) == ("parquet", "page") else damage_footer)(path)

    with pytest.raises(DamagedFileError, match=victim) as caught:
        lake.sql(statement, write=not statement.startswith("SELECT"))
    assert caught.value.key == victim
    assert dataset.snapshot().version == 2

    wrong = lake.create("e", DatasetDescriptor(schema=SCHEMA))
    with pytest.raises(InvalidInputError):  # what is wrong with a text is none of a file
        lake.sql(f"SELECT m FROM {wrong.name}")


@pytest.mark.parametrize("damage", [damage_page, damage_footer])
def test_a_report_shows_which_file_is_damaged(tmp_path: Path, damage) -> None:
    lake = new_lake(tmp_path / "lake")
    dataset = lake.create("d", DatasetDescriptor(schema=SCHEMA))
    dataset.append(rows(50))
    (file,) = dataset.files()
    damage(tmp_path / "lake" / file.key)

    page = " ".join(lake.report(tmp_path / "page.html", rows=10).read_text().split())

    assert "is damaged" in page
    assert file.key in page


# What reads rows and writes them anew


def compact(dataset: Dataset) -> None:
    dataset.compact()


def compact_sorted(dataset: Dataset) -> None:
    dataset.compact(sort_by="n")


def delete(dataset: Dataset) -> None:
    dataset.where("n < 500000000000").delete()


def promote(dataset: Dataset) -> None:
    dataset.dimensions.promote({"kind": ["a", "b", "z"]})


def build_index(dataset: Dataset) -> None:
    dataset.indices.build("text")


REWRITES: list[Callable[[Dataset], None]] = [compact, compact_sorted, delete, promote, build_index]


def make_dimension(root: Path) -> Dataset:
    """A dataset of two files, all of whose rows any of the calls reads."""
    lake = new_lake(root)
    descriptor = DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.dimension("kind", ["z"])], compression="snappy"
    )
    dataset = lake.create("d", descriptor)
    for seed in range(2):
        dataset.append(rows(60, seed))
    return dataset


def objects(root: Path) -> set[Path]:
    """Return all data files and postings."""
    return {*root.glob("d/data/**/*.parquet"), *root.glob("d/postings/**/*.parquet")}


def without_page_checksums(path: Path) -> None:
    """Write other values of a file in its place, as releases without page checksums wrote them."""
    table = pq.read_table(path, partitioning=None)
    other = pc.add(table.column("x"), 1.0)
    position = table.schema.names.index("x")
    pq.write_table(table.set_column(position, "x", other), path, compression="snappy")


@pytest.mark.thorough
@pytest.mark.parametrize("damage", [damage_page, without_page_checksums])
@pytest.mark.parametrize("rewrite", REWRITES)
def test_no_call_writes_rows_of_a_damaged_file_anew(
    rewrite: Callable[[Dataset], None], damage: Callable[[Path], None], tmp_path: Path
) -> None:
    dataset = make_dimension(tmp_path)
    good = dataset.arrow().sort_by("n")
    victim = tmp_path / dataset.files()[0].key
    data = victim.read_bytes()
    damage(victim)
    before = objects(tmp_path)

    with pytest.raises(DamagedFileError, match=victim.name):
        rewrite(dataset)

    assert objects(tmp_path) == before
    assert {commit.operation for commit in dataset.history()} <= {"create", "append", "update"}
    (finding,) = [
        one for one in dataset.check(deep=True).problems if one.severity == Severity.ERROR
    ]
    assert victim.name in finding.key
    victim.write_bytes(data)
    rewrite(dataset)
    assert dataset.check(deep=True).problems == ()
    expected = good
    if rewrite is delete:
        expected = good.filter(pc.field("n") >= 500000000000)
    assert dataset.arrow().sort_by("n").equals(expected)


def test_a_file_of_an_earlier_release_is_not_compacted_with_a_flipped_bit(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parent / "data" / "format-v1", tmp_path, dirs_exist_ok=True)
    dataset = new_lake(tmp_path).open("flights")
    victim = tmp_path / dataset.files()[1].key
    dataset.append(dataset.arrow())  # so that its partition has two files
    good = sorted(map(str, dataset.kite.reader()))
    data = victim.read_bytes()
    wrong = next(one for one in each_flip(data) if is_read_as_other(victim, one))
    victim.write_bytes(wrong)
    version = dataset.version

    with pytest.raises(DamagedFileError, match="checksum"):
        dataset.compact()
    assert dataset.version == version

    victim.write_bytes(data)
    dataset.compact()
    assert sorted(map(str, dataset.kite.reader())) == good


def each_flip(data: bytes) -> Iterator[bytes]:
    for place, bit in itertools.product(data_range(data, "parquet"), range(8)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << bit
        yield bytes(damaged)


def is_read_as_other(path: Path, damaged: bytes) -> bool:
    try:
        found = pq.read_table(pa.BufferReader(damaged))
    except (pa.ArrowException, OSError):
        return False
    return not found.equals(pq.read_table(path, partitioning=None))


@pytest.mark.parametrize("damage", [damage_page, without_page_checksums])
def test_rows_beside_those_of_a_replaced_raw_file_are_not_written_anew_from_a_damaged_file(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    for name, first in (("a", 0), ("b", 50)):
        lines = [json.dumps({"x": n / 7, "n": n}) for n in range(first, first + 50)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ingest = lakebed.Ingest(
        name="numbers",
        into=f"{tmp_path}/lake/d",
        source=lakebed.FromFiles(paths=folder, supersede="path"),
        format="json",
        create=DatasetDescriptor(schema=pa.schema([("n", pa.int64()), ("x", pa.float64())])),
    )
    ingest.run()
    dataset = ingest.dataset()
    (file,) = dataset.files()
    path = tmp_path / "lake" / file.key
    data = path.read_bytes()
    if damage is damage_page:
        place = pq.read_metadata(path).row_group(0).column(1).data_page_offset + 60
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
    else:
        damage(path)
    (folder / "a.jsonl").write_text('{"n": 1000, "x": 0.5}\n', encoding="utf-8")

    with pytest.raises(DamagedFileError, match="damaged"):
        ingest.run()

    assert dataset.version == 1
    path.write_bytes(data)
    ingest.run()
    assert dataset.count() == 51
    assert dataset.check(deep=True).problems == ()


def test_files_whose_facts_are_lost_are_compacted_as_they_are(
    tmp_path: Path,
) -> None:
    dataset = make_dimension(tmp_path)
    for segment in tmp_path.glob("d/files/*.parquet"):
        segment.write_bytes(b"lost")

    assert dataset.compact().files_after == 1

    assert dataset.count() == 120


def test_a_repair_records_no_checksum_of_a_damaged_file(tmp_path: Path) -> None:
    dataset = make_dimension(tmp_path)
    for segment in tmp_path.glob("d/files/*.parquet"):
        segment.write_bytes(b"lost")
    victim = tmp_path / dataset.files()[0].key
    damage_page(victim)

    dataset.check(repair=True)

    (facts, content) = dataset.check(deep=True).problems
    assert "no facts" in " ".join((facts.what, content.what))
    assert facts.key == content.key == dataset.files()[0].key
    with pytest.raises(DamagedFileError):
        dataset.compact()


def test_a_damaged_page_of_a_raw_file_is_a_reject_and_no_row(tmp_path: Path) -> None:
    dataset = new_lake(tmp_path).create("d", DatasetDescriptor(schema=SCHEMA))
    path = tmp_path / "raw.parquet"
    pq.write_table(pa.Table.from_pylist(rows(50), SCHEMA), path, write_page_checksum=True)
    damage_page(path)

    report = dataset.load(path)

    assert (report.row_count, report.rejected_count) == (0, 1)


def test_an_index_file_for_other_tools_has_page_checksums(tmp_path: Path) -> None:
    dataset = new_lake(tmp_path).create("d", DatasetDescriptor(schema=SCHEMA, index=["text"]))
    dataset.append(rows(200))
    dataset.compact(metadata=True)
    (path,) = tmp_path.glob("d/indices/text/*.parquet")
    data = path.read_bytes()
    start = pq.read_metadata(path).row_group(0).column(0).dictionary_page_offset
    for place in range(start + 60, start + 1_000, 97):
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])

        (finding,) = dataset.check().problems

        assert finding.key.endswith(path.name)


def test_what_was_recorded_of_a_file_is_compared_piece_by_piece_where_it_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakebed.arrow.intact.HELD_BYTES", 100)
    dataset = make_dimension(tmp_path)
    victim = tmp_path / dataset.files()[0].key
    data = victim.read_bytes()
    without_page_checksums(victim)

    with pytest.raises(CorruptMetadataError, match="damaged"):
        dataset.compact()

    victim.write_bytes(data)
    assert dataset.compact().row_count == 120


@pytest.mark.parametrize(
    ("folder", "ask"),
    [
        ("history", lambda dataset: dataset.history()),
        ("history", lambda dataset: dataset.at(version=1 if ON_TREES else 0)),
        ("runs", lambda dataset: dataset.rerun([{"n": 2}], run="first", replace_all=True)),
        ("sources", lambda dataset: dataset.sources.list()),
    ],
)
def test_list_that_somebody_has_deleted_is_damage_and_not_something_that_was_not_found(
    tmp_path: Path, folder: str, ask: Callable[[Dataset], object]
) -> None:
    lake = tmp_path / "lake"
    schema = pa.schema([("n", pa.int64())])
    dataset = lakebed.open_repository(lake).create("d", DatasetDescriptor(schema=schema))
    dataset.append([{"n": 1}], run="first")
    (tmp_path / "in.csv").write_text("n\n1\n")
    source = lakebed.FromFiles(paths=str(tmp_path / "in.csv"))
    lakebed.Ingest(name="files", into=f"{lake}/d", source=source).run()
    if ON_TREES:  # its head has the last commits
        dataset.compact(metadata=True)
    shutil.rmtree(lake / "d" / folder)

    with pytest.raises(CorruptMetadataError, match="it is missing") as caught:
        ask(lakebed.open_repository(lake)["d"])

    assert caught.value.hint

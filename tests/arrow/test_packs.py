"""Small files are read together: rows, sources, rejects and counts are those of each by itself."""

import gzip
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nasty_files import nasty_files
from reading_twice import plain_rows

from lakebed import CsvOptions, JsonOptions
from lakebed.arrow.kernel import BatchTarget
from lakebed.arrow.reading.files import RawFile, Watch, contents_of, find_files
from lakebed.arrow.reading.packs import packs_of
from lakebed.arrow.reading.rows import check_files
from lakebed.arrow.reading.sift import Job, read_rejects, sift
from lakebed.errors import LakebedError, SchemaMismatchError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.store.memory import MemoryStore

SCHEMA = pa.schema([("a", pa.int64()), ("day", pa.date32()), ("s", pa.string())])


def sift_files(job: Job, files: tuple[RawFile, ...]) -> tuple[object, ...]:
    """Return the rows, the rejects, the counts and the sources of an ingest."""
    store = MemoryStore("packs")
    try:
        done = sift(store, job, files)
    except LakebedError as exc:
        return type(exc), exc.message
    rows = [row for key in done.written.keys(job.target) for row in rows_of(store, key)]
    rejects = [row for batch in read_rejects(store, done.reject_keys) for row in batch.to_pylist()]
    rejects.sort(key=lambda row: (row["source_file"], row["line_number"], row["line"]))
    counts = {
        location: (replace(became, reason=""), bool(became.reason))
        for location, became in done.counts.items()
    }
    return rows, rejects, counts, sorted(map(repr, done.written.origins.values()))


def rows_of(store: MemoryStore, key: str) -> list[str]:
    table = pq.read_table(pa.BufferReader(store.get(key).data))
    return [row for batch in table.to_batches() for row in plain_rows(batch)]


def compare(
    folder: Path, job: Job, contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> tuple[object, ...]:
    """Return what an ingest made of files, which is the same with and without packs."""
    paths = [folder / name for name in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    _, files = find_files([str(path) for path in paths], job.format)
    monkeypatch.setattr("lakebed.arrow.reading.packs.SMALL_BYTES", -1)
    expected = sift_files(job, files)
    monkeypatch.setattr("lakebed.arrow.reading.packs.SMALL_BYTES", 2**18)
    found = sift_files(job, files)
    assert found == expected
    return found


def job_of(descriptor: DatasetDescriptor, file_format: str, **options: object) -> Job:
    target = BatchTarget(dataset="x", batch_id=1, descriptor=descriptor, is_traced=True)
    return Job(target=target, format=file_format, csv=CsvOptions(), json=JsonOptions(), **options)


@pytest.mark.parametrize("file_format", ["csv", "json", "submissions"])
def test_packs_give_what_files_by_themselves_give(
    file_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(40):
        given = nasty_files(file_format, seed)
        job = job_of(
            given.descriptor, file_format, unknown=given.unknown, rejects_files=seed % 2 == 0
        )
        name, content = next(iter(given.contents.items()))
        more = {f"again{n}/{name}": content for n in range(3)}
        compare(
            tmp_path / str(seed), replace(job, csv=given.csv), given.contents | more, monkeypatch
        )


def test_one_bad_file_of_many_leaves_the_others_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {f"{n:03}.csv": b"a,day,s\n%d,2024-01-01,x\n" % n for n in range(60)}
    contents["017.csv"] = b"a,day,s\n17,2024-01-01,x\nx,2024-01-01,y\n"
    contents["031.csv"] = b"a,day,s,more\n31,2024-01-01,x,y\n"
    contents["040.csv"] = b""
    job = job_of(DatasetDescriptor(schema=SCHEMA), "csv", rejects_files=True)

    rows, rejects, counts, _ = compare(tmp_path, job, contents, monkeypatch)

    assert [int(row[2 : row.index("'", 2)]) for row in rows] == [
        n for n in range(60) if n not in (31, 40)
    ]
    assert [row["line_number"] for row in rejects] == [3, 1, 1]
    assert list(counts) == [str(tmp_path / name) for name in contents]


def gzip_of(*numbers: int) -> bytes:
    rows = b"".join(b"%d,2024-01-01,note %d\n" % (n, n * n) for n in numbers)
    return gzip.compress(b"a,day,s\n" + rows, mtime=0)


ROWS_OF_GZIP = gzip.compress(b"5,2024-01-01,y\n", mtime=0)
ODD_GZIP = {
    "two members": gzip_of(1, 2) + ROWS_OF_GZIP,
    "no member after the first": gzip_of(1, 2) + gzip.compress(b""),
    "a line over two members": gzip.compress(b"a,day,s\n1,2024-0") + gzip.compress(b"1-01,x\n"),
    "a second member that is cut": gzip_of(1, 2) + ROWS_OF_GZIP[:-9],
    "cut": gzip_of(*range(900))[:-400],
    "cut in its checksum": gzip_of(*range(900))[:-6],
    "cut in its header": gzip_of(1)[:7],
    "another checksum": gzip_of(*range(900))[:-8] + b"abcd" + gzip_of(*range(900))[-4:],
    "other bytes inside": gzip_of(*range(900))[:700] + b"\xff" * 40 + gzip_of(*range(900))[740:],
    "text after it": gzip_of(1, 2) + b"and more",
    "zeros after it": gzip_of(1, 2) + bytes(512),
    "no byte": b"",
    "text": b"a,day,s\n7,2024-01-01,x\n",
    "a mark": gzip.compress(b"\xef\xbb\xbfa,day,s\n8,2024-01-01,x\n"),
    "UTF-16": gzip.compress("a,day,s\n8,2024-01-01,x\n".encode("utf-16")),
    "much text": gzip_of(*range(40_000)),
    "a cell too many": gzip.compress(b"a,day,s\n1,2024-01-01,x,\n2,2024-01-01,x\n"),
    "another header": gzip.compress(b"a,day,t\n1,2024-01-01,x\n"),
}


@pytest.mark.parametrize("content", ODD_GZIP.values(), ids=ODD_GZIP)
def test_odd_files_of_gzip_are_read_as_by_themselves(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {f"{n}.csv.gz": gzip_of(n) for n in (3, 5)} | {"4.csv.gz": content}
    job = job_of(DatasetDescriptor(schema=SCHEMA), "csv", rejects_files=True, is_hashing=True)

    rows, _, counts, _ = compare(tmp_path, job, contents, monkeypatch)

    assert {"note 9", "note 25"} <= {row.split("'")[5] for row in rows}
    assert len(counts) == 3


def test_headers_of_gzip_are_checked_at_any_length_unless_they_are_damaged(tmp_path: Path) -> None:
    names = [f"column_{n}" for n in range(3_000)]
    header = ",".join(names).encode() + b"\n"
    descriptor = DatasetDescriptor(schema=pa.schema([(name, pa.string()) for name in names]))

    def check(content: bytes) -> None:
        (tmp_path / "a.csv.gz").write_bytes(content)
        _, files = find_files([str(tmp_path / "a.csv.gz")], "csv")
        check_files(files, "csv", descriptor, CsvOptions())

    check(gzip.compress(header))
    check(gzip.compress(header) + b"and more")
    check(gzip.compress(header)[:2_000])
    check(b"\x1f\x8bno gzip")
    for other in (header.replace(b"n_2999", b"n_3000"), b"x,y\n"):
        with pytest.raises(SchemaMismatchError, match=r"a\.csv\.gz"):
            check(gzip.compress(other))


def test_content_of_small_files_of_gzip_is_that_of_their_text(tmp_path: Path) -> None:
    contents = {"a.csv.gz": gzip_of(1), "b.csv.gz": gzip_of(2) + ROWS_OF_GZIP, "c.csv": b"a\n1\n"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    _, files = find_files([str(tmp_path / name) for name in contents], "csv")
    files = tuple(replace(file, first_bytes=4) for file in files)

    ((pack, _),) = packs_of(files, is_hashing=True)

    for file, plain in zip(pack, files, strict=True):
        assert isinstance(file.watch, Watch)
        expected, parts = contents_of(plain, [4])
        assert file.watch.bytes_read is not None
        assert file.watch.bytes_read.is_ended
        assert file.watch.bytes_read.content == expected
        assert file.watch.bytes_read.first == parts[4]


def test_levels_are_values_of_packed_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {
        f"in/day=2024-01-{day:02}/{n}.jsonl": b'{"a": %d, "s": "x"}\n' % n
        for day in range(1, 4)
        for n in range(3)
    }
    job = job_of(DatasetDescriptor(schema=SCHEMA), "json")

    rows, rejects, _, _ = compare(tmp_path, job, contents, monkeypatch)

    first = 19_723  # 2024-01-01, in days since 1970
    assert [row.split("'")[3] for row in rows] == [str(first + n // 3) for n in range(9)]
    assert rejects == []


def test_each_small_file_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: Counter[str] = Counter()
    open_raw = RawFile.open_raw

    def count(file: RawFile) -> pa.NativeFile:
        opened[file.location] += 1
        return open_raw(file)

    monkeypatch.setattr(RawFile, "open_raw", count)
    paths = [tmp_path / f"{n}.csv{'.gz' * (n % 2)}" for n in range(30)]
    for path in paths:
        text = b"a,day,s\n1,2024-01-01,x\n"
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    large = tmp_path / "large.csv"
    large.write_bytes(b"a,day,s\n" + b"1,2024-01-01,x\n" * 30_000)
    _, files = find_files([*map(str, paths), str(large)], "csv")
    job = job_of(DatasetDescriptor(schema=SCHEMA), "csv", rejects_files=True)

    sift_files(job, files)

    assert set(opened.values()) == {1}
    assert len(opened) == 31

"""Small files are read together: rows, sources, rejects and counts are those of each by itself."""

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
from lakebed.arrow.reading.files import RawFile, find_files
from lakebed.arrow.reading.sift import Job, read_rejects, sift
from lakebed.errors import LakebedError
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
    paths = [tmp_path / f"{n}.csv" for n in range(30)]
    for path in paths:
        path.write_bytes(b"a,day,s\n1,2024-01-01,x\n")
    large = tmp_path / "large.csv"
    large.write_bytes(b"a,day,s\n" + b"1,2024-01-01,x\n" * 30_000)
    _, files = find_files([*map(str, paths), str(large)], "csv")
    job = job_of(DatasetDescriptor(schema=SCHEMA), "csv", rejects_files=True)

    sift_files(job, files)

    assert set(opened.values()) == {1}
    assert len(opened) == 31

"""Push, fetch and find over every kind of archive; what is stored, and what is refused."""

import datetime as dt
import gzip
import io
import os
import pickle
import subprocess
import sys
import tracemalloc
import uuid
from pathlib import Path

import pytest

import lakebed
from lakebed.archive import Archive, FileMetadata, open_index
from lakebed.archive.translator import Translator
from lakebed.errors import (
    CorruptMetadataError,
    FormatError,
    InvalidInputError,
    MissingDependencyError,
    RecordExistsError,
    RecordNotFoundError,
    StorageError,
)
from lakebed.store import open_store
from lakebed.testing import CountingStore, FailingStore

T0 = 1426809600000
everywhere = pytest.mark.parametrize("archive", ["directory", "s3", "s3-dynamodb"], indirect=True)


@everywhere
def test_pushed_file_comes_back_with_its_metadata(archive: Archive, tmp_path: Path) -> None:
    path = tmp_path / "syslog.1"
    path.write_bytes(b"mwahaha")

    record = archive.push(
        path, where="web1", what="syslog", start="2015-03-20", end="2015-03-21", work_id="job-7"
    )

    assert record.hash == "a3e75ee4f45f676422e038f2c116d000"
    assert record.url == f"{archive.store.uri}/{record.id}/data"
    assert (record.path, record.size_bytes) == (str(path), 7)
    assert abs(record.created_at - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=5)
    assert archive.record(record.url) == archive.record(record.id) == record
    assert list(archive.list("syslog", start=T0, end=T0)) == [record]
    assert list(archive.list("syslog", work_id="job-7", where="web1")) == [record]
    assert archive.latest("syslog", "web1", now=dt.datetime(2015, 3, 22)) == record
    with archive.open(record.id) as content:
        assert content.read() == b"mwahaha"
    fetched = archive.fetch(record.url, tmp_path / "out")
    assert fetched == tmp_path / "out" / record.id
    assert fetched.read_bytes() == b"mwahaha"
    assert list((tmp_path / "out").iterdir()) == [fetched]


@pytest.mark.parametrize("size_bytes", [0, 1, 8 * 1024 * 1024, 20_000_000])
@pytest.mark.parametrize("file_id", [None, "mine"])
def test_content_of_any_size_survives(archive, push, size_bytes: int, file_id: str | None) -> None:
    content = (bytes(range(251)) * (size_bytes // 251 + 1))[:size_bytes]

    record = push(content, id=file_id)

    assert record.size_bytes == size_bytes
    assert record.hash == lakebed.archive.content_hash([content])
    with archive.open(record.url) as file:
        assert file.read() == content


def test_open_reads_in_every_way(archive: Archive, push) -> None:
    record = push(b"one\ntwo\nthree")

    with archive.open(record.id) as file:
        assert file.read(5) == b"one\nt"
        assert file.read() == b"wo\nthree"
        assert file.read() == b""
    with archive.open(record.id) as file:
        assert file.readlines() == [b"one\n", b"two\n", b"three"]
    file.close()
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.read()


def test_metadata_lies_with_the_object(archive: Archive, push) -> None:
    record = push(extra={"more": "ä"})

    text = archive.store.get(f"{record.id}/metadata").data
    stat = archive.store.stat(f"{record.id}/data")

    assert FileMetadata.from_json(text) == record.metadata
    assert stat.attributes == (
        {"datalake": text.decode()} if archive.store.keeps_attributes else {}
    )


def test_metadata_that_is_too_long_for_a_header_is_kept_all_the_same(archive, push) -> None:
    record = push(path="/" + "x" * 5_000)

    assert archive.record(record.id) == record


def test_object_under_an_old_key_can_be_read_where_it_has_its_metadata() -> None:
    archive = lakebed.open_archive("memory://old-keys")
    metadata = FileMetadata(
        {"start": T0, "where": "a", "what": "nginx", "id": "523", "hash": "12345", "work_id": None,
         "path": "/x"},
        is_stored=True,
    )  # fmt: skip
    key = "d-nebraska/nginx/1437375600000/91dd2525a5924c6c972e3d67fee8cda9-nginx-523.txt"
    archive.store.put_stream(key, [b"old"], attributes={"datalake": metadata.to_json()})

    record = archive.ingest(f"memory://old-keys/{key}")

    assert record.metadata == metadata
    assert list(archive.list("nginx", start=T0, end=T0)) == [record]
    with archive.open(record.url) as file:
        assert file.read() == b"old"


def test_compressed_content_is_gzip_with_its_own_hash(archive: Archive, push) -> None:
    record = push(b"a" * 100_000, compress=True)

    with archive.open(record.id) as file:
        stored = file.read()
    assert len(stored) == record.size_bytes < 1_000
    assert gzip.decompress(stored) == b"a" * 100_000
    assert push(b"a" * 100_000, compress=True).hash == record.hash


@pytest.mark.thorough
def test_file_is_pushed_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        for _ in range(64):
            file.write(os.urandom(1_000_000))
    archive = lakebed.open_archive(tmp_path / "raw")
    archive.init()

    tracemalloc.start()
    record = archive.push(path, where="a", what="b", start=T0)
    with archive.open(record.id) as content:
        while content.read(1_000_000):
            pass
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert record.size_bytes == 64_000_000
    assert peak_bytes < 25_000_000


def test_push_without_an_id_reads_the_source_once() -> None:
    left = [b"one", b"two"]

    class Once(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def seekable(self) -> bool:
            return False

        def read(self, size: int = -1) -> bytes:
            return left.pop(0) if left else b""

    archive = lakebed.open_archive("memory://once")
    record = archive.push(Once(), path="/x", where="a", what="b", start=T0)

    with archive.open(record.id) as file:
        assert file.read() == b"onetwo"


def test_push_costs_two_writes_and_a_look(tmp_path: Path) -> None:
    store = CountingStore(open_store("memory://counted-push"))
    archive = Archive(store, open_index("sqlite://"))

    record = archive.push(io.BytesIO(b"x"), path="/x", where="a", what="b", start=T0)

    assert (store.counts.put, store.counts.head, store.counts.total) == (2, 1, 3)
    store.reset()
    with archive.open(record.id) as file:
        file.read()
    assert store.counts.total <= 3


# Ids


@everywhere
def test_same_file_under_its_id_again_changes_nothing(archive: Archive, push) -> None:
    first = push(b"one", id="mine")

    assert push(b"one", id="mine") == first
    assert list(archive.list("log", start=T0, end=T0)) == [first]


@pytest.mark.parametrize("change", [{"content": b"two"}, {"where": "other"}, {"start": T0 + 1}])
def test_repeated_id_never_overwrites(archive: Archive, push, change) -> None:
    first = push(b"one", id="mine")

    with pytest.raises(RecordExistsError, match="mine"):
        push(**{"content": b"one", "id": "mine", **change})

    assert archive.record("mine") == first
    with archive.open("mine") as file:
        assert file.read() == b"one"


def test_claim_of_a_killed_push_can_be_taken_up(archive: Archive, push) -> None:
    first = push(b"one", id="mine")
    archive.store.delete(["mine/data"])
    archive.index.delete(["mine"])

    with pytest.raises(RecordExistsError):
        push(b"two", id="mine")
    again = push(b"one", id="mine")

    assert again.metadata == first.metadata
    with archive.open("mine") as file:
        assert file.read() == b"one"


@pytest.mark.parametrize("file_id", ["", "..", "a/b", ".x", "a\\b", "x" * 300, "a\n", 5])
def test_id_that_is_no_name_is_refused(push, file_id: object) -> None:
    with pytest.raises(InvalidInputError):
        push(id=file_id)


# What is refused


@pytest.mark.parametrize(
    "change",
    [{"where": "Not Legal"}, {"start": "nope"}, {"end": 0}, {"work_id": "null"}, {"path": "a"}],
)
def test_bad_metadata_is_refused_before_anything_is_stored(archive, push, change) -> None:
    with pytest.raises(InvalidInputError):
        push(**change)

    assert list(archive.store.list()) == []


def test_missing_file_and_directory_are_told(archive: Archive, tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(InvalidInputError, match="cannot be used"):
            archive.push(path, where="a", what="b", start=T0)


def test_open_file_without_path_is_refused(archive: Archive) -> None:
    with pytest.raises(InvalidInputError, match="path"):
        archive.push(io.BytesIO(b""), where="a", what="b", start=T0)


def test_only_urls_of_the_archive_are_followed(archive: Archive, push) -> None:
    record = push()
    root = archive.store.uri

    for bad in (
        record.url.replace(root, f"{root}-evil"),
        f"{root}/../x/data",
        f"{root}//{record.id}/data",
        root,
        f"{root}/",
        "http://127.0.0.1/x/data",
        "file:///etc/passwd",
        "..",
        "../../etc/passwd",
        "",
    ):
        with pytest.raises(InvalidInputError):
            archive.record(bad)
    for missing in (f"{root}/missing/data", "missing", f"{root}/{record.id}"):
        with pytest.raises(RecordNotFoundError):
            archive.open(missing)


def test_object_without_metadata_is_told(archive: Archive) -> None:
    for key in ("plain/data", "some/other/key"):
        archive.store.put(key, b"x")
        with pytest.raises(CorruptMetadataError, match="no metadata"):
            archive.record(f"{archive.store.uri}/{key}")


@pytest.mark.parametrize("text", [b"{", b"[]", b"null", b'{"version": 0}', b"\xff"])
def test_bad_metadata_beside_a_content_is_told(archive: Archive, text: bytes) -> None:
    archive.store.put("bad/data", b"x")
    archive.store.put("bad/metadata", text)

    with pytest.raises(CorruptMetadataError, match="breaks a rule"):
        archive.record("bad")


def test_metadata_of_another_file_is_not_believed(archive: Archive, push) -> None:
    record = push()
    archive.store.put("other/data", b"x")
    archive.store.put("other/metadata", record.metadata.to_json().encode())

    with pytest.raises(CorruptMetadataError, match="is the metadata of"):
        archive.record("other")


@pytest.mark.parametrize("damage", [b"CONTENT", b"conten", b"", b"content and more"])
def test_damaged_content_is_never_handed_on(archive, push, tmp_path, damage: bytes) -> None:
    record = push(b"content")
    attributes = archive.store.stat(f"{record.id}/data").attributes
    archive.store.put_stream(f"{record.id}/data", [damage], attributes=attributes)

    with pytest.raises(FormatError, match=record.hash):
        archive.fetch(record.id, tmp_path / "out")
    with archive.open(record.id) as file, pytest.raises(FormatError):
        file.read()
    with archive.open(record.id) as file, pytest.raises(FormatError):
        list(iter(lambda: file.read(3), b""))
    with archive.open(record.id, verify=False) as file:
        assert file.read() == damage
    assert list((tmp_path / "out").iterdir()) == []


def test_content_that_changes_during_the_push_is_refused(tmp_path: Path) -> None:
    class Restless(io.BytesIO):
        def seek(self, offset: int, whence: int = 0) -> int:
            if whence == 0:
                self.getbuffer()[0:1] = b"X"
            return super().seek(offset, whence)

    archive = lakebed.open_archive("memory://restless")
    with pytest.raises(InvalidInputError, match="changed while"):
        archive.push(Restless(b"content"), path="/x", where="a", what="b", start=T0, id="mine")

    assert not any(info.key == "mine/data" for info in archive.store.list())


def test_failure_of_the_index_tells_where_the_file_is(tmp_path: Path) -> None:
    class Broken:
        url = "broken"

        def put(self, records: object) -> None:
            raise StorageError("It broke.")

    store = open_store("memory://broken-index")
    with pytest.raises(StorageError) as failure:
        Archive(store, Broken()).push(io.BytesIO(b"x"), path="/x", where="a", what="b", start=T0)

    (key, _) = (info.key for info in store.list())
    assert key in failure.value.__notes__[0]


def test_push_that_fails_leaves_nothing_in_the_index() -> None:
    inner = open_store("memory://failing-push")
    archive = Archive(FailingStore(inner, fail_on="create"), open_index("sqlite://"))
    archive.init()

    with pytest.raises(StorageError):
        archive.push(io.BytesIO(b"x"), path="/x", where="a", what="b", start=T0)

    assert list(archive.index.records()) == []
    assert archive.reindex().indexed_count == 1  # the object tells of itself


# Latest


def test_latest_of_nothing_is_not_found(archive: Archive) -> None:
    with pytest.raises(RecordNotFoundError, match="14 days"):
        archive.latest("log", "box")


@pytest.mark.parametrize("lookback", [-1, 1.5, "9", None])
def test_bad_lookback_is_refused(archive: Archive, lookback: object) -> None:
    with pytest.raises(InvalidInputError, match="look back"):
        archive.latest("log", "box", lookback_days=lookback)


# Translators


def test_fields_are_taken_from_the_path(push) -> None:
    record = push(
        path="/var/log/jobs/job-1234.log",
        work_id=r".*job-(?P<job_id>[0-9]+).log$~job{job_id}",
        where="/var/(?P<x>[a-z]+)/~{x}-1",
    )

    assert (record.work_id, record.where) == ("job1234", "log-1")


@pytest.mark.parametrize(
    "expression",
    ["a~b~c", "(~x", "nomatch~x", "/~{y}", "/~{x.__class__}", "/(?P<x>.)~{x!r}", "/(?P<x>.)~{x:>9}",
     "/~{", "/~{0}", "/~{}", "/(?P<x>Q)?~{x}", "~Bad Slug"],
)  # fmt: skip
def test_bad_translator_is_refused(archive: Archive, push, expression: str) -> None:
    with pytest.raises(InvalidInputError):
        push(work_id=expression)


# Templates


def test_template_makes_directories_of_metadata(archive: Archive, push, tmp_path: Path) -> None:
    record = push(end=T0 + 1, extra={"n": 5})

    for template, expected in [
        (
            "{where}/{what}/{start_iso}-{end_iso}",
            "box/log/2015-03-20T00:00:00.000-2015-03-20T00:00:00.001",
        ),
        ("{path}", "var/log/a.log"),
        ("{work_id}-{n}-{{x}}", "None-5-{x}"),
        ("{start}", "1426809600000"),
    ]:
        assert archive.fetch(record.id, tmp_path, template=template) == tmp_path / expected
    assert archive.fetch(push().id, tmp_path, template="{end_iso}") == tmp_path / "None"


@pytest.mark.parametrize(
    "template",
    ["{nope}", "{", "}", "{0}", "{}", "{id.__class__}", "{id[0]}", "{id!r}", "{id:>9}", "", "/",
     "../x", "a/../../x", "/etc/x", "a//b", "./x", "a/", "{evil}", "{evil}/x", "a\\b", "a\nb", "x" * 300],
)  # fmt: skip
def test_template_cannot_lead_out_of_the_folder(archive, push, tmp_path, template: str) -> None:
    record = push(extra={"evil": "../../etc"})
    (tmp_path / "out").mkdir()

    with pytest.raises(InvalidInputError):
        archive.fetch(record.id, tmp_path / "out", template=template)

    assert [one.name for one in tmp_path.iterdir() if one.name not in {"raw", "out"}] == []


def test_link_in_the_folder_is_not_followed_out_of_it(archive, push, tmp_path: Path) -> None:
    record = push()
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "box").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(InvalidInputError, match="link"):
        archive.fetch(record.id, tmp_path / "out", template="{where}/deep/x")

    assert list((tmp_path / "elsewhere").iterdir()) == []


# Reindex


@everywhere
def test_index_is_made_anew_from_the_storage(archive: Archive, push) -> None:
    records = [push(work_id=f"job-{n}", start=T0 + n) for n in range(4)]
    gone = push(id="gone")
    archive.store.delete(["gone/data"])
    archive.store.put("stray", b"x")
    archive.index.delete(record.id for record in records)

    looked = archive.reindex(dry_run=True)
    assert [record.id for record in archive.index.records()] == ["gone"]
    report = archive.reindex()

    assert looked == report
    assert (report.indexed_count, [one.id for one in report.removed]) == (4, [gone.id])
    assert [one.url for one in report.skipped] == [f"{archive.store.uri}/stray"]
    found = sorted(archive.index.records(), key=lambda record: record.metadata.start)
    assert found == records


def test_reindex_of_a_lost_database(tmp_path: Path) -> None:
    archive = lakebed.open_archive(tmp_path / "raw", index=tmp_path / "index.db")
    record = archive.push(io.BytesIO(b"x"), path="/x", where="a", what="b", start=T0)
    archive.index.close()
    for path in tmp_path.glob("index.db*"):
        path.unlink()

    again = lakebed.open_archive(tmp_path / "raw", index=tmp_path / "index.db")
    again.reindex()

    assert list(again.list("b", start=T0, end=T0)) == [record]
    again.index.close()


def test_dry_run_without_an_index_tells_what_would_be_indexed(tmp_path: Path) -> None:
    archive = lakebed.open_archive(tmp_path / "raw", index=tmp_path / "none" / "index.db")
    archive.store.create("x/metadata", archive_metadata("x").to_json().encode())
    archive.store.put("x/data", b"content")

    report = archive.reindex(dry_run=True)

    assert (report.indexed_count, report.removed) == (1, ())
    assert not (tmp_path / "none").exists()


def archive_metadata(file_id: str) -> lakebed.archive.FileMetadata:
    fields: dict[str, object] = {
        "id": file_id,
        "hash": "12345",
        "path": "/x",
        "where": "a",
        "what": "b",
    }
    fields |= {"start": T0, "work_id": None}
    return lakebed.archive.FileMetadata(fields, is_stored=True)


def test_reindex_leaves_the_records_of_another_storage(tmp_path: Path) -> None:
    archives = [lakebed.open_archive(tmp_path / name, index=tmp_path / "index.db") for name in "ab"]
    records = [
        one.push(io.BytesIO(b"x"), path="/x", where="a", what="b", start=T0) for one in archives
    ]
    gone = archives[0].push(io.BytesIO(b"y"), path="/x", where="a", what="b", start=T0)
    archives[0].store.delete([f"{gone.id}/data"])

    report = archives[0].reindex()

    assert ([one.id for one in report.removed], report.foreign_count) == ([gone.id], 1)
    found = list(archives[0].list("b", start=T0, end=T0))
    assert sorted(one.id for one in found) == sorted(one.id for one in records)
    for one in archives:
        one.index.close()


# The archive as a value


def test_pickled_archive_is_the_same(tmp_path: Path) -> None:
    archive = lakebed.open_archive(tmp_path / "raw")
    record = archive.push(io.BytesIO(b"x"), path="/x", where="a", what="b", start=T0)

    copy = pickle.loads(pickle.dumps(archive))

    assert list(copy.list("b", start=T0, end=T0)) == [record]
    assert str(tmp_path) in repr(copy)
    copy.index.close()
    archive.index.close()


def test_archive_on_other_storage_needs_an_index(s3_options) -> None:
    with pytest.raises(InvalidInputError, match="needs an index"):
        lakebed.open_archive("s3://lake/x", storage_options=s3_options)


def test_missing_boto3_is_told_with_its_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingDependencyError, match=r"lakebed\[dynamodb\]"):
        open_index("dynamodb://raw")


@pytest.mark.thorough
def test_many_processes_push_into_one_index(tmp_path: Path) -> None:
    worker = Path(__file__).with_name("archive_worker.py")
    processes = [
        subprocess.Popen([sys.executable, worker, "push_many", tmp_path / "raw", str(n), "12"])
        for n in range(4)
    ]
    codes = [process.wait(120) for process in processes]

    assert codes == [0] * 4
    archive = lakebed.open_archive(tmp_path / "raw")
    found = list(archive.list("log", start=T0, end=T0 + 100))
    assert len(found) == len({record.id for record in found}) == 4 * 12 + 12
    assert archive.reindex(dry_run=True).indexed_count == len(found)
    archive.index.close()


@pytest.mark.parametrize("path", ["job-1.log", "./job-1.log", "logs\\job-1.log", ""])
def test_translator_refuses_a_relative_path(path: str) -> None:
    with pytest.raises(InvalidInputError, match="not absolute"):
        Translator(r".*job-(?P<job>[0-9]+)\.log$~job{job}")(path)


def test_latest_looks_back_as_far_as_there_are_days(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("x")
    record = archive.push(tmp_path / "log", where="box", what="log", start="1980-01-01")

    for days in (99_999, 10**9, 10**30):
        assert archive.latest("log", "box", lookback_days=days).id == record.id
    with pytest.raises(InvalidInputError, match="-1 is not a valid number of days"):
        archive.latest("log", "box", lookback_days=-1)


@pytest.mark.parametrize("found", ["xyz", "0x12", "12 34", "-"])
def test_metadata_whose_hash_is_not_of_hex_digits_is_refused_by_name(tmp_path, found: str) -> None:
    archive = lakebed.open_archive(tmp_path / "raw")
    record = archive.push(io.BytesIO(b"x"), where="a", what="b", start="2015-03-20", path="/x")
    wrong = FileMetadata({**record.metadata, "hash": found, "id": "other"}, is_stored=True)

    with pytest.raises(InvalidInputError, match=f"hash '{found}', which is not hex digits"):
        archive.push_prepared(io.BytesIO(b"x"), wrong)

    beside = next(path for path in (tmp_path / "raw" / record.id).iterdir() if path.name != "data")
    beside.chmod(0o644)
    beside.write_text(beside.read_text().replace(record.hash, found))
    archive.index.delete([record.id])
    with pytest.raises(CorruptMetadataError, match=f"hash '{found}', which is not hex digits"):
        archive.ingest(record.id)
    assert list(archive.index.records()) == []


def test_an_archive_that_was_moved_is_told_to_reindex(tmp_path) -> None:
    archive = lakebed.open_archive(tmp_path / "raw")
    record = archive.push(io.BytesIO(b"x"), where="a", what="b", start="2015-03-20", path="/x")
    (tmp_path / "raw").rename(tmp_path / "moved")
    moved = lakebed.open_archive(tmp_path / "moved")

    with pytest.raises(InvalidInputError, match="is not in") as caught:
        moved.open(record.url)

    assert "archive reindex" in caught.value.hint
    moved.reindex()
    (found,) = moved.list("b", start="2015-03-20", end="2015-03-20")
    assert moved.open(found.url).read() == b"x"


def test_an_archive_in_memory_has_its_records_however_often_it_is_opened() -> None:
    name = f"memory://{uuid.uuid4()}"
    record = lakebed.open_archive(name).push(
        io.BytesIO(b"x"), path="/a.log", what="logs", where="here", start="2026-01-01"
    )

    assert list(lakebed.open_archive(name).list("logs", start="2025-12-31", end="now")) == [record]

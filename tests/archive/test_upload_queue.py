"""Bundles and their queue: nothing is lost, nothing is twice, whenever the uploader dies."""

import errno
import gzip
import io
import os
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest

import lakebed
from lakebed.archive import Archive, FileMetadata, UploadQueue, content_hash, open_bundle
from lakebed.errors import (
    FormatError,
    InvalidInputError,
    RecordExistsError,
    UnsupportedVersionError,
)
from lakebed.testing import FailingStore

T0 = 1426809600000
everywhere = pytest.mark.parametrize("archive", ["directory", "s3", "s3-dynamodb"], indirect=True)
WORKER = Path(__file__).with_name("archive_worker.py")


@pytest.fixture
def queue(tmp_path: Path) -> UploadQueue:
    return UploadQueue(tmp_path / "queue")


def enqueue(queue: UploadQueue, content: bytes = b"content", **fields: object) -> Path:
    given = {"where": "box", "what": "log", "start": T0, "path": "/var/log/a.log", **fields}
    return queue.enqueue(io.BytesIO(content), **given)


def make_bundle(path: Path, **members: bytes | None) -> Path:
    """Write a tar as another program may."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = FileMetadata(
        {"start": T0, "where": "a", "what": "b", "id": "old", "path": "/x", "work_id": None,
         "hash": content_hash([b"content"])}
    )  # fmt: skip
    found = {
        "content": b"content",
        "version": b"0",
        "datalake-metadata.json": metadata.to_json().encode(),
        **{
            name.replace("metadata", "datalake-metadata.json"): data
            for name, data in members.items()
        },
    }
    with tarfile.open(path, "w") as tar:
        for name, data in found.items():
            if data is not None:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return path


# Bundles


@pytest.mark.parametrize("size_bytes", [0, 1, 511, 512, 513, 3_000_000])
def test_bundle_round_trip(queue: UploadQueue, size_bytes: int) -> None:
    content = os.urandom(size_bytes)

    path = enqueue(queue, content, work_id="job-1", extra={"more": 1})

    with open_bundle(path) as bundle:
        assert bundle.content.read() == content
        assert bundle.metadata.hash == content_hash([content])
        assert (bundle.metadata.work_id, bundle.metadata["more"]) == ("job-1", 1)
        assert path.name == f"{bundle.metadata.id}.tar"
    with tarfile.open(path) as tar:
        assert tar.getnames() == ["content", "version", "datalake-metadata.json"]
    assert [one.name for one in queue.directory.iterdir()] == [path.name]


def test_compressed_bundle_can_be_gunzipped(queue: UploadQueue) -> None:
    with open_bundle(enqueue(queue, b"a" * 100_000, compress=True)) as bundle:
        assert gzip.decompress(bundle.content.read()) == b"a" * 100_000


def test_bundle_of_another_program_opens(tmp_path: Path) -> None:
    with open_bundle(make_bundle(tmp_path / "b.tar")) as bundle:
        assert (bundle.metadata.id, bundle.content.read()) == ("old", b"content")


@pytest.mark.parametrize("name", ["content", "version", "metadata"])
def test_bundle_without_a_member_is_refused(tmp_path: Path, name: str) -> None:
    path = make_bundle(tmp_path / "b.tar", **{name: None})

    with pytest.raises(FormatError, match="not a bundle"), open_bundle(path):
        pass


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    for data in (
        b"",
        b"x",
        b"\0" * 2048,
        os.urandom(4096),
        make_bundle(tmp_path / "a").read_bytes()[:700],
    ):
        path = tmp_path / "b.tar"
        path.write_bytes(data)
        with pytest.raises(FormatError), open_bundle(path):
            pass


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"version": b"1"}, UnsupportedVersionError),
        ({"metadata": b"{"}, InvalidInputError),
        ({"metadata": b"[]"}, InvalidInputError),
        ({"metadata": b'{"version": 0}'}, InvalidInputError),
    ],
)
def test_bundle_that_breaks_a_rule_is_refused(tmp_path, members, error) -> None:
    path = make_bundle(tmp_path / "b.tar", **members)

    with pytest.raises(error), open_bundle(path):
        pass


def test_bundle_whose_content_ends_too_early_is_refused(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "b.tar", content=None)
    with tarfile.open(path, "a") as tar:
        info = tarfile.TarInfo("content")
        info.size = 100_000
        tar.addfile(info, io.BytesIO(b"x" * 100_000))
    path.write_bytes(path.read_bytes()[:50_000])

    with pytest.raises(FormatError, match="not a bundle"), open_bundle(path) as bundle:
        bundle.content.read()


def test_link_in_a_bundle_is_not_followed(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "b.tar", content=None)
    with tarfile.open(path, "a") as tar:
        info = tarfile.TarInfo("content")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)

    with pytest.raises(FormatError, match="not a plain file"), open_bundle(path):
        pass


# Enqueue


@pytest.mark.parametrize(
    "change", [{"where": "Bad"}, {"start": "x"}, {"id": "../x"}, {"id": "a/b"}]
)
def test_wrong_fields_are_told_at_once_and_leave_nothing(queue: UploadQueue, change) -> None:
    with pytest.raises(InvalidInputError):
        enqueue(queue, **change)

    assert not queue.directory.exists() or list(queue.directory.iterdir()) == []


def test_id_that_waits_already_is_refused(queue: UploadQueue) -> None:
    enqueue(queue, b"one", id="mine")

    with pytest.raises(RecordExistsError):
        enqueue(queue, b"two", id="mine")

    with open_bundle(queue.directory / "mine.tar") as bundle:
        assert bundle.content.read() == b"one"


# Upload


def outcomes(uploads) -> list[str]:
    return [upload.outcome for upload in uploads]


@pytest.mark.parametrize("workers", [1, 3])
def test_what_waits_is_uploaded_and_removed(archive: Archive, queue: UploadQueue, workers) -> None:
    for number in range(5):
        enqueue(queue, f"content {number}".encode(), start=T0 + number)

    assert outcomes(queue.upload(archive, workers=workers)) == ["uploaded"] * 5

    found = list(archive.list("log", start=T0, end=T0 + 10))
    contents = {archive.open(record.id).read() for record in found}
    assert contents == {f"content {number}".encode() for number in range(5)}
    assert list(queue.directory.iterdir()) == []
    assert outcomes(queue.upload(archive)) == []


@everywhere
def test_old_bundle_keeps_its_id_and_metadata(archive: Archive, queue: UploadQueue) -> None:
    make_bundle(queue.directory / "b.tar")

    (upload,) = queue.upload(archive)

    assert upload.record == archive.record("old")


def test_dot_files_and_others_are_left_and_invalid_bundles_stay(archive, queue) -> None:
    enqueue(queue)
    for name in (".hidden.tar", "note.txt", "bad.tar"):
        (queue.directory / name).write_bytes(b"x")
    make_bundle(queue.directory / "damaged.tar", content=b"CONTENT")

    uploads = {one.path.name: one.outcome for one in queue.upload(archive)}

    assert sorted(uploads.values()) == ["invalid", "invalid", "uploaded"]
    assert (uploads["bad.tar"], uploads["damaged.tar"]) == ("invalid", "invalid")
    assert {one.name for one in queue.directory.iterdir()} == {
        ".hidden.tar", "note.txt", "bad.tar", "damaged.tar",
    }  # fmt: skip
    assert len(list(archive.index.records())) == 1


@pytest.mark.timeout(30)
@pytest.mark.parametrize("dry_run", [False, True])
def test_bundles_that_are_links_or_pipes_stay_unread(archive, queue, tmp_path, dry_run) -> None:
    elsewhere = make_bundle(tmp_path / "elsewhere.tar")
    enqueue(queue)
    (queue.directory / "a.tar").symlink_to(elsewhere)
    (queue.directory / "b.tar").symlink_to(tmp_path / "nothing.tar")
    os.mkfifo(queue.directory / "c.tar")

    uploads = {one.path.name: one for one in queue.upload(archive, dry_run=dry_run)}

    assert len(uploads) == 4
    for name, problem in (("a", "symbolic link"), ("b", "symbolic link"), ("c", "not a regular")):
        upload = uploads[f"{name}.tar"]
        assert (upload.outcome, type(upload.error)) == ("invalid", InvalidInputError)
        assert problem in str(upload.error)
    assert len(list(archive.index.records())) == (0 if dry_run else 1)
    assert elsewhere.exists()
    assert {"a.tar", "b.tar", "c.tar"} <= {one.name for one in queue.directory.iterdir()}


def test_link_that_takes_the_place_of_a_bundle_is_not_followed(
    archive, queue, tmp_path, monkeypatch
) -> None:
    elsewhere = make_bundle(tmp_path / "elsewhere.tar")
    queue.directory.mkdir()
    (queue.directory / "a.tar").symlink_to(elsewhere)
    monkeypatch.setattr(Path, "is_symlink", lambda _: False)  # it was a file when this was asked

    (upload,) = queue.upload(archive)

    assert (upload.outcome, type(upload.error)) == ("invalid", InvalidInputError)
    assert not list(archive.index.records())


@pytest.mark.thorough
def test_watch_reports_a_link_once(archive, queue, tmp_path) -> None:
    queue.directory.mkdir()
    (queue.directory / "a.tar").symlink_to(tmp_path / "nothing.tar")
    reported = []

    queue.watch(archive, timeout_s=1.5, on_upload=reported.append)

    assert [one.outcome for one in reported] == ["invalid"]


def test_taken_id_stays_in_the_queue(archive: Archive, queue: UploadQueue) -> None:
    archive.push(io.BytesIO(b"one"), path="/x", where="a", what="b", start=T0, id="mine")
    enqueue(queue, b"two", id="mine")

    (upload,) = queue.upload(archive)

    assert (upload.outcome, type(upload.error)) == ("invalid", RecordExistsError)
    assert archive.open("mine").read() == b"one"


@pytest.mark.parametrize("operation", ["create", "put_stream", "stat"])
@pytest.mark.parametrize("landed", [False, True])
def test_failed_upload_is_done_again(tmp_path, queue, operation: str, landed: bool) -> None:
    good = lakebed.open_archive(tmp_path / "raw")
    good.init()
    bundle = enqueue(queue)
    bad = Archive(FailingStore(good.store, fail_on=operation, landed=landed), good.index)

    assert outcomes(queue.upload(bad)) == ["failed"]
    assert bundle.exists()
    assert outcomes(queue.upload(good)) == ["uploaded"]

    (record,) = good.index.records()
    assert good.open(record.id).read() == b"content"
    good.index.close()


@pytest.mark.thorough
def test_watch_uploads_what_comes_and_tells_of_invalid_ones_once(tmp_path, queue) -> None:
    archive = lakebed.open_archive(tmp_path / "raw")
    enqueue(queue, b"before")
    (queue.directory / "bad.tar").write_bytes(b"x")
    told = []

    later = threading.Timer(0.6, enqueue, (queue, b"later"))
    later.start()
    queue.watch(archive, timeout_s=2, on_upload=told.append)
    later.join()

    assert sorted(outcomes(told)) == ["invalid", "uploaded", "uploaded"]
    archive.index.close()


def test_bundle_that_cannot_be_read_does_not_stop_the_others(
    archive: Archive, queue: UploadQueue, monkeypatch
) -> None:
    refused = enqueue(queue, id="aaa")
    enqueue(queue, id="bbb")
    open_file = os.open

    def refuse(path: object, *arguments, **options):
        if path == str(refused):
            raise PermissionError(errno.EACCES, "no", str(path))
        return open_file(path, *arguments, **options)

    with monkeypatch.context() as patch:  # root could read it all the same
        patch.setattr(os, "open", refuse)
        uploads = list(queue.upload(archive))

    assert outcomes(uploads) == ["invalid", "uploaded"]
    assert "aaa.tar cannot be used" in str(uploads[0].error)
    assert outcomes(queue.upload(archive)) == ["uploaded"]


@pytest.mark.thorough
def test_bundle_whose_mode_has_changed_is_looked_at_again(tmp_path, queue) -> None:
    archive = lakebed.open_archive(tmp_path / "raw")
    queue.directory.mkdir()
    bad = queue.directory / "bad.tar"
    bad.write_bytes(b"x")
    told = []

    def tell(upload) -> None:
        told.append(upload)
        if len(told) == 1:
            bad.chmod(0o600)

    queue.watch(archive, timeout_s=1.2, on_upload=tell)

    assert outcomes(told) == ["invalid", "invalid"]


def test_damaged_index_is_not_the_fault_of_the_bundle(tmp_path: Path, queue: UploadQueue) -> None:
    (tmp_path / "index.db").write_bytes(b"no database" * 1_000)
    archive = lakebed.open_archive(tmp_path / "raw", index=tmp_path / "index.db")
    enqueue(queue)

    assert outcomes(queue.upload(archive)) == ["failed"]
    (tmp_path / "index.db").unlink()
    assert outcomes(queue.upload(archive)) == ["uploaded"]
    archive.index.close()


@pytest.mark.parametrize("workers", [0, -1])
def test_without_workers_nothing_is_uploaded(archive: Archive, queue, workers: int) -> None:
    with pytest.raises(InvalidInputError, match="workers"):
        queue.upload(archive, workers=workers)
    with pytest.raises(InvalidInputError, match="workers"):
        queue.watch(archive, workers=workers)


def check_everything_is_there_once(root: Path, count: int) -> None:
    archive = lakebed.open_archive(root)
    records = list(archive.list("log", start=T0, end=T0 + 100))
    contents = sorted(archive.open(record.id).read() for record in records)
    assert contents == sorted(f"content {n}".encode() for n in range(count))
    assert sum(info.key.endswith("/data") for info in archive.store.list()) == count
    archive.index.close()


@pytest.mark.crash
@pytest.mark.parametrize("step", ["before-content", "before-index", "before-removal"])
def test_killed_uploader_loses_nothing_and_doubles_nothing(tmp_path, queue, step: str) -> None:
    for number in range(5):
        enqueue(queue, f"content {number}".encode(), start=T0 + number)

    died = subprocess.run(
        [sys.executable, WORKER, "upload_and_die", tmp_path / "raw", queue.directory, step],
        check=False,
    )
    assert died.returncode == -9
    assert len(list(queue.directory.iterdir())) == 3

    archive = lakebed.open_archive(tmp_path / "raw")
    assert outcomes(queue.upload(archive)) == ["uploaded"] * 3
    archive.index.close()
    check_everything_is_there_once(tmp_path / "raw", 5)


@pytest.mark.crash
def test_two_uploaders_and_a_third_that_is_killed(tmp_path: Path, queue: UploadQueue) -> None:
    for number in range(12):
        enqueue(queue, f"content {number}".encode(), start=T0 + number)
    arguments = [tmp_path / "raw", queue.directory]

    processes = [
        subprocess.Popen([sys.executable, WORKER, "upload_and_die", *arguments, "before-index"]),
        subprocess.Popen([sys.executable, WORKER, "upload", *arguments]),
        subprocess.Popen([sys.executable, WORKER, "upload", *arguments]),
    ]
    codes = [process.wait(60) for process in processes]

    assert codes[1:] == [0, 0]
    assert list(queue.directory.iterdir()) == []
    check_everything_is_there_once(tmp_path / "raw", 12)


def test_bundle_is_opened_by_a_path_that_is_text(queue: UploadQueue, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"x\.tar"), open_bundle(str(tmp_path / "x.tar")):
        pass

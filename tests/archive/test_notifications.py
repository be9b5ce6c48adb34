"""Notifications of an object store, as the originals' fixtures have them."""

import errno
import io
import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.archive import (
    Archive,
    FileMetadata,
    ingest_again,
    ingest_directory,
    ingest_lines,
    ingest_message,
    ingest_sqs,
)
from lakebed.errors import InvalidInputError, StorageError
from lakebed.testing import CountingStore, FailingStore

SYSLOG_ID = "2544375f44efb2ef5568d8a9ccf8ea9e0c9f122b"
COMMANDS_ID = "34182375d96f460789e9ab4fcb6b4475"
SYSLOG = {
    "version": 0, "start": 1430092800000, "end": 1430096400000, "path": "/var/log/syslog.2",
    "where": "california", "what": "syslog", "id": SYSLOG_ID, "hash": "12345", "work_id": None,
}  # fmt: skip
COMMANDS = {
    **SYSLOG, "end": None, "where": "0a16", "what": "commands", "id": COMMANDS_ID,
}  # fmt: skip
OLD_KEY = f"2-california/syslog/1430092800000/{SYSLOG_ID}-syslog-284.txt"


@pytest.fixture
def archive(s3_options: dict[str, str]) -> Archive:
    """An archive on a bucket, as notifications name it."""
    opened = lakebed.open_archive("s3://lake", index="sqlite://", storage_options=s3_options)
    opened.init()
    return opened


@pytest.fixture
def store_file(archive: Archive):
    """Store an object as the `datalake` client does."""
    keys = []

    def store_file(key: str, metadata: dict[str, Any] | None, content: bytes = b"") -> str:
        attributes = {} if metadata is None else {"datalake": json.dumps(metadata)}
        archive.store.put_stream(key, [content], attributes=attributes)
        keys.append(key)
        return key

    yield store_file
    archive.store.delete(keys)


def event(*keys: str, name: str = "ObjectCreated:Put", version: str = "2.0", **changes: Any) -> str:
    """Return an event of S3."""
    records = [
        {
            "eventVersion": version,
            "eventSource": "aws:s3",
            "eventTime": "1977-07-01T03:01:00.000Z",
            "eventName": name,
            "s3": {"bucket": {"name": "lake"}, "object": {"key": key, "size": 0}},
            **changes,
        }
        for key in keys
    ]
    return json.dumps({"Records": records})


def envelope(message: str) -> str:
    """Return what SNS puts around it."""
    return json.dumps({"Type": "Notification", "MessageId": "x", "Message": message})


def keys_in(archive: Archive) -> list[tuple[str, str, str]]:
    return sorted(
        (one["time_index_key"], one["work_id_index_key"], one["range_key"])
        for record in archive.index.records()
        for one in record.to_documents()
    )


def test_put_of_one_day_gives_one_record(archive: Archive, store_file) -> None:
    store_file(OLD_KEY, SYSLOG)

    report = ingest_message(archive, envelope(event(OLD_KEY)))

    assert report.status == "success"
    (record,) = report.records
    assert (record.url, record.size_bytes) == (f"s3://lake/{OLD_KEY}", 0)
    assert record.metadata == FileMetadata(SYSLOG, is_stored=True)
    assert report.duration_s >= 0
    assert report.started_at.tzinfo is not None
    assert keys_in(archive) == [
        ("16552:syslog", f"null{SYSLOG_ID}:syslog", f"california:{SYSLOG_ID}")
    ]


def test_put_of_three_days_gives_three_records_and_one_in_the_report(archive, store_file) -> None:
    key = store_file(f"{SYSLOG_ID}/data", {**SYSLOG, "end": 1430330070000})

    report = ingest_message(archive, envelope(event(key)))

    assert len(report.records) == 1
    assert [one[0] for one in keys_in(archive)] == [
        "16552:syslog", "16553:syslog", "16554:syslog",
    ]  # fmt: skip


def test_file_without_end_has_the_day_of_its_start(archive: Archive, store_file) -> None:
    key = store_file(f"{COMMANDS_ID}/data", COMMANDS)

    ingest_message(archive, event(key, name="ObjectCreated:CompleteMultipartUpload", version="2.1"))

    assert keys_in(archive) == [
        ("16552:commands", f"null{COMMANDS_ID}:commands", f"0a16:{COMMANDS_ID}")
    ]


def test_two_files_in_one_event(archive: Archive, store_file) -> None:
    keys = [store_file(f"{SYSLOG_ID}/data", SYSLOG), store_file(f"{COMMANDS_ID}/data", COMMANDS)]

    report = ingest_message(archive, envelope(event(*keys, *keys)))

    assert sorted(one.what for one in report.records) == ["commands", "syslog"]


def test_put_followed_by_a_copy_is_one_record_with_the_new_url(archive, store_file) -> None:
    store_file(OLD_KEY, {**SYSLOG, "end": 1430330070000})
    ingest_message(archive, envelope(event(OLD_KEY)))
    key = store_file(f"{SYSLOG_ID}/data", SYSLOG)

    ingest_message(archive, envelope(event(key, name="ObjectCreated:Copy")))

    (record,) = archive.index.records()
    assert record.url == f"s3://lake/{key}"
    assert [one[0] for one in keys_in(archive)] == ["16552:syslog"]


def test_same_message_again_changes_nothing(archive: Archive, store_file) -> None:
    message = envelope(event(store_file(f"{SYSLOG_ID}/data", SYSLOG)))

    first, second = ingest_message(archive, message), ingest_message(archive, message)

    assert first.records == second.records == tuple(archive.index.records())


def test_encoded_key_is_decoded(archive: Archive, store_file) -> None:
    store_file("a b/ü+c/data", {**SYSLOG, "id": "odd"})

    report = ingest_message(archive, event("a+b/%C3%BC%2Bc/data"))

    assert [one.id for one in report.records] == ["odd"]


def test_test_event_is_a_success_without_records(archive: Archive) -> None:
    message = json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "lake"})

    report = ingest_message(archive, envelope(message))

    assert (report.status, report.records, report.error) == ("success", (), None)


def test_metadata_beside_a_content_is_no_file(archive: Archive, store_file) -> None:
    store_file("x/metadata", None, json.dumps(SYSLOG).encode())

    report = ingest_message(archive, event("x/metadata"))

    assert (report.status, report.records) == ("success", ())


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("", "notification"),
        ("{", "notification"),
        ("[]", "notification"),
        ("null", "notification"),
        ("[" * 100_000, "notification"),
        (b"\xff", "notification"),
        ("{}", "notification"),
        ('{"Type": "Notification"}', "notification"),
        ('{"Message": null}', "notification"),
        ('{"Message": "x"}', "notification"),
        ('{"Message": "[]"}', "notification"),
        ('{"Records": 5}', "notification"),
        ('{"Records": [5, null]}', "version 2"),
        ('{"Records": [{"eventVersion": "2.0", "eventName": "ObjectCreated:Put"}]}', "version 2"),
        (event("x/data", version="3.0"), "version 2"),
        (event("x/data", version="1.0"), "version 2"),
        (event("x/data", eventVersion=None), "version 2"),
        (event("x/data", name="ObjectCreated:Post"), "ObjectCreated:Post"),
        (event("x/data", name="ObjectAcl:Put"), "ObjectAcl:Put"),
        (event("missing/data"), "no file"),
        (event("../x"), "not valid"),
        (
            event("x", s3={"bucket": {"name": "lake-evil"}, "object": {"key": "x"}}),
            "is not in",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_used_is_reported_and_indexes_nothing(archive, message, told: str) -> None:
    report = ingest_message(archive, message)

    assert (report.status, report.records) == ("error", ())
    assert told in str(report.error)
    assert list(archive.index.records()) == []


def test_object_without_metadata_is_reported(archive: Archive, store_file) -> None:
    report = ingest_message(archive, event(store_file("plain/file", None)))

    assert "no metadata" in str(report.error)


@pytest.mark.parametrize("size_bytes", [10, 9 * 2**20])
@pytest.mark.parametrize("file_id", [None, "mine"])
def test_pushed_file_of_any_size_is_found_by_its_events(archive, size_bytes, file_id) -> None:
    pusher = Archive(archive.store, lakebed.archive.open_index("sqlite://"))
    pusher.init()
    record = pusher.push(
        io.BytesIO(b"x" * size_bytes),
        path="/a",
        where="a",
        what="b",
        start="2026-01-01",
        id=file_id,
    )
    keys = [f"{record.id}/data", f"{record.id}/metadata"]

    statuses = [ingest_message(archive, event(key)).status for key in keys]

    assert statuses == ["success", "success"]
    assert list(archive.index.records()) == [record]
    archive.store.delete(keys)


def test_content_that_waits_for_its_metadata_is_no_error(archive: Archive, store_file) -> None:
    key = store_file("x/data", None, b"content")

    assert ingest_message(archive, event(key)).status == "success"
    assert list(archive.index.records()) == []

    beside = store_file("x/metadata", None, json.dumps({**SYSLOG, "id": "x"}).encode())
    report = ingest_message(archive, event(beside))

    assert [one.url for one in report.records] == [f"s3://lake/{key}"]


def test_metadata_of_another_file_beside_a_content_is_reported(archive, store_file) -> None:
    store_file("x/data", None, b"content")
    beside = store_file("x/metadata", None, json.dumps(SYSLOG).encode())

    report = ingest_message(archive, event(beside))

    assert (report.status, list(archive.index.records())) == ("error", [])


def test_one_bad_file_does_not_hide_the_others(archive: Archive, store_file) -> None:
    key = store_file(f"{SYSLOG_ID}/data", SYSLOG)

    report = ingest_message(archive, event("missing/data", key))

    assert (report.status, len(report.records)) == ("error", 1)


def test_file_of_a_hundred_days_is_indexed(archive: Archive, store_file) -> None:
    end = SYSLOG["start"] + 100 * 86_400_000
    key = store_file("long/data", {**SYSLOG, "id": "long", "end": end})

    ingest_message(archive, event(key))

    assert [one.id for one in archive.list("syslog", start=end, end=end)] == ["long"]


def test_removed_file_leaves_the_index(archive: Archive, store_file) -> None:
    key = store_file(f"{SYSLOG_ID}/data", SYSLOG)
    ingest_message(archive, event(key))
    removal = event(key, name="ObjectRemoved:Delete")

    assert ingest_message(archive, removal).removed == ()  # it is there
    archive.store.delete([key])
    report = ingest_message(archive, removal)

    assert (report.status, report.removed) == ("success", (SYSLOG_ID,))
    assert list(archive.index.records()) == []


def test_removed_file_of_which_a_copy_is_indexed_stays(archive: Archive, store_file) -> None:
    ingest_message(archive, event(store_file(OLD_KEY, SYSLOG)))

    report = ingest_message(archive, event(f"{SYSLOG_ID}/data", name="ObjectRemoved:Delete"))

    assert (report.status, report.removed) == ("success", ())
    assert [one.id for one in archive.index.records()] == [SYSLOG_ID]


def test_removal_under_an_old_key_takes_the_file_out(archive: Archive, store_file) -> None:
    key = store_file(OLD_KEY, SYSLOG)
    ingest_message(archive, event(key))
    archive.store.delete([key])

    report = ingest_message(archive, event(key, name="ObjectRemoved:Delete"))

    assert (report.status, report.removed) == ("success", (SYSLOG_ID,))
    assert list(archive.index.records()) == []


def test_removal_under_a_key_that_tells_no_id_is_reported(archive: Archive) -> None:
    report = ingest_message(archive, event("syslog-284.txt", name="ObjectRemoved:Delete"))

    assert "reindex" in str(report.error)


def test_failure_of_the_storage_is_raised(archive: Archive, store_file) -> None:
    key = store_file(f"{SYSLOG_ID}/data", SYSLOG)
    failing = Archive(FailingStore(archive.store, fail_on="stat"), archive.index)

    with pytest.raises(StorageError):
        ingest_message(failing, event(key))


def test_lines_are_urls_or_messages(archive: Archive, store_file) -> None:
    first = store_file(f"{SYSLOG_ID}/data", SYSLOG)
    second = store_file(f"{COMMANDS_ID}/data", COMMANDS)

    reports = list(ingest_lines(archive, [f"s3://lake/{first}\n", "\n", event(second), "s3://x/y"]))

    assert [one.status for one in reports] == ["success", "success", "error"]
    assert len(list(archive.index.records())) == 2


def test_directory_of_messages_is_emptied(archive: Archive, store_file, tmp_path) -> None:
    key = store_file(f"{SYSLOG_ID}/data", SYSLOG)
    (tmp_path / "1.json").write_text(envelope(event(key)))
    (tmp_path / "2.json").write_text("{")
    (tmp_path / ".3.json").write_text("still being written")

    reports = list(ingest_directory(archive, tmp_path))

    assert [one.status for one in reports] == ["success", "error"]
    assert sorted(one.name for one in tmp_path.iterdir()) == [".3.json", "failed"]
    assert (tmp_path / "failed" / "2.json").read_text() == "{"
    assert list(ingest_directory(archive, tmp_path)) == []


def test_message_that_cannot_be_read_is_put_aside(archive, tmp_path, monkeypatch) -> None:
    for name in ("1.json", "2.json"):
        (tmp_path / name).write_text('{"Event": "s3:TestEvent"}')
    open_file = os.open

    def refuse(path: object, *arguments: object, **options: object) -> int:
        if Path(path).name == "1.json":
            raise PermissionError(errno.EACCES, "no", str(path))
        return open_file(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)  # root could read it all the same

    reports = list(ingest_directory(archive, tmp_path))

    assert [one.status for one in reports] == ["error", "success"]
    assert "1.json" in str(reports[0].error)
    assert (tmp_path / "failed" / "1.json").exists()


@pytest.mark.timeout(30)
def test_messages_that_are_links_or_pipes_are_put_aside_unread(archive, tmp_path) -> None:
    spool, elsewhere = tmp_path / "spool", tmp_path / "elsewhere.json"
    spool.mkdir()
    elsewhere.write_text('{"secret": 17}')
    (spool / "1.json").symlink_to(elsewhere)
    (spool / "2.json").symlink_to(tmp_path / "nothing")
    os.mkfifo(spool / "3.json")
    (spool / "4.json").write_text('{"Event": "s3:TestEvent"}')

    reports = list(ingest_directory(archive, spool))

    assert [one.status for one in reports] == ["error", "error", "error", "success"]
    assert [str(one.error).partition(" is ")[2].partition(",")[0] for one in reports[:3]] == [
        "a symbolic link", "a symbolic link", "not a regular file. Put a copy of the file in its place.",
    ]  # fmt: skip
    assert "secret" not in str([one.error for one in reports])
    assert elsewhere.exists()
    assert sorted(one.name for one in (spool / "failed").iterdir()) == [
        "1.json",
        "2.json",
        "3.json",
    ]


def test_no_message_moves_through_a_link(archive, tmp_path) -> None:
    spool, elsewhere = tmp_path / "spool", tmp_path / "elsewhere"
    spool.mkdir()
    elsewhere.mkdir()
    (spool / "failed").symlink_to(elsewhere)
    (spool / "1.json").write_text("{")

    with pytest.raises(InvalidInputError, match=r"failed is a symbolic link.*Replace it"):
        list(ingest_directory(archive, spool))

    assert not list(elsewhere.iterdir())
    assert (spool / "1.json").exists()


@pytest.mark.thorough
def test_what_comes_later_is_ingested_too_until_the_time_is_up(archive, store_file, tmp_path):
    key = store_file(f"{SYSLOG_ID}/data", SYSLOG)
    reports = ingest_again(lambda: ingest_directory(archive, tmp_path), timeout_s=3)
    (tmp_path / "1.json").write_text("{")

    assert next(reports).status == "error"
    (tmp_path / "2.json").write_text(event(key))
    assert [one.id for one in next(reports).records] == [SYSLOG_ID]
    assert list(reports) == []


@pytest.mark.thorough
def test_failure_that_passes_is_waited_for_and_another_ends_it(
    archive, store_file, tmp_path
) -> None:
    key = store_file(f"{SYSLOG_ID}/data", SYSLOG)
    (tmp_path / "1.json").write_text(event(key))

    def ingest(*, retryable: bool):
        outage = StorageError("The store is out.", retryable=retryable)
        store = FailingStore(archive.store, fail_on="stat", error=outage)
        failing = Archive(store, archive.index)
        return lambda: ingest_directory(failing, tmp_path)

    with pytest.raises(StorageError):
        next(ingest_again(ingest(retryable=False), timeout_s=5))
    report = next(ingest_again(ingest(retryable=True), timeout_s=5))

    assert (report.status, list(tmp_path.iterdir())) == ("success", [])


def test_queue_of_sqs_is_emptied(archive: Archive, store_file, s3_endpoint, monkeypatch) -> None:
    import boto3

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    client = boto3.client("sqs", region_name="us-east-1", endpoint_url=s3_endpoint)
    queue_url = client.create_queue(QueueName=f"q-{uuid.uuid4().hex}")["QueueUrl"]
    key = store_file(f"{SYSLOG_ID}/data", SYSLOG)
    for body in (envelope(event(key)), "{"):
        client.send_message(QueueUrl=queue_url, MessageBody=body)
    ask = {"region": "us-east-1", "endpoint": s3_endpoint, "wait_s": 0}

    reports = list(ingest_sqs(archive, queue_url, **ask))

    assert sorted(one.status for one in reports) == ["error", "success"]
    assert list(ingest_sqs(archive, queue_url, **ask)) == []
    with pytest.raises(StorageError):
        list(ingest_sqs(archive, f"{queue_url}-missing", **ask))
    client.close()


@pytest.mark.parametrize("name", ["ObjectCreated:Put", "ObjectRemoved:Delete"])
def test_objects_that_the_store_keeps_for_itself_are_passed_over(
    archive: Archive, store_file, name: str
) -> None:
    report = ingest_message(archive, event(".lakebed-probe-0123456789abcdef", name=name))

    assert (report.status, report.records, report.removed) == ("success", (), ())


@pytest.mark.parametrize("name", ["ObjectCreated:Put", "ObjectRemoved:Delete"])
def test_an_event_causes_few_requests_and_one_for_each_hyphen_of_a_name(
    archive: Archive, store_file, monkeypatch, name: str
) -> None:
    hyphens = OLD_KEY.rpartition("/")[0] + "/" + "-".join("x" * 100)
    beside = {**COMMANDS, "id": "a-b-c"}
    old = f"1-0a16/commands/{COMMANDS['start']}/a-b-c-syslog.2"
    keys = [
        *(store_file(f"{SYSLOG_ID}/data", SYSLOG), store_file(OLD_KEY, SYSLOG)),
        *(store_file("a-b-c/metadata", None, json.dumps(beside).encode()), store_file(old, None)),
        *(hyphens, store_file(hyphens.replace("x-x", "y-y"), None), store_file("plain", None)),
        *("a-b-c/data", f"{COMMANDS_ID}/data", f"{COMMANDS_ID}/metadata"),
    ]
    counting, lookups = Archive(CountingStore(archive.store), archive.index), []
    find = archive.index.find
    monkeypatch.setattr(archive.index, "find", lambda id_: lookups.append(id_) or find(id_))

    for key in keys:
        counting.store.reset()
        lookups.clear()
        ingest_message(counting, event(key, name=name))
        counts = counting.store.reset()
        assert counts.total == counts.get + counts.head <= 6 + key.count("-"), key
        assert len(lookups) <= 1 + key.count("-"), key

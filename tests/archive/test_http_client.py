"""An archive that is opened by the URL of its server: the same files, and no writes."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.server
import io
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from archive.test_http import serving

import lakebed
from lakebed.archive import Archive
from lakebed.errors import (
    AccessDeniedError,
    FormatError,
    InvalidInputError,
    ReadOnlyError,
    RecordNotFoundError,
    StorageError,
)

DAY = {"start": "2015-03-20", "end": "2015-03-21"}


@pytest.fixture(params=["id", "original"])
def raw(tmp_path: Path, request: pytest.FixtureRequest) -> Archive:
    archive = lakebed.open_archive(tmp_path / "raw", keys=request.param)
    for number in range(3):
        archive.push(
            io.BytesIO(b"line\n" * number),
            path=f"/var/log/{number} é.log",
            where=f"web{number % 2}",
            what="syslog",
            work_id="job" if number else None,
            start=f"2015-03-20T0{number}:00",
            extra={"owner": "ops"},
        )
    return archive


@pytest.fixture
def served(raw: Archive) -> Iterator[Archive]:
    with serving(raw, token="secret") as server:
        yield lakebed.open_archive(server.url, storage_options={"token": "secret"})


def facts(archive: Archive, **query: Any) -> list[Any]:
    found = archive.list("syslog", **query)
    return [(one.metadata, one.size_bytes, one.create_time_ms // 1000) for one in found]


@pytest.mark.parametrize("query", [DAY, {**DAY, "where": "web0"}, {"work_id": "job"}])
def test_queries_find_the_records_of_the_archive(
    raw: Archive, served: Archive, query: dict[str, str]
) -> None:
    assert facts(served, **query) == facts(raw, **query) != []


def test_contents_and_records_are_those_of_the_archive(
    raw: Archive, served: Archive, tmp_path: Path
) -> None:
    for record in served.list("syslog", **DAY):
        assert served.record(record.id).metadata == raw.index.find(record.id).metadata
        assert served.record(record.url).metadata == record.metadata
        with served.open(record.url) as file, served.open(record.id) as again:
            content = file.read()
            assert content == again.read() == b"line\n" * (len(content) // 5)
        assert served.fetch(record.id, tmp_path / "out").read_bytes() == content
    with pickle.loads(pickle.dumps(served)).open(record.id) as file:
        assert file.read() == content


def test_content_of_many_ranges_is_whole(tmp_path: Path) -> None:
    archive = lakebed.open_archive(tmp_path / "raw")
    content = bytes(range(256)) * (40 * 2**10)  # 10 MiB
    record = archive.push(io.BytesIO(content), path="/a", where="w", what="log", start="2015-03-20")

    with serving(archive) as server, lakebed.open_archive(server.url).open(record.id) as file:
        assert file.read() == content


def test_latest_is_that_of_the_archive(tmp_path: Path) -> None:
    archive = lakebed.open_archive(tmp_path / "raw")
    for name, start in (("a", "2015-03-20"), ("b", "now")):
        archive.push(io.BytesIO(b""), path=f"/{name}", where="w_1", what="log", start=start)

    with serving(archive) as server:
        client = lakebed.open_archive(server.url)
        assert client.latest("log", "w_1").path == "/b"
        then = dt.datetime(2015, 3, 21, tzinfo=dt.UTC)
        assert client.latest("log", "w_1", now=then).path == "/a"
        with pytest.raises(RecordNotFoundError):
            client.latest("log", "elsewhere")


@pytest.mark.parametrize("limit", [1, 40, 100, 130, 1000])
def test_pages_of_any_length_hold_each_record_once(tmp_path: Path, limit: int) -> None:
    archive = lakebed.open_archive(tmp_path / "raw")
    for number in range(130):
        archive.push(io.BytesIO(b""), path=f"/{number}", where="w", what="log", start="2015-03-20")

    with serving(archive) as server:
        client, paths, cursor = lakebed.open_archive(server.url), [], None
        while True:
            page = client.page("log", **DAY, limit=limit, cursor=cursor)
            paths += [record.path for record in page.records]
            cursor = page.next_cursor
            if cursor is None:
                break
            assert len(page.records) == limit

    assert len(paths) == 130
    assert set(paths) == {f"/{number}" for number in range(130)}


def test_nothing_is_written_and_what_the_server_does_not_say_is_refused(served: Archive) -> None:
    (record, *_) = served.list("syslog", **DAY)
    for write in (
        lambda: served.push(io.BytesIO(b""), path="/x", where="w", what="x", start="2015-03-20"),
        lambda: served.retract(record.id, reason="wrong"),
        lambda: served.delete(record.id, reason="wrong", dry_run=False),
        lambda: served.ingest(record.id),
        lambda: served.reindex(),
    ):
        with pytest.raises(ReadOnlyError, match="read-only"):
            write()
    for question in (
        lambda: served.whats(),
        lambda: list(served.list("syslog", **DAY, retracted=True)),
        lambda: served.page("syslog", **DAY, cursor="?"),
    ):
        with pytest.raises(InvalidInputError, match=r"does not|is not a cursor"):
            question()
    with pytest.raises(RecordNotFoundError):
        served.record("absent")


def test_damaged_content_is_an_error(raw: Archive, served: Archive, tmp_path: Path) -> None:
    (*_, record) = raw.list("syslog", **DAY)
    stored = raw.store.local_path(record.url.removeprefix(f"{raw.store.uri}/"))
    assert stored is not None
    stored.write_bytes(b"LINE\nline\n")

    with pytest.raises((FormatError, StorageError)), served.open(record.id) as file:
        file.read()


def test_token_is_taken_from_the_variable_and_told_if_wrong(
    raw: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(raw, token="secret") as server:
        with pytest.raises(AccessDeniedError, match="LAKEBED_ARCHIVE_TOKEN"):
            list(lakebed.open_archive(server.url).list("syslog", **DAY))
        monkeypatch.setenv("LAKEBED_ARCHIVE_TOKEN", "secret")
        assert len(list(lakebed.open_archive(server.url).list("syslog", **DAY))) == 3


@contextlib.contextmanager
def other_server(status: int, body: bytes, **headers: str) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>"),
        (200, b"[]"),
        (200, b"{}"),
        (200, b'{"records": [{}], "next": null}'),
        (200, b'{"records": [{"metadata": {"id": 1}, "size": 1, "create_time": 1}]}'),
        (404, b"<html>"),
        (500, b"\xff"),
    ],
)
def test_server_of_something_else_is_told(status: int, body: bytes) -> None:
    with (
        other_server(status, body) as url,
        pytest.raises((StorageError, FormatError), match=r"archive|breaks a rule"),
    ):
        list(lakebed.open_archive(url).list("syslog", **DAY))


def test_redirect_is_not_followed_with_the_token() -> None:
    with (
        other_server(200, b'{"records": [], "next": null}') as other,
        other_server(302, b"", Location=other) as url,
        pytest.raises(StorageError, match="302"),
    ):
        list(lakebed.open_archive(url, storage_options={"token": "x"}).list("syslog", **DAY))


def test_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakebed.archive.http_client.time.sleep", lambda _: None)
    with other_server(200, b"{}") as url:
        pass
    with pytest.raises(StorageError, match=f"{url} does not answer") as caught:
        list(lakebed.open_archive(url).list("syslog", **DAY))
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://", {}),
        ("http://user:pass@host/", {}),
        ("https://host/?a=b", {}),
        ("https://host", {"tokn": "x"}),
    ],
)
def test_what_is_no_address_is_refused(url: str, options: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        lakebed.open_archive(url, storage_options=options)
    with pytest.raises(InvalidInputError, match="index of its own"):
        lakebed.open_archive("https://host", index="sqlite://")

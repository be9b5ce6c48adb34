"""The archive over HTTP: every endpoint, asked over a real connection."""

from __future__ import annotations

import contextlib
import datetime as dt
import gzip
import http.client
import io
import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import jsonschema
import openapi_spec_validator
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed.archive import Archive, to_epoch_ms
from lakebed.archive.http import create_app, serve
from lakebed.archive.http.answers import Refusal
from lakebed.archive.http.content_answers import byte_range, content_type
from lakebed.archive.http.server import own_hosts
from lakebed.errors import InvalidInputError, MissingDependencyError

T0 = 1426809600000  # 2015-03-20
DAY = 86_400_000
FILES = "/v0/archive/files/"
MIB = 1024 * 1024


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> tuple[int, str]:
        assert set(self.json) == {"code", "message"}
        return self.status, self.json["code"]


class Server:
    """A server on a free port, and a way to ask it without a library that mends requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spec: Any = None

    def ask(self, path: str, *, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=30)
        with contextlib.closing(connection):
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=named)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())

    def get(self, path: str, **headers: str) -> Answer:
        """Ask, and compare an answer in JSON with what the OpenAPI document says of it."""
        answer = self.ask(path, **headers)
        if answer.headers.get("content-type") == "application/json":
            self._check(path.partition("?")[0], answer)
        return answer

    def files(self, **question: object) -> Any:
        answer = self.get(f"{FILES}?{urlencode(question)}")
        assert answer.status == 200, answer.body
        return answer.json

    def _check(self, path: str, answer: Answer) -> None:
        self.spec = self.spec or self.ask("/spec/").json
        for template, operations in self.spec["paths"].items():
            pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template.rstrip("/")))
            if re.fullmatch(pattern, path.rstrip("/")):
                told = operations["get"]["responses"].get(str(answer.status))
                if told is None:
                    assert answer.status >= 500, (path, answer)
                elif "application/json" in told["content"]:
                    schema = told["content"]["application/json"]["schema"]
                    jsonschema.validate(answer.json, {**schema, **self.spec})


@contextlib.contextmanager
def serving(archive: Archive, **options: Any) -> Iterator[Server]:
    listener = socket.create_server(("127.0.0.1", 0))
    app = create_app(archive, **options)
    server = uvicorn.Server(
        uvicorn.Config(app, log_config=None, lifespan="off", ws="none", http="h11", loop="asyncio")
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield Server(f"http://127.0.0.1:{listener.getsockname()[1]}")
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


@pytest.fixture
def server(archive: Archive) -> Iterator[Server]:
    with serving(archive) as running:
        yield running


on_a_directory = pytest.mark.parametrize("archive", ["directory"], indirect=True)
on_s3 = pytest.mark.parametrize("archive", ["s3"], indirect=True)


def test_list_shows_records_in_the_shape_of_datalake(server: Server, archive, push) -> None:
    record = push(b"mwahaha", start=T0, end=T0 + 5, work_id="job-1", extra={"owner": "ops"})

    found = server.files(what="log", start=T0, end=T0)

    http_url = f"{server.url}{FILES}{record.id}/data"
    is_local = archive.store.uri.startswith("file:")
    assert found == {
        "records": [
            {
                "url": http_url if is_local else record.url,
                "http_url": http_url,
                "create_time": record.create_time_ms,
                "size": 7,
                "metadata": {
                    **record.metadata,
                    "start_iso": "2015-03-20T00:00:00.000Z",
                    "end_iso": "2015-03-20T00:00:00.005Z",
                },
            }
        ],
        "next": None,
    }


@on_a_directory
def test_list_narrows_by_time_work_and_place(server: Server, push) -> None:
    push(id="a", start=T0, end=None, where="web1", work_id="job")
    push(id="b", start=T0 + DAY, where="web2", work_id="job")
    push(id="c", what="other", work_id="job")

    def ids(**question: object) -> list[str]:
        found = server.files(**{"what": "log", **question})["records"]
        return [one["metadata"]["id"] for one in found]

    assert ids(start="2015-03-20", end="2015-03-21T12:00:00Z") == ["a", "b"]
    assert ids(start="2015-03-20", end="now", where="web2") == ["b"]
    assert ids(start=T0 + 1, end=T0 + 2) == []
    assert ids(work_id="job") == ["a", "b"]
    assert ids(work_id="job", where="web1") == ["a"]
    assert ids(work_id="No such work!", where="x y") == []
    assert ids(work_id="") == []


BAD_QUESTIONS = {
    "": "NoArgs",
    "start=1": "NoWhat",
    "what=": "NoWhat",
    "what=log": "NoWorkInterval",
    "what=log&where=box": "NoWorkInterval",
    "what=log&work_id=x&start=1": "InvalidWorkInterval",
    "what=log&work_id=x&end=1": "InvalidWorkInterval",
    "what=log&work_id=x&start=1426809600&end=2": "InvalidWorkInterval",
    "what=log&start=notaninteger": "InvalidWorkInterval",
    "what=log&end=1": "InvalidWorkInterval",
    "what=log&start=notaninteger&end=now": "InvalidTime",
    "what=log&start=1426809600&end=notaninteger": "InvalidTime",
    "what=log&start=inf&end=now": "InvalidTime",
    "what=log&start=1e18&end=2e18": "InvalidTime",
    "what=log&start=&end=": "InvalidTime",
    "what=log&start=%00&end=%F0%28": "InvalidTime",
    "what=log&start=1426809601&end=1426809600": "InvalidWorkInterval",
    "what=log&start=200&end=now": "InvalidTime",
    "what=log&start=20261301&end=now": "InvalidTime",
    "what=log&start=1426809600&end=now&cursor=foobar": "InvalidCursor",
    "what=log&start=1426809600&end=now&cursor=": "InvalidCursor",
    "what=log&work_id=x&cursor=a": "InvalidCursor",
    "what=log&work_id=x&cursor=eyJ4IjoxfQ": "InvalidCursor",  # {"x":1}
    "what=log&work_id=x&cursor=WzFd": "InvalidCursor",  # [1]
    "what=log&work_id=x&cursor=%F0%9F%98%80": "InvalidCursor",
}


@on_a_directory
def test_bad_question_is_refused_with_the_code_of_datalake(server: Server) -> None:
    codes = {text: server.get(f"{FILES}?{text}").code for text in BAD_QUESTIONS}

    assert codes == {text: (400, code) for text, code in BAD_QUESTIONS.items()}


@pytest.mark.thorough
@pytest.mark.parametrize("archive", ["directory", "s3-dynamodb"], indirect=True)
def test_pages_hold_100_files_and_each_file_comes_once(server: Server, archive, record_of) -> None:
    small = dt.datetime(1970, 1, 1, 0, 0, 1)  # its milliseconds would be seconds
    archive.index.put(
        record_of(
            id=f"f{number}", what="log", start=small, end=small + dt.timedelta(1), work_id="job"
        )
        for number in range(101)
    )

    for question in ({"start": "1970-01-01", "end": "1970-01-05"}, {"work_id": "job"}):
        page = server.files(what="log", where="nebraska", **question)
        sizes, seen = [], []
        while True:
            sizes.append(len(page["records"]))
            seen += [one["metadata"]["id"] for one in page["records"]]
            if page["next"] is None:
                break
            assert page["next"].startswith(f"{server.url}{FILES}?")
            page = server.get(page["next"].removeprefix(server.url)).json
        assert sizes == [100, 1]
        assert sorted(seen) == sorted(f"f{number}" for number in range(101))


@on_a_directory
def test_next_page_of_a_question_about_now_is_of_the_same_now(server, archive, record_of) -> None:
    archive.index.put(record_of(id=f"f{number}", what="log") for number in range(101))

    page = server.files(what="log", start=0, end="now")

    (last,) = server.get(page["next"].removeprefix(server.url)).json["records"]
    assert last["metadata"]["id"] not in [one["metadata"]["id"] for one in page["records"]]


@on_a_directory
def test_cursor_of_another_question_is_refused(server: Server, archive, record_of) -> None:
    archive.index.put(record_of(id=f"f{number}", work_id="job") for number in range(101))
    following = server.files(what="apache", work_id="job")["next"]

    stolen = server.get(following.removeprefix(server.url).replace("job", "other"))

    assert stolen.code == (400, "InvalidCursor")


@pytest.mark.parametrize("archive", ["s3-dynamodb"], indirect=True)
def test_time_too_long_for_the_index_is_an_invalid_interval(server: Server) -> None:
    answer = server.get(f"{FILES}?what=log&start=1900-01-01&end=now")

    assert answer.code == (400, "InvalidWorkInterval")


def test_metadata_of_a_file(server: Server, push) -> None:
    record = push(end=None)

    answer = server.get(f"{FILES}{record.id}/metadata")

    iso = {"start_iso": "2015-03-20T00:00:00.000Z", "end_iso": None}
    assert answer.json == {**record.metadata, **iso}
    assert server.get(f"{FILES}missing/metadata").code == (404, "NoSuchFile")


def test_content_comes_whole_and_head_tells_of_it(server: Server, push) -> None:
    record = push(b"0123456789")
    path = f"{FILES}{record.id}/data"

    whole, head = server.get(path), server.ask(path, method="HEAD")

    assert (whole.status, whole.body) == (200, b"0123456789")
    assert (head.status, head.body) == (200, b"")
    untimed = [{**one.headers, "date": ""} for one in (whole, head)]
    assert untimed[0] == untimed[1]
    assert whole.headers["content-length"] == "10"
    assert whole.headers["accept-ranges"] == "bytes"
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert server.get(f"{FILES}missing/data").code == (404, "NoSuchFile")
    assert server.ask(f"{FILES}missing/data", method="HEAD").status == 404


def test_range_comes_as_asked(server: Server, push) -> None:
    path = f"{FILES}{push(b'0123456789').id}/data"

    def part(header: str, **more: str) -> tuple[int, bytes, str | None]:
        answer = server.get(path, range=header, **more)
        return answer.status, answer.body, answer.headers.get("content-range")

    assert part("bytes=2-4") == (206, b"234", "bytes 2-4/10")
    assert part("bytes=7-") == (206, b"789", "bytes 7-9/10")
    assert part("bytes=-3") == (206, b"789", "bytes 7-9/10")
    assert part("bytes=-30") == (206, b"0123456789", "bytes 0-9/10")
    assert part("bytes=0-0") == (206, b"0", "bytes 0-0/10")
    assert part("Bytes= 9-99 ") == (206, b"9", "bytes 9-9/10")
    for ignored in ("bytes=4-2", "bytes=-", "bytes=a-b", "lines=1-2", "bytes=0-1,3-4", "x"):
        assert part(ignored) == (200, b"0123456789", None)
    for beyond in ("bytes=10-", "bytes=99-100", "bytes=-0"):
        answer = server.get(path, range=beyond)
        assert answer.code == (416, "InvalidRange")
        assert answer.headers["content-range"] == "bytes */10"
    etag = server.ask(path, method="HEAD").headers["etag"]
    assert part("bytes=0-0", if_range=etag)[0] == 206
    assert part("bytes=0-0", if_range='"another"')[0] == 200
    assert server.ask(path, method="HEAD", range="bytes=0-0").status == 200


@on_a_directory
def test_empty_file_has_no_range(server: Server, push) -> None:
    path = f"{FILES}{push(b'').id}/data"

    assert (server.get(path).status, server.get(path).body) == (200, b"")
    assert server.get(path, range="bytes=0-").code == (416, "InvalidRange")


@given(st.integers(0, 20), st.integers(0, 25), st.integers(0, 25), st.sampled_from("ab-"))
def test_range_is_what_a_slice_would_be(size: int, first: int, last: int, form: str) -> None:
    content = bytes(range(size))
    header, expected = {
        "a": (f"bytes={first}-{last}", content[first : last + 1]),
        "b": (f"bytes={first}-", content[first:]),
        "-": (f"bytes=-{last}", content[-last:] if last else b""),
    }[form]

    if form == "a" and last < first:
        assert byte_range(header, size) is None
    elif not expected:
        with pytest.raises(Refusal, match="InvalidRange"):
            byte_range(header, size)
    else:
        part = byte_range(header, size)
        assert content[part.start : part.stop] == expected


MD5, SHA1 = "0" * 31 + "f", "0" * 40


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("foo.txt", "text/plain"),
        ("syslog.1", "text/plain"),
        ("random.log", "text/plain"),
        ("random.log.1", "text/plain"),
        (f"bar.log-{MD5}", "text/plain"),
        ("foo.json", "application/json"),
        ("foo.txt.gz", "text/plain"),
        ("random.log.gz", "text/plain"),
        (f"foo.json-{SHA1}", "application/json"),
        (f"foo.log.gz-{SHA1}", "text/plain"),
        ("data:text", "text/plain"),
        ("no-hash.json", "application/json"),
    ],
)
def test_media_type_is_told_by_the_name(name: str, expected: str) -> None:
    assert content_type(f"/var/log/{name}") == expected
    assert content_type(f"C:\\logs\\{name}") == expected


@on_a_directory
def test_gzip_is_told_by_the_content(server: Server, push) -> None:
    packed = gzip.compress(b"{}")
    json_file, text_file = push(packed, path="/a.json"), push(b"plain", path="/a.json.gz")

    of_json, of_text = (server.ask(f"{FILES}{one.id}/data") for one in (json_file, text_file))

    assert (of_json.headers["content-encoding"], of_json.body) == ("gzip", packed)
    assert of_json.headers["content-type"] == "application/json"
    assert "content-encoding" not in of_text.headers


def test_latest_is_the_latest_start(server: Server, push) -> None:
    now = to_epoch_ms("now")
    push(b"reaches into today", start=now - 5 * DAY, end=now)
    expected = push(b"yesterday", start=now - DAY)
    push(b"old", what="old", start=now - 20 * DAY)
    push(b"tomorrow", start=now + 2 * DAY)

    found = server.get("/v0/archive/latest/log/box").json

    assert set(found) == {"url", "http_url", "metadata"}
    assert found["metadata"]["id"] == expected.id
    assert server.get("/v0/archive/latest/log/box/data").body == b"yesterday"
    part = server.get("/v0/archive/latest/log/box/data", range="bytes=-3")
    assert (part.status, part.body) == (206, b"day")
    assert server.get("/v0/archive/latest/old/box?lookback=20").status == 200
    for path in ("old/box?lookback=19", "old/box", "old/box/data", "log/nowhere", "No%20such/x"):
        assert server.get(f"/v0/archive/latest/{path}").code == (404, "NoSuchFile")
    for lookback in ("nine", "-1", "", "1.5", "1_0", "9" * 5000):
        answer = server.get(f"/v0/archive/latest/log/box?lookback={lookback}")
        assert answer.code == (400, "InvalidLookback")
        assert len(answer.body) < 300


@on_s3
@pytest.mark.parametrize("file_id", ["old", "old/with%slash", "s3://x/y"])
def test_file_under_an_old_key_is_found_by_its_id(
    server: Server, archive, fields_of, file_id: str
) -> None:
    metadata = json.dumps(fields_of(id=file_id))
    key = "2-box/log/1426809600000/old-a.log"
    archive.store.put_stream(key, [b"content"], attributes={"datalake": metadata})
    archive.ingest(f"{archive.store.uri}/{key}")

    (record,) = server.files(what="apache", start=T0, end=T0)["records"]

    assert record["url"] == f"{archive.store.uri}/{key}"
    path = record["http_url"].removeprefix(server.url)
    assert server.ask(path).body == b"content"
    assert server.ask(f"{path.removesuffix('data')}metadata").json["id"] == file_id


@on_s3
def test_object_that_tells_of_another_file_is_not_that_file(server, archive, fields_of) -> None:
    metadata = json.dumps(fields_of(id="another"))
    archive.store.put_stream("one/data", [b"content"], attributes={"datalake": metadata})

    assert server.get(f"{FILES}one/data").code == (404, "NoSuchFile")


@on_a_directory
def test_no_path_leads_out_of_the_files(server: Server, archive, push, tmp_path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "data").write_text("top secret")
    (tmp_path / "raw" / "stray").write_text("top secret")
    record = push()
    index = (tmp_path / "raw" / ".lakebed" / "archive.db").read_bytes()
    ids = [
        "../secret",
        "..",
        ".",
        "",
        ".lakebed",
        "../secret/data\0",
        f"{record.id}/../../secret",
        str(tmp_path / "secret"),
        f"file://{tmp_path}/secret/data",
        f"{archive.store.uri}/{record.id}/data",
        f"{archive.store.uri}/stray",
        record.url,
        "..\\secret",
        "%2e%2e/secret",
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
        "x" * 5000,
        "stray",
    ]
    for file_id in ids:
        for path in (quote(file_id, safe="/"), quote(file_id, safe="")):
            for end in ("data", "metadata"):
                answer = server.ask(f"{FILES}{path}/{end}")
                assert answer.code in {(404, "NoSuchFile"), (404, "NoSuchEndpoint")}, file_id
                assert b"top secret" not in answer.body
    for path in ("/../secret/data", "/%2e%2e/secret/data", "/raw/stray", "//secret/data"):
        assert server.ask(path).code == (404, "NoSuchEndpoint")
    assert index[:15] == b"SQLite format 3"


@on_a_directory
def test_link_out_of_the_storage_is_no_file(archive, push, fields_of, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("top secret")
    evil = tmp_path / "raw" / "evil"
    evil.mkdir()
    (evil / "data").symlink_to(tmp_path / "secret")
    (evil / "metadata").write_text(json.dumps(fields_of(id="evil")))
    record = push(b"content")
    # The storage itself may be a link.
    (tmp_path / "linked").symlink_to(tmp_path / "raw")

    for options, refusal in (
        ({}, (503, "Unavailable")),
        ({"links": "true"}, (404, "NoSuchFile")),  # only those within the storage
    ):
        linked = lakebed.open_archive(tmp_path / "linked", storage_options=options)
        with serving(linked) as server:
            assert server.ask(f"{FILES}evil/data").code == refusal
            assert server.ask(f"{FILES}evil/metadata").code == refusal
            assert server.get(f"{FILES}{record.id}/data").body == b"content"


def test_other_paths_and_methods_are_refused_in_json(server: Server) -> None:
    for path in ("/nope", "/v0", "/v0/archive/files/x", "/v0/archive/latest/log", "/docs/"):
        assert server.ask(path).code == (404, "NoSuchEndpoint")
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        answer = server.ask(FILES, method=method)
        assert answer.code == (405, "MethodNotAllowed")
        assert answer.headers["allow"] == "GET, HEAD"


def test_root_health_environment_and_storage(server: Server, archive: Archive) -> None:
    root = server.ask("/")

    assert (root.status, root.headers["location"]) == (307, "spec/")
    assert server.get("/health/").json == {}
    assert server.get("/v0/environment/").json == {
        "data": {"build": {"version": lakebed.__version__}}
    }
    uri = archive.store.uri
    storage_url = None if uri.startswith("file:") else uri
    assert server.get("/v0/archive/").json == {"storage_url": storage_url}
    for path in ("/health", "/spec", "/v0/environment", "/v0/archive"):
        assert server.get(path).status == 200
        assert server.ask(path, method="HEAD").status == 200


@on_a_directory
def test_openapi_document_is_valid_and_tells_of_every_route(archive: Archive) -> None:
    app = create_app(archive, token="a-long-secret")
    with serving(archive, token="a-long-secret") as server:
        document = server.ask("/spec/", authorization="Bearer a-long-secret").json

    openapi_spec_validator.validate(document)
    routes = {route.path.replace(":path}", "}") for route in app.routes}
    paths = set(document["paths"])
    assert routes == paths | {path.rstrip("/") for path in paths if path != "/"}
    assert all(route.methods == {"GET", "HEAD"} for route in app.routes)
    unsecured = {path for path, one in document["paths"].items() if "security" not in one["get"]}
    assert unsecured == {"/health/"}


@on_a_directory
def test_token_is_asked_for_and_told_to_nobody(archive: Archive, push, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    record, secret = push(), "s3cret-token"
    with serving(archive, token=secret) as server:
        paths = ["/", "/spec/", "/v0/archive/", f"{FILES}{record.id}/data", "/nope", FILES]
        wrong = [
            {},
            {"authorization": ""},
            {"authorization": secret},
            {"authorization": f"Basic {secret}"},
            {"authorization": "Bearer s3cret-tokem"},
            {"authorization": "Bearer s3cret"},
            {"authorization": f"Bearer {secret}x"},
            {"authorization": "Bearer \xff\xfe"},
        ]
        for headers in wrong:
            for path in paths:
                answer = server.ask(path, **headers)
                assert answer.code == (401, "Unauthorized")
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert secret.encode() not in answer.body
        for scheme in ("Bearer", "bearer"):
            answer = server.ask(paths[3], authorization=f"{scheme} {secret}")
            assert answer.status == 200
        assert server.ask("/health/").status == 200
        assert server.ask("/health/../v0/archive/").status == 401

    assert "status=401" in caplog.text
    assert secret not in caplog.text


def test_token_and_public_url_are_checked(tmp_path: Path) -> None:
    archive = lakebed.open_archive(tmp_path)
    for token in ("", "two words", "ümlaut", "line\n"):
        with pytest.raises(InvalidInputError) as error:
            create_app(archive, token=token)
        assert not token or token not in str(error.value)
    for url in ("", "archive.example.org", "ftp://x", "http://", "http://x/?a=b", "http://[x"):
        with pytest.raises(InvalidInputError):
            create_app(archive, public_url=url)


@on_a_directory
def test_urls_begin_as_the_client_reaches_the_server(archive: Archive, push) -> None:
    push()
    question = f"{FILES}?what=log&start={T0}&end={T0}"

    def http_url(server: Server, **headers: str) -> str:
        return server.ask(question, **headers).json["records"][0]["http_url"].split(FILES)[0]

    with serving(archive, public_url="https://example.org/lake/") as server:
        assert http_url(server) == "https://example.org/lake"
    with serving(archive) as server:
        assert http_url(server, host="raw.example.org:81") == "http://raw.example.org:81"
        assert http_url(server, host="[::1]:81") == "http://[::1]:81"
        for odd in ("a/b", "a b", "[", "<script>", "a@b", ""):
            assert http_url(server, host=odd) == server.url


@on_a_directory
def test_damaged_content_is_cut_off_before_its_end(
    server: Server, push, tmp_path: Path, caplog
) -> None:
    record = push(b"x" * (3 * MIB))
    path = f"{FILES}{record.id}/data"
    (tmp_path / "raw" / record.id / "data").write_bytes(b"x" * (3 * MIB - 1) + b"y")

    with pytest.raises(http.client.IncompleteRead) as error:
        server.ask(path)

    assert 0 < len(error.value.partial) < 3 * MIB
    assert "content cut off" in caplog.text
    assert server.ask(path, range="bytes=-1").body == b"y"


@on_a_directory
def test_defects_are_answered_without_details(
    server: Server, archive: Archive, push, tmp_path: Path, monkeypatch, caplog
) -> None:
    record = push()
    (tmp_path / "raw" / record.id / "metadata").write_text("{")
    damaged = server.ask(f"{FILES}{record.id}/data")
    with serving(lakebed.open_archive(tmp_path / "raw", index=tmp_path / "none.db")) as other:
        unavailable = other.ask(f"{FILES}?what=log&work_id=x")

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(str(tmp_path))

    monkeypatch.setattr(archive.index, "page", fail)
    defect = server.ask(f"{FILES}?what=log&work_id=x")

    assert damaged.code == (500, "Damaged")
    assert unavailable.code == (503, "Unavailable")
    assert defect.code == (500, "InternalError")
    for answer in (damaged, unavailable, defect):
        assert str(tmp_path).encode() not in answer.body
        assert b"Traceback" not in answer.body
    assert str(tmp_path) in caplog.text  # the log has them


@on_a_directory
def test_text_that_is_no_utf8_does_no_harm(archive: Archive, push, caplog) -> None:
    caplog.set_level(logging.INFO)
    record = push(path="/\ud800.log", extra={"note": "\udfff"})

    with serving(archive) as server:
        (found,) = server.files(what="log", start=T0, end=T0)["records"]
        answer = server.ask(f"{FILES}{record.id}/data")
        assert server.ask("/a%0Ab").status == 404

    assert found["metadata"]["note"] == "\udfff"
    assert answer.status == 200
    assert r"path='/a\nb'" in caplog.text


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(MissingDependencyError, match=r"lakebed\[serve\]"):
        serve(lakebed.open_archive(tmp_path))


@dataclass(frozen=True)
class Process:
    """`lakebed archive serve` in a process of its own."""

    server: Server
    process: subprocess.Popen[str]

    def peak_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    with contextlib.ExitStack() as stack:

        def start(*arguments: str) -> Process:
            lakebed_ = Path(sys.executable).parent / "lakebed"
            process = subprocess.Popen(
                [lakebed_, "archive", "serve", "--port", "0", "-o", "jsonl", *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return Process(Server(json.loads(process.stdout.readline())["url"]), process)

        yield start


@on_a_directory
def test_server_of_this_machine_answers_for_its_own_names_only(
    archive, push, run, tmp_path
) -> None:
    path = f"{FILES}{push().id}/data"
    server = run("--storage", str(tmp_path / "raw")).server

    for name, status in {
        urlsplit(server.url).netloc: 200,
        "localhost": 200,
        "[::1]:80": 200,
        "evil.example:8080": 421,
        "127.0.0.1.evil.example": 421,
        "[": 421,
    }.items():
        assert server.ask(path, host=name).status == status, name


@pytest.mark.parametrize(
    ("host", "token", "refused"),
    [
        ("127.0.0.1", None, True),
        ("127.8.0.1", None, True),
        ("::1", None, True),
        ("localhost", None, True),
        ("127.0.0.1", "secret", False),
        ("0.0.0.0", None, False),
    ],
)
def test_other_names_are_refused_where_only_this_machine_reaches_a_server_without_a_token(
    host: str, token: str | None, refused: bool
) -> None:
    hosts = own_hosts(host, token, "https://archive.example.org/x")

    assert (hosts is not None) == refused
    if hosts is not None:
        assert {host, "localhost", "archive.example.org"} <= hosts


@pytest.mark.thorough
@on_a_directory
def test_big_file_is_streamed_in_little_memory(archive, push, run, tmp_path: Path) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("this system does not tell what a process takes")
    size_bytes = 256 * MIB
    source = tmp_path / "big"
    with source.open("wb") as file:
        file.truncate(size_bytes)
    record = archive.push(source, where="box", what="log", start=T0)
    running = run("--storage", str(tmp_path / "raw"))
    running.server.ask(f"{FILES}{push().id}/data")  # all that is loaded at first
    before = running.peak_bytes()

    for headers in ({}, {"Range": "bytes=1-"}):
        connection = http.client.HTTPConnection(urlsplit(running.server.url).netloc)
        with contextlib.closing(connection):
            connection.request("GET", f"{FILES}{record.id}/data", headers=headers)
            answer, received = connection.getresponse(), 0
            time.sleep(0.5)  # a slow reader must not fill the server
            while piece := answer.read(MIB):
                received += len(piece)
        assert received == size_bytes - len(headers)

    assert running.peak_bytes() - before < 48 * MIB


@pytest.mark.thorough
@on_a_directory
def test_process_tells_its_url_and_ends_when_asked(archive, push, run, tmp_path: Path) -> None:
    record = push(b"content")
    running = run("--storage", str(tmp_path / "raw"), "--token", "abc", "-v")
    path = f"{FILES}{record.id}/data"
    assert running.server.ask(path).status == 401
    assert running.server.ask(path, authorization="Bearer abc").body == b"content"

    running.process.send_signal(signal.SIGTERM)
    _, errors = running.process.communicate(timeout=30)

    assert "status=200" in errors
    assert "abc" not in errors
    with pytest.raises(ConnectionRefusedError):
        running.server.ask("/health/")


def test_server_that_could_not_answer_does_not_start(tmp_path: Path) -> None:
    archive = lakebed.open_archive(tmp_path / "raw")
    with pytest.raises(lakebed.errors.StorageError, match="no index"):
        serve(archive, port=0)
    archive.init()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInputError, match=f"Port {port} of '127.0.0.1'"):
            serve(archive, port=port)


@on_a_directory
def test_many_ask_at_once(server: Server, push) -> None:
    contents = {push(str(number).encode()).id: str(number).encode() for number in range(8)}
    wrong: list[object] = []

    def read() -> None:
        for file_id, content in contents.items():
            answer = server.ask(f"{FILES}{file_id}/data")
            listed = server.ask(f"{FILES}?what=log&start={T0}&end={T0}")
            if answer.body != content or len(listed.json["records"]) != 8:
                wrong.append((answer, listed))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def test_pushing_while_serving_is_seen(server: Server, archive: Archive) -> None:
    what = f"log-{uuid.uuid4().hex}"
    assert server.files(what=what, work_id="w")["records"] == []

    archive.push(io.BytesIO(b"x"), path="/x", where="b", what=what, start=T0, work_id="w")

    assert len(server.files(what=what, work_id="w")["records"]) == 1

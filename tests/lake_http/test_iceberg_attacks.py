"""The Iceberg catalog under attack: named errors in Iceberg's form, no 500, nothing outside the lake."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.client
import json
import logging
import random
import socket
import time
from pathlib import Path

import pyarrow as pa
import pytest
from asking import Client

import lakebed
from lakebed.web import IcebergDoor, create_app

TOKEN = "a-long-secret"
SECRET = "what-lies-outside-the-lake"
TABLES = "/v1/lake/namespaces/lake/tables"
PLAN, TASKS = f"{TABLES}/events/plan", f"{TABLES}/events/tasks"
ALLOWED = {"authorization": f"Bearer {TOKEN}"}
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("day", pa.date32())])
REFUSED = {400, 404, 405, 406, 413}
MOST_GROWTH = 48 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "secret").write_text(SECRET)
    (folder / "lake").mkdir()
    (folder / "other").mkdir()
    (folder / "other" / "lakebed.json").write_text(SECRET)
    return folder


@pytest.fixture(scope="module")
def client(folder):
    lake = lakebed.open_repository(str(folder / "lake"))
    dataset = lake.create(
        "events", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="day", index=["id"])
    )
    dataset.append([{"id": f"u{n}", "n": n, "day": dt.date(2013, 1, 1 + n)} for n in range(9)])
    return Client(create_app(lake, token=TOKEN, iceberg=IcebergDoor()))


def is_well(client: Client) -> bool:
    answer = client.ask(PLAN, "POST", ALLOWED, b'{"filter":{"type":"eq","term":"id","value":"u3"}}')
    return answer.status == 200 and len(json.loads(answer.body)["file-scan-tasks"]) == 1


def assert_named(status: int, body: bytes) -> None:
    """Check that an error is as the protocol has them, and says nothing of what lies outside."""
    assert SECRET.encode() not in body
    error = json.loads(body)["error"]
    assert error["code"] == status
    assert error["message"]
    assert error["type"].endswith("Exception")


# Raw sockets


def exchange(client: Client, data: bytes, *, seconds: float = 2.0, half: bool = False) -> bytes:
    """Send bytes as they are; return what comes until the server or the patience ends."""
    host, _, port = client.place.partition(":")
    found = b""
    with (
        contextlib.closing(socket.create_connection((host, int(port)), seconds)) as connection,
        contextlib.suppress(OSError),
    ):
        connection.sendall(data)
        if half:
            connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(65536):
            found += piece
    return found


def head(path: str = "/v1/config", method: str = "GET", **headers: str) -> bytes:
    own = {"host": "x", "authorization": f"Bearer {TOKEN}", **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in own.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


_POST = {"content-length": "1000", "content-type": "application/json"}
RAW = {
    "nothing": b"",
    "half a line": b"GET /v1/con",
    "half a head": b"GET /v1/config HTTP/1.1\r\nhost: x\r\nauth",
    "half a body": head(PLAN, "POST", **_POST) + b'{"filter":',
    "no protocol": b"GET /v1/config\r\n\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "unknown version": b"GET /v1/config HTTP/9.9\r\nhost: x\r\n\r\n",
    "nul in the path": b"GET /v1/\x00config HTTP/1.1\r\nhost: x\r\n\r\n",
    "nul in a header": b"GET /v1/config HTTP/1.1\r\nhost: x\r\na: \x00\r\n\r\n",
    "bytes in the path": b"GET /v1/\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n",
    "no host": b"GET /v1/config HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /v1/config HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n",
    "huge header": head(cookie="x" * 200_000),
    "many headers": head(**{f"x-{number}": "y" * 50 for number in range(2000)}),
    "huge path": head("/v1/" + "x" * 200_000),
    "negative length": head(PLAN, "POST", **{"content-length": "-1"}) + b"{}",
    "huge length": head(PLAN, "POST", **{"content-length": "9" * 40}) + b"{}",
    "two lengths": head(PLAN, "POST", **{"content-length": "2, 5"}) + b"{}",
    "bad chunk": head(PLAN, "POST", **{"transfer-encoding": "chunked"}) + b"zz\r\n{}\r\n0\r\n\r\n",
    "endless chunk": head(PLAN, "POST", **{"transfer-encoding": "chunked"})
    + b"fffffffffffffffff\r\n",
    "length and chunks": head(PLAN, "POST", **_POST, **{"transfer-encoding": "chunked"})
    + b"0\r\n\r\n",
    "pipelined garbage": head() + b"\x00\x01\x02 not a request\r\n\r\n" * 50,
    "method of its own": head(PLAN, "PL\x7fAN"),
    "long method": head(PLAN, "X" * 5000),
    "trick of a proxy": head("http://other/../../etc/passwd"),
    "asterisk": head("*", "OPTIONS"),
    "connect": head("other:443", "CONNECT"),
}


@pytest.mark.parametrize("name", RAW)
def test_what_is_hardly_http_ends_with_a_refusal(client, name) -> None:
    found = exchange(client, RAW[name], half=True)

    statuses = [int(part[:3]) for part in found.split(b"HTTP/1.1 ")[1:]]
    assert all(status < 500 for status in statuses), found
    assert SECRET.encode() not in found
    wanted = {200} if name == "pipelined garbage" else set()
    assert {status for status in statuses if status < 400} <= wanted
    assert is_well(client)


def test_pipelined_requests_are_answered_in_their_order(client) -> None:
    found = exchange(client, head(TABLES) + head(f"{TABLES}/none") + head(connection="close"))

    statuses = [int(part[:3]) for part in found.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [200, 404, 200]


def test_slow_clients_keep_nobody_from_an_answer(client) -> None:
    host, _, port = client.place.partition(":")
    with contextlib.ExitStack() as stack:
        slow = [
            stack.enter_context(contextlib.closing(socket.create_connection((host, int(port)))))
            for _ in range(60)
        ]
        body = head(PLAN, "POST", **_POST)
        for position in range(0, 240, 40):
            for number, connection in enumerate(slow):
                data = head() if number % 2 else body
                connection.sendall(data[position : position + 1])
            began = time.monotonic()
            assert is_well(client)
            assert time.monotonic() - began < 20
    assert is_well(client)


# Paths


PATHS = [
    "..%2F..%2Fsecret",
    "..%2f..%2fother",
    "%2e%2e%2fother",
    "..%5C..%5Csecret",
    "%252e%252e%252fsecret",
    "..%c0%afsecret",
    "%00",
    "events%00",
    "events%00.json",
    "events%0d%0aset-cookie:%20a=b",
    "events%2F..%2F..%2Fsecret",
    ".",
    "..",
    "%2e%2e",
    "events;a=b",
    "events%20",
    "events%09",
    "EVENTS",
    "event%73x",
    "_events",
    "%ed%a0%80",
    "%ff",
    "x" * 300,
    "x" * 20_000,
    "%F0%9F%92%A9",
    "con",
    "events%3Fx",
    "events%23x",
    "~root",
    "file:%2F%2F%2Fetc",
    "s3:%2F%2Fbucket%2Fkey",
]


@pytest.mark.parametrize("name", PATHS, ids=lambda name: name[:30])
def test_tricks_in_paths_find_nothing(client, name) -> None:
    for method, path in (
        ("GET", f"{TABLES}/{name}"),
        ("POST", f"{TABLES}/{name}/plan"),
        ("POST", f"{TABLES}/{name}/tasks"),
        ("GET", f"/v1/lake/namespaces/{name}/tables"),
        ("GET", f"/v1/lake/namespaces/{name}"),
        ("GET", f"/v1/lake/namespaces?parent={name}"),
        ("GET", f"/v1/{name}/namespaces"),
        ("GET", f"/v1/{name}"),
    ):
        answer = client.ask(path, method, ALLOWED, b"{}" if method == "POST" else None)
        assert answer.status in (400, 404), (path, answer.status)
        assert_named(answer.status, answer.body)
    assert client.ask(f"{TABLES}/{name}", "HEAD", ALLOWED).status in (400, 404)


@pytest.mark.parametrize("name", PATHS, ids=lambda name: name[:30])
def test_tricks_in_questions_change_nothing(client, name) -> None:
    for path in (
        f"/v1/config?warehouse={name}",
        f"{TABLES}/events?snapshots={name}",
        f"{TABLES}?pageSize={name}",
        f"{TABLES}?pageSize=1&pageSize={name}&pageSize",
    ):
        answer = client.ask(path, headers=ALLOWED)
        assert answer.status == 200, path
        assert SECRET.encode() not in answer.body


# Tokens


@pytest.mark.parametrize(
    "sent",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer None",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        f"Bearer x {TOKEN}",
        f"Bearer {TOKEN},{TOKEN}",
        f"Token {TOKEN}",
        TOKEN,
        "Bearer ä",
        "Basic !!!",
        "Basic eDp5",
        "Bearer " + "x" * 30_000,
    ],
    ids=lambda sent: str(sent)[:30],
)
def test_no_other_token_opens_it(client, sent) -> None:
    headers = {} if sent is None else {"authorization": sent.encode("latin-1")}
    for method, path in (
        ("GET", "/v1/config"),
        ("GET", TABLES),
        ("GET", f"{TABLES}/events"),
        ("POST", PLAN),
        ("POST", TASKS),
        ("GET", "/v1/none"),
    ):
        answer = client.ask(path, method, headers, b"{}" if method == "POST" else None)
        assert answer.status == 401, path
        assert_named(401, answer.body)
        assert answer.headers["www-authenticate"].startswith("Bearer")


# Bodies


WORDS = (
    "type and or not eq not-eq lt lt-eq gt gt-eq in not-in is-null not-null is-nan starts-with term "
    "value values left right child children filter select snapshot-id case-sensitive plan-task "
    "use-snapshot-schema stats-fields start-snapshot-id end-snapshot-id transform reference literal "
    "data-type name id n day true false apply"
).split()
VALUES = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**70), 1e308, -0.0, "", "id", "n", "day", "u3", "ID",
    "2013-01-03", "9999-99-99", "\x00", "\ud800", "ä" * 50, "' OR 1=1", "../../secret", "x" * 5000,
)  # fmt: skip
SEEDS = (
    {"snapshot-id": 1, "select": ["id"], "filter": {"type": "eq", "term": "id", "value": "u3"}},
    {"filter": {"type": "and", "left": {"type": "not-null", "term": "n"}, "right": True}},
    {"filter": {"type": "in", "term": "n", "values": [1, 2, 3]}, "case-sensitive": False},
    {"filter": {"type": "not", "child": {"type": "lt", "term": "day", "value": "2013-01-01"}}},
    {
        "filter": {
            "type": "eq",
            "left": {"type": "reference", "term": "id"},
            "right": {"type": "literal", "data-type": "string", "value": "u3"},
        }
    },
    {"filter": {"type": "eq", "term": {"type": "transform", "transform": "day", "term": "day"}}},
    {"plan-task": "eJyLVoo1MjAwMDQ2NjY2MjAwAgAXwgLr"},
)


def invented(chance: random.Random, depth: int = 0):
    """Return a document of words of the protocol that means nothing."""
    if depth > 6 or chance.random() < 0.4:
        return chance.choice(VALUES)
    if chance.random() < 0.3:
        return [invented(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(WORDS): invented(chance, depth + 1) for _ in range(chance.randrange(5))}


def altered(document, chance: random.Random):
    """Return a document of which one part, or more, is another one."""
    if chance.random() < 0.15:
        return invented(chance, 4)
    if isinstance(document, dict):
        items = {name: altered(value, chance) for name, value in document.items()}
        if items and chance.random() < 0.1:
            items[chance.choice(WORDS)] = items.pop(chance.choice(list(items)))
        return items
    if isinstance(document, list):
        return [altered(value, chance) for value in document] * chance.choice([1, 1, 1, 2, 0])
    return document


def hostile(chance: random.Random) -> bytes:
    kind = chance.randrange(10)
    if kind == 0:
        return chance.randbytes(chance.randrange(200))
    if kind == 1:
        depth = chance.randrange(1, 20_000)
        name = chance.choice(["child", "left", "filter"])
        return b'{"filter":' + f'{{"type":"not","{name}":'.encode() * depth + b"1" + b"}" * depth
    text = json.dumps(
        invented(chance) if kind < 5 else altered(chance.choice(SEEDS), chance)
    ).encode()
    if kind == 9:
        position = chance.randrange(len(text) + 1)
        text = text[:position] + chance.randbytes(chance.randrange(4)) + text[position + 1 :]
    return text


def memory_of() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.long)])
def test_hostile_bodies_are_refused_by_name_or_answered(client, folder, count) -> None:
    chance = random.Random(count)
    before = sorted(path for path in folder.rglob("*") if path.is_file())
    statuses: dict[int, int] = {}
    begin = 0
    with contextlib.closing(http.client.HTTPConnection(client.place, timeout=60)) as connection:
        for number in range(count):
            if number == count // 4 and Path("/proc/self/statm").exists():
                begin = memory_of()
            path = chance.choice([PLAN, PLAN, PLAN, TASKS, TASKS, f"{TABLES}/events", "/v1/config"])
            method = chance.choice(["POST", "POST", "POST", "POST", "GET", "PUT", "DELETE"])
            body = hostile(chance)
            agent = {"x-client-version": "PyIceberg 0.12.0"} if chance.random() < 0.3 else {}
            connection.request(method, path, body, {**ALLOWED, **agent})
            answer = connection.getresponse()
            data = answer.read()
            statuses[answer.status] = statuses.get(answer.status, 0) + 1
            assert answer.status in {200} | REFUSED, (path, body[:500], data)
            if answer.status != 200:
                assert_named(answer.status, data)
            elif path == PLAN:
                for task in json.loads(data)["file-scan-tasks"]:
                    found = task["data-file"]["file-path"]
                    assert found.startswith(f"file://{folder}/lake/events/data/"), found
    assert {200, 400, 404, 405} <= set(statuses), statuses
    assert sorted(path for path in folder.rglob("*") if path.is_file()) == before
    if begin:
        assert memory_of() - begin < MOST_GROWTH
    assert is_well(client)


def test_bodies_that_never_end_are_cut_off(client) -> None:
    piece = b"8000\r\n" + b"[" * 0x8000 + b"\r\n"
    begin = head(PLAN, "POST", **{"transfer-encoding": "chunked"})

    found = exchange(client, begin + piece * 33, seconds=10)
    assert found.startswith(b"HTTP/1.1 413 ")
    # If there is more to read, the connection ends before the answer can be read.
    assert exchange(client, begin + piece * 2000, seconds=10)[:13] in (b"", b"HTTP/1.1 413 ")
    assert is_well(client)


def test_clients_that_go_away_within_a_body_leave_a_line_in_the_log(client, caplog) -> None:
    caplog.set_level(logging.INFO)
    host, port = client.place.split(":")

    for _ in range(5):
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(head(PLAN, "POST", **{"content-length": "1000"}) + b"{")
    deadline = time.monotonic() + 10
    while caplog.text.count("status=400") < 5 and time.monotonic() < deadline:
        time.sleep(0.01)

    assert caplog.text.count("status=400") == 5
    assert "Traceback" not in caplog.text
    assert is_well(client)


# Damaged metadata


def damaged(data: bytes, kind: str) -> bytes:
    return {"empty": b"", "half": data[: len(data) // 2], "other": b"[]", "bytes": b"\xff" * 99}[
        kind
    ]


@pytest.mark.parametrize("kind", ["empty", "half", "other", "bytes"])
def test_damaged_metadata_in_the_cache_is_replaced(tmp_path, kind) -> None:
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    dataset = lake.create("events", lakebed.DatasetDescriptor(schema=SCHEMA))
    dataset.append([{"id": "a", "n": 1}])
    door = IcebergDoor(metadata=str(tmp_path / "cache"))
    path = f"{TABLES}/events"
    assert Client(create_app(lake, iceberg=door)).ask(path).status == 200
    for file in sorted((tmp_path / "cache").rglob("*")):
        if file.suffix == ".json" or file.name == "version-hint.text":
            file.write_bytes(damaged(file.read_bytes(), kind))

    # Another server, which holds nothing in memory.
    for number in range(2):
        answer = Client(create_app(lake, iceberg=door)).ask(path)
        assert answer.status == 200, answer.text
        rows = json.loads(answer.body)["metadata"]["snapshots"][-1]["summary"]["total-records"]
        assert rows == str(1 + number)
        dataset.append([{"id": "b", "n": 2}])


def test_damaged_metadata_beside_the_data_is_named(tmp_path) -> None:
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    properties = {"publish.iceberg": "true"}
    dataset = lake.create("events", lakebed.DatasetDescriptor(schema=SCHEMA, properties=properties))
    dataset.append([{"id": "a", "n": 1}])
    for file in (tmp_path / "lake" / "events" / "iceberg" / "metadata").glob("*.json"):
        file.write_bytes(b"{")
    client = Client(create_app(lake, iceberg=IcebergDoor()))

    answer = client.ask(f"{TABLES}/events")
    assert answer.status == 422, answer.text
    assert_named(422, answer.body)
    assert "repair" in answer.text
    dataset.publish("iceberg", repair=True)
    assert client.ask(f"{TABLES}/events").status == 200


def test_a_damaged_head_is_named(tmp_path) -> None:
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    lake.create("events", lakebed.DatasetDescriptor(schema=SCHEMA))
    client = Client(create_app(lake, iceberg=IcebergDoor()))
    for file in (tmp_path / "lake" / "events").rglob("*"):
        if file.is_file():
            file.write_bytes(b"\xff{")

    for method, path in (("GET", f"{TABLES}/events"), ("POST", PLAN)):
        answer = client.ask(path, method, body=b"{}" if method == "POST" else None)
        assert answer.status in (404, 422), answer.text
        assert_named(answer.status, answer.body)


def test_names_with_half_a_pair_are_answered(client) -> None:
    body = json.dumps({"filter": {"type": "eq", "term": "\ud800", "value": "\udfff"}}).encode()

    answer = client.ask(PLAN, "POST", ALLOWED, body)
    assert answer.status in (200, 400)

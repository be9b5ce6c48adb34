"""Connections to a server: idle ones stay usable, and those that wait for a request are bounded."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time

import pyarrow as pa
import pytest
from asking import Client

import lakebed
from lakebed.archive.http.connections import KEEP_ALIVE_S, MOST_WAITING, bounded_protocol
from lakebed.archive.http.server import configured
from lakebed.web import IcebergDoor, create_app

SCHEMA = pa.schema([("id", pa.int64())])
PLAN = "/v1/lake/namespaces/lake/tables/events/plan"
HEAD = b"GET /v1/config HTTP/1.1\r\nhost: x\r\n\r\n"
POST = f"POST {PLAN} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n".encode()
UVICORNS_OWN_S = 5


@pytest.fixture
def serve(tmp_path):
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    lake.create("events", lakebed.DatasetDescriptor(schema=SCHEMA)).append([{"id": 1}])
    clients = []

    def start(**bounds) -> Client:
        app = create_app(lake, iceberg=IcebergDoor())
        clients.append(Client(app, bounded_protocol(**bounds) if bounds else None))
        return clients[-1]

    yield start
    for client in clients:
        client.stop()


def connected(client: Client) -> socket.socket:
    host, _, port = client.place.partition(":")
    return socket.create_connection((host, int(port)), 20)


def asked(connection: http.client.HTTPConnection) -> int:
    connection.request("POST", PLAN, b"{}")
    answer = connection.getresponse()
    assert len(json.loads(answer.read())["file-scan-tasks"]) == 1
    return answer.status


def ends(connection: socket.socket) -> bool:
    """Return whether the server ends a connection before the patience of its socket does."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def test_a_post_on_an_idle_connection_is_answered(serve) -> None:
    client = serve()
    with contextlib.closing(http.client.HTTPConnection(client.place, timeout=30)) as connection:
        assert asked(connection) == 200
        own = connection.sock
        time.sleep(UVICORNS_OWN_S + 1.5)
        assert asked(connection) == 200
        assert connection.sock is own  # not another one, which http.client would open by itself


def test_servers_keep_connections_longer_than_pools_of_clients() -> None:
    assert configured(lambda: None).timeout_keep_alive == KEEP_ALIVE_S == 75


@pytest.mark.parametrize("sent", [b"", b"GET /v1/con", POST, POST + b'{"filter":'])
def test_a_request_that_does_not_come_ends_the_connection(serve, sent) -> None:
    with contextlib.closing(connected(serve(request_s=0.5))) as connection:
        connection.sendall(sent)

        assert ends(connection)


def test_a_part_of_a_request_behind_another_one_ends_the_connection(serve) -> None:
    with contextlib.closing(connected(serve(request_s=0.5))) as connection:
        connection.sendall(HEAD + POST + b'{"filter":')

        assert ends(connection)


def test_single_bytes_do_not_put_the_end_off(serve) -> None:
    client = serve(request_s=1)
    with contextlib.closing(connected(client)) as connection:
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - began < 20:
                connection.sendall(b"x")
                time.sleep(0.2)
        assert time.monotonic() - began < 20
    assert client.get("/v1/config").status == 200


def test_the_time_for_a_request_is_not_that_of_idle_connections(serve) -> None:
    client = serve(request_s=3)
    with contextlib.closing(http.client.HTTPConnection(client.place, timeout=30)) as connection:
        for _ in range(2):
            assert asked(connection) == 200
            own = connection.sock
            time.sleep(4)
            assert connection.sock is own
        assert asked(connection) == 200


def test_those_that_wait_longest_end_where_many_wait(serve) -> None:
    client = serve(most_waiting=3)
    with contextlib.ExitStack() as stack:
        waiting = []
        for number in range(6):
            waiting.append(stack.enter_context(contextlib.closing(connected(client))))
            if number % 2:  # idle after an answer, others before the first request
                waiting[-1].sendall(HEAD)
                assert waiting[-1].recv(65536).startswith(b"HTTP/1.1 200 ")
            else:
                waiting[-1].sendall(HEAD[:5])
                assert client.get("/v1/config").status == 200  # by one more, which ends
        for connection in waiting:
            connection.settimeout(10)

        assert [ends(one) for one in waiting] == [True] * 3 + [False] * 3
    assert client.get("/v1/config").status == 200


def test_connections_in_great_number_keep_no_client_from_an_answer(serve) -> None:
    client = serve(most_waiting=20)
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(contextlib.closing(connected(client)))
        assert client.get("/v1/config").status == 200
    assert MOST_WAITING <= 512  # half of the files that a process may mostly open

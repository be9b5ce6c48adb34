"""Each route of each server: what it answers without the token, and that it changes nothing."""

from __future__ import annotations

import hmac
import inspect
import io
import re
from pathlib import Path

import pyarrow as pa
import pytest
from asking import Client
from command_tree import COMMANDS
from starlette.routing import Route

import lakebed
from lakebed.archive.http import serve as serve_archive
from lakebed.archive.http.server import is_own_address
from lakebed.web import IcebergDoor, create_app
from lakebed.web import serve as serve_lake

TOKEN, WRITE_TOKEN = "token-for-reads", "token-for-writes"
WRITES = {"POST", "PUT", "PATCH", "DELETE"}
# Clients ask for plans with a body, and send reports that are not kept.
QUESTIONS = ("/plan", "/tasks", "/metrics")


class Served:
    """A lake with an archive and the catalog, the routes of its server, and its files."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: str) -> None:
        self.folder = folder
        lake = lakebed.open_repository(folder / "lake")
        schema = pa.schema([("n", pa.int64())])
        lake.create("d", lakebed.DatasetDescriptor(schema=schema)).append([{"n": 1}])
        archive = lakebed.open_archive(folder / "raw")
        archive.push(io.BytesIO(b"x"), path="/d", where="w", what="d", start="2015-03-20", id="d")
        routes: list[Route] = []
        make = Route.__init__

        def make_and_note(self: Route, *args: object, **kwargs: object) -> None:
            make(self, *args, **kwargs)
            routes.append(self)

        with monkeypatch.context() as patched:
            patched.setattr(Route, "__init__", make_and_note)
            app = create_app(lake, archive=archive, token=TOKEN, iceberg=IcebergDoor(**options))
        self.client = Client(app)
        self.requests = {
            (
                method,
                re.sub(r"\{[^}]*\}", "d", route.path).replace("/namespaces/d", "/namespaces/lake"),
            )
            for route in routes
            for method in route.methods
        }

    def status(self, method: str, path: str, token: str | None = None) -> int:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return self.client.ask(path, method, headers, b"{}" if method in WRITES else None).status

    @property
    def files(self) -> dict[Path, bytes]:
        """Contents of all files but the locks of SQLite."""
        paths = [path for path in self.folder.rglob("*") if path.is_file()]
        return {path: path.read_bytes() for path in paths if not path.name.endswith("-shm")}


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    return Served(tmp_path, monkeypatch)


@pytest.fixture
def writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    return Served(tmp_path, monkeypatch, allow_writes="all", write_token=WRITE_TOKEN)


def test_each_route_but_health_is_behind_the_token(writable: Served) -> None:
    assert len(writable.requests) > 60
    for method, path in writable.requests:
        status = writable.status(method, path)
        assert (status == 401) != (path.rstrip("/") == "/health"), (method, path, status)
        assert writable.status(method, path, TOKEN) != 401, (method, path)


def test_no_route_changes_anything_unless_writes_are_allowed(served: Served) -> None:
    before = served.files

    for method, path in served.requests:
        is_read = method in {"GET", "HEAD"} or path.endswith(QUESTIONS)
        assert is_read, (method, path)
        served.status(method, path, TOKEN)
        for other in WRITES - {"POST"} if path.endswith(QUESTIONS) else WRITES:
            assert served.status(other, path, TOKEN) in {404, 405}, (other, path)

    assert served.files == before


def test_no_route_changes_anything_with_the_token_for_reads(writable: Served) -> None:
    before = writable.files
    changing = {
        (method, path)
        for method, path in writable.requests
        if method in WRITES and not path.endswith(QUESTIONS)
    }

    statuses = {writable.status(method, path, TOKEN) for method, path in changing}

    assert len(changing) > 5
    assert statuses <= {403, 406}
    assert writable.files == before


def test_each_token_is_compared_in_constant_time(
    writable: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def compare_and_note(given: bytes, token: bytes) -> bool:
        compared.append((given, token))
        return compare(given, token)

    monkeypatch.setattr(hmac, "compare_digest", compare_and_note)
    (commit,) = (
        path
        for method, path in writable.requests
        if method == "POST" and path.endswith("/tables/d")
    )

    both = [token.encode() for token in (TOKEN, WRITE_TOKEN)]
    for given in (TOKEN, WRITE_TOKEN, TOKEN[:-1], "x"):
        compared.clear()
        writable.status("GET", "/", given)
        assert compared == [(given.encode(), token) for token in both]
    compared.clear()
    writable.status("POST", commit, TOKEN)
    assert compared[-1] == (both[0], both[1])


def test_servers_listen_on_this_machine_unless_told_otherwise() -> None:
    hosts = [
        *(
            inspect.signature(serve).parameters["host"].default
            for serve in (serve_lake, serve_archive)
        ),
        *(
            option.default
            for command in COMMANDS.values()
            for option in command.params
            if option.name == "host"
        ),
    ]

    assert len(hosts) >= 4
    assert all(map(is_own_address, hosts))

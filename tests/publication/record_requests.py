"""Records what each client of the Iceberg catalog sends, for tests/lake_http/test_client_requests.py.

    python tests/publication/record_requests.py [FILE]

It needs the engines of make doors-env. Addresses, tokens and tags are left out.
"""

# ruff: noqa: T201 - a script

import datetime as dt
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
from asking import Client
from engine_peers import Peers
from engine_questions import BEGIN, columns_of, fill, iceberg_of, polars_of, sql_of
from pyiceberg.catalog import load_catalog

import lakebed
from lakebed.web import IcebergDoor, create_app

FILE = Path(__file__).parents[1] / "lake_http" / "client_requests.json"
KEPT = ("accept", "content-type", "user-agent", "x-client-version", "x-iceberg-access-delegation")
CONDITIONS = (
    None,
    ("=", "id", "u0032"),
    ("in", "id", ["u0001", "u0070"]),
    ("begins", "id", "u003"),
    ("and", ("=", "kind", "click"), (">=", "day", dt.date(2013, 1, 20))),
    ("null", "kind"),
    ("not", ("or", ("=", "flag", True), ("=", "kind", "view"))),
    (">=", "at", BEGIN + dt.timedelta(days=20)),
    ("<", "local", BEGIN.replace(tzinfo=None) + dt.timedelta(days=2)),
    ("<", "ratio", 2.5),
)
COLUMNS = ("id", "kind", "day", "flag", "at", "local", "ratio")


class Recorder:
    """An application that notes requests before it passes them on."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.found: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body, status, answer = bytearray(), 0, bytearray()

        async def hear() -> Any:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        async def reply(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            answer.extend(message.get("body", b""))
            await send(message)

        # Answers are read below, so they shall not be compressed.
        headers = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
        await self._app({**scope, "headers": headers}, hear, reply)
        path = scope["raw_path"].decode("ascii")
        query = scope["query_string"].decode("ascii")
        shown = {name.decode(): value.decode("latin-1") for name, value in headers}
        request: dict[str, Any] = {
            "method": scope["method"],
            "path": f"{path}?{query}" if query else path,
            "headers": {name: shown[name] for name in KEPT if name in shown},
            "status": status,
        }
        if body:
            request["body"] = json.loads(body)
        if path.endswith("/plan") and status == 200:
            request["files"] = len(json.loads(answer)["file-scan-tasks"])
        if request not in self.found:
            self.found.append(request)

    def taken(self) -> list[dict[str, Any]]:
        """Return what was noted since the last call."""
        found, self.found = self.found, []
        return found


def by_pyiceberg(url: str) -> None:
    catalog = load_catalog("pyiceberg", type="rest", uri=url)
    catalog.list_namespaces()
    catalog.list_tables("lake")
    catalog.table_exists("lake.none")
    for condition in CONDITIONS:
        scan = catalog.load_table("lake.events").scan(iceberg_of(condition), COLUMNS)
        scan.to_arrow()
    catalog.load_table("lake.events").scan("id = 'u0032'", snapshot_id=1).count()


def by_polars(url: str) -> None:
    catalog = load_catalog("polars", type="rest", uri=url)
    for condition in CONDITIONS:
        frame = pl.scan_iceberg(catalog.load_table("lake.events"), reader_override="native")
        frame.filter(polars_of(condition)).select(COLUMNS).collect()


def by_peer(peers: Peers, engine: str, dialect: str, url: str, snapshot: int | None) -> None:
    address, columns = f"{url} lake.events", columns_of(COLUMNS, dialect)
    for condition in CONDITIONS:
        peers.read_at(engine, address, sql_of(condition, dialect), columns=columns)
    if snapshot is not None:
        where = "id = 'u0032'"
        peers.read_at(engine, address, where, columns=columns, snapshot=snapshot)


def main() -> None:
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    recorded = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lake = lakebed.open_repository(str(folder / "lake"))
        fill(lake, "events", {})
        virtual = Recorder(create_app(lake, iceberg=IcebergDoor()))
        cached = Recorder(create_app(lake, iceberg=IcebergDoor(metadata=str(folder / "cache"))))
        clients = {app: Client(app) for app in (virtual, cached)}
        url, cached_url = (f"http://{clients[app].place}" for app in (virtual, cached))
        peers = Peers(folder)
        try:
            by_pyiceberg(url)
            recorded["pyiceberg"] = virtual.taken()
            by_polars(url)
            recorded["polars"] = virtual.taken()
            by_peer(peers, "spark catalog", "spark", url, 1)
            recorded["spark"] = virtual.taken()
            by_peer(peers, "duckdb catalog", "duckdb", cached_url, None)
            recorded["duckdb"] = cached.taken()
            by_peer(peers, "daft catalog", "daft", cached_url, None)
            recorded["daft"] = cached.taken()
        finally:
            peers.close()
            for client in clients.values():
                client.stop()
    place.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print({client: len(requests) for client, requests in recorded.items()})


if __name__ == "__main__":
    main()

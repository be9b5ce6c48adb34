"""Lakes, archives and HTTP doors in memory that nothing can be written to."""

from __future__ import annotations

import asyncio
import functools
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from every_object import SCHEMA, lake_of

import lakebed
from fuzz.limits import ForbiddenError
from lakebed import DatasetDescriptor, by
from lakebed.archive import Archive
from lakebed.store.base import Store, StoredObject
from lakebed.store.memory import MemoryStore
from lakebed.testing import DelegatingStore
from lakebed.web import IcebergDoor, create_app

T0 = 1426809600000
FILE_ID = "2544375f44efb2ef5568d8a9ccf8ea9e"
METADATA = {
    "version": 0,
    "start": T0,
    "end": T0 + 1000,
    "path": "/var/log/syslog.2",
    "where": "nyc",
    "what": "syslog",
    "id": FILE_ID,
    "hash": "12345",
    "work_id": None,
    "of": {"a": [1, None, "é"]},
}


class Frozen(DelegatingStore):
    """A store that nothing is written to, in which some objects have other contents."""

    def __init__(self, inner: Store, replaced: Mapping[str, bytes] = {}) -> None:
        super().__init__(inner)
        self._replaced = replaced
        self._name = uuid.uuid4().hex if replaced else inner.cache_name

    @property
    def cache_name(self) -> str:
        return self._name

    def _get(self, key: str) -> StoredObject:
        data = self._replaced.get(key)
        if data is None:
            return super()._get(key)
        return StoredObject(key=key, data=data, etag="other")

    def _get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        return self._get(key) if key in self._replaced else super()._get_if_changed(key, etag)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        data = self._replaced.get(key)
        return (
            super()._get_range(key, start, length) if data is None else data[start : start + length]
        )

    def _size(self, key: str) -> int:
        return len(self._replaced[key]) if key in self._replaced else super()._size(key)


def _refused(operation: str) -> Any:
    def method(self: Frozen, *arguments: Any, **options: Any) -> Any:
        raise ForbiddenError(f"{operation} {arguments!r}"[:200])

    return method


for (
    _operation
) in "_create _replace _put _put_stream _delete _delete_if_match _adopt _begin_file".split():
    setattr(Frozen, _operation, _refused(_operation))


@functools.cache
def frozen_lake(kind: str = "document") -> MemoryStore:
    """Return the store of a lake; see `every_object`."""
    return lake_of(kind).store()


def key_in(kind: str, beginning: str, ending: str = "") -> str:
    """Return the key of the first object of a lake that begins and ends with some text."""
    keys = [key for key in sorted(lake_of(kind).now) if key.startswith(beginning)]
    return next(key for key in keys if key.endswith(ending))


def objects(kind: str, beginning: str, ending: str = "") -> list[bytes]:
    """Return the objects of a lake whose keys begin and end with some text."""
    now = lake_of(kind).now
    return [now[key] for key in sorted(now) if key.startswith(beginning) and key.endswith(ending)]


@functools.cache
def archive() -> Archive:
    """Return an archive of one file."""
    store = MemoryStore(uuid.uuid4().hex)
    opened = Archive(store, lakebed.archive.open_index("sqlite://"))
    opened.init()
    store.put_stream(f"{FILE_ID}/data", [b"line\n"], attributes={"datalake": json.dumps(METADATA)})
    opened.ingest(FILE_ID)
    return Archive(Frozen(store), opened.index)


class BucketStore(Frozen):
    """A store under the URL of a bucket, as notifications name it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.uri = "s3://lake"


@functools.cache
def bucket_archive() -> Archive:
    """Return the archive as a bucket."""
    opened = archive()
    return Archive(BucketStore(opened.store.inner), opened.index)  # type: ignore[attr-defined]


@functools.cache
def small_repository() -> lakebed.Repository:
    """Return a repository of one dataset of several types."""
    repository = lakebed.Repository(MemoryStore(uuid.uuid4().hex))
    schema = pa.schema([*SCHEMA, ("day", pa.date32()), ("fare", pa.decimal128(9, 2))])
    dataset = repository.create(
        "flights", DatasetDescriptor(schema=schema, partition_by=[by.identity("p")], index=["n"])
    )
    dataset.append([{"p": "a", "n": n, "x": n / 2, "text": f"t{n}"} for n in range(4)])
    return lakebed.Repository(Frozen(repository.store))


@functools.cache
def pages() -> Any:
    """Return the ASGI application with the pages, the archive and a catalog that takes writes."""
    door = IcebergDoor(allow_writes="append", write_token="w" * 20)
    store = Frozen(frozen_lake())
    store.uri, store.is_shared = "s3://lake", True
    return create_app(lakebed.Repository(store), archive=archive(), iceberg=door)


def answered(app: Any, data: bytes) -> tuple[int, bytes]:
    """Send a request to an application; the first line is its method and path, then headers, body.

    Returns:
        Status and body of the answer.
    """
    head, _, body = data.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    method, _, target = first.partition(b" ")
    raw_path, _, query = target.partition(b"?")
    pairs = [line.partition(b":")[::2] for line in lines]
    headers = [(name.strip().lower(), value.strip()) for name, value in pairs]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method.decode("latin-1").upper(),
        "scheme": "http",
        "path": unquote(raw_path.decode("latin-1")),
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": [(b"host", b"testserver"), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("testserver", 80),
    }
    sent: list[Mapping[str, Any]] = []

    ended = asyncio.Event()
    received = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Mapping[str, Any]:
        message = next(received, None)
        if message is None:
            await ended.wait()  # the client stays until it has its answer
        return message or {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            ended.set()

    _loop().run_until_complete(app(scope, receive, send))
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:])


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def descriptor(fields: Sequence[tuple[str, pa.DataType]] | None = None) -> DatasetDescriptor:
    """Return a descriptor with fields of most types."""
    given = fields or [
        ("s", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("i", pa.int32()),
        ("b", pa.bool_()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("fare", pa.decimal128(9, 2)),
        ("items", pa.list_(pa.int64())),
        ("seen", pa.struct([("lat", pa.float64()), ("who", pa.string())])),
        ("by_name", pa.map_(pa.string(), pa.int64())),
    ]
    return DatasetDescriptor(schema=pa.schema(given))

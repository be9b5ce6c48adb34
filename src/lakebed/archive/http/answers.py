"""Responses of the server: JSON in the shapes of `datalake`, and errors with a code."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lakebed.archive import Archive, ArchiveRecord, FileMetadata
from lakebed.archive.query import ArchiveQuery
from lakebed.archive.times import to_iso

FILES = "/v0/archive/files/"

_HOST = re.compile(r"[A-Za-z0-9._-]+(?::[0-9]+)?|\[[0-9A-Fa-f:.]+\](?::[0-9]+)?")


class Refusal(Exception):  # noqa: N818 - a response, which only the server catches
    """A request that is refused with an error.

    Attributes:
        status: HTTP status.
        code: Error code for programs.
        message: Message for people; it contains nothing that only the server may know.
        headers: Headers of the response.
    """

    def __init__(
        self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})

    def answer(self) -> Response:
        """Return the response."""
        body = {"code": self.code, "message": self.message}
        return AsciiJson(body, status_code=self.status, headers=self.headers)


def is_known(request: Request, etag: str) -> bool:
    """Return whether the client already has the content of an etag."""
    known = request.headers.get("if-none-match", "")
    tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}
    return not tags.isdisjoint({etag, "*"})


class AsciiJson(JSONResponse):
    """JSON in ASCII: stored metadata may hold text that UTF-8 cannot encode, such as surrogates."""

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        return json.dumps(content, allow_nan=False).encode("ascii")


class Addresses:
    """The URLs in responses, in a form that the client can reach."""

    def __init__(self, archive: Archive, request: Request, public_url: str | None) -> None:
        """Take the base of all URLs from `public_url`, or from the request."""
        self._base = public_url or _base_of(request)
        # A local path of the server is private, and of no use to a client.
        self._is_local = not archive.store.is_shared or archive.store.local_path("x") is not None

    def content(self, file_id: str) -> str:
        """Return the URL of the content of a file at the server."""
        return f"{self._base}{FILES}{quote(file_id, safe='', errors='surrogatepass')}/data"

    def storage(self, record: ArchiveRecord) -> str:
        """Return the URL of the content in the storage, or at the server if the storage is local."""
        return self.content(record.id) if self._is_local else record.url

    def root(self, archive: Archive) -> str | None:
        """Return the URL that clients can push to; None if only the server can push."""
        return None if self._is_local else archive.store.uri

    def page(self, query: ArchiveQuery, cursor: str) -> str:
        """Return the URL of the next page of a query."""
        return f"{self._base}{FILES}?{page_arguments(query, cursor)}"


def page_arguments(query: ArchiveQuery, cursor: str) -> str:
    """Return the query string of the next page of a query."""
    arguments = {"what": query.what, "where": query.where, "work_id": query.work_id}
    if query.work_id is None:
        # Not as numbers: small ones would be read as seconds.
        arguments |= {"start": _iso(query.interval[0]), "end": _iso(query.interval[1])}
    given = {name: value for name, value in arguments.items() if value is not None}
    return urlencode({**given, "cursor": cursor})


def _base_of(request: Request) -> str:
    host = request.headers.get("host", "")
    if not _HOST.fullmatch(host):
        name, port = request.scope.get("server") or ("localhost", None)
        host = f"[{name}]" if ":" in name else name
        host = host if port is None else f"{host}:{port}"
    return f"{request.scope['scheme']}://{host}"


def metadata_document(metadata: FileMetadata) -> dict[str, Any]:
    """Return metadata with its times also as text."""
    end = metadata.end
    return {
        **metadata,
        "start_iso": _iso(metadata.start),
        "end_iso": None if end is None else _iso(end),
    }


def record_document(record: ArchiveRecord, addresses: Addresses) -> dict[str, Any]:
    """Return the record of a file for a list."""
    return {
        **latest_document(record, addresses),
        "create_time": record.create_time_ms,
        "size": record.size_bytes,
    }


def latest_document(record: ArchiveRecord, addresses: Addresses) -> dict[str, Any]:
    """Return the record of a file for a query of the latest file."""
    return {
        "url": addresses.storage(record),
        "http_url": addresses.content(record.id),
        "metadata": metadata_document(record.metadata),
    }


def _iso(ms: int) -> str:
    return f"{to_iso(ms)}Z"


def shortened(text: str) -> str:
    """Return a text of a client, shortened and quoted."""
    return repr(text) if len(text) <= 80 else f"{text[:77]!r}..."

"""What the server answers: JSON in the shapes of `datalake`, and errors with a code."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse

from lakebed.archive import Archive, ArchiveRecord, FileMetadata
from lakebed.archive.query import ArchiveQuery
from lakebed.archive.times import to_iso

FILES = "/v0/archive/files/"

_HOST = re.compile(r"[A-Za-z0-9._-]+(?::[0-9]+)?|\[[0-9A-Fa-f:.]+\](?::[0-9]+)?")


class Refusal(Exception):  # noqa: N818 - an answer, which nobody but the server catches
    """A request that is answered with an error.

    Attributes:
        status: Of HTTP.
        code: What programs tell errors apart by.
        message: What people read; it tells nothing that only the server knows.
        headers: To go with the answer.
    """

    def __init__(
        self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})

    def answer(self) -> AsciiJson:
        """Return what is sent."""
        body = {"code": self.code, "message": self.message}
        return AsciiJson(body, status_code=self.status, headers=self.headers)


def is_known(request: Request, etag: str) -> bool:
    """Tell whether the client has what an etag stands for, and asks for nothing else."""
    known = request.headers.get("if-none-match", "")
    tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}
    return not tags.isdisjoint({etag, "*"})


class AsciiJson(JSONResponse):
    """JSON in ASCII: stored metadata may hold text that is no UTF-8, such as half of a pair."""

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        return json.dumps(content, allow_nan=False).encode("ascii")


class Addresses:
    """The URLs in answers, as the client that asks can reach them."""

    def __init__(self, archive: Archive, request: Request, public_url: str | None) -> None:
        """Take the base of all URLs from `public_url`, or from what was asked for."""
        self._base = public_url or _base_of(request)
        # A path of the server is nobody's business, and of no use to a client.
        self._is_local = not archive.store.is_shared or archive.store.local_path("x") is not None

    def content(self, file_id: str) -> str:
        """Return where the server has the content of a file."""
        return f"{self._base}{FILES}{quote(file_id, safe='', errors='surrogatepass')}/data"

    def storage(self, record: ArchiveRecord) -> str:
        """Return where the storage has the content; where the server has it if that is private."""
        return self.content(record.id) if self._is_local else record.url

    def root(self, archive: Archive) -> str | None:
        """Return where clients can push to; None if only the server can."""
        return None if self._is_local else archive.store.uri

    def page(self, query: ArchiveQuery, cursor: str) -> str:
        """Return where the next page of a question is."""
        return f"{self._base}{FILES}?{page_arguments(query, cursor)}"


def page_arguments(query: ArchiveQuery, cursor: str) -> str:
    """Return what a URL says of the next page of a question."""
    arguments = {"what": query.what, "where": query.where, "work_id": query.work_id}
    if query.work_id is None:
        # Not as numbers: small ones would be taken for seconds.
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
    """Return metadata with its times as text, too."""
    end = metadata.end
    return {
        **metadata,
        "start_iso": _iso(metadata.start),
        "end_iso": None if end is None else _iso(end),
    }


def record_document(record: ArchiveRecord, addresses: Addresses) -> dict[str, Any]:
    """Return the record of a file as a list shows it."""
    return {
        **latest_document(record, addresses),
        "create_time": record.create_time_ms,
        "size": record.size_bytes,
    }


def latest_document(record: ArchiveRecord, addresses: Addresses) -> dict[str, Any]:
    """Return the record of a file as a question for the latest shows it."""
    return {
        "url": addresses.storage(record),
        "http_url": addresses.content(record.id),
        "metadata": metadata_document(record.metadata),
    }


def _iso(ms: int) -> str:
    return f"{to_iso(ms)}Z"


def shortened(text: str) -> str:
    """Return a text of a client as an answer quotes it."""
    return repr(text) if len(text) <= 80 else f"{text[:77]!r}..."

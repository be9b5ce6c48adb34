"""Responses with the content of a file: streamed, whole or in part."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import mimetypes
import re
from collections.abc import Iterator
from email.utils import format_datetime
from typing import BinaryIO

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from lakebed.archive import Archive, ArchiveRecord
from lakebed.archive.http.answers import Refusal, is_known, shortened
from lakebed.archive.kept_files import key_of
from lakebed.errors import InvalidInputError, LakebedError, RecordNotFoundError

_log = logging.getLogger(__name__)

_PIECE_BYTES = 1024 * 1024
_RANGE_PIECE_BYTES = 4 * 1024 * 1024  # each is a request to the storage
_RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)
_HASH_AT_END = re.compile(r"-[0-9A-Fa-f]{32,40}")
_GZIP_MAGIC = b"\x1f\x8b\x08"
_DEFAULT_TYPE = "text/plain"
# Use the types of the standard library only, so that all machines give the same answers.
_TYPES = mimetypes.MimeTypes()
_SAFE_HEADERS = {
    "accept-ranges": "bytes",
    # A browser must not run content that a client has pushed.
    "content-security-policy": "sandbox; default-src 'none'",
    "x-content-type-options": "nosniff",
}


def find_record(archive: Archive, file_id: str) -> ArchiveRecord:
    """Return the record of exactly the file with an id, from the storage; else refuse.

    Only ids are accepted: they are looked up as `<id>/data`, and then in the index, which has the
    URLs of files of old archives.
    """
    with contextlib.suppress(InvalidInputError, RecordNotFoundError):
        if "/" not in file_id:  # otherwise it might be interpreted as a URL
            record = archive.record(file_id)
            if record.id == file_id and _is_inside(archive, record):
                return record
    with contextlib.suppress(InvalidInputError, RecordNotFoundError):
        indexed = archive.index.find(file_id)
        if indexed is not None:
            record = archive.record(indexed.url)
            if record.id == file_id and _is_inside(archive, record):
                return record
    raise Refusal(404, "NoSuchFile", f"There is no file {shortened(file_id)}.")


def _is_inside(archive: Archive, record: ArchiveRecord) -> bool:
    """Return whether a content is in the storage, and not a link that leads out of it."""
    key = key_of(archive.store, record.url)
    path = archive.store.local_path(key)
    if path is None:
        return True
    root = path.parents[key.count("/")]
    return path.resolve().is_relative_to(root.resolve())


def content_answer(archive: Archive, record: ArchiveRecord, request: Request) -> Response:
    """Respond with the content of a file, or with the requested range.

    The whole content is compared with its hash: if it differs, its last piece is not sent and the
    connection is cut. A client that has the content gets status 304. A range that begins after the
    end is refused.

    Args:
        archive: The archive that holds the file.
        record: The record of the file, just read from the storage.
        request: The request; its headers may name a range, or the etag of the client's copy.

    Cost:
        A GET for three bytes, and one for each 4 MiB; none if the client has the content.
    """
    size_bytes, key = record.size_bytes, key_of(archive.store, record.url)
    headers = {
        **_SAFE_HEADERS,
        "content-type": content_type(record.path),
        "etag": _etag(record),
        "last-modified": format_datetime(record.created_at, usegmt=True),
    }
    if is_known(request, headers["etag"]):
        del headers["content-type"]
        return Response(status_code=304, headers=headers)
    if archive.store.get_range(key, 0, len(_GZIP_MAGIC)) == _GZIP_MAGIC:
        headers["content-encoding"] = "gzip"
    if request.method == "HEAD":
        return Response(headers={**headers, "content-length": str(size_bytes)})
    part = _asked_range(request, headers, size_bytes)
    if part is None:
        file = archive.open_record(record)
        headers["content-length"] = str(size_bytes)
        return _Content(_whole(file), headers=headers)
    content = archive.store.open_input(key, size_bytes=size_bytes)
    headers["content-length"] = str(len(part))
    headers["content-range"] = f"bytes {part.start}-{part.stop - 1}/{size_bytes}"
    return _Content(_part(content, part), status_code=206, headers=headers)


class _Content(StreamingResponse):
    """A streamed content, whose connection is cut if the storage fails."""

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except LakebedError as exc:
            # The status is sent already. Ending here makes the server close the connection before
            # the announced length is sent, so the client detects the failure.
            _log.error("content cut off error=%s", exc)


def _whole(file: BinaryIO) -> Iterator[bytes]:
    held = b""
    with file:
        # The read at the end compares the hash; only then is the last piece sent.
        while piece := file.read(_PIECE_BYTES):
            if held:
                yield held
            held = piece
    yield held


def _part(file: pa.NativeFile, part: range) -> Iterator[bytes]:
    with file:
        file.seek(part.start)
        bytes_left = len(part)
        while bytes_left:
            piece = file.read(min(_RANGE_PIECE_BYTES, bytes_left))
            if not piece:
                return
            bytes_left -= len(piece)
            yield piece


def _asked_range(request: Request, headers: dict[str, str], size_bytes: int) -> range | None:
    wanted = request.headers.get("if-range")
    if wanted is not None and wanted not in {headers["etag"], headers["last-modified"]}:
        return None
    return byte_range(request.headers.get("range"), size_bytes)


def byte_range(header: str | None, size_bytes: int) -> range | None:
    """Return the bytes that a `Range` header requests.

    A range without any byte of the content is refused.

    Returns:
        None for the whole content: without a header, for one that is malformed or of another unit,
        which RFC 9110 lets a server ignore, and for several ranges.
    """
    match = _RANGE.fullmatch(header or "")
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        part = range(max(0, size_bytes - int(last)), size_bytes)
    elif last and int(last) < int(first):
        return None
    else:
        stop = int(last) + 1 if last else size_bytes
        part = range(int(first), min(stop, size_bytes))
    if not part:
        msg = f"The file has {size_bytes} bytes, and none in the requested range."
        end = {"content-range": f"bytes */{size_bytes}"}
        raise Refusal(416, "InvalidRange", msg, headers=end)
    return part


def content_type(path: str) -> str:
    """Return the media type of a file by its name, which may end in a hash.

    Examples:
        >>> content_type("/a/foo.json"), content_type("/a/syslog.1")
        ('application/json', 'text/plain')
    """
    name = path.replace("\\", "/").rpartition("/")[2]
    stem, dash, end = name.rpartition("-")
    if dash and _HASH_AT_END.fullmatch(dash + end):
        name = stem
    # Pass it as a path: a name such as `data:text/html` is not a URL here.
    media_type, _ = _TYPES.guess_type(f"/{name}")
    return media_type or _DEFAULT_TYPE


def _etag(record: ArchiveRecord) -> str:
    text = f"{record.url}\n{record.create_time_ms}\n{record.size_bytes}\n{record.hash}"
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16)
    return f'"{digest.hexdigest()}"'

"""The archive behind a server of HTTP: `<id>/data` and `<id>/metadata` are its addresses.

So a served archive is a store with the server's files as objects, and an index that passes queries
on. Both only read.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from lakebed.archive.archive import TOKEN_VARIABLE
from lakebed.archive.index.archive_index import ArchiveIndex
from lakebed.archive.kept_files import find_record
from lakebed.archive.metadata import FileMetadata
from lakebed.archive.query import (
    PAGE_LIMIT,
    ArchiveQuery,
    ContentQuery,
    Page,
    PlaceTotals,
    Position,
)
from lakebed.archive.record import ArchiveRecord
from lakebed.archive.times import DAY_MS, time_bucket, to_epoch_ms, to_iso
from lakebed.errors import (
    AccessDeniedError,
    CorruptMetadataError,
    InvalidInputError,
    ObjectNotFoundError,
    ReadOnlyError,
    RecordNotFoundError,
    StorageError,
)
from lakebed.store.base import ObjectInfo, ObjectStat, Store, StoredObject

_FILES = "/v0/archive/files"
_LATEST = "/v0/archive/latest"
_TIMEOUT_S = 60.0
_WAITS_S = (0.2, 1.0)  # before another try, after an error that may pass
_PASSING = frozenset({502, 503, 504})
_OF_ADDRESS = ("start_iso", "end_iso")  # that the server adds to metadata
_CURSOR = re.compile(r"([0-9]{1,4})\.([A-Za-z0-9_=-]*)")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would take the token to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


class ServedFiles(Store):
    """The files of a served archive, as objects that can be read."""

    supports_compare_and_swap = False

    def __init__(self, url: str, token: str = "") -> None:
        """Take the URL of a server, with the path of a proxy before the endpoints, if there is one.

        Raises:
            InvalidInputError: It is not a URL of a server.
        """
        parts = urlsplit(url)
        if not parts.hostname or parts.query or parts.fragment or parts.username:
            raise InvalidInputError(
                f"{url!r} is not the URL of a server of an archive.",
                hint="Write https://archive.example.org; a token is the option token, or "
                f"{TOKEN_VARIABLE}.",
            )
        self.server = url.rstrip("/")
        self.uri = f"{self.server}{_FILES}"
        self._token = token

    def ask(
        self, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> tuple[http.client.HTTPMessage, bytes]:
        """Return headers and body of an answer.

        Raises:
            ObjectNotFoundError: The server has no such file.
            AccessDeniedError: The token is missing or wrong.
            InvalidInputError: The server refuses the question.
            StorageError: The server does not answer, or not as an archive does.
        """
        url = f"{self.server}{path}"
        wanted = dict(headers or {})
        if self._token:
            wanted["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(url, method=method, headers=wanted)
        opener = urllib.request.build_opener(_NoRedirects)
        for wait_s in (*_WAITS_S, None):
            try:
                with opener.open(request, timeout=_TIMEOUT_S) as answer:
                    return answer.headers, answer.read()
            except urllib.error.HTTPError as exc:
                if exc.code not in _PASSING or wait_s is None:
                    raise _refusal(url, exc) from exc
            except (OSError, http.client.HTTPException) as exc:
                if wait_s is None:
                    reason = getattr(exc, "reason", exc)
                    raise StorageError(
                        f"{self.server} does not answer: {reason}.",
                        hint="Check the address, and that the server runs.",
                        retryable=True,
                    ) from exc
            time.sleep(wait_s)
        raise AssertionError("the last try returns or raises")

    def document(self, path: str) -> dict[str, Any]:
        """Return an answer in JSON; raises as `ask` does."""
        _, body = self.ask(path)
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise _no_archive(f"{self.server}{path}")
        return document

    def _get(self, key: str) -> StoredObject:
        headers, body = self.ask(_path_of(key))
        if key.endswith("/metadata"):
            body = _without_added(body)
        return StoredObject(key=key, data=body, etag=headers.get("etag", ""))

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        wanted = {"Range": f"bytes={start}-{start + length - 1}"}
        try:
            headers, body = self.ask(_path_of(key), headers=wanted)
        except _PastTheEndError:
            return b""
        return body if headers.get("content-range") else body[start : start + length]

    def _size(self, key: str) -> int:
        return self._stat(key).size_bytes

    def _stat(self, key: str) -> ObjectStat:
        headers, _ = self.ask(_path_of(key), method="HEAD")
        try:
            modified_at = email.utils.parsedate_to_datetime(headers["last-modified"])
            return ObjectStat(
                key=key, size_bytes=int(headers["content-length"]), modified_at=modified_at
            )
        except (TypeError, ValueError) as exc:
            raise StorageError(
                f"{self.uri}/{key} does not answer as a server of an archive.",
                hint="A proxy may have removed Content-Length or Last-Modified.",
            ) from exc

    def _why_read_only(self) -> str:
        return "the server of an archive takes no files."

    def _refusal_hint(self) -> str:
        return "Open the archive by its storage and index."

    def _create(self, key: str, data: memoryview) -> NoReturn:  # noqa: ARG002
        self._refuse()

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> NoReturn:  # noqa: ARG002
        self._refuse()

    def _put(self, key: str, data: memoryview) -> NoReturn:  # noqa: ARG002
        self._refuse()

    def _put_stream(
        self,
        key: str,  # noqa: ARG002
        pieces: Iterator[memoryview],  # noqa: ARG002
        *,
        attributes: Mapping[str, str],  # noqa: ARG002
        size_bytes: int | None,  # noqa: ARG002
    ) -> NoReturn:
        self._refuse()

    def _delete(self, keys: Sequence[str]) -> NoReturn:  # noqa: ARG002
        self._refuse()

    def _list(self, begins_with: str, *, recursive: bool) -> Iterator[ObjectInfo]:  # noqa: ARG002
        raise InvalidInputError(
            f"{self.server} does not list its files.",
            hint="Query a what and a time; or open the archive by its storage and index.",
        )

    def _refuse(self) -> NoReturn:
        self._require_compare_and_swap("writing")
        raise AssertionError("it is read-only")


class ServedIndex(ArchiveIndex):
    """The index of a served archive."""

    kind = "http"

    def __init__(self, files: ServedFiles) -> None:
        """Ask the server of some files."""
        self._files = files
        self.url = files.server

    def page(
        self, query: ArchiveQuery, *, limit: int = PAGE_LIMIT, cursor: str | None = None
    ) -> Page:
        """Return one page; see `ArchiveIndex.page`.

        Raises:
            InvalidInputError: The query is for retracted files, which the server does not show;
                or as for `ArchiveIndex.page`.
        """
        self._check_limit(limit)
        if query.retracted:
            raise InvalidInputError(
                f"{self.url} does not show retracted files.",
                hint="Leave retracted out; or open the archive by its storage and index.",
            )
        skipped, following = _parse_cursor(cursor)
        records: list[ArchiveRecord] = []
        while True:
            path = f"{_FILES}/?{_arguments(query, following)}"
            try:
                document = self._files.document(path)
                listed = [self._record(one) for one in document["records"][skipped:]]
            except (ObjectNotFoundError, LookupError, TypeError, ValueError) as exc:
                if isinstance(exc, InvalidInputError):
                    raise
                raise _no_archive(f"{self.url}{path}") from exc
            room = limit - len(records)
            records += listed[:room]
            if len(listed) > room:
                return Page(records=tuple(records), next_cursor=f"{skipped + room}.{following}")
            following = _cursor_in(document.get("next"))
            if not following:
                return Page(records=tuple(records), next_cursor=None)
            if len(records) == limit:
                return Page(records=tuple(records), next_cursor=f"0.{following}")
            skipped = 0

    def _record(self, document: Mapping[str, Any]) -> ArchiveRecord:
        fields = {k: v for k, v in document["metadata"].items() if k not in _OF_ADDRESS}
        try:
            metadata = FileMetadata(fields, is_stored=True)
        except InvalidInputError as exc:
            raise CorruptMetadataError(
                f"{self.url} has metadata that breaks a rule: {exc.message}",
                hint="Push the file again.",
            ) from exc
        return ArchiveRecord(
            url=f"{self._files.uri}/{metadata.id}/data",
            metadata=metadata,
            create_time_ms=int(document["create_time"]),
            size_bytes=int(document["size"]),
        )

    def _find(self, file_id: str) -> ArchiveRecord | None:
        try:
            return find_record(self._files, file_id)
        except RecordNotFoundError:
            return None

    def _latest(
        self, what: str, where: str, *, first_ms: int, last_ms: int, retracted: bool
    ) -> ArchiveRecord | None:
        if retracted or time_bucket(last_ms) != time_bucket(to_epoch_ms("now")):
            query = ArchiveQuery(
                what=what, where=where, start=first_ms, end=last_ms, retracted=retracted
            )
            return max(
                self._every(query),
                key=lambda record: (record.metadata.start, record.create_time_ms),
                default=None,
            )
        days = (last_ms + 1 - first_ms) // DAY_MS - 1
        names = "/".join(quote(name, safe="", errors="surrogatepass") for name in (what, where))
        try:
            document = self._files.document(f"{_LATEST}/{names}?lookback={days}")
        except ObjectNotFoundError:
            return None
        return find_record(self._files, document["metadata"]["id"])

    def _every(self, query: ArchiveQuery) -> Iterator[ArchiveRecord]:
        cursor = None
        while True:
            page = self.page(query, cursor=cursor)
            yield from page.records
            cursor = page.next_cursor
            if cursor is None:
                return

    def _create(self) -> None:
        self._refuse("creating tables")

    def _exists(self) -> bool:
        self._files.ask("/health/")
        return True

    def _put(self, records: Iterable[ArchiveRecord]) -> None:  # noqa: ARG002
        self._refuse("indexing")

    def _delete(self, ids: Iterable[str]) -> None:  # noqa: ARG002
        self._refuse("deleting")

    def _records(self) -> Iterator[ArchiveRecord]:
        raise self._unlisted()

    def _totals(self, query: ContentQuery) -> Sequence[PlaceTotals]:  # noqa: ARG002
        raise self._unlisted()

    def _unlisted(self) -> InvalidInputError:
        return InvalidInputError(
            f"{self.url} does not say what it holds.",
            hint="Query a what and a time; or open the archive by its storage and index.",
        )

    def _page(self, query: ArchiveQuery, after: Position | None, limit: int) -> NoReturn:  # noqa: ARG002
        raise AssertionError("the server makes pages")

    def _close(self) -> None:
        pass

    def _refuse(self, operation: str) -> NoReturn:
        raise ReadOnlyError(
            f"{self.url} is read-only, so {operation} was refused: it serves an archive.",
            hint="Open the archive by its storage and index.",
        )


class _PastTheEndError(StorageError):
    """A range that begins after the end of a file."""


def _no_archive(url: str) -> StorageError:
    return StorageError(
        f"{url} does not answer as a server of an archive.",
        hint="Give the URL that `lakebed archive serve` prints.",
    )


def _path_of(key: str) -> str:
    return f"{_FILES}/{quote(key, errors='surrogatepass')}"


def _without_added(body: bytes) -> bytes:
    """Return metadata without what the server adds to it."""
    try:
        fields = json.loads(body)
    except ValueError:
        return body  # the reader of metadata names the error
    if isinstance(fields, dict):
        fields = {name: value for name, value in fields.items() if name not in _OF_ADDRESS}
    return json.dumps(fields).encode("ascii")


def _arguments(query: ArchiveQuery, cursor: str) -> str:
    arguments = {"what": query.what, "where": query.where, "work_id": query.work_id}
    if query.work_id is None:
        start_ms, end_ms = query.interval
        arguments |= {"start": f"{to_iso(start_ms)}Z", "end": f"{to_iso(end_ms)}Z"}
    given = {name: value for name, value in arguments.items() if value is not None}
    return urlencode({**given, "cursor": cursor} if cursor else given)


def _cursor_in(following: object) -> str:
    """Return the cursor in the URL of the next page; empty for the last page."""
    if not isinstance(following, str):
        return ""
    return parse_qs(urlsplit(following).query).get("cursor", [""])[0]


def _parse_cursor(cursor: str | None) -> tuple[int, str]:
    """Return the number of records to skip, and the cursor of the server.

    Raises:
        InvalidInputError: It is not a cursor.
    """
    if cursor is None:
        return 0, ""
    match = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    if match is None:
        raise InvalidInputError(
            f"{cursor!r} is not a cursor.", hint="Use next_cursor of the page before, unchanged."
        )
    return int(match[1]), match[2]


def _refusal(url: str, exc: urllib.error.HTTPError) -> Exception:
    """Return the error that a server has answered with."""
    try:
        document = json.loads(exc.read())
        reason = f"{document['code']}: {document['message']}".rstrip(".")
    except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
        reason = f"{exc.code} {exc.reason}"
    if exc.code == 404:
        return ObjectNotFoundError(f"There is no {url} ({reason}).", hint="Look for it with list.")
    if exc.code in (401, 403):
        return AccessDeniedError(
            f"{url} was denied ({reason}).",
            hint=f"Give the token of the server: the option token, or {TOKEN_VARIABLE}.",
        )
    if exc.code == 416:
        return _PastTheEndError(f"{url} has no such range.", hint="Read what it has.")
    if exc.code == 400:
        return InvalidInputError(f"{url} was refused ({reason}).", hint="Correct the query.")
    if exc.code == 500 and reason.startswith("Damaged"):
        return CorruptMetadataError(f"{url} is damaged ({reason}).", hint="Push the file again.")
    return StorageError(
        f"{url} failed ({reason}).",
        hint="Check that this is the URL of `lakebed archive serve`, and see its log.",
        retryable=exc.code in _PASSING,
    )

"""The endpoints of the server and their handlers."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from importlib.metadata import version

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lakebed.archive import Archive, ArchiveRecord
from lakebed.archive.archive import DEFAULT_LOOKBACK_DAYS
from lakebed.archive.http.answers import (
    FILES,
    Addresses,
    AsciiJson,
    Refusal,
    latest_document,
    metadata_document,
    record_document,
    shortened,
)
from lakebed.archive.http.content_answers import content_answer, find_record
from lakebed.archive.http.endpoint import CONTENT, Endpoint, Parameter
from lakebed.archive.http.gate import Gate
from lakebed.archive.http.openapi import openapi_document
from lakebed.archive.query import ArchiveQuery
from lakebed.errors import (
    FormatError,
    InvalidInputError,
    LakebedError,
    MissingDependencyError,
    NotFoundError,
    RecordNotFoundError,
    StorageError,
)
from lakebed.model.moments import bound_to_epoch_ms

_log = logging.getLogger(__name__)

_DAYS = re.compile(r"[0-9]{1,9}")

_FILE_ID = Parameter(name="file_id", place="path", meaning="The id of the file.", is_required=True)
_IN_PATH = (
    Parameter(name="what", place="path", meaning="The program or process.", is_required=True),
    Parameter(name="where", place="path", meaning="The place or machine.", is_required=True),
)
_LOOKBACK = Parameter(
    name="lookback",
    place="query",
    meaning=f"Number of days before today to search; default: {DEFAULT_LOOKBACK_DAYS}.",
    type="integer",
)
_QUERY = (
    Parameter(name="what", place="query", meaning="The program or process.", is_required=True),
    Parameter(name="where", place="query", meaning="Only this place or machine."),
    Parameter(
        name="work_id",
        place="query",
        meaning="The work id; required unless start and end are given.",
    ),
    Parameter(
        name="start",
        place="query",
        meaning="Start of the time range: ISO 8601, 20150320, seconds from 1990 on, or above "
        "100,000,000,000 milliseconds.",
    ),
    Parameter(name="end", place="query", meaning="End of the time range, included."),
    Parameter(name="cursor", place="query", meaning="Part of the URL in `next`."),
)
_NO_FILE = {404: ("NoSuchFile",)}
_NO_RANGE = {416: ("InvalidRange",)}
_BAD_QUERY = {
    400: (
        "NoArgs",
        "NoWhat",
        "NoWorkInterval",
        "InvalidWorkInterval",
        "InvalidTime",
        "InvalidCursor",
    )
}
_BAD_LOOKBACK = {400: ("InvalidLookback",)}


def build(
    archive: Archive, *, token: str | None, public_url: str | None, hosts: frozenset[str] | None
) -> Starlette:
    """Return the application; the arguments are checked by `create_app`."""
    app = build_open(archive, public_url=public_url, needs_token=token is not None)
    app.add_middleware(Gate, token=token, hosts=hosts)
    return app


def build_open(archive: Archive, *, public_url: str | None, needs_token: bool) -> Starlette:
    """Return the application without a gate, for a caller that adds its own."""
    endpoints = _Service(archive, public_url, needs_token=needs_token).endpoints
    app = Starlette(
        routes=[route for endpoint in endpoints for route in endpoint.routes()],
        exception_handlers={
            Refusal: _answer_refusal,
            LakebedError: _answer_error,
            HTTPException: _answer_http_error,
            Exception: _answer_defect,
        },
    )
    app.router.redirect_slashes = False  # each path has routes with and without a slash
    return app


class _Service:
    """The handlers of the endpoints of one archive."""

    def __init__(self, archive: Archive, public_url: str | None, *, needs_token: bool) -> None:
        self._archive = archive
        self._public_url = public_url
        self.endpoints = self._endpoints()
        self._document = openapi_document(self.endpoints, needs_token=needs_token)

    def _endpoints(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                path="/",
                name="root",
                meaning="Redirects to the OpenAPI document.",
                handler=self._root,
                schema=None,
            ),
            Endpoint(
                path="/health/",
                name="health",
                meaning="An empty object: the server answers.",
                handler=self._health,
                schema="Health",
            ),
            Endpoint(
                path="/spec/",
                name="spec",
                meaning="The OpenAPI document.",
                handler=self._spec,
                schema="Spec",
            ),
            Endpoint(
                path="/v0/environment/",
                name="environment",
                meaning="The version of the server.",
                handler=self._environment,
                schema="Environment",
            ),
            Endpoint(
                path="/v0/archive/",
                name="storage",
                meaning="The URL that clients push to.",
                handler=self._storage,
                schema="Storage",
            ),
            Endpoint(
                path=FILES,
                name="files",
                meaning="The files of a time range or a work id, each once, up to 100 a page.",
                handler=self._files,
                schema="Page",
                parameters=_QUERY,
                errors=_BAD_QUERY,
            ),
            Endpoint(
                path=f"{FILES}{{file_id}}/metadata",
                name="file_metadata",
                meaning="The metadata of a file.",
                handler=self._metadata,
                schema="Metadata",
                parameters=(_FILE_ID,),
                errors=_NO_FILE,
            ),
            Endpoint(
                path=f"{FILES}{{file_id}}/data",
                name="file_data",
                meaning="The content of a file, or a range of it.",
                handler=self._data,
                schema=CONTENT,
                parameters=(_FILE_ID,),
                errors={**_NO_FILE, **_NO_RANGE},
            ),
            Endpoint(
                path="/v0/archive/latest/{what}/{where}",
                name="latest",
                meaning="The file with the latest start.",
                handler=self._latest,
                schema="Latest",
                parameters=(*_IN_PATH, _LOOKBACK),
                errors={**_BAD_LOOKBACK, **_NO_FILE},
            ),
            Endpoint(
                path="/v0/archive/latest/{what}/{where}/data",
                name="latest_data",
                meaning="The content of the file with the latest start, or a range of it.",
                handler=self._latest_data,
                schema=CONTENT,
                parameters=(*_IN_PATH, _LOOKBACK),
                errors={**_BAD_LOOKBACK, **_NO_FILE, **_NO_RANGE},
            ),
        )

    def _root(self, _request: Request) -> Response:
        return RedirectResponse("spec/")  # relative: a proxy may have put a path before

    def _health(self, _request: Request) -> Response:
        return AsciiJson({})

    def _spec(self, _request: Request) -> Response:
        return AsciiJson(self._document)

    def _environment(self, _request: Request) -> Response:
        return AsciiJson({"data": {"build": {"version": version("lakebed")}}})

    def _storage(self, request: Request) -> Response:
        return AsciiJson({"storage_url": self._addresses(request).root(self._archive)})

    def _files(self, request: Request) -> Response:
        given = request.query_params
        query, cursor = _query_of(given), given.get("cursor")
        try:
            page = self._archive.index.page(query, cursor=cursor)
        except InvalidInputError as exc:
            # Apart from the cursor, only the length of the time range can be refused here.
            code = "InvalidWorkInterval" if cursor is None else "InvalidCursor"
            raise Refusal(400, code, _REASONS[code]) from exc
        addresses = self._addresses(request)
        following = page.next_cursor
        return AsciiJson(
            {
                "records": [record_document(record, addresses) for record in page.records],
                "next": None if following is None else addresses.page(query, following),
            }
        )

    def _metadata(self, request: Request) -> Response:
        record = find_record(self._archive, request.path_params["file_id"])
        return AsciiJson(metadata_document(record.metadata))

    def _data(self, request: Request) -> Response:
        record = find_record(self._archive, request.path_params["file_id"])
        return content_answer(self._archive, record, request)

    def _latest(self, request: Request) -> Response:
        record = self._find_latest(request)
        return AsciiJson(latest_document(record, self._addresses(request)))

    def _latest_data(self, request: Request) -> Response:
        record = find_record(self._archive, self._find_latest(request).id)
        return content_answer(self._archive, record, request)

    def _addresses(self, request: Request) -> Addresses:
        return Addresses(self._archive, request, self._public_url)

    def _find_latest(self, request: Request) -> ArchiveRecord:
        what, where = request.path_params["what"], request.path_params["where"]
        text = request.query_params.get("lookback", str(DEFAULT_LOOKBACK_DAYS))
        if not _DAYS.fullmatch(text):
            msg = f"lookback is {shortened(text)}, which is not a number of up to nine digits."
            raise Refusal(400, "InvalidLookback", msg)
        try:
            return self._archive.latest(what, where, lookback_days=int(text))
        except (InvalidInputError, RecordNotFoundError) as exc:  # or names that no index can hold
            names = f"{shortened(what)} at {shortened(where)}"
            msg = f"There is no file of {names} in the last {text} days."
            raise Refusal(404, "NoSuchFile", msg) from exc


_REASONS = {
    "NoArgs": "The query is empty: give what, and work_id or start and end.",
    "NoWhat": "The query has no what.",
    "NoWorkInterval": "The query has neither work_id nor start and end.",
    "InvalidWorkInterval": "Give work_id, or both start and end, in order and not too far apart.",
    "InvalidCursor": "The cursor does not belong to this query; use `next` unchanged.",
}


def _query_of(given: Mapping[str, str]) -> ArchiveQuery:
    """Read a query; the order of the checks decides which error is reported."""
    by_work, has_start, has_end = (name in given for name in ("work_id", "start", "end"))
    if not given:
        code = "NoArgs"
    elif not given.get("what"):
        code = "NoWhat"
    elif not (by_work or has_start or has_end):
        code = "NoWorkInterval"
    elif has_start != has_end or (by_work and has_start):
        code = "InvalidWorkInterval"
    else:
        times = {name: _time(name, given[name]) for name in ("start", "end") if name in given}
        if not times or times["start"] <= times["end"]:
            return ArchiveQuery(
                what=given["what"],
                where=given.get("where"),
                work_id=given.get("work_id"),
                start=times.get("start"),
                end=times.get("end"),
            )
        code = "InvalidWorkInterval"
    raise Refusal(400, code, _REASONS[code])


def _time(name: str, text: str) -> int:
    try:
        return bound_to_epoch_ms(text)
    except (InvalidInputError, MissingDependencyError) as exc:
        msg = f"{name} is {shortened(text)}, which is not a time: write it as 2015-03-20T12:30:00Z."
        raise Refusal(400, "InvalidTime", msg) from exc


def _answer_refusal(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.answer()


def _answer_error(request: Request, error: Exception) -> Response:
    """Respond to an error of storage or index; its text names paths and hosts, so log it only."""
    _log.error("request failed path=%r error=%s", request.scope["path"], error)
    if isinstance(error, NotFoundError):  # deleted since it was looked for
        refusal = Refusal(404, "NoSuchFile", "The file no longer exists.")
    elif isinstance(error, StorageError):
        refusal = Refusal(503, "Unavailable", "The storage or the index does not answer.")
    elif isinstance(error, FormatError):
        refusal = Refusal(500, "Damaged", "The stored metadata or content of this file is damaged.")
    else:
        refusal = _DEFECT
    return refusal.answer()


def _answer_http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        msg = "The archive is read-only here: use GET or HEAD."
        refusal = Refusal(405, "MethodNotAllowed", msg, headers={"allow": "GET, HEAD"})
    else:
        refusal = Refusal(error.status_code, "NoSuchEndpoint", "There is no such endpoint.")
    return refusal.answer()


def _answer_defect(_request: Request, _error: Exception) -> Response:
    return _DEFECT.answer()


_DEFECT = Refusal(500, "InternalError", "The server failed; see its log.")

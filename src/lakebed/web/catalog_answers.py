"""Responses of the Iceberg catalog: JSON, and errors in the form of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lakebed.archive.http.answers import Refusal
from lakebed.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    FormatError,
    InvalidInputError,
    LakebedError,
    StorageError,
    VersionNotFoundError,
)

HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class Refused(Refusal):
    """A refusal in the form of Iceberg's protocol."""

    def answer(self) -> Response:
        """Return the response."""
        return make_error(self.status, self.code, self.message, self.headers)


UNAUTHORIZED = Refused(
    401,
    "NotAuthorizedException",
    "A token is required: send it as Authorization: Bearer TOKEN.",
    headers={"www-authenticate": 'Bearer realm="lakebed"'},
)


async def body_of(request: Request, max_bytes: int) -> bytes:
    """Return the body of a request.

    Raises:
        Refused: It is longer than `max_bytes`, or the client has closed the connection.
    """
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > max_bytes:
                raise Refused(
                    413,
                    "BadRequestException",
                    f"The request is longer than {max_bytes:,} bytes.",
                    headers={"connection": "close"},
                )
    except ClientDisconnect as exc:
        # The log has the status of this answer, and no traceback for each client that leaves.
        raise Refused(400, "BadRequestException", "The client closed the connection.") from exc
    return bytes(body)


def make_json(document: Any, headers: Mapping[str, str] = HEADERS) -> Response:
    """Return a response with a document."""
    return make_response(msgspec.json.encode(document), headers)


def make_response(body: bytes, headers: Mapping[str, str] = HEADERS) -> Response:
    """Return a response with a document that is encoded already."""
    return Response(body, headers=dict(headers), media_type="application/json")


def make_error(
    status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error in the form of the protocol."""
    # Names and conditions of clients may hold half of a surrogate pair, which cannot be encoded.
    text = message.encode("utf-8", "backslashreplace").decode()
    body = msgspec.json.encode({"error": {"message": text, "type": kind, "code": status}})
    own = {**HEADERS, **(headers or {})}
    return Response(body, status, headers=own, media_type="application/json")


def kind_of(error: LakebedError) -> tuple[int, str]:
    """Return the status and Iceberg's name of an error."""
    from lakebed.tables.iceberg.catalog_plans import UnknownTaskError, UnsupportedScanError
    from lakebed.tables.iceberg.commit_requests import UnsupportedCommitError

    if isinstance(error, UnknownTaskError):
        return 404, "NoSuchPlanTaskException"
    if isinstance(error, UnsupportedScanError | UnsupportedCommitError):
        return 406, "UnsupportedOperationException"
    if isinstance(error, CommitUnknownError):
        return 500, "CommitStateUnknownException"
    if isinstance(error, AlreadyExistsError):
        return 409, "AlreadyExistsException"
    if isinstance(error, InvalidInputError | VersionNotFoundError):
        return 400, "BadRequestException"
    if isinstance(error, FormatError):
        return 422, "UnprocessableEntityException"
    if isinstance(error, StorageError):
        return 503, "ServiceUnavailableException"
    return 500, "ServiceFailureException"


FORBIDDEN = Refused(
    403,
    "ForbiddenException",
    "Writing needs a token of its own, LAKEBED_WRITE_TOKEN of the server: send it as "
    "Authorization: Bearer TOKEN.",
)
MANY_COMMITS = Refused(
    409,
    "CommitFailedException",
    "The server makes as many commits as it may at once; nothing was written. Try again in a moment.",
)
BUSY = Refused(
    503,
    "SlowDownException",
    "The server plans as many scans as it may at once. Try again in a moment.",
    headers={"retry-after": "5"},
)

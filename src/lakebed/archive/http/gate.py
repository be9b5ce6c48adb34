"""The gate that every request passes: checks of host and token, and a line in the log."""

from __future__ import annotations

import base64
import hmac
import logging
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakebed.archive.http.answers import Refusal

_log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/health", "/health/"})  # health checks are not authenticated


class Gate:
    """Refuses requests for other hosts or without the token, and logs each request.

    The log has neither query nor headers.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        *,
        hosts: frozenset[str] | None = None,
        asks_people: bool = False,
        refusals: Mapping[str, Refusal] | None = None,
        other_tokens: Sequence[str] = (),
    ) -> None:
        """Guard `app`; without a token every request passes.

        Args:
            app: The application to guard.
            token: The token that requests must send.
            hosts: Host names that requests may use; None for any. A web page whose name leads to
                this server (DNS rebinding) is refused by its name.
            asks_people: Make browsers ask for the token, and accept it as a password.
            refusals: Answers to requests without the token, by the first part of the path, where
                clients expect another form.
            other_tokens: Tokens that will do, too, such as of clients that may do more.
        """
        self._app = app
        self._tokens = () if token is None else tuple(map(str.encode, (token, *other_tokens)))
        self._hosts = hosts
        self._asks_people = asks_people
        self._refusal = _ASK_PEOPLE if asks_people else _UNAUTHORIZED
        self._refusals = refusals or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.monotonic(), 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._choose_app(scope)(scope, receive, send_and_note)
        finally:
            _log.info(
                "request method=%s path=%r status=%d duration_ms=%.0f",
                scope["method"],
                scope["path"],
                status,
                1000 * (time.monotonic() - start),
            )

    def _choose_app(self, scope: Scope) -> ASGIApp:
        # The token first: without it, no answer shows names of the server.
        if not self._may_pass(scope):
            return self._refusal_for(scope["path"]).answer()
        return self._app if self._is_own_host(scope) else _MISDIRECTED.answer()

    def _is_own_host(self, scope: Scope) -> bool:
        if self._hosts is None:
            return True
        try:
            return urlsplit(f"//{Headers(scope=scope).get('host', '')}").hostname in self._hosts
        except ValueError:
            return False

    def _refusal_for(self, path: str) -> Refusal:
        return self._refusals.get(path.lstrip("/").partition("/")[0], self._refusal)

    def _may_pass(self, scope: Scope) -> bool:
        if not self._tokens or scope["path"] in OPEN_PATHS:
            return True
        kind, given = credentials_of(Headers(scope=scope))
        if kind == "basic" and self._asks_people:
            kind, given = "bearer", _password(given)
        return kind == "bearer" and is_one_of(given, self._tokens)


def credentials_of(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return the kind of credentials in a request, such as `bearer`, and these; empty without any."""
    kind, _, given = headers.get("authorization", "").partition(" ")
    return kind.lower(), given.strip()


def is_one_of(given: str, tokens: Sequence[bytes]) -> bool:
    """Return whether a text of a client is one of some tokens.

    It takes the same time however much of a token is right, and does not reveal that.
    """
    data = given.encode("latin-1", "replace")
    return any([hmac.compare_digest(data, token) for token in tokens])  # noqa: C419 - all of them


def _password(given: str) -> str:
    """Return the password of basic authentication of any user; empty if there is none."""
    try:
        return base64.b64decode(given, validate=True).decode("latin-1").partition(":")[2]
    except ValueError:
        return ""


_UNAUTHORIZED = Refusal(
    401,
    "Unauthorized",
    "A token is required: send it as Authorization: Bearer TOKEN.",
    headers={"www-authenticate": 'Bearer realm="archive"'},
)

_ASK_PEOPLE = Refusal(
    401,
    "Unauthorized",
    "A token is required: give it as the password of any user, or send it as Authorization: Bearer "
    "TOKEN.",
    headers={"www-authenticate": 'Basic realm="lakebed", charset="UTF-8"'},
)

_MISDIRECTED = Refusal(
    421,
    "MisdirectedRequest",
    "This server answers only under its own machine's names: open it as 127.0.0.1 or localhost.",
)

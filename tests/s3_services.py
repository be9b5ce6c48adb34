"""Services of S3 for tests, and some that are not true to it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class ForgetfulService:
    """A service before another one that drops headers of PUTs, as some do that know no conditions.

    It forgets nothing until it is told what; and then for the paths that match alone.
    """

    def __init__(self, application: Callable[..., Any]) -> None:
        self.forgets: tuple[str, ...] = ()
        self.forgets_at = ""  # a pattern
        self.requests: list[tuple[str, str]] = []  # method and path
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        if environ["REQUEST_METHOD"] == "PUT" and re.search(self.forgets_at, environ["PATH_INFO"]):
            for header in self.forgets:
                environ.pop(f"HTTP_{header.upper().replace('-', '_')}", None)
        return self._application(environ, start_response)


class HastyService:
    """A service that looks at the condition first, and writes a moment later."""

    def __init__(self, application: Callable[..., Any]) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        none_match = environ.pop("HTTP_IF_NONE_MATCH", None)
        match = environ.pop("HTTP_IF_MATCH", None)
        if environ["REQUEST_METHOD"] == "PUT" and (none_match or match):
            etag = self._etag(environ)
            if (none_match and etag) or (match and etag != match):
                start_response("412 Precondition Failed", [("Content-Length", "0")])
                return [b""]
            time.sleep(0.02)
        elif none_match:
            environ["HTTP_IF_NONE_MATCH"] = none_match
        with self._lock:
            return list(self._application(environ, start_response))

    def _etag(self, environ: dict[str, Any]) -> str | None:
        answers: list[tuple[str, dict[str, str]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], _: object = None) -> Any:
            answers.append((status, {name.lower(): value for name, value in headers}))

        asked = {**environ, "REQUEST_METHOD": "HEAD", "CONTENT_LENGTH": "0"}
        asked = {name: value for name, value in asked.items() if name != "werkzeug.request"}
        with self._lock:
            list(self._application(asked, start_response))
        return answers[0][1].get("etag") if answers[0][0].startswith("200") else None


class RefusingService:
    """A service that refuses requests for as long as it is told to.

    Attributes:
        is_full: Whether no object can be written.
        token: The session token that is accepted; empty to look at none.
        status_of_expired: The status of an answer to another token.
        room: Number of objects that can still be written before it is full; -1 for any number.
        refused: Number of requests that were refused.
    """

    def __init__(self, application: Callable[..., Any]) -> None:
        self.is_full = False
        self.token = ""
        self.status_of_expired = "403 Forbidden"
        self.room = -1
        self.refused = 0
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        token = environ.get("HTTP_X_AMZ_SECURITY_TOKEN", "")
        if self.token and token != self.token:
            return self._refuse(environ, start_response, self.status_of_expired, "ExpiredToken")
        if environ["REQUEST_METHOD"] == "PUT":
            self.is_full = self.is_full or self.room == 0
            self.room -= self.room > 0
            if self.is_full:
                status = "507 Insufficient Storage"
                return self._refuse(environ, start_response, status, "XMinioStorageFull")
        return self._application(environ, start_response)

    def _refuse(
        self, environ: dict[str, Any], start_response: Callable[..., Any], status: str, code: str
    ) -> list[bytes]:
        self.refused += 1
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        body = f"<Error><Code>{code}</Code><Message>As told.</Message></Error>".encode()
        headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
        start_response(status, headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]


@contextmanager
def served(application: Callable[..., Any], *, threaded: bool = False) -> Iterator[str]:
    """Serve an application on a free port of 127.0.0.1, one request at a time; yield its URL.

    moto does not exclude its own threads from each other; one at a time, its conditions hold.
    """
    from werkzeug.serving import WSGIRequestHandler, make_server

    class QuietHandler(WSGIRequestHandler):
        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Keep a line for each request out of the output of the tests."""

    server = make_server(
        "127.0.0.1", 0, application, threaded=threaded, request_handler=QuietHandler
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()

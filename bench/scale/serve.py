"""moto's S3 behind a count of requests and a delay for each, as a far object store has.

Requests wait side by side, and are answered one at a time: moto does not exclude its threads.
`GET /-/reset?ms=50` sets the delay and forgets the counts, `GET /-/counts` returns them.
"""

from __future__ import annotations

import collections
import json
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

Environ = dict[str, Any]
StartResponse = Callable[..., Any]


class FarStore:
    """A WSGI application around another."""

    def __init__(self, inner: Callable[[Environ, StartResponse], Iterable[bytes]]) -> None:
        self._inner = inner
        self._one_at_a_time = threading.Lock()
        self._delay_s = 0.0
        self._counts: collections.Counter[str] = collections.Counter()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith("/-/"):
            return self._tell(path, environ, start_response)
        query = urllib.parse.parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        is_list = environ["REQUEST_METHOD"] == "GET" and (
            "list-type" in query or "prefix" in query or "uploads" in query
        )
        time.sleep(self._delay_s)
        with self._one_at_a_time:
            self._counts["LIST" if is_list else environ["REQUEST_METHOD"]] += 1
            return list(self._inner(environ, start_response))

    def _tell(self, path: str, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if path == "/-/reset":
            query = urllib.parse.parse_qs(environ["QUERY_STRING"])
            self._delay_s = float(query["ms"][0]) / 1000
            self._counts.clear()
        body = json.dumps(self._counts).encode()
        start_response("200 OK", [("content-length", str(len(body)))])
        return [body]


def main() -> None:
    """Serve until the standard input is closed; print the port first."""
    application = FarStore(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


main()

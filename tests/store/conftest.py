"""A service that answers what a test tells it, one connection at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

Answer = tuple[int, Mapping[str, str], bytes]  # status, headers, body; status 0 hangs up


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class ScriptedService:
    """Answers in turn as it is told, with the last answer for ever, and keeps the requests."""

    def __init__(self) -> None:
        self._answers: list[Answer] = []
        self.requests: list[Request] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def handle_request(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                answer = service.next_answer(
                    Request(method=self.command, path=self.path, headers=headers, body=body)
                )
                self.close_connection = True
                if answer[0]:
                    with contextlib.suppress(ConnectionError):  # the client may have given up
                        self.send_answer(answer)

            def send_answer(self, answer: Answer) -> None:
                status, headers, body = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Keep a line for each request out of the output of the tests."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def script(self, *answers: Answer) -> None:
        self._answers = list(answers)

    def next_answer(self, request: Request) -> Answer:
        self.requests.append(request)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    """Serve scripted answers on a free port of 127.0.0.1."""
    scripted = ScriptedService()
    yield scripted
    scripted.close()

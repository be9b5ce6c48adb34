"""A server on a free port, and a way to ask it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import uvicorn
from shown_page import ShownPage

from lakebed.archive.http.server import configured


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8")


class Client:
    """A server on a free port, and a way to ask it without a library that mends requests."""

    running: ClassVar[list[Client]] = []

    def __init__(self, app, http=None) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.place = f"127.0.0.1:{listener.getsockname()[1]}"
        config = configured(app)
        if http is not None:
            config.http = http
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]})
        self._thread.start()
        self.running.append(self)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)

    def ask(
        self, path: str, method: str = "GET", headers: Mapping = {}, body: bytes | None = None
    ) -> Answer:
        with contextlib.closing(http.client.HTTPConnection(self.place, timeout=30)) as connection:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())

    def get(self, path: str, headers: Mapping = {}) -> Answer:
        """Ask, and go where the answer leads."""
        answer = self.ask(path, headers=headers)
        return self.get(answer.headers["location"]) if answer.status == 307 else answer


def shown(client: Client, address: str, status: int = 200) -> ShownPage:
    """Return the page at an address, which must answer with a status."""
    answer = client.get(address)
    assert answer.status == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return ShownPage(answer.text)

"""An HTTP proxy before a service of S3, which loses, repeats, delays and refuses requests.

It starts moto's S3 beside it, which answers one request at a time, since its threads do not exclude
each other. What is carried out is carried out there, whatever becomes of the answer.

From `tests/`: `python -m judge.proxy` prints its address, and serves until its input is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import random
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from judge.faults import Fault, Kind, Plan, kind_of

BUCKET = "judged"
_HELD_S = (0.2, 2.0)
_SLOW_S = (0.1, 1.5)
_TIMEOUT_S = 120
_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "expect", "content-length"})
_REFUSED: dict[Fault, tuple[int, str]] = {
    Fault.ERROR_500: (500, "InternalError"),
    Fault.DONE_500: (500, "InternalError"),
    Fault.ERROR_503: (503, "SlowDown"),
    Fault.DONE_503: (503, "ServiceUnavailable"),
    Fault.CONFLICT_409: (409, "ConditionalRequestConflict"),
    Fault.EXPIRED: (403, "ExpiredToken"),
}
_NOT_CARRIED_OUT = frozenset(
    {Fault.LOST, Fault.ERROR_500, Fault.ERROR_503, Fault.CONFLICT_409, Fault.EXPIRED}
)


@dataclass(frozen=True, slots=True)
class Request:
    """What a client has sent."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def named(self) -> dict[str, str]:
        """The headers by their names in lower case."""
        return {name.lower(): value for name, value in self.headers}

    @property
    def kind(self) -> Kind:
        """Its class."""
        return kind_of(self.method, self.target, self.named)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service has answered."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


Send = Callable[[Request], Answer]


def sender(host: str, port: int) -> Send:
    """Return a function that sends a request to a service."""

    def send(request: Request) -> Answer:
        connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
        try:
            connection.putrequest(
                request.method, request.target, skip_host=True, skip_accept_encoding=True
            )
            for name, value in request.headers:
                if name.lower() not in _HOP:
                    connection.putheader(name, value)
            if request.body or request.method in ("PUT", "POST"):
                connection.putheader("Content-Length", str(len(request.body)))
            connection.endheaders(request.body or None)
            answer = connection.getresponse()
            body = answer.read()
            return Answer(answer.status, tuple(answer.getheaders()), body)
        finally:
            connection.close()

    return send


@dataclass(slots=True)
class Proxy:
    """Forwards requests, or does to them what the plan says.

    Attributes:
        send: Sends a request to the service.
        plan: None forwards all.
        seen: Method, target and fault of each request, in their order.
    """

    send: Send
    plan: Plan | None = None
    seen: list[tuple[str, str, Fault | None]] = field(default_factory=list)
    _late: set[asyncio.Task[None]] = field(default_factory=set)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(32))
    _dice: random.Random = field(default_factory=lambda: random.Random(0))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        broken = (ConnectionError, asyncio.IncompleteReadError, TimeoutError)
        try:
            with contextlib.suppress(*broken):
                while (request := await _read(reader, writer)) is not None:
                    if request.target.startswith("/-/"):
                        await self._control(request, writer)
                    elif not await self._answer(request, writer):
                        writer.transport.abort()
                        return
                    await writer.drain()
        finally:
            writer.close()  # also where the proxy ends before its clients do

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Answer a request, or return False to close the connection."""
        plan = self.plan
        fault = None if plan is None else plan.next(request.kind)
        self.seen.append((request.method, request.target.partition("?")[0], fault))
        if fault is Fault.SLOW:
            await asyncio.sleep(self._dice.uniform(*_SLOW_S))
        if fault is Fault.LATE:
            self._keep(asyncio.create_task(self._send_late(request)))
            return False
        if fault in _NOT_CARRIED_OUT:
            return fault is not Fault.LOST and _refuse(request, writer, fault)
        # Shielded: what was sent is carried out, though the client is killed.
        answer = await asyncio.shield(self._forward(request))
        if fault is Fault.TWICE_LAST:
            answer = await asyncio.shield(self._forward(request))
        elif fault is Fault.TWICE:
            await asyncio.shield(self._forward(request))
        if fault is Fault.LOST_ANSWER:
            return False
        if fault in _REFUSED:
            return _refuse(request, writer, fault)
        is_cut = fault is Fault.CUT and len(answer.body) > 1
        _write(request, writer, answer, cut=is_cut)
        if is_cut:
            await writer.drain()
            writer.close()
        return not is_cut

    async def _forward(self, request: Request) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self.pool, self.send, request)

    async def _send_late(self, request: Request) -> None:
        await asyncio.sleep(self._dice.uniform(*_HELD_S))
        await self._forward(request)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _control(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if request.target == "/-/plan":
            given = json.loads(request.body)
            calm: dict[str, Any] = {"rates": {}} if given and given["is_calm"] else {}
            self.plan = None if given is None else Plan(given["seed"], **calm)
            self.seen.clear()
        if request.target == "/-/settle":
            faults, self.plan = self.plan, None
            while self._late:
                await asyncio.wait(set(self._late))
            told = {} if faults is None else _told(faults)
            body = json.dumps(told).encode()
        else:
            body = b"{}"
        _write(request, writer, Answer(200, (), body))


def _told(plan: Plan) -> dict[str, Any]:
    return {
        "injected": {f"{kind}: {fault}": count for (kind, fault), count in plan.injected.items()},
        "asked": {str(kind): count for kind, count in plan.asked.items()},
    }


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    line = await reader.readline()
    if not line.strip():
        return None
    method, target, _ = line.decode("latin-1").split(" ", 2)
    headers = []
    while (line := await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers.append((name, value.strip()))
    named = {name.lower(): value for name, value in headers}
    if named.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    if named.get("transfer-encoding", "").lower() == "chunked":
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(named.get("content-length", "0")))
    return Request(method, target, tuple(headers), body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while size := int((await reader.readline()).partition(b";")[0], 16):
        found += await reader.readexactly(size)
        await reader.readline()
    while (await reader.readline()).strip():
        pass  # trailers
    return bytes(found)


def _refuse(request: Request, writer: asyncio.StreamWriter, fault: Fault) -> bool:
    status, code = _REFUSED[fault]
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code>'
        f"<Message>By the plan of the proxy.</Message></Error>"
    )
    _write(request, writer, Answer(status, (("Content-Type", "application/xml"),), body.encode()))
    return True


def _write(
    request: Request, writer: asyncio.StreamWriter, answer: Answer, *, cut: bool = False
) -> None:
    reason = http.client.responses.get(answer.status, "Unknown")
    lines = [f"HTTP/1.1 {answer.status} {reason}"]
    lines += [f"{name}: {value}" for name, value in answer.headers if name.lower() not in _HOP]
    is_head = request.method == "HEAD"
    length = next((v for n, v in answer.headers if n.lower() == "content-length"), "0")
    if answer.status not in (204, 304):
        lines.append(f"Content-Length: {length if is_head else len(answer.body)}")
    body = b"" if is_head else answer.body[: len(answer.body) // 2] if cut else answer.body
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)


@contextlib.contextmanager
def proxied(host: str, port: int) -> Iterator[tuple[str, Proxy]]:
    """Serve a proxy before a service, in a thread; yield its address, and the proxy."""
    proxy = Proxy(sender(host, port))
    loop = asyncio.new_event_loop()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=2**20)

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", proxy
    finally:
        asyncio.run_coroutine_threadsafe(_stop(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        proxy.pool.shutdown()


async def _stop(server: asyncio.Server) -> None:
    server.close()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def tell(endpoint: str, what: str, given: object = None) -> dict[str, Any]:
    """Let a proxy do something: `plan` with a seed, or None; or `settle`, which ends the faults."""
    request = urllib.request.Request(
        f"{endpoint}/-/{what}", data=json.dumps(given).encode(), method="POST"
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        return dict(json.loads(answer.read()))


@contextlib.contextmanager
def far_proxy() -> Iterator[str]:
    """Serve S3 behind a proxy in a process of its own, with a bucket; yield the address."""
    with subprocess.Popen(
        [sys.executable, "-m", "judge.proxy"],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def _main() -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from s3_services import served

    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    with served(DomainDispatcherApplication(create_backend_app)) as service:
        host, _, port = service.removeprefix("http://").partition(":")
        with proxied(host, int(port)) as (endpoint, _):
            made = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
            urllib.request.urlopen(made, timeout=_TIMEOUT_S).close()
            sys.stdout.write(f"{endpoint}\n")
            sys.stdout.flush()
            sys.stdin.read()


if __name__ == "__main__":
    _main()

"""A server for an archive: the application, and a process that serves it."""

from __future__ import annotations

import contextlib
import importlib
import re
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakebed.archive import Archive
from lakebed.errors import InvalidInputError, MissingDependencyError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080
OWN_ADDRESSES = frozenset({"127.0.0.1", "::1", "localhost"})  # that no other machine reaches

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750
_SHUTDOWN_S = 30  # for downloads that are under way


def create_app(
    archive: Archive, *, token: str | None = None, public_url: str | None = None
) -> ASGIApp:
    """Return the ASGI application that answers for an archive.

    Args:
        archive: What is served; nothing in it is ever changed.
        token: What requests must bring as `Authorization: Bearer …`; None lets everybody read.
        public_url: How clients reach the server, if a proxy changes it; else what they ask for.

    Raises:
        InvalidInputError: The token or the URL is none.
        MissingDependencyError: starlette is not installed.

    Examples:
        >>> import lakebed
        >>> app = create_app(lakebed.open_archive("memory://served"), token="a-long-secret")
    """
    require("starlette")
    from lakebed.archive.http.application import build

    return build(archive, token=checked_token(token), public_url=checked_url(public_url))


def serve(
    archive: Archive,
    *,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    token: str | None = None,
    public_url: str | None = None,
    on_start: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve an archive until the process is interrupted.

    Args:
        archive: As in `create_app`.
        host: The address to listen at.
        port: The port; 0 takes a free one.
        token: As in `create_app`.
        public_url: As in `create_app`.
        on_start: Called with the URL of the server when it listens.

    Raises:
        InvalidInputError: An argument is wrong, or the port cannot be used.
        StorageError: The index does not answer.
        MissingDependencyError: starlette or uvicorn is not installed.

    Examples:
        >>> import lakebed
        >>> serve(lakebed.open_archive("memory://served"), host="no address")
        Traceback (most recent call last):
        lakebed.errors.InvalidInputError: Port 8080 of 'no address' cannot be used: ...
    """
    app = create_app(archive, token=token, public_url=public_url)
    run(app, host=host, port=port, on_start=on_start, check=lambda: archive.index.find(""))


def run(
    app: ASGIApp,
    *,
    host: str,
    port: int,
    on_start: Callable[[str], None],
    check: Callable[[], object],
) -> None:
    """Serve an application until the process is interrupted.

    Args:
        app: Who answers.
        host: The address to listen at.
        port: The port; 0 takes a free one.
        on_start: Called with the URL of the server when it listens.
        check: Called before that: better no server than one whose every answer is an error.

    Raises:
        InvalidInputError: The port cannot be used.
        MissingDependencyError: uvicorn is not installed.
    """
    require("uvicorn")
    import uvicorn

    with _listening(host, port) as listener:
        check()
        shown = f"[{host}]" if ":" in host else host
        on_start(f"http://{shown}:{listener.getsockname()[1]}")
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,  # who serves decides what is logged
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
        uvicorn.Server(config).run(sockets=[listener])


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except (OSError, UnicodeError, OverflowError) as exc:
        msg = f"Port {port} of {host!r} cannot be used: {exc}."
        raise InvalidInputError(
            msg, hint="Take another port, or an address of this machine."
        ) from exc
    with listener:
        yield listener


def require(package: str) -> None:
    """Import what the extra `serve` brings.

    Raises:
        MissingDependencyError: It is not installed.
    """
    try:
        importlib.import_module(package)
    except ImportError as exc:
        raise MissingDependencyError.for_extra(package, "serve", "Serving over HTTP") from exc


def checked_token(token: str | None) -> str | None:
    """Return a token that a header can hold.

    Raises:
        InvalidInputError: It cannot.
    """
    if token is not None and not _TOKEN.fullmatch(token):
        # The token itself is told to nobody.
        msg = "The token is empty, or has characters that no bearer token has."
        raise InvalidInputError(msg, hint="Use letters, digits and -._~+/ only.")
    return token


def checked_url(url: str | None) -> str | None:
    """Return the URL of a server, without a slash at its end.

    Raises:
        InvalidInputError: It is none.
    """
    if url is None:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.query or parts.fragment:
        msg = f"{url!r} is no URL of a server."
        raise InvalidInputError(msg, hint="Write it as https://archive.example.org.")
    return url.rstrip("/")

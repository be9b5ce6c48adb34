"""A server for an archive: the application, and a process that serves it."""

from __future__ import annotations

import contextlib
import importlib
import ipaddress
import re
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakebed.archive import Archive
from lakebed.errors import InvalidInputError, MissingDependencyError

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750
_SHUTDOWN_S = 30  # time for downloads to finish


def create_app(
    archive: Archive,
    *,
    token: str | None = None,
    public_url: str | None = None,
    hosts: frozenset[str] | None = None,
) -> ASGIApp:
    """Return the ASGI application that serves an archive.

    Args:
        archive: The archive to serve, read-only.
        token: The token that requests must send as `Authorization: Bearer …`; None allows every
            request.
        public_url: URL of the server for clients, if a proxy changes it; default: that of the
            request.
        hosts: Host names that requests may use; None for any.

    Raises:
        InvalidInputError: The token or the URL is not valid.
        MissingDependencyError: starlette is not installed.

    Examples:
        >>> import lakebed
        >>> app = create_app(lakebed.open_archive("memory://served"), token="a-long-secret")
    """
    require("starlette")
    from lakebed.archive.http.application import build

    return build(
        archive, token=checked_token(token), public_url=checked_url(public_url), hosts=hosts
    )


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

    Without a token, a server at a local address answers only requests that name a local address. So
    a foreign web page in a local browser cannot read it under a name of its own (DNS rebinding).

    Args:
        archive: As in `create_app`.
        host: The address to listen at.
        port: The port; 0 takes a free one.
        token: As in `create_app`.
        public_url: As in `create_app`.
        on_start: Callback; receives the URL of the server when it listens.

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
    hosts = own_hosts(host, token, public_url)
    app = create_app(archive, token=token, public_url=public_url, hosts=hosts)
    run(app, host=host, port=port, on_start=on_start, check=lambda: archive.index.find(""))


def own_hosts(host: str, token: str | None, public_url: str | None) -> frozenset[str] | None:
    """Return the host names that requests to a server may use; None for any.

    Args:
        host: The address at which the server listens.
        token: The token that requests must send; a foreign page does not have it.
        public_url: URL of the server for its users.
    """
    if token is not None or not is_own_address(host):
        return None
    public = {urlsplit(public_url).hostname or ""} if public_url else set()
    return frozenset({"127.0.0.1", "::1", "localhost", host, *public})


def is_own_address(host: str) -> bool:
    """Return whether only this machine can reach a server that listens at an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
        app: The application to serve.
        host: The address to listen at.
        port: The port; 0 takes a free one.
        on_start: Callback; receives the URL of the server when it listens.
        check: Called before `on_start`; an error here prevents a server that could only fail.

    Raises:
        InvalidInputError: The port cannot be used.
        MissingDependencyError: uvicorn is not installed.
    """
    require("uvicorn")
    import uvicorn

    with listening(host, port) as listener:
        check()
        shown = f"[{host}]" if ":" in host else host
        on_start(f"http://{shown}:{listener.getsockname()[1]}")
        uvicorn.Server(configured(app)).run(sockets=[listener])


def configured(app: ASGIApp) -> uvicorn.Config:
    """Return the settings of a server for an application."""
    import uvicorn

    from lakebed.archive.http.connections import KEEP_ALIVE_S, bounded_protocol

    return uvicorn.Config(
        app,
        loop="asyncio",
        http=bounded_protocol(),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,  # the calling process configures logging
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Listen on an address for the length of a block; port 0 takes a free one.

    Raises:
        InvalidInputError: The address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except (OSError, UnicodeError, OverflowError) as exc:
        msg = f"Port {port} of {host!r} cannot be used: {exc}."
        raise InvalidInputError(
            msg, hint="Use another port, or an address of this machine."
        ) from exc
    with listener:
        yield listener


def require(package: str) -> None:
    """Import a package of the extra `serve`.

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
        # The message must not reveal the token.
        msg = "The token is empty, or has characters that are not allowed in a bearer token."
        raise InvalidInputError(msg, hint="Use letters, digits and -._~+/ only.")
    return token


def checked_url(url: str | None) -> str | None:
    """Return the URL of a server, without a trailing slash.

    Raises:
        InvalidInputError: It is not a URL.
    """
    if url is None:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.query or parts.fragment:
        msg = f"{url!r} is not the URL of a server."
        raise InvalidInputError(msg, hint="Write it as https://archive.example.org.")
    return url.rstrip("/")

"""A server for a lake: the application, and a process that serves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lakebed.archive import Archive
from lakebed.archive.http.server import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    checked_token,
    checked_url,
    own_hosts,
    require,
    run,
)
from lakebed.errors import InvalidInputError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from lakebed.web.dataset_facts import Datasets
    from lakebed.web.iceberg_door import IcebergDoor


def create_app(
    repository: Datasets | None,
    *,
    name: str | None = None,
    archive: Archive | None = None,
    token: str | None = None,
    public_url: str | None = None,
    hosts: frozenset[str] | None = None,
    iceberg: IcebergDoor | None = None,
) -> ASGIApp:
    """Return a read-only ASGI application that shows a lake, an archive or both.

    Args:
        repository: Repository whose datasets are shown, from `open_repository`.
        name: Name of the only dataset to show; None for all.
        archive: Archive whose files are shown; its own clients can use the server too.
        token: Secret that requests must send as password, or as `Authorization: Bearer …`; None
            lets everyone read.
        public_url: URL of the server for its users, if a proxy changes it.
        hosts: Host names that requests may use; None for any.
        iceberg: Options of a catalog of Iceberg's REST protocol under `/v1`; None for none.

    Raises:
        InvalidInputError: There is neither a repository nor an archive, or the token or a URL is
            not valid, or a catalog has no repository.
        MissingDependencyError: starlette is not installed, or pyiceberg for a catalog.

    Examples:
        >>> import lakebed
        >>> app = create_app(lakebed.open_repository("memory://shown"), token="a-long-secret")
    """
    if repository is None and archive is None:
        raise InvalidInputError(
            "There is nothing to serve.", hint="Give a lake, an archive or both."
        )
    if iceberg is not None and repository is None:
        raise InvalidInputError(
            "An Iceberg catalog shows a lake, and none is given.", hint="Give a lake, too."
        )
    require("starlette")
    from lakebed.web.routes import build

    return build(
        repository,
        name=name,
        archive=archive,
        token=checked_token(token),
        public_url=checked_url(public_url),
        hosts=hosts,
        iceberg=iceberg,
    )


def serve(
    repository: Datasets | None,
    *,
    name: str | None = None,
    archive: Archive | None = None,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    token: str | None = None,
    public_url: str | None = None,
    iceberg: IcebergDoor | None = None,
    on_start: Callable[[str], None] = lambda _: None,
) -> None:
    """Show a lake, an archive or both until the process is interrupted.

    Without a token, a server at a local address answers only requests that name a local address. So
    a foreign web page in a local browser cannot read it under a name of its own (DNS rebinding).

    Args:
        repository: As in `create_app`.
        name: As in `create_app`.
        archive: As in `create_app`.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        token: As in `create_app`.
        public_url: As in `create_app`.
        iceberg: As in `create_app`.
        on_start: Called with the URL of the server when it listens.

    Raises:
        InvalidInputError: An argument is wrong, or the port cannot be used.
        StorageError: The storage or the index does not answer.
        MissingDependencyError: starlette or uvicorn is not installed.

    Examples:
        >>> import lakebed
        >>> serve(lakebed.open_repository("memory://shown"), host="no address")
        Traceback (most recent call last):
        lakebed.errors.InvalidInputError: Port 8080 of 'no address' cannot be used: ...
    """
    app = create_app(
        repository,
        name=name,
        archive=archive,
        token=token,
        public_url=public_url,
        hosts=own_hosts(host, token, public_url),
        iceberg=iceberg,
    )

    def check() -> None:
        if repository is not None:
            repository.list()
        if archive is not None:
            archive.index.find("")

    run(app, host=host, port=port, on_start=on_start, check=check)

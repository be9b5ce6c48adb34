"""A catalog of Iceberg's REST protocol over a lake, which plans scans, and commits if allowed."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from lakebed.archive.http.answers import Refusal, is_known, shortened
from lakebed.archive.http.gate import credentials_of, is_one_of
from lakebed.errors import (
    CommitUnknownError,
    ConflictError,
    DatasetNotFoundError,
    FormatError,
    InvalidInputError,
    LakebedError,
    MissingDependencyError,
    StorageError,
    VersionNotFoundError,
)
from lakebed.model.names import is_dataset_name
from lakebed.store.locate import open_store
from lakebed.web.catalog_client import is_pyiceberg
from lakebed.web.dataset_facts import Datasets
from lakebed.web.iceberg_door import IcebergDoor
from lakebed.web.limits import MAX_CATALOG_COMMITS, MAX_CATALOG_PLANS, WAIT_SECONDS

if TYPE_CHECKING:
    from lakebed.tables.iceberg.catalog_plans import CatalogPlans
    from lakebed.tables.iceberg.catalog_tables import CatalogTables, ServedTable
    from lakebed.tables.iceberg.catalog_writes import CatalogWrites

_log = logging.getLogger(__name__)

ROOT = "v1"  # first part of the paths
_PREFIX = "lake"
_ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/tasks",
)
_COMMITS = "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}"
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_GZIP_FROM_BYTES = 1024
_GZIP_LEVEL = 1  # on a fast network a higher one takes longer than the transfer
_MAX_NAMES = 1000  # of a page that a client asks for
_COUNT = re.compile(r"[0-9]{1,18}")


class _Refused(Refusal):
    """A refusal in the form of Iceberg's protocol."""

    def answer(self) -> Response:
        """Return the response."""
        return _error(self.status, self.code, self.message, self.headers)


UNAUTHORIZED = _Refused(
    401,
    "NotAuthorizedException",
    "A token is required: send it as Authorization: Bearer TOKEN.",
    headers={"www-authenticate": 'Bearer realm="lakebed"'},
)


def build_catalog(repository: Datasets, name: str | None, door: IcebergDoor) -> ASGIApp:
    """Return the application below `/v1`.

    Args:
        repository: Repository whose datasets are shown.
        name: Name of the only dataset to show; None for all.
        door: Options of the catalog.

    Raises:
        MissingDependencyError: pyiceberg is not installed.
        InvalidInputError: The repository or the metadata has no URL that readers could use.
    """
    from lakebed.tables.iceberg.library_errors import importing_pyiceberg

    try:
        with importing_pyiceberg():
            from lakebed.tables.iceberg.catalog_plans import CatalogPlans
            from lakebed.tables.iceberg.catalog_tables import CatalogTables
    except MissingDependencyError as exc:
        raise MissingDependencyError(
            "An Iceberg catalog needs the package pyiceberg, which is not installed.",
            hint="Install it with: pip install 'lakebed[serve,iceberg]'",
            extra="iceberg",
        ) from exc
    cache = None
    if door.metadata is not None:
        cache = open_store(door.metadata, storage_options=door.metadata_options)
    is_writable = door.allow_writes is not None
    tables = CatalogTables(repository.store, cache=cache, root=door.root, is_writable=is_writable)
    writes = None
    if door.allow_writes is not None and door.write_token is not None:
        from lakebed.tables.iceberg.catalog_writes import CatalogWrites

        made = CatalogWrites(tables, door.allow_writes)
        writes = _Writes(made, door.write_token.encode("ascii"))
    catalog = _Catalog(repository, name, door.namespace, tables, CatalogPlans(tables), writes)
    app = Starlette(
        routes=catalog.routes(),
        exception_handlers={
            LakebedError: _answer_error,
            Refusal: _answer_refusal,
            HTTPException: _answer_http_error,
            Exception: _answer_defect,
        },
    )
    app.router.redirect_slashes = False
    return GZipMiddleware(app, minimum_size=_GZIP_FROM_BYTES, compresslevel=_GZIP_LEVEL)


class _Writes:
    """The commits that clients may make, and who may.

    Attributes:
        commits: Makes the commits.
    """

    def __init__(self, commits: CatalogWrites, token: bytes) -> None:
        self.commits = commits
        self._token = token
        self._running = threading.BoundedSemaphore(MAX_CATALOG_COMMITS)

    def check_token(self, request: Request) -> None:
        """Check that a request has the token for writes."""
        kind, given = credentials_of(request.headers)
        if given in ("", "None"):  # as pyiceberg has it without a token
            raise UNAUTHORIZED
        if kind != "bearer" or not is_one_of(given, (self._token,)):
            raise _FORBIDDEN

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Refuse a commit while too many others run; its client tries again by itself."""
        if not self._running.acquire(timeout=WAIT_SECONDS):
            raise _MANY_COMMITS
        try:
            yield
        finally:
            self._running.release()


class _Catalog:
    """The handlers of the catalog of one lake."""

    def __init__(
        self,
        repository: Datasets,
        name: str | None,
        namespace: str,
        tables: CatalogTables,
        plans: CatalogPlans,
        writes: _Writes | None,
    ) -> None:
        self._writes = writes
        self._repository = repository
        self._name = name
        self._namespace = namespace
        self._tables = tables
        self._plans = plans
        self._planning = threading.BoundedSemaphore(MAX_CATALOG_PLANS)

    def routes(self) -> list[Route]:
        """Return the routes."""
        namespaces = f"/{ROOT}/{_PREFIX}/namespaces"
        tables = f"{namespaces}/{{namespace}}/tables"
        routes = [
            Route(f"/{ROOT}/config", self._config),
            Route(namespaces, self._list_namespaces),
            Route(f"{namespaces}/{{namespace}}", self._load_namespace),
            Route(tables, self._list_tables),
            Route(f"{tables}/{{table}}", self._load_table),
            Route(f"{tables}/{{table}}/plan", self._plan, methods=["POST"]),
            Route(f"{tables}/{{table}}/tasks", self._fetch_tasks, methods=["POST"]),
        ]
        if self._writes is not None:
            routes += [
                Route(f"{tables}/{{table}}", self._commit, methods=["POST"]),
                *(
                    Route(path, _refusing(what, hint), methods=[method])
                    for method, path, what, hint in (
                        ("POST", namespaces, "creates a namespace", _ONE_NAMESPACE),
                        ("DELETE", f"{namespaces}/{{namespace}}", "drops it", _ONE_NAMESPACE),
                        (
                            "POST",
                            f"{namespaces}/{{namespace}}/properties",
                            "changes its properties",
                            _ONE_NAMESPACE,
                        ),
                        ("POST", tables, "creates a table", "Create one by `lakebed create`."),
                        (
                            "POST",
                            f"{namespaces}/{{namespace}}/register",
                            "registers a table",
                            "Take it over by `lakebed adopt --iceberg`.",
                        ),
                        (
                            "DELETE",
                            f"{tables}/{{table}}",
                            "drops a table",
                            "Drop the dataset by `lakebed drop`.",
                        ),
                        (
                            "POST",
                            f"/{ROOT}/{_PREFIX}/tables/rename",
                            "renames a table",
                            "Create a dataset of the other name by `lakebed create`, and copy the "
                            "rows.",
                        ),
                        (
                            "POST",
                            f"/{ROOT}/{_PREFIX}/transactions/commit",
                            "commits to several tables at once",
                            "Commit to one table at a time.",
                        ),
                    )
                ),
            ]
        return routes

    def _config(self, _request: Request) -> Response:
        return _json(
            {
                "defaults": {"scan-planning-mode": "server"},
                "overrides": {"prefix": _PREFIX},
                "endpoints": _ENDPOINTS if self._writes is None else (*_ENDPOINTS, _COMMITS),
            }
        )

    def _list_namespaces(self, request: Request) -> Response:
        parent = request.query_params.get("parent", "")
        if not parent:
            return _json({"namespaces": [[self._namespace]]})
        self._check_namespace(parent)
        return _json({"namespaces": []})

    def _load_namespace(self, request: Request) -> Response:
        self._check_namespace(request.path_params["namespace"])
        location = {"location": self._repository.uri}
        return _json({"namespace": [self._namespace], "properties": location})

    def _list_tables(self, request: Request) -> Response:
        self._check_namespace(request.path_params["namespace"])
        every = self._repository.list() if self._name is None else [self._name]
        after = request.query_params.get("pageToken", "")
        names = [name for name in every if name > after]
        asked = request.query_params.get("pageSize", "")
        count = min(int(asked), _MAX_NAMES) if _COUNT.fullmatch(asked) else 0
        page = names[: count or None]
        following = page[-1] if len(page) < len(names) else None
        tables = [{"namespace": [self._namespace], "name": name} for name in page]
        return _json({"identifiers": tables, "next-page-token": following})

    def _load_table(self, request: Request) -> Response:
        name = self._table(request)
        with _finding(name):
            if request.method == "HEAD":
                self._repository.open(name)
                return Response(status_code=204, headers=_HEADERS)
            served = self._tables.load(name)
        return self._shown(request, served)

    def _shown(self, request: Request, served: ServedTable) -> Response:
        """Return a table to a client that loads it."""
        client = is_pyiceberg(request.headers)
        shown = request.query_params.get("snapshots", "all")
        is_writable = self._writes is not None
        known = [served.location, served.head, shown, client, is_writable]
        identity = msgspec.json.encode(known)
        tag = f'"{hashlib.blake2b(identity, digest_size=16).hexdigest()}"'
        headers = {**_HEADERS, "cache-control": "private, no-cache", "etag": tag}
        if is_known(request, tag):
            return Response(status_code=304, headers=headers)
        metadata = served.without_nulls() if client else served.metadata
        # Only virtual tables insist on it: some clients refuse tables whose configuration does.
        config = {"scan-planning-mode": "server"} if served.is_virtual else {}
        document = {
            "metadata-location": served.location,
            "metadata": _with_snapshots(metadata, shown),
            "config": config,
        }
        return _json(document, headers)

    async def _commit(self, request: Request) -> Response:
        from lakebed.tables.iceberg.commit_requests import MAX_COMMIT_BYTES

        assert self._writes is not None  # or there is no such route
        writes, name = self._writes, self._table(request)
        writes.check_token(request)
        body = await _body_of(request, MAX_COMMIT_BYTES)
        client = is_pyiceberg(request.headers)

        def answer() -> Response:
            with writes.waiting(), _finding(name):
                try:
                    served = writes.commits.commit(name, body)
                except CommitUnknownError:
                    raise
                except ConflictError as exc:
                    raise _Refused(409, "CommitFailedException", str(exc)) from exc
            metadata = served.without_nulls() if client else served.metadata
            return _json({"metadata-location": served.location, "metadata": metadata})

        return await anyio.to_thread.run_sync(answer)

    async def _plan(self, request: Request) -> Response:
        from lakebed.tables.iceberg.catalog_plans import MAX_BODY_BYTES

        return await self._planned(request, self._plans.plan, MAX_BODY_BYTES)

    async def _fetch_tasks(self, request: Request) -> Response:
        from lakebed.tables.iceberg.catalog_plans import MAX_TASK_BYTES

        return await self._planned(request, self._plans.tasks, MAX_TASK_BYTES)

    async def _planned(
        self, request: Request, make: Callable[..., bytes], max_bytes: int
    ) -> Response:
        name = self._table(request)
        body = await _body_of(request, max_bytes)
        client = is_pyiceberg(request.headers)

        def answer() -> bytes:
            with self._waiting(), _finding(name):
                return make(name, body, is_pyiceberg=client)

        return _response(await anyio.to_thread.run_sync(answer))

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Wait until fewer than MAX_CATALOG_PLANS scans are being planned."""
        if not self._planning.acquire(timeout=WAIT_SECONDS):
            raise _BUSY
        try:
            yield
        finally:
            self._planning.release()

    def _check_namespace(self, namespace: str) -> None:
        if namespace != self._namespace:
            raise _Refused(
                404, "NoSuchNamespaceException", f"Namespace {shortened(namespace)} does not exist."
            )

    def _table(self, request: Request) -> str:
        """Return the name of a dataset that may be shown.

        Also an unknown namespace has no such table: Spark looks for tables in the namespace that a
        table's name would be.
        """
        name: str = request.path_params["table"]
        is_ours = request.path_params["namespace"] == self._namespace
        if not is_ours or not is_dataset_name(name) or self._name not in (None, name):
            raise _no_table(name)
        return name


def _refusing(what: str, hint: str) -> Callable[[Request], Response]:
    """Return the handler of requests that Lakebed's own verbs do."""

    def refuse(_request: Request) -> Response:
        message = f"This catalog does not do what the request asks for: it {what}. {hint}"
        return _error(406, "UnsupportedOperationException", message)

    return refuse


@contextmanager
def _finding(name: str) -> Iterator[None]:
    try:
        yield
    except DatasetNotFoundError as exc:
        raise _no_table(name) from exc


def _no_table(name: str) -> _Refused:
    return _Refused(404, "NoSuchTableException", f"Table {shortened(name)} does not exist.")


def _with_snapshots(metadata: Mapping[str, Any], shown: str) -> Mapping[str, Any]:
    """Return the metadata with all snapshots, or only with those that a branch refers to."""
    if shown != "refs":
        return metadata
    named = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
    snapshots = [one for one in metadata["snapshots"] if one["snapshot-id"] in named]
    return {**metadata, "snapshots": snapshots}


async def _body_of(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > max_bytes:
                raise _Refused(
                    413,
                    "BadRequestException",
                    f"The request is longer than {max_bytes:,} bytes.",
                    headers={"connection": "close"},
                )
    except ClientDisconnect as exc:
        # The log has the status of this answer, and no traceback for each client that leaves.
        raise _Refused(400, "BadRequestException", "The client closed the connection.") from exc
    return bytes(body)


def _json(document: Any, headers: Mapping[str, str] = _HEADERS) -> Response:
    return _response(msgspec.json.encode(document), headers)


def _response(body: bytes, headers: Mapping[str, str] = _HEADERS) -> Response:
    return Response(body, headers=dict(headers), media_type="application/json")


def _error(
    status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    # Names and conditions of clients may hold half of a surrogate pair, which cannot be encoded.
    text = message.encode("utf-8", "backslashreplace").decode()
    body = msgspec.json.encode({"error": {"message": text, "type": kind, "code": status}})
    own = {**_HEADERS, **(headers or {})}
    return Response(body, status, headers=own, media_type="application/json")


def _kind_of(error: LakebedError) -> tuple[int, str]:
    """Return the status and Iceberg's name of an error."""
    from lakebed.tables.iceberg.catalog_plans import UnknownTaskError, UnsupportedScanError
    from lakebed.tables.iceberg.commit_requests import UnsupportedCommitError

    if isinstance(error, UnknownTaskError):
        return 404, "NoSuchPlanTaskException"
    if isinstance(error, UnsupportedScanError | UnsupportedCommitError):
        return 406, "UnsupportedOperationException"
    if isinstance(error, CommitUnknownError):
        return 500, "CommitStateUnknownException"
    if isinstance(error, InvalidInputError | VersionNotFoundError):
        return 400, "BadRequestException"
    if isinstance(error, FormatError):
        return 422, "UnprocessableEntityException"
    if isinstance(error, StorageError):
        return 503, "ServiceUnavailableException"
    return 500, "ServiceFailureException"


def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LakebedError)
    status, kind = _kind_of(error)
    if status >= 500 or isinstance(error, FormatError):
        _log.error("request failed path=%r error=%s", request.scope["path"], error)
    return _error(status, kind, str(error))


def _answer_refusal(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.answer()


def _answer_http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        message = "This catalog is read-only."
        return _error(405, "UnsupportedOperationException", message, error.headers)
    return _error(error.status_code, "NotFoundException", "There is no such endpoint.")


def _answer_defect(_request: Request, _defect: Exception) -> Response:
    return _error(500, "ServiceFailureException", "The reason is in the log of the server.")


_ONE_NAMESPACE = "A lake has one namespace, which `lakebed serve --namespace` names."
_FORBIDDEN = _Refused(
    403,
    "ForbiddenException",
    "Writing needs a token of its own, LAKEBED_WRITE_TOKEN of the server: send it as "
    "Authorization: Bearer TOKEN.",
)
_MANY_COMMITS = _Refused(
    409,
    "CommitFailedException",
    "The server makes as many commits as it may at once; nothing was written. Try again in a moment.",
)
_BUSY = _Refused(
    503,
    "SlowDownException",
    "The server plans as many scans as it may at once. Try again in a moment.",
    headers={"retry-after": "5"},
)

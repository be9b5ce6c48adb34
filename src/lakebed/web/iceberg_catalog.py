"""A catalog of Iceberg's REST protocol over a lake, which plans scans, and commits if allowed."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from lakebed.archive.http.answers import Refusal, is_known
from lakebed.common.recent import Recent
from lakebed.errors import (
    DatasetNotFoundError,
    FormatError,
    LakebedError,
    MissingDependencyError,
)
from lakebed.model.names import is_dataset_name
from lakebed.store.root import root_of
from lakebed.web.catalog_answers import (
    BUSY,
    HEADERS,
    Refused,
    body_of,
    kind_of,
    make_error,
    make_json,
    make_response,
)
from lakebed.web.catalog_changes import CatalogChanges, accept_metrics, naming, no_table, refuse
from lakebed.web.catalog_client import is_pyiceberg
from lakebed.web.catalog_rooms import Room, Rooms
from lakebed.web.dataset_facts import Datasets
from lakebed.web.iceberg_door import IcebergDoor
from lakebed.web.limits import MAX_CATALOG_PLANS, WAIT_SECONDS

if TYPE_CHECKING:
    from lakebed.tables.iceberg.catalog_tables import ServedTable
    from lakebed.tables.iceberg.pointer_tables import PointerTable, PointerTables

_log = logging.getLogger(__name__)

ROOT = "v1"  # first part of the paths
_PREFIX = "lake"
_NAMESPACES = "/v1/{prefix}/namespaces"
_NAMESPACE = f"{_NAMESPACES}/{{namespace}}"
_TABLES = f"{_NAMESPACE}/tables"
_TABLE = f"{_TABLES}/{{table}}"
_ENDPOINTS = (
    f"GET {_NAMESPACES}",
    f"GET {_NAMESPACE}",
    f"HEAD {_NAMESPACE}",
    f"GET {_TABLES}",
    f"GET {_TABLE}",
    f"HEAD {_TABLE}",
    f"POST {_TABLE}/plan",
    f"POST {_TABLE}/tasks",
    f"POST {_TABLE}/metrics",
)
_COMMITS = f"POST {_TABLE}"
_CREATIONS = (f"POST {_NAMESPACES}", f"POST {_TABLES}")
_CHANGES = (
    f"DELETE {_NAMESPACE}",
    f"POST {_NAMESPACE}/properties",
    f"POST {_NAMESPACE}/register",
    f"DELETE {_TABLE}",
    "POST /v1/{prefix}/tables/rename",
)
_GZIP_FROM_BYTES = 1024
_GZIP_LEVEL = 1  # on a fast network a higher one takes longer than the transfer
_MAX_NAMES = 1000  # of a page that a client asks for
_MOST_KNOWN = 10_000  # names of tables
_COUNT = re.compile(r"[0-9]{1,18}")


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
            from lakebed.tables.iceberg.pointer_tables import PointerTables
    except MissingDependencyError as exc:
        raise MissingDependencyError(
            "An Iceberg catalog needs the package pyiceberg, which is not installed.",
            hint="Install it with: pip install 'lakebed[serve,iceberg]'",
            extra="iceberg",
        ) from exc
    rooms = Rooms(repository, door, is_alone=name is not None)
    pointers = PointerTables(repository.store, root_of(repository.store, door.root, s3="s3"))
    catalog = _Catalog(repository, name, door, rooms, pointers)
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


class _Catalog:
    """The handlers of the catalog of one lake."""

    def __init__(
        self,
        repository: Datasets,
        name: str | None,
        door: IcebergDoor,
        rooms: Rooms,
        pointers: PointerTables,
    ) -> None:
        self._name = name
        self._rooms = rooms
        self._pointers = pointers
        self._allowed = door.allow_writes
        self._changes = None
        if door.allow_writes is not None and door.write_token is not None:
            self._changes = CatalogChanges(
                repository,
                rooms,
                pointers,
                door.write_token.encode("ascii"),
                only_appends=door.allow_writes != "all",
                show=self._show_pointer_table,
            )
        self._planning = threading.BoundedSemaphore(MAX_CATALOG_PLANS)
        # Names of tables that clients have created, which need not be looked up as datasets first.
        self._known = Recent[str, str](_MOST_KNOWN)

    def routes(self) -> list[Route]:
        """Return the routes."""
        namespaces = f"/{ROOT}/{_PREFIX}/namespaces"
        namespace = f"{namespaces}/{{namespace}}"
        tables = f"{namespace}/tables"
        views = f"{namespace}/views"
        routes = [
            Route(f"/{ROOT}/config", self._config),
            Route(namespaces, self._list_namespaces),
            Route(namespace, self._load_namespace),
            Route(tables, self._list_tables),
            Route(f"{tables}/{{table}}", self._load_table),
            Route(f"{tables}/{{table}}/plan", self._plan, methods=["POST"]),
            Route(f"{tables}/{{table}}/tasks", self._fetch_tasks, methods=["POST"]),
            Route(f"{tables}/{{table}}/metrics", accept_metrics, methods=["POST"]),
        ]
        changes = self._changes
        if changes is None:
            return routes
        routes.append(Route(f"{tables}/{{table}}", self._commit, methods=["POST"]))
        rename = f"/{ROOT}/{_PREFIX}/tables/rename"
        handlers = [
            ("POST", namespaces, changes.create_namespace),
            ("DELETE", namespace, changes.drop_namespace),
            ("POST", f"{namespace}/properties", changes.update_namespace),
            ("POST", tables, changes.create_table),
            ("POST", f"{namespace}/register", changes.register_table),
            ("DELETE", f"{tables}/{{table}}", self._drop_table),
            ("POST", rename, changes.rename_table),
        ]
        alone = refuse("changes more than the dataset that is served", "Serve the whole lake.")
        routes += [
            Route(path, handler if self._name is None else alone, methods=[method])
            for method, path, handler in handlers
        ]
        several = refuse("commits to several tables at once", "Commit to one table at a time.")
        of_views = refuse("is about a view", "Views are queries, which a lake does not keep.")
        return [
            *routes,
            Route(f"/{ROOT}/{_PREFIX}/transactions/commit", several, methods=["POST"]),
            Route(views, of_views, methods=["GET", "POST"]),
            Route(f"{views}/{{view}}", of_views, methods=["GET", "POST", "DELETE"]),
            Route(f"{namespace}/register-view", of_views, methods=["POST"]),
            Route(f"/{ROOT}/{_PREFIX}/views/rename", of_views, methods=["POST"]),
        ]

    def _config(self, _request: Request) -> Response:
        endpoints = [*_ENDPOINTS]
        if self._changes is not None:
            endpoints.append(_COMMITS)
            if self._name is None:
                endpoints += _CREATIONS
                endpoints += _CHANGES if self._allowed == "all" else ()
        return make_json(
            {
                "defaults": {"scan-planning-mode": "server"},
                "overrides": {"prefix": _PREFIX},
                "endpoints": endpoints,
            }
        )

    def _list_namespaces(self, request: Request) -> Response:
        parent = request.query_params.get("parent", "")
        if parent:
            self._rooms.find_existing(parent)
            return make_json({"namespaces": []})
        names, following = _page(request, self._rooms.names(), is_sorted=False)
        return make_json({"namespaces": [[one] for one in names], "next-page-token": following})

    def _load_namespace(self, request: Request) -> Response:
        name = request.path_params["namespace"]
        return make_json({"namespace": [name], "properties": dict(self._rooms.properties(name))})

    def _list_tables(self, request: Request) -> Response:
        room = self._rooms.find_existing(request.path_params["namespace"])
        if self._name is not None:
            every = [self._name]
        else:
            every = sorted({*room.repository.list(), *self._pointers.list(room.folder)})
        names, following = _page(request, every)
        tables = [{"namespace": [room.namespace], "name": name} for name in names]
        return make_json({"identifiers": tables, "next-page-token": following})

    def _load_table(self, request: Request) -> Response:
        room, name = self._table(request)
        full = room.folder + name
        if self._known.get(full) and not self._pointers.is_dataset(full):
            return self._load_pointer_table(request, room, name)
        try:
            if request.method == "HEAD":
                room.repository.open(name)
                return Response(status_code=204, headers=HEADERS)
            served = room.tables.load(name)
        except DatasetNotFoundError:
            return self._load_pointer_table(request, room, name)
        return self._shown(request, served)

    def _load_pointer_table(self, request: Request, room: Room, name: str) -> Response:
        full = room.folder + name
        if self._name is not None:
            raise no_table(room.namespace, name)
        if request.method == "HEAD":
            if not self._pointers.exists(full):
                raise no_table(room.namespace, name)
            return Response(status_code=204, headers=HEADERS)
        with naming(room):
            table = self._pointers.find(full)
        if table is None:
            raise no_table(room.namespace, name)
        self._known.put(full, table.location)
        return self._show_pointer_table(request, table)

    def _show_pointer_table(self, request: Request, table: PointerTable) -> Response:
        """Return a table that a client has created; it has no location before its first commit."""
        shown = request.query_params.get("snapshots", "all") if request.method == "GET" else "all"
        identity = msgspec.json.encode([table.location, shown])
        tag = f'"{hashlib.blake2b(identity, digest_size=16).hexdigest()}"'
        headers = {**HEADERS, "cache-control": "private, no-cache", "etag": tag}
        if request.method == "GET" and is_known(request, tag):
            return Response(status_code=304, headers=headers)
        document: dict[str, Any] = {
            "metadata": _with_snapshots(table.document, shown),
            # Its manifests are the clients' own.
            "config": {"scan-planning-mode": "client"},
        }
        if table.location:
            document["metadata-location"] = table.location
        return make_json(document, headers if table.location else HEADERS)

    def _shown(self, request: Request, served: ServedTable) -> Response:
        """Return a dataset to a client that loads it."""
        client = is_pyiceberg(request.headers)
        shown = request.query_params.get("snapshots", "all")
        is_writable = self._changes is not None
        known = [served.location, served.head, shown, client, is_writable]
        identity = msgspec.json.encode(known)
        tag = f'"{hashlib.blake2b(identity, digest_size=16).hexdigest()}"'
        headers = {**HEADERS, "cache-control": "private, no-cache", "etag": tag}
        if is_known(request, tag):
            return Response(status_code=304, headers=headers)
        metadata = served.without_nulls() if client else served.metadata
        # Only virtual tables insist on it: some clients refuse tables whose configuration does.
        config = {"scan-planning-mode": "server"} if served.is_virtual else {}
        document: dict[str, Any] = {
            "metadata-location": served.location,
            "metadata": _with_snapshots(metadata, shown),
            "config": config,
        }
        return make_json(document, headers)

    async def _commit(self, request: Request) -> Response:
        assert self._changes is not None  # or there is no such route
        return await self._changes.commit(
            request, self._name_of(request), is_alone=self._name is not None
        )

    async def _drop_table(self, request: Request) -> Response:
        assert self._changes is not None  # or there is no such route
        return await self._changes.drop_table(request, self._name_of(request))

    async def _plan(self, request: Request) -> Response:
        from lakebed.tables.iceberg.catalog_plans import MAX_BODY_BYTES

        return await self._planned(request, lambda room: room.plans.plan, MAX_BODY_BYTES)

    async def _fetch_tasks(self, request: Request) -> Response:
        from lakebed.tables.iceberg.catalog_plans import MAX_TASK_BYTES

        return await self._planned(request, lambda room: room.plans.tasks, MAX_TASK_BYTES)

    async def _planned(
        self, request: Request, method: Callable[[Room], Callable[..., bytes]], max_bytes: int
    ) -> Response:
        name = self._name_of(request)
        body = await body_of(request, max_bytes)
        client = is_pyiceberg(request.headers)

        def answer() -> bytes:
            room, _ = self._table(request)
            with self._waiting():
                try:
                    return method(room)(name, body, is_pyiceberg=client)
                except DatasetNotFoundError as exc:
                    if self._name is None and self._pointers.exists(room.folder + name):
                        raise Refused(
                            406,
                            "UnsupportedOperationException",
                            "The server plans scans of datasets only. Let the client plan this "
                            "one: set its property scan-planning-mode to client.",
                        ) from exc
                    raise no_table(room.namespace, name) from exc

        return make_response(await anyio.to_thread.run_sync(answer))

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Wait until fewer than MAX_CATALOG_PLANS scans are being planned."""
        if not self._planning.acquire(timeout=WAIT_SECONDS):
            raise BUSY
        try:
            yield
        finally:
            self._planning.release()

    def _name_of(self, request: Request) -> str:
        """Return the name of a table that may be shown.

        Raises:
            Refused: It is not a legal name, or another dataset is served.
        """
        name: str = request.path_params["table"]
        if not is_dataset_name(name) or self._name not in (None, name):
            raise no_table(request.path_params["namespace"], name)
        return name

    def _table(self, request: Request) -> tuple[Room, str]:
        """Return the namespace and the name of a table that may be shown.

        Also an unknown namespace has no such table: Spark looks for tables in the namespace that a
        table's name would be.
        """
        name, namespace = self._name_of(request), request.path_params["namespace"]
        try:
            return self._rooms.find(namespace), name
        except Refused as exc:
            raise no_table(namespace, name) from exc


def _page(
    request: Request, every: Sequence[str], *, is_sorted: bool = True
) -> tuple[Sequence[str], str | None]:
    """Return the names of a page that a client asks for, and the token of the next one."""
    after = request.query_params.get("pageToken", "")
    if is_sorted:
        names = [name for name in every if name > after]
    else:  # the first one is that of the lake itself
        names = list(every)
        if after:
            names = [name for name in names[1:] if name > after or after == names[0]]
    asked = request.query_params.get("pageSize", "")
    count = min(int(asked), _MAX_NAMES) if _COUNT.fullmatch(asked) else 0
    page = names[: count or None]
    return page, page[-1] if len(page) < len(names) else None


def _with_snapshots(metadata: Mapping[str, Any], shown: str) -> dict[str, Any]:
    """Return the metadata with all snapshots, or only with those that a branch refers to."""
    if shown != "refs":
        return dict(metadata)
    named = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
    snapshots = [one for one in metadata.get("snapshots", ()) if one["snapshot-id"] in named]
    return {**metadata, "snapshots": snapshots}


def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LakebedError)
    status, kind = kind_of(error)
    if status >= 500 or isinstance(error, FormatError):
        _log.error("request failed path=%r error=%s", request.scope["path"], error)
    return make_error(status, kind, str(error))


def _answer_refusal(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.answer()


def _answer_http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        message = "This catalog is read-only."
        return make_error(405, "UnsupportedOperationException", message, error.headers)
    return make_error(error.status_code, "NotFoundException", "There is no such endpoint.")


def _answer_defect(_request: Request, _defect: Exception) -> Response:
    return make_error(500, "ServiceFailureException", "The reason is in the log of the server.")

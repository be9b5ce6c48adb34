"""Requests that change the Iceberg catalog: namespaces, and tables that clients create."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from lakebed.archive.http.gate import credentials_of, is_one_of
from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.common.shown import shown
from lakebed.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    DatasetNotFoundError,
    InvalidInputError,
    NotFoundError,
)
from lakebed.web.catalog_answers import (
    FORBIDDEN,
    HEADERS,
    MANY_COMMITS,
    UNAUTHORIZED,
    Refused,
    body_of,
    make_error,
    make_json,
)
from lakebed.web.catalog_rooms import Room, Rooms, no_namespace, plain_name
from lakebed.web.dataset_facts import Datasets
from lakebed.web.limits import MAX_CATALOG_COMMITS, WAIT_SECONDS

if TYPE_CHECKING:
    from lakebed.tables.iceberg.pointer_tables import PointerTable, PointerTables

_MAX_NAMESPACE_BYTES = 1 << 17  # of a request that creates or changes a namespace
_MAX_NAME_BYTES = 1 << 16  # of a request that renames or registers a table
_MOST_PROPERTIES = 1000
_OF_A_TABLE = re.compile(r"\b(?:exists?: |Table (?=\S+ cannot be changed))")

ShowTable = Callable[[Request, "PointerTable"], Response]


class CatalogChanges:
    """The handlers of requests that change the catalog, behind the token for writes."""

    def __init__(
        self,
        lake: Datasets,
        rooms: Rooms,
        pointers: PointerTables,
        token: bytes,
        *,
        only_appends: bool,
        show: ShowTable,
    ) -> None:
        """Allow changes.

        Args:
            lake: The lake.
            rooms: The namespaces of the catalog.
            pointers: The tables that clients create.
            token: The token for writes.
            only_appends: True refuses what takes rows or names away.
            show: Returns the response that shows a table.
        """
        self._lake = lake
        self._rooms = rooms
        self._pointers = pointers
        self._token = token
        self._only_appends = only_appends
        self._show = show
        self._running = threading.BoundedSemaphore(MAX_CATALOG_COMMITS)

    async def create_namespace(self, request: Request) -> Response:
        """Create a namespace."""

        def create(body: bytes) -> Response:
            document = _document(body)
            levels = document.get("namespace")
            if not isinstance(levels, list) or not all(isinstance(one, str) for one in levels):
                raise _malformed("its namespace is not a list of names")
            if len(levels) != 1:
                raise _unsupported(
                    f"The namespace {plain_name('.'.join(levels))} has {len(levels)} levels, and a "
                    "lake has one level of namespaces."
                )
            (name,) = levels
            if name == self._rooms.root.namespace:
                raise _namespace_exists(name)
            properties = _properties(document.get("properties") or {}, "properties")
            try:
                self._lake.namespaces.create(name, properties=properties)
            except AlreadyExistsError as exc:
                raise _namespace_exists(name) from exc
            return make_json({"namespace": [name], "properties": properties})

        return await self._changed(request, create, _MAX_NAMESPACE_BYTES)

    async def drop_namespace(self, request: Request) -> Response:
        """Drop an empty namespace."""
        name = request.path_params["namespace"]

        def drop(_body: bytes) -> Response:
            self._check_all("drops a namespace")
            room = self._rooms.find(name)
            self._check_folder(room)
            try:
                self._lake.namespaces.drop(name)
            except NotFoundError as exc:
                raise no_namespace(name) from exc
            except InvalidInputError as exc:
                raise Refused(
                    409,
                    "NamespaceNotEmptyException",
                    f"Namespace {plain_name(name)} is not empty. {exc}",
                ) from exc
            return _done()

        return await self._changed(request, drop, _MAX_NAMESPACE_BYTES)

    async def update_namespace(self, request: Request) -> Response:
        """Set and remove properties of a namespace."""
        name = request.path_params["namespace"]

        def update(body: bytes) -> Response:
            self._check_all("changes a namespace")
            document = _document(body)
            updates = _properties(document.get("updates") or {}, "updates")
            removals = document.get("removals") or []
            if not isinstance(removals, list) or not all(isinstance(one, str) for one in removals):
                raise _malformed("its removals are not a list of names")
            both = set(removals).intersection(updates)
            if both:
                raise Refused(
                    422,
                    "UnprocessableEntityException",
                    f"Property {shown(min(both))} is both set and removed.",
                )
            room = self._rooms.find(name)
            self._check_folder(room)
            try:
                before = self._lake.namespaces.properties(name)
                self._lake.namespaces.update(name, properties=updates, remove=removals)
            except NotFoundError as exc:
                raise no_namespace(name) from exc
            return make_json(
                {
                    "updated": sorted(updates),
                    "removed": sorted(one for one in set(removals) if one in before),
                    "missing": sorted(one for one in set(removals) if one not in before),
                }
            )

        return await self._changed(request, update, _MAX_NAMESPACE_BYTES)

    async def create_table(self, request: Request) -> Response:
        """Create a table, or return the metadata of one that a commit will create."""
        from lakebed.tables.iceberg.pointer_tables import MAX_TABLE_BYTES

        def create(body: bytes) -> Response:
            room = self._rooms.find_existing(request.path_params["namespace"])
            with naming(room):
                return self._show(request, self._pointers.create(room.folder, body))

        return await self._changed(request, create, MAX_TABLE_BYTES)

    async def register_table(self, request: Request) -> Response:
        """Give a name to a table whose metadata lies in the lake."""

        def register(body: bytes) -> Response:
            self._check_all("registers a table")
            room = self._rooms.find_existing(request.path_params["namespace"])
            with naming(room):
                return self._show(request, self._pointers.register(room.folder, body))

        return await self._changed(request, register, _MAX_NAME_BYTES)

    async def commit(self, request: Request, name: str, *, is_alone: bool) -> Response:
        """Commit to a table that a client has created, or to a dataset.

        Args:
            request: The request.
            name: Name of the table.
            is_alone: True if one dataset is served, and nothing else can be changed.
        """
        from lakebed.tables.iceberg.commit_requests import MAX_COMMIT_BYTES
        from lakebed.tables.iceberg.pointer_tables import MAX_TABLE_BYTES

        max_bytes = MAX_COMMIT_BYTES if is_alone else MAX_TABLE_BYTES

        def commit(body: bytes) -> Response:
            room = self._rooms.find(request.path_params["namespace"])
            if not is_alone and not self._pointers.is_dataset(room.folder + name):
                with naming(room):
                    done = self._pointers.commit(
                        room.folder + name, body, only_appends=self._only_appends
                    )
                return self._show(request, done)
            return self._commit_to_dataset(request, room, name, body)

        return await self._changed(request, commit, max_bytes)

    def _commit_to_dataset(self, request: Request, room: Room, name: str, body: bytes) -> Response:
        from lakebed.tables.iceberg.commit_requests import MAX_COMMIT_BYTES
        from lakebed.web.catalog_client import is_pyiceberg

        assert room.commits is not None  # writes are allowed
        if len(body) > MAX_COMMIT_BYTES:
            raise Refused(
                413,
                "BadRequestException",
                f"The request is longer than {MAX_COMMIT_BYTES:,} bytes.",
            )
        try:
            with naming(room):
                served = room.commits.commit(name, body)
        except DatasetNotFoundError as exc:
            raise no_table(room.namespace, name) from exc
        metadata = served.without_nulls() if is_pyiceberg(request.headers) else served.metadata
        return make_json({"metadata-location": served.location, "metadata": metadata})

    async def drop_table(self, request: Request, name: str) -> Response:
        """Drop a table or a dataset.

        Args:
            request: The request.
            name: Name of the table.
        """
        purge = request.query_params.get("purgeRequested", "false").lower() == "true"

        def drop(_body: bytes) -> Response:
            self._check_all("drops a table")
            room = self._rooms.find(request.path_params["namespace"])
            if self._pointers.is_dataset(room.folder + name):
                self._drop_dataset(room, name, purge=purge)
            else:
                with naming(room):
                    self._pointers.drop(room.folder + name, purge=purge)
            return _done()

        return await self._changed(request, drop, _MAX_NAME_BYTES)

    def _drop_dataset(self, room: Room, name: str, *, purge: bool) -> None:
        if not purge:
            raise _unsupported(
                f"{plain_name(name)} is a dataset: without its files and its history there is nothing "
                "that could be registered again. Drop it with purge, as DROP TABLE … PURGE does."
            )
        try:
            room.repository.drop(name)
        except DatasetNotFoundError as exc:
            raise no_table(room.namespace, name) from exc

    async def rename_table(self, request: Request) -> Response:
        """Rename a table that a client has created."""

        def rename(body: bytes) -> Response:
            self._check_all("renames a table")
            document = _document(body)
            old_room, old = self._identifier(document.get("source"))
            if self._pointers.is_dataset(old_room.folder + old):
                raise _unsupported(
                    f"{plain_name(old)} is a dataset, whose name is part of the key of each of its "
                    "files. Create a dataset of the other name, and copy the rows."
                )
            if not self._pointers.exists(old_room.folder + old):
                raise no_table(old_room.namespace, old)
            new_room, new = self._identifier(document.get("destination"))
            new_room = self._rooms.find_existing(new_room.namespace)
            with naming(new_room):
                self._pointers.rename(old_room.folder + old, new_room.folder + new)
            return _done()

        return await self._changed(request, rename, _MAX_NAME_BYTES)

    def _identifier(self, given: object) -> tuple[Room, str]:
        """Return the namespace and the name of a table that a request names."""
        from lakebed.model.names import check_dataset_name

        levels = given.get("namespace") if isinstance(given, dict) else None
        name = given.get("name") if isinstance(given, dict) else None
        if (
            not isinstance(levels, list)
            or not all(isinstance(one, str) for one in levels)
            or not isinstance(name, str)
        ):
            raise _malformed("it does not name a table by namespace and name")
        return self._rooms.find("\x1f".join(levels)), check_dataset_name(name)

    def _check_all(self, what: str) -> None:
        if self._only_appends:
            raise _unsupported(
                f"The server allows only appends, and the request {what}. Serve with --allow-writes "
                "all."
            )

    def _check_folder(self, room: Room) -> None:
        if not room.folder:
            raise _unsupported(
                f"The namespace {room.namespace} is the lake itself: it has no properties of its own, "
                "and cannot be dropped."
            )

    async def _changed(
        self, request: Request, make: Callable[[bytes], Response], max_bytes: int
    ) -> Response:
        self._check_token(request)
        body = await body_of(request, max_bytes)

        def answer() -> Response:
            with self._waiting():
                return make(body)

        return await anyio.to_thread.run_sync(answer)

    def _check_token(self, request: Request) -> None:
        """Check that a request has the token for writes."""
        kind, given = credentials_of(request.headers)
        if given in ("", "None"):  # as pyiceberg has it without a token
            raise UNAUTHORIZED
        if kind != "bearer" or not is_one_of(given, (self._token,)):
            raise FORBIDDEN

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Refuse a commit while too many others run; its client tries again by itself."""
        if not self._running.acquire(timeout=WAIT_SECONDS):
            raise MANY_COMMITS
        try:
            yield
        finally:
            self._running.release()


@contextmanager
def naming(room: Room) -> Iterator[None]:
    """Translate errors of tables into those of the protocol; messages name the namespace."""
    try:
        yield
    except (CommitUnknownError, DatasetNotFoundError):
        raise
    except NotFoundError as exc:
        raise Refused(404, "NoSuchTableException", _message(exc, room)) from exc
    except AlreadyExistsError as exc:
        raise Refused(409, "AlreadyExistsException", _message(exc, room)) from exc
    except ConflictError as exc:
        raise Refused(409, "CommitFailedException", _message(exc, room)) from exc


def _message(error: Exception, room: Room) -> str:
    # A table of the lake itself has the name of its namespace in Iceberg only.
    text = str(error)
    return text if room.folder else _OF_A_TABLE.sub(rf"\g<0>{room.namespace}.", text, count=1)


def no_table(namespace: str, name: str) -> Refused:
    """Return the refusal of a table that does not exist, in the words of Iceberg."""
    message = f"Table does not exist: {plain_name(namespace)}.{plain_name(name)}"
    return Refused(404, "NoSuchTableException", message)


def refuse(what: str, hint: str) -> Callable[[Request], Response]:
    """Return the handler of requests that the catalog does not do.

    Args:
        what: The request, for the message, as in "commits to several tables at once".
        hint: The remedy, as a sentence.
    """

    def answer(_request: Request) -> Response:
        message = f"This catalog does not do what the request asks for: it {what}. {hint}"
        return make_error(406, "UnsupportedOperationException", message)

    return answer


async def accept_metrics(request: Request) -> Response:
    """Accept a report of a client about a scan or a commit, which is not kept."""
    _document(await body_of(request, _MAX_NAMESPACE_BYTES * 8))
    return _done()


def _done() -> Response:
    return Response(status_code=204, headers=HEADERS)


def _document(body: bytes) -> dict[str, Any]:
    try:
        return from_json(body, dict[str, Any])
    except UNREADABLE as exc:
        raise _malformed(f"it cannot be read: {exc}") from exc


def _properties(given: object, member: str) -> dict[str, str]:
    is_text = isinstance(given, dict) and all(
        isinstance(key, str) and isinstance(value, str) for key, value in given.items()
    )
    if not isinstance(given, dict) or not is_text or len(given) > _MOST_PROPERTIES:
        raise _malformed(f"its {member} are not a map of up to {_MOST_PROPERTIES:,} texts")
    return given


def _malformed(why: str) -> Refused:
    return Refused(400, "BadRequestException", f"The request cannot be used: {why}.")


def _unsupported(message: str) -> Refused:
    return Refused(406, "UnsupportedOperationException", message)


def _namespace_exists(name: str) -> Refused:
    return Refused(409, "AlreadyExistsException", f"Namespace already exists: {plain_name(name)}")

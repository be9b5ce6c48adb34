"""Namespaces of the Iceberg catalog: the lake itself, and the folders in it that are repositories."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.common.recent import Recent
from lakebed.errors import NotFoundError
from lakebed.state.namespaces import is_namespace_name
from lakebed.store.locate import open_store
from lakebed.web.catalog_answers import Refused
from lakebed.web.dataset_facts import Datasets
from lakebed.web.iceberg_door import IcebergDoor

if TYPE_CHECKING:
    from lakebed.tables.iceberg.catalog_plans import CatalogPlans
    from lakebed.tables.iceberg.catalog_tables import CatalogTables
    from lakebed.tables.iceberg.catalog_writes import CatalogWrites

_log = logging.getLogger(__name__)

_MOST_ROOMS = 200  # namespaces whose tables are in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A namespace, and what serves its tables.

    Attributes:
        namespace: Its name.
        folder: Its folder in the lake with a trailing slash; empty for the lake itself.
        repository: Its datasets.
        tables: Loads them as tables.
        plans: Plans their scans.
        commits: Makes commits to them; None if no writes are allowed.
    """

    namespace: str
    folder: str
    repository: Datasets
    tables: CatalogTables
    plans: CatalogPlans
    commits: CatalogWrites | None


class Rooms:
    """The namespaces of a catalog, opened when they are used."""

    def __init__(self, repository: Datasets, door: IcebergDoor, *, is_alone: bool) -> None:
        """Open the lake itself.

        Args:
            repository: The lake.
            door: Options of the catalog.
            is_alone: True serves one dataset of the lake only, and so no folder in it.
        """
        self._door = door
        self._lake = repository
        self._is_alone = is_alone
        self._held = Recent[str, Room](_MOST_ROOMS)
        self.root = self._open(door.namespace, "", repository)

    def names(self) -> list[str]:
        """Return the names of all namespaces: that of the lake itself, then the others, sorted."""
        folders = [] if self._is_alone else self._lake.namespaces.list()
        if self.root.namespace in folders:
            _log.warning(
                "a namespace is hidden namespace=%s: the datasets in the root of the lake have this "
                "namespace; serve with another --namespace",
                self.root.namespace,
            )
        return [self.root.namespace, *(name for name in folders if name != self.root.namespace)]

    def find(self, namespace: str) -> Room:
        """Return a namespace, which may have been dropped since it was first used.

        Raises:
            Refused: There is none.
        """
        if namespace == self.root.namespace:
            return self.root
        held = self._held.get(namespace)
        if held is not None:
            return held
        if self._is_alone or not is_namespace_name(namespace):
            raise no_namespace(namespace)
        try:
            repository = self._lake.namespaces.open(namespace)
        except NotFoundError as exc:
            raise no_namespace(namespace) from exc
        room = self._open(namespace, f"{namespace}/", repository)
        self._held.put(namespace, room)
        return room

    def find_existing(self, namespace: str) -> Room:
        """Return a namespace that exists now.

        Raises:
            Refused: There is none.
        """
        room = self.find(namespace)
        if room.folder and not self._lake.namespaces.exists(namespace):
            raise no_namespace(namespace)
        return room

    def properties(self, namespace: str) -> Mapping[str, str]:
        """Return the properties of a namespace, with its location.

        Raises:
            Refused: There is none.
        """
        room = self.find(namespace)
        location = {"location": room.repository.uri}
        if not room.folder:
            return location
        try:
            return {**self._lake.namespaces.properties(namespace), **location}
        except NotFoundError as exc:
            raise no_namespace(namespace) from exc

    def _open(self, namespace: str, folder: str, repository: Datasets) -> Room:
        from lakebed.tables.iceberg.catalog_plans import CatalogPlans
        from lakebed.tables.iceberg.catalog_tables import CatalogTables
        from lakebed.tables.iceberg.catalog_writes import CatalogWrites

        door = self._door
        cache = None
        if door.metadata is not None:
            url = f"{door.metadata.rstrip('/')}/{folder.rstrip('/')}" if folder else door.metadata
            cache = open_store(url, storage_options=door.metadata_options)
        root = None if door.root is None else f"{door.root.rstrip('/')}/{folder}".rstrip("/")
        tables = CatalogTables(
            repository.store,
            cache=cache,
            root=root,
            is_writable=door.allow_writes is not None,
        )
        return Room(
            namespace=namespace,
            folder=folder,
            repository=repository,
            tables=tables,
            plans=CatalogPlans(tables),
            commits=None if door.allow_writes is None else CatalogWrites(tables, door.allow_writes),
        )


def no_namespace(namespace: str) -> Refused:
    """Return the refusal of a namespace that does not exist, in the words of Iceberg."""
    return Refused(
        404, "NoSuchNamespaceException", f"Namespace does not exist: {plain_name(namespace)}"
    )


def plain_name(name: str) -> str:
    r"""Return a name that a client has sent, for a message: shortened, levels joined by dots.

    >>> plain_name("web"), plain_name("a\x1fb"), plain_name("x" * 200) == "x" * 77 + "..."
    ('web', 'a.b', True)
    """
    text = name.replace("\x1f", ".")
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= 80 else f"{text[:77]}..."

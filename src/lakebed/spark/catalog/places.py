"""Names below a catalog: datasets of its namespaces, and the metadata tables of datasets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.common.recent import Recent
from lakebed.errors import DatasetNotFoundError, InvalidNameError
from lakebed.model.names import is_dataset_name
from lakebed.state.namespaces import is_namespace_name

if TYPE_CHECKING:
    from lakebed.spark.catalog.lake_tables import CatalogDataset, CatalogRepository

_KEPT_REPOSITORIES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPlace:
    """The repository or dataset that the parts of a name before the last one lead to.

    Attributes:
        repository: A repository; that of the owner, if there is one.
        owner: The dataset whose metadata table the last part names; None if the last part is the
            name of a dataset.
    """

    repository: CatalogRepository
    owner: CatalogDataset | None = None


class NamedPlaces:
    """The namespaces of a catalog.

    A name leads to a metadata table if the repository above has a dataset of the name before.
    """

    def __init__(self, root: CatalogRepository) -> None:
        """Keep the repository of the default namespace."""
        self._root = root
        self._opened = Recent[tuple[str, ...], "CatalogRepository"](_KEPT_REPOSITORIES)

    def find(self, namespace: Sequence[str]) -> NamedPlace | None:
        """Return where a name leads; None if it can lead nowhere. The folders may be missing.

        Cost:
            A read of a head for each part: that of a dataset of this name.
        """
        repository = self._root
        for position, part in enumerate(namespace):
            owner = find_dataset(repository, part)
            if owner is not None:
                is_last = position == len(namespace) - 1
                return NamedPlace(repository=repository, owner=owner) if is_last else None
            if not is_namespace_name(part):
                return None
            repository = self._below(repository, tuple(namespace[: position + 1]))
        return NamedPlace(repository=repository)

    def find_repository(self, namespace: Sequence[str]) -> CatalogRepository | None:
        """Return the repository of a namespace; None if there is none.

        Cost:
            As for `find`, and two LISTs.
        """
        if not namespace:
            return self._root
        above = self.find(namespace[:-1])
        if above is None or above.owner is not None:
            return None
        name = namespace[-1]
        if not is_namespace_name(name) or not above.repository.namespaces.exists(name):
            return None
        return self._below(above.repository, tuple(namespace))

    def _below(self, above: CatalogRepository, namespace: tuple[str, ...]) -> CatalogRepository:
        repository = self._opened.get(namespace)
        if repository is None:
            repository = above._open_folder(namespace[-1])
            self._opened.put(namespace, repository)
        return repository


def find_dataset(repository: CatalogRepository, name: str) -> CatalogDataset | None:
    """Return a dataset; None if there is none."""
    if not is_dataset_name(name):
        return None
    try:
        return repository.open(name)
    except (DatasetNotFoundError, InvalidNameError):
        return None

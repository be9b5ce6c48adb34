"""Namespaces of a repository: create, open, list, drop, and their properties."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from lakebed.common.given import given_names
from lakebed.errors import (
    AlreadyExistsError,
    CorruptMetadataError,
    InvalidInputError,
    NotFoundError,
)
from lakebed.state import namespaces

if TYPE_CHECKING:
    from lakebed.store.base import Store

_Opened = TypeVar("_Opened")  # a repository, of which this module knows nothing
_Dataset_co = TypeVar("_Dataset_co", covariant=True)


class HoldsNamespaces(Protocol[_Dataset_co]):
    """A repository, whose namespaces are repositories as well."""

    @property
    def namespaces(self) -> NamespaceGroup[Any]:
        """The folders in the repository that are repositories."""

    def list(self) -> builtins.list[str]:
        """Return the names of the datasets, sorted."""

    def open(self, name: str) -> _Dataset_co:
        """Open a dataset."""


class NamespaceGroup(Generic[_Opened]):
    """The namespaces of a repository: folders in it that are repositories themselves.

    >>> from lakebed import open_repository
    >>> lake = open_repository("memory://doctest-namespaces")
    >>> sales = lake.namespaces.create("sales", properties={"owner": "ops"})
    >>> lake.namespaces.list(), dict(lake.namespaces.properties("sales"))
    (['sales'], {'owner': 'ops'})
    >>> commit = sales.write("orders", [{"id": 1}])
    >>> lake["sales"]["orders"].count()
    1
    """

    def __init__(self, store: Store, open_folder: Callable[[str], _Opened]) -> None:
        """Use `Repository.namespaces` instead."""
        self._store = store
        self._open_folder = open_folder

    def __repr__(self) -> str:
        return f"<namespaces of {self._store.uri}>"

    def list(self) -> list[str]:
        """Return the names of all namespaces, sorted; those in another one are not among them.

        A folder is a namespace if it was created as one, or if it holds a dataset.

        Cost:
            Two LISTs of the root; for each folder that is not that of a dataset, a GET, and if it was
            not created as a namespace a LIST.
        """
        return namespaces.list_namespaces(self._store)

    def exists(self, name: str) -> bool:
        """Return whether there is a namespace of this name.

        Raises:
            InvalidNameError: The name is not legal.

        Cost:
            A GET; two LISTs if it was not created as a namespace.
        """
        return namespaces.namespace_exists(self._store, name)

    def open(self, name: str) -> _Opened:
        """Open a namespace as a repository; its descriptors are in its heads alone.

        Raises:
            NotFoundError: There is no namespace of this name; the message suggests the nearest.
            InvalidNameError: The name is not legal.

        Cost:
            As `exists`.
        """
        if not namespaces.namespace_exists(self._store, name):
            raise namespaces.namespace_not_found(self._store, name)
        return self._open_folder(name)

    def create(
        self,
        name: str,
        *,
        properties: Mapping[str, str] | None = None,
        if_exists: Literal["error", "open"] = "error",
    ) -> _Opened:
        """Create a namespace, and return it as a repository.

        Args:
            name: Letters, digits, `+`, `-` and `_`; it does not begin with `_`.
            properties: Properties of the user, text to text, with up to 64 KiB.
            if_exists: `open` returns the existing namespace, whose properties stay as they are.

        Raises:
            AlreadyExistsError: There is a namespace of this name, or a dataset.
            InvalidNameError: The name is not legal.
            InvalidInputError: The folder is a table of another format, or holds files of a dataset; or
                the properties are not text, or too large; or there is no such value of `if_exists`.
            ReadOnlyError: The store cannot be written safely.

        Cost:
            A GET, six LISTs and a conditional PUT.
        """
        if if_exists not in ("error", "open"):
            raise InvalidInputError(f"if_exists is {if_exists!r}.", hint="Give 'error' or 'open'.")
        try:
            namespaces.create_namespace(self._store, name, properties)
        except AlreadyExistsError:
            if if_exists == "error" or not namespaces.namespace_exists(self._store, name):
                raise
        return self._open_folder(name)

    def drop(self, name: str, *, if_missing: Literal["error", "ignore"] = "error") -> bool:
        """Drop a namespace that holds no dataset, no table and no namespace.

        Objects that are none of these stay in its folder.

        Args:
            name: Name of the namespace.
            if_missing: `ignore` returns False if there is none.

        Raises:
            NotFoundError: There is no namespace of this name.
            InvalidInputError: It is not empty; or there is no such value of `if_missing`.
            InvalidNameError: The name is not legal.

        Cost:
            A GET, four LISTs and a conditional PUT; a GET for each folder in it.
        """
        if if_missing not in ("error", "ignore"):
            raise InvalidInputError(
                f"if_missing is {if_missing!r}.", hint="Give 'error' or 'ignore'."
            )
        try:
            namespaces.drop_namespace(self._store, name)
        except NotFoundError:
            if if_missing == "error":
                raise
            return False
        return True

    def properties(self, name: str) -> Mapping[str, str]:
        """Return the properties of a namespace.

        Raises:
            NotFoundError: There is no namespace of this name.
            InvalidNameError: The name is not legal.
            CorruptMetadataError: They cannot be read.

        Cost:
            As `exists`.
        """
        return namespaces.load_properties(self._store, name)

    def update(
        self,
        name: str,
        *,
        properties: Mapping[str, str] | None = None,
        remove: Iterable[str] | str = (),
    ) -> Mapping[str, str]:
        """Set and remove properties of a namespace, and return all that it has now.

        Args:
            name: Name of the namespace.
            properties: Properties to set, text to text; others stay.
            remove: Names of properties to remove; missing ones are ignored.

        Raises:
            NotFoundError: There is no namespace of this name.
            InvalidInputError: A property is both set and removed; or they are not text, or too large.
            InvalidNameError: The name is not legal.
            CommitConflictError: Other writers change it all the time.

        Cost:
            A GET and a conditional PUT.
        """
        removed, updates = given_names("remove", remove), dict(properties or {})
        before = namespaces.update_properties(self._store, name, updates=updates, removals=removed)
        return {key: value for key, value in before.items() if key not in removed} | updates


def names_below(repository: HoldsNamespaces[object]) -> Iterator[str]:
    """Yield the datasets of the namespaces of a repository, each with the path of its folder.

    A namespace that cannot be opened is its path with a slash at the end.

    Cost:
        As `NamespaceGroup.list` and a LIST for each namespace.
    """
    for name in repository.namespaces.list():
        try:
            namespace = repository.namespaces.open(name)
        except CorruptMetadataError:
            yield f"{name}/"
            continue
        for dataset in (*namespace.list(), *names_below(namespace)):
            yield f"{name}/{dataset}"


def open_below(repository: HoldsNamespaces[_Dataset_co], path: str) -> _Dataset_co:
    """Open a dataset of a repository or of its namespaces by a path, as of `names_below`.

    Raises:
        DatasetNotFoundError: There is no such dataset.
        NotFoundError: There is no such namespace.
        CorruptMetadataError: A namespace cannot be read.
    """
    *folders, name = path.split("/")
    for folder in folders:
        repository = repository.namespaces.open(folder)
    return repository.open(name)

"""Namespaces of a repository: folders that are repositories themselves.

A folder is a namespace if it holds a dataset, or the marker of a namespace that was created. The
marker also holds the properties. A dropped namespace keeps its marker, with a flag: object stores cannot
delete an object under a condition, and another writer may create the namespace again.

    sales/_lakebed.namespace.json      the marker
    sales/orders.by-dataset-metadata.json
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from lakebed.common.html import shortened
from lakebed.common.shown import shown
from lakebed.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CorruptMetadataError,
    InvalidInputError,
    InvalidNameError,
    NotFoundError,
    ObjectExistsError,
    PreconditionFailedError,
)
from lakebed.model.layout import Folder, is_segment_name
from lakebed.model.names import is_dataset_name, nearest
from lakebed.state.foreign_tables import tables_at
from lakebed.state.reader import list_names
from lakebed.state.swapped_documents import busy_error, find_document, swap_document
from lakebed.state.table_pointers import list_pointers
from lakebed.store.base import Store

_log = logging.getLogger(__name__)

MARKER = "_lakebed.namespace.json"
MAX_PROPERTIES_BYTES = 64 * 1024  # of the marker, which each listing of namespaces reads

_VERSION = 1
_ATTEMPTS = 10  # of a change, while other writers change the same marker


class _Marker(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    format_version: int = _VERSION
    properties: dict[str, str] = {}
    is_dropped: bool = False


def check_namespace_name(name: object) -> str:
    """Return `name` if a namespace may have it: a name of a dataset that does not begin with `_`.

    So a namespace is always a folder directly in the root of its repository.

    Raises:
        InvalidNameError: The name is not legal.

    >>> check_namespace_name("sales")
    'sales'
    """
    if not isinstance(name, str) or not is_dataset_name(name) or name.startswith("_"):
        raise InvalidNameError(
            f"Illegal name of a namespace: {shown(name)}.",
            hint="Use up to 200 letters, digits, '+', '-' and '_', and do not begin with '_'.",
        )
    return name


def is_namespace_name(name: object) -> bool:
    """Return whether a namespace may have a name.

    >>> is_namespace_name("sales"), is_namespace_name("../sales")
    (True, False)
    """
    try:
        check_namespace_name(name)
    except InvalidNameError:
        return False
    return True


def list_namespaces(store: Store) -> list[str]:
    """Return the names of the namespaces of a repository, sorted; also those with a damaged marker.

    Cost:
        Two LISTs of the root; for each folder that is not that of a dataset, a GET, and if it has no
        marker a LIST.
    """
    datasets = set(list_names(store))
    folders = [name for name in store.folders() if is_namespace_name(name)]
    return [name for name in folders if name not in datasets and _is_listed(store, name)]


def namespace_exists(store: Store, name: str) -> bool:
    """Return whether a repository has a namespace.

    Raises:
        InvalidNameError: The name is not legal.
        CorruptMetadataError: The marker cannot be read.

    Cost:
        A GET; without a marker two LISTs.
    """
    check_namespace_name(name)
    return is_namespace(store, name)


def load_properties(store: Store, name: str) -> Mapping[str, str]:
    """Return the properties of a namespace.

    Raises:
        NotFoundError: There is no such namespace.
        InvalidNameError: The name is not legal.
        CorruptMetadataError: The marker cannot be read.

    Cost:
        As `namespace_exists`.
    """
    check_namespace_name(name)
    live = _live(_find_marker(store, name))
    if live is not None:
        return MappingProxyType(live.properties)
    if not _holds_tables(store, name):
        raise namespace_not_found(store, name)
    return MappingProxyType({})


def create_namespace(store: Store, name: str, properties: Mapping[str, str] | None = None) -> None:
    """Create a namespace: a marker in its folder.

    Raises:
        AlreadyExistsError: There is such a namespace, or a dataset of this name.
        InvalidInputError: The folder is a table of another format, or holds files of a dataset; or
            the properties are too large.
        InvalidNameError: The name is not legal.
        CommitConflictError: Other writers change the namespace all the time.
        ReadOnlyError: The store cannot be written safely.

    Cost:
        A GET, six LISTs and a conditional PUT.
    """
    check_namespace_name(name)
    _check_folder(store, name)
    content = _encode(name, _Marker(properties=dict(properties or {})))
    for _ in range(_ATTEMPTS):
        found = _find_marker(store, name)
        if _live(found) is not None or _holds_tables(store, name):
            raise AlreadyExistsError(
                f"Namespace {name!r} exists in {store.uri}.", hint="Choose another name, or use it."
            )
        if _swap_marker(store, name, content, found):
            return
    raise _busy_error(name)


def update_properties(
    store: Store, name: str, *, updates: Mapping[str, str], removals: Iterable[str] = ()
) -> Mapping[str, str]:
    """Set and remove properties of a namespace, and return those that it had before.

    Args:
        store: The store of the repository.
        name: Name of the namespace.
        updates: Properties to set, text to text.
        removals: Names of properties to remove; missing ones are ignored.

    Raises:
        NotFoundError: There is no such namespace.
        InvalidInputError: A property is both set and removed; or they are too large.
        InvalidNameError: The name is not legal.
        CommitConflictError: Other writers change the namespace all the time.

    Cost:
        A GET and a conditional PUT; without a marker two LISTs more.
    """
    check_namespace_name(name)
    removed = frozenset(removals)
    both = sorted(removed.intersection(updates))
    if both:
        raise InvalidInputError(
            f"Property {both[0]!r} of namespace {name!r} is both set and removed.",
            hint="Give it once.",
        )
    for _ in range(_ATTEMPTS):
        found = _find_marker(store, name)
        live = _live(found)
        if live is None and not _holds_tables(store, name):
            raise namespace_not_found(store, name)
        before = {} if live is None else live.properties
        kept = {key: value for key, value in before.items() if key not in removed}
        content = _encode(name, _Marker(properties=kept | dict(updates)))
        if _swap_marker(store, name, content, found):
            return MappingProxyType(before)
    raise _busy_error(name)


def drop_namespace(store: Store, name: str) -> None:
    """Drop a namespace that holds no dataset, no table and no namespace.

    Other objects in its folder stay where they are. A dataset that another writer creates in it at
    the same time makes the folder a namespace again.

    Raises:
        NotFoundError: There is no such namespace.
        InvalidInputError: It is not empty.
        InvalidNameError: The name is not legal.
        CommitConflictError: Other writers change the namespace all the time.

    Cost:
        A GET, four LISTs and a conditional PUT; a GET for each folder in it.
    """
    check_namespace_name(name)
    for _ in range(_ATTEMPTS):
        found = _find_marker(store, name)
        contents = list_contents(store, name)
        if contents:
            raise InvalidInputError(
                f"Namespace {name!r} in {store.uri} is not empty: it holds {shortened(contents)}.",
                hint="Drop each of these first.",
            )
        if _live(found) is None:
            raise namespace_not_found(store, name)
        if _swap_marker(store, name, _encode(name, _Marker(is_dropped=True)), found):
            return
    raise _busy_error(name)


def list_contents(store: Store, name: str) -> list[str]:
    """Return the names of the datasets, tables and namespaces in a namespace, sorted.

    Cost:
        Three LISTs, and a GET for each table of Iceberg and each folder that is not of a dataset.
    """
    folder = f"{name}/"
    tables = {*list_names(store, folder), *list_pointers(store, folder)}
    inner = {
        child
        for child in store.folders(folder)
        if child not in tables and is_namespace_name(child) and is_marked(store, folder + child)
    }
    return sorted(tables | inner)


def namespace_not_found(store: Store, name: str) -> NotFoundError:
    """Return the error for a namespace that does not exist, which suggests the nearest name.

    Cost:
        As `list_namespaces`.
    """
    return NotFoundError(
        f"Namespace {name!r} not found in {store.uri}.",
        hint=nearest(name, list_namespaces(store)) or "Create it first.",
    )


def is_marked(store: Store, folder: str) -> bool:
    """Return whether a folder has the marker of a namespace that was not dropped.

    Cost:
        A GET.
    """
    return _live(_find_marker(store, folder)) is not None


def was_namespace(store: Store, folder: str) -> bool:
    """Return whether a folder is a namespace, or was one that has been dropped.

    Cost:
        As `is_namespace`.
    """
    return _find_marker(store, folder) is not None or is_namespace(store, folder)


def is_namespace(store: Store, folder: str) -> bool:
    """Return whether a folder is a namespace, without a check of its name.

    Cost:
        A GET; without a marker two LISTs.
    """
    return is_marked(store, folder) or _holds_tables(store, folder)


def _is_listed(store: Store, folder: str) -> bool:
    try:
        return is_namespace(store, folder)
    except CorruptMetadataError as exc:
        # One damaged marker does not hide the others; opening the namespace names the damage.
        _log.warning("the marker of a namespace cannot be read folder=%s error=%s", folder, exc)
        return True


def _holds_tables(store: Store, name: str) -> bool:
    """Return whether a folder holds a dataset, or a table that a pointer names."""
    return bool(list_names(store, f"{name}/") or list_pointers(store, f"{name}/"))


def _check_folder(store: Store, name: str) -> None:
    """Check that the folder of a new namespace is not that of a dataset or of a table."""
    if name in list_names(store):
        raise AlreadyExistsError(
            f"{name!r} is a dataset in {store.uri}, and cannot be a namespace also.",
            hint="Choose another name.",
        )
    table = next((format_ for format_, _ in tables_at(store, name)), None)
    history = Folder.HISTORY.of(name)
    keys = (info.key for info in store.list(history, recursive=False))
    if table is None and not any(is_segment_name(key.rpartition("/")[2]) for key in keys):
        return
    held = "files of a dataset" if table is None else f"a table of {table}"
    raise InvalidInputError(
        f"{name!r} cannot be a namespace in {store.uri}: its folder holds {held}.",
        hint="Choose another name.",
    )


def _key(folder: str) -> str:
    return f"{folder}/{MARKER}"


def _find_marker(store: Store, folder: str) -> tuple[_Marker, str] | None:
    """Return the marker of a namespace, and its etag; None if the folder has none."""
    remedy = "Delete it: the namespace keeps its datasets, and loses its properties."
    return find_document(store, _key(folder), _Marker, version=_VERSION, remedy=remedy)


def _live(found: tuple[_Marker, str] | None) -> _Marker | None:
    """Return a marker that was found, unless its namespace was dropped."""
    return None if found is None or found[0].is_dropped else found[0]


def _swap_marker(
    store: Store, name: str, content: bytes, found: tuple[_Marker, str] | None
) -> bool:
    """Put a marker in the place of the one that was found; return whether nobody was faster."""
    try:
        swap_document(store, _key(name), content, None if found is None else found[1])
    except (ObjectExistsError, PreconditionFailedError):
        return False
    return True


def _encode(name: str, marker: _Marker) -> bytes:
    for key, value in marker.properties.items():
        if not isinstance(key, str) or not isinstance(value, str) or not key:
            raise InvalidInputError(
                f"Property {shown(key)} of namespace {name!r} is not text.",
                hint="Give names and values as text.",
            )
    try:
        content = msgspec.json.encode(marker)
    except UnicodeEncodeError as exc:
        raise InvalidInputError(
            f"A property of namespace {name!r} cannot be written as UTF-8.",
            hint="Leave out halves of surrogate pairs.",
        ) from exc
    if len(content) > MAX_PROPERTIES_BYTES:
        raise InvalidInputError(
            f"The properties of namespace {name!r} need {len(content):,} bytes.",
            hint=f"They may have {MAX_PROPERTIES_BYTES:,}: shorten them.",
        )
    return content


def _busy_error(name: str) -> CommitConflictError:
    return busy_error(f"Namespace {name!r}", _ATTEMPTS)

"""Signs that a directory belongs to a table of another format, whose log names the live files.

Files that the log of such a table does not name hold rows that were deleted or replaced. Adopted as
plain files, they would bring these rows back.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lakebed.errors import InvalidInputError, LakebedError, ObjectNotFoundError
from lakebed.model.keys import is_own_name
from lakebed.model.layout import JSON_SUFFIX, MSGPACK_SUFFIX, TABLE
from lakebed.model.table_signs import HUDI_FOLDER, TableFormat, table_of
from lakebed.state.foreign_tables import tables_at
from lakebed.store.base import Store

_log = logging.getLogger(__name__)

_HEADS = (JSON_SUFFIX, MSGPACK_SUFFIX)

OpenStore = Callable[[str], Store]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSign:
    """A sign of a table.

    Attributes:
        format: Format of the table.
        home: URL of the table's directory.
        key: URL of the object that is the sign.
    """

    format: TableFormat
    home: str
    key: str


def check_plain(store: Store, name: str, open_store: OpenStore, known: TableFormat | None) -> None:
    """Check that a directory belongs to no table other than the known one.

    Args:
        store: The store of the repository.
        name: Name of the directory.
        open_store: Opens another location with the same options.
        known: Format of the table that lies in this very directory, if there is one.

    Raises:
        InvalidInputError: There is a table in the directory, below it, or above it.

    Cost:
        A LIST of the directory, and up to four for each directory above it.
    """
    home = f"{store.uri}/{name}"
    for sign in _signs(store, name, open_store):
        if sign.format is not known or sign.home != home:
            raise _not_plain(home, sign)


def _not_plain(home: str, sign: TableSign) -> InvalidInputError:
    parent, _, directory = sign.home.rpartition("/")
    is_elsewhere = sign.home != home
    place = f" {directory!r} in the repository {parent}" if is_elsewhere else ""
    if sign.format.adopting:
        hint = f"Take over the live files of the table{place}: {sign.format.adopting}."
    elif sign.format is TableFormat.LAKEBED:
        hint = f"Open{place or ' it'} instead; restore its head if that is missing."
    else:
        hint = f"Read its rows with Spark and the jar of {sign.format}, and append them."
    return InvalidInputError(
        f"{home} cannot be adopted as plain files: {sign.key} shows that {sign.home} is a table "
        f"of {sign.format}, whose files may hold rows that were deleted or replaced.",
        hint=hint,
    )


def _signs(store: Store, name: str, open_store: OpenStore) -> Iterator[TableSign]:
    yield from _inside(store, name)
    if not store.is_shared:
        return
    root = store.uri
    yield from _hidden(f"{root}/{name}", store.local_path(name), open_store)
    yield from _at(store, root, open_store)
    below = root
    for uri in _above(root):
        try:
            above = open_store(uri)
            yield from _heads(above, uri, below.rpartition("/")[2])
            yield from _at(above, uri, open_store)
        except LakebedError as exc:
            # Access may end at the repository.
            _log.info("cannot look for tables above a repository uri=%s: %s", uri, exc.message)
            return
        below = uri


def _inside(store: Store, name: str) -> Iterator[TableSign]:
    """Yield the signs in a listing of the directory."""
    for info in store.list(f"{name}/"):
        *levels, file = info.key.split("/")
        found = table_of(info.key)
        suffix = next(filter(file.endswith, _HEADS), None)
        if suffix is not None:
            found = TableFormat.LAKEBED, info.key.removesuffix(suffix)
        elif levels[1:2] == [TABLE] and is_own_name(file.partition(".")[0]):
            found = TableFormat.LAKEBED, name
        if found is not None:
            format_, home = found
            yield TableSign(
                format=format_, home=f"{store.uri}/{home}", key=f"{store.uri}/{info.key}"
            )


def _at(store: Store, uri: str, open_store: OpenStore) -> Iterator[TableSign]:
    """Yield the signs that a directory above that of a dataset is a table."""
    for format_, key in tables_at(store):
        yield TableSign(format=format_, home=uri, key=f"{uri}/{key}")
    yield from _hidden(uri, None, open_store)


def _heads(store: Store, uri: str, name: str) -> Iterator[TableSign]:
    for suffix in _HEADS:
        try:
            store.size(f"{name}{suffix}")
        except (ObjectNotFoundError, InvalidInputError):
            continue
        yield TableSign(
            format=TableFormat.LAKEBED, home=f"{uri}/{name}", key=f"{uri}/{name}{suffix}"
        )


def _hidden(uri: str, path: Path | None, open_store: OpenStore) -> Iterator[TableSign]:
    """Yield the folders of Hudi, which begin with a dot."""
    homes: Iterable[str] = [uri]
    if path is not None:
        homes = (
            uri + folder.removeprefix(str(path))
            for folder, inner, _ in os.walk(path)
            if HUDI_FOLDER in inner
        )
    for home in homes:
        hidden = f"{home}/{HUDI_FOLDER}"
        if next(iter(open_store(hidden).list("")), None) is not None:
            yield TableSign(format=TableFormat.HUDI, home=home, key=hidden)


def _above(uri: str) -> list[str]:
    """Return the directories above a URL, nearest first, and up to the bucket at most."""
    scheme, _, path = uri.partition("://")
    parts = path.split("/")
    least = 2 if scheme == "file" else 1
    return [f"{scheme}://{'/'.join(parts[:end])}" for end in range(len(parts) - 1, least - 1, -1)]

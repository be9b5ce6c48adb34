"""The directories that tables of a metastore show, which a cleanup must not delete.

Publications note the versions that a table may show. Only the metastore knows of partitions that
users have moved by their own statements.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakebed.errors import InvalidInputError, MissingDependencyError, StorageError
from lakebed.model.publishing import TableName
from lakebed.store.base import Store
from lakebed.tables.hive.metastore import Metastore
from lakebed.tables.hive.metastore_session import session_of
from lakebed.tables.hive.to_hive import owner_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=/)")
_HINT = (
    "Name the metastore: metastore=…, on the command line --metastore or --warehouse. Or rely on the "
    "notes of publications, if no partition was moved by hand: published='noted', "
    "--published noted."
)


def shown_directories(
    store: Store,
    dataset: str,
    metastore: SparkSession | str | os.PathLike[str] | None,
    tables: Sequence[str],
) -> Mapping[str, str]:
    """Return the directories of a dataset that tables show, each with the name of a table.

    Locations are compared by the names in their paths alone, because one storage can have many
    URLs: `s3` and `s3a`, mounts, links. So a directory of the same name in another repository
    counts too, which only keeps more.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        metastore: As for `Dataset.publish`.
        tables: Names of the tables, as `database.table`.

    Raises:
        InvalidInputError: There is no metastore, or it lacks one of the tables, or a table shows
            something else.
        StorageError: The metastore failed.

    Cost:
        Some calls for each table; without a JVM in this process, one for each partition.
    """
    named = ", ".join(tables)
    try:
        session = session_of(metastore)
    except (InvalidInputError, MissingDependencyError) as exc:
        raise InvalidInputError(
            f"Dataset {dataset!r} is published as {named}, whose files must stay: {exc.message}",
            hint=f"Nothing was deleted. {_HINT}",
        ) from exc
    shown: dict[str, str] = {}
    for table in tables:
        try:
            locations = _locations(session, TableName.parse(table), store, dataset)
        except StorageError as exc:
            raise StorageError(
                exc.message,
                hint="Nothing was deleted. Clean up again when the metastore answers.",
                retryable=exc.retryable,
            ) from exc
        for location in locations:
            shown.update(dict.fromkeys(directories_in(location, store.uri, dataset), table))
    return shown


def _locations(session: SparkSession, name: TableName, store: Store, dataset: str) -> Iterable[str]:
    metastore = Metastore(session, name)
    with metastore.settings():
        table = metastore.find()
        if table is None or owner_of(table) != f"{store.uri}/{dataset}":
            reason = "is missing from" if table is None else "shows something else in"
            raise InvalidInputError(
                f"Dataset {dataset!r} is published as {name}, which {reason} this metastore.",
                hint=f"Nothing was deleted. If the table was dropped, unpublish it. Else: {_HINT}",
            )
        if not table.columns.keys:
            return (table.location,)
        return metastore.locations(table.columns.keys).values()


def directories_in(location: str, root: str, dataset: str) -> Iterator[str]:
    """Yield the keys of the dataset's directories that a location may name.

    Args:
        location: Location as the metastore returns it.
        root: The URI of the repository.
        dataset: Name of the dataset.

    >>> sorted(directories_in("s3a://b/lake/d/data/p=a%20b/batch_id=1", "s3://b/lake", "d"))
    ['d/data/p=a b/batch_id=1', 'd/data/p=a%20b/batch_id=1']
    >>> set(directories_in("file:/lake", "file:///lake", "d"))
    {'d'}
    >>> list(directories_in("file:/elsewhere/data", "file:///lake", "d"))
    []
    """
    of_root = _names(root)
    for text in dict.fromkeys(_spellings(location)):
        names = _names(text)
        # A location above the dataset: readers may reach all its directories. The host is optional.
        if names in (of_root[: len(names)], of_root[1 : len(names) + 1]):
            yield dataset
        for position, name in enumerate(names):
            if name == dataset:
                yield "/".join(names[position:])


def _spellings(location: str) -> Iterator[str]:
    for text in (location, unquote(location)):
        yield text
        if text.startswith(("/", "file:")):
            yield os.path.realpath("/" + "/".join(_names(text)))


def _names(location: str) -> list[str]:
    """Return the names in a path or URL, including the host or bucket."""
    names: list[str] = []
    for name in _SCHEME.sub("", location).split("/"):
        if name == "..":
            names = names[:-1]
        elif name not in ("", "."):
            names.append(name)
    return names

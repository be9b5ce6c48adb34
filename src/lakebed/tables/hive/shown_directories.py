"""Which directories tables of a metastore show: what a cleanup must ask before it deletes.

Publications note which versions a table may show. Whoever moves a partition by a statement of
their own tells only the metastore.
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
    "Name the metastore: metastore=…, on the command line --metastore or --warehouse. Or go by what "
    "publications have noted, if nobody has moved a partition by hand: published='noted', "
    "--published noted."
)


def shown_directories(
    store: Store,
    dataset: str,
    metastore: SparkSession | str | os.PathLike[str] | None,
    tables: Sequence[str],
) -> Mapping[str, str]:
    """Return the directories of a dataset that tables show, each with the name of a table.

    A location is compared by the names in its path alone, since a storage has many: `s3` and `s3a`,
    mounts, links. So a directory of the same name in another repository counts too, which only
    keeps more.

    Args:
        store: Where the dataset is.
        dataset: Its name.
        metastore: As for `Dataset.publish`.
        tables: As `database.table`.

    Raises:
        InvalidInputError: There is no metastore to ask, or it lacks one of the tables, or that is
            not of the dataset.
        StorageError: The metastore failed.

    Cost:
        Some calls a table; without a JVM in this process one for each partition.
    """
    named = ", ".join(tables)
    try:
        session = session_of(metastore)
    except (InvalidInputError, MissingDependencyError) as exc:
        raise InvalidInputError(
            f"Dataset {dataset!r} is published as {named}, and what that shows must stay: {exc.message}",
            hint=f"Nothing was deleted. {_HINT}",
        ) from exc
    shown: dict[str, str] = {}
    for table in tables:
        try:
            locations = _locations(session, TableName.parse(table), store, dataset)
        except StorageError as exc:
            raise StorageError(
                exc.message,
                hint="Nothing was deleted. Clean up when the metastore answers.",
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
            what = "is not there" if table is None else "shows something else"
            raise InvalidInputError(
                f"Dataset {dataset!r} is published as {name}, which {what} in the metastore that was "
                "asked.",
                hint=f"Nothing was deleted. If the table was dropped, unpublish it. Else: {_HINT}",
            )
        if not table.columns.keys:
            return (table.location,)
        return metastore.locations(table.columns.keys).values()


def directories_in(location: str, root: str, dataset: str) -> Iterator[str]:
    """Yield what directories of a dataset a location may name, as keys.

    Args:
        location: As a metastore tells it.
        root: The URI of the repository.
        dataset: Its name.

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
        # Above the dataset: a reader may go down to all that it holds. The host may be left out.
        if names in (of_root[: len(names)], of_root[1 : len(names) + 1]):
            yield dataset
        for place, name in enumerate(names):
            if name == dataset:
                yield "/".join(names[place:])


def _spellings(location: str) -> Iterator[str]:
    for text in (location, unquote(location)):
        yield text
        if text.startswith(("/", "file:")):
            yield os.path.realpath("/" + "/".join(_names(text)))


def _names(location: str) -> list[str]:
    """Return the names in a path or URL, that of a host or bucket too."""
    names: list[str] = []
    for name in _SCHEME.sub("", location).split("/"):
        if name == "..":
            names = names[:-1]
        elif name not in ("", "."):
            names.append(name)
    return names

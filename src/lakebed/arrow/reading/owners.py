"""Datasets and tables that own raw files: their metadata lists the files that count."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from lakebed.errors import InvalidInputError, LakebedError, ObjectNotFoundError
from lakebed.model.layout import DELTA_LOG, JSON_SUFFIX, MSGPACK_SUFFIX
from lakebed.model.table_signs import HUDI_FOLDER, ICEBERG_FOLDER, TableFormat, table_of
from lakebed.state.foreign_tables import tables_at
from lakebed.store.locate import open_store

_log = logging.getLogger(__name__)

_HEADS = (JSON_SUFFIX, MSGPACK_SUFFIX)


def check_no_owner(given: str, locations: Iterable[str], keys: Iterable[str]) -> None:
    """Check that files found by a search belong to no dataset or table, where some may be dead.

    Args:
        given: Location of the search.
        locations: Paths or URLs of the files that were found.
        keys: Paths or URLs of objects beside and above the files.

    Raises:
        InvalidInputError: A file lies in a dataset of Lakebed or Kartothek, or in a table of Delta,
            Iceberg or Hudi.
    """
    found = [location.replace("\\", "/") for location in locations]
    for key in keys:
        owner = _owner_of(key.replace("\\", "/"))
        if owner is not None and any(path.startswith(f"{owner[1]}/") for path in found):
            raise _owned(given, key, *owner)


def _owner_of(key: str) -> tuple[TableFormat, str] | None:
    suffix = next(filter(key.endswith, _HEADS), None)
    if suffix is not None:
        return TableFormat.LAKEBED, key.removesuffix(suffix)
    return table_of(key)


def _owned(given: str, key: str, format_: TableFormat, home: str) -> InvalidInputError:
    parent, _, name = home.rpartition("/")
    if format_ is TableFormat.LAKEBED:
        owner = "a dataset of Lakebed or Kartothek"
        way = (
            f"Read it as a dataset: open_repository({parent!r})[{name!r}], on the command line "
            f"`lakebed query {home}`."
        )
    else:
        owner = f"a table of {format_}"
        way = "Read its rows by a library of the format, and append them."
    if format_.adopting:
        way += f" Or take it over: {format_.adopting}."
    return InvalidInputError(
        f"Cannot read the files in {given!r}: {key!r} shows that {home!r} is {owner}, so that files "
        "in it may hold rows which were deleted or replaced.",
        hint=f"{way} Files that are named one by one are read.",
    )


def keys_near(locations: Iterable[str]) -> Iterator[str]:
    """Yield the metadata of datasets and tables beside and above local files."""
    folders = {Path(folder) for folder in set(map(os.path.dirname, locations))}
    homes = folders.union(*(folder.parents for folder in folders))
    for home in sorted(homes):
        for pattern in (f"{DELTA_LOG}/*", f"{HUDI_FOLDER}/*", f"{ICEBERG_FOLDER}/*"):
            yield from (path.as_posix() for path in home.glob(pattern))
        heads = (home.parent / f"{home.name}{suffix}" for suffix in _HEADS if home.name)
        yield from (head.as_posix() for head in heads if head.is_file())


def keys_above(url: str, options: Mapping[str, str]) -> Iterator[str]:
    """Yield the metadata of datasets and tables beside and above a folder of a store.

    Cost:
        Two HEADs and two LISTs for each folder above, until access ends.
    """
    below = url.rstrip("/")
    while True:
        above, _, name = below.rpartition("/")
        if above.endswith(":/") or not above:  # `below` is the bucket
            return
        try:
            store = open_store(above, storage_options=options)
            for suffix in _HEADS:
                try:
                    store.size(f"{name}{suffix}")
                except (ObjectNotFoundError, InvalidInputError):
                    continue
                yield f"{above}/{name}{suffix}"
            yield from (f"{above}/{key}" for _, key in tables_at(store))
        except LakebedError as exc:
            _log.info("cannot look for tables above a folder uri=%s: %s", above, exc.message)
            return
        below = above

"""How large the files of a plan are, as the storage says: what Spark must be told of to read them.

The file table knows sizes too. But from one that is too small Spark drops rows without a word, so
that none is believed that the storage has not said now. Listings say it of a thousand files at a
time, where those that are looked for lie together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from posixpath import commonpath

from lakebed.errors import CorruptMetadataError, ObjectNotFoundError
from lakebed.store.at_once import at_once
from lakebed.store.base import ObjectInfo, Store

_THREADS = 32
_FEW_FILES = 32  # a look at each takes one round of requests, and a listing no less
_FILES_A_FOLDER = 8  # on average, for which each folder is worth a request
_PAGE = 1_000  # objects that one request lists
_SHOWN_A_FILE = 4  # objects in a listing, before a look at each file costs less


def look_at(store: Store, keys: Sequence[str]) -> list[ObjectInfo]:
    """Return what a store says of files, in their order.

    Raises:
        CorruptMetadataError: One is missing.

    Cost:
        In a directory a look at each file. Elsewhere a LIST for each 1,000 files that lie together,
        and a HEAD, of which 32 run at once, for each that does not.
    """
    if store.local_path(keys[0]) is not None:
        return [_look(store, key) for key in keys]
    known = _listed(store, keys) if len(keys) > _FEW_FILES else {}
    others = [key for key in keys if key not in known]
    for info in at_once(lambda key: _look(store, key), others, _THREADS):
        known[info.key] = info
    return [known[key] for key in keys]


def _look(store: Store, key: str) -> ObjectInfo:
    try:
        return store.stat(key)
    except ObjectNotFoundError as exc:
        raise CorruptMetadataError(
            f"Data file {store.uri}/{key} is missing.",
            hint="A cleanup deletes files of older versions. If `check` misses it in the current "
            "version, it was deleted from outside.",
        ) from exc


def _listed(store: Store, keys: Sequence[str]) -> dict[str, ObjectInfo]:
    """Return what listings tell of files, as long as they show little else."""
    by_folder: dict[str, set[str]] = defaultdict(set)
    for key in keys:
        by_folder[key.rpartition("/")[0]].add(key)
    folders: Mapping[str, Collection[str]] = by_folder
    if len(keys) < _FILES_A_FOLDER * len(by_folder):
        folders = {commonpath(keys): set(keys)}

    def listed(folder: str) -> dict[str, ObjectInfo]:
        wanted, found = folders[folder], {}
        shown = islice(store.list(folder), max(_PAGE, _SHOWN_A_FILE * len(wanted)))
        for info in shown:
            if info.key in wanted:
                found[info.key] = info
                if len(found) == len(wanted):
                    break
        return found

    every: dict[str, ObjectInfo] = {}
    for found in at_once(listed, list(folders), _THREADS):
        every |= found
    return every

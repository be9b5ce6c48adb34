"""Metadata files of an Iceberg table beside the data that no reader needs any more.

By what the storage says of their times, and what the lists of manifests name. A reader holds the
snapshot that was the table's when it began: its list, its manifests, and one metadata file.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Callable, Sequence

from lakebed.errors import CorruptMetadataError, LakebedError, ObjectNotFoundError
from lakebed.state.published import LEASE, LEASE_MARGIN, OldMetadata
from lakebed.store.base import ObjectInfo, Store
from lakebed.tables.iceberg.library_errors import importing_pyiceberg
from lakebed.tables.iceberg.metadata_names import metadata_folder, number_of

_log = logging.getLogger(__name__)

_LIST = re.compile(r"snap-[0-9]+-[0-9]+-[0-9a-f]{32}\.avro")
_MANIFEST = re.compile(r"[0-9a-f]{32}-m[0-9]+\.avro")


def dead_keys(
    store: Store, dataset: str, objects: Sequence[ObjectInfo], cutoff: dt.datetime
) -> OldMetadata:
    """Return what of a table's metadata readers who began after a moment cannot need.

    Where that cannot be proven, as where pyiceberg is not installed, nothing is dead.

    Args:
        store: Where the dataset is.
        dataset: Its name.
        objects: Of the dataset, as listed.
        cutoff: What was replaced by then is dead.

    Cost:
        Nothing without such a table; else its metadata files that were replaced by then and the
        current one, and each list of manifests.
    """
    folder = f"{metadata_folder(dataset)}/"
    files = {info.key[len(folder) :]: info for info in objects if info.key.startswith(folder)}
    numbered = sorted((number, n) for n in files if (number := number_of(n)) is not None)
    if not numbered:
        return OldMetadata()
    try:
        with importing_pyiceberg():
            from lakebed.tables.iceberg.homes import named_lists, named_manifests
    except LakebedError as exc:
        _log.warning("metadata of Iceberg is kept dataset=%s: %s", dataset, exc)
        return OldMetadata()
    # Nothing that is younger may be taken for dead: its publisher may be about to name it.
    oldest = dt.datetime.now(dt.UTC) - LEASE - LEASE_MARGIN
    unreadable: dict[str, str] = {}

    def named_by(name: str, read: Callable[[str], Sequence[str]]) -> set[str]:
        """Return the names of what an object leads to; what cannot be read leads to nothing known."""
        try:
            return {place.rpartition("/")[2] for place in read(f"{folder}{name}")}
        except CorruptMetadataError as exc:
            unreadable[f"{folder}{name}"] = exc.message
            _log.warning("metadata of Iceberg is kept dataset=%s: %s", dataset, exc)
            return set()

    def lists_in(name: str) -> set[str]:
        return named_by(name, lambda key: named_lists(store.get(key).data, key))

    def manifests_in(name: str) -> set[str]:
        return named_by(name, lambda key: named_manifests(store, key))

    old = [name for _, name in numbered[:-1] if files[name].modified_at <= cutoff]
    lists = sorted((n for n in files if _LIST.fullmatch(n)), key=lambda n: files[n].modified_at)
    past = [name for name in lists if files[name].modified_at <= cutoff][:-1]
    try:
        named = lists_in(numbered[-1][1])
        if unreadable:
            return OldMetadata(unreadable=unreadable)  # what it names may be anything
        were_named = {place for name in old for place in lists_in(name)}
        unreadable.clear()  # whatever they have named, nobody reads them any more
        dead_lists = {
            name
            for name in past
            if name not in named and (name in were_named or files[name].modified_at <= oldest)
        }
        live = {place for name in {*lists, *named} - dead_lists for place in manifests_in(name)}
        is_known = not unreadable
        were_listed = {place for name in dead_lists for place in manifests_in(name)}
    except ObjectNotFoundError:
        return OldMetadata()  # a publication or a cleanup is at work: the next one will find it
    manifests = {
        name
        for name, info in files.items()
        if is_known
        and _MANIFEST.fullmatch(name)
        and name not in live
        and info.modified_at <= cutoff
        and (name in were_listed or info.modified_at <= oldest)
    }
    # The last metadata file before the moment may have been opened after it.
    dead = frozenset(f"{folder}{name}" for name in (*old[:-1], *dead_lists, *manifests))
    kept = {key: why for key, why in unreadable.items() if key not in dead}
    return OldMetadata(dead=dead, unreadable=kept)

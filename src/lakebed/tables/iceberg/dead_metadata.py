"""Metadata files of an Iceberg table beside the data that readers no longer need.

They are found by their times on storage and by the names in lists of manifests. A reader uses the
snapshot that was current when it began: its list, its manifests, and one metadata file.
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
from lakebed.tables.iceberg.metadata_names import is_upload, metadata_folder, number_of

UPLOAD_LEASE = dt.timedelta(days=1)  # of a client that uploads files, until it commits

_log = logging.getLogger(__name__)

_LIST = re.compile(r"snap-[0-9]+-[0-9]+-[0-9a-f]{32}\.avro")
# Those of the leaves of a tree have three numbers.
_MANIFEST = re.compile(r"(?:[0-9a-f]{32}-){1,3}m[0-9]+\.avro")


def dead_keys(
    store: Store,
    dataset: str,
    objects: Sequence[ObjectInfo],
    cutoff: dt.datetime,
    *,
    uploads_kept: dt.timedelta = UPLOAD_LEASE,
) -> OldMetadata:
    """Return the metadata files of a table that readers begun after the cutoff do not need.

    No such file is dead if that cannot be proven, for example without pyiceberg. What clients of
    the catalog have uploaded is dead after the cutoff: the rows of those that have committed are in
    data files of the dataset, and the others are gone.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        objects: The objects of the dataset, as listed.
        cutoff: Metadata that was replaced before this time is dead.
        uploads_kept: Time for which a client may be about to commit what it has uploaded.

    Cost:
        Nothing without such a table; else the current metadata file, those that were replaced
        before the cutoff, and each list of manifests.
    """
    return OldMetadata(dead=_uploads(dataset, objects, cutoff, uploads_kept)) | _old_metadata(
        store, dataset, objects, cutoff
    )


def _uploads(
    dataset: str, objects: Sequence[ObjectInfo], cutoff: dt.datetime, kept: dt.timedelta
) -> frozenset[str]:
    oldest = min(cutoff, dt.datetime.now(dt.UTC) - kept)
    return frozenset(
        info.key for info in objects if is_upload(info.key, dataset) and info.modified_at <= oldest
    )


def _old_metadata(
    store: Store, dataset: str, objects: Sequence[ObjectInfo], cutoff: dt.datetime
) -> OldMetadata:
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
    # Younger files may not be treated as dead: their publisher may be about to name them.
    oldest = dt.datetime.now(dt.UTC) - LEASE - LEASE_MARGIN
    unreadable: dict[str, str] = {}

    def named_by(name: str, read: Callable[[str], Sequence[str]]) -> set[str]:
        """Return the names that an object holds, or none (and a warning) if it cannot be read."""
        try:
            return {location.rpartition("/")[2] for location in read(f"{folder}{name}")}
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
            return OldMetadata(unreadable=unreadable)  # it may name any of the files
        were_named = {location for name in old for location in lists_in(name)}
        unreadable.clear()  # old metadata files are not read any more, so these do not matter
        dead_lists = {
            name
            for name in past
            if name not in named and (name in were_named or files[name].modified_at <= oldest)
        }
        live = {
            location for name in {*lists, *named} - dead_lists for location in manifests_in(name)
        }
        is_known = not unreadable
        were_listed = {location for name in dead_lists for location in manifests_in(name)}
    except ObjectNotFoundError:
        return OldMetadata()  # a publication or cleanup is running; the next cleanup deletes them
    manifests = {
        name
        for name, info in files.items()
        if is_known
        and _MANIFEST.fullmatch(name)
        and name not in live
        and info.modified_at <= cutoff
        and (name in were_listed or info.modified_at <= oldest)
    }
    # The last metadata file before the cutoff may have been opened after it.
    dead = frozenset(f"{folder}{name}" for name in (*old[:-1], *dead_lists, *manifests))
    kept = {key: why for key, why in unreadable.items() if key not in dead}
    return OldMetadata(dead=dead, unreadable=kept)

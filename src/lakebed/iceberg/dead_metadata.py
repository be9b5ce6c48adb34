"""Metadata files of an Iceberg table beside the data that no reader needs any more.

By what the storage says of their times, and what the lists of manifests name. A reader holds the
snapshot that was the table's when it began: its list, its manifests, and one metadata file.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Sequence

from lakebed.errors import LakebedError, ObjectNotFoundError
from lakebed.iceberg.importing import importing_pyiceberg
from lakebed.model.layout import Folder
from lakebed.state.published import LEASE, LEASE_MARGIN
from lakebed.store.base import ObjectInfo, Store

_log = logging.getLogger(__name__)

_METADATA = re.compile(r"v([0-9]{1,18})\.metadata\.json")
_LIST = re.compile(r"snap-[0-9]+-[0-9]+-[0-9a-f]{32}\.avro")
_MANIFEST = re.compile(r"[0-9a-f]{32}-m[0-9]+\.avro")


def dead_keys(
    store: Store, dataset: str, objects: Sequence[ObjectInfo], cutoff: dt.datetime
) -> frozenset[str]:
    """Return what of a table's metadata readers who began after a moment cannot need.

    Where that cannot be proven, as where pyiceberg is not installed, nothing is.

    Args:
        store: Where the dataset is.
        dataset: Its name.
        objects: Of the dataset, as listed.
        cutoff: What was replaced by then is dead.

    Cost:
        Nothing without such a table; else its metadata files that were replaced by then and the
        current one, and each list of manifests.
    """
    folder = f"{Folder.ICEBERG.of(dataset, 'metadata')}/"
    files = {info.key[len(folder) :]: info for info in objects if info.key.startswith(folder)}
    numbered = sorted((int(m[1]), n) for n in files if (m := _METADATA.fullmatch(n)))
    if not numbered:
        return frozenset()
    try:
        with importing_pyiceberg():
            from lakebed.iceberg.homes import named_lists, named_manifests
    except LakebedError as exc:
        _log.warning("metadata of Iceberg is kept dataset=%s: %s", dataset, exc)
        return frozenset()
    # Nothing that is younger may be taken for dead: its publisher may be about to name it.
    oldest = dt.datetime.now(dt.UTC) - LEASE - LEASE_MARGIN

    def lists_in(name: str) -> set[str]:
        data = bytes(store.get(f"{folder}{name}").data)
        return {place.rpartition("/")[2] for place in named_lists(data)}

    def manifests_in(name: str) -> set[str]:
        listed = named_manifests(store, f"{folder}{name}")
        return {place.rpartition("/")[2] for place in listed}

    old = [name for _, name in numbered[:-1] if files[name].modified_at <= cutoff]
    lists = sorted((n for n in files if _LIST.fullmatch(n)), key=lambda n: files[n].modified_at)
    past = [name for name in lists if files[name].modified_at <= cutoff][:-1]
    try:
        named = lists_in(numbered[-1][1])
        were_named = {place for name in old for place in lists_in(name)}
        dead_lists = {
            name
            for name in past
            if name not in named and (name in were_named or files[name].modified_at <= oldest)
        }
        live = {place for name in {*lists, *named} - dead_lists for place in manifests_in(name)}
        were_listed = {place for name in dead_lists for place in manifests_in(name)}
    except ObjectNotFoundError:
        return frozenset()  # a publication or a cleanup is at work: the next one will tell
    except (LakebedError, ValueError) as exc:
        _log.warning("metadata of Iceberg is kept dataset=%s: %s", dataset, exc)
        return frozenset()
    manifests = {
        name
        for name, info in files.items()
        if _MANIFEST.fullmatch(name)
        and name not in live
        and info.modified_at <= cutoff
        and (name in were_listed or info.modified_at <= oldest)
    }
    # The last metadata file before the moment may have been opened after it.
    return frozenset(f"{folder}{name}" for name in (*old[:-1], *dead_lists, *manifests))

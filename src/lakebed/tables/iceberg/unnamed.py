"""Metadata of a table in a catalog that the table names no more.

A cleanup of the dataset knows no catalogs, and nobody lists what a catalog keeps elsewhere. So who
takes snapshots out of a table deletes right then what only these have named.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import pairwise

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

_log = logging.getLogger(__name__)


def delete_unnamed(
    io: FileIO, before: TableMetadata, after: TableMetadata | None, *, also: Sequence[str] = ()
) -> None:
    """Delete lists, manifests and metadata files that one version of a table named last.

    No data file is deleted. What cannot be deleted stays, and is told to the log.

    Args:
        io: Where they are.
        before: The table.
        after: The version that has taken its place; None if the table is gone.
        also: Metadata files that go, too.

    Cost:
        Nothing where nothing went; else the list of manifests of each snapshot that did, and of the
        oldest one that stays.
    """
    kept = () if after is None else tuple(after.snapshots)
    kept_ids = {snapshot.snapshot_id for snapshot in kept}
    gone = [snapshot for snapshot in before.snapshots if snapshot.snapshot_id not in kept_ids]
    logged = set() if after is None else {entry.metadata_file for entry in after.metadata_log}
    unnamed = {entry.metadata_file for entry in before.metadata_log} - logged | set(also)
    try:
        if gone:
            unnamed |= _named(gone, io) - _named(_witnesses(kept, gone), io)
        for location in sorted(unnamed):
            io.delete(location)
    except Exception as exc:  # noqa: BLE001 - of any store; the table is as it shall be
        _log.warning("old metadata of an Iceberg table is left at %s: %s", before.location, exc)


def _named(snapshots: Iterable[Snapshot], io: FileIO) -> set[str]:
    """Return where the lists of snapshots are, and the manifests that they name."""
    named = set()
    for snapshot in snapshots:
        named.add(snapshot.manifest_list)
        named.update(manifest.manifest_path for manifest in snapshot.manifests(io))
    return named


def _witnesses(kept: Sequence[Snapshot], gone: Sequence[Snapshot]) -> Sequence[Snapshot]:
    """Return the snapshots that name whatever is named both by one that stays and one that went.

    A manifest that a snapshot leaves out does not come back in those that follow. So where they
    follow one another, that is the first one that stays; where they do not, such as with branches
    of others, it is all of them.
    """
    line = sorted((*gone, *kept), key=lambda snapshot: snapshot.sequence_number or 0)
    is_one_line = all(
        later.parent_snapshot_id == earlier.snapshot_id for earlier, later in pairwise(line)
    )
    first = line[len(gone) : len(gone) + 1]
    are_gone_before = all(snapshot in gone for snapshot in line[: len(gone)])
    return first if is_one_line and are_gone_before else kept

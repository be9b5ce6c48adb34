"""Published tables after an erasure: their logs begin again, without statistics of old files."""

from __future__ import annotations

from lakebed.errors import LakebedError
from lakebed.state import published
from lakebed.store.base import Store
from lakebed.tables import targets
from lakebed.tables.targets import TableOptions
from lakebed.work.certificate import LeftPlace


def renew(store: Store, dataset: str) -> tuple[LeftPlace, ...]:
    """Begin the logs of the Delta and Iceberg tables beside the data again.

    Returns:
        The tables that still name old files, each with the reason.

    Cost:
        An unpublication and a publication of each table.
    """
    return tuple(
        left
        for note in published.read(store, dataset)
        if note.versions and note.kind != "hive"
        for left in _renew(store, dataset, note)
    )


def _renew(store: Store, dataset: str, note: published.Shown) -> tuple[LeftPlace, ...]:
    if note.table != dataset:
        return (
            _left(
                note,
                "It is in a catalog, whose snapshots name old files and their statistics.",
                "Unpublish it, erase again, and publish it.",
            ),
        )
    kind = note.kind
    assert kind != "hive"  # such a dataset is refused
    try:
        targets.unpublish(store, dataset, kind, TableOptions())
        targets.publish(store, dataset, kind, TableOptions())
    except LakebedError as error:
        return (_left(note, error.message, error.hint or "Publish it again, and erase again."),)
    return ()


def _left(note: published.Shown, what: str, remedy: str) -> LeftPlace:
    return LeftPlace(place=f"table {note.title}", what=what, remedy=remedy)

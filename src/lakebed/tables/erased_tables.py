"""Published tables after an erasure: their logs begin again, without statistics of old files.

A table is unpublished and published again. What it was published with is noted before, so that the
next call publishes it if this process is killed in between.
"""

from __future__ import annotations

import datetime as dt
from typing import Literal

import msgspec

from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.errors import LakebedError, ObjectNotFoundError
from lakebed.model.layout import Folder, delta_folder, kartothek_name
from lakebed.state import published
from lakebed.store.base import Store
from lakebed.tables import iceberg, targets
from lakebed.tables.targets import TableOptions
from lakebed.work.certificate import LeftPlace

_Kind = Literal["delta", "iceberg", "kartothek"]
_KINDS: tuple[_Kind, ...] = ("delta", "iceberg", "kartothek")


class _Republication(msgspec.Struct, frozen=True, kw_only=True):
    """The options with which a table is published again.

    Attributes:
        hide_batch_id: Whether an Iceberg table has no column `batch_id`.
        root: URL of the repository in an Iceberg table, if it was given.
    """

    hide_batch_id: bool | None = None
    root: str | None = None


def renew(
    store: Store, dataset: str, version: int, erased_at: dt.datetime
) -> tuple[LeftPlace, ...]:
    """Begin the tables beside the data again, whose metadata is older; those of catalogs are left.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        version: The version that the last erasure made.
        erased_at: Time of that version, by the clock of the storage.

    Returns:
        The tables that still name old files, each with the reason.

    Cost:
        The notes of publications, and a LIST of the metadata of each table; an unpublication and a
        publication of each table that is older.
    """
    notes = published.read(store, dataset)
    left = [
        _left(
            note,
            "Its catalog has snapshots that name old files, with statistics.",
            "Unpublish it and publish it again: lakebed unpublish iceberg, with --catalog.",
        )
        for note in notes
        if note.kind == "iceberg" and note.table != dataset and _is_older(note, version)
    ]
    beside = {note.kind: note for note in notes if note.kind != "hive" and note.table == dataset}
    for kind in _KINDS:
        note = beside.get(kind) or published.Shown(table=dataset, versions=(), kind=kind)
        is_begun = _find(store, dataset, kind) is not None
        if is_begun or (note.versions and _has_older(store, dataset, kind, erased_at)):
            left += _renew(store, dataset, kind, note)
    return tuple(left)


def _is_older(note: published.Shown, version: int) -> bool:
    shown = (*note.versions, *(left.since for left in note.left))
    return any(one < version for one in shown)


def _has_older(store: Store, dataset: str, kind: _Kind, moment: dt.datetime) -> bool:
    prefixes = {
        "delta": f"{delta_folder(dataset)}/",
        "iceberg": f"{Folder.ICEBERG.of(dataset)}/",
        "kartothek": f"{kartothek_name(dataset)}.",
    }
    # Storage may count in whole seconds: what is of the same second may be older.
    return any(info.modified_at <= moment for info in store.list(prefixes[kind]))


def _renew(store: Store, dataset: str, kind: _Kind, note: published.Shown) -> tuple[LeftPlace, ...]:
    try:
        options = _find(store, dataset, kind)
        if options is None:
            options = _Republication()
            if kind == "iceberg":
                hides, root = iceberg.to_iceberg.published_with(store, dataset)
                options = _Republication(hide_batch_id=hides, root=root)
            store.put(_key(dataset, kind), msgspec.json.encode(options))
        targets.unpublish(store, dataset, kind, TableOptions())
        again = TableOptions(hide_batch_id=options.hide_batch_id, root=options.root)
        targets.publish(store, dataset, kind, again)
        store.delete([_key(dataset, kind)])
    except LakebedError as error:
        return (_left(note, error.message, error.hint or "Publish it again, and erase again."),)
    return ()


def _key(dataset: str, kind: _Kind) -> str:
    return Folder.ERASURES.of(dataset, f"republish-{kind}.json")


def _find(store: Store, dataset: str, kind: _Kind) -> _Republication | None:
    """Return what a table is to be published with, if a process was killed before it was."""
    try:
        data = store.get(_key(dataset, kind)).data
    except ObjectNotFoundError:
        return None
    try:
        return from_json(data, _Republication)
    except UNREADABLE:
        return _Republication()


def _left(note: published.Shown, what: str, remedy: str) -> LeftPlace:
    return LeftPlace(place=f"table {note.title}", what=what, remedy=remedy)

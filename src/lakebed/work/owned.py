"""Objects in the directory of a dataset that are its own, as opposed to files of other tools."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence

from lakebed.common.html import shortened
from lakebed.common.shown import counted
from lakebed.errors import CorruptMetadataError, LakebedError
from lakebed.model.layout import INDEX_SUFFIX, SCHEMA_FILE, TABLE, Folder, is_own_key
from lakebed.state import history
from lakebed.state.state import State
from lakebed.store.base import Store

_log = logging.getLogger(__name__)


def own_keys(store: Store, state: State, keys: Iterable[str]) -> list[str]:
    """Return the keys in the directory of a dataset that are its own, in the order given.

    These are the objects of the forms that Lakebed writes, and the files that were adopted or that
    the head names. Any other file was put there by another program.

    Args:
        store: The store that holds the dataset.
        state: The state of the dataset.
        keys: All keys in its directory.

    Cost:
        No request, unless the directory holds other files: then the history.
    """
    listed = list(keys)
    named = named_keys(state)
    folders = _folders_of_tables(listed)
    own = {key for key in listed if key in named or _is_own(key, state, folders)}
    if len(own) < len(listed) and state.is_ours and state.version:
        own |= _keys_in_history(store, state)
    return [key for key in listed if key in own]


def named_keys(state: State) -> frozenset[str]:
    """Return the keys of the objects that a head names, as far as they are known.

    If a leaf of a tree is lost, its files are known by their names alone, and adopted ones are not.
    """
    try:
        labels = state.labels
    except CorruptMetadataError as exc:
        _log.warning("cannot find all files of a dataset name=%s: %s", state.name, exc.message)
        labels = ()
    return frozenset((*map(state.layout.naming.key, labels), *state.side_keys))


def remaining(store: Store, name: str, keys: Sequence[str], *, is_planned: bool = False) -> str:
    """Return a sentence on the files in the directory of a dataset that a drop leaves.

    Args:
        store: The store that holds the dataset.
        name: Name of the dataset.
        keys: The keys of these files, not empty.
        is_planned: True if the dataset is not dropped yet.
    """
    verb = "would stay" if is_planned else "stay" if len(keys) > 1 else "stays"
    relative = [key.removeprefix(f"{name}/") for key in keys]
    return (
        f"In {store.uri}/{name} {counted(len(keys), 'file')} of other programs {verb}: "
        f"{shortened(relative)}."
    )


def _is_own(key: str, state: State, folders: Collection[str]) -> bool:
    if state.is_ours:
        folder = f"{state.name}/{state.layout.table}/"
        return is_own_key(key.replace(folder, f"{state.name}/{TABLE}/", 1))
    # Files of Kartothek and plateau have any name, in the folders of their tables and indices.
    _, folder, *rest = key.split("/")
    if folder == Folder.INDICES:
        return key.endswith(INDEX_SUFFIX)
    return folder in folders and (rest == [SCHEMA_FILE] or key.endswith(".parquet"))


def _folders_of_tables(keys: Iterable[str]) -> frozenset[str]:
    parts = (key.split("/") for key in keys)
    return frozenset(levels[1] for levels in parts if len(levels) == 3 and levels[2] == SCHEMA_FILE)


def _keys_in_history(store: Store, state: State) -> frozenset[str]:
    """Return the keys of data files that commits have added, as far as the history is readable."""
    try:
        entries = history.read(store, state.lists.history)
    except LakebedError as exc:
        _log.warning("cannot find all files of a dataset name=%s: %s", state.name, exc.message)
        return frozenset()
    labels = (label for entry in entries for label in (*entry.added, *entry.removed))
    return frozenset(map(state.layout.naming.key, labels))

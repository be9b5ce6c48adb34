"""The base state of a change that is committed in another process."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from lakebed.model.layout import Folder
from lakebed.state import history
from lakebed.state.history import Entry
from lakebed.state.state import State, descriptor_from
from lakebed.store.base import Store


def base_as_of(
    store: Store,
    state: State,
    version: int,
    *,
    foreign_added: Collection[str] = (),
    foreign_removed: Collection[str] = (),
) -> State:
    """Return an earlier state of the head, with all that the check for conflicts needs.

    Args:
        store: The store that holds the dataset.
        state: The current state of the same dataset.
        version: Version of the wanted state.
        foreign_added: Labels of files that other tools had added to that version by then.
        foreign_removed: Labels of files that other tools had removed from it by then.

    Raises:
        VersionNotFoundError: The version does not exist.

    Cost:
        Nothing if the head has not changed, else the history since then; the whole history if the
        descriptor has changed, or another tool has changed the files.
    """
    is_foreign = foreign_added or foreign_removed or state.is_changed_by_others
    if not is_foreign and version == state.version:
        return state
    if not is_foreign and version < state.version:
        since = history.read(store, state.lists.history, after=version, until=state.version)
        if all(entry.descriptor is None for entry in since):
            return replace(state.with_labels(labels_before(state, since)), version=version)
    past = history.replay(history.read(store, state.lists.history), version)
    descriptor, lineage = descriptor_from(past.descriptor, Folder.HISTORY.of(state.name))
    removed = frozenset(foreign_removed)
    labels = [label for label in past.labels if label not in removed]
    older = state.as_of(descriptor, lineage).with_labels((*labels, *foreign_added))
    return replace(older, version=version)


def labels_before(state: State, since: Sequence[Entry]) -> tuple[str, ...]:
    """Return the labels before the last commits of a state."""
    labels = dict.fromkeys(state.labels)
    for entry in reversed(since):
        for label in entry.added:
            labels.pop(label, None)
        labels.update(dict.fromkeys(entry.removed))
    return tuple(labels)

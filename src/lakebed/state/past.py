"""The state that somebody has based a change on, for whoever commits it in another process."""

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
    """Return a state that the head had earlier, as far as conflicts depend on it.

    Args:
        store: Where the dataset is.
        state: That the head has now, of the same dataset.
        version: Of the state that is wanted.
        foreign_added: Labels of files that other tools had added to that version by then.
        foreign_removed: Labels of files that other tools had taken out of it by then.

    Raises:
        VersionNotFoundError: There is no such version.

    Cost:
        Nothing where the head has not changed, else the history since then; all of it where the
        descriptor, or another tool, has changed something.
    """
    is_foreign = foreign_added or foreign_removed or state.is_changed_by_others
    if not is_foreign and version == state.version:
        return state
    if not is_foreign and version < state.version:
        since = history.read(store, state.lists.history, after=version)
        if all(entry.descriptor is None for entry in since):
            return replace(state, labels=_labels_before(state, since), version=version)
    past = history.replay(history.read(store, state.lists.history), version)
    descriptor, lineage = descriptor_from(past.descriptor, Folder.HISTORY.of(state.name))
    gone = frozenset(foreign_removed)
    labels = [label for label in past.labels if label not in gone]
    return replace(
        state.as_of(descriptor, lineage), labels=(*labels, *foreign_added), version=version
    )


def _labels_before(state: State, since: Sequence[Entry]) -> tuple[str, ...]:
    """Return the labels before some commits, the last ones of a state."""
    labels = dict.fromkeys(state.labels)
    for entry in reversed(since):
        for label in entry.added:
            labels.pop(label, None)
        labels.update(dict.fromkeys(entry.removed))
    return tuple(labels)

"""The state that somebody has based a change on, for whoever commits it in another process."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from lakebed.model.layout import Folder
from lakebed.state import history
from lakebed.state.descriptors import descriptor_from
from lakebed.state.state import State
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
        Nothing where the head has not changed, else the history.
    """
    was_foreign = foreign_added or foreign_removed
    if state.version == version and not was_foreign and not state.is_changed_by_others:
        return state
    past = history.replay(history.read(store, state.lists.history), version)
    descriptor, lineage = descriptor_from(past.descriptor, Folder.HISTORY.of(state.name))
    gone = frozenset(foreign_removed)
    labels = [label for label in past.labels if label not in gone]
    return replace(
        state.as_of(descriptor, lineage), labels=(*labels, *foreign_added), version=version
    )

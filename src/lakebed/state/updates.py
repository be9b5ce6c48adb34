"""Updates: changes of what a dataset is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakebed.errors import CommitConflictError, InvalidInputError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.evolution import check_update
from lakebed.model.layout import Folder
from lakebed.model.schema import Schema
from lakebed.state import conflicts, history
from lakebed.state.committing import CommitOptions, Committed
from lakebed.state.history import Entry
from lakebed.state.reader import read_own_head
from lakebed.state.state import Change, State, descriptor_from
from lakebed.state.transaction import Transaction
from lakebed.store.base import Store

_UPDATES = 5  # so often an edit is applied to a descriptor that others have just changed

DescriptorEdit = Callable[[DatasetDescriptor], DatasetDescriptor]
"""Says what changes in a descriptor, whichever it is: it may be asked several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What became of an update.

    Attributes:
        entry: In the history; of the current version if the descriptor is what it was.
        base: The state that the change was based on.
        descriptor: What the dataset is now.
        committed: The commit; None if the descriptor is what it was.
    """

    entry: Entry
    base: State
    descriptor: DatasetDescriptor
    committed: Committed | None = None


def update(
    store: Store,
    dataset: str,
    edit: DescriptorEdit,
    options: CommitOptions | None = None,
    *,
    made_from: State | None = None,
) -> Update:
    """Change what a dataset is.

    Args:
        store: Where it is.
        dataset: Its name.
        edit: What it shall be, made of what it is.
        options: How long to fight for the head.
        made_from: The state whose descriptor the new one was made from: no other update may have
            come since. None for an edit that is right for every descriptor, and so is applied
            anew after another update.

    Raises:
        InvalidInputError: The rules of evolution do not allow it; nothing has changed.
        CommitConflictError: Somebody else changed the descriptor meanwhile, again and again where
            the edit was applied anew, or the race was lost until the deadline; nothing has
            changed.
        CommitUnknownError: The store stopped answering.

    Cost:
        A read of the head and of the whole history, one PUT, one conditional PUT.
    """
    for tries_left in reversed(range(_UPDATES)):
        base = read_own_head(store, dataset).state
        descriptor = edit(base.descriptor)
        if not isinstance(descriptor, DatasetDescriptor):
            raise InvalidInputError(
                f"Dataset {dataset!r} cannot become a {type(descriptor).__name__}.",
                hint="Give a DatasetDescriptor, or a function that takes one and returns one.",
            )
        if descriptor == base.descriptor:
            last = history.read(store, base.lists.history, after=base.version - 1)[-1]
            return Update(entry=last, base=base, descriptor=descriptor)
        entries = history.read(store, base.lists.history)
        if made_from is not None:
            conflicts.check_same_dataset(made_from, base)
            conflicts.check_descriptor_kept(made_from, base, "update", entries)
        check_update(base.descriptor, descriptor, _schemas(entries, dataset))
        lineage = base.lineage.after(base.descriptor, descriptor)
        try:
            with Transaction.on(store, base, "update", options=options) as transaction:
                done = transaction.commit(Change(new_descriptor=descriptor, new_lineage=lineage))
        except CommitConflictError:
            now = read_own_head(store, dataset).state
            is_outdated = (now.descriptor, now.lineage) != (base.descriptor, base.lineage)
            if made_from is not None or not is_outdated or not tries_left:
                raise
        else:
            return Update(entry=done.entry, base=base, descriptor=descriptor, committed=done)
    raise AssertionError  # the last round returned or raised


def _schemas(entries: Sequence[Entry], dataset: str) -> dict[int, Schema]:
    """Return every schema that a dataset ever had, by number."""
    schemas = {}
    for entry in entries:
        if entry.descriptor is not None:
            descriptor, lineage = descriptor_from(entry.descriptor, Folder.HISTORY.of(dataset))
            schemas[lineage.number] = descriptor.schema
    return schemas

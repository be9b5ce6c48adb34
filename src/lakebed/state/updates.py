"""Updates: changes of the descriptor of a dataset."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lakebed.errors import CommitConflictError, InvalidInputError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.evolution import check_update, fields_left_out
from lakebed.model.layout import Folder
from lakebed.model.renaming import with_stored_names
from lakebed.model.schema import Schema, limits_of
from lakebed.state import conflicts, history
from lakebed.state.committing import CommitOptions, Committed
from lakebed.state.history import Entry
from lakebed.state.reader import read_own_head
from lakebed.state.state import Change, State, descriptor_from
from lakebed.state.transaction import Transaction
from lakebed.store.base import Store

_log = logging.getLogger(__name__)

_UPDATES = 5  # attempts to apply an edit to a descriptor that others have just changed

DescriptorEdit = Callable[[DatasetDescriptor], DatasetDescriptor]
"""Returns the edited form of any descriptor; it may be called several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The result of an update.

    Attributes:
        entry: The entry in the history; that of the current version if nothing has changed.
        base: The state that the change was based on.
        descriptor: The descriptor after the update.
        committed: The commit; None if nothing has changed.
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
    drop: Collection[str] = (),
    leaves_unchecked: bool = False,
) -> Update:
    """Change the descriptor of a dataset.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        edit: Function that returns the new descriptor for the current one.
        options: Retry and lease settings of the commit.
        made_from: The state whose descriptor the new one was made from; any update since is a
            conflict. None for an edit that is valid for every descriptor, and so is applied again
            after another update. Fields that it leaves out without naming them are
            logged.
        drop: Names of fields that the edit may leave out.
        leaves_unchecked: Whether checks that the edit declares are not tested on the rows that the
            dataset has.

    Raises:
        ChecksFailedError: Rows fail a check that the edit declares; nothing has changed.
        InvalidInputError: The rules of evolution do not allow the change; nothing has changed.
        CommitConflictError: Another writer changed the descriptor meanwhile, repeatedly if the edit
            was applied again, or the race was lost until the deadline; nothing has changed.
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
        dropped = {*descriptor.dropped, *_columns_of(drop, base.descriptor.schema)}
        descriptor = with_stored_names(descriptor, base.descriptor)
        if made_from is None:
            left_out = fields_left_out(base.descriptor.schema, descriptor.schema, dropped)
            if left_out:
                _log.warning(
                    "an update drops fields that it does not name dataset=%s fields=%s",
                    dataset,
                    left_out,
                )
        if descriptor.dropped:
            descriptor = replace(descriptor)  # the note is for this update alone
        before, after = base.descriptor.schema, descriptor.schema
        has_same_limits = [limits_of(f.type) for f in before] == [limits_of(f.type) for f in after]
        if descriptor == base.descriptor and has_same_limits:
            last = history.read(store, base.lists.history, after=base.version - 1)[-1]
            return Update(entry=last, base=base, descriptor=descriptor)
        entries = history.read(store, base.lists.history)
        if made_from is not None:
            conflicts.check_same_dataset(made_from, base)
            conflicts.check_descriptor_kept(made_from, base, "update", entries)
        check_update(base.descriptor, descriptor, schemas_of(entries, dataset))
        lineage = base.lineage.after(base.descriptor, descriptor)
        try:
            with Transaction.on(store, base, "update", options=options) as transaction:
                done = transaction.commit(
                    Change(
                        new_descriptor=descriptor,
                        new_lineage=lineage,
                        leaves_unchecked=leaves_unchecked,
                    )
                )
        except CommitConflictError:
            now = read_own_head(store, dataset).state
            is_outdated = (now.descriptor, now.lineage) != (base.descriptor, base.lineage)
            if made_from is not None or not is_outdated or not tries_left:
                raise
        else:
            return Update(entry=done.entry, base=base, descriptor=descriptor, committed=done)
    raise AssertionError  # the last round returned or raised


def schemas_of(entries: Sequence[Entry], dataset: str) -> dict[int, Schema]:
    """Return every schema that a dataset ever had, by number."""
    schemas = {}
    for entry in entries:
        if entry.descriptor is not None:
            descriptor, lineage = descriptor_from(entry.descriptor, Folder.HISTORY.of(dataset))
            schemas[lineage.number] = descriptor.schema
    return schemas


def _columns_of(names: Iterable[str], schema: Schema) -> Iterator[str]:
    """Yield the columns of fields that are to be dropped.

    Raises:
        SchemaMismatchError: There is no such field.
    """
    for name in names:
        yield schema.get(name).stored_name

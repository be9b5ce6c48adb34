"""The hand-over: move the head of a dataset from one format to the other.

It begins with a commit that announces it in the head; `lakebed.state.moving` finishes it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from lakebed.errors import noting
from lakebed.state import history
from lakebed.state.committing import CommitOptions
from lakebed.state.head import HeadFormat
from lakebed.state.history import Entry
from lakebed.state.moving import encode_moved, read_settled_head
from lakebed.state.reader import read_own_head
from lakebed.state.state import Change, HeadKind, State, refuse_tree
from lakebed.state.transaction import Transaction
from lakebed.store.base import Store

OPERATION = "hand-over"


def hand_over(
    store: Store, dataset: str, head_format: HeadFormat, options: CommitOptions | None = None
) -> Entry:
    """Move the head of a dataset to another format, without stopping readers and writers.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        head_format: The new format of the head.
        options: Retry and lease settings of the commit.

    Returns:
        The entry of the hand-over in the history; the entry of the current version if the head
        has the format already.

    Raises:
        DatasetNotFoundError: The dataset does not exist.
        ReadOnlyError: Another tool created the dataset, or the store cannot swap.
        InvalidInputError: The format cannot hold an entry that another tool put into the head;
            nothing has changed.
        CommitConflictError: The race for the head was lost until the deadline; nothing has changed.
        CommitUnknownError: The store stopped answering.
        StorageError: The store failed after the hand-over was announced, as a note reports. Call
            again, or let the next commit of any writer finish it.

    Cost:
        A commit, one conditional PUT, one DELETE, and up to four more reads of the head.
    """
    refuse_tree(read_own_head(store, dataset).state, f"head in {head_format}")
    base = read_settled_head(store, dataset).state
    if base.head_format is head_format:
        return history.read(store, base.lists.history, after=base.version - 1)[-1]
    encode_moved(base, head_format)
    with Transaction.on(store, base, OPERATION, options=options) as transaction:
        entry = transaction.commit(Change(moves_to=head_format)).entry
    with noting(
        f"Version {entry.version} has announced the move to {head_format}: the next commit of any "
        "writer continues it."
    ):
        read_settled_head(store, dataset)
    return entry


def change_head(
    store: Store, dataset: str, kind: HeadKind, options: CommitOptions | None = None
) -> tuple[Entry, State] | None:
    """Make the head of a dataset a tree or a document, without stopping readers and writers.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        kind: The new kind of the head.
        options: Retry and lease settings of the commit.

    Returns:
        The entry in the history, and the state before; None if the head is of that kind already.

    Raises:
        DatasetNotFoundError: The dataset does not exist.
        ReadOnlyError: Another tool created the dataset, or the store cannot swap.
        CorruptMetadataError: The file table, the history or a leaf is damaged; nothing has changed.
        CommitConflictError: The race for the head was lost until the deadline. A head in JSON may
            have moved to msgpack, as a note reports; otherwise nothing has changed.
        CommitUnknownError: The store stopped answering.

    Cost:
        A commit; the file table and the history, read once and written once. A head in JSON first
        moves to msgpack, by a commit of its own.
    """
    state = read_own_head(store, dataset).state
    if state.is_tree is (kind is HeadKind.TREE):
        return None
    moved: AbstractContextManager[None] = nullcontext()
    if kind is HeadKind.TREE and state.head_format is not HeadFormat.MSGPACK:
        entry = hand_over(store, dataset, HeadFormat.MSGPACK, options)
        moved = noting(
            f"Version {entry.version} has moved the head to {HeadFormat.MSGPACK}, and it is still a "
            "document: call again."
        )
    base = read_settled_head(store, dataset).state
    with moved, Transaction.on(store, base, OPERATION, options=options) as transaction:
        return transaction.commit(Change(head=kind)).entry, base

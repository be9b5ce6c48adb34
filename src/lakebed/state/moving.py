"""The move of a head from one format to the other: the steps after its announcement.

The announcement is a commit to the old head, and the last one to it. Any writer can take the next
steps, any number of times, and several writers at once:

1. Write the new head, put-if-absent, with the same state. It is unconfirmed: its writer may have
   been suspended until the dataset was dropped.
2. Confirm the new head by a swap, after the old head was found unchanged beside it.
3. Remove the old head, if it is still the one that made the announcement.

An unconfirmed head without the old one is invalid, and any writer removes it. Every writer takes
these steps before its own commit. So the new head never has a commit while the old one exists, and
readers that find both know which one is newer.

Two creators that chose different formats leave two heads of two datasets. By one rule, every writer
knows which of them has lost, and first makes that one move to the format of the other: so it gets
no commit, and is removed like an old head. A creation succeeds once its writer has looked for the
other head and has then recorded that in its own head, by a swap: this dataset wins.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from dataclasses import replace

import msgspec

from lakebed.errors import (
    CommitConflictError,
    DatasetNotFoundError,
    InvalidInputError,
    LakebedError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StorageError,
)
from lakebed.state.codec import to_document
from lakebed.state.head import HeadFormat, encode_head
from lakebed.state.reader import Head, find_head, read_head
from lakebed.state.state import (
    COMMITTED,
    UNCONFIRMED,
    State,
    claim_of,
    is_one_dataset,
    refuse_tree,
)
from lakebed.store.base import Store

_log = logging.getLogger(__name__)

# Each look finds the steps of other writers since the last; a hand-over has two steps.
_MOST_LOOKS = 20
_WAITS_S = (0.0, 0.1, 0.5, 2.0)  # after lost answers to the removal of a head


def read_settled_head(store: Store, dataset: str) -> Head:
    """Read the head of a dataset to commit to it, and finish a hand-over that is in progress.

    See `settled`.
    """
    return settled(store, read_head(store, dataset))


def settled(store: Store, head: Head) -> Head:
    """Finish the hand-over that is in progress, and return the head after it.

    Raises:
        DatasetNotFoundError: The dataset does not exist.
        InvalidInputError: The head cannot be written in the other format.
        StorageError: If retryable, the hand-over does not end, because something else writes the
            old head.

    Cost:
        Nothing, unless a hand-over is in progress: one conditional PUT, one DELETE and two reads.
    """
    for _ in range(_MOST_LOOKS):
        if head.is_settled or not _advance(store, head):
            return head
        head = read_head(store, head.state.name)
    raise StorageError(
        f"The head {head.key!r} of {head.state.name!r} changes while it moves to the other format.",
        hint="Stop the other tool that writes it.",
        retryable=True,
    )


def _advance(store: Store, head: Head) -> bool:
    """Take the next step of a hand-over; return False if none remains."""
    stale, target = head.stale, head.state.moves_to
    if stale is not None and stale.state.moves_to is head.state.head_format:
        if head.state.is_unconfirmed:
            _confirm(store, head, stale)
        else:
            remove_unchanged(store, stale)
        return True
    if stale is not None and _is_twin(head, stale):
        # Do not overwrite it, even by the new head: it may be the only head left by now.
        _withdraw(store, stale, head.state.head_format)
        return True
    if target is not None:
        etag = _write(store, head, target)
        if etag is not None:
            _withdraw_if_late(store, head, target, etag)
        return True
    return False


def _withdraw(store: Store, twin: Head, target: HeadFormat) -> None:
    """Make a head give way to its twin, unless another writer has committed to it meanwhile."""
    document = to_document(replace(twin.state, moves_to=target))
    data = encode_head(document, twin.state.head_format)
    with contextlib.suppress(PreconditionFailedError):
        store.replace(twin.key, data, if_match=twin.etag)
        _log.info("head gives way dataset=%s key=%s", twin.state.name, twin.key)


def _write(store: Store, head: Head, target: HeadFormat) -> str | None:
    """Write the new head and return its etag; None if another writer was first."""
    data = encode_moved(head.state, target)
    key = target.key(head.state.name)
    try:
        if head.stale is None:
            etag = store.create(key, data)
        else:
            # It comes from an earlier hand-over, or the old head was changed after it was written.
            etag = store.replace(key, data, if_match=head.stale.etag)
    except (ObjectExistsError, PreconditionFailedError):
        return None
    _log.info("head written dataset=%s key=%s", head.state.name, key)
    return etag


def remove_unchanged(store: Store, head: Head) -> bool:
    """Remove a head if it is unchanged since it was read; return whether it was removed."""
    is_removed = store.delete_if_match(head.key, etag=head.etag)
    if is_removed:
        _log.info("head removed dataset=%s key=%s", head.state.name, head.key)
    return is_removed


def _confirm(store: Store, new: Head, old: Head) -> None:
    """Confirm a new head if the old one is unchanged, as read after the new one."""
    confirmed = replace(new.state, moved_from=new.state.moved_from.removesuffix(UNCONFIRMED))
    data = encode_head(to_document(confirmed), confirmed.head_format)
    with contextlib.suppress(ObjectNotFoundError, PreconditionFailedError):
        if store.get_if_changed(old.key, etag=old.etag) is None:
            store.replace(new.key, data, if_match=new.etag)


def _withdraw_if_late(store: Store, announced: Head, target: HeadFormat, etag: str) -> None:
    """Remove the new head again if the old one no longer announces it, or is gone.

    If the new head was confirmed meanwhile, its etag differs, and it stays.
    """
    now = find_head(store, announced.state.name, announced.state.head_format)
    if (
        now is None
        or now.state.moves_to is not target
        or not is_one_dataset(announced.state, now.state)
    ):
        store.delete_if_match(target.key(announced.state.name), etag=etag)


def remove_leftover(store: Store, dataset: str, head_format: HeadFormat) -> bool:
    """Remove an unconfirmed head, which was written after its dataset was dropped.

    Args:
        store: The store that holds the head.
        dataset: The name, which no dataset has.
        head_format: Format of the head.

    Returns:
        Whether a head was removed.
    """
    head = find_head(store, dataset, head_format)
    if head is None or not head.state.is_unconfirmed:
        return False
    return remove_unchanged(store, head)


def find_leftover(store: Store, head: Head) -> Head | None:
    """Return an invalid head of the other format beside the valid one; None if there is none.

    A hand-over wrote it, and it landed after the hand-over had ended. Readers and writers of a JSON
    head need not look for another head, so none of them removes it.

    Cost:
        One GET.
    """
    (other,) = set(HeadFormat) - {head.state.head_format}
    found = find_head(store, head.state.name, other)
    if found is None or head.state.moves_to is not None or not found.state.is_ours:
        return None
    is_past = is_one_dataset(found.state, head.state) and found.state.version < head.state.version
    is_nothing = found.state.is_unconfirmed or is_past
    return found if is_nothing and not found.state.is_changed_by_others else None


def remove_heads(store: Store, head: Head) -> State:
    """Remove the heads of a dataset, even if other writers commit to it or move its head meanwhile.

    Args:
        store: The store that holds the dataset.
        head: The head as it was read, perhaps some time ago.

    Returns:
        The last state of the dataset.

    Raises:
        DatasetNotFoundError: Another writer has dropped the dataset.
        CommitConflictError: The dataset was dropped, and another one created under its name.
        StorageError: The store failed; if retryable, it failed for seconds, or other writers commit
            continuously.

    Cost:
        A DELETE and a read of the head; as much again for each commit in between.
    """
    first, last = head.state, None
    waits_s = iter(_WAITS_S)
    for _ in range(_MOST_LOOKS):
        try:
            if _remove_both(store, head):
                last = head.state
        except StorageError as exc:
            wait_s = next(waits_s, None)
            if not exc.retryable or wait_s is None:
                raise
            last = head.state  # it may have been removed
            time.sleep(wait_s)
        try:
            head = read_head(store, first.name)
        except DatasetNotFoundError:
            if last is None:
                raise
            remnant = _find_left(store, first)
            if remnant is None:
                return last
            head = remnant  # a writer that saw the old head may have confirmed it, or is about to
            continue
        if not is_one_dataset(first, head.state):
            if last is not None:
                return last
            raise CommitConflictError(
                f"Dataset {first.name!r} was dropped and created again meanwhile.",
                hint="Drop the new one too if that is what you want.",
                expected=first.version,
                actual=head.state.version,
            )
    raise StorageError(
        f"Cannot drop {first.name!r}: other writers commit to it continuously.",
        hint="Stop its writers, and drop it again.",
        retryable=True,
    )


def _find_left(store: Store, state: State) -> Head | None:
    """Return a head of a dropped dataset that a hand-over has left, confirmed or not."""
    for head in (find_head(store, state.name, head_format) for head_format in HeadFormat):
        if head is not None and is_one_dataset(state, head.state):
            return head
    return None


def _remove_both(store: Store, head: Head) -> bool:
    """Remove the stale head and then the current one, so a crash cannot make the stale one current.

    A head of another dataset that was created beside it, without a commit, stays: its creator may
    find the name free in a moment.

    Returns:
        Whether a head was removed.
    """
    stale, has_removed = head.stale, False
    if stale is not None and not _is_twin(head, stale):
        if not remove_unchanged(store, stale):
            return False
        has_removed = True
    return remove_unchanged(store, head) or has_removed


def _is_twin(head: Head, stale: Head) -> bool:
    """Return whether a stale head is another dataset, which was created in the other format."""
    return (
        stale.state.is_ours
        and not is_one_dataset(head.state, stale.state)
        and 0 <= claim_of(stale.state) < COMMITTED
    )


def remove_or_leave(store: Store, head: Head) -> bool:
    """Remove a head that is out of date, unless it changed; return whether it was removed."""
    try:
        return store.delete_if_match(head.key, etag=head.etag)
    except LakebedError as exc:
        _log.warning("stale head stays behind key=%s error=%s", head.key, exc)
        return False


def encode_moved(state: State, target: HeadFormat) -> bytes:
    """Return the new head of a state.

    Each one is unique, and until its first commit it states that another head may exist: a writer
    that was suspended for long may write it after the hand-over has ended.

    Raises:
        InvalidInputError: The other format cannot hold an entry of another tool.
        ReadOnlyError: The head is a tree.
    """
    if state.is_tree:
        # Only one without a commit gets here: a dataset that gives way to its twin.
        if state.version:
            refuse_tree(state, f"head in {target}")
        state = state.with_labels(())
        state = replace(state, digest=state.live.digest)
    moved = replace(
        state,
        head_format=target,
        moves_to=None,
        moved_from=f"{state.head_format} {uuid.uuid4().hex}{UNCONFIRMED}",
    )
    try:
        return encode_head(to_document(moved), target)
    except (msgspec.MsgspecError, OverflowError, TypeError, ValueError) as exc:
        raise InvalidInputError(
            f"The head of {state.name!r} cannot be written as {target}: {exc}.",
            hint="Remove the metadata entry that another tool has written.",
        ) from exc

"""A head on its way from one format to the other: what is left to do after it was announced.

The announcement is a commit to the old head, and from it on nobody commits to that head. What
follows can be done by any writer, any number of times, by several at once:

1. The new head is written, put-if-absent, with the same state. It is unconfirmed: its writer may
   have slept until the dataset was dropped.
2. It is confirmed, by a swap, by whoever has found the old head to stand still after it was there.
3. The old head is removed, if it still is the one that made the announcement.

An unconfirmed head without the old one means nothing, and anybody removes it. Every writer does
this before its own commit. So the new head never has a commit while the old one
is there, and readers who find both know which one says more.

Two creators that chose different formats leave two heads of two datasets. Everybody knows by one
rule which of them has lost, and lets it move to the format of the other before anything else: so
nobody commits to it, and it is removed as an old head is. A creator is told of its success once it
has looked for the other head and has then said so in its own, by a swap: that dataset wins.
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
)
from lakebed.store.base import Store

_log = logging.getLogger(__name__)

# Each look finds what others have done since the last; a hand-over has two steps.
_MOST_LOOKS = 20
_WAITS_S = (0.0, 0.1, 0.5, 2.0)  # after lost answers to the removal of a head


def read_settled_head(store: Store, dataset: str) -> Head:
    """Read the head of a dataset to commit to it, and finish a hand-over that is under way.

    See `settled`.
    """
    return settled(store, read_head(store, dataset))


def settled(store: Store, head: Head) -> Head:
    """Finish the hand-over that is under way, and return the head after it.

    Raises:
        DatasetNotFoundError: There is no such dataset.
        InvalidInputError: The head cannot be written in the other format.
        StorageError: If retryable, the hand-over goes on and on, because something else writes
            the old head.

    Cost:
        Nothing, unless a hand-over is under way: one conditional PUT, one DELETE and two reads.
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
    """Do what is left of a hand-over; False if nothing is."""
    stale, target = head.stale, head.state.moves_to
    if stale is not None and stale.state.moves_to is head.state.head_format:
        if head.state.is_unconfirmed:
            _confirm(store, head, stale)
        else:
            remove_unchanged(store, stale)
        return True
    if stale is not None and _is_twin(head, stale):
        # Not to be overwritten even by the new head: it may be all that is left by now.
        _withdraw(store, stale, head.state.head_format)
        return True
    if target is not None:
        etag = _write(store, head, target)
        if etag is not None:
            _withdraw_if_late(store, head, target, etag)
        return True
    return False


def _withdraw(store: Store, twin: Head, target: HeadFormat) -> None:
    """Let a head give way to a twin, unless somebody has committed to it meanwhile."""
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
            # It is of an earlier hand-over, or the old head was changed after it was written.
            etag = store.replace(key, data, if_match=head.stale.etag)
    except (ObjectExistsError, PreconditionFailedError):
        return None
    _log.info("head written dataset=%s key=%s", head.state.name, key)
    return etag


def remove_unchanged(store: Store, head: Head) -> bool:
    """Remove a head if it still is the one that was read, and say whether it was."""
    is_removed = store.delete_if_match(head.key, etag=head.etag)
    if is_removed:
        _log.info("head removed dataset=%s key=%s", head.state.name, head.key)
    return is_removed


def _confirm(store: Store, new: Head, old: Head) -> None:
    """Confirm a new head if the old one stands, which is looked for after the new one was read."""
    confirmed = replace(new.state, moved_from=new.state.moved_from.removesuffix(UNCONFIRMED))
    data = encode_head(to_document(confirmed), confirmed.head_format)
    with contextlib.suppress(ObjectNotFoundError, PreconditionFailedError):
        if store.get_if_changed(old.key, etag=old.etag) is None:
            store.replace(new.key, data, if_match=new.etag)


def _withdraw_if_late(store: Store, announced: Head, target: HeadFormat, etag: str) -> None:
    """Remove the new head again if the old one does not announce it any more, or is gone.

    If it was confirmed meanwhile, it is another one too, and stays.
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
        store: Where it is.
        dataset: The name, under which there is no dataset.
        head_format: Of the head.

    Returns:
        Whether one was removed.
    """
    head = find_head(store, dataset, head_format)
    if head is None or not head.state.is_unconfirmed:
        return False
    return remove_unchanged(store, head)


def find_leftover(store: Store, head: Head) -> Head | None:
    """Return a head of the other format that means nothing beside the true one.

    A hand-over has written it, and it landed when all of that was past. Readers and writers of a
    JSON head need not look for another one, so that none of them removes it.

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
    """Remove what makes a dataset one, whoever commits to it or moves its head meanwhile.

    Args:
        store: Where it is.
        head: As it was read, perhaps some time ago.

    Returns:
        The last state of the dataset.

    Raises:
        DatasetNotFoundError: Somebody else has dropped it.
        CommitConflictError: Somebody else has dropped it, and created another of the name.
        StorageError: The store failed; if retryable, for seconds, or others commit all the time.

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
            last = head.state  # perhaps
            time.sleep(wait_s)
        try:
            head = read_head(store, first.name)
        except DatasetNotFoundError:
            if last is None:
                raise
            remnant = _find_left(store, first)
            if remnant is None:
                return last
            head = remnant  # whoever has seen the old head may be about to confirm it, or just has
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
        f"Others commit to {first.name!r} all the time, so that it could not be dropped.",
        hint="Stop its writers, and drop it again.",
        retryable=True,
    )


def _find_left(store: Store, state: State) -> Head | None:
    """Return what a hand-over has left of a dataset that is dropped, confirmed or not."""
    for head in (find_head(store, state.name, head_format) for head_format in HeadFormat):
        if head is not None and is_one_dataset(state, head.state):
            return head
    return None


def _remove_both(store: Store, head: Head) -> bool:
    """Remove a head, and before it the stale one, so that no crash can bring that up.

    What was created beside it, and not committed to, is not its own: its creator may see the name
    free in a moment.

    Returns:
        Whether anything was removed.
    """
    stale, has_removed = head.stale, False
    if stale is not None and not _is_twin(head, stale):
        if not remove_unchanged(store, stale):
            return False
        has_removed = True
    return remove_unchanged(store, head) or has_removed


def _is_twin(head: Head, stale: Head) -> bool:
    """Whether a stale head is of another dataset, which somebody created in the other format."""
    return (
        stale.state.is_ours
        and not is_one_dataset(head.state, stale.state)
        and 0 <= claim_of(stale.state) < COMMITTED
    )


def remove_or_leave(store: Store, head: Head) -> bool:
    """Remove a head that is out of date, unless it changed; say whether it is gone."""
    try:
        return store.delete_if_match(head.key, etag=head.etag)
    except LakebedError as exc:
        _log.warning("stale head stays behind key=%s error=%s", head.key, exc)
        return False


def encode_moved(state: State, target: HeadFormat) -> bytes:
    """Return the new head of a state.

    No two are equal, and it says that it may not be the only head, until the first commit to it:
    a writer that sleeps for long may write it when all of this is past.

    Raises:
        InvalidInputError: The other format cannot hold an entry of another tool.
    """
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
            hint="Remove the metadata entry that another tool has put into it.",
        ) from exc

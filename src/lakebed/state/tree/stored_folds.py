"""The fold of a tree in a store, after a commit has filled the buffer of the root.

A fold is no commit: the version stays, and no answer changes. What it writes is written before the
root that names it, so a process that dies in between leaves garbage and the root as it was. It is
put by a swap of its own. If that loses to a commit, the fold lands on the root of that commit, and
nothing is written again; if it loses to another fold, its objects are deleted.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass, replace

from lakebed.errors import DatasetNotFoundError, PreconditionFailedError, StorageError
from lakebed.state.codec import to_document
from lakebed.state.head import encode_head
from lakebed.state.reader import Head, read_head, remember
from lakebed.state.state import State, is_one_dataset
from lakebed.state.tree.find import read_commits
from lakebed.state.tree.fold import Folded, fold, is_due, land
from lakebed.state.tree.leaf_merge import proved
from lakebed.state.tree.tree_commit import SIZES, with_root
from lakebed.state.tree.tree_files import TreeFiles
from lakebed.state.tree.tree_root import Sizes
from lakebed.store.base import Store, delete_or_leave

_log = logging.getLogger(__name__)
_SWAPS = 20  # each is lost to a commit, which leaves the fold as good as it was
_LONGEST_WAIT_S = 0.2


def fold_after(store: Store, before: State, after: State) -> None:
    """Fold the buffer if a commit has filled it; a failure is logged, and the commit stands.

    Only the writer whose commit crossed the limit folds. If it dies, the others do once the buffer
    is half as full again.

    Args:
        store: The store that holds the dataset.
        before: The state that the commit was made on.
        after: The state after it.
    """
    if not isinstance(after.live, TreeFiles) or not is_due(after.live.root, SIZES):
        return
    was_due = isinstance(before.live, TreeFiles) and is_due(before.live.root, SIZES)
    late = replace(SIZES, buffer=SIZES.buffer * 3 // 2)
    if was_due and not is_due(after.live.root, late):
        return
    try:
        fold_stored(store, after)
    except Exception as exc:  # noqa: BLE001 -- the commit has succeeded before
        _log.warning("fold failed dataset=%s version=%d: %s", after.name, after.version, exc)


def compacted(store: Store, state: State, *, is_dry_run: bool) -> tuple[int, int] | None:
    """Fold the buffer of a tree, and merge all runs that are due.

    Args:
        store: The store that holds the dataset.
        state: The current state.
        is_dry_run: Whether to write nothing.

    Returns:
        The number of leaves before and after; None if there was nothing to do, or if another writer
        was faster.

    Raises:
        LakebedError: As for `fold_stored`.

    Cost:
        As `fold_stored`.
    """
    assert isinstance(state.live, TreeFiles)
    folded = _folded(store, state, replace(SIZES, merge=state.live.count))
    if folded is None or not (is_dry_run or _put_and_land(store, state, folded)):
        return None
    return len(folded.base.refs), len(folded.root.refs)


def fold_stored(store: Store, state: State) -> bool:
    """Fold the buffer of a tree, and merge the runs that are due and small.

    Args:
        store: The store that holds the dataset.
        state: The current state.

    Returns:
        Whether the fold has landed. False if there was nothing to fold, or if another one was
        faster.

    Raises:
        CorruptMetadataError: A leaf or a segment of the history cannot be read; nothing has
            changed.
        StorageError: The store failed. The fold may have landed; that changes no answer.

    Cost:
        Three PUTs and a swap; with a merge, the leaves of the merged runs, read and written once.
    """
    folded = _folded(store, state, SIZES)
    return folded is not None and _put_and_land(store, state, folded)


def _put_and_land(store: Store, state: State, folded: Folded) -> bool:
    objects = folded.objects(state.name)
    for leaf in folded.leaves:
        if leaf.sections is not None:
            proved(leaf)
    objects[folded.root.copy_key(state.name, state.version)] = _copy_of(state, folded)
    attempt = _Attempt()
    has_landed = False
    try:
        for key, data in objects.items():
            store.put(key, data)
        has_landed = _land(store, state, folded, attempt)
    finally:
        if attempt.is_without_trace:
            delete_or_leave(store, list(objects))
    return has_landed


@dataclass
class _Attempt:
    """An attempt to land a fold.

    Once a swap was tried and not refused for good, nothing proves that it did not land: later folds
    may have merged what it has written, so that the root no longer shows it, and copies of the head
    still need it.

    Attributes:
        is_without_trace: Whether no head has named what the fold has written, and none will.
    """

    is_without_trace: bool = True


def _folded(store: Store, state: State, sizes: Sizes) -> Folded | None:
    tree = state.live
    assert isinstance(tree, TreeFiles)
    return fold(
        tree.root,
        tree.leaves.with_facts,
        tree.order,
        sizes,
        load_segment=lambda one: read_commits(store, state.name, one),
        horizon=state.horizon,
    )


def _copy_of(state: State, folded: Folded) -> bytes:
    """Return the copy of the head, from which older versions are read."""
    assert isinstance(state.live, TreeFiles)
    live = replace(state.live, root=folded.root)
    return encode_head(to_document(with_root(state, folded.root, live)), state.head_format)


def _land(store: Store, state: State, folded: Folded, attempt: _Attempt) -> bool:
    """Swap the root of a fold in, and return whether it is known to have landed."""
    for number in range(_SWAPS):
        try:
            head = read_head(store, state.name)
        except DatasetNotFoundError:
            attempt.is_without_trace = False  # it may have landed before it was dropped
            return False
        now = head.state
        if not is_one_dataset(state, now) or not _is_ordered_alike(state, now):
            return False
        assert isinstance(now.live, TreeFiles)
        if any(one.id == folded.segment.id for one in now.live.root.history):
            attempt.is_without_trace = False
            return True
        root = land(folded, now.live.root, now.live.leaves, now.live.order)
        if root is None or not head.is_settled:
            return False
        was_without_trace, attempt.is_without_trace = attempt.is_without_trace, False
        try:
            _swap(store, head, with_root(now, root, replace(now.live, root=root)))
        except PreconditionFailedError:
            pass  # lost to a commit; or landed by a put that was repeated, as the next look shows
        except StorageError as exc:
            if not exc.retryable:
                attempt.is_without_trace = was_without_trace
                raise
        else:
            _log.info("folded dataset=%s version=%d", state.name, state.version)
            return True
        time.sleep(random.uniform(0, min(0.005 * 2**number, _LONGEST_WAIT_S)))
    return False


def _is_ordered_alike(state: State, now: State) -> bool:
    """Return whether a later head is a tree of the same partition fields."""
    assert isinstance(state.live, TreeFiles)
    return isinstance(now.live, TreeFiles) and now.live.order.types == state.live.order.types


def _swap(store: Store, head: Head, new: State) -> None:
    data = encode_head(to_document(new), new.head_format)
    etag = store.replace(head.key, data, if_match=head.etag)
    remember(store, head.key, etag, new)

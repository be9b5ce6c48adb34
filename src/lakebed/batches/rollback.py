"""Making an older state current again, as a new commit."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lakebed.errors import InvalidInputError, ObjectNotFoundError, VersionNotFoundError
from lakebed.model.allowed import OTHER
from lakebed.model.evolution import grown_dimensions
from lakebed.model.keys import encode_level, partition_of, split_label
from lakebed.state import file_table, history
from lakebed.state.history import Entry
from lakebed.state.protections import check_readable
from lakebed.state.scope import Scope, TheseFiles
from lakebed.state.state import Change, State, descriptor_from
from lakebed.state.transaction import CommitOptions, commit_change
from lakebed.store.base import Store

OPERATION = "rollback"
_LOOKS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """What a rollback brings back and takes out.

    Attributes:
        version: That it goes back to.
        base: The state that it starts from.
        added: Labels of the files that it brings back.
        removed: Labels of the files that it takes out.
        row_count: Entities in the files that it brings back, as far as they are known.
    """

    version: int
    base: State
    added: tuple[str, ...]
    removed: tuple[str, ...]
    row_count: int

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that it changes, in order of path."""
        return tuple(
            sorted({partition_of(split_label(one)[0]) for one in (*self.added, *self.removed)})
        )


def find_restoration(
    store: Store, base: State, version: int, scope: Scope | None = None
) -> Restoration:
    """Find what a rollback would change; see `Dataset.rollback`.

    Args:
        store: Where the dataset is.
        base: Its current state.
        version: To go back to.
        scope: Covers the partitions that are meant; None for all.

    Raises:
        VersionNotFoundError: There is no such version, or a cleanup has given it up.
        InvalidInputError: Since then a promotion has moved rows that would come back.

    Cost:
        The history, and the file table if there is something to bring back.
    """
    entries = history.read(store, base.history)
    past = history.replay(entries, version)
    check_readable(base, entries, version)
    older, _ = descriptor_from(past.descriptor, f"{base.name}/history")
    promoted = {encode_level(name, OTHER) for name in grown_dimensions(older, base.descriptor)}

    def is_meant(label: str) -> bool:
        return scope is None or scope.covers(partition_of(split_label(label)[0]))

    now, then = frozenset(base.labels), frozenset(past.labels)
    added = tuple(one for one in past.labels if one not in now and is_meant(one))
    for label in added:
        if not promoted.isdisjoint(label.split("/")):
            raise InvalidInputError(
                f"Rollback of {base.name!r} to version {version} would bring back rows of "
                f"{partition_of(split_label(label)[0])!r} that have partitions of their own since "
                "a promotion.",
                hint="Read that version, and overwrite the partitions with its rows.",
            )
    removed = tuple(one for one in base.labels if one not in then and is_meant(one))
    counts = file_table.read_counts(store, base.files) if added else {}
    return Restoration(
        version=version,
        base=base,
        added=added,
        removed=removed,
        row_count=sum(counts[label][0] for label in added if label in counts),
    )


def restore(store: Store, found: Restoration, options: CommitOptions | None = None) -> Entry | None:
    """Commit a rollback; None if it would change nothing.

    Raises:
        CommitConflictError: Another commit touched one of its partitions meanwhile; nothing has
            changed.
        VersionNotFoundError: A cleanup has given the version up meanwhile, or a file that it
            needs is gone; nothing has changed.
        CommitUnknownError: The store stopped answering.

    Cost:
        A HEAD for each file that is brought back, several at a time; one PUT, one conditional
        PUT. No data file is read or written.
    """
    if not found.added and not found.removed:
        return None
    _check_files(store, found.base, found.added, found.version)
    scope = TheseFiles(frozenset(found.removed), frozenset(found.partitions))
    change = Change(
        operation=OPERATION,
        commit_id=uuid.uuid4().hex,
        base_version=found.base.version,
        added=found.added,
        row_count=found.row_count,
        scope=scope,
        restores=found.version,
    )
    return commit_change(store, found.base, change, options)


def _check_files(store: Store, base: State, labels: Sequence[str], version: int) -> None:
    """Look whether the files are there: what was deleted from outside is not in the head."""

    def is_gone(label: str) -> bool:
        try:
            store.size(base.key(label))
        except ObjectNotFoundError:
            return True
        return False

    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        answers = pool.map(is_gone, labels)
        gone = [label for label, is_missing in zip(labels, answers, strict=True) if is_missing]
    if gone:
        raise VersionNotFoundError(
            f"Rollback of {base.name!r} to version {version} needs {len(gone)} data files that are "
            f"gone, such as {base.key(gone[0])}.",
            hint="They were deleted from outside: put them back, or choose another version.",
        )

"""The head of a dataset that Kartothek created, replaced by a head of ours over the same files."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from lakebed.errors import (
    CommitConflictError,
    CommitUnknownError,
    DatasetNotFoundError,
    LakebedError,
    PreconditionFailedError,
    StorageError,
)
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.layout import TABLE, Layout, schema_key
from lakebed.state import file_table, history, schema_file
from lakebed.state.codec import to_document
from lakebed.state.committing import successor
from lakebed.state.conflicts import Terms
from lakebed.state.creation import with_history
from lakebed.state.head import encode_head
from lakebed.state.index_files import put_index_file
from lakebed.state.lists import Lists
from lakebed.state.reader import Head, read_head
from lakebed.state.reservation import LEASE
from lakebed.state.state import Change, Listed, State, digest_of
from lakebed.store.base import Store, delete_or_leave

_OPERATION = "adopt"
_WAITS_S = (0.0, 0.1, 0.4, 1.0)  # before each put of the head


def take_over(
    store: Store,
    head: Head,
    descriptor: DatasetDescriptor,
    *,
    labels: tuple[str, ...],
    facts: pa.Table,
    batch_id: int,
    indices: Mapping[str, bytes],
) -> State:
    """Make a dataset of another tool one of ours, by one conditional put of its head.

    Until then only objects are written that its own head does not name, so that its readers are not
    affected. Version 0 is the creation, version 1 holds all files. The format of the head, the time of
    creation and the entries of other tools in the metadata are kept.

    Args:
        store: The store that holds the dataset.
        head: The head that was read and is to be replaced.
        descriptor: Descriptor of the dataset.
        labels: Labels of all files.
        facts: Facts of all files.
        batch_id: The batch of all files.
        indices: Content of the index files under the new labels, by column.

    Raises:
        CommitConflictError: The head has changed since; nothing was written.
        CommitUnknownError: The store stopped answering; the dataset may have been taken over.
        ReadOnlyError: The store cannot swap, or its service does not isolate concurrent writers.

    Cost:
        Five PUTs and one for each index, and one conditional PUT.
    """
    descriptor.check()
    store.check_writable()
    name, written = head.state.name, list[str]()
    try:
        new = _written(
            store, _first(head, descriptor), labels, facts, batch_id, indices, written=written
        )
        # A table of the other tool that has the name of ours keeps its own until then.
        if head.state.layout.table != TABLE:
            schema_file.put(store, name, descriptor)
            written.append(schema_key(name, TABLE))
        _swap(store, head, new)
    except CommitUnknownError:
        raise
    except LakebedError:
        delete_or_leave(store, written)
        schema_file.follow_own_head(store, name)  # of another adoption that was faster
        raise
    schema_file.put_or_leave(store, name, descriptor)
    return new


def _first(head: Head, descriptor: DatasetDescriptor) -> State:
    foreign = head.state
    return State(
        layout=Layout.of_ours(foreign.name, descriptor),
        head_format=foreign.head_format,
        live=Listed(()),
        created_at=foreign.created_at,
        commit_id=uuid.uuid4().hex,
        committed_at=dt.datetime.now(dt.UTC),
        digest=digest_of(()),
        annotations=foreign.annotations,
        indices={},
    )


def _written(
    store: Store,
    first: State,
    labels: tuple[str, ...],
    facts: pa.Table,
    batch_id: int,
    indices: Mapping[str, bytes],
    *,
    written: list[str],
) -> State:
    """Write all objects that the new head names, and return its state."""
    created: dict[str, State] = {}
    try:
        first = with_history(store, first, created)
    finally:
        written += [key for state in created.values() for key in state.lists.keys]
    segment = file_table.new_segment(first.name, facts)
    assert segment is not None  # there is at least one file
    written.append(segment.key)
    store.put(segment.key, file_table.encode(facts))
    change = Change(
        commit_id=uuid.uuid4().hex,
        operation=_OPERATION,
        batch_id=batch_id,
        added=labels,
        row_count=sum(facts.column("row_count").to_pylist()),
        edits=Lists(files=(segment,)).additions(),
    )
    new = successor(store, first, Terms(base=first, change=change, lease=LEASE), written)
    keys = {}
    for column, data in indices.items():
        keys[column] = put_index_file(
            store, first.name, column, data, dt.datetime.now(dt.UTC), digest=new.digest
        )
        written.append(keys[column])
    return replace(new, indices=keys)


def _swap(store: Store, head: Head, new: State) -> None:
    data = encode_head(to_document(new), new.head_format)
    trouble: StorageError | None = None
    for wait_s in _WAITS_S:
        time.sleep(wait_s)
        try:
            store.replace(head.key, data, if_match=head.etag)
        except PreconditionFailedError:
            # Either refused, or landed by a put whose answer was lost.
            if _has_landed(store, new):
                return
            raise CommitConflictError(
                f"Dataset {new.name!r} was written to while it was adopted.",
                hint="Nothing was adopted. Stop its writers, and adopt it again.",
                expected=0,
                actual=0,
            ) from None
        except StorageError as exc:
            if not exc.retryable and trouble is None:
                raise
            trouble = exc
        else:
            return
    raise _unknown(new, trouble) from trouble


def _has_landed(store: Store, new: State) -> bool:
    try:
        now = read_head(store, new.name).state
        entries = history.read(store, now.lists.history) if now.is_ours else ()
    except DatasetNotFoundError:
        return False
    except LakebedError as exc:
        raise _unknown(new, exc) from exc
    return any(entry.commit_id == new.commit_id for entry in entries)


def _unknown(new: State, cause: LakebedError | None) -> CommitUnknownError:
    return CommitUnknownError(
        f"The store did not confirm the adoption of dataset {new.name!r}: "
        f"{cause.message if cause else 'no answer'}",
        hint="Open it: it was adopted if it has a version. Otherwise adopt it again.",
        commit_id=new.commit_id,
    )

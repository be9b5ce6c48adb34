"""Creation: the first state of a dataset, and how the dataset claims its name."""

from __future__ import annotations

import datetime as dt
import hashlib
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

from lakebed.common.shown import counted
from lakebed.errors import (
    CommitUnknownError,
    DatasetNotFoundError,
    InvalidInputError,
    LakebedError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StorageError,
)
from lakebed.model import publishing, retention
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.layout import Folder, Layout, copy_key, segment_key
from lakebed.model.lineage import Lineage
from lakebed.model.partition.repeating import warn_of_repetition
from lakebed.model.renaming import without_stored_names
from lakebed.model.table_signs import TableFormat
from lakebed.state import history, schema_file
from lakebed.state.codec import to_document
from lakebed.state.head import HeadFormat, encode_head
from lakebed.state.history import Entry
from lakebed.state.lists import Lists
from lakebed.state.moving import read_settled_head, remove_leftover, remove_unchanged
from lakebed.state.namespaces import is_marked
from lakebed.state.reader import Head, dataset_hint, read_head
from lakebed.state.state import CREATION, HeadKind, Listed, State, describe, digest_of
from lakebed.state.table_pointers import find_table
from lakebed.store.base import Store, delete_or_leave
from lakebed.store.segments import Segment

_FIRST = ".first"  # in the name of the first segment of the history
_SUFFIX = f"{_FIRST}{history.SUFFIX}"
_SUFFIXES = (_SUFFIX, f"{_FIRST}{history.PLAIN_SUFFIX}")


def first_state(
    name: str,
    descriptor: DatasetDescriptor,
    head_format: HeadFormat,
    *,
    committed_at: dt.datetime | None = None,
    lineage: Lineage | None = None,
    head: HeadKind = HeadKind.DOCUMENT,
) -> State:
    """Return the state of a dataset before its first commit.

    Args:
        name: Name of the dataset.
        descriptor: Descriptor of the dataset.
        head_format: Format of the head.
        committed_at: Time of version 0, for a dataset that takes over older versions; None for now.
        lineage: Lineage of the schema, if its columns have ids already.
        head: The kind of the head; a tree is always in msgpack.
    """
    now = dt.datetime.now(dt.UTC)
    first = State(
        layout=Layout.of_ours(name, without_stored_names(descriptor), lineage),
        head_format=head_format,
        live=Listed(()),
        created_at=now.isoformat(),
        commit_id=uuid.uuid4().hex,
        committed_at=now if committed_at is None else min(now, committed_at),
        digest=digest_of(()),
        annotations={},
        indices={},
    )
    if head is HeadKind.DOCUMENT:
        return first
    from lakebed.state.tree.planting import first_root

    return first_root(first)


def _first_segment(state: State) -> Segment:
    """Return the segment of the first entry in the history.

    It is written before the head, so its key identifies the dataset: a writer that drops another
    dataset of the same name meanwhile leaves it alone.
    """
    unique = uuid.uuid4().hex[: 32 - len(_sign_of(state))]
    return Segment(_begin_of(state) + unique + _SUFFIX, weight=1)


def is_of_a_namesake(key: str, state: State) -> bool:
    """Return whether a key is of what another dataset wrote before its head, which may still come.

    That is the first segment of its history, and the copy of the first head of a tree.
    """
    if key.startswith(copy_key(state.name, 0, "")):
        return not key.startswith(copy_key(state.name, 0, _sign_of(state)))
    is_first = key.startswith(f"{Folder.HISTORY.of(state.name)}/") and key.endswith(_SUFFIXES)
    return is_first and not key.startswith(_begin_of(state))


def _begin_of(state: State) -> str:
    return segment_key(Folder.HISTORY.of(state.name), 1, _sign_of(state))


def _sign_of(state: State) -> str:
    return hashlib.blake2b(state.created_at.encode(), digest_size=8).hexdigest()


_CREATE_WAITS_S = (0.0, 0.1, 0.4, 1.0)  # before each put of a first head


def create(
    store: Store, name: str, first: Callable[[], State], *, is_adoption: bool = False
) -> State:
    """Create a dataset: its first head, put-if-absent, and the schema file for other tools.

    The schema file has the same key for every creator, and must exist before the head: other tools
    read both. So nothing is written if the name is taken already. Once the head exists, the file is
    aligned with it again: a rival may have written its own file in between, and a drop of a
    dataset of the same name may have deleted this one.

    Args:
        store: The store that will hold the dataset.
        name: Name of the new dataset.
        first: Callback that returns the state without history, at version 0. It is called once the
            name was found free, so that the time of creation, which distinguishes datasets of one
            name, is later than that of a dataset that was dropped.
        is_adoption: True if a table in the directory of the dataset is being adopted.

    Returns:
        The state with its history.

    Warns:
        LakebedWarning: Partitions repeat, such as those by the hour alone, every day.

    Raises:
        ObjectExistsError: The name is taken; nothing became visible.
        InvalidInputError: The directory is a repository that holds datasets, or a table of another
            format, or the store is the directory of a dataset.
        PartitionSpecError: The descriptor comes from a dataset of another tool, and Lakebed cannot
            create such a dataset.
        ReadOnlyError: The store cannot swap, or its service does not isolate concurrent writers.
        FormatError: A head exists but cannot be read.
        DatasetNotFoundError: The dataset was dropped at the same moment.
        CommitUnknownError: The store stopped answering; the dataset may or may not exist.

    Cost:
        Three PUTs, two conditional PUTs, up to twelve GETs and five LISTs; before the first write of a process
        to an object store one request more, see `Store.check_writable`.
    """
    _check_free(store, name, is_adoption=is_adoption)
    state = first()
    state.descriptor.check()
    warn_of_repetition(name, state.descriptor.partition_by, state.descriptor.schema)
    publishing.check(state.descriptor.properties)
    retention.check(state.descriptor)
    store.check_writable()  # before anything is written
    schema_file.put(store, state.name, state.descriptor)
    try:
        created = _create(store, state)
    except ObjectExistsError:
        schema_file.follow_head(store, state.name)
        raise
    schema_file.put_or_leave(store, state.name, state.descriptor)
    return created


def _check_free(store: Store, name: str, *, is_adoption: bool) -> None:
    try:
        read_head(store, name)
    except DatasetNotFoundError as missing:
        check_place(store, name, missing, is_adoption=is_adoption)
        return
    raise ObjectExistsError(f"Dataset {name!r} exists.")


def check_place(
    store: Store, name: str, missing: DatasetNotFoundError, *, is_adoption: bool = False
) -> None:
    """Check that a new dataset contains no other dataset or table, and is not inside a dataset.

    Args:
        store: The store of the repository.
        name: Name of the new dataset.
        missing: The error that the lookup of the name raised.
        is_adoption: True if a table in the directory is being adopted.

    Raises:
        InvalidInputError: It does: rows of the outer dataset would be mixed with those of the inner
            one, and a drop of it might delete them.
    """
    if missing.table and not is_adoption:
        adopting = TableFormat(missing.table).adopting
        other = f"choose another name: {store.uri}/{name} then stays as it is."
        raise InvalidInputError(
            f"Dataset {name!r} cannot be created in {store.uri}: {store.uri}/{name} is a table of "
            f"{missing.table}, whose rows it would not show.",
            hint=f"Make the table a dataset: {adopting}. Or {other}"
            if adopting
            else f"{other[0].upper()}{other[1:]}",
        )
    if missing.within:
        inner = counted(len(missing.within), "dataset")
        raise InvalidInputError(
            f"Dataset {name!r} cannot be created in {store.uri}: {name!r} is a repository, with "
            f"{inner}, which would lie in the directory of the new dataset.",
            hint=f"Name a dataset in it: {store.uri}/{name}/NAME.",
        )
    if is_marked(store, name):
        raise InvalidInputError(
            f"Dataset {name!r} cannot be created in {store.uri}: {name!r} is a namespace.",
            hint=f"Name a dataset in it: {store.uri}/{name}/NAME. Or drop the namespace first.",
        )
    if not is_adoption and find_table(store, name) is not None:
        raise InvalidInputError(
            f"Dataset {name!r} cannot be created in {store.uri}: the Iceberg catalog has a table of "
            "this name.",
            hint="Choose another name, or drop the table by a client of the catalog.",
        )
    if missing.is_in_dataset:
        raise InvalidInputError(
            f"Dataset {name!r} cannot be created in {store.uri}, which is a dataset itself.",
            hint=dataset_hint(store),
        )


def _create(store: Store, state: State) -> State:
    """Write the first head; see `create`."""
    written: dict[str, State] = {}
    try:
        return _create_head(store, state, written)
    except CommitUnknownError:
        raise
    except LakebedError:
        delete_or_leave(store, [key for first in written.values() for key in _keys_of(first)])
        raise


def _keys_of(first: State) -> tuple[str, ...]:
    """Return the keys of the objects that were written for a first state."""
    if not first.is_tree:
        return first.lists.keys
    from lakebed.state.tree.planting import key_of_copy

    return (*first.lists.keys, key_of_copy(first))


def with_history(store: Store, state: State, written: dict[str, State]) -> State:
    """Return a first state with the entry of its creation, which is stored.

    Args:
        store: The store that will hold the dataset.
        state: The first state of the dataset, without history.
        written: Receives the state by its time of creation, before its history is written.

    Cost:
        One PUT, for a tree two.
    """
    entry = Entry(
        version=0,
        commit_id=state.commit_id,
        operation="create",
        committed_at=state.committed_at or dt.datetime.now(dt.UTC),
        descriptor=describe(state.descriptor, state.lineage),
    )
    segment = _first_segment(state)
    first = replace(state, lists=Lists(history=(segment,)))
    if not first.is_tree:
        written[state.created_at] = first
    else:
        from lakebed.state.tree.planting import put_copy, with_origin

        first = written[state.created_at] = with_origin(first, _sign_of(first))
        put_copy(store, first)
    store.put(segment.key, history.encode([entry]))
    return first


def _as_another(state: State) -> State:
    """Return a first state as that of another dataset, with the same commit id.

    The head that was put before may have landed and been dropped since. The drop deletes its
    history, possibly while the next head is put.
    """
    created_at = dt.datetime.fromisoformat(state.created_at) + dt.timedelta(microseconds=1)
    return replace(state, created_at=created_at.isoformat())


def _create_head(store: Store, state: State, written: dict[str, State]) -> State:
    key = state.head_format.key(state.name)
    first = with_history(store, state, written)
    trouble: StorageError | None = None
    for wait_s in _CREATE_WAITS_S:
        time.sleep(wait_s)
        etag = None
        try:
            if trouble is not None:
                first = with_history(store, _as_another(first), written)
            document = to_document(replace(first, moved_from=CREATION))
            etag = store.create(key, encode_head(document, state.head_format))
        except ObjectExistsError:
            if _is_free(store, state) and remove_leftover(store, state.name, state.head_format):
                continue
            # It may be ours, from a put whose answer was lost.
        except StorageError as exc:
            if not exc.retryable and trouble is None:
                raise
            trouble = exc
            continue
        try:
            claimed = _claim_name(store, first, etag)
        except ObjectExistsError:
            # Once a commit exists, no reader looks for a head that lost, and none commits to it.
            if etag is not None:
                store.delete_if_match(key, etag=etag)
            raise
        return written.get(claimed.state.created_at, first)
    raise _unknown_creation(state, trouble) from trouble


def _claim_name(store: Store, state: State, etag: str | None) -> Head:
    """Claim the name for the dataset, also if others create it at the same time.

    Until now the head was marked: its creator may have overlooked another head. The creator has
    looked again after its put, so a creator that puts a later head will see that it came later.
    """
    trouble: StorageError | None = None
    for wait_s in _CREATE_WAITS_S:
        time.sleep(wait_s)
        head = _own_first_head(store, state, etag)
        try:
            if not _remove_unconfirmed(store, head):
                continue
            if head.state.moved_from != CREATION:
                # The answer to the last put was lost, or another writer committed to it or moved it.
                return head
            own = to_document(replace(head.state, moved_from=""))
            data = encode_head(own, head.state.head_format)
            store.replace(head.key, data, if_match=head.etag)
        except (ObjectNotFoundError, PreconditionFailedError):
            continue  # another writer acted on it: the next look shows what it did
        except StorageError as exc:
            trouble = exc
            continue
        return head
    raise _unknown_creation(state, trouble) from trouble


def _remove_unconfirmed(store: Store, head: Head) -> bool:
    """Remove the unconfirmed head beside a new one, if any; return False if it has changed.

    A hand-over of a dropped dataset has left it. Its writer may have looked for the old head before
    the drop: once it confirms the other one, that is the head of a dataset with commits.
    """
    stale = head.stale
    return stale is None or not stale.state.is_unconfirmed or remove_unchanged(store, stale)


def _own_first_head(store: Store, state: State, etag: str | None) -> Head:
    """Return the head of a dataset that is being created, unless another dataset has the name."""
    try:
        head = read_settled_head(store, state.name)
        if any(copy is not None and not copy.state.is_ours for copy in (head, head.stale)):
            raise _taken(state)  # by another tool, which does not follow these rules
        store.make_durable(head.key)
        if head.state.commit_id == state.commit_id:
            return head
        entries = history.read(store, head.state.lists.history)
    except DatasetNotFoundError as exc:
        if etag is None:
            raise _taken(state) from exc
        raise  # it was there, and was dropped again
    except StorageError as exc:
        raise _unknown_creation(state, exc) from exc
    except LakebedError as exc:
        # A damaged object is not the one just written, which others may have committed to.
        raise (_taken(state) if etag is None else _unknown_creation(state, exc)) from exc
    if all(entry.commit_id != state.commit_id for entry in entries):
        raise _taken(state)
    return head


def _is_free(store: Store, state: State) -> bool:
    try:
        read_head(store, state.name)
    except DatasetNotFoundError:
        return True
    except LakebedError:
        return False
    return False


def _taken(state: State) -> ObjectExistsError:
    return ObjectExistsError(f"Dataset {state.name!r} was just created by another writer.")


def _unknown_creation(state: State, cause: LakebedError | None) -> CommitUnknownError:
    return CommitUnknownError(
        f"The store did not confirm the creation of dataset {state.name!r}: "
        f"{cause.message if cause else 'no answer'}",
        hint="Open it, or create it again with the option to open an existing dataset.",
        commit_id=state.commit_id,
    )

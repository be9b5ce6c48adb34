"""Reading of heads, including pairs that another tool has left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lakebed.common.html import shortened
from lakebed.common.shown import counted
from lakebed.errors import (
    CorruptMetadataError,
    DatasetNotFoundError,
    InvalidInputError,
    ObjectNotFoundError,
    ReadOnlyError,
    StorageError,
)
from lakebed.model.layout import (
    JSON_SUFFIX,
    KARTOTHEK_NOTE,
    KARTOTHEK_SUFFIX,
    MSGPACK_SUFFIX,
    Folder,
    is_segment_name,
    kartothek_name,
)
from lakebed.model.names import is_dataset_name, nearest, split_table
from lakebed.state import kartothek
from lakebed.state.codec import (
    creation_time_of,
    from_document,
    is_only_head,
    is_ours,
    to_document,
)
from lakebed.state.foreign_tables import tables_at
from lakebed.state.head import PUBLISHED_FROM, HeadDocument, HeadFormat, decode_head
from lakebed.state.state import (
    COMMITTED,
    State,
    claim_of,
    is_one_dataset,
)
from lakebed.store.at_once import at_once
from lakebed.store.base import Store, StoredObject, location_exists
from lakebed.store.cache import PROCESS_CACHE

_MOST_LOOKS = 20  # each finds another step of a hand-over


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A head that was read, with its state, and all that is needed to replace it.

    Attributes:
        key: Key of the head.
        etag: Etag for replace-if-match.
        state: The state that it holds.
        stale: A second head that is out of date and may be deleted, or None.
        requests: Number of GET requests to read it.
        is_alone: Whether no head of the other format was found.
    """

    key: str
    etag: str
    state: State
    stale: Head | None = None
    requests: int = 1
    is_alone: bool = True

    @property
    def is_settled(self) -> bool:
        """True if no hand-over to the other format can be in progress."""
        return self.stale is None and self.state.moves_to is None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A head that was read; `state` is set only for a dataset of ours."""

    key: str
    etag: str
    head_format: HeadFormat
    document: HeadDocument
    state: State | None


def read_head(store: Store, name: str) -> Head:
    """Read the head of a dataset.

    Two heads can exist: plateau reads a msgpack head and writes a JSON head beside it, and two
    creators may choose different formats. Then the current head is the one that is provably newer,
    or that has a commit, and the other is stale.

    Args:
        store: The store that holds the dataset.
        name: Name of the dataset, or `DATASET:TABLE`.

    Raises:
        DatasetNotFoundError: No head exists; the message names the nearest dataset. Or the dataset
            does not have the table.
        InvalidNameError: The name is not valid.
        CorruptMetadataError: A head cannot be read, or two heads contradict each other.
        UnsupportedVersionError: A newer release or another version wrote the head; or the dataset
            has several tables, and none is named.

    Cost:
        One GET for a JSON head of ours, or for a tree that this process has read before, else two;
        one more for a dataset that has no commit yet, for two datasets of the name, and for the
        schema of a dataset of another tool.
    """
    name, table = split_table(name)
    first = _look(store, name, table)
    for _ in range(_MOST_LOOKS):
        if not first.is_alone or not first.state.is_unconfirmed:
            return first
        again = _look(store, name, table)
        if (again.key, again.etag) == (first.key, first.etag):
            # No old head was beside it between the two looks, so none can appear.
            raise not_found(store, name)
        first = replace(again, requests=first.requests + again.requests)
    raise StorageError(
        f"The head of dataset {name!r} moves from one format to the other repeatedly.",
        hint="Try again.",
        retryable=True,
    )


def _look(store: Store, name: str, table: str) -> Head:
    head = _look_at_tree(store, name, table) or _look_at_once(store, name, table)
    return _look_in_turn(store, name, table) if head is None else head


def _look_at_tree(store: Store, name: str, table: str) -> Head | None:
    """Return the head if this process knows that it was a tree, and it still is one."""
    known = PROCESS_CACHE.find(_name_of(store, HeadFormat.MSGPACK.key(name)), _Found)
    if known is None or known.state is None or not known.state.is_tree:
        return None
    return read_tree(store, name, table)


def _look_at_once(store: Store, name: str, table: str) -> Head | None:
    """Return the head in msgpack if this process knows one, and nothing else is found beside it.

    It is current when it is read, whenever the other key is looked at. In all other cases it
    matters which one is read first, and the result is None.
    """
    key = HeadFormat.MSGPACK.key(name)
    if store.is_near or PROCESS_CACHE.find(_name_of(store, key), _Found) is None:
        return None
    formats = (HeadFormat.JSON, HeadFormat.MSGPACK)
    json, msgpack = at_once(lambda one: _find(store, name, one), formats, len(formats))
    if json is not None or msgpack is None or _is_new(msgpack):
        return None
    return _head(store, msgpack, table, requests=len(formats))


def _look_in_turn(store: Store, name: str, table: str) -> Head:
    json = _find(store, name, HeadFormat.JSON)
    if json is not None and is_only_head(json.document):
        return _head(store, json, table, requests=1)
    msgpack = _find(store, name, HeadFormat.MSGPACK)
    requests = 2
    if json is None and (msgpack is None or _is_new(msgpack)):
        # Between the two requests a commit may have replaced both heads by a JSON head. And the
        # first commit to one of two new heads requires a later look for the other one.
        json, requests = _find(store, name, HeadFormat.JSON), 3
        if json is not None:
            # A head that was read before this one proves nothing about it.
            msgpack, requests = _find_beside(store, name), 4
    if json is not None and msgpack is not None:
        return _newer(store, json, msgpack, table, requests=requests)
    head = json or msgpack
    if head is None:
        raise not_found(store, name)
    return _head(store, head, table, requests=requests)


def read_tree(store: Store, name: str, table: str = "") -> Head | None:
    """Read the head of a dataset that was a tree with a commit; None if it is none any more.

    There is no other head beside such a tree: other tools and earlier releases refuse it, and the
    last one that another tool wrote is found when the head is looked for.

    Cost:
        One GET.
    """
    found = _find(store, name, HeadFormat.MSGPACK)
    state = None if found is None else found.state
    if found is None or state is None or not state.is_tree or _is_new(found):
        return None
    return None if state.is_unconfirmed else _head(store, found, table, requests=1)


def _find_beside(store: Store, name: str) -> _Found | None:
    """Return the msgpack head as it is after a JSON head was found."""
    return _find(store, name, HeadFormat.MSGPACK)


def _is_new(head: _Found) -> bool:
    return head.state is not None and head.state.version == 0


def find_head(store: Store, name: str, head_format: HeadFormat) -> Head | None:
    """Return the head of one format, regardless of the other; None if there is none.

    Cost:
        One GET.
    """
    head = _find(store, name, head_format)
    return None if head is None else _head(store, head, "", requests=1)


def not_found(store: Store, name: str) -> DatasetNotFoundError:
    """Return the error for a name that no dataset has.

    Cost:
        A LIST of the root and three under the name; one more in an empty repository.
    """
    known = [other for other in list_names(store) if other != name]  # its head may be invalid
    within = list_names(store, f"{name}/")
    is_in_dataset = not known and not within and is_dataset(store)
    if within:
        listed = (
            f"{name!r} is a repository itself, with {counted(len(within), 'dataset')}: name one, "
            f"such as {store.uri}/{name}/{within[0]}."
        )
    elif known:
        listed = f"Datasets are: {shortened(known)}."
    elif is_in_dataset:
        listed = f"{store.uri} is a dataset itself. {dataset_hint(store)}"
    elif location_exists(store):
        listed = "The repository is empty."
    else:
        listed = "The directory does not exist."
    table = next((format_ for format_, _ in tables_at(store, name)), None)
    if table is not None:
        listed = f"{store.uri}/{name} is a table of {table}, which was not adopted."
        if table.adopting:
            listed += f" Make it a dataset: {table.adopting}."
    error = DatasetNotFoundError(
        f"Dataset {name!r} not found in {store.uri}.",
        hint=("" if within or table else nearest(name, known)) or listed,
    )
    error.within, error.is_in_dataset = tuple(within), is_in_dataset
    error.table = table or ""
    return error


def list_repository(store: Store) -> list[str]:
    """Return the names of all datasets in a store, sorted.

    Raises:
        InvalidInputError: The store is the directory of a dataset, and not a repository.

    Cost:
        One LIST of the root; one more if it holds no dataset.
    """
    names = list_names(store)
    if not names and is_dataset(store):
        raise InvalidInputError(
            f"{store.uri} is a dataset, not a repository.", hint=dataset_hint(store)
        )
    return names


def is_dataset(store: Store) -> bool:
    """Return whether a store, opened as a repository, is the directory of a dataset of Lakebed.

    Cost:
        One LIST of a folder that no repository has.
    """
    folder = f"{Folder.HISTORY}/"
    keys = (info.key for info in store.list(folder, recursive=False))
    return any(is_segment_name(key.removeprefix(folder)) for key in keys)


def dataset_hint(store: Store) -> str:
    """Return the hint for a store that is the directory of a dataset."""
    above, _, name = store.uri.rpartition("/")
    return f"Open {name!r} in the repository {above}."


def list_names(store: Store, folder: str = "") -> list[str]:
    """Return the names of all datasets in a store, sorted; heads with invalid names do not count.

    Args:
        store: The store of the repository.
        folder: A folder that may be a repository itself, with a trailing slash; empty for the root.

    Cost:
        One LIST of the root, not of the datasets; a HEAD for each that is published to Kartothek.
    """
    names = _names_in(folder, (info.key for info in store.list(folder, recursive=False)))
    copies = {kartothek_name(name) for name in names}.intersection(names)
    if not copies:
        return names
    return [name for name in names if name not in copies or not _is_published(store, folder, name)]


def _is_published(store: Store, folder: str, name: str) -> bool:
    """Return whether a name is that of a Kartothek dataset which another dataset is published as."""
    source = name.removesuffix(KARTOTHEK_SUFFIX)
    try:
        store.size(KARTOTHEK_NOTE.format(f"{folder}{source}"))
    except ObjectNotFoundError:
        return False
    return True


def _names_in(folder: str, keys: Iterable[str]) -> list[str]:
    """Return the names of the datasets whose heads are directly in a folder."""
    names = set()
    for key in keys:
        for suffix in (JSON_SUFFIX, MSGPACK_SUFFIX):
            name = key.removeprefix(folder).removesuffix(suffix)
            if key.endswith(suffix) and is_dataset_name(name):
                names.add(name)
    return sorted(names)


def check_holds_none(store: Store, name: str, keys: Iterable[str]) -> None:
    """Check that no other dataset lies in the directory of a dataset that will be deleted.

    Args:
        store: The store of the repository.
        name: Name of the dataset.
        keys: All keys in its directory that will be deleted.

    Raises:
        InvalidInputError: The directory holds another dataset.
    """
    within = _names_in(f"{name}/", keys)
    if within:
        raise InvalidInputError(
            f"Dataset {name!r} cannot be dropped: the directory {store.uri}/{name} also holds "
            f"{shortened(within)}, which would be deleted with it.",
            hint="Drop each of these first, or move it to another repository.",
        )


def _find(store: Store, name: str, head_format: HeadFormat) -> _Found | None:
    key = head_format.key(name)
    known = PROCESS_CACHE.find(_name_of(store, key), _Found)
    try:
        stored = store.get_if_changed(key, etag=known.etag) if known else store.get(key)
    except ObjectNotFoundError:
        return None
    head = known if stored is None else _decoded(store, name, head_format, stored)
    if head is not None and store.finish_claim(key, etag=head.etag):
        return _find(store, name, head_format)
    return head


def _decoded(store: Store, name: str, head_format: HeadFormat, stored: StoredObject) -> _Found:
    key = stored.key
    document = decode_head(stored.data, head_format, key)
    if document.dataset_uuid != name:
        raise CorruptMetadataError(
            f"Head {key!r} belongs to dataset {document.dataset_uuid!r}.",
            hint="It was copied or renamed; a head must keep its name.",
        )
    if PUBLISHED_FROM in document.metadata:
        raise is_publication(name, str(document.metadata[PUBLISHED_FROM]))
    state = None
    if is_ours(document):
        state = from_document(document, head_format, key, stored.modified_at)
    head = _Found(
        key=key, etag=stored.etag, head_format=head_format, document=document, state=state
    )
    if state is not None:
        _hold(store, head, state)
    return head


def is_publication(name: str, source: str) -> ReadOnlyError:
    """Return the error for the name of a Kartothek dataset that another dataset is published as."""
    return ReadOnlyError(
        f"{name!r} is dataset {source!r} as it was published to Kartothek; it has no files of its "
        "own.",
        hint=f"Use {source!r} instead. `lakebed unpublish kartothek` with {source!r} removes it.",
    )


def remember(store: Store, key: str, etag: str, state: State) -> None:
    """Cache a head that was just written, so that the next commit need not decode it."""
    state.trust_digest()
    document = to_document(state, with_partitions=False)
    head = _Found(key=key, etag=etag, head_format=state.head_format, document=document, state=state)
    _hold(store, head, state)


def _hold(store: Store, head: _Found, state: State) -> None:
    head.document.partitions = head.document.tree = None  # the state has the files
    PROCESS_CACHE.hold(_name_of(store, head.key), head, size_bytes=_memory_of(state))


def _name_of(store: Store, key: str) -> tuple[str, str, str]:
    return "head", store.cache_name, key


def _memory_of(state: State) -> int:
    """Return the approximate size of a state in bytes."""
    return state.live.memory_bytes + 10_000


def _head(store: Store, head: _Found, table: str, *, requests: int) -> Head:
    state = head.state
    if state is None:
        state = kartothek.read_foreign(store, head.document, head.head_format, head.key, table)
        requests += 1
    elif table not in ("", state.layout.table):
        raise kartothek.no_such_table(state.name, table, (state.layout.table,))
    elif state.is_tree:
        from lakebed.state.tree.find import stored

        state = stored(store, state)
    return Head(key=head.key, etag=head.etag, state=state, requests=requests)


def _newer(store: Store, json: _Found, msgpack: _Found, table: str, *, requests: int) -> Head:
    """Return the current one of two heads, with the other as stale.

    Of two datasets of ours, the one with a commit wins. Of two versions of one dataset, the higher
    wins, unless another tool has changed the lower one: then each holds changes that the other
    lacks. At the same version, the changed one wins; if none is changed, the one to which the other
    moves; otherwise the JSON head, which can only exist because plateau wrote its own metadata into
    it. Without versions, an update by plateau, which keeps the creation time, is in the JSON head.
    """
    found = (_head(store, one, table, requests=requests) for one in (json, msgpack))
    pair = tuple(replace(head, is_alone=False) for head in found)
    if not all(head.state.is_ours for head in pair):
        msgpack_is_later = creation_time_of(msgpack.document) > creation_time_of(json.document)
        return pair[1] if msgpack_is_later else pair[0]
    if not is_one_dataset(pair[0].state, pair[1].state):
        if not _is_unchanged(store, pair[0]):
            # It was dropped before the other one was created: they never were side by side.
            return _look_in_turn(store, pair[0].state.name, table)
        return _of_two_datasets(tuple(replace(one, requests=requests + 1) for one in pair))
    target = next((h.state.moves_to for h in pair if h.state.moves_to), HeadFormat.JSON)
    low, high = sorted(pair, key=lambda head: _age(head, target))
    if _contradict(low.state, high.state):
        raise CorruptMetadataError(
            f"Dataset {low.state.name!r} has two heads, {low.key!r} and {high.key!r}, "
            "and each holds changes that the other lacks.",
            hint="Delete the one that you do not want; its data files stay on storage.",
        )
    return replace(high, stale=low)


def _is_unchanged(store: Store, head: Head) -> bool:
    now = _find(store, head.state.name, head.state.head_format)
    return now is not None and now.etag == head.etag


def _of_two_datasets(pair: Sequence[Head]) -> Head:
    """Return the head of the dataset that owns the name, with the other as stale.

    If neither has a commit, it is the one whose creation has succeeded; otherwise the one that has
    not withdrawn; otherwise the one with the earlier time of creation. That time need not be
    correct, as long as every reader decides alike.
    """
    first, second = sorted(pair, key=lambda head: (head.state.created_at, head.state.commit_id))
    claims = [(claim_of(head.state), head.state.moves_to is None) for head in (first, second)]
    if min(claims)[0] >= COMMITTED and claims[0][0] == claims[1][0]:
        raise CorruptMetadataError(
            f"Two datasets have the name {first.state.name!r}, with the heads "
            f"{first.key!r} and {second.key!r}, and both have commits.",
            hint="Delete the head of the one that you do not want; its data files stay on storage.",
        )
    winner, loser = (first, second) if claims[0] >= claims[1] else (second, first)
    return replace(winner, stale=loser)


def _age(head: Head, target: HeadFormat) -> tuple[int, bool, bool]:
    state = head.state
    return state.version, state.is_changed_by_others, state.head_format is target


def _contradict(low: State, high: State) -> bool:
    if not low.is_changed_by_others:
        return False
    if low.version != high.version:
        return True
    # A head that moves takes changes by other tools along.
    return high.is_changed_by_others and low.labels != high.labels


def read_own_head(store: Store, dataset: str) -> Head:
    """Read the head of a dataset that Lakebed created, to commit to it.

    Raises:
        DatasetNotFoundError: The dataset does not exist.
        ReadOnlyError: Another tool created the dataset.

    Cost:
        As `read_head`.
    """
    head = read_head(store, dataset)
    if not head.state.is_ours:
        raise ReadOnlyError(
            f"Dataset {dataset!r} was not created by Lakebed, so it can only be read.",
            hint="To write to it, take it over: adopt(…, kartothek=True), on the command line "
            "--kartothek.",
        )
    return head

"""Reading a head, also where another tool has left two of them."""

from __future__ import annotations

from collections.abc import Iterable
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
from lakebed.model.layout import JSON_SUFFIX, MSGPACK_SUFFIX, Folder, is_segment_name
from lakebed.model.names import is_dataset_name, nearest, split_table
from lakebed.state import kartothek
from lakebed.state.codec import (
    creation_time_of,
    from_document,
    is_only_head,
    is_ours,
    to_document,
)
from lakebed.state.head import HeadDocument, HeadFormat, decode_head
from lakebed.state.state import (
    COMMITTED,
    State,
    claim_of,
    is_one_dataset,
)
from lakebed.store.base import Store, location_exists
from lakebed.store.cache import PROCESS_CACHE

_MOST_LOOKS = 20  # each sees another step of a hand-over


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a head says, and what is needed to replace it.

    Attributes:
        key: Where it is.
        etag: For replace-if-match.
        state: What it says.
        stale: A second head that is out of date and may be deleted, or None.
        requests: GET requests that reading it took.
        is_alone: Whether there was none of the other format.
    """

    key: str
    etag: str
    state: State
    stale: Head | None = None
    requests: int = 1
    is_alone: bool = True

    @property
    def is_settled(self) -> bool:
        """Whether no hand-over to the other format can be under way."""
        return self.stale is None and self.state.moves_to is None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A head that was read; `state` only where it is one of ours."""

    key: str
    etag: str
    head_format: HeadFormat
    document: HeadDocument
    state: State | None


def read_head(store: Store, name: str) -> Head:
    """Read the head of a dataset.

    plateau reads a msgpack head and writes a JSON head beside it, and two creators may choose
    different formats, so that two heads can exist. Then the one that can be proven newer is the
    truth, or that somebody has committed to, and the other is stale.

    Args:
        store: Where it is.
        name: Of the dataset, or `DATASET:TABLE`.

    Raises:
        DatasetNotFoundError: There is no head; the message names the nearest dataset. Or the
            dataset has no such table.
        InvalidNameError: The name is not legal.
        CorruptMetadataError: A head cannot be read, or two heads contradict each other.
        UnsupportedVersionError: A newer release or another version wrote it; or it has several
            tables, and none is named.

    Cost:
        One GET for a JSON head of ours, else two; one more for a dataset that has no commit yet,
        and for the schema of a dataset of another tool.
    """
    name, table = split_table(name)
    first = _look(store, name, table)
    for _ in range(_MOST_LOOKS):
        if not first.is_alone or not first.state.is_unconfirmed:
            return first
        again = _look(store, name, table)
        if (again.key, again.etag) == (first.key, first.etag):
            # There was no old head beside it between the two looks, and will be none.
            raise not_found(store, name)
        first = replace(again, requests=first.requests + again.requests)
    raise StorageError(
        f"The head of dataset {name!r} moves from one format to the other again and again.",
        hint="Try again.",
        retryable=True,
    )


def _look(store: Store, name: str, table: str) -> Head:
    json = _find(store, name, HeadFormat.JSON)
    if json is not None and is_only_head(json.document):
        return _head(store, json, table, requests=1)
    msgpack = _find(store, name, HeadFormat.MSGPACK)
    requests = 2
    if json is None and (msgpack is None or _is_new(msgpack)):
        # Between the two requests a commit may have taken the place of both heads with a JSON one.
        # And who commits first to one of two new heads must have looked for the other after it.
        json, requests = _find(store, name, HeadFormat.JSON), 3
    if json is not None and msgpack is not None:
        return replace(_newer(store, json, msgpack, table), is_alone=False)
    head = json or msgpack
    if head is None:
        raise not_found(store, name)
    return _head(store, head, table, requests=requests)


def _is_new(head: _Found) -> bool:
    return head.state is not None and head.state.version == 0


def find_head(store: Store, name: str, head_format: HeadFormat) -> Head | None:
    """Return what the head of one format says, whatever the other does; None if there is none.

    Cost:
        One GET.
    """
    head = _find(store, name, head_format)
    return None if head is None else _head(store, head, "", requests=1)


def not_found(store: Store, name: str) -> DatasetNotFoundError:
    """Return the error for a name that no dataset has.

    Cost:
        A LIST of the root and of what lies under the name; one more in an empty repository.
    """
    known = list_names(store)
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
        listed = "There is no such directory."
    error = DatasetNotFoundError(
        f"Dataset {name!r} not found in {store.uri}.",
        hint=("" if within else nearest(name, known)) or listed,
    )
    error.within, error.is_in_dataset = tuple(within), is_in_dataset
    return error


def list_repository(store: Store) -> list[str]:
    """Return the names of all datasets in a store, sorted.

    Raises:
        InvalidInputError: The store is no repository, but the directory of a dataset.

    Cost:
        One LIST of the root; one more where it holds none.
    """
    names = list_names(store)
    if not names and is_dataset(store):
        raise InvalidInputError(
            f"{store.uri} is a dataset, not a repository.", hint=dataset_hint(store)
        )
    return names


def is_dataset(store: Store) -> bool:
    """Whether a store, opened as a repository, is the directory of a dataset that Lakebed created.

    Cost:
        One LIST of a folder that no repository has.
    """
    folder = f"{Folder.HISTORY}/"
    keys = (info.key for info in store.list(folder, recursive=False))
    return any(is_segment_name(key.removeprefix(folder)) for key in keys)


def dataset_hint(store: Store) -> str:
    """Say what to open in place of a store that is the directory of a dataset."""
    above, _, name = store.uri.rpartition("/")
    return f"Open {name!r} in the repository {above}."


def list_names(store: Store, folder: str = "") -> list[str]:
    """Return the names of all datasets in a store, sorted; copies of heads by other names are none.

    Args:
        store: Of the repository.
        folder: That may be a repository itself, with a slash at its end; empty for the store.

    Cost:
        One LIST of the root, not of the datasets.
    """
    return _names_in(folder, (info.key for info in store.list(folder, recursive=False)))


def _names_in(folder: str, keys: Iterable[str]) -> list[str]:
    """Return the names of the datasets whose heads lie directly in a folder."""
    names = set()
    for key in keys:
        for suffix in (JSON_SUFFIX, MSGPACK_SUFFIX):
            name = key.removeprefix(folder).removesuffix(suffix)
            if key.endswith(suffix) and is_dataset_name(name):
                names.add(name)
    return sorted(names)


def check_holds_none(store: Store, name: str, keys: Iterable[str]) -> None:
    """Check that no other dataset lies in the directory of one that is to be deleted.

    Args:
        store: Of the repository.
        name: Of the dataset.
        keys: All keys in its directory that are to be deleted.

    Raises:
        InvalidInputError: There is one.
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
    known = PROCESS_CACHE.find(("head", store.cache_name, key), _Found)
    try:
        stored = store.get_if_changed(key, etag=known.etag) if known else store.get(key)
    except ObjectNotFoundError:
        return None
    if stored is None:
        return known
    document = decode_head(stored.data, head_format, key)
    if document.dataset_uuid != name:
        raise CorruptMetadataError(
            f"Head {key!r} is of dataset {document.dataset_uuid!r}.",
            hint="It was copied or renamed; a head and its name belong together.",
        )
    state = from_document(document, head_format, key) if is_ours(document) else None
    head = _Found(
        key=key, etag=stored.etag, head_format=head_format, document=document, state=state
    )
    if state is not None:
        _hold(store, head, state)
    return head


def remember(store: Store, key: str, etag: str, state: State) -> None:
    """Take note of a head that was just written, so that the next commit need not decode it."""
    state.trust_digest()
    document = to_document(state, with_partitions=False)
    head = _Found(key=key, etag=etag, head_format=state.head_format, document=document, state=state)
    _hold(store, head, state)


def _hold(store: Store, head: _Found, state: State) -> None:
    head.document.partitions = None  # all that it said is in the state
    name = ("head", store.cache_name, head.key)
    PROCESS_CACHE.hold(name, head, size_bytes=_memory_of(state))


def _memory_of(state: State) -> int:
    """Return about how many bytes a state holds: a label is a text, named twice."""
    return sum(map(len, state.labels)) + 65 * len(state.labels) + 10_000


def _head(store: Store, head: _Found, table: str, *, requests: int) -> Head:
    state = head.state
    if state is None:
        state = kartothek.read_foreign(store, head.document, head.head_format, head.key, table)
        requests += 1
    elif table not in ("", state.layout.table):
        raise kartothek.no_such_table(state.name, table, (state.layout.table,))
    return Head(key=head.key, etag=head.etag, state=state, requests=requests)


def _newer(store: Store, json: _Found, msgpack: _Found, table: str) -> Head:
    """Tell which of two heads is the truth.

    Of two datasets of ours, the one wins that was committed to. Between two versions
    of one the higher wins, unless another tool has changed the lower one: then both hold
    something that the other lacks. At the same version the changed one wins; if none is, the
    one to which the other moves; or else JSON, which can only be there because plateau wrote its
    own metadata into it. Without versions, an update by plateau, which keeps the creation time,
    is in the JSON head.
    """
    pair = (_head(store, json, table, requests=2), _head(store, msgpack, table, requests=2))
    if not all(head.state.is_ours for head in pair):
        msgpack_is_later = creation_time_of(msgpack.document) > creation_time_of(json.document)
        return pair[1] if msgpack_is_later else pair[0]
    if not is_one_dataset(pair[0].state, pair[1].state):
        return _of_two_datasets(pair)
    target = next((h.state.moves_to for h in pair if h.state.moves_to), HeadFormat.JSON)
    low, high = sorted(pair, key=lambda head: _age(head, target))
    if _contradict(low.state, high.state):
        raise CorruptMetadataError(
            f"Dataset {low.state.name!r} has two heads, {low.key!r} and {high.key!r}, "
            "and each holds changes that the other lacks.",
            hint="Delete the one that you do not want; its data files stay on storage.",
        )
    return replace(high, stale=low)


def _of_two_datasets(pair: tuple[Head, Head]) -> Head:
    """Tell which of two datasets has the name.

    Where nobody has committed to either, it is the one whose creator has been told; or else the
    one that has not withdrawn; or else the one that says it was created first, which need not be
    true as long as everybody says the same.
    """
    first, second = sorted(pair, key=lambda head: (head.state.created_at, head.state.commit_id))
    claims = [(claim_of(head.state), head.state.moves_to is None) for head in (first, second)]
    if min(claims)[0] >= COMMITTED and claims[0][0] == claims[1][0]:
        raise CorruptMetadataError(
            f"There are two datasets of the name {first.state.name!r}, with the heads "
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
    # A head that moves takes along what another tool has changed in it.
    return high.is_changed_by_others and low.labels != high.labels


def read_own_head(store: Store, dataset: str) -> Head:
    """Read the head of a dataset that Lakebed created, to commit to it.

    Raises:
        DatasetNotFoundError: There is no such dataset.
        ReadOnlyError: Another tool created it.

    Cost:
        As `read_head`.
    """
    head = read_head(store, dataset)
    if not head.state.is_ours:
        raise ReadOnlyError(
            f"Dataset {dataset!r} was not created by Lakebed, so that it has no batches.",
            hint="It can be read; create a dataset of your own and append its rows there.",
        )
    return head

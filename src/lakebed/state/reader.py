"""Reading a head, also where another tool has left two of them."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.errors import CorruptMetadataError, DatasetNotFoundError, ObjectNotFoundError
from lakebed.model.keys import JSON_SUFFIX, MSGPACK_SUFFIX
from lakebed.model.names import nearest
from lakebed.state import kartothek
from lakebed.state.head import HeadDocument, HeadFormat, decode_head
from lakebed.state.state import State, creation_time_of, from_document, is_ours
from lakebed.store.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a head says, and what is needed to replace it.

    Attributes:
        key: Where it is.
        etag: For replace-if-match.
        state: What it says.
        stale_key: A second head that is out of date and may be deleted, or None.
        requests: GET requests that reading it took.
    """

    key: str
    etag: str
    state: State
    stale_key: str | None = None
    requests: int = 1


@dataclass(frozen=True, slots=True)
class _Found:
    key: str
    etag: str
    head_format: HeadFormat
    document: HeadDocument


def read_head(store: Store, name: str) -> Head:
    """Read the head of a dataset.

    plateau reads a msgpack head and writes a JSON head beside it, so that two heads can exist.
    Then the one that can be proven newer is the truth, and the other is stale.

    Raises:
        DatasetNotFoundError: There is no head; the message names the nearest dataset.
        CorruptMetadataError: A head cannot be read, or two heads contradict each other.
        UnsupportedVersionError: A newer release or another version wrote it.

    Cost:
        One GET for a JSON head of ours, else two; one more for the schema of a dataset of
        another tool.
    """
    json = _find(store, name, HeadFormat.JSON)
    # A JSON head of ours says that it is the only one; every other may have a twin.
    if json is not None and json.document.metadata.get("lakebed.head") == HeadFormat.JSON:
        return _head(store, json, requests=1)
    msgpack = _find(store, name, HeadFormat.MSGPACK)
    if json is not None and msgpack is not None:
        return _newer(store, json, msgpack)
    found = json or msgpack
    if found is not None:
        return _head(store, found, requests=2)
    # Between the two requests a commit may have taken the place of both heads with a JSON one.
    json = _find(store, name, HeadFormat.JSON)
    if json is None:
        raise not_found(store, name)
    return _head(store, json, requests=3)


def not_found(store: Store, name: str) -> DatasetNotFoundError:
    """Return the error for a name that no dataset has."""
    known = list_names(store)
    listed = f"Datasets are: {', '.join(known)}." if known else "The repository is empty."
    return DatasetNotFoundError(
        f"Dataset {name!r} not found in {store.uri}.", hint=nearest(name, known) or listed
    )


def list_names(store: Store) -> list[str]:
    """Return the names of all datasets in a store, sorted.

    Cost:
        One LIST of the root, not of the datasets.
    """
    names = set()
    for info in store.list("", recursive=False):
        for suffix in (JSON_SUFFIX, MSGPACK_SUFFIX):
            if info.key.endswith(suffix) and "/" not in info.key:
                names.add(info.key.removesuffix(suffix))
    return sorted(names)


def _find(store: Store, name: str, head_format: HeadFormat) -> _Found | None:
    key = head_format.key(name)
    try:
        stored = store.get(key)
    except ObjectNotFoundError:
        return None
    document = decode_head(stored.data, head_format, key)
    if document.dataset_uuid != name:
        raise CorruptMetadataError(
            f"Head {key!r} is of dataset {document.dataset_uuid!r}.",
            hint="It was copied or renamed; a head and its name belong together.",
        )
    return _Found(key, stored.etag, head_format, document)


def _head(store: Store, found: _Found, *, requests: int, stale_key: str | None = None) -> Head:
    if is_ours(found.document):
        state = from_document(found.document, found.head_format, found.key)
    else:
        state = kartothek.read_foreign(store, found.document, found.head_format, found.key)
        requests += 1
    return Head(key=found.key, etag=found.etag, state=state, stale_key=stale_key, requests=requests)


def _newer(store: Store, json: _Found, msgpack: _Found) -> Head:
    """Tell which of two heads is the truth.

    Between two versions of ours the higher wins, unless another tool has changed the lower one:
    then both hold something that the other lacks. At the same version the changed one wins, or
    else JSON, which can only be there because plateau wrote its own metadata into it.
    Without versions, the dataset that was created later has replaced the other, and an update by
    plateau, which keeps the creation time, is in the JSON head.
    """
    pair = (_head(store, json, requests=2), _head(store, msgpack, requests=2))
    if not all(head.state.is_ours for head in pair):
        msgpack_is_later = creation_time_of(msgpack.document) > creation_time_of(json.document)
        return pair[1] if msgpack_is_later else pair[0]
    low, high = sorted(pair, key=_age)
    same = low.state.version == high.state.version
    if low.state.is_changed_by_others and (not same or high.state.is_changed_by_others):
        raise CorruptMetadataError(
            f"Dataset {low.state.name!r} has two heads, {low.key!r} and {high.key!r}, "
            "and each holds changes that the other lacks.",
            hint="Delete the one that you do not want; its data files stay on storage.",
        )
    return Head(key=high.key, etag=high.etag, state=high.state, stale_key=low.key, requests=2)


def _age(head: Head) -> tuple[int, bool, bool]:
    state = head.state
    return state.version, state.is_changed_by_others, state.head_format is HeadFormat.JSON

"""The kind of head that the datasets of tests have: `make test-trees` gives all of them trees."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakebed.store.base import Store

ON_TREES = os.environ.get("LAKEBED_TEST_HEAD", "document") == "tree"
# Folds and merges of the tree come every few commits.
SMALL_SIZES = {"leaf": 8, "buffer": 4, "inline": 8, "fanout": 2, "merge": 100}
_OF_DOCUMENTS = Path(__file__).with_name("of_documents.txt")


def head_key(name: str) -> str:
    """Return the key of the head of a dataset that a test has created in the usual format."""
    return f"{name}.by-dataset-metadata.{'msgpack.zstd' if ON_TREES else 'json'}"


def change_entries(store: Store, name: str, entries: dict[str, Any]) -> None:
    """Put other values into the metadata of a head, as if it had been damaged."""
    _change(store, name, lambda metadata: metadata.update(entries))


def rename_property(store: Store, name: str, old: str, new: str) -> None:
    """Give a property in the descriptor of a head another name, which this release may not know."""
    entry = "lakebed.descriptor"
    _change(
        store,
        name,
        lambda held: held.update({entry: str(held[entry]).replace(f'"{old}"', f'"{new}"')}),
    )


def _change(store: Store, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    from lakebed.state.head import HeadFormat, decode_head, encode_head

    key, head_format = head_key(name), HeadFormat.MSGPACK if ON_TREES else HeadFormat.JSON
    document = decode_head(store.get(key).data, head_format, key)
    change(document.metadata)
    store.put(key, encode_head(document, head_format))


def is_of_an_attempt(operation: str, key: str) -> bool:
    """Return whether a request is of an attempt to commit: a segment of the history, or the swap.

    A tree has the new entry of its history in the head.
    """
    is_segment = operation == "put" and "/history/" in key
    return is_segment or (operation == "replace" and "by-dataset-metadata" in key)


def plant_trees() -> None:
    """Let each dataset that a test creates have a tree as its head, unless it asks for a format."""
    from lakebed.repository import Repository
    from lakebed.state.creation import first_state
    from lakebed.state.state import HeadKind
    from lakebed.state.tree.tree_commit import SIZES

    for call, kind in (
        (first_state, HeadKind.TREE),
        (Repository.create, "tree"),
        (Repository._create, HeadKind.TREE),
    ):
        call.__kwdefaults__["head"] = kind
    for name, size in SMALL_SIZES.items():
        object.__setattr__(SIZES, name, size)


def of_documents() -> Iterator[tuple[str, str]]:
    """Yield the ids of tests, or of modules of tests, that are of documents alone, with the reason."""
    reason = ""
    for line in _OF_DOCUMENTS.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif line:
            yield line, reason


def is_named_by(entry: str, test_id: str) -> bool:
    """Return whether an entry is the id of a test, of its function, of its class or of its module."""
    return test_id == entry or test_id.startswith((f"{entry}::", f"{entry}["))

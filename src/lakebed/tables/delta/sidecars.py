"""Sidecars: the files of a checkpoint in parts, one of each leaf of a tree, which checkpoints share.

A leaf is immutable, and so is the sidecar of its live files. A checkpoint names the sidecars of the
one before for leaves that have not changed, and writes those of the others. A sidecar cannot hide a
file, so a leaf that has lost files gets another one. Each write has a key of its own: a cleanup that
deletes an old sidecar late never meets one that a checkpoint names.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.errors import CorruptMetadataError, LakebedError, ObjectNotFoundError
from lakebed.model.layout import delta_folder
from lakebed.state.published import LEASE, LEASE_MARGIN, OldMetadata
from lakebed.state.state import State
from lakebed.store.base import ObjectInfo, Store
from lakebed.store.segments import Segment
from lakebed.tables.delta import checkpoint
from lakebed.tables.delta.actions import now_ms
from lakebed.tables.delta.log import Log
from lakebed.tables.delta.log_names import CHECKPOINT, SIDECARS

_NAME = re.compile(r"([0-9a-f]{32})-[0-9a-f]{32}\.parquet")
_DIGEST_BYTES = 16

AddsOf = Callable[[Sequence[str], Sequence[Segment] | None], pa.ChunkedArray]
"""Returns the actions that add some files; their facts are in some parts of the file table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """A sidecar on storage.

    Attributes:
        name: Its name in the folder of sidecars.
        size_bytes: Length of it.
        modified_ms: Time at which it was written, in epoch milliseconds.
        file_count: Number of files in it.
    """

    name: str
    size_bytes: int
    modified_ms: int
    file_count: int

    def action(self) -> dict[str, Any]:
        """Return the action of a checkpoint that names it."""
        return {
            "sidecar": {
                "path": self.name,
                "sizeInBytes": self.size_bytes,
                "modificationTime": self.modified_ms,
                "tags": [("files", str(self.file_count))],
            }
        }


def of_tree(
    store: Store,
    log: Log,
    state: State,
    known: Mapping[str, Sidecar],
    adds_of: AddsOf,
    *,
    basis: str,
    written: list[str],
) -> list[Sidecar]:
    """Return the sidecars of all files of a tree: those known already, and new ones.

    Args:
        store: The store that holds the log.
        log: The log.
        state: State of the dataset.
        known: Sidecars of the last checkpoint, by what is in them.
        adds_of: Function that returns the actions that add some files.
        basis: Text that changes whenever the same files have other actions.
        written: Receives the key of each sidecar before it is written.

    Cost:
        Two sections of each leaf that has changed since the last checkpoint, and a PUT for each.
    """
    from lakebed.state.tree.find import facts_of_leaves
    from lakebed.state.tree.tree_files import TreeFiles

    tree = state.live
    assert isinstance(tree, TreeFiles)
    sidecars = []
    for ref in tree.root.refs:
        gone = tree.root.gone.get(ref.id)
        content = _digest(basis, ref.id.hex(), *map(str, () if gone is None else gone.runs))
        if content not in known:
            facts = facts_of_leaves([ref], tree.order, state.name)
            adds = adds_of(tree.of_leaf(ref).labels(), facts)
            sidecars.append(_write(store, log, content, adds, written))
        else:
            sidecars.append(known[content])
    held = sorted(tree.root.held)
    if held:
        content = _digest(basis, *held)
        sidecar = known.get(content)
        if sidecar is None:
            sidecar = _write(store, log, content, adds_of(held, None), written)
        sidecars.append(sidecar)
    return sidecars


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _write(
    store: Store, log: Log, content: str, adds: pa.ChunkedArray, written: list[str]
) -> Sidecar:
    name = f"{content}-{uuid.uuid4().hex}.parquet"
    data = checkpoint.encode_adds(adds)
    key = log.sidecar_key(name)
    written.append(key)
    store.put(key, data)
    return Sidecar(
        name=name,
        size_bytes=data.size,
        modified_ms=now_ms(),
        file_count=len(adds),
    )


def known_in(store: Store, log: Log, number: int, digest: str) -> dict[str, Sidecar]:
    """Return the sidecars that a checkpoint names, by what is in them.

    There are none if it is missing, has another digest, or has no sidecars.

    Cost:
        The checkpoint, without its sidecars.
    """
    source = checkpoint.open_known(store, log, number, digest)
    if source is None:
        return {}
    known = {}
    for row in _named(source):
        match = _NAME.fullmatch(row["path"])
        files = dict(row["tags"] or ()).get("files", "")
        if match is not None and files.isascii() and files.isdecimal():
            known[match[1]] = Sidecar(
                name=row["path"],
                size_bytes=row["sizeInBytes"],
                modified_ms=row["modificationTime"],
                file_count=int(files),
            )
    return known


def _named(source: Any) -> list[dict[str, Any]]:
    file = pq.ParquetFile(source)
    if "sidecar" not in file.schema_arrow.names:
        return []
    rows = file.read(["sidecar"]).column("sidecar").to_pylist()
    return [row for row in rows if row is not None]


def dead_sidecars(
    store: Store, dataset: str, objects: Sequence[ObjectInfo], of_log: OldMetadata
) -> OldMetadata:
    """Return the sidecars that no checkpoint names that stays.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        objects: The objects of the dataset, as listed.
        of_log: The commits and checkpoints that are dead.

    Cost:
        Nothing without sidecars; else a GET for each checkpoint that stays.
    """
    folder = f"{delta_folder(dataset)}/"
    # A younger one may be of a checkpoint that its publisher is about to write.
    oldest = dt.datetime.now(dt.UTC) - LEASE - LEASE_MARGIN
    old = {
        info.key
        for info in objects
        if info.key.startswith(f"{folder}{SIDECARS}/") and info.modified_at <= oldest
    }
    if not old:
        return of_log
    unreadable = {}
    for info in objects:
        name = info.key.removeprefix(folder)
        if name == info.key or not CHECKPOINT.fullmatch(name) or info.key in of_log.dead:
            continue
        try:
            with store.open_input(info.key) as source:
                old.difference_update(f"{folder}{SIDECARS}/{row['path']}" for row in _named(source))
        except ObjectNotFoundError:
            return of_log  # another cleanup is running
        except (LakebedError, pa.ArrowException, OSError, ValueError) as exc:
            unreadable[info.key] = f"It cannot be read: {exc}."  # it may name any of them
    dead = frozenset() if unreadable else frozenset(old)
    return of_log | OldMetadata(dead=dead, unreadable=unreadable)


def paths_in(store: Store, log: Log, key: str) -> Iterator[str]:
    """Yield the paths of the files in the sidecars of a checkpoint; nothing if it has none.

    Raises:
        CorruptMetadataError: A sidecar is missing, or cannot be read.
    """
    with store.open_input(key) as source:
        named = _named(source)
    for row in named:
        sidecar = log.sidecar_key(row["path"])
        try:
            with store.open_input(sidecar) as source:
                paths = pq.ParquetFile(source).read(["add.path"]).column("add")
        except (ObjectNotFoundError, pa.ArrowException, OSError, ValueError) as exc:
            raise CorruptMetadataError(
                f"{sidecar!r} of a Delta log cannot be read: {exc}.",
                hint="Publish with repair, which begins the log again; the dataset itself is not "
                "affected.",
            ) from exc
        for add in paths.to_pylist():
            if add is not None and isinstance(add["path"], str):
                yield add["path"]


__all__ = ["AddsOf", "Sidecar", "dead_sidecars", "known_in", "of_tree", "paths_in"]

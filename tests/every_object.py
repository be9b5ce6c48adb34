"""A lake in memory with every kind of object that Lakebed writes, for fuzzing and for damage."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from heads import SMALL_SIZES

import lakebed
from lakebed import by
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import DelegatingStore

SCHEMA = pa.schema(
    [
        ("p", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("text", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=SCHEMA, partition_by=[by.identity("p")], index=["n"], properties={"owner": "ops"}
)
NAMES = {"document": "json", "packed": "msgpack.zstd", "tree": "tree"}
PARTITIONS = "abcd"
RUN_LOG = "_lakebed.runs"


class Shared(DelegatingStore):
    """The lake under a URL that other processes could use, which published tables need."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.uri, self.is_shared = "s3://lake", True


@contextlib.contextmanager
def small_trees() -> Iterator[None]:
    """Let folds and merges of a tree come every few commits."""
    from lakebed.state.tree.tree_commit import SIZES

    before = {name: getattr(SIZES, name) for name in SMALL_SIZES}
    for name, size in SMALL_SIZES.items():
        object.__setattr__(SIZES, name, size)
    try:
        yield
    finally:
        for name, size in before.items():
            object.__setattr__(SIZES, name, size)


def rows(first: int, end: int, partitions: str = PARTITIONS) -> list[dict[str, Any]]:
    """Return rows, whose partitions take turns."""
    begin = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    return [
        {
            "p": partitions[n % len(partitions)],
            "n": n,
            "x": n / 4,
            "text": None if n % 5 == 4 else f"text {n}",
            "at": begin + dt.timedelta(hours=n),
        }
        for n in range(first, end)
    ]


@dataclass(frozen=True)
class Lake:
    """Objects by key, of one dataset in each of two states.

    Attributes:
        now: All objects.
        before: Those that lay there before the last commits, such as an older head.
    """

    now: Mapping[str, bytes]
    before: Mapping[str, bytes]

    def store(self) -> MemoryStore:
        """Return a store of its own with the objects of now."""
        return store_of(self.now)


def store_of(objects: Mapping[str, bytes]) -> MemoryStore:
    """Return a new store with some objects."""
    store = MemoryStore(uuid.uuid4().hex)
    for key, data in objects.items():
        store.put(key, data)
    return store


def objects_of(store: Store) -> dict[str, bytes]:
    """Return the bytes of all objects by key."""
    return {info.key: store.get(info.key).data for info in store.list("")}


@functools.cache
def lake_of(kind: str) -> Lake:
    """Return the lake of a dataset with a `document`, a `packed` document or a `tree` as its head."""
    store = MemoryStore(uuid.uuid4().hex)
    with small_trees():
        before = _fill(store, NAMES[kind])
    return Lake(now=objects_of(store), before=before)


def _fill(store: MemoryStore, head: str) -> dict[str, bytes]:
    how: dict[str, Any] = {"head": "document", "head_format": head}
    if head == "tree":
        how = {"head": "tree"}
    repository = lakebed.Repository(Shared(store))
    dataset = repository.create("d", DESCRIPTOR, **how)
    dataset.append(rows(0, 16), run="first")
    dataset.append(rows(16, 28), run="second")
    dataset.protections.add(version=2, reason="audit")
    dataset.where("p = 'a'").kite.signal_ready()
    dataset.overwrite(rows(100, 104, "b"), dataset.where("p = 'b'"))
    dataset.merge(rows(17, 18) + rows(200, 201), "n", run="changes")
    for number in range(3):
        dataset.append(rows(300 + number, 301 + number))
    _ingest(store)
    dataset.staged.add(rows(400, 402), run="waiting")
    dataset.compact(metadata=True)
    dataset.erase(dataset.where("n = 301"), reason="asked", grace="0s")
    dataset.overwrite(rows(100, 104, "b"), dataset.where("p = 'b'"))
    dataset.cleanup("0s", dry_run=False, clock_skew=dt.timedelta())
    for kind in ("delta", "iceberg", *(["kartothek"] if head != "tree" else [])):
        dataset.publish(kind)  # type: ignore[arg-type]  # each of them is one
    before = objects_of(store)
    dataset.append(rows(500, 504), run="last")
    dataset.delete(dataset.where("n = 200"))
    return before


def _ingest(store: MemoryStore) -> None:
    """Read raw files in, one line of which does not fit, as a run of a pipeline."""
    raw = MemoryStore(f"{store.uri.removeprefix('memory://')}-raw")
    lines = [json.dumps(one, default=str) for one in rows(600, 604)]
    raw.put("in/a.jsonl", "\n".join([*lines, '{"n": "no number"}', ""]).encode())
    lakebed.Ingest(
        name="raw",
        into=f"{store.uri}/d",
        source=lakebed.FromFiles(paths=f"{raw.uri}/in/"),
        format="json",
        max_rejects=1,
    ).run()

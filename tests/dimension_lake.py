"""Datasets of dimensions for the tests of promotions, and the moments at which others come."""

from __future__ import annotations

import collections
import functools
import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from copies import copy_of
from heads import is_of_an_attempt
from inside import state_of, store_of

import lakebed
from lakebed import by
from lakebed.state import runs
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore

SCHEMA = pa.schema([("channel", pa.string()), ("n", pa.int64()), ("id", pa.int64())])


def new_store() -> MemoryStore:
    return MemoryStore(os.urandom(8).hex())


def descriptor(channel: Any = ("beta",), n: Any = None) -> lakebed.DatasetDescriptor:
    functions = [by.dimension("channel", list(channel) if isinstance(channel, tuple) else channel)]
    if n is not None:
        functions.append(by.dimension("n", n))
    return lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=functions)


def make(store: Store | None = None, **allowed: Any) -> lakebed.Dataset:
    return lakebed.Repository(new_store() if store is None else store).create(
        "d", descriptor(**allowed)
    )


def row(channel: str | None, number: int = 0, n: int = 0) -> dict[str, Any]:
    return {"channel": channel, "n": n, "id": number}


def three(store: Store | None = None) -> lakebed.Dataset:
    """A dataset of three batches, each with an allowed channel and two that are not."""
    if store is None:
        return lakebed.Repository(copy_of(store_of_three())).open("d")
    dataset = make(store)
    for number in range(3):
        dataset.append([row(one, number) for one in ("beta", "esr", "own", None)])
    return dataset


@functools.cache
def store_of_three() -> Store:
    store = new_store()
    three(store)
    return store


def by_partition(dataset: lakebed.Dataset) -> dict[str, collections.Counter[str]]:
    """Return the rows of each partition, by the files that lie there."""
    found = {}
    for one in dataset.kite.covering_partitions():
        found[one.path] = collections.Counter(map(str, one.arrow().to_pylist()))
    return found


def rows_of_runs(dataset: lakebed.Dataset) -> dict[str | None, int]:
    state = state_of(dataset)
    known = runs.read(store_of(dataset), state.lists)
    counts = {file.key: file.row_count or 0 for file in dataset.files()}
    found: collections.Counter[str | None] = collections.Counter()
    for label in state.labels:
        found[known.of(label)] += counts[state.layout.key(label)]
    return dict(found)


PHASES: dict[str, Callable[[str, str], bool]] = {
    "reserve": lambda operation, key: operation == "create" and "/batches/" in key,
    "stage": lambda operation, key: operation == "put" and "/data/" in key,
    "complete": lambda operation, key: operation == "replace" and "/batches/" in key,
    "attempt": is_of_an_attempt,
    "swap": lambda operation, key: operation == "replace" and "by-dataset-metadata" in key,
}

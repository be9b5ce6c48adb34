"""The promise of a store, kept by memory."""

from __future__ import annotations

import uuid
from pathlib import Path

from lakebed.store.memory import MemoryStore
from lakebed.testing import CountingStore, FailingStore, StoreContract


class TestMemoryStore(StoreContract):
    def make_store(self, tmp_path: Path) -> MemoryStore:
        return MemoryStore(f"{tmp_path.name}-{uuid.uuid4().hex}")


class TestMemoryStoreInDirectory(StoreContract):
    def make_store(self, tmp_path: Path) -> MemoryStore:
        return MemoryStore(f"{tmp_path.name}-{uuid.uuid4().hex}/some/where")


class TestCountingStore(StoreContract):
    def make_store(self, tmp_path: Path) -> CountingStore:
        return CountingStore(MemoryStore(f"{tmp_path.name}-{uuid.uuid4().hex}"))


class TestFailingStoreThatIsNotDue(StoreContract):
    def make_store(self, tmp_path: Path) -> FailingStore:
        return FailingStore(
            MemoryStore(f"{tmp_path.name}-{uuid.uuid4().hex}"), fail_on="put", nth=1_000_000
        )

"""The promise of a store, kept by a tree that only moves files."""

from __future__ import annotations

import uuid
from pathlib import Path

from numbered_tree import MemoryTreeStore

from lakebed.testing import StoreContract


class TestNumberedStore(StoreContract):
    def make_store(self, tmp_path: Path) -> MemoryTreeStore:
        return MemoryTreeStore(f"{tmp_path.name}-{uuid.uuid4().hex}")

"""The promise of a store, kept by a real NameNode and a real DataNode."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from hdfs_cluster import Cluster

from lakebed.store import open_store
from lakebed.store.base import Store
from lakebed.testing import StoreContract

pytestmark = pytest.mark.long  # fetches a jar, and starts a JVM


class TestHdfsStore(StoreContract):
    rounds = 4

    @pytest.fixture(autouse=True)
    def _serve(self, hdfs_cluster: Cluster) -> None:
        self.cluster = hdfs_cluster

    def make_store(self, tmp_path: Path) -> Store:
        url = self.cluster.url(f"lake %20/{tmp_path.name}-{uuid.uuid4().hex}")
        return open_store(url, storage_options=self.cluster.options)

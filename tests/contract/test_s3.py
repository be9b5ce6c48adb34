"""The promise of a store, kept by S3 as moto serves it.

moto proves that requests and answers are right. It proves nothing about the races of a real service.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from lakebed.store import open_store
from lakebed.store.base import Store
from lakebed.testing import StoreContract


class TestS3Store(StoreContract):
    rounds = 4

    @pytest.fixture(autouse=True)
    def _serve(self, s3_options: dict[str, str]) -> None:
        self.options = s3_options

    def make_store(self, tmp_path: Path) -> Store:
        url = f"s3://lake/run %20/{tmp_path.name}-{uuid.uuid4().hex}"
        return open_store(url, storage_options=self.options)


class TestS3StoreInVersionedBucket(StoreContract):
    rounds = 2

    @pytest.fixture(autouse=True)
    def _serve(self, s3_options: dict[str, str]) -> None:
        self.options = s3_options

    def make_store(self, tmp_path: Path) -> Store:
        url = f"s3://versioned/{tmp_path.name}-{uuid.uuid4().hex}"
        return open_store(url, storage_options=self.options)

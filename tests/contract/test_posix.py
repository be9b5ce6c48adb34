"""The promise of a store, kept by a directory."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lakebed.store.posix import PosixStore
from lakebed.testing import StoreContract


class TestPosixStore(StoreContract):
    def make_store(self, tmp_path: Path) -> PosixStore:
        return PosixStore(tmp_path / "lake root %20")


class TestPosixStoreWithoutSync(StoreContract):
    rounds = 60

    def make_store(self, tmp_path: Path) -> PosixStore:
        return PosixStore(tmp_path / "lake", durable=False)


class TestPosixStoreWithoutHardLinks(StoreContract):
    """Some network and FUSE file systems have no hard links; none of these can be mounted here."""

    @pytest.fixture(autouse=True)
    def _refuse_links(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "link", refuse)

    def make_store(self, tmp_path: Path) -> PosixStore:
        return PosixStore(tmp_path / "lake")

"""The promise of a store, kept by servers of S3 that others have written.

`make servers-env` builds them. What a trial says of them is in docs/object-stores.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from places import BUCKET, HASTY_SERVERS, TRUE_SERVERS

from lakebed.store import open_store
from lakebed.store.base import Store
from lakebed.store.trial import CheckStatus, try_store
from lakebed.testing import StoreContract

pytestmark = pytest.mark.long


@pytest.mark.parametrize("server", TRUE_SERVERS)
class TestServer(StoreContract):
    rounds = 30

    @pytest.fixture(autouse=True)
    def _serve(self, server: str, s3_server_options: Callable[[str], dict[str, str]]) -> None:
        self.options = s3_server_options(server)

    def make_store(self, tmp_path: Path) -> Store:
        url = f"s3://{BUCKET}/run %20/{uuid.uuid4().hex}"
        return open_store(url, storage_options=self.options)


@pytest.mark.parametrize("server", TRUE_SERVERS)
def test_trial_finds_that_the_server_keeps_writers_apart(
    server: str, s3_server_options: Callable[[str], dict[str, str]]
) -> None:
    trial = try_store(f"s3://{BUCKET}/tried", storage_options=s3_server_options(server), rounds=200)

    assert [check for check in trial.checks if check.status is not CheckStatus.OK] == []
    assert trial.is_complete
    assert trial.keeps_writers_apart


@pytest.mark.parametrize("server", HASTY_SERVERS)
def test_trial_finds_that_the_server_looks_first_and_writes_then(
    server: str, s3_server_options: Callable[[str], dict[str, str]]
) -> None:
    options = s3_server_options(server)
    open_store(f"s3://{BUCKET}/tried", storage_options=options).try_conditions()  # finds nothing

    trial = try_store(f"s3://{BUCKET}/tried", storage_options=options)

    failed = [check.name for check in trial.checks if check.status is not CheckStatus.OK]
    assert failed == ["race to create", "race to replace"]
    assert not trial.keeps_writers_apart

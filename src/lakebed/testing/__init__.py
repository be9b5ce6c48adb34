"""Helpers for tests against Lakebed, and for tests of new stores. Needs pytest."""

import pytest

pytest.register_assert_rewrite("lakebed.testing.contract")

from lakebed.testing.contract import StoreContract  # noqa: E402 - rewriting comes before
from lakebed.testing.stores import (  # noqa: E402
    CountingStore,
    DelegatingStore,
    FailingStore,
    RequestCounts,
    StoreOperation,
)

__all__ = [
    "CountingStore",
    "DelegatingStore",
    "FailingStore",
    "RequestCounts",
    "StoreContract",
    "StoreOperation",
]

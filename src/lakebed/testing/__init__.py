"""Helpers for tests against Lakebed, and for tests of new stores. The contract needs pytest.

Each is loaded on first use, so that a benchmark which counts requests does not load pytest.
"""

import sys
from typing import TYPE_CHECKING

from lakebed.common.lazy import lazily

if TYPE_CHECKING:
    from lakebed.testing.contract import StoreContract as StoreContract
    from lakebed.testing.stores import CountingStore as CountingStore
    from lakebed.testing.stores import DelegatingStore as DelegatingStore
    from lakebed.testing.stores import FailingStore as FailingStore
    from lakebed.testing.stores import RequestCounts as RequestCounts
    from lakebed.testing.stores import StoreOperation as StoreOperation
else:
    if "pytest" in sys.modules:  # the rewriting of its assertions comes before its import
        sys.modules["pytest"].register_assert_rewrite("lakebed.testing.contract")
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "StoreContract": "lakebed.testing.contract",
            "CountingStore": "lakebed.testing.stores",
            "DelegatingStore": "lakebed.testing.stores",
            "FailingStore": "lakebed.testing.stores",
            "RequestCounts": "lakebed.testing.stores",
            "StoreOperation": "lakebed.testing.stores",
        },
    )

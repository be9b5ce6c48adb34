"""What is done with whole batches: listed, compared, brought back, staged and audited."""

from typing import TYPE_CHECKING

from lakebed.lazy import lazily

if TYPE_CHECKING:
    from lakebed.batches import diff, listing, rollback, staging, transaction
else:
    __getattr__, __dir__ = lazily(
        __name__, {}, modules=("diff", "listing", "rollback", "staging", "transaction")
    )

__all__ = ["diff", "listing", "rollback", "staging", "transaction"]

"""Batches as a user holds them: listed, compared, staged, or written in a transaction."""

from typing import TYPE_CHECKING

from lakebed.model.lazy import lazily

if TYPE_CHECKING:
    from lakebed.batches import diff, listing, staged, transaction
else:
    __getattr__, __dir__ = lazily(
        __name__, {}, modules=("diff", "listing", "staged", "transaction")
    )

__all__ = ["diff", "listing", "staged", "transaction"]

"""Batches for users: listed, compared, staged, or written in a transaction."""

from typing import TYPE_CHECKING

from lakebed.common.lazy import lazily

if TYPE_CHECKING:
    from lakebed.batches import changes as changes
    from lakebed.batches import dataset_transaction as dataset_transaction
    from lakebed.batches import diff as diff
    from lakebed.batches import listing as listing
    from lakebed.batches import staged as staged
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "changes": "lakebed.batches",
            "diff": "lakebed.batches",
            "listing": "lakebed.batches",
            "staged": "lakebed.batches",
            "dataset_transaction": "lakebed.batches",
        },
    )

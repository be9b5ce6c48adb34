"""All that writes: write, rewrite, delete, ingest, stage, roll back, clean up, check.

Each is loaded when it is used.
"""

from typing import TYPE_CHECKING

from lakebed.model.lazy import lazily

if TYPE_CHECKING:
    from lakebed.work import (
        check,
        cleanup,
        compaction,
        epochs,
        indexing,
        metadata,
        promotion,
        protection,
        rollback,
        staged,
    )
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {},
        modules=(
            "check",
            "cleanup",
            "compaction",
            "epochs",
            "indexing",
            "metadata",
            "promotion",
            "protection",
            "rollback",
            "staged",
        ),
    )

__all__ = [
    "check",
    "cleanup",
    "compaction",
    "epochs",
    "indexing",
    "metadata",
    "promotion",
    "protection",
    "rollback",
    "staged",
]

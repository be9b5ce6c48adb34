"""All that writes: write, rewrite, delete, merge, ingest, stage, roll back, clean up, check.

Each is loaded when it is used.
"""

from typing import TYPE_CHECKING

from lakebed.model.lazy import lazily

if TYPE_CHECKING:
    from lakebed.work import (
        check,
        cleanup,
        compaction,
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
    "indexing",
    "metadata",
    "promotion",
    "protection",
    "rollback",
    "staged",
]

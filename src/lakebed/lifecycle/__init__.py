"""Upkeep: protect, clean up, compact, promote, check. Each is loaded when it is used."""

from typing import TYPE_CHECKING

from lakebed.lazy import lazily

if TYPE_CHECKING:
    from lakebed.lifecycle import (
        check,
        cleanup,
        compaction,
        indexing,
        metadata,
        promotion,
        protection,
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
        ),
    )

__all__ = ["check", "cleanup", "compaction", "indexing", "metadata", "promotion", "protection"]

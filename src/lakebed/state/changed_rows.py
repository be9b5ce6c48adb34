"""Changed rows: how many a commit inserted, updated and deleted, by its entry in the history."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.state.history import Entry
from lakebed.state.runs import MERGE
from lakebed.state.state import FOREIGN

# Their rows stay what they are, in other files.
_REARRANGING = frozenset({"compact", "promote"})
# What they add may hold rows of the files that they take out; how many, the entry says.
_MIXED = frozenset({"ingest", "transaction"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """Rows of one commit; None where the history does not say.

    Attributes:
        inserted: That were not there before.
        updated: That are others now.
        deleted: That are no longer there.
        rewritten: That stay as they were, in files that were written again.
    """

    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None
    rewritten: int | None = None

    @classmethod
    def of(cls, entry: Entry) -> ChangedRows:
        """Read them from an entry, of whichever release."""
        added = entry.row_count
        removed = entry.removed_row_count if entry.removed else 0
        if entry.operation == FOREIGN:
            return cls()
        if entry.operation in _REARRANGING:
            return cls(inserted=0, updated=0, deleted=0, rewritten=added)
        if entry.operation == "delete":
            # An earlier release that merges segments of the history drops the count.
            return cls(
                inserted=0, updated=0, deleted=entry.deleted_row_count or None, rewritten=added
            )
        if entry.operation == MERGE:
            if not (entry.inserted_row_count or entry.updated_row_count or entry.deleted_row_count):
                return cls()
            return cls(
                inserted=entry.inserted_row_count,
                updated=entry.updated_row_count,
                deleted=entry.deleted_row_count,
                rewritten=added - entry.inserted_row_count - entry.updated_row_count,
            )
        if entry.operation == "rollback":
            return cls._of_files(entry, removed)
        if removed is None:
            return cls() if entry.operation in _MIXED else cls(inserted=added)
        rewritten = entry.rewritten_row_count
        return cls(
            inserted=added - rewritten,
            updated=0,
            deleted=removed - rewritten,
            rewritten=rewritten,
        )

    @classmethod
    def _of_files(cls, entry: Entry, removed: int | None) -> ChangedRows:
        """Read those of a rollback: files that come and files that go may hold the same rows."""
        if not entry.added:
            return cls(inserted=0, updated=0, deleted=removed, rewritten=0)
        if not entry.removed and entry.inserted_row_count == entry.row_count:
            return cls(inserted=entry.row_count, updated=0, deleted=0, rewritten=0)
        return cls()

"""The interface of all indices of an archive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from lakebed.archive.query import (
    MAX_PAGE_LIMIT,
    PAGE_LIMIT,
    ArchiveQuery,
    ContentQuery,
    Page,
    PlaceTotals,
    Position,
    decode_cursor,
    encode_cursor,
)
from lakebed.archive.record import ArchiveRecord
from lakebed.errors import InvalidInputError


class ArchiveIndex(ABC):
    """Records of files, found by time or work id; safe for many threads and processes.

    A file is in the index once, under its id. Every method may raise `StorageError`.

    Attributes:
        url: URL of the index; `lakebed.archive.open_index` opens it again.
    """

    kind: ClassVar[str]
    url: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def create(self) -> None:
        """Create the tables if they are missing.

        Raises:
            InvalidInputError: Another program's tables exist there.
        """
        self._create()

    def exists(self) -> bool:
        """Return whether the tables exist."""
        return self._exists()

    def put(self, records: Iterable[ArchiveRecord]) -> None:
        """Add records; an existing one with the same id is replaced, in all its days.

        Raises:
            InvalidInputError: The index cannot hold a record.

        Cost:
            SQLite: a transaction for 1,000 records. DynamoDB: a read and a transaction for each.
        """
        self._put(records)

    def delete(self, ids: Iterable[str]) -> None:
        """Remove records; a missing id is not an error."""
        self._delete(ids)

    def find(self, file_id: str) -> ArchiveRecord | None:
        """Return the record of an id; None if there is none."""
        return self._find(file_id)

    def records(self) -> Iterator[ArchiveRecord]:
        """Yield every record, in no particular order."""
        return self._records()

    def totals(self, query: ContentQuery) -> Sequence[PlaceTotals]:
        """Return the totals of each what and where, in no particular order.

        Cost:
            SQLite: one query, which reads all rows. DynamoDB: a scan of the table.
        """
        return self._totals(query)

    def page(
        self, query: ArchiveQuery, *, limit: int = PAGE_LIMIT, cursor: str | None = None
    ) -> Page:
        """Return one page of the results of a query.

        No record is returned twice, on one page or across pages. Files that are added between two
        pages may or may not be returned.

        Args:
            query: The query.
            limit: Number of records, up to 1,000.
            cursor: `next_cursor` of the page before; None for the first.

        Raises:
            InvalidInputError: `limit` is out of range, or the cursor is not of this query.
        """
        self._check_limit(limit)
        after = None if cursor is None else decode_cursor(query, self.kind, cursor)
        hits: list[tuple[ArchiveRecord, Position]] = []
        while True:
            # One record more than requested shows whether there is another page.
            found = self._page(query, after, limit + 1)
            hits += (hit for hit in found if query.retracted or hit[0].retraction is None)
            if len(hits) > limit or len(found) <= limit:
                break
            after = found[-1][1]
        next_cursor = None
        if len(hits) > limit:
            next_cursor = encode_cursor(query, self.kind, hits[limit - 1][1])
        records = tuple(record for record, _ in hits[:limit])
        return Page(records=records, next_cursor=next_cursor)

    def _check_limit(self, limit: int) -> None:
        if not 1 <= limit <= MAX_PAGE_LIMIT:
            msg = f"A page holds 1 to {MAX_PAGE_LIMIT:,} records; {limit} were requested."
            raise InvalidInputError(msg, hint=f"Ask for 1 to {MAX_PAGE_LIMIT:,}.")

    def latest(
        self, what: str, where: str, *, first_ms: int, last_ms: int, retracted: bool = False
    ) -> ArchiveRecord | None:
        """Return the file with the latest start among those that touch an interval.

        If starts are equal, the file that was stored last is returned.

        Args:
            what: The program or process to search for.
            where: The place or machine.
            first_ms: Start of the interval: the file ends then or later.
            last_ms: End of the interval: the file starts then or earlier.
            retracted: Include retracted files.
        """
        return self._latest(what, where, first_ms=first_ms, last_ms=last_ms, retracted=retracted)

    def close(self) -> None:
        """Close the connections of the index; they are reopened on use."""
        self._close()

    @abstractmethod
    def _create(self) -> None: ...

    @abstractmethod
    def _exists(self) -> bool: ...

    @abstractmethod
    def _put(self, records: Iterable[ArchiveRecord]) -> None: ...

    @abstractmethod
    def _delete(self, ids: Iterable[str]) -> None: ...

    @abstractmethod
    def _find(self, file_id: str) -> ArchiveRecord | None: ...

    @abstractmethod
    def _records(self) -> Iterator[ArchiveRecord]: ...

    def _totals(self, query: ContentQuery) -> Sequence[PlaceTotals]:
        totals: dict[tuple[str, str], PlaceTotals] = {}
        for record in self._records():
            if query.matches(record):
                key = record.what, record.where
                totals[key] = _with(totals.get(key), record)
        return list(totals.values())

    @abstractmethod
    def _page(
        self, query: ArchiveQuery, after: Position | None, limit: int
    ) -> Sequence[tuple[ArchiveRecord, Position]]:
        """Return up to `limit` records with their positions, after the position `after`."""

    @abstractmethod
    def _latest(
        self, what: str, where: str, *, first_ms: int, last_ms: int, retracted: bool
    ) -> ArchiveRecord | None: ...

    @abstractmethod
    def _close(self) -> None: ...


def _with(totals: PlaceTotals | None, record: ArchiveRecord) -> PlaceTotals:
    """Add a record to the totals of its what and where; None if it is the first."""
    start, last = record.metadata.start, record.last_ms
    return PlaceTotals(
        what=record.what,
        where=record.where,
        file_count=1 if totals is None else totals.file_count + 1,
        size_bytes=record.size_bytes + (0 if totals is None else totals.size_bytes),
        first_ms=start if totals is None else min(start, totals.first_ms),
        last_ms=last if totals is None else max(last, totals.last_ms),
    )

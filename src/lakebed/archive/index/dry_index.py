"""An index for dry runs: it reads another index, and keeps every write in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lakebed.archive.index.archive_index import ArchiveIndex
from lakebed.archive.query import ArchiveQuery, Position
from lakebed.archive.record import ArchiveRecord


class DryRunIndex(ArchiveIndex):
    """An index over another one, whose writes stay in this object.

    `find`, `records` and `totals` show them. Queries by time and work id show the real index alone: verbs
    that write make none.
    """

    def __init__(self, inner: ArchiveIndex) -> None:
        """Begin without any writes."""
        self.inner = inner
        self.url = inner.url
        self._changed: dict[str, ArchiveRecord | None] = {}  # None: deleted
        self._is_created = False

    @property
    def kind(self) -> str:  # type: ignore[override]  # that of the real index, for its cursors
        """The kind of the real index."""
        return self.inner.kind

    def _create(self) -> None:
        self._is_created = True

    def _exists(self) -> bool:
        return self._is_created or self.inner.exists()

    def _put(self, records: Iterable[ArchiveRecord]) -> None:
        self._changed.update((record.id, record) for record in records)
        self._is_created = True

    def _delete(self, ids: Iterable[str]) -> None:
        self._changed.update(dict.fromkeys(ids))

    def _find(self, file_id: str) -> ArchiveRecord | None:
        if file_id in self._changed or not self.inner.exists():
            return self._changed.get(file_id)
        return self.inner.find(file_id)

    def _records(self) -> Iterator[ArchiveRecord]:
        yield from (record for record in list(self._changed.values()) if record is not None)
        if self.inner.exists():
            yield from (one for one in self.inner.records() if one.id not in self._changed)

    def _page(
        self, query: ArchiveQuery, after: Position | None, limit: int
    ) -> Sequence[tuple[ArchiveRecord, Position]]:
        return self.inner._page(query, after, limit)

    def _latest(
        self, what: str, where: str, *, first_ms: int, last_ms: int, retracted: bool
    ) -> ArchiveRecord | None:
        return self.inner.latest(
            what, where, first_ms=first_ms, last_ms=last_ms, retracted=retracted
        )

    def _close(self) -> None:
        self.inner.close()

"""An index in an SQLite file, for any number of threads and processes on one machine.

Each file is one row. Rows are also classified by the time span of their files, in powers of two
hours: a file that reaches into an interval began at most one span before it. So a query reads
little more than its result, for files of a second as for files of a century.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lakebed.archive.index.archive_index import ArchiveIndex
from lakebed.archive.query import ArchiveQuery, ContentQuery, PlaceTotals, Position
from lakebed.archive.record import RETRACTION, ArchiveRecord
from lakebed.errors import (
    AccessDeniedError,
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    StorageError,
    UnsupportedVersionError,
)

IN_MEMORY = ":memory:"

_APPLICATION_ID = 0x6C6B6264  # "lkbd"; marks the file as ours
_FORMAT_VERSION = 1
_BUSY_TIMEOUT_S = 60.0
_HOUR_MS = 3_600_000
_SPAN_CLASSES = range(28)  # 2**27 hours are longer than the range of valid times
_ROWS_PER_READ = 1_000
_ROWS_PER_WRITE = 1_000

_SCHEMA = (
    """CREATE TABLE files (
        id TEXT NOT NULL PRIMARY KEY,
        what TEXT NOT NULL,
        place TEXT NOT NULL,
        work_id TEXT,
        start INTEGER NOT NULL,
        last INTEGER NOT NULL,
        span_class INTEGER NOT NULL,
        url TEXT NOT NULL,
        create_time INTEGER NOT NULL,
        size INTEGER NOT NULL,
        metadata TEXT NOT NULL
    )""",
    "CREATE INDEX files_by_time ON files (what, span_class, start, id)",
    "CREATE INDEX files_by_place ON files (what, place, span_class, start, id)",
    """CREATE INDEX files_by_work ON files (work_id, what, start, id)
        WHERE work_id IS NOT NULL""",
)
_of_parents: list[sqlite3.Connection] = []  # SQLite forbids to close them in a forked child
_COLUMNS = "url, metadata, create_time, size"
# JSON escapes quotes in values, so this text matches only a field name.
_NOT_RETRACTED = f"""instr(metadata, '"{RETRACTION}": {{') = 0"""
_PUT = """INSERT OR REPLACE INTO files
    (id, what, place, work_id, start, last, span_class, url, create_time, size, metadata)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


class SqliteIndex(ArchiveIndex):
    """An index in a file, created by the first write; or in memory, for this object alone."""

    kind = "sqlite"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the index; nothing is read or written yet.

        Args:
            path: Path of the file; `:memory:` for an index in memory.
        """
        self._path = os.fspath(path)
        self._is_in_memory = self._path == IN_MEMORY
        if not self._is_in_memory:
            self._path = os.path.abspath(self._path)  # noqa: PTH100 - links in the path must stay
        self.url = f"sqlite://{self._path}"
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._closing: weakref.finalize[..., SqliteIndex] | None = None
        self._owner = 0

    def __reduce__(self) -> tuple[type[SqliteIndex], tuple[str]]:
        return SqliteIndex, (self._path,)

    def _create(self) -> None:
        with self._writing():
            pass

    def _exists(self) -> bool:
        return self._is_in_memory or Path(self._path).exists()

    def _put(self, records: Iterable[ArchiveRecord]) -> None:
        for batch in _batches(records):
            with self._writing() as connection:
                connection.executemany(_PUT, [_row_of(record) for record in batch])

    def _delete(self, ids: Iterable[str]) -> None:
        with self._writing() as connection:
            connection.executemany(
                "DELETE FROM files WHERE id = ?", [(file_id,) for file_id in ids]
            )

    def _find(self, file_id: str) -> ArchiveRecord | None:
        rows = self._read(f"SELECT {_COLUMNS} FROM files WHERE id = ?", (file_id,))
        return _record_of(rows[0]) if rows else None

    def _records(self) -> Iterator[ArchiveRecord]:
        # Page by page: an open cursor would keep the log of the database from being truncated.
        last = ""
        while True:
            rows = self._read(
                f"SELECT {_COLUMNS}, id FROM files WHERE id > ? ORDER BY id LIMIT ?",
                (last, _ROWS_PER_READ),
            )
            if not rows:
                return
            yield from (_record_of(row) for row in rows)
            last = rows[-1][4]

    def _totals(self, query: ContentQuery) -> Sequence[PlaceTotals]:
        bounds = {"place = ?": query.where, "last >= ?": query.start, "start <= ?": query.end}
        conditions = {text: value for text, value in bounds.items() if value is not None}
        where = " AND ".join([*conditions, *([] if query.retracted else [_NOT_RETRACTED])])
        rows = self._read(
            "SELECT what, place, count(*), sum(size), min(start), max(last) FROM files"
            f"{' WHERE ' if where else ''}{where} GROUP BY what, place",
            list(conditions.values()),
        )
        names = ("what", "where", "file_count", "size_bytes", "first_ms", "last_ms")
        return [PlaceTotals(**dict(zip(names, row, strict=True))) for row in rows]

    def _page(
        self, query: ArchiveQuery, after: Position | None, limit: int
    ) -> Sequence[tuple[ArchiveRecord, Position]]:
        if after is not None and not isinstance(after[0], int):
            msg = f"The cursor has the position {after[0]!r}, which is not a time."
            raise InvalidInputError(msg, hint="Use next_cursor of the page before, unchanged.")
        where, arguments = "what = ?", [query.what]
        if query.where is not None:
            where, arguments = f"{where} AND place = ?", [*arguments, query.where]
        if query.work_id is not None:
            rows = self._rows(f"{where} AND work_id = ?", [*arguments, query.work_id], after, limit)
        else:
            rows = self._rows_by_time(query, where, arguments, after, limit)
        return [(_record_of(row[:4]), (row[4], row[5])) for row in rows]

    def _rows_by_time(
        self,
        query: ArchiveQuery,
        where: str,
        arguments: Sequence[object],
        after: Position | None,
        limit: int,
    ) -> list[tuple[str, str, int, int, int, str]]:
        first, last = query.interval
        rows: list[tuple[str, str, int, int, int, str]] = []
        for span_class in _SPAN_CLASSES:
            rows += self._rows(
                f"{where} AND span_class = ? AND start BETWEEN ? AND ? AND last >= ?",
                [*arguments, span_class, first - _span_ms(span_class), last, first],
                after,
                limit,
            )
        rows.sort(key=lambda row: row[4:])
        return rows[:limit]

    def _rows(
        self, where: str, arguments: Sequence[object], after: Position | None, limit: int
    ) -> list[tuple[str, str, int, int, int, str]]:
        if after is not None:
            # The condition on `start` alone lets the index begin at the right position.
            where = f"{where} AND start >= ? AND (start, id) > (?, ?)"
            arguments = [*arguments, after[0], *after]
        return self._read(
            f"SELECT {_COLUMNS}, start, id FROM files WHERE {where} ORDER BY start, id LIMIT ?",
            [*arguments, limit],
        )

    def _latest(
        self, what: str, where: str, *, first_ms: int, last_ms: int, retracted: bool
    ) -> ArchiveRecord | None:
        visible = "" if retracted else f" AND {_NOT_RETRACTED}"
        candidates = []
        for span_class in _SPAN_CLASSES:
            candidates += self._read(
                f"SELECT {_COLUMNS}, start, id FROM files"
                " WHERE what = ? AND place = ? AND span_class = ?"
                f" AND start BETWEEN ? AND ? AND last >= ?{visible}"
                " ORDER BY start DESC, create_time DESC, id DESC LIMIT 1",
                (what, where, span_class, first_ms - _span_ms(span_class), last_ms, first_ms),
            )
        best = max(candidates, key=lambda row: (row[4], row[2], row[5]), default=None)
        return None if best is None else _record_of(best[:4])

    def _close(self) -> None:
        with self._lock:
            if self._closing is not None and not self._is_in_memory:
                self._closing()
                self._connection = self._closing = None

    def _read(self, sql: str, arguments: Sequence[object]) -> list[tuple]:  # type: ignore[type-arg]  # the columns are in the SQL
        with self._lock, translating_sqlite_errors(self.url):
            return self._open(must_exist=True).execute(sql, arguments).fetchall()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Hold a transaction, which waits for other writers at its start, not in its middle."""
        with self._lock, translating_sqlite_errors(self.url):
            connection = self._open(must_exist=False)
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _open(self, *, must_exist: bool) -> sqlite3.Connection:
        # A connection must not be used in a forked child, nor closed there.
        if self._connection is None or (self._owner != os.getpid() and not self._is_in_memory):
            if must_exist and not self._is_in_memory and not Path(self._path).exists():
                msg = f"There is no index {self.url}."
                hint = "Make it with `lakebed archive init` or `reindex`, or check the URL."
                raise StorageError(msg, hint=hint)
            if self._closing is not None:
                self._closing()
            self._connection = self._connect()
            self._owner = os.getpid()
            # Who drops an index without closing it leaves no open file, and no warning of Python's.
            self._closing = weakref.finalize(self, _close_own, self._connection, self._owner)
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        if not self._is_in_memory:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            _use_write_ahead_log(connection)
            connection.execute("PRAGMA synchronous = FULL")  # acknowledged records are durable
            self._check_format(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_format(self, connection: sqlite3.Connection) -> None:
        if _format_of(connection) == (0, 0):
            connection.execute("BEGIN IMMEDIATE")
            try:
                # Another process may have created the tables since.
                if _format_of(connection) == (0, 0):
                    self._refuse_tables_of_others(connection)
                    for statement in _SCHEMA:
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {_FORMAT_VERSION}")
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        application, version = _format_of(connection)
        if application != _APPLICATION_ID:
            raise self._not_ours()
        if version != _FORMAT_VERSION:
            msg = f"{self.url} is of format {version}; this release knows {_FORMAT_VERSION}."
            raise UnsupportedVersionError(msg, hint="Use a newer release, or reindex elsewhere.")

    def _refuse_tables_of_others(self, connection: sqlite3.Connection) -> None:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
            raise self._not_ours()

    def _not_ours(self) -> InvalidInputError:
        msg = f"{self.url} is a database of another program."
        return InvalidInputError(msg, hint="Give the index a file of its own.")


def _close_own(connection: sqlite3.Connection, owner: int) -> None:
    """Close a connection in the process that opened it; elsewhere keep it from being closed."""
    if owner == os.getpid():
        connection.close()
    else:
        _of_parents.append(connection)


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch the journal mode; SQLite does not wait for other processes here, so this does."""
    deadline = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as exc:
            if not _is_busy(exc) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _format_of(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version


def _span_ms(span_class: int) -> int:
    """Return the longest time span of a file of this class."""
    return _HOUR_MS << span_class


def _row_of(record: ArchiveRecord) -> tuple[object, ...]:
    start, last = record.metadata.start, record.last_ms
    return (
        record.id,
        record.what,
        record.where,
        record.work_id,
        start,
        last,
        ((last - start) // _HOUR_MS).bit_length(),
        record.url,
        record.create_time_ms,
        record.size_bytes,
        json.dumps(record.noted_metadata, allow_nan=False),
    )


def _record_of(row: Sequence[object]) -> ArchiveRecord:
    url, metadata, create_time_ms, size_bytes = row[:4]
    try:
        return ArchiveRecord.from_document(
            {
                "url": str(url),
                "metadata": json.loads(str(metadata)),
                "create_time": create_time_ms,
                "size": size_bytes,
            }
        )
    except (InvalidInputError, ValueError, TypeError, RecursionError) as exc:
        msg = f"The index has a damaged row for {url!r}: {exc}"
        raise CorruptMetadataError(msg, hint="Rebuild the index with reindex.") from exc


def _batches(records: Iterable[ArchiveRecord]) -> Iterator[list[ArchiveRecord]]:
    batch: list[ArchiveRecord] = []
    for record in records:
        batch.append(record)
        if len(batch) == _ROWS_PER_WRITE:
            yield batch
            batch = []
    if batch:
        yield batch


def _is_busy(exc: sqlite3.Error) -> bool:
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF in {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
    }


@contextlib.contextmanager
def translating_sqlite_errors(url: str) -> Iterator[None]:
    """Translate errors of SQLite about the index `url` into the most specific Lakebed error."""
    try:
        yield
    except LakebedError:
        raise
    except (UnicodeEncodeError, OverflowError) as exc:
        msg = f"{url} cannot hold this: {exc}"
        raise InvalidInputError(msg, hint="Use text in UTF-8 and numbers of 64 bits.") from exc
    except (sqlite3.Error, OSError) as exc:
        raise _translated(url, exc) from exc


_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA}
_DENIED = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}


def _translated(url: str, exc: sqlite3.Error | OSError) -> LakebedError:
    if isinstance(exc, OSError):
        return AccessDeniedError(f"{url} cannot be opened: {exc}.", hint="Check the directory.")
    code = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code in _CORRUPT:
        hint = "Move the file away and rebuild the index with `lakebed archive reindex`."
        return CorruptMetadataError(f"{url} is damaged or not a database: {exc}.", hint=hint)
    if code in _DENIED:
        return AccessDeniedError(f"{url} cannot be used: {exc}.", hint="Check owner and mode.")
    return StorageError(f"{url} failed: {exc}.", retryable=_is_busy(exc))

"""The archive: raw files with metadata records, found by time or work id."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Self

from lakebed.archive import kept_files, removal
from lakebed.archive.content import open_verified, opened, write_file
from lakebed.archive.file_keys import KeyForm, check_file_id, check_keys
from lakebed.archive.frames import FrameOf, to_frame
from lakebed.archive.index import ArchiveIndex, open_index
from lakebed.archive.index.dry_index import DryRunIndex
from lakebed.archive.metadata import FileMetadata
from lakebed.archive.name_advice import warn_of_names
from lakebed.archive.query import PAGE_LIMIT, ArchiveQuery, ContentQuery, Page, WhatSummary
from lakebed.archive.record import ArchiveRecord
from lakebed.archive.reindex import ReindexReport, reindex, with_retraction
from lakebed.archive.retraction import (
    key_of_retraction,
    note_deletion,
    note_retraction,
    retractions_in,
)
from lakebed.archive.target import DEFAULT_TEMPLATE, target_path
from lakebed.archive.times import DAY_MS, time_bucket, times_in_name, to_datetime, to_epoch_ms
from lakebed.archive.translator import translate
from lakebed.arrow.reading.hashes import can_verify
from lakebed.common.given import given_names
from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.errors import (
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    RecordNotFoundError,
)
from lakebed.model.locations import location_and_name
from lakebed.state.sources import SourceFile
from lakebed.store import Store, open_store
from lakebed.store.at_once import at_once
from lakebed.store.dry_run import DryRunStore
from lakebed.store.memory import MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_LOOKBACK_DAYS = 14
_PUSHES_AT_ONCE = 8
_FIRST_DAY = -719_162  # first day of the calendar, in days since the epoch

TOKEN_VARIABLE = "LAKEBED_ARCHIVE_TOKEN"
"""Names the token that a server requires and a client sends."""
_DEFAULT_INDEX = ".lakebed/archive.db"  # hidden from listings of the store
_indices_in_memory: dict[str, ArchiveIndex] = {}


class Archive:
    """Files in a store, and an index of their records. Can be pickled.

    In a `with` statement, its end closes the connections of the index.

    Attributes:
        store: The store of contents and their metadata.
        index: The index of the records.
        keys: Form of the keys of new files: `id` or `original`.

    Examples:
        >>> import io, lakebed
        >>> archive = lakebed.open_archive("memory://examples")
        >>> record = archive.push(
        ...     io.BytesIO(b"hello"), path="/var/log/syslog", where="web1", what="syslog",
        ...     start="2015-03-20T10:00", end="2015-03-20T11:00",
        ... )
        >>> [found.path for found in archive.list("syslog", start="2015-03-20", end="2015-03-21")]
        ['/var/log/syslog']
        >>> with archive.open(record.id) as file:
        ...     file.read()
        b'hello'
    """

    def __init__(self, store: Store, index: ArchiveIndex, *, keys: KeyForm = "id") -> None:
        self.store = store
        self.index = index
        self.keys = check_keys(keys)

    def __repr__(self) -> str:
        return f"Archive({self.store.uri!r}, index={self.index.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of the index; they are reopened on use."""
        self.index.close()

    def init(self, *, dry_run: bool = False) -> bool:
        """Create the tables of the index if they are missing. SQLite also creates its own.

        Args:
            dry_run: Only report whether they are missing.

        Returns:
            True if they were missing.
        """
        is_missing = not self.index.exists()
        if not dry_run:
            self.index.create()
        return is_missing

    def _on_dry_run(self) -> Archive:
        """Return the same archive with a store and an index that keep all writes to themselves."""
        return Archive(DryRunStore(self.store), DryRunIndex(self.index), keys=self.keys)

    def push(
        self,
        source: str | os.PathLike[str] | IO[bytes],
        *,
        where: str,
        what: str,
        start: object,
        end: object = None,
        work_id: str | None = None,
        path: str | None = None,
        id: str | None = None,  # noqa: A002 - the name of the field
        compress: bool = False,
        extra: Mapping[str, object] | None = None,
        dry_run: bool = False,
    ) -> ArchiveRecord:
        """Store a file and put it into the index.

        It is hashed during the upload, read once and never held in memory as a whole. With an `id`
        of your own it is read twice, and pushing the same file again changes nothing.

        Args:
            source: A path, or a binary file, which is read from its current position.
            where: The place or machine that the file comes from.
            what: The program or process that made it.
            start: Time of the first event, see `lakebed.archive.to_epoch_ms`.
            end: Time of the last event; None for a file of one moment.
            work_id: An id of yours by which the file can be found.
            path: The absolute path to record; default: that of `source`.
            id: The id; default: a generated one.
            compress: Compress the content with gzip; hash and size are those of the gzip.
            extra: Further fields of the metadata.
            dry_run: Write nothing; return the record that the file would get, which is read and
                hashed. A generated id is another one in the real call.

        `where`, `what` and `work_id` may be expressions of a `Translator` over the path.

        Warns:
            LakebedWarning: A name is legal but bad: `where` is `localhost` or `vagrant`; `what` is
                `job` or `task`; `work_id` begins with the reserved `null`, or is a bare number or
                UUID; one is longer than 63 letters.

        Raises:
            InvalidInputError: A field breaks a rule, or the file cannot be read.
            RecordExistsError: Another file has the id.

        Cost:
            Two PUTs and a HEAD, more for parts above 8 MiB; one write to the index.
        """
        if dry_run:
            return self._on_dry_run().push(
                source,
                where=where,
                what=what,
                start=start,
                end=end,
                work_id=work_id,
                path=path,
                id=id,
                compress=compress,
                extra=extra,
            )
        with opened(source) as file:
            fields = prepare_fields(
                source,
                {
                    "where": where,
                    "what": what,
                    "start": start,
                    "end": end,
                    "work_id": work_id,
                    "path": path,
                },
                extra,
            )
            warn_of_names([fields])
            record = self._store_file(file, fields, id, compress=compress)
        if id is not None:
            record = with_retraction(self.store, record)
        self._put(record)
        return record

    def _store_file(
        self, file: IO[bytes], fields: dict[str, object], file_id: str | None, *, compress: bool
    ) -> ArchiveRecord:
        fields["id"] = uuid.uuid4().hex if file_id is None else check_file_id(file_id)
        if file_id is None and self.keys == "id":
            return kept_files.write_new(self.store, file, fields, compress=compress)
        # The original key begins with a digit of the hash, so the hash must be known first.
        return kept_files.write_claimed(self.store, file, fields, compress=compress, keys=self.keys)

    def push_many(
        self,
        sources: Iterable[str | os.PathLike[str]],
        *,
        where: str,
        what: str,
        start: object = None,
        end: object = None,
        start_from_name: str | None = None,
        work_id: str | None = None,
        compress: bool = False,
        extra: Mapping[str, object] | None = None,
        dry_run: bool = False,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> tuple[ArchiveRecord, ...]:
        """Store many files and put them into the index, several at once.

        All files are checked before the first is stored: if one is missing, or has no time in its
        name, nothing is stored. A note on a later failure names all files that are not stored.

        Args:
            sources: Paths of files.
            where: As for `push`.
            what: As for `push`.
            start: The start time of all files; required unless `start_from_name` is given.
            end: As for `push`.
            start_from_name: A pattern to search in the name of each file; see `times_in_name`.
            work_id: As for `push`.
            compress: As for `push`.
            extra: As for `push`.
            dry_run: As for `push`.
            on_progress: Callback for progress; receives the number of stored files, the total, and
                their bytes.

        Returns:
            The records, in the order of the files.

        Warns:
            LakebedWarning: As for `push`, once for each problem.

        Raises:
            InvalidInputError: As for `push`; or both or none of `start` and `start_from_name`
                are given, or a file is named twice.

        Cost:
            As `push` for each file, 8 at once.
        """
        if dry_run:
            return self._on_dry_run().push_many(
                sources,
                where=where,
                what=what,
                start=start,
                end=end,
                start_from_name=start_from_name,
                work_id=work_id,
                compress=compress,
                extra=extra,
                on_progress=on_progress,
            )
        paths = [os.fspath(source) for source in sources]
        prepared = [
            prepare_fields(
                path,
                {
                    "where": where,
                    "what": what,
                    **times_of(path, start, end, start_from_name),
                    "work_id": work_id,
                    "path": None,
                },
                extra,
            )
            for path in paths
        ]
        sizes = _checked_sizes(paths, prepared)
        warn_of_names(prepared)
        remaining = list(paths)
        tally = Tally(on_progress, f"push {what}", sizes)

        def push(number: int) -> ArchiveRecord:
            with opened(paths[number]) as file:
                record = self._store_file(file, dict(prepared[number]), None, compress=compress)
            self._put(record)
            remaining.remove(paths[number])
            tally.add(paths[number])
            return record

        try:
            return tuple(at_once(push, range(len(paths)), _PUSHES_AT_ONCE))
        except LakebedError as exc:
            exc.add_note(
                f"{len(paths) - len(remaining)} of {len(paths)} files are stored. Not stored, or "
                f"uncertain: {', '.join(remaining)}"
            )
            raise

    def push_prepared(self, file: IO[bytes], metadata: FileMetadata) -> ArchiveRecord:
        """Store a content whose metadata is complete; a repetition changes nothing.

        Raises:
            InvalidInputError: The hash of the content differs from that in the metadata, or the
                latter is not hex digits.
            RecordExistsError: Another file has the id.
        """
        metadata.check_hash()
        expected = metadata.hash if can_verify(metadata.hash) else None
        record = kept_files.write_claimed(
            self.store, file, metadata, expected_hash=expected, is_stored=True, keys=self.keys
        )
        record = with_retraction(self.store, record)
        self._put(record)
        return record

    def _put(self, record: ArchiveRecord) -> None:
        try:
            self.index.put([record])
        except LakebedError as exc:
            exc.add_note(
                f"The file is stored as {record.url}: `lakebed archive ingest` indexes it."
            )
            raise

    def list(
        self,
        what: str,
        *,
        start: object = None,
        end: object = None,
        work_id: str | None = None,
        where: str | None = None,
        retracted: bool = False,
    ) -> Iterator[ArchiveRecord]:
        """Yield the files of a time or a work id, each once.

        Args:
            what: The program or process to search for.
            start: Start of the time range; give `start` and `end`, or `work_id`.
            end: End of the time range, included; may be `now`.
            work_id: The work id to search for.
            where: The place or machine; None for all.
            retracted: Include retracted files.

        Returns:
            The records. SQLite: in the order of their starts. DynamoDB: day by day.

        Raises:
            InvalidInputError: Neither or both of time and work id are given, or one is wrong.

        Cost:
            One query of the index for 100 files; on DynamoDB also one for each day in the range.
        """
        query = ArchiveQuery.of(
            what, where=where, work_id=work_id, start=start, end=end, retracted=retracted
        )
        return self._list(query)

    def _list(self, query: ArchiveQuery) -> Iterator[ArchiveRecord]:
        cursor = None
        while True:
            page = self.index.page(query, cursor=cursor)
            yield from page.records
            cursor = page.next_cursor
            if cursor is None:
                return

    def whats(
        self,
        *,
        where: str | None = None,
        start: object = None,
        end: object = None,
        retracted: bool = False,
    ) -> tuple[WhatSummary, ...]:
        """Return what the archive holds: the files of each what, counted.

        Args:
            where: The place or machine; None for all.
            start: Count only files that end then or later; None for no bound.
            end: Count only files that start then or earlier; may be `now`; None for no bound.
            retracted: Include retracted files.

        Returns:
            A summary for each what, in the order of the names.

        Raises:
            InvalidInputError: A bound is not a time, or `start` is after `end`.

        Cost:
            One query over all records of SQLite; on DynamoDB a scan of the table.
        """
        query = ContentQuery.of(where=where, start=start, end=end, retracted=retracted)
        totals = sorted(self.index.totals(query), key=lambda place: place.what)
        grouped = itertools.groupby(totals, key=lambda place: place.what)
        return tuple(WhatSummary.of(tuple(places)) for _, places in grouped)

    def page(
        self,
        what: str,
        *,
        start: object = None,
        end: object = None,
        work_id: str | None = None,
        where: str | None = None,
        retracted: bool = False,
        limit: int = PAGE_LIMIT,
        cursor: str | None = None,
    ) -> Page:
        """Return a part of the records of `list`, and the cursor of the next part.

        Raises:
            InvalidInputError: As `list`; or `limit` is not 1 to 1,000, or the cursor does not
                belong to this query.
        """
        query = ArchiveQuery.of(
            what, where=where, work_id=work_id, start=start, end=end, retracted=retracted
        )
        return self.index.page(query, limit=limit, cursor=cursor)

    def latest(
        self,
        what: str,
        where: str,
        *,
        lookback_days: int = DEFAULT_LOOKBACK_DAYS,
        now: dt.datetime | None = None,
        retracted: bool = False,
    ) -> ArchiveRecord:
        """Return the file with the latest start.

        It searches the files that touch today or one of the days before, and start today or
        earlier. If starts are equal, the file that was stored last is returned.

        Args:
            what: The program or process to search for.
            where: The place or machine.
            lookback_days: Number of days before today to search.
            now: The present time; default: that of the clock.
            retracted: Include retracted files.

        Raises:
            RecordNotFoundError: There is no such file.
            InvalidInputError: `lookback_days` is negative, or not a whole number.
        """
        if not isinstance(lookback_days, int) or lookback_days < 0:
            msg = f"{lookback_days!r} is not a valid number of days to look back."
            raise InvalidInputError(msg, hint="Give 0 or more.")
        today = time_bucket(to_epoch_ms("now", now=now))
        first_day = max(today - lookback_days, _FIRST_DAY)
        record = self.index.latest(
            what,
            where,
            first_ms=first_day * DAY_MS,
            last_ms=(today + 1) * DAY_MS - 1,
            retracted=retracted,
        )
        if record is None:
            msg = f"No file of {what!r} at {where!r} in the last {lookback_days} days."
            raise RecordNotFoundError(msg, hint="Look back further, or list a time.")
        return record

    def record(self, url_or_id: str) -> ArchiveRecord:
        """Return the record of a file from the storage, without the index.

        Args:
            url_or_id: The URL of a record, or its id if it was pushed here.

        Raises:
            RecordNotFoundError: There is no such file.
            InvalidInputError: The URL leads out of the archive, or the id is not valid.
            CorruptMetadataError: The file has no metadata, or metadata that breaks a rule.

        Cost:
            One HEAD and a GET, and a GET if the metadata is only beside the content. The id of a
            file with a key of the original form takes a HEAD and a GET more.
        """
        return with_retraction(self.store, kept_files.find_record(self.store, url_or_id))

    def retract(self, url_or_id: str, *, reason: str, dry_run: bool = False) -> ArchiveRecord:
        """Keep a file from being read by any ingest, until it is restored; it stays as it is.

        `list`, `page` and `latest` omit it unless `retracted` is given; it can still be fetched.
        Rows that an ingest has read stay in their dataset: roll back or delete them. An ingest that
        is running may still read the file; `Dataset.sources.hold` keeps its rows out reliably. A second
        call only adds the note to an index that lacks it.

        Args:
            url_or_id: As in `record`.
            reason: Reason for the retraction; the record shows it.
            dry_run: Write nothing; return the record that would be.

        Returns:
            The record, with the retraction.

        Raises:
            RecordNotFoundError: There is no such file.
            InvalidInputError: The reason is empty, the URL leads out of the archive, or the id is
                not valid.

        Cost:
            As `record`, a PUT and a write to the index.
        """
        if dry_run:
            return self._on_dry_run().retract(url_or_id, reason=reason)
        if not isinstance(reason, str) or not reason.strip():
            msg = f"The reason is {reason!r}."
            raise InvalidInputError(msg, hint="Give the reason why no ingest shall read the file.")
        record = kept_files.find_record(self.store, url_or_id)
        record = replace(record, retraction=note_retraction(self.store, record.id, reason))
        self.index.put([record])
        return record

    def restore(self, url_or_id: str, *, dry_run: bool = False) -> ArchiveRecord:
        """Take a retraction back, so that the next ingest reads the file.

        Args:
            url_or_id: As in `record`.
            dry_run: Write nothing; return the record that would be.

        Raises:
            RecordNotFoundError: There is no such file.
            InvalidInputError: The file is not retracted, the URL leads out of the archive, or the
                id is not valid.

        Cost:
            As `record`, a DELETE, and a read of and a write to the index.
        """
        if dry_run:
            return self._on_dry_run().restore(url_or_id)
        record = kept_files.find_record(self.store, url_or_id)
        indexed = self.index.find(record.id)
        is_indexed = indexed is not None and indexed.retraction is not None
        key = key_of_retraction(record.id)
        if not is_indexed and key not in retractions_in(self.store):
            msg = f"The file {record.id!r} is not retracted."
            raise InvalidInputError(
                msg, hint="`lakebed archive list --retracted` includes retracted files."
            )
        self.store.delete([key])
        self.index.put([record])
        return record

    def delete(
        self,
        url_or_id: str,
        *,
        reason: str,
        read_by: str | Iterable[str] = (),
        storage_options: Mapping[str, str] | None = None,
        dry_run: bool = True,
    ) -> ArchiveRecord:
        """Delete a file for good: its content, its metadata, and its record in the index.

        Nothing brings it back; `retract` keeps a file and only ends its use. Rows that were read stay
        in their datasets. The reason stays in the storage, as the note of a retraction. If the
        deletion is interrupted, no ingest reads the file any more, and a second call deletes the
        rest.

        Args:
            url_or_id: As in `record`.
            reason: Reason for the deletion. It stays, so it must not name what was to be erased.
            read_by: Datasets that need the file until they have read it, as LOCATION/NAME.
            storage_options: Settings of the object store of these datasets.
            dry_run: Write nothing; return the record that would be deleted. Give False to delete.

        Returns:
            The record of the file, with the reason.

        Raises:
            RecordNotFoundError: There is no such file.
            DatasetNotFoundError: A dataset does not exist.
            InvalidInputError: The reason is empty, a dataset has not read the file, or has not read
                all of it; an older file with the same metadata would be read in its place; the URL
                leads out of the archive, or the id is not valid.

        Cost:
            As `record`, a query of the index, a GET and a PUT of the note, two requests, and a write
            to the index; for each dataset its head and the record of the files read.
        """
        if dry_run:
            return self._on_dry_run().delete(
                url_or_id,
                reason=reason,
                read_by=read_by,
                storage_options=storage_options,
                dry_run=False,
            )
        if not isinstance(reason, str) or not reason.strip():
            msg = f"The reason is {reason!r}."
            raise InvalidInputError(msg, hint="Give the reason why the file is deleted.")
        record = self._find_to_delete(url_or_id)
        names = given_names("read_by", read_by)
        read = {name: _files_read_by(name, storage_options) for name in names}
        removal.check_deletable(self, record, read)
        record = replace(record, retraction=note_deletion(self.store, record.id, reason))
        removal.remove(self, [record])
        return record

    def _find_to_delete(self, url_or_id: str) -> ArchiveRecord:
        """Return the record of a file, also of one whose content is gone since a call was killed.

        Raises:
            RecordNotFoundError: Neither the storage nor the index has it.
        """
        try:
            return kept_files.find_record(self.store, url_or_id)
        except RecordNotFoundError:
            file_id = url_or_id.removesuffix("/data").rpartition("/")[2]
            indexed = self.index.find(file_id)
            if indexed is None:
                raise
            return indexed

    def open(self, url_or_id: str, *, verify: bool = True) -> BinaryIO:
        """Open a file to be read from start to end. Close it, or use it in a `with`.

        Args:
            url_or_id: As in `record`.
            verify: Raise `FormatError` in the last read if the content does not have the hash in
                its metadata. A hash that is not 32 hex digits is not checked.

        Raises:
            RecordNotFoundError: There is no such file.
            InvalidInputError: The URL leads out of the archive, or the id is not valid.
            CorruptMetadataError: The file has no metadata, or metadata that breaks a rule.

        Cost:
            As `record`, and a GET for each 4 MiB.
        """
        return self.open_record(kept_files.find_record(self.store, url_or_id), verify=verify)

    def open_record(self, record: ArchiveRecord, *, verify: bool = True) -> BinaryIO:
        """Open the file of a record that `record` has just returned, as `open` does.

        Raises:
            InvalidInputError: The URL of the record leads out of the archive.

        Cost:
            A GET for each 4 MiB.
        """
        key = kept_files.key_of(self.store, record.url)
        content = self.store.open_input(key, size_bytes=record.size_bytes)
        expected = record.hash if verify and can_verify(record.hash) else None
        return open_verified(content, record.url, expected)

    def fetch(
        self,
        url_or_id: str,
        to: str | os.PathLike[str] = ".",
        *,
        template: str = DEFAULT_TEMPLATE,
        verify: bool = True,
    ) -> Path:
        """Copy a file to a folder; it appears there only if it is complete and has its hash.

        Args:
            url_or_id: As in `record`.
            to: The folder; created if missing.
            template: The path in it: names of the metadata in braces, and `{start_iso}` and
                `{end_iso}`. A leading slash of a value is dropped. It cannot lead out of the folder.
            verify: As in `open`.

        Returns:
            The path of the file.

        Raises:
            RecordNotFoundError: There is no such file.
            InvalidInputError: The template is wrong or leads out of the folder, or the folder
                cannot be written.
            FormatError: The hash of the content differs from that in its metadata.
        """
        record = kept_files.find_record(self.store, url_or_id)
        target = target_path(Path(to), template, record.metadata)
        with self.open_record(record, verify=verify) as content:
            write_file(content, target)
        return target

    def spark(
        self,
        spark: SparkSession | None,
        what: str,
        *,
        start: object = None,
        end: object = None,
        work_id: str | None = None,
        where: str | None = None,
        read: FrameOf = "records",
    ) -> DataFrame:
        """Return the files that `list` finds as a Spark DataFrame.

        `records` have the columns id, what, where, work_id, start, end, path, size_bytes, hash,
        url, created_at and metadata, which is JSON. `lines` have id, url, line_number, line and
        problem, for files of any compression. `contents` have id, url and content, the bytes as
        stored. For these two, each task reads a group of files by size from the storage, and the
        driver reads none. Hashes are compared: for a file whose hash differs from its record,
        `lines` have only one row, with the problem, and `contents` fail.

        Args:
            spark: The session; None for the active one, else one started in this process.
            what: As for `list`.
            start: As for `list`.
            end: As for `list`.
            work_id: As for `list`.
            where: As for `list`.
            read: `records`, `lines` or `contents`.

        Raises:
            InvalidInputError: As `list`; or Spark tasks cannot access the storage.
            MissingDependencyError: pyspark or Java is not installed.

        Cost:
            As `list`; no Spark job until the DataFrame is used.
        """
        records = self.list(what, start=start, end=end, work_id=work_id, where=where)
        return to_frame(spark, self.store, tuple(records), read)

    def ingest(self, url_or_id: str, *, dry_run: bool = False) -> ArchiveRecord:
        """Put a file that is in the storage into the index, as a notification would.

        Args:
            url_or_id: As in `record`.
            dry_run: Write nothing; return the record that would be in the index.

        Raises:
            RecordNotFoundError: There is no such file.
            InvalidInputError: The URL leads out of the archive, or the id is not valid.
            CorruptMetadataError: The file has no metadata, or metadata that breaks a rule.
        """
        record = self.record(url_or_id)
        index = DryRunIndex(self.index) if dry_run else self.index
        try:
            record.metadata.check_hash()
        except InvalidInputError as exc:
            msg = f"The metadata of {record.url} breaks a rule: {exc.message}"
            raise CorruptMetadataError(msg, hint="Push the file again.") from exc
        index.put([record])
        return record

    def reindex(self, *, spark: SparkSession | None = None, dry_run: bool = False) -> ReindexReport:
        """Rebuild the index from the metadata in the storage.

        Files may be pushed meanwhile: a record is removed only after a check that its own object
        is gone. Records of files in other storages stay: an index may serve several.

        Args:
            spark: A session whose tasks read the metadata of many files; None reads in this
                process.
            dry_run: Leave the index as it is.

        Raises:
            StorageError: The storage or the index failed; records indexed so far stay.
            InvalidInputError: Spark tasks cannot access the storage.

        Cost:
            One LIST for each 1,000 objects, a HEAD or GET or both for each: 16 at a time, in each
            task of a session. The index is written by this process.
        """
        return reindex(self.store, self.index, spark=spark, dry_run=dry_run)


def times_of(
    path: str | os.PathLike[str], start: object, end: object, start_from_name: str | None
) -> dict[str, object]:
    """Return start and end of a file, as given or from its name.

    Raises:
        InvalidInputError: Both or neither are given, or the name contains no time.
    """
    if (start is None) == (start_from_name is None):
        msg = "The start time must be given either directly or by a pattern of the name."
        raise InvalidInputError(msg, hint="Give either --start or --start-from-name.")
    if start_from_name is None:
        return {"start": start, "end": end}
    first, last = times_in_name(start_from_name, path)
    # Return times, not numbers: small numbers are refused as ambiguous.
    if end is None and last is not None:
        end = to_datetime(last)
    return {"start": to_datetime(first), "end": end}


def _checked_sizes(
    paths: Sequence[str], prepared: Sequence[Mapping[str, object]]
) -> dict[str, int]:
    """Return the sizes of files, after all checks that are possible before the first is stored.

    Raises:
        InvalidInputError: A file is missing or named twice, or a field breaks a rule.
    """
    seen: set[object] = set()
    sizes = {}
    for path, fields in zip(paths, prepared, strict=True):
        if fields["path"] in seen:
            msg = f"{path} is named twice."
            raise InvalidInputError(msg, hint="Name each file once.")
        seen.add(fields["path"])
        with opened(path) as file:
            kept_files.check_fields(fields)
            sizes[path] = os.fstat(file.fileno()).st_size
    return sizes


def prepare_fields(
    source: str | os.PathLike[str] | IO[bytes],
    fields: Mapping[str, object],
    extra: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Complete the fields of a file's metadata: its path, and values extracted from the path.

    Raises:
        InvalidInputError: An expression is broken or does not fit, or the path is missing.
    """
    all_fields = {**(extra or {}), **fields}
    if all_fields["path"] is None:
        if not isinstance(source, str | os.PathLike):
            msg = "An open file has no path to record."
            raise InvalidInputError(msg, hint="Give its path, such as /var/log/syslog.")
        all_fields["path"] = os.path.abspath(source)  # noqa: PTH100 - links in the path must stay
    for name in ("where", "what", "work_id"):
        value = all_fields[name]
        if isinstance(value, str):
            all_fields[name] = translate(value, str(all_fields["path"]))
    return all_fields


def _files_read_by(
    address: str, storage_options: Mapping[str, str] | None
) -> Mapping[str, SourceFile]:
    """Return the archived files that a dataset has read.

    Raises:
        InvalidInputError: The address names no repository.
    """
    location, name = location_and_name(address)
    return removal.files_read_by(open_store(location, storage_options=storage_options), name)


def open_archive(
    storage: str | os.PathLike[str],
    *,
    index: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    keys: KeyForm = "id",
) -> Archive:
    """Open the archive at a storage URL; nothing is read or written yet.

    Args:
        storage: A path or URL, see `lakebed.store.open_store`. Give each archive its own location.
            Or the URL of a server, `https://archive.example.org`, as `lakebed archive serve` starts
            it: that archive can only be read.
        index: `sqlite:///PATH` or `dynamodb://TABLE?region=REGION`. The default for a directory is
            an SQLite index inside it; for other storage the index is required. A server has its own.
        storage_options: Settings of the object store; of a server its `token`.
        keys: Form of the keys of new files. `id`: `<id>/data`. `original`:
            `<digit>-<where>/<what>/<start>/<id>-<name>`, as in datalake's first releases, for tools
            that use the key; then each file is read twice. Files of both forms are found.

    Raises:
        InvalidInputError: A URL or option cannot be used, or the index is missing.
        MissingDependencyError: Storage or index needs a package that is not installed.

    Examples:
        >>> open_archive("s3://raw", index="sqlite:///data/raw.db")
        Archive('s3://raw', index='sqlite:///data/raw.db')
    """
    if _is_served(storage):
        return _served(os.fspath(storage), index, storage_options, keys)
    store = open_store(storage, storage_options=storage_options)
    opened = _default_index(store) if index is None else open_index(index)
    return Archive(store, opened, keys=keys)


def _is_served(storage: str | os.PathLike[str]) -> bool:
    return isinstance(storage, str) and storage.casefold().startswith(("http://", "https://"))


def _served(
    url: str,
    index: str | os.PathLike[str] | None,
    storage_options: Mapping[str, str] | None,
    keys: KeyForm,
) -> Archive:
    from lakebed.archive.http_client import ServedFiles, ServedIndex

    if index is not None:
        msg = f"The server {url} has an index of its own, so {os.fspath(index)!r} is not used."
        raise InvalidInputError(msg, hint="Leave the index out.")
    options = dict(storage_options or {})
    token = options.pop("token", "") or os.environ.get(TOKEN_VARIABLE, "")
    if options:
        msg = f"Unknown storage option {min(options)!r} of an archive over HTTP."
        raise InvalidInputError(msg, hint="Known is: token.")
    files = ServedFiles(url, token)
    return Archive(files, ServedIndex(files), keys=keys)


def _default_index(store: Store) -> ArchiveIndex:
    if isinstance(store, MemoryStore):
        # As its objects, records are those of all archives of this name in this process.
        return _indices_in_memory.setdefault(store.uri, open_index("sqlite://"))
    path = store.local_path("x")
    if path is not None:
        return open_index(path.parent / _DEFAULT_INDEX)
    msg = f"The archive {store.uri} needs an index."
    raise InvalidInputError(msg, hint="Give the URL of one: sqlite:///PATH or dynamodb://TABLE.")

"""The archive: raw files with metadata records, found by time or work id."""

from __future__ import annotations

import datetime as dt
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from lakebed.archive import kept_files
from lakebed.archive.content import open_verified, opened, write_file
from lakebed.archive.file_keys import KeyForm, check_file_id, check_keys
from lakebed.archive.frames import FrameOf, to_frame
from lakebed.archive.index import ArchiveIndex, open_index
from lakebed.archive.metadata import FileMetadata
from lakebed.archive.name_advice import warn_of_names
from lakebed.archive.query import PAGE_LIMIT, ArchiveQuery, Page
from lakebed.archive.record import ArchiveRecord
from lakebed.archive.reindex import ReindexReport, noted, reindex
from lakebed.archive.retraction import key_of_retraction, note_retraction, retractions_in
from lakebed.archive.target import DEFAULT_TEMPLATE, target_path
from lakebed.archive.times import DAY_MS, time_bucket, times_in_name, to_datetime, to_epoch_ms
from lakebed.archive.translator import translate
from lakebed.arrow.reading.hashes import can_verify
from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.errors import (
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    RecordNotFoundError,
)
from lakebed.store import Store, open_store
from lakebed.store.at_once import at_once
from lakebed.store.memory import MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_LOOKBACK_DAYS = 14
_PUSHES_AT_ONCE = 8
_FIRST_DAY = -719_162  # of the calendar, in days since the epoch

_DEFAULT_INDEX = ".lakebed/archive.db"  # hidden from listings of the store


class Archive:
    """Files in a store, and an index of their records. Pickles.

    Attributes:
        store: Where contents and their metadata are.
        index: What finds them.
        keys: Where new files lie: `id` or `original`.

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

    def init(self) -> None:
        """Make the tables of the index; fine if they are there. SQLite makes its own."""
        self.index.create()

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
    ) -> ArchiveRecord:
        """Store a file and put it into the index.

        It is hashed as it is uploaded, read once and never held in memory as a whole. With an `id`
        of your own it is read twice, and pushing the same again changes nothing.

        Args:
            source: A path, or a binary file, which is read from where it stands.
            where: The place or machine that the file is from.
            what: The program or process that made it.
            start: Time of the first event, see `lakebed.archive.to_epoch_ms`.
            end: Time of the last event; None for a file of one moment.
            work_id: An id of yours by which the file can be found.
            path: The absolute path to tell of; that of `source` unless given.
            id: The id; drawn unless given.
            compress: Whether the content becomes gzip; hash and size are those of the gzip.
            extra: Further fields of the metadata.

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
            record = noted(self.store, record)
        self._put(record)
        return record

    def _store_file(
        self, file: IO[bytes], fields: dict[str, object], file_id: str | None, *, compress: bool
    ) -> ArchiveRecord:
        fields["id"] = uuid.uuid4().hex if file_id is None else check_file_id(file_id)
        if file_id is None and self.keys == "id":
            return kept_files.write_new(self.store, file, fields, compress=compress)
        # The original key begins with a digit of the hash, which must be known before.
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
        on_progress: OnProgress = NO_PROGRESS,
    ) -> tuple[ArchiveRecord, ...]:
        """Store many files and put them into the index, several at once.

        All of them are looked at before the first is stored: what is missing, or has no time in its
        name, stores nothing. A failure later on names all files that are not stored, in a note.

        Args:
            sources: Paths of files.
            where: As for `push`.
            what: As for `push`.
            start: The time of all of them; or else `start_from_name`.
            end: As for `push`.
            start_from_name: A pattern that is searched in each file's name; see `times_in_name`.
            work_id: As for `push`.
            compress: As for `push`.
            extra: As for `push`.
            on_progress: Is told how many files are stored, of how many, and their bytes.

        Returns:
            The records, in the order of the files.

        Warns:
            LakebedWarning: As for `push`, of each problem once.

        Raises:
            InvalidInputError: As for `push`; or both or none of `start` and `start_from_name`
                are given, or a file is named twice.

        Cost:
            As `push` for each file, 8 at once.
        """
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
        left = list(paths)
        tally = Tally(on_progress, f"push {what}", sizes)

        def push(number: int) -> ArchiveRecord:
            with opened(paths[number]) as file:
                record = self._store_file(file, dict(prepared[number]), None, compress=compress)
            self._put(record)
            left.remove(paths[number])
            tally.add(paths[number])
            return record

        try:
            return tuple(at_once(push, range(len(paths)), _PUSHES_AT_ONCE))
        except LakebedError as exc:
            exc.add_note(
                f"{len(paths) - len(left)} of {len(paths)} files are stored. Not, or not for sure: "
                f"{', '.join(left)}"
            )
            raise

    def push_prepared(self, file: IO[bytes], metadata: FileMetadata) -> ArchiveRecord:
        """Store a content whose metadata is complete; doing it again changes nothing.

        Raises:
            InvalidInputError: The content has another hash than the metadata says, or that is not
                of hex digits.
            RecordExistsError: Another file has the id.
        """
        metadata.check_hash()
        expected = metadata.hash if can_verify(metadata.hash) else None
        record = kept_files.write_claimed(
            self.store, file, metadata, expected_hash=expected, is_stored=True, keys=self.keys
        )
        record = noted(self.store, record)
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
            what: Which program or process.
            start: Begin of the time; with `end`, or else `work_id`.
            end: End of the time, included; `now` is a time.
            work_id: Which work.
            where: Which place; None for all.
            retracted: Whether files that are retracted come, too.

        Returns:
            SQLite: in the order of their starts. DynamoDB: day by day.

        Raises:
            InvalidInputError: Neither or both of time and work id are given, or one is wrong.

        Cost:
            One question to the index for 100 files; on DynamoDB also one for each day asked for.
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
        """Return a part of what `list` yields, and the cursor of the next part.

        Raises:
            InvalidInputError: As `list`; or `limit` is not 1 to 1,000, or the cursor is none of
                this question.
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

        Those are looked at that touch today or one of the days before, and start today or earlier.
        Of equal starts the file that was stored last is taken.

        Args:
            what: Which program or process.
            where: Which place.
            lookback_days: How many days before today are looked at.
            now: What today is; the clock's time unless given.
            retracted: Whether a file that is retracted counts.

        Raises:
            RecordNotFoundError: There is none.
            InvalidInputError: `lookback_days` is negative, or no whole number.
        """
        if not isinstance(lookback_days, int) or lookback_days < 0:
            msg = f"{lookback_days!r} is no number of days to look back."
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
        """Return what the storage tells of a file; the index is not asked.

        Args:
            url_or_id: The URL of a record, or its id if it was pushed here.

        Raises:
            RecordNotFoundError: There is no such file.
            InvalidInputError: The URL leads out of the archive, or the id is none.
            CorruptMetadataError: The file has no metadata, or metadata that breaks a rule.

        Cost:
            One HEAD and a GET, and a GET where the metadata lies beside the content only. An id of
            a file with a key of the original form takes a HEAD and a GET more.
        """
        return noted(self.store, kept_files.find_record(self.store, url_or_id))

    def retract(self, url_or_id: str, *, reason: str) -> ArchiveRecord:
        """Keep a file from being read by any ingest, until it is restored; it stays as it is.

        `list`, `page` and `latest` leave it out unless they are asked for it; it can be fetched.
        Rows that an ingest has read stay in their dataset: roll back or delete. An ingest that runs
        right now may still read the file: `Dataset.hold` keeps its rows out for sure. A second call
        changes nothing but an index that lacks the note.

        Args:
            url_or_id: As in `record`.
            reason: Why; whoever reads the record sees it.

        Returns:
            The record, with the retraction.

        Raises:
            RecordNotFoundError: There is no such file.
            InvalidInputError: The reason is empty, the URL leads out of the archive, or the id is
                none.

        Cost:
            As `record`, a PUT and a write to the index.
        """
        if not isinstance(reason, str) or not reason.strip():
            msg = f"The reason is {reason!r}."
            raise InvalidInputError(msg, hint="Say why no ingest shall read the file.")
        record = kept_files.find_record(self.store, url_or_id)
        record = replace(record, retraction=note_retraction(self.store, record.id, reason))
        self.index.put([record])
        return record

    def restore(self, url_or_id: str) -> ArchiveRecord:
        """Take a retraction back, so that the next ingest reads the file.

        Raises:
            RecordNotFoundError: There is no such file.
            InvalidInputError: It is not retracted, the URL leads out of the archive, or the id is
                none.

        Cost:
            As `record`, a DELETE, and a read of and a write to the index.
        """
        record = kept_files.find_record(self.store, url_or_id)
        indexed = self.index.find(record.id)
        is_indexed = indexed is not None and indexed.retraction is not None
        key = key_of_retraction(record.id)
        if not is_indexed and key not in retractions_in(self.store):
            msg = f"The file {record.id!r} is not retracted."
            raise InvalidInputError(msg, hint="`lakebed archive list --retracted` lists those.")
        self.store.delete([key])
        self.index.put([record])
        return record

    def open(self, url_or_id: str, *, verify: bool = True) -> BinaryIO:
        """Open a file to be read from its begin to its end. Close it, or use it in a `with`.

        Args:
            url_or_id: As in `record`.
            verify: Whether the last read raises `FormatError` if the content has not the hash that
                its metadata says. A hash that is not 32 hex digits is not checked.

        Raises:
            RecordNotFoundError: There is no such file.
            InvalidInputError: The URL leads out of the archive, or the id is none.
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
            to: The folder; it is made if it is not there.
            template: The path in it: names of the metadata in braces, and `{start_iso}` and
                `{end_iso}`. A leading slash of a value is dropped. It cannot lead out of the folder.
            verify: As in `open`.

        Returns:
            Where the file is.

        Raises:
            RecordNotFoundError: There is no such file.
            InvalidInputError: The template is wrong or leads out of the folder, or the folder
                cannot be written.
            FormatError: The content has another hash than its metadata says.
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
        """Return what `list` finds as a Spark DataFrame.

        `records` have the columns id, what, where, work_id, start, end, path, size_bytes, hash,
        url, created_at and metadata, which is JSON. `lines` have id, url, line_number, line and
        problem, whatever the file is compressed with. `contents` have id, url and content, the
        bytes as they lie there. The latter two go by the size of files: each task reads a group
        of them from the storage, and the driver none. Hashes are compared: of a file that has
        another than its record says, `lines` have only one with the problem, and `contents` fail.

        Args:
            spark: The session; else the active one, else one started in this process.
            what: As for `list`.
            start: As for `list`.
            end: As for `list`.
            work_id: As for `list`.
            where: As for `list`.
            read: `records`, `lines` or `contents`.

        Raises:
            InvalidInputError: As `list`; or tasks do not see the storage.
            MissingDependencyError: pyspark or Java is not installed.

        Cost:
            As `list`; no Spark job until the DataFrame is used.
        """
        records = self.list(what, start=start, end=end, work_id=work_id, where=where)
        return to_frame(spark, self.store, tuple(records), read)

    def ingest(self, url_or_id: str) -> ArchiveRecord:
        """Put a file that is in the storage into the index, as a notification would.

        Raises:
            RecordNotFoundError: There is no such file.
            InvalidInputError: The URL leads out of the archive, or the id is none.
            CorruptMetadataError: The file has no metadata, or metadata that breaks a rule.
        """
        record = self.record(url_or_id)
        try:
            record.metadata.check_hash()
        except InvalidInputError as exc:
            msg = f"The metadata of {record.url} breaks a rule: {exc.message}"
            raise CorruptMetadataError(msg, hint="Push the file again.") from exc
        self.index.put([record])
        return record

    def reindex(self, *, spark: SparkSession | None = None, dry_run: bool = False) -> ReindexReport:
        """Make the index anew from the metadata that lies with the files.

        Files may be pushed meanwhile: a record is taken out only when its own object is seen to be
        gone. Records of files in other storages stay: an index may serve several.

        Args:
            spark: A session whose tasks read the metadata of many files; None reads in this
                process.
            dry_run: Whether the index stays as it is.

        Raises:
            StorageError: The storage or the index failed; what was indexed so far stays.
            InvalidInputError: Tasks do not see the storage.

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
        InvalidInputError: Both or none are given, or the name holds no time.
    """
    if (start is None) == (start_from_name is None):
        msg = "The time of the first event is to be given, as such or by a pattern of the name."
        raise InvalidInputError(msg, hint="Give either --start or --start-from-name.")
    if start_from_name is None:
        return {"start": start, "end": end}
    first, last = times_in_name(start_from_name, path)
    # As times, and not as numbers: early ones are refused as unclear.
    if end is None and last is not None:
        end = to_datetime(last)
    return {"start": to_datetime(first), "end": end}


def _checked_sizes(
    paths: Sequence[str], prepared: Sequence[Mapping[str, object]]
) -> dict[str, int]:
    """Return the sizes of files, after a check of all that can be known before the first is stored.

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
    """Complete the fields of a file's metadata: its path, and what is to be taken from the path.

    Raises:
        InvalidInputError: An expression is broken or does not fit, or the path is missing.
    """
    all_fields = {**(extra or {}), **fields}
    if all_fields["path"] is None:
        if not isinstance(source, str | os.PathLike):
            msg = "A file that is open has no path to tell of."
            raise InvalidInputError(msg, hint="Give its path, such as /var/log/syslog.")
        all_fields["path"] = os.path.abspath(source)  # noqa: PTH100 - links in the path must stay
    for name in ("where", "what", "work_id"):
        value = all_fields[name]
        if isinstance(value, str):
            all_fields[name] = translate(value, str(all_fields["path"]))
    return all_fields


def open_archive(
    storage: str | os.PathLike[str],
    *,
    index: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    keys: KeyForm = "id",
) -> Archive:
    """Open the archive at a storage URL; nothing is read or written yet.

    Args:
        storage: A path or URL, see `lakebed.store.open_store`. Give an archive a place of its own.
        index: `sqlite:///PATH` or `dynamodb://TABLE?region=REGION`. A directory has one of SQLite
            in it unless given; for other storage it must be given.
        storage_options: What the store needs to know.
        keys: Where new files lie. `id`: under `<id>/data`. `original`: under
            `<digit>-<where>/<what>/<start>/<id>-<name>`, as datalake's first releases kept them,
            for tools that go by the key; then each file is read twice. Files of both are found.

    Raises:
        InvalidInputError: A URL or option cannot be used, or the index is missing.
        MissingDependencyError: Storage or index need a package that is not installed.

    Examples:
        >>> open_archive("s3://raw", index="sqlite:///data/raw.db")
        Archive('s3://raw', index='sqlite:///data/raw.db')
    """
    store = open_store(storage, storage_options=storage_options)
    where = index if index is not None else _default_index(store)
    return Archive(store, open_index(where), keys=keys)


def _default_index(store: Store) -> str | Path:
    if isinstance(store, MemoryStore):
        return "sqlite://"
    path = store.local_path("x")
    if path is not None:
        return path.parent / _DEFAULT_INDEX
    msg = f"The archive {store.uri} needs an index."
    raise InvalidInputError(msg, hint="Give the URL of one: sqlite:///PATH or dynamodb://TABLE.")

"""Notifications of an object store: events on files, as JSON.

A message is an event of S3, alone or inside the envelope of SNS. Metadata is read from the storage,
never taken from the message, so a message may come twice, late or out of order.
"""

from __future__ import annotations

import datetime as dt
import importlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote_plus

from lakebed.archive import kept_files
from lakebed.archive.archive import Archive
from lakebed.archive.content import open_entry, using
from lakebed.archive.file_keys import file_id_of, file_id_of_metadata, ids_in, is_metadata_key
from lakebed.archive.index.dynamodb import translating_boto_errors
from lakebed.archive.record import ArchiveRecord
from lakebed.errors import (
    CorruptMetadataError,
    FormatError,
    InvalidInputError,
    LakebedError,
    MissingDependencyError,
    ObjectNotFoundError,
    RecordNotFoundError,
    StorageError,
)

_log = logging.getLogger(__name__)

_STORED = frozenset(
    {"ObjectCreated:Put", "ObjectCreated:CompleteMultipartUpload", "ObjectCreated:Copy"}
)
_REMOVED = frozenset(
    {
        "ObjectRemoved:Delete",
        "ObjectRemoved:DeleteMarkerCreated",
        "LifecycleExpiration:Delete",
        "LifecycleExpiration:DeleteMarkerCreated",
    }
)
_TEST_EVENT = "s3:TestEvent"
_EVENT_VERSION = "2."  # greater minor versions only add fields
_SHORT_MESSAGE = 80
_LONG_POLL_S = 20  # SQS allows no more
_POLL_S = 0.5
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReport:
    """The result of processing one message.

    Attributes:
        started_at: Start time of the processing; aware, UTC.
        duration_s: Duration of the processing in seconds.
        status: `success`; or `error` if something in the message cannot be used, now or later.
        records: The files named by the message that are in the index now, each once.
        removed: The ids of the files named by the message that no longer exist.
        error: The first error, if there was one.
    """

    started_at: dt.datetime
    duration_s: float
    status: Literal["success", "error"]
    records: tuple[ArchiveRecord, ...] = ()
    removed: tuple[str, ...] = ()
    error: LakebedError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    name: str
    url: str
    key: str


def ingest_message(archive: Archive, message: str | bytes) -> MessageReport:
    """Update the index for the files that a message names.

    Errors in the message or in a file are reported, and its other files are processed anyway. A
    test event of S3 is a success without records.

    Raises:
        StorageError: The storage or the index failed; the same message may succeed later.

    Cost:
        For each file a HEAD, perhaps a GET, and a write to the index.
    """
    started_at, start = dt.datetime.now(dt.UTC), time.monotonic()
    records: dict[str, ArchiveRecord] = {}
    removed: list[str] = []
    error: LakebedError | None = None
    try:
        events = list(_events(archive, message))
    except InvalidInputError as exc:
        events, error = [], exc
    for event in events:
        try:
            record = _follow(archive, event)
        except (InvalidInputError, FormatError, RecordNotFoundError) as exc:
            error = error or exc
            continue
        if isinstance(record, ArchiveRecord):
            records[record.url] = record
        elif record is not None:
            removed.append(record)
    if error is not None:
        _log.warning("message cannot be used error=%s", error)
    return MessageReport(
        started_at=started_at,
        duration_s=time.monotonic() - start,
        status="success" if error is None else "error",
        records=tuple(records.values()),
        removed=tuple(removed),
        error=error,
    )


def _follow(archive: Archive, event: _Event) -> ArchiveRecord | str | None:
    """Return the record of an existing file, the id of a deleted one, or None for neither."""
    if event.name in _REMOVED:
        return _remove(archive, event)
    if event.name not in _STORED:
        msg = f"An archive does not process event {event.name!r} of {event.url}."
        raise InvalidInputError(msg, hint=f"Subscribe to {', '.join(sorted(_STORED))}.")
    try:
        return archive.ingest(event.url)
    except CorruptMetadataError as exc:
        if is_metadata_key(event.key):
            return _ingest_beside(archive, event.key)
        is_missing = isinstance(exc.__cause__, ObjectNotFoundError)
        if is_missing and any(ids_in(event.key)):
            # A push may store the metadata after the content; then another event follows.
            _log.info("content without metadata so far url=%s", event.url)
            return None
        raise


def _ingest_beside(archive: Archive, key: str) -> ArchiveRecord | None:
    """Return the record of the content that metadata belongs to; None if there is none."""
    file_id = file_id_of_metadata(key)
    if file_id is None:
        return None
    try:
        return archive.ingest(file_id)
    except RecordNotFoundError:  # a push may create the metadata first, to claim its id
        return None


def _remove(archive: Archive, event: _Event) -> str | None:
    own_id = file_id_of(event.key)
    if own_id is None and not any(ids_in(event.key)):
        if is_metadata_key(event.key):
            return None
        msg = f"{event.url} was deleted, and its key does not contain its id."
        raise InvalidInputError(msg, hint="Run `lakebed archive reindex`.")
    try:
        archive.store.stat(event.key)
    except ObjectNotFoundError:
        for file_id in ids_in(event.key):
            held = archive.index.find(file_id)
            if held is not None and held.url == event.url:
                archive.index.delete([file_id])
                return file_id
            if file_id == own_id and held is None:
                return file_id
        return None  # a copy of it exists
    return None  # pushed again since


def _events(archive: Archive, message: str | bytes) -> Iterator[_Event]:
    document = _parse(message)
    if "Message" in document:
        document = _parse(document["Message"])
    if document.get("Event") == _TEST_EVENT:
        return
    entries = document.get("Records")
    if not isinstance(entries, list):
        msg = f"Not a notification: {_shortened(message)}."
        raise InvalidInputError(msg, hint="Send an event of S3, or one in an envelope of SNS.")
    for entry in entries:
        event = _event(archive, entry)
        if event is not None:
            yield event


def _parse(text: object) -> Mapping[str, Any]:
    try:
        document = json.loads(text) if isinstance(text, str | bytes) else None
    except (ValueError, RecursionError) as exc:
        msg = f"Not a notification: {exc}: {_shortened(text)}."
        raise InvalidInputError(msg, hint="It must be JSON.") from exc
    if not isinstance(document, dict):
        msg = f"Not a notification: {_shortened(text)}."
        raise InvalidInputError(msg, hint="It must be a JSON object.")
    return document


def _event(archive: Archive, entry: object) -> _Event | None:
    """Return the event on a file; None for an internal object of the store."""
    match entry:
        case {
            "eventVersion": str() as version,
            "eventName": str() as name,
            "s3": {"bucket": {"name": str() as bucket}, "object": {"key": str() as key}},
        } if version.startswith(_EVENT_VERSION):
            url = f"s3://{bucket}/{unquote_plus(key)}"
            if url.startswith(
                f"{archive.store.uri}/.lakebed"
            ):  # such as a probe of conditional puts
                return None
            # The name begins with `s3:` in the settings of a bucket, and in some services.
            name = name.removeprefix("s3:")
            return _Event(name=name, url=url, key=kept_files.key_of(archive.store, url))
    msg = f"Not an event of version 2: {_shortened(entry)}."
    raise InvalidInputError(
        msg, hint="It must have eventVersion, eventName, s3.bucket and s3.object."
    )


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHORT_MESSAGE else f"{text[: _SHORT_MESSAGE - 3]}..."


def ingest_lines(
    archive: Archive, lines: Iterable[str], *, dry_run: bool = False
) -> Iterator[MessageReport]:
    """Ingest lines, each of which is the URL of a stored file or a message.

    Args:
        archive: The archive whose index is updated.
        lines: URLs, ids and messages.
        dry_run: Change nothing; yield the reports that would be.

    Raises:
        StorageError: The storage or the index failed.
    """
    if dry_run:
        archive = archive._on_dry_run()
    for line in lines:
        text = line.strip()
        if text.startswith("{"):
            yield ingest_message(archive, text)
        elif text:
            yield ingest_url(archive, text)


def ingest_url(archive: Archive, url_or_id: str, *, dry_run: bool = False) -> MessageReport:
    """Ingest one stored file, and report as `ingest_message` does.

    Args:
        archive: The archive whose index is updated.
        url_or_id: The URL or the id of the file.
        dry_run: Change nothing; return the report that would be.

    Raises:
        StorageError: The storage or the index failed.
    """
    started_at, start = dt.datetime.now(dt.UTC), time.monotonic()
    record, error = None, None
    try:
        record = archive.ingest(url_or_id, dry_run=dry_run)
    except (InvalidInputError, FormatError, RecordNotFoundError) as exc:
        error = exc
    return MessageReport(
        started_at=started_at,
        duration_s=time.monotonic() - start,
        status="success" if error is None else "error",
        records=() if record is None else (record,),
        error=error,
    )


def ingest_directory(
    archive: Archive, directory: str | os.PathLike[str], *, dry_run: bool = False
) -> Iterator[MessageReport]:
    """Ingest a directory of messages, one in each file, in the order of their names.

    A file is deleted after its message was processed; one that cannot be used moves to `failed/`,
    as do symbolic links, which are not followed, and pipes. Files with a leading dot are still being
    written.

    Args:
        archive: The archive whose index is updated.
        directory: The directory of messages.
        dry_run: Change neither the index nor the directory; yield the reports that would be.

    Raises:
        StorageError: The storage or the index failed; the file stays.
        InvalidInputError: The directory cannot be used.
    """
    root = Path(directory)
    if dry_run:
        archive = archive._on_dry_run()
    failed = root / "failed"
    if failed.is_symlink():
        raise InvalidInputError(
            f"{failed} is a symbolic link: messages would be moved to a folder of others.",
            hint="Replace it with a folder, or remove it.",
        )
    with using(root):
        waiting = sorted(path for path in root.iterdir() if path.is_symlink() or not path.is_dir())
    for path in waiting:
        if path.name.startswith("."):
            continue
        report = _ingest_file(archive, path)
        if report is None:
            continue
        if dry_run:
            yield report
            continue
        with using(path):
            if report.status == "success":
                path.unlink(missing_ok=True)
            else:
                failed.mkdir(exist_ok=True)
                path.replace(failed / path.name)
        yield report


def _ingest_file(archive: Archive, path: Path) -> MessageReport | None:
    """Ingest a message; None if another process has taken it."""
    started_at, start = dt.datetime.now(dt.UTC), time.monotonic()
    try:
        with open_entry(path) as file, using(path):
            message = file.read()
    except FileNotFoundError:
        return None
    except InvalidInputError as exc:
        return MessageReport(
            started_at=started_at,
            duration_s=time.monotonic() - start,
            status="error",
            error=exc,
        )
    return ingest_message(archive, message)


def ingest_sqs(
    archive: Archive,
    queue_url: str,
    *,
    region: str | None = None,
    endpoint: str | None = None,
    wait_s: int = _LONG_POLL_S,
) -> Iterator[MessageReport]:
    """Ingest the messages of an SQS queue until it is empty.

    A message is deleted when it was processed or cannot be used; after a failure it comes again.

    Args:
        archive: The archive whose index is updated.
        queue_url: URL of the queue.
        region: Region of the queue; default: from the environment.
        endpoint: URL of the service, if it is not that of AWS.
        wait_s: Seconds to wait for a message before the queue counts as empty, up to 20.

    Raises:
        StorageError: The queue, the storage or the index failed.
        MissingDependencyError: boto3 is not installed.
    """
    try:
        boto3 = importlib.import_module("boto3")
    except ImportError as exc:
        raise MissingDependencyError.for_extra("boto3", "dynamodb", queue_url) from exc
    with translating_boto_errors(queue_url):
        client = boto3.client("sqs", region_name=region, endpoint_url=endpoint)
    while True:
        with translating_boto_errors(queue_url):
            answer = client.receive_message(
                QueueUrl=queue_url, MaxNumberOfMessages=1, WaitTimeSeconds=wait_s
            )
        messages = answer.get("Messages", [])
        if not messages:
            return
        for message in messages:
            report = ingest_message(archive, message["Body"])
            with translating_boto_errors(queue_url):
                client.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
            yield report


def ingest_again(
    ingest: Callable[[], Iterable[MessageReport]], *, timeout_s: float | None = None
) -> Iterator[MessageReport]:
    """Ingest waiting and new messages, until the time is up.

    After a temporary failure it waits, twice as long each time, up to a minute.

    Args:
        ingest: Function that ingests the waiting messages, such as `ingest_directory` or
            `ingest_sqs` of a queue.
        timeout_s: Duration in seconds; None for ever. Waits inside `ingest` are not cut short.

    Raises:
        StorageError: The queue, the storage or the index failed permanently.
    """
    deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
    wait_s = _POLL_S
    while True:
        try:
            for report in ingest():
                yield report
                wait_s = _POLL_S
                if time.monotonic() > deadline:
                    return
        except StorageError as exc:
            if not exc.retryable:
                raise
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            _log.warning("ingest failed, waiting wait_s=%s error=%s", wait_s, exc)
        else:
            wait_s = _POLL_S
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return
        time.sleep(min(wait_s, left_s))

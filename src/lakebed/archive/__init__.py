"""The archive: raw files with metadata records, found by time or work id."""

from typing import TYPE_CHECKING

from lakebed.common.lazy import lazily

if TYPE_CHECKING:
    from lakebed.archive.archive import Archive as Archive
    from lakebed.archive.archive import open_archive as open_archive
    from lakebed.archive.bundle import Bundle as Bundle
    from lakebed.archive.bundle import open_bundle as open_bundle
    from lakebed.archive.index import ArchiveIndex as ArchiveIndex
    from lakebed.archive.index import open_index as open_index
    from lakebed.archive.metadata import FileMetadata as FileMetadata
    from lakebed.archive.notifications import MessageReport as MessageReport
    from lakebed.archive.notifications import ingest_again as ingest_again
    from lakebed.archive.notifications import ingest_directory as ingest_directory
    from lakebed.archive.notifications import ingest_lines as ingest_lines
    from lakebed.archive.notifications import ingest_message as ingest_message
    from lakebed.archive.notifications import ingest_sqs as ingest_sqs
    from lakebed.archive.notifications import ingest_url as ingest_url
    from lakebed.archive.query import Page as Page
    from lakebed.archive.query import WhatSummary as WhatSummary
    from lakebed.archive.record import ArchiveRecord as ArchiveRecord
    from lakebed.archive.reindex import ReindexReport as ReindexReport
    from lakebed.archive.reindex import SkippedObject as SkippedObject
    from lakebed.archive.retraction import Retraction as Retraction
    from lakebed.archive.times import time_buckets as time_buckets
    from lakebed.archive.times import times_in_name as times_in_name
    from lakebed.archive.times import to_epoch_ms as to_epoch_ms
    from lakebed.archive.translator import Translator as Translator
    from lakebed.archive.upload_queue import Upload as Upload
    from lakebed.archive.upload_queue import UploadQueue as UploadQueue
    from lakebed.arrow.reading.hashes import content_hash as content_hash
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "Archive": "lakebed.archive.archive",
            "open_archive": "lakebed.archive.archive",
            "Bundle": "lakebed.archive.bundle",
            "open_bundle": "lakebed.archive.bundle",
            "ArchiveIndex": "lakebed.archive.index",
            "open_index": "lakebed.archive.index",
            "FileMetadata": "lakebed.archive.metadata",
            "MessageReport": "lakebed.archive.notifications",
            "ingest_again": "lakebed.archive.notifications",
            "ingest_directory": "lakebed.archive.notifications",
            "ingest_lines": "lakebed.archive.notifications",
            "ingest_message": "lakebed.archive.notifications",
            "ingest_sqs": "lakebed.archive.notifications",
            "ingest_url": "lakebed.archive.notifications",
            "Page": "lakebed.archive.query",
            "WhatSummary": "lakebed.archive.query",
            "ArchiveRecord": "lakebed.archive.record",
            "ReindexReport": "lakebed.archive.reindex",
            "SkippedObject": "lakebed.archive.reindex",
            "Retraction": "lakebed.archive.retraction",
            "time_buckets": "lakebed.archive.times",
            "times_in_name": "lakebed.archive.times",
            "to_epoch_ms": "lakebed.archive.times",
            "Translator": "lakebed.archive.translator",
            "Upload": "lakebed.archive.upload_queue",
            "UploadQueue": "lakebed.archive.upload_queue",
            "content_hash": "lakebed.arrow.reading.hashes",
        },
    )

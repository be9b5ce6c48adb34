"""The archive: raw files with metadata records, found by time or work id."""

from typing import TYPE_CHECKING

from lakebed.model.lazy import lazily

if TYPE_CHECKING:
    from lakebed.archive.archive import Archive, open_archive
    from lakebed.archive.bundle import Bundle, open_bundle
    from lakebed.archive.index import ArchiveIndex, open_index
    from lakebed.archive.metadata import FileMetadata
    from lakebed.archive.notifications import (
        MessageReport,
        ingest_again,
        ingest_directory,
        ingest_lines,
        ingest_message,
        ingest_sqs,
        ingest_url,
    )
    from lakebed.archive.query import Page
    from lakebed.archive.record import ArchiveRecord
    from lakebed.archive.reindex import ReindexReport, SkippedObject
    from lakebed.archive.times import time_buckets, to_epoch_ms
    from lakebed.archive.translator import Translator
    from lakebed.archive.upload_queue import Upload, UploadQueue
    from lakebed.arrow.reading.hashes import content_hash
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "lakebed.archive.archive": ("Archive", "open_archive"),
            "lakebed.archive.bundle": ("Bundle", "open_bundle"),
            "lakebed.archive.index": ("ArchiveIndex", "open_index"),
            "lakebed.archive.metadata": ("FileMetadata",),
            "lakebed.archive.notifications": (
                "MessageReport",
                "ingest_again",
                "ingest_directory",
                "ingest_lines",
                "ingest_message",
                "ingest_sqs",
                "ingest_url",
            ),
            "lakebed.archive.query": ("Page",),
            "lakebed.archive.record": ("ArchiveRecord",),
            "lakebed.archive.reindex": ("ReindexReport", "SkippedObject"),
            "lakebed.archive.times": ("time_buckets", "to_epoch_ms"),
            "lakebed.archive.translator": ("Translator",),
            "lakebed.archive.upload_queue": ("Upload", "UploadQueue"),
            "lakebed.arrow.reading.hashes": ("content_hash",),
        },
    )

__all__ = [
    "Archive",
    "ArchiveIndex",
    "ArchiveRecord",
    "Bundle",
    "FileMetadata",
    "MessageReport",
    "Page",
    "ReindexReport",
    "SkippedObject",
    "Translator",
    "Upload",
    "UploadQueue",
    "content_hash",
    "ingest_again",
    "ingest_directory",
    "ingest_lines",
    "ingest_message",
    "ingest_sqs",
    "ingest_url",
    "open_archive",
    "open_bundle",
    "open_index",
    "time_buckets",
    "to_epoch_ms",
]

"""Lakebed keeps datasets on plain storage for people who work in PySpark."""

import logging
from typing import TYPE_CHECKING

from lakebed.model.lazy import lazily as _lazily

if TYPE_CHECKING:
    from lakebed import by, checks, errors
    from lakebed.archive.archive import Archive, open_archive
    from lakebed.archive.record import ArchiveRecord
    from lakebed.arrow.kernel import WriteOptions
    from lakebed.arrow.reading.files import CsvOptions
    from lakebed.arrow.reading.inference import infer_schema
    from lakebed.batches.diff import Diff
    from lakebed.batches.listing import Batch
    from lakebed.batches.staged import Staged
    from lakebed.batches.transaction import DatasetTransaction
    from lakebed.checks import Audit
    from lakebed.commit import Commit
    from lakebed.dataset import Dataset
    from lakebed.errors import LakebedError
    from lakebed.model.descriptor import DatasetDescriptor
    from lakebed.model.dimensions import DimensionSchema
    from lakebed.model.partition import PartitionStrategy
    from lakebed.model.progress import Progress
    from lakebed.model.provider import MetadataProvider
    from lakebed.model.schema import Schema
    from lakebed.pipeline.candidates import FromArchive, FromFiles
    from lakebed.pipeline.ingest import Ingest, IngestCheck
    from lakebed.pipeline.report import IngestReport
    from lakebed.repository import Repository, open_repository, open_uri
    from lakebed.state.commit import CommitOptions
    from lakebed.state.protections import Protection
    from lakebed.state.sources import SourceFile
    from lakebed.view import View
    from lakebed.work.check import CheckReport
    from lakebed.work.cleanup import CleanupReport
    from lakebed.work.ingest.due import LeftOut
    from lakebed.work.ingest.execution import IngestProgress
    from lakebed.work.ingest.load import LoadReport
    from lakebed.work.ingest.options import LoadOptions
else:
    __getattr__, __dir__ = _lazily(
        __name__,
        {
            "lakebed.archive.archive": ("Archive", "open_archive"),
            "lakebed.archive.record": ("ArchiveRecord",),
            "lakebed.arrow.kernel": ("WriteOptions",),
            "lakebed.arrow.reading.files": ("CsvOptions",),
            "lakebed.arrow.reading.inference": ("infer_schema",),
            "lakebed.batches.diff": ("Diff",),
            "lakebed.batches.listing": ("Batch",),
            "lakebed.batches.staged": ("Staged",),
            "lakebed.batches.transaction": ("DatasetTransaction",),
            "lakebed.checks": ("Audit",),
            "lakebed.commit": ("Commit",),
            "lakebed.dataset": ("Dataset",),
            "lakebed.errors": ("LakebedError",),
            "lakebed.model.descriptor": ("DatasetDescriptor",),
            "lakebed.model.dimensions": ("DimensionSchema",),
            "lakebed.model.partition": ("PartitionStrategy",),
            "lakebed.model.progress": ("Progress",),
            "lakebed.model.provider": ("MetadataProvider",),
            "lakebed.model.schema": ("Schema",),
            "lakebed.pipeline.candidates": ("FromArchive", "FromFiles"),
            "lakebed.pipeline.ingest": ("Ingest", "IngestCheck"),
            "lakebed.pipeline.report": ("IngestReport",),
            "lakebed.repository": ("Repository", "open_repository", "open_uri"),
            "lakebed.state.commit": ("CommitOptions",),
            "lakebed.state.protections": ("Protection",),
            "lakebed.state.sources": ("SourceFile",),
            "lakebed.view": ("View",),
            "lakebed.work.check": ("CheckReport",),
            "lakebed.work.cleanup": ("CleanupReport",),
            "lakebed.work.ingest.due": ("LeftOut",),
            "lakebed.work.ingest.execution": ("IngestProgress",),
            "lakebed.work.ingest.load": ("LoadReport",),
            "lakebed.work.ingest.options": ("LoadOptions",),
        },
        modules=(
            *("archive", "batches", "by", "checks", "commit", "dataset", "errors", "hive"),
            *("pipeline", "repository", "spark", "store", "view"),
        ),
    )

__all__ = [
    "Archive",
    "ArchiveRecord",
    "Audit",
    "Batch",
    "CheckReport",
    "CleanupReport",
    "Commit",
    "CommitOptions",
    "CsvOptions",
    "Dataset",
    "DatasetDescriptor",
    "DatasetTransaction",
    "Diff",
    "DimensionSchema",
    "FromArchive",
    "FromFiles",
    "Ingest",
    "IngestCheck",
    "IngestProgress",
    "IngestReport",
    "LakebedError",
    "LeftOut",
    "LoadOptions",
    "LoadReport",
    "MetadataProvider",
    "PartitionStrategy",
    "Progress",
    "Protection",
    "Repository",
    "Schema",
    "SourceFile",
    "Staged",
    "View",
    "WriteOptions",
    "by",
    "checks",
    "errors",
    "infer_schema",
    "open_archive",
    "open_repository",
    "open_uri",
]

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())

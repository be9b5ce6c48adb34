"""Lakebed keeps datasets on plain storage for people who work in PySpark."""

import logging
from typing import TYPE_CHECKING

from lakebed.lazy import lazily as _lazily

if TYPE_CHECKING:
    from lakebed import by, checks, errors
    from lakebed.archive.archive import Archive, open_archive
    from lakebed.archive.record import ArchiveRecord
    from lakebed.arrow.kernel import WriteOptions
    from lakebed.arrow.reading.files import CsvOptions
    from lakebed.arrow.reading.inference import infer_schema
    from lakebed.batches.diff import Diff
    from lakebed.batches.listing import Batch
    from lakebed.batches.staging import Staged
    from lakebed.batches.transaction import DatasetTransaction
    from lakebed.checks import Audit
    from lakebed.commit import Commit
    from lakebed.dataset import Dataset
    from lakebed.errors import LakebedError
    from lakebed.lifecycle.check import CheckReport
    from lakebed.lifecycle.cleanup import CleanupReport
    from lakebed.loading import LoadOptions, LoadReport
    from lakebed.model.descriptor import DatasetDescriptor
    from lakebed.model.dimensions import DimensionSchema
    from lakebed.model.partition import PartitionStrategy
    from lakebed.model.schema import Schema
    from lakebed.pipeline.candidates import FromArchive, FromFiles
    from lakebed.pipeline.execution import IngestProgress
    from lakebed.pipeline.identity import LeftOut
    from lakebed.pipeline.ingest import Ingest, IngestCheck
    from lakebed.pipeline.report import IngestReport
    from lakebed.provider import MetadataProvider
    from lakebed.repository import Repository, open_repository, open_uri
    from lakebed.state.commit import CommitOptions
    from lakebed.state.protections import Protection
    from lakebed.state.sources import SourceFile
    from lakebed.view import View
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
            "lakebed.batches.staging": ("Staged",),
            "lakebed.batches.transaction": ("DatasetTransaction",),
            "lakebed.checks": ("Audit",),
            "lakebed.commit": ("Commit",),
            "lakebed.dataset": ("Dataset",),
            "lakebed.errors": ("LakebedError",),
            "lakebed.lifecycle.check": ("CheckReport",),
            "lakebed.lifecycle.cleanup": ("CleanupReport",),
            "lakebed.loading": ("LoadOptions", "LoadReport"),
            "lakebed.model.descriptor": ("DatasetDescriptor",),
            "lakebed.model.dimensions": ("DimensionSchema",),
            "lakebed.model.partition": ("PartitionStrategy",),
            "lakebed.model.schema": ("Schema",),
            "lakebed.pipeline.candidates": ("FromArchive", "FromFiles"),
            "lakebed.pipeline.execution": ("IngestProgress",),
            "lakebed.pipeline.identity": ("LeftOut",),
            "lakebed.pipeline.ingest": ("Ingest", "IngestCheck"),
            "lakebed.pipeline.report": ("IngestReport",),
            "lakebed.provider": ("MetadataProvider",),
            "lakebed.repository": ("Repository", "open_repository", "open_uri"),
            "lakebed.state.protections": ("Protection",),
            "lakebed.state.sources": ("SourceFile",),
            "lakebed.state.commit": ("CommitOptions",),
            "lakebed.view": ("View",),
        },
        modules=("archive", "by", "checks", "errors", "pipeline", "store"),
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

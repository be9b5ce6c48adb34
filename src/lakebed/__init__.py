"""Lakebed keeps datasets on plain storage for people who work in PySpark."""

import logging

from lakebed import by, checks, errors
from lakebed.archive import Archive, ArchiveRecord, open_archive
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
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.dimensions import DimensionSchema
from lakebed.model.partition import PartitionStrategy
from lakebed.model.schema import Schema
from lakebed.pipeline import (
    FromArchive,
    FromFiles,
    Ingest,
    IngestCheck,
    IngestProgress,
    IngestReport,
    LeftOut,
)
from lakebed.provider import MetadataProvider
from lakebed.repository import Repository, open_repository, open_uri
from lakebed.state.commit import CommitOptions
from lakebed.state.protections import Protection
from lakebed.state.sources import SourceFile
from lakebed.view import View
from lakebed.work.ingest.load import LoadReport
from lakebed.work.ingest.options import LoadOptions

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

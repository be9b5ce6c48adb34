"""Lakebed keeps datasets on plain storage for people who work in PySpark."""

import logging

from lakebed import by, errors
from lakebed.archive import Archive, ArchiveRecord, open_archive
from lakebed.arrow.kernel import WriteOptions
from lakebed.arrow.reading.files import CsvOptions
from lakebed.arrow.reading.inference import infer_schema
from lakebed.commit import Commit
from lakebed.dataset import Dataset
from lakebed.errors import LakebedError
from lakebed.loading import LoadOptions, LoadReport
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
)
from lakebed.provider import MetadataProvider
from lakebed.repository import Repository, open_repository, open_uri
from lakebed.state.sources import SourceFile
from lakebed.state.transaction import CommitOptions
from lakebed.view import View

__all__ = [
    "Archive",
    "ArchiveRecord",
    "Commit",
    "CommitOptions",
    "CsvOptions",
    "Dataset",
    "DatasetDescriptor",
    "DimensionSchema",
    "FromArchive",
    "FromFiles",
    "Ingest",
    "IngestCheck",
    "IngestProgress",
    "IngestReport",
    "LakebedError",
    "LoadOptions",
    "LoadReport",
    "MetadataProvider",
    "PartitionStrategy",
    "Repository",
    "Schema",
    "SourceFile",
    "View",
    "WriteOptions",
    "by",
    "errors",
    "infer_schema",
    "open_archive",
    "open_repository",
    "open_uri",
]

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())

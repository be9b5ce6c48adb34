"""Lakebed: datasets on plain storage for PySpark users."""

import logging
from typing import TYPE_CHECKING

from lakebed.common.lazy import lazily as _lazily

if TYPE_CHECKING:
    from lakebed import by as by
    from lakebed import checks as checks
    from lakebed import errors as errors
    from lakebed import spark as spark
    from lakebed.archive.archive import Archive as Archive
    from lakebed.archive.archive import open_archive as open_archive
    from lakebed.archive.record import ArchiveRecord as ArchiveRecord
    from lakebed.arrow.kernel import WriteOptions as WriteOptions
    from lakebed.arrow.reading.dialect import CsvOptions as CsvOptions
    from lakebed.arrow.reading.dialect import JsonOptions as JsonOptions
    from lakebed.arrow.reading.inference import infer_schema as infer_schema
    from lakebed.batches.dataset_transaction import DatasetTransaction as DatasetTransaction
    from lakebed.batches.diff import Diff as Diff
    from lakebed.batches.listing import Batch as Batch
    from lakebed.batches.staged import Staged as Staged
    from lakebed.checks import Audit as Audit
    from lakebed.commit import Commit as Commit
    from lakebed.common.progress import Progress as Progress
    from lakebed.dataset import Dataset as Dataset
    from lakebed.errors import LakebedError as LakebedError
    from lakebed.errors import LakebedWarning as LakebedWarning
    from lakebed.model.descriptor import DatasetDescriptor as DatasetDescriptor
    from lakebed.model.dimensions import DimensionSchema as DimensionSchema
    from lakebed.model.partition import PartitionStrategy as PartitionStrategy
    from lakebed.model.retention import RetentionRule as RetentionRule
    from lakebed.model.schema import Schema as Schema
    from lakebed.pipeline.candidates import FromArchive as FromArchive
    from lakebed.pipeline.candidates import FromFiles as FromFiles
    from lakebed.pipeline.following import IngestQuery as IngestQuery
    from lakebed.pipeline.following import IngestRun as IngestRun
    from lakebed.pipeline.ingest import Ingest as Ingest
    from lakebed.pipeline.ingest import IngestCheck as IngestCheck
    from lakebed.pipeline.ingest_report import IngestReport as IngestReport
    from lakebed.pipeline.pipeline import Pipeline as Pipeline
    from lakebed.pipeline.pipeline_report import PipelineReport as PipelineReport
    from lakebed.pipeline.table_ingest import FromTable as FromTable
    from lakebed.pipeline.table_ingest import TableIngest as TableIngest
    from lakebed.pipeline.table_report import TableIngestReport as TableIngestReport
    from lakebed.repository import Repository as Repository
    from lakebed.repository import open_repository as open_repository
    from lakebed.repository import open_uri as open_uri
    from lakebed.state.committing import CommitOptions as CommitOptions
    from lakebed.state.file_provider import FileMetadataProvider as FileMetadataProvider
    from lakebed.state.metadata_provider import MetadataProvider as MetadataProvider
    from lakebed.state.protections import Protection as Protection
    from lakebed.state.sources import Hold as Hold
    from lakebed.state.sources import SourceFile as SourceFile
    from lakebed.tables.hive.hive_provider import HiveMetadataProvider as HiveMetadataProvider
    from lakebed.tables.trees.telemetry import TelemetryExport as TelemetryExport
    from lakebed.tables.trees.telemetry import TelemetryOptions as TelemetryOptions
    from lakebed.upkeep.maintenance import MaintenanceReport as MaintenanceReport
    from lakebed.upkeep.rules import CleanupRule as CleanupRule
    from lakebed.upkeep.rules import LayoutRule as LayoutRule
    from lakebed.upkeep.rules import PublishRule as PublishRule
    from lakebed.upkeep.step_report import StepReport as StepReport
    from lakebed.view import View as View
    from lakebed.work.check import CheckReport as CheckReport
    from lakebed.work.cleanup import CleanupReport as CleanupReport
    from lakebed.work.ingest.due import LeftOut as LeftOut
    from lakebed.work.ingest.load import LoadReport as LoadReport
    from lakebed.work.ingest.load_options import LoadOptions as LoadOptions
    from lakebed.work.pipeline_runs import PipelineRun as PipelineRun
else:
    __getattr__, __dir__, __all__ = _lazily(
        __name__,
        {
            "by": "lakebed",
            "checks": "lakebed",
            "errors": "lakebed",
            "spark": "lakebed",
            "Archive": "lakebed.archive.archive",
            "open_archive": "lakebed.archive.archive",
            "ArchiveRecord": "lakebed.archive.record",
            "WriteOptions": "lakebed.arrow.kernel",
            "CsvOptions": "lakebed.arrow.reading.dialect",
            "JsonOptions": "lakebed.arrow.reading.dialect",
            "infer_schema": "lakebed.arrow.reading.inference",
            "Diff": "lakebed.batches.diff",
            "Batch": "lakebed.batches.listing",
            "Staged": "lakebed.batches.staged",
            "DatasetTransaction": "lakebed.batches.dataset_transaction",
            "Audit": "lakebed.checks",
            "Commit": "lakebed.commit",
            "Dataset": "lakebed.dataset",
            "LakebedError": "lakebed.errors",
            "LakebedWarning": "lakebed.errors",
            "HiveMetadataProvider": "lakebed.tables.hive.hive_provider",
            "DatasetDescriptor": "lakebed.model.descriptor",
            "DimensionSchema": "lakebed.model.dimensions",
            "PartitionStrategy": "lakebed.model.partition",
            "Progress": "lakebed.common.progress",
            "MetadataProvider": "lakebed.state.metadata_provider",
            "Schema": "lakebed.model.schema",
            "FromArchive": "lakebed.pipeline.candidates",
            "FromFiles": "lakebed.pipeline.candidates",
            "IngestQuery": "lakebed.pipeline.following",
            "IngestRun": "lakebed.pipeline.following",
            "Hold": "lakebed.state.sources",
            "Ingest": "lakebed.pipeline.ingest",
            "IngestCheck": "lakebed.pipeline.ingest",
            "IngestReport": "lakebed.pipeline.ingest_report",
            "Pipeline": "lakebed.pipeline.pipeline",
            "PipelineReport": "lakebed.pipeline.pipeline_report",
            "FromTable": "lakebed.pipeline.table_ingest",
            "TableIngest": "lakebed.pipeline.table_ingest",
            "TableIngestReport": "lakebed.pipeline.table_report",
            "StepReport": "lakebed.upkeep.step_report",
            "PipelineRun": "lakebed.work.pipeline_runs",
            "MaintenanceReport": "lakebed.upkeep.maintenance",
            "CleanupRule": "lakebed.upkeep.rules",
            "LayoutRule": "lakebed.upkeep.rules",
            "PublishRule": "lakebed.upkeep.rules",
            "RetentionRule": "lakebed.model.retention",
            "Repository": "lakebed.repository",
            "open_repository": "lakebed.repository",
            "open_uri": "lakebed.repository",
            "CommitOptions": "lakebed.state.committing",
            "FileMetadataProvider": "lakebed.state.file_provider",
            "Protection": "lakebed.state.protections",
            "SourceFile": "lakebed.state.sources",
            "TelemetryExport": "lakebed.tables.trees.telemetry",
            "TelemetryOptions": "lakebed.tables.trees.telemetry",
            "View": "lakebed.view",
            "CheckReport": "lakebed.work.check",
            "CleanupReport": "lakebed.work.cleanup",
            "LeftOut": "lakebed.work.ingest.due",
            "LoadReport": "lakebed.work.ingest.load",
            "LoadOptions": "lakebed.work.ingest.load_options",
        },
    )

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())

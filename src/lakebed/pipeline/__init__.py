"""The pipeline: raw files of an archive or a folder become batches of a dataset."""

from lakebed.pipeline.candidates import FromArchive, FromFiles
from lakebed.pipeline.ingest import Ingest, IngestCheck
from lakebed.pipeline.report import IngestReport
from lakebed.work.ingest.due import LeftOut
from lakebed.work.ingest.execution import NO_PROGRESS, IngestProgress

__all__ = [
    "NO_PROGRESS",
    "FromArchive",
    "FromFiles",
    "Ingest",
    "IngestCheck",
    "IngestProgress",
    "IngestReport",
    "LeftOut",
]

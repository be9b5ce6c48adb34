"""The pipeline: raw files of an archive or a folder become batches of a dataset."""

from lakebed.pipeline.candidates import FromArchive, FromFiles
from lakebed.pipeline.execution import NO_PROGRESS, IngestProgress
from lakebed.pipeline.identity import LeftOut
from lakebed.pipeline.ingest import Ingest, IngestCheck
from lakebed.pipeline.report import IngestReport

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

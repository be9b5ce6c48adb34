"""The pipeline: raw files of an archive or a folder become batches of a dataset."""

from typing import TYPE_CHECKING

from lakebed.lazy import lazily

if TYPE_CHECKING:
    from lakebed.pipeline.candidates import FromArchive, FromFiles
    from lakebed.pipeline.execution import NO_PROGRESS, IngestProgress
    from lakebed.pipeline.identity import LeftOut
    from lakebed.pipeline.ingest import Ingest, IngestCheck
    from lakebed.pipeline.report import IngestReport
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "lakebed.pipeline.candidates": ("FromArchive", "FromFiles"),
            "lakebed.pipeline.execution": ("NO_PROGRESS", "IngestProgress"),
            "lakebed.pipeline.identity": ("LeftOut",),
            "lakebed.pipeline.ingest": ("Ingest", "IngestCheck"),
            "lakebed.pipeline.report": ("IngestReport",),
        },
    )

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

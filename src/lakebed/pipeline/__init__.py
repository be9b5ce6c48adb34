"""The pipeline: raw files of an archive or a folder become batches of a dataset."""

from typing import TYPE_CHECKING

from lakebed.model.lazy import lazily

if TYPE_CHECKING:
    from lakebed.model.progress import NO_PROGRESS
    from lakebed.pipeline.candidates import FromArchive, FromFiles
    from lakebed.pipeline.following import IngestQuery, IngestRun
    from lakebed.pipeline.ingest import Ingest, IngestCheck
    from lakebed.pipeline.report import IngestReport
    from lakebed.work.ingest.due import LeftOut
    from lakebed.work.ingest.execution import IngestProgress
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "lakebed.pipeline.candidates": ("FromArchive", "FromFiles"),
            "lakebed.pipeline.following": ("IngestQuery", "IngestRun"),
            "lakebed.pipeline.ingest": ("Ingest", "IngestCheck"),
            "lakebed.pipeline.report": ("IngestReport",),
            "lakebed.work.ingest.due": ("LeftOut",),
            "lakebed.model.progress": ("NO_PROGRESS",),
            "lakebed.work.ingest.execution": ("IngestProgress",),
        },
    )

__all__ = [
    "NO_PROGRESS",
    "FromArchive",
    "FromFiles",
    "Ingest",
    "IngestCheck",
    "IngestProgress",
    "IngestQuery",
    "IngestReport",
    "IngestRun",
    "LeftOut",
]

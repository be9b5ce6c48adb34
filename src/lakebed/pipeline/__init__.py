"""The pipeline: raw files of an archive or a folder become batches of a dataset."""

from typing import TYPE_CHECKING

from lakebed.common.lazy import lazily

if TYPE_CHECKING:
    from lakebed.common.progress import NO_PROGRESS as NO_PROGRESS
    from lakebed.model.retention import RetentionRule as RetentionRule
    from lakebed.pipeline.candidates import FromArchive as FromArchive
    from lakebed.pipeline.candidates import FromFiles as FromFiles
    from lakebed.pipeline.following import IngestQuery as IngestQuery
    from lakebed.pipeline.following import IngestRun as IngestRun
    from lakebed.pipeline.ingest import Ingest as Ingest
    from lakebed.pipeline.ingest import IngestCheck as IngestCheck
    from lakebed.pipeline.ingest_report import IngestReport as IngestReport
    from lakebed.pipeline.pipeline import Pipeline as Pipeline
    from lakebed.pipeline.pipeline import RunAge as RunAge
    from lakebed.pipeline.pipeline_report import PipelineReport as PipelineReport
    from lakebed.pipeline.table_ingest import FromTable as FromTable
    from lakebed.pipeline.table_ingest import TableIngest as TableIngest
    from lakebed.pipeline.table_report import TableIngestReport as TableIngestReport
    from lakebed.upkeep.rules import CleanupRule as CleanupRule
    from lakebed.upkeep.rules import LayoutRule as LayoutRule
    from lakebed.upkeep.rules import PublishRule as PublishRule
    from lakebed.upkeep.step_report import StepReport as StepReport
    from lakebed.work.ingest.due import LeftOut as LeftOut
    from lakebed.work.pipeline_runs import PipelineRun as PipelineRun
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "NO_PROGRESS": "lakebed.common.progress",
            "FromArchive": "lakebed.pipeline.candidates",
            "FromFiles": "lakebed.pipeline.candidates",
            "IngestQuery": "lakebed.pipeline.following",
            "IngestRun": "lakebed.pipeline.following",
            "Ingest": "lakebed.pipeline.ingest",
            "IngestCheck": "lakebed.pipeline.ingest",
            "IngestReport": "lakebed.pipeline.ingest_report",
            "Pipeline": "lakebed.pipeline.pipeline",
            "RunAge": "lakebed.pipeline.pipeline",
            "PipelineReport": "lakebed.pipeline.pipeline_report",
            "FromTable": "lakebed.pipeline.table_ingest",
            "TableIngest": "lakebed.pipeline.table_ingest",
            "TableIngestReport": "lakebed.pipeline.table_report",
            "StepReport": "lakebed.upkeep.step_report",
            "PipelineRun": "lakebed.work.pipeline_runs",
            "CleanupRule": "lakebed.upkeep.rules",
            "LayoutRule": "lakebed.upkeep.rules",
            "PublishRule": "lakebed.upkeep.rules",
            "RetentionRule": "lakebed.model.retention",
            "LeftOut": "lakebed.work.ingest.due",
        },
    )

"""Dimensions of a dataset: promote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lakebed import work
from lakebed.common.progress import NO_PROGRESS, OnProgress
from lakebed.dataset import session_of
from lakebed.groups.dataset_group import DatasetGroup
from lakebed.state.metadata_provider import reporting_provider_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.work.promotion import Allowed, PromotionReport


class DimensionGroup(DatasetGroup):
    """The dimensions of a dataset: partition fields with a list of allowed values."""

    _NAME = "dimensions"

    def promote(
        self,
        allowed: Allowed,
        spark: SparkSession | Literal[True] | None = None,
        *,
        reroute: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> PromotionReport:
        """Extend the allowed values of dimensions, and move their rows out of `OTHER`.

        The dimensions and the files change in one commit: a reader sees all of it or nothing. Only
        files of `OTHER` that hold entities to move are rewritten.

        Args:
            allowed: A dimension schema; or allowed values by field, as `by.dimension` takes
                them, such as `{"carrier": ["UA", "B6"]}`. Other dimensions stay as they are.
            spark: A session whose tasks do the work; True for the active session, else a local
                one. None for this process.
            reroute: Also allow dimensions to lose values, whose rows go to `OTHER`; and let a
                schema replace all dimensions: by others, by fewer, or in another order.
            dry_run: Only report the rows that would move.
            on_progress: Callback for progress; receives the number of files examined and
                rewritten, the total known so far, and their bytes.

        Returns:
            A report of the moved rows; without a commit if the dimensions are unchanged.

        Raises:
            PartitionSpecError: A dimension would lose values, and `reroute` is not given; or a
                dimension names an unknown field. Nothing has changed.
            InvalidInputError: A field has no dimension.
            CorruptMetadataError: A data file is damaged, or rows differed when they were read
                back; nothing became visible.
            CommitConflictError: Other writers kept writing to `OTHER`; nothing became visible.
            MetadataProviderError: The dataset has changed, but the repository's own provider
                failed.

        Cost:
            The head and the file table. File facts and indices select the files of `OTHER` that
            may hold such values; of these, the sources of the dimensions are read. Files that hold
            some are read and written once, and the new ones read once more. Memory: that of one
            writer, and the distinct values that move. With `reroute`, unless dimensions only allow
            more, the sources of all files are read; if dimensions are added, removed or reordered,
            all files are rewritten.
        """
        self._dataset._check_writable()
        do = work.rerouting.reroute if reroute else work.promotion.promote
        report, promoted = do(
            self._dataset._source.store,
            self._dataset.name,
            allowed,
            spark=session_of(spark),
            is_dry_run=dry_run,
            options=self._dataset._commit_options,
            on_progress=on_progress,
        )
        self._dataset._source.invalidate()
        if reroute and report.commit is not None:
            from lakebed.state import schema_file

            schema_file.put_or_leave(self._dataset._source.store, self._dataset.name, promoted)
        if report.commit is not None and self._dataset._source.metadata is not None:
            with reporting_provider_errors(
                self._dataset.name,
                f"promoted in version {report.commit.version}",
                "Call evolve(lambda old: old) to save it to the provider again.",
            ):
                self._dataset._source.metadata.save(self._dataset.name, promoted)
        return report

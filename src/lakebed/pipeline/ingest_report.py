"""The report of an ingest."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from lakebed.commit import Commit
from lakebed.common.html import facts_to_html
from lakebed.common.shown import counted, facts_of
from lakebed.state.after import NotPublished
from lakebed.work.ingest.due import LeftOut

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """The outcome of one run for the raw files of an ingest.

    Attributes:
        name: Name of the ingest, which is the name of its run.
        dataset: Name of the dataset.
        version: Version of the dataset after the run; 0 if a first run has loaded nothing, and so
            created none.
        commit: Commit of the rows; None if there was nothing to read.
        file_count: Files that were read.
        replaced_count: Earlier files, or earlier states of the files, whose rows were removed.
        replaced_row_count: Rows of these that were read before.
        unchanged_count: Files that had been read before, and were skipped.
        left_out: Files that were not read, with the reasons.
        brought_back: Locations of files that were read again because a rollback had removed them.
        row_count: Rows that were loaded.
        rejected_count: Rejects: lines, remainders of truncated files and whole files; including
            those of files that were kept back.
        rest_count: Remainders of truncated files among the rejects.
        rejected_file_count: Whole files among the rejects.
        rejected_file_row_count: Rows of these files, as far as they can be counted.
        ignored_file_count: Files with fields that were left out because of `unknown="ignore"`.
        ignored_row_count: Rows that had a value in such a field.
        ignored_fields: Paths of these fields.
        schema_changes: Additions to the schema by `unknown="keep"`, such as `+note: string`.
        schema_differences: Fields of the declared schema that the dataset lacks, or has with another
            type; the declared schema only creates a dataset.
        size_bytes: Size of the files that were read, as stored.
        carried_count: Rows of other files that were rewritten because they shared a data file with
            replaced rows.
        not_published: Tables that the properties of the dataset name and that do not show it, with
            the reason; also if there was nothing to read.
        quarantine: Name of the dataset that holds the rejects.
        duration_s: Duration in seconds.

    >>> report = IngestReport(
    ...     name="daily", dataset="numbers", version=1, commit=None, unchanged_count=3,
    ...     quarantine="numbers_quarantine",
    ... )
    >>> report.to_record()["unchanged_count"], report.to_record()["batch_id"]
    (3, None)
    """

    name: str
    dataset: str
    version: int
    commit: Commit | None
    file_count: int = 0
    replaced_count: int = 0
    replaced_row_count: int = 0
    unchanged_count: int = 0
    left_out: tuple[LeftOut, ...] = ()
    brought_back: tuple[str, ...] = ()
    row_count: int = 0
    rejected_count: int = 0
    rest_count: int = 0
    rejected_file_count: int = 0
    rejected_file_row_count: int = 0
    ignored_file_count: int = 0
    ignored_row_count: int = 0
    ignored_fields: tuple[str, ...] = ()
    schema_changes: tuple[str, ...] = ()
    schema_differences: tuple[str, ...] = ()
    size_bytes: int = 0
    carried_count: int = 0
    not_published: tuple[NotPublished, ...] = ()
    quarantine: str
    duration_s: float = 0.0

    @property
    def superseded_count(self) -> int:
        """Archived files that others replace by the declared rule."""
        return sum(file.why == "superseded" for file in self.left_out)

    @property
    def copy_count(self) -> int:
        """Archived files that were pushed again unchanged."""
        return sum(file.why == "copy" for file in self.left_out)

    @property
    def rejected_line_count(self) -> int:
        """Lines or rows that were rejected one by one."""
        return self.rejected_count - self.rest_count - self.rejected_file_count

    @property
    def held_count(self) -> int:
        """Files that are held, or whose records are retracted."""
        return sum(file.why == "held" for file in self.left_out)

    @property
    def kept_back(self) -> tuple[LeftOut, ...]:
        """Files that a person has to check; the rows that they would replace have stayed."""
        return tuple(file for file in self.left_out if file.is_kept_back)

    def to_record(self) -> dict[str, object]:
        """Return the report as one flat record with stable keys."""
        return {
            "name": self.name,
            "dataset": self.dataset,
            "version": self.version,
            "batch_id": None if self.commit is None else self.commit.batch_id,
            "file_count": self.file_count,
            "replaced_count": self.replaced_count,
            "replaced_row_count": self.replaced_row_count,
            "unchanged_count": self.unchanged_count,
            "superseded_count": self.superseded_count,
            "copy_count": self.copy_count,
            "kept_back_count": len(self.kept_back),
            "held_count": self.held_count,
            "brought_back_count": len(self.brought_back),
            "row_count": self.row_count,
            "rejected_count": self.rejected_count,
            "rejected_line_count": self.rejected_line_count,
            "rest_count": self.rest_count,
            "rejected_file_count": self.rejected_file_count,
            "rejected_file_row_count": self.rejected_file_row_count,
            "ignored_file_count": self.ignored_file_count,
            "ignored_row_count": self.ignored_row_count,
            "ignored_fields": ", ".join(self.ignored_fields) or None,
            "schema_changes": ", ".join(self.schema_changes) or None,
            "schema_differences": ", ".join(self.schema_differences) or None,
            "size_bytes": self.size_bytes,
            "carried_count": self.carried_count,
            "quarantine": self.quarantine if self.rejected_count else None,
            "duration_s": round(self.duration_s, 3),
        }

    def log(self) -> None:
        """Write a line to the log; a warning if a file was kept back."""
        level = logging.WARNING if self.kept_back else logging.INFO
        _log.log(
            level,
            "ingest done name=%s dataset=%s version=%d files=%d rows=%d rejected_lines=%d rests=%d "
            "rejected_files=%d ignored_rows=%d kept_back=%d",
            self.name,
            self.dataset,
            self.version,
            self.file_count,
            self.row_count,
            self.rejected_line_count,
            self.rest_count,
            self.rejected_file_count,
            self.ignored_row_count,
            len(self.kept_back),
        )

    def __repr__(self) -> str:
        rows, rejects = counted(self.row_count, "row"), counted(self.rejected_count, "reject")
        files, left_out = counted(self.file_count, "file"), counted(len(self.left_out), "file")
        read = f"{rows} of {files}, {rejects}"
        return f"<IngestReport of {self.name!r}: {read}; {left_out} left out>"

    def _repr_html_(self) -> str:
        return facts_to_html(f"Ingest {self.name}", facts_of(self.to_record()))
